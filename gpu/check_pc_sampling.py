"""(p) PC sampling beside launching threads, by CUPTI alone (stalls.cu): each form of switching it off, by each CUPTI, in repeated cycles under a
watchdog. A form holds where no run of it hung and no call failed; what midair offers rests on the forms that held."""

import json
import os
import subprocess
import time

from kit import Problem

FORMS = ("plain", "plain-context", "start-stop", "stop-disable", "gate", "gate-sync", "gate-both", "hold-enter", "hold-exit", "on-exit", "on-exit-held", "finalize")
# As a session would do it (stalls.cu): the cycles that the form has to hold, and what its cost is, at 2^20 cycles between samples.
SESSIONS = (
    ("session", 500, {}),
    ("session-stay", 60, {"STALLS_MIX": "1"}),
    ("session", 4, {"STALLS_THREADS": "1"}),
    ("session", 4, {"STALLS_THREADS": "1", "STALLS_HEAVY": "1"}),
    ("session", 4, {"STALLS_HEAVY": "1"}),
)
# What can be asked for alone.
NAMES = tuple(dict.fromkeys([*FORMS, *(form for form, *_ in SESSIONS)]))
# A form that has hung so often is given up.
HANGS = 2
# Seconds for a form, and for the one that never disables.
LENGTH, LONG, LONGEST = 10, 16, 170


def run(check):
    words = ["nvcc", "-std=c++17", "-O2", "-arch=native", "-o", check.built("stalls"), check.source("stalls.cu"), "-lcuda", "-Xlinker", "--export-dynamic"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise Problem(f"nvcc: {done.stderr.strip()[-1500:]}")
    for cupti in [own(), *check.cuptis]:
        for form in filter(check.wants, FORMS):
            check.results.guarded("p", f"{form}", lambda cupti=cupti, form=form: one(check, cupti, form))
        for form, cycles, extra in SESSIONS:
            if not check.wants(form):
                continue
            check.results.guarded("p", f"{form}", lambda cupti=cupti, form=form, cycles=cycles, extra=extra: one(check, cupti, form, cycles, extra))


def own():
    """The CUPTI that PyTorch brings."""
    import nvidia

    for base in nvidia.__path__:
        path = os.path.join(base, "cu13/lib/libcupti.so.13")
        if os.path.exists(path):
            return path
    raise Problem("PyTorch's CUPTI is not found")


def one(check, cupti, form, cycles_wanted=0, extra=None):
    length = LONGEST if cycles_wanted else LONG if form == "start-stop" else LENGTH
    end = time.monotonic() + length
    log = check.log(f"p-{form}-{os.path.basename(os.path.dirname(cupti))}")
    cycles = hung = runs = 0
    where, told, last = [], {}, {}
    while time.monotonic() < end and hung < HANGS and (not cycles_wanted or cycles < cycles_wanted):
        left = end - time.monotonic()
        words = [check.built("stalls"), cupti, form, str(cycles_wanted - cycles if cycles_wanted else 100000), f"{max(left - 3, 3):.1f}",
                 "20" if cycles_wanted else "18", "32"]
        with open(log, "ab") as errors:
            try:
                done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=left + 60, check=False,
                                      env=dict(os.environ, **(extra or {})))
            except subprocess.TimeoutExpired:
                hung += 1
                where.append("the whole program, its watchdog, too")
                continue
        runs += 1
        answers = [json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith("@ ")]
        last = {}
        for answer in answers:
            last.update(answer)
            told.update(answer)
        cycles += max(last.get("cycles", 0) - (0 if last.get("hung") else 3), 0)
        if last.get("hung"):
            hung += 1
            where.append(last["hung"])
        elif done.returncode not in (0, 1) or not answers:
            hung += 1
            where.append(f"ended with {done.returncode}")
        elif last.get("problem"):
            break
    rest = (f"; speed while it samples {told['ratio_with']}, disabled {told['ratio_disabled']}, finalized {told['ratio_finalized']}, at the end {told['ratio_after']} of {told['before']}/s; "
            f"held {told['held_ms']} ms in the mean, {told['longest_held_ms']} at most, not all out {told['not_all_out']}; kernels recorded after: {told['kernels_after']}, meanwhile: {told['kernels_meanwhile']}"
            if "ratio_with" in told else "")
    check.results.add("p", f"CUPTI {told.get('cupti')}, {form}{' ' + ' '.join(key[7:].lower() + '=' + value for key, value in extra.items()) if extra else ''}", f"{cycles} cycles in {runs} runs, {hung} hung{' (' + '; '.join(where) + ')' if where else ''}; "
                      f"{told.get('errors')} errors{', ' + told['problem'] if told.get('problem') else ''}; {told.get('samples')} samples, dropped {told.get('dropped')}, buffer full {told.get('full')}, "
                      f"most PCs {told.get('pcs')}; on {told.get('slowest_on_ms')} ms, off {told.get('slowest_off_ms')} ms at most{rest}",
                      "", None)
    os.makedirs(check.out, exist_ok=True)
    if os.path.exists(log) and os.path.getsize(log):
        with open(log, "rb") as file, open(os.path.join(check.out, "backtraces.txt"), "ab") as to:
            to.write(f"\n== {told.get('cupti')} {form}\n".encode() + file.read()[:6000])
