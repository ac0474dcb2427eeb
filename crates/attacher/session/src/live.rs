//! What a session reports to a view while it runs.

use crate::recorder::{self, Disk, Recorder};
use crate::target::Target;
use midair_failure::Failure;
use midair_live::{Answer, Counter, Cut, Flight, Model, Pulse, Trigger};
use midair_output::Keep;
use midair_record::spool::Head;
use midair_results::Written;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the worker thread's processor time is read.
const WORKER: Duration = Duration::from_secs(1);
/// How long after the end of a span its last record may still arrive, in nanoseconds.
const LATE: u64 = 300_000_000;
/// The most GPUs whose memory is watched.
const MOST_GPUS: usize = 64;

/// The model of a session, and the measurements for it.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) model: Arc<Mutex<Model>>,
    worker: Option<(Instant, Option<u64>)>,
    memory: Option<f64>,
    /// The threads that write windows.
    writers: Vec<JoinHandle<()>>,
    recorder: Option<Recorder>,
    /// The render nodes of the machine's GPUs, if their memory may be an event.
    minors: Vec<u32>,
    /// The number of windows that were requested because of events.
    made: u32,
    /// The number of events that were not written.
    passed_by: u64,
    disk: Option<Disk>,
}

impl Live {
    /// `minors` are the numbers of the GPUs' render nodes.
    pub(crate) fn new(
        model: Arc<Mutex<Model>>,
        recorder: Option<Recorder>,
        minors: impl Iterator<Item = u32>,
    ) -> Live {
        let triggers = recorder.iter().flat_map(|recorder| &recorder.triggers);
        let of_memory = triggers.clone().any(Trigger::is_of_memory);
        let triggers: Vec<Trigger> = triggers.cloned().collect();
        model
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .arm(&triggers);
        Live {
            model,
            worker: None,
            memory: None,
            writers: Vec::new(),
            minors: minors.take(if of_memory { MOST_GPUS } else { 0 }).collect(),
            made: 0,
            passed_by: 0,
            disk: recorder.as_ref().map(|recorder| Disk {
                taken: Arc::default(),
                most: recorder.bytes,
            }),
            recorder,
        }
    }

    /// Updates the model after the records of a poll. `now` is the present in their clock.
    pub(crate) fn pulse(
        &mut self,
        head: &Head,
        target: &Target,
        now: u64,
        kept_bytes: u64,
        metrics: Vec<Counter>,
    ) {
        let fresh = |(at, _): &(Instant, Option<u64>)| at.elapsed() < WORKER;
        let worker = match self.worker.filter(fresh) {
            Some((_, ns)) => ns,
            None => {
                let ns = target
                    .worker_time()
                    .map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
                self.memory = recorder::memory(self.minors.iter().copied());
                self.worker = Some((Instant::now(), ns));
                ns
            }
        };
        let dropped = head.dropped.iter().map(|count| count.load(Relaxed));
        let pulse = Pulse {
            now,
            flights: flights(head),
            lost: dropped.fold(0, u64::saturating_add),
            worker_ns: worker,
            kept_bytes,
            memory: self.memory,
            metrics,
        };
        self.with(|model| model.pulse(pulse));
        self.record_events(kept_bytes);
    }

    /// Returns what the windows may take of the disk, where there is a limit.
    pub(crate) fn disk(&self) -> Option<Disk> {
        self.disk.clone()
    }

    /// Requests a window around each event, within the limits. An event within a window that is
    /// still awaited needs no window of its own.
    fn record_events(&mut self, kept_bytes: u64) {
        let Some(recorder) = &self.recorder else {
            return;
        };
        for event in self.with(Model::happened) {
            if self.has_cuts() {
                continue;
            }
            let taken = self
                .disk
                .as_ref()
                .map_or(0, |disk| disk.taken.load(Relaxed));
            let full = taken.saturating_add(kept_bytes) > recorder.bytes;
            if self.made >= recorder.most || full {
                self.passed_by += 1;
                continue;
            }
            self.made += 1;
            let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let cut = Cut {
                from: event.at.saturating_sub(nanos(recorder.before)),
                to: event.at.saturating_add(nanos(recorder.after)),
                why: event.what,
            };
            self.with(|model| model.wish_for(cut));
        }
    }

    /// Returns a note about events that were not written because of the limits.
    pub(crate) fn note(&self) -> Option<String> {
        let count = self.passed_by;
        let what = "further events were not written: --keep-windows or --keep-disk was reached";
        (count > 0).then(|| format!("{count} {what}"))
    }

    /// Tells the model that the session is over.
    pub(crate) fn end(&self, how: &str) {
        self.with(|model| model.end(how));
    }

    /// Returns what the view asks for: what to keep from now on, and the spans that are over. At
    /// the end of the session (`last`) all spans are over.
    pub(crate) fn wishes(&self, last: bool) -> (Option<Keep>, Vec<Cut>) {
        self.with(|model| {
            let late = model.now().saturating_sub(LATE);
            (model.keep_wished(), model.cuts_due((!last).then_some(late)))
        })
    }

    /// Whether the view waits for the end of a span.
    pub(crate) fn has_cuts(&self) -> bool {
        self.with(|model| model.has_cuts())
    }

    /// Writes the files of a window on a thread of its own, and tells the view about them.
    pub(crate) fn write(
        &mut self,
        cut: Cut,
        write: impl FnOnce() -> Result<Written, Failure> + Send + 'static,
    ) {
        let model = Arc::clone(&self.model);
        let why = cut.why.clone();
        let work = move || {
            let files = write().map_err(|failure| failure.what).map(|written| {
                let files = written.files.iter();
                files.map(|file| file.display().to_string()).collect()
            });
            let answer = Answer { why, files };
            model
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .answer(answer);
        };
        self.writers.retain(|writer| !writer.is_finished());
        match std::thread::Builder::new()
            .name("window".to_owned())
            .spawn(work)
        {
            Ok(writer) => self.writers.push(writer),
            Err(error) => self.fail(cut, format!("cannot create its thread: {error}")),
        }
    }

    /// Tells the view that no files were written.
    pub(crate) fn fail(&self, cut: Cut, why: String) {
        self.with(|model| {
            model.answer(Answer {
                why: cut.why,
                files: Err(why),
            })
        });
    }

    /// Waits until all files are written.
    pub(crate) fn finish(&mut self) {
        for writer in self.writers.drain(..) {
            // A panic there has been printed, so there is nothing left to report.
            let _ = writer.join();
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Model) -> T) -> T {
        act(&mut self.model.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the heads of the queues, as they are in the spool.
fn flights(head: &Head) -> Vec<Flight> {
    let told = head.flights.iter().map(|entry| Flight {
        queue: entry.queue.load(Acquire),
        node: entry.node.load(Relaxed),
        dispatch: entry.dispatch.load(Relaxed),
        kernel_object: entry.kernel_object.load(Relaxed),
        rung: entry.rung.load(Relaxed),
        under_way: entry.under_way.load(Relaxed),
    });
    told.take_while(|flight| flight.queue != 0).collect()
}
