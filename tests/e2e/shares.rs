//! Shares of the time are shares of the time that records cover: with `--keep`, and with collection
//! periods. Needs no root.

use midair_tests::Result;
use midair_tests::stage::{command, workload};
use midair_tests::table::json;
use midair_tests::target::{PATIENCE, Target};
use serde_json::Value;
use std::path::Path;

const SECOND: u64 = 1_000_000_000;

/// Returns the program, which launches without a pause.
fn busy() -> Result<Target> {
    let mut command = workload(&[])?;
    command.args(["any"]);
    let program = command.get_program().to_owned();
    let mut busy = std::process::Command::new(program);
    busy.args(["0", "0", "any"]).env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            busy.env(name, value);
        }
    }
    let mut target = Target::spawn(busy)?;
    target.expect("iter 3")?;
    Ok(target)
}

/// Records the program, and returns what the screen says of it as a document.
fn recorded(target: &Target, directory: &Path, words: &[&str]) -> Result<Value> {
    let mut attach = command("midair")?;
    attach.args(["attach", &target.pid().to_string(), "--json", "-d"]);
    attach.arg(directory).args(["-o", "out"]).args(words);
    let exit = Target::spawn(attach)?.wait(PATIENCE)?.success()?;
    Ok(serde_json::from_str(&exit.stdout.join("\n"))?)
}

fn number(value: &Value) -> Result<u64> {
    value
        .as_u64()
        .ok_or_else(|| format!("no number: {value}").into())
}

/// Returns the time that records cover, and how much of it nothing was queued on the first GPU.
fn nothing_queued(document: &Value) -> Result<(u64, f64)> {
    let process = &document["processes"][0];
    let recorded = number(&process["recorded_ns"])?;
    let gpu = &process["gpus"][0];
    let members = gpu.as_object().ok_or("a GPU")?.iter();
    let all = members.filter(|(name, _)| name.ends_with("_ns"));
    let all: u64 = all.filter_map(|(_, value)| value.as_u64()).sum();
    let apart = all.abs_diff(recorded);
    assert!(apart < recorded / 10, "{all} of {recorded}: {document}");
    let nothing = number(&gpu["nothing_queued_ns"])?;
    Ok((recorded, nothing as f64 / all as f64))
}

#[test]
fn with_keep_they_are_of_the_time_that_is_kept() -> Result<()> {
    let target = busy()?;
    let directory = tempfile::tempdir()?;
    let all = recorded(&target, directory.path(), &["--duration", "1s"])?;
    let (_, usual) = nothing_queued(&all)?;
    let words = [
        "--keep",
        "1s",
        "--duration",
        "4s",
        "-f",
        "csv,kineto",
        "-o",
        "kept",
    ];
    let kept = recorded(&target, directory.path(), &words)?;
    let (time, nothing) = nothing_queued(&kept)?;
    assert_eq!(time, SECOND, "{kept}");
    assert!(
        number(&kept["processes"][0]["duration_ns"])? >= 4 * SECOND,
        "{kept}"
    );
    // Most of the four seconds would be idle.
    assert!(nothing < usual + 0.3, "{nothing}, usually {usual}: {kept}");

    let trace = json(&directory.path().join("kept_results.pt.trace.json"))?;
    let events = trace["traceEvents"].as_array().ok_or("events")?;
    let times = |event: &Value| -> Option<(f64, f64)> {
        let start = event["ts"].as_f64()?;
        Some((start, start + event["dur"].as_f64()?))
    };
    let step = events
        .iter()
        .find(|event| event["name"] == "ProfilerStep#0");
    let step = step.and_then(times).ok_or("a step")?;
    assert!((step.1 - step.0 - 1e6).abs() < 1.0, "{step:?}");
    let kernels = events.iter().filter(|event| event["cat"] == "kernel");
    let kernels: Vec<_> = kernels.filter_map(times).collect();
    assert!(kernels.len() > 10, "{}", kernels.len());
    // Each overlaps the step, and some are at its start.
    assert!(kernels.iter().all(|kernel| kernel.1 >= step.0));
    assert!(kernels.iter().any(|kernel| kernel.0 < step.0 + 0.3e6));
    Ok(())
}

#[test]
fn with_collection_periods_they_are_of_the_periods() -> Result<()> {
    let target = busy()?;
    let directory = tempfile::tempdir()?;
    let all = recorded(&target, directory.path(), &["--duration", "1s"])?;
    let (_, usual) = nothing_queued(&all)?;
    let words = [
        "--collection-period-unit",
        "msec",
        "--collection-period",
        "300:300:100",
        "--duration",
        "3s",
        "-f",
        "kineto",
        "-o",
        "periods",
    ];
    let half = recorded(&target, directory.path(), &words)?;
    let (time, nothing) = nothing_queued(&half)?;
    assert!(
        (SECOND / 2..5 * SECOND / 2).contains(&time),
        "{time}: {half}"
    );
    assert!(nothing < usual + 0.25, "{nothing}, usually {usual}: {half}");
    let trace = std::fs::read_to_string(directory.path().join("periods_results.pt.trace.json"))?;
    assert!(!trace.contains("ProfilerStep"));
    // The same of the latest records alone.
    let words = [&words[..], &["--keep", "1200ms"]].concat();
    let kept = recorded(&target, directory.path(), &words)?;
    let (time, nothing) = nothing_queued(&kept)?;
    assert!((SECOND * 3 / 10..SECOND).contains(&time), "{time}: {kept}");
    assert!(nothing < usual + 0.25, "{nothing}, usually {usual}: {kept}");
    Ok(())
}
