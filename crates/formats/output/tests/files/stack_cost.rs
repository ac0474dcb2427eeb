//! What stacks have cost (`--stacks`): on the screen, in its document, in rocpd and in the notes.

use crate::common::{
    agents, append, append_described, golden_json, names, reader, trace_of, writer,
};
use crate::rocpd_rows::{header, plan};
use midair_output::screen::Head;
use midair_output::table::Style;
use midair_output::{Format, Index, KernelNames, Screen, Trace, write};
use midair_record::event::{self, LaunchStack, Stack, StackCost, kind};

const STYLE: Style = Style {
    columns: 120,
    whole_names: true,
    rows: 10,
    colour: false,
    unicode: false,
};

/// A session with ten launches, four of them at two stacks, and this cost.
fn session(cost: Option<StackCost>) -> Trace {
    let golden = golden_json();
    let mut writer = writer();
    append_described(&mut writer, &agents(), &golden);
    for number in 0..3 {
        let stack = Stack {
            header: header(kind::STACK, number),
            ..Stack::default()
        };
        append(&mut writer, &event::encode(&stack, &[]));
    }
    for correlation in 1..=10 {
        let launch = LaunchStack {
            header: header(
                kind::LAUNCH_STACK,
                u32::min(correlation, 11 - correlation).min(3) % 3,
            ),
            correlation: correlation.into(),
        };
        append(&mut writer, &event::encode(&launch, &[]));
    }
    if let Some(cost) = cost {
        let (record, words) = cost.record();
        append(&mut writer, &event::encode(&record, &words));
    }
    trace_of(writer, &golden)
}

fn screen(trace: &Trace) -> Screen {
    let golden = golden_json();
    let session = midair_output::screen::Session {
        label: String::new(),
        head: Head::of(trace),
        index: trace.records.index(),
    };
    Screen::new(vec![session], &names(&golden), KernelNames::default(), &[])
}

fn index(trace: &Trace) -> &Index {
    trace.records.index()
}

#[test]
fn the_cost_is_on_the_screen_and_in_the_results() {
    // Six of the ten launches have no stack.
    let cost = StackCost {
        timed: 4,
        time: 6_000,
        ..StackCost::default()
    };
    let trace = session(Some(cost));
    let found = index(&trace).stacks.summary().unwrap();
    assert_eq!((found.calls, found.different, found.timed), (4, 2, 4));
    assert_eq!((found.mean, found.total), (Some(1_500.0), Some(15_000.0)));
    let shown = screen(&trace).text(STYLE);
    let line = "4 calls at 2 different stacks; a walk takes 1.50 us, all together took 15.0 us";
    let wanted = format!("STACKS    {line}");
    assert!(shown.contains(&wanted), "{shown}");
    let directory = tempfile::tempdir().unwrap();
    let names = names(&golden_json());
    write(&trace, &names, &plan(directory.path(), &[Format::Rocpd])).unwrap();
    let question = "SELECT value FROM rocpd_metadata WHERE tag = 'midair_stacks'";
    let said = reader(&directory.path().join("r_results.db"), &[question]);
    let value = said["answers"][0][0]["value"].as_str().unwrap();
    let value: serde_json::Value = serde_json::from_str(value).unwrap();
    let wanted = serde_json::json!({
        "calls": 4, "different": 2, "timed_walks": 4, "mean_walk_ns": 1500, "total_walk_ns": 15000,
        "over_budget": 0,
    });
    assert_eq!(value, wanted);
    // A recording without it has no such line.
    let shown = screen(&session(None)).text(STYLE);
    assert!(!shown.contains("STACKS"), "{shown}");
}

#[test]
fn what_the_budget_left_out_is_counted_by_itself() {
    let cost = StackCost {
        timed: 1,
        time: 1_000,
        reused: 3,
        python_only: 2,
        without: 4,
    };
    let trace = session(Some(cost));
    let notes = index(&trace).stacks.notes();
    let why = "native stacks took their budget (--stacks-budget)";
    let wanted = [
        format!("4 launches have no stack: {why}"),
        format!("2 launches have no native frames: {why}"),
        format!(
            "3 launches have the native frames of an earlier launch at the same Python stack: {why}"
        ),
        "2 launches have no stack: there were too many different stacks".to_owned(),
    ];
    assert_eq!(notes, wanted);
    let found = index(&trace).stacks.summary().unwrap();
    assert_eq!((found.over_budget, found.total), (9, Some(10_000.0)));
}
