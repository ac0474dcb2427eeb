//! What rows of the table share: names in files, settings, needs.

use crate::files::{Files, Ranked, Rocpd, Statistics, Track};
use crate::{Ask, Callback, CallbackTime, Domain, Needs, RequestedBy, Runtimes};
use core::ffi::CStr;

/// Only AMD's runtimes have it.
pub(super) const AMD: Runtimes = Runtimes {
    amd: true,
    cuda: false,
};
/// Only CUDA has it.
pub(super) const CUDA: Runtimes = Runtimes {
    amd: false,
    cuda: true,
};
/// Both have it.
pub(super) const BOTH: Runtimes = Runtimes {
    amd: true,
    cuda: true,
};

/// Nothing has to be prepared.
pub(super) const NOTHING: Needs = Needs {
    calls: false,
    runtime: false,
    device: false,
};
/// Its calls are hooked.
pub(super) const CALLS: Needs = Needs {
    calls: true,
    ..NOTHING
};
/// The HSA runtime reports it.
pub(super) const RUNTIME: Needs = Needs {
    runtime: true,
    ..NOTHING
};
/// It happens on a device.
pub(super) const DEVICE: Needs = Needs {
    runtime: true,
    device: true,
    ..NOTHING
};

/// The names of a domain that is not built, and whose names are not decided yet.
pub(super) const NO_FILES: Files = Files {
    csv: None,
    json: None,
    category: None,
    track: None,
    rocpd: None,
    statistics: None,
    table: None,
    records: "",
    phrase: None,
};

pub(super) const HSA: Files = Files {
    csv: Some("hsa_api_trace.csv"),
    json: Ranked::some("hsa_api", 30),
    category: Some("hsa_api"),
    track: Some(Track::Thread),
    rocpd: Some(Rocpd::Region),
    statistics: Some(&HSA_STATISTICS),
    table: Ranked::some("CALL", 20),
    records: "HSA calls",
    phrase: Ranked::some("calls of HSA", 70),
};
static HSA_STATISTICS: Statistics = Statistics {
    name: "HSA_API",
    csv: "hsa_api_stats.csv",
    rank: 10,
    json_rank: 20,
};

pub(super) const HIP: Files = Files {
    csv: Some("hip_api_trace.csv"),
    json: Ranked::some("hip_api", 20),
    category: Some("hip_api"),
    track: Some(Track::Thread),
    rocpd: Some(Rocpd::Region),
    statistics: Some(&HIP_STATISTICS),
    table: Ranked::some("CALL", 20),
    records: "HIP calls",
    phrase: Ranked::some("calls of HIP", 60),
};
static HIP_STATISTICS: Statistics = Statistics {
    name: "HIP_API",
    csv: "hip_api_stats.csv",
    rank: 20,
    json_rank: 30,
};

pub(super) const MARKER: Files = Files {
    csv: Some("marker_api_trace.csv"),
    json: Ranked::some("marker_api", 40),
    category: Some("marker_api"),
    track: Some(Track::Thread),
    rocpd: Some(Rocpd::Region),
    statistics: Some(&MARKER_STATISTICS),
    table: Ranked::some("MARKER", 70),
    records: "markers",
    phrase: Ranked::some("NVTX", 30),
};
static MARKER_STATISTICS: Statistics = Statistics {
    name: "MARKER_API",
    csv: "marker_api_stats.csv",
    rank: 30,
    json_rank: 60,
};

pub(super) const RCCL: Files = library(
    "rccl_api_trace.csv",
    Ranked::some("rccl_api", 50),
    "rccl_api",
    &Statistics {
        name: "RCCL_API",
        csv: "rccl_api_stats.csv",
        rank: 65,
        json_rank: 72,
    },
    "RCCL calls",
    Ranked::some("calls of RCCL", 61),
);
pub(super) const ROCDECODE: Files = library(
    "rocdecode_api_trace.csv",
    Ranked::some("rocdecode_api", 90),
    "rocdecode_api",
    &Statistics {
        name: "ROCDECODE_API",
        csv: "rocdecode_api_stats.csv",
        rank: 72,
        json_rank: 74,
    },
    "rocDecode calls",
    Ranked::some("calls of rocDecode", 62),
);
pub(super) const ROCJPEG: Files = library(
    "rocjpeg_api_trace.csv",
    Ranked::some("rocjpeg_api", 100),
    "rocjpeg_api",
    &Statistics {
        name: "ROCJPEG_API",
        csv: "rocjpeg_api_stats.csv",
        rank: 74,
        json_rank: 76,
    },
    "rocJPEG calls",
    Ranked::some("calls of rocJPEG", 63),
);

/// Returns the names for the calls of a library above HIP.
const fn library(
    csv: &'static str,
    json: Option<Ranked>,
    category: &'static str,
    statistics: &'static Statistics,
    records: &'static str,
    phrase: Option<Ranked>,
) -> Files {
    Files {
        csv: Some(csv),
        json,
        category: Some(category),
        track: Some(Track::Thread),
        rocpd: Some(Rocpd::Region),
        statistics: Some(statistics),
        table: Ranked::some("CALL", 20),
        records,
        phrase,
    }
}

/// AMD's tool writes OpenMP's events into rocpd only; its tables do not have them.
pub(super) const OPENMP: Files = Files {
    json: Ranked::some("ompt", 84),
    category: Some("ompt"),
    track: Some(Track::Thread),
    rocpd: Some(Rocpd::Region),
    records: "events of OpenMP",
    phrase: Ranked::some("events of OpenMP", 64),
    ..NO_FILES
};

/// Returns the names for events of the kernel driver, as in AMD's json; AMD's tables do not have
/// them.
pub(super) const fn driver(track: &'static str) -> Files {
    Files {
        json: Ranked::some("kfd", 85),
        category: Some("kfd_events"),
        track: Some(Track::Own(track)),
        rocpd: Some(Rocpd::Region),
        records: "events of the kernel driver",
        phrase: Ranked::some("events of the kernel driver", 90),
        ..NO_FILES
    }
}

pub(super) const CUDA_API: Files = Files {
    csv: Some("cuda_api_trace.csv"),
    json: Ranked::some("cuda_api", 130),
    category: Some("cuda_api"),
    track: Some(Track::Thread),
    rocpd: Some(Rocpd::Region),
    statistics: None,
    table: Ranked::some("CALL", 20),
    records: "CUDA calls",
    phrase: Ranked::some("calls", 50),
};

pub(super) const fn around(kind: i32) -> Option<Callback> {
    Some(Callback {
        kind,
        told: CallbackTime::Around,
    })
}

pub(super) const fn late(kind: i32) -> Option<Callback> {
    Some(Callback {
        kind,
        told: CallbackTime::Late,
    })
}

pub(super) const fn work(kind: i32) -> Option<Callback> {
    Some(Callback {
        kind,
        told: CallbackTime::Work,
    })
}

pub(super) const fn ask(option: &'static str, setting: &'static CStr) -> Ask {
    Ask { option, setting }
}

/// The defaults for rows of domains that are not built.
pub(super) const LATER: Domain = Domain {
    kind: 0,
    name: "",
    asked: RequestedBy::ByTools,
    buffer_kinds: &[],
    callback: None,
    number: None,
    activities: &[],
    runtimes: AMD,
    needs: NOTHING,
    usual: false,
    files: NO_FILES,
    built: false,
};

pub(super) const MARKER_TRACE: RequestedBy =
    RequestedBy::By(&[ask("marker-trace", c"ROCPROF_MARKER_API_TRACE")]);
pub(super) const KERNEL_TRACE: RequestedBy =
    RequestedBy::By(&[ask("kernel-trace", c"ROCPROF_KERNEL_TRACE")]);
pub(super) const COPY_TRACE: RequestedBy =
    RequestedBy::By(&[ask("memory-copy-trace", c"ROCPROF_MEMORY_COPY_TRACE")]);
pub(super) const ALLOCATION_TRACE: RequestedBy = RequestedBy::By(&[ask(
    "memory-allocation-trace",
    c"ROCPROF_MEMORY_ALLOCATION_TRACE",
)]);
pub(super) const CUDA_RUNTIME: Ask = ask("cuda-runtime-trace", c"MIDAIR_CUDA_RUNTIME_API_TRACE");
pub(super) const CUDA_DRIVER: Ask = ask("cuda-driver-trace", c"MIDAIR_CUDA_DRIVER_API_TRACE");

pub(super) const PC_SAMPLING: Ask = ask(
    "pc-sampling-beta-enabled",
    c"ROCPROFILER_PC_SAMPLING_BETA_ENABLED",
);
