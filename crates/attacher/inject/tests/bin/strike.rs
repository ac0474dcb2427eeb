//! What a test makes happen to the target in the middle of an attach. The attachers of the engine's
//! and the session's tests share this; they are processes of their own.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use midair_procinfo::dumpable::is_dumpable;
use midair_procinfo::{Pid, task};
use midair_ptrace::fault::{self, Action};

/// How long an effect may take to show. An effect that waits until we let go of a thread shows
/// later.
const SHOWS_WITHIN: Duration = Duration::from_millis(300);
/// `PF_EXITING`.
const EXITING: u64 = 4;

/// When it happened, and after which step.
#[derive(Clone, Default)]
pub struct Struck(Arc<Mutex<Option<(Instant, String)>>>);

impl Struck {
    /// Returns the moment and the step, once it has happened.
    pub fn told(&self) -> Option<(Instant, String)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Arms the fault: after so many steps, or at the point of this name, `kind` happens to the process
/// `pid`. `control` is a pipe through which the process is asked to do it itself, if it has to.
pub fn arm(when: &str, kind: &str, pid: Pid, control: &Path) -> Result<Struck, String> {
    let letter = match kind {
        "kill" | "stop" => None,
        "exit" => Some(b'e'),
        "_exit" => Some(b'_'),
        "abort" => Some(b'a'),
        "exec" => Some(b'x'),
        "again" => Some(b'p'),
        "leader" => Some(b'l'),
        "user" => Some(b'u'),
        "hide" => Some(b'h'),
        "raise" => Some(b's'),
        other => return Err(format!("nothing is called {other}")),
    };
    const SIGKILL: i32 = 9;
    const SIGSTOP: i32 = 19;
    let signal = if kind == "kill" { SIGKILL } else { SIGSTOP };
    let (struck, control, kind) = (Struck::default(), control.to_owned(), kind.to_owned());
    let told = struck.clone();
    let users = |pid: Pid| {
        let all = task::list(pid).unwrap_or_default().into_iter();
        all.filter_map(|tid| task::status(tid).ok())
            .map(|status| status.uid)
            .collect::<Vec<_>>()
    };
    let action = Action::Strike(Box::new(move |step| {
        let before = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let users_before = users(pid);
        // The addresses of a program are others each time that it is executed.
        let addresses = || std::fs::read(format!("/proc/{pid}/auxv")).ok();
        let addresses_before = addresses();
        let began = Instant::now();
        match letter {
            Some(letter) => {
                let pipe = std::fs::OpenOptions::new().write(true).open(&control);
                let _gone = pipe.and_then(|mut pipe| pipe.write_all(&[letter]));
            }
            None => fault::signal(pid, signal),
        }
        let shows = || {
            let states: Vec<_> = task::list(pid)
                .unwrap_or_default()
                .into_iter()
                .filter_map(|tid| task::stat(tid).ok())
                .collect();
            match kind.as_str() {
                "stop" => states.iter().any(|stat| stat.state == b'T'),
                "leader" => task::stat(pid).is_ok_and(|stat| stat.is_dead()),
                "user" => users(pid).iter().all(|user| !users_before.contains(user)),
                "hide" => task::status(pid)
                    .is_ok_and(|status| is_dumpable(pid.leader(), &status) == Some(false)),
                "again" => addresses() != addresses_before,
                "exec" | "raise" => std::fs::read_link(format!("/proc/{pid}/exe")).ok() != before,
                _ => states
                    .iter()
                    .all(|stat| stat.is_dead() || stat.flags & EXITING != 0),
            }
        };
        let limit = Instant::now() + SHOWS_WITHIN;
        while !shows() && Instant::now() < limit {
            std::thread::sleep(Duration::from_micros(200));
        }
        *told.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((began.max(Instant::now()), step.to_string()));
    }));
    match when.parse() {
        Ok(number) => fault::arm(number, action),
        Err(_) => fault::arm_at(when, action),
    }
    Ok(struck)
}

/// Returns the numbers of this process's descriptors, threads and mappings, which must not grow. A
/// thread that was joined is listed for a moment longer, so this waits for it.
pub fn possessions() -> [usize; 3] {
    let entries = |what: &str| std::fs::read_dir(what).map_or(0, Iterator::count);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while entries("/proc/self/task") > 1 && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    [
        // One of them is the directory that is being read.
        entries("/proc/self/fd").saturating_sub(1),
        entries("/proc/self/task"),
        maps.lines().count(),
    ]
}
