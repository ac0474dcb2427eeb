"""Databases behind one connection of SQLite, under AMD's names."""

import os
import sqlite3
import subprocess
import tempfile

__all__ = ["RocpdImportData", "execute_statement"]


class RocpdImportData:
    """One database, or a temporary one of many. What it does not have itself is the connection's."""

    def __init__(self, input, automerge_limit=None):
        if isinstance(input, RocpdImportData):
            self.filenames, self._directory, self.connection = input.filenames, input._directory, input.connection
            return
        paths = [input] if isinstance(input, (str, os.PathLike)) else input
        if not isinstance(paths, (list, tuple)) or not paths or not all(isinstance(path, (str, os.PathLike)) for path in paths):
            raise ValueError(f"databases are given by a path or by a list of paths, not by {type(input).__name__}")
        self.filenames = [os.fspath(path) for path in paths]
        self._directory = None
        path = self.filenames[0]
        if len(self.filenames) > 1:
            from . import program

            self._directory = tempfile.TemporaryDirectory(prefix="rocpd-")
            words = ["rocpd", "merge", "-i", *self.filenames, "-d", self._directory.name, "-o", "all"]
            subprocess.run(words, executable=program(), stdout=subprocess.DEVNULL, check=True)
            path = os.path.join(self._directory.name, "all.db")
        self.connection = _open(path)

    def __getattr__(self, name):
        # Before the connection is there, nothing is.
        if name == "connection":
            raise AttributeError(name)
        return getattr(self.connection, name)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return self.connection.__exit__(*exception)


def execute_statement(connection, statement, is_script=False):
    """Runs a statement, or a script of them."""
    return connection.executescript(statement) if is_script else connection.execute(statement)


def _open(path):
    from urllib.request import pathname2url

    return sqlite3.connect(f"file:{pathname2url(os.path.abspath(path))}?mode=ro", uri=True)
