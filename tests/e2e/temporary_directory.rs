//! The directory for temporary files: one that cannot be used is known before the process is touched,
//! and one that fills up costs nothing of what was recorded.

use midair_tests::snapshot::Snapshot;
use midair_tests::stage::{command, workload};
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, is_root_for};
use std::path::Path;
use std::process::Command;

fn program() -> Result<Target> {
    let mut target = Target::spawn(workload(&[])?)?;
    target.expect("iter 3")?;
    Ok(target)
}

fn attach(target: &Target, temporary: &Path, results: &Path, words: &[&str]) -> Result<Command> {
    let mut attach = command("midair")?;
    attach.args([
        "attach",
        &target.pid().to_string(),
        "-f",
        "csv",
        "-o",
        "out",
        "-d",
    ]);
    attach.arg(results).args(words).env("TMPDIR", temporary);
    Ok(attach)
}

/// Runs a command whose directory for temporary files is a file system of this size, after a preparation.
/// The mount is seen by the command alone, and goes with it.
fn on_a_small_one(inner: &Command, size: &str, prepare: &str) -> Command {
    let script = format!("mount -t tmpfs -o {size} none \"$TMPDIR\" && {prepare} && exec \"$@\"");
    let mut outer = Command::new("unshare");
    outer
        .args(["-m", "sh", "-c", &script, "sh"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_clear();
    for (name, value) in inner.get_envs() {
        if let Some(value) = value {
            outer.env(name, value);
        }
    }
    outer
}

#[test]
fn one_that_cannot_be_used_is_refused_before_anything_is_touched() -> Result<()> {
    let target = program()?;
    let results = tempfile::tempdir()?;
    let file = results.path().join("file");
    std::fs::write(&file, "")?;
    let before = Snapshot::take(target.pid())?;
    // No user can write to the last of these, not even root.
    for temporary in [Path::new("/nonexistent"), &file, Path::new("/proc/self")] {
        let exit = run(
            attach(&target, temporary, results.path(), &["--duration", "1s"])?,
            PATIENCE,
        )?;
        let said = exit.stderr.join("\n");
        assert_eq!(exit.status.code(), Some(33), "{exit}");
        assert!(said.contains(&temporary.display().to_string()), "{exit}");
        assert!(
            said.contains("hint: set TMPDIR to another directory"),
            "{exit}"
        );
    }
    // One that is full still makes files.
    if is_root_for("to mount a small file system")? {
        let small = tempfile::tempdir()?;
        let inner = attach(&target, small.path(), results.path(), &["--duration", "1s"])?;
        let fill = "{ cat /dev/zero > \"$TMPDIR/full\" 2>&-; true; }";
        let exit = run(on_a_small_one(&inner, "size=300k", fill), PATIENCE)?;
        let said = exit.stderr.join("\n");
        assert_eq!(exit.status.code(), Some(33), "{exit}");
        let why = "No space left on device";
        assert!(said.contains(why) && said.contains("set TMPDIR"), "{exit}");
    }
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", target.pid()))?;
    assert!(
        !maps.contains("midair-worker") && !maps.contains("memfd:midair"),
        "{maps}"
    );
    let after = Snapshot::take(target.pid())?;
    assert_eq!(after.threads.len(), before.threads.len());
    assert_eq!(after.named("midair-worker").count(), 0);
    Ok(())
}

#[test]
fn one_that_fills_up_ends_the_recording_and_costs_nothing() -> Result<()> {
    if !is_root_for("to mount a small file system")? {
        return Ok(());
    }
    let target = program()?;
    let results = tempfile::tempdir()?;
    let small = tempfile::tempdir()?;
    for (words, code) in [(&["-s"][..], 36), (&["-s", "--keep", "30s"], 0)] {
        let inner = attach(&target, small.path(), results.path(), words)?;
        let mut outer = on_a_small_one(&inner, "size=400k", ":");
        outer.args(["--duration", "3s"]);
        let exit = run(outer, PATIENCE)?;
        let said = exit.stderr.join("\n");
        assert_eq!(exit.status.code(), Some(code), "{exit}");
        if code == 36 {
            let directory = small.path().display().to_string();
            assert!(
                said.contains(&format!("the file system of {directory}")),
                "{exit}"
            );
            assert!(
                said.contains("a directory on another file system"),
                "{exit}"
            );
        }
        let name = match code {
            36 => "out_kernel_trace.csv",
            _ => "out-2_kernel_trace.csv",
        };
        let rows = Csv::read(&results.path().join(name))?.rows;
        // What is kept fits into 400 kB with all other records. On a busy machine there are up to 55 of them for
        // each kernel.
        assert!(rows.len() > 20, "{}: {exit}", rows.len());
    }
    Ok(())
}
