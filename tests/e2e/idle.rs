//! The processor time that both sides need while they wait, attached to a program that does
//! nothing. Needs no root.

use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::stand_in::Kit;
use midair_tests::target::PATIENCE;
use std::time::{Duration, Instant};

/// How long the processes are watched.
const WATCHED: Duration = Duration::from_secs(5);
/// Share of a CPU that the attaching process may use. It stayed below 0.5 % on most days, and used
/// 0.52 to 0.62 % on a slow one, also in an older build (2026-11-26).
const ATTACHER: f64 = 0.01;
/// Share of a CPU that the worker thread in the target may use, as it looks for work of the device
/// again and again: 0.64 to 0.88 % on that day.
const WORKER: f64 = 0.015;

/// Returns the processor time that one thread has used so far.
fn used_by(pid: i32, tid: i32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat"))?;
    let first = text.split_whitespace().next().ok_or("schedstat is empty")?;
    Ok(Duration::from_nanos(first.parse()?))
}

/// Returns the threads of a process with the processor time that each has used.
fn used(pid: i32) -> Result<Vec<(i32, String, Duration)>> {
    let mut all = Vec::new();
    let of = |error| format!("the threads of process {pid}: {error}");
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).map_err(of)? {
        let tid: i32 = entry.map_err(of)?.file_name().to_string_lossy().parse()?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
        match (name, used_by(pid, tid)) {
            (Ok(name), Ok(used)) => all.push((tid, name.trim().to_owned(), used)),
            // A thread that was about to end, as those that looked at the process do.
            _ => assert_ne!(tid, pid, "its first thread has ended"),
        }
    }
    Ok(all)
}

#[test]
fn waiting_uses_almost_no_cpu_time() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_gpus", "log", &[])?;
    target.expect("ready")?;
    let pid = target.target.pid();
    let mut attacher = Attacher::start(pid, &["--hip-trace", "--hsa-trace", "--kernel-trace"])?;
    let attacher_pid = attacher.process().pid();
    // At first the attacher prepares the memory for records, step by step.
    let limit = Instant::now() + PATIENCE;
    loop {
        let before: Duration = used(attacher_pid)?.iter().map(|(_, _, used)| *used).sum();
        std::thread::sleep(Duration::from_millis(500));
        let now: Duration = used(attacher_pid)?.iter().map(|(_, _, used)| *used).sum();
        // The attacher must use clearly less than the limit for the measurement. With a higher
        // bound its last steps would be taken for rest.
        if now.saturating_sub(before).as_secs_f64() < ATTACHER * 0.5 {
            break;
        }
        assert!(Instant::now() < limit, "the attacher does not come to rest");
    }
    let (before, began) = ((used(attacher_pid)?, used(pid)?), Instant::now());
    std::thread::sleep(WATCHED);
    let (after, watched) = ((used(attacher_pid)?, used(pid)?), began.elapsed());
    let share = |before: &[(i32, String, Duration)],
                 after: &[(i32, String, Duration)],
                 ours: &dyn Fn(&str) -> bool| {
        let spent: Duration = after
            .iter()
            .filter(|(_, name, _)| ours(name))
            .map(|(tid, _, now)| {
                let then = before.iter().find(|(other, _, _)| other == tid);
                now.saturating_sub(then.map_or(Duration::ZERO, |(_, _, then)| *then))
            })
            .sum();
        spent.as_secs_f64() / watched.as_secs_f64()
    };
    let attaching = share(&before.0, &after.0, &|_| true);
    let agent = share(&before.1, &after.1, &|name| name == "midair-worker");
    eprintln!(
        "attached and idle for {watched:?}: the attacher used {:.3} % of a processor, our thread {:.3} %",
        attaching * 100.0,
        agent * 100.0
    );
    assert!(
        after.1.iter().any(|(_, name, _)| name == "midair-worker"),
        "{:?}",
        after.1
    );
    assert!(attaching < ATTACHER, "the attacher used {attaching}");
    assert!(agent < WORKER, "our thread used {agent}");
    attacher.detach()?;
    // A parked worker thread does not run at all.
    let parked = |all: Vec<(i32, String, Duration)>| {
        all.into_iter()
            .find(|(_, name, _)| name == "midair-worker")
            .map(|(_, _, used)| used)
            .ok_or("our thread is gone")
    };
    let mut last = parked(used(pid)?)?;
    let limit = Instant::now() + PATIENCE;
    // The worker thread may have a last step to do after its last message.
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = parked(used(pid)?)?;
        if now == last {
            break;
        }
        assert!(
            Instant::now() < limit,
            "our thread runs on after the detach"
        );
        last = now;
    }
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
