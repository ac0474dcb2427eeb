//! `--max-overhead` in a CUDA process: bursts, each of which is a whole session with CUPTI, and
//! nothing of CUPTI between them.

use crate::cuda::kit::{
    EVERYTHING, NEWEST, Session, Trace, burst_of, call_of, kernels_are_true, number, quit, start,
    stays,
};
use midair_tests::cuda::{CudaLog, CudaTarget, Kit};
use midair_tests::snapshot::Snapshot;
use midair_tests::target::{PATIENCE, until};
use midair_tests::{Error, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Exit code of a session that knows nothing of what the process did.
const INCOMPLETE: i32 = 32;
/// Bursts of some 0.8 s in periods of a second.
const MUCH: [&str; 3] = ["--kernel-trace", "--max-overhead", "60"];
/// Bursts of some 0.1 s in periods of a second.
const LITTLE: [&str; 3] = ["--kernel-trace", "--max-overhead", "10"];
/// Makes each worker do a round every 5 ms.
const SLOWLY: &[(&str, &str)] = &[("PAUSE_US", "5000")];

/// Returns how often CUPTI was asked to record kernels.
fn begun(log: &CudaLog) -> usize {
    let recording = log.of("recording");
    recording.filter(|line| line.text("on") == "1").count()
}

fn await_begin(target: &CudaTarget, bursts: usize) -> Result<()> {
    until("a burst", || Ok(begun(&target.model_log()?) >= bursts))
}

fn await_end(target: &CudaTarget, bursts: usize) -> Result<()> {
    until("the end of a burst", || {
        Ok(target.model_log()?.of("finalize").count() >= bursts)
    })
}

/// Returns the calls that launched kernels while CUPTI recorded them, by burst.
fn recorded(log: &CudaLog) -> Result<BTreeMap<u64, BTreeSet<u64>>> {
    let (mut bursts, mut on) = (BTreeMap::new(), false);
    let mut burst = 0_u64;
    for line in &log.lines {
        match line.what.as_str() {
            "recording" => on = line.text("on") == "1",
            "finalize" => burst += 1,
            "kernel" if on => {
                let calls: &mut BTreeSet<u64> = bursts.entry(burst).or_default();
                calls.insert(line.number("correlation")?);
            }
            _ => {}
        }
    }
    Ok(bursts)
}

/// Returns the calls of the trace that launched kernels, by burst.
fn traced(trace: &Trace) -> Result<BTreeMap<u64, BTreeSet<u64>>> {
    let mut bursts: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for row in trace.rows("kernel_trace")? {
        bursts
            .entry(burst_of(&row)?)
            .or_default()
            .insert(call_of(&row)?);
    }
    Ok(bursts)
}

fn value(document: &Value, path: &str) -> Result<f64> {
    let value = document.pointer(path).and_then(Value::as_f64);
    value.ok_or_else(|| format!("no {path} in {document}").into())
}

/// The counts are exact: what was launched in bursts is recorded, and nothing else.
#[test]
fn bursts_have_what_was_launched_in_them() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let untouched = Snapshot::take(target.pid())?;
    let words = [&MUCH[..], &["--json"]].concat();
    let session = Session::attach(target.pid(), &kit.scratch().join("counts"), &words)?;
    for burst in 1..=3 {
        await_begin(&target, burst)?;
        target.ask("work 5")?;
        await_end(&target, burst)?;
        target.ask("work 1")?;
    }
    let trace = session.detach()?;
    trace.whole()?;
    let log = target.model_log()?;
    assert!(kernels_are_true(&trace, &log)? >= 120, "{}", trace.exit);
    let (there, here) = (recorded(&log)?, traced(&trace)?);
    assert_eq!(there, here);
    for burst in 0..3 {
        assert!(
            here.get(&burst).is_some_and(|calls| calls.len() >= 40),
            "{here:?}"
        );
    }
    // Between bursts midair does not listen, and at the end nothing is left.
    let silent = log
        .of("kernel")
        .filter(|line| line.text("correlation") == "0");
    assert!(silent.count() > 0);
    assert_eq!(log.of("finalize").count(), begun(&log));
    let diff = untouched.diff(&Snapshot::take(target.pid())?);
    let diff = diff.without_heap().without(stays);
    assert!(diff.is_empty(), "{diff}");

    // The screen's document says how much was recorded, and what that tells.
    let document: Value = serde_json::from_str(&trace.exit.stdout.join("\n"))?;
    let bursts = document.pointer("/bursts/0").ok_or("no bursts")?;
    assert!(value(bursts, "/bursts")? >= 3.0, "{bursts}");
    let coverage = value(bursts, "/coverage")?;
    assert!(coverage > 0.2 && coverage < 0.95, "{bursts}");
    assert!(value(bursts, "/switched_ns")? > 3e6, "{bursts}");
    assert_eq!(bursts["cost_is"], "assumed");
    let kernels = bursts["kernels"].as_array().ok_or("no kernels")?;
    let shares: f64 = kernels
        .iter()
        .map(|row| value(row, "/share/estimate"))
        .sum::<Result<f64>>()?;
    assert!((shares - 1.0).abs() < 1e-6, "{bursts}");
    quit(target)
}

/// A working process with everything recorded: names, streams, calls and clocks are right over all
/// bursts, and of each thread no kernel within a burst is missing.
#[test]
fn bursts_beside_threads_at_work() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, SLOWLY)?;
    target.ask("start")?;
    let words = [&EVERYTHING[..], &["--max-overhead", "20"]].concat();
    let session = Session::attach(target.pid(), &kit.scratch().join("work"), &words)?;
    await_end(&target, 3)?;
    let trace = session.detach()?;
    trace.whole()?;
    target.ask("stop")?;
    let log = target.model_log()?;
    assert!(kernels_are_true(&trace, &log)? >= 100, "{}", trace.exit);
    let mut threads: BTreeMap<u64, u64> = BTreeMap::new();
    for line in log.of("kernel") {
        threads.insert(line.number("correlation")?, line.number("tid")?);
    }
    for (burst, calls) in traced(&trace)? {
        let mut of: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for call in &calls {
            of.entry(threads[call]).or_default().push(*call);
        }
        for (tid, mine) in of {
            let (first, last) = (mine[0], mine[mine.len() - 1]);
            let ran = threads.range(first..=last);
            let ran = ran.filter(|(_, of)| **of == tid).count();
            assert_eq!(
                mine.len(),
                ran,
                "burst {burst}, thread {tid}\n{}",
                trace.exit
            );
        }
    }
    // A kernel's call is in the trace, is of the kernel's burst, and started before it.
    let mut calls = BTreeMap::new();
    for row in trace.rows("cuda_api_trace")? {
        calls.insert(
            number(&row, "Correlation_Id")?,
            number(&row, "Start_Timestamp")?,
        );
    }
    let (mut with, mut all) = (0, 0);
    for row in trace.rows("kernel_trace")? {
        all += 1;
        if let Some(call) = calls.get(&number(&row, "Correlation_Id")?) {
            with += 1;
            let start = number(&row, "Start_Timestamp")?;
            assert!(*call <= start && start - call < 1_000_000_000, "{row:?}");
        }
    }
    assert!(with * 10 >= all * 9, "{with} of {all}");
    quit(target)
}

/// Where graphs are launched, CUPTI stays after the first burst. There is no second one.
#[test]
fn a_process_with_graphs_has_one_burst() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let session = Session::attach(target.pid(), &kit.scratch().join("graphs"), &MUCH)?;
    await_begin(&target, 1)?;
    target.ask("work 2")?;
    target.ask("graph 2")?;
    until("the end of the burst", || {
        let log = target.model_log()?;
        let off = log.of("recording").any(|line| line.text("on") == "0");
        Ok(off)
    })?;
    // Two further periods.
    std::thread::sleep(std::time::Duration::from_secs(3));
    target.ask("work 2")?;
    let trace = session.detach()?;
    trace.whole()?;
    let log = target.model_log()?;
    assert_eq!((begun(&log), log.of("finalize").count()), (1, 0));
    let notes = trace.notes();
    assert!(notes.contains("(graphs were launched)"), "{notes}");
    let said = trace.exit.stderr.join("\n");
    assert!(
        said.contains("no burst was possible after the last one"),
        "{said}"
    );
    let bursts = traced(&trace)?;
    assert_eq!(bursts.keys().collect::<Vec<_>>(), [&0], "{bursts:?}");
    assert_eq!(recorded(&log)?, bursts);
    quit(target)
}

#[test]
fn detaches_between_bursts_and_within_one() -> Result<()> {
    let kit = Kit::new()?;
    for within in [false, true] {
        let mut target = start(&kit, NEWEST, &[])?;
        let dir = kit.scratch().join(format!("within{within}"));
        let words = if within { MUCH } else { LITTLE };
        let session = Session::attach(target.pid(), &dir, &words)?;
        await_begin(&target, 1)?;
        target.ask("work 1")?;
        if !within {
            await_end(&target, 1)?;
        }
        let trace = session.detach()?;
        trace.whole()?;
        let log = target.model_log()?;
        assert_eq!((begun(&log), log.of("finalize").count()), (1, 1));
        assert_eq!(recorded(&log)?, traced(&trace)?);
        // An ordinary session finds nothing in its way.
        let before = target.log_length()?;
        let session = Session::attach(target.pid(), &dir.join("next"), &[])?;
        target.ask("work 3")?;
        let trace = session.detach()?;
        trace.whole()?;
        assert_eq!(kernels_are_true(&trace, &target.log_from(before)?)?, 24);
        quit(target)?;
    }
    Ok(())
}

/// Nothing is known of what the process did, so the session is no success.
#[test]
fn a_session_that_is_over_before_its_first_burst() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let words = ["--kernel-trace", "--max-overhead", "1"];
    let session = Session::attach(target.pid(), &kit.scratch().join("none"), &words)?;
    target.ask("work 1")?;
    let trace = session.detach()?;
    let log = target.model_log()?;
    if begun(&log) == 0 {
        assert_eq!(trace.exit.status.code(), Some(INCOMPLETE), "{}", trace.exit);
        let said = trace.exit.stderr.join("\n");
        assert!(said.contains("before the first burst"), "{said}");
        assert!(!said.contains("midair saw no call or kernel"), "{said}");
    }
    quit(target)
}

/// Another profiler comes between two bursts: it gets what it asks for, and the session ends.
#[test]
fn another_profiler_between_bursts() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let session = Session::attach(target.pid(), &kit.scratch().join("other"), &LITTLE)?;
    await_begin(&target, 1)?;
    target.ask("work 1")?;
    await_end(&target, 1)?;
    let other = format!("other {}", kit.stand_in.cupti(13).display());
    assert_eq!(target.ask(&other)?, "other subscribe 0 kernels 10");
    let trace = session.ended()?;
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    let said = trace.exit.stderr.join("\n");
    assert!(said.contains("another profiler"), "{said}");
    assert_eq!(target.ask("again")?, "again kernels 10");
    target.ask("leave")?;
    quit(target)
}

/// Another profiler comes in the midst of a burst.
#[test]
fn another_profiler_within_a_burst() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let session = Session::attach(target.pid(), &kit.scratch().join("within"), &MUCH)?;
    await_begin(&target, 1)?;
    target.ask("work 1")?;
    let other = format!("other {}", kit.stand_in.cupti(13).display());
    assert_eq!(target.ask(&other)?, "other subscribe 0 kernels 10");
    let trace = session.ended()?;
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    assert_eq!(target.ask("again")?, "again kernels 10");
    target.ask("leave")?;
    quit(target)
}

#[test]
fn the_process_ends_between_bursts_and_within_one() -> Result<()> {
    let kit = Kit::new()?;
    for (way, within) in [
        ("exit", false),
        ("exit", true),
        ("quit", false),
        ("kill", false),
    ] {
        one_end(&kit, way, within)
            .map_err(|error| -> Error { format!("{way}, {within}: {error}").into() })?;
    }
    Ok(())
}

fn one_end(kit: &Kit, way: &str, within: bool) -> Result<()> {
    let mut target = start(kit, NEWEST, &[])?;
    let dir = kit.scratch().join(format!("{way}{within}"));
    let words = if within { MUCH } else { LITTLE };
    let session = Session::attach(target.pid(), &dir, &words)?;
    await_begin(&target, 1)?;
    target.ask("work 2")?;
    if !within {
        await_end(&target, 1)?;
    }
    match way {
        "kill" => target.signal(libc::SIGKILL)?,
        way => target.send(way)?,
    }
    let trace = session.ended()?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?;
    let (code, mine) = match way {
        "kill" => (None, 31),
        _ => (Some(0), 0),
    };
    assert_eq!(exit.status.code(), code, "{exit}");
    assert_eq!(trace.exit.status.code(), Some(mine), "{}", trace.exit);
    assert_eq!(recorded(&CudaLog::read(&log)?)?, traced(&trace)?);
    Ok(())
}

/// A child that is forked between bursts has nothing of midair's at work, and bursts go on in its parent.
#[test]
fn a_child_is_forked_between_bursts() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let session = Session::attach(target.pid(), &kit.scratch().join("fork"), &LITTLE)?;
    await_begin(&target, 1)?;
    target.ask("work 1")?;
    await_end(&target, 1)?;
    assert_eq!(target.ask("fork")?, "fork 7");
    await_begin(&target, 2)?;
    target.ask("work 1")?;
    await_end(&target, 2)?;
    let trace = session.detach()?;
    trace.whole()?;
    assert_eq!(recorded(&target.model_log()?)?, traced(&trace)?);
    quit(target)
}

/// The attacher is killed between bursts. The session ends by its lease, and bursts with it.
#[test]
fn the_attacher_is_killed_between_bursts() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[])?;
    let pid = target.pid();
    Session::attach(pid, &kit.scratch().join("first"), &[])?
        .detach()?
        .whole()?;
    let parked = Snapshot::take(pid)?;
    let session = Session::attach(pid, &kit.scratch().join("killed"), &LITTLE)?;
    await_end(&target, 2)?;
    session.process.signal(libc::SIGKILL)?;
    session.process.wait(PATIENCE)?;
    until("the end of the lease", || {
        Ok(parked.diff(&Snapshot::take(pid)?).without_heap().is_empty())
    })?;
    let before = target.log_length()?;
    let session = Session::attach(pid, &kit.scratch().join("next"), &[])?;
    target.ask("work 2")?;
    let trace = session.detach()?;
    trace.whole()?;
    assert_eq!(kernels_are_true(&trace, &target.log_from(before)?)?, 16);
    quit(target)
}

/// What times kernels by the GPU's own hardware cannot be taken out of a process again.
#[test]
fn kernels_in_bursts_are_timed_as_usual() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[("CUPTI_MODEL", "hw_trace")])?;
    let words = [&LITTLE[..], &["--cuda-hw-trace"]].concat();
    let session = Session::attach(target.pid(), &kit.scratch().join("hardware"), &words)?;
    await_begin(&target, 1)?;
    target.ask("work 1")?;
    await_end(&target, 1)?;
    let trace = session.detach()?;
    trace.whole()?;
    let notes = trace.notes();
    assert!(
        notes.contains("timed as usual") && notes.contains("with --max-overhead"),
        "{notes}"
    );
    assert_eq!(target.model_log()?.of("hw_trace").count(), 0);
    quit(target)
}
