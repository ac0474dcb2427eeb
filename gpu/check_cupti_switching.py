"""(o) Recordings in bursts. First what CUPTI alone makes of kinds that are switched on and off again and again beside launching threads; none of
our code is in these processes (raw.c). What a loop of small operations keeps of its speed, by the part of the time that is recorded; and whether
programs with one and with eight launching threads live through it. Because of that, midair's bursts are whole sessions, seconds apart: check_bursts."""

import glob
import os
import sys

import check_bursts
from kit import Problem, Program
from check_overhead import cupti_of
from statistics_of_pairs import ratio

SEGMENT = 0.2
# Microseconds on and off: 2 %, an eighth (what 2 % leave where recording costs 16 %), all but a tenth, and switching alone.
DUTIES = ((2000, 98000), (12500, 87500), (90000, 10000), (1, 99999))
KERNELS = "10"
# Threads, and the seconds that a program with so many is recorded in bursts of 5 ms, 20 a second.
THREADS = ((1, 60), (8, 60))
# What can be asked for alone; "alone" is CUPTI alone.
ROWS = (*check_bursts.ROWS, "alone")


def run(check):
    check_bursts.run(check)
    if not check.wants("alone"):
        return
    check.results.guarded("o", "speed in bursts", lambda: speeds(check))
    for threads, seconds in THREADS:
        check.results.guarded("o", f"{threads} threads in bursts", lambda threads=threads, seconds=seconds: survival(check, threads, check.seconds(seconds)))


def library(check, pid):
    """A CUPTI for this process: what was asked for, what it has, or the newest that Python has."""
    if check.cuptis:
        return check.cuptis[0]
    try:
        return cupti_of(pid)
    except Problem:
        found = [path for place in sys.path for path in glob.glob(os.path.join(place, "nvidia/*cu*/lib/libcupti.so.*"))]
        found += glob.glob(os.path.join("/usr/local/cuda*", "extras/CUPTI/lib64/libcupti.so.1*"))
        if not found:
            raise Problem("there is no CUPTI here") from None
        return sorted(found)[-1]


def raw(program, commands):
    return program.ask(f"raw {commands}", 120)["raw"]


def speeds(check):
    words = [sys.executable, check.source("rates.py")] + ([] if check.pin is None else [str(check.pin)])
    programs = [Program(words, check.log(f"o-{tag}"), RAW_LIBRARY=check.built("libraw.so")) for tag in ("twin", "bursts")]
    try:
        for program in programs:
            program.said(120)

        def rounds(count):
            measured = []
            for at in range(count):
                order = programs if at % 2 == 0 else programs[::-1]
                speed = {id(program): program.ask(f"rate {SEGMENT} small")["rate"] for program in order}
                measured.append(tuple(speed[id(program)] for program in programs))
            return measured

        rounds(4)
        before = rounds(check.pairs)
        said = raw(programs[1], f"load {library(check, programs[1].pid)}")
        if said:
            raise Problem(f"CUPTI alone: {said}")
        for on, off in DUTIES:
            raw(programs[1], f"bursts {on} {off} {KERNELS}")
            rounds(2)
            during = rounds(check.pairs)
            said = raw(programs[1], "bursts-end")
            middle, low, high = ratio(during, before)
            check.results.add("o", f"small torch operations, CUPTI on for {on} of {on + off} us", f"{middle:.4f} [{low:.4f}, {high:.4f}]; {said}", "", None)
    finally:
        for program in programs:
            program.kill()


def survival(check, threads, seconds):
    program = Program([check.built("count"), "plain", str(threads)], check.log(f"o-count-{threads}"), RAW_LIBRARY=check.built("libraw.so"))
    try:
        program.said(120)
        said = raw(program, f"load {library(check, program.pid)};bursts 5000 45000 {KERNELS}")
        if said:
            raise Problem(f"CUPTI alone: {said}")
        check.sleep(seconds)
        if not program.alive():
            raise Problem(f"the program ended with {program.process.returncode}: kinds were switched on and off beside {threads} threads")
        said = raw(program, "bursts-end")
        last, code = program.end()
        good = code == 0 and last["errors"] == 0
        check.results.add("o", f"{threads} launching threads, kinds on and off", f"{said}exit code {code}, {last['errors']} errors", "lives, no errors", good)
    finally:
        program.kill()
