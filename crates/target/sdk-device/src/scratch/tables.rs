//! The tables of changes of scratch memory under way, and of queues that had such a change.

use midair_lockfree::{AtomicKey, Slot, SlotTable};
use midair_sdk_hot::callbacks::work::Notified;
use std::sync::atomic::{AtomicPtr, AtomicU32};

/// How many changes of scratch memory can be under way at a time; a queue has at most three.
pub(crate) const OPEN: usize = 256;
/// The number of distinct queues of a session.
pub(crate) const QUEUES: usize = 1024;

/// The number of entries in the runtime's table for tools: the start and the end of three
/// operations.
pub(crate) const ENTRIES: usize = 6;

/// A change under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub generation: u64,
    pub start: u64,
    /// Bits of [`midair_record::event::flag`].
    pub flags: u8,
    /// Present if tools were notified that the change starts.
    pub told: Option<Notified>,
}

/// What is known about a queue that had a change.
#[derive(Debug)]
pub(crate) struct Known {
    /// Our number for the queue.
    pub number: AtomicU32,
    pub node: AtomicU32,
}

/// What is known about scratch memory in a session, and what the runtime's table held before.
#[derive(Debug)]
pub(crate) struct Scratches {
    /// What the entries of the runtime's table held before ours: nothing, or functions of another
    /// tool.
    pub originals: [AtomicPtr<()>; ENTRIES],
    /// The changes, by the queue's address with the operation in its low bits.
    pub changes: SlotTable<AtomicKey, OPEN, (), Change>,
    /// The queues, by the id in `hsa_queue_t` plus one. Another queue of the process never gets the
    /// same id, while it may get the same address.
    pub known: SlotTable<AtomicKey, QUEUES, Known>,
    /// The last number that was given to a queue that the dispatches' side does not know.
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
