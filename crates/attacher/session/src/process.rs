//! A live thread of a process, and its root.

use midair_procinfo::files::{Place, kernel_link};
use midair_procinfo::{Pid, Tid, stat, task};

/// Returns a thread of a process that has not ended.
pub(crate) fn live(pid: Pid) -> Option<Tid> {
    task::live(pid).ok()?
}

/// Returns the root directory of a process as the process sees it, if we may look at it. A main
/// thread that has ended has no root, so another thread is used in its place.
pub(crate) fn root_of(pid: Pid) -> Option<Place> {
    let tid = live(pid).unwrap_or(pid.leader());
    Place::root_of(tid).ok()
}

/// Whether a process finds this one under its number in its own `/proc`. In another pid namespace, or
/// with the `/proc` of another one, that number names any other process or none.
pub(crate) fn sees_us(tid: Tid) -> bool {
    let start = |text: &[u8]| stat::parse(text).map(|stat| stat.start_ticks);
    let look = || {
        let namespace = |of: &str| kernel_link(format!("{of}/ns/pid")).ok();
        if namespace(&tid.to_string())? != namespace("self")? {
            return None;
        }
        let us = Pid::own();
        let proc = Place::root_of(tid).ok()?.processes_at("proc").ok()?;
        let there = proc.text(&format!("{us}/stat")).ok()?;
        Some(start(&there)? == task::stat(us).ok()?.start_ticks)
    };
    look().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn only_a_process_of_the_same_pid_namespace_sees_us() {
        assert!(sees_us(Pid::own().leader()));
        if !midair_tests::is_root_for("to make namespaces").unwrap() {
            return;
        }
        // Each ends with its input. The first has a `/proc` of its own, the second ours, and the third
        // is in our namespace and has the `/proc` of another one.
        let inner = "echo ready; exec cat";
        let other = format!("unshare --pid --fork mount -t proc proc /proc; {inner}");
        for words in [
            &["--pid", "--fork", "--mount-proc", "sh", "-c", inner][..],
            &["--pid", "--fork", "sh", "-c", inner],
            &["--mount", "sh", "-c", &other],
        ] {
            let mut child = Command::new("unshare")
                .args(words)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let mut said = BufReader::new(child.stdout.take().unwrap());
            said.read_line(&mut line).unwrap();
            let children = format!("/proc/{0}/task/{0}/children", child.id());
            let inside = std::fs::read_to_string(children).unwrap();
            let inside = inside.trim().parse().ok();
            let tid = inside.unwrap_or_else(|| Tid::new(child.id()).unwrap());
            assert_eq!(line, "ready\n", "{words:?}");
            assert!(!sees_us(tid), "{words:?}");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
}
