"""(d) What it costs: ratios of speeds, from interleaved runs of processes of one kind. One is never traced. Beside each that midair records
stands one that records the same with CUPTI alone (raw.c): what of the cost is CUPTI's, and what is ours."""

import sys

from kit import Attached, Problem, Program, reached
from statistics_of_pairs import ratio

SEGMENT = 0.04
KERNELS = ["--kernel-trace", "--memory-copy-trace"]

# Name, how it is traced, what the issue wants of it, and the same kinds of records for CUPTI alone.
LEVELS = (
    ("kernels and copies", KERNELS, 0.98, "10 1 22 2"),
    ("runtime calls, too (--cuda-runtime-trace)", [*KERNELS, "--cuda-runtime-trace"], None, "10 1 22 2 5 38"),
    ("all (--cuda-trace)", [*KERNELS, "--cuda-trace"], 0.95, "10 1 22 2 5 4 38"),
)
PROFILERS = (("torch.profiler, CUDA", "cuda"), ("torch.profiler, CPU+CUDA", "both"))
# Of the speed that CUPTI alone leaves.
OURS = 0.98
AFTER = 0.995


# What it is, its name, and whether it is PyTorch's.
LOOPS = (
    ("small torch operations (launch-bound)", "small", True),
    ("matrix products (compute-bound)", "big", True),
    ("vector additions of 1 M, C++", "vecadd", False),
    ("empty kernels, C++ (nothing but launches)", "empty", False),
)
NAMES = tuple(loop for _, loop, _ in LOOPS)


def run(check):
    for title, loop, torch in LOOPS:
        if not check.wants(loop):
            continue
        check.results.guarded("d", title, lambda title=title, loop=loop, torch=torch: Loop(check, title, loop, torch).run())


def cupti_of(pid):
    """The CUPTI that a process has."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        for line in file:
            if "libcupti.so" in line:
                return line.split()[-1]
    raise Problem("a recorded process has no CUPTI mapped")


class Loop:
    """One loop, at all levels."""

    def __init__(self, check, title, loop, torch):
        self.check, self.title, self.loop, self.torch = check, title, loop, torch
        self.ratios = {}

    def start(self, tag):
        # On one processor the measured threads are equal; but they cannot step aside for whoever works beside it.
        check = self.check
        words = [sys.executable, check.source("rates.py")] if self.torch else [check.built("count"), "idle", "0"]
        words += [] if check.pin is None else [str(check.pin)]
        return Program(words, check.log(f"d-{self.loop}-{tag}"), RAW_LIBRARY=check.built("libraw.so"))

    def rounds(self, programs, count):
        """Speeds of all in turn, beginning with another one each time."""
        measured = []
        for at in range(count):
            shift = at % len(programs)
            order = programs[shift:] + programs[:shift]
            speeds = {id(program): program.ask(f"rate {SEGMENT} {self.loop}")["rate"] for program in order}
            measured.append([speeds[id(program)] for program in programs])
        self.check.raw.append({"loop": self.loop, "rounds": [[round(speed) for speed in each] for each in measured]})
        return measured

    def run(self):
        profilers = PROFILERS if self.torch else ()
        twin, control = self.start("twin"), self.start("control")
        traced = [self.start(f"traced-{at}") for at in range(len(LEVELS) + len(profilers))]
        programs = [twin, control, *traced]
        try:
            for program in programs:
                program.said(120)
            for level, program in zip(LEVELS, traced):
                self.midair(level, twin, program, control)
            for (name, how), program in zip(profilers, traced[len(LEVELS):]):
                self.profiler(name, how, twin, program)
            self.compare()
        finally:
            for program in programs:
                program.kill()

    def add(self, name, first, second, during, before, goal, remark=""):
        """The row of one column's speed against another's."""
        def columns(rounds):
            return [(each[first], each[second]) for each in rounds]

        middle, low, high = ratio(columns(during), columns(before))
        self.ratios[name] = (middle, low, high)
        self.check.results.add("d", f"{self.title}: {name}", f"{middle:.4f} [{low:.4f}, {high:.4f}]{remark}", f">= {goal}" if goal else "",
                               reached(middle, high, goal) if goal else None)

    def midair(self, level, twin, program, control):
        name, options, goal, kinds = level
        check = self.check
        programs = [twin, program, control] if kinds else [twin, program]
        self.rounds(programs, 4)
        before = self.rounds(programs, check.pairs)
        attached = Attached(check.stage, program.pid, options, check.work, f"d-{self.loop}-{options[-1].strip('-')}", formats=("csv",))
        if not attached.recording():
            raise Problem(f"no attach: {attached.text.strip()[-300:]}")
        if kinds:
            self.alone(control, f"load {cupti_of(program.pid)};on {kinds}")
        self.rounds(programs, 2)
        during = self.rounds(programs, check.pairs)
        code = attached.stop(120)
        if code != 0:
            raise Problem(f"midair ended with {code}: {attached.text.strip()[-300:]}")
        attached.clean()
        speed = sum(each[0] for each in during) / len(during)
        self.add(f"midair, {name}", 0, 1, during, before, goal, f" of {speed:.0f}/s")
        if kinds:
            self.alone(control, "off;flush 1;finalize")
            self.add(f"CUPTI alone, {name}", 0, 2, during, before, None)
            self.add(f"midair against CUPTI alone, {name}", 2, 1, during, before, OURS)
        after = self.rounds(programs, check.pairs)
        self.add(f"after detaching from {name}", 0, 1, after, before, AFTER)
        if kinds:
            # Both were finalized. So what this keeps less than it had is left behind by CUPTI.
            self.add(f"after CUPTI alone, {name}", 0, 2, after, before, None)
            self.add(f"after midair against after CUPTI alone, {name}", 2, 1, after, before, AFTER)

    def alone(self, control, commands):
        said = control.ask(f"raw {commands}")["raw"]
        if said:
            raise Problem(f"CUPTI alone: {commands}: {said}")

    def profiler(self, name, how, twin, program):
        self.rounds([twin, program], 4)
        before = self.rounds([twin, program], self.check.pairs)
        during = []
        # In short runs: torch.profiler keeps everything in memory until it stops.
        while len(during) < self.check.pairs:
            program.ask(f"on {how}", 120)
            self.rounds([twin, program], 1)
            during += self.rounds([twin, program], min(5, self.check.pairs - len(during)))
            program.ask("off", 120)
        speed = sum(each[0] for each in during) / len(during)
        self.add(name, 0, 1, during, before, None, f" of {speed:.0f}/s")

    def compare(self):
        """Ours against torch.profiler's where both record alike: with CUDA alone it records kernels, copies and calls, too."""
        few, everything = (f"midair, {LEVELS[at][0]}" for at in (0, 2))
        cuda, both = (name for name, _ in PROFILERS)
        for mine, other in ((few, cuda), (everything, cuda), (everything, both)):
            if mine in self.ratios and other in self.ratios:
                a, b = self.ratios[mine], self.ratios[other]
                self.check.results.add("d", f"{self.title}: {mine}, against {other}", f"{a[0]:.4f} to {b[0]:.4f}",
                                       "ahead, or no difference within the intervals", a[2] >= b[1])
