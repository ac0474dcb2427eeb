//! Counters in files: against what AMD's tool wrote, and what becomes of windows that are shared,
//! incomplete, or made up.

use crate::common::{
    agents, append, append_described, entries, golden, golden_json, list, names, number, reader,
    small, text, trace_of, writer,
};
use midair_counters::dimension::{Dimension, Position};
use midair_counters::template::{Slot, Template};
use midair_counters::{Architecture, CounterPlan, Prepared, group};
use midair_output::{Format, KernelFilter, Plan, RecordWriter, Trace, write};
use midair_record::event::{
    self, CounterWindow, Header, Kernel, Queue, QueueCounts, Untimed, WindowResult, flag, kind,
};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The lab's GPU.
const NODE: u32 = 1;
/// Its shader engines.
const ENGINES: u32 = 8;

/// A group whose events stand one after the other, those of SQ once for each engine.
fn prepared(counters: &[&str]) -> Prepared {
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

/// What the golden counted, in one group.
fn amds_plan() -> CounterPlan {
    CounterPlan {
        agents: [(NODE, vec![prepared(&["GRBM_COUNT", "SQ_WAVES"])])].into(),
    }
}

fn header(kind: u8) -> Header {
    Header {
        kind,
        ..Header::default()
    }
}

fn window(number: u64, kernel: &Kernel, total: u32) -> CounterWindow {
    CounterWindow {
        header: header(kind::COUNTER_COLLECTION),
        start: kernel.start - 10,
        end: kernel.end + 10,
        read_end: kernel.end + 30,
        window: number,
        dispatch_id: kernel.dispatch_id,
        queue_id: kernel.queue_id,
        node: kernel.node,
        total,
        ..CounterWindow::default()
    }
}

/// Appends a window in records of at most so many words.
fn put(writer: &mut RecordWriter, mut window: CounterWindow, words: &[u64], most: usize) {
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

fn put_kernel(writer: &mut RecordWriter, kernel: &Kernel) {
    append(writer, &event::encode(kernel, &[]));
}

fn golden_pmc(name: &str) -> Value {
    serde_json::from_str(&golden(&format!("pmc/{name}"))).unwrap()
}

/// The golden's dispatches.
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

/// A session of these records: the golden's kernels are described in it.
fn session(mut writer: RecordWriter, counters: CounterPlan) -> Trace {
    let golden = golden_pmc("results.json");
    let mut agents = agents();
    for (agent, handle) in agents.iter_mut().zip(39_675..) {
        agent.handle = handle;
    }
    append_described(&mut writer, &agents, &golden);
    Trace {
        agents,
        counters,
        ..trace_of(writer, &golden)
    }
}

/// The golden's session: a window around each dispatch, in records of two words.
fn amds(values: impl Fn(usize, u32) -> u64) -> Trace {
    let mut writer = writer();
    for (n, kernel) in amds_kernels(&golden_pmc("results.json")).iter().enumerate() {
        let words: Vec<u64> = (0..=ENGINES).map(|word| values(n, word)).collect();
        // Some before their dispatch, some behind it.
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

/// Files of a session whose dispatches were not asked for.
fn written(mut trace: Trace, formats: &[Format]) -> tempfile::TempDir {
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

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}

fn json_of(directory: &Path) -> Value {
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

/// AMD's numbers of counters are places in a table of its version; ours are those of the session.
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
    // Numbers of counters, nodes and events are each side's own; values were 0 in AMD's.
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

/// One kernel after another, 1000 ns each, on queue 1 of the GPU.
fn kernel(dispatch_id: u64) -> Kernel {
    Kernel {
        header: header(kind::KERNEL_DISPATCH),
        start: 10_000 * dispatch_id,
        end: 10_000 * dispatch_id + 1_000,
        rung: 10_000 * dispatch_id - 100,
        dispatch_id,
        kernel_id: 11,
        queue_id: 1,
        node: NODE,
        ..Kernel::default()
    }
}

/// What json tells about windows, without what is 0.
fn told(writer: RecordWriter) -> Value {
    told_of(session(writer, amds_plan()))
}

fn told_of(trace: Trace) -> Value {
    let directory = written(trace, &[Format::Json]);
    let ours = json_of(directory.path());
    let mut told = ours["metadata"]["midair"]["counters"]
        .as_object()
        .unwrap()
        .clone();
    told.retain(|_, count| *count != 0);
    let alone = told.get("alone").map_or(0, number);
    let rows = list(&ours["callback_records"]["counter_collection"]).len();
    assert_eq!(rows as u64, alone);
    told.into()
}

/// Windows around dispatches 1 to 4 of queue 1, and what else is given.
fn four(also: impl FnOnce(&mut RecordWriter)) -> Value {
    let mut writer = writer();
    for n in 1..=4 {
        put_kernel(&mut writer, &kernel(n));
        put(&mut writer, window(n, &kernel(n), 9), &[n; 9], 9);
    }
    also(&mut writer);
    told(writer)
}

#[test]
fn what_another_dispatch_overlapped_is_told_and_has_no_values() {
    let beside = |start, end, node, queue_id| Kernel {
        start,
        end,
        node,
        queue_id,
        ..kernel(9)
    };
    // On another queue within window 2, and across 3 and 4.
    let shared = four(|writer| {
        put_kernel(writer, &beside(20_500, 20_600, NODE, 2));
        put_kernel(writer, &beside(30_500, 40_500, NODE, 3));
    });
    assert_eq!(
        shared,
        json!({ "dispatches": 6, "windows": 4, "alone": 1, "shared": 3 })
    );
    // On another GPU, or when the window was not open.
    let alone = four(|writer| {
        put_kernel(writer, &beside(20_500, 20_600, 2, 2));
        put_kernel(writer, &beside(22_000, 29_990, NODE, 2));
    });
    assert_eq!(alone, json!({ "dispatches": 6, "windows": 4, "alone": 4 }));
}

#[test]
fn a_dispatch_without_times_makes_later_windows_of_other_queues_doubtful() {
    let untimed = |queue_id, rung| {
        move |writer: &mut RecordWriter| {
            let mut kernel = Kernel {
                start: 0,
                end: 0,
                rung,
                queue_id,
                untimed: Untimed::ALL[1] as u32,
                ..kernel(9)
            };
            kernel.header.flags |= flag::UNTIMED;
            put_kernel(writer, &kernel);
        }
    };
    let doubtful = json!({ "dispatches": 5, "windows": 4, "alone": 2, "not_known_to_be_alone": 2 });
    assert_eq!(four(untimed(2, 25_000)), doubtful);
    // Those of one queue do not run within its own windows.
    let alone = json!({ "dispatches": 5, "windows": 4, "alone": 4 });
    assert_eq!(four(untimed(1, 25_000)), alone);
}

#[test]
fn packets_and_records_that_were_lost_make_windows_doubtful() {
    let lost = |queue_id| {
        move |writer: &mut RecordWriter| {
            let queue = Queue {
                header: header(kind::QUEUE),
                queue_id,
                node: NODE,
                ..Queue::default()
            };
            append(writer, &event::encode(&queue, &[]));
            let counts = QueueCounts {
                header: header(kind::QUEUE_COUNTS),
                queue_id,
                last_index: 1,
                lost: 1,
                ..QueueCounts::default()
            };
            append(writer, &event::encode(&counts, &[]));
        }
    };
    let doubtful = json!({ "dispatches": 4, "windows": 4, "not_known_to_be_alone": 4 });
    assert_eq!(four(lost(2)), doubtful);
    assert_eq!(
        four(lost(1)),
        json!({ "dispatches": 4, "windows": 4, "alone": 4 })
    );
    let mut trace = amds(|_, _| 0);
    trace.lost = vec![("kernel dispatches".to_owned(), 1)];
    let doubtful = json!({ "dispatches": 3, "windows": 3, "not_known_to_be_alone": 3 });
    assert_eq!(told_of(trace), doubtful);
}

#[test]
fn windows_without_a_dispatch_or_a_reading_are_told_by_reason() {
    let results = [
        (WindowResult::NoDispatch, "without_a_dispatch"),
        (WindowResult::Open, "open_at_the_end"),
        (WindowResult::QueueDestroyed, "queue_destroyed"),
        (WindowResult::BadTimes, "without_plausible_times"),
    ];
    for (result, key) in results {
        let void = four(|writer| {
            let window = CounterWindow {
                result: result as u32,
                ..window(5, &kernel(5), 0)
            };
            put(writer, window, &[], 9);
        });
        let mut wanted = json!({ "dispatches": 4, "windows": 5, "alone": 4 });
        wanted[key] = json!(1);
        assert_eq!(void, wanted);
    }
}

/// Whatever a target writes: each is counted once, and has no values.
#[test]
fn what_does_not_fit_together_has_no_values() {
    let good = || window(5, &kernel(5), 9);
    type Put = fn(&mut RecordWriter, CounterWindow);
    let whole: Put = |writer, window| put(writer, window, &[1; 9], 9);
    let mut cases: Vec<(&str, CounterWindow, Put)> = Vec::new();
    let mut case = |key, change: fn(&mut CounterWindow), put: Put| {
        let mut window = good();
        change(&mut window);
        cases.push((key, window, put));
    };
    case("contradictory", |w| w.group = 7, whole);
    case("contradictory", |w| w.group = u32::MAX, whole);
    case("contradictory", |w| w.node = 77, whole);
    case("contradictory", |w| w.result = 99, whole);
    case("contradictory", |w| w.total = u32::MAX, whole);
    case("contradictory", |w| w.total = 3, whole);
    case("contradictory", |w| w.dispatch_id = 0, whole);
    case("contradictory", |w| w.queue_id = 4, whole);
    // A window of before: its parts contradict each other, and so does the window.
    case("dispatch_not_recorded", |w| w.dispatch_id = 99, whole);
    case("without_plausible_times", |w| w.start = 0, whole);
    case("without_plausible_times", |w| w.end = 1, whole);
    case(
        "incomplete",
        |_| (),
        |writer, window| put(writer, window, &[1; 6], 3),
    );
    case(
        "contradictory",
        |_| (),
        |writer, window| put(writer, window, &[1; 12], 3),
    );
    case(
        "contradictory",
        |_| (),
        |writer, mut window| {
            put(writer, window, &[1; 6], 3);
            window.end += 1;
            (window.first, window.words) = (6, 3);
            append(writer, &event::encode(&window, &[0; 24]));
        },
    );
    case(
        "contradictory",
        |_| (),
        |writer, mut window| {
            (window.first, window.words) = (3, 6);
            append(writer, &event::encode(&window, &[0; 48]));
            (window.first, window.words) = (0, 3);
            append(writer, &event::encode(&window, &[0; 24]));
        },
    );
    for (n, (key, window, put)) in cases.into_iter().enumerate() {
        let found = four(|writer| {
            put_kernel(writer, &kernel(5));
            put(writer, window);
        });
        let windows = number(&found["windows"]);
        let all = ["alone", key].map(|key| found.get(key).map_or(0, number));
        // One that begins in the middle is counted where it begins.
        assert_eq!((windows, all), (5, [4, 1]), "{n}: {found}");
    }
    // Two windows of one dispatch: neither.
    let twice = four(|writer| put(writer, window(5, &kernel(2), 9), &[1; 9], 9));
    let wanted = json!({
        "dispatches": 4, "windows": 5, "alone": 3, "contradictory": 1, "dispatch_not_recorded": 1
    });
    assert_eq!(twice, wanted);
}

#[test]
fn many_windows_that_never_end_stay_few_in_memory() {
    let found = four(|writer| {
        for n in 5..1000 {
            put(writer, window(n, &kernel(n), 9), &[1; 2], 2);
        }
        // One of the old ones goes on: it was given up.
        let mut late = window(5, &kernel(5), 9);
        (late.first, late.words) = (2, 7);
        append(writer, &event::encode(&late, &[0; 56]));
    });
    assert_eq!(
        (number(&found["windows"]), number(&found["alone"])),
        (999, 4)
    );
}

#[test]
fn derived_counters_are_computed_from_what_was_counted() {
    let counters = ["SQ_WAVES", "SQ_WAVES_sum", "MAX_WAVE_SIZE"];
    let architecture = Architecture::find("gfx942").unwrap();
    let known = counters
        .into_iter()
        .filter(|name| architecture.counter(name).is_some());
    let plan = CounterPlan {
        agents: [(NODE, vec![prepared(&known.collect::<Vec<_>>())])].into(),
    };
    let mut writer = writer();
    put_kernel(&mut writer, &kernel(1));
    let words: Vec<u64> = (1..=u64::from(ENGINES)).collect();
    put(&mut writer, window(1, &kernel(1), ENGINES), &words, 8);
    let directory = written(session(writer, plan), &[Format::Csv]);
    let csv = read(directory.path(), "r_counter_collection.csv");
    let rows: Vec<Vec<&str>> = csv
        .lines()
        .skip(1)
        .map(|l| l.rsplit(',').skip(2).take(2).collect())
        .collect();
    assert!(rows.contains(&vec!["36.000000", "\"SQ_WAVES\""]), "{csv}");
    // A property of the agent: lanes of a wave.
    assert!(
        rows.contains(&vec!["64.000000", "\"MAX_WAVE_SIZE\""]),
        "{csv}"
    );
}

#[test]
fn chosen_kernels_are_the_only_ones_in_files_and_overlap_all_the_same() {
    let scale = |start: u64, dispatch_id| Kernel {
        start,
        end: start + 100,
        queue_id: 2,
        kernel_id: 10,
        ..kernel(dispatch_id)
    };
    let trace = || {
        let mut writer = writer();
        for n in 1..=4 {
            put_kernel(&mut writer, &kernel(n));
            put(&mut writer, window(n, &kernel(n), 9), &[n; 9], 9);
        }
        put_kernel(&mut writer, &scale(20_500, 5));
        put_kernel(&mut writer, &scale(60_000, 6));
        put(&mut writer, window(6, &scale(60_000, 6), 9), &[1; 9], 9);
        session(writer, amds_plan())
    };
    let rows = |include, exclude, iterations, kernels| {
        let mut trace = trace();
        let filter = KernelFilter::new(include, exclude, iterations).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let plan = Plan {
            directory: directory.path().to_owned(),
            prefix: "r".to_owned(),
            formats: vec![Format::Csv],
            ..Plan::default()
        };
        trace
            .records
            .choose(&filter, plan.kernel_names, kernels)
            .unwrap();
        write(&trace, &names(&golden_json()), &plan).unwrap();
        let dispatches = |name: &str, column: usize| -> Vec<u64> {
            let text = fs::read_to_string(directory.path().join(name)).unwrap_or_default();
            let cell = |line: &str| line.split(',').nth(column).unwrap().parse().unwrap();
            let mut all: Vec<u64> = text.lines().skip(1).map(cell).collect();
            all.dedup();
            all
        };
        (
            dispatches("r_counter_collection.csv", 1),
            dispatches("r_kernel_trace.csv", 5),
        )
    };
    let all = rows(None, None, vec![], true);
    assert_eq!(all, (vec![1, 3, 4, 6], vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(
        rows(Some("vadd"), None, vec![], true),
        (vec![1, 3, 4], vec![1, 2, 3, 4])
    );
    assert_eq!(
        rows(None, Some("^vadd"), vec![], true),
        (vec![6], vec![5, 6])
    );
    assert_eq!(
        rows(Some("vadd"), None, vec![2..=3], true),
        (vec![3], vec![2, 3])
    );
    assert_eq!(rows(None, None, vec![1..=1], false), (vec![1], vec![]));
}

#[test]
fn counters_that_were_asked_for_in_vain_are_told() {
    let directory = written(session(writer(), amds_plan()), &[Format::Csv]);
    let notes = read(directory.path(), "r_notes.txt");
    assert_eq!(notes, "counters: no dispatch was counted\n");
}
