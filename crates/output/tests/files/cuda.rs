//! A CUDA process in every format: what is written against the records that it was made of, and the formats against each other.

use crate::common::{
    agents, append, golden_json, index, list, number, reader, text, trace_of, writer,
};
use crate::rocpd_rows::{header, plan, put_marker};
use midair_agents::AgentType;
use midair_output::{Format, Names, Plan, RecordWriter, Trace, table, write};
use midair_record::event::{
    self, Allocation, Api, Copy, CudaDevice, CudaLaunch, CudaTransfer, Kernel, KernelSymbol,
    Marker, MemorySet, NO_NODE, Queue, RuntimeInit, Synchronization, UnifiedMemory, cuda_node,
    cuda_stream, kind,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

const ALL: [Format; 4] = [Format::Csv, Format::Json, Format::Rocpd, Format::Pftrace];

/// Streams of two devices.
const FIRST: u64 = cuda_stream(1, 7);
const SECOND: u64 = cuda_stream(2, 14);

fn device(writer: &mut RecordWriter, ordinal: u32) {
    let name = b"NVIDIA H200";
    let record = CudaDevice {
        header: header(kind::CUDA_DEVICE, 0),
        memory: 150_754_820_096,
        uuid: [7; 16],
        ordinal,
        pci_bus: 0x1b + ordinal,
        major: 9,
        multiprocessors: 132,
        warp: 32,
        threads_per_multiprocessor: 2048,
        threads_per_block: 1024,
        shared_per_multiprocessor: 233_472,
        clock_khz: 1_980_000,
        memory_clock_khz: 3_201_000,
        memory_bus_bits: 6016,
        l2_bytes: 62_914_560,
        block_limits: [1024, 1024, 64],
        grid_limits: [i32::MAX as u32, 65_535, 65_535],
        name_len: name.len() as u32,
        ..CudaDevice::default()
    };
    append(writer, &event::encode(&record, name));
}

fn symbol(writer: &mut RecordWriter, kernel_id: u64, name: &[u8]) {
    let record = KernelSymbol {
        header: header(kind::KERNEL_SYMBOL, 0),
        kernel_id,
        arch_vgpr: 16,
        group_segment: 64,
        name_len: name.len() as u32,
        ..KernelSymbol::default()
    };
    append(writer, &event::encode(&record, name));
}

fn kernel() -> (Kernel, CudaLaunch) {
    let kernel = Kernel {
        header: header(kind::KERNEL_DISPATCH, 1),
        start: 2_000,
        end: 3_500,
        correlation: 11,
        dispatch_id: 1,
        kernel_id: 1,
        stream: FIRST,
        queue_id: 1,
        node: cuda_node(0),
        tid: 2371,
        private_segment: 8,
        group_segment: 1064,
        workgroup: [256, 1, 1],
        grid: [4096, 2, 1],
        ..Kernel::default()
    };
    let told = CudaLaunch {
        context: 1,
        registers: 20,
        static_shared: 64,
        dynamic_shared: 1000,
        ..CudaLaunch::default()
    };
    (kernel, told)
}

fn call(writer: &mut RecordWriter, kind: u8, operation: u32, at: (u64, u64), correlation: u64) {
    let api = Api {
        header: header(kind, operation),
        start: at.0,
        end: at.1,
        correlation,
        retval: if correlation == 13 { 2 } else { 0 },
        tid: 2371,
        ..Api::default()
    };
    append(writer, &event::encode(&api, &[]));
}

fn copy(writer: &mut RecordWriter, copy_kind: u32, nodes: (u32, u32), at: u64) {
    let copy = Copy {
        header: header(kind::MEMORY_COPY, 0),
        start: at,
        end: at + 100,
        correlation: 12,
        bytes: 4096,
        stream: FIRST,
        src_node: nodes.0,
        dst_node: nodes.1,
        tid: 2371,
        ..Copy::default()
    };
    let told = CudaTransfer {
        context: 1,
        copy_kind,
        memory_kinds: 3 << 16 | 2,
        graph: 4,
        graph_node: 1 << 40,
    };
    append(writer, &event::encode(&copy, told.bytes()));
}

/// A session with something of everything that a CUDA process can bring.
fn everything() -> RecordWriter {
    let mut all = writer();
    for (operation, version) in [(64, 130_000), (65, 130_000)] {
        let runtime = RuntimeInit {
            header: header(kind::RUNTIME_INITIALIZATION, operation),
            time: 500,
            version,
            tid: 2371,
            ..RuntimeInit::default()
        };
        append(&mut all, &event::encode(&runtime, &[]));
    }
    device(&mut all, 0);
    device(&mut all, 1);
    symbol(&mut all, 1, b"_Z4vaddPKfS0_Pfi");
    for (queue_id, handle, ordinal) in [(1, FIRST, 0), (2, SECOND, 1)] {
        let queue = Queue {
            header: header(kind::QUEUE, 0),
            handle,
            queue_id,
            node: cuda_node(ordinal),
            ..Queue::default()
        };
        append(&mut all, &event::encode(&queue, &[]));
    }
    // A runtime call and the driver call below it, of one id.
    call(&mut all, kind::CUDA_DRIVER_API, 307, (1_010, 1_080), 11);
    call(&mut all, kind::CUDA_RUNTIME_API, 211, (1_000, 1_100), 11);
    call(&mut all, kind::CUDA_RUNTIME_API, 41, (1_200, 1_300), 12);
    call(&mut all, kind::CUDA_RUNTIME_API, 60_000, (1_400, 1_400), 13);
    let (first, told) = kernel();
    append(&mut all, &event::encode(&first, told.bytes()));
    // Of a graph, on another device; a kernel and a device that nobody described.
    let second = Kernel {
        dispatch_id: 2,
        stream: SECOND,
        queue_id: 2,
        node: cuda_node(1),
        start: 2_500,
        end: 2_600,
        ..first
    };
    let of_graph = CudaLaunch {
        context: 2,
        graph: 4,
        graph_node: 17_179_869_190,
        ..told
    };
    append(&mut all, &event::encode(&second, of_graph.bytes()));
    let unknown = Kernel {
        dispatch_id: 3,
        kernel_id: 9,
        node: cuda_node(5),
        start: 3_600,
        end: 3_700,
        correlation: 0,
        ..first
    };
    append(&mut all, &event::encode(&unknown, told.bytes()));
    copy(&mut all, 1, (NO_NODE, cuda_node(0)), 4_000);
    copy(&mut all, 2, (cuda_node(0), NO_NODE), 4_200);
    copy(&mut all, 10, (cuda_node(0), cuda_node(1)), 4_400);
    let set = MemorySet {
        header: header(kind::MEMORY_SET, 3),
        start: 4_600,
        end: 4_650,
        correlation: 14,
        bytes: 512,
        stream: FIRST,
        context: 1,
        value: 255,
        node: cuda_node(0),
        tid: 2371,
        ..MemorySet::default()
    };
    append(&mut all, &event::encode(&set, &[]));
    for (operation, stream, event) in [(3, FIRST, u32::MAX), (4, cuda_stream(1, u32::MAX), 9)] {
        let wait = Synchronization {
            header: header(kind::SYNCHRONIZATION, operation),
            start: 5_000,
            end: 5_600,
            correlation: 15,
            stream,
            event,
            context: 1,
            tid: 2371,
            ..Synchronization::default()
        };
        append(&mut all, &event::encode(&wait, &[]));
    }
    for (operation, value) in [(1, 65_536), (3, 2)] {
        let moved = UnifiedMemory {
            header: header(kind::UNIFIED_MEMORY, operation),
            start: 5_700,
            end: 5_700 + value / 2,
            address: 0x7f00_0000_0000,
            value,
            stream: FIRST,
            src_node: NO_NODE,
            dst_node: if operation == 1 {
                cuda_node(0)
            } else {
                NO_NODE
            },
        };
        append(&mut all, &event::encode(&moved, &[]));
    }
    let range = Marker {
        header: header(kind::MARKER_CORE_RANGE_API, 1),
        start: 900,
        end: 6_000,
        correlation: 16,
        tid: 2371,
        ..Marker::default()
    };
    put_marker(&mut all, range, b"step 1");
    for operation in [1, 3] {
        let memory = Allocation {
            header: header(kind::MEMORY_ALLOCATION, operation),
            start: 6_000 + u64::from(operation),
            end: 6_005,
            correlation: 17,
            address: 0x7f00_0000_0000,
            bytes: 1 << 20,
            node: cuda_node(0),
            tid: 2371,
            ..Allocation::default()
        };
        append(&mut all, &event::encode(&memory, &[]));
    }
    all
}

/// The machine's only agent is its CPU.
fn trace(writer: RecordWriter) -> Trace {
    let mut trace = trace_of(writer, &golden_json());
    trace.agents = agents();
    trace.agents.truncate(1);
    assert_eq!(trace.agents[0].agent_type, AgentType::Cpu);
    trace
}

fn written(change: impl Fn(&mut Plan)) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(everything());
    let mut plan = plan(directory.path(), &ALL);
    change(&mut plan);
    write(&trace, &index(&trace), &Names::amd(), &plan).unwrap();
    directory
}

/// Rows of a table by the names of its columns. No field of these has a comma but names of kernels, which stand last but many.
fn rows(directory: &Path, name: &str) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(directory.join(format!("r_{name}.csv"))).unwrap();
    let fields = |line: &str| -> Vec<String> {
        let mut quoted = false;
        let parts = line.split(|c| {
            quoted ^= c == '"';
            c == ',' && !quoted
        });
        parts
            .map(|part| part.trim_matches('"').to_owned())
            .collect()
    };
    let mut lines = text.lines();
    let names = fields(lines.next().unwrap());
    lines
        .map(|line| {
            let fields = fields(line);
            assert_eq!(fields.len(), names.len(), "{line}");
            names.iter().cloned().zip(fields).collect()
        })
        .collect()
}

/// The columns of a row, in the order that is asked for.
fn cells<'a>(row: &'a BTreeMap<String, String>, names: &[&str]) -> Vec<&'a str> {
    names.iter().map(|name| row[*name].as_str()).collect()
}

#[test]
fn kernels_and_copies_have_amds_columns_and_cudas_behind() {
    let directory = written(|_| ());
    let text = fs::read_to_string(directory.path().join("r_kernel_trace.csv")).unwrap();
    let columns = text.lines().next().unwrap();
    assert!(
        columns.ends_with("\"Grid_Size_Z\",\"Context_Id\",\"Device\",\"Static_Shared_Memory\",\"Dynamic_Shared_Memory\",\"Graph_Id\",\"Graph_Node_Id\",\"Cuda_Stream\""),
        "{columns}"
    );
    let kernels = rows(directory.path(), "kernel_trace");
    let wanted = [
        "Kernel_Name",
        "Agent_Id",
        "Stream_Id",
        "LDS_Block_Size",
        "Scratch_Size",
        "VGPR_Count",
        "SGPR_Count",
        "Workgroup_Size_X",
        "Grid_Size_X",
        "Grid_Size_Y",
        "Context_Id",
        "Device",
        "Static_Shared_Memory",
        "Dynamic_Shared_Memory",
        "Graph_Id",
        "Graph_Node_Id",
        "Cuda_Stream",
    ];
    let vadd = "vadd(float const*, float const*, float*, int)";
    assert_eq!(
        cells(&kernels[0], &wanted),
        [
            vadd, "Agent 1", "1", "1064", "8", "20", "0", "256", "4096", "2", "1", "0", "64",
            "1000", "0", "0", "7"
        ]
    );
    assert_eq!(
        cells(&kernels[1], &wanted),
        [
            vadd,
            "Agent 2",
            "2",
            "1064",
            "8",
            "20",
            "0",
            "256",
            "4096",
            "2",
            "2",
            "1",
            "64",
            "1000",
            "4",
            "17179869190",
            "14"
        ]
    );
    // What nobody described is shown as such.
    assert_eq!(
        cells(&kernels[2], &["Kernel_Name", "Agent_Id", "Device"]),
        ["unknown_kernel#9", "Device 5", "5"]
    );
    let copies = rows(directory.path(), "memory_copy_trace");
    let found: Vec<_> = copies
        .iter()
        .map(|copy| {
            cells(
                copy,
                &[
                    "Direction",
                    "Source_Agent_Id",
                    "Destination_Agent_Id",
                    "Bytes",
                    "Source_Memory",
                    "Destination_Memory",
                ],
            )
        })
        .collect();
    let memory = ["4096", "PINNED", "DEVICE"];
    assert_eq!(
        found,
        [
            [
                &["MEMORY_COPY_HOST_TO_DEVICE", "Agent 0", "Agent 1"][..],
                &memory
            ]
            .concat(),
            [
                &["MEMORY_COPY_DEVICE_TO_HOST", "Agent 1", "Agent 0"][..],
                &memory
            ]
            .concat(),
            [
                &["MEMORY_COPY_PEER_TO_PEER", "Agent 1", "Agent 2"][..],
                &memory
            ]
            .concat(),
        ]
    );
    assert_eq!(
        cells(&copies[0], &["Graph_Id", "Graph_Node_Id", "Cuda_Stream"]),
        ["4", "1099511627776", "7"]
    );
}

#[test]
fn tables_that_only_cuda_has() {
    let directory = written(|_| ());
    let calls = rows(directory.path(), "cuda_api_trace");
    let columns = [
        "Domain",
        "Function",
        "Correlation_Id",
        "Start_Timestamp",
        "Result",
    ];
    let names = Names::amd();
    let name = |kind, operation| names.operation(kind, operation).into_owned();
    let (runtime, driver) = (kind::CUDA_RUNTIME_API, kind::CUDA_DRIVER_API);
    assert_eq!(
        calls
            .iter()
            .map(|call| cells(call, &columns))
            .collect::<Vec<_>>(),
        [
            ["CUDA_DRIVER_API", &name(driver, 307), "11", "1010", "0"],
            ["CUDA_RUNTIME_API", &name(runtime, 211), "11", "1000", "0"],
            ["CUDA_RUNTIME_API", &name(runtime, 41), "12", "1200", "0"],
            [
                "CUDA_RUNTIME_API",
                "CUDA_RUNTIME_API_OPERATION_60000",
                "13",
                "1400",
                "2"
            ],
        ]
    );
    let sets = rows(directory.path(), "memory_set_trace");
    assert_eq!(
        cells(
            &sets[0],
            &[
                "Kind",
                "Operation",
                "Agent_Id",
                "Stream_Id",
                "Bytes",
                "Value",
                "Device",
                "Cuda_Stream",
                "Correlation_Id"
            ]
        ),
        [
            "MEMORY_SET",
            "MEMORY_SET_DEVICE",
            "Agent 1",
            "1",
            "512",
            "255",
            "0",
            "7",
            "14"
        ]
    );
    let waits = rows(directory.path(), "synchronization_trace");
    let columns = [
        "Operation",
        "Stream_Id",
        "Cuda_Stream",
        "Event_Id",
        "Context_Id",
    ];
    assert_eq!(
        waits
            .iter()
            .map(|wait| cells(wait, &columns))
            .collect::<Vec<_>>(),
        [
            ["SYNCHRONIZATION_STREAM", "1", "7", "", "1"],
            ["SYNCHRONIZATION_CONTEXT", "", "", "9", "1"],
        ]
    );
    let unified = rows(directory.path(), "unified_memory_trace");
    let columns = [
        "Operation",
        "Source_Agent_Id",
        "Destination_Agent_Id",
        "Address",
        "Value",
    ];
    assert_eq!(
        unified
            .iter()
            .map(|moved| cells(moved, &columns))
            .collect::<Vec<_>>(),
        [
            [
                "UNIFIED_MEMORY_HOST_TO_DEVICE",
                "Agent 0",
                "Agent 1",
                "0x00007f0000000000",
                "65536"
            ],
            [
                "UNIFIED_MEMORY_CPU_PAGE_FAULTS",
                "",
                "",
                "0x00007f0000000000",
                "2"
            ],
        ]
    );
    assert_eq!(
        cells(
            &rows(directory.path(), "marker_api_trace")[0],
            &["Domain", "Function"]
        ),
        ["MARKER_CORE_RANGE_API", "step 1"]
    );
    assert_eq!(rows(directory.path(), "memory_allocation_trace").len(), 2);
}

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
    // The one that nobody described.
    assert_eq!(
        (&rows[3]["type"], &rows[3]["name"]),
        (&json!("GPU"), &json!("Device 5"))
    );
    assert_eq!(rows.len(), 4);
}

fn read_json(directory: &Path) -> Value {
    let bytes = fs::read(directory.join("r_results.json")).unwrap();
    let mut all: Value = serde_json::from_slice(&bytes).unwrap();
    all["rocprofiler-sdk-tool"][0].take()
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
        // A reader finds each record's kind by its number.
        for record in list(&records[key]) {
            let kind = &json["strings"]["buffer_records"][number(&record["kind"]) as usize];
            assert_eq!(
                text(&kind["kind"]),
                Names::amd().kind(number(&record["kind"]) as u8)
            );
        }
    }
    let of = |key: &str| {
        list(&json["strings"]["buffer_records"])
            .iter()
            .position(|kind| kind["kind"] == key)
    };
    assert_eq!(of("MEMORY_SET"), Some(usize::from(kind::MEMORY_SET)));
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
    // No row of a table falls out of its view.
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

#[test]
fn pftrace_has_tracks_by_stream_and_flows_from_calls() {
    let directory = written(|_| ());
    let python = midair_tests::python().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/python/pftrace.py");
    let output = Command::new(python)
        .arg(script)
        .arg(directory.path().join("r_results.pftrace"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
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

/// Several sessions in one set of files, one with CUDA and one without: each row says whose it is, and AMD's have nothing in CUDA's columns.
#[test]
fn together_with_a_process_without_cuda() {
    let directory = tempfile::tempdir().unwrap();
    let amd = trace_of(crate::rocpd_rows::every_domain(), &golden_json());
    let mut cuda = trace(everything());
    cuda.process.pid = 99;
    let parts = [amd, cuda].map(|trace| {
        let index = index(&trace);
        (trace, index)
    });
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
    let text = table::summary(&index, &names, Default::default(), table::Style::default());
    for line in [
        "vadd(float const*, float const*, float*, int)",
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

/// Numbers that no CUDA has: counted, written, and nothing goes over.
#[test]
fn numbers_that_a_target_invents_are_harmless() {
    let mut all = everything();
    let (wild, told) = kernel();
    let wild = Kernel {
        header: header(kind::KERNEL_DISPATCH, u32::MAX),
        start: u64::MAX,
        end: 0,
        dispatch_id: u64::MAX,
        kernel_id: u64::MAX,
        stream: u64::MAX,
        queue_id: u32::MAX,
        node: u32::MAX - 1,
        ..wild
    };
    let told = CudaLaunch {
        graph: u32::MAX,
        graph_node: u64::MAX,
        context: u32::MAX,
        registers: u32::MAX,
        ..told
    };
    append(&mut all, &event::encode(&wild, told.bytes()));
    for number in [10, 64, u32::MAX] {
        copy(&mut all, number, (u32::MAX - 1, 70_000), u64::MAX - 200);
        let set = MemorySet {
            header: header(kind::MEMORY_SET, number),
            node: number,
            stream: u64::MAX,
            bytes: u64::MAX,
            graph_node: u64::MAX,
            ..MemorySet::default()
        };
        append(&mut all, &event::encode(&set, &[]));
        let wait = Synchronization {
            header: header(kind::SYNCHRONIZATION, number),
            start: u64::MAX,
            ..Synchronization::default()
        };
        append(&mut all, &event::encode(&wait, &[]));
        let moved = UnifiedMemory {
            header: header(kind::UNIFIED_MEMORY, number),
            end: u64::MAX,
            src_node: number,
            dst_node: number,
            ..UnifiedMemory::default()
        };
        append(&mut all, &event::encode(&moved, &[]));
        device(&mut all, number);
    }
    device(&mut all, u32::MAX - (1 << 16));
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(all);
    write(
        &trace,
        &index(&trace),
        &Names::amd(),
        &plan(directory.path(), &ALL),
    )
    .unwrap();
    assert_eq!(rows(directory.path(), "memory_set_trace").len(), 4);
    let json = read_json(directory.path());
    assert_eq!(list(&json["buffer_records"]["unified_memory"]).len(), 5);
    // The three numbers but the one that stands for no device, and those that everything has.
    assert_eq!(list(&json["agents"]).len(), 1 + 2 + 2);
    let file = reader(
        &directory.path().join("r_results.db"),
        &["SELECT COUNT(*) AS n FROM memory_copies"],
    );
    assert_eq!(file["answers"][0][0]["n"], 3 + 3 + 4);
}
