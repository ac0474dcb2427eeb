#!/usr/bin/env python3
"""Hours of `midair top` or of a flight recorder beside a busy program: does anything grow?

    benches/soak.py --seconds 14400 --to soak.tsv -- target/stage/lib/midair-demo/workload 0 20000

It starts the program twice, attaches to one of the two, and every ten seconds notes the memory, descriptors,
mappings and threads of all three processes, and what the attaching side has on disk: in files without a name,
which keep records, and below its results' directory. The other program is the control: what it grows by is not
midair's doing. At the end it detaches and prints how each figure moved from the first tenth of the time (after
the warm-up) to the last tenth. The exit code is 1 if one of them grew by more than is allowed.

No part of the suite: a soak takes hours, and any program on any GPU can be named.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

# What each figure may grow by in all. A process without a leak still moves by some pages: its
# allocator keeps what a burst needed.
ALLOWED = {
    "anon_kb": 1024,
    "descriptors": 0,
    "mappings": 4,
    "threads": 0,
    "disk_kb": 1024,
}


def of_process(pid):
    """The figures of one process."""
    proc = pathlib.Path("/proc") / str(pid)
    status = (proc / "status").read_text()
    number = lambda key: int(re.search(rf"^{key}:\s+(\d+)", status, re.M)[1])
    unnamed = descriptors = 0
    for link in (proc / "fd").iterdir():
        try:
            name = os.readlink(link)
        except FileNotFoundError:
            continue  # closed after it was listed
        descriptors += 1
        # The spool is in memory (memfd) and has a fixed size.
        if name.endswith(" (deleted)") and not name.startswith("/memfd:"):
            unnamed += os.stat(link).st_blocks * 512
    ticks = (proc / "stat").read_text().rpartition(")")[2].split()
    return {
        "anon_kb": number("RssAnon"),
        "shared_kb": number("RssShmem"),
        "descriptors": descriptors,
        "mappings": len((proc / "maps").read_text().splitlines()),
        "threads": number("Threads"),
        "disk_kb": unnamed // 1024,
        "cpu_s": (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK"),
    }


def disk_of(directory):
    """What the files below a directory take, in kB."""
    blocks = 0
    for path in pathlib.Path(directory).rglob("*"):
        try:
            blocks += path.stat().st_blocks
        except FileNotFoundError:
            pass  # renamed or removed after it was listed
    return blocks // 2


class Attacher:
    """`midair top --json`, of which the last document is kept, or `midair attach --keep`."""

    def __init__(self, midair, pid, keep, words, results):
        command = [midair]
        if keep:
            command += ["attach", str(pid), "--keep", keep, "-d", results, "--until-signal"]
        else:
            command += ["top", str(pid), "--json", "--interval", "500ms", "-d", results, "--until-signal"]
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command + words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors)
        self.first = threading.Event()
        self.lines = 0
        self.last = b""
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines += 1
            self.last = line
            self.first.set()

    def launches(self):
        """How many kernels top has counted since the attach."""
        try:
            kernels = json.loads(self.last or b"{}").get("kernels", [])
        except json.JSONDecodeError:
            return 0  # the recorder prints no documents
        return sum(kernel["all"]["count"] for kernel in kernels)

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--midair", default="target/stage/bin/midair")
    words.add_argument("--seconds", type=float, default=4200)
    words.add_argument("--every", type=float, default=10)
    words.add_argument("--warm-up", type=float, default=120, help="seconds that are not judged")
    words.add_argument("--keep", help="a flight recorder with this window (30s) and no top")
    words.add_argument("--say", help="a line for the program's standard input, once it has started")
    words.add_argument("--words", default="", help="more words for midair")
    words.add_argument("--to", help="a file for all samples (tab separated)")
    words.add_argument("program", nargs="+")
    asked = words.parse_args()

    program, control = [
        subprocess.Popen(asked.program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(2)]
    results = tempfile.mkdtemp(prefix="soak-")
    attacher = None
    try:
        for process in [program, control]:
            if asked.say:
                process.stdin.write(asked.say.encode() + b"\n")
                process.stdin.flush()
        attacher = Attacher(asked.midair, program.pid, asked.keep, asked.words.split(), results)
        if not asked.keep and not attacher.first.wait(120):
            sys.exit(f"top shows nothing: {attacher.said()}")
        samples = watch(asked, program, control, attacher, results)
        attacher.process.send_signal(signal.SIGINT)
        code = attacher.process.wait(600)
        if code != 0:
            sys.exit(f"midair ended with {code}: {attacher.said()}")
        after = of_process(program.pid)
        if program.poll() is not None:
            sys.exit(f"the program has ended: {program.returncode}")
        sys.exit(judge(asked, samples, after))
    finally:
        for process in [attacher and attacher.process, program, control]:
            if process and process.poll() is None:
                process.kill()
                process.wait()


def watch(asked, program, control, attacher, results):
    """Takes samples until the time is over."""
    samples, begun, file = [], time.monotonic(), asked.to and open(asked.to, "w")
    while (at := time.monotonic() - begun) < asked.seconds:
        for name, process in [("midair", attacher.process), ("the program", program), ("the control", control)]:
            if process.poll() is not None:
                sys.exit(f"{name} has ended after {at:.0f} s: {process.returncode} {attacher.said()}")
        midair = of_process(attacher.process.pid)
        midair["disk_kb"] += disk_of(results)
        sample = {"s": round(at, 1), "launches": attacher.launches(), "looks": attacher.lines}
        sample |= {f"midair_{key}": value for key, value in midair.items()}
        for side, process in [("program", program), ("control", control)]:
            sample |= {f"{side}_{key}": value for key, value in of_process(process.pid).items()}
        samples.append(sample)
        if file:
            if len(samples) == 1:
                print(*sample, sep="\t", file=file)
            print(*sample.values(), sep="\t", file=file, flush=True)
        time.sleep(max(0, begun + len(samples) * asked.every - time.monotonic()))
    return samples


def judge(asked, samples, after):
    """Prints how each figure moved, and returns the exit code."""
    warm = [sample for sample in samples if sample["s"] >= asked.warm_up]
    tenth = max(1, len(warm) // 10)
    if len(warm) < 3:
        sys.exit("too short: nothing is left after the warm-up")
    first, last, worst = warm[0], warm[-1], 0
    took = last["s"] - first["s"]
    print(f"{took:.0f} s after {first['s']:.0f} s of warm-up, {len(warm)} samples, on {os.cpu_count()} processors")
    if last["launches"]:
        rate = (last["launches"] - first["launches"]) / took
        print(f"launches {rate:.0f} a second, {last['launches']} in all")
    for side in ["midair", "program"]:
        # What the control did by itself is not counted.
        moved = lambda key, side: [sample[f"{side}_{key}"] for sample in warm]
        middle = lambda figures: (statistics.median(figures[:tenth]), statistics.median(figures[-tenth:]))
        cpu = (last[f"{side}_cpu_s"] - first[f"{side}_cpu_s"]) / took
        print(f"{side}: {cpu * 100:.2f} % of one core")
        for key in ["anon_kb", "shared_kb", "descriptors", "mappings", "threads", "disk_kb"]:
            figures = moved(key, side)
            begin, end = middle(figures)
            grown, note = end - begin, ""
            if side == "program":
                alone = middle(moved(key, "control"))
                grown -= alone[1] - alone[0]
                note = f", the control {alone[0]:.0f} -> {alone[1]:.0f}"
            bad = key in ALLOWED and grown > ALLOWED[key]
            worst |= bad
            print(f"  {key:12} {begin:10.0f} -> {end:10.0f}  {grown:+8.0f}  (between {min(figures)} and "
                  f"{max(figures)}{note}){'  GREW' if bad else ''}")
    print("the program after the detach: " + ", ".join(f"{key} {value}" for key, value in after.items()))
    return int(worst)


if __name__ == "__main__":
    main()
