//! Who is let in, and who is not.

use super::*;
use crate::common::{attacher, run};
use midair_ptrace::{Deadline, Seized};
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Returns a midair program that enters over the socket, or by any other path.
fn any_way(pid: Pid) -> Command {
    let agent = compiled("library", true);
    attacher(pid, &["--any-way", "--library", agent.to_str().unwrap()])
}

/// Runs it as this user, without capabilities.
fn as_user(user: u32, pid: Pid) -> crate::common::Exit {
    let mut command = any_way(pid);
    command.uid(user).gid(user);
    run(command, PATIENCE).unwrap()
}

/// Runs it as this user in a sandbox (no_new_privs, and a filter that refuses what tracers use).
fn sandboxed(user: &str, pid: Pid) -> crate::common::Exit {
    let plain = any_way(pid);
    let mut command = Command::new(compiled("without_ptrace", false));
    command.arg(user).arg(plain.get_program());
    command.args(plain.get_args());
    run(command, PATIENCE).unwrap()
}

fn let_in(exit: &crate::common::Exit) -> bool {
    exit.status.success() && exit.stdout[0].contains("via=Socket")
}

/// Lets other users reach the programs of the test.
fn open_to_all() {
    for file in [
        compiled("library", true),
        compiled("without_ptrace", false),
        attacher(Pid::MAX, &[]).get_program().into(),
        listening("listening"),
    ] {
        let mut at: &Path = &file;
        while let Some(above) = at.parent() {
            at = above;
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&at.metadata().unwrap().permissions());
            assert!(mode & 0o1 != 0, "{} is closed to other users", at.display());
        }
    }
}

#[test]
fn a_user_without_capabilities_enters_a_process_that_is_being_traced() {
    if !midair_tests::is_root_for("becomes another user").unwrap() {
        return;
    }
    open_to_all();
    let target = start(&["drop", "1000", "dumpable"]);
    let pid = pid_of(&target);
    // Another process traces it all the time, so no second tracer could enter.
    let _held = Seized::seize(pid, false).unwrap();
    let before = Snapshot::take(pid).unwrap();
    assert_ne!(before.tracer, 0);
    let exit = as_user(1000, pid);
    assert!(let_in(&exit), "{exit}");
    crate::common::until_alone(pid);
    let exit = run(any_way(pid), PATIENCE).unwrap();
    assert!(let_in(&exit), "root: {exit}");
    crate::common::until_alone(pid);
    for user in [1001, 65534] {
        let exit = as_user(user, pid);
        assert_eq!(exit.status.code(), Some(1), "{exit}");
        assert!(exit.stdout[0].contains("it belongs to user 1000"), "{exit}");
    }
    // In a sandbox that the process is not in, the same user is refused, and so is root.
    for user in ["1000", "-"] {
        let exit = sandboxed(user, pid);
        assert_eq!(exit.status.code(), Some(1), "{exit}");
        assert!(exit.stdout[0].contains("in a sandbox"), "{exit}");
        assert!(exit.stdout[0].contains("is traced by"), "{exit}");
    }
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    let diff = diff.without(|change| change.name.contains("midair-agent-"));
    let added: Vec<_> = diff
        .changes
        .iter()
        .filter(|it| !it.name.is_empty())
        .collect();
    assert!(added.is_empty(), "{diff}");
    drop(_held);
    end(target);
}

#[test]
fn who_gave_up_rights_is_for_root_only() {
    if !midair_tests::is_root_for("becomes another user").unwrap() {
        return;
    }
    open_to_all();
    for (words, why) in [
        (vec!["drop", "1000"], "it is not dumpable"),
        (
            vec!["keep", "1000", "dumpable"],
            "it has capabilities that midair lacks",
        ),
    ] {
        let target = start(&words);
        let pid = pid_of(&target);
        let exit = as_user(1000, pid);
        assert_eq!(exit.status.code(), Some(1), "{words:?}: {exit}");
        assert!(exit.stdout[0].contains(why), "{words:?}: {exit}");
        let exit = run(any_way(pid), PATIENCE).unwrap();
        assert!(let_in(&exit), "{words:?}: {exit}");
        end(target);
    }
    // Other users may not enter a process of root.
    let target = start(&[]);
    let exit = as_user(1000, pid_of(&target));
    assert!(exit.stdout[0].contains("it belongs to user 0"), "{exit}");
    end(target);
}

#[test]
fn a_filter_in_the_process_is_no_hindrance() {
    for later in [false, true] {
        let mut target = if later {
            start(&[])
        } else {
            start(&["filter"])
        };
        if later {
            target.send("filter").unwrap();
            target.expect("filtered").unwrap();
        }
        let pid = pid_of(&target);
        for _ in 0..2 {
            let entered = enter_by(&approach(pid).unwrap(), &library(), &options()).unwrap();
            assert_eq!(
                entered.via.path,
                EntryPath::Socket,
                "{later}: {:?}",
                entered.via
            );
            let mut socket: UnixStream = entered.channel.try_clone().unwrap().into();
            if entered.via.doing.contains("woken") {
                socket.write_all(b"wake").unwrap();
            }
            let socket = hello(&entered);
            park((entered, socket), pid);
        }
        if later {
            // An attacher that cannot trace cannot know what the filter would do, and does not try
            // it out.
            let exit = sandboxed("-", pid);
            assert!(
                exit.stdout[0].contains("since its listener started"),
                "{exit}"
            );
        }
        end(target);
    }
}

#[test]
fn it_serves_under_a_debugger_while_it_runs() {
    if Command::new("gdb").arg("--version").output().is_err() {
        midair_tests::leave_out("needs gdb").unwrap();
        return;
    }
    let target = start(&[]);
    let pid = pid_of(&target);
    let mut command = Command::new("gdb");
    command
        .args([
            "-q",
            "-nx",
            "-batch",
            "-ex",
            "echo here\\n",
            "-ex",
            "continue",
        ])
        .args(["-p", &pid.to_string()])
        .env("DEBUGINFOD_URLS", "");
    let mut gdb = Target::spawn(command).unwrap();
    gdb.expect("here").unwrap();
    until("running on", || {
        Ok(Snapshot::take(pid)?.tracer != 0 && midair_procinfo::task::status(pid)?.state != b't')
    })
    .unwrap();
    let seen = approach(pid).unwrap();
    assert!(
        seen.inspection.is_err() && seen.endpoint.is_some(),
        "it is traced"
    );
    let (entered, mut socket) = over_the_socket(pid);
    socket.write_all(b"park").unwrap();
    drop((entered, socket));
    let futex = format!("{} ", libc::SYS_futex);
    let waits = |pid| -> midair_tests::Result<bool> {
        let ours = Snapshot::take(pid)?;
        let tid = ours.named("midair-worker").next();
        Ok(tid.is_some_and(|tid| {
            std::fs::read_to_string(format!("/proc/{tid}/syscall"))
                .is_ok_and(|call| call.starts_with(&futex))
        }))
    };
    until("parking", || waits(pid)).unwrap();
    let (entered, mut socket) = over_the_socket(pid);
    assert_eq!(entered.via.doing, "it has woken the worker thread");
    socket.write_all(b"park").unwrap();
    until("parking", || waits(pid)).unwrap();
    gdb.signal(libc::SIGKILL).unwrap();
    gdb.wait(PATIENCE).unwrap();
    end(target);
}

#[test]
fn one_that_is_stopped_is_named_with_who_stopped_it() {
    let target = start(&[]);
    let pid = pid_of(&target);
    let seen = approach(pid).unwrap();
    let listener = seen
        .endpoint
        .as_ref()
        .and_then(midair_inject::Endpoint::listener);
    let seized = Seized::seize(listener.unwrap(), false).unwrap();
    seized.interrupt().unwrap();
    let stopped = seized.wait_for_event(Deadline::after(PATIENCE)).unwrap();
    let hasty = Options {
        boot: Duration::from_millis(500),
        ..options()
    };
    let error = enter_by(&seen, &library(), &hasty).unwrap_err();
    let EnterError::TargetStopped { words, .. } = &error else {
        panic!("{error}")
    };
    // SAFETY: gettid takes no arguments and cannot fail.
    let us = unsafe { libc::gettid() };
    assert!(
        words.contains(&us.to_string()) && words.contains("traces"),
        "{error}"
    );
    stopped.detach().unwrap();
    // The attacher that gave up has left nothing behind.
    crate::common::until_alone(pid);
    park(over_the_socket(pid), pid);
    target.signal(libc::SIGSTOP).unwrap();
    until("stopping", || {
        Ok(midair_procinfo::task::status(pid)?.state == b'T')
    })
    .unwrap();
    let refusal = approach(pid).unwrap_err();
    assert!(
        matches!(refusal, midair_inject::Refusal::Stopped { .. }),
        "{refusal}"
    );
    target.signal(libc::SIGCONT).unwrap();
    end(target);
}
