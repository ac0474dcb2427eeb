//! Steps of the wall clock. No deadline, duration or time of a record depends on it.

use crate::subject::{Subject, attach, attach_with, attacher, is_in, kit, say};
use midair_tests::Result;
use midair_tests::attacher::{boottime, calls_of, check_calls};
use midair_tests::target::{PATIENCE, run};
use std::process::Command;
use std::time::{Duration, Instant};

/// Sets the clock forward by this many seconds, or back.
fn step(seconds: i64) -> Result<()> {
    let mut command = Command::new("date");
    command.arg(format!("--set={seconds:+} seconds"));
    run(command, PATIENCE)?.success()?;
    Ok(())
}

pub fn check() -> Result<()> {
    let kit = kit()?;
    let mut subject = Subject::start(&kit, &[], &[])?;
    for steps in [[3 * 3600, -3 * 3600], [-40 * 86400, 40 * 86400]] {
        let from = boottime();
        let mut process = attacher(&kit, &[], subject.pid())?;
        subject.work()?;
        step(steps[0])?;
        subject.work()?;
        step(steps[1])?;
        subject.work()?;
        process.send("")?;
        process.wait(PATIENCE)?.success()?;
        let calls = calls_of(&[kit.scratch().join("out/out_hip_api_trace.csv")])?;
        if calls.is_empty() {
            return Err("no calls in the trace".into());
        }
        check_calls(&calls, subject.pid(), (from, boottime()))?;
        let text = format!(
            "steps of {:+} s and {:+} s in a session: {} calls, all times in order",
            steps[0],
            steps[1],
            calls.len()
        );
        say(&text);
    }
    // `--duration` counts the machine's time, not the wall clock's.
    let stepping = std::sync::atomic::AtomicBool::new(true);
    let on = || stepping.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        let stepper = scope.spawn(|| {
            let mut steps = 0;
            while on() {
                step(7200)
                    .and_then(|()| step(-7200))
                    .map_err(|error| error.to_string())?;
                steps += 2;
            }
            Ok::<_, String>(steps)
        });
        let sessions = || {
            for _ in 0..5 {
                let began = Instant::now();
                let own = ["--duration", "1500ms"];
                let exit = attach_with(&kit, &[], subject.pid(), &own)?;
                let took = began.elapsed();
                exit.success()?;
                if took < Duration::from_millis(1500) || took > Duration::from_secs(60) {
                    return Err(format!("1.5 s took {took:?}").into());
                }
            }
            Ok::<_, midair_tests::Error>(())
        };
        let done = sessions();
        stepping.store(false, std::sync::atomic::Ordering::Relaxed);
        let steps = stepper.join().map_err(|_| "the stepper panicked")??;
        done?;
        say(&format!(
            "5 sessions of 1.5 s while the clock made {steps} steps of two hours"
        ));
        Ok::<_, midair_tests::Error>(())
    })?;
    let exit = attach(&kit, &[], subject.pid())?;
    is_in("a session afterwards", &exit)?;
    subject.quit()
}
