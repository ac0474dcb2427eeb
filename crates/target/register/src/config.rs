//! Settings from the environment. They are read at each call: a program may set a variable before
//! it loads a runtime.
//! In a program that runs with more rights than its user (`midair_secure`), that user must not
//! choose which libraries are loaded. Variables that name a library, or cause one to be loaded,
//! count as not set there. Variables that switch something off, and the level of logging, have
//! their effect everywhere.

use crate::log;
use std::ffi::{CStr, CString};

/// Returns the value of an environment variable that is set and not empty. It is copied
/// immediately, since the program may change it later.
pub fn variable(name: &CStr) -> Option<CString> {
    // SAFETY: `name` is NUL-terminated. The result stays valid until the program changes this
    // variable, which it must not do concurrently with a library's getenv. The result is copied
    // before anything else happens.
    let value = unsafe {
        let raw = libc::getenv(name.as_ptr());
        if raw.is_null() {
            None
        } else {
            Some(CStr::from_ptr(raw).to_owned())
        }
    };
    value.filter(|v| !v.is_empty())
}

/// Does the same for a variable that names a library or causes one to be loaded. Returns None as
/// well in a program that runs with more rights than its user.
fn chosen(name: &CStr) -> Option<CString> {
    if midair_secure::has_more_rights() {
        return None;
    }
    variable(name)
}

/// Reads a switch as AMD does: digits are a number, a few words mean no, anything else means yes.
/// AMD's library ends the process on an empty value; here that counts as not set.
pub fn truth(value: &CStr) -> bool {
    let word = value.to_string_lossy().to_ascii_lowercase();
    if !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()) {
        return word.bytes().any(|b| b != b'0');
    }
    !matches!(word.as_str(), "off" | "false" | "no" | "n" | "f")
}

fn switch(name: &CStr) -> Option<bool> {
    variable(name).map(|v| truth(&v))
}

/// `ROCPROFILER_REGISTER_ENABLED`. When it is false nothing is stored, so the process cannot be
/// attached to later either.
pub fn enabled() -> bool {
    switch(c"ROCPROFILER_REGISTER_ENABLED").unwrap_or(true)
}

/// `ROCPROFILER_REGISTER_SECURE`: registrations must come from the libraries' own files.
pub fn secure() -> bool {
    switch(c"ROCPROFILER_REGISTER_SECURE").unwrap_or(false)
}

/// `ROCPROFILER_REGISTER_LIBRARY`: the SDK to use, and no other.
pub fn sdk_path() -> Option<CString> {
    chosen(c"ROCPROFILER_REGISTER_LIBRARY")
}

/// `LD_LIBRARY_PATH`: the loader's directories.
pub fn library_path() -> Option<CString> {
    chosen(c"LD_LIBRARY_PATH")
}

/// Whether the SDK is to be loaded at the first registration although nothing in the process asks
/// for it.
pub fn force_load() -> bool {
    chosen(c"ROCPROFILER_REGISTER_FORCE_LOAD").map_or_else(
        || sdk_path().is_some() || chosen(c"ROCP_TOOL_LIBRARIES").is_some(),
        |value| truth(&value),
    )
}

/// What `ROCP_TOOL_ATTACH` says about attaching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// Attaching is switched off: there is no listener, and attach calls are refused.
    Refused,
    /// Not set. The listener costs one parked thread, so it is started; AMD's attach helper, whose
    /// queues slow down every dispatch, is not loaded.
    Default,
    /// The variable requests attaching: AMD's attach helper is loaded as well, where it is installed.
    Requested,
}

/// Reads `ROCP_TOOL_ATTACH`. The variable can switch attaching off in every program. It does not
/// load AMD's attach helper into a program that runs with more rights than its user.
pub fn attach() -> Attach {
    match switch(c"ROCP_TOOL_ATTACH") {
        Some(true) if midair_secure::has_more_rights() => Attach::Default,
        Some(true) => Attach::Requested,
        Some(false) => Attach::Refused,
        None => Attach::Default,
    }
}

/// The lowest severity that is printed, from `ROCPROFILER_REGISTER_LOG_LEVEL`: a word, or AMD's -1
/// (trace) to 4. An invalid value counts as the default, warnings (AMD's library ends the process).
pub fn log_level() -> log::Level {
    let Some(value) = variable(c"ROCPROFILER_REGISTER_LOG_LEVEL") else {
        return log::Level::Warning;
    };
    match value.to_string_lossy().to_ascii_lowercase().as_str() {
        "trace" | "-1" => log::Level::Trace,
        "info" | "0" => log::Level::Info,
        "error" | "2" => log::Level::Error,
        "fatal" | "3" | "4" | "none" | "off" => log::Level::Nothing,
        _ => log::Level::Warning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_read_as_amd_reads_them() {
        for yes in [c"1", c"42", c"true", c"yes", c"on", c"anything", c"10"] {
            assert!(truth(yes), "{yes:?}");
        }
        for no in [c"0", c"00", c"off", c"OFF", c"False", c"no", c"N", c"f"] {
            assert!(!truth(no), "{no:?}");
        }
    }
}
