//! Chooses the command line of a program. One file can be all of them, depending on the name by
//! which it is called.

use crate::engine::Engine;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// Runs the command line that the first word names: `rocprofv3` and `rocprof-compute` where a link to
/// `midair` has that name, and `midair` for every other name. Returns the exit code.
pub fn main(words: Vec<OsString>, engine: &dyn Engine) -> u8 {
    let name = words.first().map(Path::new).and_then(Path::file_name);
    match name.and_then(OsStr::to_str) {
        Some("rocprofv3") => crate::rocprofv3::main(words, engine),
        Some("rocprof-compute") => midair_compute::main(words),
        _ => crate::midair::main(words, engine),
    }
}

/// Ends the program's use of its descriptors, and returns this exit code. Call it last, when all output is
/// written.
pub fn end(code: u8) -> ExitCode {
    midair_session::let_go();
    ExitCode::from(code)
}
