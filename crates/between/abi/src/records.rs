//! Records that tools get in buffers and callbacks.

use crate::c_struct;
use std::ffi::{c_char, c_void};

c_struct! {
    /// Links a record to the call around it.
    CorrelationId = rocprofiler_correlation_id_t {
        /// The SDK's number.
        internal: u64,
        /// The tool's value.
        external: u64,
        /// `internal` of the traced call around this one.
        ancestor: u64,
    }
}
c_struct! {
    /// Links asynchronous work to the call that launched it.
    AsyncCorrelationId = rocprofiler_async_correlation_id_t {
        /// The SDK's number.
        internal: u64,
        /// The tool's value.
        external: u64,
    }
}
c_struct! {
    /// A HIP call. Times are ns of CLOCK_BOOTTIME.
    HipApi = rocprofiler_buffer_tracing_hip_api_record_t {
        /// Bytes of this struct.
        size: u64,
        /// `rocprofiler_buffer_tracing_kind_t`.
        kind: i32,
        /// Operation id.
        operation: i32,
        /// Correlation.
        correlation_id: CorrelationId,
        /// Entry.
        start_timestamp: u64,
        /// Return.
        end_timestamp: u64,
        /// Calling thread.
        thread_id: u64,
    }
}
c_struct! {
    /// An HSA call. Times are ns of CLOCK_BOOTTIME.
    HsaApi = rocprofiler_buffer_tracing_hsa_api_record_t {
        /// Bytes of this struct.
        size: u64,
        /// `rocprofiler_buffer_tracing_kind_t`.
        kind: i32,
        /// Operation id.
        operation: i32,
        /// Correlation.
        correlation_id: CorrelationId,
        /// Entry.
        start_timestamp: u64,
        /// Return.
        end_timestamp: u64,
        /// Calling thread.
        thread_id: u64,
    }
}
c_struct! {
    /// A ROCTx mark, range or call. Times are ns of CLOCK_BOOTTIME.
    MarkerApi = rocprofiler_buffer_tracing_marker_api_record_t {
        /// Bytes of this struct.
        size: u64,
        /// `rocprofiler_buffer_tracing_kind_t`.
        kind: i32,
        /// Operation id.
        operation: i32,
        /// Correlation.
        correlation_id: CorrelationId,
        /// Entry, or where the range started.
        start_timestamp: u64,
        /// Return, or where the range ended.
        end_timestamp: u64,
        /// Thread that called, or that started the range.
        thread_id: u64,
    }
}
c_struct! {
    /// A HIP call with arguments and result.
    HipApiExt = rocprofiler_buffer_tracing_hip_api_ext_record_t {
        /// Bytes of this struct.
        size: u64,
        /// `rocprofiler_buffer_tracing_kind_t`.
        kind: i32,
        /// Operation id.
        operation: i32,
        /// Correlation.
        correlation_id: CorrelationId,
        /// Entry.
        start_timestamp: u64,
        /// Return.
        end_timestamp: u64,
        /// Calling thread.
        thread_id: u64,
        /// `rocprofiler_hip_api_args_t`: the struct of the operation's parameters.
        args: [u64; 11],
        /// `rocprofiler_hip_api_retval_t`.
        retval: [u64; 3],
    }
}
c_struct! {
    /// A rocDecode call with arguments and result.
    RocdecodeApiExt = rocprofiler_buffer_tracing_rocdecode_api_ext_record_t {
        /// Bytes of this struct.
        size: u64,
        /// `rocprofiler_buffer_tracing_kind_t`.
        kind: i32,
        /// Operation id.
        operation: i32,
        /// Correlation.
        correlation_id: CorrelationId,
        /// Entry.
        start_timestamp: u64,
        /// Return.
        end_timestamp: u64,
        /// Calling thread.
        thread_id: u64,
        /// `rocprofiler_rocdecode_api_args_t`: the struct of the operation's parameters.
        args: [u64; 5],
        /// `rocprofiler_rocdecode_api_retval_t`.
        retval: [u64; 1],
    }
}
/// An event of OpenMP. Times are ns of CLOCK_BOOTTIME; one without duration has the same twice.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OpenMp {
    /// Bytes of this struct.
    pub size: u64,
    /// `rocprofiler_buffer_tracing_kind_t`.
    pub kind: i32,
    /// `rocprofiler_ompt_operation_t`.
    pub operation: i32,
    /// Correlation.
    pub correlation_id: CorrelationId,
    /// Start.
    pub start_timestamp: u64,
    /// End.
    pub end_timestamp: u64,
    /// Thread.
    pub thread_id: u64,
    /// The union that only offloaded work has: one of
    /// `rocprofiler_buffer_tracing_ompt_target_t`, `_target_data_op_t`, `_target_kernel_t`.
    pub offloaded: [u64; 5],
}
const _: () = {
    use crate::layout::{
        rocprofiler_buffer_tracing_ompt_record_t as theirs,
        rocprofiler_buffer_tracing_ompt_target_data_op_t as data,
        rocprofiler_buffer_tracing_ompt_target_t as target,
    };
    use std::mem::offset_of;
    assert!(size_of::<OpenMp>() == theirs::SIZE && align_of::<OpenMp>() == theirs::ALIGN);
    assert!(offset_of!(OpenMp, operation) == theirs::operation);
    assert!(offset_of!(OpenMp, correlation_id) == theirs::correlation_id);
    assert!(offset_of!(OpenMp, end_timestamp) == theirs::end_timestamp);
    assert!(offset_of!(OpenMp, offloaded) == theirs::thread_id + 8);
    assert!(data::SIZE == 5 * 8 && data::bytes == 3 * 8 && target::target_id == 2 * 8);
};
c_struct! {
    /// An asynchronous copy.
    MemoryCopy = rocprofiler_buffer_tracing_memory_copy_record_t {
        /// Bytes of this struct.
        size: u64,
        /// `rocprofiler_buffer_tracing_kind_t`.
        kind: i32,
        /// Direction.
        operation: i32,
        /// Correlation.
        correlation_id: AsyncCorrelationId,
        /// Calling thread.
        thread_id: u64,
        /// Start on the engine.
        start_timestamp: u64,
        /// End on the engine.
        end_timestamp: u64,
        /// Agent that received the bytes.
        dst_agent_id: u64,
        /// Agent that the bytes came from.
        src_agent_id: u64,
        /// Number of bytes.
        bytes: u64,
        /// Destination address.
        dst_address: u64,
        /// Source address.
        src_address: u64,
    }
}
c_struct! {
    /// Three sizes.
    Dim3 = rocprofiler_dim3_t {
        /// First.
        x: u32,
        /// Second.
        y: u32,
        /// Third.
        z: u32,
    }
}
c_struct! {
    /// Information about a dispatch, and where it ran.
    KernelDispatchInfo = rocprofiler_kernel_dispatch_info_t {
        /// Bytes of this struct.
        size: u64,
        /// Agent that it ran on.
        agent_id: u64,
        /// Queue that it was sent through.
        queue_id: u64,
        /// Kernel symbol.
        kernel_id: u64,
        /// Number of the dispatch.
        dispatch_id: u64,
        /// Scratch bytes per work item.
        private_segment_size: u32,
        /// LDS bytes.
        group_segment_size: u32,
        /// Work items per group.
        workgroup_size: Dim3,
        /// Work items.
        grid_size: Dim3,
        /// Zero.
        reserved_padding: [u8; 56],
    }
}
c_struct! {
    /// A kernel dispatch.
    KernelDispatch = rocprofiler_buffer_tracing_kernel_dispatch_record_t {
        /// Bytes of this struct.
        size: u64,
        /// `rocprofiler_buffer_tracing_kind_t`.
        kind: i32,
        /// `rocprofiler_kernel_dispatch_operation_t`.
        operation: i32,
        /// Correlation.
        correlation_id: AsyncCorrelationId,
        /// Launching thread.
        thread_id: u64,
        /// Start on the device.
        start_timestamp: u64,
        /// End on the device.
        end_timestamp: u64,
        /// The rest of the dispatch.
        dispatch_info: KernelDispatchInfo,
    }
}
c_struct! {
    /// An allocation or release of memory.
    MemoryAllocation = rocprofiler_buffer_tracing_memory_allocation_record_t {
        /// Bytes of this struct.
        size: u64,
        /// `rocprofiler_buffer_tracing_kind_t`.
        kind: i32,
        /// `rocprofiler_memory_allocation_operation_t`.
        operation: i32,
        /// Correlation.
        correlation_id: CorrelationId,
        /// Calling thread.
        thread_id: u64,
        /// Entry.
        start_timestamp: u64,
        /// Return.
        end_timestamp: u64,
        /// Agent that owns the memory; 0 for a release.
        agent_id: u64,
        /// Address, or handle of virtual memory.
        address: u64,
        /// Bytes; 0 for a release.
        allocation_size: u64,
    }
}
c_struct! {
    /// A runtime that passed its tables on.
    RuntimeInitialization = rocprofiler_buffer_tracing_runtime_initialization_record_t {
        /// Bytes of this struct.
        size: u64,
        /// `rocprofiler_buffer_tracing_kind_t`.
        kind: i32,
        /// `rocprofiler_runtime_initialization_operation_t`.
        operation: i32,
        /// Correlation.
        correlation_id: CorrelationId,
        /// Thread that passed them on.
        thread_id: u64,
        /// When it did.
        timestamp: u64,
        /// 10000 * major + 100 * minor + patch.
        version: u64,
        /// Number of the library's instance.
        instance: u64,
    }
}

/// A launch of an executable graph of HIP (`rocprofiler_buffer_tracing_hip_graph_record_t`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HipGraph {
    /// Bytes of this struct.
    pub size: u64,
    /// `rocprofiler_buffer_tracing_kind_t`.
    pub kind: i32,
    /// `rocprofiler_hip_graph_operation_t`.
    pub operation: i32,
    /// Correlation.
    pub correlation_id: CorrelationId,
    /// Thread that launched it.
    pub thread_id: u64,
    /// Entry of the call.
    pub start_timestamp: u64,
    /// Return of the call.
    pub end_timestamp: u64,
    /// Zero: the call does not say it.
    pub agent_id: u64,
    /// Zero: the call does not say it.
    pub queue_id: u64,
    /// The graph.
    pub graph_exec_id: u64,
    /// How many kernels it launched.
    pub kernel_dispatch_count: u64,
}
const _: () = {
    use crate::layout::rocprofiler_buffer_tracing_hip_graph_record_t as c;
    use std::mem::offset_of;
    assert!(size_of::<HipGraph>() == c::SIZE);
    assert!(offset_of!(HipGraph, operation) == c::operation);
    assert!(offset_of!(HipGraph, correlation_id) == c::correlation_id);
    assert!(offset_of!(HipGraph, thread_id) == c::thread_id);
    assert!(offset_of!(HipGraph, start_timestamp) == c::start_timestamp);
    assert!(offset_of!(HipGraph, end_timestamp) == c::end_timestamp);
    assert!(offset_of!(HipGraph, agent_id) == c::agent_id);
    assert!(offset_of!(HipGraph, queue_id) == c::queue_id);
    assert!(offset_of!(HipGraph, graph_exec_id) == c::graph_exec_id);
    assert!(offset_of!(HipGraph, kernel_dispatch_count) == c::kernel_dispatch_count);
};

/// The barrier of a call that records an event of HIP or has a stream wait for one
/// (`rocprofiler_buffer_tracing_hip_event_record_t`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HipEvent {
    /// Bytes of this struct.
    pub size: u64,
    /// `rocprofiler_buffer_tracing_kind_t`.
    pub kind: i32,
    /// `rocprofiler_hip_event_operation_t`.
    pub operation: i32,
    /// Correlation with the call.
    pub correlation_id: AsyncCorrelationId,
    /// Thread that made the call.
    pub thread_id: u64,
    /// Start on the device.
    pub start_timestamp: u64,
    /// End on the device.
    pub end_timestamp: u64,
    /// Agent of the barrier.
    pub agent_id: u64,
    /// Queue of the barrier.
    pub queue_id: u64,
    /// `hipEvent_t`.
    pub hip_event_handle: u64,
    /// Queue in which the event was recorded; 0 where that is not known.
    pub source_queue_id: u64,
}
const _: () = {
    use crate::layout::rocprofiler_buffer_tracing_hip_event_record_t as c;
    use std::mem::offset_of;
    assert!(size_of::<HipEvent>() == c::SIZE);
    assert!(offset_of!(HipEvent, operation) == c::operation);
    assert!(offset_of!(HipEvent, correlation_id) == c::correlation_id);
    assert!(offset_of!(HipEvent, thread_id) == c::thread_id);
    assert!(offset_of!(HipEvent, start_timestamp) == c::start_timestamp);
    assert!(offset_of!(HipEvent, end_timestamp) == c::end_timestamp);
    assert!(offset_of!(HipEvent, agent_id) == c::agent_id);
    assert!(offset_of!(HipEvent, queue_id) == c::queue_id);
    assert!(offset_of!(HipEvent, hip_event_handle) == c::hip_event_handle);
    assert!(offset_of!(HipEvent, source_queue_id) == c::source_queue_id);
};

/// A change of a queue's scratch memory (`rocprofiler_buffer_tracing_scratch_memory_record_t`). The
/// padding after its `flags` is a field here, so that all bytes may be read.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ScratchMemory {
    /// Bytes of this struct.
    pub size: u64,
    /// `rocprofiler_buffer_tracing_kind_t`.
    pub kind: i32,
    /// `rocprofiler_scratch_memory_operation_t`.
    pub operation: i32,
    /// Correlation.
    pub correlation_id: CorrelationId,
    /// The queue's agent.
    pub agent_id: u64,
    /// The queue.
    pub queue_id: u64,
    /// Thread that it happened on.
    pub thread_id: u64,
    /// When it started.
    pub start_timestamp: u64,
    /// When it ended.
    pub end_timestamp: u64,
    /// `rocprofiler_scratch_alloc_flag_t`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes; 0 for a release.
    pub allocation_size: u64,
}
const _: () = {
    use crate::layout::rocprofiler_buffer_tracing_scratch_memory_record_t as c;
    use std::mem::offset_of;
    assert!(size_of::<ScratchMemory>() == c::SIZE);
    assert!(offset_of!(ScratchMemory, operation) == c::operation);
    assert!(offset_of!(ScratchMemory, correlation_id) == c::correlation_id);
    assert!(offset_of!(ScratchMemory, agent_id) == c::agent_id);
    assert!(offset_of!(ScratchMemory, queue_id) == c::queue_id);
    assert!(offset_of!(ScratchMemory, thread_id) == c::thread_id);
    assert!(offset_of!(ScratchMemory, start_timestamp) == c::start_timestamp);
    assert!(offset_of!(ScratchMemory, end_timestamp) == c::end_timestamp);
    assert!(offset_of!(ScratchMemory, flags) == c::flags);
    assert!(offset_of!(ScratchMemory, allocation_size) == c::allocation_size);
};

c_struct! {
    /// The data of a tracing callback about a dispatch.
    KernelDispatchData = rocprofiler_callback_tracing_kernel_dispatch_data_t {
        /// Bytes of this struct.
        size: u64,
        /// Start on the device.
        start_timestamp: u64,
        /// End on the device.
        end_timestamp: u64,
        /// The rest of the dispatch.
        dispatch_info: KernelDispatchInfo,
    }
}
c_struct! {
    /// The data of a tracing callback about the barrier of a HIP event.
    HipEventData = rocprofiler_callback_tracing_hip_event_data_t {
        /// Bytes of this struct.
        size: u64,
        /// Start on the device.
        start_timestamp: u64,
        /// End on the device.
        end_timestamp: u64,
        /// The agent of the queue.
        agent_id: u64,
        /// The queue of the barrier.
        queue_id: u64,
        /// The `hipEvent_t`.
        hip_event_handle: u64,
        /// The queue in which the event was recorded.
        source_queue_id: u64,
    }
}
c_struct! {
    /// The data of a tracing callback about a runtime.
    RuntimeInitializationData = rocprofiler_callback_tracing_runtime_initialization_data_t {
        /// Bytes of this struct.
        size: u64,
        /// Its version, 10000 * major + 100 * minor + patch.
        version: u64,
        /// Number of its instance.
        instance: u64,
    }
}

/// An element of the array that a buffer callback gets. Category and kind are a union with their
/// 64-bit hash.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RecordHeader {
    /// `rocprofiler_buffer_category_t`.
    pub category: u32,
    /// Kind within the category.
    pub kind: u32,
    /// The record.
    pub payload: *mut c_void,
}
const _: () = {
    use crate::layout::rocprofiler_record_header_t as c;
    assert!(
        size_of::<RecordHeader>() == c::SIZE
            && std::mem::offset_of!(RecordHeader, payload) == c::payload
    );
};

c_struct! {
    /// The argument of a tracing callback.
    CallbackRecord = rocprofiler_callback_tracing_record_t {
        /// Context that it is for.
        context_id: u64,
        /// Calling thread.
        thread_id: u64,
        /// Correlation.
        correlation_id: CorrelationId,
        /// `rocprofiler_callback_tracing_kind_t`.
        kind: i32,
        /// Operation id.
        operation: i32,
        /// `rocprofiler_callback_phase_t`.
        phase: i32,
        /// Data of the kind.
        payload: *mut c_void,
    }
}

/// A loaded code object (`rocprofiler_callback_tracing_code_object_load_data_t`; each of its unions
/// is written as one member).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CodeObjectLoad {
    /// Bytes of this struct.
    pub size: u64,
    /// Our number of the code object.
    pub code_object_id: u64,
    /// Agent it is loaded on.
    pub agent_id: u64,
    /// `hsa_agent_t`.
    pub hsa_agent: u64,
    /// Where it came from.
    pub uri: *const c_char,
    /// Address on the device.
    pub load_base: u64,
    /// Size there in bytes.
    pub load_size: u64,
    /// load_base minus the lowest address in the file.
    pub load_delta: i64,
    /// `rocprofiler_code_object_storage_type_t`.
    pub storage_type: i32,
    /// Address of the image in host memory.
    pub memory_base: u64,
    /// Its size in bytes.
    pub memory_size: u64,
}
const _: () = {
    use crate::layout::rocprofiler_callback_tracing_code_object_load_data_t as c;
    use std::mem::offset_of;
    assert!(size_of::<CodeObjectLoad>() == c::SIZE);
    assert!(offset_of!(CodeObjectLoad, code_object_id) == c::code_object_id);
    assert!(offset_of!(CodeObjectLoad, hsa_agent) == c::hsa_agent);
    assert!(offset_of!(CodeObjectLoad, uri) == c::uri);
    assert!(offset_of!(CodeObjectLoad, load_base) == c::load_base);
    assert!(offset_of!(CodeObjectLoad, load_size) == c::load_size);
    assert!(offset_of!(CodeObjectLoad, load_delta) == c::load_delta);
    assert!(offset_of!(CodeObjectLoad, storage_type) == c::storage_type);
};

c_struct! {
    /// A kernel of a loaded code object.
    KernelSymbol = rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t {
        /// Bytes of this struct.
        size: u64,
        /// Our number of the kernel.
        kernel_id: u64,
        /// The code object.
        code_object_id: u64,
        /// Mangled name with `.kd`.
        kernel_name: *const c_char,
        /// Address of the descriptor.
        kernel_object: u64,
        /// Bytes of kernel arguments.
        kernarg_segment_size: u32,
        /// Their alignment.
        kernarg_segment_alignment: u32,
        /// Static LDS bytes.
        group_segment_size: u32,
        /// Static scratch bytes.
        private_segment_size: u32,
        /// Scalar registers.
        sgpr_count: u32,
        /// Vector registers.
        arch_vgpr_count: u32,
        /// Accumulation registers.
        accum_vgpr_count: u32,
        /// Offset of the code from the descriptor.
        kernel_code_entry_byte_offset: i64,
        /// Address of the code.
        kernel_address: u64,
    }
}

c_struct! {
    /// The function by which a program launches a kernel, as it was registered with HIP.
    HostKernelSymbol = rocprofiler_callback_tracing_code_object_host_kernel_symbol_register_data_t {
        /// Bytes of this struct.
        size: u64,
        /// Our number of the function.
        host_function_id: u64,
        /// The kernel.
        kernel_id: u64,
        /// Its code object.
        code_object_id: u64,
        /// Address by which launches refer to the kernel.
        host_function: u64,
        /// Address of the program's handle of its device code.
        modules: u64,
        /// Mangled name.
        device_function: *const c_char,
        /// The most threads of a block.
        thread_limit: u32,
        /// Launch bounds, zeros where there are none.
        thread_ids: Dim3,
        /// Blocks.
        block_ids: Dim3,
        /// Size of a block.
        block_dims: Dim3,
        /// Size of the grid.
        grid_dims: Dim3,
        /// Size of a work group.
        workgroup_size: u64,
    }
}
