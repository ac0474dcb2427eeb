//! `--max-overhead` without counters: what is recorded in bursts tells what the modelled GPU did in
//! all of the time.

use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::lab::Lab;
use midair_tests::modellog::Dispatch;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, ask};
use serde_json::Value;
use std::time::Duration;

/// Where this program's kernels differ: `vadd` has smaller grids.
const SCALE_FROM: u32 = 65_536;

fn value(document: &Value, path: &str) -> Result<f64> {
    let value = document.pointer(path).and_then(Value::as_f64);
    value.ok_or_else(|| format!("no {path} in {document}").into())
}

#[test]
fn bursts_tell_what_the_gpu_did_in_all_of_the_time() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).arg(2);
    let target = target.env("MODEL_KERNEL_NS", 40_000);
    let target = target.env("MODEL_LONG_KERNEL", "64:160000,128:160000");
    let mut target = target.env("MODEL_JITTER", 30).spawn()?;
    target.expect("ready")?;
    ask(&mut target, "pause 500")?;
    let before = target.model_log()?.dispatches().count();
    let words = ["--kernel-trace", "--max-overhead", "2", "--json"];
    let attacher = Attacher::midair(target.pid(), &words)?;
    ask(&mut target, "start")?;
    std::thread::sleep(Duration::from_secs(8));
    ask(&mut target, "stop")?;
    let traced = attacher.detach()?.code(0)?;
    let document: Value = serde_json::from_str(&traced.exit.stdout.join("\n"))?;
    let bursts = document.pointer("/bursts/0").ok_or("no bursts")?;

    // A part of the time, and what a GPU did between bursts is not called idle.
    let coverage = value(bursts, "/coverage")?;
    assert!(coverage > 0.005 && coverage < 0.95, "{bursts}");
    assert!(value(bursts, "/bursts")? >= 10.0, "{bursts}");
    assert_eq!(
        document.pointer("/processes/0/gpus"),
        Some(&Value::Array(Vec::new()))
    );
    assert_eq!(
        document.pointer("/processes/0/lost"),
        Some(&serde_json::json!({}))
    );

    // The files have the launches of bursts, each as the GPU ran it.
    let log = target.model_log()?;
    let ran: Vec<_> = log.dispatches().skip(before).collect();
    let rows = Csv::read(&traced.file("kernel_trace.csv"))?.rows;
    let part = rows.len() as f64 / ran.len() as f64;
    assert!(
        part > coverage / 3.0 && part < 0.95,
        "{} of {}",
        rows.len(),
        ran.len()
    );
    for row in &rows {
        let start = Csv::number(row, "Start_Timestamp")?;
        let end = Csv::number(row, "End_Timestamp")?;
        let is_it = |d: &&_| {
            let d: &Dispatch = d;
            (d.packet.start, d.packet.end) == (start, end)
        };
        assert!(ran.iter().copied().any(|d| is_it(&d)), "{row:?}");
    }

    // Launches are counted between bursts, too, and each kernel's share is what the log has.
    let rows = bursts["kernels"].as_array().ok_or("no kernels")?;
    let calls: f64 = rows
        .iter()
        .map(|row| value(row, "/calls/estimate"))
        .sum::<Result<f64>>()?;
    assert!(
        (calls - ran.len() as f64).abs() < 0.5,
        "{calls}, not {}",
        ran.len()
    );
    let time = |d: &&Dispatch| (d.packet.end - d.packet.start) as f64;
    let all: f64 = ran.iter().map(time).sum();
    for name in ["vadd", "scale"] {
        let of = ran
            .iter()
            .filter(|d| (d.grid[0] >= SCALE_FROM) == (name == "scale"));
        let share = of.map(time).sum::<f64>() / all;
        let row = rows
            .iter()
            .find(|row| row["name"].to_string().contains(name));
        let row = row.ok_or_else(|| format!("no {name} in {bursts}"))?;
        // Twice the width: a test must not fail in one of twenty runs.
        let (low, high) = (value(row, "/share/low")?, value(row, "/share/high")?);
        let half = (high - low) / 2.0 + 0.002;
        assert!(
            (low - half..=high + half).contains(&share) && high - low < 0.5,
            "{name}: {share}, not {low} to {high}"
        );
    }
    ask(&mut target, "start")?;
    target.send("quit")?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
