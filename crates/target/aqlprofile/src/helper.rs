//! The helper process that has loaded AMD's library, from the attacher's side.

use crate::maker::Maker;
use midair_counters::Template;
use midair_counters::wire::{Answer, Listener, Question};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long an answer may take: a full pass of a device with eight XCCs takes 8 ms.
const LIMIT: Duration = Duration::from_secs(20);
/// How long the process may take to end.
const END: Duration = Duration::from_secs(2);
/// The most lines of an answer: a full pass of a device with eight XCCs has 5,000.
const LINES: usize = 1 << 20;

/// Why there is no template.
#[derive(Debug)]
pub enum Error {
    /// The helper could not be started.
    Start(io::Error),
    /// The library could not be loaded: what the loader said.
    Missing(String),
    /// The library refused: what it was asked to do, and its status.
    Refused {
        /// What it was asked to do.
        what: String,
        /// Its status.
        code: u32,
    },
    /// The helper ended, in this way.
    Died(String),
    /// The helper did not answer within this time, and was killed.
    Silent(Duration),
    /// The helper printed something that is not an answer.
    Odd(String),
    /// A program that counts by itself has no helper, or the helper did not answer: the reason.
    None(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Start(error) => write!(
                f,
                "cannot start the helper for AMD's packet library: {error}"
            ),
            Error::Missing(why) => write!(f, "cannot load AMD's packet library: {why}"),
            Error::Refused { what, code } => {
                write!(f, "AMD's packet library would not {what} ({code:#x})")
            }
            Error::Died(how) => write!(f, "AMD's packet library ended its process: {how}"),
            Error::Silent(limit) => {
                write!(
                    f,
                    "AMD's packet library did not answer within {} s",
                    limit.as_secs()
                )
            }
            Error::None(why) => f.write_str(why),
            Error::Odd(line) => write!(f, "the helper for AMD's packet library said: {line}"),
        }
    }
}

impl std::error::Error for Error {}

/// A running helper. Dropping this value ends it.
pub struct Helper {
    child: Child,
    lines: Receiver<String>,
    limit: Duration,
}

impl Helper {
    /// Starts `program`, which chooses among these libraries.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(program: &Path, libraries: &[OsString]) -> Result<Helper, Error> {
        let mut command = Command::new(program);
        command
            .args(libraries)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if midair_secure::has_more_rights() {
            // This process has more rights than its user, so variables that select libraries must
            // not be obeyed. The helper itself cannot tell that it was started by such a process.
            command.env_clear();
        }
        let mut child = command.spawn().map_err(Error::Start)?;
        let (send, lines) = mpsc::channel();
        let out = child.stdout.take();
        let out = out.ok_or_else(|| Error::Start(io::ErrorKind::BrokenPipe.into()))?;
        let reader = move || {
            for line in BufReader::new(out.take(1 << 30)).lines() {
                let Ok(line) = line else { return };
                if send.send(line).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("midair-packets".into());
        let helper = Helper {
            child,
            lines,
            limit: LIMIT,
        };
        // The thread ends when the helper closes its output.
        thread.spawn(reader).map_err(Error::Start)?;
        Ok(helper)
    }

    /// Sets how long the helper may take to answer (20 s by default).
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Helper {
        self.limit = limit;
        self
    }

    /// Asks for a group's template.
    fn ask(&mut self, question: &Question) -> Result<Template, Error> {
        let asked = match &mut self.child.stdin {
            Some(stdin) => write!(stdin, "{question}").and_then(|()| stdin.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if asked.is_err() {
            return Err(self.died());
        }
        let until = Instant::now() + self.limit;
        let mut listener = Listener::default();
        for _ in 0..LINES {
            let left = until.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => return Err(self.died()),
                Err(RecvTimeoutError::Timeout) => {
                    self.end();
                    return Err(Error::Silent(self.limit));
                }
            };
            match listener.take(&line).map_err(Error::Odd)? {
                None => {}
                Some(Answer::Made(template)) => return Ok(template),
                Some(Answer::Missing(why)) => return Err(Error::Missing(why)),
                Some(Answer::Refused { code, what }) => return Err(Error::Refused { what, code }),
            }
        }
        Err(Error::Odd("no end of an answer".into()))
    }

    /// Returns how the helper ended, after its output has ended.
    fn died(&mut self) -> Error {
        drop(self.child.stdin.take());
        let until = Instant::now() + END;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                _ => return Error::Died("it does not say how".into()),
            }
        };
        Error::Died(match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => status.to_string(),
        })
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        // Errors do not matter: either the process is gone already, or it is killed now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Maker for Helper {
    /// After any error except [`Error::Missing`] and [`Error::Refused`], the helper answers no more
    /// questions.
    fn template(&mut self, question: &Question) -> Result<Template, Error> {
        self.ask(question)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}
