//! What all tasks of the project share: running commands, its directories, machines.
#![forbid(unsafe_code)]

pub mod aarch64;
pub mod machine;
pub mod run;

use std::process::ExitCode;

/// Runs a program's only task with its arguments, and prints why it fails; or what it is for (`--help`).
pub fn run_task(program: &str, usage: &str, task: fn(&[String]) -> run::Outcome<()>) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word] = words.as_slice()
        && ["-h", "--help"].contains(&word.as_str())
    {
        println!("usage: cargo {program} {usage}");
        return ExitCode::SUCCESS;
    }
    match task(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{program}: {failure}");
            ExitCode::FAILURE
        }
    }
}
