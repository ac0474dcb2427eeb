//! `midair attach --no-entry`: times of kernels from the log that the kernel driver offers. The
//! driver is a stand-in that is preloaded into the attacher (`tests/c/kfd_device.c`), and the
//! modelled GPUs write the log. We have never seen a Linux kernel with the real log.

use midair_tests::compile;
use midair_tests::lab::LabTarget;
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stage::command;
use midair_tests::stand_in::{Kit, QUEUES_PER_NODE};
use midair_tests::table::{Csv, json};
use midair_tests::target::{Exit, PATIENCE, Target, ask, run, until};
use midair_tests::{Result, leave_out, workspace};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The error in ns that a time may have because the log's clock runs at 100 MHz and both clocks are
/// read twice.
const SLACK: u64 = 20_000;

/// Compiles the stand-in for the driver's device.
fn device() -> Result<PathBuf> {
    let dir = workspace().join("target/test-programs");
    std::fs::create_dir_all(&dir)?;
    let library = dir.join("kfd_device.so");
    let flags = ["-shared", "-fPIC", "-ldl"];
    let source = compile::sources().join("kfd_device.c");
    compile::build(&["gcc"], &source, &library, &flags, |path| {
        Ok(path.to_str().ok_or("a path is text")?.to_owned())
    })?;
    Ok(library)
}

/// Starts `two_gpus` with GPUs that keep the firmware's log, and waits until it is ready.
fn start(kit: &Kit, more: &[(&str, &str)]) -> Result<LabTarget> {
    let dir = kit.scratch().to_str().ok_or("a path is text")?.to_owned();
    let mut variables = vec![
        ("MODEL_KERNEL_NS", "20000"),
        ("MODEL_FIRMWARE_LOG", dir.as_str()),
    ];
    variables.extend_from_slice(more);
    let mut target = kit.start("two_gpus", "model.log", &variables)?;
    target.expect("ready")?;
    ask(&mut target, "work 1")?;
    Ok(target)
}

/// Prepares `midair attach --no-entry` with these variables for the stand-in, and more arguments.
fn attach(kit: &Kit, pid: i32, variables: &[(&str, &str)], words: &[&str]) -> Result<Command> {
    let mut command = command("midair")?;
    command
        .args(["attach", "--no-entry", &pid.to_string(), "-o", "t", "-d"])
        .arg(kit.scratch().join("out"))
        .args(["--output-format", "csv,json,rocpd,pftrace"])
        .args(words)
        .env("LD_PRELOAD", device()?)
        .env("SIM_KFD_LOGS", kit.scratch())
        .envs(variables.iter().copied());
    Ok(command)
}

/// Starts a recording and waits until it is under way.
fn begin(kit: &Kit, pid: i32, variables: &[(&str, &str)]) -> Result<Target> {
    let mut midair = Target::spawn(attach(kit, pid, variables, &[])?)?;
    midair.expect_error("attached to process")?;
    Ok(midair)
}

fn end(mut midair: Target, code: i32) -> Result<Exit> {
    midair.send("")?;
    let exit = midair.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(code), "{exit}");
    Ok(exit)
}

/// A kernel: the node of its GPU, its start and its end.
type Times = (u64, u64, u64);

/// Returns the kernels of the csv file.
fn recorded(kit: &Kit) -> Result<Vec<Times>> {
    let rows = Csv::read(&kit.scratch().join("out/t_kernel_trace.csv"))?.rows;
    let mut all = Vec::new();
    for row in rows {
        assert_eq!(row["Kernel_Name"], "unknown_kernel@0x0", "{row:?}");
        let node = row["Agent_Id"].strip_prefix("Agent ").ok_or("an agent")?;
        let times = (
            Csv::number(&row, "Start_Timestamp")?,
            Csv::number(&row, "End_Timestamp")?,
        );
        all.push((node.parse()?, times.0, times.1));
    }
    all.sort_unstable();
    Ok(all)
}

/// Returns the kernels that the model's log has had since `since`.
fn logged(log: &ModelLog, since: usize) -> Vec<Times> {
    let mut all: Vec<Times> = log.records[since..]
        .iter()
        .filter_map(|record| match &record.event {
            Event::Dispatch(ran) => {
                let node = record.queue / QUEUES_PER_NODE;
                Some((node.into(), ran.packet.start, ran.packet.end))
            }
            _ => None,
        })
        .collect();
    all.sort_unstable();
    all
}

fn same(recorded: &[Times], logged: &[Times]) {
    assert_eq!(recorded.len(), logged.len(), "{recorded:?}\n{logged:?}");
    for (ours, theirs) in recorded.iter().zip(logged) {
        let near = ours.1.abs_diff(theirs.1) < SLACK && ours.2.abs_diff(theirs.2) < SLACK;
        assert!(ours.0 == theirs.0 && near, "{ours:?} {theirs:?}");
    }
}

/// Records one window and checks that times, queues and packets match the device's. The
/// process is not touched: no thread of it came or went, nothing was mapped, and no table has
/// changed.
fn window(midair: &[(&str, &str)], model: &[(&str, &str)]) -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, model)?;
    let pid = target.pid();
    let before = target.model_log()?.records.len();
    let untouched = || -> Result<_> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let files: BTreeSet<String> = maps
            .lines()
            .filter_map(|line| Some(line.split_once('/')?.1.to_owned()))
            .collect();
        let threads: BTreeSet<_> = std::fs::read_dir(format!("/proc/{pid}/task"))?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<Result<_>>()?;
        Ok((threads, files))
    };
    let first = untouched()?;
    let recording = begin(&kit, pid, midair)?;
    assert_eq!(untouched()?, first);
    ask(&mut target, "work 30")?;
    let log = target.model_log()?;
    let exit = end(recording, 0)?;
    assert_eq!(untouched()?, first);
    let theirs = logged(&log, before);
    assert_eq!(theirs.len(), 120);
    same(&recorded(&kit)?, &theirs);
    assert!(
        exit.stderr
            .iter()
            .any(|line| line.contains("no names, sizes, threads")),
        "{exit}"
    );

    let whole = json(&kit.scratch().join("out/t_results.json"))?;
    let tool = &whole["rocprofiler-sdk-tool"][0];
    let records = tool["buffer_records"]["kernel_dispatch"]
        .as_array()
        .ok_or("a list")?;
    assert_eq!(records.len(), 120);
    let queues: BTreeSet<u64> = records
        .iter()
        .filter_map(|record| record["dispatch_info"]["queue_id"]["handle"].as_u64())
        .collect();
    assert_eq!(queues.len(), 2, "a queue of each GPU");
    let notes = tool["metadata"]["midair"]["notes"].to_string();
    assert!(notes.contains("--no-entry"), "{notes}");
    rows_of_the_database(&kit, 120)?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

fn rows_of_the_database(kit: &Kit, expected: usize) -> Result<()> {
    let reader = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/formats/output/tests/files/rocpd_reader.py");
    let mut python = Command::new("python3");
    python
        .arg("-B")
        .arg(reader)
        .arg(kit.scratch().join("out/t_results.db"));
    python.arg("SELECT COUNT(*) AS n FROM kernels");
    let said = run(python, PATIENCE)?.success()?.stdout.join("\n");
    let answer: serde_json::Value = serde_json::from_str(&said)?;
    assert_eq!(answer["answers"][0][0]["n"], expected, "{answer}");
    Ok(())
}

#[test]
fn kernels_without_entering() -> Result<()> {
    window(&[], &[])
}

/// Tests the layouts of both versions, and both kinds of indices.
#[test]
fn streams_of_both_versions() -> Result<()> {
    let counts = [("MODEL_FIRMWARE_COUNTS", "1")];
    window(&[("SIM_KFD_STREAM", "3")], &counts)?;
    window(&[("SIM_KFD_STREAM", "3")], &[])?;
    window(&[("SIM_KFD_STREAM", "4")], &counts)
}

/// The kernels of 120 packets overrun a ring of 16 records while the attacher is stopped. The lost
/// records are counted, and the exit code shows the loss.
#[test]
fn overwritten_records_are_counted() -> Result<()> {
    let kit = Kit::new()?;
    let model = [
        ("MODEL_FIRMWARE_SLOTS", "16"),
        ("MODEL_FIRMWARE_COUNTS", "1"),
    ];
    let mut target = start(&kit, &model)?;
    let recording = begin(&kit, target.pid(), &[("SIM_KFD_SLOTS", "16")])?;
    let midair = recording.pid();
    let signal = |name: &str| -> Result<()> {
        let mut kill = Command::new("kill");
        kill.args([name, &midair.to_string()]);
        run(kill, PATIENCE)?.success()?;
        Ok(())
    };
    signal("-STOP")?;
    until("the recording side has stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{midair}/stat"))?;
        Ok(stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('T')))
    })?;
    ask(&mut target, "work 30")?;
    signal("-CONT")?;
    let exit = end(recording, 32)?;
    let whole = json(&kit.scratch().join("out/t_results.json"))?;
    let lost = &whole["rocprofiler-sdk-tool"][0]["metadata"]["midair"]["lost"];
    // The ring of each GPU keeps 16 of 120 records.
    let counted: u64 = lost
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, n)| n.as_u64())
        .sum();
    assert_eq!(counted, 2 * (120 - 16), "{lost}\n{exit}");
    let kept = recorded(&kit)?.len();
    assert!((14..=16).contains(&kept), "{kept}");
    Ok(())
}

/// One GPU has a log and another one has none. The kernels of the latter are left out, and a
/// message names that GPU.
#[test]
fn a_gpu_without_a_log_is_named() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, &[])?;
    let before = target.model_log()?.records.len();
    let recording = begin(&kit, target.pid(), &[("SIM_KFD_WITHOUT", "3")])?;
    ask(&mut target, "work 5")?;
    let log = target.model_log()?;
    let exit = end(recording, 0)?;
    let theirs: Vec<Times> = logged(&log, before)
        .into_iter()
        .filter(|(node, ..)| *node == 1)
        .collect();
    assert_eq!(theirs.len(), 10);
    same(&recorded(&kit)?, &theirs);
    let told = "have no dispatch log: gfx942";
    assert!(exit.stderr.iter().any(|line| line.contains(told)), "{exit}");
    Ok(())
}

/// A kernel that still runs at the detach is in the results without times. A message tells of one
/// that started before the recording.
#[test]
fn kernels_across_the_edges() -> Result<()> {
    let kit = Kit::new()?;
    // `step` on the first GPU takes half a second.
    let mut target = start(&kit, &[("MODEL_LONG_KERNEL", "640:500000000")])?;
    target.send("work 2")?;
    let firmware = kit.scratch().join(format!("{}-1", target.pid()));
    let begun = || -> Result<u64> {
        let bytes = std::fs::read(&firmware)?;
        let at = 2 * 262_144 * 20;
        let index =
            |at: usize| -> Result<u64> { Ok(u64::from_le_bytes(bytes[at..at + 8].try_into()?)) };
        Ok(index(at)? + index(at + 8)?)
    };
    // The first round has written four records. The fifth record is the start of a long kernel.
    until("a kernel has begun", || Ok(begun()? >= 5))?;
    let recording = begin(&kit, target.pid(), &[])?;
    // Then come its end, the two records of the short kernel, and the start of the second long
    // kernel.
    until("the second has begun", || Ok(begun()? >= 9))?;
    let exit = end(recording, 0)?;
    let rows = Csv::read(&kit.scratch().join("out/t_kernel_trace.csv"))?.rows;
    let untimed = rows
        .iter()
        .filter(|row| row["Start_Timestamp"] == "0")
        .count();
    assert_eq!(untimed, 1, "{rows:?}");
    let told = "1 kernels are missing from the trace, since the log had no start for them";
    assert!(exit.stderr.iter().any(|line| line.contains(told)), "{exit}");
    target.expect("work")?;
    Ok(())
}

/// A setting of the stand-in's driver, the exit code, and a part of the message.
type Refusal<'a> = (&'a [(&'a str, &'a str)], i32, &'a str);

/// Each obstacle has its own sentence and exit code.
#[test]
fn refusals() -> Result<()> {
    let kit = Kit::new()?;
    let target = start(&kit, &[])?;
    let cases: [Refusal<'_>; 12] = [
        (
            &[("SIM_KFD_OPEN", "2")],
            29,
            "this machine has no AMD GPU driver",
        ),
        (&[("SIM_KFD_OPEN", "13")], 11, "cannot open /dev/kfd"),
        (&[("SIM_KFD_PROFILER", "0")], 29, "has no dispatch log"),
        (&[("SIM_KFD_PROFILER", "7")], 29, "has version 7"),
        (
            &[("SIM_KFD_REFUSE", "95")],
            29,
            "no GPU here has a dispatch log: gfx942",
        ),
        (&[("SIM_KFD_REFUSE", "1")], 11, "cannot open"),
        (
            &[("SIM_KFD_REFUSE", "3")],
            14,
            "does not use the AMD driver",
        ),
        (&[("SIM_KFD_REFUSE", "16")], 15, "cannot open"),
        (&[("SIM_KFD_REFUSE", "12")], 23, "cannot open"),
        (&[("SIM_KFD_STREAM", "5")], 29, "in an unknown form"),
        (&[("SIM_KFD_RECORD", "24")], 29, "its records have 24 bytes"),
        (&[("SIM_KFD_SLOTS", "3")], 29, "contradicts itself"),
    ];
    for (variables, code, words) in cases {
        let exit = run(attach(&kit, target.pid(), variables, &[])?, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(code), "{variables:?}: {exit}");
        let said = exit.stderr.join("\n");
        assert!(
            said.contains(words) && said.contains("hint: "),
            "{variables:?}: {exit}"
        );
    }
    let exit = run(attach(&kit, target.pid(), &[], &["--hip-trace"])?, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(2), "{exit}");
    for words in [["--all", "--no-entry"], ["--name=x", "--no-entry"]] {
        let mut midair = command("midair")?;
        midair.arg("attach").args(words);
        let exit = run(midair, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(2), "{exit}");
    }
    Ok(())
}

/// Without the stand-in, this machine's own driver answers: it has no such device, or not this log.
#[test]
fn the_driver_of_this_machine() -> Result<()> {
    if Path::new("/dev/kfd").exists() {
        return leave_out("this machine has an AMD GPU driver, whose answer is not known here");
    }
    let kit = Kit::new()?;
    let target = start(&kit, &[])?;
    let mut midair = attach(&kit, target.pid(), &[], &[])?;
    midair.env_remove("LD_PRELOAD");
    let exit = run(midair, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(29), "{exit}");
    assert!(exit.stderr.join("\n").contains("/dev/kfd"), "{exit}");
    Ok(())
}
