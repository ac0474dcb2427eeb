//! What `/proc` and ELF files tell of a process, without touching it.
//!
//! Two layers: pure parsers that take bytes ([`maps`], [`stat`], [`status`], [`syscall`],
//! [`link_map::parse`]), to be tested and fuzzed alone, and readers that ask the kernel ([`task`],
//! [`module`], [`access`], all through [`files`]). Everything is keyed on a *live thread id*: once a leader has exited,
//! `/proc/PID/maps` is empty while `/proc/TID/maps` of another thread is not. Names and paths are
//! bytes: a thread may be called anything.
//!
//! Symbols come from the target's own files ([`elf`]), opened through `/proc/TID/map_files`
//! (exactly the file that is mapped, also when it was deleted or lies in another mount namespace),
//! else beneath its root and then checked.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod access;
mod allowance;
mod arch;
pub mod bpf;
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

/// Text of a name or path for messages: what is not UTF-8 is shown as a replacement character. It
/// may hold what a terminal obeys: that is left out where it is printed (`midair_failure::plain`).
pub fn show(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An unsigned decimal number, the whole of `bytes`.
pub(crate) fn decimal<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.trim().parse().ok()
}

/// A hexadecimal number without or with `0x`, the whole of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // from_str_radix would take a sign.
    if digits.starts_with('+') {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}
