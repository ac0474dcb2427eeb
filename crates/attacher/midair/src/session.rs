//! A recording that goes on.

use crate::error::{Error, Kind};
use crate::recording::Recording;
use midair_failure::Failure;
use midair_session::{Collected, Event};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How often the records are collected. The process's side ends the session if nothing is collected
/// for five seconds.
pub(crate) const EACH: Duration = Duration::from_millis(100);

/// What the thread returns: the records, and why collecting ended early, if it did.
type Gathered = Result<(Collected, Option<Failure>), Failure>;

/// A process that is being recorded. A thread collects the records. When this is dropped, the
/// process is detached from and the records are lost.
#[derive(Debug)]
pub struct Session {
    /// Ends the thread when it is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Gathered>>,
}

impl Session {
    pub(crate) fn follow(
        session: midair_session::Session,
        duration: Option<Duration>,
        each: Duration,
    ) -> Result<Session, Error> {
        let (stop, stopped) = channel();
        let thread = Builder::new()
            .name("midair".to_owned())
            .spawn(move || collect(session, duration, each, &stopped))
            .map_err(|error| Error::new(Kind::Enter, format!("cannot make a thread: {error}")))?;
        Ok(Session {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Whether the process is still being recorded.
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Waits until the duration is over or the process has ended, and detaches.
    ///
    /// # Errors
    /// Why nothing could be collected.
    pub fn wait(mut self) -> Result<Recording, Error> {
        let ended = self.thread.take().map(JoinHandle::join);
        let Some(Ok(collected)) = ended else {
            return Err(Error::new(
                Kind::DetachFailed,
                "the thread that collects records ended",
            ));
        };
        let (collected, failed) = collected?;
        Recording::of(collected, failed)
    }

    /// Detaches.
    ///
    /// # Errors
    /// Why nothing could be collected.
    pub fn detach(mut self) -> Result<Recording, Error> {
        self.stop = None;
        self.wait()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn collect(
    mut session: midair_session::Session,
    duration: Option<Duration>,
    each: Duration,
    stopped: &Receiver<()>,
) -> Gathered {
    // A duration that exceeds the clock's range never ends.
    let deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
    // A failed poll is followed by a detach: the process must be free.
    let failed = loop {
        match session.poll() {
            Ok(Event::Running { .. }) => {}
            Ok(_) => break None,
            Err(failure) => break Some(failure),
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            break None;
        }
        match stopped.recv_timeout(each.min(left.unwrap_or(each))) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    session.detach().map(|collected| (collected, failed))
}
