"""Holds a Kineto file against the rocpd file of the same session, with the loader of TensorBoard's plug-in for PyTorch.

Usage: tensorboard_check.py KINETO ROCPD: prints what was compared; ends with an error where a figure of the plug-in's pages is not
the one that follows from the rocpd file.
"""

import json
import os
import shutil
import sqlite3
import sys
import tempfile
from collections import defaultdict

# The plug-in starts a process for each file, which would import all of this again.
os.environ["TORCH_PROFILER_START_METHOD"] = "fork"

from torch_tb_profiler import io  # noqa: E402
from torch_tb_profiler.profiler.loader import RunLoader  # noqa: E402


def length(spans):
    """The time in which there is a span."""
    total = until = 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


def near(ours, theirs, what, apart):
    assert abs(ours - theirs) <= apart, f"{what}: {ours} of rocpd, {theirs} of the plug-in"


def main(kineto, rocpd):
    db = sqlite3.connect(rocpd)
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(kineto, os.path.join(directory, "worker.pt.trace.json"))
        run = RunLoader("run", directory, io.Cache()).load()
        (profile,) = run.profiles.values()
        assert profile.worker == "worker", vars(profile).keys()
        views = {view.name for view in profile.views}
    assert {"overall", "kernel", "trace"} <= views, views

    # The page of kernels.
    kernels = db.execute('SELECT name, start, "end", agent_type_index FROM kernels WHERE "end" > 0').fetchall()
    times = defaultdict(list)
    for name, start, end, _ in kernels:
        times[name].append(end - start)
    table = profile.kernel_table["data"]
    columns = [column["name"] for column in table["columns"]]
    rows = {row[0]: dict(zip(columns, row)) for row in table["rows"]}
    assert set(rows) == set(times), (set(rows), set(times))
    for name, all_of_it in times.items():
        row = rows[name]
        assert row["Calls"] == len(all_of_it), (row, len(all_of_it))
        # The plug-in shows whole microseconds.
        near(sum(all_of_it) / 1000, row["Total Duration (us)"], name, 0.501)
        near(max(all_of_it) / 1000, row["Max Duration (us)"], name, 0.501)
        near(min(all_of_it) / 1000, row["Min Duration (us)"], name, 0.501)

    # The overview: the recording is one step.
    (init, fini) = db.execute("SELECT init, fini FROM rocpd_info_process").fetchone()
    performance = profile.overview["performance"][0]
    near((fini - init) / 1000, performance["value"], "time of the step", 1)
    within = lambda spans: [(max(start, init), min(end, fini)) for start, end in spans if end > init and start < fini]
    spans = within([(start, end) for _, start, end, _ in kernels])
    shown = {child["name"]: child["value"] for child in performance["children"]}
    near(length(spans) / 1000, shown["Kernel"], "time with kernels", 1)
    copies = db.execute("SELECT start, \"end\" FROM memory_copies WHERE \"end\" > 0 AND name NOT LIKE '%SET%'").fetchall()
    alone = length(within(copies) + spans) - length(spans)
    near(alone / 1000, shown["Memcpy"], "time with copies alone", 1)

    # Each GPU's share of the step.
    summary, busy, of_gpu = iter(profile.gpu_summary), {}, None
    for line in summary:
        if line["title"].startswith("GPU ") and line["title"].endswith(":"):
            of_gpu = int(line["title"][4:-1])
        elif line["title"] == "GPU Utilization":
            busy[of_gpu] = float(line["value"].split()[0])
    for gpu, share in busy.items():
        own = length(within([(start, end) for _, start, end, number in kernels if number == gpu]))
        near(100 * own / (fini - init), share, f"busy share of GPU {gpu}", 0.00501)
    assert busy
    json.dump({"kernels": len(times), "busy": max(busy.values())}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
