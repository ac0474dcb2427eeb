//! The threads of this process, as CUPTI may be in them.

use std::collections::BTreeSet;

/// Number of times the threads are listed.
const LOOKS: usize = 5;

/// Returns the directories below `/proc` of all threads except the calling one; `None` where they cannot be listed.
///
/// While threads end, the kernel may leave others out of a list, since it goes on by a count of those before (by its
/// source; not seen in 3,000 lists on two processors). So they are listed again until nothing is new.
pub(super) fn others() -> Option<BTreeSet<String>> {
    // Not /proc/self: that is the main thread, which may have ended.
    let tasks = format!("/proc/{}/task", std::process::id());
    // SAFETY: a system call without arguments.
    let own = unsafe { libc::syscall(libc::SYS_gettid) }.to_string();
    all_of(|| {
        let names = std::fs::read_dir(&tasks).ok()?.flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let others = names.filter(|name| *name != own);
        Some(others.map(|name| format!("{tasks}/{name}")).collect())
    })
}

/// Unites lists until one has nothing new.
fn all_of(mut list: impl FnMut() -> Option<Vec<String>>) -> Option<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for _ in 0..LOOKS {
        let before = all.len();
        all.extend(list()?);
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
    fn a_thread_that_a_list_lacks_is_found_in_the_next_one() {
        let mut lists = [vec!["1"], vec!["1", "2"], vec!["2"], vec!["3"]].into_iter();
        let all = all_of(|| {
            let list = lists.next()?;
            Some(list.into_iter().map(str::to_owned).collect())
        });
        assert_eq!(all.unwrap().into_iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(lists.len(), 1, "nothing was new in the third");
        assert!(all_of(|| None).is_none());
    }

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
