"""Holds the files of one session to each other: json, csv, rocpd, pftrace and otf2 have the same records.

Usage: agreement.py PREFIX KERNEL: PREFIX is what the names of the files start with, with its directory, and KERNEL a part of
the name of a kernel that was launched. Prints how many records of each kind there are, as JSON. It ends with an error where
two files differ.
"""

import csv
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter

import otf2

# The list in json: the categories in rocpd, and the view that has them.
LISTS = {
    "hip_api": (("HIP_RUNTIME_API", "HIP_RUNTIME_API_EXT", "HIP_COMPILER_API", "HIP_COMPILER_API_EXT"), "regions_and_samples"),
    "hsa_api": (("HSA_CORE_API", "HSA_AMD_EXT_API", "HSA_IMAGE_EXT_API", "HSA_FINALIZE_EXT_API"), "regions_and_samples"),
    "marker_api": (
        ("MARKER_CORE_API", "MARKER_CONTROL_API", "MARKER_NAME_API", "MARKER_CORE_RANGE_API"),
        "regions_and_samples",
    ),
    "kernel_dispatch": (("KERNEL_DISPATCH",), "kernels"),
    "memory_copy": (("MEMORY_COPY",), "memory_copies"),
    "memory_allocation": (("MEMORY_ALLOCATION",), "memory_allocations"),
}


def rows(path):
    return list(csv.DictReader(open(path, newline=""))) if os.path.exists(path) else []


def read(script, path):
    """What another script of this directory prints about a file."""
    script = os.path.join(os.path.dirname(__file__), script)
    return json.loads(subprocess.run([sys.executable, "-B", script, path], check=True, capture_output=True, text=True).stdout)


def calls_in_csv(prefix, name, records, kinds):
    """The rows of calls are the records: function, thread, id and times."""
    found = Counter(
        (row["Domain"], int(row["Process_Id"]), int(row["Thread_Id"]), int(row["Correlation_Id"]), int(row["Start_Timestamp"]), int(row["End_Timestamp"]))
        for row in rows(f"{prefix}_{name}_trace.csv")
    )
    wanted = Counter(
        (
            kinds[record["kind"]]["kind"],
            PID,
            record["thread_id"],
            record["correlation_id"]["internal"],
            record["start_timestamp"],
            record["end_timestamp"],
        )
        for record in records
    )
    assert found == wanted, (name, found - wanted, wanted - found)


def kernels_in_csv(prefix, records, symbols, kernel):
    found = sorted(
        tuple(
            int(row[column])
            for column in (
                "Start_Timestamp", "End_Timestamp", "Thread_Id", "Correlation_Id", "Queue_Id", "Kernel_Id", "Dispatch_Id", "Stream_Id",
                "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z",
            )
        )
        for row in rows(f"{prefix}_kernel_trace.csv")
    )

    def of(record):
        info = record["dispatch_info"]
        sizes = [info[what][axis] for what in ("workgroup_size", "grid_size") for axis in "xyz"]
        return (
            record["start_timestamp"], record["end_timestamp"], record["thread_id"], record["correlation_id"]["internal"],
            info["queue_id"]["handle"], info["kernel_id"], info["dispatch_id"], record["stream_id"]["handle"], *sizes,
        )  # fmt: skip

    assert found == sorted(map(of, records))
    for record in records:
        info = record["dispatch_info"]
        assert record["end_timestamp"] >= record["start_timestamp"] and info["queue_id"]["handle"] > 0
        # A kernel's number is its place in the list.
        assert symbols[info["kernel_id"]]["kernel_id"] == info["kernel_id"] > 0
    names = {row["Kernel_Name"] for row in rows(f"{prefix}_kernel_trace.csv")}
    assert any(kernel in name for name in names), names


def copies_in_csv(prefix, records, kinds):
    def of(record):
        return (
            record["correlation_id"]["internal"], record["start_timestamp"], record["end_timestamp"],
            kinds[record["kind"]]["operations"][record["operation"]], record["stream_id"]["handle"],
        )  # fmt: skip

    found = sorted(
        (int(row["Correlation_Id"]), int(row["Start_Timestamp"]), int(row["End_Timestamp"]), row["Direction"], int(row["Stream_Id"]))
        for row in rows(f"{prefix}_memory_copy_trace.csv")
    )
    assert found == sorted(map(of, records))


def agents_in_csv(prefix, agents):
    found = rows(f"{prefix}_agent_info.csv")
    assert len(found) == len(agents) > 1
    for row, agent in zip(found, agents):
        is_gpu = row["Agent_Type"] == "GPU"
        assert (agent["type"] == 2) == is_gpu, row
        for column in ("Cpu_Cores_Count", "Simd_Count", "Max_Waves_Per_Simd"):
            assert int(row[column]) == agent[column.lower()], (column, row)
        assert (int(row["Cpu_Cores_Count"]) == 0) == is_gpu and (int(row["Simd_Count"]) > 0) == is_gpu


def counters(tool):
    """The tracks of counters, and what each counter of each dispatch counted."""
    names = {counter["id"]["handle"]: counter["name"] for counter in tool["counters"]}
    agents = {agent["id"]["handle"]: agent["logical_node_id"] for agent in tool["agents"]}
    tracks, values = set(), Counter()
    for entry in tool["callback_records"]["counter_collection"]:
        info = entry["dispatch_data"]["dispatch_info"]
        for record in entry["records"]:
            name = names[record["counter_id"]["handle"]]
            tracks.add(f"Agent [{agents[info['agent_id']['handle']]}] PMC {name}")
            values[(info["dispatch_id"], name)] += record["value"]
    return tracks, values


def main(prefix, kernel):
    global PID
    (tool,) = json.load(open(f"{prefix}_results.json"))["rocprofiler-sdk-tool"]
    PID = tool["metadata"]["pid"]
    kinds = tool["strings"]["buffer_records"]
    records = tool["buffer_records"]
    counts = {name: len(records[name]) for name in LISTS}
    for name in ("hip", "hsa"):
        calls_in_csv(prefix, f"{name}_api", records[f"{name}_api"], kinds)
    kernels_in_csv(prefix, records["kernel_dispatch"], tool["kernel_symbols"], kernel)
    copies_in_csv(prefix, records["memory_copy"], kinds)
    agents_in_csv(prefix, tool["agents"])

    database = sqlite3.connect(f"file:{prefix}_results.db?mode=ro", uri=True)
    assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    for name, (categories, view) in LISTS.items():
        places = ", ".join("?" * len(categories))
        question = f"SELECT COUNT(*) FROM {view} WHERE category IN ({places})"
        assert database.execute(question, categories).fetchone() == (counts[name],), name

    tracks, values = counters(tool)
    trace = read("pftrace.py", f"{prefix}_results.pftrace")
    slices = Counter(slice["category"] for slice in trace["slices"])
    instants = Counter(instant["category"] for instant in trace["instants"])
    assert {name: slices[name] + instants[name] for name in LISTS} == counts
    found = {name: samples for name, samples in trace["counters"].items() if " PMC " in name}
    assert set(found) == tracks and all(max(value for _, value in samples) > 0 for samples in found.values()), found

    archive = read("otf2_read.py", f"{prefix}_results.otf2")
    regions = Counter(region["attributes"]["category"] for region in archive["regions"])
    marks = sum(kinds[it["kind"]]["operations"][it["operation"]] == "roctxMarkA" for it in records["marker_api"])
    assert {name: regions[name] for name in LISTS} == {**counts, "marker_api": counts["marker_api"] - marks}, regions
    with otf2.reader.open(f"{prefix}_results.otf2") as opened:
        domains = {of.system_tree_node.name: of.system_tree_node_domain for of in opened.definitions.system_tree_node_domains}
        gpus = [node.name for node in opened.definitions.system_tree_nodes if "AMD" in node.class_name]
        assert gpus and all(domains[gpu] == otf2.SystemTreeDomain.ACCELERATOR_DEVICE for gpu in gpus), domains

    of_dispatches = Counter()
    question = "SELECT dispatch_id, counter_name, value FROM counters_collection"
    for dispatch, name, value in database.execute(question):
        of_dispatches[(dispatch, name)] += value
    in_csv = Counter()
    for row in rows(f"{prefix}_counter_collection.csv"):
        in_csv[(int(row["Dispatch_Id"]), row["Counter_Name"])] += float(row["Counter_Value"])
    assert in_csv == of_dispatches == values
    counts["counter_values"] = len(values)
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
