//! A copy under way, and the table of all copies.

use midair_lockfree::{AtomicEnum, Slot, SlotState, SlotTable, word_enum};
use midair_record::event::Untimed;
use midair_sdk_hot::callbacks::work::Notified;
use std::sync::atomic::AtomicUsize;

/// How many copies can be under way at a time.
const CAPACITY: usize = 1 << 13;

word_enum! {
    pub(crate) enum Stage else Held {
        /// The entry has no copy.
        Free = 0,
        /// A thread fills the entry, reads the times, or writes the record.
        Held = 1,
        /// The engine has not ended the copy, as far as is known.
        UnderWay = 2,
        /// Its times are known, or it is known that it will never have any.
        Ended = 3,
    }
}

impl SlotState for Stage {
    const FREE: Stage = Stage::Free;
    const HELD: Stage = Stage::Held;
}

/// What is known when a copy is requested.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// The destination address.
    pub dst: u64,
    /// The source address.
    pub src: u64,
    /// The handle of the destination's agent.
    pub dst_agent: u64,
    /// The handle of the source's agent.
    pub src_agent: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The correlation id.
    pub correlation: u64,
    /// The raw stream handle.
    pub stream: u64,
    /// The thread.
    pub tid: u32,
    /// Bits of [`midair_record::event::flag`].
    pub flags: u8,
    /// The direction (1 H2H … 4 D2D); 0 = to be found by the agents' types.
    pub direction: u32,
    /// Whether the copy is rectangular. Such a call names only the agent whose engine moves the
    /// bytes, which is then in both fields above.
    pub rect: bool,
    /// The completion signal.
    pub signal: u64,
    /// The signal's value before the copy.
    pub value: i64,
    /// When the copy was requested.
    pub asked: u64,
    /// The start and end ticks in the signal before the copy.
    pub stale: (u64, u64),
    /// Present if tools were notified that the copy starts.
    pub told: Option<Notified>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub facts: Facts,
    /// The start and end on the records' clock, or the reason (an [`Untimed`]) why there are none.
    /// Set once the copy has ended.
    pub outcome: Outcome,
}

/// See [`Entry::outcome`].
pub(crate) type Outcome = Result<(u64, u64), Untimed>;

/// The copies of a session.
#[derive(Debug)]
pub(crate) struct Copies {
    /// The entries.
    pub entries: SlotTable<AtomicEnum<Stage>, CAPACITY, (), Entry>,
    /// Where the search for a free entry starts: behind the entry that was claimed last.
    pub next: AtomicUsize,
    /// The approximate number of copies under way.
    pub count: AtomicUsize,
}

impl Copies {
    pub(crate) const fn new() -> Copies {
        Copies {
            entries: SlotTable::new(
                [const {
                    Slot::new(
                        AtomicEnum::new(),
                        (),
                        Entry {
                            facts: Facts {
                                dst: 0,
                                src: 0,
                                dst_agent: 0,
                                src_agent: 0,
                                bytes: 0,
                                correlation: 0,
                                stream: 0,
                                tid: 0,
                                flags: 0,
                                direction: 0,
                                rect: false,
                                signal: 0,
                                value: 0,
                                asked: 0,
                                stale: (0, 0),
                                told: None,
                            },
                            outcome: Ok((0, 0)),
                        },
                    )
                }; CAPACITY],
            ),
            next: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
        }
    }
}
