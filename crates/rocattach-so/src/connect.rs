//! The engine behind the C interface: `midair-session`.

use crate::engine::{Engine, LiveSession, Progress};
use midair_failure::{Failure, Kind};
use midair_session::{Event, Request, Session, Style};
use midair_settings::Settings;
use std::path::PathBuf;

struct Attacher;

impl Engine for Attacher {
    fn attach(&self, pid: i32, settings: Settings) -> Result<Box<dyn LiveSession>, Failure> {
        let pid = u32::try_from(pid)
            .map_err(|_| Failure::new(Kind::Usage, format!("{pid} is not a process id")))?;
        Ok(Box::new(Attached(Session::attach(&Request::new(
            pid, settings,
        ))?)))
    }

    fn descendants(&self, pid: i32) -> Vec<i32> {
        let Ok(root) = u32::try_from(pid) else {
            return Vec::new();
        };
        midair_session::tree::tree(root)
            .into_iter()
            .filter(|process| process.pid != root && process.uses_a_gpu())
            .filter_map(|process| i32::try_from(process.pid).ok())
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
            crate::say(&format!("rocattach: warning: {warning}"));
        }
        // The files are there, but not whole: that is no success.
        written.incomplete.map_or(Ok(written.files), Err)
    }
}

/// The engine.
pub fn engine() -> &'static dyn Engine {
    &Attacher
}
