//! Every event of small sessions in Kineto's format, and what its rows and names are where a program
//! does odd things.

use crate::common::{append, golden_json, list, number, text, trace_of, writer};
use crate::counters::{amds, written as counted};
use crate::cuda;
use crate::otf2_archive::{hip, same};
use crate::rocpd_rows::{plan, put_marker};
use midair_output::{Format, Names, RecordWriter, Trace, write, write_together};
use midair_record::event::{
    self, Api, Copy, CudaLaunch, Header, Kernel, Marker, MemorySet, NO_NODE, Synchronization,
    UnifiedMemory, cuda_node, cuda_stream, flag, kind,
};
use serde_json::{Value, json};

fn header(kind: u8, operation: u32) -> Header {
    Header {
        kind,
        operation,
        ..Header::default()
    }
}

/// Returns the file of a session, without what it says about the recording itself.
fn written(trace: &Trace) -> String {
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[Format::Kineto]);
    write(trace, &Names::amd(), &plan).unwrap();
    let file = directory.path().join("r_results.pt.trace.json");
    let all = std::fs::read_to_string(file).unwrap();
    let (head, rest) = all.split_once(", \"midair\": ").unwrap();
    let (_, events) = rest.split_once(",\n\"traceEvents\": [\n").unwrap();
    format!("{head},\n\"traceEvents\": [\n{events}")
}

/// Returns the events of a session.
fn events(trace: &Trace) -> Vec<Value> {
    let all: Value = serde_json::from_str(&written(trace)).unwrap();
    list(&all["traceEvents"]).to_vec()
}

/// Returns the events of a category.
fn of<'a>(events: &'a [Value], category: &str) -> Vec<&'a Value> {
    let all = events.iter();
    all.filter(|event| event["cat"] == category).collect()
}

#[test]
fn hip_has_these_events() {
    same("kineto_hip.txt", &written(&hip()));
}

#[test]
fn cuda_has_these_events() {
    let mut trace = cuda::trace(cuda::everything());
    (trace.process.init_time, trace.process.fini_time) = (500, 9_999);
    same("kineto_cuda.txt", &written(&trace));
}

/// Calls of CUDA's two interfaces, and work without times.
fn odd_cuda() -> Trace {
    let mut all = writer();
    cuda::device(&mut all, 0);
    let call = |kind: u8, operation: u32, start: u64, correlation: u64, tid: u32| Api {
        header: header(kind, operation),
        start,
        end: start + 100,
        correlation,
        tid,
        ..Api::default()
    };
    // Two calls of the driver within one of the runtime, and two of which the last one encloses the
    // other. Then two that have nothing to do with one another, each with its own number.
    for (kind, operation, start, correlation, tid) in [
        (kind::CUDA_DRIVER_API, 307, 10_100, 1, 5),
        (kind::CUDA_DRIVER_API, 307, 10_300, 1, 5),
        (kind::CUDA_RUNTIME_API, 211, 10_000, 1, 5),
        (kind::CUDA_DRIVER_API, 307, 10_100, 2, 6),
        (kind::CUDA_DRIVER_API, 307, 10_050, 2, 6),
        (kind::CUDA_DRIVER_API, 307, 10_100, 3, 7),
        (kind::CUDA_DRIVER_API, 307, 10_300, 4, 7),
        // The next one encloses none of them, and launches something that has no number.
        (kind::CUDA_RUNTIME_API, 211, 10_500, 0, 7),
        // This one never launches anything.
        (kind::CUDA_RUNTIME_API, 3, 10_700, 5, 7),
    ] {
        let api = call(kind, operation, start, correlation, tid);
        append(&mut all, &event::encode(&api, &[]));
    }
    // Streams of two contexts, which have the same number, and a further kernel of the first one.
    for (dispatch_id, context) in [(1, 1), (2, 2), (3, 1)] {
        let kernel = Kernel {
            header: header(kind::KERNEL_DISPATCH, 1),
            start: 1_000 * dispatch_id,
            end: 1_000 * dispatch_id + 500,
            dispatch_id,
            stream: cuda_stream(context, 7),
            node: cuda_node(0),
            workgroup: [32, 1, 1],
            grid: [33, 1, 1],
            ..Kernel::default()
        };
        let told = CudaLaunch {
            context,
            ..CudaLaunch::default()
        };
        append(&mut all, &event::encode(&kernel, told.bytes()));
    }
    // Nothing of the following has ended.
    for (start, end) in [(0, 0), (20_000, 0), (0, 20_500)] {
        let set = MemorySet {
            header: header(kind::MEMORY_SET, 3),
            start,
            end,
            stream: cuda_stream(1, 7),
            node: cuda_node(0),
            ..MemorySet::default()
        };
        append(&mut all, &event::encode(&set, &[]));
        let wait = Synchronization {
            header: header(kind::SYNCHRONIZATION, 3),
            start,
            end,
            stream: cuda_stream(1, 7),
            context: 1,
            tid: 5,
            ..Synchronization::default()
        };
        append(&mut all, &event::encode(&wait, &[]));
        let moved = UnifiedMemory {
            header: header(kind::UNIFIED_MEMORY, 1),
            start,
            end,
            address: 0x7000,
            value: 9,
            stream: 7,
            src_node: NO_NODE,
            dst_node: cuda_node(0),
        };
        append(&mut all, &event::encode(&moved, &[]));
    }
    let mut trace = cuda::trace(all);
    (trace.process.init_time, trace.process.fini_time) = (500, 99_999);
    trace
}

#[test]
fn odd_calls_and_unfinished_work_are_these_events() {
    same("kineto_odd_cuda.txt", &written(&odd_cuda()));
}

/// So many calls of the driver wait for a call that encloses them. What is written meanwhile comes
/// before them.
#[test]
fn so_many_inner_calls_are_kept_and_no_more() {
    for (calls, before) in [(1, 0), (256, 0), (257, 256)] {
        let mut all = writer();
        cuda::device(&mut all, 0);
        for at in 0..calls {
            let api = Api {
                header: header(kind::CUDA_DRIVER_API, 307),
                start: 1_000 + at,
                end: 1_001 + at,
                correlation: 1,
                tid: 5,
                ..Api::default()
            };
            append(&mut all, &event::encode(&api, &[]));
        }
        let mark = Marker {
            header: header(kind::MARKER_CORE_RANGE_API, 0),
            start: 3_000,
            end: 3_000,
            tid: 5,
            ..Marker::default()
        };
        put_marker(&mut all, mark, b"here");
        let events = events(&cuda::trace(all));
        let at = events.iter().position(|event| event["name"] == "here");
        let earlier = of(&events[..at.unwrap()], "cuda_driver");
        assert_eq!(earlier.len(), before, "{calls}");
        let all = of(&events, "cuda_driver");
        assert_eq!(all.len(), calls as usize);
        // The last one stands for all of them.
        let told = all.iter().filter(|call| call["args"]["correlation"] == 1);
        assert_eq!(told.count(), 1);
        assert_eq!(all[all.len() - 1]["args"]["correlation"], 1);
    }
}

fn kernel(number: u64, (start, end): (u64, u64)) -> Kernel {
    Kernel {
        header: header(kind::KERNEL_DISPATCH, 1),
        start,
        end,
        dispatch_id: number,
        node: 1,
        ..Kernel::default()
    }
}

fn with_kernels(kernels: impl Iterator<Item = Kernel>) -> Trace {
    let mut all: RecordWriter = writer();
    for kernel in kernels {
        append(&mut all, &event::encode(&kernel, &[]));
    }
    trace_of(all, &golden_json())
}

/// Kernels that overlap are on rows of their own, of which there are 64. All have one name.
#[test]
fn a_stream_has_so_many_rows_and_no_more() {
    let trace = with_kernels((0..66).map(|at| kernel(at, (1_000 + at, 2_000 + at))));
    let events = events(&trace);
    let rows: Vec<u64> = of(&events, "kernel")
        .iter()
        .map(|event| number(&event["tid"]))
        .collect();
    // The stream is unknown: 0, and 1 for readers that take 0 for none.
    let wanted = (0..66).map(|at: u64| 1 + at.min(63) * 1_000_000);
    assert_eq!(rows, wanted.collect::<Vec<_>>());
    let named = events
        .iter()
        .filter(|event| event["name"] == "thread_name" && event["args"]["name"] == "stream 1");
    assert_eq!(named.count(), 64);
}

/// Streams have rows up to a limit. Kernels of further ones are on one row each, even where they
/// overlap.
#[test]
fn so_many_streams_have_further_rows() {
    const MOST: u64 = 1 << 14;
    let on = |stream: u64, number: u64| Kernel {
        stream: 0x100 * stream,
        ..kernel(number, (1_000 + number, 90_000 + number))
    };
    let streams = (1..=MOST + 1).map(|stream| on(stream, stream));
    let twice = [1, MOST, MOST + 1].map(|stream| on(stream, 20_000 + stream));
    let events = events(&with_kernels(streams.chain(twice)));
    let kernels = of(&events, "kernel");
    let [.., first, last, beyond] = &kernels[..] else {
        panic!("no kernels")
    };
    // Numbers of streams start with 1, and rows with 2.
    assert_eq!(first["tid"], 2 + 1_000_000);
    assert_eq!(last["tid"], MOST + 1 + 1_000_000);
    assert_eq!(beyond["tid"], MOST + 2);
}

/// A device whose number the program has as well gets another one.
#[test]
fn a_device_has_another_number_than_the_program() {
    for (pid, device) in [(3, 5_000_003), (4, 3)] {
        let mut trace = with_kernels([kernel(1, (1_000, 2_000))].into_iter());
        trace.agents[1].logical_node_type_id = 3;
        trace.process.pid = pid;
        let events = events(&trace);
        let kernel = of(&events, "kernel")[0];
        assert_eq!([&kernel["pid"], &kernel["args"]["device"]], [device, 3]);
        let labels = events.iter().filter(|it| it["name"] == "process_labels");
        let labels: Vec<_> = labels
            .map(|it| (number(&it["pid"]), text(&it["args"]["labels"])))
            .collect();
        let wanted = [(u64::from(pid), "CPU"), (device, "GPU 3")];
        assert_eq!(labels, wanted.map(|(pid, label)| (pid, label.to_owned())));
        let order = events
            .iter()
            .filter(|it| it["name"] == "process_sort_index");
        let order: Vec<_> = order.map(|it| number(&it["args"]["sort_index"])).collect();
        assert_eq!(order, [u64::from(pid), 5_000_003]);
    }
}

/// A copy is on the device that it concerns: the one that is written to, or else the one that is
/// read.
#[test]
fn copies_are_of_the_device_that_takes_part() {
    for (src_node, dst_node, device, name) in [
        (0, 1, 0, "Memcpy HtoD"),
        (1, 0, 0, "Memcpy DtoH"),
        (1, 2, 1, "Memcpy PtoP"),
        (2, 1, 0, "Memcpy PtoP"),
        (2, 2, 1, "Memcpy DtoD"),
    ] {
        let mut all = writer();
        let operation = match name {
            "Memcpy HtoD" => 2,
            "Memcpy DtoH" => 3,
            _ => 4,
        };
        let copy = Copy {
            header: header(kind::MEMORY_COPY, operation),
            start: 1_000,
            end: 1_002,
            bytes: 3,
            src_node,
            dst_node,
            ..Copy::default()
        };
        append(&mut all, &event::encode(&copy, &[]));
        let mut trace = trace_of(all, &golden_json());
        let mut second = trace.agents[1].clone();
        (
            second.node_id,
            second.logical_node_id,
            second.logical_node_type_id,
        ) = (2, 2, 1);
        trace.agents.push(second);
        let events = events(&trace);
        let copy = of(&events, "gpu_memcpy")[0];
        assert_eq!([&copy["pid"], &copy["args"]["device"]], [device, device]);
        assert_eq!(copy["name"], name);
        assert_eq!(copy["args"]["memory bandwidth (GB/s)"], 1.5);
    }
}

/// Ranks are those that a launcher set, unless they cannot be. The world has at least as many.
#[test]
fn ranks_are_believed_up_to_a_limit() {
    let file = |ranks: &[Option<u64>], world: Option<u64>| {
        let directory = tempfile::tempdir().unwrap();
        let part = |rank: &Option<u64>| {
            let mut trace = with_kernels([].into_iter());
            trace.process.place.rank = *rank;
            trace.process.place.ranks = world;
            trace
        };
        let parts: Vec<Trace> = ranks.iter().map(part).collect();
        let plan = plan(directory.path(), &[Format::Kineto]);
        let mut all: Vec<Value> = write_together(&parts, &Names::amd(), &plan)
            .unwrap()
            .iter()
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "json")
            })
            .map(|path| {
                let read: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
                let told = &read["distributedInfo"];
                let name = path.file_name().unwrap().to_str().unwrap();
                json!([name, told["rank"], told["world_size"]])
            })
            .collect();
        all.sort_by_key(Value::to_string);
        Value::from(all)
    };
    let alone = |rank: u64, world: u64| json!([["r_results.pt.trace.json", rank, world]]);
    assert_eq!(file(&[None], None), alone(0, 1));
    assert_eq!(file(&[Some(3)], None), alone(3, 4));
    assert_eq!(file(&[Some(3)], Some(8)), alone(3, 8));
    assert_eq!(file(&[Some(99_999)], None), alone(99_999, 100_000));
    assert_eq!(file(&[Some(100_000)], None), alone(0, 1));
    let both = |[(first, a), (second, b)]: [(&str, u64); 2], world: u64| {
        let name = |rank: &str| format!("r_rank{rank}.pt.trace.json");
        json!([[name(first), a, world], [name(second), b, world]])
    };
    assert_eq!(
        file(&[Some(5), Some(2)], None),
        both([("2", 2), ("5", 5)], 6)
    );
    // Two have one rank, or one has none.
    for ranks in [[Some(5), Some(5)], [Some(5), None]] {
        assert_eq!(file(&ranks, None), both([("0", 0), ("1", 1)], 2));
    }
}

/// A dispatch that was counted is there once, with its values. One without values is there, too.
#[test]
fn counted_dispatches_are_there_once() {
    let directory = counted(amds(|_, _| 1), &[Format::Kineto]);
    let file = std::fs::read(directory.path().join("r_results.pt.trace.json"));
    let all: Value = serde_json::from_slice(&file.unwrap()).unwrap();
    let kernels = of(list(&all["traceEvents"]), "kernel");
    let told: Vec<_> = kernels
        .iter()
        .map(|kernel| {
            let args = &kernel["args"];
            (&args["dispatch"], &args["GRBM_COUNT"], &args["SQ_WAVES"])
        })
        .collect();
    let one = json!([1.0, 8.0]);
    let numbers: Vec<Value> = (1..=told.len() as u64).map(Value::from).collect();
    let wanted: Vec<_> = numbers.iter().map(|it| (it, &one[0], &one[1])).collect();
    assert!(!told.is_empty());
    assert_eq!(told, wanted);
}

/// A call or range that had not ended says so.
#[test]
fn what_is_open_says_so() {
    let mut all = writer();
    for (flags, start) in [
        (flag::OPEN_AT_DETACH, 1_000),
        (flag::CUT, 2_000),
        (0, 3_000),
    ] {
        let api = Api {
            header: Header {
                flags,
                ..header(kind::HIP_RUNTIME_API_EXT, 5)
            },
            start,
            end: start + 10,
            ..Api::default()
        };
        append(&mut all, &event::encode(&api, &[]));
    }
    let events = events(&trace_of(all, &golden_json()));
    let calls = of(&events, "cuda_runtime");
    let told: Vec<_> = calls
        .iter()
        .map(|call| call["args"].get("open at detach").map(number))
        .collect();
    assert_eq!(told, [Some(1), None, None]);
}
