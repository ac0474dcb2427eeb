//! The target as the attacher holds it: by a pidfd, so that its number cannot come to mean another
//! process.

use midair_failure::{Failure, Kind};
use midair_procinfo::files::{kernel_text, kernel_words};
use midair_procinfo::syscall::Activity;
use midair_procinfo::{Pid, Tid, freezer, task};
use midair_ptrace::{pidfd_open, sys};
use midair_record::boot;
use midair_results::End;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A live process.
#[derive(Debug)]
pub struct Target {
    pid: Pid,
    /// The worker thread, once there is one.
    worker: Option<Tid>,
    pidfd: OwnedFd,
}

impl Target {
    /// Opens a pidfd of the process `pid`.
    ///
    /// # Errors
    /// [`Kind::NoProcess`].
    pub fn hold(pid: Pid) -> Result<Target, Failure> {
        let pidfd = pidfd_open(pid).map_err(|error| {
            let why = error.errno().map(std::io::Error::from_raw_os_error);
            let why = why.map_or_else(|| error.to_string(), |why| why.to_string());
            Failure::new(Kind::NoProcess, format!("cannot hold process {pid}: {why}"))
        })?;
        Ok(Target {
            pid,
            worker: None,
            pidfd,
        })
    }

    /// Sets the worker thread.
    #[must_use]
    pub fn with_worker(self, worker: Tid) -> Target {
        Target {
            worker: Some(worker),
            ..self
        }
    }

    /// Returns its id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns in words what the worker thread is doing now, which explains why it does not answer.
    /// None where that thread no longer exists.
    pub(crate) fn doing(&self) -> Option<String> {
        let worker = self.worker?;
        let stat = task::stat(worker).ok()?;
        let ms = stat.cpu_ticks.saturating_mul(1000) / sys::clock_ticks_per_second().max(1);
        let doing = match task::activity(worker) {
            Ok(Activity::Syscall(blocking)) => format!("waits in system call {}", blocking.number),
            Ok(Activity::Blocked { .. }) => "is blocked in no system call".to_owned(),
            Ok(Activity::Running) => "runs, or waits for a processor".to_owned(),
            Err(_) => "is in an unknown state".to_owned(),
        };
        let state = char::from(stat.state);
        Some(format!(
            "its thread {worker} {doing} (state {state}, {ms} ms of processor time)"
        ))
    }

    /// Returns the pidfd, which becomes readable when the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns how it ended, if it has.
    pub fn ended(&self) -> Option<End> {
        self.ended_within(Duration::ZERO)
    }

    /// Waits at most `limit` for its end, and returns how it ended.
    pub fn ended_within(&self, limit: Duration) -> Option<End> {
        let mut polled = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, limit) {
            Ok(count) if count > 0 => {
                Some(End::of(task::exit_status(self.pidfd.as_fd(), self.pid)))
            }
            _ => None,
        }
    }

    /// Returns how it ended, when its worker thread is gone. A process that is being killed loses
    /// its threads one by one, and freeing its memory may take a while. A process that runs on
    /// without the worker thread has become another program.
    pub fn ended_or_exec(&self) -> End {
        const PF_EXITING: u64 = 4;
        const LIMIT: Duration = Duration::from_secs(5);
        let start = std::time::Instant::now();
        loop {
            if let Some(end) = self.ended_within(Duration::from_millis(100)) {
                return end;
            }
            let stat = kernel_words(format!("{}/stat", self.pid)).unwrap_or_default();
            let flags = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.split_ascii_whitespace().nth(6)?.parse::<u64>().ok());
            if flags.is_some_and(|flags| flags & PF_EXITING == 0) || start.elapsed() > LIMIT {
                return End::Exec;
            }
        }
    }

    /// Returns what keeps it from running, if something does: job control, or the freezer of its
    /// cgroup.
    pub fn kept(&self) -> Option<&'static str> {
        if self.is_stopped() {
            return Some("stopped by job control");
        }
        freezer::frozen(self.pid)
            .is_some()
            .then_some("frozen by its cgroup")
    }

    /// Returns the worker thread's processor time since its start. `None` where it is not known, as
    /// after the thread's end.
    pub fn worker_time(&self) -> Option<Duration> {
        let worker = self.worker?;
        task::turns(worker).ok().map(|turns| turns.run)
    }

    /// Returns how long its first thread has waited for a processor since it started.
    pub(crate) fn waited(&self) -> Duration {
        task::turns(self.pid).map_or(Duration::ZERO, |turns| turns.waited)
    }

    /// Whether job control has stopped it.
    fn is_stopped(&self) -> bool {
        let Some(worker) = self.worker else {
            return false;
        };
        let stat = kernel_words(format!("{}/task/{worker}/stat", self.pid));
        stat.is_ok_and(|stat| {
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('T'))
        })
    }

    /// Whether the worker thread is still a thread of the process. After an exec it is not.
    pub fn worker_alive(&self) -> bool {
        let names = [boot::THREAD_NAME, boot::MAKER_NAME];
        let Some(worker) = self.worker else {
            return false;
        };
        kernel_text(format!("{}/task/{worker}/comm", self.pid)).is_ok_and(|comm| {
            names
                .iter()
                .any(|name| comm.trim_ascii_end() == name.as_bytes())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn what_a_thread_does_is_told() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let target = Target::hold(Pid::new(child.id()).unwrap()).unwrap();
        assert_eq!(target.doing(), None, "no worker thread");
        let worker = Tid::new(child.id()).unwrap();
        let target = target.with_worker(worker);
        let limit = Instant::now() + Duration::from_secs(30);
        let mut doing = String::new();
        // The child first has to execute its program, and to fall asleep.
        let asleep =
            |doing: &str| doing.contains("waits in system call") && doing.contains("(state S, ");
        while !asleep(&doing) && Instant::now() < limit {
            doing = target.doing().unwrap();
            std::thread::yield_now();
        }
        assert!(
            doing.starts_with(&format!("its thread {worker} waits in system call ")),
            "{doing}"
        );
        assert!(doing.contains("(state S, "), "{doing}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(target.doing(), None, "it has ended");
    }
}
