//! A process that was entered.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use midair_procinfo::{Pid, Tid, task};
use midair_ptrace::{Deadline, Pace, fault, poll_readable};

use crate::agent::Block;
use crate::ending;
use crate::enter::{DOUBT, borrow, unmap};
use crate::error::{During, EnterError, Refusal, Seen};
use crate::look::look;
use crate::mappings::Mappings;
use crate::options::{FaultPoint, Options};
use crate::parked::{Candidate, Grade, Judge};
use crate::still::Still;

/// By which way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via {
    /// Which tier of the design.
    pub tier: Tier,
    /// The thread that was stopped.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// What it was parked in.
    pub doing: String,
    /// Threads that were looked at and not taken, each with the reason. Empty where no thread had to be chosen.
    pub rejected: Vec<Seen>,
}

/// How the process was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// T0: the process's own listener answered on its socket; no thread was stopped or traced.
    Socket,
    /// Our own thread of an earlier session was woken.
    OwnThread,
    /// T1: through the listener of a register library.
    Listener,
    /// T2: through a parked thread of the program.
    Parked(Grade),
    /// T3: through a running thread, at a point where it held nothing.
    SafePoint,
}

impl Via {
    pub(crate) fn of(candidate: &Candidate, seen: &[Seen]) -> Via {
        Via {
            tier: match candidate.grade {
                Grade::Listener => Tier::Listener,
                Grade::SafePoint => Tier::SafePoint,
                grade => Tier::Parked(grade),
            },
            tid: candidate.tid,
            name: candidate.name.clone(),
            doing: candidate.doing.clone(),
            // One that was taken in the end may have been running before.
            rejected: seen
                .iter()
                .filter(|thread| thread.tid != candidate.tid)
                .cloned()
                .collect(),
        }
    }
}

/// Where the time went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Looking for a thread; nothing was stopped.
    pub find: Duration,
    /// The borrowed thread stopped: until it stood and was proven.
    pub seize: Duration,
    /// The borrowed thread stopped: mappings, writing, the stub.
    pub stub: Duration,
    /// The borrowed thread stopped: until it was let go.
    pub release: Duration,
    /// Stops of running threads that were not at a safe point, of the borrowed one or others, before it was found.
    pub looks: u32,
    /// How long they stood for these, all together.
    pub looked: Duration,
}

impl Times {
    /// How long the borrowed thread stood still.
    pub fn stopped(&self) -> Duration {
        self.seize
            .saturating_add(self.stub)
            .saturating_add(self.release)
    }
}

/// A process that was entered: our thread runs in it, and this is the way to talk to it.
#[derive(Debug)]
pub struct Entered {
    /// A sequenced-packet socket; the library in the target has the other end (`fd_near` of the boot block). It is closed
    /// there when our thread parks or ends.
    pub channel: OwnedFd,
    /// The process.
    pub pid: Pid,
    /// Our thread, by the id that this process knows it by.
    pub agent_tid: Tid,
    /// By which way.
    pub via: Via,
    /// Where the time went.
    pub times: Times,
    /// What was mapped now; None when a parked thread was woken.
    pub mappings: Option<Mappings>,
    pub(crate) still: Still,
    /// None when the process's listener let us in: nothing is read or written there then.
    pub(crate) block: Option<Block>,
}

impl Entered {
    /// Waits until the library has said its first word on the channel (which is left there to be read).
    ///
    /// # Errors
    /// [`EnterError::Boot`] when it could not be loaded, [`EnterError::Silent`] at the deadline, [`EnterError::Gone`].
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
        if !task::is_alive(self.agent_tid) {
            return Err(EnterError::Gone { during: PHASE });
        }
        Ok(())
    }

    /// What has become of the process, if it is not as it was: it has ended, is another program, or is stopped by job control.
    pub fn interrupted(&self) -> Option<EnterError> {
        const PHASE: &str = "the set-up";
        // A process that is being ended has closed its descriptors, the channel among them, before its threads are seen to be gone.
        if task::is_alive(self.agent_tid) && !self.still.is_ending() {
            return self.still.check(PHASE).err();
        }
        // It ends before its process does.
        match self.still.explain(EnterError::Gone { during: PHASE }) {
            // Our thread may end by itself, for its own reasons.
            EnterError::Gone { .. } if self.still.check(PHASE).is_ok() => None,
            error => Some(error),
        }
    }

    /// What our thread says that it failed at, if it did.
    pub fn failure(&self) -> Option<EnterError> {
        match &self.block {
            Some(block) => block.failure(),
            None => crate::door::failure_on(&self.channel),
        }
    }

    /// Takes everything back, for a session that will not be: hangs up, and has our thread unmap what was mapped as its last act. A
    /// library that was loaded stays. No thread of the program is stopped, but where our thread has ended already, or stands under
    /// system call filters.
    ///
    /// # Errors
    /// [`EnterError::Silent`] when our thread does not end in time; then its mappings stay.
    pub fn withdraw(self, options: &Options) -> Result<(), EnterError> {
        let Entered {
            channel,
            agent_tid,
            mappings,
            still,
            block,
            ..
        } = self;
        match (mappings, block) {
            (Some(mappings), Some(block)) => {
                unmap_after(&still, agent_tid, block, mappings, Some(channel), options)
                    .map_err(|error| still.explain(error))
            }
            _ => {
                drop(channel);
                fault::step("hung up");
                Ok(())
            }
        }
    }
}

/// How long a process that stands still is waited for, to take back what was mapped.
const MOMENT: Duration = Duration::from_millis(300);

/// Hangs up, and unmaps at the end of our thread: by it, or where that cannot be, by a thread that is borrowed afterwards.
pub(crate) fn unmap_after(
    still: &Still,
    agent: Tid,
    block: Block,
    mappings: Mappings,
    mut channel: Option<OwnedFd>,
    options: &Options,
) -> Result<(), EnterError> {
    const PHASE: &str = "waiting for the end of our thread";
    let pid = still.pid();
    // It is on its way to its end, and a machine that gives it no turn gives it one later: to give up half way helps nobody.
    let deadline = Deadline::after(options.boot.saturating_add(options.held));
    // Its own word for itself, so that another thread that got the same number is not waited for.
    let inside = block.own_tid();
    let there = || {
        inside.is_some()
            && task::status(agent)
                .is_ok_and(|status| status.own_tid() == inside && status.tgid == Some(pid))
    };
    // A failure is that of this way: whatever has become of the process, the other one finds out.
    let unmapped = there()
        && ending::unmap(agent, block, &mappings, &mut channel, deadline, options).unwrap_or(false);
    if channel.take().is_some() {
        fault::step("hung up");
    }
    let mut pace = Pace::new();
    let mut doubt = Deadline::after(DOUBT);
    while there() {
        if deadline.passed() {
            return Err(EnterError::Silent { at: "its end" });
        }
        if doubt.passed() {
            still.check(PHASE)?;
            doubt = Deadline::after(DOUBT);
        }
        pace.rest();
    }
    fault::step("our thread has ended");
    if unmapped {
        return Ok(());
    }
    let moment = Deadline::after(MOMENT);
    let look = loop {
        match look(pid) {
            // What stops or traces it may be gone the next moment. If not, the next attach takes our memory away.
            Err(Refusal::Stopped { .. } | Refusal::Traced { .. }) if !moment.passed() => {
                pace.rest();
            }
            other => break other?,
        }
    };
    if look.still != *still {
        return Err(EnterError::Replaced { during: PHASE });
    }
    let mut judge = Judge::new(&look);
    borrow(&look, &mut judge, options, |_, _, mut hold, _| {
        // While a thread of it is held it cannot become another program, whose memory this would be.
        still.check(PHASE)?;
        unmap(&mut hold, &mappings)?;
        options.reached(FaultPoint::Unmapped);
        hold.release()
    })
}
