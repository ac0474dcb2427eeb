"""Runs the queries of a page of the book. Usage: duckdb_page.py PAGE, in the directory that they name. Prints how many rows each finds."""

import json
import re
import sys

import duckdb

with open(sys.argv[1], encoding="utf-8") as file:
    queries = re.findall(r"^```sql\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
json.dump([len(duckdb.sql(query).fetchall()) for query in queries], sys.stdout)
