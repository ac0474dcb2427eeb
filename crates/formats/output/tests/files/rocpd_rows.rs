//! Rows of every domain, compared with csv and json of the same trace, and rows that a target can
//! invent.

use crate::common::{
    agents, append, golden_json, kernel, list, names, reader, text, trace_of, writer,
};
use midair_output::{Format, Names, Plan, RecordWriter, Trace, write, write_together};
use midair_record::event::{
    self, Allocation, Api, CodeObject, Copy, Header, Kernel, KernelSymbol, KfdEvent, Marker,
    NO_NODE, Scratch, Untimed, flag, kind,
};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

pub fn plan(directory: &Path, formats: &[Format]) -> Plan {
    Plan {
        directory: directory.to_owned(),
        prefix: "r".to_owned(),
        formats: formats.to_vec(),
        ..Plan::default()
    }
}

pub fn header(kind: u8, operation: u32) -> Header {
    Header {
        kind,
        operation,
        ..Header::default()
    }
}

fn some_trace(writer: RecordWriter) -> (Trace, Names) {
    let golden = golden_json();
    let names = names(&golden);
    (trace_of(writer, &golden), names)
}

pub fn one_kernel() -> Kernel {
    let golden = golden_json();
    kernel(
        &agents(),
        &list(&golden["buffer_records"]["kernel_dispatch"])[0],
    )
}

pub fn put_marker(writer: &mut RecordWriter, marker: Marker, message: &[u8]) {
    let marker = Marker {
        len: message.len() as u32,
        ..marker
    };
    append(writer, &event::encode(&marker, message));
}

/// Returns a session with something of every domain, including work without times and calls that
/// took no time.
pub fn every_domain() -> RecordWriter {
    let mut writer = writer();
    let call = Api {
        header: header(kind::HSA_CORE_API, 3),
        start: 1_000,
        end: 1_500,
        correlation: 1,
        tid: 7,
        ..Api::default()
    };
    append(&mut writer, &event::encode(&call, &[]));
    let instant = Api {
        header: header(kind::HSA_AMD_EXT_API, 4),
        end: 1_000,
        correlation: 2,
        ancestor: 1,
        ..call
    };
    append(&mut writer, &event::encode(&instant, &[]));
    let open = Api {
        header: Header {
            flags: flag::OPEN_AT_DETACH,
            ..header(kind::HIP_RUNTIME_API_EXT, 5)
        },
        correlation: 3,
        tid: 8,
        stream: 0xbeef,
        ..call
    };
    append(&mut writer, &event::encode(&open, &[]));

    let mark = Marker {
        header: header(kind::MARKER_CORE_RANGE_API, 0),
        start: 2_000,
        end: 2_000,
        correlation: 4,
        ancestor: 1,
        tid: 7,
        ..Marker::default()
    };
    put_marker(&mut writer, mark, b"it's; \"here\"\n");
    let range = Marker {
        header: header(kind::MARKER_CORE_RANGE_API, 1),
        end: 2_500,
        correlation: 5,
        ..mark
    };
    put_marker(&mut writer, range, b"a range");
    let pause = Marker {
        header: header(kind::MARKER_CONTROL_API, 0),
        end: 2_100,
        correlation: 6,
        ..mark
    };
    put_marker(&mut writer, pause, b"");

    let timed = one_kernel();
    append(&mut writer, &event::encode(&timed, &[]));
    let untimed = Kernel {
        header: Header {
            flags: flag::UNTIMED,
            ..timed.header
        },
        dispatch_id: 2,
        correlation: 7,
        start: 0,
        end: 0,
        untimed: Untimed::SignalReused as u32,
        ..timed
    };
    append(&mut writer, &event::encode(&untimed, &[]));
    let copy = Copy {
        header: header(kind::MEMORY_COPY, 2),
        start: timed.start + 100,
        end: timed.start + 200,
        bytes: 4096,
        dst: 0x7000,
        src: 0x5000,
        dst_node: 1,
        tid: 9,
        correlation: 8,
        ..Copy::default()
    };
    append(&mut writer, &event::encode(&copy, &[]));
    let untimed = Copy {
        header: Header {
            flags: flag::UNTIMED | flag::OPEN_AT_DETACH,
            ..copy.header
        },
        start: 0,
        end: 0,
        untimed: Untimed::RunningAtDetach as u32,
        ..copy
    };
    append(&mut writer, &event::encode(&untimed, &[]));

    for operation in 1..=4 {
        let releases = operation > 2;
        let allocation = Allocation {
            header: header(kind::MEMORY_ALLOCATION, operation),
            start: 3_000 + u64::from(operation),
            end: 3_100,
            correlation: 10 + u64::from(operation),
            ancestor: 1,
            address: 0xffff_8000_0000_1000,
            bytes: if releases { 0 } else { 4096 },
            node: if releases { NO_NODE } else { 1 },
            tid: 7,
            ..Allocation::default()
        };
        append(&mut writer, &event::encode(&allocation, &[]));
    }
    for operation in 1..=3 {
        let scratch = Scratch {
            header: header(kind::SCRATCH_MEMORY, operation),
            start: 4_000 + u64::from(operation),
            end: 4_100,
            correlation: 20 + u64::from(operation),
            bytes: 65536,
            queue_id: 3,
            node: 1,
            tid: 7,
            flags: 2,
            ..Scratch::default()
        };
        append(&mut writer, &event::encode(&scratch, &[]));
    }
    writer
}

/// Returns the number of rows of a csv file, that is, of its lines without the first, or 0 where
/// there is no file.
fn csv_rows(directory: &Path, name: &str) -> usize {
    match fs::read_to_string(directory.join(format!("r_{name}_trace.csv"))) {
        Ok(text) => text.lines().count() - 1,
        Err(_) => 0,
    }
}

/// Returns the counts of each domain, by format.
pub fn counts(directory: &Path) -> [[usize; 7]; 3] {
    let csv = [
        "hip_api",
        "hsa_api",
        "marker_api",
        "kernel",
        "memory_copy",
        "memory_allocation",
        "scratch_memory",
    ]
    .map(|name| csv_rows(directory, name));
    let bytes = fs::read(directory.join("r_results.json")).unwrap();
    let mut json: Value = serde_json::from_slice(&bytes).unwrap();
    let records = json["rocprofiler-sdk-tool"][0]["buffer_records"].take();
    let json = [
        "hip_api",
        "hsa_api",
        "marker_api",
        "kernel_dispatch",
        "memory_copy",
        "memory_allocation",
        "scratch_memory",
    ]
    .map(|name| list(&records[name]).len());
    let file = reader(
        &directory.join("r_results.db"),
        &[
            "SELECT COUNT(*) AS n FROM regions_and_samples WHERE category LIKE 'HIP_%'",
            "SELECT COUNT(*) AS n FROM regions_and_samples WHERE category LIKE 'HSA_%'",
            "SELECT COUNT(*) AS n FROM regions_and_samples WHERE category LIKE 'MARKER_%'",
            "SELECT COUNT(*) AS n FROM kernels",
            "SELECT COUNT(*) AS n FROM memory_copies",
            "SELECT COUNT(*) AS n FROM memory_allocations WHERE category = 'MEMORY_ALLOCATION'",
            "SELECT COUNT(*) AS n FROM scratch_memory",
        ],
    );
    assert_eq!(
        (&file["integrity"], &file["foreign_keys"]),
        (&json!([["ok"]]), &json!([]))
    );
    // Every row of a table must be in the table's view.
    let (tables, views) = (&file["tables"], &file["views"]);
    for (table, view) in [
        ("rocpd_region", "regions"),
        ("rocpd_sample", "samples"),
        ("rocpd_kernel_dispatch", "kernels"),
        ("rocpd_memory_copy", "memory_copies"),
        ("rocpd_memory_allocate", "memory_allocations"),
        ("rocpd_info_thread", "threads"),
        ("rocpd_arg", "events_args"),
    ] {
        assert_eq!(tables[table]["count"], views[view]["count"], "{view}");
    }
    let mut rocpd = [0; 7];
    for (count, answer) in rocpd.iter_mut().zip(list(&file["answers"])) {
        *count = answer[0]["n"].as_u64().unwrap() as usize;
    }
    [csv, json, rocpd]
}

pub const ALL: [Format; 3] = [Format::Csv, Format::Json, Format::Rocpd];

#[test]
fn every_domain_has_as_many_rows_as_csv_and_json() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, names) = some_trace(every_domain());
    write(&trace, &names, &plan(directory.path(), &ALL)).unwrap();
    assert_eq!(counts(directory.path()), [[1, 2, 3, 2, 2, 4, 3]; 3]);
}

#[test]
fn rows_say_what_happened() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, names) = some_trace(every_domain());
    write(&trace, &names, &plan(directory.path(), &[Format::Rocpd])).unwrap();
    let file = reader(
        &directory.path().join("r_results.db"),
        &[
            "SELECT id, category, name, tid, timestamp, stack_id, parent_stack_id, extdata FROM samples ORDER BY id",
            "SELECT extdata FROM rocpd_sample ORDER BY id",
            "SELECT id, category, name, tid, start, \"end\", stack_id, parent_stack_id, extdata FROM regions ORDER BY id",
            "SELECT id, extdata FROM rocpd_region WHERE extdata != '{}'",
            "SELECT dispatch_id, start, \"end\", duration, region, queue, stack_id, parent_stack_id FROM kernels ORDER BY id",
            "SELECT extdata FROM rocpd_kernel_dispatch ORDER BY id",
            "SELECT type, level, agent_abs_index, address, size, stack_id, parent_stack_id FROM memory_allocations ORDER BY id",
            "SELECT operation, agent_type, queue_id, tid, alloc_flags, size, stack_id, category FROM scratch_memory",
            "SELECT GpuTime, WallTime FROM busy WHERE agent_id = 1",
            "SELECT total_calls, average FROM top_kernels",
            "SELECT value FROM rocpd_metadata WHERE tag = 'midair_untimed'",
            "SELECT name, size, dst_agent_type, src_agent_type, dst_address, src_address FROM memory_copies WHERE start > 0",
            "SELECT extdata FROM rocpd_memory_copy WHERE start = 0",
        ],
    );
    let answer = |n: usize| list(&file["answers"][n]);
    let message = json!({ "message": "it's; \"here\"\n" }).to_string();
    let names = &names;
    let name = |kind, operation| names.operation(kind, operation).into_owned();
    assert_eq!(
        answer(0),
        [
            json!({"id": 2, "category": "HSA_AMD_EXT_API", "name": "HSA_AMD_EXT_API", "tid": 7, "timestamp": 1000,
                "stack_id": 2, "parent_stack_id": 1, "extdata": "{}"}),
            json!({"id": 4, "category": "MARKER_CORE_RANGE_API", "name": "MARKER_CORE_RANGE_API", "tid": 7,
                "timestamp": 2000, "stack_id": 4, "parent_stack_id": 1, "extdata": message}),
        ]
    );
    assert_eq!(
        answer(1),
        [
            json!({"extdata": json!({"name": name(kind::HSA_AMD_EXT_API, 4)}).to_string()}),
            json!({"extdata": json!({"name": name(kind::MARKER_CORE_RANGE_API, 0)}).to_string()}),
        ]
    );
    let region = |n: usize| &answer(2)[n];
    assert_eq!(answer(2).len(), 4);
    assert_eq!(
        *region(2),
        json!({"id": 5, "category": "MARKER_CORE_RANGE_API", "name": "a range", "tid": 7,
            "start": 2000, "end": 2500, "stack_id": 5, "parent_stack_id": 1, "extdata": "{\"message\":\"a range\"}"})
    );
    assert_eq!(region(3)["name"], name(kind::MARKER_CONTROL_API, 0));
    assert_eq!(region(3)["extdata"], "{}");
    assert_eq!(
        answer(3),
        [json!({"id": 3, "extdata": "{\"open_at_detach\":true}"})]
    );

    let timed = one_kernel();
    let duration = timed.end - timed.start;
    assert_eq!(answer(4)[0]["duration"], duration);
    assert_eq!(
        answer(4)[1],
        json!({"dispatch_id": 2, "start": 0, "end": 0, "duration": 0, "region": "", "queue": "Queue 0",
            "stack_id": 7, "parent_stack_id": 7})
    );
    let reason = |row: &Value| -> Value { serde_json::from_str(&text(&row["extdata"])).unwrap() };
    assert_eq!(answer(5)[0]["extdata"], "{}");
    assert_eq!(
        reason(&answer(5)[1]),
        json!({"untimed": Untimed::SignalReused.text(), "open_at_detach": false})
    );
    assert_eq!(
        reason(&answer(12)[0]),
        json!({"untimed": Untimed::RunningAtDetach.text(), "open_at_detach": true})
    );
    // Work without times must not affect averages, and time must not start at 0 for it.
    assert_eq!(
        answer(8)[0],
        json!({"GpuTime": duration + 100, "WallTime": duration})
    );
    assert_eq!(
        answer(9)[0],
        json!({"total_calls": 2, "average": duration as f64 / 1000.0})
    );
    let untimed: Value = serde_json::from_str(&text(&answer(10)[0]["value"])).unwrap();
    assert_eq!(
        untimed,
        json!({Untimed::SignalReused.text(): 1, Untimed::RunningAtDetach.text(): 1})
    );
    assert_eq!(
        answer(11)[0],
        json!({"name": "MEMORY_COPY_HOST_TO_DEVICE", "size": 4096, "dst_agent_type": "GPU", "src_agent_type": "CPU",
            "dst_address": 0x7000, "src_address": 0x5000})
    );

    let address = 0xffff_8000_0000_1000_u64.cast_signed();
    let allocations: Vec<_> = [
        ("ALLOC", "REAL", json!(1), json!(address), 4096, 11, 1),
        ("ALLOC", "VIRTUAL", json!(1), json!(address), 4096, 12, 1),
        ("FREE", "REAL", Value::Null, json!(address), 0, 13, 1),
        ("FREE", "VIRTUAL", Value::Null, json!(address), 0, 14, 1),
        ("ALLOC", "SCRATCH", json!(1), Value::Null, 65536, 21, 0),
        ("FREE", "SCRATCH", json!(1), Value::Null, 65536, 22, 0),
        ("RECLAIM", "SCRATCH", json!(1), Value::Null, 65536, 23, 0),
    ]
    .map(|(what, level, agent, address, size, stack, parent)| {
        json!({"type": what, "level": level, "agent_abs_index": agent, "address": address, "size": size,
            "stack_id": stack, "parent_stack_id": parent})
    })
    .into();
    assert_eq!(answer(6), allocations);
    assert_eq!(
        answer(7)[2],
        json!({"operation": "RECLAIM", "agent_type": "GPU", "queue_id": 3, "tid": 7, "alloc_flags": 2, "size": 65536,
            "stack_id": 23, "category": "SCRATCH_MEMORY"})
    );
}

/// Texts that could end a statement, a string or a line, and bytes that are not text.
#[test]
fn texts_of_any_bytes_survive_or_are_made_valid() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer();
    let name = b"k\xff'); DROP TABLE rocpd_string; --\"\n\0z.kd";
    let object = CodeObject {
        header: header(kind::CODE_OBJECT, 0),
        code_object_id: 1,
        node: 1,
        uri_len: name.len() as u32,
        ..CodeObject::default()
    };
    append(&mut writer, &event::encode(&object, name));
    let symbol = KernelSymbol {
        header: header(kind::KERNEL_SYMBOL, 0),
        kernel_id: 5,
        // One without a description.
        code_object_id: 77,
        name_len: name.len() as u32,
        ..KernelSymbol::default()
    };
    append(&mut writer, &event::encode(&symbol, name));
    let marker = Marker {
        header: header(kind::MARKER_CORE_RANGE_API, 2),
        start: 1,
        end: 2,
        correlation: 1,
        ..Marker::default()
    };
    put_marker(&mut writer, marker, name);
    let known = Kernel {
        kernel_id: 5,
        ..one_kernel()
    };
    append(&mut writer, &event::encode(&known, &[]));
    let (mut trace, names) = some_trace(writer);
    trace.process.command = vec!["/bin/it's; \"a\"".into(), "\0".into()];
    trace.notes = vec!["it's; done".into()];
    write(&trace, &names, &plan(directory.path(), &ALL)).unwrap();
    assert_eq!(counts(directory.path()), [[0, 0, 1, 1, 0, 0, 0]; 3]);
    let file = reader(
        &directory.path().join("r_results.db"),
        &[
            "SELECT name, json_extract(extdata, '$.message') AS message FROM regions",
            "SELECT name, code_object_id FROM kernels",
            "SELECT uri FROM code_objects",
            "SELECT command FROM processes",
            "SELECT value FROM rocpd_metadata WHERE tag = 'midair_notes'",
            "SELECT formatted_kernel_name AS name FROM kernel_symbols",
        ],
    );
    let answer = |n: usize| &file["answers"][n];
    let clean = "k\u{fffd}'); DROP TABLE rocpd_string; --\"\n\u{fffd}z";
    let message = format!("{clean}.kd");
    assert_eq!(*answer(0), json!([{"name": message, "message": message}]));
    assert_eq!(*answer(1), json!([{"name": clean, "code_object_id": 77}]));
    assert_eq!(*answer(2), json!([{"uri": format!("{clean}.kd")}]));
    assert_eq!(
        *answer(3),
        json!([{"command": "/bin/it's; \"a\" \u{fffd}"}])
    );
    assert_eq!(*answer(4), json!([{"value": "[\"it's; done\"]"}]));
    assert_eq!(*answer(5), json!([{"name": clean}]));
}

/// Ids that are in use, zero or larger than SQLite's; agents, queues and kernels without a description.
#[test]
fn ids_that_a_target_invents_lose_no_row() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer();
    for correlation in [1, 1, 0, u64::MAX, 1 << 62, i64::MAX as u64, 2] {
        let call = Api {
            header: header(kind::HSA_CORE_API, 999_999),
            start: u64::MAX,
            end: 1,
            correlation,
            ancestor: u64::MAX,
            tid: u32::MAX,
            ..Api::default()
        };
        append(&mut writer, &event::encode(&call, &[]));
        let kernel = Kernel {
            dispatch_id: correlation,
            kernel_id: 1 << 40,
            kernel_object: correlation,
            node: u32::MAX,
            queue_id: u32::MAX,
            stream: 77,
            ..one_kernel()
        };
        append(&mut writer, &event::encode(&kernel, &[]));
    }
    let invented = Copy {
        header: header(kind::MEMORY_COPY, 77),
        dst_node: 12345,
        src_node: 54321,
        ..Copy::default()
    };
    append(&mut writer, &event::encode(&invented, &[]));
    let invented = Allocation {
        header: header(kind::MEMORY_ALLOCATION, 99),
        node: 4711,
        ..Allocation::default()
    };
    append(&mut writer, &event::encode(&invented, &[]));
    let invented = Scratch {
        header: header(kind::SCRATCH_MEMORY, 0),
        bytes: u64::MAX,
        ..Scratch::default()
    };
    append(&mut writer, &event::encode(&invented, &[]));
    let (trace, names) = some_trace(writer);
    write(&trace, &names, &plan(directory.path(), &ALL)).unwrap();
    assert_eq!(counts(directory.path()), [[0, 7, 0, 7, 1, 1, 1]; 3]);
    let file = reader(
        &directory.path().join("r_results.db"),
        &[
            "SELECT DISTINCT name FROM kernels ORDER BY name",
            "SELECT DISTINCT name FROM regions",
            "SELECT stream FROM kernels LIMIT 1",
            "SELECT MIN(id) AS least FROM rocpd_kernel_dispatch",
        ],
    );
    let kernels = list(&file["answers"][0]);
    assert_eq!(kernels.len(), 6, "different kernels stay different");
    assert_eq!(kernels[0]["name"], "unknown_kernel@0x0");
    assert_eq!(
        file["answers"][1],
        json!([{"name": "HSA_CORE_API_OPERATION_999999"}])
    );
    assert_eq!(file["answers"][2], json!([{"stream": "Stream 0"}]));
    // Rows that have no id of their own get free ones from 1.
    assert_eq!(file["answers"][3], json!([{"least": 1}]));
}

/// Bytes are flipped everywhere in good records of all domains. Nothing may panic, and what is kept
/// must be in every format.
#[test]
fn damaged_records_are_written_like_others() {
    let records = every_domain().finish().unwrap();
    let mut good = Vec::new();
    let walked = records.walk(
        |_| true,
        |record| {
            good.push(match record {
                event::Record::Api(fixed, tail) => event::encode(fixed, tail),
                event::Record::Marker(fixed, tail) => event::encode(fixed, tail),
                event::Record::Kernel(fixed, _) => event::encode(fixed, &[]),
                event::Record::Copy(fixed, _) => event::encode(fixed, &[]),
                event::Record::Allocation(fixed) => event::encode(fixed, &[]),
                event::Record::Scratch(fixed) => event::encode(fixed, &[]),
                other => panic!("not in it: {other:?}"),
            });
            Ok::<(), ()>(())
        },
    );
    walked.unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut writer = writer();
    for _ in 0..3000 {
        let mut bytes = good[random() as usize % good.len()].clone();
        for _ in 0..1 + random() % 8 {
            // The header is flipped less often, because most changes there make it no record.
            let first = if random() % 4 == 0 { 0 } else { 8 };
            let at = first + random() as usize % (bytes.len() - first);
            bytes[at] = random() as u8;
        }
        writer.append(&bytes).unwrap();
    }
    assert!(writer.malformed_bytes() > 0 && writer.records() > 1500);
    let (trace, names) = some_trace(writer);
    let directory = tempfile::tempdir().unwrap();
    write(&trace, &names, &plan(directory.path(), &ALL)).unwrap();
    let [csv, json, rocpd] = counts(directory.path());
    assert_eq!((csv, json), (json, rocpd));
    assert!(rocpd.iter().all(|count| *count > 10), "{rocpd:?}");
}

/// The driver reports a start and an end as well. Only what is made of both is a row.
#[test]
fn pairs_of_the_drivers_events_are_rows() {
    let mut writer = writer();
    for (tracing_kind, start) in [(26, 100), (27, 200), (30, 300)] {
        let event = KfdEvent {
            header: header(kind::KFD_PAGE_FAULT, 0),
            start,
            end: start + 10,
            tracing_kind,
            pid: 7,
            ..KfdEvent::default()
        };
        append(&mut writer, &event::encode(&event, &[]));
    }
    let (trace, names) = some_trace(writer);
    let directory = tempfile::tempdir().unwrap();
    write(&trace, &names, &plan(directory.path(), &[Format::Rocpd])).unwrap();
    let file = Connection::open(directory.path().join("r_results.db")).unwrap();
    let mut regions = file
        .prepare("SELECT start FROM rocpd_region ORDER BY start")
        .unwrap();
    let starts = regions.query_map([], |row| row.get(0)).unwrap();
    let starts: Vec<i64> = starts.map(Result::unwrap).collect();
    assert_eq!(starts, [200, 300]);
}

/// Processes that were never attached to look the same, so that their ids have to be made different.
#[test]
fn sessions_that_look_the_same_have_tables_of_their_own() {
    let session = || {
        let (mut trace, _) = some_trace(writer());
        trace.process.init_time = 0;
        trace
    };
    let parts = [session(), session(), session()];
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[Format::Rocpd]);
    write_together(&parts, &Names::amd(), &plan).unwrap();
    let file = Connection::open(directory.path().join("r_results.db")).unwrap();
    let count = |sql: &str| -> i64 { file.query_row(sql, [], |row| row.get(0)).unwrap() };
    let tables = "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name LIKE 'rocpd_info_process_%'";
    let guids = "SELECT COUNT(DISTINCT value) FROM rocpd_metadata WHERE tag = 'guid'";
    assert_eq!((count(tables), count(guids)), (3, 3));
}
