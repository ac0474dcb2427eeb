//! Events of the format kineto, value by value, and what is done where rows run out.

use crate::common::{append, golden_json, trace_of, writer};
use crate::counter_batches::batch;
use crate::counters::{NODE, amds_plan, put, put_kernel, session, window};
use crate::cuda::device;
use crate::readings::readings;
use crate::recordings::machine;
use crate::rocpd_rows::{header, plan};
use midair_output::{Format, KernelFilter, Names, Plan, RecordWriter, Trace, write};
use midair_record::event::{
    self, Copy, CudaLaunch, Kernel, NO_NODE, Scratch, Synchronization, UnifiedMemory, cuda_node,
    cuda_stream, kind,
};
use serde_json::{Value, json};
use std::fs;

const PID: u32 = 100;

/// Returns the lines of a session's file that are kept, as events.
fn lines(trace: &Trace, keep: impl Fn(&str) -> bool, change: impl FnOnce(&mut Plan)) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let mut plan = plan(directory.path(), &[Format::Kineto]);
    change(&mut plan);
    write(trace, &Names::amd(), &plan).unwrap();
    let file = fs::read_to_string(directory.path().join("r_results.pt.trace.json")).unwrap();
    let (_, events) = file.split_once("\"traceEvents\": [\n").unwrap();
    let lines = events.lines().filter(|line| keep(line));
    let lines = lines.map(|line| line.trim_matches(','));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the events of a category.
fn events(trace: &Trace, category: &str) -> Vec<Value> {
    let category = format!("\"cat\":\"{category}\"");
    lines(trace, |line| line.contains(&category), |_| ())
}

fn trace(writer: RecordWriter) -> Trace {
    let mut trace = trace_of(writer, &golden_json());
    trace.agents = machine();
    trace.process.pid = PID;
    trace
}

/// Returns a kernel of the first GPU, between these times.
fn kernel(dispatch_id: u64, stream: u64, (start, end): (u64, u64)) -> Kernel {
    Kernel {
        header: header(kind::KERNEL_DISPATCH, 1),
        start,
        end,
        dispatch_id,
        stream,
        node: 1,
        ..Kernel::default()
    }
}

#[test]
fn copies_are_named_by_their_direction() {
    let mut all = writer();
    for (operation, src_node, dst_node) in [
        (1, 0, 0),
        (2, 0, 1),
        (3, 1, 0),
        (4, 1, 1),
        (4, 1, 2),
        (7, 1, 1),
    ] {
        let copy = Copy {
            header: header(kind::MEMORY_COPY, operation),
            start: 1_000,
            end: 2_000,
            bytes: 500,
            src_node,
            dst_node,
            ..Copy::default()
        };
        append(&mut all, &event::encode(&copy, &[]));
    }
    let found = events(&trace(all), "gpu_memcpy");
    let told: Vec<(&str, &Value, &Value)> = found
        .iter()
        .map(|copy| {
            (
                copy["name"].as_str().unwrap(),
                &copy["pid"],
                &copy["args"]["to"],
            )
        })
        .collect();
    // One between two GPUs is shown where it is written.
    assert_eq!(
        told,
        [
            ("Memcpy HtoH", &json!(0), &json!("Agent 0")),
            ("Memcpy HtoD", &json!(0), &json!("Agent 1")),
            ("Memcpy DtoH", &json!(0), &json!("Agent 0")),
            ("Memcpy DtoD", &json!(0), &json!("Agent 1")),
            ("Memcpy PtoP", &json!(1), &json!("Agent 2")),
            ("Memcpy", &json!(0), &json!("Agent 1")),
        ]
    );
    assert_eq!(found[0]["args"]["memory bandwidth (GB/s)"], 0.5);
}

#[test]
fn scratch_memory_has_a_row_of_its_own() {
    let mut all = writer();
    let scratch = Scratch {
        header: header(kind::SCRATCH_MEMORY, 1),
        start: 1_000_100,
        end: 1_002_350,
        bytes: 8192,
        queue_id: 5,
        node: 2,
        ..Scratch::default()
    };
    append(&mut all, &event::encode(&scratch, &[]));
    // AMD's number for this kind is 12.
    let row = 4_000_000_100_u64 + 12;
    assert_eq!(
        events(&trace(all), "scratch_memory"),
        [json!({
            "ph": "X", "pid": PID, "tid": row, "cat": "scratch_memory",
            "name": "SCRATCH_MEMORY_ALLOC", "ts": 1000.1, "dur": 2.25,
            "args": {"Bytes": 8192, "agent": "Agent 2", "queue": 5},
        })]
    );
}

#[test]
fn waits_and_unified_memory_of_cuda_have_rows_of_their_own() {
    let mut all = writer();
    device(&mut all, 0);
    for operation in 1..=5 {
        let start = 10_000 * u64::from(operation);
        let wait = Synchronization {
            header: header(kind::SYNCHRONIZATION, operation),
            start,
            end: start + 500,
            correlation: 9,
            stream: cuda_stream(2, 7),
            context: 2,
            tid: 101,
            ..Synchronization::default()
        };
        append(&mut all, &event::encode(&wait, &[]));
    }
    let moved = UnifiedMemory {
        header: header(kind::UNIFIED_MEMORY, 1),
        start: 6_000,
        end: 6_025,
        address: 0x7000,
        value: 65_536,
        stream: 7,
        src_node: NO_NODE,
        dst_node: cuda_node(0),
    };
    append(&mut all, &event::encode(&moved, &[]));
    let mut trace = trace(all);
    trace.agents.truncate(1);
    let wait = |name: &str, ts: f64| {
        json!({
            "ph": "X", "pid": PID, "tid": 4_000_000_001_u64, "cat": "cuda_sync", "name": name,
            "ts": ts, "dur": 0.5,
            "args": {"correlation": 9, "wait_on_stream": 7, "context": 2, "thread": 101},
        })
    };
    assert_eq!(
        events(&trace, "cuda_sync"),
        [
            wait("Event Sync", 10.0),
            wait("Stream Wait Event", 20.0),
            wait("Stream Sync", 30.0),
            wait("Context Sync", 40.0),
            wait("Sync", 50.0),
        ]
    );
    assert_eq!(
        events(&trace, "unified_memory"),
        [json!({
            "ph": "X", "pid": PID, "tid": 4_000_000_002_u64, "cat": "unified_memory",
            "name": "UNIFIED_MEMORY_HOST_TO_DEVICE", "ts": 6.0, "dur": 0.025,
            "args": {"from": "Agent 0", "to": "Agent 1", "Addr": 0x7000, "value": 65_536},
        })]
    );
}

#[test]
fn readings_are_counters_of_their_device() {
    let found = lines(&readings(), |line| line.contains("\"ph\":\"C\""), |_| ());
    let waves = found
        .iter()
        .filter(|event| event["name"] == "PMC SQ_WAVES /s");
    let waves: Vec<Value> = waves.cloned().collect();
    let wanted = |ts: f64, rate: f64| {
        json!({
            "ph": "C", "pid": 0, "tid": 0, "name": "PMC SQ_WAVES /s", "ts": ts,
            "args": {"value": rate},
        })
    };
    // Microseconds, and eight engines.
    assert_eq!(
        waves,
        [
            wanted(1_000_000.0, 160.0),
            wanted(1_500_000.0, 320.0),
            wanted(3_000_000.0, 80.0),
        ]
    );
    assert_eq!(found.len(), 6);
}

#[test]
fn dispatches_have_their_counters_unless_they_share_them() {
    let chosen = |mut trace: Trace| {
        let names = Plan::default().kernel_names;
        let all = KernelFilter::default();
        trace.records.choose(&all, names, true).unwrap();
        trace
    };
    let counted = Kernel {
        rung: 19_000,
        queue_id: 1,
        ..kernel(2, 0, (20_000, 21_000))
    };
    assert_eq!(counted.node, NODE);
    let mut all = writer();
    put_kernel(&mut all, &counted);
    put(&mut all, window(1, &counted, 9), &[3; 9], 9);
    let single = chosen(session(all, amds_plan()));
    let counters = |trace: &Trace| -> Vec<(Value, Value)> {
        let found = events(trace, "kernel");
        let args = found.iter().map(|event| &event["args"]);
        args.map(|args| (args["SQ_WAVES"].clone(), args["GRBM_COUNT"].clone()))
            .collect()
    };
    assert_eq!(counters(&single), [(json!(24.0), json!(3.0))]);
    let is_kernel = |line: &str| line.contains("\"cat\":\"kernel\"");
    let hidden = lines(&single, is_kernel, |plan| plan.hide_kernels = true);
    assert_eq!(hidden, Vec::<Value>::new());
    // The values of these three cover all together.
    let several = chosen(batch(|_| ()));
    assert_eq!(counters(&several), vec![(Value::Null, Value::Null); 3]);
}

/// Kineto numbers devices from 0, in the place where processes have their number. In a container
/// the program is often process 1.
#[test]
fn a_device_with_the_number_of_the_program_gets_another() {
    let mut all = writer();
    for (dispatch_id, node) in [(1, 1), (2, 2)] {
        let kernel = Kernel {
            node,
            ..kernel(dispatch_id, 0, (1_000, 2_000))
        };
        append(&mut all, &event::encode(&kernel, &[]));
    }
    let mut trace = trace(all);
    trace.process.pid = 1;
    let found = events(&trace, "kernel");
    let told = |key: fn(&Value) -> &Value| found.iter().map(key).collect::<Vec<_>>();
    assert_eq!(told(|kernel| &kernel["pid"]), [0, 5_000_001]);
    assert_eq!(told(|kernel| &kernel["args"]["device"]), [0, 1]);
}

/// Returns the rows of the kernels of these dispatches.
fn rows_of(trace: &Trace, dispatches: &[u64]) -> Vec<u64> {
    let texts = dispatches.iter();
    let texts: Vec<String> = texts.map(|of| format!("\"dispatch\":{of},")).collect();
    let is_wanted = |line: &str| texts.iter().any(|text| line.contains(text.as_str()));
    let found = lines(trace, is_wanted, |_| ());
    let row = |dispatch: &u64| {
        let mut kernels = found.iter();
        let kernel = kernels.find(|kernel| kernel["args"]["dispatch"] == *dispatch);
        kernel.unwrap()["tid"].as_u64().unwrap()
    };
    dispatches.iter().map(row).collect()
}

#[test]
fn kernels_that_overlap_more_than_there_are_lanes_share_the_last_one() {
    let mut all = writer();
    for dispatch in 1..=67 {
        let kernel = kernel(dispatch, 0, (1_000 + dispatch, 2_000));
        append(&mut all, &event::encode(&kernel, &[]));
    }
    let trace = trace(all);
    let lane = |lane: u64| 1 + 1_000_000 * lane;
    assert_eq!(
        rows_of(&trace, &[1, 2, 63, 64, 65, 67]),
        [lane(0), lane(1), lane(62), lane(63), lane(63), lane(63)]
    );
}

/// The numbers of streams are the target's, so it can invent any number of them.
#[test]
fn rows_beyond_the_limit_have_no_lanes() {
    const MOST: u64 = 1 << 14;
    let mut all = writer();
    let mut put = |dispatch, stream| {
        let kernel = kernel(dispatch, stream, (1_000, 2_000));
        append(&mut all, &event::encode(&kernel, &[]));
    };
    for stream in 1..=MOST {
        put(stream, stream);
    }
    put(20_001, 1);
    put(20_002, MOST);
    put(20_003, MOST + 1);
    put(20_004, MOST + 1);
    let trace = trace(all);
    assert_eq!(
        rows_of(&trace, &[1, 20_001, 20_002, 20_003, 20_004]),
        [2, 1_000_002, MOST + 1 + 1_000_000, MOST + 2, MOST + 2]
    );
}

/// Two contexts count their streams from the same number. Beyond the limit the writer does not
/// remember which context had a number first.
#[test]
fn streams_of_a_further_context_have_numbers_of_their_own() {
    const MOST: u32 = 1 << 14;
    let mut all = writer();
    device(&mut all, 0);
    let mut dispatch = 0;
    let mut put = |context, stream| {
        dispatch += 1;
        let kernel = Kernel {
            node: cuda_node(0),
            ..kernel(dispatch, cuda_stream(context, stream), (1_000, 2_000))
        };
        let launch = CudaLaunch {
            context,
            ..CudaLaunch::default()
        };
        append(&mut all, &event::encode(&kernel, launch.bytes()));
    };
    for stream in 1..=MOST {
        put(1, stream);
    }
    put(2, 7);
    put(2, MOST + 5);
    let trace = trace(all);
    let most = u64::from(MOST);
    assert_eq!(
        rows_of(&trace, &[7, most, most + 1, most + 2]),
        [7, most, 2_000_000_007, most + 5]
    );
}
