//! The table of pools and their agents, and allocations that wait until their pool's agent is
//! known.

use midair_lockfree::{AtomicEnum, AtomicKey, Slot, SlotState, SlotTable, word_enum};
use midair_record::event::{Allocation, Header};
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// The largest number of pools and regions of a process; a machine with eight GPUs has about forty.
pub(crate) const POOLS: usize = 1024;
/// How many allocations can wait for their pool's agent.
const WAITING: usize = 1024;

word_enum! {
    pub(crate) enum Stage else Held {
        /// The entry is free.
        Free = 0,
        /// A thread fills the entry or writes its record.
        Held = 1,
        /// The allocation waits for its pool's agent.
        Waiting = 2,
    }
}

impl SlotState for Stage {
    const FREE: Stage = Stage::Free;
    const HELD: Stage = Stage::Held;
}

/// An allocation whose pool's agent is not known.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub pool: u64,
    pub record: Allocation,
}

/// What is known about pools in a session.
#[derive(Debug)]
pub(crate) struct Allocations {
    /// The node of a pool's agent, by the pool's handle.
    pub nodes: SlotTable<AtomicKey, POOLS, AtomicU32>,
    /// The number of pools in that table.
    pub known: AtomicUsize,
    /// The allocations whose pool's agent is not known.
    pub waiting: SlotTable<AtomicEnum<Stage>, WAITING, (), Waiting>,
    /// The approximate number of allocations that wait.
    pub count: AtomicUsize,
}

impl Allocations {
    pub(crate) const fn new() -> Allocations {
        Allocations {
            nodes: SlotTable::new(
                [const { Slot::new(AtomicKey::new(), AtomicU32::new(0), ()) }; POOLS],
            ),
            known: AtomicUsize::new(0),
            waiting: SlotTable::new(
                [const {
                    Slot::new(
                        AtomicEnum::new(),
                        (),
                        Waiting {
                            pool: 0,
                            record: Allocation {
                                header: Header {
                                    size: 0,
                                    kind: 0,
                                    flags: 0,
                                    operation: 0,
                                },
                                start: 0,
                                end: 0,
                                correlation: 0,
                                ancestor: 0,
                                address: 0,
                                bytes: 0,
                                stream: 0,
                                node: 0,
                                tid: 0,
                            },
                        },
                    )
                }; WAITING],
            ),
            count: AtomicUsize::new(0),
        }
    }
}
