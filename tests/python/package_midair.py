"""Records a process with the package midair. Usage: package_midair.py PID KERNELS.

Says "attached", waits for a line on the standard input, detaches, and holds what the package gives against the number of kernels
that the process launched meanwhile.
"""

import json
import os
import sqlite3
import sys
from pathlib import Path

import midair
import pandas
import polars

pid, kernels = int(sys.argv[1]), int(sys.argv[2])
try:
    midair.attach(pid, trace=["nonsense"])
    raise AssertionError("a trace that there is not was taken")
except ValueError as error:
    assert "nonsense" in str(error)
try:
    midair.attach(os.getpid(), trace=["kernels"])
    raise AssertionError("this process has no GPU runtime")
except midair.AttachError as error:
    assert error.exit_code != 0 and str(error), error

with midair.attach(pid, trace=["kernels", "runtime"], formats=["rocpd", "parquet"]) as session:
    assert session.is_recording
    print("attached", flush=True)
    sys.stdin.readline()
recording = session.recording
assert not session.is_recording and session.detach() is recording
assert recording.is_complete and recording.lost == {}, recording.messages
rows = list(recording.kernels().rows())
assert len(rows) == kernels, len(rows)
frame = recording.kernels().pandas()
assert isinstance(frame, pandas.DataFrame) and len(frame) == kernels
assert (frame["end"] - frame["start"] == frame["duration"]).all()
other = recording.kernels().polars()
assert isinstance(other, polars.DataFrame) and other.height == kernels
# Names of columns match the parquet tables, which polars reads; the times are the same.
assert sorted(other["start_ns"].to_list()) == sorted(int(start) for start in frame["start"])
by_name = other.group_by("name").agg(polars.len().alias("calls")).sort("name")
assert dict(by_name.iter_rows()) == frame.groupby("name").size().to_dict()
only = midair.Table("kernels", "kernels", [file for file in recording.files if file.suffix == ".db"])
assert only.polars().height == kernels and only.polars()["duration"].sum() == frame["duration"].sum()
assert sum(row["duration"] for row in rows) == int(frame["duration"].sum())
assert {row["pid"] for row in rows} == {pid}
tables = [file for file in recording.files if file.parent.name == "kind=kernels"]
assert len(tables) == 1 and all(file.is_file() for file in recording.files)
assert list(recording.table("top_kernels").rows())[0]["name"]
assert recording.document["processes"][0]["pid"] == pid
# In rocpd they are regions.
events = list(recording.events().rows())
assert len(events) == len(recording.events().pandas()) == recording.events().polars().height
assert not events or {event["name"] for event in events} <= {"HIP_EVENT_RECORD", "HIP_EVENT_WAIT"}
assert all(row["category"] != "BARRIER" for row in recording.calls().rows())
assert len(list(recording.table("regions").rows())) == len(list(recording.calls().rows())) + len(events)
try:
    list(recording.table("nonsense").rows())
    raise AssertionError("a view that there is not was taken")
except sqlite3.OperationalError:
    pass
directory = recording.directory
recording.close()
assert not Path(directory).exists()
json.dump(sorted(frame["name"].unique()), sys.stdout)
print()
