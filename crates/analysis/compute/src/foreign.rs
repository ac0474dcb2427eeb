//! AMD's options that are accepted by name but not implemented here. Some are refused, because what
//! they ask for is not built; for the others, a warning says that they have no effect.
//!
//! The names come from AMD's versions from 3.3 (2025) to 3.10 (2026).

use crate::console::Console;
use clap::builder::ValueRange;
use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_failure::{Failure, Kind};

/// How an option is answered.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// An error with a hint at what can be done instead (may be empty).
    NotBuilt(&'static str),
    /// A warning.
    NoEffect,
}
use Answer::{NoEffect, NotBuilt};

/// An option that does nothing here.
#[derive(Debug, Clone, Copy)]
struct Foreign {
    name: &'static str,
    /// Another name of the same option, or nothing.
    alias: &'static str,
    short: Option<char>,
    /// The least and the greatest number of values.
    values: (usize, usize),
    answer: Answer,
}

const fn option(name: &'static str, values: (usize, usize), answer: Answer) -> Foreign {
    Foreign {
        name,
        alias: "",
        short: None,
        values,
        answer,
    }
}

const fn flag(name: &'static str, answer: Answer) -> Foreign {
    option(name, (0, 0), answer)
}

const MANY: usize = usize::MAX;
/// AMD-171.
const BUILT_IN: Answer =
    NotBuilt("there are built-in tables for gfx908, gfx90a, gfx942 and gfx950 only");
const OPERATORS: Answer = NotBuilt("-k takes a regular expression that matches kernel names");

const GENERAL: &[Foreign] = &[option("config-dir", (1, 1), BUILT_IN)];

const PROFILE: &[Foreign] = &[
    flag("spatial-multiplexing", NotBuilt("")),
    flag("pc-sampling", NotBuilt("")),
    option("pc-sampling-method", (1, 1), NotBuilt("")),
    option("pc-sampling-interval", (1, 1), NotBuilt("")),
    flag("torch-trace", OPERATORS),
    flag("triton-trace", OPERATORS),
    flag("ml-api-trace", OPERATORS),
    flag("membw-analysis", NotBuilt("")),
    flag("hip-trace", NoEffect),
    flag("kokkos-trace", NoEffect),
    option("join-type", (1, 1), NoEffect),
    flag("no-native-tool", NoEffect),
    option("rocprofiler-sdk-tool-path", (1, 1), NoEffect),
];

const ANALYZE: &[Foreign] = &[
    option(
        "gui",
        (0, 1),
        NotBuilt("--html FILE writes a page, --output-format db a database for viewers"),
    ),
    flag(
        "tui",
        NotBuilt("`rocprof-compute live` shows tables while the program runs"),
    ),
    flag("list-torch-operators", OPERATORS),
    option("torch-operator", (0, MANY), OPERATORS),
    flag("list-triton-operators", OPERATORS),
    option("triton-operator", (0, MANY), OPERATORS),
    option("kernel-verbose", (1, 1), NoEffect),
    option("report-diff", (0, 1), NoEffect),
    Foreign {
        short: Some('g'),
        ..flag("debug", NoEffect)
    },
    Foreign {
        alias: "sort",
        ..option("roofline-sort", (1, 1), NoEffect)
    },
    option("pc-sampling-sorting-type", (1, 1), NoEffect),
    option("pc-sampling-rows", (1, 1), NoEffect),
    flag("verify-deps", NoEffect),
    flag("dependency", NoEffect),
];

/// Returns the options of one command. The empty name stands for the options of all commands.
fn of(command: &str) -> &'static [Foreign] {
    match command {
        "profile" => PROFILE,
        "analyze" => ANALYZE,
        "" => GENERAL,
        _ => &[],
    }
}

/// Adds the options of a command, hidden from its help.
pub(crate) fn add(mut command: Command, name: &str) -> Command {
    for foreign in of(name) {
        let (least, most) = foreign.values;
        let mut arg = Arg::new(foreign.name)
            .long(foreign.name)
            .hide(true)
            .global(name.is_empty());
        arg = match foreign.values {
            (0, 0) => arg.action(ArgAction::SetTrue),
            (_, MANY) => arg
                .action(ArgAction::Append)
                .num_args(ValueRange::new(least..)),
            _ => arg.num_args(ValueRange::new(least..=most)),
        };
        if let Some(short) = foreign.short {
            arg = arg.short(short);
        }
        if !foreign.alias.is_empty() {
            arg = arg.alias(foreign.alias);
        }
        command = command.arg(arg);
    }
    command
}

/// Answers the options that were given: the first one that is not built is the error; each of the
/// others gets a warning.
///
/// # Errors
/// When an option is not built.
pub(crate) fn answer(matches: &ArgMatches, name: &str, console: &Console) -> Result<(), Failure> {
    let given = |foreign: &&Foreign| {
        matches.value_source(foreign.name) == Some(clap::parser::ValueSource::CommandLine)
    };
    let all: Vec<&Foreign> = GENERAL
        .iter()
        .chain(if name.is_empty() { &[] } else { of(name) })
        .filter(given)
        .collect();
    for foreign in &all {
        if let NotBuilt(instead) = foreign.answer {
            let failure = Failure::new(Kind::NotBuilt, format!("--{} is not built", foreign.name));
            return Err(match instead {
                "" => failure,
                instead => failure.hint(instead),
            });
        }
    }
    for foreign in all {
        console.warning(&format!("--{} has no effect here", foreign.name));
    }
    Ok(())
}
