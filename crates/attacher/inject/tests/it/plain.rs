//! Entering plain C programs: one worker thread comes and goes, and everything is as before.

use crate::common::{Pid, pid_of};
use std::time::Duration;

use crate::common::{Snapshot, check, end, start};
use midair_inject::{EntryPath, Grade, Library, Options, enter, inspect};

fn options() -> Options {
    Options {
        find: Duration::from_secs(20),
        never_borrow: vec!["gpu-model-".to_owned()],
        ..Options::default()
    }
}

/// Enters and withdraws. Returns the entry path and the name of the borrowed thread.
fn in_and_out(pid: Pid) -> (EntryPath, String) {
    let entered = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap();
    let via = entered.via.clone();
    let during = Snapshot::take(pid).unwrap();
    assert_eq!(
        during.tracer, 0,
        "no thread is traced once enter has returned"
    );
    entered.withdraw(&options()).unwrap();
    (via.path, via.name)
}

fn leaves_nothing(args: &[&str], tier: EntryPath) {
    let mut target = start(args);
    let pid = pid_of(&target);
    check(&mut target);
    let before = Snapshot::take(pid).unwrap();
    for _ in 0..5 {
        let (by, name) = in_and_out(pid);
        assert_eq!((by, name.as_str()), (tier, args[1]));
        let diff = before.diff(&Snapshot::take(pid).unwrap());
        assert!(diff.is_empty(), "{diff}");
    }
    check(&mut target);
    in_and_out(pid);
    end(target);
}

#[test]
fn condition() {
    leaves_nothing(&["0", "cond"], EntryPath::Parked(Grade::Condition));
}

#[test]
fn semaphore() {
    leaves_nothing(&["0", "sem"], EntryPath::Parked(Grade::Condition));
}

#[test]
fn read() {
    leaves_nothing(&["0", "read"], EntryPath::Parked(Grade::Call));
}

#[test]
fn poll_with_a_timeout_goes_on_with_the_rest_of_it() {
    leaves_nothing(&["0", "poll"], EntryPath::Parked(Grade::Call));
}

#[test]
fn nanosleep_is_not_cut_short() {
    leaves_nothing(&["0", "nanosleep"], EntryPath::Parked(Grade::Call));
}

/// The kernel writes the time that is left into the program's stack when the thread is stopped.
#[test]
fn a_wait_whose_rest_is_written_to_its_stack() {
    leaves_nothing(&["0", "ppoll"], EntryPath::Parked(Grade::Call));
    leaves_nothing(&["0", "sleep"], EntryPath::Parked(Grade::Call));
}

#[test]
fn mutex_of_a_program_with_names() {
    leaves_nothing(&["0", "mutex"], EntryPath::Parked(Grade::Lock));
}

#[test]
fn every_register_is_as_before() {
    leaves_nothing(&["0", "regs"], EntryPath::Parked(Grade::Call));
}

#[test]
fn inside_a_runtime_library() {
    leaves_nothing(&["0", "lib-poll"], EntryPath::Parked(Grade::Call));
    leaves_nothing(&["0", "lib-cond"], EntryPath::Parked(Grade::Condition));
}

#[test]
fn the_listener_is_preferred() {
    leaves_nothing(
        &["0", "rocp-bg-attach", "poll", "read"],
        EntryPath::Listener,
    );
}

#[test]
fn a_thread_that_would_notice_is_the_last_choice() {
    let mut target = start(&["0", "epoll"]);
    assert_eq!(
        in_and_out(pid_of(&target)).0,
        EntryPath::Parked(Grade::Disturbed)
    );
    check(&mut target);
    end(target);
    let mut target = start(&["0", "epoll", "cond"]);
    assert_eq!(in_and_out(pid_of(&target)).1, "cond");
    check(&mut target);
    end(target);
}

/// The kernel does not restart a call on a socket that has a time limit of its own.
#[test]
fn a_socket_with_a_time_limit_would_notice() {
    let mut target = start(&["0", "recv-limit"]);
    let by = in_and_out(pid_of(&target)).0;
    assert_eq!(by, EntryPath::Parked(Grade::Disturbed));
    check(&mut target);
    end(target);
    let target = start(&["0", "recv-limit", "read"]);
    assert_eq!(in_and_out(pid_of(&target)).1, "read");
    end(target);
}

#[test]
fn threads_that_are_excluded_by_name_are_never_borrowed() {
    let target = start(&["0", "gpu-model-queue", "cond"]);
    for _ in 0..5 {
        assert_eq!(in_and_out(pid_of(&target)).1, "cond");
    }
    end(target);
}

#[test]
fn a_program_that_allocates_on_eight_threads() {
    let cycles = std::env::var("MIDAIR_CYCLES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(40);
    let mut target = start(&["8", "cond", "poll", "nanosleep"]);
    let pid = pid_of(&target);
    let mut stopped = Vec::new();
    for _ in 0..cycles {
        let entered = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap();
        stopped.push((entered.times.stopped(), entered.times));
        entered.withdraw(&options()).unwrap();
    }
    check(&mut target);
    let after = Snapshot::take(pid).unwrap();
    assert_eq!((after.threads.len(), after.tracer), (12, 0));
    end(target);
    stopped.sort_by_key(|(all, _)| *all);
    let at = |part: f64| stopped[((stopped.len() - 1) as f64 * part) as usize];
    eprintln!(
        "{cycles} cycles, thread stopped: p50 {:?} p99 {:?} max {:?}",
        at(0.5).0,
        at(0.99).0,
        at(1.0)
    );
}
