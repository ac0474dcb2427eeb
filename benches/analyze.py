"""How long pandas takes to read what `rocprof-compute analyze` reads, and with how much memory.

    python3 benches/analyze.py DIR

DIR is one that `cargo run --release -p midair-compute --example big DISPATCHES csv|rocpd DIR` made. AMD's
analyze is built on pandas: it has to do at least this before it computes the first metric. For rocpd that
is one row per dispatch with one column per counter, made from one row per dispatch and counter.
"""

import resource
import sqlite3
import sys
import time
from pathlib import Path

import pandas as pd

COUNTERS = """
    SELECT d.dispatch_id, p.name, e.value FROM rocpd_kernel_dispatch_x d
    JOIN rocpd_pmc_event_x e ON e.event_id = d.event_id JOIN rocpd_info_pmc_x p ON p.id = e.pmc_id
"""
DISPATCHES = """
    SELECT d.dispatch_id, k.display_name, d.start, d."end" FROM rocpd_kernel_dispatch_x d
    JOIN rocpd_info_kernel_symbol_x k ON k.id = d.kernel_id
"""


def frame(directory: Path) -> pd.DataFrame:
    """One row a dispatch, one column a counter."""
    table = directory / "pmc_perf.csv"
    if table.exists():
        return pd.read_csv(table)
    database = sqlite3.connect(directory / "pmc_perf_0.db")
    counters = pd.read_sql(COUNTERS, database)
    counters = counters.pivot_table(index="dispatch_id", columns="name", values="value")
    return pd.read_sql(DISPATCHES, database).merge(counters, on="dispatch_id")


def main() -> None:
    begin = time.monotonic()
    rows, columns = frame(Path(sys.argv[1])).shape
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"{rows} dispatches, {columns} columns: read {time.monotonic() - begin:.2f} s; "
        f"VmHWM: {used.ru_maxrss} kB; processor time {used.ru_utime + used.ru_stime:.2f} s"
    )


main()
