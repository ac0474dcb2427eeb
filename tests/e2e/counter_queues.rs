//! Windows of counters on queues, and in processes, that are not as HIP's: what becomes of each is the
//! model's log to tell.

use crate::counter_windows::{Attached, WAVES, quit, raw, until_known, windows};
use crate::counters::files;
use midair_tests::Result;
use midair_tests::lab::{GpuModel, Lab};
use midair_tests::modellog::ModelLog;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, ask};
use std::collections::BTreeMap;

/// The names of HSA's functions that write the index of a queue, and how often each was called.
fn calls(out: &std::path::Path) -> Result<BTreeMap<String, usize>> {
    let mut calls = BTreeMap::new();
    for file in files(out) {
        if file.to_string_lossy().ends_with("hsa_api_trace.csv") {
            for row in Csv::read(&file)?.rows {
                *calls.entry(row["Function"].clone()).or_default() += 1;
            }
        }
    }
    calls.retain(|name: &String, _| name.contains("write_index"));
    Ok(calls)
}

/// Three packets are reserved by another function than the program's: the trace has the program's call.
#[test]
fn a_trace_of_calls_has_the_programs_own_only() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = raw(&lab, 256, GpuModel::Doorbell)?;
    ask(&mut target, "burst 16 1")?;
    let words = [WAVES[0], WAVES[1], "--hsa-core-trace"];
    let mut attached = Attached::to(&lab, &target, &words)?;
    let first = until_known(&mut target)?;
    ask(&mut target, "burst 40 1")?;
    attached.attacher.send("")?;
    attached.attacher.target.wait(PATIENCE)?.success()?;
    let log = quit(target)?;
    assert!(!windows(&log).is_empty(), "no window");
    let calls = calls(attached.out.path())?;
    let own = (
        "hsa_queue_add_write_index_scacq_screl".to_owned(),
        first as usize + 40,
    );
    assert_eq!(calls, BTreeMap::from([own]));
    Ok(())
}

/// Queues that are made without times, and one whose packets the runtime hands to a function of the
/// program's: none has windows, a note says so, and nothing is lost on any.
#[test]
fn queues_without_times_and_intercept_queues_have_none() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let program = lab.run(&lab.program("raw_hsa")?).arg(lab.kernels()?);
    let mut target = program
        .arg(20)
        .register(false)
        .env("MODEL_KERNEL_NS", 1_000)
        .env("MODEL_LATCH", 0)
        .spawn()?;
    target.expect("ready")?;
    ask(&mut target, "go")?;
    let attached = Attached::to(&lab, &target, &WAVES)?;
    ask(&mut target, "go")?;
    ask(&mut target, "go")?;
    // Kernels were launched, and nothing came back of them.
    let session = attached.detach_as(32)?;
    target.send("quit")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    log.check()?;
    assert_eq!(windows(&log).len(), 0);
    // 19 dispatches in each of 20 rounds.
    assert_eq!(session.count("dispatches"), 2 * 20 * 19, "{}", session.said);
    for told in [
        "none of 760 dispatches was counted",
        "launches had no window, since another profiler intercepts",
        "nothing was counted: no kernel launch got a counter window",
    ] {
        assert!(session.said.contains(told), "{told}: {}", session.said);
    }
    Ok(())
}

/// The program destroys its queue, shuts HSA down and ends while windows are being taken.
#[test]
fn a_program_may_shut_hsa_down_meanwhile() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = raw(&lab, 256, GpuModel::Doorbell)?;
    ask(&mut target, "burst 16 1")?;
    let attached = Attached::to(&lab, &target, &WAVES)?;
    let first = until_known(&mut target)?;
    ask(&mut target, "burst 40 1")?;
    let log = quit(target)?;
    let session = attached.ended()?;
    assert_eq!(log.dispatches().count() as u64, 16 + first + 40);
    assert_eq!(session.count("dispatches"), first + 40, "{}", session.said);
    assert!(session.count("windows") > 0, "{}", session.said);
    Ok(())
}

/// A forked child has none of it; its parent goes on counting.
#[test]
fn a_program_may_fork_meanwhile() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = raw(&lab, 256, GpuModel::Doorbell)?;
    ask(&mut target, "burst 16 1")?;
    let attached = Attached::to(&lab, &target, &WAVES)?;
    let first = until_known(&mut target)?;
    for _ in 0..3 {
        ask(&mut target, "burst 8 1")?;
        ask(&mut target, "fork")?;
    }
    ask(&mut target, "burst 8 1")?;
    let session = attached.detach()?;
    let log = quit(target)?;
    assert_eq!(session.count("dispatches"), first + 32, "{}", session.said);
    let (alone, _) = session.check(&log, 1);
    // From the one on that has shown that the queue is known.
    assert_eq!(alone, windows(&log).len(), "{}", session.said);
    assert!(alone >= 33, "{alone} {}", session.said);
    Ok(())
}

/// What becomes another program has windows in its last moment, and again when it is attached to again.
#[test]
fn a_program_may_become_another_one_meanwhile() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = raw(&lab, 256, GpuModel::Doorbell)?;
    ask(&mut target, "burst 16 1")?;
    let attached = Attached::to(&lab, &target, &WAVES)?;
    until_known(&mut target)?;
    ask(&mut target, "burst 8 1")?;
    target.send("become")?;
    target.expect("ready")?;
    drop(attached.ended());
    ask(&mut target, "burst 16 1")?;
    let attached = Attached::to(&lab, &target, &WAVES)?;
    let first = until_known(&mut target)?;
    ask(&mut target, "burst 8 1")?;
    let session = attached.detach()?;
    target.send("quit")?;
    target.expect("done")?;
    assert_eq!(session.count("dispatches"), first + 8, "{}", session.said);
    assert!(session.count("alone") >= 9, "{}", session.said);
    Ok(())
}
