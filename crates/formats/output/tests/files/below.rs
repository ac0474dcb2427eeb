//! Flame graphs below the kernel: the times of kernels by the instructions that were sampled in them.

use crate::common::{append, list};
use crate::html::data;
use crate::rocpd_rows::{header, one_kernel, plan};
use crate::stacks::session_with;
use midair_output::{Format, write};
use midair_record::event::{self, Instruction, KernelSymbol, PcSample, kind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The code object, where the kernel starts, and the offset of its first instruction in the code object.
const OBJECT: u64 = 77;
const ENTRY: u64 = 0x10_000;
const FIRST: u64 = 0x100;
/// The samples of the launches 1 and 2, which have one stack: the instruction's offset, the device's bits,
/// and how many there are. Valid; issued; stalled at a wait.
const SAMPLES: [(u64, u32, u64); 3] = [(0, 1 | 2, 1), (16, 1 | 2, 2), (16, 1 | 2 << 7, 5)];
/// The frames below the kernel, in the same order, and the share of each.
const BELOW: [(&[&str], u64); 3] = [
    (&["+0x0 s_load_dword s3 (sampled)", "issued (sampled)"], 1),
    (
        &[
            "job/vadd.hip:7 (sampled)",
            "+0x10 s_waitcnt lgkmcnt(0) (sampled)",
            "issued (sampled)",
        ],
        2,
    ),
    (
        &[
            "job/vadd.hip:7 (sampled)",
            "+0x10 s_waitcnt lgkmcnt(0) (sampled)",
            "stalled: waitcnt (sampled)",
        ],
        5,
    ),
];

fn written(format: Format, end: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let (trace, names) = session_with(|writer| {
        let name = b"_Z4vaddPf.kd";
        let symbol = KernelSymbol {
            header: header(kind::KERNEL_SYMBOL, 0),
            kernel_id: one_kernel().kernel_id,
            code_object_id: OBJECT,
            kernel_object: ENTRY,
            name_len: name.len() as u32,
            ..KernelSymbol::default()
        };
        append(writer, &event::encode(&symbol, name));
        for (offset, bits, count) in SAMPLES {
            for number in 0..count {
                let sample = PcSample {
                    header: header(kind::PC_SAMPLING_STOCHASTIC, 0),
                    pc: ENTRY + offset,
                    offset: FIRST + offset,
                    code_object_id: OBJECT,
                    correlation: 1 + number % 2,
                    dispatch_id: 1 + number % 2,
                    snapshot: [bits, 0, 0],
                    ..PcSample::default()
                };
                append(writer, &event::encode(&sample, &[]));
            }
        }
        let waits = Instruction::record(
            OBJECT,
            FIRST + 16,
            "s_waitcnt lgkmcnt(0)",
            "/home/me/job/vadd.hip:7",
        );
        append(
            writer,
            &Instruction::record(OBJECT, FIRST, "s_load_dword s3", ""),
        );
        append(writer, &waits);
    });
    let directory = tempfile::tempdir().unwrap();
    write(&trace, &names, &plan(directory.path(), &[format])).unwrap();
    let file = directory.path().join(format!("r_results.{end}"));
    (directory, file)
}

/// Checks that below each kernel the time is split by the samples, and that nothing of it is lost.
fn check(all: &BTreeMap<Vec<String>, u64>) {
    let mut kernels: BTreeMap<Vec<String>, BTreeMap<Vec<String>, u64>> = BTreeMap::new();
    for (path, time) in all {
        if let Some(at) = path.iter().position(|frame| frame.contains("vadd(")) {
            let (kernel, below) = path.split_at(at + 1);
            let parts = kernels.entry(kernel.to_vec()).or_default();
            parts.insert(below.to_vec(), *time);
        }
    }
    assert!(kernels.len() > 3, "{all:?}");
    let mut sum = 0;
    for (kernel, parts) in kernels {
        let time: u64 = parts.values().sum();
        sum += time;
        for (below, share) in BELOW {
            let below: Vec<String> = below.iter().map(|it| (*it).to_owned()).collect();
            let part = parts[&below] as f64;
            let exact = time as f64 * share as f64 / 8.0;
            assert!((part - exact).abs() <= 2.0, "{kernel:?}: {parts:?}");
        }
        assert_eq!(
            parts.values().filter(|time| **time > 0).count(),
            BELOW.len()
        );
    }
    // The times of the launches 1 to 8.
    assert_eq!(sum, (1..=8).map(|it| 1_000 + it * it).sum::<u64>());
}

#[test]
fn folded_and_speedscope_go_below_the_kernel() {
    let (_directory, file) = written(Format::Folded, "folded");
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| {
        let (path, time) = line.rsplit_once(' ').unwrap();
        let path = path.split(';').map(str::to_owned).collect();
        (path, time.parse().unwrap())
    });
    check(&lines.collect());
    let (_directory, file) = written(Format::Speedscope, "speedscope.json");
    let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let names = list(&document["shared"]["frames"]);
    let profile = &document["profiles"][0];
    let all = list(&profile["samples"])
        .iter()
        .zip(list(&profile["weights"]));
    let all = all.map(|(path, weight)| {
        let frame = |at: &Value| {
            names[at.as_u64().unwrap() as usize]["name"]
                .as_str()
                .unwrap()
        };
        let path = list(path).iter().map(|at| frame(at).to_owned()).collect();
        (path, weight.as_u64().unwrap())
    });
    check(&all.collect());
}

#[test]
fn the_page_marks_frames_below_the_kernel() {
    let (_directory, file) = written(Format::Html, "html");
    let data = data(&file);
    let names = list(&data["frames"]);
    for (name, part) in names.iter().zip(list(&data["parts"])) {
        let is_sampled = name.as_str().unwrap().ends_with(" (sampled)");
        assert_eq!(part == "sampled", is_sampled, "{name} {part}");
    }
    let (mut all, mut launches) = (BTreeMap::new(), 0);
    for stack in list(&data["stacks"]) {
        let frame = |at: &Value| names[at.as_u64().unwrap() as usize].as_str().unwrap();
        let path: Vec<String> = list(&stack[1])
            .iter()
            .map(|at| frame(at).to_owned())
            .collect();
        let is_kernel = path.last().is_some_and(|name| name.contains("vadd("));
        launches += stack[0][1].as_u64().unwrap() * u64::from(is_kernel);
        // The kernel itself has the number of its launches, and no time.
        if !is_kernel {
            all.insert(path, stack[0][0].as_u64().unwrap());
        }
    }
    check(&all);
    assert_eq!(launches, 8);
}

/// Google's protobuf reads the profile.
#[test]
fn pprof_goes_below_the_kernel() {
    let (_directory, file) = written(Format::Pprof, "pb.gz");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/python/pprof_read.py");
    let output = Command::new(midair_tests::python().unwrap())
        .arg(script)
        .arg(file)
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (mut all, mut launches): (BTreeMap<Vec<String>, u64>, u64) = (BTreeMap::new(), 0);
    for sample in list(&said["samples"]) {
        let mut path = Vec::new();
        for frame in list(&sample["frames"]).iter().rev() {
            let (name, file, line) = (&frame[0], &frame[1], &frame[2]);
            let name = name.as_str().unwrap().to_owned();
            // pprof has the line at the instruction itself.
            if name.starts_with("+0x10 ") {
                assert_eq!((file, line), (&"/home/me/job/vadd.hip".into(), &7.into()));
                path.push("job/vadd.hip:7 (sampled)".to_owned());
            }
            path.push(name);
        }
        launches += sample["values"][0].as_u64().unwrap();
        let time = sample["values"][1].as_u64().unwrap();
        if time > 0 {
            *all.entry(path).or_default() += time;
        }
    }
    check(&all);
    // The copy, too.
    assert_eq!(launches, 9);
}
