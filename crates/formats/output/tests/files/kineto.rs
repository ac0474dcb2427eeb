//! Kineto's format, read by HolisticTraceAnalysis and by TensorBoard's plug-in. Their figures must
//! equal the figures of the same session's rocpd file, from which `tests/python/hta_check.py` and
//! `tensorboard_check.py` compute them separately.

use crate::common::{
    agents, append, append_session, copy, entries, golden_json, kernel, list, names, number, trace,
    trace_of, writer,
};
use crate::cuda::rows;
use crate::recordings::recorded;
use crate::rocpd_rows::{header, plan, put_marker};
use midair_output::{Format, Names, Trace, write, write_together};
use midair_record::event::{self, Copy, Kernel, KernelSymbol, Marker, kind};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns what a script of `tests/python` and rocpd say about these pairs of files, by rank. Fails
/// where the two differ.
fn compared(script: &str, pairs: &[(PathBuf, PathBuf)]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../tests/python")
        .join(script);
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

fn analysed(pairs: &[(PathBuf, PathBuf)]) -> Value {
    compared("hta_check.py", pairs)
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

/// Returns the golden session, with collectives and kernels alongside them after its end.
fn collectives() -> (Trace, Names) {
    let golden = golden_json();
    let names = names(&golden);
    let mut writer = writer();
    append_session(&mut writer, &golden, &names);
    let [all, gemm] = [90, 91];
    for (kernel_id, name) in [
        (
            all,
            &b"_Z21ncclDevKernel_Generic24ncclDevKernelArgsStorageILm4096EE.kd"[..],
        ),
        (gemm, b"_Z4gemmPKfS0_Pf.kd"),
    ] {
        let symbol = KernelSymbol {
            header: header(kind::KERNEL_SYMBOL, 0),
            kernel_id,
            name_len: name.len() as u32,
            ..KernelSymbol::default()
        };
        append(&mut writer, &event::encode(&symbol, name));
    }
    let records = &golden["buffer_records"];
    let first = kernel(&agents(), &list(&records["kernel_dispatch"])[0]);
    let from = number(&golden["metadata"]["fini_time"]) - 500_000;
    let place = |stream: u64, (start, end): (u64, u64)| Kernel {
        start: from + start,
        end: from + end,
        stream: stream * 0x1_0000,
        correlation: 0,
        ..first
    };
    for (number, (kernel_id, stream, times)) in (1000..).zip([
        // 50,000 ns of this collective are overlapped.
        (gemm, 1, (1, 100_000)),
        (all, 2, (50_000, 150_000)),
        // This kernel starts as it ends.
        (gemm, 1, (150_000, 200_000)),
        // Of this one 20,000 and 60,001, by two kernels that overlap one another.
        (all, 2, (180_000, 260_000)),
        (gemm, 1, (210_000, 250_001)),
        (gemm, 3, (190_000, 230_000)),
        // Of these two, which are 150,000 together, 10,000. The copy is no computation.
        (all, 2, (300_000, 400_000)),
        (all, 3, (350_000, 450_000)),
        (gemm, 1, (310_000, 320_000)),
    ]) {
        let dispatch = Kernel {
            kernel_id,
            dispatch_id: number,
            ..place(stream, times)
        };
        append(&mut writer, &event::encode(&dispatch, &[]));
    }
    let beside = Copy {
        start: from + 300_000,
        end: from + 330_000,
        correlation: 0,
        ..copy(&agents(), &list(&records["memory_copy"])[0])
    };
    append(&mut writer, &event::encode(&beside, &[]));
    let trace = Trace {
        known: Default::default(),
        agents: agents(),
        ..trace_of(writer, &golden)
    };
    (trace, names)
}

#[test]
fn the_overlap_of_collectives_is_holistic_trace_analysis_s() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, names) = collectives();
    let said = analysed(&[pair(&trace, &names, directory.path())]);
    let overlapped = f64::from(50_000 + 70_001 + 10_000);
    let wanted = 100.0 * overlapped / f64::from(100_000 + 80_000 + 150_000);
    let found = said["0"]["overlap"].as_f64().unwrap();
    assert!((found - wanted).abs() < 1e-9, "{found}, not {wanted}");
}

/// Returns a session whose start and end are around its kernels.
fn around_its_kernels(mut trace: Trace) -> Trace {
    let directory = tempfile::tempdir().unwrap();
    write(
        &trace,
        &Names::amd(),
        &plan(directory.path(), &[Format::Csv]),
    )
    .unwrap();
    let rows = rows(directory.path(), "kernel_trace");
    let times = |key: &'static str| rows.iter().map(move |row| row[key].parse::<u64>().unwrap());
    trace.process.init_time = times("Start_Timestamp").min().unwrap() - 10_000;
    trace.process.fini_time = times("End_Timestamp").max().unwrap() + 10_000;
    trace
}

/// The plug-in shows the recording as one step, with the shares and kernels of rocpd.
#[test]
fn tensorboard_s_plug_in_shows_what_rocpd_has() {
    for (name, (trace, names)) in [
        ("collectives", collectives()),
        ("cuda", (around_its_kernels(recorded("cuda")), Names::amd())),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let said = compared(
            "tensorboard_check.py",
            &[pair(&trace, &names, directory.path())],
        );
        assert!(said["kernels"].as_u64() > Some(1), "{name}: {said}");
        assert!(said["busy"].as_f64() > Some(0.0), "{name}: {said}");
    }
}

/// Where the program has steps of its own, or nothing was recorded for a part of the time, the
/// recording is none.
#[test]
fn steps_of_the_program_are_the_only_ones() {
    for (message, unrecorded_ns, wanted) in [
        ("ProfilerStep#7", 0, &["ProfilerStep#7"][..]),
        ("forward", 0, &["ProfilerStep#0"]),
        ("forward", 1, &[]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let golden = golden_json();
        let names = names(&golden);
        let mut writer = writer();
        let begun = number(&golden["metadata"]["init_time"]);
        let marker = Marker {
            header: header(kind::MARKER_CORE_RANGE_API, 2),
            start: begun + 10,
            end: begun + 20,
            correlation: 1,
            ..Marker::default()
        };
        put_marker(&mut writer, marker, message.as_bytes());
        let mut trace = trace_of(writer, &golden);
        trace.attach.unrecorded_ns = unrecorded_ns;
        let pair = pair(&trace, &names, directory.path());
        let read: Value = serde_json::from_slice(&std::fs::read(pair.0).unwrap()).unwrap();
        let named = list(&read["traceEvents"]).iter();
        let named = named.filter_map(|event| event["name"].as_str());
        let steps: Vec<_> = named
            .filter(|name| name.starts_with("ProfilerStep"))
            .collect();
        assert_eq!(steps, wanted);
    }
}
