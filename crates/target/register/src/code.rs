//! Result codes and their texts.

use std::ffi::CStr;

/// `rocprofiler_register_error_code_t` (api/rocprofiler_register.json).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// Success.
    Success = 0,
    /// There is no profiler: the normal result for a runtime that registers. The table is kept.
    NoTools = 1,
    /// The calling thread is already inside a call of the same kind.
    Deadlock = 2,
    /// An impossible number of tables.
    BadApiTableLength = 3,
    /// A library name that is not known.
    UnsupportedApi = 4,
    /// Secure mode: the import function does not lie in the library that registers.
    InvalidApiAddress = 5,
    /// The SDK refused.
    RocprofilerError = 6,
    /// Too many copies of one library.
    ExcessApiInstances = 7,
    /// An argument that cannot be used.
    InvalidArgument = 8,
    /// This process cannot be attached to.
    AttachmentNotAvailable = 9,
}

impl Code {
    /// The number that C sees.
    pub fn raw(self) -> u32 {
        self as u32
    }
}

/// Returns the text for a number. A number that is no code gets AMD's text for that case.
pub fn text(raw: u32) -> &'static CStr {
    match raw {
        0 => c"Success",
        1 => c"rocprofiler-register found no tools",
        2 => c"rocprofiler-register deadlocked",
        3 => c"Library passed an invalid number of API tables",
        4 => c"Library's API is not supported",
        5 => c"Invalid API address (secure mode enabled)",
        6 => c"Unspecified rocprofiler-register error",
        7 => c"Too many instances of the same library API were registered",
        8 => c"rocprofiler-register API function was provided an invalid argument",
        9 => {
            c"rocprofiler-register attach was invoked, but the attachment library was never loaded."
        }
        _ => c"rocprofiler_register_unknown_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_abi_has_its_own_text() {
        let json: &str = include_str!("../../../../api/rocprofiler_register.json");
        let mut seen = std::collections::HashSet::new();
        for raw in 0..10 {
            assert!(seen.insert(text(raw)), "two codes share {:?}", text(raw));
            assert_ne!(text(raw), text(10), "code {raw} is unknown");
            assert!(
                json.contains(&format!("\": {raw},")),
                "code {raw} is not in the ABI file"
            );
        }
        assert_eq!(text(10), c"rocprofiler_register_unknown_error");
        assert_eq!(text(u32::MAX), c"rocprofiler_register_unknown_error");
        assert_eq!(Code::AttachmentNotAvailable.raw(), 9);
    }
}
