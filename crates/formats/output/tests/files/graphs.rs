//! Launches of HIP's graphs: which are reported, under which number, with which kernels and times.

use crate::common::{
    agents, append, contains, golden_json, list, number, reader, text, trace_of, writer,
};
use crate::rocpd_rows::{header, plan};
use midair_output::{Format, Names, RecordWriter, Trace, write};
use midair_record::event::{self, GraphCall, Kernel, Untimed, flag, graph, kind};
use serde_json::Value;

const A: u64 = 0xa000;
const B: u64 = 0xb000;

/// Appends a call of which the thread has seen so many dispatches.
fn call(
    writer: &mut RecordWriter,
    operation: u32,
    start: u64,
    of: u64,
    change: impl FnOnce(&mut GraphCall),
) {
    let mut record = GraphCall {
        header: header(kind::HIP_GRAPH, operation),
        start,
        end: start + 5,
        correlation: start,
        graph: of,
        tid: 7,
        ..GraphCall::default()
    };
    change(&mut record);
    append(writer, &event::encode(&record, &[]));
}

fn launch(writer: &mut RecordWriter, start: u64, of: u64, dispatches: u32) {
    call(writer, graph::EXEC_LAUNCH, start, of, |call| {
        call.dispatches = dispatches
    });
}

/// Appends a kernel of the launch at this time, on this queue.
fn kernel(writer: &mut RecordWriter, of: u64, start: u64, queue_id: u32, reason: Untimed) {
    let is_timed = reason == Untimed::Timed;
    let mut record = Kernel {
        header: header(kind::KERNEL_DISPATCH, 0),
        start: if is_timed { start } else { 0 },
        end: if is_timed { start + 10 } else { 0 },
        correlation: of,
        dispatch_id: start,
        queue_id,
        node: 1,
        tid: 7,
        untimed: reason as u32,
        ..Kernel::default()
    };
    record.header.flags = if is_timed { 0 } else { flag::UNTIMED };
    append(writer, &event::encode(&record, &[]));
}

pub fn some_launches() -> Trace {
    let mut writer = writer();
    let all = &mut writer;
    // The kernels' records come before and after their call's.
    kernel(all, 100, 130, 3, Untimed::Timed);
    launch(all, 100, A, 2);
    kernel(all, 100, 160, 3, Untimed::Timed);
    // Another graph, on two queues, of which one kernel has no times.
    launch(all, 200, B, 2);
    kernel(all, 200, 230, 3, Untimed::Timed);
    kernel(all, 200, 240, 4, Untimed::Timed);
    kernel(all, 200, 250, 4, Untimed::SignalReused);
    // The first one again; one of its three kernels has no record.
    launch(all, 300, A, 3);
    kernel(all, 300, 330, 3, Untimed::Timed);
    kernel(all, 300, 340, 3, Untimed::Timed);
    // What is destroyed has no launches behind that; a failure to destroy changes nothing.
    call(all, graph::EXEC_DESTROY, 350, B, |call| call.result = 1);
    call(all, graph::EXEC_DESTROY, 360, A, |_| ());
    launch(all, 400, B, 0);
    launch(all, 500, A, 1);
    kernel(all, 500, 530, 3, Untimed::Timed);
    // Refused, and cut by the start of the recording.
    call(all, graph::EXEC_LAUNCH, 600, A, |call| call.result = 98);
    call(all, graph::EXEC_LAUNCH, 700, A, |call| {
        call.header.flags = flag::CUT
    });
    kernel(all, 700, 730, 3, Untimed::Timed);
    Trace {
        known: Default::default(),
        agents: agents(),
        ..trace_of(writer, &golden_json())
    }
}

/// Graph, kernels, start, end, queue (0: none), remark.
pub type Row = (u64, u64, u64, u64, u64, String);

pub fn expected() -> Vec<Row> {
    let told = |(graph, kernels, start, end, queue, remark): (u64, u64, u64, u64, u64, &str)| {
        (graph, kernels, start, end, queue, remark.to_owned())
    };
    [
        (1, 2, 130, 170, 3, ""),
        (
            2,
            3,
            230,
            250,
            0,
            "some of its kernels have no times: the times cover the others",
        ),
        (
            1,
            3,
            330,
            350,
            3,
            "some of its kernels have no record: the times cover the others",
        ),
        (
            2,
            0,
            400,
            405,
            0,
            "none of its kernels has times: the times are the call's times",
        ),
        (3, 1, 530, 540, 3, ""),
    ]
    .map(told)
    .into()
}

#[test]
fn each_launch_has_its_graph_and_its_kernels() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = some_launches();
    let mut plan = plan(
        directory.path(),
        &[Format::Rocpd, Format::Json, Format::Pftrace],
    );
    let names = Names::amd();
    write(&trace, &names, &plan).unwrap();
    let read = || {
        let queries = [
            "SELECT graph_exec_id, kernel_dispatch_count, start, \"end\", queue_id, agent_id, tid FROM graph_launches",
            "SELECT extdata FROM rocpd_graph_launch ORDER BY start",
            "SELECT start, graph_exec_id FROM rocpd_kernel_dispatch WHERE start > 0 ORDER BY start",
        ];
        let read = reader(&directory.path().join("r_results.db"), &queries);
        assert_eq!(read["foreign_keys"], Value::Array(Vec::new()));
        read
    };
    let answers = read();
    let remarks = list(&answers["answers"][1]).iter();
    let rows = list(&answers["answers"][0]).iter().zip(remarks);
    let told = rows.map(|(row, extdata)| {
        assert_eq!(number(&row["tid"]), 7);
        let extdata: Value = serde_json::from_str(&text(&extdata["extdata"])).unwrap();
        let remark = extdata["remark"].as_str().unwrap_or_default();
        // Where there are kernels they are on one agent.
        let kernels = number(&row["kernel_dispatch_count"]);
        assert_eq!(row["agent_id"].as_u64(), (kernels > 0).then_some(1));
        (
            number(&row["graph_exec_id"]),
            kernels,
            number(&row["start"]),
            number(&row["end"]),
            row["queue_id"].as_u64().unwrap_or(0),
            remark.to_owned(),
        )
    });
    assert_eq!(told.collect::<Vec<Row>>(), expected());
    let kernels = list(&answers["answers"][2]).iter();
    let kernels: Vec<u64> = kernels.map(|row| number(&row["graph_exec_id"])).collect();
    assert_eq!(kernels, [1, 1, 2, 2, 1, 1, 3, 0]);

    let document = || -> Value {
        let file = std::fs::read(directory.path().join("r_results.json")).unwrap();
        serde_json::from_slice::<Value>(&file).unwrap()["rocprofiler-sdk-tool"][0].take()
    };
    let tool = document();
    let records = list(&tool["buffer_records"]["hip_graph"]).iter();
    let told: Vec<[u64; 5]> = records
        .map(|record| {
            assert_eq!((number(&record["size"]), number(&record["kind"])), (96, 33));
            [
                number(&record["graph_exec_id"]["handle"]),
                number(&record["kernel_dispatch_count"]),
                number(&record["start_timestamp"]),
                number(&record["end_timestamp"]),
                number(&record["queue_id"]["handle"]),
            ]
        })
        .collect();
    let of_rocpd = expected();
    let of_rocpd = of_rocpd.iter();
    let of_rocpd = of_rocpd
        .map(|(graph, kernels, start, end, queue, _)| [*graph, *kernels, *start, *end, *queue]);
    assert_eq!(told, of_rocpd.collect::<Vec<_>>());
    assert_eq!(
        text(&tool["strings"]["buffer_records"][33]["kind"]),
        "HIP_GRAPH"
    );
    let kernels = list(&tool["buffer_records"]["kernel_dispatch"]).iter();
    assert_eq!(
        kernels.map(|it| number(&it["graph_exec_id"])).sum::<u64>(),
        1 + 1 + 2 * 3 + 1 + 1 + 3
    );
    let notes = text(&tool["metadata"]["midair"]["notes"].to_string().into());
    for note in [
        "1 launches of graphs failed",
        "1 launches of graphs ran while recording started",
        "1 launches of graphs have kernels without records",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }

    // Kernels that were recorded for the launches alone change nothing about these.
    plan.hide_kernels = true;
    trace
        .records
        .choose(&plan.kernel_filter, plan.kernel_names, false)
        .unwrap();
    write(&trace, &names, &plan).unwrap();
    let hidden = read();
    assert_eq!(hidden["answers"][0], answers["answers"][0]);
    assert!(list(&hidden["answers"][2]).is_empty());
    assert_eq!(
        document()["buffer_records"]["hip_graph"],
        tool["buffer_records"]["hip_graph"]
    );
}

#[test]
fn launches_are_named_in_traces() {
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[Format::Pftrace]);
    write(&some_launches(), &Names::amd(), &plan).unwrap();
    let file = directory.path().join("r_results.pftrace");
    for text in [
        "Graph Execution",
        "some of its kernels have no times: the times cover the others",
    ] {
        assert!(contains(&file, text), "{text}");
    }
}
