//! Sets of kinds that several crates need, made from the table at compile time.

use crate::table::{DOMAINS, kind};
use crate::{Domain, KindSet, Rocpd};

/// Returns the kinds of the rows for which `$condition` is true, with the row as `$domain`.
macro_rules! kinds_where {
    (|$domain:ident| $condition:expr) => {{
        let mut set = KindSet::EMPTY;
        let mut at = 0;
        while at < DOMAINS.len() {
            let $domain: &Domain = &DOMAINS[at];
            set = set.with_if($domain.kind, $condition);
            at += 1;
        }
        set
    }};
}

/// Whether two texts are equal; `==` is not available in constants.
const fn same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut at = 0;
    while at < left.len() {
        if left[at] != right[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Returns the kinds whose records are in the same csv file as the records of `kind`.
const fn file_of(kind: u8) -> KindSet {
    let Some(Domain { files, .. }) = crate::domain(kind) else {
        return KindSet::EMPTY;
    };
    let Some(wanted) = files.csv else {
        return KindSet::EMPTY;
    };
    kinds_where!(|domain| match domain.files.csv {
        Some(csv) => same(csv, wanted),
        None => false,
    })
}

/// The domains that are built.
pub const BUILT: KindSet = kinds_where!(|domain| domain.built);
/// The domains that a process with AMD's runtimes can be asked for.
pub const AMD: KindSet = kinds_where!(|domain| domain.built && domain.runtimes.amd);
/// The domains that a CUDA process can be asked for.
pub const CUDA: KindSet = kinds_where!(|domain| domain.built && domain.runtimes.cuda);
/// The domains whose calls are hooked in the API tables of AMD's runtimes and of ROCTx.
pub const HOOKED_CALLS: KindSet = kinds_where!(|domain| domain.built && domain.needs.calls);
/// The domains that need an open HSA runtime.
pub const NEEDS_RUNTIME: KindSet = kinds_where!(|domain| domain.built && domain.needs.runtime);
/// The domains that need the device side: queues, signals, and the harvest of completions.
pub const NEEDS_DEVICE: KindSet = kinds_where!(|domain| domain.built && domain.needs.device);
/// Calls of HIP.
pub const HIP_CALLS: KindSet = file_of(kind::HIP_RUNTIME_API_EXT);
/// Calls of HSA.
pub const HSA_CALLS: KindSet = file_of(kind::HSA_CORE_API);
/// Calls of libraries above HIP: RCCL, rocDecode, rocJPEG.
pub const LIBRARY_CALLS: KindSet =
    KindSet::of(&[kind::RCCL_API, kind::ROCDECODE_API_EXT, kind::ROCJPEG_API]);
/// What a runtime tells by itself, without a hook in a table, and what becomes a record as a call
/// does: events of OpenMP.
pub const TOLD: KindSet = KindSet::of(&[kind::OMPT]);
/// Events of the kernel driver.
pub const DRIVER: KindSet = KindSet::of(&[
    kind::KFD_PAGE_MIGRATE,
    kind::KFD_PAGE_FAULT,
    kind::KFD_QUEUE,
    kind::KFD_EVENT_DROPPED_EVENTS,
    kind::KFD_EVENT_UNMAP_FROM_GPU,
]);
/// Calls of CUDA.
pub const CUDA_CALLS: KindSet = file_of(kind::CUDA_RUNTIME_API);
/// ROCTx and NVTX: marks, ranges, and other calls.
pub const MARKERS: KindSet = file_of(kind::MARKER_CORE_RANGE_API);
/// The domains that become rows of rocpd.
pub const ROCPD: KindSet = kinds_where!(|domain| domain.files.rocpd.is_some());
/// The domains that rocpd has as regions.
pub const ROCPD_REGIONS: KindSet =
    kinds_where!(|domain| matches!(domain.files.rocpd, Some(Rocpd::Region)));
