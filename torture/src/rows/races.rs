//! Row 14 and parts of 4 and 23: others that act on the same process, and an attacher that is
//! stopped for a while.

use crate::cell::{Cell, count_residue, limit, suffered};
use crate::kit::{Kit, installed};
use crate::methods::{Method, Midair, Remote};
use crate::rig::Rig;
use crate::spec::{Spec, Want};
use crate::tally::{Cycle, Tally};
use midair_tests::Result;
use midair_tests::target::Target;
use std::time::{Duration, Instant};

const TRACED: Want = Want::InOr(&["Traced"]);
/// The refusals that are right for one of two attachers.
const RACE: Want = Want::InOr(&["Busy", "Traced", "NoneParked"]);

/// Commands that run a program under a tracer.
pub(super) const STRACE: &[&str] = &["strace", "-qq", "-o", "/dev/null"];
pub(super) const GDB: &[&str] = &[
    "gdb",
    "-nx",
    "-batch",
    "-iex",
    "set startup-with-shell off",
    "-ex",
    "run",
    "--args",
];

/// Returns the cells.
pub fn cells() -> Vec<Cell> {
    let traced = |tracer: &'static [&'static str]| {
        Cell::on(14, format!("under {}", tracer[0]), move |_| {
            installed(tracer[0]).ok_or(format!("{} is not installed", tracer[0]))?;
            Ok(Spec::ours("malloc", &["parked"]).forked_by(tracer).killed())
        })
        .want(TRACED)
        .ours_only()
    };
    vec![
        traced(STRACE),
        traced(GDB),
        Cell::special(14, "two attachers at the same moment", two).want(RACE),
        Cell::special(
            4,
            "stopped and continued every few milliseconds meanwhile",
            continued,
        )
        .want(Want::InOr(&["Stopped", "TargetStopped", "NoneParked"])),
        Cell::special(23, "the attacher is stopped half way for 30 ms", held_up),
    ]
}

/// Runs the cycles of a special cell, with a fresh target for every 20 cycles.
fn each(
    kit: &Kit,
    spec: &Spec,
    mut cycle: impl FnMut(&mut Rig, &mut Tally, u64) -> Result<()>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let began = Instant::now();
    let mut number = 0;
    while number < kit.amount.cycles && began.elapsed() < Duration::from_secs(60) {
        let mut rig = Rig::start(kit, spec)?;
        for _ in 0..20.min(kit.amount.cycles - number) {
            number += 1;
            cycle(&mut rig, &mut tally, number)?;
            if let Err(harm) = rig.check(&mut tally, None) {
                suffered(&mut tally, harm);
                break;
            }
        }
        if let Err(harm) = rig.all_go_on() {
            suffered(&mut tally, harm);
            continue;
        }
        count_residue(kit, &rig, &mut Midair::default(), &mut tally)?;
        if let Err(harm) = rig.finish() {
            suffered(&mut tally, harm);
        }
    }
    Ok(tally)
}

fn usual() -> Spec {
    Spec::ours("malloc", &["malloc", "cond", "feed", "parked"])
}

/// Runs two attachers at once and counts both. One of them must get in, and both must leave the
/// target well.
fn two(kit: &Kit) -> Result<Tally> {
    each(kit, &usual(), |rig, tally, _| {
        let pid = rig.pid;
        let pair = std::thread::scope(|scope| {
            let other = scope.spawn(|| Midair::default().cycle(kit, pid, limit()));
            let one = Midair::default().cycle(kit, pid, limit());
            let other = other.join().map_err(|_| "a cycle panicked")?;
            Ok::<_, midair_tests::Error>([one?, other?])
        })?;
        let mut entered = 0;
        for cycle in &pair {
            tally.count(cycle);
            entered += u32::from(matches!(cycle, Cycle::Entered(_)));
        }
        // Two attachers that come at the very same moment may choose the same number for the
        // descriptor. The loader then gives the second one the library of the first, because it
        // knows libraries by their paths. So one mark is enough.
        if entered > 0 {
            rig.expect_mark();
        } else {
            tally.failed += 1;
            tally.note(format!("neither got in: {pair:?}"));
        }
        Ok(())
    })
}

/// Sends the target job control signals all the time.
fn continued(kit: &Kit) -> Result<Tally> {
    each(kit, &usual(), |rig, tally, _| {
        let pid = rig.pid;
        let done = std::sync::atomic::AtomicBool::new(false);
        let cycle = std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: kill takes numbers only. The process is a midair child that is not
                // reaped meanwhile.
                let send = |signal| unsafe { libc::kill(pid, signal) };
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    send(libc::SIGSTOP);
                    std::thread::sleep(Duration::from_millis(2));
                    send(libc::SIGCONT);
                    std::thread::sleep(Duration::from_millis(4));
                }
            });
            let cycle = Midair::default().cycle(kit, pid, limit());
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            cycle
        })?;
        // The last signal was SIGCONT. A stop ends some calls early even without us, so those are
        // not counted here.
        if matches!(cycle, Cycle::Entered(_)) {
            rig.expect_mark();
        }
        tally.count(&cycle);
        Ok(())
    })
}

/// Runs the attacher in a process of its own. SIGSTOP stops it at some moment of its work, and
/// SIGCONT lets it go on.
fn held_up(kit: &Kit) -> Result<Tally> {
    let remote = Remote::new(kit, &[], false)?;
    each(kit, &usual(), |rig, tally, number| {
        let attacher = Target::spawn(remote.command(rig.pid)?)?;
        // The moments are spread over the few milliseconds that the attacher lives.
        std::thread::sleep(Duration::from_micros(number * 733 % 15_000));
        let _ended_already = attacher.signal(libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(30));
        let _ended_already = attacher.signal(libc::SIGCONT);
        let cycle = match attacher.wait(Duration::from_secs(30)) {
            Ok(exit) => Remote::cycle_of(&exit),
            Err(error) => Cycle::Hung(error.to_string()),
        };
        if matches!(cycle, Cycle::Entered(_)) {
            rig.expect_mark();
        }
        tally.count(&cycle);
        Ok(())
    })
}
