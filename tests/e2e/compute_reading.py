"""Reads a profile as AMD's tool reads its own: pmc_perf.csv by pandas, and a rocpd database by the view
counters_collection, whose rows are renamed, numbered and pivoted (shared/research/rocprof-compute.md
section 2.4). Prints what both have as JSON."""

import json
import sqlite3
import sys

import pandas as pd

# AMD's names of the view's columns.
NAMES = {
    "agent_id": "GPU_ID",
    "guid": "GUID",
    "stack_id": "Correlation_ID",
    "dispatch_id": "Dispatch_ID",
    "pid": "PID",
    "grid_size": "Grid_Size",
    "workgroup_size": "Workgroup_Size",
    "lds_block_size": "LDS_Per_Workgroup",
    "scratch_size": "Scratch_Per_Workitem",
    "vgpr_count": "Arch_VGPR",
    "accum_vgpr_count": "Accum_VGPR",
    "sgpr_count": "SGPR",
    "kernel_name": "Kernel_Name",
    "start": "Start_Timestamp",
    "end": "End_Timestamp",
    "kernel_id": "Kernel_ID",
    "counter_name": "Counter_Name",
    "value": "Counter_Value",
}
SORT = ["Kernel_Name", "Grid_Size", "Workgroup_Size", "LDS_Per_Workgroup"]
AMDS = (
    "Dispatch_ID GPU_ID Grid_Size Workgroup_Size LDS_Per_Workgroup Scratch_Per_Workitem Arch_VGPR Accum_VGPR SGPR "
    "Wave_Size Kernel_Name Correlation_ID Kernel_ID"
).split()


def of_database(path):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        columns = ", ".join(f'"{name}"' for name in NAMES)
        long = pd.read_sql_query(f"SELECT {columns} FROM counters_collection", database)
    long = long.rename(columns=NAMES)
    times = ["Start_Timestamp", "End_Timestamp"]
    long["Dispatch_ID"] = long.groupby(["PID", *SORT, *times], sort=False).ngroup()
    long["Kernel_ID"] = long.groupby(SORT, sort=False).ngroup()
    long["GPU_ID"] = long["GPU_ID"].rank(method="dense").astype(int) - 1
    key = ["Dispatch_ID", *SORT]
    wide = long.pivot_table(index=key, columns="Counter_Name", values="Counter_Value", aggfunc="sum")
    took = (long["End_Timestamp"] - long["Start_Timestamp"]).groupby([long[name] for name in key]).median()
    wide = wide.assign(Start_Timestamp=0, End_Timestamp=took).reset_index()
    counters = sorted(long["Counter_Name"].unique())
    return wide, counters


def of_csv(path):
    wide = pd.read_csv(path)
    columns = list(wide.columns)
    assert columns[: len(AMDS)] == AMDS, columns
    assert columns[-4:] == ["Start_Timestamp", "End_Timestamp", "Group", "Shared"], columns
    # A channel is an instance of a counter.
    counters = [name for name in columns[len(AMDS) : -4] if "[" not in name]
    assert wide["Dispatch_ID"].is_unique and (wide["Wave_Size"] == 64).all()
    # A dispatch whose times are not known has empty fields.
    timed = wide[wide["End_Timestamp"].notna()]
    assert (timed["End_Timestamp"] > timed["Start_Timestamp"]).all()
    assert wide["Start_Timestamp"].notna().equals(wide["End_Timestamp"].notna())
    assert len(timed) > 0.95 * len(wide)
    # A dispatch with values has its group, and those whose values were left out have none.
    counted = wide[counters].notna().any(axis=1)
    assert wide.loc[counted, "Group"].notna().all() and wide.loc[~counted, "Group"].isna().all()
    assert (wide.loc[counted, "Shared"] == 0).all() and wide["Shared"].isin([0, 1]).all()
    return wide, counters


def told(wide, counters):
    def ratio(of, *to):
        rows = wide[list(dict.fromkeys([of, *to]))].dropna()
        return float(100 * rows[of].sum() / rows[list(to)].sum(axis=1).sum())

    values = wide[counters]
    return {
        "rows": len(wide),
        "counted_rows": int(values.notna().any(axis=1).sum()),
        "negative": int((values < 0).sum().sum()),
        "counters": {
            name: {"counted": int(values[name].notna().sum()), "sum": float(values[name].sum())} for name in counters
        },
        "metrics": {
            "5.1.1": ratio("CPF_CPF_STAT_STALL", "CPF_CPF_STAT_BUSY"),
            "17.1.2": ratio("TCC_HIT_sum", "TCC_HIT_sum", "TCC_MISS_sum"),
        },
    }


def kernels(wide, counters):
    counted = wide[wide[counters].notna().any(axis=1)]
    took = (counted["End_Timestamp"] - counted["Start_Timestamp"]).groupby([counted[name] for name in SORT])
    return [[*map(str, key), len(times), float(times.sum())] for key, times in took]


csv, database = of_csv(sys.argv[1]), of_database(sys.argv[2])
json.dump(
    {
        "csv": told(*csv),
        "database": told(*database),
        "kernels": {"csv": kernels(*csv), "database": kernels(*database)},
    },
    sys.stdout,
)
