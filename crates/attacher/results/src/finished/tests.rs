use super::*;
use midair_output::RecordWriter;
use midair_record::event::{Header, QueueCounts, encode, kind};
use midair_settings::COUNTERS;

/// A session that asked for counters and has none, in which this number of kernels was launched.
fn without_counters(dispatches: u64) -> Finished {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    let counts = QueueCounts {
        header: Header {
            kind: kind::QUEUE_COUNTS,
            ..Header::default()
        },
        dispatches,
        ..QueueCounts::default()
    };
    writer.append(&encode(&counts, &[])).unwrap();
    Finished {
        identity: Identity::default(),
        settings: Settings::from_iter([(COUNTERS, "pmc: SQ_WAVES")]),
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
