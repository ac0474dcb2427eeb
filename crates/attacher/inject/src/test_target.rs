//! Real processes, for unit tests of operations on a single thread.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by panicking"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use midair_procinfo::Pid;

use crate::inspection::{Inspection, inspect};
use crate::parked::{Candidate, Judge, Verdict};

/// How long anything in a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process with one thread, which is killed when this is dropped.
pub(crate) struct TestTarget {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    pub(crate) pid: Pid,
}

impl TestTarget {
    fn spawn(command: &mut Command) -> TestTarget {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id().to_string().parse().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        TestTarget { child, lines, pid }
    }

    /// Starts a program that waits for its input.
    pub(crate) fn reader(program: &Path) -> TestTarget {
        let mut target = TestTarget::spawn(&mut Command::new(program));
        target.answers();
        target
    }

    /// Starts `cat`.
    pub(crate) fn cat() -> TestTarget {
        TestTarget::reader(Path::new("cat"))
    }

    /// Starts `tests/c/busy.c`, whose main thread does `kind` without end.
    pub(crate) fn busy(kind: &str) -> TestTarget {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("busy");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/busy.c");
        let done = Command::new("cc")
            .args(["-O1", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            .status()
            .unwrap();
        assert!(done.success());
        let mut target = TestTarget::spawn(Command::new(&program).args([kind, "1"]));
        let mut line = String::new();
        target.lines.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        target
    }

    /// Checks that it copies a line and waits for the next.
    pub(crate) fn answers(&mut self) {
        let mut line = String::new();
        self.child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"hello\n")
            .unwrap();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line, "hello\n");
    }

    pub(crate) fn signal(&self, signal: i32) {
        let words = format!("kill -{signal} {}", self.pid);
        assert!(
            Command::new("sh")
                .args(["-c", &words])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Returns true if it ends, as it does after a signal that it does not handle.
    pub(crate) fn ends(mut self) -> bool {
        let limit = Instant::now() + Duration::from_secs(10);
        // Whoever traced it may have reaped it.
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > limit {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    pub(crate) fn look(&self) -> Inspection {
        inspect(self.pid).unwrap()
    }
}

impl Drop for TestTarget {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns the parked thread of a process that has one.
pub(crate) fn parked(judge: &mut Judge<'_>) -> Candidate {
    let limit = Instant::now() + PATIENCE;
    loop {
        let (good, seen) = judge.survey().unwrap();
        if let Some(Verdict::Parked(candidate)) = good.into_iter().next() {
            return candidate;
        }
        assert!(Instant::now() < limit, "{seen:?}");
        std::thread::yield_now();
    }
}
