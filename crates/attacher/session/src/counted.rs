//! The file of what was counted so far, written while the session runs (`--live-counters`).
//!
//! A thread reads the records that have been collected and writes the file, while the session goes
//! on collecting. The thread works at most a tenth of the time: the longer a write takes, the
//! longer the pause after it.

use crate::rights;
use midair_failure::Failure;
use midair_procinfo::Pid;
use midair_results::Finished;
use midair_settings::{LIVE_COUNTERS, Settings};
use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The least pause between the end of one write and the start of the next.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause is this many times as long as the write before it.
const REST: u32 = 9;

/// How long a write took, or why it failed.
type Work = Result<Duration, Failure>;

/// The file, and the thread that writes it.
#[derive(Debug)]
pub(crate) struct Counted {
    file: PathBuf,
    next: Instant,
    work: Option<JoinHandle<Work>>,
    failed: Option<String>,
}

impl Counted {
    /// Makes the writer, where the settings ask for the file.
    pub(crate) fn of(settings: &Settings, pid: Pid) -> Option<Counted> {
        let directory = settings
            .text(LIVE_COUNTERS)
            .filter(|text| !text.is_empty())?;
        settings.asks_for_counters().then(|| Counted {
            file: PathBuf::from(directory).join(format!("{pid}.csv")),
            next: Instant::now() + PAUSE,
            work: None,
            failed: None,
        })
    }

    /// Starts to write what `so_far` returns, if it is time. Does not wait.
    pub(crate) fn poll(&mut self, so_far: impl FnOnce() -> io::Result<Finished>) {
        if self.work.as_ref().is_some_and(JoinHandle::is_finished) {
            self.take();
        }
        if self.work.is_some() || self.failed.is_some() || Instant::now() < self.next {
            return;
        }
        let file = self.file.clone();
        let begun = so_far().and_then(|finished| {
            std::thread::Builder::new()
                .name("live counters".to_owned())
                .spawn(move || write(finished, file))
        });
        match begun {
            Ok(work) => self.work = Some(work),
            Err(error) => self.failed = Some(error.to_string()),
        }
    }

    /// Waits for a write in progress. Returns why nothing was written, if it failed.
    pub(crate) fn end(mut self) -> Option<String> {
        self.take();
        let failed = self.failed?;
        Some(format!(
            "cannot write counter values while attached: {failed}"
        ))
    }

    fn take(&mut self) {
        let Some(work) = self.work.take() else {
            return;
        };
        match work.join() {
            Ok(Ok(took)) => self.next = Instant::now() + PAUSE.max(took * REST),
            Ok(Err(failure)) => self.failed = Some(failure.what),
            Err(_) => self.failed = Some("an internal error of midair".to_owned()),
        }
    }
}

fn write(finished: Finished, file: PathBuf) -> Work {
    let began = Instant::now();
    rights::as_real_user(|| finished.write_counted_so_far(&file))
        .unwrap_or_else(|error| Err(rights::cannot_drop(&error)))?;
    Ok(began.elapsed())
}
