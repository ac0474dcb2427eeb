"""Ratios from interleaved pairs, with a confidence interval."""

import math

# Two-sided 95 % points of Student's t, by degrees of freedom.
POINTS = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179, 14: 2.145,
          16: 2.120, 18: 2.101, 20: 2.086, 25: 2.060, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980}


def point(freedom):
    """The t value for so many degrees of freedom; the next smaller number's where the table has none (so never too narrow)."""
    known = [at for at in POINTS if at <= freedom]
    return POINTS[max(known)] if known else POINTS[1]


def mean_and_variance(values):
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def ratio(pairs, before=None):
    """The mean ratio second/first over `pairs`, and its 95 % interval. With `before`, pairs of the same two processes while neither was
    traced, it is relative to theirs: what differs between the two processes themselves is taken out (Welch's interval)."""
    if len(pairs) < 2 or (before is not None and len(before) < 2):
        raise ValueError("an interval needs two pairs at least")
    logs = [math.log(second / first) for first, second in pairs]
    mean, variance = mean_and_variance(logs)
    error, freedom = variance / len(logs), float(len(logs) - 1)
    if before is not None:
        ground = [math.log(second / first) for first, second in before]
        ground_mean, ground_variance = mean_and_variance(ground)
        other = ground_variance / len(ground)
        total = error + other
        if total > 0:
            freedom = total**2 / (error**2 / (len(logs) - 1) + other**2 / (len(ground) - 1))
        mean, error = mean - ground_mean, total
    half = point(freedom) * math.sqrt(error)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)
