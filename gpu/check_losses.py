"""(w) Everything recorded (--sys-trace) of eight launching threads, attach after attach, for as many seconds as --losses-seconds says: how
often records are lost. All files of a session that lost some are kept."""

import glob
import os
import shutil
import time

from kit import Attached, Problem, Program, count_by, whole
from check_counted_records import LOST

MODES, THREADS = ("marks", "mixed"), 8
# Sessions of one program; files of so many are kept.
SESSIONS, KEPT = 40, 3


def run(check):
    end = time.monotonic() + check.losses_seconds
    turn = 0
    while time.monotonic() < end:
        mode = MODES[turn % len(MODES)]
        check.results.guarded("w", f"{mode}, --sys-trace", lambda mode=mode, turn=turn: sessions(check, mode, turn, end))
        turn += 1


def sessions(check, mode, turn, end):
    program = Program([check.built("count"), mode, str(THREADS)], check.log(f"w-{mode}-{turn}"))
    count = records = 0
    lossy, said = [], set()
    try:
        program.said()
        while count < SESSIONS and time.monotonic() < end:
            attached = Attached(check.stage, program.pid, ["--sys-trace"], check.work, f"w-{mode}-{turn}-{count}")
            if not attached.recording():
                raise Problem(f"attach {count}: {attached.text.strip()[-300:]}")
            check.sleep(0.02 + 0.03 * (count % 7))
            code = attached.stop(120)
            count += 1
            records += len(attached.table("kernel_trace"))
            if code == LOST:
                lossy.append(count)
                said.update(line.strip()[:300] for line in attached.text.splitlines() if "warning" in line or "lost" in line)
                keep(check, attached, len(lossy))
            else:
                whole(attached, code)
            attached.clean()
        last, code = program.end()
    finally:
        program.kill()
    check.results.add("w", f"{mode}, {THREADS} launching threads, --sys-trace: sessions that lost records", f"{len(lossy)} of {count} ({records} kernels){'; ' if said else ''}{'; '.join(sorted(said))}; "
                      f"the program: {last['errors']} errors, code {code}", "none; 0 errors, code 0", not lossy and last["errors"] == 0 and code == 0)


def keep(check, attached, number):
    """The files of a session, and what the program and midair said."""
    if number > KEPT:
        return
    to = os.path.join(check.out, f"lost-{attached.name}")
    os.makedirs(to, exist_ok=True)
    for path in glob.glob(os.path.join(attached.directory, f"{attached.name}*")):
        shutil.copy(path, to)
    rows = count_by(attached.table("kernel_trace"), "Kernel_Name")
    with open(os.path.join(to, "kernels.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(f"{name} {count}" for name, count in rows.items()))
