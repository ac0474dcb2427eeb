"""Whether the clocks of samples and of kernels agree: by how much samples of the tensor pipe have to be shifted to fit the kernels best."""

import csv


def kernels(rows, name):
    """Begin and end of the kernels of this name, in ns, in order."""
    return sorted((int(row["Start_Timestamp"]), int(row["End_Timestamp"])) for row in rows if name in row["Kernel_Name"])


def samples(path, metric):
    """(begin, end, value), in order."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = [(int(row["Start_Timestamp"]), int(row["End_Timestamp"]), row[metric]) for row in csv.DictReader(file)]
    return sorted((begin, end, float(value)) for begin, end, value in rows if value)


def cover(begin, end, spans, at):
    """How much of [begin, end] lies in the spans; and the first span that may matter to what comes later."""
    while at < len(spans) and spans[at][1] <= begin:
        at += 1
    inside, here = 0, at
    while here < len(spans) and spans[here][0] < end:
        inside += min(end, spans[here][1]) - max(begin, spans[here][0])
        here += 1
    return inside / max(1, end - begin), at


def misfit(taken, spans, shift, low, high):
    """Mean square of what samples, moved by `shift`, differ by from what the kernels say."""
    total, at = 0.0, 0
    for begin, end, value in taken:
        share, at = cover(begin + shift, end + shift, spans, at)
        total += (value - (low + (high - low) * share)) ** 2
    return total / max(1, len(taken))


def shift(taken, spans):
    """Nanoseconds that samples are to be moved by to fit best: by steps of 20 us, then of 1 us, then of 100 ns."""
    first, last = spans[0][0], spans[-1][1]
    taken = [it for it in taken if first < it[0] and it[1] < last]
    values = sorted(value for _, _, value in taken)
    if len(values) < 100:
        return None
    low, high = values[len(values) // 20], values[-len(values) // 20]
    best = 0
    for step, reach in ((20_000, 100), (1_000, 30), (100, 15)):
        tried = [best + step * number for number in range(-reach, reach + 1)]
        part = taken[:4000] if step > 1000 else taken[:20000]
        best = min(tried, key=lambda it: misfit(part, spans, it, low, high))
    return best
