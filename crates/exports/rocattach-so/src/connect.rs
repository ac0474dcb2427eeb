//! The engine behind the C interface: `midair-session`.

use crate::engine::{Engine, LiveSession, Progress};
use midair_failure::Failure;
use midair_session::{Event, Pid, Request, Session, Style};
use midair_settings::Settings;
use std::path::PathBuf;

struct Attacher;

impl Engine for Attacher {
    fn attach(&self, pid: Pid, settings: Settings) -> Result<Box<dyn LiveSession>, Failure> {
        Ok(Box::new(Attached(Session::attach(&Request::new(
            pid, settings,
        ))?)))
    }

    fn descendants(&self, root: Pid) -> Vec<Pid> {
        midair_session::tree::tree(root)
            .into_iter()
            .filter(|process| process.pid != root && process.uses_a_gpu())
            .map(|process| process.pid)
            .collect()
    }
}

struct Attached(Session);

impl LiveSession for Attached {
    fn follow(&mut self) -> Result<Progress, Failure> {
        Ok(match self.0.poll()? {
            Event::Running { .. } => Progress::Running,
            Event::TargetExited(_) => Progress::Ended,
        })
    }

    fn finish(self: Box<Self>) -> Result<Vec<PathBuf>, Failure> {
        let written = self.0.detach()?.write(Style::default())?;
        for warning in &written.warnings {
            crate::print_line(&format!("rocattach: warning: {warning}"));
        }
        for file in &written.files {
            crate::print_line(&format!("rocattach: result: {}", file.display()));
        }
        // The files exist but are incomplete, which counts as a failure.
        written.incomplete.map_or(Ok(written.files), Err)
    }
}

/// Returns the engine.
pub fn engine() -> &'static dyn Engine {
    &Attacher
}
