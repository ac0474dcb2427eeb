"""(r) Real programs (real.py): attached to in the middle of their work; kernels by name, results equal to those of a process that nobody touched,
and nothing left. And four processes at once with everything recorded: what their detach takes, and what of it is CUPTI's."""

import csv
import glob
import os
import re
import sys

from kit import Attached, Problem, Program

# Name, steps while it is recorded, a kernel that must be among those recorded, options.
FEW = ["--kernel-trace", "--memory-copy-trace"]
PROGRAMS = (
    ("transformers", 60, r"gemm|Gemm|cutlass|softmax|attention|fmha", FEW),
    ("compile", 15000, r"triton|gemm|Gemm|cutlass", FEW),
    ("loader", 1500, r"gemm|Gemm|cutlass|elementwise", ["--tree", *FEW]),
    ("jax", 15000, r"gemm|fusion|cutlass|nvjet|loop", FEW),
    ("cupy", 30000, r"real_scale", FEW),
    ("triton", 40000, r"real_add", FEW),
    ("numba", 15000, r"real_increment", FEW),
    ("server", 20000, r"elementwise", ["--tree", *FEW]),
)
# Kinds of --sys-trace, for CUPTI alone.
ALL = "10 1 22 2 12 49 25 5 4 38"


def run(check):
    pairs = {}
    try:
        # All at once: most of the time is their start.
        for name, *_ in PROGRAMS:
            pairs[name] = [Program([sys.executable, check.source("real.py"), name], check.log(f"r-{name}-{which}")) for which in ("traced", "alone")]
        for name, steps, kernel, options in PROGRAMS:
            check.results.guarded("r", name, lambda name=name, steps=steps, kernel=kernel, options=options: one(check, pairs[name], name, steps, kernel, options))
    finally:
        for pair in pairs.values():
            for program in pair:
                program.kill()
    check.results.guarded("r", "four processes at once, --sys-trace", lambda: four(check))
    check.results.guarded("r", "four processes at once, CUPTI alone", lambda: four_alone(check))


def left_in(pid):
    """What of ours is open in a process: descriptors and threads."""
    names = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as file:
            names.append(file.read().strip())
    return len(os.listdir(f"/proc/{pid}/fd")), sum("midair" in name for name in names)


def tables(check, name, kind):
    rows = []
    for path in glob.glob(os.path.join(check.work, f"r-{name}*_{kind}.csv")):
        with open(path, encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    return rows


def one(check, pair, name, steps, kernel, options):
    traced, alone = pair
    ready = [program.said(180) for program in pair][0]
    pids = ready.get("pids", [traced.pid])
    fds = [left_in(pid)[0] for pid in pids]
    traced.tell(f"go {steps}")
    check.sleep(0.1)
    words = [os.path.join(check.stage, "bin/midair"), "attach", *(["--tree"] if "--tree" in options else []), str(traced.pid)]
    attached = Attached(check.stage, traced.pid, [word for word in options if word != "--tree"], check.work, f"r-{name}" + ("-%pid%" if "--tree" in options else ""), command=words)
    if not attached.recording():
        raise Problem(f"no attach: {attached.text.strip()[-300:]}")
    check.sleep(0.7)
    code = attached.stop(120)
    first = traced.said(180)
    rows = tables(check, name, "kernel_trace")
    left = [left_in(pid) for pid in (pids[:3] if name == "server" else pids)]
    # What was recorded must have stopped, and its process goes on.
    last = traced.ask("go 50", 120)
    theirs = [alone.ask(f"go {steps}", 180), alone.ask("go 50", 120)]
    names = {row["Kernel_Name"] for row in rows}
    hits = sum(bool(re.search(kernel, row["Kernel_Name"])) for row in rows)
    check.results.add("r", f"{name}: attach, kernels by name", f"exit {code}; {len(rows)} kernels of {len(names)} names, {hits} of /{kernel}/; attached in {check.told_ms(attached.text, 'attached to')} ms, "
                      f"detached in {check.told_ms(attached.text, 'detached from')} ms", "exit 0, some", code == 0 and hits > 0)
    check.results.add("r", f"{name}: results as without midair", f"{steps} and 50 steps: {'equal' if [first['digest'], last['digest']] == [one['digest'] for one in theirs] else 'DIFFERENT'}", "equal",
                      [first["digest"], last["digest"]] == [one["digest"] for one in theirs])
    more = [now[0] - before for now, before in zip(left, fds)]
    check.results.add("r", f"{name}: left behind", f"{max(more)} descriptors more, {sum(now[1] for now in left)} threads of midair's that sleep", "no descriptor of midair's", max(more) <= 2)
    warnings = [line for line in attached.text.splitlines() if "warning" in line]
    check.results.add("r", f"{name}: warnings", "; ".join(warnings)[:300] if warnings else "none", "none of processes without a GPU",
                      not any("cannot attach" in line or "without" in line for line in warnings))


def four(check):
    """Everything of four processes at once, each by a midair of its own; their detaches begin in the same moment."""
    programs = [Program([check.built("count"), "mixed", "4"], check.log(f"r-four-{at}")) for at in range(4)]
    try:
        for program in programs:
            program.said()
        for turn in range(3):
            attached = [Attached(check.stage, program.pid, ["--sys-trace"], check.work, f"r-four-{turn}-{at}") for at, program in enumerate(programs)]
            for each in attached:
                if not each.recording():
                    raise Problem(f"no attach: {each.text.strip()[-300:]}")
            check.sleep(0.5)
            for each in attached:
                each.process.stdin.write(b"\n")
                each.process.stdin.flush()
            codes = [each.finished(120) for each in attached]
            took = [check.told_ms(each.text, "detached from") for each in attached]
            notes = {line.strip()[:200] for each in attached for line in each.text.splitlines() if "warning" in line}
            check.results.add("r", f"four processes at once, --sys-trace: detach, turn {turn}", f"{', '.join(f'{ms:.0f}' for ms in took)} ms; codes {codes}; {'; '.join(sorted(notes))[:500]}", "", None)
        ends = [program.end() for program in programs]
        check.results.add("r", "four processes at once: the programs", ", ".join(f"{last['errors']} errors, code {code}" for last, code in ends), "0 errors, code 0",
                          all(last["errors"] == 0 and code == 0 for last, code in ends))
    finally:
        for program in programs:
            program.kill()


def four_alone(check):
    """The same with CUPTI alone: the milliseconds that switching each kind off takes."""
    from check_pc_sampling import own

    programs = [Program([check.built("count"), "mixed", "4"], check.log(f"r-alone-{at}"), RAW_LIBRARY=check.built("libraw.so")) for at in range(4)]
    try:
        for program in programs:
            program.said()
        for turn in range(2):
            for program in programs:
                said = program.ask(f"raw load {own()};unified;on {ALL}")["raw"]
                if said:
                    print("    CUPTI:", said)
            check.sleep(0.5)
            for program in programs:
                program.tell("raw timed-off;flush 1")
            said = [program.said()["raw"] for program in programs]
            check.results.add("r", f"four processes at once, CUPTI alone: switching each kind off, ms, turn {turn}", " | ".join(said)[:900], "", None)
    finally:
        for program in programs:
            program.kill()
