"""The programs of the installation that this package carries, for the scripts that pip makes of them."""

import os
import sys

PREFIX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_prefix")


def _become(name):
    program = os.path.join(PREFIX, "bin", name)
    words = [program, *sys.argv[1:]]
    if name == "rocprof-attach":
        # A Python program: with this Python, which is the one that was chosen.
        os.execv(sys.executable, [sys.executable, *words])
    os.execv(program, words)


def midair():
    _become("midair")


def rocprofv3():
    _become("rocprofv3")


def rocprof_attach():
    _become("rocprof-attach")


def rocprof_compute():
    _become("rocprof-compute")
