//! The options that a caller may choose, and the named points for fault injection.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use midair_ptrace::fault;

/// Environment variable of the attacher. It has the beginnings of names of threads that are never
/// borrowed, separated by commas.
pub const NEVER_BORROW: &str = "MIDAIR_NEVER_BORROW";

/// The options of the engine, most of which are deadlines. Each wait has one.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long to look for a parked thread.
    pub find: Duration,
    /// How much of that time is for parked threads alone. After it, running threads are stopped
    /// briefly to find one at a safe point.
    pub parked_only: Duration,
    /// How many times running threads may be stopped for that, all together.
    pub looks: u32,
    /// How long running threads may be stopped for that, all together.
    pub looked: Duration,
    /// How long a thread to which nothing was done yet may take to stop. After that, another is
    /// tried.
    pub stop: Duration,
    /// How long each stop of a held thread may take. The thread is in the middle of our work then.
    /// On a machine that gives it no processor time, waiting longer is the only right thing to do.
    pub held: Duration,
    /// How long `pthread_create` may take. It may have to wait for a lock of the allocator that a
    /// running thread holds.
    pub stub: Duration,
    /// How long the stub waits to be stopped again, before the thread restores itself.
    pub patience: Duration,
    /// How long the new worker thread may take to open its socket, and how long it then waits for
    /// our first message.
    pub boot: Duration,
    /// Whether the socket of a listener is used, if there is one.
    pub socket: bool,
    /// The beginnings of names of threads that are never borrowed. The default comes from
    /// [`NEVER_BORROW`].
    pub never_borrow: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            // A program that sleeps for a millisecond at a time on a busy machine takes many tries.
            // Examining its threads stops nothing.
            find: Duration::from_secs(2),
            // Examining a thread costs it nothing, but stopping it does. A program that is busy on
            // all threads stays busy, however, so waiting longer does not help.
            parked_only: Duration::from_millis(10),
            looks: 400,
            looked: Duration::from_millis(100),
            stop: Duration::from_millis(500),
            held: Duration::from_secs(10),
            stub: Duration::from_secs(2),
            patience: Duration::from_millis(20),
            boot: Duration::from_secs(5),
            socket: true,
            never_borrow: std::env::var(NEVER_BORROW)
                .unwrap_or_default()
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
        }
    }
}

/// The library that the worker thread loads.
#[derive(Debug, Clone)]
pub enum Library {
    /// A midair file. Its bytes are sent; its path means nothing to the target.
    File(PathBuf),
    /// The same, from a file that is open already. Exactly this file is sent, whatever its path
    /// leads to by now.
    Opened {
        /// The file. It is read from its start, and its position does not change.
        file: Arc<File>,
        /// The word by which the copy of a further library is recognised in a process
        /// ([`crate::Inspection::copies`]). It has letters and digits only, and is empty for the
        /// usual one.
        word: &'static str,
    },
    /// These bytes.
    Bytes(Vec<u8>),
    /// No library: the worker thread ends again. This proves that entering works.
    Nothing,
}

/// Named points of an attach, in the order in which the engine reaches them. Tests arm a fault
/// there ([`midair_ptrace::fault::arm_at`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPoint {
    /// The engine found a thread to borrow, and has changed nothing yet.
    ThreadFound,
    /// The thread is stopped and proven.
    Proven,
    /// The frame with which the thread can restore itself is on its stack.
    Framed,
    /// Both mappings are made. The thread is still stopped in our call.
    Mapped,
    /// Code and boot block are written.
    Written,
    /// The stub runs.
    Started,
    /// The worker thread was made. The stub waits to be stopped.
    Made,
    /// The borrowed thread was let go.
    Released,
    /// The worker thread has opened its socket.
    Opened,
    /// We hold the far end.
    Taken,
    /// The library was sent.
    Sent,
    /// The worker thread is about to be offered a session. Its rights are checked once more.
    Offering,
    /// In [`crate::Entered::withdraw`]: the mappings are gone, and the thread that unmapped them is
    /// still held.
    Unmapped,
    /// Waking a parked worker thread: it is stopped.
    WakeStopped,
    /// Waking: its mailbox is written.
    WakeKicked,
    /// The listener's socket is connected to.
    Connected,
    /// The listener has sent where its token is.
    Challenged,
    /// The listener has answered.
    Answered,
}

impl FaultPoint {
    /// All of them, in order.
    pub const ALL: [FaultPoint; 18] = [
        FaultPoint::ThreadFound,
        FaultPoint::Proven,
        FaultPoint::Framed,
        FaultPoint::Mapped,
        FaultPoint::Written,
        FaultPoint::Started,
        FaultPoint::Made,
        FaultPoint::Released,
        FaultPoint::Opened,
        FaultPoint::Taken,
        FaultPoint::Sent,
        FaultPoint::Offering,
        FaultPoint::Unmapped,
        FaultPoint::WakeStopped,
        FaultPoint::WakeKicked,
        FaultPoint::Connected,
        FaultPoint::Challenged,
        FaultPoint::Answered,
    ];

    /// Returns the name by which a fault is armed at this point.
    pub fn name(self) -> &'static str {
        match self {
            FaultPoint::ThreadFound => "ThreadFound",
            FaultPoint::Proven => "Proven",
            FaultPoint::Framed => "Framed",
            FaultPoint::Mapped => "Mapped",
            FaultPoint::Written => "Written",
            FaultPoint::Started => "Started",
            FaultPoint::Made => "Made",
            FaultPoint::Released => "Released",
            FaultPoint::Opened => "Opened",
            FaultPoint::Taken => "Taken",
            FaultPoint::Sent => "Sent",
            FaultPoint::Offering => "Offering",
            FaultPoint::Unmapped => "Unmapped",
            FaultPoint::WakeStopped => "WakeStopped",
            FaultPoint::WakeKicked => "WakeKicked",
            FaultPoint::Connected => "Connected",
            FaultPoint::Challenged => "Challenged",
            FaultPoint::Answered => "Answered",
        }
    }

    /// Tells the fault injection that the engine has reached this point.
    pub(crate) fn reached(self) {
        fault::point(self.name());
    }
}
