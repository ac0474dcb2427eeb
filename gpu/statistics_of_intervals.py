"""How many intervals hold a true value, and whether so many are as good as 95 of 100."""

import math

CONFIDENCE = 0.95
# The check errs by itself in so many cases at most.
LEVEL = 0.05
# A full recording is cut into so many equal times, and Student's t of 95 % for one degree less.
BLOCKS, STUDENT = 10, 2.262


def holds(interval, value):
    """Whether an interval of midair's JSON document holds a value. One that is missing, or has no ends, holds none."""
    return interval is not None and interval["low"] is not None and interval["low"] <= value <= interval["high"]


def at_most(inside, compared, part=CONFIDENCE):
    """How probable it is that so many, or fewer, of the intervals hold the truth, if each does with the probability `part`."""
    return sum(math.comb(compared, at) * part**at * (1 - part) ** (compared - at) for at in range(inside + 1))


def enough(inside, compared):
    """Whether a count agrees with 95 of 100: a binomial test at 5 % does not refuse it. Intervals of one session depend on one another, since shares have
    the sum 1, which makes low counts more frequent than the test assumes: it is the stricter for it."""
    return compared > 0 and at_most(inside, compared) >= LEVEL


def sampled_shares(kernels):
    """Each kernel's part of all kernels' time, and half of its interval: also a full recording is a sample of what the program does. From the spread between
    `BLOCKS` equal times. `kernels`: name, begin and end of each."""
    begin = min(start for _, start, _ in kernels)
    length = (max(start for _, start, _ in kernels) - begin) / BLOCKS + 1
    blocks = [{} for _ in range(BLOCKS)]
    for name, start, end in kernels:
        block = blocks[int((start - begin) / length)]
        block[name] = block.get(name, 0) + end - start
    sums = [sum(block.values()) for block in blocks]
    whole = sum(sums)
    found = {}
    for name in {name for block in blocks for name in block}:
        share = sum(block.get(name, 0) for block in blocks) / whole
        residuals = sum((block.get(name, 0) - share * total) ** 2 for block, total in zip(blocks, sums))
        found[name] = (share, STUDENT * math.sqrt(residuals * BLOCKS / (BLOCKS - 1)) / whole)
    return found


def meets(interval, *around):
    """Whether an interval of midair's JSON document agrees with what lies between full recordings (share and half of its interval), which are as uncertain as
    it is: whether the difference to the nearest of them is one that 95 of 100 such differences do not exceed."""
    if interval is None or interval["low"] is None:
        return False
    estimate, half = interval["estimate"], interval["high"] - interval["estimate"]
    shares = [share for share, _ in around]
    if min(shares) <= estimate <= max(shares):
        return True
    nearest, beside = min(around, key=lambda one: abs(one[0] - estimate))
    return abs(nearest - estimate) <= math.hypot(half, beside)
