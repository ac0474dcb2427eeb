//! The attacher dies by SIGKILL after every single operation on the target and at every named
//! point. The target lives. Its registers, masks, handlers and work are as before, and it can be
//! entered again.

use crate::common::{Pid, pid_of};
use std::os::unix::process::ExitStatusExt;

use crate::common::{
    PATIENCE, Snapshot, Target, attacher, check, end, run, start, until, until_alone,
};
use midair_inject::FaultPoint;
use midair_procinfo::syscall::Activity;
use midair_procinfo::task;
use midair_tests::snapshot::What;

const QUICK: [&str; 4] = ["--boot-ms", "1500", "--find-ms", "20000"];

/// Runs an attacher that may die. Returns true if it lived.
fn attempt(pid: Pid, extra: &[&str]) -> bool {
    let exit = run(attacher(pid, &[&QUICK[..], extra].concat()), PATIENCE).unwrap();
    if exit.status.signal() == Some(9) {
        return false;
    }
    exit.success().map(|_| true).unwrap()
}

/// Checks that everything but leaked memory of midair's is as before, once the worker thread has given
/// up.
pub(crate) fn is_sound(target: &mut Target, before: &Snapshot, when: &str) {
    let pid = pid_of(target);
    until("the borrowed thread's return", || {
        let now = Snapshot::take(pid)?;
        Ok(now.named("midair-worker").next().is_none() && now.tracer == 0)
    })
    .unwrap();
    check(target);
    // The stub restores its thread when it has waited as long as it may.
    until("the masks as before", || {
        Ok(before
            .diff(&Snapshot::take(pid)?)
            .without(|change| change.what == What::Map)
            .is_empty())
    })
    .map_err(|error| {
        let diff = before.diff(&Snapshot::take(pid).unwrap());
        format!("{when}: {error}\n{diff}")
    })
    .unwrap();
}

/// Waits until the threads of these names wait in a system call. Otherwise another one than the best
/// may be borrowed, and a wait with a time limit ends by EINTR if its thread has to restore itself.
fn until_parked(pid: Pid, names: &[&str]) {
    until("all in their waits", || {
        let mut waiting = 0;
        for tid in task::list(pid.leader())? {
            let name = task::comm(tid)?;
            let named = names.iter().any(|it| it.as_bytes() == name);
            waiting += usize::from(named && matches!(task::activity(tid)?, Activity::Syscall(_)));
        }
        Ok(waiting == names.len())
    })
    .unwrap();
}

fn dies_after_every_operation(args: &[&str]) {
    let mut target = start(args);
    let pid = pid_of(&target);
    check(&mut target);
    let before = Snapshot::take(pid).unwrap();
    let mut deaths = 0;
    for operations in 1.. {
        until_parked(pid, &args[1..]);
        if attempt(pid, &["--die-after", &operations.to_string()]) {
            break;
        }
        deaths += 1;
        is_sound(
            &mut target,
            &before,
            &format!("dead after operation {operations}"),
        );
    }
    eprintln!("{args:?}: {deaths} deaths, each after one more operation");
    assert!(deaths >= 25, "only {deaths} operations were counted");
    assert!(attempt(pid, &[]));
    until_alone(pid);
    // Later attachers unmapped what the dead ones had mapped.
    let left = before
        .diff(&Snapshot::take(pid).unwrap())
        .without(|change| !change.new || !change.text.contains(" r-xp "));
    assert!(left.is_empty(), "this stays:\n{left}");
    end(target);
}

#[test]
fn after_every_operation_with_full_registers() {
    dies_after_every_operation(&["0", "regs"]);
}

#[test]
fn after_every_operation_in_a_condition_beside_a_busy_thread() {
    dies_after_every_operation(&["1", "cond"]);
}

/// T1: the attacher dies while it uses a listener thread.
#[test]
fn after_every_operation_on_a_listeners_thread() {
    dies_after_every_operation(&["0", "rocp-bg-attach", "poll"]);
}

#[test]
fn at_every_named_point() {
    let mut target = start(&["1", "sem"]);
    let pid = pid_of(&target);
    check(&mut target);
    let before = Snapshot::take(pid).unwrap();
    for point in FaultPoint::ALL {
        // These points are not reached here: only a parked worker thread is woken, and only a
        // listener has a socket.
        if matches!(
            point,
            FaultPoint::WakeStopped
                | FaultPoint::WakeKicked
                | FaultPoint::Connected
                | FaultPoint::Challenged
                | FaultPoint::Answered
        ) {
            continue;
        }
        let name = point.name();
        assert!(
            !attempt(pid, &["--fault", name]),
            "the engine never came to {name}"
        );
        is_sound(&mut target, &before, name);
        assert!(attempt(pid, &[]), "it can be entered again after {name}");
    }
    end(target);
}

/// The attacher enters over the socket of the target's own listener. The target lives, nothing in
/// it was ever stopped, and the next attacher enters.
#[test]
fn after_every_step_over_a_socket() {
    let mut target = Target::spawn(std::process::Command::new(crate::common::listening(
        "listening",
    )))
    .unwrap();
    target.expect("ready").unwrap();
    target.send("register").unwrap();
    assert_eq!(target.expect("registered").unwrap(), "registered 1");
    let pid = pid_of(&target);
    until("listening", || {
        Ok(midair_inject::approach(pid)?.endpoint.is_some())
    })
    .unwrap();
    let library = crate::common::compiled("library", true);
    let library = library.to_str().unwrap();
    let before = Snapshot::take(pid).unwrap();
    let mut deaths = 0;
    for step in 1.. {
        let words = [
            "--any-way",
            "--library",
            library,
            "--die-after",
            &step.to_string(),
        ];
        let exit = run(attacher(pid, &words), PATIENCE).unwrap();
        if exit.status.signal() != Some(9) {
            exit.success().unwrap();
            break;
        }
        deaths += 1;
        until("the worker thread's rest, and the next entry", || {
            let next = run(
                attacher(pid, &["--any-way", "--library", library]),
                PATIENCE,
            )?;
            Ok(next.status.success())
        })
        .unwrap_or_else(|error| panic!("{:?}: {error}", exit.stderr));
        // The listener may still be in the C library, which blocks signals while it makes a thread.
        let mut last = String::new();
        until("all as before", || {
            let left = before.diff(&Snapshot::take(pid)?).without(|change| {
                change.what == What::Map
                    || change.name == "midair-worker"
                    || change.what == What::Fd
            });
            last = left.to_string();
            Ok(left.is_empty())
        })
        .unwrap_or_else(|error| panic!("{error}: {:?}\n{last}", exit.stderr));
    }
    assert!(deaths >= 4, "only {deaths}");
    target.send("rounds").unwrap();
    target.expect("rounds go on").unwrap();
    target.wait(PATIENCE).unwrap().success().unwrap();
}
