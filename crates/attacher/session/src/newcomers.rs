//! Finds GPU processes as they come. A process is looked at when it is new, and then ever more rarely,
//! since it may load its runtime later: on a machine with thousands of processes a round reads little.

use crate::answer;
use crate::find::{Found, pids, process};
use midair_procinfo::{Pid, task};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time from one look at a process to the next: the first, and the longest.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Known {
    start_ticks: u64,
    /// When it is looked at again; never where it uses a GPU.
    next: Option<Instant>,
    pause: Duration,
}

/// The processes so far.
#[derive(Debug, Default)]
pub struct Newcomers {
    known: BTreeMap<Pid, Known>,
}

impl Newcomers {
    /// Returns the processes that use a GPU and were in no earlier answer.
    pub fn look(&mut self) -> Vec<Found> {
        let now = Instant::now();
        let mut there: BTreeMap<Pid, Known> = BTreeMap::new();
        let mut due = Vec::new();
        for pid in pids().into_iter().filter(|pid| *pid != Pid::own()) {
            let Ok(stat) = task::stat(pid) else {
                continue;
            };
            let before = self.known.remove(&pid);
            let before = before.filter(|known| known.start_ticks == stat.start_ticks);
            let known = before.unwrap_or(Known {
                start_ticks: stat.start_ticks,
                next: (!stat.is_kernel_thread()).then_some(now),
                pause: FIRST,
            });
            if known.next.is_some_and(|next| next <= now) {
                due.push(pid);
            }
            there.insert(pid, known);
        }
        let mut found = Vec::new();
        for (pid, seen) in due.iter().zip(answer::each(&due, answer::LIMIT, process)) {
            let Some(known) = there.get_mut(pid) else {
                continue;
            };
            match seen.flatten() {
                Some(process) if process.uses_a_gpu() => {
                    known.next = None;
                    found.push(process);
                }
                _ => {
                    known.next = Some(now + known.pause);
                    known.pause = (2 * known.pause).min(LONGEST);
                }
            }
        }
        self.known = there;
        found
    }

    /// Has a process that was found be found again later.
    pub fn again(&mut self, found: &Found) {
        if let Some(known) = self.known.get_mut(&found.pid) {
            known.next = Some(Instant::now() + known.pause);
            known.pause = (2 * known.pause).min(LONGEST);
        }
    }

    /// Whether a process that was found is still there.
    pub fn has(&self, found: &Found) -> bool {
        let known = self.known.get(&found.pid);
        known.is_some_and(|known| known.start_ticks == found.start_ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_once_and_forgotten_at_its_end() {
        let mut newcomers = Newcomers::default();
        newcomers.look();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = Pid::of_child(&child);
        newcomers.look();
        let first = newcomers.known[&pid].next;
        assert!(first.is_some(), "it has no runtime yet");
        // It is not due before its time.
        newcomers.look();
        assert_eq!(newcomers.known[&pid].next, first);
        let found = process(pid).unwrap();
        assert!(newcomers.has(&found));
        child.kill().unwrap();
        child.wait().unwrap();
        newcomers.look();
        assert!(!newcomers.has(&found) && !newcomers.known.contains_key(&pid));
    }
}
