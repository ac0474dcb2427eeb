//! A process under test.

use crate::Result;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Long enough for anything that works, even on a loaded machine with two cores. A test that waits
/// this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a process has written so far.
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
    /// Returns itself if the process ended by itself with code 0.
    ///
    /// # Errors
    /// Returns the status and the output otherwise.
    pub fn success(self) -> Result<Exit> {
        if self.status.success() {
            Ok(self)
        } else {
            Err(self.to_string().into())
        }
    }
    /// Returns whether the process ended as AMD's model mode does by itself at some exits, whether
    /// we have attached or not: the runtime frees an event that a queue still raises, says so, and
    /// aborts.
    pub fn is_abort_of_amds_model(&self) -> bool {
        self.signal() == Some(libc::SIGABRT)
            && self.stderr.last().is_some_and(|line| {
                line.starts_with("model_set_event: event_id = ")
                    && line.ends_with(" is not allocated")
            })
    }

    /// Returns the signal that ended the process.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// A running process. When this value is dropped, the process and its process group are killed and
/// the process is reaped.
///
/// Spawn it in the thread of the test. The process is also killed when the thread that spawned it
/// dies, so that a killed test leaves nothing behind.
pub struct Target {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Arc<Lines>,
    stderr: Arc<Lines>,
    readers: Vec<JoinHandle<()>>,
    /// How many lines of stdout were waited for already.
    heard: usize,
    status: Option<ExitStatus>,
}

impl Target {
    /// Starts a process with pipes for its three streams, in a process group of its own.
    ///
    /// # Errors
    /// Fails when the process cannot be started.
    pub fn spawn(mut command: Command) -> Result<Target> {
        let name = format!("{command:?}");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: the closure runs between fork and exec. It only calls prctl with numbers, which
        // is async-signal-safe and touches nothing of the parent.
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

    /// Returns its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for the next line of stdout that starts with `start`, and returns it. The lines before
    /// it are skipped, also for later calls.
    ///
    /// # Errors
    /// Fails when the process ends or [`PATIENCE`] passes first. The message has all that the
    /// process wrote.
    pub fn expect(&mut self, start: &str) -> Result<String> {
        let (line, heard) = self.await_line(&self.stdout, self.heard, start)?;
        self.heard = heard;
        Ok(line)
    }

    /// Waits for a line of stderr that starts with `start`. It looks at all of stderr.
    ///
    /// # Errors
    /// Fails as [`Target::expect`] does.
    pub fn expect_error(&mut self, start: &str) -> Result<String> {
        Ok(self.await_line(&self.stderr, 0, start)?.0)
    }

    /// Returns the lines of stdout so far.
    pub fn lines(&self) -> Vec<String> {
        self.stdout.lock().0.clone()
    }

    /// Returns the lines of stderr so far.
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
        // The last lines may still be on their way from the other pipe.
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

    /// Writes a line to the process's stdin.
    ///
    /// # Errors
    /// Fails when the process does not read any more.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().ok_or("its stdin is closed")?;
        writeln!(stdin, "{line}").map_err(|error| format!("{}: {error}", self.name))?;
        Ok(())
    }

    /// Closes the process's stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Sends the process a signal.
    ///
    /// # Errors
    /// Fails when the process is gone.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: kill takes numbers only. The child is not reaped yet, so the pid is still its
        // own, or kill fails.
        match unsafe { libc::kill(self.pid(), signal) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }

    /// Returns whether the process has not ended yet.
    ///
    /// # Errors
    /// Fails when its state cannot be read.
    pub fn is_running(&mut self) -> Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status.is_none())
    }

    /// Returns the process's only child, for a target behind a command that does not exec
    /// (`unshare --fork`).
    ///
    /// # Errors
    /// Fails when the process has no child, or several.
    pub fn only_child(&self) -> Result<i32> {
        let text = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid()))?;
        match text.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [one] => Ok(one.parse()?),
            _ => Err(format!("{} has the children \"{text}\", not one", self.name).into()),
        }
    }

    /// Closes stdin and waits for the process's end.
    ///
    /// # Errors
    /// Fails when `limit` passes first. The process is then killed.
    pub fn wait(mut self, limit: Duration) -> Result<Exit> {
        self.stdin = None;
        self.wait_by_itself(limit)
    }

    /// Waits for an end that something other than the end of stdin must cause.
    ///
    /// # Errors
    /// Fails as [`Target::wait`] does.
    pub fn wait_by_itself(mut self, limit: Duration) -> Result<Exit> {
        let deadline = Instant::now() + limit;
        // The end of the process closes the pipes. A process that it left behind may hold them
        // open, so the status is checked as well.
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
        // SAFETY: kill takes numbers only. The process group is the one that was made for this
        // child.
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
/// Fails when the command cannot be started or does not end within `limit`.
pub fn run(command: Command, limit: Duration) -> Result<Exit> {
    Target::spawn(command)?.wait(limit)
}

/// Sends a command of some words, and waits for the answer, which starts with the first of them.
///
/// # Errors
/// Fails as [`Target::send`] and [`Target::expect`] do.
pub fn ask(target: &mut Target, command: &str) -> Result<()> {
    target.send(command)?;
    target.expect(command.split(' ').next().unwrap_or_default())?;
    Ok(())
}

/// Repeats what a process refuses while it is busy, as it is until the lease of an attacher that was
/// killed is over.
///
/// # Errors
/// The last error, when nothing succeeded within [`PATIENCE`].
pub fn in_turn<T>(mut act: impl FnMut() -> Result<T>) -> Result<T> {
    let limit = Instant::now() + PATIENCE;
    loop {
        match act() {
            Err(_) if Instant::now() < limit => {}
            done => return done,
        }
        // Each try starts a program: without a pause these are a processor's work for 5 s.
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// Polls until `done` is true.
///
/// # Errors
/// Fails when `what` did not happen within [`PATIENCE`], or when `done` failed.
pub fn until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !done()? {
        let waited = began.elapsed();
        if waited > PATIENCE {
            return Err(format!("{what} did not happen within {PATIENCE:?}").into());
        }
        // A look costs processor time, which what is waited for needs, too.
        std::thread::sleep(
            (waited / 16).clamp(Duration::from_millis(1), Duration::from_millis(50)),
        );
    }
    Ok(())
}
