//! Events of the kernel driver in the formats that have them, and what json says of code objects.

use crate::common::{agents, append, contains, golden_json, list, trace_of, writer};
use crate::counters::json_of;
use crate::rocpd_rows::{header, plan};
use midair_output::{Format, Names, Trace, write};
use midair_record::event::{self, CodeObject, KfdEvent, kind};
use serde_json::{Value, json};

/// Returns an event between these times that AMD's tool has under this number.
fn event(kind: u8, tracing_kind: u32, (start, end): (u64, u64)) -> KfdEvent {
    KfdEvent {
        header: header(kind, 1),
        start,
        end,
        tracing_kind,
        pid: 77,
        // The GPU of the lab has the number 2, and the host 0. No device has the number 9.
        from: 2,
        to: 0,
        prefetch: 9,
        preferred: 2,
        address: 0x1000,
        end_address: 0x3000,
        error: -5,
        count: 12,
    }
}

fn trace(events: &[KfdEvent]) -> Trace {
    let mut all = writer();
    for of in events {
        append(&mut all, &event::encode(of, &[]));
    }
    Trace {
        known: Default::default(),
        agents: agents(),
        ..trace_of(all, &golden_json())
    }
}

fn written(trace: &Trace, format: Format) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[format]);
    write(trace, &Names::amd(), &plan).unwrap();
    directory
}

/// Sizes and members match `rocprofiler_buffer_tracing_kfd_*_record_t`.
#[test]
fn json_has_the_members_of_each_kind_of_event() {
    // Smaller numbers stand for parts of what these report in one.
    let trace = trace(&[
        event(kind::KFD_PAGE_MIGRATE, 24, (50, 60)),
        event(kind::KFD_PAGE_MIGRATE, 29, (100, 150)),
        event(kind::KFD_PAGE_FAULT, 30, (200, 260)),
        event(kind::KFD_QUEUE, 31, (300, 370)),
        event(kind::KFD_EVENT_UNMAP_FROM_GPU, 27, (400, 400)),
        event(kind::KFD_EVENT_DROPPED_EVENTS, 28, (500, 500)),
    ]);
    let [cpu, gpu] = [0, 1].map(|at: usize| json!({"handle": trace.agents[at].handle}));
    let unknown = json!({"handle": 0});
    let directory = written(&trace, Format::Json);
    let found = json_of(directory.path());
    assert_eq!(
        found["buffer_records"]["kfd"],
        json!([
            {"record": {
                "size": 96, "kind": 29, "operation": 1, "start_timestamp": 100,
                "end_timestamp": 150, "pid": 77, "start_address": 0x1000, "end_address": 0x3000,
                "src_agent": gpu, "dst_agent": cpu, "prefetch_agent": unknown,
                "preferred_agent": gpu, "error_code": -5,
            }},
            {"record": {
                "size": 56, "kind": 30, "operation": 1, "start_timestamp": 200,
                "end_timestamp": 260, "pid": 77, "agent_id": gpu, "address": 0x1000,
            }},
            {"record": {
                "size": 48, "kind": 31, "operation": 1, "start_timestamp": 300,
                "end_timestamp": 370, "pid": 77, "agent_id": gpu,
            }},
            {"record": {
                "size": 56, "kind": 27, "operation": 1, "timestamp": 400, "pid": 77,
                "agent_id": gpu, "start_address": 0x1000, "end_address": 0x3000,
            }},
            {"record": {
                "size": 32, "kind": 28, "operation": 1, "timestamp": 500, "pid": 77, "count": 12,
            }},
        ])
    );
}

#[test]
fn only_events_that_files_have_are_in_traces() {
    let trace = trace(&[
        event(kind::KFD_PAGE_FAULT, 25, (50, 60)),
        event(kind::KFD_PAGE_MIGRATE, 29, (100, 150)),
    ]);
    let names = Names::amd();
    let name = |kind| names.operation(kind, 1).into_owned();
    for (format, file) in [
        (Format::Pftrace, "r_results.pftrace"),
        (Format::Otf2, "r_results.def"),
    ] {
        let directory = written(&trace, format);
        let file = directory.path().join(file);
        assert!(contains(&file, &name(kind::KFD_PAGE_MIGRATE)), "{format:?}");
        assert!(!contains(&file, &name(kind::KFD_PAGE_FAULT)), "{format:?}");
    }
}

/// A code object lies in memory of the target, or in a file, whose descriptor means nothing to
/// others.
#[test]
fn json_says_where_code_objects_are() {
    let mut all = writer();
    for (code_object_id, memory_base) in [(1, 0x7000), (3, 0)] {
        let uri = b"file:///opt/kernels.co";
        let object = CodeObject {
            header: header(kind::CODE_OBJECT, 0),
            code_object_id,
            load_base: 0x10_0000,
            load_size: 0x2000,
            load_delta: -16,
            memory_base,
            memory_size: memory_base / 2,
            node: 1,
            uri_len: uri.len() as u32,
        };
        append(&mut all, &event::encode(&object, uri));
    }
    let trace = Trace {
        known: Default::default(),
        agents: agents(),
        ..trace_of(all, &golden_json())
    };
    let directory = written(&trace, Format::Json);
    let found = json_of(directory.path());
    let objects = list(&found["code_objects"]);
    let of = |id: usize, key: &str| objects[id].get(key).cloned();
    let told =
        |id| ["storage_type", "memory_base", "memory_size", "storage_file"].map(|key| of(id, key));
    let number = |number: i64| Some(Value::from(number));
    assert_eq!(told(1), [number(2), number(0x7000), number(0x3800), None]);
    assert_eq!(told(3), [number(1), None, None, number(-1)]);
    // No code object has the number 2.
    assert_eq!(told(2), [number(0), None, None, None]);
    assert_eq!(of(3, "load_delta"), number(-16));
    assert_eq!(of(3, "uri"), Some("file:///opt/kernels.co".into()));
}
