"""What intervals of recordings in bursts hold of a program like mix.cu, without a GPU: `simulate_bursts.py [RUNS]`.

The bursts are placed as crates/analysis/rotation does it, and the intervals are those of crates/formats/output/src/bursts.rs; switching takes what it took on an H100. For
each limit: how many of the true shares of a session lay in its intervals while what was recorded of a period made them narrower (until the build
behind 939b7b09), and how many do since it does not.
"""

import bisect
import math
import random
import sys

US, MS, S = 1e3, 1e6, 1e9
PHASES, PREFERRED, PREFERENCE, WAITING = 6, 2, 2.5, 16
LIMITS = ((2, 16), (5, 9), (20, 8))
# Milliseconds: switching on and off, and how much that varies.
ON, OFF = (12, 4), (13, 4)
WORST = 0.45


def two(one, other):
    return lambda source: (other if source.random() < 0.3 else one) * source.uniform(0.9, 1.1)


def exponential(mean):
    return lambda source: min(max(source.expovariate(1 / mean), 20.0), 2000.0)


def even(low, high):
    return lambda source: source.uniform(low, high)


# Launches in a cycle, and their microseconds, as in mix.cu.
KERNELS = ((484, two(200, 1600)), (550, exponential(300)), (875, exponential(120)), (293, even(60, 400)), (300, two(40, 400)), (200, even(135, 165)),
           (280, exponential(80)), (320, exponential(30)))


def quantile(degrees):
    """Student's, as crates/analysis/counters has it."""
    if degrees < 2:
        return 12.7062047
    if degrees < 3:
        return 4.3026527
    z = 1.959963984540054
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
             (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160)
    total = 0.0
    for term in reversed(terms):
        total = (total + term) / degrees
    return z + total


def cycle(launches, source):
    """The same launches in another order."""
    weights = []
    for _ in KERNELS:
        preferred = source.sample(range(PHASES), PREFERRED)
        weights.append([PREFERENCE if phase in preferred else 1.0 for phase in range(PHASES)])
    placed = [(source.choices(range(PHASES), weights[kernel])[0] + source.random(), kernel, length) for kernel, length in launches]
    return [(kernel, length) for _, kernel, length in sorted(placed)]


def program(seconds, launches, source):
    """When each kernel was launched, which it was, and how long it took."""
    idle_at = launched = 0.0
    waiting, done = 0, []
    while idle_at < seconds * S:
        for kernel, length in cycle(launches, source):
            if waiting == WAITING:
                launched, waiting = idle_at + 15 * US, 0
            launched += 4 * US
            took = length + 1.1 * US
            idle_at = max(idle_at, launched + 5 * US) + took
            done.append((launched, kernel, took))
            waiting += 1
    return done


def bursts(percent, seconds, source):
    """Begin of the period, of the burst, their ends: crates/analysis/rotation/src/switching.rs."""
    share, switched, made, now = percent / 100, [], [], 0.0
    while now < seconds * S:
        known = switched[1:][-8:]
        expected = sum(known) / len(known) if known else min(switched[0] if switched else 40 * MS, 40 * MS)
        length = min(max(expected / WORST, 20 * MS), 200 * MS) if switched else 20 * MS
        period = (expected + WORST * length) / share
        if period < S:
            length = max(min((share * S - expected) / WORST, 0.9 * S - expected), length)
            period = max(S, (length + expected) / 0.9)
        start = now + 100 * MS + max(period - length - expected - 100 * MS, 0) * source.random()
        on, off = ((middle + source.uniform(-spread, spread)) * MS for middle, spread in (ON, OFF))
        start += on
        end = min(start + length, seconds * S)
        if start >= end:
            break
        to = max(min(now + period, seconds * S), end)
        made.append((now, start, end, to))
        switched.append(on + off)
        now = max(to, now + (on + off + WORST * (end - start)) / share)
    return made


def intervals(made, done, narrower):
    """Each kernel's share and half of its interval: crates/formats/output/src/bursts.rs. None where it was in no burst."""
    times = [launched for launched, _, _ in done]
    sums, squares, products = ([0.0] * len(KERNELS) for _ in range(3))
    whole = whole_squares = variances = their_squares = 0.0
    for begin, start, end, to in made:
        weight, unseen = (to - begin) / (end - start), 1 - (end - start) / (to - begin)
        own = [0.0] * len(KERNELS)
        for _, kernel, took in done[bisect.bisect_left(times, start):bisect.bisect_left(times, end)]:
            own[kernel] += weight * took
        variance = weight * weight * (end - start) * unseen
        variances, their_squares = variances + variance, their_squares + variance * variance
        counted = unseen if narrower else 1.0
        total = sum(own)
        whole, whole_squares = whole + total, whole_squares + counted * total * total
        for kernel, value in enumerate(own):
            sums[kernel] += value
            squares[kernel] += counted * value * value
            products[kernel] += counted * value * total
    degrees = max(variances * variances / their_squares - 1, 1.0)
    found = []
    for one, square, product in zip(sums, squares, products):
        share = one / whole
        rest = max(square - 2 * share * product + share * share * whole_squares, 0.0)
        found.append((share, quantile(degrees) * math.sqrt(rest * (degrees + 1) / degrees) / whole) if one else None)
    return found


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    first = random.Random(1)
    launches = [(kernel, length(first) * US) for kernel, (count, length) in enumerate(KERNELS) for _ in range(count)]
    for percent, seconds in LIMITS:
        source, inside, compared, halves, counts = random.Random(percent), [0, 0], 0, [], []
        for _ in range(runs):
            done = program(seconds, launches, source)
            made = bursts(percent, seconds, source)
            counts.append(len(made))
            truth = [sum(took for _, kernel, took in done if kernel == which) for which in range(len(KERNELS))]
            compared += len(truth)
            for at, narrower in enumerate((True, False)):
                for found, true in zip(intervals(made, done, narrower), truth):
                    inside[at] += found is not None and abs(found[0] - true / sum(truth)) <= found[1]
                    if narrower and found:
                        halves.append(found[1] / found[0])
        print(f"{percent} %, sessions of {seconds} s with {sum(counts) / runs:.1f} bursts: {inside[0] / compared * 100:.1f} % inside, {inside[1] / compared * 100:.1f} % without the part that was recorded; "
              f"half of an interval is {sorted(halves)[len(halves) // 2] * 100:.1f} % of the share (median); {compared} intervals", flush=True)


if __name__ == "__main__":
    main()
