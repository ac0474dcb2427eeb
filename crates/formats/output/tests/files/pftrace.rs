//! Perfetto traces, read by Perfetto's own messages (`tests/python/pftrace.py`, which also holds
//! them to the rules of the format): against AMD's trace of the same session, against csv, json and
//! rocpd, and whatever a target can do to one.

use crate::common::{
    agents, append, contains, entries, golden, golden_json, list, names, number, text, trace,
    trace_of, writer,
};
use crate::rocpd_rows::{ALL, counts, every_domain, header, one_kernel, plan, put_marker};
use midair_output::{
    Format, GpuMetric, GpuSamples, Names, Plan, RecordWriter, Trace, write, write_together,
};
use midair_record::event::{
    self, Api, Copy, Kernel, KernelSymbol, Marker, RuntimeInit, flag, kind,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// What is in `r_results.pftrace`.
pub fn read(directory: &Path) -> Value {
    let python = midair_tests::python().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/python/pftrace.py");
    let output = Command::new(python)
        .arg(script)
        .arg(directory.join("r_results.pftrace"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the pftrace of these records, as it was read back.
pub fn traced(writer: RecordWriter, change: impl Fn(&mut Plan)) -> Value {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let trace = trace_of(writer, &golden);
    let mut plan = plan(directory.path(), &[Format::Pftrace]);
    change(&mut plan);
    write(&trace, &names(&golden), &plan).unwrap();
    assert_eq!(entries(directory.path()), ["r_results.pftrace"]);
    read(directory.path())
}

fn golden_trace(change: impl Fn(&mut Plan)) -> Value {
    let golden = golden_json();
    let names = names(&golden);
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(&golden, &names);
    let mut plan = plan(directory.path(), &[Format::Pftrace]);
    change(&mut plan);
    write(&trace, &names, &plan).unwrap();
    read(directory.path())
}

/// AMD names kernels with the descriptor's suffix here, and without it in its other formats. We
/// name them as in those.
fn without_suffix(name: &str) -> &str {
    let name = name.strip_suffix(" [clone .kd]").unwrap_or(name);
    name.strip_suffix(".kd").unwrap_or(name)
}

/// Returns a stream's track with AMD's name.
fn without_gpu(track: &Value) -> Value {
    let name = text(track);
    let name = name
        .strip_suffix("Agent [1] GPU")
        .filter(|_| name.starts_with("STREAM"));
    name.map_or_else(|| track.clone(), Value::from)
}

#[test]
fn slices_tracks_and_annotations_are_amds() {
    let ours = golden_trace(|_| ());
    let amds: Value = serde_json::from_str(&golden("pftrace.json")).unwrap();
    // Our tracks say which GPU a stream is on, and how fast copies are.
    let tracks: Vec<Value> = list(&ours["tracks"])
        .iter()
        .filter(|track| !text(track).starts_with("COPY GB/s"))
        .map(without_gpu)
        .collect();
    assert_eq!(Value::from(tracks), amds["tracks"]);
    let mut wanted = BTreeSet::new();
    for slice in list(&amds["slices"]) {
        let category = text(&slice[0]);
        let name = text(&slice[1]);
        let name = without_suffix(&name).to_owned();
        let keys = list(&amds["annotations"][&category]).iter().map(text);
        let notes: serde_json::Map<String, Value> =
            keys.zip(list(&slice[3]).iter().cloned()).collect();
        wanted.insert((
            category,
            name,
            text(&slice[2]),
            Value::from(notes).to_string(),
        ));
    }
    let mut found = BTreeSet::new();
    let mut flows = BTreeMap::new();
    for slice in list(&ours["slices"]) {
        let notes = &slice["notes"];
        found.insert((
            text(&slice["category"]),
            text(&slice["name"]),
            text(&without_gpu(&slice["track"])),
            notes.to_string(),
        ));
        let flow = slice["flow"].as_u64().unwrap();
        let known = flows.insert(notes["corr_id"].as_u64().unwrap(), flow);
        assert!(
            known.is_none_or(|known| known == flow),
            "one call, two flows"
        );
    }
    assert_eq!(found, wanted);
    assert_eq!(list(&ours["slices"]).len(), list(&amds["slices"]).len());
    let different: BTreeSet<_> = flows.values().collect();
    assert_eq!(different.len(), flows.len(), "two calls, one flow");
    // AMD counts kilobytes, and we count bytes.
    for (track, kilobytes) in amds["counter_maxima"].as_object().unwrap() {
        let values = list(&ours["counters"][track]);
        let highest = values.iter().map(|value| value[1].as_u64().unwrap()).max();
        assert_eq!(
            highest,
            kilobytes.as_u64().map(|value| value * 1024),
            "{track}"
        );
        assert_eq!(values.last().unwrap()[1], 0, "{track}: all copies ended");
    }
    assert_eq!(ours["threads"], json!({"vadd": 2371}));
    assert_eq!(
        ours["process"],
        json!({"pid": 2371, "cmdline": ["/t/vadd", "3"]})
    );
    assert_eq!(ours["instants"], json!([]));
}

#[test]
fn by_queue_tracks_have_amds_names() {
    let ours = golden_trace(|plan| plan.group_by_queue = true);
    let tracks: BTreeMap<(String, String), usize> =
        list(&ours["slices"])
            .iter()
            .fold(BTreeMap::new(), |mut all, slice| {
                let key = (text(&slice["track"]), text(&slice["category"]));
                *all.entry(key).or_default() += 1;
                all
            });
    let wanted = [
        ("COMPUTE Agent [1] QUEUE [0] GPU", "kernel_dispatch", 6),
        ("COMPUTE Agent [1] QUEUE [1] GPU", "kernel_dispatch", 3),
        ("COPY to AGENT [0] THREAD [0] (CPU)", "memory_copy", 3),
        ("COPY to AGENT [1] THREAD [0] (GPU)", "memory_copy", 6),
        ("vadd", "hip_api", 62),
        ("vadd", "hsa_api", 874),
    ];
    let golden = golden_json();
    // The golden says how many kernels each queue had.
    let mut by_queue: BTreeMap<u64, usize> = BTreeMap::new();
    for record in list(&golden["buffer_records"]["kernel_dispatch"]) {
        let queue = record["dispatch_info"]["queue_id"]["handle"]
            .as_u64()
            .unwrap();
        *by_queue.entry(queue - 1).or_default() += 1;
    }
    for (queue, count) in by_queue {
        let name = format!("COMPUTE Agent [1] QUEUE [{queue}] GPU");
        assert_eq!(tracks[&(name, "kernel_dispatch".to_owned())], count);
    }
    for (track, category, count) in &wanted[2..] {
        assert_eq!(
            tracks[&((*track).to_owned(), (*category).to_owned())],
            *count
        );
    }
}

#[test]
fn every_domain_has_as_many_rows_in_every_format() {
    let directory = tempfile::tempdir().unwrap();
    let golden = golden_json();
    let trace = trace_of(every_domain(), &golden);
    let formats = [&ALL[..], &[Format::Pftrace]].concat();
    let plan = plan(directory.path(), &formats);
    write(&trace, &names(&golden), &plan).unwrap();
    let trace = read(directory.path());
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for event in list(&trace["slices"])
        .iter()
        .chain(list(&trace["instants"]))
    {
        *rows.entry(text(&event["category"])).or_default() += 1;
    }
    let pftrace = [
        "hip_api",
        "hsa_api",
        "marker_api",
        "kernel_dispatch",
        "memory_copy",
        "memory_allocation",
        "scratch_memory",
    ]
    .map(|category| rows.remove(category).unwrap_or(0));
    assert!(rows.is_empty(), "{rows:?}");
    let [csv, json, rocpd] = counts(directory.path());
    assert!(csv.iter().all(|count| *count > 0), "{csv:?}");
    assert_eq!([json, rocpd, pftrace], [csv; 3]);
    // Work without times is shown where nothing else is claimed, with its reason.
    let reasons: Vec<_> = list(&trace["instants"])
        .iter()
        .map(|event| (text(&event["category"]), text(&event["notes"]["untimed"])))
        .collect();
    assert_eq!(
        reasons
            .iter()
            .map(|(c, r)| (c.as_str(), r.as_str()))
            .collect::<BTreeSet<_>>(),
        BTreeSet::from([
            (
                "kernel_dispatch",
                "its own signal was reused before the times were read"
            ),
            ("memory_copy", "still running at detach"),
        ])
    );
    let open: Vec<_> = list(&trace["slices"])
        .iter()
        .filter(|slice| slice["notes"]["open_at_detach"] == true)
        .map(|slice| text(&slice["category"]))
        .collect();
    assert_eq!(open, ["hip_api"]);
}

fn kernel_at(start: u64, end: u64, stream: u64) -> Vec<u8> {
    let kernel = Kernel {
        start,
        end,
        stream,
        ..one_kernel()
    };
    event::encode(&kernel, &[])
}

#[test]
fn notes_are_beside_a_trace_that_has_no_place_for_them() {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let mut trace = trace_of(every_domain(), &golden);
    trace.lost = vec![("kernel dispatches".to_owned(), 7)];
    let plan = plan(directory.path(), &[Format::Pftrace]);
    let files = write(&trace, &names(&golden), &plan).unwrap();
    assert_eq!(files.len(), 2);
    assert_eq!(
        entries(directory.path()),
        ["r_notes.txt", "r_results.pftrace"]
    );
    let notes = std::fs::read_to_string(directory.path().join("r_notes.txt")).unwrap();
    let reason = "without times: 1 (start and end are 0): still running at detach";
    assert!(
        notes.contains("lost: 7 kernel dispatches") && notes.contains(reason),
        "{notes}"
    );
}

/// A program that only uses HSA has no streams. Its kernels are shown by queue without being asked
/// for.
#[test]
fn a_process_without_hip_is_shown_by_queue() {
    let tracks = |also: &[Vec<u8>]| {
        let mut writer = writer();
        let kernel = Kernel {
            stream: 0,
            ..one_kernel()
        };
        append(&mut writer, &event::encode(&kernel, &[]));
        for record in also {
            append(&mut writer, record);
        }
        text(&traced(writer, |_| ())["slices"][0]["track"])
    };
    assert!(tracks(&[]).starts_with("COMPUTE Agent [1] QUEUE ["));
    let runtime = RuntimeInit {
        header: header(kind::RUNTIME_INITIALIZATION, 2),
        ..RuntimeInit::default()
    };
    let name = b"__amd_rocclr_copyBuffer.kd";
    let symbol = KernelSymbol {
        header: header(kind::KERNEL_SYMBOL, 0),
        kernel_id: 3,
        name_len: name.len() as u32,
        ..KernelSymbol::default()
    };
    for hip in [event::encode(&runtime, &[]), event::encode(&symbol, name)] {
        assert_eq!(tracks(&[hip]), "STREAM [\" 0 \"] Agent [1] GPU");
    }
}

/// A stream's track belongs to a GPU: to the one that a copy writes to, or to the one that it reads
/// from where it writes to the host.
#[test]
fn a_copy_is_on_the_track_of_its_gpu() {
    let golden = golden_json();
    let mut agents = agents();
    let mut second = agents[1].clone();
    (second.node_id, second.logical_node_id) = (2, 2);
    second.logical_node_type_id = 1;
    agents.push(second);
    let mut writer = writer();
    let runtime = RuntimeInit {
        header: header(kind::RUNTIME_INITIALIZATION, 2),
        ..RuntimeInit::default()
    };
    append(&mut writer, &event::encode(&runtime, &[]));
    let copies = [(1, 0), (0, 2), (1, 2), (2, 1)];
    for ((dst_node, src_node), start) in copies.into_iter().zip((100..).step_by(100)) {
        let copy = Copy {
            header: header(kind::MEMORY_COPY, 2),
            start,
            end: start + 50,
            dst_node,
            src_node,
            ..Copy::default()
        };
        append(&mut writer, &event::encode(&copy, &[]));
    }
    let trace = Trace {
        known: Default::default(),
        agents,
        ..trace_of(writer, &golden)
    };
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[Format::Pftrace]);
    write(&trace, &names(&golden), &plan).unwrap();
    let read = read(directory.path());
    let mut slices: Vec<(u64, String)> = list(&read["slices"])
        .iter()
        .map(|slice| (number(&slice["notes"]["begin_ns"]), text(&slice["track"])))
        .collect();
    slices.sort();
    let tracks: Vec<&str> = slices.iter().map(|(_, track)| track.as_str()).collect();
    let of = [1, 2, 1, 2].map(|gpu| format!("STREAM [\" 0 \"] Agent [{gpu}] GPU"));
    assert_eq!(tracks, of);
}

/// The slice of a damaged record has no length, and closes no other slice.
#[test]
fn a_slice_that_ends_before_it_begins_has_no_length() {
    let mut writer = writer();
    let call = |start: u64, end: u64, correlation: u64| {
        let call = Api {
            header: header(kind::HSA_CORE_API, 3),
            start,
            end,
            correlation,
            tid: 5,
            ..Api::default()
        };
        event::encode(&call, &[])
    };
    // They start in the middle of a slice, and where another one starts.
    for (n, (start, end)) in [(100, 300), (200, 150), (400, 350), (400, 500)]
        .into_iter()
        .enumerate()
    {
        append(&mut writer, &call(start, end, 200 + n as u64));
    }
    append(&mut writer, &kernel_at(200, 100, 7));
    append(&mut writer, &kernel_at(120, 180, 7));
    let ours = traced(writer, |_| ());
    let slices = list(&ours["slices"]);
    assert_eq!(slices.len(), 6);
    // The reader has compared each slice with its record.
    let empty = |slice: &&Value| slice["notes"]["delta_ns"] == 0;
    assert_eq!(slices.iter().filter(empty).count(), 3);
}

/// The reader fails where the start and end that a viewer pairs are not the record's.
#[test]
fn what_overlaps_keeps_its_times() {
    let mut writer = writer();
    // Four overlap, one is within another, one only touches, and one comes late.
    for (start, end) in [
        (100, 200),
        (150, 250),
        (160, 170),
        (200, 300),
        (155, 400),
        (50, 100),
        (50, 99),
    ] {
        append(&mut writer, &kernel_at(start, end, 7));
    }
    // Ranges of the process cross. A thread's ranges nest, as does a call with the same start as
    // one inside it.
    for (n, (start, end)) in [(10, 30), (20, 40), (35, 50)].into_iter().enumerate() {
        let range = Marker {
            header: header(kind::MARKER_CORE_RANGE_API, 2),
            start,
            end,
            correlation: 100 + n as u64,
            tid: 5,
            ..Marker::default()
        };
        put_marker(&mut writer, range, b"range");
    }
    for (n, (start, end)) in [(10, 20), (25, 30), (25, 60), (5, 70)]
        .into_iter()
        .enumerate()
    {
        let call = Api {
            header: header(kind::HSA_CORE_API, 3),
            start,
            end,
            correlation: 200 + n as u64,
            tid: 5,
            ..Api::default()
        };
        append(&mut writer, &event::encode(&call, &[]));
    }
    let ours = traced(writer, |_| ());
    assert_eq!(list(&ours["slices"]).len(), 14);
    let lanes = |name: &str| {
        list(&ours["tracks"])
            .iter()
            .filter(|track| *track == name)
            .count()
    };
    assert_eq!(lanes("STREAM [\" 1 \"] Agent [1] GPU"), 4);
    assert_eq!(lanes("ROCTX PROCESS RANGES"), 2);
    assert_eq!(lanes("THREAD 1 (5)"), 2);
    assert_eq!(ours["depths"]["THREAD 1 (5)"], 2);
    assert_eq!(ours["depths"]["STREAM [\" 1 \"] Agent [1] GPU"], 1);
}

#[test]
fn names_of_any_bytes_are_read_back() {
    let mut writer = writer();
    let messages: [&[u8]; 4] = [
        b"",
        b"\xff\xfe\0\"\n</slice>\x1b[31m",
        "käse \u{1f9c0}".as_bytes(),
        &[b'x'; 3900],
    ];
    for (n, message) in messages.into_iter().enumerate() {
        let mark = Marker {
            header: header(kind::MARKER_CORE_RANGE_API, 0),
            start: 10 * n as u64,
            end: 10 * n as u64 + 1,
            correlation: n as u64,
            tid: u32::MAX,
            ..Marker::default()
        };
        put_marker(&mut writer, mark, message);
    }
    // A kernel that ends before it starts, in an unknown stream and on an unknown node, by a call
    // at the end of time.
    append(
        &mut writer,
        &event::encode(
            &Kernel {
                node: 77,
                kernel_id: u64::MAX,
                kernel_object: 0xabc0,
                start: 20,
                end: 20,
                queue_id: 0,
                ..one_kernel()
            },
            &[],
        ),
    );
    let last = Api {
        header: header(kind::HSA_CORE_API, 60_000),
        start: u64::MAX,
        end: u64::MAX,
        correlation: u64::MAX,
        ..Api::default()
    };
    append(&mut writer, &event::encode(&last, &[]));
    let ours = traced(writer, |_| ());
    let found: Vec<_> = list(&ours["slices"])
        .iter()
        .map(|slice| text(&slice["name"]))
        .collect();
    let mut wanted: Vec<_> = messages
        .iter()
        .map(|message| String::from_utf8_lossy(message).into_owned())
        .collect();
    wanted.insert(2, "unknown_kernel@0xabc0".to_owned());
    wanted.push("HSA_CORE_API_OPERATION_60000".to_owned());
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(found), sorted(wanted));
}

/// Calls that had not ended come in the order outer, inner. The inner one must be shown below the
/// outer one all the same.
#[test]
fn a_call_that_is_open_at_the_detach_is_under_its_outer_call() {
    let mut writer = writer();
    for (n, (start, end, open)) in [(100, 900, true), (200, 900, true), (300, 400, false)]
        .into_iter()
        .enumerate()
    {
        let mut call = Api {
            header: header(kind::HSA_CORE_API, 3),
            start,
            end,
            correlation: 200 + n as u64,
            tid: 5,
            ..Api::default()
        };
        if open {
            call.header.flags = flag::OPEN_AT_DETACH;
        }
        append(&mut writer, &event::encode(&call, &[]));
    }
    let ours = traced(writer, |_| ());
    assert_eq!(list(&ours["slices"]).len(), 3);
    let lanes = list(&ours["tracks"]).iter();
    assert_eq!(lanes.filter(|track| *track == "THREAD 1 (5)").count(), 1);
    assert_eq!(ours["depths"]["THREAD 1 (5)"], 3);
}

/// Threads have the names that they gave themselves. The marks of runtimes, which our own thread
/// found, belong to the process.
#[test]
fn threads_have_their_names_and_runtimes_are_the_processs() {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer();
    for (correlation, tid) in [(1, 5), (2, 6)] {
        let call = Api {
            header: header(kind::HSA_CORE_API, 3),
            start: 100,
            end: 200,
            correlation,
            tid,
            ..Api::default()
        };
        append(&mut writer, &event::encode(&call, &[]));
    }
    let runtime = RuntimeInit {
        header: header(kind::RUNTIME_INITIALIZATION, 2),
        tid: 77,
        time: 50,
        ..RuntimeInit::default()
    };
    append(&mut writer, &event::encode(&runtime, &[]));
    let mut trace = trace_of(writer, &golden);
    trace.process.threads.insert(5, "pt_autograd_0".to_owned());
    let plan = plan(directory.path(), &[Format::Pftrace]);
    write(&trace, &names(&golden), &plan).unwrap();
    let ours = read(directory.path());
    assert_eq!(
        ours["thread_names"],
        json!({"5": "pt_autograd_0", "6": "THREAD 2", "2371": "vadd"})
    );
    let mark = &list(&ours["instants"])[0];
    assert_eq!(mark["track"], "", "the process's own track");
}

/// Of several sessions in one file, a later one may have started before an earlier one.
#[test]
fn the_clock_of_a_merged_trace_never_runs_backwards() {
    let golden = golden_json();
    let directory = tempfile::tempdir().unwrap();
    let session = |pid: u32, begin: u64| {
        let mut trace = trace_of(every_domain(), &golden);
        trace.process.pid = pid;
        trace.process.init_time = begin;
        trace
    };
    let parts = [session(41, 90), session(42, 50), session(43, 70)];
    let plan = plan(directory.path(), &[Format::Pftrace]);
    write_together(&parts, &names(&golden), &plan).unwrap();
    let script = "
import sys
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages
trace = messages.Trace()
trace.ParseFromString(open(sys.argv[1], 'rb').read())
times = [clock.timestamp for packet in trace.packet for clock in packet.clock_snapshot.clocks]
assert times and times == sorted(times), times
assert len({packet.trusted_packet_sequence_id for packet in trace.packet}) == 3
";
    let output = Command::new(midair_tests::python().unwrap())
        .args(["-c", script])
        .arg(directory.path().join("r_results.pftrace"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[test]
fn samples_of_a_gpu_have_tracks() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = trace_of(writer(), &golden_json());
    let metric = |name: &str, unit: &str| GpuMetric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        expression: String::new(),
        group: 0,
    };
    let metrics = vec![metric("sm_busy", "%"), metric("dram", "B/s")];
    let mut samples = GpuSamples::new(3, 1000, metrics);
    samples.push(0, &[(1000, 2000)], &[10.5, 7.0]);
    trace.gpu = Some(samples);
    let plan = plan(directory.path(), &[Format::Pftrace]);
    write(&trace, &Names::amd(), &plan).unwrap();
    let file = directory.path().join("r_results.pftrace");
    for track in ["GPU [3] sm_busy (%)", "GPU [3] dram (B/s)"] {
        assert!(contains(&file, track), "{track}");
    }
}
