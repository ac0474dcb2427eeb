//! What is known of the runtime's executables.

use midair_lockfree::{AtomicEnum, Slot, SlotState, SlotTable, word_enum};
use std::collections::HashMap;
use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

/// How many executables may be destroyed at one time and be seen.
const SLOTS: usize = 64;

/// Whether a kernel with this symbol (its bytes and their number) is chosen: 0 = no. It lives as long
/// as the process.
pub type Takes = unsafe extern "C" fn(*const u8, usize) -> c_int;

/// A session's choice.
#[derive(Debug, Clone)]
pub struct KernelChoice {
    /// Which kernels.
    pub takes: Takes,
    /// Which dispatches of each, counted from 1 where recording began; none: all. Sorted, without
    /// overlaps.
    pub iterations: Vec<RangeInclusive<u64>>,
}

impl KernelChoice {
    /// Whether it takes a kernel. On the worker thread.
    pub(crate) fn has(&self, symbol: &[u8]) -> bool {
        // SAFETY: the tool's function, which is never unloaded, with so many bytes.
        unsafe { (self.takes)(symbol.as_ptr(), symbol.len()) != 0 }
    }

    /// Whether a kernel's dispatch of this number, from 1, is chosen.
    pub(crate) fn has_iteration(&self, number: u64) -> bool {
        let mut ranges = self.iterations.iter();
        self.iterations.is_empty() || ranges.any(|range| range.contains(&number))
    }
}

/// What the runtime has loaded.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Kernel object to kernel id.
    pub kernels: HashMap<u64, u64>,
    /// Whether a kernel object is among those that are counted; empty where all are.
    pub chosen: HashMap<u64, bool>,
    /// Kernels of executables that were destroyed since: for what was dispatched before and is written later.
    pub retired: HashMap<u64, u64>,
    /// Load base to code object id.
    pub code_objects: HashMap<u64, u64>,
    /// Load bases by executable.
    pub bases: HashMap<u64, Vec<u64>>,
    pub next_kernel: u64,
    pub next_code_object: u64,
}

word_enum! {
    /// States of an executable that is being destroyed.
    pub(crate) enum Stage else Claimed {
        /// None.
        Free = 0,
        /// Its thread fills the slot.
        Claimed = 1,
        /// The worker thread is asked to tell its kernels.
        Asked = 2,
        /// The executable may be gone at any moment, and is not looked at again.
        Seen = 3,
    }
}

impl SlotState for Stage {
    const FREE: Stage = Stage::Free;
    const HELD: Stage = Stage::Claimed;
}

/// Executables: what is loaded, and what is about to be destroyed.
#[derive(Debug)]
pub(crate) struct Symbols {
    /// Set by hooks when executables changed.
    pub changed: AtomicBool,
    /// What is loaded. Only the worker thread locks it for long; the application's threads come
    /// here only for packets that were consumed before they were inspected, and then try once.
    pub known: Mutex<Option<Known>>,
    /// What the session counts ([`super::choice`]); none: every dispatch.
    pub choice: Mutex<Option<Arc<KernelChoice>>>,
    /// Number of kernels known: tells whether a look-up is worthwhile.
    pub kernels: AtomicU64,
    /// Executables that are being destroyed.
    pub leaving: SlotTable<AtomicEnum<Stage>, SLOTS, AtomicU64>,
    /// The worker thread looks at executables.
    pub looking: AtomicBool,
}

impl Symbols {
    pub(crate) const fn new() -> Symbols {
        Symbols {
            changed: AtomicBool::new(false),
            known: Mutex::new(None),
            choice: Mutex::new(None),
            kernels: AtomicU64::new(0),
            leaving: SlotTable::new(
                [const { Slot::new(AtomicEnum::new(), AtomicU64::new(0), ()) }; SLOTS],
            ),
            looking: AtomicBool::new(false),
        }
    }
}
