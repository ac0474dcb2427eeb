"""Runs every view of a rocpd file in DuckDB, and compares its rows with those that SQLite finds.

Usage: duckdb_views.py FILE. DuckDB's reader of SQLite files is fetched from the network when it is first used, so the tables
are handed over here; the statements of the views are those of the file, as that reader runs them. Prints how many rows each
view has.
"""

import json
import math
import sqlite3
import sys

import duckdb
import pandas

TYPES = {"INTEGER": "BIGINT", "INT": "BIGINT", "BIGINT": "BIGINT", "TEXT": "VARCHAR", "JSONB": "VARCHAR", "REAL": "DOUBLE"}


def comparable(value):
    if isinstance(value, float):
        return 0.0 if math.isnan(value) else float(f"{value:.9g}")
    return value


def rows(cursor):
    return sorted(([comparable(value) for value in row] for row in cursor.fetchall()), key=repr)


sqlite = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
duck = duckdb.connect()
views = {}
for kind, name, sql in sqlite.execute("SELECT type, name, sql FROM sqlite_master ORDER BY rowid").fetchall():
    if kind == "table" and name.startswith("rocpd_"):
        columns = sqlite.execute(f'PRAGMA table_info("{name}")').fetchall()
        declared = ", ".join(f'"{column[1]}" {TYPES[column[2].split()[0]]}' for column in columns)
        duck.execute(f'CREATE TABLE "{name}" ({declared})')
        found = sqlite.execute(f'SELECT * FROM "{name}"').fetchall()
        if found:
            frame = pandas.DataFrame(found, columns=[column[1] for column in columns], dtype=object)
            duck.register("frame", frame)
            duck.execute(f'INSERT INTO "{name}" SELECT * FROM frame')
            duck.unregister("frame")
    elif kind == "view":
        duck.execute(sql)
        ours, theirs = rows(sqlite.execute(f'SELECT * FROM "{name}"')), rows(duck.execute(f'SELECT * FROM "{name}"'))
        # DuckDB has a type for JSON's values: texts keep their quotes there, numbers are texts.
        if "json_extract" in sql:
            assert len(ours) == len(theirs), (name, len(ours), len(theirs))
        else:
            assert ours == theirs, (name, ours[:2], theirs[:2])
        views[name] = len(theirs)
json.dump(views, sys.stdout)
