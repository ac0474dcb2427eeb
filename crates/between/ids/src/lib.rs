//! Ids of processes and threads, as the attaching side's pid namespace numbers them.
//!
//! A [`Pid`] and a [`Tid`] cannot be mixed up, and neither can be zero or negative. The kernel's
//! "no process" is [`None`] here. Ids become plain numbers only at a system call ([`Tid::raw`]),
//! and in files and layouts that are shared with a target ([`Tid::get`]).
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU32;
use std::process::Child;
use std::str::FromStr;

/// The error for a number that no process or thread can have. Ids are 1 to `i32::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidId;

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the id of a process or thread")
    }
}

impl std::error::Error for InvalidId {}

/// The id of a process, that is, of its thread group. It equals the id of the process's first
/// thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(NonZeroU32);

/// The id of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(NonZeroU32);

macro_rules! id {
    ($id:ident) => {
        impl $id {
            /// The largest id that can be written down. No kernel assigns it, since `pid_max` is at
            /// most 2^22.
            pub const MAX: $id = $id(match NonZeroU32::new(i32::MAX.cast_unsigned()) {
                Some(most) => most,
                None => NonZeroU32::MIN,
            });

            /// Returns the id of this number, or None for 0 and for numbers above `i32::MAX`.
            pub const fn new(number: u32) -> Option<$id> {
                match NonZeroU32::new(number) {
                    Some(id) if number <= i32::MAX.cast_unsigned() => Some($id(id)),
                    _ => None,
                }
            }

            /// Returns the number, for files and for layouts that are shared with a target.
            pub const fn get(self) -> u32 {
                self.0.get()
            }

            /// Returns the number as system calls take it (`pid_t`).
            pub const fn raw(self) -> i32 {
                self.get().cast_signed()
            }
        }

        impl TryFrom<u32> for $id {
            type Error = InvalidId;
            fn try_from(number: u32) -> Result<$id, InvalidId> {
                $id::new(number).ok_or(InvalidId)
            }
        }

        impl TryFrom<i32> for $id {
            type Error = InvalidId;
            fn try_from(number: i32) -> Result<$id, InvalidId> {
                u32::try_from(number)
                    .ok()
                    .and_then($id::new)
                    .ok_or(InvalidId)
            }
        }

        impl FromStr for $id {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<$id, InvalidId> {
                text.parse().ok().and_then($id::new).ok_or(InvalidId)
            }
        }

        impl From<$id> for u32 {
            fn from(id: $id) -> u32 {
                id.get()
            }
        }

        impl From<$id> for i32 {
            fn from(id: $id) -> i32 {
                id.raw()
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.get().fmt(f)
            }
        }
    };
}

id!(Pid);
id!(Tid);

thread_local! {
    /// The process for which the calling thread works, if that is not the kernel's answer.
    static ACTS_FOR: Cell<Option<Pid>> = const { Cell::new(None) };
}

/// Sets the process that [`Pid::own`] names on the calling thread; `None`: its own. For a process
/// that works for another one and shares its memory.
pub fn act_for(pid: Option<Pid>) {
    ACTS_FOR.set(pid);
}

impl Pid {
    /// Returns the id of this process.
    pub fn own() -> Pid {
        // The kernel gives no process the id 0.
        ACTS_FOR
            .get()
            .or_else(|| Pid::new(std::process::id()))
            .unwrap_or(Pid::MAX)
    }

    /// Returns the id of a child of this process.
    pub fn of_child(child: &Child) -> Pid {
        Pid::new(child.id()).unwrap_or(Pid::MAX)
    }

    /// Returns the id of its first thread, which is the same number. That thread may have ended
    /// while others continue.
    pub const fn leader(self) -> Tid {
        Tid(self.0)
    }
}

/// A process may be named where any thread of it will do.
impl From<Pid> for Tid {
    fn from(pid: Pid) -> Tid {
        pid.leader()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positive_and_fit_the_kernels_type() {
        for number in [1, 42, i32::MAX.cast_unsigned()] {
            let tid = Tid::new(number).unwrap();
            assert_eq!((tid.get(), tid.raw().cast_unsigned()), (number, number));
            assert_eq!(tid.to_string().parse(), Ok(tid));
            assert_eq!(Tid::try_from(tid.raw()), Ok(tid));
        }
        for number in [0, i32::MAX.cast_unsigned() + 1, u32::MAX] {
            assert_eq!(Pid::new(number), None);
            assert_eq!(Pid::try_from(number.cast_signed()), Err(InvalidId));
        }
        for text in ["", "0", "-1", "x", "4294967295", "1 "] {
            assert_eq!(text.parse::<Pid>(), Err(InvalidId), "{text:?}");
        }
    }

    #[test]
    fn the_first_thread_has_its_process_number() {
        assert_eq!(Pid::own().get(), std::process::id());
        assert_eq!(Pid::own().leader(), Tid::from(Pid::own()));
    }
}
