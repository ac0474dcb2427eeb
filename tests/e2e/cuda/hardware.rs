//! Kernels timed by the GPU's own hardware: switched on where CUPTI can do so, and otherwise said
//! why not (CUDA-039). The log of the stand-in has each call of `cuptiActivityEnableHWTrace`.

use super::kit::{NEWEST, Session, Trace, kernels_are_true, quit, start};
use midair_tests::Result;
use midair_tests::cuda::{CudaTarget, Kit};
use std::path::Path;

const CAPABLE: (&str, &str) = ("CUPTI_MODEL", "hw_trace");
const OPTIONS: [&str; 2] = ["--kernel-trace", "--cuda-hw-trace"];

/// Starts a program that has initialised CUDA and has no context yet.
fn without_context(kit: &Kit, variables: &[(&str, &str)]) -> Result<CudaTarget> {
    let variables = [&[("NO_CONTEXT", "1")], variables].concat();
    let mut target = kit.start("cuda_work", NEWEST, &variables)?;
    target.expect("initialised")?;
    Ok(target)
}

/// Records the program from before its first context on. All its kernels are in the trace.
fn from_the_first(target: &mut CudaTarget, dir: &Path, words: &[&str]) -> Result<Trace> {
    let session = Session::attach(target.pid(), dir, words)?;
    target.target.send("go")?;
    target.target.expect("ready")?;
    target.ask("work 3")?;
    let trace = session.detach()?;
    trace.whole()?;
    let log = target.model_log()?;
    let kernels = log.of("kernel").count();
    assert!(kernels >= 24, "{kernels}");
    assert_eq!(kernels_are_true(&trace, &log)?, kernels);
    Ok(trace)
}

/// What the log says of the switch, and whether CUPTI was taken out of the process.
fn switched(target: &CudaTarget) -> Result<(Vec<(u64, u64)>, bool)> {
    let log = target.model_log()?;
    let mut switches = Vec::new();
    for line in log.of("hw_trace") {
        assert_eq!(line.number("enable")?, 1, "{line:?}");
        switches.push((line.number("contexts")?, line.number("on")?));
    }
    Ok((switches, log.of("finalize").count() > 0))
}

#[test]
fn it_is_switched_on_before_the_first_context_and_stays() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = without_context(&kit, &[CAPABLE])?;
    let trace = from_the_first(&mut target, &kit.scratch().join("one"), &OPTIONS)?;
    let notes = trace.notes();
    assert!(
        notes.contains("kernels are timed by GPU hardware (--cuda-hw-trace)"),
        "{notes}"
    );
    assert!(notes.contains("cannot disable that"), "{notes}");
    assert_eq!(switched(&target)?, (vec![(0, 1)], false));
    // The next session finds it so, and says so to a user who did not ask for it.
    let before = target.log_length()?;
    let session = Session::attach(
        target.pid(),
        &kit.scratch().join("two"),
        &["--kernel-trace"],
    )?;
    target.ask("work 3")?;
    let trace = session.detach()?;
    trace.whole()?;
    assert_eq!(kernels_are_true(&trace, &target.log_from(before)?)?, 24);
    assert!(
        trace.notes().contains("an earlier session enabled"),
        "{}",
        trace.notes()
    );
    assert_eq!(switched(&target)?, (vec![(0, 1)], false));
    quit(target)
}

#[test]
fn a_process_with_a_context_is_timed_as_usual() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, NEWEST, &[CAPABLE])?;
    let before = target.log_length()?;
    let session = Session::attach(target.pid(), kit.scratch(), &OPTIONS)?;
    target.ask("work 3")?;
    let trace = session.detach()?;
    trace.whole()?;
    assert_eq!(kernels_are_true(&trace, &target.log_from(before)?)?, 24);
    let notes = trace.notes();
    assert!(
        notes.contains("timed as usual") && notes.contains("already has a CUDA context"),
        "{notes}"
    );
    // CUPTI was not even asked, and nothing is left.
    assert_eq!(switched(&target)?, (vec![], true));
    quit(target)
}

/// The driver does not tell of such a context, but it has a thread for it.
#[test]
fn a_context_of_the_programs_own_is_one() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = without_context(&kit, &[CAPABLE, ("OWN_CONTEXT", "1")])?;
    let notes = from_the_first(&mut target, kit.scratch(), &OPTIONS)?.notes();
    assert!(notes.contains("already has a CUDA context"), "{notes}");
    assert_eq!(switched(&target)?, (vec![], true));
    quit(target)
}

#[test]
fn a_cupti_without_the_function_times_as_usual() -> Result<()> {
    let kit = Kit::new()?;
    let cupti = kit.stand_in.cupti_without_hw_trace(13)?;
    let cupti = cupti.to_str().ok_or("a path is text")?;
    let mut target = without_context(&kit, &[CAPABLE])?;
    let words = [&OPTIONS[..], &["--cupti", cupti]].concat();
    let notes = from_the_first(&mut target, kit.scratch(), &words)?.notes();
    assert!(
        notes.contains("timed as usual") && notes.contains("has no function for it"),
        "{notes}"
    );
    assert_eq!(switched(&target)?, (vec![], true));
    quit(target)
}

#[test]
fn a_chip_without_it_times_as_usual() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = without_context(&kit, &[])?;
    let notes = from_the_first(&mut target, kit.scratch(), &OPTIONS)?.notes();
    assert!(
        notes.contains("timed as usual") && notes.contains("CUPTI_ERROR_NOT_SUPPORTED"),
        "{notes}"
    );
    assert_eq!(switched(&target)?, (vec![(0, 0)], true));
    quit(target)
}

#[test]
fn nobody_gets_it_unasked() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = without_context(&kit, &[CAPABLE])?;
    let trace = from_the_first(&mut target, kit.scratch(), &["--kernel-trace"])?;
    assert!(!trace.notes().contains("hardware"), "{}", trace.notes());
    assert_eq!(switched(&target)?, (vec![], true));
    quit(target)
}
