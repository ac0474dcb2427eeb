//! The report of a recording in bursts.

use super::*;
use crate::table::Style;
use midair_record::event::{Burst, Header, Kernel, KernelSymbol, QueueCounts, encode, kind};
use midair_trace::index::Index;
use midair_trace::kernel_name::KernelNames;

const MS: u64 = 1_000_000;

#[test]
fn the_screen_tells_how_much_was_recorded_and_what_that_means() {
    let mut writer =
        midair_trace::record_file::RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    let mut put = |record: Vec<u8>| assert_eq!(writer.append(&record).unwrap(), 1);
    let header = |kind| Header {
        kind,
        ..Header::default()
    };
    let name = b"_Z4vaddPf.kd";
    let symbol = KernelSymbol {
        header: header(kind::KERNEL_SYMBOL),
        kernel_id: 1,
        name_len: name.len() as u32,
        ..KernelSymbol::default()
    };
    put(encode(&symbol, name));
    for at in 1..=20_u64 {
        let from = at * 100 * MS;
        let burst = Burst {
            header: header(kind::BURST),
            from,
            start: from + 50 * MS,
            to: from + 100 * MS,
            cost: 160_000,
            basis: basis::MEASURED,
            ..Burst::default()
        };
        put(encode(&burst, &[]));
        for _ in 0..10 {
            let kernel = Kernel {
                header: header(kind::KERNEL_DISPATCH),
                kernel_id: 1,
                rung: burst.start + 1,
                start: burst.start + 5,
                end: burst.start + 5 + MS / 10 + at,
                ..Kernel::default()
            };
            put(encode(&kernel, &[]));
        }
        let end = burst.start + 10 * MS;
        put(encode(&Burst { end, ..burst }, &[]));
    }
    let counts = QueueCounts {
        header: header(kind::QUEUE_COUNTS),
        dispatches: 200,
        paused: 1_800,
        ..QueueCounts::default()
    };
    put(encode(&counts, &[]));
    let index = writer.finish().unwrap().into_index();
    let report = BurstReport::of(7, &index, 2_000 * MS, KernelNames::Demangled).unwrap();
    let words = words(&index.bursts.coverage().unwrap());
    assert!(
        words.starts_with("recorded 10.0 % of the time, in 20 bursts;"),
        "{words}"
    );
    assert!(
        words.contains("16.0 % of its speed") && words.ends_with("1.60 % overall"),
        "{words}"
    );
    let style = Style {
        unicode: false,
        ..Style::default()
    };
    let text = report.text(None, style);
    let row = text.lines().nth(1).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..4], ["vadd", "2000", "+-", "0"], "{text}");
    assert!(
        row.contains("200 ms +- ") && row.ends_with("100.00% +- 0.00%"),
        "{text}"
    );
    assert!(text.ends_with("95 % confidence intervals\n"));
    let fields = report.fields(10);
    assert_eq!(fields["cost_is"], "measured");
    assert_eq!(fields["kernels"][0]["calls"]["low"], 2000.0);
    assert_eq!(fields["coverage"], 0.1);
    // A session without bursts has no such table.
    assert!(BurstReport::of(7, &Index::default(), 1, KernelNames::Demangled).is_none());
}

/// Returns the index of a session that was on for all of its 3,000 ns, so that there are no
/// intervals, with these kernels of 10, 20, ... ns.
fn whole(names: &[&str]) -> Index {
    let mut writer =
        midair_trace::record_file::RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    let mut put = |record: Vec<u8>| assert_eq!(writer.append(&record).unwrap(), 1);
    let header = |kind| Header {
        kind,
        ..Header::default()
    };
    for at in 0..3 {
        let from = 1000 + 1000 * at;
        let burst = Burst {
            header: header(kind::BURST),
            from,
            start: from,
            to: from + 1000,
            ..Burst::default()
        };
        put(encode(&burst, &[]));
        for (kernel_id, name) in (1..).zip(names) {
            let symbol = KernelSymbol {
                header: header(kind::KERNEL_SYMBOL),
                kernel_id,
                name_len: name.len() as u32,
                ..KernelSymbol::default()
            };
            put(encode(&symbol, name.as_bytes()));
            let kernel = Kernel {
                header: header(kind::KERNEL_DISPATCH),
                kernel_id,
                rung: from,
                start: from + 1,
                end: from + 1 + 10 * kernel_id,
                ..Kernel::default()
            };
            put(encode(&kernel, &[]));
        }
        let end = from + 1000;
        put(encode(&Burst { end, ..burst }, &[]));
    }
    writer.finish().unwrap().into_index()
}

/// Three columns of 62 characters in all follow the name. No queue was counted, so the calls of the
/// time are shown.
#[test]
fn the_table_takes_the_width_that_is_there() {
    let long = format!("k{}", "x".repeat(60));
    let index = whole(&["scale", "vadd", &long]);
    let report = BurstReport::of(7, &index, 6_000, KernelNames::Demangled).unwrap();
    let style = Style {
        columns: 100,
        rows: 2,
        unicode: false,
        ..Style::default()
    };
    let text = report.text(Some("process 7"), style);
    let wanted = format!(
        "{}\n{:<38}{}{}{}\n{}{}{}{}\n{:<38}{}{}{}\n{}\n{}\n",
        "process 7",
        "KERNEL, IN ALL OF THE TIME",
        "               CALLS",
        "                   TOTAL",
        "             SHARE",
        "kxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxx",
        "              6 +- 0",
        "          180 ns +- 0 ns",
        "   50.00% +- 0.00%",
        "vadd",
        "              6 +- 0",
        "          120 ns +- 0 ns",
        "   33.33% +- 0.00%",
        "(and 1 other kernels)",
        "estimated from the bursts, with 95 % confidence intervals"
    );
    assert_eq!(text, wanted);
    let all = report.text(None, Style { rows: 3, ..style });
    assert!(!all.contains("other kernels"), "{all}");
    assert_eq!(report.fields(2)["kernels_left_out"], 1);
    assert_eq!(report.fields(2)["cost_is"], "unknown");
}

#[test]
fn names_are_shortened_unless_the_code_objects_are_asked_for() {
    let index = whole(&["a::k<int>(float*)"]);
    for (kernel_names, wanted) in [
        (KernelNames::Demangled, "k<int>"),
        (KernelNames::Mangled, "a::k<int>(float*)"),
    ] {
        let report = BurstReport::of(7, &index, 3_000, kernel_names).unwrap();
        assert_eq!(report.fields(1)["kernels"][0]["name"], wanted);
    }
}

#[test]
fn the_line_says_how_the_cost_is_known() {
    let coverage = |basis| Coverage {
        bursts: 4,
        recorded: 24,
        time: 100,
        switched: 0,
        cost: 200_000,
        basis,
    };
    assert_eq!(
        words(&coverage(basis::MEASURED)),
        "recorded 24.0 % of the time, in 4 bursts; recording costs the application 20.0 % of its speed during bursts, from launch rates inside and between them: 4.80 % overall"
    );
    assert_eq!(
        words(&coverage(basis::ASSUMED)),
        "recorded 24.0 % of the time, in 4 bursts; recording is estimated to cost the application 20.0 % of its speed during bursts, from the number of records: 4.80 % overall"
    );
    assert_eq!(
        words(&coverage(basis::UNKNOWN)),
        "recorded 24.0 % of the time, in 4 bursts; too few launches to measure the cost of recording"
    );
    let switched = Coverage {
        bursts: 2,
        recorded: 200,
        time: 5_000,
        switched: 300,
        ..coverage(basis::ASSUMED)
    };
    let words = words(&switched);
    for part in [
        "4.0 % of the time",
        "20.0 %",
        "0.0 ms per burst",
        "6.80 % overall",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
}
