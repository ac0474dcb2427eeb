//! All formats of one session with statistics and summaries, end to end. The pftrace is read with
//! Perfetto's own messages and compared with the csv files and with what the modelled GPU consumed.
//! Statistics and summaries are compared with the rows that they sum up.

use crate::profiler::compare::logged_copies;
use crate::profiler::{Counter, since};
use midair_tests::attacher::{Attacher, Traced};
use midair_tests::lab::{GpuModel, Lab};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::stage;
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, ask, run};
use midair_tests::{Result, python};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Reads a trace by Perfetto's messages and pairs the slices as a viewer does. It fails where a
/// rule of the format is broken.
pub fn pftrace(file: &Path) -> Result<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/pftrace.py");
    let mut command = Command::new(python()?);
    command.arg("-B").arg(script).arg(file);
    let exit = run(command, PATIENCE)?.success()?;
    Ok(serde_json::from_str(&exit.stdout.join("\n"))?)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(u64::MAX)
}

/// For each domain: category in pftrace, name of the csv files, column with the name that is summed
/// up, name in summaries.
const DOMAINS: [(&str, &str, &str, &str); 6] = [
    ("hip_api", "hip_api", "Function", "HIP_API"),
    ("hsa_api", "hsa_api", "Function", "HSA_API"),
    (
        "kernel_dispatch",
        "kernel",
        "Kernel_Name",
        "KERNEL_DISPATCH",
    ),
    ("memory_copy", "memory_copy", "Direction", "MEMORY_COPY"),
    (
        "memory_allocation",
        "memory_allocation",
        "Operation",
        "MEMORY_ALLOCATION",
    ),
    (
        "scratch_memory",
        "scratch_memory",
        "Operation",
        "SCRATCH_MEMORY",
    ),
];

/// The directory with the results of a session.
struct Files(PathBuf);

impl Files {
    fn of(traced: &Traced) -> Files {
        Files(traced.dir().to_owned())
    }
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("out_{name}"))
    }
}

/// Calls and nanoseconds by name.
type Sums = BTreeMap<String, (u64, u64)>;

/// Returns the sums of a csv file's rows by name. Untimed rows are left out.
fn sums(files: &Files, csv: &str, column: &str) -> Result<Sums> {
    let mut sums = Sums::new();
    let path = files.file(&format!("{csv}_trace.csv"));
    if !path.exists() {
        return Ok(sums);
    }
    for row in Csv::read(&path)?.rows {
        let start = Csv::number(&row, "Start_Timestamp")?;
        let end = Csv::number(&row, "End_Timestamp")?;
        if end > 0 {
            let sum = sums.entry(row[column].clone()).or_default();
            sum.0 += 1;
            sum.1 += end - start;
        }
    }
    Ok(sums)
}

/// Checks that the statistics are the sums of the rows.
fn statistics(files: &Files) -> Result<()> {
    let mut domains = Sums::new();
    for (_, csv, column, domain) in DOMAINS {
        let sums = sums(files, csv, column)?;
        let path = files.file(&format!("{csv}_stats.csv"));
        assert_eq!(path.exists(), !sums.is_empty(), "{}", path.display());
        if sums.is_empty() {
            continue;
        }
        let mut found = Sums::new();
        let mut last = u64::MAX;
        for row in Csv::read(&path)?.rows {
            let total = Csv::number(&row, "TotalDurationNs")?;
            assert!(total <= last, "{csv}: not sorted");
            last = total;
            found.insert(row["Name"].clone(), (Csv::number(&row, "Calls")?, total));
        }
        assert_eq!(found, sums, "{csv}");
        let all = sums
            .values()
            .fold((0, 0), |all, sum| (all.0 + sum.0, all.1 + sum.1));
        domains.insert(domain.to_owned(), all);
    }
    let mut found = Sums::new();
    for row in Csv::read(&files.file("domain_stats.csv"))?.rows {
        let (calls, total) = (
            Csv::number(&row, "Calls")?,
            Csv::number(&row, "TotalDurationNs")?,
        );
        found.insert(row["Name"].clone(), (calls, total));
    }
    assert_eq!(found, domains);
    let whole = json(&files.file("results.json"))?;
    // The runtimes of the process are listed whatever options were given.
    let runtimes = whole
        .pointer("/rocprofiler-sdk-tool/0/metadata/midair/runtimes")
        .and_then(Value::as_array)
        .ok_or("the runtimes")?;
    let mut names: Vec<_> = runtimes.iter().map(|runtime| &runtime["name"]).collect();
    names.sort_by_key(|name| name.to_string());
    // A program that is launched with marker tracing also has our ROCTx library.
    names.retain(|name| *name != "MARKER");
    assert_eq!(names, ["HIP", "HSA"], "{runtimes:?}");
    let summary = &whole["rocprofiler-sdk-tool"][0]["summary"];
    let found: Sums = list(summary)
        .iter()
        .map(|domain| {
            let stats = &domain["stats"];
            let sum = (number(&stats["count"]), number(&stats["sum"]));
            (
                domain["domain"].as_str().unwrap_or_default().to_owned(),
                sum,
            )
        })
        .collect();
    assert_eq!(found, domains, "json");
    Ok(())
}

/// Returns the rows of the printed tables with this title, by domain and name.
fn table(lines: &[String], title: &str) -> BTreeMap<(String, String), (u64, u64)> {
    let title = format!("ROCPROFV3 {title}:");
    let after = lines.iter().skip_while(|line| line.trim() != title).skip(2);
    let rows = after
        .take_while(|line| line.trim_start().starts_with('|'))
        .skip(2);
    rows.map(|line| {
        let cells: Vec<&str> = line
            .trim()
            .trim_matches('|')
            .split(" | ")
            .map(str::trim)
            .collect();
        let sum = (cells[2].parse().unwrap_or(0), cells[3].parse().unwrap_or(0));
        ((cells[1].to_owned(), cells[0].to_owned()), sum)
    })
    .collect()
}

/// Checks that the printed tables are the sums of the rows.
fn summaries(files: &Files, printed: &[String]) -> Result<()> {
    let mut all = BTreeMap::new();
    let mut of_gpu = BTreeMap::new();
    for (_, csv, column, domain) in DOMAINS {
        let sums = sums(files, csv, column)?;
        if sums.is_empty() {
            continue;
        }
        let rows: BTreeMap<_, _> = sums
            .into_iter()
            .map(|(name, sum)| ((domain.to_owned(), name), sum))
            .collect();
        assert_eq!(table(printed, &format!("{domain} SUMMARY")), rows);
        if domain == "KERNEL_DISPATCH" || domain == "MEMORY_COPY" {
            of_gpu.extend(rows.clone());
        }
        all.extend(rows);
    }
    let group = "KERNEL_DISPATCH + MEMORY_COPY SUMMARY";
    assert_eq!(table(printed, group), of_gpu);
    assert_eq!(table(printed, "SUMMARY"), all);
    Ok(())
}

/// Checks that the trace has all that csv has, on the right tracks, with the times that the device
/// wrote.
fn perfetto(files: &Files, log: &ModelLog, pid: i32) -> Result<()> {
    let trace = pftrace(&files.file("results.pftrace"))?;
    assert_eq!(trace["process"]["pid"], pid);
    let slices = list(&trace["slices"]);
    let instants = list(&trace["instants"]);
    for (category, csv, _, _) in DOMAINS {
        let path = files.file(&format!("{csv}_trace.csv"));
        let rows = if path.exists() {
            Csv::read(&path)?.rows.len()
        } else {
            0
        };
        let of = |event: &&Value| event["category"] == category;
        let count = slices.iter().filter(of).count() + instants.iter().filter(of).count();
        assert_eq!(count, rows, "{category}");
    }
    let of = |category: &'static str| {
        slices
            .iter()
            .filter(move |slice| slice["category"] == category)
    };
    let times = |slice: &Value| {
        let notes = &slice["notes"];
        (number(&notes["begin_ns"]), number(&notes["end_ns"]))
    };
    let logged: BTreeSet<(u64, u64)> = log
        .dispatches()
        .map(|dispatch| (dispatch.packet.start, dispatch.packet.end))
        .collect();
    assert!(of("kernel_dispatch").count() > 0);
    for kernel in of("kernel_dispatch") {
        assert!(logged.contains(&times(kernel)), "{kernel}");
    }
    let mut copies: Vec<(u64, u64, u64)> = of("memory_copy")
        .map(|copy| {
            let (start, end) = times(copy);
            (number(&copy["notes"]["copy_bytes"]), start, end)
        })
        .collect();
    copies.sort_unstable();
    assert_eq!(copies, logged_copies(log));

    // The flow of a call leads to what it launched. The work of a stream is on the stream's track.
    let flows: BTreeMap<u64, &Value> = of("hip_api")
        .map(|call| (number(&call["notes"]["corr_id"]), call))
        .collect();
    for work in of("kernel_dispatch") {
        let call = flows.get(&number(&work["notes"]["corr_id"]));
        let call = call.ok_or_else(|| format!("no call launched {work}"))?;
        assert_eq!(call["flow"], work["flow"]);
        assert_eq!(call["notes"]["tid"], work["notes"]["tid"]);
        let track = format!(
            "STREAM [\" {} \"] Agent [1] GPU",
            work["notes"]["stream_ID"]
        );
        assert_eq!(work["track"], track.as_str());
        assert!(times(call).0 < times(work).0, "{work} before {call}");
    }
    // Calls are on the tracks of their threads, and the main thread's calls on its own track.
    for call in of("hip_api").chain(of("hsa_api")) {
        assert_eq!(call["tid"], call["notes"]["tid"], "{call}");
    }
    for (name, tid) in trace["threads"].as_object().into_iter().flatten() {
        assert_eq!(tid == pid, !name.starts_with("THREAD "), "{name} {tid}");
        // The calls of a thread nest, so none had to go to an extra track.
        let tracks = list(&trace["tracks"]).iter();
        assert_eq!(tracks.filter(|track| *track == name).count(), 1, "{name}");
    }
    let bytes = list(&trace["counters"]["COPY BYTES to Agent [1] (GPU)"]);
    assert!(bytes.iter().any(|value| number(&value[1]) > 0));
    assert_eq!(bytes.last().map(|value| number(&value[1])), Some(0));
    Ok(())
}

/// The options for what a complete session writes.
const WRITTEN: [&str; 10] = [
    "--output-format",
    "csv",
    "json",
    "pftrace",
    "rocpd",
    "--stats",
    "--summary",
    "--summary-per-domain",
    "--summary-groups",
    "KERNEL_.*|MEMORY_COPY",
];

fn session(lab: &Lab, model: GpuModel) -> Result<()> {
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let command = lab.run(&program).arg(&kernels).arg(4).on(model);
    let mut target = command.env("MODEL_KERNEL_NS", 2_000).spawn()?;
    target.expect("ready")?;
    ask(&mut target, "pause 500")?;
    let before = target.model_log()?;
    let words = [
        "--hip-trace",
        "--hsa-trace",
        "--kernel-trace",
        "--memory-copy-trace",
        "--memory-allocation-trace",
        "--scratch-memory-trace",
    ];
    let words = [&words[..], &WRITTEN].concat();
    let attacher = Attacher::start(target.pid(), &words)?;
    ask(&mut target, "start")?;
    Counter::of(&target).wait_until(before.dispatches().count() + 100)?;
    ask(&mut target, "stop")?;
    let log = since(&target.model_log()?, &before);
    let traced = attacher.detach()?.code(0)?;
    for name in ["results.json", "results.pftrace", "results.db"] {
        assert!(traced.file(name).exists(), "{name}");
    }
    let files = Files::of(&traced);
    statistics(&files)?;
    summaries(&files, &traced.exit.stdout)?;
    perfetto(&files, &log, target.pid())?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn all_formats_statistics_and_summaries_agree_with_the_device() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    session(&lab, GpuModel::Doorbell)
}

#[test]
fn all_formats_statistics_and_summaries_agree_with_an_eager_device() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    session(&lab, GpuModel::Eager(7))
}

/// The same for a program that is launched. The summary is on its own standard output.
#[test]
fn a_started_program_has_all_formats_and_prints_its_summary() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let dir = lab.scratch().join("started");
    std::fs::create_dir(&dir)?;
    let (stage, inside) = (lab.stage()?, lab.inside(&dir)?);
    let rocprofv3 = format!("{stage}/bin/rocprofv3");
    let mut words = vec![rocprofv3.as_str(), "-d", &inside, "-o", "out", "-s"];
    words.extend(WRITTEN);
    words.push("--");
    let target = lab.run("/lab/vadd").arg(3).under(&words).spawn()?;
    let (pid, log) = (target.pid(), target.log.clone());
    let exit = target.target.wait(PATIENCE)?;
    let files = Files(dir);
    statistics(&files)?;
    summaries(&files, &exit.stdout)?;
    perfetto(&files, &ModelLog::read(&log)?, pid)
}

/// Marker messages of any kind are the same in every format, and in the statistics.
#[test]
fn markers_are_the_same_in_every_format() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let (program, kernels) = (lab.program("markers")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(library).arg(kernels).spawn()?;
    target.expect("ready")?;
    let words = [
        "--marker-trace",
        "--hip-trace",
        "--output-format",
        "csv",
        "json",
        "pftrace",
        "--stats",
    ];
    let attacher = Attacher::start(target.pid(), &words)?;
    ask(&mut target, "nest 20")?;
    let traced = attacher.detach()?.code(0)?;
    let mut csv: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for row in Csv::read(&traced.file("marker_api_trace.csv"))?.rows {
        let start = Csv::number(&row, "Start_Timestamp")?;
        *csv.entry((row["Function"].clone(), start)).or_default() += 1;
    }
    assert!(csv.values().sum::<u64>() >= 80, "{csv:?}");
    let trace = pftrace(&traced.file("results.pftrace"))?;
    let mut perfetto: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for slice in list(&trace["slices"]) {
        if slice["category"] == "marker_api" {
            let name = slice["name"].as_str().unwrap_or_default().to_owned();
            let start = number(&slice["notes"]["begin_ns"]);
            *perfetto.entry((name, start)).or_default() += 1;
        }
    }
    assert_eq!(perfetto, csv);
    let whole = json(&traced.file("results.json"))?;
    let tool = &whole["rocprofiler-sdk-tool"][0];
    let messages: BTreeMap<u64, &str> = list(&tool["strings"]["marker_api"])
        .iter()
        .map(|message| {
            (
                number(&message["key"]),
                message["value"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    let mut found: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for record in list(&tool["buffer_records"]["marker_api"]) {
        let start = number(&record["start_timestamp"]);
        let correlation = number(&record["correlation_id"]["internal"]);
        let (kind, operation) = (number(&record["kind"]), number(&record["operation"]));
        let function =
            &tool["strings"]["buffer_records"][kind as usize]["operations"][operation as usize];
        let name = match messages.get(&correlation) {
            Some(message) => *message,
            None => function.as_str().unwrap_or_default(),
        };
        *found.entry((name.to_owned(), start)).or_default() += 1;
    }
    assert_eq!(found, csv);
    let mut summed = BTreeMap::new();
    for ((name, _), count) in csv {
        *summed.entry(name).or_insert(0) += count;
    }
    let mut stats = BTreeMap::new();
    for row in Csv::read(&traced.file("marker_api_stats.csv"))?.rows {
        stats.insert(row["Name"].clone(), Csv::number(&row, "Calls")?);
    }
    assert_eq!(stats, summed);
    target.send("quit")?;
    target.expect("done")?;
    Ok(())
}

/// A summary alone goes to a file, in another unit. Kernels go to a track for each queue. A message
/// says when there is nothing from which statistics could be made.
#[test]
fn a_summary_goes_to_a_file_and_tracks_to_queues() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = lab.run("/lab/vadd").arg(1_000_000).arg(3000).spawn()?;
    target.expect("iter 2")?;
    let words = [
        "--kernel-trace",
        "--memory-copy-trace",
        "--group-by-queue",
        "--output-format",
        "pftrace",
        "--stats",
        "--summary",
        "--summary-output-file",
        "times",
        "--summary-units",
        "usec",
        "-T",
    ];
    let attacher = Attacher::start(target.pid(), &words)?;
    let so_far = target.model_log()?.dispatches().count();
    Counter::of(&target).wait_until(so_far + 6)?;
    let traced = attacher.detach()?.code(0)?;
    let said = traced.exit.stderr.join("\n");
    assert!(said.contains("--stats has no effect"), "{said}");
    assert!(table(&traced.exit.stdout, "SUMMARY").is_empty());
    let text = std::fs::read_to_string(traced.file("times.txt"))?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(text.contains("| DURATION (usec) |"), "{text}");
    let rows = table(&lines, "SUMMARY");
    let trace = pftrace(&traced.file("results.pftrace"))?;
    let mut calls: BTreeMap<(String, String), u64> = BTreeMap::new();
    for slice in list(&trace["slices"]) {
        let text = |key: &str| slice[key].as_str().unwrap_or_default().to_owned();
        let (category, track) = (text("category"), text("track"));
        let (domain, wanted) = match category.as_str() {
            "kernel_dispatch" => ("KERNEL_DISPATCH", "COMPUTE Agent [1] QUEUE ["),
            _ => ("MEMORY_COPY", "COPY to AGENT ["),
        };
        assert!(track.starts_with(wanted), "{track}");
        *calls.entry((domain.to_owned(), text("name"))).or_default() += 1;
    }
    assert!(
        calls.contains_key(&("KERNEL_DISPATCH".to_owned(), "vadd".to_owned())),
        "{calls:?}"
    );
    let printed: BTreeMap<_, _> = rows.into_iter().map(|(key, sum)| (key, sum.0)).collect();
    assert_eq!(printed, calls);
    Ok(())
}

/// Arguments that cannot be carried out are refused before the process is touched.
#[test]
fn expressions_and_paths_of_summaries_are_checked_first() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = lab.run("/lab/vadd").arg(1_000_000).arg(3000).spawn()?;
    target.expect("iter 2")?;
    let pid = target.pid().to_string();
    for (words, code, said) in [
        (&["--summary-groups", "HIP_(API"][..], 2, "HIP_(API"),
        (&["--summary-output-file", "a/b"], 2, "a/b"),
        (
            &["--perfetto-backend", "system"],
            34,
            "--perfetto-backend system",
        ),
    ] {
        let mut command = midair_tests::stage::command("rocprofv3")?;
        command.args([
            "--pid",
            &pid,
            "--kernel-trace",
            "--attach-duration-msec",
            "50",
        ]);
        let dir = tempfile::tempdir()?;
        command.arg("-d").arg(dir.path()).args(words);
        let exit = run(command, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(code), "{exit}");
        assert!(exit.stderr.join("\n").contains(said), "{exit}");
        assert!(std::fs::read_dir(dir.path())?.next().is_none(), "{exit}");
    }
    Ok(())
}
