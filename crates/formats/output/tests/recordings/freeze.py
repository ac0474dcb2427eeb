#!/usr/bin/env python3
"""Attaches to a program, lets it work, and keeps the records that midair collected: freeze.py MIDAIR OUT COMMANDS -- PROGRAM...

COMMANDS are given to the program one by one while it is attached; each must be answered. The records are those of midair's store,
a file without a name that this script holds open from the attach on.
"""

import os
import subprocess
import sys
import time

midair, out, commands = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
program = subprocess.Popen(sys.argv[5:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def answer(wanted):
    for line in program.stdout:
        if line.startswith(wanted):
            return
    raise SystemExit(f"the program ended before it said {wanted}")


def say(command):
    program.stdin.write(command + "\n")
    program.stdin.flush()
    answer(command.split()[0])


answer("ready")
attach = subprocess.Popen(
    [midair, "attach", str(program.pid), "--sys-trace", "-f", "csv", "-d", out + ".d", "-o", "r"],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
)
held = None
folder = f"/proc/{attach.pid}/fd"
while held is None:
    for number in os.listdir(folder):
        try:
            link = os.readlink(f"{folder}/{number}")
            if os.path.dirname(link) == "/tmp" and link.endswith("(deleted)"):
                held = os.open(f"{folder}/{number}", os.O_RDONLY)
        except FileNotFoundError:
            pass
time.sleep(1.5)
for command in commands:
    say(command)
time.sleep(0.5)
attach.stdin.write("\n")
print(attach.communicate()[0])
program.kill()
size = os.fstat(held).st_size
with open(out, "wb") as file:
    file.write(os.pread(held, size, 0))
print(out, size)
