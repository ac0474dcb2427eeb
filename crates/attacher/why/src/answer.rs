//! The answer about a process: what was seen of it, and what it waits for.

use crate::python;
use crate::threads::Frame;
use std::time::Duration;

/// What was seen of one process.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its rank, where a launcher has set one.
    pub rank: Option<u32>,
    /// The time between the first and the second look at its queues.
    pub looked: Duration,
    /// The time that everything took.
    pub took: Duration,
    /// What it waits for, the most telling reason first. There is at least one.
    pub reasons: Vec<Reason>,
    /// Its queues, sorted by their numbers in the runtime.
    pub queues: Vec<Queue>,
    /// Its threads, the main thread first.
    pub threads: Vec<Thread>,
    /// What could not be seen, and why.
    pub notes: Vec<String>,
}

/// What the process waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Which kind of reason.
    pub kind: ReasonKind,
    /// The reason in one sentence.
    pub what: String,
    /// The queue that it concerns, by [`Queue::number`].
    pub queue: Option<usize>,
    /// The thread that it concerns.
    pub thread: Option<u32>,
}

/// Kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasonKind {
    /// The process stands still because of job control or a freezer.
    Stopped,
    /// Threads wait for one another's locks.
    Deadlock,
    /// A packet waits for a signal that no queue would complete.
    LostBarrier,
    /// A packet was reserved in a queue and never written.
    Unwritten,
    /// A kernel has not ended.
    Kernel,
    /// A packet waits for another queue.
    Barrier,
    /// A packet without a dependency has not started.
    NotTaken,
    /// A thread waits in a collective call of RCCL, NCCL or MPI.
    Collective,
    /// A thread waits for a lock.
    Lock,
    /// A thread waits in a call of the runtime while no queue has work.
    Host,
    /// Threads run and no queue has work.
    Computing,
    /// Work makes progress.
    Running,
    /// There is nothing to do.
    Idle,
}

impl ReasonKind {
    /// Returns its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            ReasonKind::Stopped => "stopped",
            ReasonKind::Deadlock => "deadlock",
            ReasonKind::LostBarrier => "lost_barrier",
            ReasonKind::Unwritten => "unwritten_packet",
            ReasonKind::Kernel => "kernel",
            ReasonKind::Barrier => "barrier",
            ReasonKind::NotTaken => "not_taken",
            ReasonKind::Collective => "collective",
            ReasonKind::Lock => "lock",
            ReasonKind::Host => "host_call",
            ReasonKind::Computing => "computing",
            ReasonKind::Running => "running",
            ReasonKind::Idle => "idle",
        }
    }
}

/// A queue of the HSA runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    /// Its number from 1 on, in the order of the runtime's own numbers.
    pub number: usize,
    /// The runtime's own number.
    pub id: u64,
    /// The address of its `amd_queue_t`, which is the handle that programs have.
    pub address: u64,
    /// The driver's number of its GPU, where it is known.
    pub gpu_id: Option<u32>,
    /// The number of packets that fit into it.
    pub size: u32,
    /// Packets that have left it since it was made, and packets that were reserved in it.
    pub read: u64,
    /// See `read`.
    pub written: u64,
    /// Packets that left it between the two looks.
    pub moved: u64,
    /// Kernels that have started and not ended, the latest first.
    pub running: Vec<Dispatch>,
    /// The packet in front.
    pub front: Front,
}

/// A kernel that was launched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dispatch {
    /// The index of its packet in the queue.
    pub packet: u64,
    /// The kernel's short name, or None where no code object contains it.
    pub kernel: Option<String>,
    /// Its name in the code object.
    pub symbol: Option<String>,
    /// The packet's kernel object.
    pub kernel_object: u64,
    /// Work items of the grid.
    pub grid: [u32; 3],
    /// Work items of a workgroup.
    pub workgroup: [u32; 3],
    /// Its completion signal and that signal's value, where it has one.
    pub signal: Option<(u64, i64)>,
    /// The least time that it has been running: from the first look to the last.
    pub at_least: Duration,
    /// Whether it may have ended already. That cannot be determined where it has no completion signal and
    /// nothing waits behind it.
    pub may_have_ended: bool,
}

/// The packet in front of a queue, which the device takes next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Front {
    /// Nothing: the queue is empty.
    #[default]
    Empty,
    /// The packet was reserved and is not written.
    Unwritten {
        /// Its index.
        packet: u64,
    },
    /// It waits for all packets before it.
    AfterAll {
        /// Its index.
        packet: u64,
        /// What it is: a kernel's name, or a word.
        what: String,
    },
    /// The packet waits for signals.
    Signals {
        /// Its index.
        packet: u64,
        /// What it is.
        what: String,
        /// One of the signals is enough.
        any: bool,
        /// The signals that have not reached their values.
        waits: Vec<Wait>,
    },
    /// No visible dependency blocks the packet.
    Free {
        /// Its index.
        packet: u64,
        /// What it is.
        what: String,
    },
}

/// A signal that a packet waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wait {
    /// Its handle.
    pub signal: u64,
    /// Its value; None where it cannot be read.
    pub value: Option<i64>,
    /// Packets whose end would complete it. If there are none, the host, a copy engine or another
    /// process has to complete it.
    pub by: Vec<Completer>,
}

/// A packet that would complete a signal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completer {
    /// Its queue, by [`Queue::number`].
    pub queue: usize,
    /// Its index there.
    pub packet: u64,
    /// What it is: a kernel's name, or a word.
    pub what: String,
    /// It has started.
    pub runs: bool,
}

/// A runtime that threads call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    /// `libamdhip64`.
    Hip,
    /// `libhsa-runtime64`.
    Hsa,
    /// `libcuda`, `libcudart`.
    Cuda,
    /// `librccl`.
    Rccl,
    /// `libnccl`.
    Nccl,
    /// `libmpi`.
    Mpi,
}

impl Runtime {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Runtime::Hip => "HIP",
            Runtime::Hsa => "HSA",
            Runtime::Cuda => "CUDA",
            Runtime::Rccl => "RCCL",
            Runtime::Nccl => "NCCL",
            Runtime::Mpi => "MPI",
        }
    }

    /// Whether other processes take part in its calls.
    pub fn is_collective(self) -> bool {
        matches!(self, Runtime::Rccl | Runtime::Nccl | Runtime::Mpi)
    }
}

/// A lock that a thread waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock {
    /// Its address.
    pub address: u64,
    /// The thread that holds it, where the lock names a thread that exists.
    pub holder: Option<u32>,
}

/// A thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// Its id in the process's own pid namespace.
    pub own_tid: u32,
    /// Its name.
    pub name: String,
    /// The state letter of ps(1): `R`, `S`, `D` and so on.
    pub state: char,
    /// The share of a processor that it took between the two looks.
    pub processor: f64,
    /// How often it had been given a processor at the first look.
    pub(crate) runs: u64,
    /// How often it was given a processor between the two looks.
    pub(crate) turns: u64,
    /// The outermost call of a runtime that it is in.
    pub call: Option<(Runtime, String)>,
    /// The runtime that the thread belongs to, where it is a runtime's own.
    pub is_runtimes: Option<Runtime>,
    /// The lock that it waits for.
    pub lock: Option<Lock>,
    /// Its native stack, innermost first.
    pub frames: Vec<Frame>,
    /// Whether the stack was followed to its root.
    pub rooted: bool,
    /// Its stack in Python, innermost first.
    pub python: Vec<python::Frame>,
}
