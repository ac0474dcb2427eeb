//! The torture matrix: cycles of the attach engine on hard targets, and the same cycles by other
//! attach methods (gdb, frida, AMD's), in one table.
//!
//! `cargo xtask torture` builds and runs this program. `midair-torture --help` lists the arguments.
//! One cycle is an attach and a detach: inspect the target, enter it, load and run a fresh library,
//! and get out again. After each cycle the target is examined, and it is its own witness
//! (`c/state.h`).

mod arguments;
mod cell;
mod kit;
mod methods;
mod report;
mod rig;
mod rows;
mod spec;
mod state;
mod tally;

use arguments::Arguments;
use cell::{Cell, Make, Run};
use kit::Kit;
use methods::{Amd, Frida, Gdb, Method, Midair, Remote, WprofStandIn};
use midair_tests::Result;
use report::{Line, Report};
use std::process::ExitCode;
use tally::Tally;

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("--one", rest)) = given
        .split_first()
        .map(|(word, rest)| (word.as_str(), rest))
    {
        return methods::one(rest);
    }
    let arguments = match Arguments::parse(given.into_iter()) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{}", arguments::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    match torture(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was asked for, and returns whether nothing of midair's went wrong.
fn torture(arguments: &Arguments) -> Result<bool> {
    let kit = Kit::new(arguments.amount.clone())?;
    let mut report = Report::new(arguments);
    let mut others: Vec<Box<dyn Method>> = Vec::new();
    if arguments.others && arguments.wants_method("gdb") {
        match Gdb::find() {
            Some(gdb) => {
                report.about(gdb.version());
                others.push(Box::new(gdb));
            }
            None => report.left_out("gdb is not installed"),
        }
    }
    if arguments.others && arguments.wants_method("frida") {
        match Frida::find() {
            Some(frida) => {
                report.about(frida.version().to_owned());
                others.push(Box::new(frida));
            }
            None => report.left_out("frida: MIDAIR_FRIDA names no Python with its package"),
        }
    }
    if arguments.others && arguments.wants_method("amd") {
        match Amd::find(&kit) {
            Ok(amd) => {
                report.about(amd.version().to_owned());
                others.push(Box::new(amd));
            }
            Err(why) => report.left_out(&format!("AMD's register library and protocol: {why}")),
        }
    }
    if arguments.others && arguments.wants_method("wprof-stand-in") {
        let wprof = WprofStandIn::new(&kit)?;
        report.about(wprof.version().to_owned());
        others.push(Box::new(wprof));
    }
    let mut cells = rows::all(kit.amount.quick);
    cells.retain(|cell| arguments.wants(cell.row, &cell.name));
    if cells.is_empty() {
        return Err("there is no such cell".into());
    }
    let total = cells.len();
    for (number, cell) in cells.iter().enumerate() {
        if number > 0 {
            report.write_files(arguments)?;
        }
        eprintln!("[{}/{total}] row {}: {}", number + 1, cell.row, cell.name);
        if !arguments.only_others {
            let tally = ours(&kit, cell)?;
            report.add(Line::of(cell, "midair", tally));
        }
        if !cell.others {
            continue;
        }
        for method in &mut others {
            let Run::Target(make) = &cell.run else {
                continue;
            };
            if !method.takes(cell.row) {
                continue;
            }
            let times = (cell.limit(), cell.budget(method.as_ref()));
            let cycles = kit.amount.others;
            let tally = guarded(cell::run(&kit, &[make], method.as_mut(), cycles, times));
            report.add(Line::of(cell, method.name(), tally));
        }
    }
    report.write(arguments)?;
    Ok(report.is_good())
}

/// Runs a cell by our own engine.
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

/// Turns an error into a failure of this cell, so that the program goes on.
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
