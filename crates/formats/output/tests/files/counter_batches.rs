//! Windows around several dispatches that were launched at once. In every format, their values must
//! cover all of them together, and none of them alone.

use crate::common::{append, contains, entries, golden_json, list, names, reader, writer};
use crate::counters::{
    NODE, amds_plan, header, json_of, put, put_kernel, read, session, window, written,
};
use crate::rocpd_rows::plan;
use midair_output::table::Style;
use midair_output::{
    CounterReport, Format, KernelFilter, KernelNames, Names, Plan, RecordWriter, Screen, Trace,
    counter_table, write,
};
use midair_record::event::{self, CounterWindow, Kernel, KernelSymbol, Untimed, flag, kind};
use rusqlite::Connection;
use serde_json::{Value, json};

/// Returns packet `packet` of queue 1. Packets start 1,000 ns apart and run for 500 ns.
fn kernel(packet: u64, kernel_id: u64) -> Kernel {
    Kernel {
        header: header(kind::KERNEL_DISPATCH),
        start: 10_000 + 1_000 * packet,
        end: 10_500 + 1_000 * packet,
        rung: 9_000,
        // The numbers in between belong to another queue's dispatches.
        dispatch_id: if packet < 3 { packet } else { packet + 5 },
        packet_index: packet,
        correlation: 77,
        kernel_id,
        queue_id: 1,
        node: NODE,
        ..Kernel::default()
    }
}

fn kernels() -> [Kernel; 3] {
    [kernel(1, 11), kernel(2, 10), kernel(4, 11)]
}

/// Returns a window around packets 1 to 4, of which the third is not a dispatch.
fn around(number: u64) -> CounterWindow {
    CounterWindow {
        first_index: 1,
        packets: 4,
        dispatches: 3,
        end: 14_600,
        read_end: 14_700,
        ..window(number, &kernel(1, 11), 9)
    }
}

pub fn batch(also: impl FnOnce(&mut RecordWriter)) -> Trace {
    let mut writer = writer();
    let [first, second, third] = kernels();
    // The dispatches may come in any order.
    put_kernel(&mut writer, &third);
    put_kernel(&mut writer, &first);
    put(&mut writer, around(1), &[3; 9], 4);
    put_kernel(&mut writer, &second);
    also(&mut writer);
    session(writer, amds_plan())
}

fn told(trace: Trace) -> Value {
    let directory = written(trace, &[Format::Json]);
    let ours = json_of(directory.path());
    let mut told = ours["metadata"]["midair"]["counters"]
        .as_object()
        .unwrap()
        .clone();
    told.retain(|_, count| *count != 0);
    let batches = told.contains_key("batches");
    assert_eq!(
        ours["callback_records"]["counter_batches"].is_array(),
        batches
    );
    assert_eq!(
        ours["callback_records"]["counter_collection"],
        json!([]),
        "never split"
    );
    told.into()
}

#[test]
fn each_format_has_the_values_once_and_names_all_dispatches() {
    let formats = [Format::Csv, Format::Json, Format::Rocpd, Format::Pftrace];
    let directory = written(batch(|_| ()), &formats);
    assert!(
        entries(directory.path())
            .iter()
            .any(|name| name == "r_counter_batches.csv")
    );
    let csv = read(directory.path(), "r_counter_batches.csv");
    let rows: Vec<&str> = csv.lines().collect();
    assert!(rows[0].starts_with("\"Batch_Id\",\"Correlation_Id\",\"Agent_Id\""));
    assert_eq!(rows.len(), 3, "{csv}");
    let of = |name: &str, value: &str| {
        let row = rows.iter().find(|row| row.contains(name)).unwrap();
        assert!(row.starts_with("1,77,"), "{row}");
        assert!(row.contains(",3,\"1-2 9\",\""), "{row}");
        assert!(row.contains(" x2, "), "{row}");
        assert!(
            row.ends_with(&format!("\"{name}\",{value},11000,14500")),
            "{row}"
        );
    };
    of("GRBM_COUNT", "3.000000");
    of("SQ_WAVES", "24.000000");
    let single = read(directory.path(), "r_counter_collection.csv");
    assert_eq!(single.lines().count(), 1, "{single}");
    let notes = read(directory.path(), "r_notes.txt");
    assert_eq!(
        notes,
        "counters: 0 of 3 dispatches have values, from 1 windows; 1 have values of several dispatches together\n"
    );
    let ours = json_of(directory.path());
    let [one] = list(&ours["callback_records"]["counter_batches"]) else {
        panic!("{ours}");
    };
    assert_eq!((&one["batch_id"], &one["count"]), (&json!(1), &json!(3)));
    assert_eq!(
        one["dispatches"],
        json!([
            { "dispatch_id": 1, "kernel_id": 11 },
            { "dispatch_id": 2, "kernel_id": 10 },
            { "dispatch_id": 9, "kernel_id": 11 },
        ])
    );
    assert_eq!(list(&one["records"]).len(), 9);
    let queries = [
        "SELECT json_extract(E.extdata, '$.batch.count') AS n, json_extract(E.extdata, '$.batch.dispatch_ids') AS ids, COUNT(*) AS m, SUM(P.value) AS sum FROM rocpd_pmc_event P JOIN rocpd_event E ON E.id = P.event_id",
        "SELECT COUNT(*) AS n FROM counters_collection",
    ];
    let found = reader(&directory.path().join("r_results.db"), &queries);
    let answers = list(&found["answers"]);
    assert_eq!(
        answers[0],
        json!([{ "n": 3, "ids": "[1,2,9]", "m": 9, "sum": 27.0 }])
    );
    assert_eq!(answers[1], json!([{ "n": 0 }]), "it is no dispatch's");
    let bytes = std::fs::read(directory.path().join("r_results.pftrace")).unwrap();
    let name = b"PMC SQ_WAVES of batches";
    assert!(bytes.windows(name.len()).any(|part| part == name));
}

#[test]
fn the_table_names_a_sort_of_batches_and_its_mean() {
    let table = |trace: &Trace| {
        let plan = Plan::default();
        let style = midair_output::table::Style::default();
        counter_table(trace, &names(&golden_json()), &plan, style)
    };
    let mut writer = writer();
    for (number, at) in (1..=4).zip([0, 100, 200, 300]) {
        let moved = |kernel: Kernel| Kernel {
            packet_index: kernel.packet_index + at,
            dispatch_id: kernel.dispatch_id + at,
            start: kernel.start + 1_000 * at,
            end: kernel.end + 1_000 * at,
            ..kernel
        };
        for kernel in kernels() {
            put_kernel(&mut writer, &moved(kernel));
        }
        let around = CounterWindow {
            first_index: 1 + at,
            dispatch_id: 1 + at,
            start: around(1).start + 1_000 * at,
            end: around(1).end + 1_000 * at,
            read_end: around(1).read_end + 1_000 * at,
            ..around(number)
        };
        put(&mut writer, around, &[number; 9], 9);
    }
    let trace = session(writer, amds_plan());
    let text = table(&trace);
    assert!(
        text.contains("[batch]: 4 times 3 dispatches together, 0 shared"),
        "{text}"
    );
    let mean = text.lines().find(|line| line.contains("SQ_WAVES")).unwrap();
    // The value is (1 + 2 + 3 + 4) / 4 on eight engines. The other batches of its sort are not
    // known.
    assert!(
        mean.contains(" 20") && mean.contains('±') && !mean.contains("±0"),
        "{text}"
    );
    // In the document it has no grid, since its kernels have several.
    let report = CounterReport::of(
        &trace,
        &names(&golden_json()),
        &Plan::default(),
        Style::default(),
    );
    let screen = Screen::new(Vec::new(), &Names::amd(), KernelNames::default(), &[]);
    let document = screen.with_counters(report).json(10);
    let row = &document["kernel_counters"][0];
    let told = ["batch_of", "agent", "grid", "dispatches", "windows"].map(|key| &row[key]);
    let null = &Value::Null;
    assert_eq!(told, [&json!(3), null, null, null, &json!(4)]);
}

/// What ran alongside a batch says nothing about one dispatch of it.
#[test]
fn no_dispatch_of_a_shared_batch_was_counted_beside_others() {
    let mut trace = batch(|writer| {
        let beside = Kernel {
            queue_id: 2,
            dispatch_id: 99,
            ..kernel(1, 11)
        };
        put_kernel(writer, &beside);
    });
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), &[Format::Rocpd]);
    let all = KernelFilter::default();
    trace.records.choose(&all, plan.kernel_names, true).unwrap();
    write(&trace, &names(&golden_json()), &plan).unwrap();
    let file = Connection::open(directory.path().join("r_results.db")).unwrap();
    let count = |condition: &str| -> i64 {
        let question = format!("SELECT COUNT(*) FROM rocpd_kernel_dispatch WHERE {condition}");
        file.query_row(&question, [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("TRUE"), count("extdata LIKE '%counters%'")), (4, 0));
}

/// A batch of ten kernels, of which one occurs twice: eight have names.
#[test]
fn eight_kernels_of_a_batch_are_named() {
    let mut writer = writer();
    let order = [100, 101, 100, 102, 103, 104, 105, 106, 107, 108, 109, 109];
    for (packet, kernel_id) in (1..).zip(order) {
        put_kernel(&mut writer, &kernel(packet, kernel_id));
    }
    for kernel_id in 100..110 {
        let name = format!("k{kernel_id}");
        let symbol = KernelSymbol {
            header: header(kind::KERNEL_SYMBOL),
            kernel_id,
            name_len: name.len() as u32,
            ..KernelSymbol::default()
        };
        append(&mut writer, &event::encode(&symbol, name.as_bytes()));
    }
    let around = CounterWindow {
        packets: 12,
        dispatches: 12,
        end: 22_600,
        read_end: 22_700,
        ..around(1)
    };
    put(&mut writer, around, &[3; 9], 9);
    let directory = written(session(writer, amds_plan()), &[Format::Csv]);
    let csv = read(directory.path(), "r_counter_batches.csv");
    let names = ",\"k100 x2, k101, k102, k103, k104, k105, k106, k107 and 3 others\",";
    assert_eq!(csv.matches(names).count(), 2, "{csv}");
}

#[test]
fn what_ran_beside_a_batch_makes_it_shared_and_its_own_kernels_do_not() {
    let wanted = json!({ "dispatches": 3, "windows": 1, "batches": 1 });
    assert_eq!(told(batch(|_| ())), wanted);
    let beside = |start, queue_id, packet_index| Kernel {
        start,
        end: start + 10,
        queue_id,
        packet_index,
        dispatch_id: 99,
        ..kernel(1, 11)
    };
    let shared = json!({ "dispatches": 4, "windows": 1, "shared": 1 });
    assert_eq!(
        told(batch(|w| put_kernel(w, &beside(11_900, 2, 2)))),
        shared
    );
    // A later dispatch in the same queue ran at another time, so it does not share the window.
    let later = json!({ "dispatches": 4, "windows": 1, "batches": 1 });
    assert_eq!(told(batch(|w| put_kernel(w, &beside(15_000, 1, 5)))), later);
    // A packet with the same number in another queue does not belong to the batch.
    assert_eq!(told(batch(|w| put_kernel(w, &beside(20_000, 2, 2)))), later);
    let untimed = |w: &mut RecordWriter| {
        let mut kernel = Kernel {
            start: 0,
            end: 0,
            untimed: Untimed::ALL[1] as u32,
            ..beside(1, 2, 2)
        };
        kernel.header.flags |= flag::UNTIMED;
        put_kernel(w, &kernel);
    };
    let doubtful = json!({ "dispatches": 4, "windows": 1, "not_known_to_be_alone": 1 });
    assert_eq!(told(batch(untimed)), doubtful);
}

#[test]
fn a_batch_without_all_its_dispatches_has_no_values() {
    let of = |window: CounterWindow, all: &[Kernel]| {
        let mut writer = writer();
        for kernel in all {
            put_kernel(&mut writer, kernel);
        }
        put(&mut writer, window, &[1; 9], 9);
        told(session(writer, amds_plan()))
    };
    let [first, second, third] = kernels();
    let missing = json!({ "dispatches": 2, "windows": 1, "dispatch_not_recorded": 1 });
    assert_eq!(of(around(1), &[first, third]), missing);
    let wrong = |change: fn(&mut CounterWindow)| {
        let mut window = around(1);
        change(&mut window);
        of(window, &[first, second, third])
    };
    let missing = json!({ "dispatches": 3, "windows": 1, "dispatch_not_recorded": 1 });
    assert_eq!(wrong(|w| w.dispatches = 4), missing);
    assert_eq!(wrong(|w| w.dispatches = u32::MAX), missing);
    assert_eq!(wrong(|w| w.packets = 0), missing);
    assert_eq!(wrong(|w| w.first_index = u64::MAX), missing);
    assert_eq!(wrong(|w| w.queue_id = 9), missing);
    let contradictory = json!({ "dispatches": 3, "windows": 1, "contradictory": 1 });
    assert_eq!(wrong(|w| w.dispatch_id = 0), contradictory);
}

/// Traces have each dispatch of a batch once, and the values at none of them.
#[test]
fn traces_have_each_dispatch_of_a_batch_once() {
    let alone = || {
        let mut writer = writer();
        put_kernel(&mut writer, &kernel(1, 11));
        put(&mut writer, window(1, &kernel(1, 11), 9), &[3; 9], 9);
        session(writer, amds_plan())
    };
    for (trace, dispatches, has_values) in [(batch(|_| ()), 3, false), (alone(), 1, true)] {
        let directory = tempfile::tempdir().unwrap();
        let plan = Plan {
            directory: directory.path().to_owned(),
            prefix: "r".to_owned(),
            formats: vec![Format::Kineto, Format::Otf2, Format::Pftrace],
            ..Plan::default()
        };
        write(&trace, &names(&golden_json()), &plan).unwrap();
        let file = |name: &str| directory.path().join(name);
        let kineto = read(directory.path(), "r_results.pt.trace.json");
        assert_eq!(kineto.matches("\"cat\":\"kernel\"").count(), dispatches);
        assert_eq!(kineto.contains("\"SQ_WAVES\":24.0"), has_values);
        // The dispatches ran one after the other, so they are on one location.
        assert_eq!(entries(&file("r_results")), ["0.def", "0.evt"]);
        let description = "what the counter counted during the dispatch";
        assert_eq!(contains(&file("r_results.def"), description), has_values);
        // A name of eight bytes, which is not a part of a track's.
        let annotation = "\u{8}SQ_WAVES";
        assert_eq!(contains(&file("r_results.pftrace"), annotation), has_values);
    }
}
