"""What was recorded, as rows or as a frame."""

import sqlite3
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

if TYPE_CHECKING:
    import pandas
    import polars

#: Tables by name: rocpd's view, and parquet's kind.
TABLES: Mapping[str, Tuple[str, str]] = {
    "kernels": ("kernels", "kernels"),
    "copies": ("memory_copies", "memory_copies"),
    "calls": ("calls", "calls"),
    "allocations": ("memory_allocations", "memory_allocations"),
    "graphs": ("graph_launches", "graph_launches"),
    "events": ("hip_events", "hip_events"),
    "counters": ("counters_collection", "counters"),
}

#: What is no view of its own in rocpd: calls, and barriers of HIP events, are regions there.
QUERIES: Mapping[str, str] = {
    "calls": "(SELECT * FROM regions WHERE category IS NOT 'BARRIER')",
    "hip_events": """(SELECT id, guid, name, nid, pid, tid, start, "end", duration, event_id, corr_id,
        json_extract(extdata, '$.agent_id') AS agent_id, json_extract(extdata, '$.queue_id') AS queue_id,
        json_extract(extdata, '$.source_queue_id') AS source_queue_id, json_extract(extdata, '$.stream_id') AS stream_id,
        json_extract(extdata, '$.hip_event_handle') AS hip_event_handle, json_extract(extdata, '$.remark') AS remark
        FROM regions WHERE category = 'BARRIER')""",
}


class Table:
    """The rows of one kind of records, of all processes. Times are nanoseconds.

    The columns are those of the files: of the view in rocpd, or of the tables in parquet. Where there are both, rows and pandas have
    those of rocpd, polars has those of parquet.
    """

    def __init__(self, view: str, kind: str, files: Sequence[Path]) -> None:
        self._source = QUERIES.get(view, f'"{view}"')
        self._databases = [file for file in files if file.suffix == ".db"]
        self._tables = [file for file in files if file.suffix == ".parquet" and file.parent.name == f"kind={kind}"]

    def rows(self) -> Iterator[Dict[str, Any]]:
        """Each row as a dictionary, from rocpd files: memory does not depend on how many there are.

        Raises ValueError where rocpd was not among the formats.
        """
        columns = self.columns()
        for values in self._values():
            yield dict(zip(columns, values))

    def columns(self) -> List[str]:
        """Names of the columns, from rocpd files."""
        if not self._databases:
            raise ValueError("only rocpd files can be read without pandas or polars")
        with _opened(self._databases[0]) as database:
            found = database.execute(f"SELECT * FROM {self._source} LIMIT 0")
            return [column[0] for column in found.description]

    def _values(self) -> Iterator[Tuple[Any, ...]]:
        for file in self._databases:
            with _opened(file) as database:
                yield from database.execute(f"SELECT * FROM {self._source}")

    def pandas(self) -> "pandas.DataFrame":
        """A frame of pandas. From parquet, where there is no rocpd file, pandas needs pyarrow."""
        import pandas

        if self._databases:
            return pandas.DataFrame.from_records(list(self._values()), columns=self.columns())
        if not self._tables:
            return pandas.DataFrame()
        return pandas.concat([pandas.read_parquet(file) for file in self._tables], ignore_index=True)

    def polars(self) -> "polars.DataFrame":
        """A frame of polars, from parquet where there are such files."""
        import polars

        if self._tables:
            return polars.read_parquet(self._tables)
        if self._databases:
            return polars.DataFrame(list(self._values()), schema=self.columns(), orient="row", infer_schema_length=None)
        return polars.DataFrame()


class Rows:
    """Rows of the document. Times are nanoseconds."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows: List[Dict[str, Any]] = [dict(row) for row in rows]

    def rows(self) -> Iterator[Dict[str, Any]]:
        """Each row as a dictionary."""
        return iter(self._rows)

    def pandas(self) -> "pandas.DataFrame":
        """A frame of pandas."""
        import pandas

        return pandas.DataFrame.from_records(self._rows)

    def polars(self) -> "polars.DataFrame":
        """A frame of polars."""
        import polars

        return polars.DataFrame(self._rows, infer_schema_length=None)


class _opened:
    """A database that is only read, and closed at the end."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)

    def __enter__(self) -> sqlite3.Connection:
        return self._database

    def __exit__(self, *_: object) -> None:
        self._database.close()


class Recording:
    """What a session recorded."""

    def __init__(
        self,
        document: Dict[str, Any],
        directory: Path,
        exit_code: int = 0,
        messages: Sequence[str] = (),
        temporary: Optional["tempfile.TemporaryDirectory[str]"] = None,
    ) -> None:
        #: Everything that is on the screen of `midair attach`: docs/results.md describes its members.
        self.document = document
        #: Where the files are.
        self.directory = directory
        #: All of them.
        self.files = [Path(file) for file in document.get("files", [])]
        #: The program's: 0, or why the recording is not whole (docs/exit-codes.md).
        self.exit_code = exit_code
        #: What the program said meanwhile.
        self.messages = list(messages)
        self._temporary = temporary

    @property
    def is_complete(self) -> bool:
        """Whether nothing was lost, and the recording ended as it should."""
        return self.exit_code == 0

    @property
    def lost(self) -> Dict[str, int]:
        """How many records were lost, by what they are."""
        lost: Dict[str, int] = {}
        for process in self.document.get("processes", []):
            for what, count in process.get("lost", {}).items():
                lost[what] = lost.get(what, 0) + count
        return lost

    @property
    def warnings(self) -> List[str]:
        """What to know about the results."""
        return list(self.document.get("warnings", []))

    def table(self, name: str) -> Table:
        """A table: a key of `TABLES`, or any view of rocpd, such as "top_kernels"."""
        view, kind = TABLES.get(name, (name, name))
        return Table(view, kind, self.files)

    def kernels(self) -> Table:
        """Dispatches."""
        return self.table("kernels")

    def copies(self) -> Table:
        """Copies of memory."""
        return self.table("copies")

    def calls(self) -> Table:
        """Calls and, from rocpd, markers."""
        return self.table("calls")

    def allocations(self) -> Table:
        """Allocations and releases of memory."""
        return self.table("allocations")

    def graphs(self) -> Table:
        """Launches of HIP's graphs."""
        return self.table("graphs")

    def events(self) -> Table:
        """Records of HIP events, and waits for them."""
        return self.table("events")

    def code(self) -> Rows:
        """The lines of code that launched work, recorded with `stacks`: the one with the most GPU time first."""
        found = [table for table in self.document.get("tables", []) if table["title"] == "CODE"]
        return Rows(row for table in found for row in table["rows"])

    def steps(self) -> Rows:
        """The iterations of the program's main loop, where `stacks` found one."""
        loops = [(process["pid"], process.get("main_loop") or {}) for process in self.document.get("processes", [])]
        return Rows({"process": pid, **step} for pid, loop in loops for step in loop.get("iterations", []))

    def stacks(self) -> Table:
        """A row for each frame of each launch's stack, by `event_id` as in `kernels`; the depth 0 is the innermost. From rocpd."""
        return self.table("call_stacks")

    def counters(self) -> Table:
        """Values of hardware counters."""
        return self.table("counters")

    def close(self) -> None:
        """Deletes the files, where no directory was named for them. They go with the recording in any case."""
        if self._temporary is not None:
            self._temporary.cleanup()
