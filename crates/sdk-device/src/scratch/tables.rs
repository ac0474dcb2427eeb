//! Changes of scratch memory under way, and queues that had one.

use midair_lockfree::{AtomicKey, Slot, SlotTable};
use midair_sdk_hot::callbacks::work::Told;
use std::sync::atomic::{AtomicPtr, AtomicU32};

/// Changes of scratch memory under way at one time: a queue has at most three.
pub(crate) const OPEN: usize = 256;
/// Queues of a session that are told apart.
pub(crate) const QUEUES: usize = 1024;

/// Entries of the runtime's table for tools: start and end of three operations.
pub(crate) const ENTRIES: usize = 6;

/// A change under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub generation: u64,
    pub start: u64,
    /// Bits of [`midair_record::event::flag`].
    pub flags: u8,
    /// Tools were told that it begins.
    pub told: Option<Told>,
}

/// A queue that had a change.
#[derive(Debug)]
pub(crate) struct Known {
    /// Our number for it.
    pub number: AtomicU32,
    pub node: AtomicU32,
}

/// What is known of scratch memory in a session, and what the runtime's table held before.
#[derive(Debug)]
pub(crate) struct Scratches {
    /// What the entries of the runtime's table held before ours: empty, or another tool's.
    pub originals: [AtomicPtr<()>; ENTRIES],
    /// By the queue's address, with the operation in its low bits.
    pub changes: SlotTable<AtomicKey, OPEN, (), Change>,
    /// By the id in `hsa_queue_t`, plus one. That id is never given to another queue of the
    /// process, while the address may be.
    pub known: SlotTable<AtomicKey, QUEUES, Known>,
    /// The last number of a queue that the dispatches' side does not know.
    pub last_number: AtomicU32,
}

impl Scratches {
    pub(crate) const fn new() -> Scratches {
        Scratches {
            originals: [const { AtomicPtr::new(std::ptr::null_mut()) }; ENTRIES],
            changes: SlotTable::new(
                [const {
                    let none = Change {
                        generation: 0,
                        start: 0,
                        flags: 0,
                        told: None,
                    };
                    Slot::new(AtomicKey::new(), (), none)
                }; OPEN],
            ),
            known: SlotTable::new(
                [const {
                    let none = Known {
                        number: AtomicU32::new(0),
                        node: AtomicU32::new(0),
                    };
                    Slot::new(AtomicKey::new(), none, ())
                }; QUEUES],
            ),
            last_number: AtomicU32::new(0),
        }
    }
}
