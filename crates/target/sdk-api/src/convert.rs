//! Conversion of our records into AMD's layouts.

use crate::agents;
use crate::converted::Converted;
use midair_abi::constants as c;
use midair_abi::records::{
    AsyncCorrelationId, CorrelationId, Dim3, HipApi, HipApiExt, HipEvent, HipGraph, HsaApi,
    KernelDispatch, KernelDispatchInfo, MarkerApi, MemoryAllocation, MemoryCopy, OpenMp,
    RocdecodeApiExt, RuntimeInitialization, ScratchMemory,
};
use midair_record::event::{
    Allocation, Api, Barrier, Copy, EventCall, GraphCall, Kernel, NO_NODE, Record, RuntimeInit,
    Scratch,
};
use midair_sdk_hot::functions::function_of;

/// Makes the record that a service of `tracing_kind` gets for one of midair's; `None` when there is
/// none.
pub(crate) fn convert(record: &Record<'_>, tracing_kind: i32) -> Option<Converted> {
    match record {
        Record::Api(api, arguments) => match tracing_kind {
            c::ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT
            | c::ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API_EXT => {
                hip_ext(api, arguments, tracing_kind).map(Converted::HipExt)
            }
            c::ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API
            | c::ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API => Some(Converted::Hip(HipApi {
                size: size_of::<HipApi>() as u64,
                kind: tracing_kind,
                operation: api.header.operation as i32,
                correlation_id: correlation(api),
                start_timestamp: api.start,
                end_timestamp: api.end,
                thread_id: u64::from(api.tid),
            })),
            c::ROCPROFILER_BUFFER_TRACING_ROCDECODE_API_EXT => {
                rocdecode_ext(api, arguments).map(Converted::RocdecodeExt)
            }
            c::ROCPROFILER_BUFFER_TRACING_OMPT => Some(Converted::OpenMp(openmp(api, arguments))),
            _ => Some(Converted::Hsa(HsaApi {
                size: size_of::<HsaApi>() as u64,
                kind: tracing_kind,
                operation: api.header.operation as i32,
                correlation_id: correlation(api),
                start_timestamp: api.start,
                end_timestamp: api.end,
                thread_id: u64::from(api.tid),
            })),
        },
        Record::Kernel(record, _) => Some(Converted::Kernel(kernel(record))),
        Record::Copy(record, _) => Some(Converted::Copy(copy(record))),
        Record::Allocation(record) => Some(Converted::Allocation(allocation(record))),
        Record::Scratch(record) => Some(Converted::Scratch(scratch(record))),
        Record::RuntimeInit(record) => Some(Converted::Runtime(runtime(record))),
        Record::Marker(record, _) => Some(Converted::Marker(MarkerApi {
            size: size_of::<MarkerApi>() as u64,
            kind: tracing_kind,
            operation: record.header.operation as i32,
            correlation_id: CorrelationId {
                internal: record.correlation,
                external: 0,
                ancestor: record.ancestor,
            },
            start_timestamp: record.start,
            end_timestamp: record.end,
            thread_id: u64::from(record.tid),
        })),
        _ => None,
    }
}

fn correlation(api: &Api) -> CorrelationId {
    CorrelationId {
        internal: api.correlation,
        external: 0,
        ancestor: api.ancestor,
    }
}

/// Returns the argument words of a record at their places in AMD's union, which has `N` words.
fn arguments_of<const N: usize>(api: &Api, arguments: &[u8]) -> Option<[u64; N]> {
    let function = function_of(api.header.kind, api.header.operation)?;
    let mut args = vec![0_u8; N * 8];
    for parameter in function.parameters {
        let (from, to) = (
            usize::from(parameter.word) * 8,
            usize::from(parameter.args_offset),
        );
        let size = usize::from(parameter.ty.size);
        // A call that was still open at the detach has no argument words. A struct passed by value
        // to a function that AMD's union does not have may not fit. In both cases the bytes stay
        // zero.
        if let (Some(from), Some(to)) = (
            arguments.get(from..from + size),
            args.get_mut(to..to + size),
        ) {
            to.copy_from_slice(from);
        }
    }
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(args.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Some(words)
}

fn rocdecode_ext(api: &Api, arguments: &[u8]) -> Option<RocdecodeApiExt> {
    Some(RocdecodeApiExt {
        size: size_of::<RocdecodeApiExt>() as u64,
        kind: c::ROCPROFILER_BUFFER_TRACING_ROCDECODE_API_EXT,
        operation: api.header.operation as i32,
        correlation_id: correlation(api),
        start_timestamp: api.start,
        end_timestamp: api.end,
        thread_id: u64::from(api.tid),
        args: arguments_of(api, arguments)?,
        retval: [api.retval],
    })
}

fn openmp(api: &Api, words: &[u8]) -> OpenMp {
    let mut offloaded = [0; 5];
    for (word, bytes) in offloaded.iter_mut().zip(words.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    OpenMp {
        size: size_of::<OpenMp>() as u64,
        kind: c::ROCPROFILER_BUFFER_TRACING_OMPT,
        operation: api.header.operation as i32,
        correlation_id: correlation(api),
        start_timestamp: api.start,
        end_timestamp: api.end,
        thread_id: u64::from(api.tid),
        offloaded,
    }
}

fn hip_ext(api: &Api, arguments: &[u8], tracing_kind: i32) -> Option<HipApiExt> {
    let words = arguments_of(api, arguments)?;
    Some(HipApiExt {
        size: size_of::<HipApiExt>() as u64,
        kind: tracing_kind,
        operation: api.header.operation as i32,
        correlation_id: correlation(api),
        start_timestamp: api.start,
        end_timestamp: api.end,
        thread_id: u64::from(api.tid),
        args: words,
        retval: [api.retval, 0, 0],
    })
}

pub(crate) fn kernel(record: &Kernel) -> KernelDispatch {
    let dim3 = |[x, y, z]: [u32; 3]| Dim3 { x, y, z };
    KernelDispatch {
        size: size_of::<KernelDispatch>() as u64,
        kind: c::ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH,
        operation: c::ROCPROFILER_KERNEL_DISPATCH_COMPLETE,
        correlation_id: AsyncCorrelationId {
            internal: record.correlation,
            external: 0,
        },
        thread_id: u64::from(record.tid),
        start_timestamp: record.start,
        end_timestamp: record.end,
        dispatch_info: KernelDispatchInfo {
            size: size_of::<KernelDispatchInfo>() as u64,
            agent_id: agents::id_of_node(record.node),
            queue_id: u64::from(record.queue_id),
            kernel_id: record.kernel_id,
            dispatch_id: record.dispatch_id,
            private_segment_size: record.private_segment,
            group_segment_size: record.group_segment,
            workgroup_size: dim3(record.workgroup),
            grid_size: dim3(record.grid),
            reserved_padding: [0; 56],
        },
    }
}

fn copy(record: &Copy) -> MemoryCopy {
    MemoryCopy {
        size: size_of::<MemoryCopy>() as u64,
        kind: c::ROCPROFILER_BUFFER_TRACING_MEMORY_COPY,
        operation: record.header.operation as i32,
        correlation_id: AsyncCorrelationId {
            internal: record.correlation,
            external: 0,
        },
        thread_id: u64::from(record.tid),
        start_timestamp: record.start,
        end_timestamp: record.end,
        dst_agent_id: agents::id_of_node(record.dst_node),
        src_agent_id: agents::id_of_node(record.src_node),
        bytes: record.bytes,
        dst_address: record.dst,
        src_address: record.src,
    }
}

/// Returns the agent of a record; none is 0, as in AMD's records of releases.
fn agent_of(node: u32) -> u64 {
    if node == NO_NODE {
        0
    } else {
        agents::id_of_node(node)
    }
}

fn synchronous(correlation: u64, ancestor: u64) -> CorrelationId {
    CorrelationId {
        internal: correlation,
        external: 0,
        ancestor,
    }
}

fn allocation(record: &Allocation) -> MemoryAllocation {
    MemoryAllocation {
        size: size_of::<MemoryAllocation>() as u64,
        kind: c::ROCPROFILER_BUFFER_TRACING_MEMORY_ALLOCATION,
        operation: record.header.operation as i32,
        correlation_id: synchronous(record.correlation, record.ancestor),
        thread_id: u64::from(record.tid),
        start_timestamp: record.start,
        end_timestamp: record.end,
        agent_id: agent_of(record.node),
        address: record.address,
        allocation_size: record.bytes,
    }
}

fn scratch(record: &Scratch) -> ScratchMemory {
    ScratchMemory {
        size: size_of::<ScratchMemory>() as u64,
        kind: c::ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY,
        operation: record.header.operation as i32,
        correlation_id: synchronous(record.correlation, record.ancestor),
        agent_id: agent_of(record.node),
        queue_id: u64::from(record.queue_id),
        thread_id: u64::from(record.tid),
        start_timestamp: record.start,
        end_timestamp: record.end,
        flags: record.flags,
        reserved: 0,
        allocation_size: record.bytes,
    }
}

/// Makes the record of a launch. As in AMD's SDK it lasts as long as the call, which has no agent and
/// no queue.
pub(crate) fn graph(record: &GraphCall, number: u64) -> Converted {
    Converted::Graph(HipGraph {
        size: size_of::<HipGraph>() as u64,
        kind: c::ROCPROFILER_BUFFER_TRACING_HIP_GRAPH,
        operation: c::ROCPROFILER_HIP_GRAPH_OPERATION_EXEC_LAUNCH,
        correlation_id: synchronous(record.correlation, record.ancestor),
        thread_id: u64::from(record.tid),
        start_timestamp: record.start,
        end_timestamp: record.end,
        agent_id: 0,
        queue_id: 0,
        graph_exec_id: number,
        kernel_dispatch_count: u64::from(record.dispatches),
    })
}

/// Makes the record of a call of an event, with the times of its barrier.
pub(crate) fn event(call: &EventCall, barrier: &Barrier, source: u32) -> Converted {
    Converted::Event(hip_event(call, barrier, source))
}

/// Returns the same as AMD's record.
pub(crate) fn hip_event(call: &EventCall, barrier: &Barrier, source: u32) -> HipEvent {
    HipEvent {
        size: size_of::<HipEvent>() as u64,
        kind: c::ROCPROFILER_BUFFER_TRACING_HIP_EVENT,
        operation: call.header.operation as i32,
        correlation_id: AsyncCorrelationId {
            internal: call.correlation,
            external: 0,
        },
        thread_id: u64::from(call.tid),
        start_timestamp: barrier.start,
        end_timestamp: barrier.end,
        agent_id: agents::id_of_node(barrier.node),
        queue_id: u64::from(barrier.queue_id),
        hip_event_handle: call.event,
        source_queue_id: u64::from(source),
    }
}

fn runtime(record: &RuntimeInit) -> RuntimeInitialization {
    RuntimeInitialization {
        size: size_of::<RuntimeInitialization>() as u64,
        kind: c::ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION,
        operation: record.header.operation as i32,
        correlation_id: synchronous(record.correlation, 0),
        thread_id: u64::from(record.tid),
        timestamp: record.time,
        version: record.version,
        instance: record.instance,
    }
}
