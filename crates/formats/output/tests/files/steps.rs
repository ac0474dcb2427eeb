//! The iterations of a main loop (`--stacks`) in the trace for Perfetto.

use crate::common::{append, golden_json, list, names, trace_of, writer};
use crate::html::data;
use crate::pftrace::read;
use crate::rocpd_rows::{header, plan};
use crate::stacks::describe;
use midair_output::{Format, Names, Trace, write};
use midair_record::event::{self, Kernel, LaunchStack, kind};
use serde_json::Value;

const ITERATIONS: u64 = 12;
/// The time of an iteration, ns.
const TIME: u64 = 10_000;
/// The stacks of an iteration's launches, in the order of its lines: 7 and 9 of `main`.
const STACKS: [u32; 3] = [1, 2, 3];

fn start_of(iteration: u64) -> u64 {
    1_000_000 + iteration * TIME
}

/// A program whose iterations launch three kernels of 2 us.
fn session() -> (Trace, Names) {
    let mut writer = writer();
    describe(&mut writer);
    for iteration in 0..ITERATIONS {
        for (at, stack) in (0..).zip(STACKS) {
            let correlation = 1 + 3 * iteration + at;
            let launch = LaunchStack {
                header: header(kind::LAUNCH_STACK, stack),
                correlation,
            };
            append(&mut writer, &event::encode(&launch, &[]));
            let start = start_of(iteration) + 3_000 * at;
            let kernel = Kernel {
                header: header(kind::KERNEL_DISPATCH, 0),
                start,
                end: start + 2_000,
                correlation,
                tid: 7,
                ..Kernel::default()
            };
            append(&mut writer, &event::encode(&kernel, &[]));
        }
    }
    let golden = golden_json();
    (trace_of(writer, &golden), names(&golden))
}

/// Returns the slices whose names start with a word.
fn slices(trace: &Trace, names: &Names, word: &str) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    write(trace, names, &plan(directory.path(), &[Format::Pftrace])).unwrap();
    let said = read(directory.path());
    let slices = list(&said["slices"]).iter();
    let name = |slice: &Value| slice["name"].as_str().unwrap_or_default().to_owned();
    slices
        .filter(|slice| name(slice).starts_with(word))
        .cloned()
        .collect()
}

/// Returns the time and the name of each iteration on the page, and the line of its heading.
fn on_page(trace: &Trace, names: &Names) -> (Vec<(u64, Value)>, Value) {
    let directory = tempfile::tempdir().unwrap();
    let files = write(trace, names, &plan(directory.path(), &[Format::Html])).unwrap();
    let said = data(&files[0]);
    let mut rows = list(&said["rows"]).iter();
    let row = rows.find(|row| row["name"] == "steps (found in the stacks)");
    let spans = row.map_or(&[][..], |row| list(&row["spans"]));
    let span = |span: &[Value]| {
        let name = span[2].as_u64().unwrap() as usize;
        (span[1].as_u64().unwrap(), said["names"][name].clone())
    };
    let heading = said["processes"][0]["main_loop"]["text"].clone();
    (spans.chunks(4).map(span).collect(), heading)
}

#[test]
fn perfetto_has_a_track_of_steps() {
    let (mut trace, names) = session();
    let found = slices(&trace, &names, "step ");
    // What came before the first jump back, and the last iteration, are not whole.
    assert_eq!(found.len() as u64, ITERATIONS - 2);
    for (number, step) in (1..).zip(&found) {
        assert_eq!(step["name"], format!("step {number}"));
        assert_eq!(step["notes"]["begin_ns"], start_of(number));
        assert_eq!(step["notes"]["delta_ns"], TIME);
        assert_eq!(step["notes"]["kernel_dispatch_count"], 3);
        let remark = "the loop in main (train.py:7-9); no kernel runs for 40 % of it";
        assert_eq!(step["notes"]["remark"], remark);
    }
    // Two kernels at line 7, one at line 9, which calls nothing.
    let phases = slices(&trace, &names, "line ");
    assert_eq!(phases.len(), 2 * found.len());
    for (phases, step) in phases.chunks(2).zip(&found) {
        let start = step["notes"]["begin_ns"].as_u64().unwrap();
        let wanted = [
            ("line 7 (Model.forward)", start, 6_000),
            ("line 9", start + 6_000, 4_000),
        ];
        let said = [0, 1].map(|at| {
            let notes = &phases[at]["notes"];
            let number = |key: &str| notes[key].as_u64().unwrap();
            let name = phases[at]["name"].as_str().unwrap();
            (name, number("begin_ns"), number("delta_ns"))
        });
        assert_eq!(said, wanted);
    }
    // An iteration in a pause would look idle.
    trace.attach.unrecorded_ns = 1;
    assert!(slices(&trace, &names, "step ").is_empty());
    assert!(slices(&trace, &names, "line ").is_empty());
}

#[test]
fn the_page_has_a_row_of_steps_and_their_summary() {
    let (mut trace, names) = session();
    let (spans, heading) = on_page(&trace, &names);
    assert_eq!(spans.len() as u64, ITERATIONS - 2);
    for (number, (time, name)) in (1..).zip(spans) {
        let wanted = serde_json::json!(["range", format!("step {number}")]);
        assert_eq!((time, name), (TIME, wanted));
    }
    let heading = heading.as_str().unwrap();
    let wanted =
        "10 iterations of the loop in main (train.py:7-9), found in the stacks; median 10.0 us";
    assert!(heading.starts_with(wanted), "{heading}");
    trace.attach.unrecorded_ns = 1;
    assert_eq!(on_page(&trace, &names), (Vec::new(), Value::Null));
}
