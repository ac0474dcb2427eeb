//! Attaching to a process and all its descendants: AMD's contract of `rocattach_attach_tree`, on
//! top of sessions of single processes.
//!
//! The tree consists of the processes that exist at the moment of the attach. The root must
//! succeed, or else nothing stays attached. But a root without a GPU runtime whose descendants have
//! one is a launcher, and is skipped. Descendants without a runtime are no failure. Any other
//! failure of a descendant is reported, and its status is returned, while the others stay attached.

use crate::engine::Engine;
use crate::sessions::{Ending, Sessions, lock};
use midair_failure::{Failure, Kind};
use midair_session::Pid;
use midair_settings::Settings;

/// How many processes are attached at one time.
const CONCURRENCY: usize = 16;
/// Appended to the files' name where that name is the same for all processes.
const PID_SUFFIX: &str = "_%pid%";
const NAME: &str = "ROCPROF_OUTPUT_FILE_NAME";

impl Sessions {
    /// Attaches to `root` and all its descendants. Returns when each of them records or has
    /// refused.
    ///
    /// # Errors
    /// Each process that failed, and the reason. If the root is first, nothing is attached.
    pub fn attach_tree(
        &self,
        engine: &'static dyn Engine,
        root: Pid,
        settings: &Settings,
    ) -> Result<(), Vec<(Pid, Failure)>> {
        if lock(&self.trees).contains_key(&root) {
            let failure = Failure::new(
                Kind::Usage,
                format!("process {root} and its descendants already have a session"),
            )
            .hint("detach from them first");
            return Err(vec![(root, failure)]);
        }
        let descendants = engine.descendants(root);
        let refused = match self.attach(engine, root, settings.clone()) {
            Ok(()) => None,
            Err(failure) if failure.kind == Kind::NotGpu && !descendants.is_empty() => {
                Some(failure)
            }
            Err(failure) => return Err(vec![(root, failure)]),
        };
        let mut settings = settings.clone();
        if let Some(name) = settings.text(NAME)
            && !["%pid%", "{pid}", "%p"]
                .iter()
                .any(|key| name.contains(key))
        {
            let with_pid = format!("{name}{PID_SUFFIX}");
            settings.set(NAME, with_pid);
        }
        let mut attached: Vec<Pid> = if refused.is_none() {
            vec![root]
        } else {
            Vec::new()
        };
        let mut failures = Vec::new();
        for some in descendants.chunks(CONCURRENCY) {
            std::thread::scope(|scope| {
                let started: Vec<_> = some
                    .iter()
                    .map(|&pid| {
                        let settings = settings.clone();
                        (pid, scope.spawn(move || self.attach(engine, pid, settings)))
                    })
                    .collect();
                for (pid, thread) in started {
                    match thread.join() {
                        Ok(Ok(())) => attached.push(pid),
                        // The process has no runtime, or has ended meanwhile.
                        Ok(Err(failure))
                            if matches!(
                                failure.kind,
                                Kind::NotGpu | Kind::NoProcess | Kind::Zombie
                            ) => {}
                        Ok(Err(failure)) => failures.push((pid, failure)),
                        Err(_) => failures.push((pid, crate::sessions::thread_died(pid))),
                    }
                }
            });
        }
        match refused {
            Some(failure) if attached.is_empty() => {
                failures.insert(0, (root, failure));
                return Err(failures);
            }
            _ => {}
        }
        lock(&self.trees).insert(root, attached);
        if failures.is_empty() {
            Ok(())
        } else {
            Err(failures)
        }
    }

    /// Detaches in parallel from the processes that [`Sessions::attach_tree`] attached to, and
    /// returns how each session ended.
    ///
    /// # Errors
    /// [`Kind::Usage`] when there is no such tree.
    pub fn detach_tree(&self, root: Pid) -> Result<Vec<(Pid, Ending)>, Failure> {
        let members = lock(&self.trees)
            .remove(&root)
            .ok_or_else(|| no_tree(root.raw()))?;
        // Some may have been detached individually.
        let members: Vec<Pid> = members.into_iter().filter(|pid| self.has(*pid)).collect();
        Ok(std::thread::scope(|scope| {
            let started: Vec<_> = members
                .into_iter()
                .map(|pid| (pid, scope.spawn(move || self.detach(pid))))
                .collect();
            started
                .into_iter()
                .map(|(pid, thread)| {
                    let ending = thread.join();
                    (
                        pid,
                        ending.unwrap_or_else(|_| Err(crate::sessions::thread_died(pid))),
                    )
                })
                .collect()
        }))
    }
}

/// Returns the failure for a tree that does not exist.
pub(crate) fn no_tree(root: i32) -> Failure {
    Failure::new(
        Kind::Usage,
        format!("no session with process {root} and its descendants"),
    )
}
