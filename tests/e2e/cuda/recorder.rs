//! `midair attach --keep` alongside a CUDA process: each trigger writes a window whose kernels
//! match the stand-in's devices, and the session goes on.

use super::kit::{NEWEST, Session, quit, start};
use midair_tests::Result;
use midair_tests::attacher::boottime;
use midair_tests::cuda::{CudaTarget, Kit};
use midair_tests::stage::command;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, until};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the directories of complete windows.
fn windows(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    // There is no directory before the first window.
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("window-") && path.join("t_kernel_trace.csv").exists() {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// Returns how many kernels of the workers a window has, and how often one launch has two. (The
/// command `marks` launches graphs, whose kernels belong to one launch.)
fn kernels(window: &Path) -> Result<(usize, usize)> {
    let mut rows = Csv::read(&window.join("t_kernel_trace.csv"))?.rows;
    rows.retain(|row| {
        let name = &row["Kernel_Name"];
        name.starts_with("step") || name.contains("reduce")
    });
    let ids: BTreeSet<&String> = rows.iter().map(|row| &row["Correlation_Id"]).collect();
    Ok((rows.len(), rows.len() - ids.len()))
}

/// Attaches with a trigger, provokes its event until a window is written, and detaches.
fn written(
    kit: &Kit,
    target: &mut CudaTarget,
    name: &str,
    (trigger, told): (Option<&str>, &str),
    mut provoke: impl FnMut(&mut CudaTarget, &Session) -> Result<()>,
) -> Result<()> {
    let directory = kit.scratch().join(name);
    let mut words = vec!["--kernel-trace", "--marker-trace", "--keep", "20s"];
    if let Some(trigger) = trigger {
        words.extend(["--trigger", trigger, "--keep-windows", "100"]);
    }
    let mut session = Session::attach(target.pid(), &directory, &words)?;
    until(name, || {
        target.ask("work 2")?;
        provoke(target, &session)?;
        let errors = session.process.errors();
        if !session.process.is_running()? {
            return Err(format!("the attach has ended: {errors:?}").into());
        }
        let is_told = errors.iter().any(|line| line.contains(told));
        let all = windows(&directory)?;
        let mut with_kernels = false;
        for window in &all {
            let (count, twice) = kernels(window)?;
            assert_eq!(twice, 0, "a kernel is in a window once");
            with_kernels |= count > 0;
        }
        Ok(is_told && with_kernels)
    })
    .map_err(|error| format!("{error}: {:?}", session.process.errors()))?;
    session.process.send("")?;
    session.process.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn each_trigger_writes_a_window_of_a_cuda_process() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(
        &kit,
        NEWEST,
        &[
            ("CUDA_MODEL_KERNEL_NS", "20000"),
            ("CUDA_MODEL_LONG_KERNEL", "41:5000000"),
        ],
    )?;
    let nothing = |_: &mut CudaTarget, _: &Session| Ok(());
    let median = "kernel(step) > 3*median";
    written(&kit, &mut target, "median", (Some(median), median), nothing)?;
    let gap = "gap > 50ms";
    written(&kit, &mut target, "gap", (Some(gap), gap), |_, _| {
        // The time without kernels is what is tested.
        std::thread::sleep(std::time::Duration::from_millis(100));
        Ok(())
    })?;
    let message = (Some("message(^inner$)"), "message(^inner$): 'inner'");
    written(&kit, &mut target, "message", message, |target, _| {
        target.ask("marks 1").map(drop)
    })?;
    let mut sent = false;
    written(
        &kit,
        &mut target,
        "signal",
        (None, "SIGUSR1"),
        |_, session| {
            // A second signal would ask for a second window.
            if !std::mem::replace(&mut sent, true) {
                session.process.signal(libc::SIGUSR1)?;
            }
            Ok(())
        },
    )?;
    quit(target)
}

/// Two attachers get the same time, as on many hosts: both wait for it, both record for as long as
/// was said, and what they have is of the same time.
#[test]
fn two_attachers_begin_at_the_same_moment() -> Result<()> {
    const RECORDED: u64 = 2_000_000_000;
    let kit = Kit::new()?;
    let kernel = [("CUDA_MODEL_KERNEL_NS", "20000")];
    let mut targets = [start(&kit, NEWEST, &kernel)?, start(&kit, NEWEST, &kernel)?];
    for target in &mut targets {
        target.ask("start")?;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let begin = now.as_secs() + 6;
    // The clock of the records, at that moment.
    let moment = boottime() + begin * 1_000_000_000 - now.as_nanos() as u64;
    let mut date = Command::new("date");
    date.args(["-d", &format!("@{begin}"), "+%H:%M:%S/2s"]);
    let said = String::from_utf8(date.output()?.stdout)?;
    let mut sessions = Vec::new();
    for (number, target) in targets.iter().enumerate() {
        let directory = kit.scratch().join(format!("at-{number}"));
        let mut attach = command("midair")?;
        attach.args(["attach", &target.pid().to_string(), "--at", said.trim()]);
        attach.args(["--kernel-trace", "-f", "csv", "-o", "t", "-d"]);
        attach.arg(&directory);
        sessions.push((directory, Target::spawn(attach)?));
    }
    let mut spans = Vec::new();
    for (directory, session) in sessions {
        session.wait(PATIENCE)?.success()?;
        let mut times = Vec::new();
        for row in Csv::read(&directory.join("t_kernel_trace.csv"))?.rows {
            for key in ["Start_Timestamp", "End_Timestamp"] {
                times.push(row[key].parse::<u64>()?);
            }
        }
        let first = times.iter().copied().min().ok_or("no kernels")?;
        let last = times.iter().copied().max().ok_or("no kernels")?;
        // The wall clock and the records' clock are read one after the other.
        assert!(first + 50_000_000 > moment, "{first}, {moment}");
        assert!(last - first < 4 * RECORDED, "{first} to {last}");
        spans.push((first, last));
    }
    let began = spans.iter().map(|(first, _)| *first).max();
    let ended = spans.iter().map(|(_, last)| *last).min();
    assert!(began < ended, "they have no moment in common: {spans:?}");
    for mut target in targets {
        target.ask("stop")?;
        quit(target)?;
    }
    Ok(())
}
