//! What the target or the disk can do to us: garbage, names that are not text, no directory to
//! write to, a full disk.

use crate::common::{agents, append, entries, golden_json, kernel, list, names, trace_of, writer};
use midair_output::{
    Format, Names, Outcome, Plan, RecordWriter, SummaryTo, Trace, WriteError, check, write,
};
use midair_record::event::{
    self, Api, Copy, Header, Kernel, KernelSymbol, Note, Untimed, flag, kind,
};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

fn plan(directory: &Path) -> Plan {
    Plan {
        directory: directory.to_owned(),
        prefix: "r".to_owned(),
        formats: vec![Format::Csv, Format::Json],
        ..Plan::default()
    }
}

fn one_kernel() -> Kernel {
    let golden = golden_json();
    kernel(
        &agents(),
        &list(&golden["buffer_records"]["kernel_dispatch"])[0],
    )
}

fn some_trace(writer: RecordWriter) -> (Trace, Names) {
    let golden = golden_json();
    let names = names(&golden);
    (trace_of(writer, &golden), names)
}

fn read_json(directory: &Path) -> Value {
    let text = fs::read(directory.join("r_results.json")).unwrap();
    let mut all: Value = serde_json::from_slice(&text).unwrap();
    all["rocprofiler-sdk-tool"][0].take()
}

/// Reads csv according to RFC 4180.
fn rows(text: &str) -> Vec<Vec<String>> {
    let parse = |line: &str| {
        let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(std::mem::take(&mut field)),
                other => field.push(other),
            }
        }
        assert!(!quoted, "{line}");
        fields.push(field);
        fields
    };
    text.lines().map(parse).collect()
}

#[test]
fn names_that_are_no_text_make_valid_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer();
    let name = b"k\xff\"quote\"\n,\x01.kd";
    let symbol = KernelSymbol {
        header: Header {
            kind: kind::KERNEL_SYMBOL,
            ..Header::default()
        },
        kernel_id: 5,
        name_len: name.len() as u32,
        group_segment: 513,
        ..KernelSymbol::default()
    };
    append(&mut writer, &event::encode(&symbol, name));
    append(
        &mut writer,
        &event::encode(
            &Kernel {
                kernel_id: 5,
                ..one_kernel()
            },
            &[],
        ),
    );
    // A kernel without a description, on an unknown agent.
    append(
        &mut writer,
        &event::encode(
            &Kernel {
                kernel_id: u64::MAX,
                kernel_object: 0xabc0,
                node: 77,
                ..one_kernel()
            },
            &[],
        ),
    );
    let (trace, names) = some_trace(writer);
    write(&trace, &names, &plan(directory.path())).unwrap();

    let csv = fs::read_to_string(directory.path().join("r_kernel_trace.csv")).unwrap();
    let rows = rows(&csv);
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [22, 22, 22]);
    assert_eq!(rows[1][7], "k\u{fffd}\"quote\" ,\u{1}");
    assert_eq!(rows[1][11], "1024", "LDS in whole blocks");
    assert_eq!(
        (rows[2][1].as_str(), rows[2][7].as_str()),
        ("Agent 77", "unknown_kernel@0xabc0")
    );

    let json = read_json(directory.path());
    let symbols = list(&json["kernel_symbols"]);
    assert_eq!(symbols.len(), 6, "index and id are the same");
    assert_eq!(symbols[5]["kernel_name"], "k\u{fffd}\"quote\"\n,\u{1}.kd");
    assert_eq!(
        symbols[5]["formatted_kernel_name"],
        "k\u{fffd}\"quote\"\n,\u{1}"
    );
    assert_eq!(
        json["buffer_records"]["kernel_dispatch"][1]["dispatch_info"]["agent_id"]["handle"],
        0
    );
}

#[test]
fn notes_of_an_earlier_trace_of_the_same_name_do_not_stay() {
    let directory = tempfile::tempdir().unwrap();
    let (mut trace, names) = some_trace(writer());
    trace.notes = vec!["the lease ran out".to_owned()];
    write(&trace, &names, &plan(directory.path())).unwrap();
    assert!(directory.path().join("r_notes.txt").exists());
    let (trace, names) = some_trace(writer());
    write(&trace, &names, &plan(directory.path())).unwrap();
    assert!(!directory.path().join("r_notes.txt").exists());
}

#[test]
fn what_is_missing_is_said_in_json_and_notes() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer();
    append(&mut writer, &event::encode(&one_kernel(), &[]));
    let header = Header {
        flags: flag::UNTIMED | flag::OPEN_AT_DETACH,
        ..one_kernel().header
    };
    let running = Kernel {
        header,
        start: 0,
        end: 0,
        untimed: Untimed::RunningAtDetach as u32,
        ..one_kernel()
    };
    append(&mut writer, &event::encode(&running, &[]));
    let note = Note {
        header: Header {
            kind: kind::NOTE,
            ..Header::default()
        },
        len: 14,
        reserved: 0,
    };
    append(&mut writer, &event::encode(&note, b"a slot is kept"));
    assert_eq!(writer.append(&[9; 24]).unwrap(), 0);
    let (mut trace, names) = some_trace(writer);
    trace.lost = vec![
        ("kernel dispatches".to_owned(), 7),
        ("memory copies".to_owned(), 0),
    ];
    trace.notes = vec!["the lease ran out".to_owned()];
    trace.outcome = Outcome {
        text: "the process was killed by signal 9".to_owned(),
        ordinary: false,
    };
    let files = write(&trace, &names, &plan(directory.path())).unwrap();
    assert!(
        files.iter().any(|path| path.ends_with("r_notes.txt")),
        "{files:?}"
    );

    let notes = fs::read_to_string(directory.path().join("r_notes.txt")).unwrap();
    let wanted = "\
the process was killed by signal 9
lost: 7 kernel dispatches
without times: 1 (start and end are 0): still running at detach
lost: 24 bytes that were no records
the lease ran out
a slot is kept
";
    assert_eq!(notes, wanted);
    let midair = &read_json(directory.path())["metadata"]["midair"];
    assert_eq!(midair["outcome"], "the process was killed by signal 9");
    assert_eq!(midair["lost"]["kernel dispatches"], 7);
    assert_eq!(midair["untimed"]["still running at detach"], 1);
    assert_eq!(
        (&midair["open_at_detach"], &midair["malformed_bytes"]),
        (&1.into(), &24.into())
    );
    assert_eq!(
        midair["notes"],
        serde_json::json!(["the lease ran out", "a slot is kept"])
    );
    let csv = fs::read_to_string(directory.path().join("r_kernel_trace.csv")).unwrap();
    assert_eq!(rows(&csv)[2][9..11], ["0", "0"]);
}

#[test]
fn an_empty_session_has_agents_and_an_empty_json() {
    let directory = tempfile::tempdir().unwrap();
    let (trace, names) = some_trace(writer());
    write(&trace, &names, &plan(directory.path())).unwrap();
    assert_eq!(
        entries(directory.path()),
        ["r_agent_info.csv", "r_results.json"]
    );
    let json = read_json(directory.path());
    assert_eq!(list(&json["agents"]).len(), 2);
    assert!(
        json["buffer_records"]
            .as_object()
            .unwrap()
            .values()
            .all(|records| list(records).is_empty())
    );
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let (trace, names) = some_trace(writer());
    let error = write(&trace, &names, &plan(&file.join("below"))).unwrap_err();
    assert!(matches!(error, WriteError::Directory { .. }), "{error:?}");
    assert!(error.to_string().contains("file/below"), "{error}");
    // No user can write to this file system, not even root.
    let error = write(&trace, &names, &plan(Path::new("/proc/self"))).unwrap_err();
    assert!(
        error.to_string().contains("/proc/self/r_agent_info.csv"),
        "{error}"
    );
}

/// Runs in a mount namespace of its own, so that a small file system can be filled.
/// `a_full_disk_leaves_nothing` starts it.
#[test]
#[ignore = "needs the file system that a_full_disk_leaves_nothing makes, which runs it"]
fn within_a_full_disk() {
    let directory = std::env::var("MIDAIR_SMALL_DISK").unwrap();
    let directory = Path::new(&directory);
    let mut writer = writer();
    let copy = Copy {
        header: Header {
            kind: kind::MEMORY_COPY,
            operation: 2,
            ..Header::default()
        },
        ..Copy::default()
    };
    for _ in 0..20_000 {
        append(&mut writer, &event::encode(&copy, &[]));
    }
    let (trace, names) = some_trace(writer);
    // Formats that are written together fill the disk together, so any of their files may be the
    // one that no longer fits.
    for (formats, threads, named) in [
        (vec![Format::Csv], 1, "/r_memory_copy_trace.csv"),
        (vec![Format::Json], 1, "/r_results.json"),
        (vec![Format::Csv, Format::Json], 1, "/r_"),
        (vec![Format::Csv, Format::Json], 2, "/r_"),
    ] {
        let plan = Plan {
            formats,
            threads,
            ..plan(directory)
        };
        let error = write(&trace, &names, &plan).unwrap_err();
        assert!(
            error.to_string().contains(named) && error.to_string().contains("No space"),
            "{error}"
        );
        assert!(entries(directory).is_empty(), "{:?}", entries(directory));
    }
    println!("the small disk was filled and left empty");
}

#[test]
fn a_full_disk_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=256k none \"$MIDAIR_SMALL_DISK\" && exec \"$0\" --exact --ignored --nocapture hostile::within_a_full_disk";
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap());
    let output = command
        .env("MIDAIR_SMALL_DISK", directory.path())
        .output()
        .unwrap_or_else(|error| panic!("unshare: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("the small disk was filled and left empty"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Bytes are flipped everywhere in good records. Nothing may panic, and what is kept must be
/// writable.
#[test]
fn damaged_records_are_survived() {
    let golden = golden_json();
    let good: Vec<u8> = list(&golden["buffer_records"]["kernel_dispatch"])
        .iter()
        .flat_map(|record| event::encode(&kernel(&agents(), record), &[]))
        .collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut writer = writer();
    let mut malformed = 0;
    for _ in 0..2000 {
        let mut bytes = good.clone();
        for _ in 0..1 + random() % 8 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        writer.append(&bytes).unwrap();
        malformed = writer.malformed_bytes();
    }
    assert!(malformed > 0 && writer.records() > 1000);
    let (trace, names) = some_trace(writer);
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan {
        formats: vec![Format::Csv, Format::Json, Format::Pftrace],
        stats: true,
        summary: true,
        summary_to: SummaryTo::File("sums".to_owned()),
        ..plan(directory.path())
    };
    write(&trace, &names, &plan).unwrap();
    let json = read_json(directory.path());
    let csv = fs::read_to_string(directory.path().join("r_kernel_trace.csv")).unwrap();
    assert_eq!(
        list(&json["buffer_records"]["kernel_dispatch"]).len() + 1,
        rows(&csv).len()
    );
    for name in ["r_results.pftrace", "r_kernel_stats.csv", "r_sums.txt"] {
        assert!(directory.path().join(name).exists(), "{name}");
    }
}

/// A target can name any number of threads and devices. Beyond a limit they share a track.
#[test]
fn tracks_without_end_are_one() {
    let mut writer = writer();
    for tid in 1..=40_000 {
        let header = Header {
            kind: kind::HSA_CORE_API,
            ..Header::default()
        };
        let api = Api {
            header,
            start: 10,
            end: 20,
            tid,
            ..Api::default()
        };
        append(&mut writer, &event::encode(&api, &[]));
        let copy = Copy {
            header: Header {
                kind: kind::MEMORY_COPY,
                ..Header::default()
            },
            start: 10,
            end: 20,
            dst_node: tid,
            ..Copy::default()
        };
        append(&mut writer, &event::encode(&copy, &[]));
    }
    let (trace, names) = some_trace(writer);
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan {
        formats: vec![Format::Pftrace],
        ..plan(directory.path())
    };
    write(&trace, &names, &plan).unwrap();
    let bytes = fs::read(directory.path().join("r_results.pftrace")).unwrap();
    let count = |text: &[u8]| bytes.windows(text.len()).filter(|at| *at == text).count();
    assert!(count(b"(further tracks)") > 0);
    // A thread's track has its name twice.
    let threads = count(b"THREAD ");
    assert!((10_000..=2 * 32_768).contains(&threads), "{threads}");
    assert!(count(b"COPY BYTES to") <= 16_384);
}

/// A kernel's name stands in each of its rows, and a short symbol may have a long name.
#[test]
fn long_names_are_cut_and_in_the_end_short() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer();
    let name = [b'"'; 4000];
    let symbol = KernelSymbol {
        header: Header {
            kind: kind::KERNEL_SYMBOL,
            ..Header::default()
        },
        kernel_id: 5,
        name_len: name.len() as u32,
        ..KernelSymbol::default()
    };
    append(&mut writer, &event::encode(&symbol, &name));
    let dispatch = Kernel {
        kernel_id: 5,
        ..one_kernel()
    };
    for _ in 0..40_000 {
        append(&mut writer, &event::encode(&dispatch, &[]));
    }
    let (trace, names) = some_trace(writer);
    let records = trace.records.bytes();
    write(&trace, &names, &plan(directory.path())).unwrap();
    let table = fs::metadata(directory.path().join("r_kernel_trace.csv")).unwrap();
    // Each quotation mark is two characters.
    let most = 2 * ((64 << 20) + 16 * records) + 40_000 * 1024;
    assert!(table.len() < most, "{} of {records}", table.len());
    let notes = fs::read_to_string(directory.path().join("r_notes.txt")).unwrap();
    assert!(notes.contains("rows have truncated"), "{notes}");
}

/// Returns the highest resident size of this process so far, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn write_many(records: u64, threads: usize) {
    let mut writer = writer();
    let bytes = event::encode(&one_kernel(), &[]);
    for _ in 0..records {
        append(&mut writer, &bytes);
    }
    let (trace, names) = some_trace(writer);
    let directory = tempfile::tempdir().unwrap();
    let plan = Plan {
        threads,
        ..plan(directory.path())
    };
    write(&trace, &names, &plan).unwrap();
}

/// Runs in a process of its own, since other tests would count.
/// `memory_does_not_grow_with_the_trace` starts it.
#[test]
#[ignore = "measures its whole process: memory_does_not_grow_with_the_trace runs it alone"]
fn within_a_process_alone() {
    for threads in [1, 2] {
        write_many(1_000, threads);
        let before = peak();
        write_many(200_000, threads);
        let grown = peak() - before;
        // 200,000 records are 27 MB here, 20 MB of csv and 80 MB of json.
        assert!(grown < 1024, "{grown} KiB more with {threads} threads");
        println!("{threads}: peak grew by {grown} KiB");
    }
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
            "hostile::within_a_process_alone",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("2: peak grew by"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// It is reported before anything is recorded where the files could not be written.
#[test]
fn files_that_could_not_be_written_are_told_of_before() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let plan = |directory: &Path| Plan {
        directory: directory.to_owned(),
        prefix: "r".to_owned(),
        ..Plan::default()
    };
    assert!(check(&plan(&directory.path().join("new"))).is_ok());
    assert!(check(&plan(&file.join("below"))).is_err());
}
