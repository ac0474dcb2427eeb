//! What hardware does and a friendly model does not: a queue's profiling bit is taken up only once,
//! rings lie in device memory, and doorbells are rung without the runtime.

use crate::profiler::{Profiler, Trace, Work, since};
use midair_tests::Result;
use midair_tests::lab::{Lab, LabCommand, LabTarget};
use midair_tests::modellog::{Dispatch, Event, ModelLog};
use midair_tests::target::{PATIENCE, ask, until};
use std::collections::{BTreeMap, BTreeSet};

const NOT_PROFILED: &str =
    "its queue was in use without profiling before the attach, so the device wrote no times";
const TAKEN_FIRST: &str = "the packet processor took it before midair set its signal";
/// How many packets of a ring are read to measure what that takes.
const MEASURING_READS: u64 = 4;
/// Grids of the program's own dispatches. All others are the runtime's, for copies by kernels.
const OURS: std::ops::Range<u32> = 6000..7000;

/// Starts `late_queue` and waits until it is ready.
fn program(
    lab: &Lab,
    with: impl for<'a> FnOnce(LabCommand<'a>) -> LabCommand<'a>,
) -> Result<LabTarget> {
    let command = lab.run(&lab.program("late_queue")?).arg(lab.kernels()?);
    let command = command.register(false).env("HSA_ENABLE_INTERRUPT", 0);
    let mut target = with(command).spawn()?;
    target.expect("ready")?;
    Ok(target)
}

fn quit(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    ModelLog::read(&target.log)?.check()
}

/// Returns the program's own dispatches.
fn ours(log: &ModelLog) -> Vec<&Dispatch> {
    log.dispatches()
        .filter(|dispatch| OURS.contains(&dispatch.grid[0]))
        .collect()
}

/// Returns the start and end of each copy that was made by kernels.
fn copies_by_kernels(log: &ModelLog) -> Vec<(u64, u64)> {
    log.dispatches()
        .filter(|dispatch| !OURS.contains(&dispatch.grid[0]))
        .map(|dispatch| (dispatch.packet.start, dispatch.packet.end))
        .collect()
}

/// Waits until a queue was destroyed. midair makes and destroys it so that the driver maps the
/// other queues again.
fn mapped_anew(target: &LabTarget, before: &ModelLog) -> Result<()> {
    until("a queue's end in the log", || {
        let log = since(&target.model_log()?, before);
        Ok(log
            .records
            .iter()
            .any(|record| matches!(record.event, Event::QueueEnd { .. })))
    })
}

fn reasons(trace: &Trace) -> BTreeMap<String, u64> {
    let all = trace.midair["untimed"].as_object().into_iter().flatten();
    all.filter_map(|(reason, count)| Some((reason.clone(), count.as_u64()?)))
        .collect()
}

/// Checks that each dispatch of the log is in the trace, and that those with times have the log's
/// times. Returns how many have none.
fn all_there(trace: &Trace, log: &ModelLog) -> usize {
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    assert!(!trace.notes().contains("balance"), "{}", trace.notes());
    assert_eq!(trace.midair["lost"], serde_json::json!({}));
    let logged: Vec<Work> = ours(log).into_iter().map(Work::logged).collect();
    assert_eq!(trace.kernels.len(), logged.len(), "{}", trace.exit);
    let logged: BTreeSet<Work> = logged.into_iter().collect();
    let (timed, untimed): (Vec<_>, Vec<_>) = trace
        .kernels
        .iter()
        .partition(|kernel| kernel.work.start != 0);
    let works: BTreeSet<Work> = timed.iter().map(|kernel| kernel.work).collect();
    assert_eq!(works.len(), timed.len(), "a dispatch is there twice");
    assert!(works.is_subset(&logged), "times that the log does not have");
    assert!(untimed.iter().all(|kernel| kernel.work.end == 0));
    untimed.len()
}

/// A queue was used without profiling before the attach. Dispatches have times as soon as the
/// queues are remapped. Those that ran before have none, with a reason.
#[test]
fn a_queue_that_was_used_without_profiling() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = program(&lab, |command| command.env("MODEL_KERNEL_NS", 20_000))?;
    ask(&mut target, "own 3")?;
    ask(&mut target, "bell 3")?;
    let before = target.model_log()?;
    let dir = lab.scratch().join("latched");
    let profiler = Profiler::attach(target.pid(), &dir, &["--kernel-trace"])?;
    // The dispatches of `own` have the program's completion signals, and the dispatches of `bell`
    // get midair's.
    ask(&mut target, "own 2")?;
    ask(&mut target, "bell 2")?;
    mapped_anew(&target, &before)?;
    let early = ours(&since(&target.model_log()?, &before)).len();
    ask(&mut target, "own 20")?;
    ask(&mut target, "bell 20")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    let untimed = all_there(&trace, &log);
    assert!((1..=early).contains(&untimed), "{untimed} of {early}");
    let expected = BTreeMap::from([(NOT_PROFILED.to_owned(), untimed as u64)]);
    assert_eq!(reasons(&trace), expected, "{}", trace.exit);
    let note = std::fs::read_to_string(dir.join("t_notes.txt"))?;
    assert!(note.contains(NOT_PROFILED), "{note}");
    // Once more without a session: midair's queue is gone and does no harm.
    ask(&mut target, "bell 5")?;
    quit(target)
}

/// The same for copies that the runtime makes by kernels on a queue of its own.
#[test]
fn copies_on_a_queue_that_was_used_without_profiling() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = program(&lab, |command| command.env("MODEL_KERNEL_NS", 20_000))?;
    ask(&mut target, "copy 3")?;
    let before = target.model_log()?;
    let dir = lab.scratch().join("latched-copies");
    let profiler = Profiler::attach(target.pid(), &dir, &["--memory-copy-trace"])?;
    ask(&mut target, "copy 2")?;
    mapped_anew(&target, &before)?;
    ask(&mut target, "copy 10")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    assert_eq!(trace.exit.status.code(), Some(0), "{}", trace.exit);
    assert_eq!(trace.copies.len(), 12, "{}", trace.exit);
    let logged = copies_by_kernels(&log);
    // Without such copies the test would show nothing.
    assert_eq!(logged.len(), 12, "the runtime does these copies by kernels");
    let traced: Vec<(u64, u64)> = (trace.copies.iter())
        .map(|copy| (copy.start, copy.end))
        .filter(|times| *times != (0, 0))
        .collect();
    assert!(traced.iter().all(|times| logged.contains(times)));
    assert!((10..12).contains(&traced.len()), "{traced:?}");
    let expected = BTreeMap::from([(NOT_PROFILED.to_owned(), 12 - traced.len() as u64)]);
    assert_eq!(reasons(&trace), expected, "{}", trace.exit);
    quit(target)
}

/// Where a new queue leaves the others mapped, everything is recorded, with the reason why it has
/// no times. Remapping is tried once for each queue, not again and again.
#[test]
fn queues_that_stay_mapped() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = program(&lab, |command| {
        command.env("MODEL_KERNEL_NS", 20_000).env("MODEL_REMAP", 0)
    })?;
    ask(&mut target, "own 3")?;
    ask(&mut target, "copy 3")?;
    let before = target.model_log()?;
    let dir = lab.scratch().join("mapped");
    let options = ["--kernel-trace", "--memory-copy-trace"];
    let profiler = Profiler::attach(target.pid(), &dir, &options)?;
    for _ in 0..4 {
        ask(&mut target, "own 10")?;
        ask(&mut target, "bell 10")?;
        ask(&mut target, "copy 10")?;
    }
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    let untimed = all_there(&trace, &log);
    assert_eq!((untimed, trace.copies.len()), (4 * 21, 40));
    assert!(
        (trace.copies.iter()).all(|copy| (copy.start, copy.end) == (0, 0)),
        "times from nowhere"
    );
    let expected = BTreeMap::from([(NOT_PROFILED.to_owned(), 4 * 21 + 40)]);
    assert_eq!(reasons(&trace), expected, "{}", trace.exit);
    let log = since(&target.model_log()?, &before);
    let ends =
        |record: &&midair_tests::modellog::Record| matches!(record.event, Event::QueueEnd { .. });
    let made = log.records.iter().filter(ends).count();
    assert!((1..=2).contains(&made), "{made} queues were made");
    quit(target)
}

/// Reads of a ring in device memory go over the bus. There is one for each dispatch, and no more,
/// alongside those by which it is measured what one takes. A note says so.
#[test]
fn a_ring_in_device_memory() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = program(&lab, |command| {
        command
            .env("MODEL_KERNEL_NS", 1_000)
            .env("MODEL_LATCH", 0)
            .env("MODEL_RING", "device")
    })?;
    ask(&mut target, "bell 10")?;
    let before = target.model_log()?;
    assert_eq!(reads(&before), 0, "the program itself reads nothing back");
    let dir = lab.scratch().join("device-ring");
    let profiler = Profiler::attach(target.pid(), &dir, &["--kernel-trace"])?;
    ask(&mut target, "own 20")?;
    ask(&mut target, "bell 100")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    assert_eq!(all_there(&trace, &log), 0, "{}", trace.exit);
    let dispatches = ours(&log).len() as u64;
    // All are on one queue.
    let expected = (121, dispatches + MEASURING_READS);
    assert_eq!((dispatches, reads(&log)), expected, "reads");
    let notes = trace.notes();
    assert!(notes.contains("(as of rings in device memory)"), "{notes}");
    quit(target)
}

/// Returns the reads over the bus up to the end of a log.
fn reads(log: &ModelLog) -> u64 {
    let counts = log.records.iter().filter_map(|record| match record.event {
        Event::Reads { count, .. } => Some(count),
        _ => None,
    });
    counts.max().unwrap_or(0)
}

/// The program rings doorbells by storing to their hardware address, so no midair function is
/// called. All dispatches are counted all the same.
#[test]
fn doorbells_rung_past_the_runtime() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for (switch, name) in [("0", "unannounced"), ("1", "announced")] {
        let mut target = program(&lab, |command| {
            command
                .env("MODEL_KERNEL_NS", 200_000)
                .env("MODEL_LATCH", 0)
                .env("DEBUG_CLR_DIRECT_DOORBELL", switch)
                .log_name(name)
        })?;
        ask(&mut target, "direct 3")?;
        let before = target.model_log()?;
        let dir = lab.scratch().join(format!("{name}-trace"));
        let profiler = Profiler::attach(target.pid(), &dir, &["--kernel-trace"])?;
        ask(&mut target, "direct 60")?;
        ask(&mut target, "bell 5")?;
        ask(&mut target, "direct 150")?;
        let log = since(&target.model_log()?, &before);
        let trace = profiler.detach()?;
        let untimed = all_there(&trace, &log);
        let notes = trace.notes();
        assert!(notes.contains("DEBUG_CLR_DIRECT_DOORBELL"), "{notes}");
        assert!(!notes.contains("in device memory"), "{notes}");
        let known: BTreeSet<String> = [TAKEN_FIRST.to_owned()].into();
        let said: BTreeSet<String> = reasons(&trace).into_keys().collect();
        assert!(said.is_subset(&known), "{said:?}");
        if switch == "1" {
            // Only the packets that were at the front of the queue when the next one came have no
            // times.
            assert!(untimed < 20, "{untimed} without times");
        }
        quit(target)?;
    }
    Ok(())
}
