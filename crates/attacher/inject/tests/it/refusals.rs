//! Processes that are not entered, and the messages that say why.

use crate::common::{Pid, pid_of};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Snapshot, attacher, check, compiled, end, run, start, until};
use midair_inject::{EnterError, Library, Options, Refusal, enter, inspect};
use midair_ptrace::{Seized, on_own_thread};

fn quick() -> Options {
    Options {
        find: Duration::from_millis(300),
        stub: Duration::from_millis(300),
        never_borrow: vec!["gpu-model-".to_owned()],
        // Running threads are left alone.
        looks: 0,
        ..Options::default()
    }
}

fn none_parked(args: &[&str]) -> String {
    let mut target = start(args);
    let pid = pid_of(&target);
    let before = Snapshot::take(pid).unwrap();
    let error = enter(&inspect(pid).unwrap(), &Library::Nothing, &quick()).unwrap_err();
    assert!(matches!(error, EnterError::NoneParked { .. }), "{error}");
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    assert!(diff.is_empty(), "{diff}");
    check(&mut target);
    end(target);
    error.to_string()
}

#[test]
fn none_parked_says_what_each_thread_does() {
    let said = none_parked(&["2", "gpu-model-queue"]);
    assert!(
        said.starts_with("no thread is parked where it is safe to enter, after "),
        "{said}"
    );
    assert!(
        said.contains("(gpu-model-queue) must not be borrowed (MIDAIR_NEVER_BORROW)"),
        "{said}"
    );
    let waits = format!("(target) is in system call {}", libc::SYS_readv);
    assert!(said.contains(&waits), "{said}");
    assert!(
        said.contains("(target) is running") || said.contains("(target) is in futex"),
        "{said}"
    );
}

#[test]
fn a_wait_for_the_allocators_lock_is_not_parked() {
    let said = none_parked(&["0", "arena"]);
    assert!(
        said.contains("(arena) is in futex, inside the memory allocator (malloc)"),
        "{said}"
    );
}

#[test]
fn a_thread_whose_arena_is_locked_for_good_is_taken_back() {
    let mut target = start(&["0", "arena-held"]);
    let pid = pid_of(&target);
    let before = Snapshot::take(pid).unwrap();
    let error = enter(&inspect(pid).unwrap(), &Library::Nothing, &quick()).unwrap_err();
    assert!(matches!(error, EnterError::StubBlocked { .. }), "{error}");
    let diff = before.diff(&Snapshot::take(pid).unwrap());
    assert!(diff.is_empty(), "{diff}");
    check(&mut target);
    end(target);
}

#[test]
fn no_process_and_no_user_process() {
    assert!(Pid::try_from(0).is_err() && Pid::try_from(-1).is_err());
    assert!(matches!(
        inspect(Pid::MAX),
        Err(Refusal::NoProcess { pid: Pid::MAX })
    ));
    // In a process namespace of its own, as containers have, there are none of the kernel.
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        is_refused_as_the_kernels();
    } else {
        midair_tests::leave_out("no thread of the kernel is visible").unwrap();
    }
}

fn is_refused_as_the_kernels() {
    let kthreadd = inspect(Pid::new(2).unwrap()).unwrap_err();
    assert!(
        matches!(&kthreadd, Refusal::KernelThread { name, .. } if name == "kthreadd"),
        "{kthreadd}"
    );
}

#[test]
fn a_zombie() {
    let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
    let pid = Pid::of_child(&child);
    until("its end", || {
        Ok(matches!(inspect(pid), Err(Refusal::Zombie { .. })))
    })
    .unwrap();
    // It stays a zombie.
    until("the kernel's word", || {
        Ok(midair_procinfo::task::stat(pid)?.is_dead())
    })
    .unwrap();
    assert!(matches!(inspect(pid), Err(Refusal::Zombie { .. })));
    child.wait().unwrap();
}

#[test]
fn a_stopped_process_stays_stopped() {
    let mut target = start(&["0", "cond"]);
    let pid = pid_of(&target);
    target.signal(19).unwrap();
    until("its stop", || {
        Ok(matches!(inspect(pid), Err(Refusal::Stopped { .. })))
    })
    .unwrap();
    target.signal(18).unwrap();
    check(&mut target);
    end(target);
}

#[test]
fn a_traced_process_names_its_tracer() {
    let mut target = start(&["0", "cond"]);
    let pid = pid_of(&target);
    let error = on_own_thread(|| {
        let _seized = Seized::seize(pid, false).unwrap();
        inspect(pid).unwrap_err()
    })
    .unwrap();
    assert!(matches!(error, Refusal::Traced { .. }), "{error}");
    until("its release", || Ok(inspect(pid).is_ok())).unwrap();
    check(&mut target);
    end(target);
}

#[test]
fn a_static_program() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("static");
    let source = dir.path().join("static.c");
    std::fs::write(
        &source,
        "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n",
    )
    .unwrap();
    let done = Command::new("cc")
        .arg("-static")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status()
        .unwrap();
    assert!(done.success());
    let mut child = Command::new(&program).spawn().unwrap();
    let pid = Pid::of_child(&child);
    // Wait until it executes the program.
    until("its start", || {
        Ok(std::fs::read_link(format!("/proc/{pid}/exe"))? == program.canonicalize()?)
    })
    .unwrap();
    let error = inspect(pid).unwrap_err();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        matches!(
            error,
            Refusal::LibcKind {
                what: "it is linked statically",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn another_users_process() {
    if !midair_tests::is_root_for("to attach as another user").unwrap() {
        return;
    }
    let target = start(&["0", "cond"]);
    let dir = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let copy = dir.path().join("attacher");
    std::fs::copy(env!("CARGO_BIN_EXE_midair-enter"), &copy).unwrap();
    let mut command = Command::new(&copy);
    command
        .arg(pid_of(&target).to_string())
        .uid(65534)
        .gid(65534);
    let exit = run(command, PATIENCE).unwrap();
    let said = exit.stdout.join("\n");
    assert!(
        !exit.status.success()
            && said.contains("it belongs to user 0, and midair runs as user 65534"),
        "{exit}"
    );
    let _ = (attacher(pid_of(&target), &[]), compiled("target", false));
    end(target);
}

#[test]
fn a_thread_that_does_not_stop_in_time_is_not_left_stopped() {
    let mut target = start(&["4", "cond", "sem"]);
    let pid = pid_of(&target);
    let before = Snapshot::take(pid).unwrap();
    let hasty = Options {
        stop: Duration::ZERO,
        ..quick()
    };
    // On a busy machine, the attacher may come to its check only after the thread has stopped. So
    // this makes as many attempts as it takes.
    let limit = Instant::now() + PATIENCE;
    let (mut attempts, mut missed) = (0, 0);
    while attempts < 10 || (missed == 0 && Instant::now() < limit) {
        attempts += 1;
        match enter(&inspect(pid).unwrap(), &Library::Nothing, &hasty) {
            // The thread stopped in time after all.
            Ok(entered) => drop(entered.withdraw(&hasty)),
            Err(_) => missed += 1,
        }
    }
    assert!(missed > 0, "every stop was instant: nothing was tested");
    until("all threads as before", || {
        let diff = before.diff(&Snapshot::take(pid)?);
        Ok(diff
            .without(|change| change.what == midair_tests::snapshot::What::Map)
            .is_empty())
    })
    .unwrap();
    check(&mut target);
    end(target);
}
