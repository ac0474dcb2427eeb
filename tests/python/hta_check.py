"""Holds Kineto files against the rocpd files of the same sessions, with HolisticTraceAnalysis.

Usage: hta_check.py KINETO ROCPD [KINETO ROCPD...]: prints what was compared, by rank; ends with an error where a figure of
HolisticTraceAnalysis is not the one that follows from the rocpd file. The figures are computed here from the rows of the
tables, by sweeping over begins and ends: nothing of HolisticTraceAnalysis is used for them.
"""

import json
import logging
import os
import re
import sqlite3
import sys
from collections import defaultdict

# To the nanosecond, as our files are.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(logging.CRITICAL)

import pandas  # noqa: E402
# Version 0.5 keeps numbers of events in the smallest type that holds the first ones and puts larger ones there later, which
# pandas refuses since version 3. Without the small types it does what it did with pandas 2.
to_numeric = pandas.to_numeric
pandas.to_numeric = lambda values, errors="raise", downcast=None: to_numeric(values, errors=errors)

from hta.common.trace_file import create_rank_to_trace_dict  # noqa: E402
from hta.trace_analysis import TraceAnalysis  # noqa: E402

COMPUTE, COLLECTIVE, COPY = "kernel", "collective", "copy"
# HolisticTraceAnalysis's own rule, which is NCCL's and RCCL's names: a kernel of another library's collective is computation there.
COLLECTIVES = re.compile("nccl.*Kernel")


def merged(spans):
    """Disjoint spans that cover the same time."""
    out = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def length(spans):
    return sum(end - start for start, end in merged(spans))


def near(ours, theirs, what, apart=0.002):
    # Microseconds of the boot clock as floating-point numbers keep the nanosecond.
    assert abs(ours - theirs) < apart, f"{what}: {ours} of rocpd, {theirs} of HolisticTraceAnalysis"


def common(one, other):
    """The time in which both have a span."""
    return length(one) + length(other) - length(one + other)


def work(db):
    """Kind, name, start and end of all timed work."""
    kind = lambda name: COLLECTIVE if COLLECTIVES.match(name) else COMPUTE
    rows = [(kind(row[0]), *row) for row in db.execute('SELECT name, start, "end", stack_id FROM kernels WHERE "end" > 0')]
    rows += [(COPY, *row) for row in db.execute('SELECT name, start, "end", stack_id FROM memory_copies WHERE "end" > 0')]
    return rows


def compare(analysis, rank, path):
    db = sqlite3.connect(path)
    rows = work(db)
    spans = [(start, end) for _, _, start, end, _ in rows]
    compute = [(start, end) for kind, _, start, end, _ in rows if kind == COMPUTE]

    breakdown = analysis.get_temporal_breakdown(visualize=False).set_index("rank").loc[rank]
    whole = max(end for _, end in spans) - min(start for start, _ in spans)
    near(whole / 1000, breakdown["kernel_time(us)"], "time from the first to the last work")
    near((whole - length(spans)) / 1000, breakdown["idle_time(us)"], "idle time")
    near(length(compute) / 1000, breakdown["compute_time(us)"], "time with kernels")
    near((length(spans) - length(compute)) / 1000, breakdown["non_compute_time(us)"], "time with other work alone")

    collectives = [(start, end) for kind, _, start, end, _ in rows if kind == COLLECTIVE]
    overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank").loc[rank, "comp_comm_overlap_pctg"]
    share = None
    if collectives:
        share = 100 * common(collectives, compute) / length(collectives)
        # HolisticTraceAnalysis rounds it to two digits.
        near(share, overlap, "share of collectives that computation overlaps", 0.005 + 1e-9)
    else:
        # HolisticTraceAnalysis divides by the time of no collective.
        assert pandas.isna(overlap), overlap

    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000, duration_ratio=1.0)
    named = {"COMPUTATION": COMPUTE, "COMMUNICATION": COLLECTIVE}
    kernels = kernels[(kernels["rank"] == rank) & kernels["kernel_type"].isin(list(named))].set_index("name")
    sums = defaultdict(list)
    for kind, name, start, end, _ in rows:
        if kind != COPY:
            sums[name].append(end - start)
            assert named[kernels.loc[name, "kernel_type"]] == kind, (name, kind)
    assert set(kernels.index) == set(sums), (set(kernels.index), set(sums))
    for name, times in sums.items():
        near(sum(times) / 1000, kernels.loc[name, "sum (us)"], name)
        near(max(times) / 1000, kernels.loc[name, "max (us)"], name)
        near(min(times) / 1000, kernels.loc[name, "min (us)"], name)

    idle, _ = analysis.get_idle_time_breakdown(ranks=[rank], visualize=False)
    gaps = {}
    for (stream,) in db.execute("SELECT DISTINCT stream_id FROM kernels UNION SELECT DISTINCT stream_id FROM memory_copies"):
        own = db.execute(
            'SELECT start, "end" FROM kernels WHERE "end" > 0 AND stream_id IS ? UNION ALL '
            'SELECT start, "end" FROM memory_copies WHERE "end" > 0 AND stream_id IS ? ORDER BY 1, 2', (stream, stream)
        ).fetchall()
        # As HolisticTraceAnalysis counts them: from one end to the next begin.
        gaps[stream] = sum(next[0] - this[1] for this, next in zip(own, own[1:]))
    # HolisticTraceAnalysis rounds each of a stream's three parts to two digits.
    near(sum(gaps.values()) / 1000, idle["idle_time"].sum(), "idle time of streams", 0.005 * 3 * len(gaps))

    launched = db.execute(
        "SELECT r.stack_id, r.duration, k.duration, MAX(k.start - r.\"end\", 0) FROM regions AS r "
        "JOIN kernels AS k ON k.stack_id = r.stack_id AND k.guid = r.guid "
        "WHERE r.name IN ('cudaLaunchKernel', 'cudaLaunchKernelExC') AND k.\"end\" > 0"
    ).fetchall()
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[rank], include_memory_events=False, visualize=False)[rank]
    assert len(launches) == len(launched), (len(launches), len(launched))
    theirs = launches.set_index("correlation")
    for correlation, call, kernel, delay in launched:
        near(call / 1000, theirs.loc[correlation, "cpu_duration"], "duration of a launch")
        near(kernel / 1000, theirs.loc[correlation, "gpu_duration"], "duration of a kernel")
        near(delay / 1000, theirs.loc[correlation, "launch_delay"], "delay of a launch")

    series = analysis.get_queue_length_time_series(ranks=[rank]).get(rank)
    names = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync",
             "hipLaunchKernel", "hipExtModuleLaunchKernel", "hipMemcpyAsync", "hipMemsetAsync", "hipMemcpyWithStream"]
    marks = ",".join("?" * len(names))
    calls = {stack for (stack,) in db.execute(f"SELECT DISTINCT stack_id FROM regions WHERE name IN ({marks})", names)}
    begun = [stack for _, _, _, _, stack in rows if stack in calls]
    steps = 0 if series is None else len(series)
    # Each launched work is one step up and one step down.
    assert steps == 2 * len(begun), (steps, len(begun))
    if steps:
        assert series.groupby("stream")["queue_length"].last().eq(0).all(), series
    return {"kernels": sum(map(len, sums.values())), "launches": len(launched), "queue_steps": steps, "overlap": share}


def main(words):
    pairs = dict(zip(words[::2], words[1::2]))
    found, by_rank = create_rank_to_trace_dict(list(pairs))
    assert found and len(by_rank) == len(pairs), by_rank
    analysis = TraceAnalysis(trace_files=by_rank)
    said = {str(rank): compare(analysis, rank, pairs[path]) for rank, path in sorted(by_rank.items())}
    json.dump(said, sys.stdout)


main(sys.argv[1:])
