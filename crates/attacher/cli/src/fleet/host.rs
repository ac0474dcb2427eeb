//! One host: its ssh, what the host sends, and how the ssh ends.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use serde_json::Value;

/// The exit code of ssh itself, where the host could not be reached.
const SSH_FAILED: i32 = 255;
/// The most of a host's standard output that is kept, in bytes.
const MAX_OUTPUT: u64 = 16 << 20;
/// The longest line of its standard error, in bytes.
const MAX_LINE: u64 = 4096;
/// How long the pipes of an ssh that has ended may stay open. A process that it started may hold
/// them.
const GRACE: Duration = Duration::from_secs(1);

/// What a host sends.
pub(super) struct Said {
    /// The index of the host.
    pub(super) index: usize,
    pub(super) what: What,
}

pub(super) enum What {
    /// A line on its standard error.
    Line(String),
    /// All of its standard output.
    Output(String),
}

/// Whether a host still has something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    Yes,
    No,
}

/// A host on which the command runs.
pub(super) struct Host {
    name: String,
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    began: Instant,
    /// When its ssh was seen to have ended.
    over: Option<Instant>,
    answer: Answer,
}

/// The outcome on a host.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    pub(super) host: String,
    /// The exit code of the command there, or none where ssh could not reach the host or the
    /// command did not end.
    pub(super) code: Option<u8>,
    /// Why it failed, in the host's words or in ours.
    pub(super) failure: Option<String>,
    pub(super) time: Duration,
    /// The JSON document of an attach.
    pub(super) screen: Option<Value>,
    /// What it printed, where there is no such document.
    pub(super) output: Option<String>,
}

impl Host {
    /// Starts the command there. A host that cannot be asked counts as ended at once.
    pub(super) fn start(
        index: usize,
        name: String,
        ssh: &[&str],
        remote: &str,
        input: bool,
        sender: &Sender<Said>,
    ) -> Host {
        let (program, options) = ssh.split_first().unwrap_or((&"ssh", &[]));
        let mut command = Command::new(program);
        command
            .args(options)
            .args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"])
            .args([
                "-o",
                "ServerAliveInterval=10",
                "-o",
                "ServerAliveCountMax=3",
            ])
            .args(["--", &name, remote])
            .stdin(if input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C tells the hosts to end, and must not cut them off.
            .process_group(0);
        let mut host = Host {
            answer: Answer {
                host: name.clone(),
                ..Answer::default()
            },
            name,
            child: None,
            stdin: None,
            began: Instant::now(),
            over: None,
        };
        match command.spawn() {
            Ok(mut child) => {
                host.stdin = child.stdin.take();
                let heard = hear(index, &mut child, sender);
                host.child = Some(child);
                if let Err(error) = heard {
                    host.give_up(&format!("cannot read its output: {error}"));
                }
            }
            Err(error) => {
                host.answer.failure = Some(format!("cannot start {program}: {error}"));
            }
        }
        host
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes what the host sent. Returns a line to show.
    pub(super) fn take(&mut self, what: What) -> Option<String> {
        match what {
            What::Line(line) => {
                // The exit code belongs to the last error.
                if let Some((_, error)) = line.split_once("error: ") {
                    self.answer.failure = Some(error.to_owned());
                }
                Some(line)
            }
            What::Output(text) => {
                let document = text.lines().rev().find(|line| line.starts_with('{'));
                self.answer.screen = document.and_then(|line| serde_json::from_str(line).ok());
                self.answer.output = Some(text);
                None
            }
        }
    }

    /// Checks whether it has ended and everything that it sent has arrived.
    pub(super) fn look(&mut self) -> Running {
        let Some(child) = &mut self.child else {
            return Running::No;
        };
        if self.over.is_none() {
            match child.try_wait() {
                Ok(None) => return Running::Yes,
                Ok(Some(status)) => {
                    self.over = Some(Instant::now());
                    self.answer.time = self.began.elapsed();
                    match status.code() {
                        Some(SSH_FAILED) => {
                            let unreachable = || "ssh could not reach it".to_owned();
                            self.answer.failure.get_or_insert_with(unreachable);
                        }
                        Some(code) => self.answer.code = u8::try_from(code).ok(),
                        None => {
                            let signal = status.signal().unwrap_or(0);
                            let killed = || format!("its ssh was killed by signal {signal}");
                            self.answer.failure.get_or_insert_with(killed);
                        }
                    }
                }
                Err(error) => {
                    self.answer.failure = Some(format!("cannot wait for its ssh: {error}"));
                    self.child = None;
                    return Running::No;
                }
            }
        }
        let waited = self.over.is_some_and(|over| over.elapsed() > GRACE);
        if self.answer.output.is_some() || waited {
            self.child = None;
            return Running::No;
        }
        Running::Yes
    }

    /// Ends the command's standard input, which ends an attach.
    pub(super) fn end_of_input(&mut self) {
        self.stdin = None;
    }

    /// Ends its ssh.
    pub(super) fn give_up(&mut self, why: &str) {
        if let (Some(child), None) = (&mut self.child, self.over) {
            self.answer.failure = Some(why.to_owned());
            let group = i32::try_from(child.id()).unwrap_or(0);
            // The group is ended, with processes that ssh started, such as a proxy. It is ssh's own
            // group, which ssh leads.
            if group > 1 {
                let _ = killpg(nix::unistd::Pid::from_raw(group), Signal::SIGKILL);
            }
            let _ = child.kill();
        }
    }

    pub(super) fn answer(self) -> Answer {
        self.answer
    }
}

/// Reads what a host sends, in separate threads.
fn hear(index: usize, child: &mut Child, sender: &Sender<Said>) -> std::io::Result<()> {
    let thread = || std::thread::Builder::new().name("host".to_owned());
    if let Some(out) = child.stdout.take() {
        let sender = sender.clone();
        thread().spawn(move || {
            let mut bytes = Vec::new();
            let mut out = out;
            let _ = (&mut out).take(MAX_OUTPUT).read_to_end(&mut bytes);
            // The rest is read and thrown away, so that the host does not wait for us.
            let _ = std::io::copy(&mut out, &mut std::io::sink());
            let what = What::Output(String::from_utf8_lossy(&bytes).into_owned());
            let _ = sender.send(Said { index, what });
        })?;
    }
    if let Some(err) = child.stderr.take() {
        let sender = sender.clone();
        thread().spawn(move || {
            let mut err = BufReader::new(err);
            let mut line = Vec::new();
            loop {
                line.clear();
                match (&mut err).take(MAX_LINE).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
                let text = String::from_utf8_lossy(&line);
                let what = What::Line(text.trim_end().to_owned());
                if sender.send(Said { index, what }).is_err() {
                    return;
                }
            }
        })?;
    }
    Ok(())
}
