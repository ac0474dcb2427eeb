//! The rows of the domain table.
//!
//! Built rows are in the order of AMD's numbers, which accounts of lost records follow. A new row
//! goes to the end: its position is its number in records, so it changes the version of the
//! layouts.

mod parts;

use crate::files::{Files, Ranked, Rocpd, Statistics, Track};
use crate::{Domain, RequestedBy};
use midair_abi::constants as c;
use midair_abi::cupti::activity_kind as activity;
use parts::*;

/// Makes numbers and table from the rows: the name of a row is its constant, its position is its
/// number.
macro_rules! domains {
    ($( $(#[$doc:meta])* $name:ident { $($field:ident : $value:expr),+ $(,)? $(; ..$base:expr)? } )+) => {
        /// Numbers of the domains in records: dense, from 1 on, so that zeroed bytes are no
        /// record. From [`KindSet::LIMIT`](crate::KindSet::LIMIT) on no domain has a number.
        pub mod kind {
            #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of the constants below")]
            enum Position { $($name,)+ }
            $( $(#[$doc])* pub const $name: u8 = Position::$name as u8 + 1; )+
        }
        /// The table.
        pub static DOMAINS: [Domain; [$(kind::$name),+].len()] = [
            $( Domain { kind: kind::$name, name: stringify!($name), $($field: $value,)+ $(..$base)? }, )+
        ];
    };
}

domains! {
    /// Calls of HSA's core.
    HSA_CORE_API {
        asked: RequestedBy::By(&[ask("hsa-core-trace", c"ROCPROF_HSA_CORE_API_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_HSA_CORE_API],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_HSA_CORE_API),
        number: Some(1),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: HSA,
        built: true,
    }
    /// Calls of AMD's HSA extensions.
    HSA_AMD_EXT_API {
        asked: RequestedBy::By(&[ask("hsa-amd-trace", c"ROCPROF_HSA_AMD_EXT_API_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_HSA_AMD_EXT_API],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_HSA_AMD_EXT_API),
        number: Some(2),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: HSA,
        built: true,
    }
    /// Calls of HSA's image extension.
    HSA_IMAGE_EXT_API {
        asked: RequestedBy::By(&[ask("hsa-image-trace", c"ROCPROF_HSA_IMAGE_EXT_API_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_HSA_IMAGE_EXT_API],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_HSA_IMAGE_EXT_API),
        number: Some(3),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: HSA,
        built: true,
    }
    /// Calls of HSA's finalizer extension.
    HSA_FINALIZE_EXT_API {
        asked: RequestedBy::By(&[ask("hsa-finalizer-trace", c"ROCPROF_HSA_FINALIZER_EXT_API_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_HSA_FINALIZE_EXT_API],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_HSA_FINALIZE_EXT_API),
        number: Some(4),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: HSA,
        built: true,
    }
    /// Calls of ROCTx's core, one record per call. [`MARKER_CORE_RANGE_API`] is made from the same
    /// calls.
    MARKER_CORE_API {
        asked: RequestedBy::ByTools,
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_MARKER_CORE_API],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API),
        number: Some(7),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: MARKER,
        built: true,
    }
    /// ROCTx's pause and resume.
    MARKER_CONTROL_API {
        asked: MARKER_TRACE,
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_MARKER_CONTROL_API],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_MARKER_CONTROL_API),
        number: Some(8),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: MARKER,
        built: true,
    }
    /// ROCTx's naming of threads, agents, devices and streams.
    MARKER_NAME_API {
        asked: MARKER_TRACE,
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_MARKER_NAME_API],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_MARKER_NAME_API),
        number: Some(9),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: MARKER,
        built: true,
    }
    /// Copies between host and devices, and between devices.
    MEMORY_COPY {
        asked: COPY_TRACE,
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_MEMORY_COPY],
        callback: work(c::ROCPROFILER_CALLBACK_TRACING_MEMORY_COPY),
        number: Some(10),
        activities: &[activity::MEMCPY, activity::MEMCPY2],
        runtimes: BOTH,
        needs: DEVICE,
        usual: true,
        files: Files {
            csv: Some("memory_copy_trace.csv"),
            json: Ranked::some("memory_copy", 60),
            category: Some("memory_copy"),
            track: Some(Track::Stream),
            rocpd: Some(Rocpd::MemoryCopy),
            statistics: Some(&Statistics {
                name: "MEMORY_COPY",
                csv: "memory_copy_stats.csv",
                rank: 50,
                json_rank: 40,
            }),
            table: Ranked::some("COPY", 30),
            records: "copies",
            phrase: Ranked::some("copies", 20),
        },
        built: true,
    }
    /// Kernel dispatches.
    KERNEL_DISPATCH {
        asked: KERNEL_TRACE,
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH],
        callback: work(c::ROCPROFILER_CALLBACK_TRACING_KERNEL_DISPATCH),
        number: Some(11),
        activities: &[activity::CONCURRENT_KERNEL],
        runtimes: BOTH,
        needs: DEVICE,
        usual: true,
        files: Files {
            csv: Some("kernel_trace.csv"),
            json: Ranked::some("kernel_dispatch", 10),
            category: Some("kernel_dispatch"),
            track: Some(Track::Stream),
            rocpd: Some(Rocpd::KernelDispatch),
            statistics: Some(&Statistics {
                name: "KERNEL_DISPATCH",
                csv: "kernel_stats.csv",
                rank: 40,
                json_rank: 10,
            }),
            table: Ranked::some("KERNEL", 10),
            records: "kernel dispatches",
            phrase: Ranked::some("kernels", 10),
        },
        built: true,
    }
    /// Scratch memory of a queue: allocated, freed, reclaimed.
    SCRATCH_MEMORY {
        asked: RequestedBy::By(&[ask("scratch-memory-trace", c"ROCPROF_SCRATCH_MEMORY_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY],
        callback: work(c::ROCPROFILER_CALLBACK_TRACING_SCRATCH_MEMORY),
        number: Some(12),
        activities: &[],
        runtimes: AMD,
        needs: RUNTIME,
        usual: false,
        files: Files {
            csv: Some("scratch_memory_trace.csv"),
            json: Ranked::some("scratch_memory", 80),
            category: Some("scratch_memory"),
            track: Some(Track::PerDevice("SCRATCH")),
            rocpd: Some(Rocpd::MemoryAllocate),
            statistics: Some(&Statistics {
                name: "SCRATCH_MEMORY",
                csv: "scratch_memory_stats.csv",
                rank: 60,
                json_rank: 70,
            }),
            table: None,
            records: "changes of scratch memory",
            phrase: Ranked::some("changes of scratch memory", 80),
        },
        built: true,
    }
    /// Memory that devices see: allocated, freed.
    MEMORY_ALLOCATION {
        asked: ALLOCATION_TRACE,
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_MEMORY_ALLOCATION],
        callback: work(c::ROCPROFILER_CALLBACK_TRACING_MEMORY_ALLOCATION),
        number: Some(16),
        activities: &[activity::MEMORY2],
        runtimes: BOTH,
        needs: RUNTIME,
        usual: false,
        files: Files {
            csv: Some("memory_allocation_trace.csv"),
            json: Ranked::some("memory_allocation", 70),
            category: Some("memory_allocation"),
            track: Some(Track::Own("MEMORY ALLOCATION")),
            rocpd: Some(Rocpd::MemoryAllocate),
            statistics: Some(&Statistics {
                name: "MEMORY_ALLOCATION",
                csv: "memory_allocation_stats.csv",
                rank: 70,
                json_rank: 50,
            }),
            table: None,
            records: "allocations",
            phrase: Ranked::some("memory", 40),
        },
        built: true,
    }
    /// A runtime passed its API tables on. AMD's tool asks for these, too, but does not write them.
    RUNTIME_INITIALIZATION {
        asked: RequestedBy::WithAll,
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION],
        callback: late(c::ROCPROFILER_CALLBACK_TRACING_RUNTIME_INITIALIZATION),
        number: Some(17),
        activities: &[],
        runtimes: BOTH,
        needs: NOTHING,
        usual: true,
        files: Files {
            category: Some("runtime_initialization"),
            track: Some(Track::Thread),
            records: "descriptions of agents, queues or kernels",
            ..NO_FILES
        },
        built: true,
    }
    /// Calls of HIP's runtime, with arguments.
    HIP_RUNTIME_API_EXT {
        asked: RequestedBy::By(&[ask("hip-runtime-trace", c"ROCPROF_HIP_RUNTIME_API_TRACE")]),
        buffer_kinds: &[
            c::ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT,
            c::ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API,
        ],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API),
        number: Some(21),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: HIP,
        built: true,
    }
    /// Calls that HIP's compiler inserts, with arguments.
    HIP_COMPILER_API_EXT {
        asked: RequestedBy::By(&[ask("hip-compiler-trace", c"ROCPROF_HIP_COMPILER_API_TRACE")]),
        buffer_kinds: &[
            c::ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API_EXT,
            c::ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API,
        ],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_HIP_COMPILER_API),
        number: Some(22),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: HIP,
        built: true,
    }
    /// Marks and ranges of ROCTx, and of NVTX in a CUDA process: a push and its pop, a start and
    /// its stop are one record.
    MARKER_CORE_RANGE_API {
        asked: MARKER_TRACE,
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_MARKER_CORE_RANGE_API],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_RANGE_API),
        number: Some(32),
        activities: &[activity::MARKER],
        runtimes: BOTH,
        needs: CALLS,
        usual: false,
        files: MARKER,
        built: true,
    }
    /// Calls of CUDA's runtime; `operation` is CUPTI's `CUpti_runtime_api_trace_cbid`.
    CUDA_RUNTIME_API {
        asked: RequestedBy::By(&[CUDA_RUNTIME]),
        buffer_kinds: &[],
        callback: None,
        number: Some(56),
        activities: &[activity::RUNTIME],
        runtimes: CUDA,
        needs: NOTHING,
        usual: false,
        files: Files {
            statistics: Some(&Statistics {
                name: "CUDA_RUNTIME_API",
                csv: "cuda_runtime_api_stats.csv",
                rank: 80,
                json_rank: 80,
            }),
            ..CUDA_API
        },
        built: true,
    }
    /// Calls of CUDA's driver; `operation` is CUPTI's `CUpti_driver_api_trace_cbid`.
    CUDA_DRIVER_API {
        asked: RequestedBy::By(&[CUDA_DRIVER]),
        buffer_kinds: &[],
        callback: None,
        number: Some(57),
        activities: &[activity::DRIVER],
        runtimes: CUDA,
        needs: NOTHING,
        usual: false,
        files: Files {
            statistics: Some(&Statistics {
                name: "CUDA_DRIVER_API",
                csv: "cuda_driver_api_stats.csv",
                rank: 90,
                json_rank: 90,
            }),
            ..CUDA_API
        },
        built: true,
    }
    /// Device memory was filled.
    MEMORY_SET {
        asked: COPY_TRACE,
        buffer_kinds: &[],
        callback: None,
        number: Some(58),
        activities: &[activity::MEMSET],
        runtimes: CUDA,
        needs: NOTHING,
        usual: true,
        files: Files {
            csv: Some("memory_set_trace.csv"),
            json: Ranked::some("memory_set", 140),
            category: Some("memory_set"),
            track: Some(Track::Stream),
            rocpd: Some(Rocpd::MemoryCopy),
            statistics: Some(&Statistics {
                name: "MEMORY_SET",
                csv: "memory_set_stats.csv",
                rank: 100,
                json_rank: 100,
            }),
            table: Ranked::some("FILL", 40),
            records: "fills of memory",
            phrase: Ranked::some("copies", 20),
        },
        built: true,
    }
    /// A thread, or a stream, waited.
    SYNCHRONIZATION {
        asked: RequestedBy::By(&[CUDA_RUNTIME, CUDA_DRIVER]),
        buffer_kinds: &[],
        callback: None,
        number: Some(59),
        activities: &[activity::SYNCHRONIZATION],
        runtimes: CUDA,
        needs: NOTHING,
        usual: false,
        files: Files {
            csv: Some("synchronization_trace.csv"),
            json: Ranked::some("synchronization", 150),
            category: Some("synchronization"),
            track: Some(Track::Own("SYNCHRONIZATION")),
            rocpd: Some(Rocpd::Region),
            statistics: Some(&Statistics {
                name: "SYNCHRONIZATION",
                csv: "synchronization_stats.csv",
                rank: 110,
                json_rank: 110,
            }),
            table: Ranked::some("WAIT", 60),
            records: "waits",
            phrase: Ranked::some("calls", 50),
        },
        built: true,
    }
    /// Pages of unified memory migrated, or were missing at an access.
    UNIFIED_MEMORY {
        asked: ALLOCATION_TRACE,
        buffer_kinds: &[],
        callback: None,
        number: Some(60),
        activities: &[activity::UNIFIED_MEMORY_COUNTER],
        runtimes: CUDA,
        needs: NOTHING,
        usual: false,
        files: Files {
            csv: Some("unified_memory_trace.csv"),
            json: Ranked::some("unified_memory", 160),
            category: Some("unified_memory"),
            track: Some(Track::Own("UNIFIED MEMORY")),
            rocpd: Some(Rocpd::Region),
            statistics: Some(&Statistics {
                name: "UNIFIED_MEMORY",
                csv: "unified_memory_stats.csv",
                rank: 120,
                json_rank: 120,
            }),
            table: Ranked::some("UNIFIED MEMORY", 50),
            records: "moves of unified memory",
            phrase: Ranked::some("memory", 40),
        },
        built: true,
    }

    /// Calls of RCCL.
    RCCL_API {
        asked: RequestedBy::By(&[ask("rccl-trace", c"ROCPROF_RCCL_API_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_RCCL_API],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_RCCL_API),
        number: Some(14),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: RCCL,
        built: true,
    }
    /// Events of OpenMP, in a program that was started with the tool.
    OMPT {
        asked: RequestedBy::By(&[ask("ompt-trace", c"ROCPROF_OMPT_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_OMPT],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_OMPT),
        number: Some(15),
        activities: &[],
        runtimes: AMD,
        needs: NOTHING,
        usual: false,
        files: OPENMP,
        built: true,
    }
    /// Calls of rocDecode.
    ROCDECODE_API_EXT {
        asked: RequestedBy::By(&[ask("rocdecode-trace", c"ROCPROF_ROCDECODE_API_TRACE")]),
        buffer_kinds: &[
            c::ROCPROFILER_BUFFER_TRACING_ROCDECODE_API_EXT,
            c::ROCPROFILER_BUFFER_TRACING_ROCDECODE_API,
        ],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_ROCDECODE_API),
        number: Some(23),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: ROCDECODE,
        built: true,
    }
    /// Calls of rocJPEG.
    ROCJPEG_API {
        asked: RequestedBy::By(&[ask("rocjpeg-trace", c"ROCPROF_ROCJPEG_API_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_ROCJPEG_API],
        callback: around(c::ROCPROFILER_CALLBACK_TRACING_ROCJPEG_API),
        number: Some(19),
        activities: &[],
        runtimes: AMD,
        needs: CALLS,
        usual: false,
        files: ROCJPEG,
        built: true,
    }
    /// Calls of rocSHMEM.
    ROCSHMEM_API {
        asked: RequestedBy::By(&[ask("rocshmem-trace", c"ROCPROF_ROCSHMEM_API_TRACE")]),
        buffer_kinds: &[
            c::ROCPROFILER_BUFFER_TRACING_ROCSHMEM_API,
            c::ROCPROFILER_BUFFER_TRACING_ROCSHMEM_API_EXT,
        ],
        number: Some(34);
        ..LATER
    }
    /// Calls of hipFile.
    HIPFILE_API {
        asked: RequestedBy::By(&[ask("hipfile-trace", c"ROCPROF_HIPFILE_API_TRACE")]),
        buffer_kinds: &[
            c::ROCPROFILER_BUFFER_TRACING_HIPFILE_API,
            c::ROCPROFILER_BUFFER_TRACING_HIPFILE_API_EXT,
        ],
        number: Some(36);
        ..LATER
    }
    /// Launches of HIP graphs, with their kernels.
    HIP_GRAPH {
        asked: RequestedBy::By(&[ask("hip-graph-trace", c"ROCPROF_HIP_GRAPH_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_HIP_GRAPH],
        number: Some(33),
        needs: CALLS,
        files: Files {
            json: Ranked::some("hip_graph", 122),
            category: Some("hip_graph"),
            track: Some(Track::Own("HIP GRAPHS")),
            rocpd: Some(Rocpd::GraphLaunch),
            records: "launches of graphs",
            phrase: Ranked::some("launches of graphs", 66),
            ..NO_FILES
        },
        built: true;
        ..LATER
    }
    /// Records of HIP events and waits for them, with the barrier packets that carry them out.
    HIP_EVENT {
        asked: RequestedBy::By(&[ask("hip-event-trace", c"ROCPROF_HIP_EVENT_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_HIP_EVENT],
        callback: late(c::ROCPROFILER_CALLBACK_TRACING_HIP_EVENT),
        number: Some(38),
        needs: CALLS,
        files: Files {
            json: Ranked::some("hip_event", 124),
            category: Some("hip_event"),
            track: Some(Track::Own("HIP EVENTS")),
            rocpd: Some(Rocpd::Region),
            records: "HIP events",
            phrase: Ranked::some("HIP events", 67),
            ..NO_FILES
        },
        built: true;
        ..LATER
    }
    /// Migrations of pages, from the kernel driver.
    KFD_PAGE_MIGRATE {
        asked: RequestedBy::By(&[ask("kfd-page-migration-trace", c"ROCPROF_KFD_PAGE_MIGRATION_TRACE")]),
        buffer_kinds: &[
            c::ROCPROFILER_BUFFER_TRACING_KFD_PAGE_MIGRATE,
            c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE,
        ],
        callback: None,
        number: Some(29),
        activities: &[],
        runtimes: AMD,
        needs: NOTHING,
        usual: false,
        files: driver("KFD PAGE MIGRATIONS"),
        built: true,
    }
    /// Page faults, from the kernel driver.
    KFD_PAGE_FAULT {
        asked: RequestedBy::By(&[ask("kfd-page-mapping-trace", c"ROCPROF_KFD_PAGE_MAPPING_TRACE")]),
        buffer_kinds: &[
            c::ROCPROFILER_BUFFER_TRACING_KFD_PAGE_FAULT,
            c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_FAULT,
        ],
        callback: None,
        number: Some(30),
        activities: &[],
        runtimes: AMD,
        needs: NOTHING,
        usual: false,
        files: driver("KFD PAGE FAULTS"),
        built: true,
    }
    /// Evictions of queues, from the kernel driver.
    KFD_QUEUE {
        asked: RequestedBy::By(&[ask("kfd-queue-trace", c"ROCPROF_KFD_QUEUE_TRACE")]),
        buffer_kinds: &[
            c::ROCPROFILER_BUFFER_TRACING_KFD_QUEUE,
            c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_QUEUE,
        ],
        callback: None,
        number: Some(31),
        activities: &[],
        runtimes: AMD,
        needs: NOTHING,
        usual: false,
        files: driver("KFD QUEUES"),
        built: true,
    }
    /// Events that the kernel driver dropped.
    KFD_EVENT_DROPPED_EVENTS {
        asked: RequestedBy::By(&[ask("kfd-dropped-events-trace", c"ROCPROF_KFD_DROPPED_EVENTS_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_DROPPED_EVENTS],
        callback: None,
        number: Some(28),
        activities: &[],
        runtimes: AMD,
        needs: NOTHING,
        usual: false,
        files: driver("KFD DROPPED EVENTS"),
        built: true,
    }
    /// Hardware counters per kernel.
    COUNTER_COLLECTION {
        asked: RequestedBy::By(&[
            ask("pmc", c"ROCPROF_COUNTER_COLLECTION"),
            ask("pmc", c"ROCPROF_COUNTER_GROUPS"),
            ask("pmc", c"ROCPROF_COUNTERS"),
        ]),
        // The number is ours: AMD's counters are a separate service without one.
        number: Some(61),
        files: Files {
            csv: Some("counter_collection.csv"),
            category: Some("counter_collection"),
            rocpd: Some(Rocpd::PmcEvent),
            records: "windows of counters",
            phrase: Ranked::some("counters", 15),
            ..NO_FILES
        },
        needs: DEVICE,
        built: true;
        ..LATER
    }
    /// Streamed hardware counters.
    SPM_COUNTER_COLLECTION {
        asked: RequestedBy::By(&[ask("spm", c"ROCPROF_SPM_COUNTER_COLLECTION")]);
        ..LATER
    }
    /// Samples of program counters, taken by traps that the host triggers.
    PC_SAMPLING_HOST_TRAP {
        asked: RequestedBy::By(&[PC_SAMPLING]),
        // The numbers of both methods are ours: AMD's samples are a separate service without one.
        number: Some(62),
        files: Files {
            csv: Some("pc_sampling_host_trap.csv"),
            json: Ranked::some("pc_sample_host_trap", 110),
            records: "samples of program counters",
            phrase: Ranked::some("samples of program counters", 16),
            ..NO_FILES
        },
        needs: DEVICE,
        built: true;
        ..LATER
    }
    /// Samples of program counters, taken by the device itself.
    PC_SAMPLING_STOCHASTIC {
        asked: RequestedBy::By(&[PC_SAMPLING]),
        number: Some(63),
        files: Files {
            csv: Some("pc_sampling_stochastic.csv"),
            json: Ranked::some("pc_sample_stochastic", 120),
            records: "stochastic samples of program counters",
            ..NO_FILES
        },
        needs: DEVICE,
        built: true;
        ..LATER
    }
    /// Instructions of the threads of a compute unit.
    THREAD_TRACE {
        asked: RequestedBy::By(&[ask("att", c"ROCPROF_ADVANCED_THREAD_TRACE")]),
        // The number is ours: AMD's traces are a separate service without one.
        number: Some(64),
        files: Files {
            records: "parts of thread traces",
            phrase: Ranked::some("thread traces", 17),
            ..NO_FILES
        },
        needs: DEVICE,
        built: true;
        ..LATER
    }
    /// Unmaps of pages, from the kernel driver.
    KFD_EVENT_UNMAP_FROM_GPU {
        asked: RequestedBy::By(&[ask("kfd-page-mapping-trace", c"ROCPROF_KFD_PAGE_MAPPING_TRACE")]),
        buffer_kinds: &[c::ROCPROFILER_BUFFER_TRACING_KFD_EVENT_UNMAP_FROM_GPU],
        callback: None,
        number: Some(27),
        activities: &[],
        runtimes: AMD,
        needs: NOTHING,
        usual: false,
        files: driver("KFD UNMAPS"),
        built: true,
    }
}
