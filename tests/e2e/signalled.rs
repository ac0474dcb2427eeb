//! Sends SIGINT, SIGTERM and SIGHUP to the command line at times spread over an attach. Either it
//! ends before it has touched anything, or it attaches, detaches and writes. The target goes on,
//! and the next attach works. Needs no root.

use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::snapshot::{Snapshot, What};
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, until};
use std::time::{Duration, Instant};

const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
/// How many moments after the start are tried for each signal.
const MOMENTS: u32 = 12;

#[test]
fn signals_throughout_an_attach() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "signalled.log", &[("MODEL_KERNEL_NS", "20000")])?;
    target.expect("ready")?;
    target.send("start")?;
    target.expect("start")?;
    let pid = target.pid();
    // This session leaves behind what only a first session leaves, and shows how long a session
    // takes.
    Attacher::midair(pid, &["--hip-trace"])?.detach()?.code(0)?;
    let began = Instant::now();
    let attacher = Attacher::midair(pid, &["--hip-trace"])?;
    let span = began.elapsed().max(Duration::from_millis(20));
    attacher.detach()?.code(0)?;
    let before = Snapshot::take(pid)?;

    let (mut ended, mut detached) = (0, 0);
    for moment in 0..MOMENTS {
        for signal in SIGNALS {
            let dir = tempfile::tempdir()?;
            let mut words = command("midair")?;
            words
                .args(["attach", &pid.to_string(), "--hip-trace", "-f", "csv"])
                .arg("-d")
                .arg(dir.path())
                .args(["-o", "out"]);
            let process = Target::spawn(words)?;
            std::thread::sleep(span * moment / (MOMENTS - 2));
            process.signal(signal)?;
            let exit = process.wait(PATIENCE)?;
            let when = format!("signal {signal} at moment {moment}: {exit}");
            let attached = exit
                .stderr
                .iter()
                .any(|line| line.contains("attached to process"));
            match (exit.signal(), exit.status.code()) {
                (Some(by), _) => {
                    assert!(by == signal && !attached, "{when}");
                    ended += 1;
                }
                (None, code) => {
                    assert!(code == Some(0) && attached, "{when}");
                    let files = std::fs::read_dir(dir.path())?.count();
                    assert!(files > 0, "{when}: nothing was written");
                    detached += 1;
                }
            }
        }
    }
    assert!(
        ended > 0 && detached > 0,
        "{ended} ended, {detached} detached"
    );
    until("all as before", || {
        let left = before.diff(&Snapshot::take(pid)?).without_heap();
        Ok(left.without(|change| change.what == What::Map).is_empty())
    })?;
    Attacher::midair(pid, &["--hip-trace"])?.detach()?.code(0)?;
    target.send("stop")?;
    target.expect("stop")?;
    target.send("quit")?;
    let exit = target.target.wait(PATIENCE)?.success()?;
    assert_eq!(exit.stdout.last().map(String::as_str), Some("done"));
    Ok(())
}
