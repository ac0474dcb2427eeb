//! A library in the target is loaded, parked, woken and refused.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use crate::common::{
    PATIENCE, Snapshot, attacher, check, compiled, compiled_with, end, run, start, until,
    until_alone,
};
use crate::common::{Pid, pid_of};
use midair_inject::{EnterError, Entered, EntryPath, Library, Options, enter, inspect};

fn options() -> Options {
    Options {
        find: Duration::from_secs(20),
        ..Options::default()
    }
}

fn talk(entered: &Entered) -> UnixStream {
    entered.channel.try_clone().unwrap().into()
}

fn hello(entered: &Entered) -> UnixStream {
    entered.wait_for_word(PATIENCE).unwrap();
    let mut socket = talk(entered);
    let mut word = [0; 16];
    let n = socket.read(&mut word).unwrap();
    assert_eq!(&word[..n], b"hello");
    socket
}

fn parked(pid: Pid) {
    until("parking", || {
        Ok(inspect(pid)?.worker.is_some_and(|agent| agent.is_parked()))
    })
    .unwrap();
}

#[test]
fn the_programs_floating_point_traps_are_not_ours() {
    let mut target = start(&["0", "traps"]);
    let pid = pid_of(&target);
    let library = Library::File(compiled("library", true));
    let entered = enter(&inspect(pid).unwrap(), &library, &options()).unwrap();
    hello(&entered).write_all(b"end.").unwrap();
    until_alone(pid);
    check(&mut target);
    end(target);
}

#[test]
fn loads_parks_and_is_woken() {
    let mut target = start(&["2", "cond"]);
    let pid = pid_of(&target);
    let library = Library::File(compiled("library", true));
    let entered = enter(&inspect(pid).unwrap(), &library, &options()).unwrap();
    let first = entered.worker_tid;
    hello(&entered).write_all(b"park").unwrap();
    parked(pid);
    let before = Snapshot::take(pid).unwrap();
    assert!(
        before
            .maps
            .iter()
            .any(|map| map.path.contains("midair-agent-")),
        "the library is mapped"
    );
    assert!(
        !before
            .fds
            .values()
            .any(|what| what.contains("midair") || what.contains("socket")),
        "no descriptor stays"
    );
    drop(entered);
    for _ in 0..20 {
        let entered = enter(&inspect(pid).unwrap(), &library, &options()).unwrap();
        assert_eq!(
            (entered.via.path, entered.worker_tid),
            (EntryPath::OwnThread, first)
        );
        let mut socket = talk(&entered);
        socket.write_all(b"wake").unwrap();
        hello(&entered).write_all(b"park").unwrap();
        parked(pid);
    }
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    assert!(diff.is_empty(), "{diff}");
    check(&mut target);
    end(target);
}

/// It once waited as long as the first attacher had asked for, and an attach that was tried again
/// with more patience got none.
#[test]
fn a_thread_that_is_woken_waits_as_long_as_its_waker_asks() {
    let target = start(&["0", "cond"]);
    let pid = pid_of(&target);
    let library = Library::File(compiled("library", true));
    let waiting = |boot| Options { boot, ..options() };
    let longer = waiting(5 * PATIENCE);
    let entered = enter(&inspect(pid).unwrap(), &library, &longer).unwrap();
    hello(&entered).write_all(b"park").unwrap();
    parked(pid);
    drop(entered);
    let shorter = waiting(Duration::from_secs(1));
    let woken = enter(&inspect(pid).unwrap(), &library, &shorter).unwrap();
    assert_eq!(woken.via.path, EntryPath::OwnThread);
    // It gets nothing, and gives up.
    until_alone(pid);
    end(target);
}

#[test]
fn one_at_a_time() {
    let target = start(&["0", "cond"]);
    let pid = pid_of(&target);
    let library = Library::File(compiled("library", true));
    let entered = enter(&inspect(pid).unwrap(), &library, &options()).unwrap();
    let socket = hello(&entered);
    let second = enter(&inspect(pid).unwrap(), &library, &options()).unwrap_err();
    assert!(matches!(second, EnterError::Busy { .. }), "{second}");
    drop(socket);
    entered.withdraw(&options()).unwrap();
    end(target);
}

#[test]
fn a_library_that_is_there_is_used_again_and_another_build_refused() {
    let target = start(&["0", "cond"]);
    let pid = pid_of(&target);
    let built = |number: &str| {
        let flags = ["-shared", "-fPIC", "-Wl,--build-id", number];
        Library::File(compiled_with("library", &flags))
    };
    let library = built("-DNUMBER=1");
    for _ in 1..=3 {
        let entered = enter(&inspect(pid).unwrap(), &library, &options()).unwrap();
        hello(&entered).write_all(b"end").unwrap();
        until_alone(pid);
        entered.withdraw(&options()).unwrap();
        let loaded = Snapshot::take(pid).unwrap();
        let mut names: Vec<&str> = loaded
            .maps
            .iter()
            .map(|map| map.path.as_str())
            .filter(|path| path.contains("midair-agent-"))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 1, "{names:?}");
    }
    let other = enter(&inspect(pid).unwrap(), &built("-DNUMBER=2"), &options());
    assert!(
        matches!(other, Err(EnterError::OtherBuild { .. })),
        "{other:?}"
    );
    end(target);
}

#[test]
fn a_library_that_cannot_be_loaded_says_why_and_leaves_nothing() {
    let mut target = start(&["0", "cond"]);
    let pid = pid_of(&target);
    check(&mut target);
    let before = Snapshot::take(pid).unwrap();
    let entered = enter(
        &inspect(pid).unwrap(),
        &Library::Bytes(b"no library".to_vec()),
        &options(),
    )
    .unwrap();
    let error = entered.wait_for_word(PATIENCE).unwrap_err();
    let EnterError::Boot { step, text, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(*step, "loading the library");
    assert!(
        text.contains("self/fd/") && text.contains("file too short"),
        "{text}"
    );
    entered.withdraw(&options()).unwrap();
    // This library does not have our entry.
    let entered = enter(
        &inspect(pid).unwrap(),
        &Library::File(compiled("runtime", true)),
        &options(),
    )
    .unwrap();
    let error = entered.wait_for_word(PATIENCE).unwrap_err();
    assert!(
        matches!(
            error,
            EnterError::Boot {
                step: "finding the entry of the library",
                ..
            }
        ),
        "{error}"
    );
    entered.withdraw(&options()).unwrap();
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    let diff = diff.without(|change| change.name.contains("midair-agent-"));
    assert!(diff.is_empty(), "{diff}");
    check(&mut target);
    end(target);
}

#[test]
fn an_attacher_that_dies_while_waking_leaves_it_parked_or_woken() {
    let mut target = start(&["0", "cond"]);
    let pid = pid_of(&target);
    let library = Library::File(compiled("library", true));
    let entered = enter(&inspect(pid).unwrap(), &library, &options()).unwrap();
    hello(&entered).write_all(b"park").unwrap();
    parked(pid);
    let exit = run(attacher(pid, &["--fault", "WakeStopped"]), PATIENCE).unwrap();
    assert_eq!(exit.status.signal(), Some(9), "{exit}");
    parked(pid);
    check(&mut target);
    // A thread that is woken and then left alone gives up by itself.
    let exit = run(attacher(pid, &["--fault", "WakeKicked"]), PATIENCE).unwrap();
    assert_eq!(exit.status.signal(), Some(9), "{exit}");
    until_alone(pid);
    check(&mut target);
    end(target);
}
