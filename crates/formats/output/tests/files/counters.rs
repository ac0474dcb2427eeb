//! Counters in files, compared with what AMD's tool wrote, and the treatment of windows that are
//! shared, incomplete, or made up.

use crate::common::{
    agents, append, append_described, entries, golden, golden_json, list, names, number, reader,
    small, text, trace_of, writer,
};
use midair_counters::dimension::{Dimension, Position};
use midair_counters::template::{Slot, Template};
use midair_counters::{Architecture, CounterPlan, Prepared, group};
use midair_output::{Format, KernelFilter, Plan, RecordWriter, Trace, write};
use midair_record::event::{self, CounterWindow, Header, Kernel, kind};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The lab's GPU.
pub const NODE: u32 = 1;
/// The number of its shader engines.
pub const ENGINES: u32 = 8;

/// Returns a group whose events come one after the other, SQ's once for each engine.
pub fn prepared(counters: &[&str]) -> Prepared {
    let architecture = Architecture::find("gfx942").unwrap();
    let group = group::one(architecture, counters).unwrap();
    let mut slots = Vec::new();
    for (event, of) in (0..).zip(&group.events) {
        for engine in 0..if of.block == "SQ" { ENGINES } else { 1 } {
            slots.push(Slot {
                word: slots.len() as u32,
                event,
                position: Position::default().with(Dimension::ShaderEngine, engine),
            });
        }
    }
    Prepared {
        architecture,
        group,
        template: Template {
            output_bytes: 8 * slots.len() as u64,
            slots,
            ..Template::default()
        },
    }
}

/// Returns the plan of what the golden counted, in one group.
pub fn amds_plan() -> CounterPlan {
    CounterPlan {
        agents: [(NODE, vec![prepared(&["GRBM_COUNT", "SQ_WAVES"])])].into(),
        ..CounterPlan::default()
    }
}

pub fn header(kind: u8) -> Header {
    Header {
        kind,
        ..Header::default()
    }
}

pub fn window(number: u64, kernel: &Kernel, total: u32) -> CounterWindow {
    CounterWindow {
        header: header(kind::COUNTER_COLLECTION),
        start: kernel.start - 10,
        end: kernel.end + 10,
        read_end: kernel.end + 30,
        window: number,
        dispatch_id: kernel.dispatch_id,
        queue_id: kernel.queue_id,
        node: kernel.node,
        packets: 1,
        total,
        ..CounterWindow::default()
    }
}

/// Appends a window in records of at most `most` words.
pub fn put(writer: &mut RecordWriter, mut window: CounterWindow, words: &[u64], most: usize) {
    for (n, words) in words.chunks(most).enumerate() {
        window.first = (n * most) as u32;
        window.words = words.len() as u32;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        append(writer, &event::encode(&window, &bytes));
    }
    if words.is_empty() {
        append(writer, &event::encode(&window, &[]));
    }
}

pub fn put_kernel(writer: &mut RecordWriter, kernel: &Kernel) {
    append(writer, &event::encode(kernel, &[]));
}

fn golden_pmc(name: &str) -> Value {
    serde_json::from_str(&golden(&format!("pmc/{name}"))).unwrap()
}

/// Returns the golden's dispatches.
fn amds_kernels(golden: &Value) -> Vec<Kernel> {
    let kernel = |counted: &Value| {
        let (data, info) = (
            &counted["dispatch_data"],
            &counted["dispatch_data"]["dispatch_info"],
        );
        let extents = |key: &str| ["x", "y", "z"].map(|axis| small(&info[key][axis]));
        Kernel {
            header: header(kind::KERNEL_DISPATCH),
            start: number(&data["start_timestamp"]),
            end: number(&data["end_timestamp"]),
            correlation: number(&data["correlation_id"]["internal"]),
            dispatch_id: number(&info["dispatch_id"]),
            kernel_id: number(&info["kernel_id"]),
            stream: number(&counted["stream_id"]["handle"]) * 0x1_0000,
            queue_id: small(&info["queue_id"]["handle"]),
            node: NODE,
            tid: small(&counted["thread_id"]),
            private_segment: small(&info["private_segment_size"]),
            group_segment: small(&info["group_segment_size"]),
            workgroup: extents("workgroup_size"),
            grid: extents("grid_size"),
            ..Kernel::default()
        }
    };
    let all = list(&golden["callback_records"]["counter_collection"]);
    all.iter().map(kernel).collect()
}

/// Returns a session with these records, in which the golden's kernels are described.
pub fn session(mut writer: RecordWriter, counters: CounterPlan) -> Trace {
    let golden = golden_pmc("results.json");
    let mut agents = agents();
    for (agent, handle) in agents.iter_mut().zip(39_675..) {
        agent.handle = handle;
    }
    append_described(&mut writer, &agents, &golden);
    Trace {
        known: Default::default(),
        agents,
        counters,
        ..trace_of(writer, &golden)
    }
}

/// Returns the golden's session, with a window around each dispatch, in records of two words.
pub fn amds(values: impl Fn(usize, u32) -> u64) -> Trace {
    let mut writer = writer();
    for (n, kernel) in amds_kernels(&golden_pmc("results.json")).iter().enumerate() {
        let words: Vec<u64> = (0..=ENGINES).map(|word| values(n, word)).collect();
        // Some windows come before their dispatch, and some behind it.
        if n == 1 {
            put_kernel(&mut writer, kernel);
        }
        put(&mut writer, window(n as u64 + 1, kernel, 9), &words, 2);
        if n != 1 {
            put_kernel(&mut writer, kernel);
        }
    }
    session(writer, amds_plan())
}

/// Writes the files of a session whose dispatches were not asked for.
pub fn written(mut trace: Trace, formats: &[Format]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan {
        directory: directory.path().to_owned(),
        prefix: "r".to_owned(),
        formats: formats.to_vec(),
        ..Plan::default()
    };
    let all = KernelFilter::default();
    trace
        .records
        .choose(&all, plan.kernel_names, false)
        .unwrap();
    write(&trace, &names(&golden_json()), &plan).unwrap();
    directory
}

pub fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}

pub fn json_of(directory: &Path) -> Value {
    let mut all: Value = serde_json::from_str(&read(directory, "r_results.json")).unwrap();
    all["rocprofiler-sdk-tool"][0].take()
}

#[test]
fn csv_equals_amds() {
    let directory = written(amds(|_, _| 0), &[Format::Csv]);
    let ours = read(directory.path(), "r_counter_collection.csv");
    assert_eq!(ours, golden("pmc/r_counter_collection.csv"));
    // As AMD's: dispatches were not asked for.
    let files = [
        "r_agent_info.csv",
        "r_counter_collection.csv",
        "r_notes.txt",
    ];
    assert_eq!(entries(directory.path()), files);
    let notes = read(directory.path(), "r_notes.txt");
    assert_eq!(
        notes,
        "counters: 3 of 3 dispatches have values, from 3 windows\n"
    );
}

#[test]
fn a_csv_row_has_the_sum_of_all_places() {
    let directory = written(
        amds(|n, word| (n as u64 + 1) * u64::from(word + 1)),
        &[Format::Csv],
    );
    let csv = read(directory.path(), "r_counter_collection.csv");
    let values: Vec<&str> = csv
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').nth(2).unwrap())
        .collect();
    // Words 2 to 9 are SQ's: 44 and multiples.
    let wanted = [
        "1.000000",
        "44.000000",
        "2.000000",
        "88.000000",
        "3.000000",
        "132.000000",
    ];
    assert_eq!(values, wanted);
}

/// AMD's numbers of counters are positions in a table of its version. Ours are positions in the
/// session's list.
#[test]
fn json_equals_amds_but_for_the_numbers_of_counters() {
    let directory = written(amds(|_, _| 0), &[Format::Json]);
    let ours = json_of(directory.path());
    let amds = golden("pmc/results.json");
    let amds = [(1791_u64, 1_u64), (3210, 2)]
        .into_iter()
        .fold(amds, |text, (theirs, ours)| {
            let text = text.replace(
                &format!("\"handle\":{theirs}}}"),
                &format!("\"handle\":{ours}}}"),
            );
            let text = text.replace(
                &format!("\"counter_id\":{theirs}"),
                &format!("\"counter_id\":{ours}"),
            );
            (0..ENGINES).fold(text, |text, engine| {
                let id = |counter: u64| counter << 48 | u64::from(engine) << 12;
                text.replace(&id(theirs).to_string(), &id(ours).to_string())
            })
        });
    let amds: Value = serde_json::from_str(&amds).unwrap();
    assert_eq!(ours["counters"], amds["counters"]);
    assert_eq!(ours["strings"]["counters"], amds["strings"]["counters"]);
    assert_eq!(ours["callback_records"], amds["callback_records"]);
    let empty = ours["buffer_records"].as_object().unwrap().values();
    assert!(empty.into_iter().all(|records| list(records).is_empty()));
    let told = &ours["metadata"]["midair"]["counters"];
    assert_eq!(
        (&told["windows"], &told["alone"], &told["dispatches"]),
        (&json!(3), &json!(3), &json!(3))
    );
}

#[test]
fn rocpd_has_what_amds_views_have() {
    let queries = [
        "SELECT * FROM counters_collection ORDER BY dispatch_id, counter_name",
        "SELECT * FROM rocpd_info_pmc ORDER BY id",
        "SELECT xcc, shader_engine, instance, value FROM rocpd_pmc_event WHERE event_id = 1 ORDER BY id",
        "SELECT COUNT(*) AS n FROM kernels",
    ];
    let values = |n: usize, word: u32| (n as u64 + 1) * u64::from(word + 1);
    let directory = written(amds(values), &[Format::Rocpd]);
    let found = reader(&directory.path().join("r_results.db"), &queries);
    let answers = list(&found["answers"]);
    let amds = golden_pmc("rocpd.json");
    let without = |row: &Value, keys: &[&str]| {
        let mut row = row.as_object().unwrap().clone();
        keys.iter().for_each(|key| drop(row.remove(*key)));
        Value::from(row)
    };
    // Each side has its own numbers of counters, nodes and events. The values were 0 in AMD's.
    let own = [
        "id",
        "guid",
        "counter_id",
        "value",
        "nid",
        "event_id",
        "extdata",
        "description",
    ];
    let (ours, theirs) = (list(&answers[0]), list(&amds["counters_collection"]));
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(without(ours, &own), without(theirs, &own));
    }
    let columns = |row: &Value| row.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut wanted: Vec<String> = list(&amds["columns"]).iter().map(text).collect();
    wanted.sort();
    let mut there = columns(&ours[0]);
    there.sort();
    assert_eq!(there, wanted);
    let sums: Vec<f64> = ours
        .iter()
        .map(|row| row["value"].as_f64().unwrap())
        .collect();
    assert_eq!(sums, [1.0, 44.0, 2.0, 88.0, 3.0, 132.0]);
    for (ours, theirs) in list(&answers[1]).iter().zip(list(&amds["info_pmc"])) {
        let own = ["id", "guid", "nid", "extdata", "spm_support", "description"];
        assert_eq!(without(ours, &own), without(theirs, &own));
    }
    let first: Vec<Value> = list(&answers[2]).to_vec();
    assert_eq!(first.len(), 9);
    let place = |engine: u32, value: f64| json!({ "xcc": 0, "shader_engine": engine, "instance": 0, "value": value });
    assert_eq!((&first[0], &first[8]), (&place(0, 1.0), &place(7, 9.0)));
    assert_eq!(answers[3], json!([{ "n": 3 }]));
}

#[test]
fn a_dispatch_that_was_asked_for_stands_once_whatever_comes_first() {
    let mut trace = amds(|_, _| 1);
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan {
        directory: directory.path().to_owned(),
        prefix: "r".to_owned(),
        formats: vec![Format::Rocpd, Format::Csv, Format::Json],
        ..Plan::default()
    };
    trace
        .records
        .choose(&KernelFilter::default(), plan.kernel_names, true)
        .unwrap();
    write(&trace, &names(&golden_json()), &plan).unwrap();
    let queries = [
        "SELECT COUNT(*) AS n FROM kernels",
        "SELECT COUNT(*) AS n FROM pmc_events",
    ];
    let found = reader(&directory.path().join("r_results.db"), &queries);
    assert_eq!(found["answers"], json!([[{ "n": 3 }], [{ "n": 27 }]]));
    let rows = read(directory.path(), "r_kernel_trace.csv").lines().count();
    assert_eq!(rows, 4);
    let ours = json_of(directory.path());
    assert_eq!(list(&ours["buffer_records"]["kernel_dispatch"]).len(), 3);
}

/// The trace is read with Perfetto's own messages.
#[test]
fn each_counter_has_a_track() {
    let directory = written(amds(|n, _| n as u64 + 1), &[Format::Pftrace]);
    let found = crate::pftrace::read(directory.path());
    let counters = found["counters"].as_object().unwrap();
    let highest = |name: &str| {
        let values = list(&counters[name])
            .iter()
            .map(|change| change[1].as_f64().unwrap());
        values.reduce(f64::max)
    };
    assert_eq!(counters.len(), 2, "{counters:?}");
    assert_eq!(highest("Agent [1] PMC GRBM_COUNT"), Some(3.0));
    assert_eq!(highest("Agent [1] PMC SQ_WAVES"), Some(24.0));
}
