//! From a target's records to files.

use midair_agents::Agent;
use midair_output::{
    Format, KernelNames, Names, Node, Outcome, Plan, Process, RecordWriter, Trace, write,
};
use std::collections::HashSet;
use std::sync::OnceLock;

/// Records, as the reader of the spool hands them over, are stored and written in all formats.
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
    let trace = Trace {
        process: process(),
        agents: Vec::<Agent>::new(),
        records,
        lost: Vec::new(),
        notes: Vec::new(),
        outcome: Outcome::default(),
        counters: Default::default(),
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
        ..Plan::default()
    };
    static NAMES: OnceLock<Names> = OnceLock::new();
    let files = write(&trace, NAMES.get_or_init(Names::amd), &plan);
    let files = files.unwrap_or_else(|error| panic!("records that were kept are written: {error}"));
    let different: HashSet<_> = files.iter().collect();
    assert_eq!(different.len(), files.len(), "a file is written twice");
    for file in &files {
        assert!(file.starts_with(&plan.directory), "{}", file.display());
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
    }
}
