//! Hardware counters and chosen kernels: what is asked for, read from settings as AMD's tool reads it.
//!
//! Source of variables and forms: `docs/sources.md#rocprofv3`.

use crate::settings::{BadValue, MAX_OVERHEAD, Settings};
use std::ops::RangeInclusive;

/// Whether counters are collected (a switch).
pub const COUNTER_COLLECTION: &str = "ROCPROF_COUNTER_COLLECTION";
/// One group of counters: `pmc: A B`.
pub const COUNTERS: &str = "ROCPROF_COUNTERS";
/// Several groups, each on a line.
pub const COUNTER_GROUPS: &str = "ROCPROF_COUNTER_GROUPS";
/// Definitions of further counters: the text of the file that `--extra-counters` names.
pub const EXTRA_COUNTERS: &str = "ROCPROF_EXTRA_COUNTERS_CONTENTS";
/// Groups of counters of whole devices, each on a line as in [`COUNTER_GROUPS`].
pub(crate) const DEVICE_COUNTERS: &str = "MIDAIR_PMC_DEVICE";
/// How often these are read, in milliseconds.
pub const DEVICE_INTERVAL: &str = "MIDAIR_PMC_DEVICE_INTERVAL";
/// Windows of counters are to have the GPU for themselves (a switch).
pub const EXCLUSIVE: &str = "MIDAIR_EXCLUSIVE";
const INCLUDE: &str = "ROCPROF_KERNEL_FILTER_INCLUDE_REGEX";
const EXCLUDE: &str = "ROCPROF_KERNEL_FILTER_EXCLUDE_REGEX";
const RANGE: &str = "ROCPROF_KERNEL_FILTER_RANGE";

/// Starts a group.
pub(crate) const GROUP: &str = "pmc:";
/// Limits a counter to one GPU.
const DEVICE: &str = ":device=";
/// Characters that AMD's tool takes for spaces.
const SPACES: &str = "!@#$%&(),*+-./;<>?@{}^`~|";

/// A counter that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterRequest {
    /// Its name as it was given. Whether such a counter exists has not been checked.
    pub name: String,
    /// The only GPU on which it is counted, from 0 in the order of the KFD nodes (`NAME:device=1`).
    /// None means all GPUs.
    pub device: Option<u32>,
}

/// Groups of counters as the user made them: counters of one group are counted together, if they fit.
pub type CounterGroups = Vec<Vec<CounterRequest>>;

/// Which dispatches are wanted: of which kernels, and which of each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelChoice {
    /// An expression that must be found in a kernel's name.
    pub include: Option<String>,
    /// An expression that must not be found there.
    pub exclude: Option<String>,
    /// Which dispatches of each kernel, counted from 1 where recording started. If it is empty, all
    /// are. Sorted.
    pub iterations: Vec<RangeInclusive<u64>>,
}

impl KernelChoice {
    /// Whether every dispatch is wanted.
    pub fn is_all(&self) -> bool {
        *self == KernelChoice::default()
    }
}

impl Settings {
    /// The groups of counters that are asked for; empty when none are.
    ///
    /// As in AMD's tool, [`COUNTERS`] goes before [`COUNTER_GROUPS`], and counters within a group
    /// are in the order of their names. Here either asks for counters where [`COUNTER_COLLECTION`]
    /// is not set; where it is off, there are none.
    ///
    /// # Errors
    /// [`BadValue`] for a word that is no counter's name, and where there is none though they are asked for.
    pub fn counter_groups(&self) -> Result<CounterGroups, BadValue> {
        let texts = [COUNTERS, COUNTER_GROUPS];
        let named = texts.into_iter().find(|name| self.text(name).is_some());
        match (self.boolean(COUNTER_COLLECTION), named) {
            (Ok(Some(false)), _) | (Ok(None), None) => return Ok(Vec::new()),
            (Ok(Some(true)), None) => {
                let wanted = "is set, but neither ROCPROF_COUNTERS nor ROCPROF_COUNTER_GROUPS names a counter";
                return Err(BadValue::new(COUNTER_COLLECTION, "1", wanted));
            }
            (Err(bad), _) if named.is_none() => return Err(bad),
            _ => {}
        }
        let name = named.unwrap_or_default();
        let text = self.text(name).unwrap_or_default();
        groups_of(name, text)
    }

    /// The groups of counters of whole devices that are asked for; empty when none are.
    ///
    /// # Errors
    /// [`BadValue`] for a word that is no counter's name, where there is none though they are asked for,
    /// and where counters per kernel are asked for as well.
    pub fn device_counter_groups(&self) -> Result<CounterGroups, BadValue> {
        let Some(text) = self.text(DEVICE_COUNTERS) else {
            return Ok(Vec::new());
        };
        let groups = groups_of(DEVICE_COUNTERS, text)?;
        if self.counter_groups().is_ok_and(|own| !own.is_empty()) {
            let wanted = "cannot be combined with counters per kernel (--pmc), which restart the device's counters; use one session for \
                          each";
            return Err(BadValue::new(DEVICE_COUNTERS, text, wanted));
        }
        Ok(groups)
    }

    /// The share of its speed, in percent, that a recording in bursts may cost the application. None
    /// where all is recorded: without the option, at 100, and where counters are asked for, of which
    /// the option then limits the windows.
    ///
    /// # Errors
    /// [`BadValue`] for what is no number from 1 to 100.
    pub fn burst_percent(&self) -> Result<Option<u32>, BadValue> {
        let Some(text) = self.text(MAX_OVERHEAD) else {
            return Ok(None);
        };
        let percent = text.parse().ok().filter(|n| (1..=100).contains(n));
        let Some(percent) = percent else {
            return Err(BadValue::new(
                MAX_OVERHEAD,
                text,
                "must be a number from 1 to 100",
            ));
        };
        Ok((percent < 100 && !self.asks_for_counters()).then_some(percent))
    }

    /// Whether counters are asked for, of kernels or of whole devices.
    pub fn asks_for_counters(&self) -> bool {
        let asks = |groups: Result<CounterGroups, BadValue>| groups.map_or(true, |g| !g.is_empty());
        asks(self.counter_groups()) || asks(self.device_counter_groups())
    }

    /// Returns which dispatches are wanted.
    ///
    /// # Errors
    /// [`BadValue`] for an invalid range. Whether the expressions are valid is checked by whoever
    /// uses them.
    pub fn kernel_choice(&self) -> Result<KernelChoice, BadValue> {
        let text = |name: &str| self.text(name).map(str::to_owned);
        let range = self.text(RANGE).unwrap_or_default();
        let wanted = "is not a range of launches, as in [1-2]";
        Ok(KernelChoice {
            // This is the value that AMD's tool has where nothing is set.
            include: text(INCLUDE).filter(|include| include != ".*"),
            exclude: text(EXCLUDE),
            iterations: iterations(range).ok_or_else(|| BadValue::new(RANGE, range, wanted))?,
        })
    }
}

/// Returns the groups of a variable, one on each line.
fn groups_of(name: &'static str, text: &str) -> Result<CounterGroups, BadValue> {
    let mut groups = CounterGroups::new();
    for line in text.lines() {
        let group = group_of_line(line).map_err(|wanted| BadValue::new(name, line, &wanted))?;
        if !group.is_empty() {
            groups.push(group);
        }
    }
    if groups.is_empty() {
        let wanted = "has no counter, as in 'pmc: SQ_WAVES'";
        return Err(BadValue::new(name, text, wanted));
    }
    Ok(groups)
}

/// Returns the counters of a line, sorted by name and each once. There are none on a line without
/// `pmc:`, or in a comment.
pub(crate) fn group_of_line(line: &str) -> Result<Vec<CounterRequest>, String> {
    let line = line.split('#').next().unwrap_or_default();
    match line.split_once(GROUP) {
        Some((_, names)) => names_of(names),
        None => Ok(Vec::new()),
    }
}

/// The counters of a text, without `pmc:`.
pub(crate) fn names_of(text: &str) -> Result<Vec<CounterRequest>, String> {
    let words = text.split(|c: char| c.is_whitespace() || SPACES.contains(c));
    let words = words.filter(|word| word.contains(|c: char| c.is_ascii_alphanumeric() || c == '_'));
    let mut group = words.map(asked).collect::<Result<Vec<_>, _>>()?;
    group.sort();
    group.dedup();
    Ok(group)
}

fn asked(word: &str) -> Result<CounterRequest, String> {
    let (name, device) = match word.split_once(DEVICE) {
        Some((name, number)) => match number.parse() {
            Ok(number) => (name, Some(number)),
            Err(_) => return Err(format!("'{number}' in {word} is not a device number")),
        },
        None => (word, None),
    };
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("'{word}' is not a counter name"));
    }
    Ok(CounterRequest {
        name: name.to_owned(),
        device,
    })
}

/// Reads numbers and ranges, and returns them sorted and without overlaps: `[1-2], [5]`.
fn iterations(text: &str) -> Option<Vec<RangeInclusive<u64>>> {
    let parts = text.split(['[', ']', ',', ' ']);
    let mut all = Vec::new();
    for part in parts.filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last == 0 {
            return None;
        }
        all.push((first, last));
    }
    all.sort_unstable();
    let mut united: Vec<RangeInclusive<u64>> = Vec::new();
    for (first, last) in all {
        match united.last_mut() {
            Some(before) if first <= before.end().saturating_add(1) => {
                *before = *before.start()..=last.max(*before.end());
            }
            _ => united.push(first..=last),
        }
    }
    Some(united)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(pairs: &[(&str, &str)]) -> Result<Vec<String>, BadValue> {
        let groups = Settings::from_iter(pairs.iter().copied()).counter_groups()?;
        let text = |counter: &CounterRequest| match counter.device {
            Some(device) => format!("{}@{device}", counter.name),
            None => counter.name.clone(),
        };
        let texts = groups
            .iter()
            .map(|group| group.iter().map(text).collect::<Vec<_>>().join(" "));
        Ok(texts.collect())
    }

    #[test]
    fn counters_are_read_as_amds_tool_reads_them() {
        let one = |text: &str| groups(&[(COUNTER_COLLECTION, "1"), (COUNTERS, text)]);
        assert_eq!(
            one("pmc: SQ_WAVES GRBM_COUNT").unwrap(),
            ["GRBM_COUNT SQ_WAVES"]
        );
        assert_eq!(one("pmc: A,B,(A) # C").unwrap(), ["A B"]);
        assert_eq!(one("pmc: A:device=1 A").unwrap(), ["A A@1"]);
        assert_eq!(one("junk pmc:A").unwrap(), ["A"]);
        // A word without a letter, a digit or an underscore is skipped.
        assert_eq!(one("pmc: A = : _ B").unwrap(), ["A B _"]);
        let many = "pmc: A B\n# pmc: X\npmc: C\n\nD";
        assert_eq!(groups(&[(COUNTER_GROUPS, many)]).unwrap(), ["A B", "C"]);
        // A single group comes before several groups.
        let both = [(COUNTERS, "pmc: Z"), (COUNTER_GROUPS, many)];
        assert_eq!(groups(&both).unwrap(), ["Z"]);
    }

    #[test]
    fn none_are_asked_for_where_the_switch_is_off() {
        assert_eq!(groups(&[]).unwrap(), [""; 0]);
        let off = [(COUNTER_COLLECTION, "0"), (COUNTERS, "pmc: A")];
        assert_eq!(groups(&off).unwrap(), [""; 0]);
        assert!(!Settings::from_iter(off).asks_for_counters());
        assert!(Settings::from_iter([(COUNTERS, "pmc: A")]).asks_for_counters());
    }

    /// An empty switch says neither yes nor no. Then the counters that are named say it.
    #[test]
    fn a_switch_without_a_value_is_refused_only_where_no_counter_is_named() {
        let refused = groups(&[(COUNTER_COLLECTION, "")]).unwrap_err();
        assert_eq!(refused.name, COUNTER_COLLECTION);
        for name in [COUNTERS, COUNTER_GROUPS] {
            let named = [(COUNTER_COLLECTION, ""), (name, "pmc: A")];
            assert_eq!(groups(&named).unwrap(), ["A"], "{name}");
        }
    }

    #[test]
    fn bursts_are_for_less_than_all_and_without_counters() {
        let of = |pairs: &[(&str, &str)]| {
            let settings = Settings::from_iter(pairs.iter().copied());
            settings.burst_percent().map_err(|bad| bad.to_string())
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[(MAX_OVERHEAD, "")]), Ok(None));
        for (text, percent) in [
            ("1", Some(1)),
            ("2", Some(2)),
            ("99", Some(99)),
            ("100", None),
        ] {
            assert_eq!(of(&[(MAX_OVERHEAD, text)]), Ok(percent), "{text}");
            for counters in [COUNTERS, DEVICE_COUNTERS] {
                let with = [(MAX_OVERHEAD, text), (counters, "pmc: A")];
                assert_eq!(of(&with), Ok(None), "{text} with {counters}");
            }
        }
        for bad in ["0", "101", "-1", "2.5", "2%", "x"] {
            let wanted = format!("MIDAIR_MAX_OVERHEAD={bad}: must be a number from 1 to 100");
            assert_eq!(of(&[(MAX_OVERHEAD, bad)]), Err(wanted));
            // Counters do not excuse it.
            assert!(of(&[(MAX_OVERHEAD, bad), (COUNTERS, "pmc: A")]).is_err());
        }
    }

    #[test]
    fn counters_of_devices_are_groups_of_their_own_and_alone() {
        let settings = Settings::from_iter([(DEVICE_COUNTERS, "pmc: B A\npmc: C")]);
        let groups = settings.device_counter_groups().unwrap();
        let names = |group: &Vec<CounterRequest>| group.iter().map(|c| c.name.clone()).collect();
        let names: Vec<Vec<String>> = groups.iter().map(names).collect();
        assert_eq!(names, [vec!["A", "B"], vec!["C"]]);
        assert!(settings.asks_for_counters() && settings.counter_groups().unwrap().is_empty());
        let both = Settings::from_iter([(DEVICE_COUNTERS, "pmc: A"), (COUNTERS, "pmc: A")]);
        let refused = both.device_counter_groups().unwrap_err();
        assert!(
            refused.to_string().contains("cannot be combined"),
            "{refused}"
        );
        let empty = Settings::from_iter([(DEVICE_COUNTERS, "A")]);
        assert!(empty.device_counter_groups().is_err());
    }

    #[test]
    fn what_names_no_counter_is_refused() {
        for text in [
            "pmc:",
            "A",
            "pmc: A:device=x",
            "pmc: :device=1",
            "pmc: A=B",
            "pmc: A:B",
        ] {
            let refused = groups(&[(COUNTERS, text)]).unwrap_err();
            assert_eq!(refused.name, COUNTERS, "{text}");
        }
        let refused = groups(&[(COUNTER_COLLECTION, "1")]).unwrap_err();
        assert!(refused.to_string().contains("names a counter"), "{refused}");
    }

    #[test]
    fn ranges_of_launches() {
        assert_eq!(iterations("[1-2], [5]"), Some(vec![1..=2, 5..=5]));
        assert_eq!(iterations("[4-6] 1 [2-3],[9]"), Some(vec![1..=6, 9..=9]));
        assert_eq!(iterations("[1-9], [2-3]"), Some(vec![1..=9]));
        assert_eq!(iterations(""), Some(Vec::new()));
        assert_eq!(
            iterations("1-18446744073709551615, 2"),
            Some(vec![1..=u64::MAX])
        );
        for bad in ["[2-1]", "[a]", "[-2]", "[1-]", "[1-2-3]", "0"] {
            assert_eq!(iterations(bad), None, "{bad}");
        }
        let settings = Settings::from_iter([(RANGE, "[2]"), (INCLUDE, ".*"), (EXCLUDE, "^a")]);
        let choice = settings.kernel_choice().unwrap();
        assert_eq!(
            (choice.include.as_deref(), choice.exclude.as_deref()),
            (None, Some("^a"))
        );
        assert!(!choice.is_all() && Settings::new().kernel_choice().unwrap().is_all());
        assert!(Settings::from_iter([(RANGE, "x")]).kernel_choice().is_err());
    }
}
