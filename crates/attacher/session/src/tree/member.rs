//! One process of a group, and the thread of this side that attaches to it, follows it and
//! detaches.

use crate::collected::Collected;
use crate::request::{Entry, Event, Request};
use crate::session::Session;
use midair_failure::{Failure, Kind};
use midair_procinfo::Pid;
use midair_results::End;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a member waits for other members that are entering at the time.
const TURN: Duration = Duration::from_secs(1);

/// The longest time between two polls of a session.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Attaches to the processes of a group: the engine, or a script in tests.
pub(super) trait Attacher: Debug + Send + Sync {
    /// Attaches to one process, on the thread of its member.
    fn attach(&self, request: &Request) -> Result<Box<dyn Recording>, Failure>;
}

/// A session, as its member follows it. It has the functions of [`Session`].
pub(super) trait Recording {
    fn entry(&self) -> &Entry;
    fn wake(&self) -> BorrowedFd<'_>;
    fn poll(&mut self) -> Result<Event, Failure>;
    fn detach(self: Box<Self>) -> Result<Collected, Failure>;
}

/// Attaches through the engine.
#[derive(Debug)]
pub(super) struct Engine;

impl Attacher for Engine {
    fn attach(&self, request: &Request) -> Result<Box<dyn Recording>, Failure> {
        Ok(Box::new(Session::attach(request)?))
    }
}

impl Recording for Session {
    fn entry(&self) -> &Entry {
        Session::entry(self)
    }

    fn wake(&self) -> BorrowedFd<'_> {
        Session::wake(self)
    }

    fn poll(&mut self) -> Result<Event, Failure> {
        Session::poll(self)
    }

    fn detach(self: Box<Self>) -> Result<Collected, Failure> {
        Session::detach(*self)
    }
}

/// A member's reports. Each is sent at most once, and in this order.
#[derive(Debug)]
pub(super) enum Report {
    /// The session records. The duration is the time since the start of the attach.
    Attached(Entry, Duration),
    /// The process was not attached.
    Refused(Failure),
    /// The process has ended, or has become another program. The session is being completed.
    Ending(End),
    /// The session is over: how the process ended, if it did, and what was recorded.
    Over(Option<End>, Box<Result<Collected, Failure>>),
}

/// What a group and its members share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Signalled when a member has sent a report.
    pub(super) wakeup: EventFd,
    attacher: Box<dyn Attacher>,
    limiter: Limiter,
}

impl Shared {
    pub(super) fn new(attacher: Box<dyn Attacher>) -> Result<Shared, Failure> {
        Ok(Shared {
            wakeup: signal()?,
            attacher,
            limiter: Limiter::new(concurrency()),
        })
    }
}

/// Returns how many processes are entered at one time. Each entry takes a processor on both sides
/// for some milliseconds.
fn concurrency() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| cores.get().clamp(4, 32))
}

/// A counting semaphore.
#[derive(Debug)]
struct Limiter {
    /// Below zero where members did not wait any longer for their turn.
    left: Mutex<isize>,
    back: Condvar,
}

impl Limiter {
    fn new(count: usize) -> Limiter {
        Limiter {
            left: Mutex::new(isize::try_from(count).unwrap_or(isize::MAX)),
            back: Condvar::new(),
        }
    }

    /// Waits for a turn, but not for ever: the members before this one may be blocked by their
    /// processes.
    fn with<T>(&self, act: impl FnOnce() -> T) -> T {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut left, _) = self
            .back
            .wait_timeout_while(left, TURN, |left| *left <= 0)
            .unwrap_or_else(PoisonError::into_inner);
        *left -= 1;
        drop(left);
        let done = act();
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.back.notify_one();
        done
    }
}

/// A member's counters.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) records: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// One member, seen from the group.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) pid: Pid,
    pub(super) name: String,
    pub(super) counters: Arc<Counters>,
    /// Whether it has sent [`Report::Ending`].
    pub(super) ending: bool,
    /// Whether it has sent [`Report::Attached`].
    pub(super) attached: bool,
    began: Instant,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    wakeup: EventFd,
}

fn signal() -> Result<EventFd, Failure> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(|errno| {
        Failure::new(
            Kind::Enter,
            format!(
                "cannot create a descriptor for the session: {}",
                errno.desc()
            ),
        )
        .hint("the limit of open files may be too low: ulimit -n")
    })
}

impl Member {
    /// Starts a member, which attaches. Every report carries `number`.
    pub(super) fn start(
        number: usize,
        name: String,
        request: Request,
        shared: &Arc<Shared>,
        reports: Sender<(usize, Report)>,
    ) -> Result<Member, Failure> {
        let stop = Arc::new(Stop {
            asked: AtomicBool::new(false),
            wakeup: signal()?,
        });
        let counters = Arc::new(Counters::default());
        let pid = request.pid;
        let work = Work {
            request,
            stop: Arc::clone(&stop),
            counters: Arc::clone(&counters),
            shared: Arc::clone(shared),
        };
        let thread = std::thread::Builder::new()
            .name(format!("session {pid}"))
            .spawn(move || {
                let report = |report| {
                    // This fails only where the group has given up on all members.
                    let _ = reports.send((number, report));
                    let _ = work.shared.wakeup.write(1);
                };
                work.run(report);
            })
            .map_err(|error| {
                Failure::new(
                    Kind::Enter,
                    format!("cannot create a thread for the session: {error}"),
                )
            })?;
        Ok(Member {
            pid,
            name,
            counters,
            ending: false,
            attached: false,
            began: Instant::now(),
            stop,
            thread: Some(thread),
        })
    }

    /// Asks the member to detach.
    pub(super) fn stop(&self) {
        self.stop.asked.store(true, Relaxed);
        let _ = self.stop.wakeup.write(1);
    }

    /// Whether its attach takes longer than this, so that its process must be blocking it.
    pub(super) fn is_held_up(&self, longest: Duration) -> bool {
        !self.attached && self.began.elapsed() > longest
    }

    /// Leaves its thread behind, without waiting for it.
    pub(super) fn abandon(mut self) {
        self.stop();
        self.thread = None;
    }

    /// Whether its thread ended.
    pub(super) fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its thread, which has sent its last report, is about to, or panicked.
    pub(super) fn join(&mut self) {
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // A session must not go on when its group is gone.
        self.stop();
        self.join();
    }
}

struct Work {
    request: Request,
    stop: Arc<Stop>,
    counters: Arc<Counters>,
    shared: Arc<Shared>,
}

impl Work {
    fn run(&self, report: impl Fn(Report)) {
        let began = Instant::now();
        let attached = self.shared.limiter.with(|| {
            if self.stop.asked.load(Relaxed) {
                return Err(Failure::new(
                    Kind::Enter,
                    "the group ended before the start of this attach",
                ));
            }
            self.shared.attacher.attach(&self.request)
        });
        let mut session = match attached {
            Ok(session) => session,
            Err(failure) => return report(Report::Refused(failure)),
        };
        report(Report::Attached(session.entry().clone(), began.elapsed()));
        let followed = self.follow(session.as_mut());
        let (end, trouble) = match followed {
            Ok(end) => (end, None),
            Err(failure) => (None, Some(failure)),
        };
        // The report comes before the detach, which may take a moment. Whoever waits for the end of
        // the process need not wait for the detach.
        if let Some(end) = end {
            report(Report::Ending(end));
        }
        let collected = match (session.detach(), trouble) {
            // The records are kept, and the failure is reported with them.
            (Ok(mut collected), Some(failure)) => {
                collected.finished.failure.get_or_insert(failure);
                Ok(collected)
            }
            (collected, _) => collected,
        };
        report(Report::Over(end, Box::new(collected)));
    }

    /// Polls until the process ends, or until it is asked to stop.
    fn follow(&self, session: &mut dyn Recording) -> Result<Option<End>, Failure> {
        loop {
            match session.poll()? {
                Event::TargetExited(end) => return Ok(Some(end)),
                Event::Running { records, bytes } => {
                    self.counters.records.store(records, Relaxed);
                    self.counters.bytes.store(bytes, Relaxed);
                }
            }
            if self.stop.asked.load(Relaxed) {
                return Ok(None);
            }
            let mut fds = [
                PollFd::new(self.stop.wakeup.as_fd(), PollFlags::POLLIN),
                PollFd::new(session.wake(), PollFlags::POLLIN),
            ];
            let pause = PollTimeout::try_from(HEARTBEAT).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, pause) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => {
                    return Err(Failure::new(
                        Kind::Enter,
                        format!("waiting failed: {}", errno.desc()),
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::mpsc::channel;

    #[test]
    fn so_many_have_a_turn_at_one_time() {
        let limiter = Limiter::new(2);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    limiter.with(|| {
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        std::thread::sleep(Duration::from_millis(20));
                        inside.fetch_sub(1, SeqCst);
                    });
                });
            }
        });
        assert_eq!(most.load(SeqCst), 2);
        assert_eq!(*limiter.left.lock().unwrap(), 2, "all turns are back");
        assert_eq!(limiter.with(|| 7), 7);
    }

    /// A turn that is never given back keeps the others waiting for a second only.
    #[test]
    fn a_turn_that_does_not_end_blocks_nobody() {
        let limiter = Limiter::new(1);
        let (go, wait) = channel::<()>();
        std::thread::scope(|scope| {
            let limiter = &limiter;
            let (has_it, got_it) = channel::<()>();
            scope.spawn(move || {
                limiter.with(|| {
                    has_it.send(()).unwrap();
                    let _ = wait.recv();
                });
            });
            got_it.recv().unwrap();
            let began = Instant::now();
            limiter.with(|| assert_eq!(*limiter.left.lock().unwrap(), -1));
            assert!(began.elapsed() >= TURN);
            drop(go);
        });
        assert_eq!(*limiter.left.lock().unwrap(), 1);
    }

    #[test]
    fn several_are_entered_at_one_time() {
        assert!((4..=32).contains(&concurrency()));
    }
}
