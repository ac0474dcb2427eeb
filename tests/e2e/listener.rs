//! A whole session over the socket of the process's own listener. Nothing is stopped or traced.

use crate::profiler::compare::same;
use crate::profiler::{Trace, USUAL, since};
use midair_tests::compile::{self, sources};
use midair_tests::lab::LabTarget;
use midair_tests::modellog::ModelLog;
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::{command, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, ask, run, until};
use midair_tests::{Result, is_root_for, workspace};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The attacher's name for this entry path.
const OVER_THE_SOCKET: &str = "the listener of the process, over its socket";

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().ok_or("a path is text")?.to_owned())
}

/// Builds a library that makes the program register, in a place from which any user can load it.
pub fn preloaded(dir: &Path) -> Result<PathBuf> {
    let library = dir.join("libregisters.so");
    let lib = stage()?.join("lib");
    let register = text(&lib.join("librocprofiler-register.so.0"))?;
    let path = format!("-Wl,-rpath,{}", lib.display());
    compile::build(
        &["cc"],
        &sources().join("registers.c"),
        &library,
        &["-shared", "-fPIC", &register, &path],
        text,
    )?;
    std::fs::set_permissions(&library, PermissionsExt::from_mode(0o755))?;
    Ok(library)
}

/// Builds a program that starts another one under a filter which forbids whatever a tracer needs.
pub fn without_ptrace(dir: &Path) -> Result<PathBuf> {
    let jail = dir.join("without_ptrace");
    let source = workspace().join("crates/attacher/inject/tests/c/without_ptrace.c");
    compile::build(&["cc"], &source, &jail, &[], text)?;
    Ok(jail)
}

/// Waits until the process's listener waits for attachers.
pub fn listens(pid: i32) -> Result<()> {
    until("the listener's wait", || {
        let snapshot = Snapshot::take(pid)?;
        let listener = snapshot.named("rocp-bg-attach").next();
        Ok(listener.is_some_and(|tid| {
            std::fs::read_to_string(format!("/proc/{tid}/syscall"))
                .is_ok_and(|call| call.starts_with("271 "))
        }))
    })
}

fn start(kit: &Kit, variables: &[(&str, &str)]) -> Result<LabTarget> {
    let library = text(&preloaded(kit.scratch())?)?;
    let more = [
        ("LD_PRELOAD", library.as_str()),
        ("MODEL_KERNEL_NS", "20000"),
    ];
    let mut target = kit.start("two_gpus", "model.log", &[&more, variables].concat())?;
    target.expect("ready")?;
    listens(target.pid())?;
    Ok(target)
}

fn quit(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    ModelLog::read(&log)?.check()
}

/// Records one exact window by `command`, which is `rocprofv3` or runs it.
fn window(target: &mut LabTarget, mut command: Command, dir: &Path) -> Result<()> {
    let before = target.model_log()?;
    command.args(["--pid", &target.pid().to_string(), "--log-level", "info"]);
    command.args(["--output-format", "csv", "json", "-o", "t", "-d"]);
    command.arg(dir).args(USUAL);
    let mut process = Target::spawn(command)?;
    process.expect("Press Enter to detach")?;
    ask(target, "work 20")?;
    process.send("")?;
    until("the profiler's end", || Ok(!process.is_running()?))?;
    let exit = process.wait(PATIENCE)?;
    assert!(
        exit.stderr
            .iter()
            .any(|line| line.contains(OVER_THE_SOCKET)),
        "{exit}"
    );
    let log = since(&target.model_log()?, &before);
    assert_eq!(log.dispatches().count(), 20 * 2 * 2);
    let trace = Trace::read(dir, exit)?;
    trace.whole()?;
    same(&trace, &log)
}

#[test]
fn sessions_over_the_socket_are_whole_and_leave_nothing() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, &[])?;
    ask(&mut target, "work 2")?;
    let mut first = None;
    for session in 0..3 {
        let dir = kit.scratch().join(format!("session{session}"));
        window(&mut target, command("rocprofv3")?, &dir)?;
        let snapshot = Snapshot::take(target.pid())?;
        assert_eq!(snapshot.named("midair-worker").count(), 1);
        let fds = first.get_or_insert_with(|| snapshot.fds.clone());
        assert_eq!(*fds, snapshot.fds, "no descriptor stays");
    }
    quit(target)
}

/// The attacher is a user without any capability. Another process traces the target all the time,
/// so that no other process can trace it. From a sandbox in which the target is not, the same user
/// is refused.
#[test]
fn a_plain_user_attaches_to_a_process_that_is_being_traced() -> Result<()> {
    if !is_root_for("becomes another user")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    for (dir, mode) in [(kit.scratch().to_owned(), 0o777), (stage()?, 0o755)] {
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode))?;
    }
    let mut target = start(&kit, &[("REGISTERS_UID", "1000")])?;
    ask(&mut target, "work 2")?;
    // SAFETY: this request takes numbers only and writes no midair memory. The target is let go
    // when this process ends, at the latest.
    let traced = unsafe { libc::ptrace(libc::PTRACE_SEIZE, target.pid(), 0, 0) };
    assert_eq!(traced, 0, "{}", std::io::Error::last_os_error());

    let mut plain = command("rocprofv3")?;
    plain.env("HOME", "/tmp").uid(1000).gid(1000);
    window(&mut target, plain, &kit.scratch().join("traced"))?;

    let jail = without_ptrace(kit.scratch())?;
    let inner = command("rocprofv3")?;
    let mut outer = Command::new(jail);
    outer.env_clear();
    outer.envs(
        inner
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    outer
        .env("HOME", "/tmp")
        .arg("1000")
        .arg(inner.get_program())
        .args(["--pid", &target.pid().to_string(), "--hip-trace"])
        .args(["--attach-duration-msec", "100", "-d"])
        .arg(kit.scratch().join("refused"));
    let exit = run(outer, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(15), "{exit}");
    let said = exit.stderr.join("\n");
    assert!(said.contains("in a sandbox"), "{exit}");
    quit(target)
}
