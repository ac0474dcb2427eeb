"""How many intervals hold a true value, and whether so many are as good as 95 of 100."""

import math

CONFIDENCE = 0.95
# The check errs by itself in so many cases at most.
LEVEL = 0.05


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
