//! Why a process has no kernels now: its own profiler starts.

use midair_live::Snapshot;
use midair_session::{Pid, ProfilerStart, ProfilerStartSaid as Said};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The time between two looks at a process. PyTorch's profiler takes 3.5 to 5 s for its first start.
const EVERY: Duration = Duration::from_secs(1);

/// Looks at the threads of processes without kernels, from outside.
#[derive(Debug, Default)]
pub(super) struct Starts {
    looks: Vec<(u32, ProfilerStart)>,
    next: Option<Instant>,
    /// Processes that are not looked at again.
    without: BTreeSet<u32>,
    /// What is known now, by process.
    said: BTreeMap<u32, String>,
}

impl Starts {
    /// Takes what looks have found, and starts further ones. With `wait`, all are waited for. Returns
    /// the message about these processes if it has changed; it is empty if there is none any more.
    pub(super) fn turn(&mut self, snapshots: &[Snapshot], wait: bool) -> Option<String> {
        let before = self.said.clone();
        for (pid, look) in std::mem::take(&mut self.looks) {
            let found = match wait {
                true => Ok(look.said()),
                false => look.said_by_now(),
            };
            match found {
                Ok(said) => self.take(pid, said),
                Err(look) => self.looks.push((pid, look)),
            }
        }
        let idle = |pid: u32| snapshots.iter().any(|it| it.pid == pid && is_idle(it));
        self.said.retain(|pid, _| idle(*pid));
        let now = Instant::now();
        if self.looks.is_empty() && self.next.is_none_or(|next| now >= next) {
            self.next = Some(now + EVERY);
            let pids = snapshots.iter().filter(|it| is_idle(it)).map(|it| it.pid);
            let wanted = pids.filter(|pid| !self.without.contains(pid));
            let begin = |pid| Some((pid, ProfilerStart::unstopped(Pid::new(pid)?)?));
            self.looks = wanted.filter_map(begin).collect();
        }
        (self.said != before).then(|| {
            let texts = self.said.iter();
            let texts = texts.map(|(pid, text)| format!("process {pid}: {text}"));
            texts.collect::<Vec<_>>().join("; ")
        })
    }

    fn take(&mut self, pid: u32, said: Said) {
        match said {
            Said::WithoutTorch => {
                self.without.insert(pid);
            }
            Said::No => {
                self.said.remove(&pid);
            }
            Said::Yes(text) => {
                self.said.insert(pid, text);
            }
        }
    }
}

/// Whether no kernel has ended in the window.
fn is_idle(snapshot: &Snapshot) -> bool {
    snapshot.ended.is_none() && snapshot.kernels.iter().all(|kernel| kernel.rate <= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_live::Kernel;

    #[test]
    fn a_message_comes_with_its_reason_and_goes_with_the_kernels() {
        let own = std::process::id();
        let mut snapshot = Snapshot {
            pid: own,
            ..Snapshot::default()
        };
        let mut starts = Starts::default();
        // This process has no PyTorch.
        assert_eq!(starts.turn(std::slice::from_ref(&snapshot), false), None);
        assert_eq!(starts.looks.len(), 1);
        assert_eq!(starts.turn(std::slice::from_ref(&snapshot), true), None);
        assert!(starts.without.contains(&own));
        starts.take(own, Said::Yes("it starts".to_owned()));
        let before = starts.said.clone();
        assert_eq!(starts.turn(std::slice::from_ref(&snapshot), true), None);
        assert_eq!(starts.said, before);
        let kernel = Kernel {
            rate: 1.0,
            ..Kernel::default()
        };
        snapshot.kernels.push(kernel);
        assert_eq!(starts.turn(&[snapshot], true), Some(String::new()));
    }
}
