//! Perfetto traces, and Kineto's, in the real Perfetto UI, in headless Chromium and without a network
//! (`tests/python/perfetto_ui.py`). The trace processor in the page must have no error to tell, and
//! its slices must have the names and times of the same session's csv files. A picture of each page
//! is kept below the target directory.

use crate::common::{golden_json, list, names, text, trace};
use crate::cuda::rows;
use crate::rocpd_rows::plan;
use midair_output::{Format, Trace, write_together};
use midair_tests::chromium;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const SLICES: &str = "SELECT name, ts, ts + dur FROM slice WHERE category = ? ORDER BY ts, name";

/// The rows on which a category's slices are: process, its number, and the row's name.
const ROWS: &str = "SELECT DISTINCT process.name, process.pid, thread.name FROM slice \
    JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid) \
    JOIN process USING (upid) WHERE category = ? ORDER BY 2, 3";

fn with(query: &str, category: &str) -> String {
    query.replace('?', &format!("'{category}'"))
}

/// Writes the sessions as one trace and as csv, and returns what the UI found there, unless there
/// is no browser.
fn looked_at(picture: &str, parts: &[Trace], directory: &Path) -> Option<Value> {
    let names = names(&golden_json());
    let plan = plan(directory, &[Format::Pftrace, Format::Csv]);
    write_together(parts, &names, &plan).unwrap();
    let trace = directory.join("r_results.pftrace");
    let queries = ["kernel_dispatch", "memory_copy", "hip_api"].map(|of| with(SLICES, of));
    opened(picture, &trace, &queries)
}

/// Returns what the UI answers, unless there is no browser.
fn opened(picture: &str, trace: &Path, queries: &[String]) -> Option<Value> {
    let browser = chromium().unwrap()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/python/perfetto_ui.py");
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("perfetto");
    fs::create_dir_all(&pictures).unwrap();
    let picture = pictures.join(picture);
    let output = Command::new(midair_tests::python().unwrap())
        .arg(script)
        .arg(browser)
        .arg(trace)
        .arg(&picture)
        .args(queries)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let bytes = fs::read(&picture).unwrap();
    assert!(
        bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000,
        "{}",
        bytes.len()
    );
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Returns name, start and end of the rows of a table, as the UI answers.
fn of_csv(directory: &Path, table: &str, name: &str) -> Vec<Value> {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let mut all: Vec<(u64, String, u64)> = rows(directory, table)
        .iter()
        .map(|row| {
            let times = ["Start_Timestamp", "End_Timestamp"].map(|key| number(&row[key]));
            (times[0], row[name].clone(), times[1])
        })
        .collect();
    all.sort();
    all.iter()
        .map(|(start, name, end)| json!([name, start, end]))
        .collect()
}

fn compared(found: &Value, directory: &Path) {
    assert_eq!(found["stats"], json!([]));
    let tables = [
        ("kernel_trace", "Kernel_Name"),
        ("memory_copy_trace", "Direction"),
        ("hip_api_trace", "Function"),
    ];
    for ((table, name), answer) in tables.iter().zip(list(&found["answers"])) {
        let wanted = of_csv(directory, table, name);
        assert!(wanted.len() >= 9, "{table}");
        assert_eq!(*list(answer), wanted, "{table}");
    }
}

#[test]
fn the_ui_shows_a_trace_and_complains_of_nothing() {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let parts = [trace(&golden, &names(&golden))];
    let Some(found) = looked_at("one.png", &parts, directory.path()) else {
        return;
    };
    compared(&found, directory.path());
    let tracks: Vec<String> = list(&found["names"]).iter().map(text).collect();
    for wanted in [
        "STREAM [\" 1 \"] Agent [1] GPU",
        "COPY GB/s to Agent [1] (GPU)",
    ] {
        assert!(tracks.contains(&wanted.to_owned()), "{tracks:?}");
    }
    let shown = text(&found["shown"]);
    assert!(shown.contains("vadd 2371"), "{shown}");
}

/// Of several processes in one trace, a later one started before an earlier one.
#[test]
fn the_ui_complains_of_nothing_in_a_merged_trace() {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let part = |pid: u32, before: u64| {
        let mut part = trace(&golden, &names(&golden));
        part.process.pid = pid;
        part.process.init_time -= before;
        part
    };
    let parts = [part(41, 0), part(42, 1_000_000)];
    let Some(found) = looked_at("merged.png", &parts, directory.path()) else {
        return;
    };
    compared(&found, directory.path());
    let shown = text(&found["shown"]);
    assert!(
        shown.contains("vadd 41") && shown.contains("vadd 42"),
        "{shown}"
    );
}

/// A Kineto file has a process for each GPU there, with the kernels and copies on its streams' rows.
#[test]
fn the_ui_shows_kineto_s_rows_of_gpus() {
    let golden = golden_json();
    let names = names(&golden);
    let directory = tempfile::tempdir().unwrap();
    let parts = [trace(&golden, &names)];
    let plan = plan(directory.path(), &[Format::Kineto, Format::Csv]);
    write_together(&parts, &names, &plan).unwrap();
    let file = directory.path().join("r_results.pt.trace.json");
    let queries = [
        with(SLICES, "kernel"),
        with(SLICES, "gpu_memcpy"),
        with(SLICES, "cuda_runtime"),
        with(ROWS, "kernel"),
        with(ROWS, "gpu_memcpy"),
        with(ROWS, "cuda_runtime"),
    ];
    let Some(found) = opened("kineto.png", &file, &queries) else {
        return;
    };
    assert_eq!(found["stats"], json!([]));
    let answers = list(&found["answers"]);
    let wanted = |table: &str, name: &str| of_csv(directory.path(), table, name);
    assert_eq!(answers[0], json!(wanted("kernel_trace", "Kernel_Name")));
    // Copies have Kineto's names.
    let times =
        |rows: &[Value]| -> Vec<Value> { rows.iter().map(|row| json!([row[1], row[2]])).collect() };
    let copies = wanted("memory_copy_trace", "Direction");
    assert!(copies.len() >= 9 && list(&answers[0]).len() >= 9, "{found}");
    assert_eq!(times(list(&answers[1])), times(&copies));
    assert_eq!(answers[2], json!(wanted("hip_api_trace", "Function")));
    let pid = parts[0].process.pid;
    // The first GPU is the process 0.
    let streams = json!([["vadd", 0, "stream 1"], ["vadd", 0, "stream 2"]]);
    assert_eq!(answers[3], streams);
    assert_eq!(answers[4], streams);
    assert_eq!(answers[5], json!([["vadd", pid, format!("thread {pid}")]]));
    let shown = text(&found["shown"]);
    let program = format!("vadd {pid}");
    assert!(
        shown.contains("vadd 0") && shown.contains(&program),
        "{shown}"
    );
}
