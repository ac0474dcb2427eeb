//! Our own method, from a process of its own: another user's, in other namespaces, on one
//! processor, or one that is stopped in the middle.

use super::{Method, in_and_out};
use crate::kit::Kit;
use crate::tally::{Cycle, Entry};
use midair_inject::{Library, Options};
use midair_tests::Result;
use midair_tests::target::{Exit, Target};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// An attacher that runs under a command.
#[derive(Debug)]
pub struct Remote {
    program: PathBuf,
    under: Vec<String>,
    inside: bool,
}

/// The time after which a cycle counts as a hang. It is longer than within one process, since
/// another program is started.
const LEAST: Duration = Duration::from_secs(30);

impl Remote {
    /// Copies this program to a place that every user can reach.
    ///
    /// # Errors
    /// Fails when the program cannot be copied.
    pub fn new(kit: &Kit, under: &[String], inside: bool) -> Result<Remote> {
        let program = kit.scratch().join("attacher");
        if !program.exists() {
            std::fs::copy(std::env::current_exe()?, &program)?;
            std::fs::copy(kit.program("probe.so"), kit.scratch().join("probe.so"))?;
        }
        Ok(Remote {
            program,
            under: under.to_vec(),
            inside,
        })
    }

    /// Returns the attacher, not started yet.
    ///
    /// # Errors
    /// Fails when the target is gone.
    pub fn command(&self, pid: i32) -> Result<Command> {
        let mut words = self.under.clone();
        let mut name = pid.to_string();
        if self.inside {
            words.extend(["nsenter", "-m", "-p", "-n", "-u", "-i", "-t"].map(str::to_owned));
            words.push(name);
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let own = line.and_then(|line| line.split_ascii_whitespace().last());
            name = own.ok_or("it has no id of its own")?.to_owned();
        }
        words.push(self.program.display().to_string());
        words.push("--one".to_owned());
        words.push(name);
        words.push(
            self.program
                .with_file_name("probe.so")
                .display()
                .to_string(),
        );
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Ok(command)
    }

    /// Reads the result that the attacher printed.
    pub fn cycle_of(exit: &Exit) -> Cycle {
        let line = exit.stdout.last().map_or("", String::as_str);
        let words: Vec<&str> = line.splitn(6, ' ').collect();
        match words[..] {
            ["in", attach, out, stopped, thread, tier] => {
                let time = |word: &str| Duration::from_nanos(word.parse().unwrap_or(0));
                Cycle::Entered(Entry {
                    attach: time(attach),
                    out: time(out),
                    stopped: Some(time(stopped)),
                    thread: thread.parse().ok(),
                    tier: tier.to_owned(),
                })
            }
            ["refused", name, ..] => Cycle::Refused(
                name.to_owned(),
                line["refused ".len() + name.len()..].trim().to_owned(),
            ),
            ["failed", ..] => Cycle::Failed(line["failed ".len()..].to_owned()),
            _ => Cycle::Failed(exit.to_string()),
        }
    }
}

impl Method for Remote {
    fn name(&self) -> &'static str {
        "midair"
    }

    fn cycle(&mut self, _kit: &Kit, pid: i32, limit: Duration) -> Result<Cycle> {
        let began = Instant::now();
        let exit = match Target::spawn(self.command(pid)?)?.wait(limit.max(LEAST)) {
            Ok(exit) => exit,
            Err(_) => return Ok(Cycle::Hung(format!("no end after {:?}", began.elapsed()))),
        };
        Ok(Remote::cycle_of(&exit))
    }
}

/// Runs `--one PID PROBE`: one cycle, whose result is a line that [`Remote::cycle_of`] reads.
pub fn one(words: &[String]) -> ExitCode {
    let (Some(pid), Some(probe)) = (words.first().and_then(|pid| pid.parse().ok()), words.get(1))
    else {
        return ExitCode::from(2);
    };
    let library = Library::File(PathBuf::from(probe));
    match in_and_out(pid, &library, &Options::default()) {
        Cycle::Entered(entry) => println!(
            "in {} {} {} {} {}",
            entry.attach.as_nanos(),
            entry.out.as_nanos(),
            entry.stopped.unwrap_or_default().as_nanos(),
            entry.thread.unwrap_or(0),
            entry.tier
        ),
        Cycle::Refused(name, why) => println!("refused {name} {why}"),
        Cycle::Failed(why) | Cycle::Hung(why) => println!("failed {}", why.replace('\n', " ")),
    }
    ExitCode::SUCCESS
}
