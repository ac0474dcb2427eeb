"""(b) PyTorch: a training loop, and an inference loop over CUDA graphs that were there before. 50 attaches; torch.profiler during and after;
bit-equal to what nobody traced."""

import json
import random
import sys

from kit import Attached, Problem, Program, whole

CYCLES = 50
# The inference loop takes turns among three graphs.
STEPS = 12
# Attaches after torch.profiler's runs.
TURNS = 20


def run(check):
    for name in ("train", "infer"):
        check.results.guarded("b", name, lambda name=name: one(check, name))


def start(check, name, steps, tag):
    out = check.file(f"b-{name}-{tag}.json")
    words = [sys.executable, check.source(f"{name}.py"), str(steps), out]
    return Program(words, check.log(f"b-{name}-{tag}")), out


def read(path):
    with open(path, encoding="ascii") as file:
        return json.load(file)


def one(check, name):
    program, out = start(check, name, 0, "traced")
    try:
        program.said()
        cycles(check, name, program)
        beside_profiler(check, name, program)
        _, code = program.end()
        if code != 0:
            raise Problem(f"{name} ended with {code}")
    finally:
        program.kill()
    traced = read(out)
    # The same steps by two untouched processes, equal to one another first.
    references = [start(check, name, traced["steps"], f"untraced-{at}") for at in (1, 2)]
    try:
        for reference, _ in references:
            reference.said()
        for reference, _ in references:
            reference.said(180)
            reference.process.wait(60)
    finally:
        for reference, _ in references:
            reference.kill()
    first, second = (read(path) for _, path in references)
    check.results.add("b", f"{name}: untraced = untraced", f"{first['steps']} steps", "every bit", first == second)
    check.results.add("b", f"{name}: traced = untraced, {check.cycles} attaches", f"{traced['steps']} steps", "every bit", traced == first)


def cycles(check, name, program):
    """Attach and detach, again and again; also with all calls."""
    source, empty, attach, detach, captured = random.Random(name), 0, [], [], 0
    before = check.footprint(program.pid)
    for cycle in range(check.cycles):
        options = ["--kernel-trace", "--memory-copy-trace"] + (["--cuda-trace"] if cycle % 2 else [])
        attached = Attached(check.stage, program.pid, options, check.work, f"b-{name}-{cycle}")
        if not attached.recording():
            raise Problem(f"attach {cycle} failed: {attached.text.strip()[-300:]}")
        check.sleep(source.uniform(0.02, 0.15))
        whole(attached, attached.stop())
        if not program.alive():
            raise Problem(f"{name} died at cycle {cycle}")
        rows = attached.table("kernel_trace")
        captured += len(rows)
        empty += not rows
        attach.append(check.told_ms(attached.text, "attached to"))
        detach.append(check.told_ms(attached.text, "detached from"))
        attached.clean()
    after = check.footprint(program.pid)
    check.results.add("b", f"{name}: {check.cycles} attach/detach cycles", f"{captured} kernels, {empty} cycles without one", "0 without",
                      empty == 0)
    check.results.add("b", f"{name}: attach, detach (median)", f"{check.median(attach):.1f} ms, {check.median(detach):.1f} ms", "", None)
    check.results.add("b", f"{name}: descriptors, threads, memory before and after", f"{before} -> {after}", "no growth with the cycles",
                      after[0] <= before[0] + 4 and after[1] <= before[1] + 4)


def beside_profiler(check, name, program):
    """torch.profiler while nobody is attached, then beginning in the middle of a session, then again."""
    attached = Attached(check.stage, program.pid, ["--kernel-trace", "--memory-copy-trace"], check.work, f"b-{name}-yield")
    if not attached.recording():
        raise Problem(f"no attach: {attached.text.strip()[-300:]}")
    # Time for some steps; else torch.profiler may come before the first kernel.
    check.sleep(0.1)
    during = program.ask(f"profile {STEPS} cpu", 120)
    code = attached.finished()
    rows = attached.table("kernel_trace")
    alone = program.ask(f"profile {STEPS} cpu", 120)
    cuda = program.ask(f"profile {STEPS}", 120)
    sums = [sum(answer["kernels"].values()) for answer in (during, alone, cuda)]
    check.results.add("b", f"{name}: torch.profiler begins while attached: its kernels, and without us",
                      f"{sums[0]}, {sums[1]}, CUDA only {sums[2]}", "equal, not 0", sums[0] == sums[1] == sums[2] > 0
                      and during["kernels"] == alone["kernels"])
    said = "gave way" in attached.text or "another profiler" in attached.text
    check.results.add("b", f"{name}: our session then", f"exit {code}, {len(rows)} kernels until then, {'said' if said else 'not said'}",
                      "exit 0, said", code == 0 and said and bool(rows))
    with open(program.log, encoding="utf-8", errors="replace") as file:
        complaints = [line.strip() for line in file if "CUPTI" in line or "Cupti" in line]
    check.results.add("b", f"{name}: what torch.profiler complained of", complaints[0][:160] if complaints else "nothing", "nothing", not complaints)
    # torch.profiler was there and is idle now. Again and again: whose buffer CUPTI has then is a matter of moments.
    captured, last = [], None
    for turn in range(TURNS):
        again = Attached(check.stage, program.pid, ["--kernel-trace"], check.work, f"b-{name}-again-{turn}")
        if not again.recording():
            raise Problem(f"no attach after a torch.profiler run: {again.text.strip()[-300:]}")
        check.sleep(0.1)
        whole(again, again.stop())
        captured.append(len(again.table("kernel_trace")))
        again.clean()
        last = program.ask(f"profile {STEPS} cpu", 120)
        if last["kernels"] != alone["kernels"]:
            break
    check.results.add("b", f"{name}: {TURNS} attaches, each after torch.profiler, and torch.profiler after each",
                      f"{min(captured)} kernels and more; {sum(last['kernels'].values())} kernels", f"some in each; {sums[1]} each time",
                      len(captured) == TURNS and min(captured) > 0 and last["kernels"] == alone["kernels"])
