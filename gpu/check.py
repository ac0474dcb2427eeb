"""Everything that issue 5 wants shown on a GPU of NVIDIA's, in one go: `python3 check.py --stage DIR --out DIR`.

Builds count.cu with nvcc, runs the parts, prints a table, and writes gpu-check.json and gpu-check.md into DIR. Exit code 0: all as it must
be; 1: not all; 3: this machine cannot show it (and a sentence why). Needs python3 with PyTorch, nvcc, gcc and the right to trace.
"""

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import cores
import features
import check_always
import check_attach_times
import check_counted_records
import check_pytorch
import check_times
import check_overhead
import check_failures
import check_gpu_metrics
import check_correlation_ids
import check_live_views
import check_nvtx
import check_cupti_switching
import check_pc_sampling
import check_real_programs
import check_stacks
import check_two_subscribers
import check_torchrun
import check_cupti_cost
import check_losses
import check_thread_churn
from kit import WITHIN, Problem, Program, Results

PARTS = {"a": check_counted_records, "b": check_pytorch, "c": check_times, "d": check_overhead, "e": check_failures, "f": check_stacks, "g": check_gpu_metrics, "k": check_correlation_ids, "l": check_live_views, "m": check_nvtx, "o": check_cupti_switching, "p": check_pc_sampling, "r": check_real_programs, "s": check_two_subscribers, "t": check_torchrun, "v": check_cupti_cost, "w": check_losses, "x": check_thread_churn, "y": check_attach_times, "z": check_always}
HERE = os.path.dirname(os.path.abspath(__file__))


class Check:
    """What the parts share."""

    def __init__(self, words):
        self.stage, self.out = os.path.abspath(words.stage), os.path.abspath(words.out)
        self.work = tempfile.mkdtemp(prefix="midair-gpu-")
        self.quick = words.quick
        self.cycles = 5 if words.quick else check_pytorch.CYCLES
        self.pin = words.pin
        self.cuptis = words.cupti
        self.pairs = 10 if words.quick else words.pairs
        self.only = words.only
        self.losses_seconds = words.losses_seconds
        self.results, self.raw = Results(), []

    def wants(self, name):
        """Whether something is wanted that a part can be asked for alone."""
        return not self.only or name in self.only

    def source(self, name):
        return os.path.join(HERE, name)

    def built(self, name):
        return os.path.join(self.work, name)

    def file(self, name):
        return os.path.join(self.work, name)

    def log(self, name):
        return os.path.join(self.work, f"{name}.log")

    def seconds(self, long):
        return long / 3 if self.quick else long

    def sleep(self, seconds):
        """The program runs on meanwhile: how long is what is wanted, not a wait for something."""
        time.sleep(seconds)

    def midair(self, *words):
        done = subprocess.run([os.path.join(self.stage, "bin/midair"), *words], capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    def build(self):
        words = ["nvcc", "-std=c++17", "-O2", "-arch=native", "-o", self.built("count"), self.source("count.cu")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise Problem(f"nvcc: {done.stderr.strip()[-400:]}")
        words = ["gcc", "-O2", "-shared", "-fPIC", "-pthread", "-o", self.built("libraw.so"), self.source("raw.c"), "-ldl"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise Problem(f"gcc: {done.stderr.strip()[-400:]}")

    def gpus(self):
        """How many GPUs there are."""
        return len([line for line in features.said("nvidia-smi", "-L").splitlines() if line.startswith("GPU ")])

    @staticmethod
    def footprint(pid):
        """Descriptors, threads, MiB in memory."""
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1])
        return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), resident // 256

    @staticmethod
    def told_ms(text, did):
        """The milliseconds that midair took for what it told: "attached to" or "detached from"."""
        found = re.search(did + r" .* in ([0-9.]+) ms", text)
        return float(found.group(1)) if found else float("nan")

    @staticmethod
    def median(values):
        known = [value for value in values if value == value]
        return statistics.median(known) if known else float("nan")


def missing(tried, machine):
    """Why this machine cannot show it; nothing where it can."""
    broken = [name for name, works in tried.items() if not works]
    if machine["kernel"].startswith("4.4.0"):
        return "this looks like gVisor, whose ptrace is not a kernel's: nothing was run"
    if broken:
        return f"ptrace lacks {', '.join(broken)} here: nothing was run"
    if not machine["gpu"]:
        return "no GPU of NVIDIA's is seen here: nothing was run"
    return None


def write(check, machine, began):
    failed = check.results.failures()
    document = {"date": began, "machine": machine, "failed": failed, "rows": check.results.rows, "speeds": check.raw}
    os.makedirs(check.out, exist_ok=True)
    with open(os.path.join(check.out, "gpu-check.json"), "w", encoding="utf-8") as file:
        json.dump(document, file)
    lines = ["# gpu-check", "", f"{began}; " + "; ".join(f"{key} {value}" for key, value in machine.items()) + ".",
             "Made by `cargo xtask gpu-check` (gpu/check.py). Ratios are of speeds, from interleaved runs of processes of one kind, with 95 % intervals;",
             "ok: the middle reaches the goal, within: only the interval's upper end does. CUPTI alone: the same kinds of records with the simplest",
             "buffers, and nothing read of them (gpu/raw.c).", "",
             "| part | what | result | wanted | |", "|---|---|---|---|---|"]
    for row in check.results.rows:
        verdict = {True: "ok", False: "**no**", None: "", WITHIN: "within"}[row["good"]]
        cells = [row["part"], row["what"], row["got"], row["wanted"], verdict]
        lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    with open(os.path.join(check.out, "gpu-check.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", required=True, help="the staged product: DIR/bin/midair, DIR/lib/*.so")
    parser.add_argument("--out", required=True, help="where the results go")
    parser.add_argument("--parts", default="abcdeglmrt", help="parts k, o, p, s and v measure CUPTI alone, k, p and v for minutes; w looks for losses, x attaches while threads end, y measures how long attaches take, z what `serve --always 1%%` costs")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--pin", type=int, help="part d: measured threads stay on this processor")
    parser.add_argument("--cupti", action="append", default=[], help="parts g, o, p, s, v: also by this libcupti.so.N")
    names = {"d": check_overhead.NAMES, "o": check_cupti_switching.ROWS, "p": check_pc_sampling.NAMES, "x": (*check_thread_churn.KINDS, *check_thread_churn.PROGRAMS), "y": check_attach_times.NAMES, "z": check_always.NAMES}
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=sorted({name for part in names.values() for name in part}),
                        help="no more than this of a part: " + "; ".join(f"part {part}: {', '.join(known)}" for part, known in names.items()))
    parser.add_argument("--losses-seconds", type=float, default=60, help="part w: how long it looks for losses")
    parser.add_argument("--programs-cupti", help="this libcupti.so.N is loaded into each program under test, before its own can be")
    parser.add_argument("--cores", action="store_true", help="as root: keep core files (sets core_pattern), and write the stacks of a program that died to OUT")
    parser.add_argument("--quick", action="store_true", help="less of everything: to see whether it works at all")
    words = parser.parse_args()
    for part in set(words.parts) & set(names) if words.only else ():
        if not set(words.only) & set(names[part]):
            parser.error(f"part {part} would do nothing: it has none of {', '.join(words.only)}")
    began = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    machine, tried = features.machine(), features.ptrace_features()
    print("; ".join(f"{key}: {value}" for key, value in machine.items()))
    print("ptrace: " + ", ".join(f"{name} {'yes' if works else 'NO'}" for name, works in tried.items()), flush=True)
    if words.programs_cupti:
        # Programs that load CUPTI by its name get this one, and midair finds it. PyTorch loads its own by path, so that its processes
        # have both.
        Program.EVERYWHERE["LD_PRELOAD"] = os.path.abspath(words.programs_cupti)
        machine["CUPTI of the programs"] = os.path.abspath(words.programs_cupti)
    if words.cores:
        cores.keep(words.out)
    why = missing(tried, machine)
    if why:
        print(why)
        return 3
    check = Check(words)
    print(check.midair("--version").strip(), "logs:", check.work, flush=True)
    try:
        check.build()
        for part in words.parts:
            PARTS[part].run(check)
            # What is known so far stays, also where the time ends within a later part.
            write(check, machine, began)
    finally:
        write(check, machine, began)
    total = len(check.results.rows)
    print(f"{total - check.results.failures()} of {total} as they must be; {check.results.failures()} not", flush=True)
    return 1 if check.results.failures() else 0


if __name__ == "__main__":
    sys.exit(main())
