//! Row 25: programs that were started this moment, on a busy machine, each attached to once
//! (ENG-068, AMD-082). No program is waited for first.

use crate::cell::{Cell, short};
use crate::kit::Kit as Own;
use crate::tally::{Cycle, Entry, Tally};
use midair_tests::Result;
use midair_tests::lab::Lab;
use midair_tests::stage::command;
use midair_tests::stand_in;
use midair_tests::target::Target;
use std::process::Command;
use std::time::{Duration, Instant};

/// How many loops keep the processors busy.
const BUSY: u32 = 12;
/// How many programs start at a time in the first form, where the load is as much as the loops' and
/// twice as much again.
const TOGETHER: u64 = 8;
/// A longer pause is noted with its parts.
const LONG_PAUSE: Duration = Duration::from_millis(5);
/// The time after which an attach counts as a hang.
const LIMIT: Duration = Duration::from_secs(240);

/// Returns the cells.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (form, together) in [("8 at a time", TOGETHER), ("one at a time", 1)] {
        let name = |runtime: &str| {
            format!("started this moment, {form}, beside {BUSY} busy loops; {runtime}")
        };
        cells.push(Cell::special(25, name("HIP (stand-in)"), move |own| {
            let kit = stand_in::Kit::new()?;
            starts(own, together, "start", || {
                let mut target = kit.start("two_gpus", "model.log", &[])?.target;
                target.send("start")?;
                Ok(target)
            })
        }));
        for (words, register) in [("", true), (", not registered", false)] {
            let name = name(&format!("AMD's HIP (lab){words}"));
            let run = move |own: &Own| in_the_lab(own, together, register);
            cells.push(Cell::special(25, name, run));
        }
    }
    cells
}

fn in_the_lab(own: &Own, together: u64, register: bool) -> Result<Tally> {
    let lab = match Lab::find() {
        Ok(Some(lab)) => lab,
        Ok(None) => return Ok(Tally::left_out("the lab is left out")),
        Err(why) => return Ok(Tally::left_out(why.to_string())),
    };
    starts(own, together, "iter", || {
        let program = lab.run("/lab/vadd").register(register);
        Ok(program.arg(100_000).arg(20_000).spawn()?.target)
    })
}

/// Starts programs and attaches to each at once. A program that has started says `word`.
fn starts(
    own: &Own,
    together: u64,
    word: &str,
    make: impl Fn() -> Result<Target>,
) -> Result<Tally> {
    let busy = || Target::spawn(shell("while :; do :; done"));
    let _busy = (0..BUSY).map(|_| busy()).collect::<Result<Vec<_>>>()?;
    let mut tally = Tally::default();
    while tally.cycles < own.amount.starts && tally.harm() < TOGETHER {
        let count = together.min(own.amount.starts - tally.cycles);
        let mut together = Vec::new();
        for _ in 0..count {
            let target = make()?;
            let results = tempfile::tempdir_in(own.scratch())?;
            let mut attach = command("midair")?;
            attach
                .args(["attach", "-v", &target.pid().to_string()])
                .args(["--duration", "100ms", "-d"])
                .arg(results.path())
                .env("MIDAIR_NEVER_BORROW", "gpu-model-");
            together.push((target, Instant::now(), Target::spawn(attach)?, results));
        }
        for (mut target, began, attach, _results) in together {
            let exit = match attach.wait(LIMIT) {
                Ok(exit) => exit,
                Err(error) => {
                    tally.count(&Cycle::Hung(short(&error.to_string())));
                    continue;
                }
            };
            let cycle = match exit.status.success() {
                true => Cycle::Entered(entry(&exit.stderr, began.elapsed())),
                false => Cycle::Failed(short(&exit.to_string())),
            };
            tally.count(&cycle);
            let is_long = |entry: &Entry| entry.stopped.is_some_and(|pause| pause >= LONG_PAUSE);
            if matches!(&cycle, Cycle::Entered(entry) if is_long(entry)) {
                let mut lines = exit.stderr.iter();
                let said = lines.find(|line| line.contains("was stopped for "));
                tally.note(short(said.map_or("", |line| line)));
            }
            if let Err(error) = target.expect(word) {
                tally.crashed += 1;
                tally.note(short(&error.to_string()));
            }
        }
    }
    Ok(tally)
}

fn shell(text: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", text]);
    shell
}

/// Reads what an attach that came in has said: "entered by a parked thread: 7 (name), in …; that
/// thread was stopped for 515 us (…)", "attached to process 7 (name) in 20.1 ms; …".
fn entry(said: &[String], whole: Duration) -> Entry {
    let number = |after: &str, unit: &str| {
        let mut lines = said.iter().filter_map(|line| line.split_once(after));
        let words = lines.find_map(|(_, rest)| rest.split_once(unit))?.0;
        words.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let path = |words: &str| said.iter().any(|line| line.contains(words));
    Entry {
        attach: number("attached to process ", " ms")
            .map_or(whole, |ms| Duration::from_secs_f64(ms / 1e3)),
        stopped: number("was stopped for ", " us").map(|us| Duration::from_secs_f64(us / 1e6)),
        tier: match (path("a parked thread"), path("at a safe point")) {
            (true, _) => "T2",
            (_, true) => "T3",
            _ => "another way",
        }
        .to_owned(),
        ..Entry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_attach() {
        let said = [
            "midair: info: process 7 (bash): entered by a running thread at a safe point: 7 (vadd), in memset; that thread was stopped for 511 us (stop 156, stub 327, release 28)",
            "attached to process 7 (vadd) in 20.5 ms; it ends in 100 ms",
        ];
        let entry = entry(&said.map(str::to_owned), Duration::from_secs(1));
        assert_eq!(entry.tier, "T3");
        assert_eq!(entry.stopped, Some(Duration::from_micros(511)));
        assert_eq!(entry.attach, Duration::from_micros(20_500));
    }
}
