"""(e) What goes wrong: a killed target, a killed attacher, a CUPTI that is missing, broken or of another version. The target, where it lives,
goes on untouched."""

import glob
import os
import time

from kit import Attached, Problem, Program, between, whole


def run(check):
    check.results.guarded("e", "kill -9 of the target", lambda: target_killed(check))
    check.results.guarded("e", "kill -9 of the attacher", lambda: attacher_killed(check))
    for name, path in cuptis(check):
        check.results.guarded("e", f"CUPTI that is {name}", lambda name=name, path=path: bad_cupti(check, name, path))
    check.results.guarded("e", "ps, doctor, rocprofv3", lambda: fronts(check))


def begun(check, tag, mode="mixed", threads="4"):
    program = Program([check.built("count"), mode, threads], check.log(f"e-{tag}"))
    program.said()
    return program


def target_killed(check):
    program = begun(check, "target")
    try:
        attached = Attached(check.stage, program.pid, ["--kernel-trace", "--memory-copy-trace", "--cuda-trace"], check.work, "e-target")
        if not attached.recording():
            raise Problem(f"no attach: {attached.text.strip()[-300:]}")
        first = program.ask("mark")
        check.sleep(0.5)
        second = program.ask("mark")
        # What was recorded reaches the attacher within a tenth of a second.
        check.sleep(0.5)
        program.kill()
        begin = time.monotonic()
        code = attached.finished()
        took = time.monotonic() - begin
        rows = between(attached.table("kernel_trace"), first["time"], second["time"])
        launched = second["add"] + second["scale"] - first["add"] - first["scale"]
        check.results.add("e", "kill -9 of the target in mid-capture", f"exit {code} after {took:.1f} s, {len(rows)} of {launched} kernels",
                          "exit 31, all that was there 0.5 s before", code == 31 and len(rows) == launched)
    finally:
        program.kill()


def attacher_killed(check):
    program = begun(check, "attacher")
    try:
        attached = Attached(check.stage, program.pid, ["--kernel-trace", "--cuda-trace"], check.work, "e-attacher")
        if not attached.recording():
            raise Problem(f"no attach: {attached.text.strip()[-300:]}")
        check.sleep(0.3)
        attached.kill()
        before = program.ask("mark")
        check.sleep(2.0)
        after = program.ask("mark")
        work = after["add"] - before["add"]
        check.results.add("e", "kill -9 of the attacher: the target goes on", f"{work} kernels in 2 s, {after['errors']} errors", "0 errors",
                          work > 0 and after["errors"] == 0)
        again, waited = next_attach(check, program.pid)
        first = program.ask("mark")
        check.sleep(0.5)
        second = program.ask("mark")
        whole(again, again.stop())
        rows = between(again.table("kernel_trace"), first["time"], second["time"])
        launched = second["add"] + second["scale"] - first["add"] - first["scale"]
        check.results.add("e", f"and the next attach, {waited:.1f} s later, is whole", f"{len(rows)} of {launched} kernels", "equal", len(rows) == launched > 0)
        _, code = program.end()
        check.results.add("e", "the target ends well", f"code {code}", "0", code == 0)
    finally:
        program.kill()


def next_attach(check, pid, limit=20):
    """The dead attacher's lease runs out within seconds; until then an attach is refused."""
    begin = time.monotonic()
    while True:
        attached = Attached(check.stage, pid, ["--kernel-trace"], check.work, "e-again")
        if attached.recording():
            return attached, time.monotonic() - begin
        if time.monotonic() - begin > limit:
            raise Problem(f"no second attach within {limit} s: {attached.text.strip()[-300:]}")
        time.sleep(0.2)


def cuptis(check):
    broken = check.file("libcupti-broken.so.13")
    with open(broken, "wb") as file:
        file.write(b"\x7fELF\x02\x01\x01" + b"\0" * 4000)
    yield "missing", check.file("no-such-libcupti.so.13")
    yield "broken", broken
    other = check.file("libother.so")
    os.system(f"echo 'int nothing;' > {other}.c && gcc -shared -fPIC -o {other} {other}.c")
    yield "another library", other
    for path in sorted(glob.glob("/opt/nvidia/nsight-compute/*/host/*/libcupti.so.11.8"))[:1]:
        yield "of another version", path


def bad_cupti(check, name, path):
    program = begun(check, f"cupti-{name.replace(' ', '-')}")
    try:
        before = program.ask("mark")
        attached = Attached(check.stage, program.pid, ["--kernel-trace", "--cupti", path], check.work, f"e-cupti-{name.replace(' ', '-')}")
        recording = attached.recording()
        code = attached.stop() if recording else attached.process.wait(30)
        check.sleep(0.3)
        after = program.ask("mark")
        said = [line for line in attached.text.splitlines() if line.strip()]
        mapped = [line.split()[-1] for line in open(f"/proc/{program.pid}/maps", encoding="utf-8") if "cupti" in line and "midair" not in line]
        good = not recording and code not in (0, 2) and after["errors"] == 0 and after["add"] > before["add"] and 1 <= len(said) <= 3
        check.results.add("e", f"CUPTI that is {name}", f"exit {code}: {said[0] if said else 'nothing said'}", "refused, one sentence; target untouched", good)
        if mapped:
            print("    mapped in the target now:", sorted(set(mapped)))
        _, ended = program.end()
        if ended != 0:
            raise Problem(f"the target ended with {ended}")
    finally:
        program.kill()


def fronts(check):
    program = begun(check, "fronts")
    try:
        listed = check.midair("ps")
        line = next((line for line in listed.splitlines() if str(program.pid) in line), "not listed")
        check.results.add("e", "midair ps", line.strip()[:120], "CUDA", "CUDA" in line)
        doctor = check.midair("doctor", str(program.pid))
        check.results.add("e", "midair doctor", doctor.strip().splitlines()[-1][:120] if doctor.strip() else "nothing", "speaks of CUDA", "CUDA" in doctor)
        words = [os.path.join(check.stage, "bin/rocprofv3"), "--attach", str(program.pid)]
        attached = Attached(check.stage, program.pid, ["--kernel-trace"], check.work, "e-rocprofv3", command=words)
        first = program.ask("mark")
        time.sleep(2)
        second = program.ask("mark")
        code = attached.stop()
        rows = between(attached.table("kernel_trace"), first["time"], second["time"])
        check.results.add("e", "rocprofv3 on a CUDA process", f"exit {code}, {len(rows)} kernels", "exit 0, some", code == 0 and bool(rows))
    finally:
        program.kill()
