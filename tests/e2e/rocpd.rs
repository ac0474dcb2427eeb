//! The default format end to end: a rocpd file, read by Python's SQLite, is compared with csv and
//! json of the same session and with what the modelled GPU consumed.

use crate::profiler::compare::logged_copies;
use crate::profiler::{Counter, since};
use midair_tests::Result;
use midair_tests::attacher::{Attacher, Traced};
use midair_tests::lab::{GpuModel, Lab};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::{command, stage};
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, ask, run};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns what Python's SQLite finds in a file, and its answers to queries.
pub fn reader(file: &Path, queries: &[&str]) -> Result<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/formats/output/tests/files/rocpd_reader.py");
    let mut python = Command::new("python3");
    python.arg("-B").arg(script).arg(file).args(queries);
    let exit = run(python, PATIENCE)?.success()?;
    Ok(serde_json::from_str(&exit.stdout.join("\n"))?)
}

/// Returns the rows of an answer as arrays of numbers, with the columns in alphabetical order.
fn numbers(answer: &Value) -> Vec<Vec<u64>> {
    let row = |row: &Value| {
        let row = row.as_object().into_iter().flatten();
        row.map(|(_, value)| value.as_u64().unwrap_or(u64::MAX))
            .collect()
    };
    answer.as_array().into_iter().flatten().map(row).collect()
}

/// Returns an answer's counts by name.
fn by_name(answer: &Value) -> BTreeMap<String, u64> {
    let row = |row: &Value| Some((row["name"].as_str()?.to_owned(), row["n"].as_u64()?));
    answer
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(row)
        .collect()
}

/// For each domain: its list in json, its csv file, and its view with the condition that selects
/// its rows.
const DOMAINS: [(&str, &str, &str); 7] = [
    (
        "hip_api",
        "hip_api",
        "regions_and_samples WHERE category LIKE 'HIP_%'",
    ),
    (
        "hsa_api",
        "hsa_api",
        "regions_and_samples WHERE category LIKE 'HSA_%'",
    ),
    (
        "marker_api",
        "marker_api",
        "regions_and_samples WHERE category LIKE 'MARKER_%'",
    ),
    ("kernel_dispatch", "kernel", "kernels"),
    ("memory_copy", "memory_copy", "memory_copies"),
    (
        "memory_allocation",
        "memory_allocation",
        "memory_allocations WHERE level != 'SCRATCH'",
    ),
    ("scratch_memory", "scratch_memory", "scratch_memory"),
];

/// Returns the number of rows of each domain, by its name in json. It checks that all formats have
/// as many, and that each row of a table is in the table's view.
fn counts(file_of: impl Fn(&str) -> PathBuf) -> Result<BTreeMap<&'static str, usize>> {
    let queries = DOMAINS.map(|(_, _, view)| format!("SELECT COUNT(*) AS n FROM {view}"));
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    let file = reader(&file_of("results.db"), &queries)?;
    assert_eq!(file["integrity"], serde_json::json!([["ok"]]));
    assert_eq!(file["foreign_keys"], serde_json::json!([]));
    for (table, view) in [
        ("rocpd_region", "regions"),
        ("rocpd_sample", "samples"),
        ("rocpd_kernel_dispatch", "kernels"),
        ("rocpd_memory_copy", "memory_copies"),
        ("rocpd_memory_allocate", "memory_allocations"),
        ("rocpd_arg", "events_args"),
    ] {
        assert_eq!(file["tables"][table]["count"], file["views"][view]["count"]);
    }
    let whole = json(&file_of("results.json"))?;
    let records = &whole["rocprofiler-sdk-tool"][0]["buffer_records"];
    let mut counts = BTreeMap::new();
    for (n, (list, csv, _)) in DOMAINS.into_iter().enumerate() {
        let json = records[list].as_array().map_or(0, Vec::len);
        let path = file_of(&format!("{csv}_trace.csv"));
        let csv = if path.exists() {
            Csv::read(&path)?.rows.len()
        } else {
            0
        };
        let rocpd = count(&file["answers"][n]);
        assert_eq!((json, csv), (rocpd, rocpd), "{list}: json and csv, rocpd");
        counts.insert(list, rocpd);
    }
    Ok(counts)
}

fn count(answer: &Value) -> usize {
    answer[0]["n"].as_u64().unwrap_or(u64::MAX) as usize
}

/// Checks that the three formats say the same, and that it is what the log says. Returns how many
/// dispatches have no times.
fn compare(traced: &Traced, log: &ModelLog) -> Result<usize> {
    let counts = counts(|name| traced.file(name))?;
    for domain in ["hip_api", "hsa_api", "kernel_dispatch", "memory_copy"] {
        assert!(counts[domain] > 0, "no {domain}: {counts:?}");
    }
    let queries = [
        "SELECT start AS a, \"end\" AS b, grid_x AS c, workgroup_x AS d FROM kernels WHERE \"end\" > 0",
        "SELECT size AS a, start AS b, \"end\" AS c FROM memory_copies ORDER BY size, start",
        "SELECT name, COUNT(*) AS n FROM kernels GROUP BY name",
        "SELECT name, COUNT(*) AS n FROM regions WHERE category LIKE 'HIP_%' GROUP BY name",
        "SELECT value FROM rocpd_metadata WHERE tag = 'midair_untimed'",
        "SELECT COUNT(*) AS n FROM kernels AS k JOIN regions AS r ON k.stack_id = r.stack_id AND k.tid = r.tid
             AND (k.start = 0 OR r.start < k.start)",
        "SELECT COUNT(*) AS n FROM rocpd_kernel_dispatch WHERE start = 0 AND \"end\" = 0
             AND json_extract(extdata, '$.untimed') IS NOT NULL",
        "SELECT tid FROM threads",
        "SELECT COUNT(*) AS n FROM memory_copies WHERE (name LIKE '%HOST_TO_DEVICE') = (dst_agent_type = 'GPU')",
    ];
    let file = reader(&traced.file("results.db"), &queries)?;
    let answer = |n: usize| &file["answers"][n];

    // Every dispatch of the log is a row, and the timed ones have the device's own times.
    let dispatches = counts["kernel_dispatch"];
    assert_eq!(dispatches, log.dispatches().count());
    let logged: BTreeSet<Vec<u64>> = log
        .dispatches()
        .map(|d| {
            let (grid, group) = (u64::from(d.grid[0]), u64::from(d.workgroup[0]));
            vec![d.packet.start, d.packet.end, grid, group]
        })
        .collect();
    let timed: BTreeSet<Vec<u64>> = numbers(answer(0)).into_iter().collect();
    assert!(
        timed.is_subset(&logged),
        "times that the device did not write"
    );
    let untimed = count(answer(6));
    assert_eq!(timed.len() + untimed, dispatches);
    let copies: Vec<Vec<u64>> = logged_copies(log)
        .into_iter()
        .map(|(bytes, start, end)| vec![bytes, start, end])
        .collect();
    assert_eq!(numbers(answer(1)), copies);
    assert_eq!(count(answer(8)), copies.len(), "agents of the directions");

    // Names are compared with csv and json.
    let mut kernels: BTreeMap<String, u64> = BTreeMap::new();
    for row in Csv::read(&traced.file("kernel_trace.csv"))?.rows {
        *kernels.entry(row["Kernel_Name"].clone()).or_default() += 1;
    }
    assert_eq!(by_name(answer(2)), kernels);
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    let (mut instants, mut threads) = (0, BTreeSet::new());
    for row in Csv::read(&traced.file("hip_api_trace.csv"))?.rows {
        threads.insert(row["Thread_Id"].clone());
        if row["Start_Timestamp"] == row["End_Timestamp"] {
            instants += 1;
        } else {
            *calls.entry(row["Function"].clone()).or_default() += 1;
        }
    }
    assert_eq!(by_name(answer(3)), calls);
    let known: BTreeSet<String> = answer(7)
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| row["tid"].to_string())
        .collect();
    assert!(threads.is_subset(&known), "{threads:?}, {known:?}");
    assert!(
        count(answer(5)) + instants >= dispatches,
        "kernels that no call of their thread launched before: {} of {dispatches} have one",
        count(answer(5))
    );
    let said: Value = serde_json::from_str(answer(4)[0]["value"].as_str().unwrap_or("null"))?;
    let whole = json(&traced.file("results.json"))?;
    let midair = &whole["rocprofiler-sdk-tool"][0]["metadata"]["midair"];
    assert_eq!(said, midair["untimed"]);
    Ok(untimed)
}

/// Runs two sessions on a program with streams, which is idle when they start and end.
fn sessions(lab: &Lab, model: GpuModel) -> Result<[usize; 2]> {
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let command = lab.run(&program).arg(&kernels).arg(4).on(model);
    let mut target = command.env("MODEL_KERNEL_NS", 2_000).spawn()?;
    target.expect("ready")?;
    ask(&mut target, "pause 500")?;
    let mut untimed = [0; 2];
    let mut guids = BTreeSet::new();
    for untimed in &mut untimed {
        let before = target.model_log()?;
        let words = [
            "--hip-trace",
            "--hsa-trace",
            "--kernel-trace",
            "--memory-copy-trace",
            "--memory-allocation-trace",
            "--output-format",
            "rocpd",
            "csv",
            "json",
        ];
        let attacher = Attacher::start(target.pid(), &words)?;
        ask(&mut target, "start")?;
        Counter::of(&target).wait_until(before.dispatches().count() + 200)?;
        ask(&mut target, "stop")?;
        let log = since(&target.model_log()?, &before);
        let traced = attacher.detach()?.code(0)?;
        *untimed = compare(&traced, &log)?;
        let file = reader(&traced.file("results.db"), &[])?;
        guids.insert(file["suffix"].to_string());
    }
    assert_eq!(guids.len(), 2, "two sessions with one guid: {guids:?}");
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(untimed)
}

#[test]
fn three_formats_and_the_device_agree() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    assert_eq!(sessions(&lab, GpuModel::Doorbell)?, [0, 0]);
    Ok(())
}

#[test]
fn three_formats_and_an_eager_device_agree() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    sessions(&lab, GpuModel::Eager(7))?;
    Ok(())
}

/// The marks of the program `markers` and the allocations of `memory` give as many rows in each
/// format, with the same messages.
#[test]
fn markers_allocations_and_scratch_agree() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let formats = ["--output-format", "rocpd", "csv", "json"];
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let (program, kernels) = (lab.program("markers")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(library).arg(kernels).spawn()?;
    target.expect("ready")?;
    let words = [&["--marker-trace", "--hip-runtime-trace"], &formats[..]].concat();
    let attacher = Attacher::start(target.pid(), &words)?;
    ask(&mut target, "nest 20")?;
    let traced = attacher.detach()?.code(0)?;
    let counts_here = counts(|name| traced.file(name))?;
    assert_eq!(counts_here["marker_api"], 20 * 4, "{counts_here:?}");
    let file = reader(
        &traced.file("results.db"),
        &[
            "SELECT json_extract(extdata, '$.message') AS name, COUNT(*) AS n FROM regions_and_samples
                 WHERE category = 'MARKER_CORE_RANGE_API' GROUP BY 1",
            "SELECT COUNT(*) AS n FROM samples WHERE json_extract(extdata, '$.message') LIKE 'mark %'",
        ],
    )?;
    let mut messages: BTreeMap<String, u64> = BTreeMap::new();
    for row in Csv::read(&traced.file("marker_api_trace.csv"))?.rows {
        *messages.entry(row["Function"].clone()).or_default() += 1;
    }
    assert_eq!(by_name(&file["answers"][0]), messages);
    assert_eq!(messages.get("inner, \"quoted\" 7"), Some(&1));
    assert_eq!(count(&file["answers"][1]), 20, "a mark is a moment");
    target.send("quit")?;
    target.expect("done")?;

    let (program, kernels) = (lab.program("memory")?, lab.kernels()?);
    let command = lab.run(&program).arg(&kernels).register(false);
    let mut target = command.log_name("memory").spawn()?;
    target.expect("ready")?;
    let words = [
        &[
            "--memory-allocation-trace",
            "--scratch-memory-trace",
            "--kernel-trace",
        ],
        &formats[..],
    ]
    .concat();
    let attacher = Attacher::start(target.pid(), &words)?;
    for words in ["go 5", "scratch 64 64", "scratch 256 64", "queue"] {
        ask(&mut target, words)?;
    }
    let traced = attacher.detach()?.code(0)?;
    let counts_here = counts(|name| traced.file(name))?;
    for domain in ["memory_allocation", "scratch_memory"] {
        assert!(counts_here[domain] > 0, "no {domain}: {counts_here:?}");
    }
    let file = reader(
        &traced.file("results.db"),
        &[
            "SELECT COUNT(*) AS n FROM memory_allocations WHERE type = 'FREE' AND (agent_type IS NOT NULL OR size != 0)
                 AND level != 'SCRATCH'",
            "SELECT COUNT(*) AS n FROM memory_allocations WHERE type = 'ALLOC' AND (agent_type IS NULL OR size = 0)",
            "SELECT COUNT(*) AS n FROM scratch_memory WHERE alloc_flags IS NULL OR queue_id IS NULL",
        ],
    )?;
    for answer in 0..3 {
        assert_eq!(count(&file["answers"][answer]), 0, "{answer}");
    }
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn rocpd_is_the_default_format() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let secret = "it-is-a-secret";
    let target = lab.run("/lab/vadd").arg(1_000_000).arg(3000);
    let mut target = target.env("MIDAIR_TEST_SECRET", secret).spawn()?;
    target.expect("iter 2")?;
    let pid = target.pid().to_string();
    let dir = tempfile::tempdir()?;
    for (name, words) in [
        (
            "rocprofv3",
            &["--pid", &pid, "--attach-duration-msec", "300"][..],
        ),
        ("midair", &["attach", &pid, "--duration", "300ms"]),
    ] {
        let place = dir.path().join(name);
        let mut command = command(name)?;
        command.args(words).args(["--hip-trace", "-o", "t", "-d"]);
        command.arg(&place);
        let exit = run(command, PATIENCE)?.success()?;
        let files: Vec<_> = std::fs::read_dir(&place)?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<Result<_>>()?;
        assert_eq!(files, ["t_results.db"], "{exit}");
        let file = place.join("t_results.db");
        let queries = ["SELECT environment FROM rocpd_info_process"];
        let found = reader(&file, &queries)?;
        let regions = &found["views"]["regions"]["count"];
        assert!(regions.as_u64().is_some_and(|count| count > 0), "{found}");
        assert_eq!(found["answers"][0][0]["environment"], "{}");
        let bytes = std::fs::read(&file)?;
        let stored = bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!stored, "the environment is in the file");
    }
    Ok(())
}

/// A launched program writes its files itself at its end, with SQLite inside it. They have the same
/// contents.
#[test]
fn a_started_program_writes_its_own_rocpd_file() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let program = format!("{}/bin/rocprofv3", lab.stage()?);
    for (name, formats) in [
        ("default", &[][..]),
        ("three", &["-f", "rocpd", "csv", "json"]),
    ] {
        let dir = lab.scratch().join(name);
        std::fs::create_dir(&dir)?;
        let place = lab.inside(&dir)?;
        let domains = [
            "--hip-trace",
            "--hsa-trace",
            "--kernel-trace",
            "--memory-copy-trace",
        ];
        let mut words = vec![program.as_str()];
        words.extend(domains);
        words.extend(formats);
        words.extend(["-d", &place, "-o", "out", "--"]);
        let command = lab.run("/lab/vadd").arg(10).arg(0).under(&words);
        let target = command.log_name(&format!("{name}-log")).spawn()?;
        let log = target.log.clone();
        let exit = target.target.wait(PATIENCE)?.success()?;
        assert_eq!(exit.stdout.last().map(String::as_str), Some("done"));
        let log = ModelLog::read(&log)?;
        let file_of = |file: &str| dir.join(format!("out_{file}"));
        if formats.is_empty() {
            let files: Vec<_> = std::fs::read_dir(&dir)?
                .map(|entry| Ok(entry?.file_name()))
                .collect::<Result<_>>()?;
            assert_eq!(files, ["out_results.db"], "{exit}");
        } else {
            let counts = counts(file_of)?;
            assert_eq!(counts["kernel_dispatch"], log.dispatches().count());
            assert!(counts["hsa_api"] > 0, "{counts:?}");
        }
        let file = reader(
            &file_of("results.db"),
            &[
                "SELECT COUNT(*) AS n FROM kernels WHERE start > 0",
                "SELECT COUNT(*) AS n FROM regions_and_samples WHERE name = 'hipLaunchKernel'",
                "SELECT COUNT(*) AS n FROM memory_copies",
            ],
        )?;
        assert_eq!(count(&file["answers"][0]), log.dispatches().count());
        assert_eq!(count(&file["answers"][1]), 2 * 10);
        assert_eq!(count(&file["answers"][2]), log.copies().count());
    }
    Ok(())
}
