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
    /// A warning with the reason.
    Needless(&'static str),
}
use Answer::{Needless, NoEffect, NotBuilt};

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
const OPERATORS: Answer = NotBuilt("-k takes a regular expression that matches kernel names");

const PAGES: Answer = NotBuilt(
    "`analyze --html FILE` writes all tables as one page, and `midair live` shows a running process",
);
const ONE_DIRECTORY: Answer = NotBuilt("name each rank's directory by -p DIR");
const AT_ANALYZE: Answer = Needless("profile draws no roofline: give it to analyze, which does");
const NAMES: Answer = Needless("the roofline always names its kernels");

const PROFILE: &[Foreign] = &[
    option("spatial-multiplexing", (0, MANY), NotBuilt("")),
    flag("kernel-names", NAMES),
    Foreign {
        alias: "roofline-sort",
        ..option("sort", (1, 1), AT_ANALYZE)
    },
    Foreign {
        alias: "roofline-data-types",
        short: Some('R'),
        ..option("roofline-data-type", (1, MANY), AT_ANALYZE)
    },
    option("target", (1, 1), NoEffect),
    option("rocprofiler-sdk-library-path", (1, 1), NoEffect),
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
    option("gui", (0, 1), PAGES),
    flag("tui", PAGES),
    flag("random-port", PAGES),
    flag("kernel-names", NAMES),
    flag("spatial-multiplexing", NotBuilt("")),
    option("nodes", (0, MANY), ONE_DIRECTORY),
    flag("list-nodes", ONE_DIRECTORY),
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
    flag("verify-deps", NoEffect),
    flag("dependency", NoEffect),
];

/// Returns the options of one command.
fn of(command: &str) -> &'static [Foreign] {
    match command {
        "profile" => PROFILE,
        "analyze" => ANALYZE,
        _ => &[],
    }
}

/// Adds the options of a command, hidden from its help.
pub(crate) fn add(mut command: Command, name: &str) -> Command {
    for foreign in of(name) {
        let (least, most) = foreign.values;
        let mut arg = Arg::new(foreign.name).long(foreign.name).hide(true);
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
    let all: Vec<&Foreign> = of(name).iter().filter(given).collect();
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
        let why = match foreign.answer {
            Needless(why) => format!(": {why}"),
            _ => String::new(),
        };
        console.warning(&format!("--{} has no effect here{why}", foreign.name));
    }
    Ok(())
}

/// The command that AMD's versions before 3.4 have, with any words.
pub(crate) fn database() -> Command {
    let rest = Arg::new("words")
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true);
    Command::new(DATABASE)
        .hide(true)
        .disable_help_flag(true)
        .arg(rest)
}

/// The name of that command.
pub(crate) const DATABASE: &str = "database";

/// Returns its refusal.
pub(crate) fn no_database() -> Failure {
    Failure::new(Kind::NotBuilt, "the command database is not built")
        .hint("AMD removed it in 3.4; `analyze --output-format db` writes an SQLite database")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{Architecture, OF_DIRECTORY};
    use std::collections::BTreeSet;

    /// Whether a command, or any where it is the whole, has this option.
    fn has(command: &Command, name: &str) -> bool {
        let mut all = command.get_arguments();
        all.any(|arg| arg.get_long() == Some(name))
            || command.get_subcommands().any(|it| has(it, name))
    }

    /// The table from which docs/compatibility.md is made has each architecture.
    #[test]
    fn the_table_of_compatibility_has_the_architectures() {
        let table = include_str!("../../../../api/compatibility.tsv").lines();
        let rows = table.filter_map(|line| line.strip_prefix("compute-gpu\t"));
        let rows: Vec<Vec<&str>> = rows.map(|row| row.split('\t').collect()).collect();
        let of = |state: &str| -> Vec<&str> {
            let of_state = rows.iter().filter(|row| row[2] == state);
            of_state.map(|row| row[0]).collect()
        };
        let all = Architecture::all().iter().map(|it| it.name);
        assert_eq!(of("same"), all.collect::<Vec<_>>());
        assert_eq!(of("differs"), OF_DIRECTORY);
        for name in of("none") {
            assert!(Architecture::named(name).is_none(), "{name}");
        }
    }

    /// The table from which docs/compatibility.md is made has each of these options with its answer, and
    /// has as built only options that are.
    #[test]
    fn the_table_of_compatibility_has_the_same_answers() {
        let table = include_str!("../../../../api/compatibility.tsv");
        let whole = crate::command::command();
        for (part, own) in [("profile", PROFILE), ("analyze", ANALYZE), ("compute", &[])] {
            let command = whole.find_subcommand(part).unwrap_or(&whole);
            let rows = table
                .lines()
                .filter_map(|line| line.strip_prefix(part)?.strip_prefix("\t--"));
            let mut seen: BTreeSet<&str> = BTreeSet::new();
            for row in rows {
                let fields: Vec<&str> = row.split('\t').collect();
                let (name, state) = (fields[0], fields[2]);
                assert!(seen.insert(name), "{part} --{name} is there twice");
                let foreign = own.iter().find(|foreign| foreign.name == name);
                let is_so = match foreign.map(|foreign| foreign.answer) {
                    None => has(command, name) && ["same", "differs"].contains(&state),
                    Some(NotBuilt(_)) => state == "none",
                    Some(NoEffect | Needless(_)) => state == "ignored",
                };
                assert!(is_so, "{part} --{name}: {state}");
            }
            for foreign in own {
                assert!(
                    seen.contains(foreign.name),
                    "{part} --{} is missing",
                    foreign.name
                );
            }
            assert!(seen.len() > 5, "{part}");
        }
    }
}
