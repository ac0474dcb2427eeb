//! wprof's way into a process, by midair's stand-in (`torture/c/borrow.c`), because wprof itself
//! cannot be had as a program here.

use super::{Method, fresh_probe, is_mapped};
use crate::kit::Kit;
use crate::tally::{Cycle, Entry};
use midair_tests::Result;
use midair_tests::target::Target;
use std::path::PathBuf;
use std::time::Duration;

/// The stand-in, compiled.
#[derive(Debug)]
pub struct WprofStandIn {
    program: PathBuf,
}

/// The least time limit of a cycle. The stand-in waits for the first thread's next system call,
/// which may take long to come.
const LEAST: Duration = Duration::from_secs(10);

impl WprofStandIn {
    /// Compiles the stand-in.
    ///
    /// # Errors
    /// Returns what the compiler said.
    pub fn new(kit: &Kit) -> Result<WprofStandIn> {
        let flags = ["-O2", "-Wall", "-Wextra", "-Werror"];
        let program = kit.compile(&["borrow.c"], "borrow", &flags)?;
        Ok(WprofStandIn { program })
    }

    /// Returns a description for the table.
    pub fn version(&self) -> &'static str {
        "a stand-in of ours for wprof's way in: its leader seized, dlopen called on it at its next system call"
    }
}

impl Method for WprofStandIn {
    fn name(&self) -> &'static str {
        "wprof-stand-in"
    }

    fn cycle(&mut self, kit: &Kit, pid: i32, limit: Duration) -> Result<Cycle> {
        let limit = limit.max(LEAST);
        let probe = fresh_probe(kit)?;
        let mut command = kit.clean(&self.program);
        command.arg(pid.to_string()).arg(&probe);
        let exit = match Target::spawn(command)?.wait(limit) {
            Ok(exit) => exit,
            Err(_) => return Ok(Cycle::Hung(format!("no end after {limit:?}"))),
        };
        let line = exit.stdout.last().cloned().unwrap_or_default();
        let took = line
            .strip_prefix("in ")
            .and_then(|ns| ns.parse().ok())
            .map(Duration::from_nanos);
        Ok(match took {
            Some(attach) if is_mapped(pid, &probe) => Cycle::Entered(Entry {
                attach,
                tier: "leader".to_owned(),
                thread: Some(pid),
                ..Entry::default()
            }),
            _ if line.starts_with("failed ptrace") => Cycle::Refused("ptrace".to_owned(), line),
            _ => Cycle::Failed(if line.is_empty() {
                exit.to_string()
            } else {
                line
            }),
        })
    }
}
