"""(y) How long an attach takes, and for how long a thread of the application is stopped: idle and busy processors, PyTorch, JAX."""

import os
import re
import shutil
import subprocess
import sys
import time

from kit import Problem, Program

# Name, number of attaches, seconds at most, whether each attach has a fresh process, busy loops next to it, and the goals in ms. Only the first attach to a process
# stops a thread of the application; later ones enter by midair's own worker thread.
ROWS = (
    ("first", 3000, 330, True, False, {("attach", 0.5): 25, ("pause", 0.99): 0.5, ("pause", 1): 1}),
    ("again", 1000, 60, False, False, {("attach", 0.5): 15, ("processor", 0.5): 15}),
    ("busy", 300, 60, True, True, {("pause", 1): 2}),
    ("pytorch", 300, 25, False, False, {("attach", 0.5): 25}),
    ("jax", 200, 15, False, False, {("attach", 0.5): 60}),
)
NAMES = tuple(row[0] for row in ROWS)

PHASES = re.compile(r"inspect ([\d.]+) ms, prepare ([\d.]+) ms while entering, enter ([\d.]+) ms, set up ([\d.]+) ms; "
                    r"attached after ([\d.]+) ms, ([\d.]+) ms of midair's processor time")
PAUSE = re.compile(r"that thread was stopped for (\d+) us \(([^)]*)\)")
COLUMNS = ("attach", "inspect", "prepare", "enter", "set up", "processor", "pause", "detach", "command")
# One addition each millisecond.
CUDA_LOOP = """
import json, sys, time
if sys.argv[1] == "jax":
    import jax.numpy as m
    make = m.ones
else:
    import torch as m
    make = lambda size: m.ones(size, device="cuda")
x = make(1000)
x = x + 1
print("@ {}", flush=True)
while True:
    x = x + 1
    time.sleep(0.001)
"""


def run(check):
    for row in ROWS:
        if check.wants(row[0]):
            check.results.guarded("y", row[0], lambda row=row: measure(check, *row))


class Demo:
    """midair's demo program, as `midair demo` starts it: HIP on the stand-in runtimes, 15 threads, two modelled GPUs."""

    def __init__(self, check, log):
        home = os.path.join(check.stage, "lib/midair-demo")
        environment = {**os.environ, "LD_LIBRARY_PATH": home, "HSA_MODEL_TOPOLOGY": os.path.join(home, "topology"), "MODEL_JITTER": "12"}
        with open(log, "wb") as out:
            self.process = subprocess.Popen([os.path.join(home, "workload"), "0", "500", "any", "600"], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        self.pid, end = self.process.pid, time.monotonic() + 30
        while b"iter 2\n" not in self.printed(log):
            if self.process.poll() is not None or time.monotonic() > end:
                raise Problem(f"the demo program does not start its work: {self.printed(log)[-300:]}")
            time.sleep(0.01)

    @staticmethod
    def printed(log):
        with open(log, "rb") as file:
            return file.read(1 << 16)

    def kill(self):
        self.process.kill()
        self.process.wait()


def program(check, name):
    if name not in ("pytorch", "jax"):
        return Demo(check, check.log(f"y-{name}"))
    started = Program([sys.executable, "-c", CUDA_LOOP, name], check.log(f"y-{name}"))
    started.said(120)
    return started


def one(check, pid, at):
    """The figures of one attach in ms."""
    directory = check.file(f"y-{at}")
    began = time.monotonic()
    done = subprocess.run([os.path.join(check.stage, "bin/midair"), "attach", str(pid), "--kernel-trace", "--timings", "-v", "--duration", "5ms", "-f", "csv", "-d", directory],
                          capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    took = (time.monotonic() - began) * 1e3
    shutil.rmtree(directory, ignore_errors=True)
    text = done.stdout + done.stderr
    phases, pause = PHASES.search(text), PAUSE.search(text)
    # 3: the process launched nothing within these 5 ms.
    if done.returncode not in (0, 3) or not phases:
        raise Problem(f"attach {at} ended with {done.returncode}: {text.strip()[-300:]}")
    inspect, prepare, enter, set_up, attach, processor = (float(each) for each in phases.groups())
    stopped = int(pause.group(1)) / 1e3 if pause and "worker thread of an earlier session" not in text else 0.0
    if stopped > 1:
        print(f"  attach {at}: stopped for {stopped} ms ({pause.group(2)})", flush=True)
    return dict(zip(COLUMNS, (attach, inspect, prepare, enter, set_up, processor, stopped, check.told_ms(text, "detached from"), took)))


def at_share(values, share):
    return values[min(len(values) - 1, int(len(values) * share))]


def measure(check, name, count, limit, fresh, busy, goals):
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() if busy else 0)]
    target, measured, end = None, [], time.monotonic() + check.seconds(limit)
    try:
        target = program(check, name)
        while len(measured) < count and time.monotonic() < end:
            if fresh and measured:
                target.kill()
                target = program(check, name)
            measured.append(one(check, target.pid, len(measured)))
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        if target:
            target.kill()
    sorted_by = {column: sorted(each[column] for each in measured) for column in COLUMNS}
    check.raw.append({"attach times": name, "ms": sorted_by})
    shown = "; ".join(f"{column} " + " / ".join(f"{at_share(sorted_by[column], share):.3g}" for share in (0.5, 0.9, 0.99, 1)) for column in COLUMNS)
    good = all(at_share(sorted_by[column], share) <= limit for (column, share), limit in goals.items())
    wanted = ", ".join(f"{column} {'longest' if share == 1 else f'{share * 100:.0f} %'} <= {limit} ms" for (column, share), limit in goals.items())
    check.results.add("y", f"{name}: {len(measured)} attaches, ms, 50 / 90 / 99 % / longest", shown, wanted, good)
