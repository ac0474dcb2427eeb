//! Tables and columns that only CUDA processes have. Columns with the same meaning as in AMD's
//! tables have the same names.

use super::row::{self, Row};
use crate::job::{Job, address};
use midair_record::event::{NO_NODE, Record, kind};
use midair_trace::cuda::devices::ordinal;
use midair_trace::cuda::{NONE, memories, names_stream, stream_parts};

/// The columns behind AMD's columns of kernels. `Cuda_Stream` is CUPTI's number within the context,
/// while `Stream_Id` is the trace's own.
pub(super) const KERNELS: &[&str] = &[
    "Context_Id",
    "Device",
    "Static_Shared_Memory",
    "Dynamic_Shared_Memory",
    "Graph_Id",
    "Graph_Node_Id",
    "Cuda_Stream",
];

/// The columns behind AMD's columns of copies.
pub(super) const COPIES: &[&str] = &[
    "Context_Id",
    "Bytes",
    "Source_Memory",
    "Destination_Memory",
    "Graph_Id",
    "Graph_Node_Id",
    "Cuda_Stream",
];

/// AMD's columns of calls, and the value that the call returned.
pub(super) const CALLS: &[&str] = &[
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "Result",
];

pub(super) const SETS: &[&str] = &[
    "Kind",
    "Operation",
    "Agent_Id",
    "Stream_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "Context_Id",
    "Device",
    "Bytes",
    "Value",
    "Graph_Id",
    "Graph_Node_Id",
    "Cuda_Stream",
];

pub(super) const WAITS: &[&str] = &[
    "Kind",
    "Operation",
    "Stream_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "Context_Id",
    "Event_Id",
    "Cuda_Stream",
];

pub(super) const UNIFIED: &[&str] = &[
    "Kind",
    "Operation",
    "Source_Agent_Id",
    "Destination_Agent_Id",
    "Address",
    "Value",
    "Start_Timestamp",
    "End_Timestamp",
    "Cuda_Stream",
];

/// Appends empty columns to a row that has no values for them.
fn nothing(row: &mut Row, columns: &[&str]) {
    for _ in columns {
        row.raw("");
    }
}

/// Appends the number of a device as CUDA counts it, or nothing where none is named.
fn device(row: &mut Row, node: u32) {
    match ordinal(node) {
        Some(ordinal) => row.number(ordinal),
        None => row.raw(""),
    };
}

/// Appends a number of CUPTI's, or nothing where it stands for none.
fn number(row: &mut Row, number: u32) {
    match number {
        NONE => row.raw(""),
        number => row.number(number),
    };
}

/// Appends a stream's number in the trace, or nothing where a record does not belong to a single
/// stream.
fn stream(row: &mut Row, job: &Job<'_>, handle: u64) {
    if names_stream(handle) {
        row.number(job.index.stream(handle));
    } else {
        row.raw("");
    }
}

/// Appends a kernel's values for [`KERNELS`].
pub(super) fn launch(row: &mut Row, record: &Record<'_>) {
    let Record::Kernel(kernel, Some(extra)) = record else {
        return nothing(row, KERNELS);
    };
    row.number(extra.context);
    device(row, kernel.node);
    row.number(extra.static_shared)
        .number(extra.dynamic_shared)
        .number(extra.graph)
        .number(extra.graph_node)
        .number(stream_parts(kernel.stream).1);
}

/// Appends a copy's values for [`COPIES`].
pub(super) fn transfer(row: &mut Row, record: &Record<'_>) {
    let Record::Copy(copy, Some(extra)) = record else {
        return nothing(row, COPIES);
    };
    let (from, to) = memories(extra);
    row.number(extra.context)
        .number(copy.bytes)
        .text(from)
        .text(to)
        .number(extra.graph)
        .number(extra.graph_node)
        .number(stream_parts(copy.stream).1);
}

pub(super) fn call_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    row::call_row(row, job, record);
    if let Record::Api(api, _) = record {
        row.number(api.retval);
    }
}

pub(super) fn set_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    let Record::MemorySet(set) = record else {
        return;
    };
    row.text(&job.names.kind(kind::MEMORY_SET))
        .text(&job.names.operation(kind::MEMORY_SET, set.header.operation))
        .text(&job.agent_name(set.node));
    row.number(job.index.stream(set.stream))
        .number(set.tid)
        .number(set.correlation)
        .number(set.start)
        .number(set.end)
        .number(set.context);
    device(row, set.node);
    row.number(set.bytes)
        .number(set.value)
        .number(set.graph)
        .number(set.graph_node)
        .number(stream_parts(set.stream).1);
}

pub(super) fn wait_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    let Record::Synchronization(wait) = record else {
        return;
    };
    let operation = wait.header.operation;
    row.text(&job.names.kind(kind::SYNCHRONIZATION))
        .text(&job.names.operation(kind::SYNCHRONIZATION, operation));
    stream(row, job, wait.stream);
    row.number(wait.tid)
        .number(wait.correlation)
        .number(wait.start)
        .number(wait.end)
        .number(wait.context);
    number(row, wait.event);
    number(row, stream_parts(wait.stream).1);
}

pub(super) fn unified_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    let Record::UnifiedMemory(moved) = record else {
        return;
    };
    let operation = moved.header.operation;
    row.text(&job.names.kind(kind::UNIFIED_MEMORY))
        .text(&job.names.operation(kind::UNIFIED_MEMORY, operation));
    for node in [moved.src_node, moved.dst_node] {
        match node {
            NO_NODE if !of_transfer(operation) => row.text(""),
            node => row.text(&job.agent_name(node)),
        };
    }
    row.text(&address(moved.address)).number(moved.value);
    row.number(moved.start).number(moved.end);
    number(row, stream_parts(moved.stream).1);
}

/// Whether an operation of unified memory is a transfer, which has two ends. The end without a
/// named device is the host.
fn of_transfer(operation: u32) -> bool {
    matches!(operation, 1 | 2 | 8)
}
