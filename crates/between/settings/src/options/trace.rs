//! What is recorded.

use super::{
    Category::{Aggregate, Perfetto, Trace},
    Opt, Sets, Shape, ask,
};
use crate::settings::{CUDA_ALL_CALLS, KOKKOS_TRACE};
use midair_domain::kind;

/// The switch of a domain: its name, its variable and whether it is built are the domain's.
const fn trace(kind: u8, help: &'static str) -> Opt {
    let ask = ask(kind);
    Opt::new(
        ask.option,
        Trace,
        Shape::Boolean,
        Sets::Switch(ask.name()),
        help,
    )
    .of(kind)
}

const fn aggregate(
    long: &'static str,
    members: &'static [&'static str],
    help: &'static str,
) -> Opt {
    Opt::new(long, Aggregate, Shape::Boolean, Sets::Nothing, help).expands(members)
}

/// Why an attach cannot have it.
const ASKED_ONCE: &str = "--ompt-trace is for a program that is started (rocprofv3 --ompt-trace -- PROGRAM): OpenMP's runtime asks \
     for its tool once, when it starts, so an attach comes too late";
/// Why options stay refused.
const NO_SOURCE: &str = "Its library is in no public package that midair could be tested with, so midair does not guess at its tables.";
const LOADED_ONCE: &str = "--kokkos-trace is for a program that is started (rocprofv3 --kokkos-trace -- PROGRAM): Kokkos loads its \
     tool once, when it starts, so an attach comes too late";

pub(super) const OPTIONS: &[Opt] = &[
    // Wider aggregates come first: they are expanded in this order, so an explicit word for a narrower one wins.
    aggregate(
        "sys-trace",
        &[
            "hip-trace",
            "hsa-trace",
            "cuda-trace",
            "marker-trace",
            "kernel-trace",
            "kfd-trace",
            "memory-copy-trace",
            "memory-allocation-trace",
            "scratch-memory-trace",
            "rccl-trace",
            "ompt-trace",
            "rocdecode-trace",
            "rocjpeg-trace",
            "rocshmem-trace",
            "hipfile-trace",
            "hip-event-trace",
        ],
        "Record everything that can be traced",
    )
    .short('s')
    .more(
        "What is not built yet is left out, and named with --log-level info. A part that is switched off explicitly, as in \
         --sys-trace --hsa-trace false, stays off.",
    ),
    aggregate(
        "runtime-trace",
        &[
            "hip-runtime-trace",
            "cuda-runtime-trace",
            "marker-trace",
            "kernel-trace",
            "kfd-trace",
            "memory-copy-trace",
            "memory-allocation-trace",
            "scratch-memory-trace",
            "rccl-trace",
            "ompt-trace",
            "rocdecode-trace",
            "rocjpeg-trace",
            "rocshmem-trace",
            "hipfile-trace",
            "hip-event-trace",
        ],
        "Record what a user of the runtime sees: as --sys-trace, less HSA, compiler, driver calls",
    )
    .short('r')
    .more("What is not built yet is left out, and named with --log-level info."),
    aggregate("hip-trace", &["hip-compiler-trace", "hip-runtime-trace"], "Record calls of the HIP runtime and compiler"),
    aggregate(
        "hsa-trace",
        &["hsa-core-trace", "hsa-amd-trace", "hsa-image-trace", "hsa-finalizer-trace"],
        "Record calls of all parts of HSA",
    ),
    aggregate("cuda-trace", &["cuda-runtime-trace", "cuda-driver-trace"], "Record calls of the CUDA runtime and driver, and waits")
        .all(CUDA_ALL_CALLS)
        .more(
            "In a CUDA process only, where --hip-trace and --hsa-trace find nothing. Arguments are not recorded. Calls that only ask for \
             state (cudaGetDevice, cudaGetLastError, cuCtxGetCurrent and their like) are left out; 'all' has them, too.",
        ),
    aggregate(
        "kfd-trace",
        &["kfd-page-migration-trace", "kfd-page-mapping-trace", "kfd-queue-trace", "kfd-dropped-events-trace"],
        "Record all events of the kernel driver",
    ),
    Opt::new(
        "kokkos-trace",
        Aggregate,
        Shape::Boolean,
        Sets::Switch(KOKKOS_TRACE),
        "Record Kokkos regions as markers, in a program that is started",
    )
    .expands(&["marker-trace", "kernel-rename"])
    .more(
        "Loops, fences, copies and the program's own regions, and kernels are named after them. Kokkos loads midair's library for it \
         (KOKKOS_TOOLS_LIBS), unless that variable names another one.",
    )
    .not_with_attach(LOADED_ONCE),
    trace(kind::HIP_RUNTIME_API_EXT, "Record calls of the HIP runtime")
        .expands(&["hip-graph-trace", "hip-event-trace"]),
    trace(kind::HIP_COMPILER_API_EXT, "Record the calls that the HIP compiler inserts")
        .more("These are calls such as __hipRegisterFunction and __hipPushCallConfiguration."),
    trace(kind::HSA_CORE_API, "Record calls of the HSA core API (hsa_*)"),
    trace(kind::HSA_AMD_EXT_API, "Record calls of AMD's HSA extensions (hsa_amd_*)"),
    trace(kind::HSA_IMAGE_EXT_API, "Record calls of HSA's image extension"),
    trace(kind::HSA_FINALIZE_EXT_API, "Record calls of HSA's finalizer extension"),
    trace(kind::CUDA_RUNTIME_API, "Record calls of the CUDA runtime, and waits")
        .all(CUDA_ALL_CALLS)
        .more("Calls that only ask for state are left out; 'all' has them, too."),
    trace(kind::CUDA_DRIVER_API, "Record calls of the CUDA driver, and waits")
        .all(CUDA_ALL_CALLS)
        .more("The runtime makes most of its calls by the driver: these are recorded a second time. Calls that only ask for state are left out; 'all' has them, too."),
    trace(kind::KERNEL_DISPATCH, "Record kernels: which, where, when they began and ended")
        .more("Kernels on queues that were there before the attach are recorded as well."),
    trace(kind::MEMORY_COPY, "Record copies between host and devices"),
    trace(kind::MARKER_CORE_RANGE_API, "Record ROCTx marks and ranges; NVTX's in a CUDA process"),
    trace(kind::MEMORY_ALLOCATION, "Record allocations and releases of device memory")
        .more("In a CUDA process moves and faults of unified memory, too."),
    trace(kind::SCRATCH_MEMORY, "Record changes of queues' scratch memory"),
    trace(kind::RCCL_API, "Record calls of RCCL"),
    Opt::new(
        "ompt-trace",
        Trace,
        Shape::AnyOf(&["all", "thread", "parallel", "task", "sync", "mutex", "target", "device", "error"]),
        Sets::SwitchAndWords(ask(kind::OMPT).name(), "ROCPROF_OMPT_TRACE_OPERATIONS"),
        "Record events of OpenMP's runtime, of these kinds, in a program that is started",
    )
    .more(
        "Without words all kinds. The runtime must be LLVM's (libomp) or one made from it: GCC's libgomp tells no tool anything. \
         Events of target and device come from offloading only. They are in rocpd, json, pftrace and parquet, not in csv.",
    )
    .not_with_attach(ASKED_ONCE)
    .of(kind::OMPT),
    trace(kind::ROCDECODE_API_EXT, "Record calls of rocDecode"),
    trace(kind::ROCJPEG_API, "Record calls of rocJPEG"),
    trace(kind::ROCSHMEM_API, "Record calls of rocSHMEM").more(NO_SOURCE),
    trace(kind::HIPFILE_API, "Record calls of hipFile").more(NO_SOURCE),
    trace(kind::HIP_GRAPH, "Record launches of HIP graphs").more(
        "Each with its graph, its thread, how many kernels it launched, and when the first began and the last ended. Its kernels are \
         recorded for that, and are in the results with --kernel-trace only. They are in rocpd, json, pftrace and parquet, not in csv. \
         --hip-runtime-trace brings them only where kernels are recorded, too.",
    ),
    trace(kind::HIP_EVENT, "Record HIP events").more(
        "Each record of an event, and each wait of a stream for one, that has a barrier packet on the device: its event, its times, its \
         queue, and the queue in which the event was recorded. The notes say how many calls have none. Kernels are recorded for that, and are \
         in the results with --kernel-trace only. They are in rocpd, json, pftrace and parquet, not in csv. --hip-runtime-trace brings them \
         only where kernels are recorded, too.",
    ),
    trace(kind::KFD_PAGE_MIGRATE, "Record migrations of pages"),
    trace(kind::KFD_PAGE_FAULT, "Record page faults and unmaps"),
    trace(kind::KFD_QUEUE, "Record evictions of queues"),
    trace(kind::KFD_EVENT_DROPPED_EVENTS, "Record events that the driver dropped"),
    Opt::new(
        "group-by-queue",
        Perfetto,
        Shape::Boolean,
        Sets::Switch("ROCPROF_GROUP_BY_QUEUE"),
        "Show kernels by HSA queue and not by HIP stream",
    )
    .more("Copies are then shown by destination and thread."),
];
