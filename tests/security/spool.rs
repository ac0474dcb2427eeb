//! An attacher that was let in and then misbehaves: it can write all of the memory in which the
//! target's threads store records. It may spoil its own records, and end its own session. The
//! application goes on, with right results, to its own end.

use midair_tests::compile::attack_program;
use midair_tests::lab::LabTarget;
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, until};
use midair_tests::{Result, leave_out};
use std::fs;
use std::path::Path;
use std::process::Command;

/// How many chunks the application's threads claim while the words of the layout change.
const CLAIMS: u32 = 40;

fn attach(target: &LabTarget, dir: &Path, words: &[&str]) -> Result<Target> {
    let mut midair = command("midair")?;
    midair
        .args(["attach", &target.target.pid().to_string()])
        .args(["-f", "csv", "-o", "out", "-d"])
        .arg(dir)
        .args(words);
    let mut midair = Target::spawn(midair)?;
    midair.expect_error("attached to process")?;
    Ok(midair)
}

/// Rewrites the spool of a real session (`attacks/rewriter.c`) while two threads of the application
/// work; `way` is how the programme gets at the memory, through the attacher or the target.
fn rewritten(way: &str) -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "model.log", &[])?;
    target.target.expect("ready")?;
    let dir = tempfile::tempdir()?;
    let session = attach(&target, dir.path(), &["--sys-trace"])?;
    let process = match way {
        "fd" => session.pid(),
        _ => target.target.pid(),
    };
    target.target.send("start")?;
    target.target.expect("start")?;

    let mut rewriter = Command::new(attack_program("rewriter")?);
    rewriter.args([way, &process.to_string()]);
    let mut rewriter = Target::spawn(rewriter)?;
    rewriter.expect("ready")?;
    for (what, answer) in [
        (&*format!("layout {CLAIMS}"), "layout "),
        ("control 2000", "control "),
    ] {
        rewriter.send(what)?;
        until(what, || {
            if !target.target.is_running()? {
                return Err(format!("{what}: it ended: {:?}", target.target.errors()).into());
            }
            Ok(rewriter.lines().iter().any(|line| line.starts_with(answer)))
        })?;
    }
    rewriter.send("quit")?;
    rewriter.wait(PATIENCE)?.success()?;

    // The attacher is deceived as well. It ends by itself, whatever it makes of this.
    let exit = session.wait(PATIENCE)?;
    let code = exit.status.code().ok_or_else(|| exit.to_string())?;
    assert!((0..64).contains(&code), "{exit}");
    assert!(!exit.stderr.join(" ").contains("panic"), "{exit}");

    // The application's threads looked at each result themselves.
    target.target.send("stop")?;
    for device in 0..2 {
        let line = target.target.expect(&format!("device {device} rounds "))?;
        let rounds = line.rsplit(' ').next().ok_or("a line has words")?;
        assert_ne!(rounds.parse::<u64>()?, 0);
    }
    target.target.expect("stop")?;
    // The next session is an honest one, and complete.
    let dir = tempfile::tempdir()?;
    let session = attach(&target, dir.path(), &["--kernel-trace"])?;
    target.target.send("work 2")?;
    target.target.expect("work")?;
    session.wait(PATIENCE)?.success()?;
    let rows = Csv::read(&dir.path().join("out_kernel_trace.csv"))?.rows;
    assert_eq!(rows.len(), 8);
    target.target.send("quit")?;
    target.target.expect("done")?;
    let exit = target.target.wait(PATIENCE)?.success()?;
    assert!(exit.stderr.is_empty(), "{exit}");
    Ok(())
}

/// The descriptor is the attacher's own, so each process of the same user gets at it.
#[test]
fn an_attacher_that_rewrites_its_spool_harms_no_application() -> Result<()> {
    rewritten("fd")
}

/// The kernel lets only some open what another process has mapped.
#[test]
fn nor_does_who_opens_what_the_target_has_mapped() -> Result<()> {
    let own = fs::read_dir("/proc/self/map_files")?
        .flatten()
        .find(|file| fs::File::open(file.path()).is_ok());
    if own.is_none() {
        return leave_out("this user may not open what a process has mapped");
    }
    rewritten("mapping")
}
