"""(t) `midair attach --tree` on a torchrun job, one rank for each GPU."""

import glob
import os
import sys
import tempfile
import time

from kit import Attached, Problem, between


def run(check):
    check.results.guarded("t", "--tree on torchrun", lambda: one(check))


def notes(directory, rank):
    """What a rank noted: steps, times, its pid."""
    try:
        with open(os.path.join(directory, f"rank-{rank}"), encoding="ascii") as file:
            return [tuple(map(int, line.split())) for line in file if line.endswith("\n")]
    except OSError:
        return []


def one(check):
    import subprocess

    ranks = check.gpus()
    directory = tempfile.mkdtemp(prefix="ranks-", dir=check.work)
    log = open(check.log("t-torchrun"), "wb")
    job = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", "29611",
                            check.source("rank.py"), directory], stdout=log, stderr=subprocess.STDOUT)
    try:
        wait(lambda: all(len(notes(directory, rank)) > 3 for rank in range(ranks)) or job.poll() is not None, 120)
        if job.poll() is not None:
            raise Problem(f"torchrun ended with {job.returncode}")
        words = [os.path.join(check.stage, "bin/midair"), "attach", "--tree", str(job.pid)]
        attached = Attached(check.stage, job.pid, ["--kernel-trace", "--memory-copy-trace"], check.work, "t-%pid%", command=words)
        if not attached.recording():
            raise Problem(f"no attach: {attached.text.strip()[-400:]}")
        begun = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        time.sleep(2)
        ended = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        code = attached.stop(120)
        after = [len(notes(directory, rank)) for rank in range(ranks)]
        wait(lambda: all(len(notes(directory, rank)) > count + 2 for rank, count in enumerate(after)) or job.poll() is not None, 60)
        with open(os.path.join(directory, "end"), "w", encoding="ascii"):
            pass
        ended_well = job.wait(90)
        check.results.add("t", f"torchrun, {ranks} ranks: midair, and the job after it", f"exit {code}; the job ended with {ended_well}", "0; 0",
                          code == 0 and ended_well == 0)
        for rank in range(ranks):
            judge(check, attached, directory, rank, begun, ended)
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait(30)


def judge(check, attached, directory, rank, begun, ended):
    inside = [note for note in notes(directory, rank) if begun <= note[1] <= ended]
    if len(inside) < 2:
        raise Problem(f"rank {rank} noted {len(inside)} steps while it was recorded")
    (first, low, pid), (last, high, _) = inside[0], inside[-1]
    files = glob.glob(os.path.join(check.work, f"t-{pid}*_kernel_trace.csv"))
    if len(files) != 1:
        raise Problem(f"rank {rank} (pid {pid}) has {len(files)} kernel tables: {sorted(os.listdir(check.work))[:40]}")
    attached.name = f"t-{pid}"
    rows = between(attached.table("kernel_trace"), low, high)
    # A multiplication each step; between two notes of the same rank one all-reduce more, of the word that says stop.
    multiplied = sum("mul" in row["Kernel_Name"].lower() or "vectorized_elementwise" in row["Kernel_Name"] for row in rows)
    reduced = sum("AllReduce" in row["Kernel_Name"] for row in rows)
    steps, notes_between = last - first, len(inside) - 1
    want_reduced = steps + notes_between if check.gpus() > 1 else 0
    good = multiplied == steps and (reduced == want_reduced or check.gpus() == 1)
    check.results.add("t", f"rank {rank}: kernels of the application, of NCCL", f"{multiplied} of {steps}, {reduced} of {want_reduced}", "equal", good)
    devices = {row["Device"] for row in rows}
    check.results.add("t", f"rank {rank}: device", ", ".join(sorted(devices)), str(rank), devices == {str(rank)})


def wait(there, limit):
    end = time.monotonic() + limit
    while not there():
        if time.monotonic() > end:
            raise Problem(f"the job did not get that far within {limit} s")
        time.sleep(0.05)
