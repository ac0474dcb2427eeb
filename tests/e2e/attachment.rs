//! Tests of our own for what AMD's attach tests of 2026 check (`tests/rocattach` of
//! rocprofiler-sdk). They call the C interface through ctypes, on AMD's runtimes in the lab.

use super::capi::{User, rows};
use super::trees;

use midair_tests::Result;
use midair_tests::caller::Caller;
use midair_tests::client::{ClientHost, library};
use midair_tests::lab::Lab;
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::plain_environment;
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, until};
use std::process::Command;

/// Calls that one round of the program makes.
const ROUND: usize = 13;

/// Without `ROCP_TOOL_ATTACH` in the environment at the program's start, AMD's attach fails and
/// must leave the process alone. Ours needs no such variable.
#[test]
fn without_the_variable_at_its_start() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for register in [true, false] {
        let command = Caller::command(&lab)?
            .register(register)
            .log_name(&format!("log-{register}"));
        let mut caller = Caller::start(command)?;
        let dir = tempfile::tempdir()?;
        let mut user = User::start()?;
        user.record(dir.path())?;
        let pid = caller.pid();
        assert_eq!(user.call(&format!("rocattach_attach {pid}"))?, "0");
        caller.tell("calls 2")?;
        assert_eq!(user.call(&format!("rocattach_detach {pid}"))?, "0");
        assert_eq!(rows(dir.path(), pid, "hip_api")?, 2 * ROUND);
        caller.quit()?;
    }
    Ok(())
}

/// A child without a listener and without a runtime, such as a data loader, does not keep the tree
/// from being attached. The child is left as it is.
#[test]
fn a_child_of_the_tree_without_a_listener() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let beside = [
        "/bin/sh",
        "-c",
        "env -u LD_PRELOAD sleep 1000 & exec \"$@\"",
        "sh",
    ];
    let mut caller = Caller::start(Caller::command(&lab)?.under(&beside))?;
    let pid = caller.pid();
    let child = caller.target.only_child()?;
    until("the child is what it will be", || {
        Ok(std::fs::read_to_string(format!("/proc/{child}/comm"))? == "sleep\n")
    })?;
    let before = Snapshot::take(child)?;
    let dir = tempfile::tempdir()?;
    let mut user = User::start()?;
    user.record(dir.path())?;
    assert_eq!(user.call(&format!("rocattach_attach_tree {pid}"))?, "0");
    caller.tell("calls 1")?;
    let diff = before.diff(&Snapshot::take(child)?).without_heap();
    assert!(diff.is_empty(), "{diff}");
    assert_eq!(user.call(&format!("rocattach_detach_tree {pid}"))?, "0");
    assert_eq!(rows(dir.path(), pid, "hip_api")?, ROUND);
    caller.quit()
}

/// Where the root of a tree cannot be attached, no process of the tree stays attached.
#[test]
fn the_root_of_a_tree_is_required() -> Result<()> {
    let kit = Kit::new()?;
    let (mut target, children) = trees::pool(&kit, 2)?;
    let root = target.target.pid();
    // The root opens its runtime, too, so it is a process that would be recorded.
    trees::work(&mut target, "both 1", 3)?;
    let mut user = User::start()?;
    target.target.signal(libc::SIGSTOP)?;
    until("the root is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{root}/stat"))?;
        Ok(stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('T')))
    })?;
    assert_ne!(user.call(&format!("rocattach_attach_tree {root}"))?, "0");
    for child in &children {
        let now = Snapshot::take(*child)?;
        assert_eq!(now.tracer, 0);
        // The worker thread that was started in the child before the root failed is parked. It
        // records nothing.
        assert_eq!(user.call(&format!("rocattach_detach {child}"))?, "2");
    }
    assert_eq!(user.call(&format!("rocattach_detach_tree {root}"))?, "2");
    target.target.signal(libc::SIGCONT)?;
    // Nothing is left of the failed attach.
    let dir = tempfile::tempdir()?;
    user.record(dir.path())?;
    assert_eq!(user.call(&format!("rocattach_attach_tree {root}"))?, "0");
    trees::work(&mut target, "both 2", 3)?;
    assert_eq!(user.call(&format!("rocattach_detach_tree {root}"))?, "0");
    trees::quit(target)
}

/// In a process with a thread of the listener's name, but without a listener behind it, the attach
/// fails and leaves no session. The next attach starts again.
#[test]
fn a_set_up_that_fails_is_rolled_back() -> Result<()> {
    let script = "import ctypes; ctypes.CDLL(None).prctl(15, b'rocp-bg-attach', 0, 0, 0); print('ready', flush=True); input()";
    let mut python = Command::new("python3");
    python.args(["-B", "-c", script]);
    python.env_clear().envs(plain_environment());
    let mut target = Target::spawn(python)?;
    target.expect("ready")?;
    let pid = target.pid();
    let before = Snapshot::take(pid)?;
    let mut user = User::start()?;
    let first = user.call(&format!("rocattach_attach {pid}"))?;
    assert_ne!(first, "0");
    assert_eq!(user.call(&format!("rocattach_detach {pid}"))?, "2");
    let again = user.call(&format!("rocattach_attach {pid}"))?;
    assert_eq!(again, first);
    let diff = before.diff(&Snapshot::take(pid)?).without_heap();
    assert!(diff.is_empty(), "{diff}");
    target.send("")?;
    target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// A tool is configured and initialised once, attached and detached in each session, and ended
/// once.
#[test]
fn the_life_of_a_tool() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("probe.log");
    std::fs::write(&log, "")?;
    let tool = format!(
        "{}/libmixing_tool.so",
        lab.library("mixing_tool", "libmixing_tool.so")?
    );
    let command = Caller::command(&lab)?.env("PROBE_LOG", lab.inside(&log)?);
    let mut caller = Caller::start(command)?;
    let pid = caller.pid();
    let mut user = User::start()?;
    user.set("ROCPROF_ATTACH_TOOL_LIBRARY", tool)?;
    for _ in 0..3 {
        assert_eq!(user.call(&format!("rocattach_attach {pid}"))?, "0");
        caller.tell("calls 1")?;
        assert_eq!(user.call(&format!("rocattach_detach {pid}"))?, "0");
    }
    caller.quit()?;
    let mut wanted = vec!["tool configure", "tool configure_attach", "tool init"];
    for _ in 0..3 {
        wanted.extend(["tool attach", "tool detach"]);
    }
    wanted.push("tool fini");
    let text = std::fs::read_to_string(&log)?;
    assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
    Ok(())
}

/// A tool that the process was started with records in every phase, also while an attach records.
/// The attach records its own phase only.
#[test]
fn records_of_a_startup_tool_beside_those_of_an_attach() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let startup = lab.install(&library("tau")?)?;
    let command = ClientHost::command(&lab)?.env("ROCP_TOOL_LIBRARIES", startup);
    let mut host = ClientHost::start(&lab, command)?;
    host.load(&lab, "tau")?;
    let pid = host.pid();
    let dir = tempfile::tempdir()?;
    let mut user = User::start()?;
    user.record(dir.path())?;
    let has = |host: &mut ClientHost, expected: u64| -> Result<()> {
        until(&format!("{expected} kernels of the startup tool"), || {
            assert_eq!(host.client("flush")?, 0);
            Ok(host.count()?["kernels"] >= expected)
        })?;
        let count = host.count()?;
        assert_eq!(
            (count["kernels"], count["failed"]),
            (expected, 0),
            "{count:?}"
        );
        Ok(())
    };
    host.round(6)?;
    has(&mut host, 6)?;
    assert_eq!(user.call(&format!("rocattach_attach {pid}"))?, "0");
    host.round(5)?;
    has(&mut host, 11)?;
    assert_eq!(user.call(&format!("rocattach_detach {pid}"))?, "0");
    until("its own session", || {
        Ok(Snapshot::take(pid)?.named("midair-local").next().is_some())
    })?;
    host.round(4)?;
    has(&mut host, 15)?;
    assert_eq!(rows(dir.path(), pid, "kernel")?, 5);
    host.quit()
}

/// AMD's tool keeps the settings of its first attach, and an attach with other settings fails. Ours
/// records what each attach asks for, unless the user wants it to fail as AMD's does.
#[test]
fn other_settings_are_refused_for_who_asks_for_that() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    let pid = caller.pid();
    let dir = tempfile::tempdir()?;
    let mut user = User::start()?;
    user.set("MIDAIR_STRICT_REATTACH", 1)?;
    user.set("ROCPROF_KERNEL_TRACE", 1)?;
    user.set("ROCPROF_OUTPUT_FORMAT", "csv")?;
    user.set("ROCPROF_OUTPUT_PATH", dir.path().display())?;
    // Only the place of the results may differ.
    for name in ["initial", "second"] {
        user.set("ROCPROF_OUTPUT_FILE_NAME", name)?;
        assert_eq!(user.call(&format!("rocattach_attach {pid}"))?, "0");
        caller.tell("calls 1")?;
        assert_eq!(user.call(&format!("rocattach_detach {pid}"))?, "0");
        assert!(dir.path().join(format!("{name}_kernel_trace.csv")).exists());
    }
    user.set("ROCPROF_HIP_RUNTIME_API_TRACE", 1)?;
    user.set("ROCPROF_OUTPUT_FILE_NAME", "third")?;
    assert_ne!(user.call(&format!("rocattach_attach {pid}"))?, "0");
    caller.tell("calls 1")?;
    user.set("MIDAIR_STRICT_REATTACH", 0)?;
    assert_eq!(user.call(&format!("rocattach_attach {pid}"))?, "0");
    caller.tell("calls 2")?;
    assert_eq!(user.call(&format!("rocattach_detach {pid}"))?, "0");
    assert!(dir.path().join("third_hip_api_trace.csv").exists());
    caller.quit()
}
