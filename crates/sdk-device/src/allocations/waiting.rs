//! Which agent owns a pool, and allocations that wait until that is known.

use midair_lockfree::{AtomicEnum, AtomicKey, Slot, SlotState, SlotTable, word_enum};
use midair_record::event::{Allocation, Header};
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// Pools and regions of a process: a machine of eight GPUs has about forty.
pub(crate) const POOLS: usize = 1024;
/// Allocations that can wait for their pool's agent.
const WAITING: usize = 1024;

word_enum! {
    pub(crate) enum Stage else Held {
        /// Nothing.
        Free = 0,
        /// One thread fills the entry or writes its record.
        Held = 1,
        /// It waits for its pool's agent.
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

/// What is known of pools in a session.
#[derive(Debug)]
pub(crate) struct Allocations {
    /// By a pool's handle: its agent's node.
    pub nodes: SlotTable<AtomicKey, POOLS, AtomicU32>,
    /// Pools in that table.
    pub known: AtomicUsize,
    /// Allocations whose pool's agent is not known.
    pub waiting: SlotTable<AtomicEnum<Stage>, WAITING, (), Waiting>,
    /// Allocations that wait, about.
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
