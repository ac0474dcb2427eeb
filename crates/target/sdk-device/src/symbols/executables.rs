//! What is known about the runtime's executables.

use super::waiting::Waiting;
use midair_lockfree::{AtomicEnum, Slot, SlotState, SlotTable, word_enum};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

/// How many executables can be destroyed at the same time and be seen.
const SLOTS: usize = 64;

/// A function that returns whether a kernel with this symbol (its bytes and their number) is
/// chosen; 0 = no. It lives as long as the process.
pub type Takes = unsafe extern "C" fn(*const u8, usize) -> c_int;

/// A session's choice.
#[derive(Debug, Clone)]
pub struct KernelChoice {
    /// Decides which kernels are chosen; `None` means all.
    pub takes: Option<Takes>,
    /// The chosen dispatches of each kernel, counted from 1 from the start of the recording; empty
    /// means all. Sorted, without overlaps.
    pub iterations: Vec<RangeInclusive<u64>>,
}

impl KernelChoice {
    /// Returns whether a kernel is chosen. On the worker thread.
    pub(crate) fn has(&self, symbol: &[u8]) -> bool {
        // SAFETY: this is the tool's function, which is never unloaded, and it gets the bytes with
        // their number.
        let takes = |takes: Takes| unsafe { takes(symbol.as_ptr(), symbol.len()) != 0 };
        self.takes.is_none_or(takes)
    }

    /// Returns whether a kernel's dispatch with this number, from 1, is chosen.
    pub(crate) fn has_iteration(&self, number: u64) -> bool {
        let mut ranges = self.iterations.iter();
        self.iterations.is_empty() || ranges.any(|range| range.contains(&number))
    }
}

/// What the runtime has loaded.
#[derive(Debug, Default)]
pub(crate) struct LoadedCode {
    /// The kernel id of each kernel object.
    pub kernels: HashMap<u64, u64>,
    /// Whether a kernel object is among those that are counted; empty if all are.
    pub chosen: HashMap<u64, bool>,
    /// The kernels of executables that were destroyed since, for dispatches from before that whose
    /// records are written later.
    pub retired: HashMap<u64, u64>,
    /// The code object id of each load base.
    pub code_objects: HashMap<u64, u64>,
    /// Where code objects lie or lay: from the key to before the first number, and their ids.
    pub ranges: BTreeMap<u64, (u64, u64)>,
    /// The load bases of each executable.
    pub bases: HashMap<u64, Vec<u64>>,
    /// The number of kernels whose names are recorded cut.
    pub cut: u64,
    pub next_kernel: u64,
    pub next_code_object: u64,
}

word_enum! {
    /// States of an executable that is being destroyed.
    pub(crate) enum Stage else Claimed {
        /// The slot is free.
        Free = 0,
        /// A thread is filling the slot.
        Claimed = 1,
        /// The worker thread is asked to record the executable's kernels.
        Requested = 2,
        /// The executable may be gone at any moment, and is not looked at again.
        Seen = 3,
    }
}

impl SlotState for Stage {
    const FREE: Stage = Stage::Free;
    const HELD: Stage = Stage::Claimed;
}

/// The executables that are loaded, and those that are about to be destroyed.
#[derive(Debug)]
pub(crate) struct Symbols {
    /// Set by hooks when executables changed.
    pub changed: AtomicBool,
    /// What is loaded. Only the worker thread locks this for long. The application's threads need
    /// it only for packets that were consumed before they were looked at, and then try the lock
    /// once.
    pub known: Mutex<Option<LoadedCode>>,
    /// What the session counts ([`super::kernel_filter`]); `None` means every dispatch.
    pub choice: Mutex<Option<Arc<KernelChoice>>>,
    /// Records that wait for room in the spool; `None` until the first one, which is all zero
    /// in a box alone. Only the worker thread locks this.
    pub waiting: Mutex<Option<Box<Waiting>>>,
    /// The number of known kernels, which tells whether a look-up is worthwhile.
    pub kernels: AtomicU64,
    /// Executables that are being destroyed.
    pub leaving: SlotTable<AtomicEnum<Stage>, SLOTS, AtomicU64>,
    /// Whether the worker thread is looking at executables.
    pub looking: AtomicBool,
}

impl Symbols {
    pub(crate) const fn new() -> Symbols {
        Symbols {
            changed: AtomicBool::new(false),
            known: Mutex::new(None),
            choice: Mutex::new(None),
            waiting: Mutex::new(None),
            kernels: AtomicU64::new(0),
            leaving: SlotTable::new(
                [const { Slot::new(AtomicEnum::new(), AtomicU64::new(0), ()) }; SLOTS],
            ),
            looking: AtomicBool::new(false),
        }
    }
}
