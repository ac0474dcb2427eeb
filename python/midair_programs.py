"""The programs of the installation that this package carries, for the scripts that pip makes of them."""

import os
import sys

PREFIX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_prefix")


def _become(name):
    if name == "rocprof-attach":
        # A Python program: with this Python, which is the one that was chosen.
        program = os.path.join(PREFIX, "bin", name)
        os.execv(sys.executable, [sys.executable, program, *sys.argv[1:]])
    # One program, which is each of them by the name that it is called by.
    program = os.path.join(PREFIX, "bin", "midair")
    os.execv(program, [program if name == "midair" else name, *sys.argv[1:]])


def midair():
    _become("midair")


def rocprofv3():
    _become("rocprofv3")


def rocprof_attach():
    _become("rocprof-attach")


def rocprof_compute():
    _become("rocprof-compute")


def rocpd():
    _become("rocpd")


def rocprofv3_avail():
    _become("rocprofv3-avail")
