//! See the library. `midair` is the same program, called by this name: a wheel has no file of its own for it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    ExitCode::from(midair_collector::main(&words))
}
