"""Attaching and detaching, by the program `midair` in a process of its own."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type, Union

from ._results import Recording

#: What `trace` may name, and the options that this stands for.
TRACES: Mapping[str, str] = {
    "all": "--sys-trace",
    "runtime": "--runtime-trace",
    "kernels": "--kernel-trace",
    "copies": "--memory-copy-trace",
    "allocations": "--memory-allocation-trace",
    "scratch": "--scratch-memory-trace",
    "graphs": "--hip-graph-trace",
    "events": "--hip-event-trace",
    "hip": "--hip-trace",
    "hsa": "--hsa-trace",
    "cuda": "--cuda-trace",
    "markers": "--marker-trace",
    "rccl": "--rccl-trace",
}

#: The line on standard error with which a recording has begun.
BEGUN = "attached to process"


class AttachError(RuntimeError):
    """An attach or a detach that failed. `exit_code` is that of the program: docs/exit-codes.md has them all."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def program() -> str:
    """The program `midair`: what $MIDAIR names, that of this package's own installation, or the first in $PATH.

    Raises FileNotFoundError where there is none.
    """
    here = Path(__file__).resolve().parent
    own = [here / "_prefix" / "bin" / "midair"]
    if here.parent.name == "site-packages" and here.parent.parent.name == "python3":
        # lib/python3/site-packages/midair of an installation.
        own.append(here.parents[3] / "bin" / "midair")
    named = os.environ.get("MIDAIR")
    if named:
        return named
    for path in own:
        if path.is_file():
            return str(path)
    found = shutil.which("midair")
    if found is None:
        raise FileNotFoundError("no program 'midair': neither beside this package nor in $PATH")
    return found


class Session:
    """A process, or a tree of processes, that is being recorded. As a context manager it detaches at its end.

    Where this process ends first, the recording ends as well, and the other process runs on.
    """

    def __init__(self, command: Sequence[str], directory: Path, temporary: Optional["tempfile.TemporaryDirectory[str]"]) -> None:
        self._directory = directory
        self._temporary = temporary
        self._said: List[str] = []
        self._begun = threading.Event()
        self._recording: Optional[Recording] = None
        # The program records until its standard input ends, so it does not outlive this process. A signal of the terminal is ours.
        self._process: "subprocess.Popen[str]" = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._listening = threading.Thread(target=self._listen, name="midair", daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        if self._process.stderr is None:
            return
        for line in self._process.stderr:
            self._said.append(line.rstrip("\n"))
            if BEGUN in line:
                self._begun.set()
        self._begun.set()

    def _wait(self, timeout: float) -> None:
        """Until the recording has begun."""
        if not self._begun.wait(timeout):
            self._end()
            raise AttachError(f"not attached within {timeout} s: {self._words()}", self._process.returncode)
        if not any(BEGUN in line for line in self._said):
            self._end()
            raise AttachError(self._words() or "midair ended without a word", self._process.returncode)

    def _words(self) -> str:
        return "\n".join(self._said)

    def _end(self) -> str:
        """Ends the recording, and gives the program's document."""
        with contextlib.suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        document = self._process.stdout.read() if self._process.stdout is not None else ""
        self._process.wait()
        self._listening.join()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return document

    @property
    def is_recording(self) -> bool:
        """Whether the recording goes on. It ends by itself with the process, or after its duration."""
        return self._recording is None and self._process.poll() is None

    def detach(self) -> Recording:
        """Ends the recording. The process runs on, and the files are complete on return; a second call gives the same.

        Raises AttachError where there is no result. Where something was lost there is one: see `Recording.is_complete`.
        """
        if self._recording is None:
            text = self._end()
            try:
                document: Dict[str, Any] = json.loads(text)
            except ValueError:
                raise AttachError(self._words() or "midair ended without a result", self._process.returncode) from None
            self._recording = Recording(document, self._directory, self._process.returncode, self._said, self._temporary)
        return self._recording

    @property
    def recording(self) -> Recording:
        """What was recorded; before the end of the recording this ends it."""
        return self.detach()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if error is None:
            self.detach()
        else:
            # The first error is the one to see.
            with contextlib.suppress(AttachError):
                self.detach()


def attach(
    pid: int,
    trace: Sequence[str] = ("runtime",),
    *,
    counters: Sequence[str] = (),
    stacks: Optional[str] = None,
    tree: bool = False,
    duration: Optional[float] = None,
    directory: Union[str, "os.PathLike[str]", None] = None,
    formats: Sequence[str] = ("rocpd",),
    options: Sequence[str] = (),
    timeout: float = 60.0,
) -> Session:
    """Attaches to a process, and returns when it is being recorded.

    trace: what is recorded: keys of `TRACES`. counters: names of hardware counters that are read together. stacks: "python" records
    at which lines of Python code work is launched. tree: also all that
    descend from the process. duration: seconds after which the recording ends by itself. directory: where the files go; without one
    they are deleted with the recording. formats: of the files; `Recording` reads rocpd and parquet. options: further words of
    `midair attach`. timeout: seconds that the attach may take.

    Raises AttachError where the process cannot be attached to, ValueError for a trace that there is not.
    """
    unknown = [name for name in trace if name not in TRACES]
    if unknown:
        raise ValueError(f"no such trace: {', '.join(unknown)}; there are {', '.join(TRACES)}")
    temporary: Optional["tempfile.TemporaryDirectory[str]"] = None
    if directory is None:
        temporary = tempfile.TemporaryDirectory(prefix="midair-")
        place = Path(temporary.name)
    else:
        place = Path(directory)
    command = [program(), "attach", "--tree" if tree else "--pid", str(int(pid)), "--json", "-d", str(place)]
    command += ["-f", ",".join(formats)]
    command += [TRACES[name] for name in trace]
    if counters:
        command += ["--pmc", *counters]
    if stacks is not None:
        command += ["--stacks", stacks]
    if duration is not None:
        command += ["--duration", f"{max(1, round(duration * 1000))}ms"]
    session = Session([*command, *options], place, temporary)
    session._wait(timeout)
    return session
