//! Whether a process is still the one that was inspected. It may end at any time, become another program
//! by `exec`, or be stopped by job control. What is then found at an address, or not found there, says
//! nothing about the process that was inspected.

use std::fs;
use std::io;
use std::time::Duration;

use midair_procinfo::{Pid, Tid, task};
use midair_ptrace::{Deadline, Pace};

use midair_record::boot::step;

use crate::error::{EnterError, Refusal, step_words};

/// The state of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageState {
    /// As it was.
    Same,
    /// The same, stopped by job control.
    Stopped,
    /// All its threads have ended.
    Ended,
    /// The number is another program's by now.
    Replaced,
}

/// One program image of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessImage {
    pid: Pid,
    /// Its auxiliary vector: addresses of program, loader, vDSO and random bytes, which no two
    /// executions share but where addresses are not random, and then those of the same program,
    /// where everything lies as before. Empty: not readable.
    auxv: Vec<u8>,
}

/// How long a process that is about to end, or to become another program, may take until it shows.
const SETTLING: Duration = Duration::from_millis(250);

/// The same, once it has begun.
const ENDING: Duration = Duration::from_secs(5);

impl ProcessImage {
    /// Remembers the process `pid`, whose live thread is `tid`.
    pub(crate) fn of(pid: Pid, tid: Tid) -> ProcessImage {
        ProcessImage {
            pid,
            auxv: auxv(tid),
        }
    }

    /// The process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Checks again.
    pub(crate) fn standing(&self) -> ImageState {
        let Ok(Some(tid)) = task::live(self.pid) else {
            return ImageState::Ended;
        };
        let Ok(stat) = task::stat(tid) else {
            return ImageState::Ended;
        };
        let now = auxv(tid);
        if !self.auxv.is_empty() && !now.is_empty() && now != self.auxv {
            return ImageState::Replaced;
        }
        match stat.state {
            b'T' => ImageState::Stopped,
            _ => ImageState::Same,
        }
    }

    /// Whether its threads are being killed, one by one: it ends, or executes another program.
    pub(crate) fn is_ending(&self) -> bool {
        const SIGKILL: u64 = 1 << 8;
        const EXITING: u64 = 4;
        let tids = task::list(self.pid).unwrap_or_default();
        let killed = |tid| task::status(tid).is_ok_and(|status| status.sig_pending & SIGKILL != 0);
        let ends =
            |tid| task::stat(tid).map_or(true, |stat| stat.is_dead() || stat.flags & EXITING != 0);
        tids.iter().any(|&tid| killed(tid)) || tids.iter().all(|&tid| ends(tid))
    }

    /// Err once there is no use in waiting for it any longer.
    pub(crate) fn check(&self, during: &'static str) -> Result<(), EnterError> {
        match self.standing() {
            ImageState::Same => Ok(()),
            ImageState::Stopped => Err(Refusal::Stopped { pid: self.pid }.into()),
            ImageState::Ended => Err(EnterError::Gone { during }),
            ImageState::Replaced => Err(EnterError::Replaced { during }),
        }
    }

    /// What `error` means, given what has become of the process.
    pub(crate) fn explain(&self, error: EnterError) -> EnterError {
        let during = match &error {
            EnterError::Gone { during }
            | EnterError::Engine { during, .. }
            | EnterError::SystemCall { call: during, .. }
            | EnterError::Silent { at: during } => during,
            // Only the worker thread there has the other end.
            EnterError::Ours { during, source } if hung_up(source) => during,
            EnterError::NoneParked { .. } => "looking for a thread",
            // Read from a thread that was held: it lived.
            EnterError::Refused(
                Refusal::Seccomp { .. }
                | Refusal::Filtered { .. }
                | Refusal::FilterUnread { .. }
                | Refusal::Dispatches { .. },
            ) => return error,
            EnterError::Boot { step, .. } => step,
            EnterError::PathUnseen { .. } => step_words(step::PATH),
            EnterError::StubCrashed { .. } | EnterError::StubLeft { .. } => "the stub",
            EnterError::Refused(_) => "looking at it again",
            _ => return error,
        };
        // The thread that we held ends first, when another one ends the process or executes a
        // program.
        let mut deadline = Deadline::after(SETTLING);
        let last = Deadline::after(ENDING);
        let mut pace = Pace::new();
        loop {
            match self.standing() {
                ImageState::Ended => return EnterError::Gone { during },
                ImageState::Replaced => return EnterError::Replaced { during },
                ImageState::Stopped => return Refusal::Stopped { pid: self.pid }.into(),
                ImageState::Same => {}
            }
            let ending = matches!(
                error,
                EnterError::Refused(Refusal::NoProcess { .. } | Refusal::Zombie { .. })
            );
            // Another look at it may have met it half way to its end.
            let settles = matches!(
                error,
                EnterError::Gone { .. } | EnterError::Ours { .. } | EnterError::Refused(_)
            )
            // A thread that has ended cannot be traced (EPERM), which looks as if another process
            // traced it.
            || (matches!(error, EnterError::Engine { .. }) && self.is_ending());
            // On a machine with too much to do an end takes its time, once it has begun.
            if deadline.passed() && !last.passed() && settles && self.is_ending() {
                deadline = Deadline::after(SETTLING);
            }
            if deadline.passed() || !settles {
                return match ending {
                    true => EnterError::Gone { during },
                    false => error,
                };
            }
            pace.rest();
        }
    }
}

fn hung_up(source: &io::Error) -> bool {
    matches!(
        source.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

fn auxv(tid: Tid) -> Vec<u8> {
    fs::read(format!("/proc/{tid}/auxv")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_who_we_are() {
        let me = Pid::own();
        let image = ProcessImage::of(me, me.leader());
        assert_eq!(image.standing(), ImageState::Same);
        let other = ProcessImage {
            auxv: vec![1],
            ..image.clone()
        };
        assert_eq!(other.standing(), ImageState::Replaced);
        let gone = ProcessImage {
            pid: Pid::MAX,
            ..image
        };
        assert!(matches!(
            gone.explain(EnterError::Silent { at: "its socket" }),
            EnterError::Gone {
                during: "its socket"
            }
        ));
    }
}
