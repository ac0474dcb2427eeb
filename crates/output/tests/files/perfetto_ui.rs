//! Perfetto traces in the real Perfetto UI, in headless Chromium and without a network
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

/// Writes the sessions as one trace and as csv, and returns what the UI found there, unless there
/// is no browser.
fn looked_at(picture: &str, parts: &[Trace], directory: &Path) -> Option<Value> {
    let browser = chromium().unwrap()?;
    let names = names(&golden_json());
    let plan = plan(directory, &[Format::Pftrace, Format::Csv]);
    write_together(parts, &names, &plan).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/python/perfetto_ui.py");
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("perfetto");
    fs::create_dir_all(&pictures).unwrap();
    let picture = pictures.join(picture);
    let slices = |category: &str| SLICES.replace('?', &format!("'{category}'"));
    let output = Command::new(midair_tests::python().unwrap())
        .arg(script)
        .arg(browser)
        .arg(directory.join("r_results.pftrace"))
        .arg(&picture)
        .args(["kernel_dispatch", "memory_copy", "hip_api"].map(slices))
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

/// Returns name, begin and end of the rows of a table, as the UI answers.
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

/// Of several processes in one trace, a later one began before an earlier one.
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
