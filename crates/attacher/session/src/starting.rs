//! Processes that are still starting. A reason to refuse an attach may be gone in a moment: the
//! shell has made the process and has not executed the program yet, the loader is at work, or the
//! program has not loaded its runtime yet.

use crate::process::live;
use midair_failure::{Failure, Kind};
use midair_procinfo::{Pid, task};
use midair_ptrace::sys;
use std::time::{Duration, Instant};

/// A younger process counts as starting. An attach waits until the process has this age, unless the
/// user says otherwise. The time in which the process waits for a processor does not count: on a
/// busy machine it takes longer to start.
pub(crate) const YOUNG: Duration = Duration::from_secs(5);
/// A process that has existed for so long does not count as starting, however busy the machine is.
const LONGEST: Duration = Duration::from_secs(60);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// How long an attach may wait for a process to start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Starting {
    pid: Pid,
    began: Instant,
    asked: Option<Duration>,
}

impl Starting {
    /// Waits until the process is no longer [`YOUNG`], or for as long as the user asked.
    pub(crate) fn of(pid: Pid, asked: Option<Duration>) -> Starting {
        Starting {
            pid,
            began: Instant::now(),
            asked,
        }
    }

    /// Returns how much of the time is left.
    pub(crate) fn left(&self) -> Duration {
        let waited = self.began.elapsed();
        match self.asked {
            Some(asked) => asked.saturating_sub(waited),
            None => YOUNG.saturating_sub(age(self.pid).unwrap_or(YOUNG)),
        }
    }

    /// Called after a refusal. Waits a moment and returns true where the reason for the refusal may
    /// be gone by then.
    pub(crate) fn goes_on(&self, refused: &Failure) -> bool {
        // The process has no runtime yet, or no C library yet, or no thread of it is where it can be
        // borrowed. Any later failure means that entering had started.
        let passes = matches!(
            refused.kind,
            Kind::NotGpu | Kind::Libc | Kind::NoParkedThread
        );
        passes && self.rests()
    }

    /// Waits a moment, and returns true if the process lives and there is time left.
    pub(crate) fn rests(&self) -> bool {
        if self.left() < PAUSE || live(self.pid).is_none() {
            return false;
        }
        std::thread::sleep(PAUSE);
        true
    }

    /// Returns the refusal to report when the time is over.
    pub(crate) fn over(&self, mut refused: Failure) -> Failure {
        let waited = self.began.elapsed();
        if refused.kind == Kind::NotGpu && waited > PAUSE {
            refused.what = format!(
                "{}, {:.1} s after the start of the attach",
                refused.what,
                waited.as_secs_f64()
            );
            refused.hint = format!(
                "{}; use --wait for a program that takes longer to start",
                refused.hint
            );
        }
        refused
    }
}

/// Returns how long the process has existed, or `None` where that cannot be read. The time in which
/// it waited for a processor does not count in its first minute.
fn age(pid: Pid) -> Option<Duration> {
    let ticks = task::stat(pid).ok()?.start_ticks;
    let started = Duration::from_millis(ticks.checked_mul(1000)? / sys::clock_ticks_per_second());
    let now = Duration::from_nanos(crate::clock::boottime());
    let existed = now.saturating_sub(started);
    match task::turns(pid) {
        Ok(turns) if existed < LONGEST => Some(existed.saturating_sub(turns.waited)),
        _ => Some(existed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_young_process_is_waited_for() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = Pid::new(child.id()).unwrap();
        assert!(age(pid).is_some_and(|age| age < YOUNG));
        let refused = Failure::new(Kind::NotGpu, "no runtime").hint("is it?");
        let young = Starting::of(pid, None);
        assert!(young.goes_on(&refused));
        assert!(
            young
                .over(refused.clone())
                .what
                .starts_with("no runtime, 0.")
        );
        assert!(!young.goes_on(&Failure::new(Kind::NotPermitted, "no")));
        assert!(young.goes_on(&Failure::new(Kind::NoParkedThread, "all run")));
        assert!(!Starting::of(pid, Some(Duration::ZERO)).goes_on(&refused));
        let first = Pid::new(1).unwrap();
        let old = Starting::of(first, None);
        assert!(!old.goes_on(&refused) || age(first).is_some_and(|age| age < YOUNG));
        assert!(Starting::of(first, Some(YOUNG)).goes_on(&refused));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!Starting::of(pid, Some(YOUNG)).goes_on(&refused));
    }
}
