//! A process that was entered.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use midair_procinfo::{Pid, Tid, task};
use midair_ptrace::{Deadline, fault, poll_readable};

use crate::error::{During, EnterError, RejectedThread};
use crate::mappings::Mappings;
use crate::options::{FaultPoint, Options};
use crate::parked::{Candidate, Grade};
use crate::process_image::{self, ProcessImage};
use crate::removal;
use crate::reply;
use crate::worker::Block;

/// How the process was entered: the entry path, and the thread that was used for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via {
    /// Which entry path.
    pub path: EntryPath,
    /// The thread that was stopped.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// What the thread was doing, as text.
    pub doing: String,
    /// The threads that were inspected and not taken, each with the reason. Empty if no thread had
    /// to be chosen.
    pub rejected: Vec<RejectedThread>,
}

/// The entry path by which a process was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPath {
    /// T0: the process's own listener answered on its socket. No thread was stopped or traced.
    Socket,
    /// The parked worker thread of an earlier session was woken.
    OwnThread,
    /// T1: through the listener of a register library.
    Listener,
    /// T2: through a parked thread of the program.
    Parked(Grade),
    /// T3: through a running thread, at a point where it held nothing.
    SafePoint,
}

impl Via {
    pub(crate) fn of(candidate: &Candidate, seen: &[RejectedThread]) -> Via {
        Via {
            path: match candidate.grade {
                Grade::Listener => EntryPath::Listener,
                Grade::SafePoint => EntryPath::SafePoint,
                grade => EntryPath::Parked(grade),
            },
            tid: candidate.tid,
            name: candidate.name.clone(),
            doing: candidate.doing.clone(),
            // The thread that was taken in the end may have been rejected before, while it was
            // running.
            rejected: seen
                .iter()
                .filter(|thread| thread.tid != candidate.tid)
                .cloned()
                .collect(),
        }
    }
}

/// How long each part of entering took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// The time spent on looking for a thread. Nothing was stopped.
    pub find: Duration,
    /// How long it took to stop the borrowed thread and prove it.
    pub seize: Duration,
    /// How long it was then held for the mappings, for writing to them, and for the stub.
    pub stub: Duration,
    /// How long it was then held until it was let go.
    pub release: Duration,
    /// The number of stops of running threads that were not at a safe point, before one was found.
    /// The borrowed thread may be among them.
    pub looks: u32,
    /// How long threads were stopped for these, all together.
    pub looked: Duration,
}

impl Times {
    /// Returns how long the borrowed thread was stopped.
    pub fn stopped(&self) -> Duration {
        self.seize
            .saturating_add(self.stub)
            .saturating_add(self.release)
    }
}

/// A process that was entered. The worker thread runs in it, and `channel` is the way to talk to
/// it.
#[derive(Debug)]
pub struct Entered {
    /// A sequenced-packet socket. The library in the target has the other end (`fd_near` of the
    /// boot block), which is closed when the worker thread parks or ends.
    pub channel: OwnedFd,
    /// The process.
    pub pid: Pid,
    /// The worker thread, by the id under which this process knows it.
    pub worker_tid: Tid,
    /// How it was entered.
    pub via: Via,
    /// How long each part of it took.
    pub times: Times,
    /// What was mapped for this attach. None when a parked thread was woken.
    pub mappings: Option<Mappings>,
    pub(crate) image: ProcessImage,
    /// None when we entered through the process's listener. Nothing in the process is then read or
    /// written.
    pub(crate) block: Option<Block>,
}

impl Entered {
    /// Waits until the library has sent its first message on the channel. The message is left there
    /// to be read.
    ///
    /// # Errors
    /// [`EnterError::Boot`] when it could not be loaded, [`EnterError::Silent`] at the deadline,
    /// [`EnterError::Gone`].
    pub fn wait_for_word(&self, within: Duration) -> Result<(), EnterError> {
        const PHASE: &str = "waiting for the library";
        let readable =
            poll_readable(self.channel.as_fd(), Deadline::after(within)).during(PHASE)?;
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if !readable {
            return Err(EnterError::Silent { at: "the library" });
        }
        if !task::is_alive(self.worker_tid) {
            return Err(EnterError::Gone { during: PHASE });
        }
        Ok(())
    }

    /// Checks that the process and the worker thread in it have the rights that were inspected, and
    /// that it is the same program: what the worker thread is offered next was chosen for those.
    ///
    /// # Errors
    /// [`EnterError::RightsChanged`], [`EnterError::Replaced`], [`EnterError::Gone`]. Drop this
    /// value then. This hangs up on the worker thread, which then parks or ends.
    pub fn require_same_rights(&self) -> Result<(), EnterError> {
        FaultPoint::Offering.reached();
        match self.image.differs(self.worker_tid) {
            None => Ok(()),
            Some(other) => Err(other.into_error(self.pid, "the offer")),
        }
    }

    /// Returns what has become of the process, if it is not as it was: it has ended, is another
    /// program, or is stopped by job control.
    pub fn interrupted(&self) -> Option<EnterError> {
        const PHASE: &str = "the set-up";
        // A process that is being killed closes its descriptors, the channel among them, before its
        // threads can be seen to be gone.
        if task::is_alive(self.worker_tid) && !process_image::is_ending(self.image.pid()) {
            return self.image.check(PHASE).err();
        }
        // The worker thread ends before its process does.
        match self.image.explain(EnterError::Gone { during: PHASE }) {
            // The worker thread may end by itself, for its own reasons.
            EnterError::Gone { .. } if self.image.check(PHASE).is_ok() => None,
            error => Some(error),
        }
    }

    /// Returns the failure that the worker thread reports, if it failed.
    pub fn failure(&self) -> Option<EnterError> {
        match &self.block {
            Some(block) => block.failure(),
            None => reply::failure_on(&self.channel),
        }
    }

    /// Takes everything back, for a session that will not take place. It hangs up and has the
    /// worker thread unmap what was mapped as its last act. A library that was loaded stays. No
    /// thread of the program is stopped, unless the worker thread has ended already or is under
    /// system call filters.
    ///
    /// # Errors
    /// [`EnterError::Silent`] when the worker thread does not end in time; then its mappings stay.
    pub fn withdraw(self, options: &Options) -> Result<(), EnterError> {
        let Entered {
            channel,
            worker_tid,
            mappings,
            image,
            block,
            ..
        } = self;
        match (mappings, block) {
            (Some(mappings), Some(block)) => {
                removal::unmap_after(&image, worker_tid, block, mappings, Some(channel), options)
                    .map_err(|error| image.explain(error))
            }
            _ => {
                drop(channel);
                fault::step("hung up");
                Ok(())
            }
        }
    }
}
