//! Attaches, looks and lists, each in a thread of its own, so many at a time. Where the one who asked
//! goes away, an attach ends.

use crate::always::{Always, Paused};
use crate::answer::{Answer, Body, answer, document, failed, file, refused};
use crate::ask::Record;
use crate::options::Options;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{HeaderValue, RETRY_AFTER};
use midair::{Attach, Format, Live, Recording, Session};
use midair_failure::{Failure, Kind};
use midair_live::{Process, Snapshot, Watched};
use midair_session::find::asked;
use midair_session::{Found, Labels, Pid, gpu_processes, list, why};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// The most lists of processes that are made at the same time.
pub(crate) const LISTS: usize = 2;
/// The most processes that one request records.
const MOST_AT_ONCE: usize = 64;
/// How often an attach looks whether anyone still waits for it.
const LOOK: Duration = Duration::from_millis(50);
/// The bytes of a file that are sent at once, and how many of those wait for a client.
const PART: usize = 64 << 10;
const WAITING: usize = 4;

/// How often records are collected for a view, and the memory for them in the process.
const COLLECT: Duration = Duration::from_millis(100);
const SPOOL: u64 = 64 << 20;

/// What failed, as an answer.
type Failed = Box<Answer>;

/// What attaches, looks and lists.
#[derive(Debug)]
pub(crate) struct Work {
    options: Arc<Options>,
    /// The `midair` whose libraries are used.
    program: Option<PathBuf>,
    /// What is recorded all the time.
    always: Option<Arc<Always>>,
    sessions: Arc<Semaphore>,
    lists: Arc<Semaphore>,
}

/// What an attach needs.
struct Tools {
    options: Arc<Options>,
    program: Option<PathBuf>,
    always: Option<Arc<Always>>,
}

/// Says when the one who asked has gone: it lives in the connection's future.
struct Waits(Arc<AtomicBool>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the `midair` of the installation that this program is in: it lies in `lib/rocprofiler-sdk`.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.ancestors().nth(3)?.join("bin/midair"))
}

impl Work {
    /// # Errors
    /// Where what `--always` asks for cannot start.
    pub(crate) fn new(options: Arc<Options>) -> Result<Work, Failure> {
        let program = program();
        Ok(Work {
            always: Always::start(&options, program.clone())?,
            program,
            sessions: Arc::new(Semaphore::new(options.sessions)),
            lists: Arc::new(Semaphore::new(LISTS)),
            options,
        })
    }

    /// Returns what is recorded all the time, if that was asked for.
    pub(crate) fn always(&self) -> Option<&Arc<Always>> {
        self.always.as_ref()
    }

    /// Returns what an attach needs.
    fn tools(&self) -> Tools {
        Tools {
            options: Arc::clone(&self.options),
            program: self.program.clone(),
            always: self.always.clone(),
        }
    }

    /// Returns how many attaches and looks are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.options.sessions - self.sessions.available_permits()
    }

    /// Lists the processes that may be named.
    pub(crate) async fn processes(&self) -> Answer {
        let options = Arc::clone(&self.options);
        let listed = in_thread(&self.lists, move |_| {
            let mut listing = list(false);
            listing
                .processes
                .retain(|listed| options.policy.allows(&listed.found));
            listing.unreadable = 0;
            Ok(listing.to_json(|failure| failure.hint.clone()))
        });
        match listed.await {
            Ok(listed) => document(&listed),
            Err(answer) => *answer,
        }
    }

    /// Looks at what a process waits for.
    pub(crate) async fn why(&self, pid: u32, time: Duration) -> Answer {
        let options = Arc::clone(&self.options);
        let seen = in_thread(&self.sessions, move |_| {
            let found = named(&options, pid)?;
            let seen = why(found.pid, midair_why::Options { time })?;
            still(&options, &found)?;
            Ok(seen.to_json())
        });
        match seen.await {
            Ok(seen) => document(&seen),
            Err(answer) => *answer,
        }
    }

    /// Watches a process for this time, and returns what it did then.
    pub(crate) async fn top(&self, pid: u32, time: Duration) -> Result<Value, Failed> {
        let tools = self.tools();
        in_thread(&self.sessions, move |gone| {
            let watch = Watch::start(&tools, pid)?;
            let deadline = Instant::now() + time;
            while watch.runs(&gone) && Instant::now() < deadline {
                pause(deadline);
            }
            let shown = watch.document();
            watch.end()?;
            shown
        })
        .await
    }

    /// Watches a process, with a document at each interval.
    pub(crate) async fn follow(&self, pid: u32, time: Duration, interval: Duration) -> Answer {
        let tools = self.tools();
        let Ok(permit) = Arc::clone(&self.sessions).try_acquire_owned() else {
            return busy();
        };
        let started = held(permit, move |_, permit| {
            Watch::start(&tools, pid).map(|watch| (watch, permit))
        });
        let (watch, permit) = match started.await {
            Ok(started) => started,
            Err(answer) => return *answer,
        };
        let (parts, received) = channel(WAITING);
        spawn_blocking(move || {
            let _permit = permit;
            watch.send(&parts, time, interval);
        });
        answer(
            StatusCode::OK,
            "text/event-stream",
            Body::Parts(received, None),
        )
    }

    /// Records, and sends the file.
    pub(crate) async fn record(&self, asked: Record) -> Answer {
        let tools = self.tools();
        let Ok(permit) = Arc::clone(&self.sessions).try_acquire_owned() else {
            return busy();
        };
        let (pid, format) = (asked.pid, asked.format);
        let recorded = held(permit, move |gone, permit| {
            let file = recorded(&tools, &asked, &gone)?;
            Ok((file, permit))
        });
        let ((opened, length), permit) = match recorded.await {
            Ok(recorded) => recorded,
            Err(answer) => return *answer,
        };
        let (parts, received) = channel(WAITING);
        spawn_blocking(move || {
            let _permit = permit;
            send(opened, length, &parts);
        });
        let of = pid.map_or("all".to_owned(), |pid| pid.to_string());
        let name = format!("gpu_{of}.{}", format.extension());
        file(&name, Body::Parts(received, Some(length)))
    }
}

/// The answer where too much is under way.
fn busy() -> Answer {
    let what = "too much is under way; see midair serve --sessions";
    let mut answer = refused(StatusCode::SERVICE_UNAVAILABLE, what);
    let second = HeaderValue::from_static("1");
    answer.headers_mut().insert(RETRY_AFTER, second);
    answer
}

/// Does something in a thread, unless so many do already.
async fn in_thread<T: Send + 'static>(
    of: &Arc<Semaphore>,
    act: impl FnOnce(Arc<AtomicBool>) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failed> {
    let Ok(permit) = Arc::clone(of).try_acquire_owned() else {
        return Err(Box::new(busy()));
    };
    held(permit, move |gone, _permit| act(gone)).await
}

/// Does something in a thread, which holds the permit as long as it runs.
async fn held<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    act: impl FnOnce(Arc<AtomicBool>, OwnedSemaphorePermit) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failed> {
    let waits = Waits(Arc::default());
    let gone = Arc::clone(&waits.0);
    let done = spawn_blocking(move || act(gone, permit)).await;
    drop(waits);
    let done = done
        .map_err(|_| Failure::new(Kind::Enter, "the thread of this request ended"))
        .flatten();
    done.map_err(|failure| Box::new(failed(&failure)))
}

/// Waits until the next look, or until the deadline if that is earlier.
fn pause(deadline: Instant) {
    std::thread::sleep(LOOK.min(deadline.saturating_duration_since(Instant::now())));
}

fn no_process(pid: u32) -> Failure {
    Failure::new(
        Kind::NoProcess,
        format!("there is no GPU process {pid} here"),
    )
    .hint("/processes lists them")
}

/// Returns the process with this number, if it may be named. Others are as if they were not there.
fn named(options: &Options, pid: u32) -> Result<Found, Failure> {
    let pid = Pid::new(pid).ok_or_else(|| no_process(pid))?;
    let found = asked(pid)?.filter(|found| options.policy.allows(found));
    found.ok_or_else(|| no_process(pid.get()))
}

/// Fails where the number has no process by now, another one, or one that may not be named any more.
pub(crate) fn still(options: &Options, found: &Found) -> Result<(), Failure> {
    let now = asked(found.pid)?;
    let is_same = |now: &Found| now.start_ticks == found.start_ticks;
    let allowed = now.filter(|now| is_same(now) && options.policy.allows(now));
    allowed.map_or_else(|| Err(no_process(found.pid.get())), |_| Ok(()))
}

/// Fails where the number has another process by now, or one that may not be named any more.
pub(crate) fn same(options: &Options, found: &Found) -> Result<(), Failure> {
    let now = asked(found.pid)?;
    match now {
        // Of a process that has ended, what was seen is all there is.
        None => Ok(()),
        Some(now) if now.start_ticks == found.start_ticks && options.policy.allows(&now) => Ok(()),
        Some(_) => Err(no_process(found.pid.get())),
    }
}

pub(crate) fn failure(error: &midair::Error) -> Failure {
    Failure::new(error.kind(), error.to_string()).hint(error.remedy())
}

impl Tools {
    /// Prepares an attach to one of so many processes, which share the bytes of a request.
    fn attach(&self, pid: u32, processes: u64) -> Attach {
        let mib = (self.options.most_mib / processes.max(1))
            .max(1)
            .to_string();
        let attach = Attach::new(pid).option("max-size", [mib.as_str()]);
        match &self.program {
            Some(program) => attach.program(program),
            None => attach,
        }
    }

    /// Has a process for itself where it is recorded all the time.
    fn pause(&self, pid: u32) -> Option<Paused> {
        self.always.as_ref()?.pause(pid)
    }
}

/// Records into a file without a name, and returns it with its length.
fn recorded(tools: &Tools, asked: &Record, gone: &AtomicBool) -> Result<(File, u64), Failure> {
    let all = match asked.pid {
        Some(pid) => vec![recording(tools, pid, 1, asked, gone)?],
        None => recordings(tools, asked, gone)?,
    };
    if gone.load(Ordering::Relaxed) {
        return Err(Failure::new(Kind::Nothing, "the client has gone"));
    }
    let unwritten = |error: io::Error| Failure::new(Kind::Output, error.to_string());
    let directory = tempfile::tempdir().map_err(unwritten)?;
    let path = directory.path().join("gpu");
    let files = Recording::to_file_labelled(all, asked.format, path);
    let files = files.map_err(|error| failure(&error))?;
    let [path] = files.as_slice() else {
        let what = "the process did nothing of that kind meanwhile";
        return Err(Failure::new(Kind::Nothing, what));
    };
    let file = opened(path).map_err(unwritten)?;
    let length = file.metadata().map_err(unwritten)?.len();
    match length <= tools.options.most_mib << 20 {
        true => Ok((file, length)),
        false => Err(
            Failure::new(Kind::Full, "the file is larger than --most-mib")
                .hint("record for a shorter time"),
        ),
    }
}

/// A recording, and what its process is.
type Labelled = (Recording, Vec<(String, String)>);

/// Whether a process has these labels.
fn has(found: &Found, labels: &[(&'static str, String)]) -> bool {
    labels.is_empty() || {
        let own = Labels::of(found.pid).unwrap_or_default().pairs();
        let is_own =
            |(key, value): &(&str, String)| own.iter().any(|(name, it)| name == key && it == value);
        labels.iter().all(is_own)
    }
}

/// Records all processes that may be named and have the labels, at the same time. Some may fail, unless all do.
fn recordings(tools: &Tools, asked: &Record, gone: &AtomicBool) -> Result<Vec<Labelled>, Failure> {
    let mut found = gpu_processes();
    found.retain(|found| tools.options.policy.allows(found) && has(found, &asked.labels));
    if found.len() > MOST_AT_ONCE {
        let what = format!("{} processes are more than {MOST_AT_ONCE}", found.len());
        return Err(Failure::new(Kind::Usage, what).hint("name one: pid=NUMBER"));
    }
    let processes = found.len() as u64;
    let record = |found: &Found| recording(tools, found.pid.get(), processes, asked, gone);
    let ended = std::thread::scope(|scope| {
        let threads = found.iter().map(|found| scope.spawn(|| record(found)));
        let threads: Vec<_> = threads.collect();
        let ended = threads.into_iter().filter_map(|thread| thread.join().ok());
        ended.collect::<Vec<_>>()
    });
    let (done, failed): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
    let done: Vec<Labelled> = done.into_iter().flatten().collect();
    match (done.is_empty(), failed.into_iter().find_map(Result::err)) {
        (false, _) => Ok(done),
        (true, Some(failure)) => Err(failure),
        (true, None) => Err(
            Failure::new(Kind::NotGpu, "no such process uses a GPU here")
                .hint("/processes lists them"),
        ),
    }
}

/// Records one of so many processes.
fn recording(
    tools: &Tools,
    pid: u32,
    processes: u64,
    asked: &Record,
    gone: &AtomicBool,
) -> Result<Labelled, Failure> {
    let options = &tools.options;
    let found = named(options, pid)?;
    let labels = match asked.format {
        Format::Pprof => Labels::of(found.pid).unwrap_or_default().pairs(),
        _ => Vec::new(),
    };
    let _paused = tools.pause(pid);
    // That may have taken seconds.
    still(options, &found)?;
    let mut attach = tools.attach(pid, processes);
    if asked.stacks != "off" {
        attach = attach.option("stacks", [asked.stacks]);
    }
    if asked.format == Format::Pprof {
        attach = attach.kernels().copies();
    }
    let percent = asked.overhead.map(|percent| percent.to_string());
    if let Some(percent) = &percent {
        attach = attach.option("max-overhead", [percent.as_str()]);
    }
    let session = attach.duration(asked.time).start();
    let session = session.map_err(|error| failure(&error))?;
    // An attach waits for a process that is starting. Dropping the session detaches.
    still(options, &found)?;
    let deadline = Instant::now() + asked.time;
    while session.is_running() && !gone.load(Ordering::Relaxed) {
        // The session ends by itself at that time.
        match Instant::now() < deadline {
            true => pause(deadline),
            false => break,
        }
    }
    let recording = match gone.load(Ordering::Relaxed) {
        true => session.detach(),
        false => session.wait(),
    };
    let recording = recording.map_err(|error| failure(&error))?;
    same(options, &found)?;
    Ok((recording, labels))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file that this program has written"
)]
fn opened(path: &std::path::Path) -> io::Result<File> {
    File::open(path)
}

/// Sends so many bytes of a file.
fn send(file: File, length: u64, parts: &Sender<io::Result<Bytes>>) {
    let mut file = file.take(length);
    loop {
        let mut part = Vec::with_capacity(PART);
        let read = file.by_ref().take(PART as u64).read_to_end(&mut part);
        let part = match read {
            Ok(0) => return,
            Ok(_) => Ok(Bytes::from(part)),
            Err(error) => Err(error),
        };
        // Where the client has gone, nothing more is sent.
        if parts.blocking_send(part).is_err() {
            return;
        }
    }
}

/// A process that is watched.
struct Watch {
    session: Session,
    watched: Watched,
    found: Found,
    /// Dropped after the session.
    _paused: Option<Paused>,
}

impl Watch {
    fn start(tools: &Tools, pid: u32) -> Result<Watch, Failure> {
        let found = named(&tools.options, pid)?;
        let paused = tools.pause(pid);
        still(&tools.options, &found)?;
        let watched = Watched::default();
        let attach = tools.attach(pid, 1).live(Live {
            watched: watched.clone(),
            every: COLLECT,
            spool_bytes: SPOOL,
        });
        let session = attach.start().map_err(|error| failure(&error))?;
        let watch = Watch {
            session,
            watched,
            found,
            _paused: paused,
        };
        still(&tools.options, &watch.found)?;
        Ok(watch)
    }

    fn runs(&self, gone: &AtomicBool) -> bool {
        self.session.is_running() && !gone.load(Ordering::Relaxed)
    }

    /// Returns what the process does now.
    fn document(&self) -> Result<Value, Failure> {
        let processes = self.watched.processes();
        let process = processes.first();
        let process = process.ok_or_else(|| no_process(self.found.pid.get()))?;
        Ok(snapshot(process).to_json())
    }

    /// Detaches.
    fn end(self) -> Result<(), Failure> {
        // Records are not kept, so there is nothing to collect.
        match self.session.detach() {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == Kind::DetachFailed => Err(failure(&error)),
            Err(_) => Ok(()),
        }
    }

    /// Sends a document at each interval, until the time is over or the client has gone.
    fn send(self, parts: &Sender<io::Result<Bytes>>, time: Duration, interval: Duration) {
        let ends = Instant::now() + time;
        let mut next = Instant::now() + interval;
        while self.session.is_running() && !parts.is_closed() && Instant::now() < ends {
            pause(next.min(ends));
            if Instant::now() < next {
                continue;
            }
            next += interval;
            let Ok(document) = self.document() else {
                break;
            };
            let event = Bytes::from(format!("data: {document}\n\n"));
            // A client that reads slowly misses some, and keeps the process attached no longer.
            if let Err(TrySendError::Closed(_)) = parts.try_send(Ok(event)) {
                break;
            }
        }
        let _ = self.end();
    }
}

fn snapshot(process: &Process) -> Snapshot {
    let model = process.model.lock().unwrap_or_else(PoisonError::into_inner);
    Snapshot::of(process.pid, &process.name, &model)
}
