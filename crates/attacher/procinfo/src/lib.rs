//! What `/proc` and ELF files tell about a process, without touching the process.
//!
//! There are two layers: pure parsers that take bytes ([`maps`], [`stat`], [`status`], [`syscall`],
//! [`link_map::parse`]) and can be tested and fuzzed alone, and readers that ask the kernel
//! ([`task`], [`module`], [`access`], all through [`files`]). Everything is keyed on a *live thread
//! id*: once a leader has exited, `/proc/PID/maps` is empty while `/proc/TID/maps` of another
//! thread is not. Names and paths are bytes, since the name of a thread may contain any byte.
//!
//! Symbols come from the target's own files ([`elf`]). They are opened through
//! `/proc/TID/map_files`, which is exactly the mapped file even if it was deleted or lies in
//! another mount namespace. Otherwise they are opened beneath the target's root and then checked.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod access;
mod allowance;
mod arch;
pub mod bpf;
pub mod dumpable;
pub mod elf;
pub mod files;
pub mod freezer;
pub mod headroom;
pub mod libc_kind;
pub mod limits;
pub mod link_map;
pub mod maps;
pub mod module;
pub mod stack;
pub mod stat;
pub mod status;
pub mod syscall;
pub mod task;
mod unwind_limits;
mod windows;

pub use allowance::Allowance;
pub use midair_ptrace::{InvalidId, Pid, Tid};

/// Returns a name or path as text for messages. Bytes that are not UTF-8 become a replacement
/// character. The text may still contain characters that a terminal obeys; these are removed where
/// the text is printed (`midair_failure::plain`).
pub fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses an unsigned decimal number that takes up the whole of `bytes`.
pub(crate) fn decimal<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// Parses a hexadecimal number, with or without `0x`, that takes up the whole of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // from_str_radix would accept a sign.
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}
