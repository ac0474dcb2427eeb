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
const ASKED_ONCE: &str = "--ompt-trace requires a started program (rocprofv3 --ompt-trace -- PROGRAM): the OpenMP runtime loads \
    its tool once, at its start, so an attach comes too late";
/// Why options stay refused.
const NO_SOURCE: &str = "No public package has this library, so midair cannot be tested with it.";
const LOADED_ONCE: &str = "--kokkos-trace requires a started program (rocprofv3 --kokkos-trace -- PROGRAM): Kokkos loads its \
    tool once, at its start, so an attach comes too late";

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
        "Kinds that are not built yet are skipped, and named with --log-level info. An explicitly disabled kind stays off, as in \
         --sys-trace --hsa-trace false.",
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
        "Record everything except HSA, compiler and CUDA driver calls",
    )
    .short('r')
    .more("Kinds that are not built yet are skipped, and named with --log-level info."),
    aggregate("hip-trace", &["hip-compiler-trace", "hip-runtime-trace"], "Record calls of the HIP runtime and compiler"),
    aggregate(
        "hsa-trace",
        &["hsa-core-trace", "hsa-amd-trace", "hsa-image-trace", "hsa-finalizer-trace"],
        "Record calls of all parts of HSA",
    ),
    aggregate("cuda-trace", &["cuda-runtime-trace", "cuda-driver-trace"], "Record calls of the CUDA runtime and driver, and waits")
        .all(CUDA_ALL_CALLS)
        .more(
            "Applies to CUDA processes, where --hip-trace and --hsa-trace find nothing. Arguments are not recorded. Calls that \
             only query state (cudaGetDevice, cudaGetLastError, cuCtxGetCurrent and similar) are skipped unless 'all' is given.",
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
        "Record Kokkos regions as markers, in a started program",
    )
    .expands(&["marker-trace", "kernel-rename"])
    .more(
        "Records loops, fences, copies and user regions, and names kernels after them. Kokkos loads midair's library through \
         KOKKOS_TOOLS_LIBS, unless that variable names another one.",
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
        .more("Calls that only query state are skipped unless 'all' is given."),
    trace(kind::CUDA_DRIVER_API, "Record calls of the CUDA driver, and waits")
        .all(CUDA_ALL_CALLS)
        .more("Most runtime calls make driver calls, so both are recorded. Calls that only query state are skipped unless 'all' \
        is given."),
    trace(kind::KERNEL_DISPATCH, "Record kernel dispatches: name, queue, start and end")
        .more("Includes kernels on queues that existed before the attach."),
    trace(kind::MEMORY_COPY, "Record memory copies between host and devices"),
    trace(kind::MARKER_CORE_RANGE_API, "Record ROCTx marks and ranges; in a CUDA process, NVTX"),
    trace(kind::MEMORY_ALLOCATION, "Record allocations and releases of device memory")
        .more("In a CUDA process, also migrations and faults of unified memory."),
    trace(kind::SCRATCH_MEMORY, "Record changes of queues' scratch memory"),
    trace(kind::RCCL_API, "Record calls of RCCL"),
    Opt::new(
        "ompt-trace",
        Trace,
        Shape::AnyOf(&["all", "thread", "parallel", "task", "sync", "mutex", "target", "device", "error"]),
        Sets::SwitchAndWords(ask(kind::OMPT).name(), "ROCPROF_OMPT_TRACE_OPERATIONS"),
        "Record events of the OpenMP runtime, in a started program (default all kinds)",
    )
    .more(
        "Requires LLVM's runtime (libomp) or a derivative: GCC's libgomp has no tools interface. target and device events come \
         from offloading. Written to rocpd, json, pftrace and parquet, not to csv.",
    )
    .not_with_attach(ASKED_ONCE)
    .of(kind::OMPT),
    trace(kind::ROCDECODE_API_EXT, "Record calls of rocDecode"),
    trace(kind::ROCJPEG_API, "Record calls of rocJPEG"),
    trace(kind::ROCSHMEM_API, "Record calls of rocSHMEM").more(NO_SOURCE),
    trace(kind::HIPFILE_API, "Record calls of hipFile").more(NO_SOURCE),
    trace(kind::HIP_GRAPH, "Record launches of HIP graphs").more(
        "Each with its graph, its thread, the number of kernels, the start of the first and the end of the last. Kernels \
         themselves appear only with --kernel-trace. Written to rocpd, json, pftrace and parquet, not to csv. \
         --hip-runtime-trace includes graphs only if kernels are recorded.",
    ),
    trace(kind::HIP_EVENT, "Record HIP events").more(
        "Covers each hipEventRecord and hipStreamWaitEvent that has a barrier packet on the device: event, times, queue, and the \
         queue in which the event was recorded. A note counts the calls without one. Kernels themselves appear only with \
         --kernel-trace. Written to rocpd, json, pftrace and parquet, not to csv. --hip-runtime-trace includes events only if \
         kernels are recorded.",
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
        "Show kernels by HSA queue instead of HIP stream",
    )
    .more("Copies are shown by destination and thread."),
];
