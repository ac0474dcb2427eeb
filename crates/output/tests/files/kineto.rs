//! Kineto's format, read by HolisticTraceAnalysis. Its figures must be those of the same session's
//! rocpd file, from which `tests/python/hta_check.py` computes them separately.

use crate::common::{entries, golden_json, list, names, trace};
use crate::recordings::recorded;
use crate::rocpd_rows::plan;
use midair_output::{Format, Names, Trace, write, write_together};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns what HolisticTraceAnalysis and rocpd say about these pairs of files, by rank. Fails
/// where the two differ.
fn analysed(pairs: &[(PathBuf, PathBuf)]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/python/hta_check.py");
    let mut command = Command::new(midair_tests::python().unwrap());
    command.arg("-B").arg(script);
    for (kineto, rocpd) in pairs {
        command.arg(kineto).arg(rocpd);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Writes both files of a session, in a directory of its own.
fn pair(trace: &Trace, names: &Names, directory: &Path) -> (PathBuf, PathBuf) {
    let plan = plan(directory, &[Format::Kineto, Format::Rocpd]);
    write(trace, names, &plan).unwrap();
    assert_eq!(
        entries(directory),
        ["r_results.db", "r_results.pt.trace.json"]
    );
    let at = |name: &str| directory.join(name);
    (at("r_results.pt.trace.json"), at("r_results.db"))
}

#[test]
fn hip_is_read_by_holistic_trace_analysis() {
    let directory = tempfile::tempdir().unwrap();
    let golden = golden_json();
    let names = names(&golden);
    let pair = pair(&trace(&golden, &names), &names, directory.path());
    let said = analysed(&[pair]);
    assert!(said["0"]["kernels"].as_u64() > Some(0), "{said}");
}

#[test]
fn cuda_is_read_by_holistic_trace_analysis() {
    let directory = tempfile::tempdir().unwrap();
    let pair = pair(&recorded("cuda"), &Names::amd(), directory.path());
    let said = analysed(&[pair]);
    assert!(said["0"]["kernels"].as_u64() > Some(0), "{said}");
    assert!(said["0"]["launches"].as_u64() > Some(0), "{said}");
}

/// Each rank that a launcher set has its own file. The rank can be found without reading the whole
/// file.
#[test]
fn several_ranks_are_read_by_holistic_trace_analysis() {
    let directory = tempfile::tempdir().unwrap();
    let names = Names::amd();
    let mut parts = [recorded("hip"), recorded("hip")];
    for (rank, part) in [3, 1].into_iter().zip(&mut parts) {
        part.process.place.rank = Some(rank);
        part.process.pid += rank as u32;
    }
    let together = directory.path().join("together");
    let both = plan(&together, &[Format::Kineto]);
    write_together(&parts, &names, &both).unwrap();
    let files = ["r_rank1.pt.trace.json", "r_rank3.pt.trace.json"];
    assert_eq!(entries(&together), files);
    let mut pairs = Vec::new();
    for (rank, part) in [3, 1].into_iter().zip(&parts) {
        let alone = directory.path().join(rank.to_string());
        write(part, &names, &plan(&alone, &[Format::Rocpd])).unwrap();
        let kineto = together.join(format!("r_rank{rank}.pt.trace.json"));
        pairs.push((kineto, alone.join("r_results.db")));
    }
    let said = analysed(&pairs);
    assert_eq!(said.as_object().unwrap().len(), 2, "{said}");
    for rank in ["1", "3"] {
        assert!(said[rank]["kernels"].as_u64() > Some(0), "{said}");
        assert!(said[rank]["queue_steps"].as_u64() > Some(0), "{said}");
    }
}

/// Whatever a target writes must become valid JSON, and slices on the rows of streams must not
/// cross.
#[test]
fn odd_records_are_json_all_the_same() {
    for name in ["odd", "cuda_odd", "domains", "cuda_domains"] {
        let directory = tempfile::tempdir().unwrap();
        let trace = recorded(name);
        let plan = plan(directory.path(), &[Format::Kineto]);
        write(&trace, &Names::amd(), &plan).unwrap();
        let file = directory.path().join("r_results.pt.trace.json");
        let read: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let events = list(&read["traceEvents"]);
        let index = trace.records.index();
        let of = |category: &str| {
            let all = events.iter();
            all.filter(|event| event["cat"] == category).count() as u64
        };
        assert_eq!(of("kernel"), index.dispatches, "{name}");
        assert_eq!(of("gpu_memcpy"), index.copy_count, "{name}");
    }
}
