//! A process under test.

use crate::Result;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Long enough for anything that works, on a loaded machine with two cores; a test that gets here has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a process wrote so far.
#[derive(Default)]
struct Lines {
    text: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, (Vec<String>, bool)> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn collect(self: &Arc<Self>, from: impl Read + Send + 'static) -> JoinHandle<()> {
        let lines = Arc::clone(self);
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                lines.lock().0.push(
                    String::from_utf8_lossy(&line)
                        .trim_end_matches('\n')
                        .to_owned(),
                );
                lines.changed.notify_all();
                line.clear();
            }
            lines.lock().1 = true;
            lines.changed.notify_all();
        })
    }
}

/// How a process ended, and all that it wrote.
#[derive(Debug, Clone)]
pub struct Exit {
    /// Its status.
    pub status: ExitStatus,
    /// Lines of stdout.
    pub stdout: Vec<String>,
    /// Lines of stderr.
    pub stderr: Vec<String>,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\nstdout:\n  {}\nstderr:\n  {}",
            self.status,
            self.stdout.join("\n  "),
            self.stderr.join("\n  ")
        )
    }
}

impl Exit {
    /// Ok if it ended by itself with code 0.
    ///
    /// # Errors
    /// Its status and output otherwise.
    pub fn success(self) -> Result<Exit> {
        if self.status.success() {
            Ok(self)
        } else {
            Err(self.to_string().into())
        }
    }
    /// Whether it ended as AMD's model mode does by itself at some exits, attached to or not: the
    /// runtime frees an event that a queue still raises, says so, and aborts.
    pub fn is_abort_of_amds_model(&self) -> bool {
        self.signal() == Some(libc::SIGABRT)
            && self.stderr.last().is_some_and(|line| {
                line.starts_with("model_set_event: event_id = ")
                    && line.ends_with(" is not allocated")
            })
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// A running process. Dropped: it and its process group are killed and reaped.
///
/// Spawn it in the thread of the test: it is also killed when the spawning thread dies, so that a killed test leaves
/// nothing behind.
pub struct Target {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Arc<Lines>,
    stderr: Arc<Lines>,
    readers: Vec<JoinHandle<()>>,
    /// Lines of stdout that were waited for already.
    heard: usize,
    status: Option<ExitStatus>,
}

impl Target {
    /// Starts a process with pipes for its three streams, in a process group of its own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(mut command: Command) -> Result<Target> {
        let name = format!("{command:?}");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: prctl with a number is async-signal-safe and touches nothing of the parent.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let (stdout, stderr) = (Arc::<Lines>::default(), Arc::<Lines>::default());
        let mut readers = Vec::new();
        readers.extend(child.stdout.take().map(|pipe| stdout.collect(pipe)));
        readers.extend(child.stderr.take().map(|pipe| stderr.collect(pipe)));
        let stdin = child.stdin.take();
        Ok(Target {
            name,
            child,
            stdin,
            stdout,
            stderr,
            readers,
            heard: 0,
            status: None,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for the next line of stdout that begins with `start`, and returns it. Lines before it
    /// are skipped, and are not looked at by later calls.
    ///
    /// # Errors
    /// When the process ends or [`PATIENCE`] passes first; the message holds all that it wrote.
    pub fn expect(&mut self, start: &str) -> Result<String> {
        let (line, heard) = self.await_line(&self.stdout, self.heard, start)?;
        self.heard = heard;
        Ok(line)
    }

    /// Waits for a line of stderr that begins with `start`, looking at all of stderr.
    ///
    /// # Errors
    /// As [`Target::expect`].
    pub fn expect_error(&mut self, start: &str) -> Result<String> {
        Ok(self.await_line(&self.stderr, 0, start)?.0)
    }

    /// The lines of stdout so far.
    pub fn lines(&self) -> Vec<String> {
        self.stdout.lock().0.clone()
    }

    /// The lines of stderr so far.
    pub fn errors(&self) -> Vec<String> {
        self.stderr.lock().0.clone()
    }

    fn await_line(&self, from: &Lines, mut heard: usize, start: &str) -> Result<(String, usize)> {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = from.lock();
        let why = loop {
            while let Some(line) = lines.0.get(heard) {
                heard += 1;
                if line.starts_with(start) {
                    return Ok((line.clone(), heard));
                }
            }
            if lines.1 {
                break "ended";
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break "was still silent after two minutes";
            }
            lines = from
                .changed
                .wait_timeout(lines, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        };
        let ended = lines.1;
        drop(lines);
        // What it said last may still be on its way from the other pipe.
        for pipe in [&self.stdout, &self.stderr].into_iter().filter(|_| ended) {
            let _ = pipe
                .changed
                .wait_timeout_while(pipe.lock(), Duration::from_secs(2), |lines| !lines.1);
        }
        let (out, err) = (
            self.stdout.lock().0.join("\n  "),
            self.stderr.lock().0.join("\n  "),
        );
        Err(format!(
            "{} {why} without a line \"{start}\"\nstdout:\n  {out}\nstderr:\n  {err}",
            self.name
        )
        .into())
    }

    /// Writes a line to its stdin.
    ///
    /// # Errors
    /// When it does not read any more.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().ok_or("its stdin is closed")?;
        writeln!(stdin, "{line}").map_err(|error| format!("{}: {error}", self.name))?;
        Ok(())
    }

    /// Closes its stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it is gone.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: kill takes two numbers; the child is not reaped yet (or kill fails), so the pid is still its own.
        match unsafe { libc::kill(self.pid(), signal) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }

    /// Whether it has not ended yet.
    ///
    /// # Errors
    /// When its state cannot be read.
    pub fn is_running(&mut self) -> Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status.is_none())
    }

    /// Its only child, for a target behind a command that does not exec (`unshare --fork`).
    ///
    /// # Errors
    /// When it has none, or several.
    pub fn only_child(&self) -> Result<i32> {
        let text = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid()))?;
        match text.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [one] => Ok(one.parse()?),
            _ => Err(format!("{} has the children \"{text}\", not one", self.name).into()),
        }
    }

    /// Waits for its end; stdin is closed first.
    ///
    /// # Errors
    /// When `limit` passes first: it is then killed.
    pub fn wait(mut self, limit: Duration) -> Result<Exit> {
        self.stdin = None;
        self.wait_by_itself(limit)
    }

    /// Waits for an end that something else than the end of its stdin is to bring.
    ///
    /// # Errors
    /// As [`Target::wait`].
    pub fn wait_by_itself(mut self, limit: Duration) -> Result<Exit> {
        let deadline = Instant::now() + limit;
        // Its end closes the pipes; a process that it left behind may hold them open, so the status
        // is asked for as well.
        while self.is_running()? {
            let lines = self.stdout.lock();
            let nap = if lines.1 {
                Duration::from_millis(1)
            } else {
                Duration::from_millis(50)
            };
            let _ = self
                .stdout
                .changed
                .wait_timeout(lines, nap)
                .unwrap_or_else(PoisonError::into_inner);
            if Instant::now() > deadline {
                let (out, err) = (
                    self.stdout.lock().0.join("\n  "),
                    self.stderr.lock().0.join("\n  "),
                );
                let took = format!("{} had not ended after {limit:?}", self.name);
                return Err(format!("{took}\nstdout:\n  {out}\nstderr:\n  {err}").into());
            }
        }
        self.kill_group();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let status = self.status.ok_or("it has a status")?;
        Ok(Exit {
            status,
            stdout: self.stdout.lock().0.clone(),
            stderr: self.stderr.lock().0.clone(),
        })
    }

    fn kill_group(&self) {
        // SAFETY: kill takes two numbers; the group is the one made for this child.
        unsafe { libc::kill(-self.pid(), libc::SIGKILL) };
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.kill_group();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot be started or does not end within `limit`.
pub fn run(command: Command, limit: Duration) -> Result<Exit> {
    Target::spawn(command)?.wait(limit)
}

/// Polls until `done` is true.
///
/// # Errors
/// `what` did not happen within [`PATIENCE`], or `done` failed.
pub fn until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done()? {
        if Instant::now() > deadline {
            return Err(format!("{what} did not happen within {PATIENCE:?}").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
