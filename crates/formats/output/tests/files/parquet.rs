//! Parquet, read by DuckDB. Row by row it must have what csv has
//! (`tests/python/duckdb_parquet.py`).

use crate::common::{append, entries, golden_json, trace_of, writer};
use crate::counter_batches::batch;
use crate::counters::amds;
use crate::events::{EXPECTED, some_events};
use crate::graphs::{expected, some_launches};
use crate::readings::readings;
use crate::recordings::recorded;
use crate::rocpd_rows::{header, one_kernel, plan, put_marker};
use midair_output::{Format, Names, RecordWriter, Trace, write, write_together};
use midair_record::event::{self, Kernel, Marker, kind};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Returns what DuckDB finds below a directory, if it agrees with the csv files in another.
fn compared(tables: &Path, csv: &Path) -> Value {
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/python/duckdb_parquet.py");
    let output = Command::new(midair_tests::python().unwrap())
        .arg("-B")
        .arg(&script)
        .args([tables, csv])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Writes both formats of a session, and returns what DuckDB finds if they are equal.
fn read(trace: &Trace) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for (name, format) in [("tables", Format::Parquet), ("csv", Format::Csv)] {
        write(trace, &Names::amd(), &plan(&at(name), &[format])).unwrap();
    }
    compared(&at("tables"), &at("csv"))
}

#[test]
fn every_row_of_csv_is_in_a_table() {
    for (name, kinds) in [
        ("hip", &["kernels", "memory_copies", "calls"][..]),
        ("memories", &["memory_allocations"]),
        (
            "domains",
            &["markers", "scratch_memory", "memory_allocations"],
        ),
        (
            "cuda",
            &["kernels", "memory_copies", "calls", "synchronizations"],
        ),
        (
            "cuda_domains",
            &["memory_sets", "synchronizations", "unified_memory"],
        ),
        ("odd", &["kernels"]),
        ("cuda_odd", &["kernels"]),
    ] {
        let said = read(&recorded(name));
        for kind in kinds {
            let rows = said["rows"][kind].as_u64();
            assert!(rows > Some(0), "{name} {kind}: {said}");
        }
        assert!(!said["metadata"]["midair.pid"].as_str().unwrap().is_empty());
    }
}

#[test]
fn counters_are_rows() {
    let said = read(&amds(|place, _| place as u64));
    assert!(said["rows"]["counters"].as_u64() > Some(0), "{said}");
    let said = read(&readings());
    assert!(said["rows"]["device_counters"].as_u64() > Some(0), "{said}");
    let said = read(&batch(|_| ()));
    assert!(said["rows"]["counter_batches"].as_u64() > Some(0), "{said}");
}

#[test]
fn launches_of_graphs_are_rows() {
    let said = read(&some_launches());
    let expected: Vec<Value> = expected()
        .into_iter()
        .map(|(graph, kernels, start, end, queue, remark)| {
            let queue = (queue > 0).then_some(queue);
            let remark = (!remark.is_empty()).then_some(remark);
            json!([graph, kernels, start, end, queue, remark])
        })
        .collect();
    assert_eq!(said["launches"], Value::Array(expected));
}

#[test]
fn events_of_hip_are_rows() {
    let said = read(&some_events());
    let expected: Vec<Value> = EXPECTED
        .into_iter()
        .map(|[operation, event, start, end, queue, source]| {
            let name = ["HIP_EVENT_NONE", "HIP_EVENT_RECORD", "HIP_EVENT_WAIT"];
            let source = (source > 0).then_some(source);
            let has_remark = (300..500).contains(&start);
            json!([
                name[operation as usize],
                event,
                start,
                end,
                queue,
                source,
                has_remark
            ])
        })
        .collect();
    assert_eq!(said["events"], Value::Array(expected));
}

/// Each file must say what was lost.
#[test]
fn the_metadata_tells_of_losses() {
    let said = read(&recorded("odd"));
    let lost = said["metadata"]["midair.lost"].as_str().unwrap();
    let lost: Value = serde_json::from_str(lost).unwrap();
    let counts = lost.as_object().unwrap().values();
    assert!(counts.filter_map(Value::as_u64).sum::<u64>() > 0, "{said}");
}

/// Processes of several ranks are one table, and a second recording of a process is next to the
/// first one.
#[test]
fn ranks_are_parts_of_one_table() {
    let directory = tempfile::tempdir().unwrap();
    let names = Names::amd();
    let mut parts = [recorded("hip"), recorded("hip")];
    for (rank, part) in [3, 1].into_iter().zip(&mut parts) {
        part.process.place.rank = Some(rank);
        part.process.place.run = Some("job 7".to_owned());
        part.process.pid += rank as u32;
    }
    let at = |name: &str| directory.path().join(name);
    let tables = plan(&at("tables"), &[Format::Parquet]);
    let files = write_together(&parts, &names, &tables).unwrap();
    write_together(&parts, &names, &plan(&at("csv"), &[Format::Csv])).unwrap();
    let said = compared(&at("tables"), &at("csv"));
    let wanted = json!([["job 7", "host", 1], ["job 7", "host", 3]]);
    assert_eq!(said["parts"], wanted);
    let wanted = at("tables/run=job%207/host=host/rank=3/kind=kernels");
    assert_eq!(entries(&wanted), ["21160-900.parquet"]);
    parts[0].process.init_time += 1;
    assert_eq!(
        write(&parts[0], &names, &tables).unwrap().len() * 2,
        files.len()
    );
    assert_eq!(entries(&wanted), ["21160-900.parquet", "21160-901.parquet"]);
}

/// The queries in the book must find something.
#[test]
fn the_book_has_queries_that_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut parts = [recorded("hip"), recorded("hip"), recorded("hip")];
    for (rank, part) in (0..).zip(&mut parts) {
        part.process.place.rank = Some(rank);
        part.process.pid += rank as u32;
    }
    let tables = plan(&directory.path().join("ranks"), &[Format::Parquet]);
    write_together(&parts, &Names::amd(), &tables).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let output = Command::new(midair_tests::python().unwrap())
        .arg("-B")
        .args(["tests/python/duckdb_page.py", "docs/many-ranks.md"].map(|file| root.join(file)))
        .current_dir(directory.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let rows: Vec<u64> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), 5);
    assert!(rows.iter().all(|rows| *rows > 0), "{rows:?}");
    assert_eq!(rows[1], 3);
}

/// Each of a thousand ranks writes by itself, and the book's queries read them all as one table.
#[test]
fn a_thousand_ranks_are_one_table() {
    const RANKS: u64 = 1000;
    let directory = tempfile::tempdir().unwrap();
    let tables = plan(&directory.path().join("ranks"), &[Format::Parquet]);
    let mut part = recorded("hip");
    for rank in 0..RANKS {
        part.process.place.rank = Some(rank as _);
        part.process.pid += 1;
        write(&part, &Names::amd(), &tables).unwrap();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut page = std::fs::read_to_string(root.join("docs/many-ranks.md")).unwrap();
    page.push_str("\n```sql\nSELECT DISTINCT rank FROM read_parquet('ranks/**/kind=kernels/*.parquet', hive_partitioning = true)\n```\n");
    let with_one_more = directory.path().join("page.md");
    std::fs::write(&with_one_more, page).unwrap();
    let output = Command::new(midair_tests::python().unwrap())
        .arg("-B")
        .arg(root.join("tests/python/duckdb_page.py"))
        .arg(with_one_more)
        .current_dir(directory.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let rows: Vec<u64> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows.len(), 6);
    // A query that lists ranks shows the 20 that stand out.
    assert_eq!((rows[1], rows[5]), (20, RANKS), "{rows:?}");
}

/// There are more rows than a group has, and texts that fill a group by themselves.
#[test]
fn rows_are_written_as_groups_fill() {
    let mut records: RecordWriter = writer();
    let kernel = one_kernel();
    for number in 0..130_000 {
        let kernel = Kernel {
            dispatch_id: number,
            start: 1_000 + number,
            end: 1_007 + number,
            ..kernel
        };
        append(&mut records, &event::encode(&kernel, &[]));
    }
    for number in 0..5_000 {
        let marker = Marker {
            header: header(kind::MARKER_CORE_RANGE_API, 0),
            start: number,
            end: number,
            ..Marker::default()
        };
        let message = format!("{number} {}", "x".repeat(3_000));
        put_marker(&mut records, marker, message.as_bytes());
    }
    let trace = trace_of(records, &golden_json());
    let said = read(&trace);
    assert_eq!(said["rows"]["kernels"], 130_000);
    assert_eq!(said["rows"]["markers"], 5_000);
}

#[test]
fn odd_places_are_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("run=__HIVE_DEFAULT_PARTITION__"), "").unwrap();
    let plan = plan(directory.path(), &[Format::Parquet]);
    let said = write(&recorded("hip"), &Names::amd(), &plan).unwrap_err();
    let said = said.to_string();
    assert!(said.starts_with("cannot write to the directory"), "{said}");
}
