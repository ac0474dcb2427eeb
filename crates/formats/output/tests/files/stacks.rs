//! Stacks at which work was launched (`--stacks`), in each format that has them. Readers that are not
//! ours count launches and times by stack, and find what the records say.

use crate::common::{
    agents, append, append_described, copy, golden_json, list, names, reader, trace_of, writer,
};
use crate::html::{data, looked_at};
use crate::pftrace::read as read_pftrace;
use crate::rocpd_rows::{header, one_kernel, plan};
use midair_output::{Format, Names, RecordWriter, Trace, write};
use midair_record::event::{self, Api, Code, Copy, Kernel, LaunchStack, Stack, kind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions, by their numbers from 1: file and name.
const FUNCTIONS: [(&str, &str); 3] = [
    ("/srv/app/train.py", "main"),
    ("/srv/app/train.py", "Model.forward"),
    (
        "/venv/lib/python3.12/site-packages/torch/nn/é \"linear\".py",
        "linear;\0x",
    ),
];
/// Stacks, by their numbers from 1: function and line, the innermost first.
const STACKS: [&[(u32, u32)]; 4] = [
    &[(3, 10), (2, 31), (1, 7)],
    &[(2, 32), (1, 7)],
    &[(1, 9)],
    &[(2, 31), (1, 7)],
];
/// The stack of each launch, by its correlation id from 1. No stack has the number 9.
const LAUNCHES: [u32; 9] = [1, 1, 2, 3, 4, 0, 9, 1, 2];
/// The time from a kernel's doorbell to its start.
const DELAY: u64 = 50;
/// The launch that copies.
const COPY: u64 = 9;

/// Copies with their events: the view of copies has no events.
const COPIES: &str = "(SELECT event_id, guid, \"end\" - start AS duration FROM rocpd_memory_copy)";

/// A frame: function, file and line.
type Frame = (String, String, u64);

/// Launches and nanoseconds by stack, the innermost frame first.
type Times = BTreeMap<Vec<Frame>, (u64, u64)>;

fn start_of(correlation: u64) -> u64 {
    1_000_000 + correlation * 10_000
}

fn time_of(correlation: u64) -> u64 {
    1_000 + correlation * correlation
}

/// Returns the frames of a stack, and none where it is not described.
fn frames(stack: u32) -> Vec<Frame> {
    let stack = STACKS.get((stack as usize).wrapping_sub(1));
    let frames = stack.into_iter().flat_map(|frames| frames.iter());
    let frame = |(function, line): &(u32, u32)| {
        let (file, name) = FUNCTIONS[*function as usize - 1];
        let name = name.replace('\0', "\u{fffd}");
        (name, file.to_owned(), u64::from(*line))
    };
    frames.map(frame).collect()
}

/// Returns the launches of kernels, or of copies, by stack.
fn wanted(copies: bool) -> Times {
    let mut all = Times::new();
    for (correlation, stack) in (1..).zip(LAUNCHES) {
        if (correlation == COPY) == copies {
            let sum = all.entry(frames(stack)).or_default();
            sum.0 += 1;
            sum.1 += time_of(correlation);
        }
    }
    all
}

fn api(correlation: u64) -> Api {
    Api {
        header: header(kind::HIP_RUNTIME_API_EXT, 5),
        start: start_of(correlation) - 500,
        end: start_of(correlation) - 100,
        correlation,
        tid: 7,
        ..Api::default()
    }
}

pub(crate) fn describe(writer: &mut RecordWriter) {
    append(
        writer,
        &event::encode(
            &Stack {
                header: header(kind::STACK, 0),
                ..Stack::default()
            },
            &[],
        ),
    );
    for (number, (file, name)) in (1..).zip(FUNCTIONS) {
        let code = Code {
            header: header(kind::CODE, number),
            file_len: file.len() as u32,
            name_len: name.len() as u32,
        };
        append(
            writer,
            &event::encode(&code, [file, name].concat().as_bytes()),
        );
    }
    for (number, frames) in (1..).zip(STACKS) {
        let stack = Stack {
            header: header(kind::STACK, number),
            frames: frames.len() as u32,
            is_cut: 0,
        };
        let words = frames
            .iter()
            .flat_map(|(function, line)| [*function, *line]);
        let bytes: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
        append(writer, &event::encode(&stack, &bytes));
    }
}

/// A session: each launch is a call and a kernel, the last one a copy.
fn session() -> (Trace, Names) {
    session_with(|_| {})
}

/// The same with further records.
pub(crate) fn session_with(more: impl FnOnce(&mut RecordWriter)) -> (Trace, Names) {
    let golden = golden_json();
    let names = names(&golden);
    let mut writer = writer();
    append_described(&mut writer, &agents(), &golden);
    describe(&mut writer);
    let copied = copy(
        &agents(),
        &list(&golden["buffer_records"]["memory_copy"])[0],
    );
    for (correlation, stack) in (1..).zip(LAUNCHES) {
        if stack > 0 {
            let launch = LaunchStack {
                header: header(kind::LAUNCH_STACK, stack),
                correlation,
            };
            append(&mut writer, &event::encode(&launch, &[]));
        }
        append(&mut writer, &event::encode(&api(correlation), &[]));
        let start = start_of(correlation);
        let end = start + time_of(correlation);
        if correlation == COPY {
            let copy = Copy {
                start,
                end,
                correlation,
                ..copied
            };
            append(&mut writer, &event::encode(&copy, &[]));
        } else {
            let kernel = Kernel {
                start,
                end,
                correlation,
                dispatch_id: correlation,
                rung: start - DELAY,
                ..one_kernel()
            };
            append(&mut writer, &event::encode(&kernel, &[]));
        }
    }
    more(&mut writer);
    let mut trace = trace_of(writer, &golden);
    (trace.process.init_time, trace.process.fini_time) = (500_000, 2_000_000);
    trace.attach.began_ns = 1_732_097_130_000_000_123;
    (trace, names)
}

/// Writes the session in a format, and returns the file with this end.
fn written(format: Format, end: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (trace, names) = session();
    write(&trace, &names, &plan(directory.path(), &[format])).unwrap();
    let file = directory.path().join(format!("r_results.{end}"));
    (directory, file)
}

/// Returns the sums of rows with a stack as JSON, a number of launches and a time.
fn sums(rows: &Value, frames: impl Fn(&Value) -> Vec<Frame>) -> Times {
    let mut all = Times::new();
    for row in list(rows) {
        let sum = all.entry(frames(row)).or_default();
        sum.0 += row["launches"].as_u64().unwrap();
        sum.1 += row["time"].as_u64().unwrap();
    }
    all
}

fn frame(row: &Value, [function, file, line]: [&str; 3]) -> Frame {
    let text = |key: &str| row[key].as_str().unwrap().to_owned();
    (text(function), text(file), row[line].as_u64().unwrap())
}

#[test]
fn rocpd_has_each_stack_once_and_its_number_at_each_launch() {
    let (_directory, file) = written(Format::Rocpd, "db");
    let by_stack = |view: &str| {
        format!(
            "SELECT COUNT(*) AS launches, SUM(w.duration) AS time, (
               SELECT json_group_array(json_object('function', function, 'file', file, 'line', line))
               FROM (SELECT * FROM call_stacks AS c
                     WHERE c.event_id = w.event_id AND c.guid = w.guid ORDER BY depth)) AS stack
             FROM {view} AS w GROUP BY stack"
        )
    };
    let queries = [
        by_stack("kernels"),
        by_stack(COPIES),
        "SELECT call_stack, duration AS time, 1 AS launches FROM regions ORDER BY id".to_owned(),
        "SELECT string FROM rocpd_string WHERE string LIKE '{\"frames\"%'".to_owned(),
        "SELECT DISTINCT call_stack FROM rocpd_event ORDER BY 1".to_owned(),
    ];
    let said = reader(&file, &queries.each_ref().map(String::as_str));
    let answers = &said["answers"];
    let of_row = |row: &Value| {
        let stack: Value = serde_json::from_str(row["stack"].as_str().unwrap()).unwrap();
        let frames = list(&stack).iter();
        frames
            .map(|row| frame(row, ["function", "file", "line"]))
            .collect()
    };
    assert_eq!(sums(&answers[0], of_row), wanted(false));
    assert_eq!(sums(&answers[1], of_row), wanted(true));
    // The view of calls has the form that AMD's readers know.
    let calls = list(&answers[2]);
    assert_eq!(calls.len(), LAUNCHES.len());
    for (row, stack) in calls.iter().zip(LAUNCHES) {
        let text = row["call_stack"].as_str().unwrap();
        let stacks: Value = serde_json::from_str(text).unwrap();
        let all = stacks["frames"].as_array();
        let all = all.into_iter().flatten().map(|row| {
            let keys = ["function", "filename", "line_number"];
            frame(&row["program_counter"], keys)
        });
        assert_eq!(all.collect::<Vec<_>>(), frames(stack), "{text}");
    }
    assert_eq!(list(&answers[3]).len(), STACKS.len());
    assert_eq!(list(&answers[4]).len(), 1 + STACKS.len());
    let longest = list(&answers[4]).iter();
    let longest = longest.map(|row| row["call_stack"].as_str().unwrap().len());
    assert!(longest.max() <= Some(10), "{}", answers[4]);
}

/// A frame as a list: function, file and line.
fn listed(frame: &Value) -> Frame {
    let text = |at: usize| frame[at].as_str().unwrap().to_owned();
    (text(0), text(1), frame[2].as_u64().unwrap())
}

/// Google's protobuf reads the profile, with all fields of the format.
#[test]
fn pprof_has_launches_and_times_by_stack() {
    let (_directory, file) = written(Format::Pprof, "pb.gz");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/python/pprof_read.py");
    let output = Command::new(midair_tests::python().unwrap())
        .arg(script)
        .arg(file)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let types = serde_json::json!([["launches", "count"], ["gpu", "nanoseconds"]]);
    assert_eq!(said["types"], types);
    assert_eq!(said["default"], "gpu");
    assert_eq!(said["time"], 1_732_097_130_000_000_123_u64);
    assert_eq!(said["duration"], 1_500_000);
    for copies in [false, true] {
        let mut all = Times::new();
        for sample in list(&said["samples"]) {
            let frames: Vec<Frame> = list(&sample["frames"]).iter().map(listed).collect();
            let (work, frames) = frames.split_first().unwrap();
            if work.0.contains("MEMORY_COPY") != copies {
                continue;
            }
            assert_eq!((work.1.as_str(), work.2), ("", 0));
            // Work without a stack, and with one that is not described.
            let frames = match frames {
                [(name, file, 0)] if file.is_empty() && name.starts_with('(') => &[],
                frames => frames,
            };
            let sum = all.entry(frames.to_vec()).or_default();
            sum.0 += sample["values"][0].as_u64().unwrap();
            sum.1 += sample["values"][1].as_u64().unwrap();
        }
        assert_eq!(all, wanted(copies), "{said}");
    }
}

/// Perfetto's own messages read the trace.
#[test]
fn perfetto_has_each_stack_once_and_its_number_at_each_launch() {
    let (directory, _) = written(Format::Pftrace, "pftrace");
    let said = read_pftrace(directory.path());
    for (category, copies) in [("kernel_dispatch", false), ("memory_copy", true)] {
        let slices = list(&said["slices"]).iter();
        let mut all = Times::new();
        for slice in slices.filter(|slice| slice["category"] == category) {
            let frames = list(&slice["stack"]).iter().map(listed).collect();
            let sum = all.entry(frames).or_default();
            sum.0 += 1;
            sum.1 += slice["notes"]["delta_ns"].as_u64().unwrap();
        }
        assert_eq!(all, wanted(copies), "{category}");
    }
    let calls = list(&said["slices"]).iter();
    let calls = calls.filter(|slice| slice["category"] == "hip_api");
    let with_stack = calls.filter(|slice| slice["stack"] != serde_json::json!([]));
    assert_eq!(with_stack.count(), 7);
    let interned = serde_json::json!({ "callstacks": 4, "frames": 5, "functions": 3 });
    assert_eq!(said["interned"], interned);
}

#[test]
fn kineto_has_the_call_stack_of_kernels_and_copies() {
    let (_directory, file) = written(Format::Kineto, "pt.trace.json");
    let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for (category, copies) in [("kernel", false), ("gpu_memcpy", true)] {
        let events = list(&document["traceEvents"]).iter();
        let mut all = Times::new();
        for event in events.filter(|event| event["cat"] == category) {
            let text = event["args"]["Call stack"].as_str();
            let frames = text.into_iter().flat_map(|text| text.split(';'));
            let frames = frames.map(|frame| {
                let (place, name) = frame.rsplit_once("): ").unwrap();
                let (file, line) = place.rsplit_once('(').unwrap();
                // Semicolons separate frames.
                let name = name.replace(",\u{fffd}", ";\u{fffd}");
                (name, file.to_owned(), line.parse().unwrap())
            });
            let sum = all.entry(frames.collect()).or_default();
            sum.0 += 1;
            sum.1 += (event["dur"].as_f64().unwrap() * 1000.0).round() as u64;
        }
        assert_eq!(all, wanted(copies), "{category}");
    }
}

/// The shares of each outermost frame: of the GPU's time, launches, the delay, and bytes.
fn shares() -> Vec<BTreeMap<&'static str, f64>> {
    let mut all = vec![BTreeMap::new(); 4];
    for (correlation, stack) in (1..).zip(LAUNCHES) {
        let name = match stack {
            0 => "(launched outside of Python)",
            3 => "main (app/train.py:9)",
            9 => "(stack not recorded)",
            _ => "main (app/train.py:7)",
        };
        let (delay, bytes) = if correlation == COPY {
            (0, 1)
        } else {
            (DELAY, 0)
        };
        let numbers = [time_of(correlation), 1, delay, bytes];
        for (sums, number) in all.iter_mut().zip(numbers) {
            *sums.entry(name).or_insert(0.0) += number as f64;
        }
    }
    for sums in &mut all {
        let whole: f64 = sums.values().sum();
        sums.retain(|_, number| *number > 0.0);
        sums.values_mut()
            .for_each(|number| *number *= 100.0 / whole);
    }
    all
}

/// Headless Chromium draws the flame graph by each measure.
#[test]
fn the_flame_graph_is_drawn_by_each_measure() {
    let (_directory, file) = written(Format::Html, "html");
    let sums = data(&file);
    let stacks = list(&sums["stacks"]);
    let sum = |at: usize| -> u64 { stacks.iter().map(|it| it[0][at].as_u64().unwrap()).sum() };
    let launches = 1..=LAUNCHES.len() as u64;
    assert_eq!(sum(0), launches.clone().map(time_of).sum::<u64>());
    assert_eq!(sum(1), launches.count() as u64);
    assert_eq!(sum(2), DELAY * (LAUNCHES.len() as u64 - 1));
    assert!(sum(3) > 0);
    let Some(found) = looked_at(&file) else {
        return;
    };
    let flames = &found["flames"];
    let row = |boxes: &Value, top: f64| -> BTreeMap<String, f64> {
        let boxes = list(boxes).iter();
        let boxes = boxes.filter(|it| it["top"].as_f64() == Some(top));
        boxes
            .map(|it| {
                (
                    it["name"].as_str().unwrap().to_owned(),
                    it["width"].as_f64().unwrap(),
                )
            })
            .collect()
    };
    let names = [
        "GPU time",
        "launches",
        "delay from launch to start",
        "bytes copied",
    ];
    for (name, wanted) in names.into_iter().zip(shares()) {
        assert_eq!(
            row(&flames[name], 0.0),
            BTreeMap::from([("all".to_owned(), 100.0)])
        );
        let drawn = row(&flames[name], 18.0);
        assert_eq!(drawn.len(), wanted.len(), "{name}: {drawn:?} {wanted:?}");
        for (frame, share) in wanted {
            assert!((drawn[frame] - share).abs() < 0.01, "{name}: {drawn:?}");
        }
    }
    let inverted = row(&flames["inverted"], 18.0);
    assert_eq!(inverted.len(), 2, "{inverted:?}");
    assert!(inverted.keys().any(|name| name.starts_with("vadd")));
    // The deepest stack has three frames and a kernel.
    assert_eq!(row(&flames["upwards"], 4.0 * 18.0).len(), 1, "{flames}");
    let zoomed = row(&flames["zoomed"], 18.0);
    assert_eq!(
        zoomed,
        BTreeMap::from([("main (app/train.py:7)".to_owned(), 100.0)])
    );
    let hits = list(&flames["searched"]).iter();
    let hits = hits.filter(|it| it["hit"] == true);
    let hits: Vec<&str> = hits.map(|it| it["name"].as_str().unwrap()).collect();
    assert!(!hits.is_empty() && hits.iter().all(|name| name.starts_with("Model.forward")));
    let forward: u64 = [1, 2, 3, 5, 8, 9].into_iter().map(time_of).sum();
    let share = forward as f64 * 100.0 / sum(0) as f64;
    assert_eq!(flames["found"], format!("{share:.1} % matches"));
}
