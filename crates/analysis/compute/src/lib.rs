//! rocprof-compute: what hardware counters tell about the parts of a GPU.
//!
//! * [`architecture`]: panels, tables, metrics and sets of each architecture, as data.
//! * [`expression`]: the language in which metrics are written. `program` and [`evaluate`] compute
//!   them over the dispatches of a [`frame`]. [`sample`] estimates errors where counters took
//!   turns.
//! * [`read`]: workload directories. [`select`]: the chosen parts of them.
//! * [`report`]: filled tables and their output formats. [`analyze`], [`profile`] and
//!   [`live`]: the commands.
//! * [`show`]: any result as tables of text, for `midair show`.
//!
//! Nothing here attaches to a process.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod analyze;
pub mod architecture;
pub mod command;
pub mod console;
pub mod evaluate;
pub mod expression;
mod files;
mod foreign;
pub mod frame;
pub mod live;
mod needs;
mod panels;
pub mod profile;
mod program;
pub mod read;
pub mod report;
pub mod sample;
pub mod samples;
pub mod select;
pub mod show;
pub mod stacks;
pub mod vintage;

pub use architecture::{Architecture, Form};
pub use program::{Lacks, Row, Setting};
pub use vintage::Vintage;

use clap::ArgMatches;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use console::{Console, Level};
use midair_failure::{Failure, Kind, output};
use profile::machine::Machine;
use std::ffi::OsString;

/// Runs the command line. Returns the exit code. Call it first of all: it gives up the rights that
/// the program's file adds to its user's.
pub fn main(words: Vec<OsString>) -> u8 {
    let code = obey(words);
    let Some(failure) = output::lost() else {
        return code;
    };
    let of_the_loss = Console::default().failure(&failure);
    if code == 0 { of_the_loss } else { code }
}

fn obey(words: Vec<OsString>) -> u8 {
    if let Err(refused) = midair_secure::begin(midair_secure::Command::Other) {
        let failure = Failure::new(Kind::Installation, refused.to_string());
        return Console::default().failure(&failure.hint(refused.remedy()));
    }
    let matches = match command::command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Console::default().text(&error.render().to_string());
                return 0;
            }
            _ => return Console::default().failure(&unusable(&error)),
        },
    };
    let mut console = Console {
        level: match (matches.get_flag("quiet"), matches.get_count("verbose")) {
            (true, _) => Level::Error,
            (false, 0) => Level::Normal,
            (false, _) => Level::Info,
        },
    };
    if let Some(word) = std::env::var_os(LEVEL).filter(|word| !word.is_empty()) {
        match level(&word.to_string_lossy()) {
            Some(level) => console.level = level,
            None => console.warning(&format!(
                "{LEVEL}={} has no effect: use ERROR, INFO, DEBUG or TRACE",
                word.to_string_lossy()
            )),
        }
    }
    match run(&matches, &console) {
        Ok(code) => code,
        Err(failure) => console.failure(&failure),
    }
}

/// The variable that says how much is printed, whatever the options say, as with AMD's tool.
const LEVEL: &str = "ROCPROFCOMPUTE_LOGLEVEL";

/// Returns which lines AMD's word stands for. There, INFO is what is printed without any option.
fn level(word: &str) -> Option<Level> {
    match word.to_ascii_uppercase().as_str() {
        "ERROR" => Some(Level::Error),
        "INFO" => Some(Level::Normal),
        "DEBUG" | "TRACE" => Some(Level::Info),
        _ => None,
    }
}

/// Refuses a list of all metrics or blocks together with a choice of some. The sentence is AMD's,
/// with AMD's name of the option (AMD-172).
fn check_lists(matches: &ArgMatches) -> Result<(), Failure> {
    let given = |name: &str| {
        matches.try_contains_id(name).is_ok()
            && matches.value_source(name) == Some(ValueSource::CommandLine)
    };
    let choices = ["block", "speed-of-light", "memory-chart", "roofline"];
    if !choices.iter().any(|name| given(name)) {
        return Ok(());
    }
    let lists = ["list-metrics", "list-blocks", "list-available-metrics"];
    match lists.iter().find(|name| given(name)) {
        Some(name) => Err(
            Failure::new(Kind::Usage, format!("Cannot use --{name} with --blocks"))
                .hint("the list has all blocks: omit -b"),
        ),
        None => Ok(()),
    }
}

/// Returns clap's message as one line and a hint.
fn unusable(error: &clap::Error) -> Failure {
    let message = error.render().to_string();
    let mut lines = message
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let what = lines.next().unwrap_or("unusable command line");
    let what = what.strip_prefix("error: ").unwrap_or(what);
    // Where an option accepts only certain words, clap lists them.
    let possible = lines.find(|line| line.starts_with('['));
    Failure::new(Kind::Usage, what).hint(match possible {
        Some(values) => values.trim_matches(['[', ']']).to_owned(),
        None => "see --help".to_owned(),
    })
}

fn named(matches: &ArgMatches, option: &str) -> Option<&'static Architecture> {
    let name = matches.get_one::<String>(option)?;
    Architecture::named(name)
}

fn run(matches: &ArgMatches, console: &Console) -> Result<u8, Failure> {
    let mode = matches.subcommand();
    let inner = mode.map_or(matches, |(_, matches)| matches);
    let form = match inner.try_get_one::<String>("formulas") {
        Ok(Some(year)) if year == "2026" => Form::Sums,
        Ok(Some(_)) => Form::Means,
        _ => analyze::vintage(inner)?.map_or(Form::Means, Vintage::form),
    };
    check_lists(inner)?;
    if mode.is_some_and(|(name, _)| name == foreign::DATABASE) {
        return Err(foreign::no_database());
    }
    foreign::answer(inner, mode.map_or("", |(name, _)| name), console)?;
    if inner.get_flag("specs") {
        let rows = Machine::find(true)?.system("", "");
        for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
            console.text(&format!("{name:<24} {value}\n"));
        }
        return Ok(0);
    }
    let of_this_machine = |option: &str| {
        let word = inner.get_one::<String>(option);
        word.is_some_and(|word| word == command::THIS_MACHINE)
            || matches!(
                inner.try_get_one::<bool>("list-available-metrics"),
                Ok(Some(true))
            )
    };
    if of_this_machine("list-metrics") {
        let machine = Machine::find(inner.contains_id("config-dir"))?;
        let architecture = panels::chosen(inner, machine.architecture, console)?;
        console.text(&analyze::list_metrics(architecture, form));
        return Ok(0);
    }
    if let Some(architecture) = named(inner, "list-metrics") {
        let architecture = panels::chosen(inner, architecture, console)?;
        console.text(&analyze::list_metrics(architecture, form));
        return Ok(0);
    }
    if let Some(architecture) = named(inner, "list-blocks") {
        let architecture = panels::chosen(inner, architecture, console)?;
        console.text(&analyze::list_blocks(architecture));
        return Ok(0);
    }
    if inner.get_flag("list-sets") {
        // No GPU was found: list the sets of every architecture.
        for architecture in Architecture::all() {
            console.text(&format!(
                "{}\n{}",
                architecture.name,
                analyze::list_sets(architecture)
            ));
        }
        return Ok(0);
    }
    match mode {
        Some(("analyze", matches)) => analyze::run(matches, console).map(|()| 0),
        Some(("profile", matches)) => profile::run(matches, console),
        Some(("live", matches)) => live::run(matches, console),
        _ => Err(Failure::new(Kind::Usage, "no command").hint("see --help")),
    }
}
