"""(o) `midair attach --max-overhead` on CUDA processes: the limit holds, what bursts tell is what a full recording tells, and programs live
through a hundred bursts."""

import csv
import json
import os
import subprocess
import sys
import time

from kit import Problem, Program, begun_between, reached, tail
from check_pytorch import read
from statistics_of_intervals import enough, holds, meets, sampled_shares
from statistics_of_pairs import median, ratio_in_all

SEGMENT = 0.2
PERCENT, LOOP_SECONDS, GOAL = 2, 60, 0.975
# Kernel shares: loops, the variables that they need, sessions of each, the seconds of a full recording and of one in bursts. Loops of graphs have one
# burst, which has no interval.
LOOPS = (("train", {}), ("infer", {"EAGER": "1"}))
SESSIONS, FULL_SECONDS, BURST_SECONDS, SHARE_PERCENT = 3, 3, 6, 20
# How long a loop runs before it is recorded.
WARM_SECONDS = 20
# What is wanted of a count of intervals (`enough`).
AS_GOOD = "as 95 of 100: not refused by a binomial test at 5 %"
# Kernels with a smaller share may be in few bursts.
LEAST_SHARE = 0.01
# The program of known shares (mix.cu): sessions in bursts at each limit (percent, seconds of a session, sessions), the seconds of the full recording,
# and those for which it is watched without any.
MIX, MIX_FULL_SECONDS, MIX_FREE_SECONDS = ((2, 16, 3), (5, 9, 5), (20, 8, 4)), 20, 4
# Programs at a time, bursts in each, and what that takes at a burst a second.
STRESSED, STRESS_BURSTS, STRESS_PERCENT, THREADS = 3, 34, 10, 8
# What can be asked for alone (check.wants).
ROWS = ("limit", "mix", "loops", "graphs", "stress")


def run(check):
    if check.wants("limit"):
        check.results.guarded("o", "the limit", lambda: limit(check))
    if check.wants("mix"):
        check.results.guarded("o", "shares of known kernels", lambda: mix(check))
    references = []
    try:
        for name, variables in LOOPS if check.wants("loops") else ():
            check.results.guarded("o", f"shares of {name}", lambda name=name, variables=variables: shares(check, name, variables, references))
        if check.wants("graphs"):
            check.results.guarded("o", "graphs", lambda: graphs(check))
        if check.wants("stress"):
            check.results.guarded("o", "many bursts", lambda: stress(check))
        for reference in references:
            check.results.guarded("o", "results", lambda reference=reference: reference.compare(check))
    finally:
        for reference in references:
            reference.program.kill()


class Recording:
    """`midair attach --json` on a program, for so many seconds."""

    def __init__(self, check, program, name, seconds, *options):
        self.name, self.log, self.seconds = name, check.log(f"o-midair-{name}"), seconds
        words = [os.path.join(check.stage, "bin/midair"), "attach", str(program.pid), "--kernel-trace", *options, "--mangled-kernels", "--json",
                 "--duration", f"{seconds}s", "-f", "csv", "-d", check.work, "-o", f"o-{name}"]
        self.csv = os.path.join(check.work, f"o-{name}_kernel_trace.csv")
        # The end of its standard input would end the session.
        given, self.hold = os.pipe()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(words, stdin=given, stdout=subprocess.PIPE, stderr=log, cwd=check.work)
        os.close(given)

    def alive(self):
        return self.process.poll() is None

    def document(self):
        """What the session says at its end."""
        try:
            out, _ = self.process.communicate(timeout=self.seconds + 60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Problem(f"{self.name}: midair did not end: {tail(self.log)}") from None
        finally:
            os.close(self.hold)
        if self.process.returncode != 0:
            raise Problem(f"{self.name}: midair ended with {self.process.returncode}: {tail(self.log)}")
        return json.loads(out)

    def clean(self):
        if os.path.exists(self.csv):
            os.unlink(self.csv)


def told(bursts):
    """How much was recorded."""
    each = bursts["switched_ns"] / 1e6 / max(bursts["bursts"], 1)
    return f"{bursts['bursts']} bursts of {bursts['recorded_ns'] / 1e6 / max(bursts['bursts'], 1):.0f} ms, {bursts['coverage'] * 100:.2f} % of the time; switching {each:.1f} ms each"


def limit(check):
    """As in part d, with sums instead of medians: bursts are rare, and a median would not see them."""
    words = [sys.executable, check.source("rates.py")] + ([] if check.pin is None else [str(check.pin)])
    programs = [Program(words, check.log(f"o-limit-{tag}")) for tag in ("twin", "traced")]
    try:
        for program in programs:
            program.said(120)

        def rounds(goes_on):
            measured = []
            while goes_on(len(measured)):
                order = programs if len(measured) % 2 == 0 else programs[::-1]
                speed = {id(program): program.ask(f"rate {SEGMENT} small")["rate"] for program in order}
                measured.append(tuple(speed[id(program)] for program in programs))
            return measured

        rounds(lambda count: count < 4)
        before = rounds(lambda count: count < max(check.pairs, 25))
        recording = Recording(check, programs[1], "limit", LOOP_SECONDS, "--max-overhead", str(PERCENT))
        during = rounds(lambda count: recording.alive())
        document = recording.document()
        recording.clean()
        bursts = document["bursts"][0]
        middle, low, high = ratio_in_all(during, before)
        check.results.add("o", f"small torch operations, --max-overhead {PERCENT} for {LOOP_SECONDS} s", f"{middle:.4f} [{low:.4f}, {high:.4f}]; {told(bursts)}",
                          f">= {GOAL}, with bursts", reached(middle, high, GOAL) if bursts["bursts"] >= 3 else False)
    finally:
        for program in programs:
            program.kill()


def mix(check):
    """The intervals of sessions in bursts, of a program whose true shares are known and do not drift: against a full recording of the same process, and
    against what the program says of each session itself. How a count is judged was decided before the first run: `enough`, for each limit and in all."""
    words = ["nvcc", "-std=c++17", "-O2", "-arch=native", "-o", check.built("mix"), check.source("mix.cu")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Problem(f"nvcc: {done.stderr.strip()[-400:]}")
    program = Program([check.built("mix")], check.log("o-mix"))
    try:
        program.said(60)
        speeds = [free_speed(check, program)]
        truth, beside = mix_in_full(check, program)
        sessions = [mix_in_bursts(check, program, percent, check.seconds(seconds), f"mix-{percent}-{at}", truth, beside)
                    for percent, seconds, count in MIX for at in range(1 if check.quick else count)]
        speeds.append(free_speed(check, program))
        last, code = program.end()
        if code != 0 or last["errors"]:
            raise Problem(f"mix ended with {code}, {last['errors']} errors")
    finally:
        program.kill()
    check.raw.append({"mix": sessions, "full": truth, "free": speeds})
    drift = median([abs(one / truth[name] - 1) for session in sessions for name, one in session["own"].items()])
    free = sum(speeds) / len(speeds)
    check.results.add("o", "known kernels: the program's own shares in a session differ from those of the full recording by (median)", f"{drift * 100:.2f} % of the share", "", None)
    for percents in [(percent,) for percent, _, _ in MIX] + [tuple(percent for percent, _, _ in MIX)]:
        chosen = [session for session in sessions if session["percent"] in percents]
        limits = f"--max-overhead {', '.join(str(percent) for percent in percents)}"
        half = median([half for session in chosen for half in session["halves"]] or [float("inf")])
        bursts = median([session["bursts"] for session in chosen])
        speed = median([session["speed"] for session in chosen]) / free
        for what, key in (("of the full recording", "in_full"), ("that the program counted in the session", "in_own")):
            inside, compared = sum(session[key] for session in chosen), sum(session["compared"] for session in chosen)
            check.results.add("o", f"known kernels, {limits}: intervals of {len(chosen)} sessions that hold the share {what}",
                              f"{inside} of {compared}; half of an interval is {half * 100:.1f} % of the share (median); {bursts:.0f} bursts; speed {speed:.4f}",
                              AS_GOOD, enough(inside, compared))


def difference(one, other, key):
    """What a program did between two marks, by kernel."""
    return {name: other[key][name] - one[key][name] for name in other[key]}


def parts(times):
    whole = sum(times.values())
    return {name: time / whole for name, time in times.items()}


def speed_between(one, other):
    """Nanoseconds of work that were asked for, by nanosecond."""
    return sum(difference(one, other, "asked_ns").values()) / (other["time"] - one["time"])


def free_speed(check, program):
    first = program.ask("mark")
    check.sleep(check.seconds(MIX_FREE_SECONDS))
    return speed_between(first, program.ask("mark"))


def mix_in_full(check, program):
    """Each kernel's share in a full recording, and how much longer a launch of it is there than the program itself sees, in ns."""
    seconds = check.seconds(MIX_FULL_SECONDS)
    recording = Recording(check, program, "mix-full", seconds + 2)
    end = time.monotonic() + 60
    while b"recording" not in read_bytes(recording.log):
        if time.monotonic() > end or not recording.alive():
            raise Problem(f"no attach: {tail(recording.log)}")
        time.sleep(0.05)
    first = program.ask("mark")
    check.sleep(seconds)
    second = program.ask("mark")
    recording.document()
    rows = begun_between(kernels_of(recording), first["time"], second["time"])
    recording.clean()
    launches, ran = difference(first, second, "launches"), difference(first, second, "ran_ns")
    counts, times = dict.fromkeys(launches, 0), dict.fromkeys(launches, 0)
    for row in rows:
        counts[row["Kernel_Name"]] += 1
        times[row["Kernel_Name"]] += int(row["End_Timestamp"]) - int(row["Start_Timestamp"])
    beside = {name: (times[name] - ran[name]) / launches[name] for name in launches}
    shares_there = parts(times)
    check.results.add("o", "known kernels, full recording: kernels", f"{sum(counts.values())} of {sum(launches.values())}; shares {', '.join(f'{share * 100:.2f}' for share in shares_there.values())} %; "
                      f"a launch takes {min(beside.values()):.0f} to {max(beside.values()):.0f} ns more than it spins", "equal, by name", counts == launches)
    return shares_there, beside


def mix_in_bursts(check, program, percent, seconds, name, truth, beside):
    first = program.ask("mark")
    recording = Recording(check, program, name, seconds, "--max-overhead", str(percent))
    last = recording.document()["bursts"][0]
    second = program.ask("mark")
    recording.clean()
    launches, ran = difference(first, second, "launches"), difference(first, second, "ran_ns")
    own = parts({kernel: ran[kernel] + launches[kernel] * beside[kernel] for kernel in ran})
    intervals = {kernel["name"]: kernel["share"] for kernel in last["kernels"]}
    known = [kernel for kernel in truth if intervals.get(kernel) and intervals[kernel]["low"] is not None]
    return {"percent": percent, "bursts": last["bursts"], "coverage": last["coverage"], "recorded_ns": last["recorded_ns"], "switched_ns": last["switched_ns"], "time_ns": last["time_ns"],
            "speed": speed_between(first, second), "own": own, "intervals": intervals, "compared": len(truth),
            "in_full": sum(holds(intervals.get(kernel), share) for kernel, share in truth.items()), "in_own": sum(holds(intervals.get(kernel), share) for kernel, share in own.items()),
            "halves": [(intervals[kernel]["high"] - intervals[kernel]["estimate"]) / truth[kernel] for kernel in known]}


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


class Reference:
    """The same steps by a process that nobody touched."""

    def __init__(self, check, name, variables, traced):
        self.name, self.traced, self.out = name, traced, check.file(f"o-{name}-untraced.json")
        words = [sys.executable, check.source(f"{name}.py"), str(traced["steps"]), self.out]
        self.program = Program(words, check.log(f"o-{name}-untraced"), **variables)

    def compare(self, check):
        self.program.said(120)
        self.program.said(240)
        self.program.process.wait(60)
        check.results.add("o", f"{self.name}: recorded in bursts = untraced", f"{self.traced['steps']} steps", "every bit", read(self.out) == self.traced)


def shares(check, name, variables, references):
    """Shares of kernels: the intervals of recordings in bursts, and full recordings before and after each. Shares drift while a program runs, by
    more than such an interval is wide (gpu-check-bursts.md), so the interval has to meet what lies between both; and each full recording is a sample, too:
    of one that lasts as long as the bursts together, the interval of a program without any drift would hold 83 of 100."""
    out = check.file(f"o-{name}-traced.json")
    program = Program([sys.executable, check.source(f"{name}.py"), "0", out], check.log(f"o-{name}"), **variables)
    try:
        program.said(120)
        # The first seconds of a program differ most.
        time.sleep(WARM_SECONDS)
        before = full(check, program, f"{name}-full")
        inside, compared, wide, last = 0, 0, 0.0, None
        for session in range(SESSIONS):
            recording = Recording(check, program, f"{name}-{session}", BURST_SECONDS, "--max-overhead", str(SHARE_PERCENT))
            last = recording.document()["bursts"][0]
            recording.clean()
            after = full(check, program, f"{name}-full-{session}")
            intervals = {kernel["name"]: kernel["share"] for kernel in last["kernels"]}
            for kernel, (share, half) in before.items():
                if share < LEAST_SHARE:
                    continue
                interval = intervals.get(kernel)
                compared += 1
                inside += meets(interval, (share, half), after.get(kernel, (0.0, 0.0)))
                if interval and interval["low"] is not None:
                    wide = max(wide, (interval["high"] - interval["low"]) / 2)
            before = after
        if not program.alive():
            raise Problem(f"{name} died")
        _, code = program.end()
        if code != 0:
            raise Problem(f"{name} ended with {code}")
        check.results.add("o", f"{name}: intervals of {SESSIONS} sessions in bursts meet the kernel shares of full recordings before and after each",
                          f"{inside} of {compared}; the widest is +- {wide * 100:.2f} %; {told(last)}", AS_GOOD, enough(inside, compared))
        references.append(Reference(check, name, variables, read(out)))
    finally:
        program.kill()


def full(check, program, name):
    """The shares of kernels in a full recording, each with half of its interval."""
    recording = Recording(check, program, name, FULL_SECONDS)
    recording.document()
    rows = kernels_of(recording)
    recording.clean()
    return sampled_shares([(row["Kernel_Name"], int(row["Start_Timestamp"]), int(row["End_Timestamp"])) for row in rows])


def kernels_of(recording):
    """The rows of a recording's kernels."""
    with open(recording.csv, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def graphs(check):
    """A loop of graphs has one burst, and goes on."""
    program = Program([sys.executable, check.source("infer.py"), "0", check.file("o-graphs.json")], check.log("o-graphs"))
    try:
        program.said(120)
        recording = Recording(check, program, "graphs", 5, "--max-overhead", str(SHARE_PERCENT))
        document = recording.document()
        recording.clean()
        said = "no burst was possible after the last one" in tail(recording.log, 1 << 16)
        _, code = program.end()
        bursts = document["bursts"][0]["bursts"]
        check.results.add("o", "infer with graphs: bursts", f"{bursts}, {'said why' if said else 'not said'}, exit code {code}", "one, and it says why",
                          bursts == 1 and said and code == 0)
    finally:
        program.kill()


def stress(check):
    """Many bursts beside launching threads, with kernels, copies, fills, allocations and calls."""
    seconds = int(STRESS_BURSTS * 1.1) + 3
    programs = [Program([check.built("count"), "mixed", str(THREADS)], check.log(f"o-stress-{at}")) for at in range(STRESSED)]
    recordings = []
    try:
        for program in programs:
            program.said(120)
        options = ("--memory-copy-trace", "--cuda-trace", "--max-overhead", str(STRESS_PERCENT))
        recordings = [Recording(check, program, f"stress-{at}", seconds, *options) for at, program in enumerate(programs)]
        bursts = [recording.document()["bursts"][0] for recording in recordings]
        for at, program in enumerate(programs):
            if not program.alive():
                raise Problem(f"program {at} ended with {program.process.returncode} after {bursts[at]['bursts']} bursts")
        ends = [program.end() for program in programs]
        count = sum(each["bursts"] for each in bursts)
        errors = sum(last["errors"] for last, _ in ends)
        good = count >= STRESSED * STRESS_BURSTS and errors == 0 and all(code == 0 for _, code in ends)
        check.results.add("o", f"{STRESSED} programs with {THREADS} launching threads, all recorded in bursts",
                          f"{count} bursts, {errors} errors, exit codes {[code for _, code in ends]}; {told(bursts[0])}",
                          f">= {STRESSED * STRESS_BURSTS} bursts, no errors", good)
    finally:
        for recording in recordings:
            if recording.alive():
                recording.process.kill()
            recording.clean()
        for program in programs:
            program.kill()
