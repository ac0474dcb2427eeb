"""(v) What CUPTI itself costs, version by version, with all calls and without those that only ask for state (api/cuda_silent.json); and which
calls programs make. Ratios of speeds, interleaved, as in part d; nothing of midair is in the measured processes."""

import json
import os
import re
import subprocess
import sys

from kit import Attached, Problem, Program, count_by, whole
from check_pc_sampling import own
from statistics_of_pairs import ratio

SEGMENT = 0.04
ROUNDS = 20
# Kinds: kernels, copies, fills; and runtime, driver, waits.
KERNELS, ALL = "10 1 22 2", "10 1 22 2 5 4 38"


def run(check):
    check.results.guarded("v", "which calls programs make", lambda: calls(check))
    for loop in ("small", "big") if check.pin is None else ("small",):
        check.results.guarded("v", f"cost by CUPTI's version, {loop}", lambda loop=loop: matrix(check, loop))


def table(name):
    """A file of the repository's /api."""
    for above in (os.path.join(os.path.dirname(__file__), "../api"), os.path.join(os.path.dirname(__file__), "api"), "api"):
        path = os.path.join(above, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return json.load(file)
    raise Problem(f"{name} is not here")


def numbers(part, silent):
    """The callback ids of the calls that are silent, or of those that are not."""
    wanted = set(table("cuda_silent.json")[part])
    values = table("cupti_13.json")["enums"][f"CUpti_{part}_api_trace_cbid_enum"]["values"]
    found = []
    for full, number in values.items():
        name = full.split("_CBID_", 1)[1]
        if name in ("INVALID", "SIZE", "FORCE_INT"):
            continue
        plain = re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", name)
        if (plain in wanted) == silent and number not in found:
            found.append(number)
    return " ".join(str(number) for number in found)


def calls(check):
    """The calls of three programs, most frequent first."""
    silent = set(sum((table("cuda_silent.json")[part] for part in ("runtime", "driver")), []))
    for name, words in (("small", [sys.executable, check.source("rates.py")]), ("train", [sys.executable, check.source("train.py"), "0", check.file("v-train")]),
                        ("infer", [sys.executable, check.source("infer.py"), "0", check.file("v-infer")])):
        program = Program(words, check.log(f"v-{name}"))
        try:
            program.said(120)
            attached = Attached(check.stage, program.pid, ["--kernel-trace", "--cuda-trace"], check.work, f"v-{name}")
            if not attached.recording():
                raise Problem(f"no attach: {attached.text.strip()[-300:]}")
            if name == "small":
                program.ask("rate 0.2 small")
            else:
                check.sleep(0.3)
            whole(attached, attached.stop())
            rows = count_by(attached.table("cuda_api_trace"), "Function")
        finally:
            program.kill()
        of_silent = sum(n for key, n in rows.items() if re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", key) in silent)
        most = ", ".join(f"{key} {n}" for key, n in rows.most_common(24))
        check.results.add("v", f"calls of {name}: of those that only ask", f"{of_silent} of {sum(rows.values())} ({most})", "", None)


def matrix(check, loop):
    cuptis = [own(), *check.cuptis]
    levels = {"kernels": f"on {KERNELS}", "all": f"on {ALL}",
              "all but silent": f"on {ALL};less runtime {numbers('runtime', True)};less driver {numbers('driver', True)} 719"}
    if loop == "big":
        levels = {"all": levels["all"]}
    names, programs = ["untraced"], []
    try:
        def start(tag):
            pin = [] if check.pin is None else [str(check.pin)]
            programs.append(Program([sys.executable, check.source("rates.py"), *pin], check.log(f"v-{loop}-{tag}"), RAW_LIBRARY=check.built("libraw.so")))

        start("twin")
        for cupti in cuptis:
            for level in levels:
                names.append((cupti, level))
                start(len(names))
        # Each call by itself instead of the kinds, by the oldest and the newest.
        singles = [cuptis[0], cuptis[-1]] if loop == "small" else []
        for cupti in singles:
            names.append((cupti, "calls one by one"))
            start(len(names))
        for program in programs:
            program.said(180)
        one_by_one = f"on {KERNELS} 38;calls runtime {numbers('runtime', False)};calls driver {numbers('driver', False)}"
        rounds(programs, loop, 3)
        before = rounds(programs, loop, ROUNDS)
        failed = {}
        for name, program in zip(names[1:], programs[1:]):
            said = program.ask(f"raw load {name[0]};{levels.get(name[1], one_by_one)}")["raw"]
            if said:
                failed[name] = said
        rounds(programs, loop, 2)
        during = rounds(programs, loop, ROUNDS)
        for at, name in enumerate(names[1:], 1):
            middle, low, high = ratio([(each[0], each[at]) for each in during], [(each[0], each[at]) for each in before])
            speed = sum(each[0] for each in during) / len(during)
            check.results.add("v", f"{loop}: CUPTI {version(name[0])} alone, {name[1]}",
                              f"{middle:.4f} [{low:.4f}, {high:.4f}] of {speed:.0f}/s{'; CUPTI said ' + failed[name][:120] if name in failed else ''}", "", None)
    finally:
        for program in programs:
            program.kill()


def version(path):
    """What a CUPTI says of itself; asked in a process of its own, since it stays loaded."""
    script = "import ctypes, sys; told = ctypes.c_uint(); ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(told)); print(told.value)"
    return subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def rounds(programs, loop, count):
    measured = []
    for at in range(count):
        shift = at % len(programs)
        order = programs[shift:] + programs[:shift]
        speeds = {id(program): program.ask(f"rate {SEGMENT} {loop}")["rate"] for program in order}
        measured.append([speeds[id(program)] for program in programs])
    return measured
