//! Holds a single thread of a process for as long as a test needs, so that it is not scheduled. On
//! a starved machine this happens by chance.

use crate::Result;
use midair_ptrace::{Deadline, Seized, Stopped, Tid, Waited};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A time limit that no stop of a thread reaches.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the thread of process `pid` that has this name.
///
/// # Errors
/// Fails when there is none.
pub fn thread_named(pid: i32, name: &str) -> Result<Tid> {
    threads(pid)?
        .into_iter()
        .find(|tid| {
            std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"))
                .is_ok_and(|comm| comm.trim_end() == name)
        })
        .ok_or_else(|| format!("process {pid} has no thread {name}").into())
}

/// Returns all threads of a process.
///
/// # Errors
/// Fails when the process is gone.
pub fn threads(pid: impl Into<i32>) -> Result<Vec<Tid>> {
    let pid = pid.into();
    let mut all = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        all.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<Tid>().ok()),
        );
    }
    Ok(all)
}

/// Returns the system call that a thread is in, with its arguments, or `None` where the thread is
/// in no call, runs or is gone.
pub fn call_of(pid: i32, tid: Tid) -> Option<(i64, Vec<u64>)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let hexadecimal = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    Some((number, words.map_while(hexadecimal).collect()))
}

/// A thread that is stopped until this value is dropped.
#[derive(Debug)]
pub struct Held {
    release: Option<Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl Held {
    /// Holds the thread where it is now.
    ///
    /// # Errors
    /// Fails when the thread cannot be traced or does not stop.
    pub fn anywhere(tid: Tid) -> Result<Held> {
        Held::by(move || stop(tid))
    }

    /// Lets the thread run until `here` has accepted `count` of its entries into system calls and
    /// returns from them, and holds it at the last one. `ready` is called once the thread is
    /// watched, so that nothing after it is missed.
    ///
    /// # Errors
    /// Fails as [`Held::anywhere`] does, or when the thread does not come there, or with the error
    /// of `ready`.
    pub fn at_call(
        tid: Tid,
        ready: impl FnOnce() -> Result<()> + Send + 'static,
        here: impl Fn() -> bool + Send + 'static,
        mut count: u32,
    ) -> Result<Held> {
        Held::by(move || {
            let mut running = stop(tid)?.resume_to_syscall()?;
            ready()?;
            loop {
                let stopped = stopped(running.wait(Deadline::after(LIMIT))?)?;
                count -= u32::from(here());
                if count == 0 {
                    return Ok(stopped);
                }
                running = stopped.resume_to_syscall()?;
            }
        })
    }

    /// Starts a tracer thread that stops the thread by `bring`. The kernel ties a tracee to the
    /// thread that traces it, so each has a tracer of its own.
    fn by(bring: impl FnOnce() -> Result<Stopped> + Send + 'static) -> Result<Held> {
        let (release, released) = channel::<()>();
        let (tell, told) = channel();
        let tracer = std::thread::spawn(move || match bring() {
            Ok(stopped) => {
                let _ = tell.send(Ok(()));
                // An error here means that the value was dropped.
                let _ = released.recv();
                drop(stopped);
            }
            Err(error) => {
                let _ = tell.send(Err(error));
            }
        });
        told.recv()??;
        Ok(Held {
            release: Some(release),
            tracer: Some(tracer),
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release = None;
        if let Some(tracer) = self.tracer.take() {
            let _ = tracer.join();
        }
    }
}

fn stop(tid: Tid) -> Result<Stopped> {
    let running = Seized::seize(tid, false)?;
    running.interrupt()?;
    Ok(running.wait_for_event(Deadline::after(LIMIT))?)
}

fn stopped(waited: Waited) -> Result<Stopped> {
    match waited {
        Waited::Stopped(stopped) => Ok(stopped),
        other => Err(format!("a thread that was to stop: {other:?}").into()),
    }
}
