//! Rows that only CUDA processes have.

use super::table::Table;
use crate::files::WriteError;
use crate::job::Job;
use midair_record::event::{MemorySet, NO_NODE, Synchronization, UnifiedMemory, kind};
use midair_trace::cuda::{NONE, names_stream, stream_parts};

type Written = Result<(), WriteError>;

/// Adds a number of CUPTI's, or nothing where it stands for none.
fn known(table: &mut Table, number: u32) -> &mut Table {
    match number {
        NONE => table.nothing(),
        number => table.number(number),
    }
}

pub(super) fn set(table: &mut Table, job: &Job<'_>, set: &MemorySet) -> Written {
    table
        .operation(job, kind::MEMORY_SET, set.header.operation)
        .agent(job, set.node)
        .number(job.index.stream(set.stream))
        .number(job.trace.process.pid)
        .number(set.tid)
        .number(set.correlation)
        .time(set.start)
        .time(set.end)
        .number(set.context)
        .device(set.node)
        .number(set.bytes)
        .number(set.value)
        .number(set.graph)
        .number(set.graph_node)
        .number(stream_parts(set.stream).1)
        .end()
}

pub(super) fn wait(table: &mut Table, job: &Job<'_>, wait: &Synchronization) -> Written {
    table.operation(job, kind::SYNCHRONIZATION, wait.header.operation);
    match names_stream(wait.stream) {
        true => table.number(job.index.stream(wait.stream)),
        false => table.nothing(),
    };
    table
        .number(job.trace.process.pid)
        .number(wait.tid)
        .number(wait.correlation)
        .time(wait.start)
        .time(wait.end)
        .number(wait.context);
    known(table, wait.event);
    known(table, stream_parts(wait.stream).1).end()
}

pub(super) fn unified(table: &mut Table, job: &Job<'_>, moved: &UnifiedMemory) -> Written {
    let operation = moved.header.operation;
    table.operation(job, kind::UNIFIED_MEMORY, operation);
    for node in [moved.src_node, moved.dst_node] {
        match node {
            // For a transfer, no named device means the host. A fault has no other end.
            NO_NODE if !matches!(operation, 1 | 2 | 8) => table.nothing(),
            node => table.agent(job, node),
        };
    }
    table
        .number(job.trace.process.pid)
        .number(moved.address)
        .number(moved.value)
        .time(moved.start)
        .time(moved.end);
    known(table, stream_parts(moved.stream).1).end()
}
