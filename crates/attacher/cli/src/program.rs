//! Chooses the command line of a program. One file can be all of them, depending on the name by
//! which it is called. Before that, the rights that the file adds to its user's are given up, or held
//! for a command that attaches.

use crate::engine::Engine;
use crate::report::Report;
use midair_failure::{Failure, Kind, output};
use midair_secure::Command;
use midair_settings::commands;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// Runs the command line that the first word names: `rocprofv3`, `rocprofv3-avail`, `rocprof-compute` and
/// `rocpd` where a link to `midair` has that name, and `midair` for every other name. Returns the exit code. Call it first of
/// all: it gives rights up that other code must not find.
pub fn main(words: Vec<OsString>, engine: &dyn Engine) -> u8 {
    let name = words.first().map(Path::new).and_then(Path::file_name);
    match name.and_then(OsStr::to_str) {
        Some("rocprofv3") => rocprofv3(words, engine),
        Some("rocprof-compute") => midair_compute::main(words),
        Some("rocpd") => without_rights("rocpd", words, crate::rocpd::main),
        Some(midair_collector::PROGRAM) => {
            without_rights(midair_collector::PROGRAM, words, collector)
        }
        Some("rocprofv3-avail") => without_rights("rocprofv3-avail", words, crate::avail::main),
        _ => {
            let code =
                with_rights("midair", &words).unwrap_or_else(|| crate::midair::main(words, engine));
            written("midair", code)
        }
    }
}

/// Runs rocprofv3. Returns the exit code. Call it first of all, as [`main`].
pub fn rocprofv3(words: Vec<OsString>, engine: &dyn Engine) -> u8 {
    let code =
        with_rights("rocprofv3", &words).unwrap_or_else(|| crate::rocprofv3::main(words, engine));
    written("rocprofv3", code)
}

/// Collects for a program that was started under midair.
fn collector(words: Vec<OsString>) -> u8 {
    let words: Vec<String> = (words.into_iter().skip(1))
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    midair_collector::main(&words)
}

/// Runs a program of which no command attaches. Returns the exit code.
fn without_rights(program: &'static str, words: Vec<OsString>, run: fn(Vec<OsString>) -> u8) -> u8 {
    let code = with_rights(program, &words).unwrap_or_else(|| run(words));
    written(program, code)
}

/// Reports output that was lost. Returns the exit code, which is another one than 0 then.
fn written(program: &'static str, code: u8) -> u8 {
    let Some(failure) = output::lost() else {
        return code;
    };
    let of_the_loss = Report::new(program).failure(&failure);
    if code == 0 { of_the_loss } else { code }
}

/// Gives up the rights that this program's file adds to its user's, or holds them for a command that
/// attaches. Returns an exit code where the program must not run.
fn with_rights(program: &'static str, words: &[OsString]) -> Option<u8> {
    let command = match commands::attaches(program, words) {
        true => Command::Attaches,
        false => Command::Other,
    };
    let begun = midair_secure::begin(command).map_err(|refused| {
        Failure::new(Kind::Installation, refused.to_string()).hint(refused.remedy())
    });
    let ready = begun.and_then(|()| match command {
        Command::Attaches => midair_session::require_own_descriptors(),
        Command::Other => Ok(()),
    });
    Some(Report::new(program).failure(&ready.err()?))
}

/// Ends the program's use of its descriptors, and returns this exit code. Call it last, when all output is
/// written.
pub fn end(code: u8) -> ExitCode {
    midair_session::close_shared_descriptors();
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use midair_settings::commands::COMMANDS;

    #[test]
    fn every_command_has_a_row_in_the_table() {
        let of = |program: &str, command: &clap::Command| {
            // A hidden command of AMD's older versions is only refused.
            let all = command.get_subcommands().filter(|it| !it.is_hide_set());
            let mut all: Vec<String> = all.map(|it| it.get_name().to_owned()).collect();
            let rows = COMMANDS.iter().filter(|row| row.program == program);
            let mut rows: Vec<String> = rows.map(|row| row.name.to_owned()).collect();
            all.sort();
            rows.sort();
            assert_eq!(all, rows);
        };
        of("midair", &crate::midair::command());
        of("rocprof-compute", &midair_compute::command::command());
        of("rocpd", &crate::rocpd::command());
        of("rocprofv3-avail", &crate::avail::command());
    }
}
