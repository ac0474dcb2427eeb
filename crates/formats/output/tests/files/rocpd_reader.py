"""Reads a rocpd file with Python's SQLite: an independent reader. Prints JSON.

Usage: rocpd_reader.py FILE [SQL...]: what is in the file, and the rows of each query as objects.
"""

import json
import sqlite3
import sys

db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
db.execute("PRAGMA foreign_keys = ON")


def rows(sql):
    cursor = db.execute(sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor]


# Of the first session, where there are several.
(suffix,) = db.execute("SELECT value FROM rocpd_metadata WHERE tag = 'uuid'").fetchone()
(guid,) = db.execute("SELECT value FROM rocpd_metadata WHERE tag = 'guid'").fetchone()
tables, views, others = {}, {}, []
for kind, name in db.execute("SELECT type, name FROM sqlite_master").fetchall():
    columns = db.execute(f'PRAGMA table_info("{name}")').fetchall()
    count = lambda: db.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0]
    if kind == "table" and name.endswith(suffix):
        references = db.execute(f'PRAGMA foreign_key_list("{name}")').fetchall()
        tables[name.removesuffix(suffix)] = {
            "columns": [[name, kind, not_null, default and default.replace(guid, "GUID")]
                        for _, name, kind, not_null, default, _ in columns],
            # SQLite numbers them from the last.
            "references": [[row[3], row[2].removesuffix(suffix)] for row in sorted(references, reverse=True)],
            "on_update": sorted({row[5] for row in references}),
            "count": count(),
        }
    elif kind == "view":
        # Every row is read, not only counted.
        views[name] = {"columns": [column[1] for column in columns], "count": len(rows(f'SELECT * FROM "{name}"'))}
    elif not name.startswith("sqlite_"):
        others.append(name)
json.dump(
    {
        "suffix": suffix,
        "tables": tables,
        "views": views,
        "others": others,
        "integrity": db.execute("PRAGMA integrity_check").fetchall(),
        "foreign_keys": db.execute("PRAGMA foreign_key_check").fetchall(),
        "journal_mode": db.execute("PRAGMA journal_mode").fetchone()[0],
        "answers": [rows(sql) for sql in sys.argv[2:]],
    },
    sys.stdout,
)
