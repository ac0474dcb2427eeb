//! T0: entering over the socket of a process's own listener. Nothing is stopped or traced.

mod peers;
mod rights;

use crate::common::{Pid, pid_of};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use crate::common::{PATIENCE, Snapshot, Target, compiled, listening, until};
use midair_inject::{
    Approach, EnterError, Entered, EntryPath, Library, Options, Times, approach, enter, enter_by,
    inspect,
};

fn options() -> Options {
    Options {
        find: Duration::from_secs(20),
        boot: Duration::from_secs(20),
        ..Options::default()
    }
}

fn library() -> Library {
    Library::File(compiled("library", true))
}

/// Starts the program with these arguments. It has not registered yet when this returns.
fn begin(words: &[&str]) -> Target {
    let mut command = Command::new(listening("listening"));
    command.args(words);
    let mut target = Target::spawn(command).unwrap();
    target.expect("ready").unwrap();
    target
}

/// Starts the program with these arguments, and waits until its listener can be reached.
fn start(words: &[&str]) -> Target {
    let mut target = begin(words);
    listen(&mut target);
    target
}

fn listen(target: &mut Target) {
    target.send("register").unwrap();
    assert_eq!(target.expect("registered").unwrap(), "registered 1");
    reachable(pid_of(target));
}

fn reachable(pid: Pid) {
    until("listening", || Ok(approach(pid)?.endpoint.is_some())).unwrap();
}

fn end(mut target: Target) {
    target.send("rounds").unwrap();
    target.expect("rounds go on").unwrap();
    let exit = target.wait(PATIENCE).unwrap().success().unwrap();
    assert_eq!(exit.stdout.last().map(String::as_str), Some("done"));
    assert_eq!(exit.stderr, [""; 0]);
}

fn hello(entered: &Entered) -> UnixStream {
    entered.wait_for_word(PATIENCE).unwrap();
    let mut socket: UnixStream = entered.channel.try_clone().unwrap().into();
    let mut word = [0; 16];
    let n = socket.read(&mut word).unwrap();
    assert_eq!(&word[..n], b"hello");
    socket
}

/// Enters over the socket and no other path, and waits for the library's first message.
fn over_the_socket(pid: Pid) -> (Entered, UnixStream) {
    let entered = enter_by(&approach(pid).unwrap(), &library(), &options()).unwrap();
    assert_eq!(entered.via.path, EntryPath::Socket, "{:?}", entered.via);
    assert_eq!(entered.times, Times::default(), "nothing was stopped");
    assert_eq!(entered.via.rejected, []);
    let mut socket: UnixStream = entered.channel.try_clone().unwrap().into();
    // A thread that was woken waits for its attacher's first message. A new one sends its own
    // message before it reads.
    if entered.via.doing.contains("woken") {
        socket.write_all(b"wake").unwrap();
    }
    let socket = hello(&entered);
    (entered, socket)
}

fn park((_entered, mut socket): (Entered, UnixStream), pid: Pid) {
    socket.write_all(b"park").unwrap();
    parked(pid);
}

fn parked(pid: Pid) {
    until("parking", || {
        Ok(inspect(pid)?.worker.is_some_and(|agent| agent.is_parked()))
    })
    .unwrap();
}

#[test]
fn two_hundred_sessions_leave_it_as_one_did() {
    let target = start(&[]);
    let pid = pid_of(&target);
    park(over_the_socket(pid), pid);
    let first = inspect(pid).unwrap().worker.unwrap().tid;
    let before = Snapshot::take(pid).unwrap();
    for _ in 0..200 {
        let (entered, socket) = over_the_socket(pid);
        assert_eq!(entered.worker_tid, first);
        park((entered, socket), pid);
    }
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    assert!(diff.is_empty(), "{diff}");
    assert_eq!(before.tracer, 0);
    let sockets = before.fds.values().filter(|what| what.contains("socket"));
    assert_eq!(sockets.count(), 1, "the listener's: {:?}", before.fds);
    end(target);
}

#[test]
fn the_socket_and_tracing_take_turns() {
    let target = start(&[]);
    let pid = pid_of(&target);
    park(over_the_socket(pid), pid);
    for _ in 0..3 {
        let entered = enter(&inspect(pid).unwrap(), &library(), &options()).unwrap();
        assert_eq!(entered.via.path, EntryPath::OwnThread);
        let mut socket: UnixStream = entered.channel.try_clone().unwrap().into();
        socket.write_all(b"wake").unwrap();
        park((entered, socket.try_clone().unwrap()), pid);
        park(over_the_socket(pid), pid);
    }
    end(target);
    // The other way round, a thread that was made by tracing is woken over the socket.
    let target = start(&[]);
    let pid = pid_of(&target);
    let entered = enter(&inspect(pid).unwrap(), &library(), &options()).unwrap();
    assert_eq!(entered.via.path, EntryPath::Listener, "{:?}", entered.via);
    let made = entered.worker_tid;
    let socket = hello(&entered);
    park((entered, socket), pid);
    let (entered, socket) = over_the_socket(pid);
    assert_eq!(entered.worker_tid, made);
    park((entered, socket), pid);
    let entered = enter(&inspect(pid).unwrap(), &library(), &options()).unwrap();
    assert_eq!(entered.via.path, EntryPath::OwnThread);
    drop(entered);
    end(target);
}

#[test]
fn of_two_at_once_one_wins_and_one_is_told() {
    let target = start(&[]);
    let pid = pid_of(&target);
    for round in 0..20 {
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| enter_by(&approach(pid).unwrap(), &library(), &options())))
                .collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 1), "{round}: {lost:?}");
        let error = lost.into_iter().next().unwrap().unwrap_err();
        assert!(matches!(error, EnterError::Busy { .. }), "{error}");
        let entered = won.into_iter().next().unwrap().unwrap();
        let mut socket: UnixStream = entered.channel.try_clone().unwrap().into();
        if round > 0 {
            socket.write_all(b"wake").unwrap();
        }
        let socket = hello(&entered);
        park((entered, socket), pid);
    }
    end(target);
}

#[test]
fn a_library_that_cannot_be_loaded_says_why_and_leaves_nothing() {
    let target = start(&[]);
    let pid = pid_of(&target);
    let broken = Library::Bytes(b"no library".to_vec());
    let failed = |library: &Library| {
        let entered = enter_by(&approach(pid).unwrap(), library, &options()).unwrap();
        assert_eq!(entered.via.path, EntryPath::Socket);
        entered.wait_for_word(PATIENCE).unwrap_err()
    };
    failed(&broken);
    crate::common::until_alone(pid);
    let before = Snapshot::take(pid).unwrap();
    let error = failed(&broken);
    let EnterError::Boot { step, text, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(*step, "loading the library");
    assert!(
        text.contains("self/fd/") && text.contains("file too short"),
        "{text}"
    );
    let error = failed(&Library::File(compiled("runtime", true)));
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
    // One entry that only proves that the path is open, and an attacher that goes away immediately.
    drop(enter_by(&approach(pid).unwrap(), &Library::Nothing, &options()).unwrap());
    crate::common::until_alone(pid);
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    let diff = diff.without(|change| change.name.contains("midair-agent-"));
    assert!(diff.is_empty(), "{diff}");
    park(over_the_socket(pid), pid);
    end(target);
}

#[test]
fn a_child_of_fork_has_a_listener_of_its_own() {
    let mut target = start(&[]);
    let parent = pid_of(&target);
    let fork = |target: &mut Target| -> Pid {
        target.send("fork").unwrap();
        let line = target.expect("child").unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    let early = fork(&mut target);
    reachable(early);
    park(over_the_socket(early), early);
    park(over_the_socket(parent), parent);
    // The process is forked while the parent has our library and a parked thread. The child has the
    // library but not the thread.
    let late = fork(&mut target);
    reachable(late);
    let before = Snapshot::take(late).unwrap();
    assert_eq!(before.named("midair-worker").count(), 0);
    let (entered, socket) = over_the_socket(late);
    assert_eq!(entered.via.doing, "it has made the worker thread");
    let libraries = |pid: Pid| {
        let maps = Snapshot::take(pid).unwrap().maps;
        let ours = maps
            .into_iter()
            .filter(|it| it.path.contains("midair-agent-"));
        ours.map(|map| map.path)
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(libraries(late), libraries(parent), "it is not loaded again");
    park((entered, socket), late);
    for pid in [early, late, parent] {
        park(over_the_socket(pid), pid);
        let snapshot = Snapshot::take(pid).unwrap();
        let sockets = snapshot.fds.values().filter(|what| what.contains("socket"));
        assert_eq!(sockets.count(), 1, "{:?}", snapshot.fds);
    }
    for child in [early, late] {
        // SAFETY: kill takes only numbers, and the process is a child of our own target.
        unsafe { libc::kill(child.raw(), libc::SIGKILL) };
    }
    end(target);
}

#[test]
fn children_that_exec_or_exit_at_once_are_not_held_up() {
    let mut target = start(&[]);
    target.send("storm 100").unwrap();
    assert_eq!(target.expect("storm").unwrap(), "storm 0");
    let pid = pid_of(&target);
    park(over_the_socket(pid), pid);
    target.send("storm 100").unwrap();
    assert_eq!(target.expect("storm").unwrap(), "storm 0");
    park(over_the_socket(pid), pid);
    end(target);
}

#[test]
fn a_program_that_closes_everything_keeps_its_own_and_can_be_traced() {
    let mut target = start(&[]);
    let pid = pid_of(&target);
    target.send("close").unwrap();
    assert_eq!(target.expect("closed").unwrap(), "closed 0");
    // A connection wakes the listener, which finds that the number now belongs to another process.
    let entered = enter_by(&approach(pid).unwrap(), &library(), &options()).unwrap();
    let socket = hello(&entered);
    park((entered, socket), pid);
    until("the end of the socket", || {
        Ok(approach(pid)?.endpoint.is_none())
    })
    .unwrap();
    let entered = enter_by(&approach(pid).unwrap(), &library(), &options()).unwrap();
    assert_eq!(entered.via.path, EntryPath::OwnThread);
    let mut socket: UnixStream = entered.channel.try_clone().unwrap().into();
    socket.write_all(b"wake").unwrap();
    park((entered, socket), pid);
    target.send("others").unwrap();
    assert_eq!(target.expect("others").unwrap(), "others 0");
    end(target);
}

#[test]
fn one_that_is_not_to_be_attached_to_has_no_socket() {
    let mut command = Command::new(listening("listening"));
    command.env("ROCP_TOOL_ATTACH", "0");
    let mut target = Target::spawn(command).unwrap();
    target.expect("ready").unwrap();
    target.send("register").unwrap();
    target.expect("registered").unwrap();
    let Approach {
        endpoint,
        inspection,
        ..
    } = approach(pid_of(&target)).unwrap();
    assert!(endpoint.is_none() && inspection.unwrap().listener.is_none());
    end(target);
}
