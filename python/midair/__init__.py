"""Record what a running process does on its GPUs.

    import midair

    with midair.attach(pid, trace=["kernels", "hip"]) as session:
        ...                                  # the process is recorded meanwhile
    recording = session.recording
    print(recording.kernels().pandas())      # or .polars(), or .rows() without either

The process needs no preparation, and runs on. Only Python's standard library is needed, unless a frame is asked for.
"""

from ._attach import AttachError, Session, attach, program
from ._results import Recording, Rows, Table

__all__ = ["AttachError", "Recording", "Rows", "Session", "Table", "attach", "program"]
