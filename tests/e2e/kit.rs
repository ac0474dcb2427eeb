//! The test kit on plain processes. A kit that overlooks things would make every other test
//! worthless.

use midair_tests::compile::host_program;
use midair_tests::snapshot::{Snapshot, What, memory};
use midair_tests::target::{PATIENCE, Target, run, until};
use midair_tests::{Result, fatbin, stage};
use std::process::Command;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .env_clear()
        .envs(stage::plain_environment());
    command
}

#[test]
fn plain_threads_run_and_check_themselves() -> Result<()> {
    let mut command = Command::new(host_program("plain_threads")?);
    command.args(["3", "8"]);
    let mut target = Target::spawn(command)?;
    target.expect("ready")?;
    let snapshot = Snapshot::take(target.pid())?;
    assert_eq!((snapshot.threads.len(), snapshot.tracer), (12, 0));
    assert_eq!(snapshot.named("plain_threads").count(), 12);
    target.send("sum")?;
    target.expect("rounds")?;
    target.send("stop")?;
    target.expect("done")?;
    target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn a_snapshot_sees_what_changed() -> Result<()> {
    let mut target = Target::spawn(shell(
        "echo one; read x; exec 7</dev/null; trap : USR1; echo two; read x",
    ))?;
    target.expect("one")?;
    let before = Snapshot::take(target.pid())?;
    assert!(before.diff(&Snapshot::take(target.pid())?).is_empty());
    target.send("")?;
    target.expect("two")?;
    let diff = before.diff(&Snapshot::take(target.pid())?).without_heap();
    let of = |what: What| {
        diff.changes
            .iter()
            .filter(|c| c.what == what)
            .map(|c| (c.new, c.name.as_str()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(What::Fd), [(true, "/dev/null")], "{diff}");
    assert_eq!(
        of(What::Process),
        [(false, "SigCgt"), (true, "SigCgt")],
        "{diff}"
    );
    assert_eq!(of(What::Thread), [], "{diff}");
    Ok(())
}

#[test]
fn memory_of_a_process_is_its_own() -> Result<()> {
    let mut target = Target::spawn(shell("echo here; read x"))?;
    target.expect("here")?;
    let maps = Snapshot::take(target.pid())?.maps;
    let libc = maps
        .iter()
        .find(|map| map.path.contains("libc.so"))
        .ok_or("a shell has a libc")?;
    assert_eq!(memory(target.pid(), libc.start, 4)?, b"\x7fELF");
    assert!(memory(target.pid(), 0, 4).is_err());
    Ok(())
}

#[test]
fn an_exit_is_reported_as_it_was() -> Result<()> {
    let exit = run(shell("echo out; echo err >&2; exit 3"), PATIENCE)?;
    assert_eq!(
        (
            exit.status.code(),
            exit.stdout.as_slice(),
            exit.stderr.as_slice()
        ),
        (
            Some(3),
            ["out".to_owned()].as_slice(),
            ["err".to_owned()].as_slice()
        )
    );
    assert!(exit.success().is_err());
    assert_eq!(
        run(shell("kill -ABRT $$"), PATIENCE)?.signal(),
        Some(libc::SIGABRT)
    );
    let mut silent = Target::spawn(shell("echo something else"))?;
    let error = silent
        .expect("ready")
        .err()
        .ok_or("it never said ready")?
        .to_string();
    assert!(error.contains("something else"), "{error}");
    let late = Target::spawn(shell("exec sleep 1000"))?.wait(std::time::Duration::from_millis(50));
    assert!(late.is_err(), "a deadline is kept");
    Ok(())
}

#[test]
fn a_dropped_target_leaves_nothing_behind() -> Result<()> {
    let mut target = Target::spawn(shell("sleep 1000 & echo child $!; wait"))?;
    let child: i32 = target
        .expect("child")?
        .split(' ')
        .nth(1)
        .ok_or("a number")?
        .parse()?;
    let parent = target.pid();
    drop(target);
    for pid in [parent, child] {
        // A killed orphan is there until its new parent reaps it.
        until("the end of a process", || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            Ok(!status.contains("State:") || status.contains("State:\tZ"))
        })?;
    }
    Ok(())
}

#[test]
fn a_program_without_hip_has_no_code_object() {
    assert!(fatbin::code_object(b"no ELF", "gfx942").is_err());
    let own = std::fs::read("/proc/self/exe").expect("this test's own file");
    assert!(
        fatbin::code_object(&own, "gfx942")
            .is_err_and(|error| error.to_string().contains(".hip_fatbin"))
    );
}
