//! clap commands built from the table of options, and the options read back from their matches.

use std::ffi::{OsStr, OsString};

use crate::report::Report;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use midair_failure::{Failure, Kind};
use midair_settings::literal::template;
use midair_settings::{Front, Given, Opt, Refusal, Sets, Shape, State, options};

/// Returns the options of a command line.
pub fn options_of(front: Front) -> impl Iterator<Item = &'static Opt> {
    options().filter(move |option| option.front == Front::Both || option.front == front)
}

/// Adds every option of a command line to a command.
pub fn with_options(command: Command, front: Front) -> Command {
    options_of(front).fold(command, |command, option| {
        command.arg(argument(option, front))
    })
}

/// Builds one option of a command line.
pub fn argument(option: &'static Opt, front: Front) -> Arg {
    let built = option.is_built();
    let help = if built {
        option.help.to_owned()
    } else {
        format!("[not built yet] {}", option.help)
    };
    let mut long_help = help.clone();
    if !option.long_help.is_empty() {
        long_help = format!("{long_help}.\n{}", option.long_help);
    }
    if !option.later_words.is_empty() {
        long_help = format!(
            "{long_help}\nNot built yet: {}.",
            option.later_words.join(", ")
        );
    }
    if !option.variables().is_empty() {
        long_help = format!("{long_help}\nSets {}.", option.variables().join(", "));
    }
    let arg = Arg::new(option.long)
        .long(option.long)
        .visible_aliases(option.aliases.iter().copied())
        .help(help)
        .long_help(long_help)
        .help_heading(option.category.heading())
        .hide(option.hidden)
        .hide_short_help(!built)
        // In midair, `--help-all` shows them. In rocprofv3, `--help` does.
        .hide_long_help(!built && front == Front::Midair);
    let arg = match option.short {
        Some(short) => arg.short(short),
        None => arg,
    };
    // rocprofv3 takes AMD's forms: `--opt true`, `-f csv json`. In midair an optional value follows
    // `=`, and a list is written with commas, so that the pid may be anywhere.
    let amd = front == Front::Rocprofv3;
    let arg = match option.shape {
        Shape::Flag => return arg.action(ArgAction::SetTrue),
        Shape::Boolean => arg
            .num_args(0..=1)
            .require_equals(!amd)
            .value_name(match option.all {
                Some(_) => "true|false|all",
                None => "true|false",
            })
            .value_parser(booleans(option.all.is_some()))
            .hide_possible_values(true),
        Shape::Text(name) if let Sets::Path(_) = option.sets => arg
            .num_args(1)
            .value_name(name)
            .value_parser(clap::value_parser!(OsString)),
        Shape::Text(name) | Shape::Number { name, .. } => arg.num_args(1).value_name(name),
        Shape::Duration => arg.num_args(1).value_name("TIME"),
        Shape::OneOf(words) => arg
            .num_args(1)
            .value_name("WORD")
            .value_parser(choices(option, words)),
        Shape::Texts(name) => arg.num_args(1..).value_name(name),
        Shape::Each(name) => arg.num_args(1).action(ArgAction::Append).value_name(name),
        // Each time that the option is given makes a group.
        Shape::Groups(name) if amd => arg.num_args(1..).action(ArgAction::Append).value_name(name),
        Shape::Groups(name) => arg.num_args(1).action(ArgAction::Append).value_name(name),
        Shape::AnyOf(words) => {
            let arg = match amd {
                true => arg.num_args(0..).value_name("WORD"),
                false => arg
                    .num_args(0..=1)
                    .require_equals(true)
                    .action(ArgAction::Append)
                    .value_name("WORD,..."),
            };
            arg.value_delimiter(',')
                .value_parser(choices_or_boolean(option, words))
        }
        Shape::SomeOf(words) if amd => arg
            .num_args(1..)
            .value_name("WORD")
            .value_delimiter(',')
            .value_parser(choices(option, words)),
        Shape::SomeOf(words) => arg
            .num_args(1)
            .action(ArgAction::Append)
            .value_name("WORD,...")
            .value_delimiter(',')
            .value_parser(choices(option, words)),
    };
    // If an option is not built, the refusal must name the option and not the words that follow it.
    match (option.state, option.shape) {
        (State::Built, _) => arg,
        (_, Shape::Boolean) => arg.value_parser(clap::value_parser!(String)),
        _ => arg.num_args(0..).value_parser(clap::value_parser!(String)),
    }
}

fn booleans(all: bool) -> PossibleValuesParser {
    let words = [
        ("true", ["yes", "y", "t", "on", "1"]),
        ("false", ["no", "n", "f", "off", "0"]),
    ];
    let mut values: Vec<PossibleValue> = words
        .map(|(word, others)| PossibleValue::new(word).aliases(others))
        .into();
    values.extend(all.then(|| PossibleValue::new("all")));
    values.into()
}

fn choices_or_boolean(option: &Opt, words: &'static [&'static str]) -> PossibleValuesParser {
    let booleans = ["true", "false"].map(|word| PossibleValue::new(word).hide(true));
    let words = words
        .iter()
        .filter(|word| !option.later_words.contains(*word));
    let values = words.map(|word| PossibleValue::new(*word)).chain(booleans);
    values.collect::<Vec<_>>().into()
}

fn choices(option: &Opt, words: &'static [&'static str]) -> PossibleValuesParser {
    let value =
        |word: &'static str| PossibleValue::new(word).hide(option.later_words.contains(&word));
    words
        .iter()
        .map(|word| value(word))
        .collect::<Vec<_>>()
        .into()
}

/// Reads the options of a command line back.
pub fn given(matches: &ArgMatches, front: Front) -> Result<Given, Failure> {
    let mut given = Given::new();
    // A subcommand may lack some options. clap reports that only with its own assertions on; without them,
    // `get_flag` panics for an option that is not defined (`midair run` of a release build did).
    let defined = |option: &&Opt| matches.try_contains_id(option.long).is_ok();
    for option in options_of(front).filter(defined) {
        let present = match option.shape {
            Shape::Flag => matches
                .try_get_one::<bool>(option.long)
                .is_ok_and(|value| value.copied().unwrap_or(false)),
            _ => matches.value_source(option.long).is_some(),
        };
        if !present {
            continue;
        }
        let is_path = matches!(option.sets, Sets::Path(_));
        let text = |word: &OsStr| match is_path {
            true => Some(template(word.as_encoded_bytes())),
            false => word.to_str().map(str::to_owned),
        };
        let words: Option<Vec<String>> = if let Shape::Groups(_) = option.shape {
            let groups = matches.get_raw_occurrences(option.long);
            let groups = groups.into_iter().flatten();
            groups
                .map(|group| Some(group.map(text).collect::<Option<Vec<_>>>()?.join(" ")))
                .collect()
        } else {
            let raw = matches.get_raw(option.long).into_iter().flatten();
            raw.map(text).collect()
        };
        let Some(words) = words else {
            return Err(Failure::new(
                Kind::Usage,
                format!("--{}: the value is not UTF-8", option.long),
            )
            .hint("use a name in UTF-8 (a link to the file will do)"));
        };
        if let Some(why) = option.not_with_attach
            && attaches(matches, front)
        {
            return Err(Failure::new(Kind::Usage, why));
        }
        given.give(option, &words).map_err(refused)?;
    }
    Ok(given)
}

/// Whether the command line attaches, as opposed to starting a program.
fn attaches(matches: &ArgMatches, front: Front) -> bool {
    let given = |id: &str| {
        matches
            .try_get_raw(id)
            .is_ok_and(|words| words.is_some_and(|mut words| words.next().is_some()))
    };
    match front {
        Front::Rocprofv3 => given("pid"),
        _ => !given("application"),
    }
}

/// Converts a refusal of the settings into a failure of the command line.
pub fn refused(refusal: Refusal) -> Failure {
    let text = refusal.to_string();
    match refusal {
        Refusal::Usage(_) => Failure::new(Kind::Usage, text),
        Refusal::NotBuilt(_) => {
            Failure::new(Kind::NotBuilt, text).hint("omit it, or see --help for what is built")
        }
    }
}

/// The outcome of parsing a command line.
#[derive(Debug)]
pub enum Parsed {
    /// Something to do.
    Matches(ArgMatches),
    /// The text of a help page or the like, to be printed on standard output.
    Text(String),
}

/// Parses a command line.
pub fn parse(command: Command, words: &[OsString]) -> Result<Parsed, Failure> {
    match command.try_get_matches_from(words) {
        Ok(matches) => Ok(Parsed::Matches(matches)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Ok(Parsed::Text(error.render().to_string()))
            }
            _ => Err(usage(&error)),
        },
    }
}

/// An argument that takes all further words as they are, for another program's command line.
pub(crate) fn passed_on(help: &'static str) -> Arg {
    Arg::new("words")
        .num_args(0..)
        .allow_hyphen_values(true)
        .trailing_var_arg(true)
        .value_name("WORDS")
        .value_parser(clap::value_parser!(OsString))
        .help(help)
}

/// Parses a command line. Prints a help page or the like, and returns `None` then.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_or_print(
    command: Command,
    words: &[OsString],
    report: Report,
) -> Result<Option<ArgMatches>, Failure> {
    Ok(match parse(command, words)? {
        Parsed::Matches(matches) => Some(matches),
        Parsed::Text(text) => {
            report.text(text.as_bytes());
            None
        }
    })
}

/// Words that other tools have for a midair value.
const SAME_ELSEWHERE: [(&str, &str); 8] = [
    ("perfetto", "pftrace"),
    ("proto", "pftrace"),
    ("chrome", "kineto"),
    ("pytorch", "kineto"),
    ("db", "rocpd"),
    ("sqlite", "rocpd"),
    ("sqlite3", "rocpd"),
    ("otf", "otf2"),
];

/// Returns the first value that clap finds similar.
fn similar(error: &clap::Error) -> Option<&str> {
    match error.get(ContextKind::SuggestedValue)? {
        ContextValue::String(word) => Some(word),
        ContextValue::Strings(words) => words.first().map(String::as_str),
        _ => None,
    }
}

/// Converts clap's message into one line and a hint.
fn usage(error: &clap::Error) -> Failure {
    let message = error.render().to_string();
    let mut lines = message
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let what = lines.next().unwrap_or("unusable command line");
    let mut what = what.strip_prefix("error: ").unwrap_or(what).to_owned();
    // clap lists missing arguments on lines of their own.
    if let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::MissingRequiredArgument
    {
        what = format!("missing: {}", missing.join(" "));
    }
    // The words that an option takes help as a remedy, too.
    if error.kind() == ErrorKind::InvalidValue
        && let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue)
        && !known.is_empty()
    {
        let word = match error.get(ContextKind::InvalidValue) {
            Some(ContextValue::String(word)) => word.as_str(),
            _ => "",
        };
        let of_others = SAME_ELSEWHERE.iter().find(|(other, _)| *other == word);
        let similar = of_others.map(|(_, ours)| *ours).or_else(|| similar(error));
        let similar = similar.filter(|similar| known.iter().any(|known| known == similar));
        let meant = similar.map_or(String::new(), |word| format!("did you mean {word}? "));
        return Failure::new(Kind::Usage, what)
            .hint(format!("{meant}one of: {}", known.join(", ")));
    }
    // A process or a program that starts with a hyphen is hardly what was meant.
    let tip = message
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "))
        .find(|tip| !tip.starts_with("to pass '"));
    Failure::new(Kind::Usage, what).hint(tip.unwrap_or("see --help"))
}

#[cfg(test)]
mod tests;
