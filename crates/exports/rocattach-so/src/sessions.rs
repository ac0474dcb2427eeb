//! Sessions by process. A thread of its own owns each session between attach and detach.

use crate::engine::{Engine, LiveSession, Progress};
use midair_failure::{Failure, Kind};
use midair_session::Pid;
use midair_settings::Settings;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time between two polls of a session. A detach ends the wait earlier.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How a session ended.
pub type Ending = Result<Vec<PathBuf>, Failure>;

#[derive(Debug)]
enum Slot {
    /// Another call is attaching or detaching.
    Busy,
    /// A session exists.
    Active(SessionThread),
}

#[derive(Debug)]
struct SessionThread {
    /// Dropping it requests the detach.
    go_on: Sender<()>,
    thread: JoinHandle<Ending>,
}

/// The sessions of this process.
#[derive(Debug, Default)]
pub struct Sessions {
    slots: Mutex<BTreeMap<Pid, Slot>>,
    /// The processes that were attached to as a tree, by the tree's root.
    pub(crate) trees: Mutex<BTreeMap<Pid, Vec<Pid>>>,
    /// The last attach that failed, for the message of a `detach()` that finds no session.
    refused: Mutex<Option<(i32, Failure)>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The maps are valid after any panic: every change is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    /// Makes an empty collection.
    pub const fn new() -> Sessions {
        Sessions {
            slots: Mutex::new(BTreeMap::new()),
            trees: Mutex::new(BTreeMap::new()),
            refused: Mutex::new(None),
        }
    }

    /// Attaches to `pid`. Returns when the target records or has refused.
    ///
    /// # Errors
    /// [`Kind::Usage`] for a number that is no pid, or for a pid that already has a session here.
    /// Otherwise the engine's failure.
    pub fn attach(
        &self,
        engine: &'static dyn Engine,
        pid: Pid,
        settings: Settings,
    ) -> Result<(), Failure> {
        let result = self.attach_inner(engine, pid, settings);
        self.note(pid.raw(), result.as_ref().err());
        result
    }

    /// Remembers how the last attach ended. `pid` is the number as the caller named it.
    pub(crate) fn note(&self, pid: i32, refused: Option<&Failure>) {
        *lock(&self.refused) = refused.map(|failure| (pid, failure.clone()));
    }

    fn attach_inner(
        &self,
        engine: &'static dyn Engine,
        pid: Pid,
        settings: Settings,
    ) -> Result<(), Failure> {
        {
            let mut slots = lock(&self.slots);
            if slots.contains_key(&pid) {
                return Err(Failure::new(
                    Kind::Usage,
                    format!("process {pid} already has a session of this program"),
                )
                .hint("detach from it first"));
            }
            slots.insert(pid, Slot::Busy);
        }
        let started = start(engine, pid, settings);
        let mut slots = lock(&self.slots);
        match started {
            Ok(session) => {
                slots.insert(pid, Slot::Active(session));
                Ok(())
            }
            Err(failure) => {
                slots.remove(&pid);
                Err(failure)
            }
        }
    }

    /// Detaches from `pid`. The files are complete when this returns.
    ///
    /// # Errors
    /// [`Kind::Usage`] when there is no session with it. Otherwise how the session ended.
    pub fn detach(&self, pid: Pid) -> Ending {
        let session = {
            let mut slots = lock(&self.slots);
            match slots.get(&pid) {
                None => {
                    return Err(no_session(pid.raw()));
                }
                Some(Slot::Busy) => {
                    return Err(Failure::new(
                        Kind::Busy,
                        format!("another thread is attaching to or detaching from process {pid}"),
                    ));
                }
                Some(Slot::Active(_)) => {}
            }
            // The slot stays busy until the files are written, since a new attach would find the
            // target still in use.
            match slots.insert(pid, Slot::Busy) {
                Some(Slot::Active(session)) => session,
                _ => {
                    return Err(no_session(pid.raw()));
                }
            }
        };
        drop(session.go_on);
        let ending = session
            .thread
            .join()
            .unwrap_or_else(|_| Err(thread_died(pid)));
        lock(&self.slots).remove(&pid);
        ending
    }

    /// Detaches from every process in order, and returns how each session ended. The list is empty
    /// when there is no session.
    pub fn detach_all(&self) -> Vec<(Pid, Ending)> {
        lock(&self.trees).clear();
        let pids: Vec<Pid> = lock(&self.slots)
            .iter()
            .filter(|(_, s)| matches!(s, Slot::Active(_)))
            .map(|(pid, _)| *pid)
            .collect();
        pids.into_iter()
            .map(|pid| (pid, self.detach(pid)))
            .collect()
    }

    /// Whether there is a session with `pid`.
    pub fn has(&self, pid: Pid) -> bool {
        lock(&self.slots).contains_key(&pid)
    }

    /// Returns the last attach, if it failed.
    pub fn last_refusal(&self) -> Option<(i32, Failure)> {
        lock(&self.refused).clone()
    }
}

/// Converts the number by which a C program names a process.
///
/// # Errors
/// [`Kind::Usage`] for a number that is no process id.
pub(crate) fn named(pid: i32) -> Result<Pid, Failure> {
    Pid::try_from(pid).map_err(|_| Failure::new(Kind::Usage, format!("{pid} is not a process id")))
}

/// Returns the failure for a process without a session.
pub(crate) fn no_session(pid: i32) -> Failure {
    Failure::new(Kind::Usage, format!("no session with process {pid}"))
}

pub(crate) fn thread_died(pid: Pid) -> Failure {
    Failure::new(
        Kind::Enter,
        format!("the thread of the session with process {pid} ended unexpectedly"),
    )
}

fn start(
    engine: &'static dyn Engine,
    pid: Pid,
    settings: Settings,
) -> Result<SessionThread, Failure> {
    let (go_on, stop) = channel::<()>();
    let (tell, answer) = channel();
    let thread = with_signals_blocked(|| {
        std::thread::Builder::new()
            .name(format!("rocattach {pid}"))
            .spawn(move || {
                match engine.attach(pid, settings) {
                    Ok(live) => {
                        // The attaching thread waits for this message, so it is received.
                        let _ = tell.send(Ok(()));
                        follow(live, &stop)
                    }
                    Err(failure) => {
                        let _ = tell.send(Err(failure));
                        Ok(Vec::new())
                    }
                }
            })
    })
    .map_err(|error| {
        Failure::new(
            Kind::Enter,
            format!("cannot create a thread for the session: {error}"),
        )
    })?;
    match answer.recv() {
        Ok(Ok(())) => Ok(SessionThread { go_on, thread }),
        Ok(Err(failure)) => {
            let _ = thread.join();
            Err(failure)
        }
        Err(_) => Err(thread_died(pid)),
    }
}

/// Follows the target until it ends or a detach is requested, and then finishes the session.
fn follow(mut live: Box<dyn LiveSession>, stop: &Receiver<()>) -> Ending {
    let failed = loop {
        match live.follow() {
            Ok(Progress::Running) => {}
            Ok(Progress::Ended) => break None,
            Err(failure) => break Some(failure),
        }
        match stop.recv_timeout(POLL_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    let ending = live.finish();
    match (ending, failed) {
        // The records are written, but collecting failed, and that must not look like success.
        (Ok(_), Some(failure)) => Err(failure),
        (ending, _) => ending,
    }
}

/// Runs `body` with all signals blocked, so that the threads it makes have them blocked, too. The
/// host program's signal handlers then run on its own threads, never on ours.
fn with_signals_blocked<T>(body: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises `all`; pthread_sigmask writes `before`. Both live across the
    // calls.
    let blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let result = body();
    if blocked {
        // SAFETY: `before` was written by the call that succeeded.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}

#[cfg(test)]
mod tests;
