"""Programs under test, attaches to them, and what they wrote."""

import collections
import csv
import glob
import json
import os
import select
import signal
import subprocess
import sys
import time

LIMIT = 60


class Problem(Exception):
    """Something is not as it must be: one sentence."""


def until(limit):
    return time.monotonic() + limit


class Program:
    """A program that answers lines by lines "@ {json}"."""

    # Environment variables of all programs under test, and of nothing else.
    EVERYWHERE = {}

    def __init__(self, words, log, **environment):
        self.log = log
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(log, "ab"),
                                        env={**os.environ, "PYTHONUNBUFFERED": "1", **self.EVERYWHERE, **environment})
        self.pid, self.rest = self.process.pid, b""

    def said(self, limit=LIMIT):
        """The next answer."""
        end = until(limit)
        while True:
            while b"\n" in self.rest:
                line, self.rest = self.rest.split(b"\n", 1)
                if line.startswith(b"@ "):
                    return json.loads(line[2:])
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Problem(f"{os.path.basename(self.log)}: no answer within {limit} s")
            got = os.read(self.process.stdout.fileno(), 1 << 20)
            if not got:
                raise Problem(f"{os.path.basename(self.log)}: the program ended (code {self.process.wait(10)}): {tail(self.log)}")
            self.rest += got

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, line, limit=LIMIT):
        self.tell(line)
        return self.said(limit)

    def alive(self):
        return self.process.poll() is None

    def end(self, limit=LIMIT):
        """Its end, by request: the last answer and the exit code."""
        self.tell("end")
        self.process.stdin.close()
        last = None
        try:
            while True:
                last = self.said(limit)
        except Problem:
            if self.process.poll() is None:
                raise
        return last, self.process.wait(limit)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def tail(path, size=600):
    with open(path, "rb") as file:
        return file.read()[-size:].decode(errors="replace").strip()


class Attached:
    """`midair attach` on a process, ended by a line on its standard input."""

    def __init__(self, stage, pid, options, directory, name, formats=("csv",), command=None):
        self.directory, self.name = directory, name
        self.log = os.path.join(directory, f"{name}.log")
        words = command or [os.path.join(stage, "bin/midair"), "attach", str(pid)]
        words = [*words, *options, "-f", *formats, "-d", directory, "-o", name]
        self.err = open(self.log, "wb")
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.text = ""
        self.began = time.monotonic()

    def recording(self, limit=LIMIT):
        """Waits until it records; False where it ended before."""
        return self._until(lambda: "recording" in self.text, limit)

    def _until(self, there, limit):
        end = until(limit)
        while not there():
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise Problem(f"{self.name}: midair said nothing for {limit} s after: {self.text[-300:]}")
            got = os.read(self.process.stdout.fileno(), 1 << 16)
            if not got:
                return there()
            self.err.write(got)
            self.err.flush()
            self.text += got.decode(errors="replace")
        return True

    def stop(self, limit=LIMIT):
        """Detaches; the exit code."""
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.finished(limit)

    def finished(self, limit=LIMIT):
        """Waits for its end by itself; the exit code."""
        self._until(lambda: False, limit)
        return self.process.wait(limit)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def table(self, kind):
        """The rows of one csv; empty where there is none."""
        found = glob.glob(os.path.join(self.directory, f"{self.name}*_{kind}.csv"))
        if len(found) > 1:
            raise Problem(f"{self.name}: {len(found)} files of {kind}")
        if not found:
            return []
        with open(found[0], encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def clean(self):
        for path in glob.glob(os.path.join(self.directory, f"{self.name}_*.csv")):
            os.unlink(path)


def whole(attached, code):
    """The session must have ended well, with nothing lost."""
    if code != 0:
        raise Problem(f"{attached.name}: midair ended with {code}: {attached.text[-400:].strip()}")


def between(rows, low, high):
    """Rows whose work lies between two moments."""
    return [row for row in rows if low <= int(row["Start_Timestamp"]) and int(row["End_Timestamp"]) <= high]


def begun_between(rows, low, high):
    """Rows whose work began between two moments."""
    return [row for row in rows if low <= int(row["Start_Timestamp"]) <= high]


def untimed(rows):
    return sum(1 for row in rows if row["Start_Timestamp"] == "0" or row["End_Timestamp"] == "0")


def count_by(rows, column):
    return collections.Counter(row[column] for row in rows)


# A goal that an interval reaches and its middle does not.
WITHIN = "within"


def reached(middle, high, goal):
    """Whether a ratio reaches a goal."""
    if middle >= goal:
        return True
    return WITHIN if high >= goal else False


class Results:
    """Rows of the table: part, what, how it came out, what was wanted."""

    def __init__(self):
        self.rows, self.begin = [], time.monotonic()

    def add(self, part, what, got, wanted, good):
        """`good`: True, False, WITHIN, or None for a number that is only told."""
        self.rows.append({"part": part, "what": what, "got": str(got), "wanted": wanted, "good": good})
        mark = {True: "ok  ", False: "FAIL", None: "    ", WITHIN: "with"}[good]
        print(f"[{time.monotonic() - self.begin:5.0f} s] {mark} ({part}) {what}: {got}" + (f"   [{wanted}]" if wanted else ""), flush=True)

    def guarded(self, part, what, body):
        """Runs a part; what it throws is a failed row, and the others go on."""
        try:
            body()
        except Problem as problem:
            self.add(part, what, problem, "no problem", False)
        except Exception as error:
            import traceback

            traceback.print_exc(file=sys.stdout)
            self.add(part, what, f"{type(error).__name__}: {error}", "no error", False)

    def failures(self):
        return sum(1 for row in self.rows if row["good"] is False)
