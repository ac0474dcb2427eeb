//! Whether this process may start another one at all.

use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// How many seccomp filters the process had before any of its own code ran; [`UNKNOWN`] where our
/// library was loaded later.
static AT_START: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = u32::MAX;

const FILTERS: &str = "a process that filters its system calls starts no other process";
const NAMESPACE: &str = "the process has made a pid namespace for its next child";

/// Notes the seccomp filters under which this program was started. Call it before the program's own
/// code runs.
pub fn note_start() {
    if let Some(count) = filters(&status("self")) {
        AT_START.store(count, Relaxed);
    }
}

/// Returns why no process may be started, if that is so.
pub(crate) fn refuses() -> Option<&'static str> {
    let at_start = Some(AT_START.load(Relaxed)).filter(|count| *count != UNKNOWN);
    if has_own_filter(&status("self"), &status("1"), at_start) {
        return Some(FILTERS);
    }
    // Our child, which ends at once, would be the first process of the new namespace, and no other
    // could be made there.
    let own = Path::new("/proc/thread-self/ns/pid");
    // Linux has the second link since 4.12. It leads nowhere while the new namespace has no process.
    let of_children = own.with_file_name("pid_for_children");
    let is_new = of_children.symlink_metadata().is_ok()
        && std::fs::read_link(own).ok() != std::fs::read_link(of_children).ok();
    is_new.then_some(NAMESPACE)
}

fn status(of: &str) -> String {
    std::fs::read_to_string(format!("/proc/{of}/status")).unwrap_or_default()
}

fn field(status: &str, name: &str) -> Option<u32> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok())
}

/// Returns how many seccomp filters a process has by its status file. Linux says so since 5.9.
fn filters(status: &str) -> Option<u32> {
    match field(status, "Seccomp") {
        Some(0) => Some(0),
        _ => field(status, "Seccomp_filters"),
    }
}

/// Whether a process, by its status file, has a seccomp filter that neither the first process has
/// nor it had at its start. The process may be killed for a system call that the filter forbids.
/// Filters that all processes of a container have, or whoever started the program, are no problem:
/// this program was started under them.
fn has_own_filter(own: &str, first: &str, at_start: Option<u32>) -> bool {
    if field(own, "Seccomp").is_none_or(|mode| mode == 0) {
        return false;
    }
    let known = filters(first).max(at_start);
    match (filters(own), known) {
        (Some(own), Some(known)) => own > known,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_the_first_process_has_too_is_no_reason() {
        let status = |mode: u32, filters: u32| {
            format!("Name:\tx\nSeccomp:\t{mode}\nSeccomp_filters:\t{filters}\n")
        };
        let own = |own: &str, first: &str| has_own_filter(own, first, None);
        assert!(!own(&status(0, 0), ""));
        assert!(own(&status(2, 1), ""));
        assert!(own(&status(2, 1), &status(0, 0)));
        assert!(!own(&status(2, 1), &status(2, 1)));
        assert!(own(&status(2, 2), &status(2, 1)));
        // Before Linux 5.9 the status does not say how many filters there are.
        assert!(own("Seccomp:\t2\n", "Seccomp:\t2\n"));
        // The filters of a sandbox in which the program was started.
        let from = |count| has_own_filter(&status(2, 2), &status(0, 0), Some(count));
        assert!(!from(2) && from(1));
    }

    #[test]
    fn an_ordinary_process_may() {
        assert_eq!(refuses(), None);
    }
}
