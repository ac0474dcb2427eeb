//! A whole job from a C++ program of midair's over the C interface: attach, record, detach, write.
//! AMD's runtimes run in the lab on our register library. The modelled GPU's log is the ground
//! truth.

use crate::common;
use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::stage::{plain_environment, stage};
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, Target, run};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Starts `vadd` with our register library, and returns after its first iterations.
fn vadd(lab: &Lab, iterations: u32, pause_us: u32) -> Result<LabTarget> {
    let libs = lab.scratch().join("libs");
    std::fs::create_dir_all(&libs)?;
    std::fs::copy(
        stage()?.join("lib/librocprofiler-register.so.0"),
        libs.join("librocprofiler-register.so.0"),
    )?;
    let mut target = lab
        .run("/lab/vadd")
        .arg(iterations)
        .arg(pause_us)
        .libs(&lab.inside(&libs)?)
        .spawn()?;
    target.expect("iter 2")?;
    Ok(target)
}

/// Builds the example as its Makefile does, with the staged library.
fn attach_tool(folder: &Path, words: &[&str]) -> Result<Command> {
    let program = folder.join("attach-tool");
    if !program.exists() {
        let source = common::project("examples/attach-tool/main.cpp");
        crate::common::compile(
            "c++",
            &[
                "-std=c++17",
                "-o",
                program.to_str().unwrap(),
                source.to_str().unwrap(),
                "-ldl",
            ],
        );
    }
    let mut command = Command::new(program);
    command
        .args(words)
        .env_clear()
        .envs(plain_environment())
        .env("LD_LIBRARY_PATH", stage()?.join("lib"))
        .current_dir(folder);
    Ok(command)
}

fn times(trace: &Csv) -> Vec<(u64, u64)> {
    let number = |row, column| Csv::number(row, column).unwrap();
    trace
        .rows
        .iter()
        .map(|row| (number(row, "Start_Timestamp"), number(row, "End_Timestamp")))
        .collect()
}

/// Checks that every row is a dispatch in the log, that none occurs twice, and that none of the log
/// is missing between the first and the last.
fn compare(trace: &Csv, target: &LabTarget) -> Result<usize> {
    let log = target.model_log()?;
    let rows = times(trace);
    let seen: BTreeSet<(u64, u64)> = rows.iter().copied().collect();
    assert_eq!(seen.len(), rows.len(), "a dispatch is there twice");
    let (first, last) = (
        *seen.first().expect("no kernels"),
        *seen.last().expect("no kernels"),
    );
    let truth: BTreeSet<(u64, u64)> = log
        .dispatches()
        .map(|d| (d.packet.start, d.packet.end))
        .filter(|t| (first..=last).contains(t))
        .collect();
    assert_eq!(seen, truth, "traced and true times differ");
    Ok(rows.len())
}

fn ok(exit: &Exit) {
    assert!(exit.status.success(), "{exit}");
}

#[test]
fn the_attach_tool_profiles_a_running_process_twice() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let mut target = vadd(&lab, 1_000_000, 1000)?;
    let pid = target.pid().to_string();
    for (name, words) in [
        ("new", &[pid.as_str(), "700"][..]),
        ("old", &[pid.as_str(), "700", "--first-generation"][..]),
    ] {
        let mut command = attach_tool(folder.path(), words)?;
        command.env("ROCPROF_OUTPUT_FILE_NAME", name);
        let exit = run(command, PATIENCE)?;
        ok(&exit);
        assert!(
            !exit
                .stderr
                .iter()
                .any(|l| l.starts_with("rocattach: error:")),
            "{exit}"
        );
        // The files are complete now. Their paths are relative to this side's directory.
        let output = folder.path().join("attachment-output");
        let rows = compare(
            &Csv::read(&output.join(format!("{name}_kernel_trace.csv")))?,
            &target,
        )?;
        assert!(rows >= 20, "only {rows} kernels");
        let calls = Csv::read(&output.join(format!("{name}_hip_api_trace.csv")))?;
        let launches = calls
            .rows
            .iter()
            .filter(|row| row["Function"] == "hipLaunchKernel")
            .count();
        assert!(launches >= 10, "only {launches} launches");
        assert!(target.is_running()?);
    }
    Ok(())
}

#[test]
fn a_process_that_ends_while_attached_is_written() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let target = vadd(&lab, 1500, 1000)?;
    let pid = target.pid().to_string();
    let exit = run(attach_tool(folder.path(), &[&pid])?, PATIENCE)?;
    ok(&exit);
    let trace = Csv::read(
        &folder
            .path()
            .join("attachment-output/attached_profile_kernel_trace.csv"),
    )?;
    compare(&trace, &target)?;
    let exit = target.target.wait(PATIENCE)?.success()?;
    assert_eq!(
        exit.stdout.last().map(String::as_str),
        Some("done"),
        "{exit}"
    );
    Ok(())
}

#[test]
fn rocprof_attach_ends_on_enter_and_leaves_the_process_alone() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let mut target = vadd(&lab, 1_000_000, 1000)?;
    let mut command = midair_tests::stage::command("rocprof-attach")?;
    command
        .args(["--pid", &target.pid().to_string()])
        .current_dir(folder.path());
    command
        .env("ROCPROF_KERNEL_TRACE", "1")
        .env("ROCPROF_OUTPUT_FORMAT", "csv")
        .env("ROCPROF_OUTPUT_PATH", folder.path());
    command
        .env("ROCPROF_OUTPUT_FILE_NAME", "r")
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let mut attach = Target::spawn(command)?;
    attach.expect("Press Enter to detach...")?;
    // Waits for some iterations under the profiler, as seen in the model's log.
    let before = target.model_log()?.dispatches().count();
    midair_tests::target::until("work under the profiler", || {
        Ok(target.model_log()?.dispatches().count() > before + 60)
    })?;
    attach.send("")?;
    let exit = attach.wait(PATIENCE)?.success()?;
    assert!(
        exit.stdout
            .last()
            .is_some_and(|l| l.ends_with(":: success")),
        "{exit}"
    );
    let file = format!("result: {}/r_kernel_trace.csv", folder.path().display());
    let said = exit.stderr.join("\n");
    assert!(said.contains(&file), "{exit}");
    // No variable says what to record.
    let mut nothing = midair_tests::stage::command("rocprof-attach")?;
    nothing
        .args(["--pid", &target.pid().to_string(), "-d", "50"])
        .current_dir(folder.path())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let exit = run(nothing, PATIENCE)?.success()?;
    let said = exit.stderr.join("\n");
    assert!(
        said.contains("no setting enables a domain, such as ROCPROF_KERNEL_TRACE=1"),
        "{exit}"
    );
    assert!(
        compare(
            &Csv::read(&folder.path().join("r_kernel_trace.csv"))?,
            &target
        )? >= 60
    );
    assert!(target.is_running()?);
    Ok(())
}
