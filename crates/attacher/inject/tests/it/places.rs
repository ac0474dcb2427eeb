//! Targets of another user, in another pid namespace, and AMD's own runtimes in another root.

use crate::common::{Pid, pid_of};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use crate::common::{Snapshot, Target, check, compiled, end, for_all, start_with};
use midair_inject::{EnterError, Library, Options, enter, inspect};

fn options() -> Options {
    Options {
        find: Duration::from_secs(20),
        ..Options::default()
    }
}

fn enters(target: &mut Target, pid: Pid) {
    check(target);
    let before = Snapshot::take(pid).unwrap();
    let seen = inspect(pid).unwrap();
    let entered = enter(&seen, &Library::File(compiled("library", true)), &options()).unwrap();
    entered.wait_for_word(crate::common::PATIENCE).unwrap();
    let during = Snapshot::take(pid).unwrap();
    assert_eq!(
        during.named("midair-worker").collect::<Vec<_>>(),
        [entered.worker_tid.raw()]
    );
    entered.withdraw(&options()).unwrap();
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    let diff = diff.without(|change| change.name.contains("midair-agent-"));
    assert!(diff.is_empty(), "{diff}");
    check(target);
}

#[test]
fn a_process_of_user_1000() {
    if !midair_tests::is_root_for("to start a program as another user").unwrap() {
        return;
    }
    let (dir, mut command) = for_all("target");
    command.uid(1000).gid(1000).env_remove("RUNTIME");
    std::fs::copy(compiled("runtime", true), dir.path().join("librt.so")).unwrap();
    command.args(["1", "cond"]);
    let mut target = Target::spawn(command).unwrap();
    target.expect("ready").unwrap();
    let pid = pid_of(&target);
    assert_eq!(inspect(pid).unwrap().status.uid[1], 1000);
    enters(&mut target, pid);
    end(target);
}

#[test]
fn a_process_in_another_pid_namespace() {
    if !midair_tests::is_root_for("to make a pid namespace").unwrap() {
        return;
    }
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(compiled("target", false));
    let mut target = start_with(command, &["1", "cond"]);
    let pid = target.only_child().map(Pid::try_from).unwrap().unwrap();
    let seen = inspect(pid).unwrap();
    assert!(
        !seen.access.same_pid_namespace && seen.status.ns_pid.len() == 2,
        "{:?}",
        seen.status
    );
    enters(&mut target, pid);
    end(target);
}

#[test]
fn processes_in_namespaces_of_their_own() {
    if !midair_tests::is_root_for("to make namespaces").unwrap() {
        return;
    }
    let container = "-U -r -m -n -u -i -C -pf --mount-proc";
    for (flags, is_parent) in [("-m -n", false), ("-U -r", false), (container, true)] {
        let mut command = Command::new("unshare");
        command
            .args(flags.split(' '))
            .arg(compiled("target", false));
        let mut target = start_with(command, &["1", "cond"]);
        let pid = if is_parent {
            target.only_child().map(Pid::try_from).unwrap().unwrap()
        } else {
            pid_of(&target)
        };
        enters(&mut target, pid);
        end(target);
    }
}

#[test]
fn a_process_that_loses_its_proc_meanwhile() {
    if !midair_tests::is_root_for("to make namespaces").unwrap() {
        return;
    }
    let mut command = Command::new("unshare");
    command.arg("-m").arg(compiled("target", false));
    let target = start_with(command, &["1", "cond"]);
    let pid = pid_of(&target);
    let before = Snapshot::take(pid).unwrap();
    let seen = inspect(pid).unwrap();
    let in_its_mounts = |arguments: &[&str]| {
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid.to_string(), "-m"]).args(arguments);
        assert!(command.status().unwrap().success(), "{arguments:?}");
    };
    in_its_mounts(&["umount", "-l", "/proc"]);
    let library = Library::File(compiled("library", true));
    let entered = enter(&seen, &library, &options()).unwrap();
    let error = entered.wait_for_word(crate::common::PATIENCE).unwrap_err();
    let EnterError::PathUnseen { text } = &error else {
        panic!("{error}")
    };
    assert!(text.contains("cannot open"), "{text}");
    entered.withdraw(&options()).unwrap();
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    assert!(diff.is_empty(), "{diff}");
    end(target);
}

#[test]
fn any_thread_id_names_its_process() {
    let mut target = start_with(Command::new(compiled("target", false)), &["0", "cond"]);
    let pid = pid_of(&target);
    let other = Snapshot::take(pid).unwrap().named("cond").next().unwrap();
    let other = Pid::try_from(other).unwrap();
    assert_eq!(inspect(other).unwrap().pid, pid);
    enters(&mut target, other);
    end(target);
}
