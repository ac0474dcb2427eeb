"""Ratios from interleaved pairs, with a confidence interval.

Speeds on a shared machine have outliers, so medians of the pairs' logarithms are taken, and the interval is the bootstrap's: what the same
estimate comes to when the pairs are drawn again, with replacement, from those that were measured. The draws are the same in each run.
"""

import math
import random

DRAWS = 2000


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def ratio(pairs, before=None):
    """The median ratio second/first over `pairs`, and its 95 % interval. With `before`, pairs of the same two processes while neither was
    traced, it is relative to theirs: what differs between the two processes themselves is taken out."""
    groups = [pairs] if before is None else [pairs, before]
    logs = [[math.log(second / first) for first, second in group] for group in groups]
    return _drawn(logs, median)


def ratio_in_all(pairs, before=None):
    """As `ratio`, of the sums: what was lost now and then counts as much as it was, which a median does not see. Outliers count, too."""
    groups = [pairs] if before is None else [pairs, before]
    return _drawn(groups, lambda chosen: math.log(sum(second for _, second in chosen) / sum(first for first, _ in chosen)))


def _drawn(groups, estimate_of):
    """An estimate of the first group, relative to that of the second, with the bootstrap's interval; both from logarithms."""
    if min(len(group) for group in groups) < 5:
        raise ValueError("an interval needs five pairs at least")

    def estimate(chosen):
        return estimate_of(chosen[0]) - (estimate_of(chosen[1]) if len(chosen) > 1 else 0.0)

    source = random.Random(1)
    drawn = sorted(estimate([source.choices(values, k=len(values)) for values in groups]) for _ in range(DRAWS))
    low, high = drawn[int(DRAWS * 0.025)], drawn[int(DRAWS * 0.975)]
    return math.exp(estimate(groups)), math.exp(low), math.exp(high)
