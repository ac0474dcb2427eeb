"""(x) Sessions beside threads and contexts that come and go (churn.cu, churn.py, contexts.cu): short ones and longer ones, of several kinds by turns, all programs at
once. No program may crash, hang or compute wrong, lose memory, or make midair lose records; and after torch.profiler's runs times lie in
the session, and no note blames the wall clock."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time

import cores
from kit import Problem, Program, tail

# Sessions of both lengths, in all; the programs share them.
SHORT, LONG = (1000, "60ms"), (200, "400ms")
# The kinds of sessions, by turns, and which exit codes each may have: a recording in bursts may end before its first one (32).
KINDS = {
    "kernels": (["attach"], (0,)),
    "sys-trace": (["attach", "--sys-trace"], (0,)),
    "top": (["top", "--once", "--interval", "250ms"], (0,)),
    "keep": (["attach", "--keep", "50ms"], (0,)),
    "stacks": (["attach", "--stacks", "python"], (0,)),
    "max-overhead": (["attach", "--max-overhead", "20"], (0, 32)),
}
# How much memory of a program may grow, MiB: the least of twenty sessions is compared with the least of the last twenty. torch.profiler keeps
# 900 MiB of the first run that records much, which may be any run next to other profilers, and 23 MiB of each further run (H200, without
# midair). A loss of midair's own would be in the other programs, too.
GROWTH, FIRST_PROFILE, PROFILE = 256, 900, 32
SETTLED, LEAST_OF = 10, 20
# How much PyTorch keeps of each graph that a thread captures, KiB: 48 without any session (H200: 26 MiB/s at 540 graphs a second).
GRAPH = 52
# How long the program of contexts is looked at without any session, to see how much the driver keeps of each context, s. It keeps 5.7 to
# 15.9 MiB of each, in six such looks at an H200; so a quarter more may be kept than was seen.
ALONE, MORE = 15, 1.25
LIMIT = 120
SECONDS = "540"
# The programs, and their arguments after the time.
CHURN, CONTEXTS, PYTHON = "churn", "contexts", "churn.py"
PROGRAMS = {
    "C++, 24 threads": (CHURN, "24"),
    "C++, 64 threads": (CHURN, "64"),
    "C++, 8 threads, contexts": (CONTEXTS, "8"),
    "C++, 24 threads, graphs": (CHURN, "24", "graphs"),
    "Python, 24 threads": (PYTHON, "24"),
    "Python, 64 threads": (PYTHON, "64"),
    "Python, 24 threads, graphs": (PYTHON, "24", "graphs"),
    "Python, 24 threads, torch.profiler": (PYTHON, "24", "profile"),
}


def run(check):
    for name in (CHURN, CONTEXTS):
        words = ["nvcc", "-std=c++17", "-O2", "-arch=native", "-o", check.built(name), check.source(f"{name}.cu"), "-lpthread", "-lcuda"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise Problem(f"nvcc: {done.stderr.strip()[-400:]}")
    programs = {}
    for name in [name for name in PROGRAMS if check.wants(name)] or PROGRAMS:
        program, *options = PROGRAMS[name]
        start = [sys.executable, check.source(program)] if program == PYTHON else [check.built(program)]
        programs[name] = [*start, SECONDS, *options]
    if "LD_PRELOAD" in Program.EVERYWHERE:
        # A profiler that uses another CUPTI than midair gets nothing afterwards (docs/cuda.md).
        programs.pop("Python, 24 threads, torch.profiler", None)
    check.context_bytes = bytes_of_a_context(check)
    runs = [threading.Thread(target=check.results.guarded, args=("x", name, lambda at=at, name=name, words=words: beside(check, at, name, words, len(programs))))
            for at, (name, words) in enumerate(programs.items())]
    for one in runs:
        one.start()
    for one in runs:
        one.join()


def bytes_of_a_context(check):
    """How much the program of contexts grows by each without midair, MiB."""
    program = Program([check.built("contexts"), SECONDS, "8"], check.log("x-alone"))
    try:
        program.said()
        before = check.footprint(program.pid)[2]
        time.sleep(ALONE)
        grown = check.footprint(program.pid)[2] - before
        last, _ = program.end()
    finally:
        program.kill()
    each = max(grown, 0) / max(last["ends"], 1)
    check.results.add("x", "C++, 8 threads, contexts: without midair", f"{last}, grown by {grown} MiB, {each:.2f} MiB a context", "nothing wrong",
                      last["wrong"] == 0)
    return each


def beside(check, at, name, words, programs):
    program = Program(words, check.log(f"x-{at}"))
    tally = {"sessions": 0, "records": 0, "yielded": 0, "stays": 0, "longest": 0.0}
    bad, kinds = [], [kind for kind in KINDS if check.wants(kind)] or list(KINDS)
    try:
        program.said()
        footprints = []
        for sessions, length in (SHORT, LONG):
            for _ in range(-(-(sessions // 10 if check.quick else sessions) // programs)):
                kind = kinds[len(footprints) % len(kinds)]
                bad += session(check, f"x-{at}", program.pid, kind, length, tally)
                if not program.alive():
                    code = program.process.wait(10)
                    where = cores.stacks_of(program.pid, words[0])
                    raise Problem(f"the program died after {len(footprints) + 1} sessions, the last one {kind}: code {code}; {tail(program.log)}{where}")
                footprints.append(check.footprint(program.pid)[2])
        grown = min(footprints[-LEAST_OF:]) - min(footprints[SETTLED:SETTLED + LEAST_OF])
        try:
            last, code = program.end()
        except Problem as problem:
            raise Problem(f"{problem} after {len(footprints)} sessions{cores.stop_silent(program.process, words[0])}") from problem
    finally:
        program.kill()
    check.raw.append({"program": name, "footprints": footprints})
    contexts = MORE * check.context_bytes * last["ends"] if "contexts" in name else 0
    allowed = GROWTH + int(contexts) + FIRST_PROFILE * ("profile" in words) + PROFILE * last.get("profiles", 0) + GRAPH * last.get("graphs", 0) // 1024
    told = ", ".join(f"{value:.1f} {key}" if isinstance(value, float) else f"{value} {key}" for key, value in tally.items())
    check.results.add("x", f"{name}: sessions", f"{told}; {len(bad)} bad {bad[:3]}", "none bad", not bad)
    check.results.add("x", f"{name}: the program", f"{last}, code {code}, grown by {grown} MiB", f"nothing wrong, code 0, at most {allowed} MiB",
                      code == 0 and last["wrong"] == 0 and grown <= allowed)


def session(check, name, pid, kind, length, tally):
    """Runs one session. Returns what was wrong with it."""
    directory = check.file(name)
    words, codes = KINDS[kind]
    duration = [] if kind == "top" else ["--duration", length, "-f", "csv", "-d", directory, "-o", "t"]
    begin = time.monotonic()
    try:
        done = subprocess.run([os.path.join(check.stage, "bin/midair"), words[0], str(pid), *words[1:], *duration], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return [f"{kind}: no end within {LIMIT} s"]
    tally["longest"] = max(tally["longest"], time.monotonic() - begin)
    tally["sessions"] += 1
    text = done.stdout + done.stderr
    notes = os.path.join(directory, "t_notes.txt")
    if os.path.exists(notes):
        with open(notes, encoding="utf-8") as file:
            text += file.read()
    table = os.path.join(directory, "t_kernel_trace.csv")
    if os.path.exists(table):
        with open(table, encoding="utf-8") as file:
            tally["records"] += sum(1 for _ in file) - 1
    shutil.rmtree(directory, ignore_errors=True)
    # Another profiler came first, or came meanwhile.
    yielded = "another profiler" in text
    tally["yielded"] += yielded
    stays = re.search(r"CUPTI stays .*?\((.*?)\):", text)
    if stays:
        tally["stays"] += 1
        tally.setdefault("because", set()).add(stays.group(1))
    wrong = [word for word in ("wall clock was set", "no plausible times", "no known clock") if word in text]
    if done.returncode not in codes and not (yielded and done.returncode in (28, 32)):
        wrong.append(f"code {done.returncode}: {text.strip()[-300:]}")
    return [f"{kind} of {length}: {what}" for what in wrong]
