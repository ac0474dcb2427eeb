//! The torture matrix: cycles of the attach engine on hard targets, and the same by others (gdb, frida, AMD's), in one table.
//!
//! `cargo xtask torture` builds and runs this; `midair-torture --help` tells the words. One cycle is the whole way in and out: look,
//! enter, a fresh library loaded and run, out again. After each the target is looked at: it is its own witness (`c/state.h`).

mod cell;
mod kit;
mod report;
mod rig;
mod rows;
mod spec;
mod state;
mod tally;
mod ways;
mod words;

use cell::{Cell, Make, Run};
use kit::Kit;
use midair_tests::Result;
use report::{Line, Report};
use std::process::ExitCode;
use tally::Tally;
use ways::{Amd, Frida, Gdb, Midair, Remote, WayIn};
use words::Words;

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("--one", rest)) = given
        .split_first()
        .map(|(word, rest)| (word.as_str(), rest))
    {
        return ways::one(rest);
    }
    let words = match Words::parse(given.into_iter()) {
        Ok(Some(words)) => words,
        Ok(None) => {
            println!("{}", words::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n{}", words::USAGE);
            return ExitCode::from(2);
        }
    };
    match torture(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was asked for; true when nothing of ours went wrong.
fn torture(words: &Words) -> Result<bool> {
    let kit = Kit::new(words.amount.clone())?;
    let mut report = Report::new(words);
    let mut others: Vec<Box<dyn WayIn>> = Vec::new();
    if words.others && words.wants_way("gdb") {
        match Gdb::find() {
            Some(gdb) => {
                report.about(gdb.version());
                others.push(Box::new(gdb));
            }
            None => report.left_out("gdb is not installed"),
        }
    }
    if words.others && words.wants_way("frida") {
        match Frida::find() {
            Some(frida) => {
                report.about(frida.version().to_owned());
                others.push(Box::new(frida));
            }
            None => report.left_out("frida: MIDAIR_FRIDA names no Python with its package"),
        }
    }
    if words.others && words.wants_way("amd") {
        match Amd::find(&kit) {
            Ok(amd) => {
                report.about(amd.version().to_owned());
                others.push(Box::new(amd));
            }
            Err(why) => report.left_out(&format!("AMD's register library and protocol: {why}")),
        }
    }
    let mut cells = rows::all(kit.amount.quick);
    cells.retain(|cell| words.wants(cell.row, &cell.name));
    if cells.is_empty() {
        return Err("there is no such cell".into());
    }
    let total = cells.len();
    for (number, cell) in cells.iter().enumerate() {
        if number > 0 {
            report.write_files(words)?;
        }
        eprintln!("[{}/{total}] row {}: {}", number + 1, cell.row, cell.name);
        if !words.only_others {
            let tally = ours(&kit, cell)?;
            report.add(Line::of(cell, "midair", tally));
        }
        if !cell.others {
            continue;
        }
        for way in &mut others {
            let Run::Target(make) = &cell.run else {
                continue;
            };
            if !way.takes(cell.row) {
                continue;
            }
            let times = (cell.limit(), cell.budget(way.as_ref()));
            let cycles = kit.amount.others;
            let tally = guarded(cell::run(&kit, &[make], way.as_mut(), cycles, times));
            report.add(Line::of(cell, way.name(), tally));
        }
    }
    report.write(words)?;
    Ok(report.is_good())
}

/// A cell by our own engine.
fn ours(kit: &Kit, cell: &Cell) -> Result<Tally> {
    let mut midair = Midair::default();
    let times = (cell.limit(), cell.budget(&midair));
    let cycles = match cell.heavy && kit.amount.quick {
        true => 1,
        false => kit.amount.cycles,
    };
    let tally = match &cell.run {
        Run::Target(make) => cell::run(kit, &[make], &mut midair, cycles, times),
        Run::Targets(makes) => {
            let makes: Vec<&Make> = makes.iter().collect();
            let cycles = cycles.max(makes.len() as u64);
            cell::run(kit, &makes, &mut midair, cycles, times)
        }
        Run::Elsewhere {
            make,
            under,
            inside,
        } => {
            let mut remote = Remote::new(kit, under, *inside)?;
            cell::run(kit, &[make], &mut remote, cycles, times)
        }
        Run::Special(run) => run(kit),
    };
    Ok(guarded(tally))
}

/// What could not be run is a failure of this cell, not of the programme.
fn guarded(tally: Result<Tally>) -> Tally {
    tally.unwrap_or_else(|error| {
        let mut tally = Tally {
            failed: 1,
            cycles: 1,
            ..Tally::default()
        };
        tally.note(format!("not run: {}", cell::short(&error.to_string())));
        tally
    })
}
