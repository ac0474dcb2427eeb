//! Samples of the whole GPU: alone (`midair metrics`) and alongside an attach (`--gpu-metrics`), in
//! every format.

use crate::cuda::kit::{NEWEST, quit, start};
use midair_tests::Result;
use midair_tests::cuda::Kit;
use midair_tests::stage::command;
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, Target, run, until};
use std::path::Path;
use std::process::Command;

/// Prepares `midair` so that its helper finds the stand-in's driver.
fn midair(kit: &Kit, model: &str, words: &[&str]) -> Result<Command> {
    let mut command = command("midair")?;
    command
        .args(words)
        .env("LD_LIBRARY_PATH", kit.stand_in.driver())
        .env("CUPTI_MODEL", model);
    Ok(command)
}

fn metrics(kit: &Kit, model: &str, words: &[&str]) -> Result<Exit> {
    let cupti = kit.stand_in.cupti(13);
    let cupti = cupti.to_str().ok_or("a path is text")?;
    let usual = ["metrics", "--duration", "300ms", "--cupti", cupti];
    run(midair(kit, model, &[&usual[..], words].concat())?, PATIENCE)
}

/// Returns the numbers in a column of the metrics' csv file.
fn column(rows: &Csv, name: &str) -> Vec<f64> {
    let all = rows
        .rows
        .iter()
        .filter_map(|row| row.get(name)?.parse().ok());
    all.collect()
}

#[test]
fn a_gpu_is_sampled_without_a_process() -> Result<()> {
    let kit = Kit::new()?;
    let table = metrics(&kit, "", &[])?.success()?;
    assert!(
        table.stdout[0].starts_with("GPU 0: Midair Stand-in GPU 0 (GH100"),
        "{table}"
    );
    assert!(
        table
            .stdout
            .iter()
            .any(|line| line.starts_with("tensor ") && line.contains(" %")),
        "{table}"
    );
    let file = kit.scratch().join("samples.csv");
    let file = file.to_str().ok_or("a path is text")?;
    let json = metrics(&kit, "", &["--json", "--set", "compute", "--samples", file])?.success()?;
    let json: serde_json::Value = serde_json::from_str(&json.stdout[0])?;
    assert_eq!(
        (&json["version"], &json["lost"], &json["groups"]),
        (&1.into(), &0.into(), &1.into())
    );
    assert_eq!(json["metrics"][0]["name"], "sm_active");
    assert_eq!(json["metrics"][0]["mean"], 50.0);
    let count = json["samples"].as_u64().ok_or("a number")?;
    assert!(count > 500, "{json}");
    assert_eq!(
        std::fs::read_to_string(file)?.lines().count() as u64,
        count + 1
    );
    let turns = metrics(&kit, "pm_passes", &["--csv", "--set", "sm_active,l2_hit"])?.success()?;
    assert!(turns.stdout[1].contains(",0,2,"), "{turns}");
    Ok(())
}

#[test]
fn what_cannot_be_sampled_is_a_sentence_and_a_code() -> Result<()> {
    let kit = Kit::new()?;
    for (model, words, code, says) in [
        (
            "",
            &["--set", "nonsense"][..],
            2,
            "neither a set nor a metric",
        ),
        ("", &["--gpu", "9"], 2, "no such GPU"),
        ("pm_enable=26", &[], 38, "in use by another profiler"),
        ("pm_availability=35", &[], 11, "driver"),
        ("pm_enable=43", &[], 38, "MIG"),
        ("pm_crash", &[], 38, "ended the helper"),
        ("pm_gap=9", &[], 32, "samples are missing"),
    ] {
        let exit = metrics(&kit, model, words)?;
        assert_eq!(exit.status.code(), Some(code), "{model}: {exit}");
        assert!(
            exit.stderr.iter().any(|line| line.contains(says)),
            "{model}: {exit}"
        );
    }
    Ok(())
}

fn attached(kit: &Kit, pid: i32, dir: &Path, model: &str, words: &[&str]) -> Result<Target> {
    let pid = pid.to_string();
    let usual = ["attach", &pid, "--kernel-trace", "--stats", "--gpu-metrics"];
    let mut command = midair(kit, model, &[&usual[..], words].concat())?;
    command
        .args(["-f", "csv,rocpd,pftrace", "-o", "t", "-d"])
        .arg(dir);
    let mut session = Target::spawn(command)?;
    session.expect_error("attached to process")?;
    Ok(session)
}

#[test]
fn kernels_have_the_samples_that_lie_within_them() -> Result<()> {
    let kit = Kit::new()?;
    // With kernels of 2 ms, the tensor pipes are busy for half of each kernel, whenever it starts.
    let mut target = start(&kit, NEWEST, &[("CUDA_MODEL_KERNEL_NS", "2000000")])?;
    let dir = tempfile::tempdir()?;
    let mut session = attached(
        &kit,
        target.pid(),
        dir.path(),
        "",
        &["tensor,sm_active", "--gpu-metrics-rate", "10000"],
    )?;
    target.ask("work 5")?;
    session.send("")?;
    let exit = session.wait(PATIENCE)?.success()?;
    assert!(
        exit.stdout
            .iter()
            .any(|line| line.contains("tensor") && line.ends_with('%')),
        "{exit}"
    );
    let samples = Csv::read(&dir.path().join("t_gpu_metrics.csv"))?;
    assert!(column(&samples, "tensor").len() > 100, "{exit}");
    let kernels = Csv::read(&dir.path().join("t_gpu_metrics_kernels.csv"))?;
    assert!(!kernels.rows.is_empty(), "{exit}");
    for row in kernels.rows {
        let number = |name: &str| {
            row.get(name)
                .and_then(|text| text.parse::<f64>().ok())
                .unwrap_or(f64::NAN)
        };
        assert!((15.0..=20.0).contains(&number("Samples")), "{row:?}");
        assert!((40.0..=60.0).contains(&number("tensor")), "{row:?}");
        assert!((number("sm_active") - 50.0).abs() < 1e-6, "{row:?}");
    }
    let stats = Csv::read(&dir.path().join("t_gpu_metrics_stats.csv"))?;
    assert!(!stats.rows.is_empty(), "{exit}");
    let trace = std::fs::read(dir.path().join("t_results.pftrace"))?;
    let has = |text: &str| {
        trace
            .windows(text.len())
            .any(|bytes| bytes == text.as_bytes())
    };
    assert!(has("GPU [0] tensor (%)") && has("gpu_samples"));
    quit(target)
}

#[test]
fn a_helper_that_dies_ends_no_session() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let dir = tempfile::tempdir()?;
    let mut session = attached(&kit, target.pid(), dir.path(), "pm_crash", &["sm_active"])?;
    target.ask("work 5")?;
    session.send("")?;
    let exit = session.wait(PATIENCE)?.success()?;
    let rows = Csv::read(&dir.path().join("t_kernel_trace.csv"))?;
    assert!(!rows.rows.is_empty(), "{exit}");
    let notes = std::fs::read_dir(dir.path())?
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    assert!(
        notes
            .into_iter()
            .any(|text| text.contains("sampling of the GPU ended early")),
        "{exit}"
    );
    quit(target)
}

/// `midair top` of a CUDA process: every kernel that its device ran, and what was sampled of the GPU.
#[test]
fn top_shows_a_cuda_process_and_its_gpu() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[("CUDA_MODEL_KERNEL_NS", "2000000")])?;
    let before = target.log_length()?;
    let pid = target.pid().to_string();
    let words = [
        "top",
        &pid,
        "--json",
        "--interval",
        "250ms",
        "--gpu-metrics",
    ];
    let command = midair(&kit, "", &[&words[..], &["tensor,sm_active"]].concat())?;
    let mut top = Target::spawn(command)?;
    until("the first look", || {
        let running = top.is_running()?;
        match top.lines().is_empty() {
            true if !running => Err(format!("it has ended: {:?}", top.errors()).into()),
            empty => Ok(!empty),
        }
    })?;
    target.ask("work 20")?;
    let wanted = target.log_from(before)?.of("kernel").count() as u64;
    let (mut busy, mut sampled, mut count) = (false, false, 0);
    let (mut read, mut last) = (0, serde_json::Value::Null);
    until("all kernels", || {
        for line in top.lines().iter().skip(read) {
            read += 1;
            last = serde_json::from_str(line)?;
            let rows = last["kernels"].as_array().into_iter().flatten();
            count = rows.filter_map(|row| row["all"]["count"].as_u64()).sum();
            busy |= last["devices"][0]["busy"].as_f64() > Some(0.0);
            let mut counters = last["counters"].as_array().into_iter().flatten();
            sampled |= counters.any(|counter| {
                counter["name"] == "tensor"
                    && counter["unit"] == "%"
                    && counter["mean"].as_f64() > Some(0.0)
            });
        }
        Ok(count >= wanted && busy && sampled)
    })
    .map_err(|error| format!("{error}: {wanted}, {busy}, {sampled}: {last}"))?;
    assert_eq!(count, wanted, "{last}");
    top.close_stdin();
    top.wait(PATIENCE)?.success()?;
    quit(target)
}
