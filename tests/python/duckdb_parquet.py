"""Reads the tables of the format parquet with DuckDB and compares them with the csv files of the same session.

Usage: duckdb_parquet.py PARQUET_DIRECTORY CSV_DIRECTORY. The csv files begin with "r_". Every row of every csv table has to be a row
of the table of that kind, value by value, and there is no other. Prints how many rows each kind has, the parts of the path as
DuckDB reads them, and what the metadata says of losses.
"""

import csv
import glob
import json
import os
import sys
from collections import Counter

import duckdb

KERNEL = {
    "Agent_Id": "agent", "Queue_Id": "queue", "Stream_Id": "stream", "Thread_Id": "tid", "Dispatch_Id": "dispatch_id",
    "Kernel_Id": "kernel_id", "Kernel_Name": "name", "Correlation_Id": "corr_id", "LDS_Block_Size": "lds_bytes",
    "Scratch_Size": "scratch_bytes", "VGPR_Count": "vgpr", "Accum_VGPR_Count": "accum_vgpr", "SGPR_Count": "sgpr",
    **{f"Workgroup_Size_{axis}": f"workgroup_{axis.lower()}" for axis in "XYZ"},
    **{f"Grid_Size_{axis}": f"grid_{axis.lower()}" for axis in "XYZ"},
    "Static_Shared_Memory": "static_shared_bytes", "Dynamic_Shared_Memory": "dynamic_shared_bytes",
}
COUNTED = {"Correlation_Id": "corr_id", "Dispatch_Id": "dispatch_id", "Agent_Id": "agent", "Queue_Id": "queue", "Thread_Id": "tid",
           "Kernel_Id": "kernel_id", "Kernel_Name": "name", "Counter_Name": "counter", "Counter_Value": "value"}
ENDS = {"Source_Agent_Id": "source", "Destination_Agent_Id": "destination"}
CALL = {"Domain": "domain", "Function": "name", "Thread_Id": "tid", "Correlation_Id": "corr_id", "Result": "result"}
WORK = {"Operation": "operation", "Agent_Id": "agent", "Stream_Id": "stream", "Thread_Id": "tid", "Correlation_Id": "corr_id",
        "Queue_Id": "queue", "Bytes": "bytes", "Value": "value", "Event_Id": "event", "Address": "address"}
# By csv file: the kind, and the columns that have other names than their own in small letters.
TABLES = {
    "kernel_trace": ("kernels", KERNEL),
    "memory_copy_trace": ("memory_copies", {**WORK, **ENDS, "Direction": "direction"}),
    "memory_allocation_trace": ("memory_allocations", {**WORK, "Allocation_Size": "bytes"}),
    "scratch_memory_trace": ("scratch_memory", {**WORK, "Alloc_Flags": "flags", "Allocation_Size": "bytes"}),
    "memory_set_trace": ("memory_sets", WORK),
    "synchronization_trace": ("synchronizations", WORK),
    "unified_memory_trace": ("unified_memory", {**WORK, **ENDS}),
    "marker_api_trace": ("markers", CALL),
    "counter_collection": ("counters", COUNTED),
    "device_counter_collection": ("device_counters", {**COUNTED, "Reading_Id": "reading"}),
    "counter_batches": ("counter_batches", {**COUNTED, "Batch_Id": "batch", "Kernel_Names": "kernels"}),
}
COMMON = {"Start_Timestamp": "start_ns", "End_Timestamp": "end_ns", "Process_Id": "pid", "Context_Id": "context", "Device": "device",
          "Graph_Id": "graph", "Graph_Node_Id": "graph_node", "Cuda_Stream": "cuda_stream"}
# What csv has and the tables have in another place, or computed.
ELSEWHERE = {
    "counters": {"Grid_Size", "Workgroup_Size", "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count"},
}


def seen(column, value):
    if value is None:
        return ""
    if column == "address":
        return f"{value:#018x}"
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return str(value).replace("\n", " ").replace("\r", " ")


def as_csv(columns, row):
    """A row of a table as csv has it: there the bytes of a copy are among the columns that only CUDA's records have."""
    values = {column: seen(column, value) for column, value in zip(columns, row)}
    if "direction" in values and not values.get("context"):
        values["bytes"] = ""
    return tuple(values[column] for column in columns)


def expected(column, value):
    return float(f"{float(value):.6g}") if column == "value" and "." in value else value


tables, csvs = sys.argv[1:]
duck = duckdb.connect()
rows = {}
launches = []
events = []
wanted = {}
for path in sorted(glob.glob(f"{csvs}/r_*.csv")):
    name = os.path.basename(path)[2:-4]
    if name.endswith("_stats") or name == "agent_info":
        continue
    kind, names = TABLES.get(name, ("calls", CALL))
    names = {**COMMON, **names}
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        left_out = ELSEWHERE.get(kind, set()) | {"Kind"}
        columns = [column for column in reader.fieldnames if column not in left_out]
        ours = [names.get(column, column.lower()) for column in columns]
        found = [tuple(expected(our, row[column]) for our, column in zip(ours, columns)) for row in reader]
    # Two files of calls have not the same columns: the files of AMD's runtimes have no result.
    wanted.setdefault(kind, []).append((ours, Counter(found)))

for directory in sorted({os.path.dirname(path) for path in glob.glob(f"{tables}/**/*.parquet", recursive=True)}):
    kind = os.path.basename(directory).removeprefix("kind=")
    table = f"read_parquet('{tables}/**/kind={kind}/*.parquet', hive_partitioning = true)"
    rows[kind] = duck.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    if kind in ("agents", "gpu_metrics"):
        continue
    if kind == "graph_launches":
        # csv has none of these.
        columns = "graph, kernels, start_ns, end_ns, queue, remark"
        launches = duck.execute(f"SELECT {columns} FROM {table} ORDER BY start_ns").fetchall()
        continue
    if kind == "hip_events":
        columns = "operation, event, start_ns, end_ns, queue, source_queue, remark IS NOT NULL"
        events = duck.execute(f"SELECT {columns} FROM {table} ORDER BY start_ns").fetchall()
        continue
    assert kind in wanted, f"csv has no {kind}"
    for ours, found in wanted[kind]:
        quoted = ", ".join(f'"{our}"' for our in ours)
        where = ""
        if kind == "calls":
            domains = sorted({row[ours.index("domain")] for row in found})
            where = " WHERE domain IN (" + ", ".join(f"'{domain}'" for domain in domains) + ")"
        read = Counter(
            as_csv(ours, row)
            for row in duck.execute(f"SELECT {quoted} FROM {table}{where}").fetchall()
        )
        assert read == found, (kind, list((read - found).items())[:2], list((found - read).items())[:2])
        # The sums, as a person would have them.
        if kind == "kernels":
            time = duck.execute(f"SELECT sum(end_ns - start_ns) FROM {table}").fetchone()[0]
            at = ours.index("start_ns"), ours.index("end_ns")
            assert time == sum((int(row[at[1]]) - int(row[at[0]])) * count for row, count in found.items())
    assert rows[kind] == sum(sum(found.values()) for _, found in wanted[kind]), kind
missing = [kind for kind, all_of in wanted.items() if kind not in rows and any(found for _, found in all_of)]
assert not missing, missing

every = f"read_parquet('{tables}/**/kind=agents/*.parquet', hive_partitioning = true)"
parts = duck.execute(f"SELECT DISTINCT run, host, rank FROM {every} ORDER BY ALL").fetchall()
metadata = duck.execute(
    f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{tables}/**/kind=agents/*.parquet')"
).fetchall()
json.dump({"rows": rows, "launches": launches, "events": events, "parts": parts, "metadata": dict(metadata)}, sys.stdout)
