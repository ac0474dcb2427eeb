//! Which windows of counters have values: whole ones of chosen kernels, whose dispatch had the
//! device for itself.

use crate::common::{append, golden_json, list, names, number, reader, writer};
use crate::counters::{
    ENGINES, NODE, amds, amds_plan, header, json_of, prepared, put, put_kernel, read, session,
    window, written,
};
use midair_counters::{Architecture, CounterPlan};
use midair_output::{Format, KernelFilter, Plan, RecordWriter, Trace, write};
use midair_record::event::{
    self, CounterWindow, Kernel, Queue, QueueCounts, Untimed, WindowResult, flag, kind,
};
use serde_json::{Value, json};
use std::fs;

/// Returns one of several kernels that run one after another, 1000 ns each, on queue 1 of the GPU.
pub(crate) fn kernel(dispatch_id: u64) -> Kernel {
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

/// Returns what json reports about windows, without members that are 0.
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

/// Returns the report for windows around dispatches 1 to 4 of queue 1, with further records.
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
    // One runs on another queue within window 2, and one across 3 and 4.
    let shared = four(|writer| {
        put_kernel(writer, &beside(20_500, 20_600, NODE, 2));
        put_kernel(writer, &beside(30_500, 40_500, NODE, 3));
    });
    assert_eq!(
        shared,
        json!({ "dispatches": 6, "windows": 4, "alone": 1, "shared": 3 })
    );
    // One runs on another GPU, and one while no window was open.
    let alone = four(|writer| {
        put_kernel(writer, &beside(20_500, 20_600, 2, 2));
        put_kernel(writer, &beside(22_000, 29_990, NODE, 2));
    });
    assert_eq!(alone, json!({ "dispatches": 6, "windows": 4, "alone": 4 }));
}

#[test]
fn rocpd_says_which_dispatches_were_counted_beside_others() {
    let mut writer = writer();
    for n in 1..=3 {
        put_kernel(&mut writer, &kernel(n));
        put(&mut writer, window(n, &kernel(n), 9), &[n; 9], 9);
    }
    put_kernel(
        &mut writer,
        &Kernel {
            start: 20_500,
            end: 20_600,
            queue_id: 2,
            ..kernel(9)
        },
    );
    let mut trace = session(writer, amds_plan());
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan {
        directory: directory.path().to_owned(),
        prefix: "r".to_owned(),
        formats: vec![Format::Rocpd],
        ..Plan::default()
    };
    trace
        .records
        .choose(&KernelFilter::default(), plan.kernel_names, true)
        .unwrap();
    write(&trace, &names(&golden_json()), &plan).unwrap();
    let question = "SELECT dispatch_id, extdata FROM rocpd_kernel_dispatch ORDER BY dispatch_id";
    let found = reader(&directory.path().join("r_results.db"), &[question]);
    let told: Vec<(u64, String)> = list(&list(&found["answers"])[0])
        .iter()
        .map(|row| {
            (
                number(&row["dispatch_id"]),
                row["extdata"].as_str().unwrap_or("{}").to_owned(),
            )
        })
        .collect();
    let rung = |id: u64| format!("\"doorbell_timestamp\":{}", 10_000 * id - 100);
    let alone = |id: u64| (id, format!("{{{}}}", rung(id)));
    let beside = (2, format!("{{\"counters\":\"shared\",{}}}", rung(2)));
    assert_eq!(told, [alone(1), beside, alone(3), alone(9)]);
}

/// The first packet starts the counters of one XCC after the other. Some of them count a dispatch
/// that still ran meanwhile.
#[test]
fn what_ended_while_the_counters_were_started_is_counted_too() {
    for (ended, verdict) in [(19_985, "shared"), (19_950, "alone")] {
        let mut writer = writer();
        let own = kernel(2);
        put_kernel(&mut writer, &own);
        let mut window = window(1, &own, 9);
        (window.begin, window.start) = (19_950, 19_990);
        put(&mut writer, window, &[2; 9], 9);
        put_kernel(
            &mut writer,
            &Kernel {
                start: 19_000,
                end: ended,
                queue_id: 2,
                ..kernel(9)
            },
        );
        let expected = json!({ "dispatches": 2, "windows": 1, verdict: 1 });
        assert_eq!(told(writer), expected, "{ended}");
    }
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
    // It was launched when the second window's counters had been read, or just before that.
    assert_eq!(four(untimed(2, 21_030)), doubtful);
    let more = json!({ "dispatches": 5, "windows": 4, "alone": 1, "not_known_to_be_alone": 3 });
    assert_eq!(four(untimed(2, 21_029)), more);
    // Dispatches of a queue do not run within that queue's own windows.
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
    let of_lost = |lost: &[(&str, u64)]| {
        let mut trace = amds(|_, _| 0);
        let lost = lost
            .iter()
            .map(|(what, count)| ((*what).to_owned(), *count));
        trace.lost = lost.collect();
        told_of(trace)
    };
    let doubtful = json!({ "dispatches": 3, "windows": 3, "not_known_to_be_alone": 3 });
    assert_eq!(of_lost(&[("kernel dispatches", 1)]), doubtful);
    assert_eq!(
        of_lost(&[("markers", 1), ("kernel dispatches", 1)]),
        doubtful
    );
    // Other records were lost, or none.
    let alone = json!({ "dispatches": 3, "windows": 3, "alone": 3 });
    assert_eq!(of_lost(&[("markers", 1), ("kernel dispatches", 0)]), alone);
}

#[test]
fn windows_without_a_dispatch_or_a_reading_are_told_by_reason() {
    let results = [
        (WindowResult::NoDispatch, "without_a_dispatch"),
        (WindowResult::Open, "open_at_the_end"),
        (WindowResult::QueueDestroyed, "queue_destroyed"),
        (WindowResult::BadTimes, "without_plausible_times"),
        (WindowResult::TooLate, "not_rung_in_time"),
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

/// Whatever a target writes, each window is counted once and has no values.
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
    // No dispatch with this number was recorded.
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
    // A part comes without those before it, as when the spool was full.
    case(
        "incomplete",
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
        // A window whose middle part comes first is counted when its first part comes.
        assert_eq!((windows, all), (5, [4, 1]), "{n}: {found}");
    }
    // Of two windows of one dispatch, neither has values.
    let twice = four(|writer| put(writer, window(5, &kernel(2), 9), &[1; 9], 9));
    let wanted = json!({
        "dispatches": 4, "windows": 5, "alone": 3, "contradictory": 1, "dispatch_not_recorded": 1
    });
    assert_eq!(twice, wanted);
}

#[test]
fn many_windows_that_never_end_stay_few_in_memory() {
    let found = four(|writer| {
        put_kernel(writer, &kernel(5));
        for n in 5..1000 {
            put(writer, window(n, &kernel(n), 9), &[1; 2], 2);
        }
        // One of the old windows goes on after it was given up, and has its dispatch.
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
        ..CounterPlan::default()
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
    // A property of the agent is used: the lanes of a wave.
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
    let trace = |packets| {
        let mut writer = writer();
        let window = |number, kernel: &Kernel| CounterWindow {
            packets,
            ..window(number, kernel, 9)
        };
        for n in 1..=4 {
            put_kernel(&mut writer, &kernel(n));
            put(&mut writer, window(n, &kernel(n)), &[n; 9], 9);
        }
        put_kernel(&mut writer, &scale(20_500, 5));
        put_kernel(&mut writer, &scale(60_000, 6));
        put(&mut writer, window(6, &scale(60_000, 6)), &[1; 9], 9);
        session(writer, amds_plan())
    };
    let rows_of = |packets, include, exclude, iterations, kernels| {
        let mut trace = trace(packets);
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
    let rows =
        |include, exclude, iterations, kernels| rows_of(1, include, exclude, iterations, kernels);
    let all = rows(None, None, vec![], true);
    assert_eq!(all, (vec![1, 3, 4, 6], vec![1, 2, 3, 4, 5, 6]));
    // A choice that leaves out all of them says so.
    let mut missed = trace(1);
    let none = KernelFilter::new(Some("nothing"), None, vec![]).unwrap();
    assert_eq!(missed.records.none_chosen(), None);
    missed
        .records
        .choose(&none, Plan::default().kernel_names, true)
        .unwrap();
    let said = missed.records.none_chosen().unwrap();
    assert!(
        said.contains("6 dispatches are excluded, of vadd"),
        "{said}"
    );
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
    // Without packets of its own it was decided at its launch which dispatch has a window. Only the
    // kernel is chosen here.
    assert_eq!(
        rows_of(0, Some("vadd"), None, vec![2..=3], true),
        (vec![1, 3, 4], vec![2, 3])
    );
}

#[test]
fn counters_that_were_asked_for_in_vain_are_told() {
    let directory = written(session(writer(), amds_plan()), &[Format::Csv]);
    let notes = read(directory.path(), "r_notes.txt");
    assert_eq!(notes, "counters: no dispatch was counted\n");
    // In a short session no window may have been opened. Its dispatches must be reported all the
    // same.
    let without_windows = || {
        let mut writer = writer();
        (1..=3).for_each(|n| put_kernel(&mut writer, &kernel(n)));
        writer
    };
    assert_eq!(told(without_windows()), json!({ "dispatches": 3 }));
    let directory = written(session(without_windows(), amds_plan()), &[Format::Csv]);
    let notes = read(directory.path(), "r_notes.txt");
    assert_eq!(notes, "counters: none of 3 dispatches was counted\n");
}

/// Marsaglia's xorshift, which gives the same numbers in each run.
fn below(state: &mut u64, limit: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % limit
}

/// A thousand dispatches run on four queues of two GPUs, a third of them with windows. Those with
/// values must be exactly those that no other dispatch overlaps, as a comparison of each with each
/// finds them.
#[test]
fn of_many_dispatches_exactly_those_alone_have_values() {
    let mut state = 0x2545_f491_4f6c_dd1d;
    let mut kernels = Vec::new();
    let mut free = [1_000_u64; 4];
    for dispatch_id in 1..=1000 {
        let queue = below(&mut state, 4) as usize;
        let start = free[queue] + 20 + below(&mut state, 900);
        let end = start + below(&mut state, 300);
        free[queue] = end + 20;
        kernels.push(Kernel {
            start,
            end,
            queue_id: queue as u32 + 1,
            node: 1 + (queue / 3) as u32,
            ..kernel(dispatch_id)
        });
    }
    let has_window = |kernel: &Kernel| kernel.dispatch_id.is_multiple_of(3);
    let overlapped = |of: &Kernel| {
        // A window is open until the counters were read. Two windows also spoil each other.
        let (from, to) = (of.start - 10, of.end + 30);
        kernels.iter().any(|other| {
            let same_gpu = other.node == of.node && other.dispatch_id != of.dispatch_id;
            let (start, end) = if has_window(other) {
                (other.start - 10, other.end + 30)
            } else {
                (other.start, other.end)
            };
            same_gpu && start < to && end > from
        })
    };
    let wanted: Vec<u64> = kernels
        .iter()
        .filter(|kernel| has_window(kernel) && !overlapped(kernel))
        .map(|kernel| kernel.dispatch_id)
        .collect();
    let mut records: Vec<(u64, &Kernel, bool)> = Vec::new();
    for kernel in &kernels {
        records.push((below(&mut state, 10_000), kernel, false));
        if has_window(kernel) {
            records.push((below(&mut state, 10_000), kernel, true));
        }
    }
    records.sort_by_key(|(order, kernel, window)| (*order, kernel.dispatch_id, *window));
    let mut writer = writer();
    for (_, kernel, is_window) in records {
        if is_window {
            let id = kernel.dispatch_id;
            put(&mut writer, window(id, kernel, 9), &[id; 9], 4);
        } else {
            put_kernel(&mut writer, kernel);
        }
    }
    let mut plan = amds_plan();
    let groups = plan.agents[&NODE].clone();
    plan.agents.insert(2, groups);
    let directory = written(session(writer, plan), &[Format::Csv]);
    let csv = read(directory.path(), "r_counter_collection.csv");
    let mut found = Vec::new();
    for line in csv
        .lines()
        .skip(1)
        .filter(|line| line.contains("\"SQ_WAVES\""))
    {
        let id: u64 = line.split(',').nth(1).unwrap().parse().unwrap();
        let value: f64 = line.rsplit(',').nth(2).unwrap().parse().unwrap();
        assert_eq!(value, (8 * id) as f64, "{line}");
        found.push(id);
    }
    found.sort_unstable();
    assert!(found.len() > 50 && found.len() < 300, "{}", found.len());
    assert_eq!(found, wanted);
}

/// GRBM_COUNT counts as long as a window is open, unless another profiler restarts the counters.
#[test]
fn a_window_whose_clock_was_reset_is_disturbed_and_has_no_values() {
    let with = |reset: u64| {
        let mut writer = writer();
        for n in 1..=8 {
            put_kernel(&mut writer, &kernel(n));
            let mut window = window(n, &kernel(n), 9);
            window.begin = window.start - 20;
            let mut words = [n; 9];
            words[0] = if n == reset { 700 } else { 2_100 + n };
            put(&mut writer, window, &words, 2);
        }
        writer
    };
    assert_eq!(
        told(with(0)),
        json!({ "dispatches": 8, "windows": 8, "alone": 8 })
    );
    assert_eq!(
        told(with(5)),
        json!({ "dispatches": 8, "windows": 8, "alone": 7, "disturbed": 1 })
    );
    let directory = written(session(with(5), amds_plan()), &[Format::Csv]);
    let notes = read(directory.path(), "r_notes.txt");
    assert!(
        notes.contains("; 1 were disturbed: GRBM_COUNT is too low for their time, as when another"),
        "{notes}"
    );
    let rows = read(directory.path(), "r_counter_collection.csv");
    let of = |id: &str| {
        rows.lines()
            .filter(|line| line.split(',').nth(1) == Some(id))
            .count()
    };
    assert_eq!((of("4"), of("5")), (2, 0), "{rows}");
}
