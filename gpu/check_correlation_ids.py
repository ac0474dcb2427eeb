"""(k) Whether calls have one correlation id twice after kinds of CUPTI's activities were switched on and off beside launches, so that
torch.profiler fails for the rest of the process (gpu-check-h100.md). First by CUPTI alone: with single calls left out, as midair does, and
switched on again before their kinds are switched off, or not. Then by sessions of midair's. Processes of the inference loop over graphs, in
which CUPTI stays."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from kit import Attached, Problem, Program, whole
from check_cupti_switching import library

STEPS = 12
KERNEL, RUNTIME, DRIVER = 10, 5, 4
# The numbers of the calls that midair leaves out (api/cuda_silent.json), and of cuKernelGetName.
SILENT_RUNTIME = (
    1, 2, 3, 4, 10, 11, 12, 17, 151, 154, 166, 173, 174, 200, 203, 204, 205, 207, 209, 210, 212, 237, 238, 251, 255, 317, 318, 324, 325,
    327, 329, 343, 344, 372, 386, 406, 407, 409, 410, 440, 441, 442, 461, 462, 468, 469, 480, 481, 493, 502, 503,
)
SILENT_DRIVER = (
    2, 3, 4, 5, 6, 7, 8, 9, 16, 35, 85, 135, 137, 246, 259, 296, 299, 304, 310, 312, 331, 332, 368, 369, 370, 372, 373, 374, 391, 392,
    434, 435, 450, 451, 454, 482, 483, 484, 499, 500, 532, 536, 537, 541, 543, 566, 574, 575, 606, 610, 626, 629, 630, 647, 673, 675,
    676, 677, 686, 693, 694, 695, 718, 719, 729, 730, 759, 760, 774, 775, 795,
)
WAYS = {
    "no single calls off": ((), (), False),
    "single calls on again": (SILENT_RUNTIME, SILENT_DRIVER, True),
    "single calls stay off": (SILENT_RUNTIME, SILENT_DRIVER, False),
}
TURNS, ROUNDS, EACH = 2000, 10, 4
SESSIONS, LOOK_EVERY, PROCESSES, AT_ONCE = 50, 5, 24, 6


def run(check):
    words = ["gcc", "-O1", "-shared", "-fPIC", "-o", check.built("libtwice.so"), check.source("twice.c"), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Problem(f"gcc: {done.stderr.strip()[-800:]}")
    check.results.guarded("k", "sessions", lambda: sessions(check))
    for name, way in WAYS.items():
        check.results.guarded("k", name, lambda name=name, way=way: alone(check, name, way))


def start(check, tag):
    words = [sys.executable, check.source("infer.py"), "0", check.file(f"k-{tag}.json")]
    program = Program(words, check.log(f"k-{tag}"), TWICE_LIBRARY=check.built("libtwice.so"), CUPTI_LIBRARY=library(check, os.getpid()))
    program.said(120)
    return program


def ids(program):
    return program.ask(f"look {STEPS} {KERNEL} {RUNTIME} {DRIVER}", 60)


def is_off(program):
    """Whether CUPTI records nothing but kernels when only these are wanted."""
    words = program.ask(f"look {STEPS} {KERNEL}", 60)["text"].split()
    return [word.split("=")[0] for word in words] == [str(KERNEL)]


def alone(check, name, way):
    with ThreadPoolExecutor(AT_ONCE) as threads:
        rows = list(threads.map(lambda _: switched(check, way), range(EACH)))
    bad = [turns for turns, twice, _, _ in rows if twice]
    # CUPTI's own fault is told, not judged.
    good = all(off for *_, off in rows) and (None if "stay" in name else not bad and not any(failed for _, _, failed, _ in rows))
    check.results.add("k", f"CUPTI alone, {name}: {EACH} processes, {ROUNDS * TURNS} times on and off in each",
                      f"calls with one id in {len(bad)} (after {bad}); torch.profiler fails in {sum(failed for _, _, failed, _ in rows)}",
                      "" if good is None else "0; 0", good)


def switched(check, way):
    runtime, driver, restores = way
    plan = {"kinds": [KERNEL, RUNTIME, DRIVER], "runtime": runtime, "driver": driver, "restores": int(restores)}
    program = start(check, f"alone-{threading.get_ident()}-{restores}-{len(driver)}")
    try:
        for done in range(1, ROUNDS + 1):
            program.ask(f"switch {TURNS} {json.dumps(plan, separators=(',', ':'))}", 120)
            twice = ids(program)["twice"]
            if twice:
                break
        off = is_off(program)
        return done * TURNS, twice, "error" in program.ask(f"profile {STEPS}", 120), off
    finally:
        program.kill()


def sessions(check):
    with ThreadPoolExecutor(AT_ONCE) as threads:
        looks = list(threads.map(lambda at: process(check, at), range(PROCESSES)))
    check.results.add("k", f"{SESSIONS} sessions in each of {PROCESSES} processes: calls with one id in; torch.profiler fails in; CUPTI is off in",
                      f"{sum(twice > 0 for twice, _, _ in looks)}; {sum(failed for _, failed, _ in looks)}; {sum(off for *_, off in looks)}",
                      f"0; 0; {PROCESSES}", not any(twice or failed or not off for twice, failed, off in looks))


def process(check, at):
    """Sessions in one process. How many calls have an id twice afterwards, whether torch.profiler fails, and whether CUPTI is off."""
    program = start(check, f"sessions-{at}")
    try:
        for turn in range(SESSIONS):
            # In every third process each session records calls of the driver; else every second one records all calls, as in part b.
            calls = ["--cuda-driver-trace"] if at % 3 == 0 else ["--cuda-trace"] if turn % 2 else []
            attached = Attached(check.stage, program.pid, ["--kernel-trace", "--memory-copy-trace", *calls], check.work, f"k-{at}-{turn}")
            if not attached.recording():
                raise Problem(f"no attach: {attached.text.strip()[-300:]}")
            check.sleep(0.02 + 0.013 * (turn * 7 % 11))
            whole(attached, attached.stop())
            attached.clean()
            # No tool but midair uses CUPTI in the others until the end.
            if at % 2 == 0 and turn % LOOK_EVERY == LOOK_EVERY - 1 and ids(program)["twice"]:
                break
        off, look = is_off(program), ids(program)
        failed = "error" in program.ask(f"profile {STEPS} cpu", 120) or "error" in program.ask(f"profile {STEPS}", 120)
        return look["twice"], failed, off
    finally:
        program.kill()
