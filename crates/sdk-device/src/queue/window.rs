//! What the application's threads and the worker thread share of [`super::windows`].

use midair_lockfree::{AtomicEnum, Cell, WordQueue, word_enum};
use midair_record::counter_plan::Plan;
use midair_rotation::Rotation;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

/// Windows of a session at most. They are numbered from 1.
pub(crate) const MOST: usize = 1024;
/// Agents with counters at most.
pub(crate) const AGENTS: usize = 16;
/// Groups of all agents at most.
pub(crate) const POOLS: usize = 256;
/// Windows of one group at most; a power of two.
pub(crate) const OF_A_GROUP: usize = 32;
/// [`super::flight::Launch::window`] of a packet of ours.
pub(crate) const OURS: u16 = u16::MAX;
/// [`Window::dispatch`] where the packet in the window was no dispatch.
pub(crate) const NO_DISPATCH: u64 = u64::MAX;

word_enum! {
    /// Where a window is.
    pub enum Stage else Idle {
        /// With the worker thread, or ready to be taken.
        Idle = 0,
        /// In a ring.
        Reserved = 1,
    }
}

/// One window: what its two packets say. Written by the worker thread while it is idle.
#[derive(Debug)]
pub(crate) struct Window {
    /// See [`Stage`].
    pub stage: AtomicEnum<Stage>,
    /// Address of the commands that start the counters, and how many words they are.
    pub start: (AtomicU64, AtomicU32),
    /// The same of those that read and stop.
    pub read: (AtomicU64, AtomicU32),
    /// Completion signals of both packets.
    pub signals: [AtomicU64; 2],
    /// The queue that it is on ([`super::queue_state::QueueState::id`]).
    pub queue: AtomicU32,
    /// [`midair_rotation::ClassKey`] of the dispatch in it.
    pub class: AtomicU64,
    /// Number of the dispatch in it; 0 as long as nobody has looked, [`NO_DISPATCH`].
    pub dispatch: AtomicU64,
}

impl Window {
    const fn new() -> Window {
        Window {
            stage: AtomicEnum::new(),
            start: (AtomicU64::new(0), AtomicU32::new(0)),
            read: (AtomicU64::new(0), AtomicU32::new(0)),
            signals: [const { AtomicU64::new(0) }; 2],
            queue: AtomicU32::new(0),
            class: AtomicU64::new(0),
            dispatch: AtomicU64::new(0),
        }
    }
}

/// Numbers of windows of one group that are ready.
#[derive(Debug)]
pub(crate) struct Pool(pub WordQueue<OF_A_GROUP>);

/// An agent's turn ([`super::windows::exclusive`]): until when in microseconds (upper half), the queue,
/// and the window (0 = not open yet). 0: nobody has it.
#[derive(Debug)]
pub(crate) struct Word(pub AtomicU64);

impl Word {
    const fn new() -> Word {
        Word(AtomicU64::new(0))
    }

    /// The window was read: its number may be used again.
    pub(super) fn was_read(&self, window: u16) {
        let word = self.0.load(Acquire);
        if word as u16 == window {
            // Another turn may have begun; that one stays.
            let _ = self.0.compare_exchange(word, 0, SeqCst, Relaxed);
        }
    }
}

/// What the application's threads must know of an agent with counters.
#[derive(Debug)]
pub(crate) struct Counted {
    /// Which group comes next. Mapped by the worker thread, and never unmapped.
    pub rotation: AtomicPtr<Rotation>,
    /// The pool of its group 0; those of the others follow.
    pub first_pool: AtomicU32,
    /// Whose turn it is to have the agent for itself.
    pub turn: Word,
}

/// What the application's threads share with the worker thread.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Whether windows are taken at all.
    pub on: AtomicBool,
    /// Whether queues of the application are to count for the whole device: only those get packets
    /// of ours whose application looks whether there is room.
    pub switches: AtomicBool,
    /// Whether a window is to have its agent for itself.
    pub exclusive: AtomicBool,
    /// Launches without a window, since other queues of the agent did not end in time.
    pub not_alone: AtomicU64,
    /// All of them; number 1 is the first.
    pub all: [Window; MOST],
    /// Windows that are ready, by group.
    pub pools: [Pool; POOLS],
    /// Agents with counters.
    pub agents: [Counted; AGENTS],
    /// Launches without a window, since the ring was more than half full.
    pub no_room: AtomicU64,
    /// Launches without a window, since none was ready.
    pub none_ready: AtomicU64,
    /// The session's plan.
    pub plan: Mutex<Option<Box<Plan>>>,
}

impl Windows {
    pub(crate) const fn new() -> Windows {
        Windows {
            on: AtomicBool::new(false),
            switches: AtomicBool::new(false),
            exclusive: AtomicBool::new(false),
            not_alone: AtomicU64::new(0),
            all: [const { Window::new() }; MOST],
            pools: [const { Pool(WordQueue::new([const { Cell::new() }; OF_A_GROUP])) }; POOLS],
            agents: [const {
                Counted {
                    rotation: AtomicPtr::new(std::ptr::null_mut()),
                    first_pool: AtomicU32::new(0),
                    turn: Word::new(),
                }
            }; AGENTS],
            no_room: AtomicU64::new(0),
            none_ready: AtomicU64::new(0),
            plan: Mutex::new(None),
        }
    }

    /// Which group comes next on an agent.
    pub(crate) fn rotation(&self, agent: usize) -> Option<&'static Rotation> {
        let at = self.agents.get(agent)?.rotation.load(Acquire);
        // SAFETY: null, or a table that was made by the worker thread and stays.
        unsafe { at.as_ref() }
    }

    /// Windows of a group that are ready.
    pub(crate) fn pool(&self, agent: usize, group: u32) -> Option<&WordQueue<OF_A_GROUP>> {
        let first = self.agents.get(agent)?.first_pool.load(Relaxed);
        Some(&self.pools.get(first.checked_add(group)? as usize)?.0)
    }

    /// The window with this number.
    pub(crate) fn numbered(&self, number: u16) -> Option<&Window> {
        self.all.get(usize::from(number).checked_sub(1)?)
    }
}
