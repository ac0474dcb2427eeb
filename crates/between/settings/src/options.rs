//! The one table of options.
//!
//! Each entry says how an option is spelled, which words it takes, which `ROCPROF_*` variables it sets and
//! how, and whether it is built. Known options that are not built stay in the table, so that they are refused
//! by name and not taken for typing mistakes. Source of spelling, shapes and variables:
//! `docs/sources.md#rocprofv3`; the help texts are our own.

mod attach;
mod collect;
mod counters;
mod launch;
mod output;
mod thread_trace;
mod trace;

use crate::counters::{COUNTER_COLLECTION, COUNTER_GROUPS, COUNTERS};
use midair_domain::Ask;

/// The headings of help, man page and reference, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Which process, for how long.
    Attach,
    /// Options that switch on many others.
    Aggregate,
    /// What is recorded.
    Trace,
    /// Hardware counters, counter streams and samples.
    Counters,
    /// Where results go and in which form.
    Output,
    /// Tables and names.
    Summary,
    /// Which part is recorded.
    Filter,
    /// Details of Perfetto traces.
    Perfetto,
    /// Thread trace.
    ThreadTrace,
    /// Starting a program, and options that few people need.
    Advanced,
}

impl Category {
    /// All, in the order in which they are shown.
    pub const ALL: &[Category] = &[
        Category::Attach,
        Category::Aggregate,
        Category::Trace,
        Category::Output,
        Category::Summary,
        Category::Filter,
        Category::Counters,
        Category::Perfetto,
        Category::ThreadTrace,
        Category::Advanced,
    ];

    /// The heading.
    pub fn heading(self) -> &'static str {
        match self {
            Category::Attach => "Attaching",
            Category::Aggregate => "Tracing, several at once",
            Category::Trace => "Tracing",
            Category::Counters => "Counters and sampling",
            Category::Output => "Output",
            Category::Summary => "Summaries and names",
            Category::Filter => "Filters",
            Category::Perfetto => "Perfetto",
            Category::ThreadTrace => "Thread trace",
            Category::Advanced => "Advanced",
        }
    }
}

/// Which command lines have an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// `rocprofv3` and `midair attach`.
    Both,
    /// `rocprofv3` only: AMD's spelling of something that `midair` spells otherwise.
    Rocprofv3,
    /// `midair` only.
    Midair,
}

/// The words that an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// None.
    Flag,
    /// None, or one boolean word: on, off, or not given.
    Boolean,
    /// One text; the string is its name in the help.
    Text(&'static str),
    /// One whole number within the bounds, decimal or `0x`.
    Number {
        /// Name in the help.
        name: &'static str,
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
    },
    /// A duration ([`crate::duration_word`]).
    Duration,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// One or more texts.
    Texts(&'static str),
    /// A text each time that the option is given.
    Each(&'static str),
    /// One or more texts that belong together; each time that the option is given makes a group.
    Groups(&'static str),
    /// One or more of these words.
    SomeOf(&'static [&'static str]),
    /// None, one boolean word, or some of these words. None means all.
    AnyOf(&'static [&'static str]),
}

/// How an option's value becomes settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sets {
    /// It sets none.
    Nothing,
    /// On is `1`; off removes the variable, even an inherited one.
    Switch(&'static str),
    /// On is `1`, off is `0`.
    Either(&'static str),
    /// On is `0`, off is `1`.
    Inverse(&'static str),
    /// The words, as given, in each of these variables; a list is joined with the separator.
    Words(&'static [&'static str], &'static str),
    /// On is `1` in the first variable; the words, joined by commas, are in the second, which is
    /// absent where all are meant.
    SwitchAndWords(&'static str, &'static str),
    /// A directory or file: made absolute by the attacher's working directory.
    Path(&'static str),
    /// The number times the factor.
    Scaled(&'static str, u64),
    /// The words behind a prefix.
    Prefixed(&'static str, &'static str),
    /// Groups of counters, in [`Settings`](crate::Settings)' three variables for them.
    CounterGroups,
    /// Groups of counters, each on a line of this variable.
    Groups(&'static str),
    /// Collection periods, in ns by the unit of another option.
    Periods(&'static str),
}

/// Whether an option works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does.
    Built,
    /// Known, but not built yet. Off is accepted where it can be written, since off is what happens.
    NotBuilt,
}

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opt {
    /// Its long name, without dashes; also its identity in this crate.
    pub long: &'static str,
    /// Other long names.
    pub aliases: &'static [&'static str],
    /// One letter.
    pub short: Option<char>,
    /// What it takes.
    pub shape: Shape,
    /// Under which heading.
    pub category: Category,
    /// One line, no full stop.
    pub help: &'static str,
    /// More, for `--help`, man page and reference; may be empty.
    pub long_help: &'static str,
    /// Its settings.
    pub sets: Sets,
    /// Other options that it switches on unless they were given explicitly.
    pub expands: &'static [&'static str],
    /// The variable that the word `all` sets, alongside what switching the option on does.
    pub all: Option<&'static str>,
    /// Words of its shape that are known but not built.
    pub later_words: &'static [&'static str],
    /// Whether it works.
    pub state: State,
    /// Which command lines have it.
    pub front: Front,
    /// Why it cannot be combined with an attach, if so.
    pub not_with_attach: Option<&'static str>,
    /// Not shown in help.
    pub hidden: bool,
}

impl Opt {
    const fn new(
        long: &'static str,
        category: Category,
        shape: Shape,
        sets: Sets,
        help: &'static str,
    ) -> Opt {
        Opt {
            long,
            aliases: &[],
            short: None,
            shape,
            category,
            help,
            long_help: "",
            sets,
            expands: &[],
            all: None,
            later_words: &[],
            state: State::Built,
            front: Front::Both,
            not_with_attach: None,
            hidden: false,
        }
    }
    const fn short(mut self, letter: char) -> Opt {
        self.short = Some(letter);
        self
    }
    const fn aliases(mut self, aliases: &'static [&'static str]) -> Opt {
        self.aliases = aliases;
        self
    }
    const fn more(mut self, long_help: &'static str) -> Opt {
        self.long_help = long_help;
        self
    }
    const fn expands(mut self, members: &'static [&'static str]) -> Opt {
        self.expands = members;
        self
    }
    const fn all(mut self, variable: &'static str) -> Opt {
        self.all = Some(variable);
        self
    }
    const fn later_words(mut self, words: &'static [&'static str]) -> Opt {
        self.later_words = words;
        self
    }
    const fn later(mut self) -> Opt {
        self.state = State::NotBuilt;
        self
    }
    /// Takes from the domain that the option asks for whether the option works.
    const fn of(self, kind: u8) -> Opt {
        match midair_domain::domain(kind) {
            Some(domain) if domain.built => self,
            _ => self.later(),
        }
    }
    const fn not_with_attach(mut self, why: &'static str) -> Opt {
        self.not_with_attach = Some(why);
        self
    }
    const fn front(mut self, front: Front) -> Opt {
        self.front = front;
        self
    }
    const fn hidden(mut self) -> Opt {
        self.hidden = true;
        self
    }

    /// Whether it works.
    pub fn is_built(&self) -> bool {
        self.state == State::Built
    }

    /// The variables that it sets by itself, without [`Opt::all`].
    pub fn variables(&self) -> Vec<&'static str> {
        match self.sets {
            Sets::Nothing => Vec::new(),
            Sets::Switch(name)
            | Sets::Either(name)
            | Sets::Inverse(name)
            | Sets::Path(name)
            | Sets::Scaled(name, _)
            | Sets::Prefixed(name, _)
            | Sets::Groups(name)
            | Sets::Periods(name) => vec![name],
            Sets::Words(names, _) => names.to_vec(),
            Sets::SwitchAndWords(name, words) => vec![name, words],
            Sets::CounterGroups => vec![COUNTER_COLLECTION, COUNTERS, COUNTER_GROUPS],
        }
    }

    /// Whether this is the option with this long name, or switches that one on where the user did
    /// not mention it.
    pub fn reaches(&self, long: &str) -> bool {
        self.long == long
            || self
                .expands
                .iter()
                .filter_map(|member| option(member))
                .any(|member| member.reaches(long))
    }

    /// Returns the words to choose from, where its shape has some.
    pub fn choices(&self) -> &'static [&'static str] {
        match self.shape {
            Shape::OneOf(words) | Shape::SomeOf(words) | Shape::AnyOf(words) => words,
            _ => &[],
        }
    }
}

/// Returns the option and the setting that ask for a domain first.
pub(crate) const fn ask(kind: u8) -> Ask {
    const NOBODY: Ask = Ask {
        option: "",
        setting: c"",
    };
    match midair_domain::domain(kind) {
        Some(domain) => match domain.asks() {
            [ask, ..] => *ask,
            [] => NOBODY,
        },
        None => NOBODY,
    }
}

/// Every option, in the order of the help.
pub fn options() -> impl Iterator<Item = &'static Opt> {
    let tables = [
        attach::OPTIONS,
        trace::OPTIONS,
        output::OPTIONS,
        collect::OPTIONS,
        counters::OPTIONS,
        thread_trace::OPTIONS,
        launch::OPTIONS,
    ];
    tables.into_iter().flatten()
}

/// The option of this long name (not of an alias).
pub fn option(long: &str) -> Option<&'static Opt> {
    options().find(|option| option.long == long)
}

/// The option that sets this variable, if there is one.
pub fn option_of_variable(variable: &str) -> Option<&'static Opt> {
    options().find(|option| option.variables().contains(&variable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn spellings_are_unique_within_a_front() {
        for front in [Front::Rocprofv3, Front::Midair] {
            let (mut longs, mut shorts) = (BTreeSet::new(), BTreeSet::new());
            for option in
                options().filter(|option| option.front == Front::Both || option.front == front)
            {
                for long in std::iter::once(&option.long).chain(option.aliases) {
                    assert!(longs.insert(*long), "--{long} twice");
                }
                if let Some(short) = option.short {
                    assert!(shorts.insert(short), "-{short} twice");
                }
            }
        }
    }

    #[test]
    fn members_of_aggregates_exist_and_do_not_turn_in_circles() {
        fn depth(option: &Opt, level: usize) {
            assert!(level < 5, "--{} expands in a circle", option.long);
            for member in option.expands {
                let member = super::option(member)
                    .unwrap_or_else(|| panic!("--{} names {member}", option.long));
                depth(member, level + 1);
            }
        }
        options().for_each(|option| depth(option, 0));
    }

    #[test]
    fn a_built_aggregate_has_built_members() {
        fn reaches_built(option: &Opt) -> bool {
            option
                .expands
                .iter()
                .filter_map(|member| super::option(member))
                .any(|m| {
                    m.is_built()
                        && (m.expands.is_empty() || m.sets != Sets::Nothing || reaches_built(m))
                })
        }
        for option in
            options().filter(|o| o.is_built() && !o.expands.is_empty() && o.sets == Sets::Nothing)
        {
            assert!(
                reaches_built(option),
                "--{} is built but nothing that it switches on is",
                option.long
            );
        }
    }

    #[test]
    fn texts_keep_their_form() {
        for option in options() {
            let help = option.help;
            assert!(
                !help.is_empty() && !help.ends_with('.') && help.len() <= 90,
                "--{}: {help:?}",
                option.long
            );
            assert!(
                help.starts_with(|c: char| c.is_uppercase()),
                "--{}: {help:?}",
                option.long
            );
            let long = option.long_help;
            assert!(
                long.is_empty() || long.ends_with('.'),
                "--{}: {long:?}",
                option.long
            );
            assert!(Category::ALL.contains(&option.category));
            for word in option.later_words {
                assert!(
                    option.choices().contains(word),
                    "--{} has no word {word}",
                    option.long
                );
            }
        }
    }

    #[test]
    fn variables_belong_to_one_option() {
        // Upstream, other switches set three of the trace variables as well. Here no two entries may set the
        // same one.
        let mut seen = BTreeSet::new();
        for option in options() {
            for variable in option.variables() {
                assert!(
                    variable.starts_with("ROCP")
                        || variable.starts_with("ROCTX")
                        || crate::settings::OURS.contains(&variable),
                    "{variable}"
                );
                assert!(seen.insert(variable), "{variable} is set by two options");
            }
        }
    }

    /// What a domain says about its options must be true, and what options say about domains, too.
    #[test]
    fn options_and_domains_agree() {
        for domain in &midair_domain::DOMAINS {
            for ask in domain.asks() {
                let option = option(ask.option)
                    .unwrap_or_else(|| panic!("{} names --{}", domain.name, ask.option));
                assert_eq!(option.is_built(), domain.built, "--{}", ask.option);
            }
        }
        for option in options().filter(|option| option.category == Category::Trace) {
            let mut domains = midair_domain::of_option(option.long).peekable();
            assert!(domains.peek().is_some(), "--{} has no domain", option.long);
            if let Sets::Switch(variable) = option.sets {
                let mut asks = domains.flat_map(|domain| domain.asks());
                assert!(
                    asks.any(|ask| ask.option == option.long && ask.name() == variable),
                    "--{} sets {variable}, which asks for nothing",
                    option.long
                );
            }
        }
    }

    #[test]
    fn a_variable_leads_to_the_option_that_sets_it() {
        let of = |variable: &str| option_of_variable(variable).map(|option| option.long);
        assert_eq!(of("ROCPROF_KERNEL_TRACE"), Some("kernel-trace"));
        assert_eq!(of("ROCPROF_OMPT_TRACE_OPERATIONS"), Some("ompt-trace"));
        for variable in [COUNTER_COLLECTION, COUNTERS, COUNTER_GROUPS] {
            assert_eq!(of(variable), Some("pmc"), "{variable}");
        }
        for variable in ["", "kernel-trace", "ROCPROF_HIP_API_TRACE"] {
            assert_eq!(of(variable), None, "{variable}");
        }
    }

    /// What an inherited variable asks for is read by these forms alone while its option is not built.
    #[test]
    fn what_is_not_built_is_switched_on_or_takes_words() {
        for option in options().filter(|option| !option.is_built()) {
            assert!(
                matches!(
                    option.sets,
                    Sets::Nothing | Sets::Switch(_) | Sets::Words(..) | Sets::Prefixed(..)
                ),
                "--{}: {:?}",
                option.long,
                option.sets
            );
        }
    }

    #[test]
    fn aggregates_reach_their_members_and_no_others() {
        let reaches = |long: &str, member: &str| option(long).is_some_and(|it| it.reaches(member));
        assert!(reaches("hip-trace", "hip-runtime-trace"));
        assert!(reaches("sys-trace", "hip-event-trace"));
        assert!(reaches("kernel-trace", "kernel-trace"));
        assert!(!reaches("hip-trace", "hsa-core-trace"));
        assert!(!reaches("hip-runtime-trace", "hip-trace"));
    }

    /// Every option of AMD's command line, as `api/compatibility.tsv` lists them a second time: a slip in the table
    /// shows here.
    #[test]
    fn the_contract_is_covered() {
        let table = include_str!("../../../../api/compatibility.tsv").lines();
        let rows = table.filter_map(|line| line.strip_prefix("rocprofv3\t--"));
        let contract: Vec<&str> = rows.filter_map(|row| row.split('\t').next()).collect();
        assert!(contract.len() > 100, "{contract:?}");
        for long in contract {
            assert!(
                option(long).is_some(),
                "--{long} of the contract is not known"
            );
        }
        let letters = "viodfEsrSDuMTPLAp";
        for letter in letters.chars() {
            assert!(
                options().any(|option| option.short == Some(letter)),
                "-{letter} of the contract is not known"
            );
        }
    }
}
