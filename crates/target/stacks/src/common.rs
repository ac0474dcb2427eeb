//! What the parts of this crate share.

use midair_record::event::{Header, Module, NO_STACKS};
use std::ffi::CStr;
use std::sync::atomic::AtomicBool;

/// The record of a module, and its path.
pub type ModuleRecord = (Module, Vec<u8>);

/// Set when a walk meets code that is in no module of the table: a library may have been loaded.
pub(crate) static MISSED: AtomicBool = AtomicBool::new(false);

/// Why no stacks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// The process has no Python that exports its symbols.
    NoPython,
    /// Its Python has another version than those that are read; None for one before 3.9.
    Version(Option<(u64, u64)>),
    /// Its Python has no global lock, and its structures differ.
    FreeThreaded(u64, u64),
    /// Its Python does not describe itself as known ones do.
    Layout,
    /// The system gave no memory.
    Memory,
    /// The unwind tables cannot be read.
    Tables,
    /// Threads of another C library than glibc do not say where their stacks are.
    Library,
    /// Native stacks are not built for this processor.
    Processor,
}

impl Unavailable {
    /// Returns the reason for the user.
    pub fn text(self) -> String {
        let why = match self {
            Unavailable::NoPython => {
                "the process has no Python that exports its symbols (--stacks native takes functions of C++ and others)"
            }
            Unavailable::Version(None) => {
                "the process has a Python before 3.9; only the stacks of Python 3.9 to 3.14 are read"
            }
            Unavailable::Version(Some((major, minor))) => {
                return format!(
                    "{NO_STACKS}the process has Python {major}.{minor}; only the stacks of Python 3.9 to 3.14 are read"
                );
            }
            Unavailable::FreeThreaded(major, minor) => {
                return format!(
                    "{NO_STACKS}the process has Python {major}.{minor}t; the stacks of a Python without its global lock are not read"
                );
            }
            Unavailable::Layout => "the layout of the process's Python is not known",
            Unavailable::Memory => "no memory is left",
            Unavailable::Tables => "the process may not read its own memory (process_vm_readv)",
            Unavailable::Library => "native stacks need glibc in the process",
            Unavailable::Processor => "native stacks are built for x86-64 only",
        };
        format!("{NO_STACKS}{why}")
    }

    /// Returns the same for one of two kinds of stacks, of which the other is taken.
    pub fn partly(self, kind: &str) -> String {
        let text = self.text();
        let why = text.strip_prefix(NO_STACKS).unwrap_or(&text);
        format!("no {kind} stacks are taken (--stacks): {why}")
    }
}

/// Returns the address of an exported symbol; 0 where there is none.
pub(crate) fn symbol(name: &CStr) -> usize {
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr()
}

/// Mixes a word into a hash.
pub(crate) fn mix(key: u64, word: u64) -> u64 {
    let product = u128::from(key ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product as u64) ^ (product >> 64) as u64
}

/// Returns the header of a record of type `T` with `tail` bytes behind it (a multiple of 8).
pub(crate) const fn header<T>(kind: u8, operation: u32, tail: usize) -> Header {
    Header {
        size: (size_of::<T>() + tail) as u16,
        kind,
        flags: 0,
        operation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_known_to_the_attacher_by_its_start() {
        for why in [
            Unavailable::NoPython,
            Unavailable::Version(None),
            Unavailable::Version(Some((3, 15))),
            Unavailable::FreeThreaded(3, 14),
            Unavailable::Layout,
            Unavailable::Memory,
            Unavailable::Tables,
            Unavailable::Library,
            Unavailable::Processor,
        ] {
            assert!(why.text().starts_with(NO_STACKS), "{why:?}");
            assert!(!why.partly("native").starts_with(NO_STACKS), "{why:?}");
        }
    }
}
