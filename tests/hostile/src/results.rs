//! From a target's records to files.

use midair_agents::Agent;
use midair_counters::template::{Slot, Template};
use midair_counters::{Architecture, CounterPlan, Position, Prepared, group};
use midair_output::{
    Format, KernelFilter, KernelNames, Names, Node, Outcome, Place, Plan, Process, RecordWriter,
    Trace, counter_table, table::Style, write,
};
use std::collections::HashSet;
use std::sync::OnceLock;

/// Stores records as the reader of the spool passes them on, and writes them in all formats.
pub fn results(bytes: &[u8]) {
    let place = tempfile::tempdir().unwrap_or_else(|error| panic!("a directory: {error}"));
    let Ok(mut writer) = RecordWriter::create_in(place.path()) else {
        panic!("a file without a name");
    };
    let kept = writer.append(bytes);
    let kept = kept.unwrap_or_else(|error| panic!("what was read is stored: {error}"));
    assert_eq!(writer.records(), kept);
    assert_eq!(
        writer.bytes() + writer.malformed_bytes(),
        bytes.len() as u64
    );
    super::used(writer.index().snapshot());
    let Ok(records) = writer.finish() else {
        panic!("the file is written");
    };
    let mut trace = Trace {
        known: Default::default(),
        process: process(),
        agents: Vec::<Agent>::new(),
        records,
        lost: Vec::new(),
        notes: Vec::new(),
        outcome: Outcome::default(),
        counters: counters(),
        gpu: None,
        attach: Default::default(),
    };
    let plan = Plan {
        directory: place.path().join("files"),
        prefix: "r".to_owned(),
        formats: Format::all().collect(),
        kernel_names: match bytes.len() % 3 {
            0 => KernelNames::Demangled,
            1 => KernelNames::Truncated,
            _ => KernelNames::Mangled,
        },
        stats: true,
        kernel_filter: KernelFilter::new(None, Some("x"), vec![1..=3]).unwrap_or_default(),
        ..Plan::default()
    };
    static NAMES: OnceLock<Names> = OnceLock::new();
    let names = NAMES.get_or_init(Names::amd);
    // Some cases have all kernels, some have chosen ones and some have none.
    let (chosen, kernels) = (
        bytes.len().is_multiple_of(2),
        !bytes.len().is_multiple_of(5),
    );
    let filter = if chosen {
        plan.kernel_filter.clone()
    } else {
        KernelFilter::default()
    };
    let choosing = trace.records.choose(&filter, plan.kernel_names, kernels);
    choosing.unwrap_or_else(|error| panic!("records that were kept are read: {error}"));
    super::used(counter_table(&trace, names, &plan, Style::default()));
    let files = write(&trace, names, &plan);
    let files = files.unwrap_or_else(|error| panic!("records that were kept are written: {error}"));
    let different: HashSet<_> = files.iter().collect();
    assert_eq!(different.len(), files.len(), "a file is written twice");
    for file in &files {
        assert!(file.starts_with(&plan.directory), "{}", file.display());
    }
}

/// Returns two groups of counters for a GPU, so that windows in the records have a meaning.
fn counters() -> CounterPlan {
    let Some(architecture) = Architecture::find("gfx942") else {
        return CounterPlan::default();
    };
    let prepared = |counters: &[&str], words: u32| {
        let group = group::one(architecture, counters).unwrap_or_default();
        let slot = |word| Slot {
            word,
            event: word % 3,
            position: Position(u64::from(word)),
        };
        Prepared {
            architecture,
            group,
            template: Template {
                output_bytes: 8 * u64::from(words),
                slots: (0..words).map(slot).collect(),
                ..Template::default()
            },
        }
    };
    let groups = vec![
        prepared(&["GRBM_COUNT", "SQ_WAVES", "MAX_WAVE_SIZE"], 2),
        prepared(&["FETCH_SIZE"], 600),
    ];
    CounterPlan {
        agents: [(0, groups.clone()), (1, groups)].into(),
        ..CounterPlan::default()
    }
}

fn process() -> Process {
    Process {
        pid: 7,
        ppid: 1,
        command: vec!["program".to_owned()],
        init_time: 1,
        fini_time: 2,
        node: Node::default(),
        place: Place::default(),
        threads: [(7, "program".to_owned()), (u32::MAX, String::new())].into(),
    }
}
