//! The helper process that has loaded AMD's library, from the attacher's side.

use crate::descriptors;
use crate::inside::{Inside, NAME};
use crate::maker::Maker;
use crate::traces;
use midair_counters::Template;
use midair_counters::wire::{Answer, Listener, Question};
use midair_failure::plain;
use midair_record::trace_plan::Trace;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long an answer may take: a full pass of a device with eight XCCs takes 8 ms.
const LIMIT: Duration = Duration::from_secs(20);
/// How long the process may take to end.
const END: Duration = Duration::from_secs(2);
/// The most lines of an answer: a full pass of a device with eight XCCs has 5,000.
const LINES: usize = 1 << 20;
/// The most bytes of a line.
const LINE: u64 = 64 << 10;
/// How many lines may wait to be taken.
const WAITING: usize = 4096;
/// The most bytes that are kept of what a helper in another root writes to its standard error.
const SAID: u64 = 1024;

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
    /// The root of the target could not be entered: why.
    Outside(String),
    /// The loader of the target's root cannot start the helper: why.
    Loader(String),
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
            Error::Outside(why) => write!(
                f,
                "cannot load AMD's packet library: this side has none, and the root of the process cannot be entered: {why}"
            ),
            Error::Loader(why) => write!(
                f,
                "cannot load AMD's packet library: this side has none, and the root of the process cannot run midair's helper: {why}"
            ),
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
    questions: Option<UnixStream>,
    lines: Receiver<String>,
    /// What a helper in another root has written to its standard error, once that is closed.
    said: Option<Receiver<String>>,
    /// Why the loader of another root did not start it.
    unstarted: Option<String>,
    /// Whether it has answered before.
    has_answered: bool,
    /// Whether it was killed because it did not answer.
    was_silent: bool,
    limit: Duration,
}

impl Helper {
    /// Starts `program`, which chooses among these libraries.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(program: &Path, libraries: &[OsString]) -> Result<Helper, Error> {
        let mut command = Command::new(program);
        command.args(libraries).stderr(Stdio::null());
        if midair_secure::has_more_rights() {
            // This process has more rights than its user, so variables that select libraries must
            // not be obeyed. The helper itself cannot tell that it was started by such a process.
            command.env_clear();
        }
        Helper::spawn(command).map_err(Error::Start)
    }

    /// Starts `program` in the root of a target, with the target's rights.
    ///
    /// # Errors
    /// When the program cannot be started on this side. Whether it gets there shows with the first
    /// question.
    pub fn start_inside(program: &Path, inside: &Inside) -> Result<Helper, Error> {
        let mut command = Command::new(program);
        command
            .args(inside.arguments())
            .env_clear()
            .stderr(Stdio::piped());
        let helper = Helper::spawn(command).map_err(Error::Start)?;
        if let Some(questions) = &helper.questions {
            let descriptors = [&inside.root, &inside.mounts, &inside.program];
            let descriptors = descriptors.map(|descriptor| descriptor.as_fd());
            descriptors::send(questions, descriptors).map_err(Error::Start)?;
        }
        Ok(helper)
    }

    fn spawn(mut command: Command) -> io::Result<Helper> {
        let (questions, stdin) = UnixStream::pair()?;
        // A helper that does not read must not hold its caller up.
        questions.set_write_timeout(Some(LIMIT))?;
        let mut child = command
            .stdin(OwnedFd::from(stdin))
            .stdout(Stdio::piped())
            .spawn()?;
        // The command keeps its copy of the helper's end.
        drop(command);
        let (send, lines) = mpsc::sync_channel(WAITING);
        let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let error = child.stderr.take();
        let helper = Helper {
            said: error.map(said).transpose()?,
            child,
            questions: Some(questions),
            lines,
            unstarted: None,
            has_answered: false,
            was_silent: false,
            limit: LIMIT,
        };
        let thread = std::thread::Builder::new().name("midair-packets".into());
        // The thread ends when the helper closes its output, or with the next line for which there is no reader.
        thread.spawn(move || {
            let mut out = BufReader::new(out);
            while let Some(line) = line(&mut out) {
                if send.send(line).is_err() {
                    return;
                }
            }
        })?;
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
        let mut listener = Listener::default();
        self.answer(&question.to_string(), |line| {
            let answer = listener.take(line)?;
            Ok(answer.map(|answer| match answer {
                Answer::Made(template) => Ok(template),
                other => Err(other),
            }))
        })
    }

    /// Asks for the packets of thread traces.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn trace(&mut self, question: &traces::Question) -> Result<Trace, Error> {
        let mut reader = traces::Reader::default();
        self.answer(&question.to_string(), |line| reader.take(line))
    }

    /// Asks a question, and has `take` read the lines of the answer.
    fn answer<T>(
        &mut self,
        text: &str,
        mut take: impl FnMut(&str) -> Result<Option<Result<T, Answer>>, String>,
    ) -> Result<T, Error> {
        if self.was_silent {
            return Err(Error::Silent(self.limit));
        }
        let asked = match &self.questions {
            Some(questions) => descriptors::send_all(questions, text.as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if asked.is_err() {
            return Err(self.died());
        }
        let until = Instant::now() + self.limit;
        for _ in 0..LINES {
            let left = until.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => return Err(self.died()),
                Err(RecvTimeoutError::Timeout) => {
                    self.was_silent = true;
                    self.end();
                    return Err(Error::Silent(self.limit));
                }
            };
            let answer = match take(&line).map_err(|odd| Error::Odd(shown(&odd)))? {
                None => continue,
                Some(answer) => answer,
            };
            self.has_answered = true;
            let other = match answer {
                Ok(made) => return Ok(made),
                Err(other) => other,
            };
            return Err(match other {
                Answer::Made(_) => Error::Odd("an answer to another question".into()),
                Answer::Missing(why) => Error::Missing(shown(&why)),
                Answer::Outside(why) => Error::Outside(shown(&why)),
                Answer::Refused { code, what } => Error::Refused {
                    what: shown(&what),
                    code,
                },
            });
        }
        Err(Error::Odd("no end of an answer".into()))
    }

    /// Returns how the helper ended, after its output has ended.
    fn died(&mut self) -> Error {
        drop(self.questions.take());
        let Some(status) = self.status() else {
            return Error::Died("it does not say how".into());
        };
        if let Some(said) = self.said.take().filter(|_| !self.has_answered) {
            self.unstarted = said.recv_timeout(END).ok().filter(|_| is_loaders(status));
        }
        let loaders = format!("{NAME}: ");
        if let Some(why) = &self.unstarted
            && let Some(why) = why.strip_prefix(&loaders)
        {
            return Error::Loader(shown(why.trim_end()));
        }
        Error::Died(match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => status.to_string(),
        })
    }

    /// Waits a short time for the helper's end.
    fn status(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + END;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                _ => return None,
            }
        }
    }

    fn end(&mut self) {
        drop(self.questions.take());
        // Errors do not matter: either the process is gone already, or it is killed now. One that waits
        // for a file of a target's root, whose server does not answer, ends later.
        let _ = self.child.kill();
        let _ = self.status();
    }
}

/// Whether a loader that cannot start a program ends so.
fn is_loaders(status: ExitStatus) -> bool {
    matches!(status.code(), Some(1 | 127))
}

/// Returns text of another process as it may be shown, and no more than a terminal's few lines.
fn shown(text: &str) -> String {
    plain::line(text).chars().take(SAID as usize).collect()
}

/// Returns the next line. None at the end, and for a line that is longer than any answer's.
fn line(out: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = Vec::new();
    out.take(LINE).read_until(b'\n', &mut line).ok()?;
    let text = line.strip_suffix(b"\n")?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Reads what a helper writes to its standard error, and keeps the start of it.
fn said(mut error: ChildStderr) -> io::Result<Receiver<String>> {
    let (send, said) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("midair-packets".into());
    thread.spawn(move || {
        let mut begin = Vec::new();
        let _ = (&mut error).take(SAID).read_to_end(&mut begin);
        let _ = io::copy(&mut error, &mut io::sink());
        let _ = send.send(String::from_utf8_lossy(&begin).into_owned());
    })?;
    Ok(said)
}

impl Maker for Helper {
    /// After any error except [`Error::Missing`], [`Error::Refused`] and [`Error::Outside`], the helper
    /// answers no more questions.
    fn template(&mut self, question: &Question) -> Result<Template, Error> {
        self.ask(question)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.end();
    }
}
