//! One process of a group: a thread of ours that attaches, follows and detaches.

use crate::collected::Collected;
use crate::request::{Entry, Event, Request};
use crate::session::Session;
use midair_failure::{Failure, Kind};
use midair_results::End;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest time between two looks at a spool.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// What a member has to tell, each once and in this order.
#[derive(Debug)]
pub(super) enum Said {
    /// It records; so long after the attach began.
    Attached(Entry, Duration),
    /// It was not attached.
    Refused(Failure),
    /// Its process has ended, or become another program; the session is being brought to its end.
    Ending(End),
    /// Its session is over. How its process ended, if it did, and what it brought.
    Over(Option<End>, Box<Result<Collected, Failure>>),
}

/// What a group and its members have in common.
#[derive(Debug)]
pub(super) struct Common {
    /// Rung when a member has something to tell.
    pub(super) bell: EventFd,
    turns: Turns,
}

impl Common {
    pub(super) fn new() -> Result<Common, Failure> {
        Ok(Common {
            bell: signal()?,
            turns: Turns::new(at_once()),
        })
    }
}

/// How many are entered at one time: each takes a processor for some milliseconds, here and there.
fn at_once() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| cores.get().clamp(4, 32))
}

/// A number of turns, given out and taken back.
#[derive(Debug)]
struct Turns {
    left: Mutex<usize>,
    back: Condvar,
}

impl Turns {
    fn new(count: usize) -> Turns {
        Turns {
            left: Mutex::new(count),
            back: Condvar::new(),
        }
    }

    fn with<T>(&self, act: impl FnOnce() -> T) -> T {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = self
            .back
            .wait_while(left, |left| *left == 0)
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
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) counters: Arc<Counters>,
    /// It has said [`Said::Ending`].
    pub(super) ending: bool,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Stop {
    asked: AtomicBool,
    bell: EventFd,
}

fn signal() -> Result<EventFd, Failure> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(|errno| {
        Failure::new(
            Kind::Enter,
            format!("no descriptor for a session: {}", errno.desc()),
        )
        .hint("the limit of open files may be too low: ulimit -n")
    })
}

impl Member {
    /// Begins to attach. `number` is said with all that it tells.
    pub(super) fn start(
        number: usize,
        name: String,
        request: Request,
        common: &Arc<Common>,
        tell: Sender<(usize, Said)>,
    ) -> Result<Member, Failure> {
        let stop = Arc::new(Stop {
            asked: AtomicBool::new(false),
            bell: signal()?,
        });
        let counters = Arc::new(Counters::default());
        let pid = request.pid;
        let work = Work {
            request,
            stop: Arc::clone(&stop),
            counters: Arc::clone(&counters),
            common: Arc::clone(common),
        };
        let thread = std::thread::Builder::new()
            .name(format!("session {pid}"))
            .spawn(move || {
                let said = |said| {
                    // The group waits for this, or has given up on all.
                    let _ = tell.send((number, said));
                    let _ = work.common.bell.write(1);
                };
                work.run(said);
            })
            .map_err(|error| {
                Failure::new(Kind::Enter, format!("no thread for a session: {error}"))
            })?;
        Ok(Member {
            pid,
            name,
            counters,
            ending: false,
            stop,
            thread: Some(thread),
        })
    }

    /// Asks for the detach.
    pub(super) fn stop(&self) {
        self.stop.asked.store(true, Relaxed);
        let _ = self.stop.bell.write(1);
    }

    /// Whether its thread has ended.
    pub(super) fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its thread, which has said its last word or is about to. False when it came to an unforeseen end.
    pub(super) fn join(&mut self) -> bool {
        self.thread
            .take()
            .is_none_or(|thread| thread.join().is_ok())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Nobody follows a session whose group is gone.
        self.stop();
        self.join();
    }
}

struct Work {
    request: Request,
    stop: Arc<Stop>,
    counters: Arc<Counters>,
    common: Arc<Common>,
}

impl Work {
    fn run(&self, said: impl Fn(Said)) {
        let began = Instant::now();
        let attached = self.common.turns.with(|| {
            if self.stop.asked.load(Relaxed) {
                return Err(Failure::new(
                    Kind::Enter,
                    "the group ended before its turn came",
                ));
            }
            Session::attach(&self.request)
        });
        let mut session = match attached {
            Ok(session) => session,
            Err(failure) => return said(Said::Refused(failure)),
        };
        said(Said::Attached(session.entry().clone(), began.elapsed()));
        let followed = self.follow(&mut session);
        let (end, trouble) = match followed {
            Ok(end) => (end, None),
            Err(failure) => (None, Some(failure)),
        };
        // At once: what follows may take a moment, and whoever waits for the process need not.
        if let Some(end) = end {
            said(Said::Ending(end));
        }
        let collected = match (session.detach(), trouble) {
            // What was recorded is kept, and the trouble told with it.
            (Ok(mut collected), Some(failure)) => {
                collected.finished.failure.get_or_insert(failure);
                Ok(collected)
            }
            (collected, _) => collected,
        };
        said(Said::Over(end, Box::new(collected)));
    }

    /// Until the process ends, or it is asked to stop.
    fn follow(&self, session: &mut Session) -> Result<Option<End>, Failure> {
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
                PollFd::new(self.stop.bell.as_fd(), PollFlags::POLLIN),
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
