"""(d) What it costs: ratios of speeds, from interleaved pairs of two processes of one kind, of which only the second is ever traced."""

import sys

from kit import Attached, Problem, Program
from statistics_of_pairs import ratio

SEGMENT = 0.04

# Name, how it is traced, and what the issue wants of it.
LEVELS = (
    ("midair, kernels and copies", ["--kernel-trace", "--memory-copy-trace"], 0.98),
    ("midair, runtime calls, too (--cuda-runtime-trace)", ["--kernel-trace", "--memory-copy-trace", "--cuda-runtime-trace"], None),
    ("midair, all (--cuda-trace)", ["--kernel-trace", "--memory-copy-trace", "--cuda-trace"], 0.95),
    ("torch.profiler, CUDA", "cuda", None),
    ("torch.profiler, CPU+CUDA", "both", None),
)


def run(check):
    loops = (
        ("small torch operations (launch-bound)", "small", True),
        ("matrix products (compute-bound)", "big", True),
        ("vector additions of 1 M, C++", "vecadd", False),
        ("empty kernels, C++ (nothing but launches)", "empty", False),
    )
    for title, loop, torch in loops:
        check.results.guarded("d", title, lambda title=title, loop=loop, torch=torch: one(check, title, loop, torch))


def start(check, loop, torch, tag):
    # On one processor the measured threads are equal; but they cannot step aside for whoever works beside it.
    words = [sys.executable, check.source("rates.py")] if torch else [check.built("count"), "idle", "0"]
    return Program(words + ([] if check.pin is None else [str(check.pin)]), check.log(f"d-{loop}-{tag}"))


def pairs(check, first, second, loop, count):
    """Each of both in turn, beginning with the other one each time."""
    measured = []
    for at in range(count):
        order = (first, second) if at % 2 == 0 else (second, first)
        speeds = {id(program): program.ask(f"rate {SEGMENT} {loop}")["rate"] for program in order}
        measured.append((speeds[id(first)], speeds[id(second)]))
    check.raw.append({"loop": loop, "pairs": [[round(one), round(other)] for one, other in measured]})
    return measured


def one(check, title, loop, torch):
    levels = [level for level in LEVELS if torch or isinstance(level[1], list)]
    twin = start(check, loop, torch, "twin")
    traced = [start(check, loop, torch, f"traced-{at}") for at in range(len(levels))]
    ratios = {}
    try:
        for program in (twin, *traced):
            program.said(120)
        for (name, how, goal), program in zip(levels, traced):
            pairs(check, twin, program, loop, 4)
            before = pairs(check, twin, program, loop, check.pairs)
            if isinstance(how, list):
                measured, speed = with_midair(check, twin, program, loop, how)
            else:
                measured, speed = with_profiler(check, twin, program, loop, how)
            middle, low, high = ratio(measured, before)
            ratios[name] = (middle, low, high)
            wanted = f">= {goal}" if goal else ""
            check.results.add("d", f"{title}: {name}", f"{middle:.4f} [{low:.4f}, {high:.4f}] of {speed:.0f}/s", wanted,
                              None if goal is None else high >= goal)
            if isinstance(how, list):
                middle, low, high = ratio(pairs(check, twin, program, loop, check.pairs), before)
                check.results.add("d", f"{title}: after detaching from that", f"{middle:.4f} [{low:.4f}, {high:.4f}]", ">= 0.995", high >= 0.995)
        compare(check, title, ratios)
    finally:
        for program in (twin, *traced):
            program.kill()


def with_midair(check, twin, program, loop, options):
    attached = Attached(check.stage, program.pid, options, check.work, f"d-{loop}-{options[-1].strip('-')}", formats=("csv",))
    if not attached.recording():
        raise Problem(f"no attach: {attached.text.strip()[-300:]}")
    pairs(check, twin, program, loop, 2)
    measured = pairs(check, twin, program, loop, check.pairs)
    code = attached.stop(120)
    if code != 0:
        raise Problem(f"midair ended with {code}: {attached.text.strip()[-300:]}")
    attached.clean()
    return measured, sum(first for first, _ in measured) / len(measured)


def with_profiler(check, twin, program, loop, how):
    measured = []
    # In short runs: torch.profiler keeps everything in memory until it stops.
    while len(measured) < check.pairs:
        program.ask(f"on {how}", 120)
        pairs(check, twin, program, loop, 1)
        measured += pairs(check, twin, program, loop, min(5, check.pairs - len(measured)))
        program.ask("off", 120)
    return measured, sum(first for first, _ in measured) / len(measured)


def compare(check, title, ratios):
    """Ours against torch.profiler's where both record alike: with CUDA alone it records kernels, copies and calls, too."""
    ours = ("midair, kernels and copies", "midair, all (--cuda-trace)")
    theirs = ("torch.profiler, CUDA", "torch.profiler, CPU+CUDA")
    for mine, other in ((ours[0], theirs[0]), (ours[1], theirs[0]), (ours[1], theirs[1])):
        if mine in ratios and other in ratios:
            a, b = ratios[mine], ratios[other]
            check.results.add("d", f"{title}: {mine}, against {other}", f"{a[0]:.4f} to {b[0]:.4f}",
                              "ahead, or no difference within the intervals", a[2] >= b[1])
