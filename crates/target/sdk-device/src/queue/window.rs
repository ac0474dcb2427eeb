//! The state of [`super::windows`] that the application's threads and the worker thread share.

use super::choosing::Choosing;
use super::kernel_lists::Choices;
use midair_lockfree::{AtomicEnum, Cell, WordQueue, word_enum};
use midair_record::counter_plan::Plan;
use midair_rotation::Rotation;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64};

/// The largest number of windows in a session. They are numbered from 1.
pub(crate) const MOST: usize = 1024;
/// The largest number of agents with counters.
pub(crate) const AGENTS: usize = 16;
/// The largest number of groups, of all agents together.
pub(crate) const POOLS: usize = 256;
/// The largest number of windows of one group; a power of two.
pub(crate) const OF_A_GROUP: usize = 32;
/// The largest number of the application's packets in one window.
pub(crate) const MOST_PACKETS: u64 = 1 << 12;
/// The largest number of windows for the kernels behind a guard. Kernels beyond that are moved
/// without a window.
pub(crate) const MOST_GUARDED: usize = 64;
/// The value of [`super::flight::Launch::window`] for a midair packet.
pub(crate) const OURS: u16 = u16::MAX;
/// The same for a packet of the application behind a guard ([`Guard`]).
pub(crate) const GUARDED: u16 = u16::MAX - 1;
/// The value of [`Window::dispatch`] if the packet in the window was no dispatch.
pub(crate) const NO_DISPATCH: u64 = u64::MAX;

word_enum! {
    /// Where a window is.
    pub enum Stage else Idle {
        /// The worker thread has it, or it is ready to be taken.
        Idle = 0,
        /// It is in a ring.
        Reserved = 1,
        /// It is in no ring, since its batch was not moved (`windows::guard`).
        Late = 2,
    }
}

/// One window: the contents of its two packets, and what was seen in between. The worker thread
/// writes the contents while the window is idle.
#[derive(Debug)]
pub(crate) struct Window {
    /// See [`Stage`].
    pub stage: AtomicEnum<Stage>,
    /// The address and the number of words of the commands that start the counters.
    pub start: (AtomicU64, AtomicU32),
    /// The same for the commands that read and stop the counters.
    pub read: (AtomicU64, AtomicU32),
    /// The completion signals of both packets.
    pub signals: [AtomicU64; 2],
    /// The queue that the window is on ([`super::queue_state::QueueState::id`]).
    pub queue: AtomicU32,
    /// The [`midair_rotation::ClassKey`] of the last dispatch in the window.
    pub class: AtomicU64,
    /// The number of the first dispatch in the window; 0 until its packets were looked at, and
    /// [`NO_DISPATCH`] if there was none.
    pub dispatch: AtomicU64,
    /// The index of the application's first packet in the window, and how many such packets there
    /// are.
    pub packets: (AtomicU64, AtomicU32),
    /// How many of these packets were looked at, and how many of those were, or may have been,
    /// dispatches. Written under the queue's spin word.
    pub looked: (AtomicU32, AtomicU32),
}

/// What a packet in a window was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A dispatch with this number.
    Dispatch(u64),
    /// A dispatch that is not recorded, or a packet that we did not see.
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

    /// Notes a packet in the window that was looked at. Called once for each packet, under the
    /// queue's spin word.
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

    /// Returns whether all packets in the window were looked at.
    pub(crate) fn is_known(&self) -> bool {
        self.looked.0.load(Acquire) >= self.packets.1.load(Relaxed)
    }
}

word_enum! {
    /// The stage of a queue's guard, see [`Guard`].
    pub enum GuardStage else Opening {
        /// There is none.
        Idle = 0,
        /// A thread is about to shut the guard.
        Claimed = 1,
        /// The guard is shut: the device waits at it, or will.
        Shut = 2,
        /// A thread is about to open the guard.
        Opening = 3,
    }
}

/// The guard of a queue (`windows::guard`). A queue has one at a time. All zero bytes mean that
/// there is none.
#[derive(Debug)]
#[repr(C)]
pub struct Guard {
    /// See [`GuardStage`].
    pub stage: AtomicEnum<GuardStage>,
    /// The number of the application's packets behind it.
    pub count: AtomicU32,
    /// The index of the guard's packet.
    pub first: AtomicU64,
    /// Since when the guard is shut.
    pub since: AtomicU64,
    /// The number of windows that were taken for it.
    pub taken: AtomicU32,
    /// How often a guard of this queue was opened because of the time limit.
    pub late: AtomicU32,
    /// The numbers and groups of these windows.
    pub windows: [(AtomicU16, AtomicU32); MOST_GUARDED],
}

impl Guard {
    /// Returns the numbers and groups of the windows that were taken for it.
    pub fn windows(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        let taken = self.taken.load(Relaxed) as usize;
        let all = self.windows.iter().take(taken);
        all.map(|(number, group)| (number.load(Relaxed), group.load(Relaxed)))
    }

    /// Returns the index one past the last packet that was reserved with it.
    pub fn end(&self) -> u64 {
        let (count, taken) = (self.count.load(Relaxed), self.taken.load(Relaxed));
        let behind = 1 + 2 * u64::from(count) + 2 * u64::from(taken);
        self.first.load(Relaxed).wrapping_add(behind)
    }
}

/// The numbers of the windows of one group that are ready.
#[derive(Debug)]
pub(crate) struct Pool(pub WordQueue<OF_A_GROUP>);

/// An agent's turn ([`super::windows::exclusive`]): the time until which it lasts in microseconds
/// (upper half), the queue, and the window (0 = not open yet). The whole word is 0 if no queue has
/// the turn.
#[derive(Debug)]
pub(crate) struct Word(pub AtomicU64);

impl Word {
    const fn new() -> Word {
        Word(AtomicU64::new(0))
    }

    /// Ends the turn of a window that was read, since its number may be used again.
    pub(super) fn was_read(&self, window: u16) {
        let word = self.0.load(Acquire);
        if word as u16 == window {
            // If another turn has started meanwhile, that one stays.
            let _ = self.0.compare_exchange(word, 0, SeqCst, Relaxed);
        }
    }
}

/// What the application's threads must know about an agent with counters.
#[derive(Debug)]
pub(crate) struct Counted {
    /// The agent's handle; 0 while no session counts on it.
    pub handle: AtomicU64,
    /// The table that says which group comes next. The worker thread maps it, and it is never
    /// unmapped.
    pub rotation: AtomicPtr<Rotation>,
    /// The index of the pool of its group 0; the pools of its other groups follow.
    pub first_pool: AtomicU32,
    /// The turn of the queue that has the agent to itself.
    pub turn: Word,
}

/// The state that the application's threads share with the worker thread.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Whether windows are taken at all.
    pub on: AtomicBool,
    /// When recording started to end, on the records' clock (ns); 0 while it goes on. What is
    /// launched later has no record, so it cannot be determined what ran alongside a window that was still
    /// open.
    pub until: AtomicU64,
    /// Whether queues of the application are to count for the whole device. Our packets then go
    /// only into queues whose application checks for room.
    pub switches: AtomicBool,
    /// Whether a window is to have its agent to itself.
    pub exclusive: AtomicBool,
    /// The number of launches without a window, since the work of the agent's other queues did not
    /// end in time.
    pub not_alone: AtomicU64,
    /// All windows; the first has number 1.
    pub all: [Window; MOST],
    /// The windows that are ready, by group.
    pub pools: [Pool; POOLS],
    /// The agents with counters.
    pub agents: [Counted; AGENTS],
    /// The number of launches without a window, since the ring was more than half full.
    pub no_room: AtomicU64,
    /// The number of launches without a window, since none was ready.
    pub none_ready: AtomicU64,
    /// The number of launches on queues that can have no windows: an intercept queue, a queue
    /// without times, a queue that is rung past our hooks, or a queue whose program does not check
    /// for room in its ring.
    pub unfit: AtomicU64,
    /// The number of reservations that can have no window, since the program chose the index
    /// itself.
    pub other_ways: AtomicU64,
    /// Whether the person who profiles asks for the values of each kernel of a batch.
    pub guards: AtomicBool,
    /// The number of guards that were shut; `moved` is the number of those behind which kernels
    /// were moved.
    pub shut: AtomicU64,
    pub moved: AtomicU64,
    /// The choice of kernels whose launches get windows.
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
                    handle: AtomicU64::new(0),
                    rotation: AtomicPtr::new(std::ptr::null_mut()),
                    first_pool: AtomicU32::new(0),
                    turn: Word::new(),
                }
            }; AGENTS],
            no_room: AtomicU64::new(0),
            none_ready: AtomicU64::new(0),
            unfit: AtomicU64::new(0),
            other_ways: AtomicU64::new(0),
            guards: AtomicBool::new(false),
            shut: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            choices: Choices::new(),
            plan: Mutex::new(None),
            choosing: Choosing::new(),
        }
    }

    /// Returns which windows the queues of an agent use, as in
    /// [`super::queue_state::QueueState::windows_of`]; 0 = none.
    pub(crate) fn of_agent(&self, handle: u64) -> u32 {
        let is_it = |agent: &Counted| agent.handle.load(Acquire) == handle;
        let found = self.agents.iter().position(is_it).filter(|_| handle != 0);
        found.map_or(0, |agent| agent as u32 + 1)
    }

    /// Returns the table that says which group comes next on an agent.
    pub(crate) fn rotation(&self, agent: usize) -> Option<&'static Rotation> {
        let at = self.agents.get(agent)?.rotation.load(Acquire);
        // SAFETY: the pointer is null, or a table that the worker thread has mapped and that is
        // never unmapped.
        unsafe { at.as_ref() }
    }

    /// Returns the ready windows of a group.
    pub(crate) fn pool(&self, agent: usize, group: u32) -> Option<&WordQueue<OF_A_GROUP>> {
        let first = self.agents.get(agent)?.first_pool.load(Relaxed);
        Some(&self.pools.get(first.checked_add(group)? as usize)?.0)
    }

    /// Returns the window with this number.
    pub(crate) fn numbered(&self, number: u16) -> Option<&Window> {
        self.all.get(usize::from(number).checked_sub(1)?)
    }
}
