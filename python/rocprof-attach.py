#!/usr/bin/env python3
"""Attach a profiler to a running process, over the C interface of librocprofiler-sdk-rocattach.

As a program: rocprof-attach -p PID [-d MILLISECONDS] [-t TOOLS] [--attach-library FILE]
As a module: main(pid=..., attach_library=..., duration=...), or attach() and detach() of an AttachLibrary by yourself.

What is recorded, and where to, is in the environment: every variable whose name begins with ROCP.
"""

import argparse
import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time

EXIT_ATTACH = 1
EXIT_USAGE = 2
EXIT_DETACH = 30

LIBRARY = "librocprofiler-sdk-rocattach.so.1"
# Names of attach libraries of all generations, as beginnings of their file names.
LIBRARY_STEMS = ("librocprofiler-sdk-rocattach", "librocprofiler-attach", "librocprofv3-attach")


class AttachError(RuntimeError):
    """An attach or a detach that failed. `exit_code` is what the program exits with."""

    def __init__(self, message, exit_code=EXIT_ATTACH):
        super().__init__(message)
        self.exit_code = exit_code


# Where this file lies in an installation, as seen from its prefix.
PLACES = (
    os.path.join("bin", "rocprof-attach"),
    os.path.join("bin", "rocprof-attach.py"),
    os.path.join("lib", "python3", "site-packages", "rocprof_attach", "__init__.py"),
)


def default_library(file=__file__):
    """The attach library of this file's own installation, or its bare name for the loader to find.

    Only in the layout of an installation: a copy of this file elsewhere has no prefix, and a directory above it may be somebody
    else's (/tmp/lib)."""
    file = os.path.realpath(file)
    for place in PLACES:
        if file.endswith(os.sep + place):
            library = os.path.join(file[: -len(place)], "lib", LIBRARY)
            if os.path.isfile(library):
                return library
    return LIBRARY


ROCPROF_ATTACH_TOOL_LIBRARY = os.environ.get("ROCPROF_ATTACH_LIBRARY") or default_library()


class AttachLibrary:
    """The attach library. Prefers the functions that give a status; the oldest libraries have only attach() and detach()."""

    def __init__(self, path):
        self.path = path
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise AttachError(f"cannot load the attach library: {error}") from error
        self._attach = self._find(library, "rocattach_attach", ctypes.c_int, [ctypes.c_int])
        self._detach = self._find(library, "rocattach_detach", ctypes.c_int, [ctypes.c_int])
        if self._attach is None or self._detach is None:
            attach = self._find(library, "attach", None, [ctypes.c_uint32])
            detach = self._find(library, "detach", None, [])
            if attach is None or detach is None:
                raise AttachError(f"{path} is no attach library: it has neither rocattach_attach nor attach")
            # No status: what failed is on standard error only.
            self._attach = lambda pid: attach(pid) or 0
            self._detach = lambda pid: detach() or 0
        self._attach_tree = self._find(library, "rocattach_attach_tree", ctypes.c_int, [ctypes.c_int])
        self._detach_tree = self._find(library, "rocattach_detach_tree", ctypes.c_int, [ctypes.c_int])

    def has_trees(self):
        """Whether it can attach to a process and its descendants; older ones attach to one process."""
        return self._attach_tree is not None and self._detach_tree is not None

    @staticmethod
    def _find(library, name, result, arguments):
        function = getattr(library, name, None)
        if function is not None:
            function.restype = result
            function.argtypes = arguments
        return function

    def attach(self, pid, children=False):
        """The status: 0 when the process, or all of its tree, is being recorded."""
        return self._attach_tree(pid) if children else self._attach(pid)

    def detach(self, pid, children=False):
        """The status: 0 when all is well. The files are complete on return."""
        return self._detach_tree(pid) if children else self._detach(pid)


class Signals:
    """SIGINT, SIGTERM and SIGHUP as something to wait for, from before the attach to after the detach: none of them may leave the
    process attached."""

    NAMES = ("SIGINT", "SIGTERM", "SIGHUP")

    def __init__(self):
        self.caught = None
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = {}
        # nohup: this program outlives its terminal, so that neither a hangup nor the end of the input ends the attach.
        self.outlives_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    def __enter__(self):
        # Python allows handlers in its main thread only. Elsewhere the program's own stay.
        if threading.current_thread() is threading.main_thread():
            for name in self.NAMES:
                number = getattr(signal, name)
                before = signal.getsignal(number)
                # nohup means it.
                if before is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_):
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        os.close(self._read)
        os.close(self._write)

    def _on_signal(self, number, _frame):
        if self.caught is None:
            self.caught = signal.Signals(number).name
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")

    def fileno(self):
        """Readable once a signal came."""
        return self._read


@contextlib.contextmanager
def _process(pid):
    """A descriptor that is readable once the process has ended, or None. To be had before the attach: a process that is gone already
    cannot be waited for."""
    descriptor = _process_descriptor(pid)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _process_descriptor(pid):
    if hasattr(os, "pidfd_open"):
        try:
            return os.pidfd_open(pid)
        except OSError:
            return None
    # Python before 3.9 does not have the system call; its number is the same on all architectures.
    descriptor = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(434), ctypes.c_int(pid), ctypes.c_uint(0))
    # An older kernel: the end of the process is seen at the detach.
    return descriptor if descriptor >= 0 else None


def _wait(signals, process, duration):
    """Until the duration is over, Enter or the end of input, a signal, or the end of the process (a descriptor, or None)."""
    sources = [signals]
    if process is not None:
        sources.append(process)
    # With a duration the input is not ours: whoever started us may have closed it.
    if duration is None and not signals.outlives_terminal:
        try:
            sources.append(sys.stdin.fileno())
        except (AttributeError, OSError, ValueError):
            # Closed or replaced: as the end of input.
            return
    until = None if duration is None else time.monotonic() + duration / 1000.0
    while signals.caught is None:
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            return
        if select.select(sources, [], [], left)[0]:
            return


def _say(line):
    try:
        print(line, flush=True)
    except (OSError, ValueError):
        # A reader that has gone away must not keep us from detaching, nor make the interpreter fail at its end.
        sys.stdout = open(os.devnull, "w")


@contextlib.contextmanager
def _tools_in_environment(tools):
    """Names the tools for the attach library, and puts the variable back. None leaves it, no tools at all are the default one."""
    name = "ROCPROF_ATTACH_TOOL_LIBRARY"
    before = os.environ.get(name)
    if tools:
        os.environ[name] = tools
    elif tools is not None:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[name] = before
        else:
            os.environ.pop(name, None)


def _number(text, what):
    try:
        value = int(text)
    except (TypeError, ValueError):
        value = 0
    if value <= 0:
        raise AttachError(f"{what} must be a number above 0, not {text!r}", EXIT_USAGE)
    return value


def _is_attach_library(path):
    return os.path.basename(path).startswith(LIBRARY_STEMS)


def run(pid, attach_tool_library=None, attach_duration_msec=None, attach_library=None, attach_children=False):
    """Attaches, waits, detaches; to the process alone, or to all that descend from it as well. Raises AttachError when the attach or the detach failed."""
    pid = _number(pid, "the process id")
    duration = None if attach_duration_msec in (None, "") else _number(attach_duration_msec, "the duration")
    path = attach_library or ROCPROF_ATTACH_TOOL_LIBRARY
    if "ROCP_TOOL_LIBRARIES" in os.environ:
        print("rocprof-attach: WARNING: ROCP_TOOL_LIBRARIES is not passed on; name tools with --attach-tool-library", file=sys.stderr)
    library = AttachLibrary(path)
    children = attach_children and library.has_trees()
    with Signals() as signals, _tools_in_environment(attach_tool_library), _process(pid) as process:
        _say(f"Attaching to PID {pid} using library {path}")
        status = library.attach(pid, children)
        if status != 0:
            if children:
                # Some of the tree may be attached, and nobody would wait for them.
                library.detach(pid, children)
            raise AttachError(f"Calling attach in {path} returned non-zero status {status}")
        try:
            _say(f"Attaching to PID {pid} using library {path} :: success")
            if signals.caught is None:
                _say("Press Enter to detach..." if duration is None else f"Attaching for {duration} msec...\n")
                _wait(signals, process, duration)
            if signals.caught is not None:
                _say(f"\nCaught signal {signals.caught}")
            _say("Detaching. Please wait, this can take up to 1-2 minutes")
        finally:
            # Whatever happens above: the process does not stay attached.
            status = library.detach(pid, children)
        if status != 0:
            message = f"Calling detach in {path} returned non-zero status {status}"
            _say(message)
            raise AttachError(message, EXIT_DETACH)
        _say(f"Detaching from PID {pid} using library {path} :: success")


def main(
    pid=os.environ.get("ROCPROF_ATTACH_PID", None),
    attach_library=os.environ.get("ROCPROF_ATTACH_TOOL_LIBRARY", ROCPROF_ATTACH_TOOL_LIBRARY),
    duration=os.environ.get("ROCPROF_ATTACH_DURATION", None),
):
    """Attaches to `pid`, profiles for `duration` milliseconds (or until Enter, the end of input, a signal or the end of the process),
    detaches.

    In place of `pid`, a list of words as on the command line is taken, too, as newer versions of AMD's have it; then the exit code is
    returned.

    `attach_library` is a colon-separated list of tool libraries to load into the process, or one attach library to do it with: AMD's
    documents use this name for both, and the file's name tells which it is. Raises AttachError when the attach or the detach failed.
    """
    if isinstance(pid, (list, tuple)):
        return command_line(list(pid))
    if pid is None:
        raise AttachError("no process id: give pid=, or set ROCPROF_ATTACH_PID", EXIT_USAGE)
    named = [name for name in (attach_library or "").split(":") if name]
    library = next((name for name in named if _is_attach_library(name)), None)
    # The attach library among tools stands for the default tool: that is the default of this parameter in AMD's documents.
    tools = None if not named else "" if named == [library] else ":".join(named)
    return run(pid, attach_tool_library=tools, attach_duration_msec=duration, attach_library=library)


def attach(
    pid, attach_tool_library=None, attach_duration_msec=None, attach_library=None, attach_children=True, fallback_tool_library=None
):
    """As main(), with the parameters of newer versions of AMD's. Raises AttachError when the attach or the detach failed."""
    run(pid, attach_tool_library or fallback_tool_library, attach_duration_msec, attach_library, attach_children)


def _boolean(word):
    """A BOOL word of rocprofv3's options."""
    if word.lower() in ("1", "y", "yes", "t", "true", "on"):
        return True
    if word.lower() in ("0", "n", "no", "f", "false", "off"):
        return False
    raise argparse.ArgumentTypeError(f"{word!r} is neither yes nor no")


def _parser():
    environ = os.environ
    parser = argparse.ArgumentParser(
        prog="rocprof-attach", description="Attach a profiler to a running process. What is recorded is said by ROCPROF_* variables."
    )
    parser.add_argument("-p", "--pid", "--attach", dest="pid", type=int, default=environ.get("ROCPROF_ATTACH_PID"), help="the process")
    parser.add_argument(
        "-d",
        "--attach-duration-msec",
        type=int,
        default=environ.get("ROCPROF_ATTACH_DURATION"),
        help="how long to profile; without it, until Enter, the end of input, Ctrl-C, SIGTERM, or the end of the process",
    )
    parser.add_argument(
        "-t",
        "--attach-tool-library",
        default=environ.get("ROCPROF_ATTACH_TOOL_LIBRARY"),
        help="colon-separated tool libraries to load into the process, in place of the default tool",
    )
    parser.add_argument(
        "--attach-library", default=environ.get("ROCPROF_ATTACH_LIBRARY"), help="the attach library (default: %s)" % ROCPROF_ATTACH_TOOL_LIBRARY
    )
    parser.add_argument(
        "--attach-children",
        type=_boolean,
        default=environ.get("ROCPROF_ATTACH_CHILDREN") or "true",
        help="also attach to all that descend from the process (default: true)",
    )
    parser.add_argument("--fallback-tool-library", default=None, help=argparse.SUPPRESS)
    return parser


def command_line(arguments=None):
    """The program: gives its exit code. 0 ended as asked; 1 attach failed, 2 wrong words, 30 detach failed."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.pid is None:
        parser.error("the process id is needed: -p PID, or ROCPROF_ATTACH_PID")
    try:
        run(
            given.pid,
            attach_tool_library=given.attach_tool_library or given.fallback_tool_library,
            attach_duration_msec=given.attach_duration_msec,
            attach_library=given.attach_library,
            attach_children=given.attach_children,
        )
    except AttachError as error:
        print(f"rocprof-attach: ERROR: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(command_line())
