//! Processes in difficult states: signals, floating point units, small stacks, vfork, and threads
//! with a name like ours; also attachers that all come at once.

use crate::common::{Pid, pid_of};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Snapshot, Target, attacher, compiled, until, until_alone};
use midair_inject::{EnterError, Library, Options, Refusal, enter, inspect};

/// The signals that the program sends in storms, as masks show them: SIGALRM, SIGPROF, and the C
/// library's SIGRTMIN + 3 (14, 27, 37).
const STORMS: u64 = 1 << 13 | 1 << 26 | 1 << 36;

fn start(kind: &str, first: &str) -> (Target, String) {
    let mut command = Command::new(compiled("states", false));
    command.arg(kind);
    let mut target = Target::spawn(command).unwrap();
    let line = target.expect(first).unwrap();
    (target, line)
}

fn options() -> Options {
    Options {
        find: Duration::from_secs(30),
        ..Options::default()
    }
}

fn once(pid: Pid) {
    let entered = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap();
    entered.withdraw(&options()).unwrap();
    until_alone(pid);
}

/// Enters `rounds` times. Everything must be as before, and the program must find nothing wrong.
fn enter_and_check(kind: &str, rounds: u32) {
    let (mut target, _) = start(kind, "ready");
    let pid = pid_of(&target);
    // The C library installs handlers of its own for signals 32 and 33 with a process's first
    // thread.
    once(pid);
    let before = Snapshot::take(pid).unwrap();
    let status = midair_procinfo::task::status(pid).unwrap();
    for _ in 0..rounds {
        once(pid);
    }
    // If the handler of a storm's signal runs at this moment, that signal is blocked. The program
    // itself blocks none of them.
    let storm = match kind {
        "alarms" | "flood" => STORMS,
        _ => 0,
    };
    let before_storm = status.sig_blocked & !storm;
    until("the signals as before", || {
        Ok(midair_procinfo::task::status(pid)?.sig_blocked == before_storm)
    })
    .unwrap();
    let now = midair_procinfo::task::status(pid).unwrap();
    let others = |status: &midair_procinfo::status::Status| {
        (status.sig_caught, status.sig_ignored, status.tracer)
    };
    assert_eq!(others(&now), others(&status));
    if kind != "alarms" && kind != "flood" {
        assert_eq!(now.sig_pending, status.sig_pending);
        let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
        assert!(diff.is_empty(), "{diff}");
    }
    target.send("check").unwrap();
    let said = target.expect("checked").unwrap();
    assert_eq!(said, "checked 0");
    target.wait(PATIENCE).unwrap().success().unwrap();
}

#[test]
fn a_pending_sigtrap_stays_pending_and_handlers_stay() {
    enter_and_check("trap-pending", 3);
    enter_and_check("trap-handled", 3);
    enter_and_check("trap-ignored", 3);
}

#[test]
fn storms_of_signals() {
    enter_and_check("alarms", 5);
    enter_and_check("flood", 5);
}

#[test]
fn floating_point_units_direction_and_stacks() {
    enter_and_check("units", 5);
    enter_and_check("small", 5);
}

#[test]
fn in_vfork() {
    // Another thread is borrowed. The one in vfork stays in it.
    let (mut target, child) = start("vfork", "child");
    let child: Pid = child.trim_start_matches("child ").parse().unwrap();
    let pid = pid_of(&target);
    let in_vfork = || midair_procinfo::task::stat(pid).is_ok_and(|stat| stat.state == b'D');
    until("vfork", || Ok(in_vfork())).unwrap();
    // The threads start with all signals blocked.
    until("the other threads at rest", || {
        let others = midair_tests::held::threads(pid)?;
        let mut others = others.into_iter().filter(|tid| *tid != pid.leader());
        Ok(others.all(|tid| midair_procinfo::task::stat(tid).is_ok_and(|stat| stat.state == b'S')))
    })
    .unwrap();
    let before = Snapshot::take(pid).unwrap();
    let entered = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap();
    assert_ne!(entered.via.tid, pid.leader());
    entered.withdraw(&options()).unwrap();
    until_alone(pid);
    assert!(in_vfork());
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    assert!(diff.is_empty(), "{diff}");
    // The child runs in the memory of its parent.
    let refusal = inspect(child).unwrap_err();
    assert!(
        matches!(refusal, Refusal::SharesMemory { pid: found, with } if (found, with) == (child, pid)),
        "{refusal}"
    );
    target.send("go on").unwrap();
    assert_eq!(target.expect("checked").unwrap(), "checked 0");
    target.wait(PATIENCE).unwrap().success().unwrap();
}

#[test]
fn alone_in_vfork() {
    let (mut target, _) = start("vfork-alone", "child");
    let pid = pid_of(&target);
    until("vfork", || {
        Ok(midair_procinfo::task::stat(pid)?.state == b'D')
    })
    .unwrap();
    let quick = Options {
        find: Duration::from_millis(300),
        ..Options::default()
    };
    let began = Instant::now();
    let error = enter(&inspect(pid).unwrap(), &Library::Nothing, &quick).unwrap_err();
    assert!(
        error.to_string().contains("uninterruptible wait"),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(20));
    let status = midair_procinfo::task::status(pid).unwrap();
    assert_eq!((status.tracer, status.state), (None, b'D'));
    target.send("go on").unwrap();
    assert_eq!(target.expect("checked").unwrap(), "checked 0");
    target.wait(PATIENCE).unwrap().success().unwrap();
}

/// Nothing tells what this thread is. So it is taken for a session that is on, and nothing in the
/// program is written to.
#[test]
fn a_thread_with_our_name() {
    let (mut target, _) = start("named", "ready");
    let pid = pid_of(&target);
    until("its name", || {
        Ok(Snapshot::take(pid)?.named("midair-worker").next().is_some())
    })
    .unwrap();
    let before = Snapshot::take(pid).unwrap();
    let error = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap_err();
    assert!(matches!(error, EnterError::Busy { .. }), "{error}");
    let diff = before.diff(&Snapshot::take(pid).unwrap());
    assert!(diff.is_empty(), "{diff}");
    target.send("check").unwrap();
    assert_eq!(target.expect("checked").unwrap(), "checked 0");
    target.wait(PATIENCE).unwrap().success().unwrap();
}

/// Eight attachers come at once, repeatedly. Whatever each of them gets, the program is as it was.
#[test]
fn attachers_all_at_once() {
    // The target's waits have no time limit. If our stop has to last longer than the stub waits,
    // the thread restores itself and gets EINTR from a wait that has one. Eight attachers with
    // real-time priority make that happen on two cores.
    let mut target = crate::common::start(&["1", "cond", "read", "sem"]);
    let pid = pid_of(&target);
    let before = Snapshot::take(pid).unwrap();
    let (mut entered, mut refused) = (0, 0);
    let rounds = match midair_tests::long() {
        true => 50,
        false => 30,
    };
    for _ in 0..rounds {
        let all: Vec<Target> = (0..8)
            .map(|_| Target::spawn(attacher(pid, &[])).unwrap())
            .collect();
        for one in all {
            let exit = one.wait(PATIENCE).unwrap();
            if exit.status.success() {
                entered += 1;
            } else {
                refused += 1;
                let said = exit.stdout.join("\n");
                let known = said.contains("another session is on")
                    || said.contains("is traced by")
                    || said.contains("Operation not permitted")
                    || said.contains("no thread is parked");
                assert!(known, "{exit}");
            }
        }
    }
    assert!(entered >= rounds, "{entered} entered, {refused} refused");
    until_alone(pid);
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    let diff = diff.without(|change| change.what == midair_tests::snapshot::What::Map);
    assert!(diff.is_empty(), "{diff}");
    crate::common::check(&mut target);
    crate::common::end(target);
}
