//! The threads of this process, as CUPTI may be in them.

use std::collections::BTreeSet;

/// Number of times the threads are listed.
const LOOKS: usize = 5;

/// Returns the directories below `/proc` of all threads except the calling one; `None` where they cannot be listed.
///
/// The kernel leaves threads out of a list while others end: it goes on by a count of those before. So they are listed
/// again until a list has no thread that was not seen.
pub(super) fn others() -> Option<BTreeSet<String>> {
    // Not /proc/self: that is the main thread, which may have ended.
    let tasks = format!("/proc/{}/task", std::process::id());
    // SAFETY: a system call without arguments.
    let own = unsafe { libc::syscall(libc::SYS_gettid) }.to_string();
    let mut all = BTreeSet::new();
    for _ in 0..LOOKS {
        let names = std::fs::read_dir(&tasks).ok()?.flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let before = all.len();
        all.extend(
            names
                .filter(|name| *name != own)
                .map(|name| format!("{tasks}/{name}")),
        );
        if all.len() == before {
            break;
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn all_threads_but_the_calling_one_are_listed_while_others_end() {
        let stop = AtomicBool::new(false);
        // SAFETY: a system call without arguments.
        let tid = || unsafe { libc::syscall(libc::SYS_gettid) };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        std::thread::spawn(|| ()).join().unwrap();
                    }
                });
            }
            let (send, receive) = std::sync::mpsc::channel();
            let stop = &stop;
            scope.spawn(move || {
                send.send(tid()).unwrap();
                while !stop.load(Relaxed) {
                    std::thread::park_timeout(std::time::Duration::from_millis(1));
                }
            });
            let end = |tid| format!("/{tid}");
            let (idle, own) = (end(receive.recv().unwrap()), end(tid()));
            let has = |all: &BTreeSet<String>, end: &str| all.iter().any(|it| it.ends_with(end));
            let right = (0..200)
                .all(|_| others().is_some_and(|others| has(&others, &idle) && !has(&others, &own)));
            stop.store(true, Relaxed);
            assert!(right);
        });
    }
}
