"""(c) Times against the program's own CUDA events; names and counts against torch.profiler on the same steps."""

import re
import statistics
import sys

from kit import Attached, Problem, Program, between, count_by, whole

KERNELS = 200
STEPS = 40


def run(check):
    check.results.guarded("c", "times against CUDA events", lambda: times(check))
    for name in ("train", "infer"):
        check.results.guarded("c", f"{name} against torch.profiler", lambda name=name: names(check, name))


def times(check):
    program = Program([check.built("count"), "idle", "0"], check.log("c-times"))
    try:
        program.said()
        attached = Attached(check.stage, program.pid, ["--kernel-trace"], check.work, "c-times")
        if not attached.recording():
            raise Problem(f"no attach: {attached.text.strip()[-300:]}")
        told = program.ask(f"times {KERNELS}")
        whole(attached, attached.stop())
        program.end()
    finally:
        program.kill()
    rows = [row for row in between(attached.table("kernel_trace"), told["from"], told["to"]) if "count_spin" in row["Kernel_Name"]]
    rows.sort(key=lambda row: int(row["Start_Timestamp"]))
    took = [int(row["End_Timestamp"]) - int(row["Start_Timestamp"]) for row in rows]
    good = len(took) == KERNELS
    check.results.add("c", "kernels inside the program's own clock reads", f"{len(took)} of {KERNELS}", "all", good)
    if not good:
        return
    # An event is recorded some microseconds beside the kernel: the event's time is a little longer, never shorter by more than its resolution.
    over = [event - ours for event, ours in zip(told["ns"], took)]
    long = [abs(event - ours) / event for event, ours in zip(told["ns"], took) if event > 500_000]
    check.results.add("c", "CUDA event minus kernel (min, median, max)",
                      f"{min(over) / 1e3:.2f}, {statistics.median(over) / 1e3:.2f}, {max(over) / 1e3:.2f} us", "-1 to 20 us (median)",
                      -1000 <= statistics.median(over) <= 20_000)
    check.results.add("c", "difference of kernels above 0.5 ms (median, max)", f"{statistics.median(long):.3%}, {max(long):.3%}", "median < 1 %",
                      statistics.median(long) < 0.01)


def plain(name):
    """A name as both write it: without spaces, and without the return types that one demangler puts before functions made of templates."""
    return re.sub(r"\s+", "", re.sub(r"\bvoid (?=[A-Za-z_(])", "", name))


def names(check, name):
    out = check.file(f"c-{name}.json")
    program = Program([sys.executable, check.source(f"{name}.py"), "0", out], check.log(f"c-{name}"))
    try:
        program.said()
        attached = Attached(check.stage, program.pid, ["--kernel-trace"], check.work, f"c-{name}")
        if not attached.recording():
            raise Problem(f"no attach: {attached.text.strip()[-300:]}")
        first = program.ask("mark")
        check.sleep(check.seconds(0.6))
        second = program.ask("mark")
        whole(attached, attached.stop())
        # The inference loop takes turns among three graphs: a multiple of three steps has the same mix.
        steps = STEPS - STEPS % 3
        theirs = program.ask(f"profile {steps} cpu", 120)
        program.end()
    finally:
        program.kill()
    rows = between(attached.table("kernel_trace"), first["time"], second["time"])
    count = second["step"] - first["step"]
    ours = {plain(key): n / count for key, n in count_by(rows, "Kernel_Name").items()}
    other = {}
    for key, n in theirs["kernels"].items():
        other[plain(key)] = other.get(plain(key), 0) + n / steps
    check.results.add("c", f"{name}: different kernels, ours and torch.profiler's", f"{len(ours)}, {len(other)}", "the same names",
                      set(ours) == set(other) and bool(ours))
    odd = sorted(set(ours) ^ set(other))
    if odd:
        for key in odd[:4]:
            print("    named by one alone:", key[:160], "...", key[-160:])
    # Where the steps between the marks are no multiple of three, the mix of three graphs differs by less than three steps' worth.
    room = 3 / count + 3 / steps if name == "infer" else 1e-9
    wrong = [key for key in set(ours) & set(other) if abs(ours[key] - other[key]) > room * max(other[key], 1)]
    check.results.add("c", f"{name}: kernels per step", f"{sum(ours.values()):.2f}, torch.profiler {sum(other.values()):.2f} ({count} and {steps} steps)",
                      "equal for each name", not wrong and not odd)
    attached.clean()
