"""(m) NVTX ranges: of a program that used NVTX before the attach, and of one that begins with it while it is recorded."""

import sys

from kit import Attached, Problem, Program, whole


def run(check):
    for name in ("train", "infer"):
        check.results.guarded("m", f"ranges of {name}", lambda name=name: one(check, name))


def one(check, name):
    program = Program([sys.executable, check.source(f"{name}.py"), "0", check.file(f"m-{name}.json")], check.log(f"m-{name}"))
    try:
        program.said(120)
        # The second time they were there before in both.
        for turn in (1, 2):
            session(check, name, program, turn)
        _, code = program.end()
        if code != 0:
            raise Problem(f"{name} ended with {code}")
    finally:
        program.kill()


def session(check, name, program, turn):
    attached = Attached(check.stage, program.pid, ["--kernel-trace", "--marker-trace"], check.work, f"m-{name}-{turn}")
    if not attached.recording():
        raise Problem(f"no attach: {attached.text.strip()[-300:]}")
    if name == "infer" and turn == 1:
        program.ask("ranges")
    first = program.ask("mark")
    check.sleep(check.seconds(0.6))
    second = program.ask("mark")
    whole(attached, attached.stop())
    rows = [row for row in attached.table("marker_api_trace") if row["Function"] == "step"]
    inside = [row for row in rows if first["time"] <= int(row["Start_Timestamp"]) <= int(row["End_Timestamp"]) <= second["time"]]
    steps = second["step"] - first["step"]
    when = "first used while recorded" if name == "infer" and turn == 1 else "used before the attach"
    check.results.add("m", f"NVTX ranges of {name}, {when}", f"{len(inside)} of {steps} steps", "equal", len(inside) == steps > 0)
    program.ask("mark")
