//! The process that has AMD's library loaded, from the attacher's side.

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

/// An answer takes no longer: a full pass of a device with eight XCCs takes 8 ms.
const LIMIT: Duration = Duration::from_secs(20);
/// The end of the process takes no longer.
const END: Duration = Duration::from_secs(2);
/// An answer has at most so many lines: a full pass of a device with eight XCCs has 5,000.
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
        /// What it would not do.
        what: String,
        /// Its status.
        code: u32,
    },
    /// The helper ended: how.
    Died(String),
    /// It did not answer within this time, and was ended.
    Silent(Duration),
    /// It said something else than an answer.
    Odd(String),
    /// There is none, or it did not answer, in a program that counts by itself: why.
    None(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Start(error) => write!(
                f,
                "the helper for AMD's packet library cannot be started: {error}"
            ),
            Error::Missing(why) => write!(f, "AMD's packet library cannot be loaded: {why}"),
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

/// A helper; it ends with this value.
pub struct Helper {
    child: Child,
    lines: Receiver<String>,
    limit: Duration,
}

impl Helper {
    /// Starts `program` with these libraries to choose from.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path, libraries: &[OsString]) -> Result<Helper, Error> {
        let mut command = Command::new(program);
        command
            .args(libraries)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if midair_secure::has_more_rights() {
            // Whatever chooses libraries is not to be honoured, and the helper cannot tell.
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
        // It ends with the helper's output.
        thread.spawn(reader).map_err(Error::Start)?;
        Ok(helper)
    }

    /// Gives it another time to answer (default 20 s).
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

    /// How it ended, after its output has.
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
        // It is gone already, or it is killed; both are what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Maker for Helper {
    /// After all errors but [`Error::Missing`] and [`Error::Refused`] it answers no more.
    fn template(&mut self, question: &Question) -> Result<Template, Error> {
        self.ask(question)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}
