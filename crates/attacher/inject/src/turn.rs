//! Lets a thread that was stopped run on, and tells when it has: by its turn on a processor, and by
//! its next system call.

use std::time::{Duration, Instant};

use midair_procinfo::{Tid, task};
use midair_ptrace::{Deadline, Seized, StopKind, Stopped, Waited, sleep_beside};

use crate::arch::{self, Standing};

/// How long we wait for a thread to come to a system call before we stop it where it is.
const CALL_WAIT: Duration = Duration::from_millis(1);
/// For how long a thread may wait for its turn on a processor before it is stopped again. What
/// stops a thread that did not come to run meanwhile finds it where it was.
const TURN_WAIT: Duration = Duration::from_millis(100);
/// The first and the longest pause between two questions whether it had its turn.
const TURN_ASK: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];
/// How many system calls of other kinds the thread may make meanwhile.
const CALLS_PASSED: u32 = 4;

/// Tells whether a thread that was let go has come to run since. On a busy machine it first waits
/// for a processor, longer than it then runs.
pub(crate) struct Turn {
    tid: Tid,
    /// How many turns it had before it was let go. None where the kernel does not count them.
    before: Option<u64>,
    limit: Deadline,
}

impl Turn {
    /// Call this while the thread is stopped, just before it is let go.
    pub(crate) fn of(tid: Tid) -> Turn {
        Turn {
            tid,
            before: task::turns(tid).ok().map(|turns| turns.number),
            limit: Deadline::after(TURN_WAIT),
        }
    }

    /// Whether it is still to come. It is not where the thread has ended.
    fn is_awaited(&self) -> bool {
        let now = || task::turns(self.tid).ok().map(|turns| turns.number);
        self.before.is_some() && !self.limit.passed() && self.before == now()
    }

    /// Waits until it has come.
    pub(crate) fn wait(&self) {
        let [mut pause, longest] = TURN_ASK;
        while self.is_awaited() {
            sleep_beside(pause);
            pause = (pause * 2).min(longest);
        }
    }
}

/// Waits until the thread returns from its next plain system call, and stops it there. If none
/// comes soon after its turn, or the thread waits inside one, it is stopped where it is. It must
/// have been resumed in such a way that it stops at system calls.
pub(crate) fn at_a_call(
    running: Seized,
    patience: Duration,
    turn: &Turn,
) -> midair_ptrace::Result<(Stopped, Instant)> {
    let mut soon = Deadline::after(CALL_WAIT);
    let tid = running.tid();
    let mut running = running;
    let mut inside = false;
    let mut calls = 0;
    loop {
        running = match running.wait(soon)? {
            Waited::Gone(death) => {
                return Err(midair_ptrace::Error::Gone {
                    operation: "PTRACE_SYSCALL",
                    tid,
                    death,
                });
            }
            // A thread that stopped at a call had its turn.
            Waited::TimedOut(image) if calls == 0 && !inside && turn.is_awaited() => {
                soon = Deadline::after(CALL_WAIT);
                image
            }
            Waited::TimedOut(image) => {
                image.interrupt()?;
                let stopped = image.wait_for_event(Deadline::after(patience))?;
                return Ok((stopped, Instant::now()));
            }
            Waited::Stopped(stopped) => match stopped.kind() {
                StopKind::Group(_) => return Ok((stopped, Instant::now())),
                StopKind::Event => stopped.resume_to_syscall()?,
                StopKind::Signal(signal) => stopped.resume_to_syscall_with(signal)?,
                StopKind::Syscall => {
                    let began = Instant::now();
                    let plain = match arch::standing(&stopped.registers()?) {
                        Standing::Back(number) => arch::plain_call(number).is_some(),
                        _ => false,
                    };
                    calls += u32::from(inside);
                    if inside && (plain || calls >= CALLS_PASSED) {
                        // Registers are only set at a stop for signals, and such a stop follows
                        // immediately.
                        stopped.interrupt_again()?;
                        let running = stopped.resume(0)?;
                        return Ok((running.wait_for_event(Deadline::after(patience))?, began));
                    }
                    inside = !inside;
                    stopped.resume_to_syscall()?
                }
            },
        };
    }
}
