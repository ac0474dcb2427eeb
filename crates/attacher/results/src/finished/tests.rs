use super::*;
use midair_output::RecordWriter;
use midair_record::event::{Header, Kernel, QueueCounts, encode, kind};
use midair_settings::COUNTERS;

/// A session with these records.
fn finished(records: &[u8], settings: &[(&str, &str)]) -> Finished {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    writer.append(records).unwrap();
    Finished {
        identity: Identity::default(),
        settings: Settings::from_iter(settings.iter().copied()),
        records: writer.finish().unwrap(),
        dropped: [0; DROP_SLOTS],
        outcome: 0,
        ended: None,
        failure: None,
        notes: Vec::new(),
        counters: CounterPlan::default(),
        cost: Cost::default(),
        session_ns: None,
        unrecorded_ns: 0,
        gpu: None,
        only_others: false,
        why_empty: None,
        code: Default::default(),
    }
}

fn header(kind: u8) -> Header {
    Header {
        kind,
        ..Header::default()
    }
}

/// A session that asked for counters and has none, in which this number of kernels was launched.
fn without_counters(dispatches: u64) -> Finished {
    let counts = QueueCounts {
        header: header(kind::QUEUE_COUNTS),
        dispatches,
        ..QueueCounts::default()
    };
    finished(&encode(&counts, &[]), &[(COUNTERS, "pmc: SQ_WAVES")])
}

fn dispatch() -> Vec<u8> {
    let kernel = Kernel {
        header: header(kind::KERNEL_DISPATCH),
        ..Kernel::default()
    };
    encode(&kernel, &[])
}

#[test]
fn bytes_that_are_no_records_are_a_failure() {
    let (whole, mut damaged) = (dispatch(), dispatch());
    damaged.extend([0xff; 24]);
    for (records, wanted) in [(whole, None), (damaged, Some(Kind::Incomplete))] {
        let ready = finished(&records, &[]).ready(Plan::default());
        let (_, incomplete) = ready.conclusion(None);
        let kind = incomplete.as_ref().map(|failure| failure.kind);
        assert_eq!(kind, wanted, "{incomplete:?}");
        let says = |failure: Failure| failure.what.contains("24 bytes of the spool");
        assert!(incomplete.is_none_or(says));
    }
}

/// A pattern that matches no kernel is named, and so are the kernels that there were.
#[test]
fn a_choice_that_leaves_all_kernels_out_is_said() {
    let chosen = Settings::from_iter([("ROCPROF_KERNEL_FILTER_INCLUDE_REGEX", "gemm")]);
    let plan = Plan {
        kernel_filter: crate::plan::kernel_filter(&chosen).unwrap(),
        ..Plan::default()
    };
    let ready = finished(&dispatch(), &[]).ready(plan);
    let (warnings, incomplete) = ready.conclusion(None);
    assert!(incomplete.is_none(), "{incomplete:?}");
    let why = "1 dispatch is excluded, of 1 kernel without a name";
    for said in [&warnings, &ready.trace.notes] {
        assert!(said.iter().any(|it| it.contains(why)), "{said:?}");
    }
}

/// Kernels ran, and no counter came back: this is not the same as a process without kernels.
#[test]
fn counters_that_could_not_be_prepared_are_a_failure() {
    for (dispatches, wanted) in [(3, Some(Kind::NoCounters)), (0, None)] {
        let plan = Plan::default();
        let ready = without_counters(dispatches).ready(plan);
        let (_, incomplete) = ready.conclusion(None);
        let kind = incomplete.as_ref().map(|failure| failure.kind);
        assert_eq!(kind, wanted, "{dispatches}");
        let notes = &ready.trace.notes;
        assert!(notes.iter().any(|note| note == NO_COUNTERS), "{notes:?}");
    }
}
