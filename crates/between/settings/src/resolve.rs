//! Computes the settings of one attach from the options given and the settings inherited.
//!
//! Precedence, from strong to weak: an option given, an aggregate that switches it on, an inherited
//! variable, a default. This is AMD's order except in two points, where AMD's differs by accident:
//! an option that says *off* also removes an inherited variable, and `--output-format` stands alone
//! instead of being appended to the inherited formats.

use midair_domain::{Ask, DOMAINS, Domain};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::counters::{COUNTER_COLLECTION, COUNTER_GROUPS, COUNTERS, EXCLUSIVE, GROUP, names_of};
use crate::literal::{BYTE, literal};
use crate::options::{self, Opt, Sets, Shape, State, option, options};
use crate::periods::{self, COLLECTION_PERIOD};
use crate::sampling;
use crate::settings::{CUPTI, HIP_EVENT_TRACE, HIP_GRAPH_TRACE, OUTPUT_PATH, Settings};
use crate::traces;
use crate::words::{boolean_word, duration_word};

/// Used when no format is asked for, as in AMD's tool.
const DEFAULT_FORMAT: &str = "rocpd";

/// The value of one option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// On or off.
    Switch(bool),
    /// A number.
    Number(u64),
    /// A duration.
    Duration(std::time::Duration),
    /// One word or text.
    Text(String),
    /// Several.
    Texts(Vec<String>),
}

/// Why an option or its words are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A usage error: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Known, but not built: the option in AMD's spelling.
    #[error("{0} is known but not built yet")]
    NotBuilt(String),
}

impl Opt {
    /// Reads the words that followed this option. Each word of [`Shape::Groups`] is a whole group.
    /// `Ok(None)` says that the option asks for nothing: it is not built, and it was switched off.
    pub fn read(&self, words: &[String]) -> Result<Option<Value>, Refusal> {
        let long = self.long;
        let usage = |text: String| Err(Refusal::Usage(text));
        match self.state {
            State::Built => {}
            State::NotBuilt => {
                let off = self.shape == Shape::Boolean
                    && matches!(words, [word] if boolean_word(word) == Some(false));
                return if off {
                    Ok(None)
                } else {
                    Err(Refusal::NotBuilt(format!("--{long}")))
                };
            }
        }
        let one = || match words {
            [word] => Ok(word.as_str()),
            _ => Err(Refusal::Usage(format!("--{long} takes one value"))),
        };
        let value = match self.shape {
            Shape::Flag => Value::Switch(true),
            Shape::Boolean if words.is_empty() => Value::Switch(true),
            Shape::Boolean if self.all.is_some() && one()? == "all" => Value::Switch(true),
            Shape::Boolean => match boolean_word(one()?) {
                Some(on) => Value::Switch(on),
                None if self.all.is_some() => {
                    return usage(format!(
                        "--{long} takes true, false or all, not '{}'",
                        one()?
                    ));
                }
                None => return usage(format!("--{long} takes true or false, not '{}'", one()?)),
            },
            Shape::Text(_) if one()?.is_empty() => return usage(format!("--{long} is empty")),
            Shape::Text(_) => Value::Text(one()?.to_owned()),
            Shape::Number { min, max, .. } => {
                let word = one()?;
                let parsed = match word.strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16),
                    None => word.parse(),
                };
                match parsed {
                    Ok(number) if (min..=max).contains(&number) => Value::Number(number),
                    Ok(_) => {
                        return usage(format!("--{long} must be from {min} to {max}, not {word}"));
                    }
                    Err(_) => return usage(format!("--{long} takes a whole number, not '{word}'")),
                }
            }
            Shape::Duration => match duration_word(one()?) {
                Some(duration) => Value::Duration(duration),
                None => {
                    return usage(format!(
                        "--{long} takes a time such as 2s or 500ms, not '{}'",
                        one()?
                    ));
                }
            },
            Shape::OneOf(_) => {
                self.check_choice(one()?)?;
                Value::Text(one()?.to_owned())
            }
            Shape::Texts(_) | Shape::Each(_) | Shape::Groups(_) | Shape::SomeOf(_)
                if words.is_empty() =>
            {
                return usage(format!("--{long} needs a value"));
            }
            Shape::Texts(_) | Shape::Each(_) => Value::Texts(words.to_vec()),
            Shape::Groups(_) => {
                for word in words {
                    match names_of(word) {
                        Ok(names) if !names.is_empty() => {}
                        Ok(_) => return usage(format!("--{long} '{word}' is not a counter name")),
                        Err(why) => return usage(format!("--{long}: {why}")),
                    }
                }
                Value::Texts(words.to_vec())
            }
            Shape::AnyOf(_) if words.is_empty() => Value::Switch(true),
            Shape::AnyOf(_)
                if let [word] = words
                    && let Some(on) = boolean_word(word) =>
            {
                Value::Switch(on)
            }
            Shape::SomeOf(_) | Shape::AnyOf(_) => {
                // AMD's separator in the variable is a comma, and people type it on the command line, too.
                let mut chosen: Vec<String> = Vec::new();
                for word in words.iter().flat_map(|word| word.split(',')) {
                    self.check_choice(word)?;
                    if !chosen.iter().any(|earlier| earlier == word) {
                        chosen.push(word.to_owned());
                    }
                }
                Value::Texts(chosen)
            }
        };
        Ok(Some(value))
    }

    fn check_choice(&self, word: &str) -> Result<(), Refusal> {
        let long = self.long;
        if !self.choices().contains(&word) {
            return Err(Refusal::Usage(format!(
                "--{long} takes {}, not '{word}'",
                self.choices().join(", ")
            )));
        }
        if self.later_words.contains(&word) {
            return Err(Refusal::NotBuilt(format!("--{long} {word}")));
        }
        Ok(())
    }
}

/// The options given, by long name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    values: BTreeMap<&'static str, Value>,
    /// The variables that the word `all` sets.
    all: BTreeSet<&'static str>,
}

impl Given {
    /// Makes an empty set.
    pub fn new() -> Given {
        Given::default()
    }

    /// Reads one option's words and keeps the value. A later value replaces an earlier one.
    pub fn give(&mut self, option: &Opt, words: &[String]) -> Result<(), Refusal> {
        if let Some(value) = option.read(words)? {
            self.values.insert(option.long, value);
            if matches!(words, [word] if word == "all") {
                self.all.extend(option.all);
            }
        }
        Ok(())
    }

    /// The value given for an option.
    pub fn get(&self, long: &str) -> Option<&Value> {
        self.values.get(long)
    }

    /// A number that was given.
    pub fn number(&self, long: &str) -> Option<u64> {
        match self.get(long) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A duration that was given.
    pub fn duration(&self, long: &str) -> Option<std::time::Duration> {
        match self.get(long) {
            Some(Value::Duration(duration)) => Some(*duration),
            _ => None,
        }
    }

    /// The texts of an option that has several; none where it was not given.
    pub fn texts(&self, long: &str) -> &[String] {
        match self.get(long) {
            Some(Value::Texts(texts)) => texts,
            _ => &[],
        }
    }

    /// A word that was given.
    pub fn text(&self, long: &str) -> Option<&str> {
        match self.get(long) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether an option was given and is on. Words that choose a part of what an option records
    /// switch it on.
    pub fn is_on(&self, long: &str) -> bool {
        let is_choice = || option(long).is_some_and(|it| matches!(it.shape, Shape::AnyOf(_)));
        match self.get(long) {
            Some(Value::Switch(on)) => *on,
            Some(Value::Texts(_)) => is_choice(),
            _ => false,
        }
    }

    /// The traces that were named individually, or through the aggregate of their runtime, in the order of
    /// the table. Traces that only a wide aggregate switches on are left out.
    pub fn traces_by_name(&self) -> Vec<&'static str> {
        const WIDE: [&str; 2] = ["sys-trace", "runtime-trace"];
        options()
            .filter(|option| {
                matches!(
                    option.category,
                    options::Category::Trace | options::Category::Aggregate
                ) && !WIDE.contains(&option.long)
                    && self.is_on(option.long)
            })
            .map(|option| option.long)
            .collect()
    }

    /// Whether any option says what to record, aggregates included.
    pub fn asks_for_traces(&self) -> bool {
        options().any(|option| {
            matches!(
                option.category,
                options::Category::Trace | options::Category::Aggregate
            ) && self.is_on(option.long)
        }) || ["pmc", "pmc-device"]
            .iter()
            .any(|long| self.get(long).is_some())
    }
}

/// The outcome of [`resolve`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// What goes to the target and to the writers.
    pub settings: Settings,
    /// Members of the aggregates that are not built and were left out, by long name.
    pub left_out: Vec<&'static str>,
    /// Inherited variables that ask for something that is not built: the name, and the option that it stands
    /// for.
    pub without_effect: Vec<(String, &'static str)>,
}

impl Resolved {
    /// Whether anything is to be recorded.
    pub fn records_something(&self) -> bool {
        self.settings.record_something()
    }
}

impl Settings {
    /// Whether anything is to be recorded.
    pub fn record_something(&self) -> bool {
        trace_switches().any(|(_, variable)| self.is_on(variable))
            || self.asks_for_counters()
            || self.is_on(sampling::PC_SAMPLING)
    }
}

/// The built switches of single traces, with their variables.
pub(crate) fn trace_switches() -> impl Iterator<Item = (&'static Opt, &'static str)> {
    options()
        .filter(|option| option.category == options::Category::Trace && option.is_built())
        .filter_map(|option| match option.sets {
            Sets::Switch(variable) | Sets::SwitchAndWords(variable, _) => Some((option, variable)),
            _ => None,
        })
}

/// Determines the settings. `cwd` is the attacher's working directory, absolute. If it is not known,
/// what is relative stays so, as `%cwd%`.
pub fn resolve(
    given: &Given,
    inherited: &Settings,
    cwd: Option<&Path>,
) -> Result<Resolved, Refusal> {
    let cwd = &cwd.map_or_else(|| "%cwd%".to_owned(), literal);
    let mut values = given.values.clone();
    let mut left_out = Vec::new();
    // In the order of the table: wide aggregates precede narrow ones.
    for option in options().filter(|option| !option.expands.is_empty()) {
        if values.get(option.long) == Some(&Value::Switch(true)) {
            expand(option, &mut values, &mut left_out);
        }
    }
    let mut settings = inherited.clone();
    let without_effect = find_without_effect(inherited);
    for (long, value) in &values {
        if let Some(option) = option(long) {
            apply(option, value, &mut settings, cwd);
        }
    }
    for variable in &given.all {
        settings.set(*variable, "1");
    }
    settle_device_work(given, inherited, &mut settings);
    settle_periods(&values, &mut settings)?;
    check_formats(&settings)?;
    check_cupti(&settings)?;
    let is_on = settings.is_on(sampling::PC_SAMPLING);
    sampling::check(is_on, |name| settings.text(name)).map_err(Refusal::Usage)?;
    if let Some(Value::Number(interval)) = values.get("att-activity") {
        let [counters, every] = traces::ACTIVITY_SETS;
        settings.set(counters, traces::ACTIVITY);
        settings.set(every, interval.to_string());
    }
    settings.thread_trace().map_err(Refusal::Usage)?;
    settle_counters(&mut settings)?;
    settle_names(&mut settings);
    if settings.text("ROCPROF_OUTPUT_FORMAT").is_none() {
        settings.set("ROCPROF_OUTPUT_FORMAT", DEFAULT_FORMAT);
    }
    let path = settings.text(OUTPUT_PATH).unwrap_or_default();
    let path = absolute(path, cwd);
    settings.set(OUTPUT_PATH, path);
    Ok(Resolved {
        settings,
        left_out,
        without_effect,
    })
}

/// Launches of graphs and events come with their packets, for which queues are followed as for
/// kernels, and that costs a program more than calls do. So the trace of calls brings them only where
/// kernels are recorded.
fn settle_device_work(given: &Given, inherited: &Settings, settings: &mut Settings) {
    for (option, setting) in [
        ("hip-graph-trace", HIP_GRAPH_TRACE),
        ("hip-event-trace", HIP_EVENT_TRACE),
    ] {
        let is_asked = given.values.contains_key(option) || inherited.is_on(setting);
        if !is_asked && !settings.is_on("ROCPROF_KERNEL_TRACE") {
            settings.remove(setting);
        }
    }
}

fn expand(
    option: &Opt,
    values: &mut BTreeMap<&'static str, Value>,
    left_out: &mut Vec<&'static str>,
) {
    for member in option
        .expands
        .iter()
        .filter_map(|member| self::option(member))
    {
        if !member.is_built() {
            if !left_out.contains(&member.long) {
                left_out.push(member.long);
            }
            continue;
        }
        values.entry(member.long).or_insert(Value::Switch(true));
        if values.get(member.long) == Some(&Value::Switch(true)) {
            expand(member, values, left_out);
        }
    }
}

fn apply(option: &Opt, value: &Value, settings: &mut Settings, cwd: &str) {
    let digit = |on: bool| if on { "1" } else { "0" };
    match (option.sets, value) {
        (Sets::Switch(name), Value::Switch(true)) => settings.set(name, "1"),
        (Sets::Switch(name), Value::Switch(false)) => settings.remove(name),
        (Sets::SwitchAndWords(name, words), value) => {
            match value {
                Value::Switch(false) => settings.remove(name),
                _ => settings.set(name, "1"),
            }
            match value {
                Value::Texts(chosen) if !chosen.iter().any(|word| word == "all") => {
                    settings.set(words, chosen.join(","));
                }
                _ => settings.remove(words),
            }
        }
        (Sets::Either(name), Value::Switch(on)) => settings.set(name, digit(*on)),
        (Sets::Inverse(name), Value::Switch(on)) => settings.set(name, digit(!*on)),
        (Sets::Path(name), Value::Text(path)) => settings.set(name, absolute(path, cwd)),
        (Sets::Scaled(name, factor), Value::Number(number)) => {
            settings.set(name, number.saturating_mul(factor).to_string())
        }
        (Sets::Prefixed(name, prefix), Value::Texts(words)) => {
            settings.set(name, format!("{prefix}{}", words.join(" ")))
        }
        (Sets::CounterGroups, Value::Texts(groups)) => {
            for name in [COUNTERS, COUNTER_GROUPS] {
                settings.remove(name);
            }
            let lines: Vec<String> = groups.iter().map(|g| format!("{GROUP} {g}")).collect();
            let name = match &lines[..] {
                [_] => COUNTERS,
                _ => COUNTER_GROUPS,
            };
            settings.set(name, lines.join("\n"));
            settings.set(COUNTER_COLLECTION, "1");
        }
        (Sets::Groups(name), Value::Texts(groups)) => {
            let lines: Vec<String> = groups.iter().map(|g| format!("{GROUP} {g}")).collect();
            settings.set(name, lines.join("\n"));
        }
        // These two words ask for a listing and are not levels.
        (Sets::Words(..), Value::Text(word))
            if option.long == "log-level" && matches!(word.as_str(), "env" | "config") => {}
        (Sets::Words(names, separator), value) => {
            let text = match value {
                Value::Text(text) => text.clone(),
                Value::Texts(texts) => texts.join(separator),
                Value::Number(number) => number.to_string(),
                Value::Switch(on) => digit(*on).to_owned(),
                Value::Duration(duration) => duration.as_millis().to_string(),
            };
            for name in names {
                settings.set(*name, text.clone());
            }
        }
        _ => {}
    }
}

/// Makes a path absolute below `cwd`, a text without keys. A path that starts with a key (`%cwd%`, `{cwd}`, `$env{HOME}`) is left to the code
/// that replaces keys: the result may be absolute.
fn absolute(path: &str, cwd: &str) -> String {
    let is_key = path.starts_with(['/', '%', '{', '$']);
    if is_key && !path.starts_with(&format!("%{BYTE}")) {
        return path.to_owned();
    }
    let path = path.strip_prefix("./").unwrap_or(path);
    match path {
        "" | "." => cwd.to_owned(),
        _ => format!("{}/{path}", cwd.trim_end_matches('/')),
    }
}

/// Returns the settings that ask for a domain, besides the variable that the domain's option sets.
/// Each comes with its option.
fn companions() -> impl Iterator<Item = &'static Ask> {
    DOMAINS.iter().flat_map(Domain::asks).filter(|ask| {
        option(ask.option).is_some_and(|option| !option.variables().contains(&ask.name()))
    })
}

/// Returns the inherited variables that would switch on something that is not built.
fn find_without_effect(inherited: &Settings) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for option in options().filter(|option| !option.is_built()) {
        for variable in option.variables() {
            let asks = match option.sets {
                Sets::Switch(_) => inherited.is_on(variable),
                _ => inherited.text(variable).is_some(),
            };
            if asks {
                found.push((variable.to_owned(), option.long));
            }
        }
    }
    for ask in companions() {
        let built = option(ask.option).is_some_and(Opt::is_built);
        if !built && inherited.is_on(ask.name()) {
            found.push((ask.name().to_owned(), ask.option));
        }
    }
    found
}

/// Refuses a relative path, because it would be relative to another process's directory.
fn check_cupti(settings: &Settings) -> Result<(), Refusal> {
    match settings.text(CUPTI) {
        Some(path) if !path.starts_with('/') => Err(Refusal::Usage(format!(
            "--cupti requires an absolute path, as the process sees it, not '{path}'"
        ))),
        _ => Ok(()),
    }
}

/// Sets the switch for counters where counters are asked for. They may come from the environment,
/// and a target looks at the switch.
fn settle_counters(settings: &mut Settings) -> Result<(), Refusal> {
    let refused = |bad: crate::BadValue| Refusal::Usage(bad.to_string());
    if !settings.counter_groups().map_err(refused)?.is_empty() {
        settings.set(COUNTER_COLLECTION, "1");
    }
    let of_devices = !settings
        .device_counter_groups()
        .map_err(refused)?
        .is_empty();
    if settings.is_on(EXCLUSIVE) && (of_devices || !settings.asks_for_counters()) {
        return Err(Refusal::Usage("--exclusive requires --pmc".to_owned()));
    }
    settings.kernel_choice().map_err(refused)?;
    settings.burst_percent().map_err(refused)?;
    Ok(())
}

/// Has ranges recorded where kernels are to be named after them.
fn settle_names(settings: &mut Settings) {
    let has_kernels = settings.is_on("ROCPROF_KERNEL_TRACE") || settings.asks_for_counters();
    if has_kernels && settings.is_on("ROCPROF_KERNEL_RENAME") {
        settings.set("ROCPROF_MARKER_API_TRACE", "1");
    }
}

/// Sets the collection periods, and checks the environment's.
fn settle_periods(
    values: &BTreeMap<&'static str, Value>,
    settings: &mut Settings,
) -> Result<(), Refusal> {
    if let Some(Value::Texts(words)) = values.get("collection-period") {
        let unit = match values.get("collection-period-unit") {
            Some(Value::Text(unit)) => unit,
            _ => "sec",
        };
        settings.set(COLLECTION_PERIOD, periods::variable(words, unit)?);
    }
    let periods = settings
        .collection_periods()
        .map_err(|bad| Refusal::Usage(bad.to_string()))?;
    // As AMD's tool has it: both decide when the recording starts.
    if !periods.is_empty() && settings.is_on("ROCPROF_SELECTED_REGIONS") {
        return Err(Refusal::Usage(
            "--collection-period and --selected-regions cannot be combined".to_owned(),
        ));
    }
    // Both decide when the recording is on.
    if !periods.is_empty() && matches!(settings.burst_percent(), Ok(Some(_))) {
        return Err(Refusal::Usage(
            "--collection-period and --max-overhead cannot be combined without counters".to_owned(),
        ));
    }
    Ok(())
}

/// Checks that formats are known and built, since they may come from the environment, too.
fn check_formats(settings: &Settings) -> Result<(), Refusal> {
    let Some(option) = option("output-format") else {
        return Ok(());
    };
    settings
        .list("ROCPROF_OUTPUT_FORMAT", ',')
        .into_iter()
        .try_for_each(|word| option.check_choice(word))
}

#[cfg(test)]
mod tests;
