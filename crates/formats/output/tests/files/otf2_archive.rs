//! Whole OTF2 archives of small sessions: every definition and every event, read without OTF2's
//! library.

use crate::common::{append, golden_json, trace_of, writer};
use crate::counters::{amds, written as counted};
use crate::cuda;
use crate::otf2_bytes::{What, anchor, archive, definitions, events};
use crate::readings::readings;
use crate::rocpd_rows::{plan, put_marker};
use midair_output::{
    Format, GpuMetric, GpuSamples, Names, Plan, RecordWriter, Trace, write, write_together,
};
use midair_record::event::{
    self, Allocation, Api, Copy, Header, Kernel, KernelSymbol, Marker, NO_NODE, Scratch, Untimed,
    flag, kind,
};
use std::collections::BTreeSet;
use std::path::Path;

fn header(kind: u8, operation: u32, flags: u8) -> Header {
    Header {
        kind,
        operation,
        flags,
        ..Header::default()
    }
}

/// Streams of HIP, which are numbered as they come.
const STREAM: u64 = 0xbeef;

/// Returns a session of HIP with work and calls of each kind, the work first.
pub fn hip() -> Trace {
    let mut all = writer();
    kernels(&mut all);
    copies(&mut all);
    memory(&mut all);
    calls(&mut all);
    markers(&mut all);
    let mut trace = trace_of(all, &golden_json());
    trace.process.pid = 70;
    trace.process.command = vec!["/opt/bin/vadd".to_owned(), "3".to_owned()];
    (trace.process.init_time, trace.process.fini_time) = (500, 9_999);
    trace.process.threads.insert(7, "worker".to_owned());
    trace.process.node.hostname = "there".to_owned();
    trace.agents[1].product_name = "MI300X".to_owned();
    trace
}

fn kernels(all: &mut RecordWriter) {
    let name = b"_Z4vaddPKfS0_Pfi.kd";
    let symbol = KernelSymbol {
        header: header(kind::KERNEL_SYMBOL, 0, 0),
        kernel_id: 1,
        arch_vgpr: 16,
        name_len: name.len() as u32,
        ..KernelSymbol::default()
    };
    append(all, &event::encode(&symbol, name));
    let first = Kernel {
        header: header(kind::KERNEL_DISPATCH, 1, 0),
        start: 3_000,
        end: 3_500,
        correlation: 1,
        rung: 2_900,
        dispatch_id: 1,
        kernel_id: 1,
        stream: STREAM,
        queue_id: 4,
        node: 1,
        tid: 7,
        private_segment: 8,
        group_segment: 1064,
        workgroup: [64, 2, 1],
        grid: [4096, 20, 3],
        ..Kernel::default()
    };
    let untimed = Kernel {
        header: header(kind::KERNEL_DISPATCH, 1, flag::UNTIMED),
        start: 0,
        end: 0,
        dispatch_id: 3,
        rung: 3_700,
        untimed: Untimed::SignalReused as u32,
        ..first
    };
    // Two kernels of which nothing is known but their addresses.
    let unknown = Kernel {
        start: 3_800,
        end: 3_900,
        dispatch_id: 5,
        kernel_id: 0,
        kernel_object: 0x100,
        correlation: 0,
        ..first
    };
    for kernel in [
        first,
        // It crosses the first one.
        Kernel {
            start: 3_400,
            end: 3_600,
            dispatch_id: 2,
            ..first
        },
        untimed,
        // It is not known when this one was launched.
        Kernel {
            dispatch_id: 4,
            rung: 0,
            ..untimed
        },
        unknown,
        Kernel {
            start: 3_900,
            end: 4_000,
            dispatch_id: 6,
            kernel_object: 0x200,
            ..unknown
        },
    ] {
        append(all, &event::encode(&kernel, &[]));
    }
}

fn copies(all: &mut RecordWriter) {
    // From host to device and back, and within either. The stream is another one.
    for (operation, src_node, dst_node) in [(2, 0, 1), (3, 1, 0), (4, 1, 1), (1, 0, 0)] {
        let start = 5_000 + 100 * u64::from(operation);
        let copy = Copy {
            header: header(kind::MEMORY_COPY, operation, 0),
            start,
            // The last one took no time.
            end: start + if operation == 1 { 0 } else { 50 },
            bytes: 4096,
            stream: 0xcafe,
            src_node,
            dst_node,
            tid: 7,
            correlation: u64::from(operation) + 1,
            ..Copy::default()
        };
        append(all, &event::encode(&copy, &[]));
    }
    let untimed = Copy {
        header: header(kind::MEMORY_COPY, 2, flag::UNTIMED),
        dst_node: 1,
        tid: 7,
        correlation: 6,
        untimed: Untimed::RunningAtDetach as u32,
        ..Copy::default()
    };
    append(all, &event::encode(&untimed, &[]));
}

fn memory(all: &mut RecordWriter) {
    for operation in 1..=4 {
        let start = 6_000 + 100 * u64::from(operation);
        let releases = operation > 2;
        let allocation = Allocation {
            header: header(kind::MEMORY_ALLOCATION, operation, 0),
            start,
            end: start + 10,
            correlation: 10,
            address: 0x7000,
            bytes: if releases { 0 } else { 64 },
            node: if releases { NO_NODE } else { 1 },
            tid: 7,
            ..Allocation::default()
        };
        append(all, &event::encode(&allocation, &[]));
    }
    let scratch = Scratch {
        header: header(kind::SCRATCH_MEMORY, 1, 0),
        start: 6_500,
        end: 6_600,
        correlation: 11,
        bytes: 65_536,
        queue_id: 4,
        node: 1,
        tid: 9,
        ..Scratch::default()
    };
    append(all, &event::encode(&scratch, &[]));
}

fn calls(all: &mut RecordWriter) {
    let hip = Api {
        header: header(kind::HIP_RUNTIME_API_EXT, 5, 0),
        start: 2_000,
        end: 2_950,
        correlation: 1,
        stream: STREAM,
        retval: 2,
        tid: 7,
        ..Api::default()
    };
    let inner = Api {
        header: header(kind::HSA_CORE_API, 3, 0),
        start: 2_100,
        end: 2_200,
        correlation: 12,
        ..hip
    };
    let open = Api {
        header: header(kind::HIP_RUNTIME_API_EXT, 5, flag::OPEN_AT_DETACH),
        start: 8_000,
        end: 9_000,
        correlation: 13,
        stream: 0,
        tid: 8,
        ..hip
    };
    for call in [inner, hip, open] {
        append(all, &event::encode(&call, &[]));
    }
}

fn markers(all: &mut RecordWriter) {
    // A mark, a thread's range, two of the process that cross, and a call without a message. The
    // calls of the control API have the numbers of marks and ranges, too.
    for (kind, operation, (start, end), flags, message) in [
        (kind::MARKER_CORE_RANGE_API, 0, (2_150, 2_150), 0, "here"),
        (kind::MARKER_CORE_RANGE_API, 1, (1_900, 2_960), 0, "load"),
        (kind::MARKER_CORE_RANGE_API, 2, (1_000, 2_000), 0, "epoch"),
        (
            kind::MARKER_CORE_RANGE_API,
            2,
            (1_500, 9_000),
            flag::OPEN_AT_DETACH,
            "epoch",
        ),
        (kind::MARKER_CONTROL_API, 0, (1_100, 1_200), 0, ""),
        (kind::MARKER_NAME_API, 2, (1_300, 1_400), 0, ""),
    ] {
        let marker = Marker {
            header: header(kind, operation, flags),
            start,
            end,
            correlation: 14,
            tid: 7,
            ..Marker::default()
        };
        put_marker(all, marker, message.as_bytes());
    }
}

/// Writes a session's archive, and returns all that is in it.
fn written(trace: &Trace, change: impl FnOnce(&mut Plan)) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut plan = plan(directory.path(), &[Format::Otf2]);
    change(&mut plan);
    write(trace, &Names::amd(), &plan).unwrap();
    archive(directory.path())
}

/// Compares with a text in `tests/data`.
pub fn same(name: &str, found: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let wanted = std::fs::read_to_string(file).unwrap();
    for (at, (found, wanted)) in (1..).zip(found.lines().zip(wanted.lines())) {
        assert_eq!(found, wanted, "line {at} of {name}");
    }
    assert_eq!(found.lines().count(), wanted.lines().count(), "{name}");
}

#[test]
fn hip_has_these_definitions_and_events() {
    same("otf2_hip.txt", &written(&hip(), |_| ()));
}

#[test]
fn cuda_has_these_definitions_and_events() {
    let mut trace = cuda::trace(cuda::everything());
    (trace.process.init_time, trace.process.fini_time) = (500, 9_999);
    same("otf2_cuda.txt", &written(&trace, |_| ()));
}

/// If rows stand for queues, copies are on rows of the threads that asked for them.
#[test]
fn queues_have_these_locations() {
    let found = written(&hip(), |plan| plan.group_by_queue = true);
    let locations: Vec<&str> = found
        .lines()
        .filter(|line| line.starts_with("location "))
        .collect();
    assert_eq!(
        locations,
        [
            "location 0 CPU_THREAD \"Thread 7 (worker)\" of \"vadd (70)\": 12 events",
            "location 1 CPU_THREAD \"Thread 8\" of \"vadd (70)\": 2 events",
            "location 2 CPU_THREAD \"Ranges of the process\" of \"vadd (70)\": 2 events",
            "location 3 CPU_THREAD \"Ranges of the process (2)\" of \"vadd (70)\": 2 events",
            "location 4 CPU_THREAD \"memory allocation\" of \"vadd (70)\": 8 events",
            "location 5 CPU_THREAD \"Scratch memory of Agent 1\" of \"vadd (70)\": 2 events",
            "location 6 ACCELERATOR_STREAM \"Agent 1, Queue 4\" of \"Agent 1\": 10 events",
            "location 7 ACCELERATOR_STREAM \"Agent 1, Queue 4 (2)\" of \"Agent 1\": 2 events",
            "location 8 ACCELERATOR_STREAM \"Thread 7, Copy to Agent 1\" of \"Agent 1\": 6 events",
            "location 9 ACCELERATOR_STREAM \"Thread 7, Copy to Agent 0\" of \"vadd (70)\": 4 events",
        ]
    );
}

/// Counters of the device are metrics, and a dispatch that was counted is there once.
#[test]
fn counters_are_attributes_and_metrics() {
    let directory = counted(amds(|_, _| 1), &[Format::Otf2]);
    let all = definitions(directory.path());
    let mut told = Vec::new();
    for number in 0..all.locations.len() {
        for (_, what) in events(directory.path(), &all, number) {
            if let What::Enter(_, attributes) = what {
                let of = |name: &str| {
                    let found = attributes.iter().find(|attribute| attribute.0 == name);
                    found.map_or_else(String::new, |found| found.1.clone())
                };
                told.push(["dispatch_id", "GRBM_COUNT", "SQ_WAVES"].map(of));
            }
        }
    }
    told.sort_by_key(|[dispatch, ..]| dispatch.parse::<u64>().unwrap());
    let wanted: Vec<_> = (1..=told.len())
        .map(|number| [number.to_string(), "1.0".to_owned(), "8.0".to_owned()])
        .collect();
    assert!(!told.is_empty());
    assert_eq!(told, wanted);

    let directory = counted(readings(), &[Format::Otf2]);
    let all = definitions(directory.path());
    assert_eq!(all.locations.len(), 1);
    let location = &all.locations[0];
    let said = (location.name.as_str(), location.of, location.group.as_str());
    assert_eq!(said, ("Agent 1, Counters", "METRIC", "Agent 1"));
    let second = 1_000_000_000;
    let metrics = events(directory.path(), &all, 0);
    let value = |time: u64, name: &str, value: f64| (time, What::Metric(name.to_owned(), value));
    // Of half a second each, so that a second has twice as many.
    assert_eq!(
        metrics[..4],
        [
            value(second, "SQ_WAVES", 160.0),
            value(second, "GRBM_COUNT", 20.0),
            value(second + second / 2, "SQ_WAVES", 320.0),
            value(second + second / 2, "GRBM_COUNT", 40.0),
        ]
    );
    assert!(
        all.said.contains("metric GRBM_COUNT in \"1/s\"\n"),
        "{}",
        all.said
    );
}

/// Samples of a GPU are a metric, which is 0 where there is no sample.
#[test]
fn samples_are_metrics() {
    let mut trace = trace_of(writer(), &golden_json());
    let metric = GpuMetric {
        name: "sm_busy".to_owned(),
        unit: "%".to_owned(),
        expression: String::new(),
        group: 0,
    };
    let mut samples = GpuSamples::new(3, 1000, vec![metric]);
    samples.push(0, &[(1000, 2000), (5000, 6000)], &[10.5, 30.0]);
    trace.gpu = Some(samples);
    let found = written(&trace, |_| ());
    let (_, events) = found.split_once("\n\n").unwrap();
    assert_eq!(
        events,
        "GPU 3, Samples\n1000 sm_busy = 10.5\n2000 sm_busy = 0\n5000 sm_busy = 30\n6000 sm_busy = 0\n"
    );
    assert!(found.starts_with("clock 1000 to 6000\n"), "{found}");
    assert!(found.contains("metric sm_busy in \"%\"\n"), "{found}");
}

/// A session without events has a thread without events, since OTF2's library reads no archive
/// without locations. A time with all bits set, which stands for none, is one less.
#[test]
fn odd_sessions_have_locations_and_times() {
    let found = written(&trace_of(writer(), &golden_json()), |_| ());
    let wanted = "location 0 CPU_THREAD \"Thread 2371\" of \"vadd (2371)\": 0 events\n";
    assert!(found.contains(wanted), "{found}");
    assert!(found.starts_with("clock 0 to 0\n"), "{found}");
    let mut all = writer();
    let api = Api {
        header: header(kind::HSA_CORE_API, 3, 0),
        start: u64::MAX,
        end: u64::MAX,
        tid: 1,
        ..Api::default()
    };
    append(&mut all, &event::encode(&api, &[]));
    let backwards = Api {
        start: 20,
        end: 10,
        ..api
    };
    append(&mut all, &event::encode(&backwards, &[]));
    let found = written(&trace_of(all, &golden_json()), |_| ());
    let clock = format!("clock 20 to {}\n", u64::MAX - 1);
    assert!(found.starts_with(&clock), "{found}");
    let (_, events) = found.split_once("\n\n").unwrap();
    let times: Vec<&str> = events
        .lines()
        .skip(1)
        .map(|line| line.split_once(' ').unwrap().0)
        .collect();
    let never = (u64::MAX - 1).to_string();
    assert_eq!(times, ["20", "20", &never, &never]);
}

/// Archives of processes that differ in one bit of their numbers can be distinguished.
#[test]
fn each_process_has_an_archive_with_another_identity() {
    let directory = tempfile::tempdir().unwrap();
    let identity = |pid: u32| {
        let mut trace = trace_of(writer(), &golden_json());
        trace.process.pid = pid;
        let plan = plan(directory.path(), &[Format::Otf2]);
        write(&trace, &Names::amd(), &plan).unwrap();
        let anchor = anchor(directory.path());
        assert_eq!(
            (anchor.event_chunk, anchor.definition_chunk),
            (1 << 18, 4 << 20)
        );
        assert!(anchor.creator.starts_with("midair "), "{}", anchor.creator);
        anchor.identity
    };
    assert_eq!(identity(1 << 20), identity(1 << 20));
    let all: BTreeSet<u64> = (0..22).map(|bit| identity(1 << bit)).collect();
    assert_eq!(all.len(), 22);
}

/// Processes of one machine share it and its devices, and each has its own groups.
#[test]
fn processes_share_the_machine_and_its_devices() {
    let sessions = [41, 42].map(|pid| {
        let mut trace = hip();
        trace.process.pid = pid;
        trace.process.place.rank = Some(u64::from(pid) + 1);
        trace
    });
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[Format::Otf2]);
    write_together(&sessions, &Names::amd(), &plan).unwrap();
    let all = definitions(directory.path());
    let nodes = all.said.lines().filter(|line| line.starts_with("node "));
    assert_eq!(
        nodes.collect::<Vec<_>>(),
        [
            "node 0 machine \"there\"",
            "node 0 is MACHINE",
            "node 1 AMD GPU \"Agent 1 (MI300X)\" below 0",
            "node 1 is ACCELERATOR_DEVICE",
        ]
    );
    let groups = all.said.lines().filter(|line| line.starts_with("group "));
    assert_eq!(
        groups.collect::<Vec<_>>(),
        [
            "group PROCESS \"vadd (41)\" of node 0",
            "group ACCELERATOR \"Agent 1\" of node 1, created by \"vadd (41)\"",
            "group PROCESS \"vadd (42)\" of node 0",
            "group ACCELERATOR \"Agent 1\" of node 1, created by \"vadd (42)\"",
        ]
    );
    for (pid, rank) in [(41, 42), (42, 43)] {
        let property = format!("property of \"vadd ({pid})\": rank = {rank}\n");
        assert!(all.said.contains(&property), "{}", all.said);
    }
}
