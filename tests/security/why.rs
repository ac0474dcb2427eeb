//! A process whose memory leads `midair why` astray: lists that have no end or lead back, tables that
//! claim to be huge, more queues and frames than anybody has, and names that a terminal obeys
//! (`attacks/maze.c`).

use crate::limits::peak_of_children;
use crate::text::{EVIL, assert_harmless};
use midair_tests::stage::command;
use midair_tests::target::{Exit, PATIENCE, Target, run};
use midair_tests::{Result, compile, obeyed};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long it may look: what each kind of structure may take (`crates/attacher/why`), on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);
/// The most memory of midair, in MiB.
const MOST: i64 = 400;

/// The maze, twice: once as the HSA runtime and once as Python.
fn maze() -> Result<(Target, tempfile::TempDir)> {
    let dir = tempfile::tempdir()?;
    let library = compile::attack_library("maze")?;
    let mut command = Command::new(compile::attack_program("lost")?);
    for name in ["libhsa-runtime64.so.1", "libpython3.14.so.1.0"] {
        let copy = dir.path().join(name);
        fs::copy(&library, &copy)?;
        command.arg(copy);
    }
    let short: String = EVIL.chars().take(9).collect();
    let mut target = Target::spawn({
        command.env("NAME", short);
        command
    })?;
    target.expect("ready")?;
    Ok((target, dir))
}

fn why(target: &Target, words: &[&str]) -> Result<(Exit, Duration)> {
    let mut command = command("midair")?;
    command.args(["why", "--time", "100ms", &target.pid().to_string()]);
    command.args(words);
    let began = Instant::now();
    let exit = run(command, PATIENCE)?.success()?;
    Ok((exit, began.elapsed()))
}

#[test]
fn a_maze_is_left_in_time_with_an_answer() -> Result<()> {
    let (mut target, _dir) = maze()?;
    let (exit, took) = why(&target, &["--json"])?;
    let peak = peak_of_children()?;
    let document: Value = serde_json::from_str(&exit.stdout.join("\n"))?;
    println!("{took:?}, {peak} MiB");
    assert!(took < LONGEST, "{took:?}");
    assert!(peak < MOST, "{peak} MiB");
    // All three kinds were followed, and it says what was left out.
    let notes = document["notes"].to_string();
    for told in [
        "code objects",
        "queues",
        "some Python frames may be missing",
    ] {
        assert!(notes.contains(told), "{told}: {notes}");
    }
    let queues = document["queues"].as_array().map_or(0, Vec::len);
    assert!((1..=1024).contains(&queues), "{queues}");
    let python = document["threads"][0]["python"]
        .as_array()
        .map_or(0, Vec::len);
    assert!((1..=256).contains(&python), "{python}");
    assert_harmless(&exit, "why --json");
    // The process goes on.
    assert!(target.is_running()?);
    target.close_stdin();
    target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn names_in_the_maze_do_not_control_a_terminal() -> Result<()> {
    let (mut target, _dir) = maze()?;
    let (exit, _) = why(&target, &[])?;
    // The name of Python's function is there, without what a terminal obeys.
    let shown = exit.stdout.iter().find(|line| line.contains("evil"));
    let shown = shown.ok_or_else(|| format!("no name: {exit}"))?;
    assert!(!shown.contains(obeyed), "{shown:?}");
    assert_harmless(&exit, "why");
    target.close_stdin();
    target.wait(PATIENCE)?.success()?;
    Ok(())
}
