//! A CUDA process in json, rocpd, pftrace and the tables, together with another process, and with
//! numbers that no CUDA has.

use crate::common::{append, golden_json, index, list, number, reader, text, trace_of};
use crate::cuda::{ALL, cells, everything, read_json, rows, trace, written};
use crate::rocpd_rows::{header, plan};
use midair_output::{Names, table, write};
use midair_record::event::{self, Header, MemorySet, Synchronization, cuda_node, flag, kind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

#[test]
fn devices_are_agents_behind_the_machines() {
    let directory = written(|_| ());
    let agents = rows(directory.path(), "agent_info");
    let columns = [
        "Node_Id",
        "Logical_Node_Id",
        "Agent_Type",
        "Name",
        "Vendor_Name",
        "Product_Name",
        "Model_Name",
        "Cu_Count",
        "Wave_Front_Size",
        "Max_Waves_Per_Cu",
        "Max_Engine_Clk_Fcompute",
        "Local_Mem_Size",
        "Location_Id",
        "Lds_Size_In_Kb",
    ];
    let h200 = |node: &'static str, location: &'static str| {
        vec![
            node,
            node,
            "GPU",
            "NVIDIA H200",
            "NVIDIA",
            "NVIDIA H200",
            "sm_90",
            "132",
            "32",
            "64",
            "1980",
            "150754820096",
            location,
            "228",
        ]
    };
    assert_eq!(agents.len(), 3);
    assert_eq!(agents[0]["Agent_Type"], "CPU");
    assert_eq!(cells(&agents[1], &columns), h200("1", "6912"));
    assert_eq!(cells(&agents[2], &columns), h200("2", "7168"));
    let json = read_json(directory.path());
    let gpu = &json["agents"][1];
    assert_eq!(
        (&gpu["uuid"]["bytes"]["value15"], &gpu["gpu_index"]),
        (&json!(7), &json!(0))
    );
    assert_eq!(gpu["mem_banks"][0]["width"], 6016);
    assert_eq!(gpu["caches"][0]["size"], 61_440);
    let file = reader(
        &directory.path().join("r_results.db"),
        &[
            "SELECT id, type, logical_index, type_index, name, vendor_name FROM rocpd_info_agent ORDER BY id",
        ],
    );
    let rows = list(&file["answers"][0]);
    assert_eq!(
        rows[1],
        json!({"id": 1, "type": "GPU", "logical_index": 1, "type_index": 0, "name": "NVIDIA H200", "vendor_name": "NVIDIA"})
    );
    // This is the one without a description.
    assert_eq!(
        (&rows[3]["type"], &rows[3]["name"]),
        (&json!("GPU"), &json!("Device 5"))
    );
    assert_eq!(rows.len(), 4);
}

#[test]
fn json_has_lists_of_its_own_and_names_for_their_numbers() {
    let directory = written(|plan| plan.stats = true);
    let json = read_json(directory.path());
    let records = &json["buffer_records"];
    let counts = [
        ("kernel_dispatch", 3),
        ("memory_copy", 3),
        ("cuda_api", 4),
        ("memory_set", 1),
        ("synchronization", 2),
        ("unified_memory", 2),
        ("marker_api", 1),
        ("memory_allocation", 2),
        ("hip_api", 0),
        ("hsa_api", 0),
    ];
    for (key, count) in counts {
        assert_eq!(list(&records[key]).len(), count, "{key}");
        // Readers find each record's kind by its number.
        for record in list(&records[key]) {
            let kind = &json["strings"]["buffer_records"][number(&record["kind"]) as usize];
            assert_eq!(
                text(&kind["kind"]),
                midair_domain::of_number(number(&record["kind"]) as u8)
                    .unwrap()
                    .name
            );
        }
    }
    let of = |key: &str| {
        list(&json["strings"]["buffer_records"])
            .iter()
            .position(|kind| kind["kind"] == key)
    };
    assert_eq!(of("MEMORY_SET"), Some(58));
    assert_eq!(
        records["kernel_dispatch"][1]["cuda"],
        json!({"device": 1, "context_id": 2, "stream": 14, "registers": 20, "static_shared_memory": 64,
            "dynamic_shared_memory": 1000, "graph_id": 4, "graph_node_id": 17_179_869_190_u64})
    );
    let copies = list(&records["memory_copy"]);
    let operations: Vec<_> = copies
        .iter()
        .map(|copy| number(&copy["operation"]))
        .collect();
    assert_eq!(operations, [2, 3, 4]);
    assert_eq!(copies[2]["cuda"]["copy_kind"], 10);
    let handle = |n: usize| &json["agents"][n]["id"]["handle"];
    assert_eq!(&copies[0]["src_agent_id"]["handle"], handle(0));
    assert_eq!(&copies[0]["dst_agent_id"]["handle"], handle(1));
    assert_eq!(records["cuda_api"][3]["retval"]["uint64_t_retval"], 2);
    assert_eq!(
        records["synchronization"][1]["cuda"],
        json!({"context_id": 1})
    );
    assert_eq!(records["synchronization"][1]["event_id"], 9);
    let runtimes: Vec<_> = list(&json["metadata"]["midair"]["runtimes"])
        .iter()
        .map(|runtime| (text(&runtime["name"]), number(&runtime["version"])))
        .collect();
    assert_eq!(
        runtimes,
        [
            ("CUDA driver".to_owned(), 130_000),
            ("CUPTI".to_owned(), 130_000)
        ]
    );
    let domains: Vec<_> = list(&json["summary"])
        .iter()
        .map(|domain| (text(&domain["domain"]), number(&domain["stats"]["count"])))
        .collect();
    let wanted = [
        ("KERNEL_DISPATCH", 3),
        ("MEMORY_COPY", 3),
        ("MEMORY_ALLOCATION", 2),
        ("MARKER_API", 1),
        ("CUDA_RUNTIME_API", 3),
        ("CUDA_DRIVER_API", 1),
        ("MEMORY_SET", 1),
        ("SYNCHRONIZATION", 2),
        ("UNIFIED_MEMORY", 2),
    ];
    assert_eq!(
        domains,
        wanted.map(|(name, count)| (name.to_owned(), count))
    );
    for name in [
        "cuda_runtime_api",
        "cuda_driver_api",
        "memory_set",
        "synchronization",
        "unified_memory",
    ] {
        assert!(
            directory
                .path()
                .join(format!("r_{name}_stats.csv"))
                .is_file(),
            "{name}"
        );
    }
}

#[test]
fn rocpd_has_a_row_for_everything() {
    let directory = written(|_| ());
    let file = reader(
        &directory.path().join("r_results.db"),
        &[
            "SELECT name, agent_abs_index, stream, graph_exec_id, graph_node_id, lds_size FROM kernels ORDER BY dispatch_id",
            "SELECT extdata FROM rocpd_kernel_dispatch ORDER BY id LIMIT 1",
            "SELECT category, name, src_agent_type, dst_agent_type, size, graph_exec_id FROM memory_copies ORDER BY id",
            "SELECT category, name, tid, start, extdata FROM regions ORDER BY start, name",
            "SELECT category, timestamp, extdata FROM samples ORDER BY timestamp",
            "SELECT type, agent_name, size FROM memory_allocations ORDER BY id",
            "SELECT r.name FROM regions AS r JOIN kernels AS k ON k.stack_id = r.stack_id WHERE k.dispatch_id = 1",
        ],
    );
    assert_eq!(
        (&file["integrity"], &file["foreign_keys"]),
        (&json!([["ok"]]), &json!([]))
    );
    // Every row of a table must be in the table's view.
    for (table, view) in [
        ("rocpd_region", "regions"),
        ("rocpd_sample", "samples"),
        ("rocpd_kernel_dispatch", "kernels"),
        ("rocpd_memory_copy", "memory_copies"),
        ("rocpd_memory_allocate", "memory_allocations"),
        ("rocpd_info_thread", "threads"),
        ("rocpd_info_kernel_symbol", "kernel_symbols"),
    ] {
        assert_eq!(
            file["tables"][table]["count"], file["views"][view]["count"],
            "{view}"
        );
    }
    let answer = |n: usize| list(&file["answers"][n]);
    assert_eq!(
        answer(0)[1],
        json!({"name": "vadd(float const*, float const*, float*, int)", "agent_abs_index": 2,
            "stream": "Context 2 Stream 14", "graph_exec_id": 4, "graph_node_id": 17_179_869_190_u64, "lds_size": 1064})
    );
    assert_eq!(answer(0)[2]["name"], "unknown_kernel#9");
    let extdata: Value = serde_json::from_str(&text(&answer(1)[0]["extdata"])).unwrap();
    assert_eq!(
        extdata,
        json!({"device": 0, "context": 1, "stream": 7, "registers": 20, "static_shared_memory": 64, "dynamic_shared_memory": 1000})
    );
    let copies: Vec<_> = answer(2)
        .iter()
        .map(|copy| (text(&copy["category"]), text(&copy["name"])))
        .collect();
    let pair = |category: &str, name: &str| (category.to_owned(), name.to_owned());
    assert_eq!(
        copies,
        [
            pair("MEMORY_COPY", "MEMORY_COPY_HOST_TO_DEVICE"),
            pair("MEMORY_COPY", "MEMORY_COPY_DEVICE_TO_HOST"),
            pair("MEMORY_COPY", "MEMORY_COPY_PEER_TO_PEER"),
            pair("MEMORY_SET", "MEMORY_SET_DEVICE"),
        ]
    );
    assert_eq!(answer(2)[0]["src_agent_type"], "CPU");
    let regions: BTreeMap<String, usize> =
        answer(3).iter().fold(BTreeMap::new(), |mut all, region| {
            *all.entry(text(&region["category"])).or_default() += 1;
            all
        });
    let wanted = [
        ("CUDA_DRIVER_API", 1),
        ("CUDA_RUNTIME_API", 2),
        ("MARKER_CORE_RANGE_API", 1),
        ("SYNCHRONIZATION", 2),
        ("UNIFIED_MEMORY", 2),
    ];
    assert_eq!(
        regions,
        wanted.map(|(name, count)| (name.to_owned(), count)).into()
    );
    // A call that took no time, and what it returned.
    assert_eq!(
        answer(4),
        [json!({"category": "CUDA_RUNTIME_API", "timestamp": 1_400, "extdata": "{\"result\":2}"})]
    );
    let types: Vec<_> = answer(5).iter().map(|row| text(&row["type"])).collect();
    assert_eq!(types, ["ALLOC", "FREE"]);
    // The kernel is found from both of its calls.
    assert_eq!(answer(6).len(), 2);
}

fn read_pftrace(directory: &Path) -> Value {
    let python = midair_tests::python().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/python/pftrace.py");
    let output = Command::new(python)
        .arg(script)
        .arg(directory.join("r_results.pftrace"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn pftrace_has_tracks_by_stream_and_flows_from_calls() {
    let directory = written(|_| ());
    let read = read_pftrace(directory.path());
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut flow_of_call = None;
    let mut flow_of_kernel = None;
    for slice in list(&read["slices"]) {
        *found
            .entry((text(&slice["category"]), text(&slice["track"])))
            .or_default() += 1;
        if slice["category"] == "cuda_api" && slice["notes"]["corr_id"] == 11 {
            flow_of_call = slice["flow"].as_u64();
        }
        if slice["category"] == "kernel_dispatch" && slice["notes"]["cuda_stream"] == 14 {
            flow_of_kernel = slice["flow"].as_u64();
            assert_eq!(slice["notes"]["graph_node"], 17_179_869_190_u64);
            assert_eq!(slice["notes"]["VGPR_Count"], 20);
        }
        if slice["notes"]["corr_id"].as_u64().unwrap_or(0) == 0 {
            assert_eq!(slice["flow"], Value::Null, "{slice}");
        }
    }
    assert!(flow_of_call.is_some() && flow_of_call == flow_of_kernel);
    let first = "CUDA Agent [1] CONTEXT [1] STREAM [7]";
    let wanted = [
        ("cuda_api", "vadd", 4),
        (
            "kernel_dispatch",
            "CUDA Agent [2] CONTEXT [2] STREAM [14]",
            1,
        ),
        ("kernel_dispatch", first, 2),
        ("marker_api", "vadd", 1),
        ("memory_allocation", "MEMORY ALLOCATION", 2),
        ("memory_copy", first, 3),
        ("memory_set", first, 1),
        ("synchronization", "SYNCHRONIZATION", 2),
        ("unified_memory", "UNIFIED MEMORY", 2),
    ];
    let wanted: BTreeMap<_, _> = wanted
        .map(|(category, track, count)| ((category.to_owned(), track.to_owned()), count))
        .into();
    assert_eq!(found, wanted);
    let names: Vec<_> = list(&read["instants"])
        .iter()
        .map(|instant| text(&instant["name"]))
        .collect();
    assert_eq!(
        names,
        [
            "RUNTIME_INITIALIZATION_CUDA_DRIVER",
            "RUNTIME_INITIALIZATION_CUPTI"
        ]
    );
    // The copies to the device and to the host, and the memory that was taken and given back.
    let counters = read["counters"].as_object().unwrap();
    for counter in [
        "COPY BYTES to Agent [0] (CPU)",
        "COPY BYTES to Agent [1] (GPU)",
        "ALLOCATE BYTES on Agent [1] (GPU)",
    ] {
        let values = list(&counters[counter]);
        assert_eq!(values.last().unwrap()[1], 0, "{counter}");
    }
}

/// Several sessions are in one set of files, one with CUDA and one without. Each row must name its
/// process, and AMD's rows must have nothing in CUDA's columns.
#[test]
fn together_with_a_process_without_cuda() {
    let directory = tempfile::tempdir().unwrap();
    let amd = trace_of(crate::rocpd_rows::every_domain(), &golden_json());
    let mut cuda = trace(everything());
    cuda.process.pid = 99;
    let parts = [amd, cuda].map(|trace| trace);
    midair_output::write_together(&parts, &Names::amd(), &plan(directory.path(), &ALL)).unwrap();
    let kernels = rows(directory.path(), "kernel_trace");
    let found: Vec<_> = kernels
        .iter()
        .map(|row| cells(row, &["Process_Id", "Device", "Cuda_Stream"]))
        .collect();
    assert_eq!(
        found,
        [
            ["2371", "", ""],
            ["2371", "", ""],
            ["99", "0", "7"],
            ["99", "1", "14"],
            ["99", "5", "7"]
        ]
    );
    for table in [
        "memory_copy_trace",
        "memory_set_trace",
        "synchronization_trace",
        "unified_memory_trace",
    ] {
        assert!(
            rows(directory.path(), table)
                .iter()
                .any(|row| row["Process_Id"] == "99"),
            "{table}"
        );
    }
    assert_eq!(rows(directory.path(), "agent_info").len(), 2 + 3);
}

#[test]
fn the_terminals_table_has_kernels_calls_copies_and_fills() {
    let trace = trace(everything());
    let names = Names::amd();
    let index = index(&trace);
    assert!(index.is_cuda() && !index.is_idle());
    let text = table::summary(index, &names, Default::default(), table::Style::default());
    for line in [
        "vadd  ",
        "host to device",
        "peer to peer",
        "WAIT",
        "cpu page faults",
        "step 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(
        text.contains("FILL") && text.lines().any(|line| line.starts_with("device ")),
        "{text}"
    );
    assert!(
        text.contains(names.operation(kind::CUDA_RUNTIME_API, 211).as_ref()),
        "{text}"
    );
}

/// Fills and waits that had not ended at the detach must be counted in every format, and be in no
/// sum.
#[test]
fn what_had_not_ended_is_counted_and_not_summed() {
    let mut all = everything();
    let set = MemorySet {
        header: Header {
            flags: flag::UNTIMED,
            ..header(kind::MEMORY_SET, 3)
        },
        correlation: 20,
        bytes: 64,
        node: cuda_node(0),
        ..MemorySet::default()
    };
    append(&mut all, &event::encode(&set, &[]));
    let wait = Synchronization {
        header: header(kind::SYNCHRONIZATION, 4),
        start: 7_000,
        correlation: 21,
        ..Synchronization::default()
    };
    append(&mut all, &event::encode(&wait, &[]));
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(all);
    let index = index(&trace);
    assert_eq!(index.work[&(kind::MEMORY_SET, 3)].calls, 1);
    write(&trace, &Names::amd(), &plan(directory.path(), &ALL)).unwrap();
    assert_eq!(rows(directory.path(), "memory_set_trace").len(), 2);
    let notes = std::fs::read_to_string(directory.path().join("r_notes.txt")).unwrap();
    assert!(notes.contains("without times: 2"), "{notes}");
    let moments: Vec<_> = list(&read_pftrace(directory.path())["instants"])
        .iter()
        .filter(|moment| !moment["notes"]["untimed"].is_null())
        .map(|moment| (text(&moment["category"]), number(&moment["time"])))
        .collect();
    let fini = trace.process.fini_time;
    assert_eq!(
        moments,
        [
            ("synchronization".to_owned(), 7_000),
            ("memory_set".to_owned(), fini)
        ]
    );
    let file = reader(
        &directory.path().join("r_results.db"),
        &["SELECT extdata FROM rocpd_memory_copy WHERE start = 0"],
    );
    let extdata = text(&file["answers"][0][0]["extdata"]);
    assert!(
        extdata.contains("\"untimed\":\"still running at detach\""),
        "{extdata}"
    );
}
