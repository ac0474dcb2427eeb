//! The place where sessions put their models, and views find them.

use crate::model::Model;
use midair_output::Names;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most processes that have ended and are still shown.
const MOST_ENDED: usize = 64;

/// A process that is watched.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its pid, as the attacher sees it.
    pub pid: u32,
    /// Its name, and its rank where it has one.
    pub name: String,
    /// The model, which its session feeds.
    pub model: Arc<Mutex<Model>>,
}

/// The processes of one view. A copy shows the same processes.
#[derive(Debug, Clone)]
pub struct Watched {
    names: Arc<Names>,
    processes: Arc<Mutex<BTreeMap<u32, Process>>>,
}

impl Default for Watched {
    fn default() -> Watched {
        Watched {
            names: Arc::new(Names::amd()),
            processes: Arc::default(),
        }
    }
}

/// Returns the value even where a thread panicked while it held the lock. The value is only shown,
/// and nothing depends on it.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    /// Adds a session that starts. `now` is CLOCK_BOOTTIME ns. The session's records go into the
    /// model that is returned.
    pub fn join(&self, pid: u32, name: &str, now: u64) -> Arc<Mutex<Model>> {
        let model = Arc::new(Mutex::new(Model::new(Arc::clone(&self.names), now)));
        let process = Process {
            pid,
            name: name.to_owned(),
            model: Arc::clone(&model),
        };
        let mut processes = held(&self.processes);
        let ended: Vec<u32> = processes
            .values()
            .filter(|process| held(&process.model).ended.is_some())
            .map(|process| process.pid)
            .collect();
        for pid in ended.iter().take(ended.len().saturating_sub(MOST_ENDED)) {
            processes.remove(pid);
        }
        processes.insert(pid, process);
        model
    }

    /// Returns all processes, by their numbers.
    pub fn processes(&self) -> Vec<Process> {
        held(&self.processes).values().cloned().collect()
    }
}
