//! What an attach costs, measured on real processes, beside the budgets.
//!
//! `cargo run --release -p midair-benches [entry] [calls] [session]` after `cargo xtask stage --release`; all three without a
//! word. Needs the lab (see `tests`), and root where the kernel's settings ask for it. Times depend on the machine and its load,
//! which is printed; nothing here fails because a number is large.

mod calls;
mod entry;
mod report;
mod session;

use midair_tests::Result;
use report::Table;
use std::process::ExitCode;

/// A measurement: its word, what it does, and how.
type Bench = (&'static str, fn(&mut Table) -> Result<()>);

const BENCHES: [Bench; 3] = [
    ("entry", entry::run),
    ("calls", calls::run),
    ("session", session::run),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = words
        .iter()
        .find(|word| !BENCHES.iter().any(|(name, _)| name == word))
    {
        eprintln!("{unknown}: not a benchmark; there are entry, calls and session");
        return ExitCode::from(2);
    }
    let mut table = Table::new();
    let mut code = ExitCode::SUCCESS;
    for (name, run) in BENCHES {
        if words.is_empty() || words.iter().any(|word| word == name) {
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
