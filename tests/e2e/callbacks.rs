//! Callback tracing: a tool of another vendor receives callbacks on the threads that make the
//! calls, with arguments and results. Whenever it is notified of the start of a call, it is also
//! notified of the end.

use midair_tests::caller::{Caller, between};
use midair_tests::lab::Lab;
use midair_tests::stage::{command, stage};
use midair_tests::target::{PATIENCE, Target, until};
use midair_tests::{Result, client};
use std::collections::BTreeMap;
use std::path::Path;

fn attach(pid: i32, tool: &Path, dir: &Path) -> Result<Target> {
    let mut rocprof_attach = command("rocprof-attach")?;
    rocprof_attach
        .args(["-p", &pid.to_string(), "-t"])
        .arg(tool)
        .current_dir(dir);
    let mut attacher = Target::spawn(rocprof_attach)?;
    attacher.expect("Press Enter to detach...")?;
    Ok(attacher)
}

fn detach(mut attacher: Target) -> Result<()> {
    attacher.send("")?;
    attacher.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Returns the numbers in the last session's final line.
pub(super) fn last_end(log: &Path) -> Result<BTreeMap<String, u64>> {
    let text = std::fs::read_to_string(log)?;
    let line = text
        .lines()
        .rfind(|line| line.starts_with("end "))
        .ok_or("no session has ended")?;
    let pairs = line.split(' ').filter_map(|word| word.split_once('='));
    pairs
        .map(|(name, value)| Ok((name.to_owned(), value.parse()?)))
        .collect()
}

#[test]
fn arguments_and_results_are_those_of_the_program() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("tool.log");
    let tool = client::tool(&lab, "callback_tool", "callback_tool", &log, &[])?;
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let (program, kernels) = (lab.program("told")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(library).arg(kernels).spawn()?;
    target.expect("ready")?;
    for session in 0..2 {
        let attacher = attach(target.pid(), &tool, lab.scratch())?;
        let dispatches = target.model_log()?.dispatches().count();
        target.send("round 5")?;
        let mut made = Vec::new();
        loop {
            let line = target.expect("")?;
            if line == "round 5" {
                break;
            }
            made.push(line);
        }
        detach(attacher)?;
        assert_eq!(made.len(), 5 * 17);
        let text = std::fs::read_to_string(&log)?;
        let tid = made[0].split(' ').nth(1).unwrap_or_default().to_owned();
        let told: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(&format!("call {tid} ")))
            .collect();
        // The log holds the lines of earlier sessions, too.
        let told = told.get(session * made.len()..).unwrap_or_default();
        for (told, made) in told.iter().zip(&made) {
            assert_eq!(told, made);
        }
        assert_eq!(told.len(), made.len());
        let end = last_end(&log)?;
        assert_eq!(end["enters"], end["exits"], "{end:?}");
        assert_eq!(end["wrong"], 0, "{end:?}");
        let dispatches = target.model_log()?.dispatches().count() - dispatches;
        assert!(dispatches >= 5);
        assert_eq!(end["kernels"], dispatches as u64, "{end:?}");
        // Marks and ranges in callbacks and in buffers.
        let ranges: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("range "))
            .skip(session * 15)
            .collect();
        let round = [
            "range roctxMarkA a mark",
            "range roctxProcessRangeA until later",
            "range roctxThreadRangeA a range",
        ];
        assert_eq!(ranges, round.repeat(5));
        assert_eq!((end["core"], end["ranges"]), (25, 15), "{end:?}");
        assert!(end["inner"] > 0 && end["runtimes"] >= 2, "{end:?}");
        // Nothing is reported while no session is on.
        target.send("round 1")?;
        target.expect("round 1")?;
        assert_eq!(
            std::fs::read_to_string(&log)?.lines().count(),
            text.lines().count()
        );
    }
    target.send("quit")?;
    target.expect("done")?;
    Ok(())
}

/// A call does not return before the detach, and a function of the tool stops a context in the
/// middle of a call.
#[test]
fn the_exit_of_a_call_is_reported_after_a_detach_or_a_stop() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("tool.log");
    let tool = client::tool(&lab, "callback_tool", "callback_tool", &log, &[])?;
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let (program, kernels) = (lab.program("told")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(library).arg(kernels).spawn()?;
    target.expect("ready")?;
    let attacher = attach(target.pid(), &tool, lab.scratch())?;
    target.send("block")?;
    target.expect("block")?;
    target.send("round 1")?;
    target.expect("round 1")?;
    target.send("stop")?;
    let made = target.expect("call ")?;
    target.expect("stop")?;
    // Only the context of this call is stopped, and the worker thread does that.
    let text = || std::fs::read_to_string(&log);
    until("no HIP call is told", || {
        let told = |text: &str| text.matches(" hipMalloc ").count();
        let before = told(&text()?);
        target.send("round 1")?;
        target.expect("round 1")?;
        Ok(told(&text()?) == before)
    })?;
    detach(attacher)?;
    let end = last_end(&log)?;
    assert!(
        text()?.lines().any(|line| line == made),
        "the end of the call that stopped its context was told: {made}"
    );
    assert_eq!(end["enters"], end["exits"], "{end:?}");
    assert_eq!(end["wrong"], 0, "{end:?}");
    assert!(end["foreign"] >= 1, "{end:?}");
    let lines = text()?.lines().count();
    target.send("unblock")?;
    target.expect("unblock")?;
    assert_eq!(text()?.lines().count(), lines);
    target.send("quit")?;
    target.expect("done")?;
    Ok(())
}

#[test]
fn every_enter_has_its_exit_over_twenty_attaches() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("tool.log");
    let tool = client::tool(&lab, "callback_tool", "callback_tool", &log, &[])?;
    let mut target = lab.run("/lab/vadd").arg(1_000_000).arg(500).spawn()?;
    target.expect("iter 2")?;
    let mut told = 0;
    for cycle in 0..20 {
        let attacher = attach(target.pid(), &tool, lab.scratch())?;
        let before = target.model_log()?.dispatches().count();
        until("some work", || {
            Ok(target.model_log()?.dispatches().count() > before + 4)
        })?;
        detach(attacher)?;
        let end = last_end(&log)?;
        assert_eq!(end["enters"], end["exits"], "cycle {cycle}: {end:?}");
        assert_eq!(end["wrong"], 0, "cycle {cycle}: {end:?}");
        assert!(end["enters"] > 0, "cycle {cycle}: {end:?}");
        told += end["enters"];
        // No code of the tool runs now. Its log, which it opens at an attach, is closed. If it ran,
        // there would be one more line.
        let lines = || std::fs::read_to_string(&log).map(|text| text.lines().count());
        let now = lines()?;
        let before = target.model_log()?.dispatches().count();
        until("more work", || {
            Ok(target.model_log()?.dispatches().count() > before)
        })?;
        assert_eq!(lines()?, now, "cycle {cycle}");
    }
    assert!(told > 500, "{told}");
    assert!(target.is_running()?);
    Ok(())
}

/// Eight threads do nothing but make calls, while the tool attaches and detaches.
#[test]
fn calls_of_busy_threads_are_reported_in_pairs() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("tool.log");
    let tool = client::tool(&lab, "callback_tool", "callback_tool", &log, &[])?;
    let mut caller = Caller::start(Caller::command(&lab)?)?;
    for cycle in 0..3 {
        // The threads make 8 x 10000 x 2 calls. Most of these come before the first block of the
        // tool's file is written, or after the detach.
        let before = caller.counts()?;
        let attacher = attach(caller.pid(), &tool, lab.scratch())?;
        caller.send("workers 8 10000")?;
        until("something is told", || {
            Ok(std::fs::metadata(&log).is_ok_and(|file| file.len() > 0))
        })?;
        detach(attacher)?;
        caller.expect("workers")?;
        let made: u64 = between(&before, &caller.counts()?, "hip").values().sum();
        assert_eq!(made, 160_000);
        let end = last_end(&log)?;
        assert_eq!(end["enters"], end["exits"], "cycle {cycle}: {end:?}");
        assert_eq!(end["wrong"], 0, "cycle {cycle}: {end:?}");
        let outer = end["enters"] - end["inner"];
        assert!(outer > 0 && outer <= made, "cycle {cycle}: {end:?}");
        std::fs::remove_file(&log)?;
    }
    caller.quit()
}
