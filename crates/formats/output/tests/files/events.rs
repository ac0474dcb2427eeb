//! HIP events: which calls are reported, with which times, and in which queue the event was recorded.

use crate::common::{
    agents, append, contains, golden_json, list, number, reader, text, trace_of, writer,
};
use crate::rocpd_rows::{header, plan};
use midair_output::{Format, Names, RecordWriter, Trace, write};
use midair_record::event::{self, Barrier, EventCall, Untimed, flag, hip_event, kind};
use serde_json::Value;

const A: u64 = 0xa000;
const B: u64 = 0xb000;

fn call(
    writer: &mut RecordWriter,
    operation: u32,
    start: u64,
    of: u64,
    change: impl FnOnce(&mut EventCall),
) {
    let mut record = EventCall {
        header: header(kind::HIP_EVENT, operation),
        start,
        end: start + 5,
        correlation: start,
        stream: 0x5000,
        event: of,
        tid: 7,
        ..EventCall::default()
    };
    change(&mut record);
    append(writer, &event::encode(&record, &[]));
}

/// Appends a barrier of the call at this time, which was rung for 2 behind that. Its place in its
/// queue is its start.
fn barrier(writer: &mut RecordWriter, of: u64, start: u64, queue_id: u32, reason: Untimed) {
    let is_timed = reason == Untimed::Timed;
    let record = Barrier {
        header: header(kind::BARRIER, 0),
        start: if is_timed { start } else { 0 },
        end: if is_timed { start + 10 } else { 0 },
        rung: of + 2,
        seen: if reason == Untimed::SignalReused {
            0
        } else {
            start + 20
        },
        correlation: of,
        packet_index: start,
        queue_id,
        node: 1,
        tid: 7,
        untimed: reason as u32,
    };
    append(writer, &event::encode(&record, &[]));
}

pub fn some_events() -> Trace {
    let mut writer = writer();
    let all = &mut writer;
    // A wait whose event was recorded before recording started.
    call(all, hip_event::WAIT, 50, B, |_| ());
    barrier(all, 50, 70, 4, Untimed::Timed);
    // A barrier's record comes before or after its call's; only a call's last one counts.
    barrier(all, 100, 130, 3, Untimed::Timed);
    call(all, hip_event::RECORD, 100, A, |_| ());
    call(all, hip_event::WAIT, 200, A, |_| ());
    barrier(all, 200, 220, 4, Untimed::Timed);
    barrier(all, 200, 210, 6, Untimed::Timed);
    // The same event in another queue, by a device that writes no times.
    call(all, hip_event::RECORD, 300, A, |_| ());
    barrier(all, 300, 330, 5, Untimed::NotProfiled);
    call(all, hip_event::WAIT, 400, A, |_| ());
    barrier(all, 400, 430, 3, Untimed::SignalReused);
    // No barrier, refused, and cut.
    call(all, hip_event::RECORD, 500, A, |_| ());
    call(all, hip_event::WAIT, 510, A, |_| ());
    // It waits for the record above, whose queue is not known.
    call(all, hip_event::WAIT, 520, A, |_| ());
    barrier(all, 520, 530, 3, Untimed::Timed);
    call(all, hip_event::WAIT, 540, A, |_| ());
    call(all, hip_event::RECORD, 600, A, |call| call.result = 400);
    call(all, hip_event::RECORD, 700, B, |call| {
        call.header.flags = flag::CUT
    });
    barrier(all, 700, 730, 3, Untimed::Timed);
    Trace {
        known: Default::default(),
        agents: agents(),
        ..trace_of(writer, &golden_json())
    }
}

/// Operation, event, start, end, queue, queue of the record (0: not known).
pub const EXPECTED: [[u64; 6]; 6] = [
    [2, B, 70, 80, 4, 0],
    [1, A, 130, 140, 3, 3],
    [2, A, 220, 230, 4, 3],
    [1, A, 302, 350, 5, 5],
    [2, A, 400, 405, 3, 5],
    [2, A, 530, 540, 3, 0],
];

#[test]
fn each_event_has_its_barrier_and_the_queue_of_its_record() {
    let directory = tempfile::tempdir().unwrap();
    let trace = some_events();
    let formats = [Format::Rocpd, Format::Json, Format::Pftrace];
    write(&trace, &Names::amd(), &plan(directory.path(), &formats)).unwrap();

    let file = std::fs::read(directory.path().join("r_results.json")).unwrap();
    let document: Value = serde_json::from_slice(&file).unwrap();
    let tool = &document["rocprofiler-sdk-tool"][0];
    let strings = &tool["strings"]["buffer_records"][38];
    assert_eq!(text(&strings["kind"]), "HIP_EVENT");
    let records = list(&tool["buffer_records"]["hip_event"]).iter();
    let mut told: Vec<[u64; 6]> = records
        .map(|record| {
            assert_eq!((number(&record["size"]), number(&record["kind"])), (88, 38));
            assert_eq!(number(&record["thread_id"]), 7);
            assert!(number(&record["agent_id"]["handle"]) > 0);
            assert!(number(&record["stream_id"]["handle"]) > 0);
            assert!(number(&record["correlation_id"]["internal"]) > 0);
            let operation = number(&record["operation"]);
            let name = ["HIP_EVENT_NONE", "HIP_EVENT_RECORD", "HIP_EVENT_WAIT"];
            assert_eq!(
                text(&strings["operations"][operation as usize]),
                name[operation as usize]
            );
            [
                operation,
                number(&record["hip_event_handle"]),
                number(&record["start_timestamp"]),
                number(&record["end_timestamp"]),
                number(&record["queue_id"]["handle"]),
                number(&record["source_queue_id"]["handle"]),
            ]
        })
        .collect();
    told.sort_by_key(|row| row[2]);
    assert_eq!(told, EXPECTED);

    // Of AMD's schema 3.0.3, which has no table for them.
    let query = "SELECT name, start, \"end\", tid, corr_id, stack_id, extdata FROM regions WHERE category = 'BARRIER' ORDER BY start";
    let read = reader(&directory.path().join("r_results.db"), &[query]);
    assert_eq!(read["foreign_keys"], Value::Array(Vec::new()));
    let mut remarks = Vec::new();
    let rows = list(&read["answers"][0]).iter();
    let rows: Vec<[u64; 6]> = rows
        .map(|row| {
            let more: Value = serde_json::from_str(&text(&row["extdata"])).unwrap();
            assert_eq!((number(&row["tid"]), number(&more["agent_id"])), (7, 1));
            assert!(number(&more["stream_id"]) > 0);
            remarks.push(more["remark"].is_string());
            [
                match text(&row["name"]).as_str() {
                    "HIP_EVENT_RECORD" => 1,
                    "HIP_EVENT_WAIT" => 2,
                    _ => 0,
                },
                number(&more["hip_event_handle"]),
                number(&row["start"]),
                number(&row["end"]),
                number(&more["queue_id"]),
                more["source_queue_id"].as_u64().unwrap_or(0),
            ]
        })
        .collect();
    assert_eq!(rows, EXPECTED);
    assert_eq!(remarks, [false, false, false, true, true, false]);

    let notes = tool["metadata"]["midair"]["notes"].to_string();
    for note in [
        "1 records of HIP events are not in the results: their barrier",
        "2 waits for HIP events are not in the results: their barrier",
        "1 calls that record HIP events or wait for them failed",
        "1 calls that record HIP events or wait for them ran while recording started",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
}

#[test]
fn barriers_are_named_in_traces() {
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[Format::Pftrace]);
    write(&some_events(), &Names::amd(), &plan).unwrap();
    let file = directory.path().join("r_results.pftrace");
    for text in ["HIP_EVENT_RECORD", "HIP_EVENT_WAIT"] {
        assert!(contains(&file, text), "{text}");
    }
}
