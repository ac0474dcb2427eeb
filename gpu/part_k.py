"""(k) Whether calls have one correlation id twice after kinds of CUPTI's activities were switched on and off beside launches, so that
torch.profiler fails for the rest of the process (gpu-check-h100.md). First by CUPTI alone, in the ways in which midair switches them; then by
sessions of midair's. Processes of the inference loop over graphs, in which CUPTI stays."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from kit import Attached, Problem, Program, whole
from part_o import library

STEPS = 12
KERNEL, COPY, PEER_COPY, FILL, RUNTIME, DRIVER, WAIT = 10, 1, 22, 2, 5, 4, 38
# Kernels one by one: midair asks with it whether another profiler records.
SERIAL = 3
# Calls that midair switches off one by one, and that this loop makes often: cudaGetDevice, cudaStreamIsCapturing, cudaPeekAtLastError,
# cudaGetLastError; cuStreamIsCapturing, cuKernelGetName.
SINGLE_RUNTIME, SINGLE_DRIVER = (17, 317, 11, 10), (392, 719)
# midair's order for kernels, copies and calls.
ORDER = [KERNEL, COPY, PEER_COPY, FILL, RUNTIME, DRIVER, WAIT]
SILENT = os.environ.get("SILENT", "").split(",")
MANY = [tuple(int(word[1:]) for word in SILENT if word[:1] == side) for side in "rd"]
NO_WAITS = ORDER[:-1]
WAYS = {
    "all singles": (NO_WAITS, *MANY),
    "singles of the runtime": (NO_WAITS, MANY[0], ()),
    "singles of the driver": (NO_WAITS, (), MANY[1]),
    "no singles": (NO_WAITS, (), ()),
    "six singles": (NO_WAITS, SINGLE_RUNTIME, SINGLE_DRIVER),
    "all singles, on again": (NO_WAITS, *MANY, 0, 1),
    "all singles, runtime off first": ([KERNEL, DRIVER, RUNTIME], *MANY),
    "kernels, calls, all singles": ([KERNEL, RUNTIME, DRIVER], *MANY),
    "calls of the runtime, its singles": ([KERNEL, RUNTIME], MANY[0], ()),
    "calls of the driver, its singles": ([KERNEL, DRIVER], (), MANY[1]),
}
TURNS, ROUNDS, EACH = 1000, 8, 2
SESSIONS, LOOK_EVERY, PROCESSES, AT_ONCE = 50, 5, 24, 6


def run(check):
    words = ["gcc", "-O1", "-shared", "-fPIC", "-o", check.built("libtwice.so"), check.source("twice.c"), "-ldl"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Problem(f"gcc: {done.stderr.strip()[-800:]}")
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for name, way in WAYS.items():
            for _ in range(EACH):
                threads.submit(check.results.guarded, "k", name, lambda name=name, way=way: alone(check, name, way))
    if "ALONE" not in os.environ:
        check.results.guarded("k", "sessions", lambda: sessions(check))


def start(check, tag):
    words = [sys.executable, check.source("infer.py"), "0", check.file(f"k-{tag}.json")]
    program = Program(words, check.log(f"k-{tag}"), TWICE_LIBRARY=check.built("libtwice.so"), CUPTI_LIBRARY=library(check, os.getpid()))
    program.said(120)
    return program


def ids(program):
    return program.ask(f"look {STEPS} {KERNEL} {RUNTIME} {DRIVER}", 60)


def told(way):
    kinds, runtime, driver, question, restores = (*way, 0, 0)[:5]
    return json.dumps({"kinds": kinds, "runtime": runtime, "driver": driver, "question": question, "restores": restores}, separators=(",", ":"))


def alone(check, name, way):
    plan = told(way)
    program = start(check, f"alone-{threading.get_ident()}")
    try:
        before = ids(program)
        for done in range(1, ROUNDS + 1):
            program.ask(f"switch {TURNS} {plan}", 120)
            look = ids(program)
            if look["twice"] > before["twice"]:
                break
        failed = program.ask(f"profile {STEPS}", 120).get("error", "none")
        check.results.add("k", f"CUPTI alone, {name}: calls with one id, before and after {done * TURNS} times on and off; torch.profiler's error",
                          f"{before['twice']}, {look['twice']}; {failed[:80]}; {look['text'][:200]}", "0, 0; none",
                          before["twice"] == look["twice"] == 0 and failed == "none")
    finally:
        program.kill()


def after(check, program, what):
    """What a process in which ids are there twice says after each kind was switched once more."""
    said = [what]
    for name, way in WAYS.items():
        program.ask(f"switch 1 {told(way)}", 60)
        said.append(f"after {name}: {ids(program)['twice']}, {program.ask(f'profile {STEPS}', 120).get('error', 'none')[:60]}")
    check.results.add("k", "a process with ids twice", "; ".join(said), "", None)


def sessions(check):
    with ThreadPoolExecutor(AT_ONCE) as threads:
        looks = list(threads.map(lambda at: process(check, at), range(PROCESSES)))
    check.results.add("k", f"{SESSIONS} sessions with calls in each of {PROCESSES} processes: calls with one id; torch.profiler failed in",
                      f"{[twice for twice, _ in looks]}; {sum(failed for _, failed in looks)}", "0; 0", not any(map(any, looks)))


def process(check, at):
    """Sessions in one process. How many calls have an id twice afterwards, and whether torch.profiler fails."""
    program = start(check, f"sessions-{at}")
    try:
        for turn in range(SESSIONS):
            # In every third process each session records calls; else every second one, as in part b.
            calls = ["--cuda-trace"] if at % 3 == 0 or turn % 2 else []
            attached = Attached(check.stage, program.pid, ["--kernel-trace", "--memory-copy-trace", *calls], check.work, f"k-{at}-{turn}")
            if not attached.recording():
                raise Problem(f"no attach: {attached.text.strip()[-300:]}")
            check.sleep(0.02 + 0.013 * (turn * 7 % 11))
            whole(attached, attached.stop())
            attached.clean()
            # Nobody but midair uses CUPTI in the others until the end.
            if at % 2 == 0 and turn % LOOK_EVERY == LOOK_EVERY - 1 and ids(program)["twice"]:
                break
        look = ids(program)
        failed = "error" in program.ask(f"profile {STEPS} cpu", 120) or "error" in program.ask(f"profile {STEPS}", 120)
        if look["twice"] or failed:
            after(check, program, f"process {at}, {turn + 1} sessions: {look['text'][:300]}")
        return look["twice"], failed
    finally:
        program.kill()
