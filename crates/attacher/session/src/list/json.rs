//! The list as a document.

use super::{Listed, Listing};
use crate::find::Found;
use midair_failure::Failure;
use midair_procinfo::Pid;
use serde_json::{Value, json};
use std::time::UNIX_EPOCH;

/// The version of the document's schema. It is raised when a member is removed or changes its meaning.
const SCHEMA: u32 = 1;
/// The most characters of a command line that are shown. A process may have two million of them.
const LONGEST: usize = 4096;

impl Found {
    /// Returns the start of its command line, as much as is shown of it.
    pub fn shown_command(&self) -> String {
        match self.command.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", self.command.get(..end).unwrap_or_default()),
            None => self.command.clone(),
        }
    }
}

impl Listing {
    /// Returns the document. Its schema: `version`; `unreadable`, how many processes could not be
    /// inspected; `processes`, by `pid`, each with `inner_pid` (null where it is the same), `uid`,
    /// `name`, `command`, `threads`, `started` (seconds since 1970), `runtimes` (each `kind`,
    /// `version`, `path`, `deleted`), `attached` (no, parked, or what the worker thread does),
    /// `attachable`, `way` (the entry path) or null, and `why`, `hint`, `exit_code` or null.
    /// `hint` returns a failure's remedy for who reads the document.
    pub fn to_json(&self, hint: impl Fn(&Failure) -> String) -> Value {
        let processes = self.processes.iter();
        let processes: Vec<Value> = processes.map(|listed| process(listed, &hint)).collect();
        json!({"version": SCHEMA, "unreadable": self.unreadable, "processes": processes})
    }
}

fn process(listed: &Listed, hint: impl Fn(&Failure) -> String) -> Value {
    let found = &listed.found;
    let known = found.runtimes.iter().map(|runtime| {
        json!({
            "kind": runtime.kind.name(),
            "version": runtime.version,
            "path": runtime.path.to_string_lossy(),
            "deleted": runtime.deleted,
        })
    });
    let runtimes: Vec<Value> = known.collect();
    let (way, failure) = match &listed.attachable {
        Some(Ok(way)) => (Some(*way), None),
        Some(Err(failure)) => (None, Some(failure)),
        None => (None, None),
    };
    let started = listed
        .started
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    json!({
        "pid": found.pid.get(),
        "inner_pid": listed.inner_pid.map(Pid::get),
        "uid": found.uids[0],
        "name": found.name,
        "command": found.shown_command(),
        "threads": listed.threads,
        "started": started.as_secs(),
        "runtimes": runtimes,
        "attached": listed.attached,
        "attachable": way.is_some(),
        "way": way,
        "why": failure.map(|failure| failure.what.as_str()),
        "hint": failure.map(hint),
        "exit_code": failure.map(|failure| failure.kind.exit_code()),
    })
}
