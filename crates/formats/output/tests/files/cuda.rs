//! A CUDA process in every format: the files are compared with the records from which they were
//! made, and with each other.

use crate::common::{agents, append, golden_json, trace_of, writer};
use crate::rocpd_rows::{header, plan, put_marker};
use midair_agents::AgentType;
use midair_output::{Format, Names, Plan, RecordWriter, Trace, write};
use midair_record::event::{
    self, Allocation, Api, Copy, CudaDevice, CudaLaunch, CudaTransfer, Kernel, KernelSymbol,
    Marker, MemorySet, NO_NODE, Queue, RuntimeInit, Synchronization, UnifiedMemory, cuda_node,
    cuda_stream, kind,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub const ALL: [Format; 4] = [Format::Csv, Format::Json, Format::Rocpd, Format::Pftrace];

/// Streams of two devices.
const FIRST: u64 = cuda_stream(1, 7);
const SECOND: u64 = cuda_stream(2, 14);

pub fn device(writer: &mut RecordWriter, ordinal: u32) {
    let name = b"NVIDIA H200";
    let record = CudaDevice {
        header: header(kind::CUDA_DEVICE, 0),
        memory: 150_754_820_096,
        uuid: [7; 16],
        ordinal,
        pci_bus: 0x1b_u32.wrapping_add(ordinal),
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

pub fn kernel() -> (Kernel, CudaLaunch) {
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

pub fn copy(writer: &mut RecordWriter, copy_kind: u32, nodes: (u32, u32), at: u64) {
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

/// Returns a session with something of everything that a CUDA process can contain.
pub fn everything() -> RecordWriter {
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
    // A runtime call and the driver call below it have the same id.
    call(&mut all, kind::CUDA_DRIVER_API, 307, (1_010, 1_080), 11);
    call(&mut all, kind::CUDA_RUNTIME_API, 211, (1_000, 1_100), 11);
    call(&mut all, kind::CUDA_RUNTIME_API, 41, (1_200, 1_300), 12);
    call(&mut all, kind::CUDA_RUNTIME_API, 60_000, (1_400, 1_400), 13);
    let (first, told) = kernel();
    append(&mut all, &event::encode(&first, told.bytes()));
    // Of a graph, on another device; a kernel and a device without a description.
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
            stream: 7,
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
            start: 6_000 + 100 * u64::from(operation),
            end: 6_005 + 100 * u64::from(operation),
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

/// Returns the trace. The machine's only agent is its CPU.
pub fn trace(writer: RecordWriter) -> Trace {
    let mut trace = trace_of(writer, &golden_json());
    trace.agents = agents();
    trace.agents.truncate(1);
    assert_eq!(trace.agents[0].agent_type, AgentType::Cpu);
    trace
}

pub fn written(change: impl Fn(&mut Plan)) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(everything());
    let mut plan = plan(directory.path(), &ALL);
    change(&mut plan);
    write(&trace, &Names::amd(), &plan).unwrap();
    directory
}

/// Returns the rows of a table, by the names of its columns. Of the fields only names of kernels
/// contain commas, and they stand near the end.
pub fn rows(directory: &Path, name: &str) -> Vec<BTreeMap<String, String>> {
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

/// Returns the columns of a row, in the order that is asked for.
pub fn cells<'a>(row: &'a BTreeMap<String, String>, names: &[&str]) -> Vec<&'a str> {
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
    // Things without a description are shown as such.
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
        "Cuda_Stream",
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
                "65536",
                "7"
            ],
            [
                "UNIFIED_MEMORY_CPU_PAGE_FAULTS",
                "",
                "",
                "0x00007f0000000000",
                "2",
                "7"
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

pub fn read_json(directory: &Path) -> Value {
    let bytes = fs::read(directory.join("r_results.json")).unwrap();
    let mut all: Value = serde_json::from_slice(&bytes).unwrap();
    all["rocprofiler-sdk-tool"][0].take()
}
