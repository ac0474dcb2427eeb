//! Processes for tests of groups, and sessions that follow a script instead of entering them.

use super::super::member::{Attacher, Recording};
use crate::collected::Collected;
use crate::request::{Entry, Event, Request};
use midair_failure::Failure;
use midair_output::RecordWriter;
use midair_procinfo::Pid;
use midair_results::{Cost, End, Finished, Identity};
use midair_settings::Settings;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A process that ends with the test.
pub(crate) struct Ended(pub(in super::super) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ended {
    pub(crate) fn pid(&self) -> Pid {
        Pid::of_child(&self.0)
    }

    /// Sends a line to its standard input.
    pub(in super::super) fn send(&mut self, line: &str) {
        let input = self.0.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }
}

fn directory() -> &'static Path {
    static MADE: OnceLock<TempDir> = OnceLock::new();
    MADE.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

/// A shell whose file has the name of HIP's library. By this name a process counts as one with a
/// runtime.
pub(in super::super) fn runtime() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| copied(Path::new("/bin/sh"), "libamdhip64.so.7"))
}

/// Copies a program. Another process does it: a descriptor of this one that is open for writing
/// might be inherited by a child that a test starts meanwhile, and the program could not be run.
fn copied(from: &Path, name: &str) -> PathBuf {
    let to = directory().join(name);
    let done = Command::new("cp").arg(from).arg(&to).status().unwrap();
    assert!(done.success());
    to
}

/// The program `tests/c/family.c`, under its own name and under the name of HSA's library.
pub(crate) fn family() -> &'static [PathBuf; 2] {
    static MADE: OnceLock<[PathBuf; 2]> = OnceLock::new();
    MADE.get_or_init(|| {
        let program = directory().join("family");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/family.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-rdynamic", "-pthread", "-Wall", "-Wextra", "-o"]);
        assert!(
            compiler
                .args([&program, &source])
                .status()
                .unwrap()
                .success()
        );
        let renamed = copied(&program, "libhsa-runtime64.so.1");
        [program, renamed]
    })
}

/// Starts a program that says "ready" and a number, and returns it with the number.
pub(crate) fn of_shape(program: &Path, shape: &str) -> (Ended, Pid) {
    let mut command = Command::new(program);
    command.arg(shape);
    begun(command)
}

/// Starts such a program by this command.
pub(crate) fn begun(mut command: Command) -> (Ended, Pid) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let output = child.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    let child = Ended(child);
    let number = line.trim().strip_prefix("ready ").unwrap();
    (child, number.parse().unwrap())
}

/// Makes a word that no process of another run of the tests has.
pub(in super::super) fn own(word: &str) -> String {
    format!("{word}-{}x", std::process::id())
}

/// Starts a shell with this script. Its command line has this word, as [`own`] makes it.
pub(in super::super) fn shell(program: &Path, script: &str, word: &str) -> Ended {
    let mut command = Command::new(program);
    command.args(["-c", script, &own(word)]);
    Ended(command.stdin(Stdio::piped()).spawn().unwrap())
}

/// Starts a process that counts as one with a runtime, and waits for its input.
pub(in super::super) fn with_runtime(word: &str) -> Ended {
    shell(runtime(), "read line", word)
}

/// Waits until something is so.
pub(in super::super) fn until(mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < limit, "this did not happen in a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a scripted session does.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) event: Mutex<Result<Event, Failure>>,
    pub(super) wake: EventFd,
    /// Why its detach fails, if it does.
    pub(super) failure: Option<Failure>,
    /// How long its detach takes.
    pub(super) slow: Duration,
    /// How often it was detached.
    pub(super) detached: AtomicUsize,
}

impl Scene {
    pub(super) fn new(records: u64, bytes: u64) -> Scene {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Scene {
            event: Mutex::new(Ok(Event::Running { records, bytes })),
            wake: EventFd::from_flags(flags).unwrap(),
            failure: None,
            slow: Duration::ZERO,
            detached: AtomicUsize::new(0),
        }
    }

    pub(super) fn failing(failure: Failure) -> Scene {
        Scene {
            failure: Some(failure),
            ..Scene::new(0, 0)
        }
    }

    /// The session says this from now on.
    pub(super) fn say(&self, event: Result<Event, Failure>) {
        *self.event.lock().unwrap() = event;
        self.wake.write(1).unwrap();
    }

    /// Its process ends.
    pub(super) fn end(&self, end: End) {
        self.say(Ok(Event::TargetExited(end)));
    }

    pub(super) fn detached(&self) -> usize {
        self.detached.load(SeqCst)
    }
}

/// A session that follows a script.
struct Session {
    entry: Entry,
    scene: Arc<Scene>,
}

impl Recording for Session {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn wake(&self) -> BorrowedFd<'_> {
        self.scene.wake.as_fd()
    }

    fn poll(&mut self) -> Result<Event, Failure> {
        self.scene.event.lock().unwrap().clone()
    }

    fn detach(self: Box<Self>) -> Result<Collected, Failure> {
        std::thread::sleep(self.scene.slow);
        self.scene.detached.fetch_add(1, SeqCst);
        match &self.scene.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(collected(Settings::new())),
        }
    }
}

/// Attaches as a function says, on the thread of the member.
pub(super) struct Script<F>(pub(super) F);

impl<F> fmt::Debug for Script<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Script")
    }
}

impl<F> Attacher for Script<F>
where
    F: Fn(Pid) -> Result<Arc<Scene>, Failure> + Send + Sync,
{
    fn attach(&self, request: &Request) -> Result<Box<dyn Recording>, Failure> {
        let entry = Entry {
            via: format!("of {}", request.pid),
            ..Entry::default()
        };
        let scene = (self.0)(request.pid)?;
        Ok(Box::new(Session { entry, scene }))
    }
}

/// Nothing, recorded with these settings.
pub(super) fn collected(settings: Settings) -> Collected {
    let writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    Collected {
        finished: Finished {
            identity: Identity::default(),
            settings,
            records: writer.finish().unwrap(),
            dropped: [0; midair_record::spool::DROP_SLOTS],
            outcome: 0,
            ended: None,
            failure: None,
            notes: Vec::new(),
            counters: midair_counters::CounterPlan::default(),
            cost: Cost::default(),
            gpu: None,
            session_ns: None,
            unrecorded_ns: 0,
            only_others: false,
            why_empty: None,
            code: Default::default(),
        },
        entry: Entry::default(),
    }
}
