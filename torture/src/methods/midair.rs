//! Our own method: the engine enters and leaves again.

use super::Method;
use crate::kit::Kit;
use crate::tally::{Cycle, Entry};
use midair_inject::{EnterError, Library, Options, approach, enter_by};
use midair_session::Pid;
use midair_tests::Result;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The engine, with the options that the product uses.
#[derive(Debug, Default)]
pub struct Midair {
    options: Options,
}

/// How much longer a cycle that hangs is watched, to tell it from one that is only slow.
const GRACE: Duration = Duration::from_secs(25);

impl Method for Midair {
    fn name(&self) -> &'static str {
        "midair"
    }

    fn cycle(&mut self, kit: &Kit, pid: i32, limit: Duration) -> Result<Cycle> {
        let library = Library::Bytes(kit.probe()?);
        let options = self.options.clone();
        let (said, heard) = mpsc::channel();
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            let _nobody = said.send(in_and_out(pid, &library, &options));
        });
        let cycle = match heard.recv_timeout(limit + GRACE) {
            Ok(cycle) if began.elapsed() > limit => {
                Cycle::Hung(format!("{:.1?}: {cycle:?}", began.elapsed()))
            }
            Ok(cycle) => cycle,
            // The thread is not joined: the target is killed next, which ends it.
            Err(_) => return Ok(Cycle::Hung(format!("no end after {:?}", limit + GRACE))),
        };
        let _panicked = thread.join();
        Ok(cycle)
    }
}

/// Runs one cycle.
pub fn in_and_out(pid: i32, library: &Library, options: &Options) -> Cycle {
    let began = Instant::now();
    let Ok(id) = Pid::try_from(pid) else {
        return Cycle::Failed(format!("{pid} is no process"));
    };
    let seen = match approach(id) {
        Ok(seen) => seen,
        Err(refusal) => return Cycle::Refused(name_of(&refusal), refusal.to_string()),
    };
    let entered = match enter_by(&seen, library, options) {
        Ok(entered) => entered,
        Err(error) => return judged(&error),
    };
    if let Err(error) = entered.wait_for_word(options.boot) {
        let _failed_already = entered.withdraw(options);
        return judged(&error);
    }
    let attach = began.elapsed();
    let entry = Entry {
        attach,
        stopped: Some(entered.times.stopped()),
        tier: word(&entered.via.path),
        thread: Some(entered.via.tid.raw()),
        ..Entry::default()
    };
    let talk = || -> std::io::Result<()> {
        let mut socket: UnixStream = entered.channel.try_clone()?.into();
        let mut hello = [0; 16];
        let n = socket.read(&mut hello)?;
        if &hello[..n] != b"hello" {
            return Err(std::io::Error::other("the library says something else"));
        }
        socket.write_all(b"end")
    };
    if let Err(error) = talk() {
        let _failed_already = entered.withdraw(options);
        return Cycle::Failed(error.to_string());
    }
    if let Err(error) = entered.withdraw(options) {
        // The library ran, but the exit was not complete. The next attach knows what stayed, and
        // removes it. Only some cells accept such a cycle.
        return match judged(&error) {
            Cycle::Refused(name, words) => Cycle::Refused(name, format!("withdrawing: {words}")),
            _ => Cycle::Failed(format!("withdrawing: {error}")),
        };
    }
    let out = began.elapsed() - attach;
    Cycle::Entered(Entry { out, ..entry })
}

/// Turns an error into a refusal or a failure.
fn judged(error: &EnterError) -> Cycle {
    let name = match error {
        EnterError::Refused(refusal) => name_of(refusal),
        other => name_of(other),
    };
    match error {
        EnterError::Engine { .. }
        | EnterError::Ours { .. }
        | EnterError::Silent { .. }
        | EnterError::StubCrashed { .. }
        | EnterError::StubLeft { .. } => Cycle::Failed(error.to_string()),
        _ => Cycle::Refused(name, error.to_string()),
    }
}

/// Returns the name of an error's variant, which the table shows.
fn name_of(error: &impl Debug) -> String {
    let text = format!("{error:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

fn word(tier: &midair_inject::EntryPath) -> String {
    use midair_inject::EntryPath;
    match tier {
        EntryPath::Socket => "T0".to_owned(),
        EntryPath::OwnThread => "own".to_owned(),
        EntryPath::Listener => "T1".to_owned(),
        EntryPath::Parked(grade) => format!("T2 {grade:?}").to_lowercase().replace("t2", "T2"),
        EntryPath::SafePoint => "T3".to_owned(),
    }
}
