"""Records launch_library.py with the package midair and its stacks. Usage: package_code.py PID.

Says "attached", waits for a line on the standard input, detaches, and compares the lines of code with the grids of the kernels: a
launch has 64 times its line as grid.x.
"""

import sys
from collections import Counter

import midair

with midair.attach(int(sys.argv[1]), trace=["kernels"], stacks="python") as session:
    print("attached", flush=True)
    sys.stdin.readline()
recording = session.recording
kernels = list(recording.kernels().rows())
calls, times = Counter(), Counter()
for row in kernels:
    calls[row["grid_x"] // 64] += 1
    times[row["grid_x"] // 64] += row["duration"]
assert len(calls) > 8, calls


def by_line(rows, column):
    found = Counter()
    for row in rows:
        found[row["line"]] += row[column]
    return found


# The table of code, as rows and as frames.
lines = list(recording.code().rows())
assert by_line(lines, "calls") == calls and by_line(lines, "total_ns") == times, lines
assert all(row["name"].endswith(f":{row['line']} {row['function']}") for row in lines), lines
frame = recording.code().pandas()
assert frame.groupby("line")["calls"].sum().to_dict() == calls
other = recording.code().polars()
assert other["total_ns"].sum() == sum(times.values()) and other["calls"].sum() == len(kernels)

# The line jumps back at each call of `work` but the first of nine, and the last one is not over.
steps = list(recording.steps().rows())
assert len(steps) == 7 and all(step["kernels"] == len(kernels) / 9 for step in steps), steps
starts = {row["start"] for row in kernels}
assert all(step["start_ns"] in starts and step["process"] == int(sys.argv[1]) for step in steps), steps
ends = [step["start_ns"] + step["duration_ns"] for step in steps]
assert ends[:-1] == [step["start_ns"] for step in steps[1:]], steps
assert recording.steps().pandas()["busy_ns"].le(recording.steps().pandas()["duration_ns"]).all()

# The stacks of the document: the innermost frames are the library's, then comes the line.
stacks = recording.document["stacks"]
assert recording.document["stacks_left_out"] == 0
callers = [{"line": stack["frames"][2]["line"], **stack} for stack in stacks]
assert by_line(callers, "calls") == calls and by_line(callers, "total_ns") == times, stacks
assert all("scale" in stack["work"] and stack["process"] == int(sys.argv[1]) for stack in stacks)

# Frames by launch, joined with the kernels.
caller = {row["event_id"]: row["line"] for row in recording.stacks().rows() if row["depth"] == 2}
assert Counter(caller[row["event_id"]] for row in kernels) == calls
assert len(recording.stacks().pandas()) == len(list(recording.stacks().rows())) > 3 * len(kernels)
