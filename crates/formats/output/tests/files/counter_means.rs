//! What the terminal and the files tell of windows of counters: means with their intervals, and what
//! they are in doubt of.

use crate::common::{golden_json, list, names, writer};
use crate::counter_windows::kernel;
use crate::counters::{NODE, amds_plan, prepared, put, put_kernel, read, session, window, written};
use midair_counters::CounterPlan;
use midair_output::{CounterReport, Format, KernelNames, Plan, Screen};
use midair_record::event::{CounterWindow, Kernel};
use serde_json::{Value, json};

#[test]
fn the_terminal_has_means_with_their_intervals() {
    let mut writer = writer();
    for n in 1..=20 {
        put_kernel(&mut writer, &kernel(n));
        // These are half of the dispatches, and one that is shared.
        if n % 2 == 0 {
            put(&mut writer, window(n, &kernel(n), 9), &[n; 9], 9);
        }
    }
    let beside = Kernel {
        queue_id: 2,
        kernel_id: 10,
        ..kernel(20)
    };
    put_kernel(
        &mut writer,
        &Kernel {
            dispatch_id: 21,
            ..beside
        },
    );
    let trace = session(writer, amds_plan());
    let style = midair_output::table::Style::default();
    let table =
        midair_output::counter_table(&trace, &names(&golden_json()), &Plan::default(), style);
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("COUNTER") && lines[0].ends_with("95 %"),
        "{table}"
    );
    assert!(
        lines[1].starts_with("vadd(") && lines[1].contains("9 of 20 dispatches, 1 shared"),
        "{table}"
    );
    let counter =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    assert_eq!(counter(lines[2])[..2], ["GRBM_COUNT", "9"]);
    assert_eq!(counter(lines[3])[..2], ["SQ_WAVES", "9"]);
    assert!(counter(lines[3])[3].starts_with('±'), "{table}");
    assert!(
        lines
            .iter()
            .all(|line| line.chars().count() <= style.columns),
        "{table}"
    );
    // The same as fields.
    let report = CounterReport::of(&trace, &names(&golden_json()), &Plan::default(), style);
    assert_eq!(report.text, table);
    let screen = Screen::new(
        Vec::new(),
        &names(&golden_json()),
        KernelNames::default(),
        &[],
    );
    let screen = screen.with_counters(report);
    let document = screen.json(10);
    assert_eq!(document["counters"].as_array().unwrap().len(), lines.len());
    let row = &document["kernel_counters"][0];
    assert!(
        row["kernel"].as_str().unwrap().starts_with("vadd("),
        "{row}"
    );
    assert_eq!(
        (&row["dispatches"], &row["windows"], &row["shared_windows"]),
        (&20.into(), &9.into(), &1.into())
    );
    assert_eq!(row["process"], trace.process.pid);
    let waves = &row["counters"][1];
    assert_eq!(
        (&waves["name"], &waves["windows"]),
        (&"SQ_WAVES".into(), &9.into())
    );
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let mean = number(&waves["mean"]);
    let (low, high) = (
        number(&waves["interval_95"][0]),
        number(&waves["interval_95"][1]),
    );
    assert!(low <= mean && mean <= high, "{waves}");
    assert!(
        number(&waves["min"]) <= mean && mean <= number(&waves["max"]),
        "{waves}"
    );
    assert!((0.0..=1.0).contains(&number(&waves["coverage"])), "{waves}");
    let none_shown = screen.json(0);
    assert_eq!(none_shown["kernel_counters_left_out"], 1);
    assert_eq!(none_shown["kernel_counters"], serde_json::json!([]));
    let nothing = session(crate::common::writer(), amds_plan());
    let none =
        midair_output::counter_table(&nothing, &names(&golden_json()), &Plan::default(), style);
    assert_eq!(none, "");
}

/// A table of two kernels at its least width, whole: names are cut before their numbers, and further
/// kernels and counters are only counted.
#[test]
fn the_table_takes_the_width_that_is_there() {
    let of_sq = [
        "SQ_BUSY_CYCLES",
        "SQ_INSTS",
        "SQ_INSTS_LDS",
        "SQ_INSTS_SALU",
        "SQ_INSTS_SMEM",
        "SQ_INSTS_VALU",
        "SQ_INSTS_VMEM_RD",
        "SQ_WAVES",
    ];
    // There is room for 25 characters.
    let others = [
        "GRBM_COUNT",
        "TCP_TCC_NC_ATOMIC_REQ_sum",
        "TA_BUFFER_COALESCED_READ_CYCLES_sum",
    ];
    let text_on = |counters: &[&[&str]], rows, second_node| {
        let groups: Vec<_> = counters.iter().map(|group| prepared(group)).collect();
        let mut writer = writer();
        for n in 1..=5 {
            let kernel = Kernel {
                grid: [512, 2, 1],
                // The last two are of another kernel.
                kernel_id: if n <= 3 { 11 } else { 10 },
                node: if n <= 3 { NODE } else { second_node },
                ..kernel(n)
            };
            put_kernel(&mut writer, &kernel);
            for (number, group) in (0..).zip(&groups) {
                let of_group = (n - 1) % 3 == u64::from(number) || groups.len() == 1;
                if !of_group {
                    continue;
                }
                let words = (group.template.output_bytes / 8) as usize;
                let window = CounterWindow {
                    group: number,
                    ..window(n, &kernel, words as u32)
                };
                // GRBM_COUNT is the first word. The others are 0.
                let mut values = vec![0; words];
                values[0] = 1_000 + n;
                put(&mut writer, window, &values, 16);
            }
        }
        let plan = CounterPlan {
            agents: [(NODE, groups.clone()), (second_node, groups)].into(),
            ..CounterPlan::default()
        };
        let style = midair_output::table::Style {
            columns: 50,
            rows,
            unicode: false,
            ..midair_output::table::Style::default()
        };
        let (names, plan_of_files) = (names(&golden_json()), Plan::default());
        midair_output::counter_table(&session(writer, plan), &names, &plan_of_files, style)
    };
    let text = |counters: &[&[&str]], rows| text_on(counters, rows, NODE);
    // The rows of several GPUs name theirs.
    let two = text_on(&[&others], 2, NODE + 1);
    for row in [
        "[512,2,1] of Agent 1: 3 of 3",
        "[512,2,1] of Agent 2: 2 of 2",
    ] {
        assert!(two.contains(row), "{two}");
    }
    let table = text(&[&others], 1);
    assert_eq!(
        table,
        concat!(
            "COUNTER                      WINDOWS          MEAN      95 %\n",
            "vadd(float const*,... [512,2,1]: 3 of 3 dispatches, 0 shared\n",
            "  GRBM_COUNT                       3          1002     ±0.0%\n",
            "  TA_BUFFER_COALESCED_RE...        3             0        ±0\n",
            "  TCP_TCC_NC_ATOMIC_REQ_sum        3             0        ±0\n",
            "(1 other kernels or grids)\n",
        )
    );
    // Of the second kernel two windows are too few for an interval.
    let both = text(&[&others], 2);
    let (first, second) = both.split_at(both.find("scale(").unwrap());
    assert_eq!(
        Some(first),
        table.strip_suffix("(1 other kernels or grids)\n")
    );
    assert_eq!(
        &second[second.find("[512").unwrap()..],
        concat!(
            "[512,2,1]: 2 of 2 dispatches, 0 shared\n",
            "  GRBM_COUNT                       2        1004.5         ?\n",
            "  TA_BUFFER_COALESCED_RE...        2             0         ?\n",
            "  TCP_TCC_NC_ATOMIC_REQ_sum        2             0         ?\n",
        )
    );
    // Three groups, of which each has a window: 16 counters are shown.
    let more: &[&str] = &[
        "SQ_WAVE_CYCLES",
        "SQ_WAIT_INST_ANY",
        "SQ_INSTS_GDS",
        "SQ_INSTS_FLAT",
    ];
    let sixteen = text(
        &[
            &of_sq,
            more,
            &["GRBM_COUNT", "TCC_HIT", "TCC_REQ", "TCC_MISS"],
        ],
        1,
    );
    assert_eq!(sixteen.lines().count(), 19, "{sixteen}");
    assert!(!sixteen.contains("other counters"), "{sixteen}");
    let last = [
        "GRBM_COUNT",
        "GRBM_GUI_ACTIVE",
        "TCC_HIT",
        "TCC_REQ",
        "TCC_MISS",
    ];
    let seventeen = text(&[&of_sq, more, &last], 1);
    assert_eq!(seventeen.lines().count(), 20, "{seventeen}");
    assert!(
        seventeen.contains("\n  (1 other counters)\n"),
        "{seventeen}"
    );
}

/// What a session of one kernel counted in 90 dispatches: `values` returns GRBM_COUNT,
/// GRBM_GUI_ACTIVE, TCC_HIT and TCC_REQ of each.
fn found(values: impl Fn(u64) -> [u64; 4]) -> (String, Value, String) {
    found_in(midair_output::table::Style::default(), 90, values)
}

/// Returns the same of a session with so many dispatches, of which 90 were counted.
fn found_in(
    style: midair_output::table::Style,
    dispatches: u64,
    values: impl Fn(u64) -> [u64; 4],
) -> (String, Value, String) {
    let counters = ["GPU_UTIL", "TCC_HIT", "TCC_REQ"];
    let plan = CounterPlan {
        agents: [(NODE, vec![prepared(&counters)])].into(),
        ..CounterPlan::default()
    };
    let mut writer = writer();
    for n in 1..=dispatches {
        put_kernel(&mut writer, &kernel(n));
        if n <= 90 {
            put(&mut writer, window(n, &kernel(n), 4), &values(n), 4);
        }
    }
    let trace = session(writer, plan);
    let names = names(&golden_json());
    let report = CounterReport::of(&trace, &names, &Plan::default(), style);
    let text = report.text.clone();
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= style.columns)
    );
    let screen = Screen::new(Vec::new(), &names, KernelNames::default(), &[]);
    let mut document = screen.with_counters(report).json(10);
    let directory = written(trace, &[Format::Csv]);
    let notes = read(directory.path(), "r_notes.txt");
    (text, document["kernel_counters"][0].take(), notes)
}

#[test]
fn a_kernel_that_changes_is_told_of_everywhere() {
    let noise = |n: u64| n * 7919 % 13;
    let (text, row, notes) = found(|n| [1000, 500 + 3 * n + noise(n), 5, 10]);
    let drift = text
        .lines()
        .find(|line| line.starts_with("  ! drift: GRBM_GUI_ACTIVE +3"));
    assert!(
        drift.is_some_and(|line| line.ends_with(" % from first to last third")),
        "{text}"
    );
    let drift = &row["drift"];
    assert_eq!(drift["counter"], "GRBM_GUI_ACTIVE");
    assert_eq!(drift["is_certain"], true);
    assert_eq!(drift["first_third"]["windows"], 30);
    let (first, last) = (&drift["first_third"]["mean"], &drift["last_third"]["mean"]);
    let change = drift["change"].as_f64().unwrap();
    let expected = last.as_f64().unwrap() / first.as_f64().unwrap() - 1.0;
    assert!((change - expected).abs() < 1e-12 && change > 0.3, "{drift}");
    assert!(
        notes.contains("counters: 1 kernels or grids changed while they were counted: vadd("),
        "{notes}"
    );
    // Noise is no change, although each dispatch was counted.
    let (text, row, notes) = found(|n| [1000, 500 + noise(n), 5, 10]);
    assert!(
        !text.contains("drift") && !notes.contains("changed"),
        "{text} {notes}"
    );
    assert_eq!(row["drift"]["is_certain"], false);
    // Neither a certain change that is very small is reported, nor a large one that chance explains.
    let change = |row: &Value| row["drift"]["change"].as_f64().unwrap().abs();
    let (text, row, _) = found(|n| [1000, 5000 + n / 3, 5, 10]);
    assert_eq!(row["drift"]["is_certain"], true);
    assert!(change(&row) < 0.01 && !text.contains("drift"), "{text}");
    let (text, row, _) = found(|n| [1000, 500 + 40 * noise(n), 5, 10]);
    assert_eq!(row["drift"]["is_certain"], false);
    assert!(change(&row) > 0.01 && !text.contains("drift"), "{text}");
}

/// Where each window has five hits for four requests there is no doubt about their ratio, however
/// much the requests vary.
#[test]
fn a_ratio_of_counters_of_one_window_is_as_certain_as_its_windows_agree() {
    let values = |n: u64| [1000, 500, 5 * (n % 7 + 1), 4 * (n % 7 + 1)];
    let style = midair_output::table::Style::default();
    let (text, row, _) = found_in(style, 1000, values);
    let exceeds = &row["counters"][1]["exceeds"];
    let ends = list(&exceeds["interval_95"]);
    for end in ends {
        assert!((end.as_f64().unwrap() - 1.25).abs() < 1e-6, "{exceeds}");
    }
    let remark = "    ! above TCC_REQ: 1.250 times as many, certainly above 1.250";
    assert!(text.lines().any(|line| line == remark), "{text}");
    // At the least width the end of it is cut off.
    let narrow = midair_output::table::Style {
        columns: 60,
        unicode: false,
        ..style
    };
    let (text, ..) = found_in(narrow, 1000, values);
    let cut = "    ! above TCC_REQ: 1.250 times as many, certainly above...";
    assert!(text.lines().any(|line| line == cut), "{text}");
}

#[test]
fn values_above_what_they_can_be_are_shown_and_told_of() {
    let (text, row, notes) = found(|n| [1000, 1200 + n % 3, 12 + n % 2, 10]);
    let lines: Vec<&str> = text.lines().collect();
    let below = |counter: &str| {
        let at = lines
            .iter()
            .position(|line| line.trim_start().starts_with(counter));
        (
            lines[at.unwrap()],
            lines.get(at.unwrap() + 1).copied().unwrap_or_default(),
        )
    };
    let (line, remark) = below("GPU_UTIL");
    assert!(line.contains("120.1"), "the value stays as it is: {text}");
    assert!(
        remark.starts_with("    ! above 100 %, certainly above 120."),
        "{text}"
    );
    let (_, remark) = below("TCC_HIT");
    assert!(
        remark.starts_with("    ! above TCC_REQ: 1.250 times as many"),
        "{text}"
    );
    let counters = list(&row["counters"]);
    let exceeds: Vec<&Value> = counters.iter().map(|c| &c["exceeds"]).collect();
    assert_eq!(
        (&exceeds[0]["of"], &exceeds[0]["limit"]),
        (&Value::Null, &json!(100.0))
    );
    assert_eq!(
        (&exceeds[1]["of"], &exceeds[1]["limit"]),
        (&json!("TCC_REQ"), &json!(1.0))
    );
    let times = exceeds[1]["value"].as_f64().unwrap();
    assert!((times - 1.25).abs() < 1e-9 && exceeds[2].is_null(), "{row}");
    assert!(
        notes.contains("counters: 2 values exceed their possible maximum"),
        "{notes}"
    );
    // At the bound, and above it in some windows.
    let (text, row, notes) = found(|n| [1000, 1000, 9 + 2 * (n % 2), 10]);
    assert!(
        !text.contains('!') && !notes.contains("possible maximum"),
        "{text} {notes}"
    );
    assert!(
        list(&row["counters"])
            .iter()
            .all(|c| c["exceeds"].is_null()),
        "{row}"
    );
}
