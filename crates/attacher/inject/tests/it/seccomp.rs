//! Processes under system call filters. They are entered if the filter lets every needed call pass.
//! Otherwise the refusal names the call, before anything was done.

use crate::common::pid_of;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{PATIENCE, Snapshot, Target, attacher, compiled, run, until, until_alone};
use midair_inject::filters::{Without, needed};
use midair_inject::{EnterError, Library, Options, Refusal, enter, inspect};
use midair_procinfo::bpf::Action;

const ALLOW: u32 = 0x7fff_0000;

/// Starts the program, which then is under the filter that `args` describe.
fn start(args: &[String]) -> Target {
    let mut command = Command::new(compiled("filtered", false));
    command.args(args);
    let mut target = Target::spawn(command).unwrap();
    target.expect("ready").unwrap();
    target
}

fn words(default: u32, results: &[(i64, u32)]) -> Vec<String> {
    let mut words = vec!["filter".to_owned(), format!("{default:x}")];
    words.extend(
        results
            .iter()
            .map(|(number, result)| format!("{number}={result:x}")),
    );
    words
}

fn check(target: &mut Target) {
    target.send("check").unwrap();
    target.expect("checked").unwrap();
}

fn end(target: Target) {
    target.wait(PATIENCE).unwrap().success().unwrap();
}

fn options() -> Options {
    Options {
        find: Duration::from_secs(20),
        ..Options::default()
    }
}

/// Enters with a real library and withdraws. The target must be as it was, and work.
fn is_entered(mut target: Target) {
    let pid = pid_of(&target);
    let before = Snapshot::take(pid).unwrap();
    let library = Library::File(compiled("library", true));
    let entered = enter(&inspect(pid).unwrap(), &library, &options()).unwrap();
    entered.wait_for_word(Duration::from_secs(60)).unwrap();
    entered.withdraw(&options()).unwrap();
    until_alone(pid);
    let diff = before.diff(&Snapshot::take(pid).unwrap());
    let diff = diff.without(|change| change.what == midair_tests::snapshot::What::Map);
    assert!(diff.is_empty(), "{diff}");
    check(&mut target);
    end(target);
}

/// Returns the refusal of the process. Nothing at all may have changed, and the target must work.
fn is_refused(mut target: Target) -> Refusal {
    let pid = pid_of(&target);
    let before = Snapshot::take(pid).unwrap();
    let refusal = match inspect(pid) {
        Err(refusal) => refusal,
        Ok(look) => match enter(&look, &Library::Nothing, &options()).unwrap_err() {
            EnterError::Refused(refusal) => refusal,
            other => panic!("{other}"),
        },
    };
    let diff = before.diff(&Snapshot::take(pid).unwrap());
    assert!(diff.is_empty(), "{diff}");
    check(&mut target);
    end(target);
    refusal
}

#[test]
fn each_action_is_named_and_none_happens() {
    if !midair_tests::is_root_for("to read filters").unwrap() {
        return;
    }
    let actions = [
        (
            0x8000_0000,
            Action::KillProcess,
            "would kill the process at socketpair",
        ),
        (0, Action::KillThread, "would kill the thread at socketpair"),
        (0x0003_0000, Action::Trap, "would send SIGSYS at socketpair"),
        (
            0x0005_0001,
            Action::Errno(1),
            "refuses socketpair: Operation not permitted",
        ),
        (
            0x7fc0_0000,
            Action::Notify,
            "asks another process about socketpair",
        ),
        (0x7ff0_0000, Action::Trace, "asks a tracer about socketpair"),
    ];
    for (result, action, said) in actions {
        let target = start(&words(ALLOW, &[(libc::SYS_socketpair, result)]));
        let refusal = is_refused(target);
        let is_it = matches!(&refusal, Refusal::Filtered { call: "socketpair", action: found, .. } if *found == action);
        assert!(is_it && refusal.to_string().contains(said), "{refusal}");
    }
}

/// Of two equally strict results, the kernel takes the result of the filter that came last.
#[test]
fn the_last_filter_of_two_counts() {
    if !midair_tests::is_root_for("to read filters").unwrap() {
        return;
    }
    for (first, last) in [(1_u16, 13_u16), (13, 1)] {
        let with = |errno: u16| {
            words(
                ALLOW,
                &[(libc::SYS_socketpair, 0x0005_0000 | u32::from(errno))],
            )
        };
        let mut all = with(first);
        all.push("--".to_owned());
        all.extend(with(last).into_iter().skip(1));
        let refusal = is_refused(start(&all));
        assert!(
            matches!(&refusal, Refusal::Filtered { call: "socketpair", action: Action::Errno(errno), .. } if *errno == last),
            "{first} {last}: {refusal}"
        );
    }
}

#[test]
fn a_call_of_the_borrowed_thread_is_named() {
    if !midair_tests::is_root_for("to read filters").unwrap() {
        return;
    }
    // In this order: our first call, the call in which the self-restoring frame ends, and the call
    // that makes the worker thread.
    for (number, name) in [
        (libc::SYS_mmap, "mmap"),
        (libc::SYS_rt_sigreturn, "rt_sigreturn"),
        (libc::SYS_clone3, "clone3"),
    ] {
        let refusal = is_refused(start(&words(ALLOW, &[(number, 0x8000_0000)])));
        assert!(
            matches!(&refusal, Refusal::Filtered { call, action: Action::KillProcess, .. } if *call == name),
            "{refusal}"
        );
    }
}

#[test]
fn filters_that_let_pass_what_is_needed() {
    if !midair_tests::is_root_for("to read filters").unwrap() {
        return;
    }
    // In this order: everything is logged; clone3 is not there (older container profiles); the
    // calls that we can do without fail.
    is_entered(start(&words(0x7ffc_0000, &[])));
    is_entered(start(&words(ALLOW, &[(libc::SYS_clone3, 0x0005_0026)])));
    let mut fails: Vec<(i64, u32)> = needed()
        .filter(|need| need.without == Without::GoesOn)
        .map(|need| (need.number, 0x0005_0001))
        .collect();
    fails.dedup();
    is_entered(start(&words(ALLOW, &fails)));
}

/// The list of needed calls is complete: the process is killed at any call that is not on it,
/// except for the program's own.
#[test]
fn what_is_not_on_the_list_is_not_called() {
    if !midair_tests::is_root_for("to read filters").unwrap() {
        return;
    }
    let mut list: Vec<i64> = needed().map(|need| need.number).collect();
    // These are for the program's own end, and for the library of these tests, which reads its
    // socket.
    list.extend([libc::SYS_exit_group, libc::SYS_recvfrom]);
    list.sort_unstable();
    list.dedup();
    let results: Vec<(i64, u32)> = list.into_iter().map(|number| (number, ALLOW)).collect();
    is_entered(start(&words(0x8000_0000, &results)));
}

#[test]
fn strict_mode_and_dispatch_are_refused() {
    let refusal = is_refused_strict();
    assert!(matches!(refusal, Refusal::Seccomp { .. }), "{refusal}");
    let mut filtered = Command::new(compiled("filtered", false));
    let tried = filtered.arg("dispatch").stdin(Stdio::null()).status();
    // What it ends with where the kernel does not do that.
    if tried.unwrap().code() == Some(8) {
        let unable = cfg!(target_arch = "aarch64") || !midair_tests::kernel::linux_from(5, 11);
        assert!(unable, "this kernel can dispatch calls");
        midair_tests::leave_out("this kernel dispatches no calls").unwrap();
        return;
    }
    let target = start(&["dispatch".to_owned()]);
    // The program lets every call pass, and older kernels do not tell of the dispatch.
    if midair_tests::kernel::linux_from(6, 4) {
        let refusal = is_refused(target);
        assert!(matches!(refusal, Refusal::Dispatches { .. }), "{refusal}");
    } else {
        is_entered(target);
    }
    let refusal = is_refused(start(&["dispatch-ours".to_owned()]));
    assert!(matches!(refusal, Refusal::Dispatches { .. }), "{refusal}");
}

/// Checks the refusal of a process whose main thread may only read, write and end.
fn is_refused_strict() -> Refusal {
    let target = start(&["strict".to_owned()]);
    let refusal = inspect(pid_of(&target)).unwrap_err();
    assert!(Snapshot::take(pid_of(&target)).is_ok());
    drop(target);
    refusal
}

#[test]
fn filters_that_may_not_be_read() {
    if !midair_tests::is_root_for("to attach as another user").unwrap() {
        return;
    }
    let dir = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let (attacher, program) = (dir.path().join("attacher"), dir.path().join("filtered"));
    std::fs::copy(env!("CARGO_BIN_EXE_midair-enter"), &attacher).unwrap();
    std::fs::copy(compiled("filtered", false), &program).unwrap();
    let as_nobody = |words: &[&std::path::Path]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).uid(65534).gid(65534);
        command
    };
    let under = std::path::Path::new("under");
    // Both the attacher and the target belong to one user without capabilities, and the target is
    // under a filter.
    let mut target = Target::spawn(as_nobody(&[&program, under, &program])).unwrap();
    target.expect("ready").unwrap();
    let pid = pid_of(&target).to_string();
    let pid = std::path::Path::new(&pid);
    until("the filter", || {
        Ok(midair_procinfo::task::status(pid_of(&target))?.seccomp == 2)
    })
    .unwrap();
    let before = Snapshot::take(pid_of(&target)).unwrap();
    let exit = run(as_nobody(&[&attacher, pid]), PATIENCE).unwrap();
    let said = exit.stdout.join("\n");
    assert!(said.contains("that needs CAP_SYS_ADMIN"), "{exit}");
    let diff = before.diff(&Snapshot::take(pid_of(&target)).unwrap());
    assert!(diff.is_empty(), "{diff}");
    // Now the attacher is under as many filters, as in a container. They are taken for the same.
    let exit = run(as_nobody(&[&program, under, &attacher, pid]), PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit}");
    until_alone(pid_of(&target));
    check(&mut target);
    end(target);
}

/// The attacher is under a filter that refuses `process_vm_writev` and lets it trace. It writes
/// through the file of the process's memory.
#[test]
fn an_attacher_that_may_trace_and_not_write() {
    let library = compiled("library", true);
    let library = library.to_str().unwrap();
    let mut target = start(&["plain".to_owned()]);
    let pid = pid_of(&target);
    let before = Snapshot::take(pid).unwrap();
    let plain = attacher(pid, &["--library", library]);
    let mut command = Command::new(compiled("without_ptrace", false));
    command.env("ONLY_WRITING", "1").arg("-");
    command.arg(plain.get_program()).args(plain.get_args());
    let exit = run(command, PATIENCE).unwrap();
    assert!(exit.status.success(), "{exit}");
    until_alone(pid);
    let diff = before.diff(&Snapshot::take(pid).unwrap());
    let diff = diff.without(|change| change.what == midair_tests::snapshot::What::Map);
    assert!(diff.is_empty(), "{diff}");
    check(&mut target);
    end(target);
}
