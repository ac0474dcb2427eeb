//! Counters of whole devices through all writers: what was counted from one reading to the next.

use crate::common::{list, reader, writer};
use crate::counters::{NODE, amds_plan, json_of, put, read, session, written};
use midair_counters::CounterPlan;
use midair_output::{
    CounterReport, DeviceReadings, Format, KernelNames, Names, Plan, RecordWriter, Screen, Trace,
    counter_table, table::Style,
};
use midair_record::event::{CounterWindow, Header, Record, WindowResult, kind};
use serde_json::json;

/// The start of the first reading. Each reading takes half a second.
const BEGIN: u64 = 1_000_000_000;
const HALF: u64 = 500_000_000;

fn plan() -> CounterPlan {
    CounterPlan {
        interval: 10_000_000,
        locks: [
            (NODE, "held".to_owned()),
            (NODE + 1, "another profiler holds it".to_owned()),
        ]
        .into(),
        ..amds_plan()
    }
}

fn put_reading(
    writer: &mut RecordWriter,
    number: u64,
    start: u64,
    result: WindowResult,
    value: u64,
) {
    let words = match result {
        WindowResult::Sampled => vec![value; 9],
        _ => Vec::new(),
    };
    let reading = CounterWindow {
        header: Header {
            kind: kind::COUNTER_COLLECTION,
            ..Header::default()
        },
        begin: start,
        start,
        end: start + HALF,
        read_end: start + HALF + 100,
        window: number,
        node: NODE,
        result: result as u32,
        total: words.len() as u32,
        ..CounterWindow::default()
    };
    put(writer, reading, &words, 4);
}

/// Returns two readings, one that another profiler has disturbed, and another one after a gap.
pub fn readings() -> Trace {
    let mut writer = writer();
    let values = [
        (1, 0, WindowResult::Sampled, 10),
        (2, 1, WindowResult::Sampled, 20),
        (3, 2, WindowResult::Disturbed, 0),
        (4, 4, WindowResult::Sampled, 5),
    ];
    for (number, halves, result, value) in values {
        put_reading(&mut writer, number, BEGIN + halves * HALF, result, value);
    }
    session(writer, plan())
}

#[test]
fn csv_has_a_row_for_each_reading_and_counter() {
    let directory = written(readings(), &[Format::Csv]);
    let csv = read(directory.path(), "r_device_counter_collection.csv");
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        rows[0].join(","),
        "\"Reading_Id\",\"Agent_Id\",\"Process_Id\",\"Counter_Name\",\"Counter_Value\",\"Start_Timestamp\",\"End_Timestamp\""
    );
    let told: Vec<(&str, &str, &str, &str)> = rows
        .iter()
        .skip(1)
        .map(|row| (row[0], row[3], row[4], row[5]))
        .collect();
    assert_eq!(
        told,
        [
            ("1", "\"GRBM_COUNT\"", "10.000000", "1000000000"),
            ("1", "\"SQ_WAVES\"", "80.000000", "1000000000"),
            ("2", "\"GRBM_COUNT\"", "20.000000", "1500000000"),
            ("2", "\"SQ_WAVES\"", "160.000000", "1500000000"),
            ("4", "\"GRBM_COUNT\"", "5.000000", "3000000000"),
            ("4", "\"SQ_WAVES\"", "40.000000", "3000000000"),
        ]
    );
    let notes = read(directory.path(), "r_notes.txt");
    assert!(
        notes.contains(
            "counters of the whole device: 3 readings; 1 have no values, since a counter was lower"
        ),
        "{notes}"
    );
    assert!(
        notes.contains("profiler lock was not held for Agent 2 (another profiler holds it)"),
        "{notes}"
    );
    assert!(notes.contains("held for Agent 1"), "{notes}");
}

#[test]
fn json_and_rocpd_have_the_same_values() {
    let directory = written(readings(), &[Format::Json, Format::Rocpd]);
    let ours = json_of(directory.path());
    let all = list(&ours["buffer_records"]["device_counter_collection"]);
    assert_eq!(all.len(), 3);
    assert_eq!(all[1]["reading"], 2);
    assert_eq!(all[1]["start_timestamp"], BEGIN + HALF);
    assert_eq!(all[1]["records"][1]["value"], 160.0);
    let midair = &ours["metadata"]["midair"];
    assert_eq!(
        midair["device_counters"],
        json!({"interval_ns": 10_000_000, "readings": 3, "disturbed": 1, "without_plausible_times": 0})
    );
    assert_eq!(midair["profiler_locks"][NODE.to_string()], "held");
    let queries = [
        "SELECT timestamp AS t, SUM(value) AS v FROM rocpd_sample AS s JOIN rocpd_pmc_event AS e ON e.sample_id = s.id GROUP BY 1 ORDER BY 1",
        "SELECT string AS name FROM rocpd_track AS t JOIN rocpd_string AS s ON s.id = t.name_id",
    ];
    let found = reader(&directory.path().join("r_results.db"), &queries);
    assert_eq!(
        found["answers"],
        json!([
            [
                { "t": BEGIN + HALF, "v": 90.0 },
                { "t": BEGIN + 2 * HALF, "v": 180.0 },
                { "t": BEGIN + 5 * HALF, "v": 45.0 },
            ],
            [{ "name": "Counters of Agent 1" }]
        ])
    );
}

/// A track has rates per second from one reading to the next, and nothing where there is no
/// reading.
#[test]
fn each_counter_has_a_track_of_rates() {
    let directory = written(readings(), &[Format::Pftrace]);
    let found = crate::pftrace::read(directory.path());
    let changes = list(&found["counters"]["Agent [1] PMC SQ_WAVES /s"]);
    let values: Vec<(u64, f64)> = changes
        .iter()
        .map(|change| (change[0].as_u64().unwrap(), change[1].as_f64().unwrap()))
        .collect();
    let at = |halves: u64| BEGIN + halves * HALF;
    assert_eq!(
        values,
        [
            (at(0), 160.0),
            (at(1), 320.0),
            (at(2), 0.0),
            (at(4), 80.0),
            (at(5), 0.0)
        ]
    );
}

#[test]
fn the_table_has_rates() {
    let trace = readings();
    let style = Style {
        columns: 80,
        rows: 10,
        colour: false,
        unicode: false,
        whole_names: false,
    };
    let text = counter_table(&trace, &Names::amd(), &Plan::default(), style);
    // The rates are 35 and 280 in 1.5 seconds.
    assert_eq!(
        text,
        concat!(
            "COUNTER                       READINGS          MEAN         LEAST          MOST\n",
            "Agent 1\n",
            "  GRBM_COUNT /s                      3        23.333            10            40\n",
            "  SQ_WAVES /s                        3       186.667            80           320\n",
        )
    );
}

/// At the least width there is room for 13 characters of a counter with a rate, and for 16 of
/// others. Each device has its own lines.
#[test]
fn names_of_counters_are_cut_where_the_columns_end() {
    let counters = ["MAX_WAVE_SIZE", "SQ_INSTS_VALU", "SQ_INSTS_VMEM_RD"];
    let group = crate::counters::prepared(&counters);
    let words = group.template.output_bytes / 8;
    let both = [(NODE, vec![group.clone()]), (NODE + 1, vec![group])];
    let plan = CounterPlan {
        agents: both.into(),
        ..plan()
    };
    let mut writer = writer();
    for node in [NODE, NODE + 1] {
        let reading = CounterWindow {
            header: Header {
                kind: kind::COUNTER_COLLECTION,
                ..Header::default()
            },
            start: BEGIN,
            end: BEGIN + HALF,
            window: u64::from(node),
            node,
            result: WindowResult::Sampled as u32,
            total: words as u32,
            ..CounterWindow::default()
        };
        put(&mut writer, reading, &vec![1; words as usize], 4);
    }
    let style = Style {
        columns: 40,
        unicode: false,
        ..Style::default()
    };
    let trace = session(writer, plan);
    let text = counter_table(&trace, &Names::amd(), &Plan::default(), style);
    assert_eq!(
        text,
        concat!(
            "COUNTER             READINGS          MEAN         LEAST          MOST\n",
            "Agent 1\n",
            "  MAX_WAVE_SIZE            1            64            64            64\n",
            "  SQ_INSTS_VALU /s         1            16            16            16\n",
            "  SQ_INSTS_V... /s         1            16            16            16\n",
            "Agent 2\n",
            "  SQ_INSTS_VALU /s         1            16            16            16\n",
            "  SQ_INSTS_V... /s         1            16            16            16\n",
        )
    );
    // While records arrive, properties of the agent are known, too.
    let mut live = DeviceReadings::of(&trace.counters, &trace.agents).unwrap();
    let part = CounterWindow {
        start: BEGIN,
        end: BEGIN + HALF,
        window: 7,
        node: NODE,
        result: WindowResult::Sampled as u32,
        total: words as u32,
        ..CounterWindow::default()
    };
    let values = live.take(&part, &vec![0; 8 * words as usize]);
    let size = values.iter().find(|value| value.name == "MAX_WAVE_SIZE");
    assert!(
        size.is_some_and(|size| size.value == 64.0 && !size.per_second),
        "{values:?}"
    );
}

/// Nothing can be said of readings that took no time, and there is no table where none has values.
#[test]
fn what_took_no_time_has_no_mean() {
    let report = |writer: RecordWriter| {
        let trace = session(writer, plan());
        let report = CounterReport::of(&trace, &Names::amd(), &Plan::default(), Style::default());
        let text = report.text.clone();
        let screen = Screen::new(Vec::new(), &Names::amd(), KernelNames::default(), &[]);
        (text, screen.with_counters(report).json(10))
    };
    let mut instant = writer();
    let reading = CounterWindow {
        header: Header {
            kind: kind::COUNTER_COLLECTION,
            ..Header::default()
        },
        start: BEGIN,
        end: BEGIN,
        window: 1,
        node: NODE,
        result: WindowResult::Sampled as u32,
        total: 9,
        ..CounterWindow::default()
    };
    put(&mut instant, reading, &[7; 9], 9);
    let (_, document) = report(instant);
    let mean = &document["device_counters"][0]["mean"];
    assert_eq!(mean, &json!(0.0), "{document}");
    let mut disturbed = writer();
    put_reading(&mut disturbed, 1, BEGIN, WindowResult::Disturbed, 0);
    let (text, document) = report(disturbed);
    assert_eq!(
        (text.as_str(), &document["device_counters"]),
        ("", &json!([]))
    );
}

/// The same rates are fields of the document, and are there while the records arrive.
#[test]
fn rates_are_fields_and_are_read_as_they_come() {
    let trace = readings();
    let report = CounterReport::of(&trace, &Names::amd(), &Plan::default(), Style::default());
    let screen = Screen::new(Vec::new(), &Names::amd(), KernelNames::default(), &[]);
    let document = screen.with_counters(report).json(10);
    let rows = document["device_counters"].as_array().unwrap();
    let waves = rows.iter().find(|row| row["name"] == "SQ_WAVES").unwrap();
    assert_eq!(
        (
            &waves["readings"],
            &waves["per_second"],
            &waves["min"],
            &waves["max"]
        ),
        (&3.into(), &true.into(), &80.0.into(), &320.0.into())
    );
    assert!(
        (waves["mean"].as_f64().unwrap() - 280.0 / 1.5).abs() < 1e-9,
        "{waves}"
    );
    let mut live = DeviceReadings::of(&trace.counters, &trace.agents).unwrap();
    let mut values = Vec::new();
    trace
        .records
        .walk(
            |_| true,
            |record| {
                if let Record::CounterWindow(part, words) = record {
                    values.extend(live.take(part, words));
                }
                Ok::<(), std::convert::Infallible>(())
            },
        )
        .unwrap();
    let mut waves: Vec<f64> = values
        .iter()
        .filter(|value| value.name == "SQ_WAVES" && value.node == NODE && value.per_second)
        .map(|value| value.value)
        .collect();
    waves.sort_by(f64::total_cmp);
    assert_eq!((waves.len(), waves[0], waves[2]), (3, 80.0, 320.0));
}

/// A target may write anything: parts may be missing, come twice, or have another size.
#[test]
fn readings_that_contradict_themselves_have_no_values() {
    let mut writer = writer();
    let mut part = CounterWindow {
        header: Header {
            kind: kind::COUNTER_COLLECTION,
            ..Header::default()
        },
        start: BEGIN,
        end: BEGIN + HALF,
        window: 1,
        node: NODE,
        result: WindowResult::Sampled as u32,
        total: 9,
        ..CounterWindow::default()
    };
    // The middle part is missing.
    for first in [0, 6] {
        part.first = first;
        part.words = 3;
        put_part(&mut writer, &part, 3);
    }
    // One is too small, and one ends before it starts.
    part.first = 0;
    (part.window, part.total) = (2, 3);
    put_part(&mut writer, &part, 3);
    (part.window, part.total, part.words, part.end) = (3, 9, 9, BEGIN - 1);
    put_part(&mut writer, &part, 9);
    let directory = written(session(writer, plan()), &[Format::Csv]);
    let csv = read(directory.path(), "r_device_counter_collection.csv");
    assert_eq!(csv.lines().count(), 1, "{csv}");
}

fn put_part(writer: &mut RecordWriter, part: &CounterWindow, words: usize) {
    let bytes = midair_record::event::encode(part, &vec![7; 8 * words]);
    crate::common::append(writer, &bytes);
}
