//! The names of what CUDA processes record: kinds and directions for which AMD has no numbers, in
//! the form of AMD's names.
//!
//! Numbers are CUPTI's (source: api/cupti_1x.json).

pub mod devices;

use crate::api::{Kind, Text, number_in_files};
use midair_abi::cupti;
use midair_record::event::{Copy, CudaTransfer, Untimed, kind};
use std::borrow::Cow;

/// The first of our own numbers in files. AMD's numbers are below it.
pub const FIRST_KIND: usize = number_in_files(kind::CUDA_RUNTIME_API) as usize;

/// Copies of arrays and copies between devices are counted and named separately. Their number is
/// this plus `CUpti_ActivityMemcpyKind`.
pub const FURTHER_COPIES: u32 = 64;

/// The number of calls that are named, more than any CUPTI has.
const MOST_CALLS: u32 = 1 << 12;

/// The names of copies by their kind, which is added to [`FURTHER_COPIES`].
const COPIES: &[(u32, &str)] = &[
    (3, "MEMORY_COPY_HOST_TO_ARRAY"),
    (4, "MEMORY_COPY_ARRAY_TO_HOST"),
    (5, "MEMORY_COPY_ARRAY_TO_ARRAY"),
    (6, "MEMORY_COPY_ARRAY_TO_DEVICE"),
    (7, "MEMORY_COPY_DEVICE_TO_ARRAY"),
    (10, "MEMORY_COPY_PEER_TO_PEER"),
];

/// Runtimes for which AMD has no number: number, name, and name for people.
const RUNTIMES: &[(u32, &str, &str)] = &[
    (64, "RUNTIME_INITIALIZATION_CUDA_DRIVER", "CUDA driver"),
    (65, "RUNTIME_INITIALIZATION_CUPTI", "CUPTI"),
];

/// `CUpti_ActivityMemoryKind`.
const MEMORY: &[&str] = &[
    "UNKNOWN",
    "PAGEABLE",
    "PINNED",
    "DEVICE",
    "ARRAY",
    "MANAGED",
    "DEVICE_STATIC",
    "MANAGED_STATIC",
];

/// Names of fills, by the `CUpti_ActivityMemoryKind` of the memory that was filled.
const SETS: &[&str] = &[
    "MEMORY_SET_UNKNOWN",
    "MEMORY_SET_PAGEABLE",
    "MEMORY_SET_PINNED",
    "MEMORY_SET_DEVICE",
    "MEMORY_SET_ARRAY",
    "MEMORY_SET_MANAGED",
    "MEMORY_SET_DEVICE_STATIC",
    "MEMORY_SET_MANAGED_STATIC",
];

/// `CUpti_ActivitySynchronizationType`.
const WAITS: &[&str] = &[
    "SYNCHRONIZATION_UNKNOWN",
    "SYNCHRONIZATION_EVENT",
    "SYNCHRONIZATION_STREAM_WAIT_EVENT",
    "SYNCHRONIZATION_STREAM",
    "SYNCHRONIZATION_CONTEXT",
];

/// `CUpti_ActivityUnifiedMemoryCounterKind`.
const UNIFIED: &[&str] = &[
    "UNIFIED_MEMORY_UNKNOWN",
    "UNIFIED_MEMORY_HOST_TO_DEVICE",
    "UNIFIED_MEMORY_DEVICE_TO_HOST",
    "UNIFIED_MEMORY_CPU_PAGE_FAULTS",
    "UNIFIED_MEMORY_GPU_PAGE_FAULTS",
    "UNIFIED_MEMORY_THRASHING",
    "UNIFIED_MEMORY_THROTTLING",
    "UNIFIED_MEMORY_REMOTE_MAP",
    "UNIFIED_MEMORY_DEVICE_TO_DEVICE",
];

/// Returns our own kinds and their operations, in the order of their numbers from [`FIRST_KIND`]
/// on.
pub fn kinds() -> Vec<Kind> {
    let of = |name: &'static str, operations: Vec<Text>| Kind {
        name: Cow::Borrowed(name),
        operations,
    };
    let texts = |names: &[&'static str]| names.iter().map(|name| Cow::Borrowed(*name)).collect();
    vec![
        of("CUDA_RUNTIME_API", calls(cupti::runtime_name)),
        of("CUDA_DRIVER_API", calls(cupti::driver_name)),
        of("MEMORY_SET", texts(SETS)),
        of("SYNCHRONIZATION", texts(WAITS)),
        of("UNIFIED_MEMORY", texts(UNIFIED)),
    ]
}

/// Returns the names of calls by CUPTI's callback id, with empty texts for ids that no function
/// has.
fn calls(name: fn(u32) -> Option<&'static str>) -> Vec<Text> {
    let last = (0..MOST_CALLS).rev().find(|number| name(*number).is_some());
    let numbers = 0..last.map_or(0, |last| last + 1);
    numbers
        .map(|number| Cow::Borrowed(name(number).unwrap_or_default()))
        .collect()
}

/// Returns the name of an operation that AMD has no number for, within a kind of AMD's.
pub fn operation(kind: u8, operation: u32) -> Option<&'static str> {
    match kind {
        kind::MEMORY_COPY => {
            let of = operation.checked_sub(FURTHER_COPIES)?;
            COPIES.iter().find(|copy| copy.0 == of).map(|copy| copy.1)
        }
        kind::RUNTIME_INITIALIZATION => runtime(operation).map(|runtime| runtime.1),
        _ => None,
    }
}

/// Returns a runtime's name for people, where it is not one of AMD's.
pub fn runtime_name(operation: u32) -> Option<&'static str> {
    runtime(operation).map(|runtime| runtime.2)
}

fn runtime(operation: u32) -> Option<&'static (u32, &'static str, &'static str)> {
    RUNTIMES.iter().find(|runtime| runtime.0 == operation)
}

/// Returns the number under which a copy is counted and named: AMD's direction where there is one.
pub fn copy_operation(copy: &Copy, extra: Option<&CudaTransfer>) -> u32 {
    match extra.map(|extra| extra.copy_kind) {
        Some(further) if COPIES.iter().any(|copy| copy.0 == further) => FURTHER_COPIES + further,
        _ => copy_direction(copy, extra),
    }
}

/// Returns AMD's direction (1 H2H, 2 H2D, 3 D2H, 4 D2D). Arrays count as memory of the device,
/// since they lie there.
pub fn copy_direction(copy: &Copy, extra: Option<&CudaTransfer>) -> u32 {
    match extra.map_or(0, |extra| extra.copy_kind) {
        9 => 1,
        1 | 3 => 2,
        2 | 4 => 3,
        5..=8 | 10 => 4,
        _ => copy.header.operation,
    }
}

/// Whether a number under which copies are counted has a meaning.
pub fn is_further_copy(number: u32) -> bool {
    operation(kind::MEMORY_COPY, number).is_some()
}

/// Returns the name of a kind of memory.
pub fn memory(kind: u32) -> &'static str {
    MEMORY.get(kind as usize).copied().unwrap_or("OTHER")
}

/// Returns the names of the memory that a copy reads and the memory that it writes.
pub fn memories(extra: &CudaTransfer) -> (&'static str, &'static str) {
    (
        memory(extra.memory_kinds & 0xffff),
        memory(extra.memory_kinds >> 16),
    )
}

/// Returns the number of a kind of memory by its name.
pub fn memory_of(name: &str) -> u32 {
    let known = MEMORY.iter().position(|known| *known == name);
    // Any number that has no name.
    known.map_or(MEMORY.len(), |known| known) as u32
}

/// Returns the two parts of a stream's handle: context and stream, as CUPTI counts them.
pub fn stream_parts(handle: u64) -> (u32, u32) {
    ((handle >> 32) as u32, handle as u32)
}

/// Whether a wait is for one stream, and not for all of a context.
pub fn names_stream(handle: u64) -> bool {
    stream_parts(handle).1 != NONE
}

/// Returns why fills, waits and unified memory's work have no times ([`Untimed`] as a number).
/// CUPTI gives 0 for operations that had not ended when it was asked for its last records.
pub fn unfinished(start: u64, end: u64) -> u32 {
    if start == 0 || end == 0 {
        Untimed::RunningAtDetach as u32
    } else {
        Untimed::Timed as u32
    }
}

/// CUPTI's value for no stream and no event (source: `CUPTI_SYNCHRONIZATION_INVALID_VALUE`).
pub const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Names;
    use midair_record::event::cuda_stream;

    #[test]
    fn directions_are_amds_where_it_has_them() {
        let names = Names::amd();
        let wanted = [
            (1, "MEMORY_COPY_HOST_TO_DEVICE", 2),
            (2, "MEMORY_COPY_DEVICE_TO_HOST", 3),
            (3, "MEMORY_COPY_HOST_TO_ARRAY", 2),
            (4, "MEMORY_COPY_ARRAY_TO_HOST", 3),
            (5, "MEMORY_COPY_ARRAY_TO_ARRAY", 4),
            (6, "MEMORY_COPY_ARRAY_TO_DEVICE", 4),
            (7, "MEMORY_COPY_DEVICE_TO_ARRAY", 4),
            (8, "MEMORY_COPY_DEVICE_TO_DEVICE", 4),
            (9, "MEMORY_COPY_HOST_TO_HOST", 1),
            (10, "MEMORY_COPY_PEER_TO_PEER", 4),
            // Where CUPTI does not know the memory, the record's own direction is used, which is
            // none here.
            (0, "MEMORY_COPY_NONE", 0),
            (11, "MEMORY_COPY_NONE", 0),
        ];
        for (copy_kind, name, direction) in wanted {
            let extra = CudaTransfer {
                copy_kind,
                ..CudaTransfer::default()
            };
            let copy = Copy::default();
            let operation = copy_operation(&copy, Some(&extra));
            assert_eq!(names.operation(kind::MEMORY_COPY, operation), name);
            assert_eq!(copy_direction(&copy, Some(&extra)), direction, "{name}");
        }
        assert!(!is_further_copy(4) && !is_further_copy(FURTHER_COPIES + 8));
    }

    #[test]
    fn kinds_have_their_numbers() {
        let names = Names::amd();
        for (number, name) in [
            (kind::CUDA_RUNTIME_API, "CUDA_RUNTIME_API"),
            (kind::CUDA_DRIVER_API, "CUDA_DRIVER_API"),
            (kind::MEMORY_SET, "MEMORY_SET"),
            (kind::SYNCHRONIZATION, "SYNCHRONIZATION"),
            (kind::UNIFIED_MEMORY, "UNIFIED_MEMORY"),
        ] {
            assert_eq!(names.kind(number), name);
        }
        assert_eq!(number_in_files(kind::CUDA_RUNTIME_API), 56);
        assert_eq!(number_in_files(kind::UNIFIED_MEMORY), 60);
        assert_eq!(names.kind(0), "KIND_0");
        assert_eq!(names.kind(250), "KIND_250");
        for (number, operation, name) in [
            (kind::CUDA_RUNTIME_API, 211, "cudaLaunchKernel"),
            (kind::CUDA_DRIVER_API, 307, "cuLaunchKernel"),
            (kind::CUDA_RUNTIME_API, 0, "CUDA_RUNTIME_API_OPERATION_0"),
        ] {
            assert_eq!(names.operation(number, operation), name);
        }
        // AMD's numbers end before ours start.
        assert!(names.buffer.len() <= FIRST_KIND);
        assert_eq!(
            names.operation(kind::RUNTIME_INITIALIZATION, 65),
            "RUNTIME_INITIALIZATION_CUPTI"
        );
    }

    #[test]
    fn streams_come_apart_as_they_were_put_together() {
        assert_eq!(stream_parts(cuda_stream(3, 7)), (3, 7));
        assert!(names_stream(cuda_stream(1, 0)) && !names_stream(cuda_stream(1, NONE)));
        let extra = CudaTransfer {
            memory_kinds: 3 << 16 | 2,
            ..CudaTransfer::default()
        };
        assert_eq!(memories(&extra), ("PINNED", "DEVICE"));
    }
}
