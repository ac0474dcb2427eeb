//! The table is consistent with itself and with AMD's headers.

use super::*;
use midair_abi::constants as c;
use midair_abi::names::{BUFFER_KINDS, CALLBACK_KINDS};
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

/// AMD's buffer-tracing kinds that no option asks for.
const NO_DOMAIN: [i32; 3] = [
    c::ROCPROFILER_BUFFER_TRACING_NONE,
    c::ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT,
    c::ROCPROFILER_BUFFER_TRACING_HIP_STREAM,
];
/// AMD's callback-tracing kinds that have no domain: code objects are a separate service, and the
/// newest kinds have no callbacks.
const NO_CALLBACK_DOMAIN: [i32; 7] = [
    c::ROCPROFILER_CALLBACK_TRACING_NONE,
    c::ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT,
    c::ROCPROFILER_CALLBACK_TRACING_HIP_STREAM,
    c::ROCPROFILER_CALLBACK_TRACING_HIP_GRAPH,
    c::ROCPROFILER_CALLBACK_TRACING_ROCSHMEM_API,
    c::ROCPROFILER_CALLBACK_TRACING_HIPFILE_API,
    c::ROCPROFILER_CALLBACK_TRACING_KERNEL_REPLAY,
];

#[test]
fn kinds_are_dense_and_fit_a_set() {
    for (row, expected) in DOMAINS.iter().zip(1..) {
        assert_eq!(row.kind, expected, "{}", row.name);
        assert_eq!(domain(row.kind), Some(row));
    }
    assert!(DOMAINS.len() < usize::from(KindSet::LIMIT));
    assert_eq!(domain(0), None);
    assert_eq!(domain(DOMAINS.len() as u8 + 1), None);
    assert_eq!(domain(u8::MAX), None);
}

#[test]
fn names_and_numbers_occur_once() {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for row in &DOMAINS {
        assert!(
            !row.name.is_empty() && names.insert(row.name),
            "{}",
            row.name
        );
        if let Some(number) = row.number {
            assert_eq!(of_number(number), Some(row));
            assert!(
                numbers.insert(number),
                "{} has {number} as another has",
                row.name
            );
        }
    }
}

#[test]
fn every_kind_of_amds_has_one_domain() {
    for (theirs, kind) in (0..).zip(BUFFER_KINDS) {
        let rows: Vec<&Domain> = DOMAINS
            .iter()
            .filter(|row| row.buffer_kinds.contains(&theirs))
            .collect();
        let expected = usize::from(!NO_DOMAIN.contains(&theirs));
        assert_eq!(rows.len(), expected, "buffer kind {}", kind.name);
        assert_eq!(of_buffer_kind(theirs), rows.first().copied());
    }
    for (theirs, kind) in (0..).zip(CALLBACK_KINDS) {
        let rows = DOMAINS
            .iter()
            .filter(|row| row.callback.is_some_and(|callback| callback.kind == theirs));
        let expected = usize::from(!NO_CALLBACK_DOMAIN.contains(&theirs));
        assert_eq!(rows.count(), expected, "callback kind {}", kind.name);
    }
}

/// In files, a domain has the number and the name of its first buffer-tracing kind.
#[test]
fn numbers_and_names_in_files_are_amds() {
    for row in &DOMAINS {
        match row.buffer_kind() {
            Some(theirs) => {
                assert_eq!(row.number.map(i32::from), Some(theirs), "{}", row.name);
                assert_eq!(row.name, BUFFER_KINDS[theirs as usize].name.as_str());
            }
            None => assert!(
                row.number
                    .is_none_or(|number| usize::from(number) >= BUFFER_KINDS.len()),
                "{} has a number of AMD's",
                row.name
            ),
        }
    }
}

#[test]
fn rows_are_complete() {
    for row in &DOMAINS {
        let name = row.name;
        assert!(row.runtimes.amd || row.runtimes.cuda, "{name}");
        for ask in row.asks() {
            assert!(ask.setting.to_str().is_ok_and(str::is_ascii), "{name}");
            assert!(
                !ask.option.is_empty() && !ask.option.starts_with('-'),
                "{name}"
            );
        }
        if !row.built {
            // An unbuilt domain can only be refused by its option's name.
            assert!(!row.asks().is_empty(), "{name}");
            assert!(row.callback.is_none(), "{name}");
            assert!(
                row.needs == table_needs_nothing() && row.activities.is_empty(),
                "{name}"
            );
            continue;
        }
        let files = &row.files;
        if row.kind == kind::COUNTER_COLLECTION {
            // AMD's counters are not a buffer-tracing kind. Each counter has its own track, json
            // lists them among the records of callbacks, and their statistics are not durations.
            assert!(files.csv.is_some() && files.rocpd.is_some() && files.phrase.is_some());
            assert!(row.buffer_kind().is_none() && files.statistics.is_none());
            continue;
        }
        if [kind::PC_SAMPLING_HOST_TRAP, kind::PC_SAMPLING_STOCHASTIC].contains(&row.kind) {
            // AMD's samples are no buffer-tracing kind either, and take no time. rocpd has none.
            assert!(files.csv.is_some() && files.json.is_some() && files.rocpd.is_none());
            assert!(row.buffer_kind().is_none() && files.track.is_none() && row.needs.device);
            continue;
        }
        if row.kind == kind::THREAD_TRACE {
            // Its files are AMD's for AMD's decoder.
            assert!(files.csv.is_none() && files.json.is_none() && files.rocpd.is_none());
            assert!(row.buffer_kind().is_none() && row.needs.device);
            continue;
        }
        assert!(row.number.is_some() && !files.records.is_empty(), "{name}");
        assert!(files.category.is_some() && files.track.is_some(), "{name}");
        let newer = KindSet::of(&[kind::HIP_GRAPH, kind::HIP_EVENT]);
        assert_eq!(row.runtimes.amd, row.buffer_kind().is_some(), "{name}");
        assert!(
            row.runtimes.amd || row.needs == table_needs_nothing(),
            "{name}"
        );
        assert!(row.runtimes.cuda || row.activities.is_empty(), "{name}");
        assert!(!row.needs.device || row.needs.runtime, "{name}");
        assert!(!row.usual || row.runtimes.cuda, "{name}");
        if row.kind == kind::RUNTIME_INITIALIZATION {
            // Only pftrace shows these as records; the other formats list them in their metadata.
            assert!(files.csv.is_none() && files.rocpd.is_none() && files.statistics.is_none());
            continue;
        }
        if (sets::DRIVER | sets::TOLD | newer).contains(row.kind) {
            // AMD's tool has no tables for them.
            assert!(files.csv.is_none() && files.json.is_some() && files.rocpd.is_some());
            continue;
        }
        assert!(
            files.csv.is_some() && files.json.is_some() && files.rocpd.is_some(),
            "{name}"
        );
        assert!(
            files.statistics.is_some() && files.phrase.is_some(),
            "{name}"
        );
        if row.runtimes.cuda {
            assert!(!row.activities.is_empty(), "{name}");
        }
    }
}

fn table_needs_nothing() -> Needs {
    Needs {
        calls: false,
        runtime: false,
        device: false,
    }
}

/// Checks the ranks of one sort of names: ranks are equal if and only if names are.
fn assert_ranks(what: &str, names: impl Iterator<Item = (u8, &'static str)>) {
    let (mut by_rank, mut by_name) = (BTreeMap::new(), BTreeMap::new());
    for (rank, name) in names {
        assert_eq!(*by_rank.entry(rank).or_insert(name), name, "{what} {rank}");
        assert_eq!(*by_name.entry(name).or_insert(rank), rank, "{what} {name}");
    }
}

#[test]
fn orders_are_unambiguous() {
    let of = |field: fn(&Files) -> Option<Ranked>| {
        DOMAINS
            .iter()
            .filter_map(move |row| field(&row.files))
            .map(|it| (it.rank, it.name))
    };
    assert_ranks("json", of(|files| files.json));
    assert_ranks("table", of(|files| files.table));
    assert_ranks("phrase", of(|files| files.phrase));
    let statistics = || DOMAINS.iter().filter_map(|row| row.files.statistics);
    assert_ranks("statistics", statistics().map(|it| (it.rank, it.name)));
    assert_ranks(
        "statistics in json",
        statistics().map(|it| (it.json_rank, it.name)),
    );
    assert_ranks(
        "files of statistics",
        statistics().map(|it| (it.rank, it.csv)),
    );
}

#[test]
fn activities_and_settings_lead_back() {
    let mut activities = BTreeSet::new();
    for row in &DOMAINS {
        for activity in row.activities {
            assert!(
                activities.insert(*activity),
                "{} shares {activity}",
                row.name
            );
        }
        for ask in row.asks() {
            assert!(of_option(ask.option).any(|found| found == row));
            assert!(of_setting(ask.name()).any(|found| found == row));
        }
    }
    // All domains that one option asks for are built, or none of them is.
    for row in &DOMAINS {
        for ask in row.asks() {
            assert!(
                of_option(ask.option).all(|other| other.built == row.built),
                "{}",
                ask.option
            );
        }
    }
}

#[test]
fn sets_are_made_from_the_table() {
    assert_eq!(
        sets::HIP_CALLS,
        KindSet::of(&[kind::HIP_RUNTIME_API_EXT, kind::HIP_COMPILER_API_EXT])
    );
    assert_eq!(sets::HSA_CALLS.len(), 4);
    assert_eq!(sets::MARKERS.len(), 4);
    assert_eq!(
        sets::CUDA_CALLS,
        KindSet::of(&[kind::CUDA_RUNTIME_API, kind::CUDA_DRIVER_API])
    );
    assert_eq!(
        sets::HOOKED_CALLS,
        (sets::HIP_CALLS | sets::HSA_CALLS | sets::MARKERS | sets::LIBRARY_CALLS)
            .with(kind::HIP_GRAPH)
            .with(kind::HIP_EVENT)
    );
    assert_eq!(
        sets::NEEDS_DEVICE,
        KindSet::of(&[
            kind::KERNEL_DISPATCH,
            kind::MEMORY_COPY,
            kind::COUNTER_COLLECTION,
            kind::PC_SAMPLING_HOST_TRAP,
            kind::PC_SAMPLING_STOCHASTIC,
            kind::THREAD_TRACE
        ])
    );
    assert_eq!(
        sets::NEEDS_RUNTIME - sets::NEEDS_DEVICE,
        KindSet::of(&[kind::MEMORY_ALLOCATION, kind::SCRATCH_MEMORY])
    );
    assert_eq!(sets::BUILT, sets::AMD | sets::CUDA);
    assert_eq!(
        sets::BUILT - sets::ROCPD,
        KindSet::of(&[
            kind::RUNTIME_INITIALIZATION,
            kind::PC_SAMPLING_HOST_TRAP,
            kind::PC_SAMPLING_STOCHASTIC,
            kind::THREAD_TRACE
        ])
    );
    assert!(sets::ROCPD.iter().all(|kind| sets::BUILT.contains(kind)));
    assert_eq!(built().count(), sets::BUILT.len());
}

#[test]
fn a_set_has_what_was_put_in_and_nothing_else() {
    let set = KindSet::of(&[1, 20, 63]);
    let listed: Vec<u8> = set.iter().collect();
    assert_eq!(listed, [1, 20, 63]);
    assert_eq!(listed.into_iter().collect::<KindSet>(), set);
    for kind in 0..=u8::MAX {
        assert_eq!(set.contains(kind), [1, 20, 63].contains(&kind), "{kind}");
    }
    // These numbers belong to no domain, so the set stays the same.
    assert_eq!(set.with(0).with(64).with(128).with(255), set);
    assert_eq!(set.with_if(2, false), set);
    assert_eq!(set - KindSet::of(&[20]), KindSet::of(&[1, 63]));
    assert_eq!(set & KindSet::of(&[20, 21]), KindSet::of(&[20]));
    assert!(set.intersects(KindSet::of(&[63])) && !set.intersects(KindSet::of(&[2])));
    assert!(KindSet::EMPTY.is_empty() && KindSet::default().is_empty());
    let shared = AtomicKindSet::new(set);
    shared.store(KindSet::of(&[5]), core::sync::atomic::Ordering::Relaxed);
    assert_eq!(
        shared.load(core::sync::atomic::Ordering::Relaxed),
        KindSet::of(&[5])
    );
    assert_eq!(
        std::format!("{:?}", KindSet::of(&[1])),
        "{\"HSA_CORE_API\"}"
    );
}
