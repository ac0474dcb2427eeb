//! Measures the cost of an attach on real processes and shows the budgets alongside it.
//!
//! `cargo run --release -p midair-benches [entry] [calls] [dispatches] [events] [windows] [session] [live] [export] [views]`
//! after `cargo xtask stage --release` runs these benchmarks, or all nine if none is named. With
//! `compare DIR` in front, another checkout and this one are measured in turn. See
//! `benches/README.md`. The benchmarks need the lab (see `tests`), and root where the kernel's
//! settings ask for it. Times depend on the machine and its load, which is printed. Nothing here
//! fails because a number is large.

mod calls;
mod compare;
mod dispatches;
mod entry;
mod events;
mod export;
mod live;
mod report;
mod session;
mod views;
mod windows;

use midair_tests::Result;
use report::Table;
use std::path::PathBuf;
use std::process::ExitCode;

/// A benchmark: its name on the command line, and its function.
type Bench = (&'static str, fn(&mut Table) -> Result<()>);

const BENCHES: [Bench; 9] = [
    ("entry", entry::run),
    ("calls", calls::run),
    ("dispatches", dispatches::run),
    ("events", events::run),
    ("windows", windows::run),
    ("session", session::run),
    ("live", live::run),
    ("export", export::run),
    ("views", views::run),
];

/// The contents of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    /// Another checkout to compare with, and the number of pairs of runs.
    compare: Option<(PathBuf, usize)>,
    /// The benchmarks, or none for all of them.
    names: Vec<String>,
}

fn parse(arguments: impl IntoIterator<Item = String>) -> std::result::Result<Arguments, String> {
    let mut arguments = arguments.into_iter();
    let mut found = Arguments::default();
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "compare" => {
                let before = arguments.next().ok_or("compare: which directory?")?;
                found.compare = Some((before.into(), compare::PAIRS));
            }
            "--pairs" => {
                let count = arguments.next().and_then(|count| count.parse().ok());
                let pairs = found.compare.as_mut().map(|(_, pairs)| pairs);
                *pairs.ok_or("--pairs: only after compare DIR")? =
                    count.ok_or("--pairs: how many?")?;
            }
            name if BENCHES.iter().any(|(known, _)| *known == name) => found.names.push(word),
            other => {
                return Err(format!(
                    "{other}: not a benchmark; there are entry, calls, dispatches, events, windows, session, live, export and views"
                ));
            }
        }
    }
    Ok(found)
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(refusal) => {
            eprintln!("{refusal}");
            return ExitCode::from(2);
        }
    };
    if let Some((before, pairs)) = &arguments.compare {
        return match compare::run(before, *pairs, &arguments.names) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("compare: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let arguments = arguments.names;
    let mut table = Table::new();
    let mut code = ExitCode::SUCCESS;
    for (name, run) in BENCHES {
        if arguments.is_empty() || arguments.iter().any(|word| word == name) {
            eprintln!("measuring: {name}");
            if let Err(error) = run(&mut table) {
                eprintln!("{name}: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    table.print();
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let read = |line: &str| parse(line.split_whitespace().map(str::to_owned));
        assert_eq!(read(""), Ok(Arguments::default()));
        let arguments = read("compare /before --pairs 3 calls").unwrap();
        assert_eq!(arguments.compare, Some(("/before".into(), 3)));
        assert_eq!(arguments.names, ["calls"]);
        assert_eq!(
            read("compare /before").unwrap().compare.unwrap().1,
            compare::PAIRS
        );
        for wrong in ["compare", "--pairs 3", "compare /b --pairs x", "sessions"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
