//! Limits that are reached in the middle of entering. The error names the limit, and everything is
//! as it was.

use crate::common::{Pid, pid_of};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use crate::common::{PATIENCE, Snapshot, Target, check, compiled, end, run, start, start_with};
use midair_inject::{EnterError, Library, Options, enter, inspect};

fn options() -> Options {
    Options {
        find: Duration::from_secs(20),
        stub: Duration::from_secs(20),
        boot: Duration::from_secs(20),
        ..Options::default()
    }
}

fn limit(resource: libc::__rlimit_resource_t, value: u64) -> std::io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: `limit` is a live structure, which the kernel only reads.
    match unsafe { libc::setrlimit(resource, &limit) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns a field of the process's status, in bytes.
fn status(pid: Pid, key: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_ascii_whitespace().nth(1));
    number.unwrap().parse::<u64>().unwrap() * 1024
}

/// Lowers a limit of a running process of the same user.
fn lower(pid: Pid, name: &str, value: u64) {
    let mut command = Command::new("prlimit");
    command.args(["--pid", &pid.to_string(), &format!("--{name}={value}:")]);
    run(command, PATIENCE).unwrap().success().unwrap();
}

/// Checks that entering fails three times in the same way, and that nothing in the process is
/// different afterwards.
fn fails(target: &mut Target, expected: impl Fn(&EnterError) -> bool) {
    check(target);
    let pid = pid_of(target);
    let before = Snapshot::take(pid).unwrap();
    for _ in 0..3 {
        let error = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap_err();
        assert!(expected(&error), "{error:?}");
        let diff = before.diff(&Snapshot::take(pid).unwrap());
        assert!(diff.is_empty(), "{error}:\n{diff}");
    }
    check(target);
}

#[test]
fn no_more_threads_for_this_user() {
    if !midair_tests::is_root_for("to be a user that nobody else is").unwrap() {
        return;
    }
    let dir = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let program = dir.path().join("target");
    std::fs::copy(compiled("target", false), &program).unwrap();
    let mut command = Command::new(&program);
    command.args(["0", "cond"]).uid(61_235).gid(61_235);
    // SAFETY: setrlimit is async-signal-safe and changes nothing of the parent.
    unsafe { command.pre_exec(|| limit(libc::RLIMIT_NPROC, 2)) };
    let mut target = Target::spawn(command).unwrap();
    target.expect("ready").unwrap();
    fails(&mut target, |error| {
        matches!(
            error,
            EnterError::ThreadRefused {
                errno: libc::EAGAIN
            }
        )
    });
    end(target);
}

#[test]
fn no_more_address_space() {
    let mut target = start(&["0", "cond"]);
    lower(
        pid_of(&target),
        "as",
        status(pid_of(&target), "VmSize") + 4096,
    );
    fails(&mut target, |error| {
        matches!(
            error,
            EnterError::SystemCall {
                call: "mmap",
                errno: libc::ENOMEM
            }
        )
    });
    end(target);
}

#[test]
fn no_more_memory_may_be_locked() {
    if !midair_tests::is_root_for("to take a right away from it").unwrap() {
        return;
    }
    let ballast = tempfile::tempdir().unwrap();
    let library = ballast.path().join("libballast.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(midair_tests::compile::sources().join("ballast.c"))
        .arg("-ldl");
    run(cc, PATIENCE).unwrap().success().unwrap();
    // Linux before 5.16 lets a program lock 64 KiB.
    let mut command = Command::new("prlimit");
    command.args(["--memlock=8388608", "setpriv"]);
    command.args(["--bounding-set", "-ipc_lock", "env"]);
    command
        .arg(format!("LD_PRELOAD={}", library.display()))
        .arg("BALLAST_LOCK=1")
        .arg(compiled("target", false));
    // The stacks of its threads are locked in memory, too.
    // SAFETY: as above.
    unsafe { command.pre_exec(|| limit(libc::RLIMIT_STACK, 128 << 10)) };
    let mut target = start_with(command, &["0", "cond"]);
    let locked = status(pid_of(&target), "VmLck");
    assert!(locked > 1 << 20, "{locked}");
    lower(pid_of(&target), "memlock", locked + (512 << 10));
    fails(&mut target, |error| {
        matches!(
            error,
            EnterError::SystemCall {
                call: "mmap",
                errno: libc::EAGAIN
            }
        )
    });
    end(target);
}

#[test]
fn no_more_descriptors() {
    let mut target = start(&["0", "cond"]);
    let pid = pid_of(&target);
    let open = midair_procinfo::task::descriptors(pid).unwrap();
    let first_free = (0..).find(|fd| !open.contains(fd)).unwrap();
    lower(pid, "nofile", first_free as u64);
    fails(&mut target, |error| {
        matches!(
            error,
            EnterError::Boot {
                step: "making a socket pair",
                errno: libc::EMFILE,
                ..
            }
        )
    });
    end(target);
}
