//! Row 24: threads that come and go, each with a stream (`tests/c/thread_churn.c`), alongside sessions
//! of the whole product, one after another.

use super::product::Size;
use crate::cell::{Cell, limit, short};
use crate::kit::Kit as Own;
use crate::tally::{Cycle, Entry, Tally};
use midair_sim_cuda::Toolkit;
use midair_tests::lab::Lab;
use midair_tests::stage::command;
use midair_tests::target::Target;
use midair_tests::{Result, cuda, stand_in};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How many threads there are at a time.
const THREADS: u32 = 16;
/// Sessions before the first look at the program's size. After them its allocator and its runtime,
/// and what we left in it, have the size that they need.
const WARM: u64 = 10;
/// How long the program may take to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many threads the program has at once without an answer, which takes a few seconds.
const PIECE: u64 = 5000;

/// Returns the cells.
pub fn cells() -> Vec<Cell> {
    let cell = |runtime: &str, run: fn(&Own) -> Result<Tally>| {
        let name = format!("{THREADS} threads that each make a stream, use it and end; {runtime}");
        Cell::special(24, name, run)
    };
    vec![
        cell("HIP (stand-in)", |own| {
            let kit = stand_in::Kit::new()?;
            churn(own, || {
                Ok(kit.start("thread_churn", "model.log", &[])?.target)
            })
        }),
        cell("CUDA (stand-in)", |own| {
            let kit = cuda::Kit::new()?;
            let program = Toolkit::Major(13);
            churn(own, || Ok(kit.start("thread_churn", program, &[])?.target))
        }),
        cell("AMD's HIP (lab)", |own| match Lab::find() {
            Ok(Some(lab)) => {
                let (program, kernels) = (lab.program("thread_churn")?, lab.kernels()?);
                churn(own, || Ok(lab.run(&program).arg(&kernels).spawn()?.target))
            }
            Ok(None) => Ok(Tally::left_out("the lab is left out")),
            Err(why) => Ok(Tally::left_out(why.to_string())),
        }),
    ]
}

/// Runs the sessions alongside the program.
fn churn(own: &Own, make: impl Fn() -> Result<Target>) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut target = make()?;
    target.expect("ready")?;
    let pid = target.pid();
    let results = tempfile::tempdir_in(own.scratch())?;
    let mut before = None;
    start(&mut target)?;
    for number in 0..own.amount.churn {
        if number == WARM.min(own.amount.churn / 2) {
            before = Some((stop(&mut target, &mut tally)?, Size::of(pid)?));
            start(&mut target)?;
        }
        let dir = results.path().join(number.to_string());
        let cycle = session(pid, &dir, &mut tally)?;
        tally.count(&cycle);
        // Thousands of results would make the directory large, and the files are not looked at.
        let _gone = std::fs::remove_dir_all(&dir);
        if tally.hung + tally.failed > 10 || !target.is_running()? {
            break;
        }
    }
    if !target.is_running()? {
        tally.crashed += 1;
        tally.note(short(&target.wait(PATIENCE)?.to_string()));
        return Ok(tally);
    }
    let (ended, after) = (stop(&mut target, &mut tally)?, Size::of(pid)?);
    if let Some((first, before)) = before {
        tally.note(format!("at rest: {before:?}, then {after:?}"));
        if !before.is_same(&after) {
            let by_itself = grows_by_itself(make()?, first, ended)?;
            tally.note(format!(
                "without sessions it grows by {by_itself} KiB meanwhile"
            ));
            if !before.is_same_but(&after, by_itself) {
                tally.residue += 1;
            }
        }
    }
    target.send("quit")?;
    let exit = target.wait(PATIENCE)?;
    if !exit.status.success() {
        tally.crashed += 1;
        tally.note(short(&exit.to_string()));
    }
    Ok(tally)
}

fn start(target: &mut Target) -> Result<()> {
    target.send(&format!("start {THREADS}"))?;
    target.expect("start")?;
    Ok(())
}

/// Returns by how many KiB the program grows without any session while its threads come and go, from
/// the thread with the first number to the last. AMD's HIP does.
fn grows_by_itself(mut target: Target, first: u64, last: u64) -> Result<u64> {
    target.expect("ready")?;
    let mut go = |mut threads: u64| -> Result<Size> {
        while threads > 0 {
            let piece = threads.min(PIECE);
            target.send(&format!("go {THREADS} {piece}"))?;
            target.expect("go")?;
            threads -= piece;
        }
        Size::of(target.pid())
    };
    let before = go(first)?;
    Ok(before.growth(&go(last - first)?))
}

/// Stops the threads, and checks the program's own results. Returns how many threads have ended.
fn stop(target: &mut Target, tally: &mut Tally) -> Result<u64> {
    target.send("stop")?;
    let line = target.expect("stop ")?;
    let number = |word: &str| -> Result<u64> {
        let mut words = line.split(' ').skip_while(|it| *it != word);
        Ok(words.nth(1).ok_or("a count is missing")?.parse()?)
    };
    let ended = number("ended")?;
    let right = ended > 0
        && number("kernels")? == ended
        && number("copies")? == 2 * ended
        && number("sets")? == ended
        && number("bad")? == 0;
    tally.note(line.clone());
    if !right {
        tally.wrong += 1;
    }
    Ok(ended)
}

/// Runs one session of the command line. Words on its standard error beyond the usual two lines
/// become notes.
fn session(pid: i32, dir: &Path, tally: &mut Tally) -> Result<Cycle> {
    let mut attach: Command = command("midair")?;
    attach
        .args(["attach", &pid.to_string(), "--duration", "60ms", "-d"])
        .arg(dir)
        .env("MIDAIR_NEVER_BORROW", "gpu-model-");
    let began = Instant::now();
    let exit = match Target::spawn(attach)?.wait(limit()) {
        Ok(exit) => exit,
        Err(error) => return Ok(Cycle::Hung(short(&error.to_string()))),
    };
    if began.elapsed() > limit() {
        return Ok(Cycle::Hung(format!("{:?}", began.elapsed())));
    }
    if !exit.status.success() {
        return Ok(Cycle::Failed(short(&exit.to_string())));
    }
    // "attached to process 7 (name) in 20.1 ms; ...", "detached from process 7 (name) in 3.2 ms".
    let (mut entry, mut said) = (Entry::default(), 0);
    for line in &exit.stderr {
        let time = line.split_once(" ms").and_then(|(words, _)| {
            let ms = words.rsplit(' ').next()?.parse::<f64>().ok()?;
            Some(Duration::from_secs_f64(ms / 1000.0))
        });
        match (line.split(' ').next(), time) {
            (Some("attached"), Some(time)) => (entry.attach, said) = (time, said + 1),
            (Some("detached"), Some(time)) => (entry.out, said) = (time, said + 1),
            _ => tally.note(line.clone()),
        }
    }
    if said != 2 {
        return Ok(Cycle::Failed(short(&exit.to_string())));
    }
    entry.tier = "a session".to_owned();
    Ok(Cycle::Entered(entry))
}
