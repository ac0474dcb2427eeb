//! A copy under way, and the table of all.

use midair_lockfree::{AtomicEnum, Slot, SlotState, SlotTable, word_enum};
use midair_record::event::Untimed;
use midair_sdk_hot::callbacks::work::Told;
use std::sync::atomic::AtomicUsize;

/// Copies that can be under way at one time.
const CAPACITY: usize = 1 << 13;

word_enum! {
    pub(crate) enum Stage else Held {
        /// No copy.
        Free = 0,
        /// One thread fills the entry, reads the times, or writes the record.
        Held = 1,
        /// The engine has not ended it, as far as anybody knows.
        UnderWay = 2,
        /// Its times are known, or that it will never have any.
        Ended = 3,
    }
}

impl SlotState for Stage {
    const FREE: Stage = Stage::Free;
    const HELD: Stage = Stage::Held;
}

/// What is known when a copy is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// Destination address.
    pub dst: u64,
    /// Source address.
    pub src: u64,
    /// Agents' handles: destination.
    pub dst_agent: u64,
    /// Source.
    pub src_agent: u64,
    /// Bytes.
    pub bytes: u64,
    /// Correlation id.
    pub correlation: u64,
    /// Raw stream handle.
    pub stream: u64,
    /// Thread.
    pub tid: u32,
    /// Bits of [`midair_record::event::flag`].
    pub flags: u8,
    /// Direction (1 H2H … 4 D2D), 0 = by the agents' types.
    pub direction: u32,
    /// Rectangular: the call names only the agent whose engine moves the bytes, in both fields above.
    pub rect: bool,
    /// Completion signal.
    pub signal: u64,
    /// Its value before the copy.
    pub value: i64,
    /// When it was asked for.
    pub asked: u64,
    /// Start and end ticks in the signal before the copy.
    pub stale: (u64, u64),
    /// Its beginning was reported to tools.
    pub told: Option<Told>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub facts: Facts,
    /// Start and end in the record clock, or the reason (an [`Untimed`]) why there are none. Once
    /// it has ended.
    pub outcome: Outcome,
}

/// See [`Entry::outcome`].
pub(crate) type Outcome = Result<(u64, u64), Untimed>;

/// The copies of a session.
#[derive(Debug)]
pub(crate) struct Copies {
    /// Entries.
    pub entries: SlotTable<AtomicEnum<Stage>, CAPACITY, (), Entry>,
    /// Where the search for a free entry begins: behind the entry that was claimed last.
    pub next: AtomicUsize,
    /// Copies under way, about.
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
