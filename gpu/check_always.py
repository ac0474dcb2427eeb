"""(z) What `midair serve --always 1%` costs the application: its speed with the server and without it, against a twin that nothing attaches to."""

import os
import re
import socket
import subprocess
import sys
import urllib.request

from kit import Program, reached
from statistics_of_pairs import ratio_in_all

SEGMENT = 0.4
GOAL = 0.99
# Name, loop, and whether it is PyTorch's.
LOOPS = (
    ("GPT-2, module by module", "gpt", True),
    ("empty kernels, C++ (nothing but launches)", "empty", False),
    ("small torch operations (launch-bound)", "small", True),
    ("matrix products (compute-bound)", "big", True),
)
NAMES = tuple(loop for _, loop, _ in LOOPS)
# The server attaches to processes of this name alone.
SERVED = "served-program"
# Pairs after the server's start whose speeds do not count: it attaches, and finds out what its bursts cost.
WARM = 25


def run(check):
    for row in LOOPS:
        if check.wants(row[1]):
            check.results.guarded("z", row[0], lambda row=row: measure(check, *row))


def start(check, loop, torch, name):
    program = check.source("rates.py") if torch else check.built("count")
    link = check.built(f"{name}-{loop}")
    os.symlink(program, link)
    return Program([sys.executable, link] if torch else [link, "idle", "0"], check.log(f"z-{loop}-{name}"))


def rounds(twin, served, loop, count):
    """Pairs of speeds, in turn, each time with the other one first."""
    pairs = []
    for at in range(count):
        order = (twin, served) if at % 2 else (served, twin)
        speeds = {program.pid: program.ask(f"rate {SEGMENT} {loop}")["rate"] for program in order}
        pairs.append((speeds[twin.pid], speeds[served.pid]))
    return pairs


def metrics(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        return answer.read().decode()


def value(text, name, pid):
    found = re.findall(rf'^{name}{{[^}}]*pid="{pid}"[^}}]*}} ([0-9.e+-]+)', text, re.M)
    return sum(float(each) for each in found)


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def measure(check, title, loop, torch):
    address = f"127.0.0.1:{free_port()}"
    words = [os.path.join(check.stage, "bin/midair"), "serve", "--listen", address, "--always", "1%", "--only-name", SERVED]
    twin, served = start(check, loop, torch, "twin"), start(check, loop, torch, SERVED)
    try:
        twin.said(180)
        served.said(180)
        rounds(twin, served, loop, 4)
        before = rounds(twin, served, loop, check.pairs)
        with open(check.log(f"z-{loop}-serve"), "wb") as log:
            server = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            rounds(twin, served, loop, WARM)
            first = metrics(address)
            during = rounds(twin, served, loop, check.pairs)
            last = metrics(address)
        finally:
            server.terminate()
            server.wait(30)
    finally:
        twin.kill()
        served.kill()
    recorded, kernels = (value(last, name, served.pid) - value(first, name, served.pid) for name in ("midair_recorded_seconds_total", "midair_kernels_total"))
    overhead = value(last, "midair_overhead_ratio", served.pid)
    middle, low, high = ratio_in_all(during, before)
    check.raw.append({"always": loop, "before": before, "during": during})
    got = f"{middle:.4f} [{low:.4f}, {high:.4f}]; recorded {recorded:.2f} s, {kernels:.0f} kernels, overhead by the server {overhead:.4f}"
    good = reached(middle, high, GOAL) if recorded > 0 and kernels > 0 else False
    check.results.add("z", f"{title}: serve --always 1%", got, f">= {GOAL}, with records", good)
