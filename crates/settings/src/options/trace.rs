//! What is recorded.

use super::{
    Category::{Aggregate, Perfetto, Trace},
    Opt, Sets, Shape,
};

const fn trace(long: &'static str, variable: &'static str, help: &'static str) -> Opt {
    Opt::new(long, Trace, Shape::Boolean, Sets::Switch(variable), help)
}

const fn aggregate(
    long: &'static str,
    members: &'static [&'static str],
    help: &'static str,
) -> Opt {
    Opt::new(long, Aggregate, Shape::Boolean, Sets::Nothing, help).expands(members)
}

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
        .more("In a CUDA process only, where --hip-trace and --hsa-trace find nothing. Arguments are not recorded."),
    aggregate(
        "kfd-trace",
        &["kfd-page-migration-trace", "kfd-page-mapping-trace", "kfd-queue-trace", "kfd-dropped-events-trace"],
        "Record all events of the kernel driver",
    )
    .later(),
    aggregate("kokkos-trace", &["marker-trace", "kernel-rename"], "Record Kokkos regions as markers").later(),
    trace("hip-runtime-trace", "ROCPROF_HIP_RUNTIME_API_TRACE", "Record calls of the HIP runtime")
        .expands(&["hip-graph-trace", "hip-event-trace"]),
    trace("hip-compiler-trace", "ROCPROF_HIP_COMPILER_API_TRACE", "Record the calls that the HIP compiler inserts")
        .more("These are calls such as __hipRegisterFunction and __hipPushCallConfiguration."),
    trace("hsa-core-trace", "ROCPROF_HSA_CORE_API_TRACE", "Record calls of the HSA core API (hsa_*)"),
    trace("hsa-amd-trace", "ROCPROF_HSA_AMD_EXT_API_TRACE", "Record calls of AMD's HSA extensions (hsa_amd_*)"),
    trace("hsa-image-trace", "ROCPROF_HSA_IMAGE_EXT_API_TRACE", "Record calls of HSA's image extension"),
    trace("hsa-finalizer-trace", "ROCPROF_HSA_FINALIZER_EXT_API_TRACE", "Record calls of HSA's finalizer extension"),
    trace("cuda-runtime-trace", "MIDAIR_CUDA_RUNTIME_API_TRACE", "Record calls of the CUDA runtime, and waits"),
    trace("cuda-driver-trace", "MIDAIR_CUDA_DRIVER_API_TRACE", "Record calls of the CUDA driver, and waits")
        .more("The runtime makes most of its calls by the driver: these are recorded a second time."),
    trace("kernel-trace", "ROCPROF_KERNEL_TRACE", "Record kernels: which, where, when they began and ended")
        .more("Kernels on queues that were there before the attach are recorded as well."),
    trace("memory-copy-trace", "ROCPROF_MEMORY_COPY_TRACE", "Record copies between host and devices"),
    trace("marker-trace", "ROCPROF_MARKER_API_TRACE", "Record ROCTx marks and ranges; NVTX's in a CUDA process"),
    trace("memory-allocation-trace", "ROCPROF_MEMORY_ALLOCATION_TRACE", "Record allocations and releases of device memory")
        .more("In a CUDA process moves and faults of unified memory, too."),
    trace("scratch-memory-trace", "ROCPROF_SCRATCH_MEMORY_TRACE", "Record changes of queues' scratch memory"),
    trace("rccl-trace", "ROCPROF_RCCL_API_TRACE", "Record calls of RCCL").later(),
    Opt::new(
        "ompt-trace",
        Trace,
        Shape::SomeOf(&["all", "thread", "parallel", "task", "sync", "mutex", "target", "device", "error"]),
        Sets::Words(&["ROCPROF_OMPT_TRACE_OPERATIONS"], ","),
        "Record OpenMP events of these kinds",
    )
    .later(),
    trace("rocdecode-trace", "ROCPROF_ROCDECODE_API_TRACE", "Record calls of rocDecode").later(),
    trace("rocjpeg-trace", "ROCPROF_ROCJPEG_API_TRACE", "Record calls of rocJPEG").later(),
    trace("rocshmem-trace", "ROCPROF_ROCSHMEM_API_TRACE", "Record calls of rocSHMEM").later(),
    trace("hipfile-trace", "ROCPROF_HIPFILE_API_TRACE", "Record calls of hipFile").later(),
    trace("hip-graph-trace", "ROCPROF_HIP_GRAPH_TRACE", "Record launches of HIP graphs").later(),
    trace("hip-event-trace", "ROCPROF_HIP_EVENT_TRACE", "Record HIP events").later(),
    trace("kfd-page-migration-trace", "ROCPROF_KFD_PAGE_MIGRATION_TRACE", "Record migrations of pages").later(),
    trace("kfd-page-mapping-trace", "ROCPROF_KFD_PAGE_MAPPING_TRACE", "Record page faults and unmaps").later(),
    trace("kfd-queue-trace", "ROCPROF_KFD_QUEUE_TRACE", "Record evictions of queues").later(),
    trace("kfd-dropped-events-trace", "ROCPROF_KFD_DROPPED_EVENTS_TRACE", "Record events that the driver dropped").later(),
    Opt::new(
        "group-by-queue",
        Perfetto,
        Shape::Boolean,
        Sets::Switch("ROCPROF_GROUP_BY_QUEUE"),
        "Show kernels by HSA queue and not by HIP stream",
    )
    .more("Copies are then shown by destination and thread."),
];
