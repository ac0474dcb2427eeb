//! Tools that misbehave. The process that they are loaded into goes on, and the user who attached
//! reads what they did. `tool.cpp` is a tool that was sent for an attach. `forced.cpp` is a
//! program with a tool of its own, which must catch the tool's exceptions itself.

use midair_tests::lab::LabTarget;
use midair_tests::stage::{command, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, Target, run};
use midair_tests::{Result, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The stages at which a tool misbehaves, named as in `tool.cpp`: those before the attach is
/// complete, and those after it.
const BEFORE: [&str; 4] = ["CONFIGURE", "CONFIGURE_ATTACH", "INITIALIZE", "ATTACH"];
const AFTER: [&str; 4] = ["CALL", "RECORDS", "OBJECT", "DETACH"];

fn source(name: &str) -> PathBuf {
    workspace().join("tests/e2e/bad_tools").join(name)
}

/// Builds the tool that does `deed` at `stage`.
fn tool(dir: &Path, deed: &str, stage_: &str) -> Result<(PathBuf, PathBuf)> {
    let out = dir.join(format!("{deed}-{stage_}.so"));
    let log = dir.join(format!("{deed}-{stage_}.log"));
    let mut compiler = Command::new("g++");
    compiler
        .args(["-shared", "-fPIC", "-O1", "-w", "-fvisibility=hidden"])
        .arg(format!("-DLOG=\"{}\"", log.display()))
        .args([format!("-DDEED={deed}"), format!("-DSTAGE={stage_}")])
        .arg(source("tool.cpp"))
        .arg("-o")
        .arg(&out)
        .arg("-L")
        .arg(stage()?.join("lib"))
        .arg("-l:librocprofiler-sdk.so.1");
    run(compiler, PATIENCE)?.success()?;
    Ok((out, log))
}

fn attach(target: &LabTarget, tool: &Path, dir: &Path) -> Result<Target> {
    let mut rocprof_attach = command("rocprof-attach")?;
    rocprof_attach
        .args(["-p", &target.pid().to_string(), "-t"])
        .arg(tool)
        .current_dir(dir);
    Target::spawn(rocprof_attach)
}

fn work(target: &mut LabTarget) -> Result<()> {
    target.send("work 3")?;
    target.expect("work")?;
    Ok(())
}

/// Attaches with a tool that does `deed` at `stage`, has the program work, and detaches.
fn session(kit: &Kit, target: &mut LabTarget, deed: &str, stage: &str) -> Result<(Exit, String)> {
    let (tool, log) = tool(kit.scratch(), deed, stage)?;
    let mut attacher = attach(target, &tool, kit.scratch())?;
    if attacher.expect("Press Enter to detach...").is_ok() {
        work(target)?;
        attacher.send("")?;
    }
    let exit = attacher.wait(PATIENCE)?;
    let log = std::fs::read_to_string(log).unwrap_or_default();
    // The program goes on, whatever happened.
    work(target)?;
    Ok((exit, log))
}

fn quit(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    let exit = target.target.wait(PATIENCE)?.success()?;
    assert_eq!(exit.stdout.last().map(String::as_str), Some("done"));
    Ok(())
}

fn start(kit: &Kit) -> Result<LabTarget> {
    let mut target = kit.start("two_gpus", "model.log", &[])?;
    target.expect("ready")?;
    Ok(target)
}

/// Runs one session after the other in one process, each with a tool that misbehaves in this way at
/// another stage.
fn at_each_stage(deed: &str, told: &str) -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit)?;
    for stage in BEFORE.iter().chain(&AFTER) {
        let (exit, log) = session(&kit, &mut target, deed, stage)?;
        let said = exit.stderr.join("\n");
        assert!(log.contains("deed"), "{deed} {stage}: {log}\n{exit}");
        assert!(said.contains(told), "{deed} {stage}: {exit}");
        assert_eq!(
            exit.status.success(),
            AFTER.contains(stage),
            "{deed} {stage}: {exit}"
        );
    }
    // The last tool behaves well: no message appears, and no midair file is written.
    let (exit, _) = session(&kit, &mut target, "BEHAVE", "99")?;
    let exit = exit.success()?;
    let said: Vec<&String> = exit
        .stderr
        .iter()
        .filter(|line| !line.contains("cannot list the machine's AMD GPUs"))
        .collect();
    assert!(said.is_empty(), "{exit}");
    let folders = std::fs::read_dir(kit.scratch())?.filter_map(std::result::Result::ok);
    let folders: Vec<PathBuf> = folders
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    assert!(folders.is_empty(), "{folders:?}");
    quit(target)
}

#[test]
fn a_tool_that_throws_is_out_and_the_process_goes_on() -> Result<()> {
    at_each_stage("THROW", "it threw std::runtime_error: on purpose")
}

#[test]
fn what_is_no_exception_class_is_told_too() -> Result<()> {
    at_each_stage("THROW_TEXT", "it threw char const*: on purpose")
}

/// A tool misbehaves at the end of the process. The process ends as it would have without the tool.
#[test]
fn a_finalize_that_does_not_return_changes_no_end() -> Result<()> {
    for deed in ["THROW", "THROW_TEXT", "EXIT", "ABORT"] {
        let kit = Kit::new()?;
        let mut target = start(&kit)?;
        let (exit, _) = session(&kit, &mut target, deed, "FINALIZE")?;
        exit.success()?;
        quit(target)?;
        let log = std::fs::read_to_string(kit.scratch().join(format!("{deed}-FINALIZE.log")))?;
        assert!(log.ends_with("finalize 0\ndeed 8\n"), "{deed}: {log}");
    }
    Ok(())
}

#[test]
fn a_tool_that_calls_exit_is_out_and_the_process_goes_on() -> Result<()> {
    at_each_stage("EXIT", "it called exit(7)")
}

#[test]
fn a_tool_that_calls_abort_is_out_and_the_process_goes_on() -> Result<()> {
    at_each_stage("ABORT", "it called abort()")
}

#[test]
fn a_tool_that_frees_what_it_was_lent_harms_nobody() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit)?;
    for stage in BEFORE.iter().chain(&AFTER) {
        let (exit, log) = session(&kit, &mut target, "FREE", stage)?;
        assert!(log.contains("deed"), "{stage}: {log}\n{exit}");
        exit.success()?;
    }
    quit(target)
}

#[test]
fn a_tool_that_configures_itself_again_is_refused_that() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit)?;
    for stage in BEFORE.iter().chain(&AFTER) {
        let (exit, log) = session(&kit, &mut target, "TWICE", stage)?;
        // AMD's library answers with ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED (16).
        assert!(log.contains("twice 16"), "{stage}: {log}\n{exit}");
        assert_eq!(log.matches("configure").count(), 1, "{stage}: {log}");
        exit.success()?;
    }
    quit(target)
}

/// The tool hangs for ten seconds. Meanwhile the program works, unless the call that hangs is its
/// own.
#[test]
fn a_tool_that_hangs_holds_up_no_more_than_itself() -> Result<()> {
    let kit = Kit::new()?;
    let stages = ["INITIALIZE", "RECORDS", "DETACH"];
    let mut sessions = Vec::new();
    for stage in stages {
        let mut target = kit.start("two_gpus", &format!("{stage}.log"), &[])?;
        target.expect("ready")?;
        let (tool, log) = tool(kit.scratch(), "HANG", stage)?;
        let attacher = attach(&target, &tool, kit.scratch())?;
        sessions.push((stage, target, attacher, log));
    }
    for (stage, target, attacher, log) in &mut sessions {
        let begun = Instant::now();
        if *stage == "INITIALIZE" {
            midair_tests::target::until("the tool is asked", || {
                Ok(std::fs::read_to_string(&*log).is_ok_and(|log| log.contains("deed")))
            })?;
            work(target)?;
            assert!(begun.elapsed() < Duration::from_secs(9), "{stage}");
        }
        attacher.expect("Press Enter to detach...")?;
        work(target)?;
        attacher.send("")?;
        work(target)?;
    }
    for (stage, mut target, attacher, log) in sessions {
        let exit = attacher.wait(PATIENCE)?;
        let log = std::fs::read_to_string(log)?;
        assert!(log.contains("deed"), "{stage}: {exit}");
        work(&mut target)?;
        quit(target)?;
    }
    Ok(())
}

#[test]
fn a_tool_that_declines_or_fails_is_told_in_words() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit)?;
    for (deed, told) in [
        (
            "DECLINE",
            "it declined: its rocprofiler_configure returned nothing",
        ),
        ("FAIL", "it failed: its initialize returned -3"),
    ] {
        let (exit, _) = session(&kit, &mut target, deed, "99")?;
        let said = exit.stderr.join("\n");
        assert!(said.contains(told) && !said.contains("Status("), "{exit}");
        assert!(!exit.status.success());
    }
    quit(target)
}

/// Runs `forced.cpp` with these steps and returns its lines.
fn forced(steps: &[&str]) -> Result<Vec<String>> {
    let dir = tempfile::tempdir()?;
    let (program, lib) = (dir.path().join("forced"), stage()?.join("lib"));
    let mut compiler = Command::new("g++");
    compiler
        .args(["-O1", "-w", "-rdynamic"])
        .arg(source("forced.cpp"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&lib)
        .arg("-l:librocprofiler-sdk.so.1");
    run(compiler, PATIENCE)?.success()?;
    let mut command = Command::new(program);
    command.args(steps).env("LD_LIBRARY_PATH", lib);
    Ok(run(command, PATIENCE)?.success()?.stdout)
}

#[test]
fn what_a_forced_tool_throws_is_the_programs_to_catch() -> Result<()> {
    let client = |lines: &[String], at: usize| lines.get(at).cloned().unwrap_or_default();
    for place in ["configure", "initialize"] {
        let lines = forced(&["throw", place, "throw", place, "again", "force"])?;
        let id = client(&lines, 0);
        let caught = format!("caught from {place}, 0 uncaught");
        // The next registration gets the same number and the same context, as if the first one had
        // never been.
        let expected = [
            &id,
            "let go",
            &caught,
            &id,
            "let go",
            &caught,
            &id,
            "context 1",
            "force 0",
            "let go",
            "force 0",
            "let go",
            "configured 1 initialized 1",
            "finalize of the one that threw",
        ];
        assert_eq!(lines, expected, "{place}");
    }
    assert_eq!(
        forced(&["iterate"])?,
        ["caught 17", "configured 0 initialized 0"]
    );
    Ok(())
}

/// When the program ends its tool itself, it catches the tool's exception. At the exit no caller
/// catches it.
#[test]
fn a_finalize_that_throws_is_caught_by_who_asked_for_the_end() -> Result<()> {
    let end = "configured 0 initialized 0";
    assert_eq!(
        forced(&["end", "end"])?,
        ["client 1", "caught from finalize, 0 uncaught", "ended", end]
    );
    assert_eq!(
        forced(&["end-at-exit"])?,
        ["client 1", end, "finalize at the exit"]
    );
    Ok(())
}

#[test]
fn an_initialize_that_never_returned_is_not_finalized() -> Result<()> {
    let lines = forced(&["exit-later"])?;
    assert_eq!(lines, ["client 1"]);
    Ok(())
}

#[test]
fn a_forced_tool_is_configured_once() -> Result<()> {
    let end = "configured 1 initialized 1";
    assert_eq!(
        forced(&["force", "force", "register", "force"])?,
        [
            "force 0",
            "let go",
            "force 0",
            "let go",
            "register 0",
            "force 0",
            "let go",
            end
        ]
    );
    // The tool that registered has the configuration first. AMD's library then answers
    // CONFIGURATION_LOCKED.
    assert_eq!(
        forced(&["register", "force", "register"])?,
        ["register 0", "force 16", "let go", "register 0", end]
    );
    Ok(())
}

/// AMD's loader makes the SDK's symbols global, so its tools need not be linked with it.
#[test]
fn a_tool_that_is_not_linked_with_the_sdk() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit)?;
    for (name, flags) in [("whole", &[][..]), ("missing", &["-DMISSING"])] {
        let tool = kit.scratch().join(format!("{name}.so"));
        let mut compiler = Command::new("gcc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&tool);
        compiler.args(flags).arg(source("unlinked.c"));
        run(compiler, PATIENCE)?.success()?;
        let mut attacher = attach(&target, &tool, kit.scratch())?;
        if attacher.expect("Press Enter to detach...").is_ok() {
            work(&mut target)?;
            attacher.send("")?;
        }
        let exit = attacher.wait(PATIENCE)?;
        // The process goes on, whatever happened.
        work(&mut target)?;
        assert_eq!(exit.status.success(), name == "whole", "{name}: {exit}");
        let said = exit.stderr.join("\n");
        let is_missing = said.contains("undefined symbol: no_such_function");
        assert_eq!(is_missing, name == "missing", "{name}: {exit}");
    }
    quit(target)
}
