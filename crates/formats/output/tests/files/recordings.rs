//! Recorded sessions, and every file that midair wrote for them before it was rebuilt (at commit
//! f31223d). The files must be the same byte by byte.
//!
//! `tests/recordings/README.md` says where the recordings come from, and how to investigate a
//! difference.

use crate::common::agents;
use midair_agents::Agent;
use midair_output::{
    AgentIndex, Console, Format, KernelNames, Names, Node, Outcome, Plan, Process, RecordWriter,
    SummaryTo, Trace, Unit, console_summary, console_summary_together, table, write,
    write_together,
};
use midair_record::event::{QueueCounts, kind};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of a recording, the process's pid in it, and whether something was lost.
const RECORDINGS: [(&str, u32, bool); 7] = [
    ("hip", 21157, false),
    ("memories", 21327, false),
    ("cuda", 21432, false),
    ("domains", 7, false),
    ("cuda_domains", 2371, false),
    ("odd", 4242, true),
    ("cuda_odd", 4243, true),
];

/// Returns the kind of a record from the number that it had when the recordings were made.
fn kind_of(number: u8) -> u8 {
    match number {
        1 => kind::HSA_CORE_API,
        2 => kind::HSA_AMD_EXT_API,
        3 => kind::HSA_IMAGE_EXT_API,
        4 => kind::HSA_FINALIZE_EXT_API,
        7 => kind::MARKER_CORE_API,
        8 => kind::MARKER_CONTROL_API,
        9 => kind::MARKER_NAME_API,
        10 => kind::MEMORY_COPY,
        11 => kind::KERNEL_DISPATCH,
        12 => kind::SCRATCH_MEMORY,
        16 => kind::MEMORY_ALLOCATION,
        17 => kind::RUNTIME_INITIALIZATION,
        21 => kind::HIP_RUNTIME_API_EXT,
        22 => kind::HIP_COMPILER_API_EXT,
        32 => kind::MARKER_CORE_RANGE_API,
        56 => kind::CUDA_RUNTIME_API,
        57 => kind::CUDA_DRIVER_API,
        58 => kind::MEMORY_SET,
        59 => kind::SYNCHRONIZATION,
        60 => kind::UNIFIED_MEMORY,
        128 => kind::AGENT,
        129 => kind::CODE_OBJECT,
        130 => kind::KERNEL_SYMBOL,
        131 => kind::QUEUE,
        132 => kind::QUEUE_COUNTS,
        133 => kind::NOTE,
        134 => kind::CUDA_DEVICE,
        other => panic!("a recording has the kind {other}"),
    }
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

/// Returns the machine's two agents and a second GPU.
pub fn machine() -> Vec<Agent> {
    let mut all = agents();
    let second = Agent {
        node_id: 2,
        logical_node_id: 2,
        logical_node_type_id: 1,
        handle: all[1].handle + 1,
        ..all[1].clone()
    };
    all.push(second);
    all
}

/// Returns a recording as a session.
pub fn recorded(name: &str) -> Trace {
    let known = RECORDINGS.iter().find(|known| known.0 == name);
    trace(*known.unwrap())
}

fn trace((name, pid, lossy): (&str, u32, bool)) -> Trace {
    let mut bytes = fs::read(here().join(format!("{name}.bin"))).unwrap();
    let mut records = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    let mut at = 0;
    while at < bytes.len() {
        let size = usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        bytes[at + 2] = kind_of(bytes[at + 2]);
        let mut record = bytes[at..at + size].to_vec();
        if record[2] == kind::QUEUE_COUNTS {
            // At that time the record had neither midair's packets nor pauses.
            record.resize(size_of::<QueueCounts>(), 0);
            let size = u16::try_from(record.len()).unwrap();
            record[..2].copy_from_slice(&size.to_le_bytes());
        }
        assert_eq!(records.append(&record).unwrap(), 1);
        at += size;
    }
    let mut agents = machine();
    if name.starts_with("cuda") {
        agents.truncate(1);
    }
    let mut trace = Trace {
        known: Default::default(),
        process: Process {
            pid,
            ppid: 1,
            command: vec![format!("/opt/{name}"), "--fast".to_owned()],
            init_time: 900,
            fini_time: 9_000_000_000_000,
            node: Node {
                machine_id: "0123456789abcdef".to_owned(),
                system_name: "Linux".to_owned(),
                hostname: "host".to_owned(),
                release: "6.1".to_owned(),
                version: "#1".to_owned(),
                hardware_name: "x86_64".to_owned(),
                domain_name: "(none)".to_owned(),
            },
            ..Process::default()
        },
        agents,
        records: records.finish().unwrap(),
        lost: Vec::new(),
        notes: Vec::new(),
        outcome: Outcome::default(),
        counters: Default::default(),
        gpu: None,
        attach: Default::default(),
    };
    if lossy {
        trace.lost = vec![
            ("kernel dispatches".to_owned(), 3),
            ("copies".to_owned(), 1),
        ];
        trace.notes = vec!["a note of the attaching side".to_owned()];
        trace.outcome = Outcome {
            text: "the process was killed by signal 9".to_owned(),
            ordinary: false,
        };
    }
    trace
}

/// Returns plans by name: everything in AMD's ways, and the opposite of each choice.
fn plans(directory: &Path) -> [(&'static str, Plan); 3] {
    let everything = Plan {
        directory: directory.to_owned(),
        prefix: "r".to_owned(),
        raw_directory: "%cwd%".to_owned(),
        raw_prefix: "r".to_owned(),
        formats: vec![Format::Csv, Format::Json, Format::Pftrace, Format::Rocpd],
        stats: true,
        summary: true,
        summary_per_domain: true,
        summary_groups: vec!["HIP_API|CUDA_.*".to_owned(), "MEMORY_.*".to_owned()],
        summary_to: SummaryTo::File("summary".to_owned()),
        ..Plan::default()
    };
    let otherwise = Plan {
        formats: vec![Format::Rocpd, Format::Pftrace, Format::Json, Format::Csv],
        kernel_names: KernelNames::Truncated,
        agent_index: AgentIndex::TypeRelative,
        stats: false,
        summary_groups: Vec::new(),
        summary_to: SummaryTo::Console(Console::Stderr),
        summary_unit: Unit::Usec,
        group_by_queue: true,
        ..everything.clone()
    };
    let alone = Plan {
        formats: vec![Format::Pftrace],
        kernel_names: KernelNames::Mangled,
        agent_index: AgentIndex::Absolute,
        stats: true,
        summary: false,
        summary_per_domain: false,
        ..otherwise.clone()
    };
    [
        ("everything", everything),
        ("otherwise", otherwise),
        ("alone", alone),
    ]
}

/// Length and FNV-1a hash of a file.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{} {hash:016x}", bytes.len())
}

/// Stores what the user sees besides the files as further files, with the files' names in the order
/// in which they are reported.
fn keep(directory: &Path, files: &[PathBuf], console: Option<(Console, String)>, table: &str) {
    let put = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    let names: Vec<String> = files
        .iter()
        .map(|file| format!("{}\n", file.file_name().unwrap().to_string_lossy()))
        .collect();
    put("files", &names.concat());
    put("table", table);
    if let Some((to, text)) = console {
        put(&format!("console_{to:?}"), &text);
    }
}

fn write_all(out: &Path) {
    let names = Names::amd();
    let style = table::Style::default();
    let mut parts: Vec<Trace> = Vec::new();
    for recording in RECORDINGS {
        let trace = trace(recording);
        for (name, plan) in plans(&out.join(recording.0)) {
            let directory = plan.directory.join(name);
            let plan = Plan {
                directory: directory.clone(),
                ..plan
            };
            let files = write(&trace, &names, &plan).unwrap();
            let console = console_summary(&trace, &names, &plan);
            let table = table::summary(trace.records.index(), &names, plan.kernel_names, style);
            keep(&directory, &files, console, &table);
        }
        parts.push(trace);
    }
    for (name, plan) in plans(&out.join("together")) {
        let directory = plan.directory.join(name);
        let plan = Plan {
            directory: directory.clone(),
            ..plan
        };
        let files = write_together(&parts, &names, &plan).unwrap();
        let console = console_summary_together(&parts, &names, &plan);
        let sessions: Vec<table::LabelledIndex<'_>> = parts
            .iter()
            .map(|trace| table::LabelledIndex {
                label: format!("process {}", trace.process.pid),
                index: trace.records.index(),
            })
            .collect();
        let table = table::summary_together(&sessions, &names, plan.kernel_names, style);
        keep(&directory, &files, console, &table);
    }
}

/// Returns the digests of all files below a directory.
fn digests(directory: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).unwrap().to_str().unwrap();
            all.insert(name.to_owned(), digest(&fs::read(&path).unwrap()));
        }
    }
    all
}

/// json and rocpd contain the directory that was asked for, so it must be the same each time.
/// Therefore it is relative, and this is the only test that changes the working directory.
#[test]
fn files_of_recorded_sessions_are_what_they_always_were() {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recordings");
    if kept.exists() {
        fs::remove_dir_all(&kept).unwrap();
    }
    fs::create_dir_all(&kept).unwrap();
    std::env::set_current_dir(&kept).unwrap();
    write_all(Path::new("out"));
    let found = digests(&kept.join("out"));
    let digests = here().join("digests.txt");
    let wanted: BTreeMap<String, String> = fs::read_to_string(&digests)
        .unwrap_or_default()
        .lines()
        .map(|line| {
            let (name, digest) = line.split_once(": ").unwrap();
            (name.to_owned(), digest.to_owned())
        })
        .collect();
    if found == wanted {
        fs::remove_dir_all(kept.join("out")).unwrap();
        return;
    }
    let lines: Vec<String> = found.iter().map(|(n, d)| format!("{n}: {d}\n")).collect();
    fs::write(kept.join("digests.txt"), lines.concat()).unwrap();
    let differ: Vec<&String> = found
        .iter()
        .filter(|(name, digest)| wanted.get(*name) != Some(digest))
        .map(|(name, _)| name)
        .chain(wanted.keys().filter(|name| !found.contains_key(*name)))
        .collect();
    panic!(
        "{} files differ from what was written before: {differ:#?}\nwhat is written now is in {}; tests/recordings/README.md says how to compare",
        differ.len(),
        kept.display()
    );
}
