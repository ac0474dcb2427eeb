//! Checks whether a process is still the one that was inspected. It may end at any time, become
//! another program by `exec`, or be stopped by job control. Whether something is then found at an
//! address says nothing about the process that was inspected.
//!
//! By then, the process may also have other rights than those for which the attach was permitted.
//!
//! Decisions: ENG-050 (`docs/deviations/engine.md`).

use std::io;
use std::time::Duration;

use midair_procinfo::dumpable::is_dumpable;
use midair_procinfo::files::{FileId, kernel_text, program_id};
use midair_procinfo::stat::Stat;
use midair_procinfo::status::Status;
use midair_procinfo::{Pid, Tid, freezer, task};
use midair_ptrace::{Deadline, Pace};

use midair_record::boot::step;

use crate::arch::SETXID;
use crate::error::{EnterError, Refusal, step_words};

/// The state of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageState {
    /// It is as it was.
    Same,
    /// It is the same program, stopped by job control.
    Stopped,
    /// All its threads have ended.
    Ended,
    /// The process id now belongs to another program.
    Replaced,
}

/// What a thread is permitted to do, as far as the decision to enter its process depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rights {
    /// The real, effective, saved and file-system user.
    uid: [u32; 4],
    gid: [u32; 4],
    groups: Vec<u32>,
    /// The capabilities that it may make effective.
    permitted: u64,
    /// Whether its process is dumpable. None if the kernel does not tell.
    is_dumpable: Option<bool>,
}

impl Rights {
    fn of(tid: Tid, status: &Status) -> Rights {
        Rights {
            uid: status.uid,
            gid: status.gid,
            groups: status.groups.clone(),
            permitted: status.cap_permitted,
            is_dumpable: is_dumpable(tid, status),
        }
    }
}

/// Why a thread no longer counts as one of the process that was inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Differs {
    /// It has ended.
    Gone,
    /// The process is another program by now.
    Program,
    /// The process has other rights by now.
    Rights,
    /// Only this thread has other rights than the process, and a thread that it makes would inherit
    /// them.
    ThreadRights,
    /// The C library is about to change the user of this thread and all others (setuid(3)). Until
    /// then it holds a lock that `pthread_create` takes, too.
    ChangesUser,
}

impl Differs {
    pub(crate) fn into_error(self, pid: Pid, during: &'static str) -> EnterError {
        match self {
            Differs::Gone => EnterError::Gone { during },
            Differs::Program => EnterError::Replaced {
                during,
                begun: true,
            },
            Differs::Rights | Differs::ThreadRights | Differs::ChangesUser => {
                EnterError::RightsChanged { pid, during }
            }
        }
    }
}

/// One program image of one process.
#[derive(Debug, Clone)]
pub(crate) struct ProcessImage {
    pid: Pid,
    /// The thread that was inspected.
    tid: Tid,
    /// Its auxiliary vector. It holds the addresses of the program, the loader, the vDSO and the
    /// random bytes. Two executions share these only where addresses are not random and the program
    /// is the same; everything then lies where it was before. Empty if it cannot be read.
    auxv: Vec<u8>,
    /// The file of its program. None if that may not be seen.
    exe: Option<FileId>,
    /// When that thread started, in clock ticks since boot.
    start_ticks: Option<u64>,
    /// The rights on which the decision at the inspection was based.
    rights: Rights,
}

/// How long a process that is about to end, or to become another program, may take until this can
/// be seen.
const SETTLING: Duration = Duration::from_millis(250);

/// The same time for a process whose end can already be seen to have started.
const ENDING: Duration = Duration::from_secs(5);

/// `PF_EXITING`.
const EXITING: u64 = 4;

impl ProcessImage {
    /// Remembers the process `pid`, whose live thread is `tid` and has this status. The status was
    /// read before this call, and decisions about the process are made after it. So whatever
    /// happens between the two shows as a difference.
    pub(crate) fn of(pid: Pid, tid: Tid, status: &Status) -> ProcessImage {
        ProcessImage {
            pid,
            tid,
            auxv: auxv(tid),
            exe: program_id(tid, None),
            start_ticks: began(tid),
            rights: Rights::of(tid, status),
        }
    }

    /// Returns true if both are the same execution of the same program.
    pub(crate) fn is_program_of(&self, other: &ProcessImage) -> bool {
        (self.pid, &self.auxv) == (other.pid, &other.auxv)
    }

    /// Returns true if the process now executes another program, or none any more.
    pub(crate) fn was_replaced(&self) -> bool {
        let now = auxv(self.tid);
        now.is_empty() || now != self.auxv || program_id(self.tid, self.exe.as_ref()) != self.exe
    }

    /// Returns how a thread of the process differs from what was inspected, if it does. This is
    /// meant for a held thread: neither that thread nor the program of its process can change then.
    /// It also notices a program with the set-uid bit that was executed between the inspection and
    /// the stop.
    pub(crate) fn differs(&self, tid: Tid) -> Option<Differs> {
        let differs = self.difference(tid)?;
        // A process that is ending has neither memory nor a program any more, and its files belong
        // to root.
        let ends = thread_stat(tid).is_none_or(|stat| stat.is_dead() || stat.flags & EXITING != 0);
        Some(if ends { Differs::Gone } else { differs })
    }

    fn difference(&self, tid: Tid) -> Option<Differs> {
        let Ok(status) = task::status(tid) else {
            return Some(Differs::Gone);
        };
        if status.sig_pending & SETXID != 0 {
            return Some(Differs::ChangesUser);
        }
        let now = auxv(tid);
        let other_program = (!self.auxv.is_empty() && now != self.auxv)
            || (self.exe.is_some() && program_id(tid, self.exe.as_ref()) != self.exe)
            || status.tgid != Some(self.pid);
        if Rights::of(tid, &status) != self.rights {
            let process = task::status(self.tid);
            let alone = tid != self.tid
                && !other_program
                && process.is_ok_and(|process| Rights::of(self.tid, &process) == self.rights);
            return Some(match alone {
                true => Differs::ThreadRights,
                false => Differs::Rights,
            });
        }
        if other_program {
            return Some(Differs::Program);
        }
        // The id of a process that has ended may have been given to another by now. A first thread
        // that is gone does not show that: it may have ended alone.
        let began = began(self.tid);
        (began.is_some() && began != self.start_ticks).then_some(Differs::Program)
    }

    /// The process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Looks at the process again and returns its state.
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

    /// Returns an error as soon as there is no use in waiting for the process any longer.
    pub(crate) fn check(&self, during: &'static str) -> Result<(), EnterError> {
        match self.standing() {
            ImageState::Same => Ok(()),
            ImageState::Stopped => Err(Refusal::Stopped { pid: self.pid }.into()),
            ImageState::Ended => Err(EnterError::Gone { during }),
            ImageState::Replaced => Err(EnterError::Replaced {
                during,
                begun: true,
            }),
        }
    }

    /// Returns the error that `error` really means, given what has become of the process.
    pub(crate) fn explain(&self, error: EnterError) -> EnterError {
        let during = match &error {
            EnterError::Gone { during }
            | EnterError::Engine { during, .. }
            | EnterError::SystemCall { call: during, .. }
            | EnterError::Silent { at: during } => during,
            // Only the worker thread in the target has the other end of the channel.
            EnterError::Ours { during, source } if hung_up(source) => during,
            EnterError::NoneParked { .. } => "looking for a thread",
            // This was read from a thread that was held, so the process was alive.
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
        // When another thread ends the process or executes a program, the thread that we held ends
        // first. So the process itself may show it a little later.
        let mut deadline = Deadline::after(SETTLING);
        let last = Deadline::after(ENDING);
        let mut pace = Pace::new();
        loop {
            match self.standing() {
                ImageState::Ended => return EnterError::Gone { during },
                ImageState::Replaced => {
                    return EnterError::Replaced {
                        during,
                        begun: true,
                    };
                }
                ImageState::Stopped => return Refusal::Stopped { pid: self.pid }.into(),
                ImageState::Same => {}
            }
            let ending = matches!(
                error,
                EnterError::Refused(Refusal::NoProcess { .. } | Refusal::Zombie { .. })
            );
            // A second inspection may have met the process while it was ending.
            let settles = matches!(
                error,
                EnterError::Gone { .. } | EnterError::Ours { .. } | EnterError::Refused(_)
            )
            // A thread that has ended cannot be traced (EPERM), which looks as if another process
            // traced it.
            || (matches!(error, EnterError::Engine { .. }) && is_ending(self.pid));
            // On an overloaded machine, an end that has started takes a while.
            if deadline.passed() && !last.passed() && settles && is_ending(self.pid) {
                deadline = Deadline::after(SETTLING);
            }
            if deadline.passed() || !settles {
                return match (ending, task::live(self.pid)) {
                    (true, _) => EnterError::Gone { during },
                    // It was frozen meanwhile, so the thread for which we waited did not run.
                    (false, Ok(Some(tid))) => match freezer::frozen(tid) {
                        Some(group) => Refusal::Frozen {
                            pid: self.pid,
                            group,
                        }
                        .into(),
                        None => error,
                    },
                    (false, _) => error,
                };
            }
            pace.rest();
        }
    }
}

/// Returns true if the threads of a process are being killed one by one, because it ends or
/// executes another program.
pub(crate) fn is_ending(pid: Pid) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let tids = task::list(pid).unwrap_or_default();
    let killed = |tid| task::status(tid).is_ok_and(|status| status.sig_pending & SIGKILL != 0);
    let ends =
        |tid| task::stat(tid).map_or(true, |stat| stat.is_dead() || stat.flags & EXITING != 0);
    tids.iter().any(|&tid| killed(tid)) || tids.iter().all(|&tid| ends(tid))
}

/// Returns true if a process goes on without its first thread. A process that ends, or executes
/// another program, may lose its first thread before the others; we wait to see whether that is so.
pub(crate) fn leader_ended_alone(pid: Pid) -> bool {
    let mut deadline = Deadline::after(SETTLING);
    let last = Deadline::after(ENDING);
    let mut pace = Pace::new();
    loop {
        let others_live = matches!(task::live(pid), Ok(Some(_)));
        if task::is_alive(pid.leader()) || !others_live {
            return false;
        }
        if deadline.passed() {
            if last.passed() || !is_ending(pid) {
                return true;
            }
            deadline = Deadline::after(SETTLING);
        }
        pace.rest();
    }
}

fn hung_up(source: &io::Error) -> bool {
    matches!(
        source.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

fn auxv(tid: Tid) -> Vec<u8> {
    kernel_text(format!("{tid}/auxv")).unwrap_or_default()
}

/// Returns when a thread started, in clock ticks since boot. It reads the file of the thread alone:
/// the file of the process adds up all threads, which takes long where there are many.
fn began(tid: Tid) -> Option<u64> {
    thread_stat(tid).map(|stat| stat.start_ticks)
}

fn thread_stat(tid: Tid) -> Option<Stat> {
    midair_procinfo::stat::parse(&kernel_text(format!("{tid}/task/{tid}/stat")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_who_we_are() {
        let me = Pid::own();
        let status = task::status(me).unwrap();
        let image = ProcessImage::of(me, me.leader(), &status);
        assert_eq!(image.standing(), ImageState::Same);
        assert_eq!(image.differs(me.leader()), None);
        assert!(image.is_program_of(&image.clone()));
        let other = ProcessImage {
            auxv: vec![1],
            ..image.clone()
        };
        assert_eq!(other.standing(), ImageState::Replaced);
        assert_eq!(other.differs(me.leader()), Some(Differs::Program));
        assert!(!other.is_program_of(&image));
        let older = ProcessImage {
            start_ticks: Some(0),
            ..image.clone()
        };
        assert_eq!(older.differs(me.leader()), Some(Differs::Program));
        let lower = Status {
            uid: [12345; 4],
            ..status.clone()
        };
        let lower = ProcessImage::of(me, me.leader(), &lower);
        assert_eq!(lower.differs(me.leader()), Some(Differs::Rights));
        assert_eq!(image.differs(Tid::MAX), Some(Differs::Gone));
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
