//! Which setting asks for what.

use midair_abi::constants as c;
use std::ffi::{CStr, c_int};

/// Something that can be collected.
#[derive(Debug, Clone, Copy)]
pub struct Domain {
    /// The setting that asks for it (source: `docs/sources.md#rocprofv3`). Older names are the SDK's to know.
    pub setting: &'static CStr,
    /// AMD's buffer-tracing kind.
    pub kind: c_int,
}

/// What goes with each domain: which runtimes were there, and which came. AMD's tool asks for it, too, and keeps it to itself.
pub const WITH_ALL: c_int = c::ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION;

/// What we collect.
pub const DOMAINS: [Domain; 13] = [
    Domain {
        setting: c"ROCPROF_HIP_RUNTIME_API_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT,
    },
    Domain {
        setting: c"ROCPROF_HIP_COMPILER_API_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API_EXT,
    },
    Domain {
        setting: c"ROCPROF_HSA_CORE_API_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_HSA_CORE_API,
    },
    Domain {
        setting: c"ROCPROF_HSA_AMD_EXT_API_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_HSA_AMD_EXT_API,
    },
    Domain {
        setting: c"ROCPROF_HSA_IMAGE_EXT_API_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_HSA_IMAGE_EXT_API,
    },
    Domain {
        setting: c"ROCPROF_HSA_FINALIZER_EXT_API_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_HSA_FINALIZE_EXT_API,
    },
    Domain {
        setting: c"ROCPROF_KERNEL_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH,
    },
    Domain {
        setting: c"ROCPROF_MEMORY_COPY_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_MEMORY_COPY,
    },
    Domain {
        setting: c"ROCPROF_MEMORY_ALLOCATION_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_MEMORY_ALLOCATION,
    },
    Domain {
        setting: c"ROCPROF_SCRATCH_MEMORY_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY,
    },
    // As AMD's tool: ranges as one record each, and the calls of the two smaller tables.
    Domain {
        setting: c"ROCPROF_MARKER_API_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_MARKER_CORE_RANGE_API,
    },
    Domain {
        setting: c"ROCPROF_MARKER_API_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_MARKER_CONTROL_API,
    },
    Domain {
        setting: c"ROCPROF_MARKER_API_TRACE",
        kind: c::ROCPROFILER_BUFFER_TRACING_MARKER_NAME_API,
    },
];

/// Settings that ask for something that we do not collect yet. The command line refuses them by name; who sets them by hand
/// gets a note.
pub const NOT_BUILT: [&CStr; 19] = [
    c"ROCPROF_RCCL_API_TRACE",
    c"ROCPROF_OMPT_TRACE",
    c"ROCPROF_ROCDECODE_API_TRACE",
    c"ROCPROF_ROCJPEG_API_TRACE",
    c"ROCPROF_ROCSHMEM_API_TRACE",
    c"ROCPROF_HIPFILE_API_TRACE",
    c"ROCPROF_HIP_GRAPH_TRACE",
    c"ROCPROF_HIP_EVENT_TRACE",
    c"ROCPROF_KFD_PAGE_MIGRATION_TRACE",
    c"ROCPROF_KFD_PAGE_MAPPING_TRACE",
    c"ROCPROF_KFD_QUEUE_TRACE",
    c"ROCPROF_KFD_DROPPED_EVENTS_TRACE",
    c"ROCPROF_COUNTER_COLLECTION",
    c"ROCPROF_KERNEL_REPLAY",
    c"ROCPROF_SPM_COUNTER_COLLECTION",
    c"ROCPROFILER_PC_SAMPLING_BETA_ENABLED",
    c"ROCPROF_ADVANCED_THREAD_TRACE",
    c"ROCPROF_SELECTED_REGIONS",
    c"ROCPROF_KERNEL_RENAME",
];
