"""(f) Launch stacks (--stacks python): each line of Python code has the GPU's time of its own kernels, and what taking the stacks costs.

It needs CUPTI 13.5 or newer in the place of PyTorch's and of the toolkit's libcupti: with an older one midair takes no stacks, and the rows fail.
--programs-cupti does not do, since PyTorch loads its own by path."""

import collections
import csv
import os
import re
import subprocess
import sys

from kit import Attached, Problem, Program, reached
from statistics_of_pairs import ratio

OPTIONS = ["--kernel-trace", "--stacks", "python"]
NATIVE = ["--kernel-trace", "--stacks", "both"]
ROUNDS = (1, 50)
SEGMENT, SEGMENTS = 0.04, 6
# Of the speed with kernels alone.
GOAL = 0.97
LOOPS = (("small torch operations (nothing but launches)", "small"), ("a GPT-2 without a graph", "gpt"))
KERNEL = '__global__ void scale(float *values, float by, int count) { if (by == 1) values[threadIdx.x % count] = by; }\n'


def run(check):
    check.results.guarded("f", "PyTorch, by line", lambda: torch_lines(check))
    check.results.guarded("f", "the driver, by line and thread", lambda: driver_lines(check))
    check.results.guarded("f", "graphs, by line", lambda: graph_lines(check))
    for title, loop in LOOPS:
        check.results.guarded("f", title, lambda title=title, loop=loop: speed(check, title, loop))


def folded(attached):
    """The stacks, outermost first, the kernel last, each with its nanoseconds."""
    with open(os.path.join(attached.directory, f"{attached.name}_results.folded"), encoding="utf-8") as file:
        for line in file:
            path, time = line.rsplit(" ", 1)
            yield path.split(";"), int(time)


def line_of(frame):
    return int(re.search(r":(\d+)\)$", frame).group(1))


def times_by_grid(attached):
    times, counts = collections.Counter(), collections.Counter()
    with open(os.path.join(attached.directory, f"{attached.name}_kernel_trace.csv"), encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            grid = int(row["Grid_Size_X"]), int(row["Grid_Size_Y"])
            times[grid] += int(row["End_Timestamp"]) - int(row["Start_Timestamp"])
            counts[grid] += 1
    return times, counts


def torch_lines(check):
    program = Program([sys.executable, check.source("lines.py")], check.log("f-lines"))
    try:
        program.said(120)
        for rounds in ROUNDS:
            attached = Attached(check.stage, program.pid, OPTIONS, check.work, f"f-lines-{rounds}", formats=("csv", "folded"))
            if not attached.recording():
                raise Problem(f"no attach: {attached.text.strip()[-300:]}")
            lines = {int(line): value for line, value in program.ask(f"work {rounds}", 120)["lines"].items()}
            code = attached.stop(120)
            times, counts = times_by_grid(attached)
            by_line = collections.Counter()
            for path, time in folded(attached):
                own = [frame for frame in path if "lines.py:" in frame and not frame.startswith("add ")]
                if any(frame.startswith("add (") for frame in path):
                    by_line[line_of(own[-1])] += time
            wrong, kernels = [], 0
            for line, (size, count) in lines.items():
                # A kernel of elements has its grid from its size, which no other line has.
                grids = [grid for grid in times if counts[grid] == count and abs(times[grid] - by_line[line]) == 0]
                kernels += count
                if not grids:
                    wrong.append((line, size, count, by_line[line]))
            check.results.add("f", f"PyTorch, {rounds} rounds: {len(lines)} lines, {kernels} kernels in modules, generators, asyncio and threads",
                              f"{len(wrong)} lines with other times than their kernels' {wrong[:3]}, code {code}", "none", not wrong and code == 0)
            attached.clean()
    finally:
        program.kill()


def with_kernel(check, name):
    """A program of tests/python on the driver, with the kernel `scale`, when it is ready."""
    source, image = check.built("scale.cu"), check.built("scale.cubin")
    with open(source, "w", encoding="ascii") as file:
        file.write(KERNEL)
    words = ["nvcc", "-cubin", "-arch=native", "-o", image, source]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Problem(f"nvcc: {done.stderr.strip()[-400:]}")
    words = [sys.executable, check.source(name), "libcuda.so.1", image]
    program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if program.stdout.readline() != "ready\n":
        program.kill()
        program.wait()
        raise Problem(f"{name} does not start")
    return program


def worked(check, program, name, rounds):
    """A session with stacks in which the program works for some rounds, and its exit code."""
    attached = Attached(check.stage, program.pid, OPTIONS, check.work, f"{name}-{rounds}", formats=("csv", "folded"))
    if not attached.recording():
        raise Problem(f"no attach: {attached.text.strip()[-300:]}")
    program.stdin.write(f"work {rounds}\n")
    program.stdin.flush()
    program.stdout.readline()
    return attached, attached.stop(120)


def driver_lines(check):
    program = with_kernel(check, "launch_lines.py")
    try:
        for rounds in ROUNDS:
            attached, code = worked(check, program, "f-driver", rounds)
            wanted, found = collections.Counter(), collections.Counter()
            times, counts = times_by_grid(attached)
            for (x, y), time in times.items():
                wanted[x // 64, y > 1] += time
            for path, time in folded(attached):
                in_thread = any(frame.startswith("in_thread (") for frame in path)
                # The caller of launch, which calls start, which launches the kernel.
                found[line_of(path[-4]), in_thread] += time
            check.results.add("f", f"the driver's calls by ctypes, {rounds} rounds: {sum(counts.values())} kernels of {len(wanted)} lines",
                              f"{sum(1 for key in wanted | found if wanted[key] != found[key])} lines with other times, code {code}", "none",
                              wanted == found and code == 0)
            attached.clean()
    finally:
        program.kill()
        program.wait()


def graph_lines(check):
    program = with_kernel(check, "cuda_graph_lines.py")
    try:
        for rounds in ROUNDS:
            attached, code = worked(check, program, "f-graphs", rounds)
            wanted, found = collections.Counter(), collections.Counter()
            times, counts = times_by_grid(attached)
            for (x, y), time in times.items():
                wanted[x // 64, y == 2] += time
            for path, time in folded(attached):
                frames = [frame for frame in path[:-1] if not frame.startswith(("launch (", "replay ("))]
                is_before = frames[-1] == "(graph captured before the attach)"
                found[line_of(frames[-2] if is_before else frames[-1]), is_before] += time
            check.results.add("f", f"graphs, {rounds} rounds: {sum(counts.values())} kernels of {len(wanted)} lines that captured or launched them",
                              f"{sum(1 for key in wanted | found if wanted[key] != found[key])} lines with other times, code {code}", "none",
                              wanted == found and code == 0 and len(wanted) > 5)
            attached.clean()
    finally:
        program.kill()
        program.wait()


def speed(check, title, loop):
    """One process, in turn not recorded, recorded without stacks and with them (Python's, then native ones as well). Each turn is a session of its own, so that what
    differs between processes, and what the machine does for longer than a turn, is in all four."""
    program = Program([sys.executable, check.source("rates.py")], check.log(f"f-{loop}"))
    forms = {"not recorded": None, "kernels": OPTIONS[:1], "kernels and stacks": OPTIONS, "kernels and all stacks": NATIVE}
    turns, codes = [], collections.Counter()
    try:
        program.said(120)
        for turn in range(check.pairs):
            rates = {}
            order = list(forms) if turn % 2 == 0 else list(reversed(forms))
            for name in order:
                attached = None
                if forms[name] is not None:
                    attached = Attached(check.stage, program.pid, forms[name], check.work, f"f-{loop}", formats=("csv",))
                    if not attached.recording():
                        raise Problem(f"no attach: {attached.text.strip()[-300:]}")
                program.ask(f"rate {SEGMENT} {loop}")
                rates[name] = sum(program.ask(f"rate {SEGMENT} {loop}")["rate"] for _ in range(SEGMENTS))
                if attached:
                    codes[attached.stop(120)] += 1
                    attached.clean()
            turns.append(rates)
    finally:
        program.kill()
    check.raw.append({"loop": loop, "turns": turns})
    compared = (("not recorded", "kernels", None), ("not recorded", "kernels and stacks", None), ("kernels", "kernels and stacks", GOAL),
                ("kernels", "kernels and all stacks", None))
    for first, second, goal in compared:
        middle, low, high = ratio([(rates[first], rates[second]) for rates in turns])
        mean = sum(rates[first] for rates in turns) / len(turns) / SEGMENTS
        check.results.add("f", f"{title}: {second}, against {first}",
                          f"{middle:.4f} [{low:.4f}, {high:.4f}] of {mean:.0f}/s, codes {dict(codes)}", f">= {goal}" if goal else "",
                          reached(middle, high, goal) and set(codes) == {0} if goal else None)
