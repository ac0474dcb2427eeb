//! `rocattach_status_t`: numbers, names and sentences.

use std::ffi::CStr;

/// Success.
pub const SUCCESS: u32 = 0;
/// Any failure without a number of its own. The line on standard error says which.
pub const ERROR: u32 = 1;
/// An argument that cannot be used, a pid without a session, or one that has a session already.
pub const ERROR_INVALID_ARGUMENT: u32 = 2;

/// The names and sentences, by number. `midair_session::rocattach_status` gives the numbers from 3
/// on.
const TEXTS: [(&CStr, &CStr); 7] = [
    (c"ROCATTACH_STATUS_SUCCESS", c"Success"),
    (
        c"ROCATTACH_STATUS_ERROR",
        c"The attachment failed; the reason was written to standard error",
    ),
    (
        c"ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT",
        c"An argument is invalid, or the process already has a session, or has none",
    ),
    (
        c"ROCATTACH_STATUS_ERROR_NOT_SUPPORTED",
        c"The operation is not supported",
    ),
    (
        c"ROCATTACH_STATUS_ERROR_PTRACE_ERROR",
        c"Cannot enter the process",
    ),
    (
        c"ROCATTACH_STATUS_ERROR_PTRACE_OPERATION_NOT_PERMITTED",
        c"Permission to attach to the process was denied",
    ),
    (
        c"ROCATTACH_STATUS_ERROR_PTRACE_PROCESS_NOT_FOUND",
        c"There is no such process",
    ),
];

/// Returns the enumerator's name, or `None` for a number that is no status.
pub fn name(status: u32) -> Option<&'static CStr> {
    TEXTS.get(status as usize).map(|t| t.0)
}

/// Returns a sentence about a status, or `None` for a number that is no status.
pub fn sentence(status: u32) -> Option<&'static CStr> {
    TEXTS.get(status as usize).map(|t| t.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_failure::Kind;
    use midair_session::rocattach_status;

    #[test]
    fn numbers_are_amds_and_end_where_amds_end() {
        assert_eq!(
            name(6),
            Some(c"ROCATTACH_STATUS_ERROR_PTRACE_PROCESS_NOT_FOUND")
        );
        assert_eq!((name(7), sentence(7)), (None, None));
        assert_eq!((name(u32::MAX), sentence(u32::MAX)), (None, None));
        for (kind, status) in [
            (Kind::Usage, ERROR_INVALID_ARGUMENT),
            (Kind::NotBuilt, 3),
            (Kind::NoParkedThread, 4),
            (Kind::NotPermitted, 5),
            (Kind::NoProcess, 6),
            (Kind::NotGpu, ERROR),
        ] {
            assert_eq!(rocattach_status(kind), status, "{kind:?}");
            assert!(name(rocattach_status(kind)).is_some());
        }
    }
}
