//! The one wait of an attach.
//!
//! SIGINT, SIGTERM and SIGHUP are blocked before the attach starts and are read from a signalfd
//! here, so that they never end this process in the middle of an attach or a detach. A signal that
//! arrives early is seen when the wait starts. A signal that is ignored at the start (nohup(1)) stays
//! ignored.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use midair_failure::{Failure, Kind};
use midair_secure::is_ignored;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::engine::{Attached, End, Event, Notice};
use crate::report::Report;

/// How long an attach may go on after a signal. It takes some ms, and longer on an overloaded
/// machine.
const GRACE: Duration = Duration::from_secs(5);

/// Why an attach ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The time asked for is over.
    Duration,
    /// Enter was pressed.
    Enter,
    /// Standard input has ended.
    EndOfInput,
    /// This signal came.
    Signal(Signal),
    /// The target ended.
    Target(End),
}

/// The signals that end an attach, blocked in this thread and in every thread that it starts from now on.
#[derive(Debug)]
pub struct Signals {
    set: SigSet,
    fd: SignalFd,
    /// Whether SIGUSR1 came, see [`Signals::take_mark`].
    marked: AtomicBool,
}

impl Signals {
    /// Blocks the signals. Call it before any other thread exists, because a thread that does not
    /// block them would get the signal.
    pub fn block() -> Result<Signals, Failure> {
        Signals::blocked(false)
    }

    /// Does the same for SIGUSR1 as well, which ends nothing: see [`Signals::take_mark`].
    pub fn block_with_marks() -> Result<Signals, Failure> {
        Signals::blocked(true)
    }

    fn blocked(marks: bool) -> Result<Signals, Failure> {
        let mut set = SigSet::empty();
        // The kernel queues even an ignored signal while it is blocked.
        let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
        for signal in ends
            .into_iter()
            .filter(|signal| !is_ignored(*signal as i32))
        {
            set.add(signal);
        }
        if marks {
            set.add(Signal::SIGUSR1);
        }
        let failed = |what: &str, errno: Errno| {
            Failure::new(Kind::Enter, format!("{what}: {}", errno.desc()))
        };
        set.thread_block()
            .map_err(|errno| failed("cannot block signals", errno))?;
        // A write beyond the limit of file sizes must fail with an error, even at the end, when
        // results are written. So this signal stays blocked.
        let mut too_large = SigSet::empty();
        too_large.add(Signal::SIGXFSZ);
        too_large
            .thread_block()
            .map_err(|errno| failed("cannot block signals", errno))?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(|errno| failed("cannot make a descriptor for signals", errno))?;
        Ok(Signals {
            set,
            fd,
            marked: AtomicBool::new(false),
        })
    }

    /// Returns the next pending signal, if there is one.
    pub fn next(&self) -> Option<Signal> {
        loop {
            let info = self.fd.read_signal().ok().flatten()?;
            match Signal::try_from(info.ssi_signo as i32).ok()? {
                Signal::SIGUSR1 => self.marked.store(true, Relaxed),
                signal => return Some(signal),
            }
        }
    }

    /// Whether SIGUSR1 came since the last call.
    pub fn take_mark(&self) -> bool {
        self.marked.swap(false, Relaxed)
    }

    /// Waits this long, or until one of the signals comes that end an attach.
    pub fn sleep(&self, time: Duration) -> Option<Signal> {
        let until = Instant::now().checked_add(time);
        loop {
            if let Some(signal) = self.next() {
                return Some(signal);
            }
            let left = until.map_or(time, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return None;
            }
            // The timeout of poll(2) is an int of milliseconds.
            let left = left.min(Duration::from_secs(3600)) + Duration::from_micros(999);
            let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let _ = poll(
                &mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)],
                limit,
            );
        }
    }

    /// Does `work`, which is an attach. A signal does not interrupt it, and ends what follows. But
    /// a process may block whoever reads its memory, so that `work` never ends. In that case a
    /// signal ends this program after [`GRACE`]. Whatever was started in a process undoes itself when
    /// this program is gone.
    pub fn end_what_hangs<T>(&self, report: &Report, work: impl FnOnce() -> T) -> T {
        let Ok(done) = EventFd::from_flags(EfdFlags::EFD_CLOEXEC) else {
            return work();
        };
        let over = || {
            let mut fds = [PollFd::new(done.as_fd(), PollFlags::POLLIN)];
            let grace = PollTimeout::try_from(GRACE).unwrap_or(PollTimeout::MAX);
            poll(&mut fds, grace) != Ok(0)
        };
        std::thread::scope(|scope| {
            let watch = || {
                let mut fds = [
                    PollFd::new(done.as_fd(), PollFlags::POLLIN),
                    PollFd::new(self.fd.as_fd(), PollFlags::POLLIN),
                ];
                while poll(&mut fds, PollTimeout::NONE) == Err(Errno::EINTR) {}
                let [_, signal] = &fds;
                if signal.any() == Some(true) && !over() {
                    let failure = Failure::new(
                        Kind::NoAnswer,
                        "received a signal, but the attach did not finish in time",
                    );
                    let code = report.failure(&failure);
                    midair_session::close_shared_descriptors();
                    std::process::exit(i32::from(code));
                }
            };
            // The end is signalled also when `work` panics. If the thread could not be started, a
            // signal waits for the attach.
            let _told = SignalOnDrop(&done);
            let _ = std::thread::Builder::new()
                .name("signals".to_owned())
                .spawn_scoped(scope, watch);
            work()
        })
    }

    /// Unblocks the signals and discards pending ones. Once the target is free, another Ctrl-C may
    /// end this process while it writes.
    pub fn release(self) {
        while self.next().is_some() {}
        let _ = self.set.thread_unblock();
    }
}

/// Signals, when it is dropped, that something is over.
struct SignalOnDrop<'a>(&'a EventFd);

impl Drop for SignalOnDrop<'_> {
    fn drop(&mut self) {
        let _ = self.0.write(1);
    }
}

/// Standard input, as far as it can end an attach.
#[derive(Debug)]
pub struct Input<'a> {
    fd: Option<BorrowedFd<'a>>,
    /// Whether its end is no end of an attach.
    outlived: bool,
}

impl<'a> Input<'a> {
    /// Makes an input on which Enter, or its end, ends the attach. If hangups are ignored, this
    /// program outlives its terminal, and the end of the input ends nothing.
    pub fn watched(fd: BorrowedFd<'a>) -> Input<'a> {
        Input {
            fd: Some(fd),
            outlived: is_ignored(Signal::SIGHUP as i32),
        }
    }

    /// Makes an input that is never read.
    pub fn ignored() -> Input<'a> {
        Input {
            fd: None,
            outlived: true,
        }
    }

    /// Returns the descriptor to wait for. There is none while another job is in the foreground of
    /// the terminal, because reading would then stop this process.
    pub(crate) fn ready_to_watch(&self) -> Option<BorrowedFd<'a>> {
        let fd = self.fd?;
        match nix::unistd::tcgetpgrp(fd) {
            Ok(holder) if holder != nix::unistd::getpgrp() => None,
            _ => Some(fd),
        }
    }

    /// Reads the input, which is ready. Returns why it ends the attach, or none if it has no whole
    /// line yet.
    pub(crate) fn read(&mut self) -> Option<Ended> {
        let mut chunk = [0; 256];
        match nix::unistd::read(self.fd?, &mut chunk) {
            Ok(0) if !self.outlived => Some(Ended::EndOfInput),
            Ok(count) if count > 0 => chunk[..count].contains(&b'\n').then_some(Ended::Enter),
            Err(Errno::EAGAIN | Errno::EINTR) => None,
            // The input has ended, or cannot be read at all, such as the terminal of an orphaned
            // job. Then only the other reasons can end the attach.
            Ok(_) | Err(_) => {
                self.fd = None;
                None
            }
        }
    }
}

/// Waits until something ends the attach. `seen` is called after every poll of the session, at
/// least once per heartbeat, with the notices about several processes.
pub fn wait(
    attached: &mut dyn Attached,
    signals: &Signals,
    mut input: Input<'_>,
    duration: Option<Duration>,
    seen: &mut dyn FnMut(Event, &[Notice]),
) -> Result<Ended, Failure> {
    // A duration that exceeds the clock's range never ends.
    let deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
    loop {
        let event = attached.poll()?;
        seen(event, &attached.news());
        if let Event::TargetExited(end) = event {
            return Ok(Ended::Target(end));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(Ended::Duration);
        }
        let pause = attached.heartbeat().min(left.unwrap_or(Duration::MAX));
        // The pause is rounded up, since a timeout of zero would spin through the last millisecond.
        let pause =
            PollTimeout::try_from(pause + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);

        let watched = input.ready_to_watch();
        let mut fds = vec![PollFd::new(signals.fd.as_fd(), PollFlags::POLLIN)];
        fds.extend(watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(attached.wake().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match poll(&mut fds, pause) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                return Err(Failure::new(
                    Kind::Enter,
                    format!("waiting failed: {}", errno.desc()),
                ));
            }
        }
        let ready = |index: usize| fds.get(index).and_then(|fd| fd.any()).unwrap_or(false);
        let (signalled, typed) = (ready(0), watched.is_some() && ready(1));
        // Where both happened, the target's end counts, because there is nothing left to detach
        // from.
        if (signalled || typed)
            && let Event::TargetExited(end) = attached.poll()?
        {
            return Ok(Ended::Target(end));
        }
        if signalled && let Some(signal) = signals.next() {
            return Ok(Ended::Signal(signal));
        }
        if typed && let Some(ended) = input.read() {
            return Ok(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_a_whole_line_or_the_end_counts() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut input = Input::watched(reader.as_fd());
        assert!(input.ready_to_watch().is_some());
        writer.write_all(b"typed, not entered").unwrap();
        assert_eq!(input.read(), None);
        writer.write_all(b" yet\nmore").unwrap();
        assert_eq!(input.read(), Some(Ended::Enter));
        drop(writer);
        assert_eq!(input.read(), Some(Ended::EndOfInput));
    }

    #[test]
    fn input_that_cannot_be_read_is_given_up() {
        let (_reader, writer) = std::io::pipe().unwrap();
        // The writing end cannot be read. Each read fails with EBADF, which must not turn into a
        // busy loop.
        let mut input = Input::watched(writer.as_fd());
        assert_eq!(input.read(), None);
        assert!(input.ready_to_watch().is_none());
    }
}
