//! What the application's threads and the worker thread share of [`super::windows`].

use super::choices::Choices;
use super::choosing::Choosing;
use midair_lockfree::{AtomicEnum, Cell, WordQueue, word_enum};
use midair_record::counter_plan::Plan;
use midair_rotation::Rotation;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64};

/// Windows of a session at most. They are numbered from 1.
pub(crate) const MOST: usize = 1024;
/// Agents with counters at most.
pub(crate) const AGENTS: usize = 16;
/// Groups of all agents at most.
pub(crate) const POOLS: usize = 256;
/// Windows of one group at most; a power of two.
pub(crate) const OF_A_GROUP: usize = 32;
/// Packets of the application's in one window at most.
pub(crate) const MOST_PACKETS: u64 = 1 << 12;
/// Windows of the kernels behind a guard at most. Kernels beyond them are moved without one.
pub(crate) const MOST_GUARDED: usize = 64;
/// [`super::flight::Launch::window`] of a packet of ours.
pub(crate) const OURS: u16 = u16::MAX;
/// The same of a packet of the application's behind a guard ([`Guard`]).
pub(crate) const GUARDED: u16 = u16::MAX - 1;
/// [`Window::dispatch`] where the packet in the window was no dispatch.
pub(crate) const NO_DISPATCH: u64 = u64::MAX;

word_enum! {
    /// Where a window is.
    pub enum Stage else Idle {
        /// With the worker thread, or ready to be taken.
        Idle = 0,
        /// In a ring.
        Reserved = 1,
        /// In none: its batch was not moved (`windows::guard`).
        Late = 2,
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
    /// [`midair_rotation::ClassKey`] of the last dispatch in it.
    pub class: AtomicU64,
    /// Number of the first dispatch in it; 0 as long as nobody has looked, [`NO_DISPATCH`].
    pub dispatch: AtomicU64,
    /// Index of the first packet of the application's in it, and how many there are.
    pub packets: (AtomicU64, AtomicU32),
    /// How many of them were looked at, and how many of these were, or may have been, dispatches.
    /// Written under the queue's spin word.
    pub looked: (AtomicU32, AtomicU32),
}

/// What a packet in a window was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A dispatch with this number.
    Dispatch(u64),
    /// A dispatch that is not recorded, or a packet that nobody saw.
    Unrecorded,
    /// No dispatch.
    Other,
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
            packets: (AtomicU64::new(0), AtomicU32::new(0)),
            looked: (AtomicU32::new(0), AtomicU32::new(0)),
        }
    }

    /// A packet in it was looked at. Once for each, under the queue's spin word.
    pub(crate) fn saw(&self, inside: Inside) {
        let (looked, dispatches) = (&self.looked.0, &self.looked.1);
        let (count, all) = (looked.load(Relaxed) + 1, self.packets.1.load(Relaxed));
        match inside {
            Inside::Dispatch(number) => {
                dispatches.store(dispatches.load(Relaxed) + 1, Relaxed);
                if self.dispatch.load(Relaxed) == 0 {
                    self.dispatch.store(number, Relaxed);
                }
            }
            Inside::Unrecorded => dispatches.store(dispatches.load(Relaxed) + 1, Relaxed),
            Inside::Other => {}
        }
        if count >= all && self.dispatch.load(Relaxed) == 0 {
            self.dispatch.store(NO_DISPATCH, Relaxed);
        }
        looked.store(count, Release);
    }

    /// Whether all packets in it were looked at.
    pub(crate) fn is_known(&self) -> bool {
        self.looked.0.load(Acquire) >= self.packets.1.load(Relaxed)
    }
}

word_enum! {
    /// Where a queue's guard is, see [`Guard`].
    pub enum GuardStage else Opening {
        /// There is none.
        Idle = 0,
        /// A thread is about to shut it.
        Claimed = 1,
        /// The device waits at it, or will.
        Shut = 2,
        /// A thread is about to open it.
        Opening = 3,
    }
}

/// The guard of a queue (`windows::guard`): one at a time. All-zero is none.
#[derive(Debug)]
#[repr(C)]
pub struct Guard {
    /// See [`GuardStage`].
    pub stage: AtomicEnum<GuardStage>,
    /// Packets of the application's behind it.
    pub count: AtomicU32,
    /// Index of the guard.
    pub first: AtomicU64,
    /// Since when it is shut.
    pub since: AtomicU64,
    /// How many windows were taken for it.
    pub taken: AtomicU32,
    /// How often it was opened by the limit.
    pub late: AtomicU32,
    /// The windows' numbers and groups.
    pub windows: [(AtomicU16, AtomicU32); MOST_GUARDED],
}

impl Guard {
    /// Numbers and groups of the windows that were taken for it.
    pub fn windows(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        let taken = self.taken.load(Relaxed) as usize;
        let all = self.windows.iter().take(taken);
        all.map(|(number, group)| (number.load(Relaxed), group.load(Relaxed)))
    }

    /// One past the last packet that was reserved with it.
    pub fn end(&self) -> u64 {
        let (count, taken) = (self.count.load(Relaxed), self.taken.load(Relaxed));
        let behind = 1 + 2 * u64::from(count) + 2 * u64::from(taken);
        self.first.load(Relaxed).wrapping_add(behind)
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
    /// When recording began to end, on the records' clock (ns); 0 while it goes on. What is launched
    /// later has no record, so nobody knows what ran beside a window that was still open.
    pub until: AtomicU64,
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
    /// Whether the user asks for values of each kernel of a batch.
    pub guards: AtomicBool,
    /// Guards that were shut, and those of them behind which kernels were moved.
    pub shut: AtomicU64,
    pub moved: AtomicU64,
    /// Which kernels' launches are to have windows.
    pub choices: Choices,
    /// The session's plan.
    pub plan: Mutex<Option<Box<Plan>>>,
    /// Tools in the process that choose dispatches.
    pub choosing: Choosing,
}

impl Windows {
    pub(crate) const fn new() -> Windows {
        Windows {
            on: AtomicBool::new(false),
            until: AtomicU64::new(0),
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
            guards: AtomicBool::new(false),
            shut: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            choices: Choices::new(),
            plan: Mutex::new(None),
            choosing: Choosing::new(),
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
