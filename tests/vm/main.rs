//! Checks that need another kernel: rights by security modules, frozen processes, steps of the wall
//! clock. `cargo vm` runs this program in its guests as root. It changes settings of the
//! whole machine, so it does nothing elsewhere.
//!
//! A check prints what it found, which becomes a line of the table. A result that it did not expect
//! is an error.

mod apparmor;
mod clock;
mod freezer;
mod selinux;
mod session;
mod subject;
mod yama;

use midair_tests::Result;
use std::process::ExitCode;

type Check = fn() -> Result<()>;

/// Name and function of each check.
const CHECKS: &[(&str, Check)] = &[
    ("session", session::check),
    ("clock", clock::check),
    ("freezer", freezer::version_2),
    ("freezer-v1", freezer::version_1),
    ("yama", yama::check),
    ("apparmor", apparmor::check),
    ("selinux", selinux::check),
];

fn main() -> ExitCode {
    let word = std::env::args().nth(1).unwrap_or_default();
    let found = CHECKS.iter().find(|(name, _)| *name == word);
    let Some((_, check)) = found else {
        let names: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
        eprintln!("midair-vm-checks {}", names.join(" | "));
        return ExitCode::from(2);
    };
    if std::env::var_os("MIDAIR_VM").is_none() {
        eprintln!("it changes settings of the whole machine: cargo vm runs it in a guest");
        return ExitCode::from(2);
    }
    match check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            println!(
                "said: NOT AS EXPECTED: {}",
                subject::short(&error.to_string())
            );
            ExitCode::FAILURE
        }
    }
}
