//! What the engine's tests share: they compile and start C targets, and run an attacher as a
//! process of its own.

#![allow(clippy::expect_used, clippy::panic, reason = "tests may panic")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub use midair_procinfo::Pid;
pub use midair_tests::snapshot::Snapshot;
pub use midair_tests::target::{Exit, PATIENCE, Target, run, until};

/// Compiles `tests/c/NAME.c` once per change. With `shared`, the result is a library.
pub fn compiled(name: &str, shared: bool) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let out = dir.join(if shared {
        format!("lib{name}.so")
    } else {
        name.to_owned()
    });
    // Several tests may compile at the same time. So each process compiles to a file of its own and
    // then renames it.
    let fresh = dir.join(format!("{name}.{}", std::process::id()));
    let newer = |path: &Path| {
        path.metadata()
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    if newer(&out).is_none() || newer(&out) < newer(&source) {
        // cargo makes it, but not on a machine to which the tests were carried.
        std::fs::create_dir_all(dir).expect("a directory for programs");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-Wall", "-Wextra", "-pthread", "-o"])
            .arg(&fresh);
        if shared {
            cc.args(["-shared", "-fPIC"]);
        }
        let done = cc.arg(&source).status().expect("cc starts");
        assert!(done.success(), "{} does not compile", source.display());
        std::fs::rename(&fresh, &out).expect("the program is put in place");
    }
    out
}

/// Makes a copy of a compiled program that any user may run, in a directory of its own.
pub fn for_all(name: &str) -> (tempfile::TempDir, Command) {
    let dir = tempfile::Builder::new()
        .permissions(PermissionsExt::from_mode(0o755))
        .tempdir()
        .expect("a directory for a program");
    let program = dir.path().join(name);
    std::fs::copy(compiled(name, false), &program).expect("a copy of the program");
    (dir, Command::new(program))
}

/// Compiles `tests/c/NAME.c` with further flags, once per change.
pub fn compiled_with(name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Flags may have commas and equals signs, which are fine in a file's name. Slashes are not.
    let suffix = flags.concat().replace('/', "_");
    let out = dir.join(format!("{name}{suffix}"));
    let fresh = dir.join(format!("{name}{suffix}.{}", std::process::id()));
    let newer = |path: &Path| {
        path.metadata()
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    if newer(&out).is_none() || newer(&out) < newer(&source) {
        std::fs::create_dir_all(dir).expect("a directory for programs");
        let done = Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra", "-pthread", "-o"])
            .arg(&fresh)
            .args(flags)
            .arg(&source)
            .status()
            .expect("cc starts");
        assert!(done.success(), "{} does not compile", source.display());
        std::fs::rename(&fresh, &out).expect("the program is put in place");
    }
    out
}

/// Compiles a program that links our register library, which is copied next to it.
pub fn listening(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("listening");
    std::fs::create_dir_all(&dir).expect("a folder for the program");
    let built = midair_tests::build_dir()
        .expect("the tests' own folder")
        .join("librocprofiler_register.so");
    // Several tests may do this at the same time. So each process makes a file of its own and then
    // renames it.
    let put = |name: &str, from: &Path, make: &dyn Fn(&Path)| {
        let time = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
        let out = dir.join(name);
        if time(&out).is_none() || time(&out) < time(from) {
            let fresh = dir.join(format!("{name}.{}", std::process::id()));
            make(&fresh);
            std::fs::rename(&fresh, &out).expect("it is put in place");
        }
        out
    };
    let library = put("librocprofiler-register.so.0", &built, &|fresh| {
        std::fs::copy(&built, fresh).expect("it is built");
    });
    put(name, &source, &|fresh| {
        let done = Command::new("cc")
            .args(["-O1", "-g", "-Wall", "-Wextra", "-pthread"])
            .arg("-Wl,-rpath,$ORIGIN")
            .arg("-o")
            .arg(fresh)
            .arg(&source)
            .arg(&library)
            .status()
            .expect("cc starts");
        assert!(done.success(), "{} does not compile", source.display());
    })
}

/// Starts the C target with these arguments.
pub fn start(args: &[&str]) -> Target {
    start_with(Command::new(compiled("target", false)), args)
}

/// Starts the C target through a command that executes it in the end.
pub fn start_with(mut command: Command, args: &[&str]) -> Target {
    command.args(args).env("RUNTIME", compiled("runtime", true));
    let mut target = Target::spawn(command).expect("the target starts");
    target.expect("ready").expect("the target is ready");
    target
}

/// Returns the process id of a target.
pub fn pid_of(target: &Target) -> Pid {
    Pid::try_from(target.pid()).expect("a process has an id")
}

/// Has the target check all its threads. It must find nothing wrong.
pub fn check(target: &mut Target) {
    target.send("check").expect("the target listens");
    let line = target.expect("checked").expect("the target checks");
    assert!(line.contains("wrong 0 "), "{line}");
}

/// Ends the target. It must have found nothing wrong.
pub fn end(target: Target) -> Exit {
    target
        .wait(Duration::from_secs(60))
        .expect("the target ends")
        .success()
        .expect("the target was not disturbed")
}

/// Returns a command that runs an attacher as a process of its own.
pub fn attacher(pid: Pid, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_midair-enter"));
    command.arg(pid.to_string()).args(args);
    command
}

/// Waits until no worker thread is in the target.
pub fn until_alone(pid: Pid) {
    until("the end of the worker thread", || {
        Ok(Snapshot::take(pid)?.named("midair-worker").next().is_none())
    })
    .expect("it ends");
}
