//! See `midair_cli::midair`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let words = std::env::args_os().collect();
    ExitCode::from(midair_cli::midair::main(
        words,
        &midair_cli::connect::SessionEngine,
    ))
}
