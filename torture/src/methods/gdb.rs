//! gdb's method: `call dlopen(...)` in batch mode.

use super::{Method, fresh_probe, is_mapped};
use crate::kit::{Kit, installed};
use crate::tally::{Cycle, Entry};
use midair_tests::Result;
use midair_tests::target::Target;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// gdb, if it is installed.
#[derive(Debug)]
pub struct Gdb {
    program: PathBuf,
}

/// The least time limit of a cycle. gdb needs half a second even for a sleeping process, so it gets
/// more time.
const LEAST: Duration = Duration::from_secs(10);

impl Gdb {
    /// Looks for gdb.
    pub fn find() -> Option<Gdb> {
        installed("gdb").map(|program| Gdb { program })
    }

    /// Returns the first line that gdb prints about itself.
    pub fn version(&self) -> String {
        let said = Command::new(&self.program).arg("--version").output();
        let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
        let text = text.unwrap_or_default();
        text.lines().next().unwrap_or("gdb").to_owned()
    }
}

impl Method for Gdb {
    fn name(&self) -> &'static str {
        "gdb"
    }

    fn cycle(&mut self, kit: &Kit, pid: i32, limit: Duration) -> Result<Cycle> {
        let limit = limit.max(LEAST);
        let probe = fresh_probe(kit)?;
        let call = format!(
            "print ((void*(*)(const char*,int))dlopen)(\"{}\", 2)",
            probe.display()
        );
        let mut command = kit.clean(&self.program);
        command
            .args(["-nx", "-batch", "-p", &pid.to_string(), "-ex", &call])
            .args(["-ex", "detach"]);
        let began = Instant::now();
        let exit = match Target::spawn(command)?.wait(limit) {
            Ok(exit) => exit,
            Err(_) => return Ok(Cycle::Hung(format!("no end after {limit:?}"))),
        };
        let took = began.elapsed();
        let handle = exit.stdout.iter().find(|line| line.starts_with("$1 = "));
        let said = exit.stderr.iter().rev().find(|line| !line.is_empty());
        let said = said.cloned().unwrap_or_default();
        match handle {
            Some(line) if !line.ends_with(" 0x0") && is_mapped(pid, &probe) => {
                Ok(Cycle::Entered(Entry {
                    attach: took,
                    tier: "leader".to_owned(),
                    thread: Some(pid),
                    ..Entry::default()
                }))
            }
            _ if said.contains("ptrace: ") => Ok(Cycle::Refused("ptrace".to_owned(), said)),
            Some(line) => Ok(Cycle::Failed(format!("{line} {said}"))),
            None => Ok(Cycle::Failed(said)),
        }
    }
}
