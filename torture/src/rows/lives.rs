//! Rows 10, 11 and 12: targets and attachers that end, fork or exec at each step.

use crate::cell::Cell;
use crate::kit::Kit;
use crate::spec::Spec;
use crate::tally::{Cycle, Entry, Tally};
use midair_tests::target::run;
use midair_tests::{Result, workspace};
use std::process::Command;
use std::time::Duration;

/// The systematic drivers: the row, what they do, and the package and module of the tests.
const DRIVERS: [(u8, &str, [&str; 2]); 4] = [
    (
        10,
        "the target ends, execs or is stopped after each step of the engine (test driver)",
        ["midair-inject", "ends"],
    ),
    (
        10,
        "the same after each step of a whole session (test driver)",
        ["midair-session", "ends"],
    ),
    (
        12,
        "the attacher is killed after each step of the engine (test driver)",
        ["midair-inject", "death"],
    ),
    (
        12,
        "the same after each step of a whole session (test driver)",
        ["midair-session", "death"],
    ),
];

/// Returns the cells. The cells of the systematic drivers are tests of their own, which the suite
/// itself runs. So they are left out of the quick form.
pub fn cells(quick: bool) -> Vec<Cell> {
    let mut cells = vec![
        Cell::on(
            11,
            "fork on all its threads but one; what a child returns is checked",
            |_| Ok(Spec::ours("fork", &["fork*3", "wait4", "parked"])),
        ),
        Cell::on(11, "fork and exec on 3 threads; one parked", |_| {
            Ok(Spec::ours("exec", &["exec*2", "parked"]))
        }),
        Cell::on(11, "a daemon: forked twice, a session of its own", |_| {
            Ok(Spec::ours("stdin", &["malloc", "parked", "+daemon"]).says_pid())
        }),
    ];
    if !quick {
        cells.extend(DRIVERS.map(|(row, name, test)| driver(row, name, test)));
    }
    cells
}

/// Makes a cell of a module of tests of the engine in its long form. Each test counts as one cycle.
fn driver(row: u8, name: &str, test: [&'static str; 2]) -> Cell {
    Cell::special(row, name, move |_: &Kit| drive(test))
}

/// Runs a module of a package's tests.
fn drive([package, module]: [&str; 2]) -> Result<Tally> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args([
            "test",
            "--quiet",
            "-p",
            package,
            "--test",
            "it",
            &format!("{module}::"),
            "--",
            "--test-threads",
            "1",
        ])
        .env("MIDAIR_LONG", "1")
        .current_dir(workspace());
    let exit = run(command, Duration::from_secs(900))?;
    let mut tally = Tally::default();
    let sums = exit
        .stdout
        .iter()
        .filter(|line| line.starts_with("test result:"));
    for line in sums {
        let count = |word: &str| -> u64 {
            let words: Vec<&str> = line.split([' ', ';', ',']).collect();
            let at = words.iter().position(|&other| other == word);
            at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok())
                .unwrap_or(0)
        };
        for _ in 0..count("passed") {
            tally.count(&Cycle::Entered(Entry {
                tier: "tests".to_owned(),
                ..Entry::default()
            }));
        }
        for _ in 0..count("failed") {
            tally.count(&Cycle::Failed(format!("a test of {module}")));
        }
    }
    // The latencies of these cycles mean nothing.
    tally.attach.clear();
    tally.out.clear();
    if tally.cycles == 0 || !exit.status.success() {
        tally.failed += 1;
        tally.cycles = tally.cycles.max(1);
        tally.note(crate::cell::short(&exit.to_string()));
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The four cells failed since the tests had become modules of one program.
    #[test]
    fn the_drivers_are_where_they_are_looked_for() {
        for (_, name, [package, module]) in DRIVERS {
            let crate_name = package.trim_start_matches("midair-");
            let file = format!("crates/attacher/{crate_name}/tests/it/{module}.rs");
            assert!(workspace().join(&file).is_file(), "{name}: {file}");
        }
    }
}
