//! The stand-in for NVIDIA's libraries does what our tests rely on. None of our code is in these
//! processes: the program uses CUPTI itself.

use midair_sim_cuda::{MAJORS, Toolkit};
use midair_tests::Result;
use midair_tests::cuda::{CudaTarget, Kit};
use midair_tests::snapshot::Snapshot;
use midair_tests::stage::plain_environment;
use midair_tests::target::{PATIENCE, Target};
use std::process::Command;

fn start(kit: &Kit, toolkit: Toolkit, variables: &[(&str, &str)]) -> Result<CudaTarget> {
    let mut target = kit.start("cuda_work", toolkit, variables)?;
    target.expect("ready")?;
    Ok(target)
}

fn quit(mut target: CudaTarget) -> Result<()> {
    target.ask("count")?;
    target.send("quit")?;
    let exit = target.target.wait(PATIENCE)?.success()?;
    let last = exit.stdout.last().ok_or("it said nothing")?;
    assert!(last.ends_with(" bad 0"), "{last}");
    Ok(())
}

/// The log has what the program did, and the driver's two threads exist.
#[test]
fn the_log_matches_the_programs_work() -> Result<()> {
    let kit = Kit::new()?;
    for (major, _) in MAJORS {
        let mut target = start(&kit, Toolkit::Major(major), &[])?;
        let threads = Snapshot::take(target.pid())?;
        assert_eq!(threads.named("cuda-EvtHandlr").count(), 1);
        let before = target.model_log()?;
        assert_eq!(target.ask("work 5")?, "work rounds 10 bad 0");
        target.ask("graph 3")?;
        target.ask("peers 2")?;
        let log = target.model_log()?.since(&before);
        assert_eq!(log.of("kernel").count(), 10 * 4 + 3 * 2);
        assert_eq!(log.of("copy").count(), 10 * 2);
        assert_eq!(log.of("set").count(), 10 + 3);
        assert_eq!(log.of("peer").count(), 2);
        for kernel in log.of("kernel") {
            let length = kernel.number("end")? - kernel.number("start")?;
            assert_eq!(length, 5000);
            assert_eq!(kernel.number("correlation")?, 0, "nobody listens");
        }
        quit(target)?;
    }
    Ok(())
}

/// Work on the null stream does not look at streams that other threads destroy meanwhile. It did, so
/// that a thread that lost its processor there could end the program (torture row 24). The C library
/// overwrites what is freed.
#[test]
fn the_null_stream_beside_streams_that_come_and_go() -> Result<()> {
    let kit = Kit::new()?;
    let mut command = Command::new(kit.program("null_stream", Toolkit::Major(13))?);
    command
        .env_clear()
        .envs(plain_environment())
        .env("MALLOC_PERTURB_", "85");
    let exit = Target::spawn(command)?.wait(PATIENCE)?.success()?;
    assert_eq!(exit.stdout, ["done"]);
    Ok(())
}

/// CUPTI delivers each kernel once, to one subscriber, and leaves nothing behind.
#[test]
fn cupti_traces_and_is_finalized() -> Result<()> {
    let kit = Kit::new()?;
    for (major, _) in MAJORS {
        let mut target = start(&kit, Toolkit::Major(major), &[])?;
        let path = kit.stand_in.cupti(major);
        let other = format!("other {}", path.display());
        let mut before = None;
        for _ in 0..3 {
            assert_eq!(target.ask(&other)?, "other subscribe 0 kernels 10");
            target.ask("leave")?;
            let now = Snapshot::take(target.pid())?;
            let diff = now.diff(before.as_ref().unwrap_or(&now)).without_heap();
            assert!(diff.is_empty(), "{diff}");
            before = Some(now);
        }
        let told = target.ask(&other)?;
        assert_eq!(told, "other subscribe 0 kernels 10");
        let refused = target.ask(&other)?;
        assert_eq!(refused, "other subscribe 39 kernels 0");
        quit(target)?;
    }
    Ok(())
}

/// A stand-in that is asked to have a subscriber refuses every other one.
#[test]
fn a_subscriber_that_was_ordered() -> Result<()> {
    let kit = Kit::new()?;
    let faults = [("CUPTI_MODEL", "enable_ms=1,subscribed")];
    let mut target = start(&kit, Toolkit::Major(13), &faults)?;
    let other = format!("other {}", kit.stand_in.cupti(13).display());
    assert_eq!(target.ask(&other)?, "other subscribe 39 kernels 0");
    quit(target)
}
