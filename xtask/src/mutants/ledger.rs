//! The outcomes of mutants over all runs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use serde_json::{Value, json};

use crate::run::{At, Outcome as Done, failed};

/// In a normal distribution, 95 of 100 values lie within this many standard deviations.
const Z: f64 = 1.96;

/// The outcome of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A test failed.
    Caught,
    /// No test failed.
    Missed,
    /// It does not compile, and does not count.
    Unviable,
    /// The tests did not end, which counts as caught.
    Timeout,
}

impl Outcome {
    const ALL: [(&'static str, Outcome); 4] = [
        ("caught", Outcome::Caught),
        ("missed", Outcome::Missed),
        ("unviable", Outcome::Unviable),
        ("timeout", Outcome::Timeout),
    ];

    fn of(word: &str) -> Option<Outcome> {
        let found = Outcome::ALL.iter().find(|(name, _)| *name == word);
        found.map(|(_, outcome)| *outcome)
    }

    fn word(self) -> &'static str {
        let found = Outcome::ALL.iter().find(|(_, outcome)| *outcome == self);
        found.map_or("", |(name, _)| name)
    }
}

/// A mutant of the current tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// Its name as cargo-mutants writes it: `FILE:LINE:COLUMN: CHANGE`.
    pub name: String,
    /// A key that edits elsewhere do not change: the name without line and column, and its number
    /// among those of the same name in the file. It has the form `FILE: CHANGE #N`.
    pub key: String,
}

impl Mutant {
    /// Returns the path of its file.
    pub fn file(&self) -> &str {
        self.name.split(':').next().unwrap_or_default()
    }
}

/// Returns the mutants of these names, in their order.
pub fn mutants<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Mutant> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    names
        .filter_map(|name| {
            let (place, change) = name.split_once(": ")?;
            let file = place.split(':').next()?;
            let called = format!("{file}: {change}");
            let number = seen.entry(called.clone()).or_default();
            *number += 1;
            Some(Mutant {
                name: name.to_owned(),
                key: format!("{called} #{number}"),
            })
        })
        .collect()
}

/// Returns the outcomes in cargo-mutants' `outcomes.json`, by name.
pub fn outcomes(text: &str) -> BTreeMap<String, Outcome> {
    let whole: Value = serde_json::from_str(text).unwrap_or_default();
    let each = |one: &Value| {
        let name = one["scenario"]["Mutant"]["name"].as_str()?;
        let outcome = match one["summary"].as_str()? {
            "CaughtMutant" => Outcome::Caught,
            "MissedMutant" => Outcome::Missed,
            "Unviable" => Outcome::Unviable,
            "Timeout" => Outcome::Timeout,
            _ => return None,
        };
        Some((name.to_owned(), outcome))
    };
    let all = whole["outcomes"].as_array().into_iter().flatten();
    all.filter_map(each).collect()
}

/// A mutant that was tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Made {
    /// The outcome when it was drawn, which counts for the sample.
    first: Outcome,
    /// The latest outcome.
    now: Outcome,
}

#[derive(Debug, Default)]
struct Part {
    /// How many mutants there are.
    population: usize,
    made: BTreeMap<String, Made>,
}

/// A share in percent, with the interval in which it lies with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share {
    caught: usize,
    viable: usize,
    share: f64,
    low: f64,
    high: f64,
}

impl Share {
    /// Returns the share with Wilson's interval.
    fn of(outcomes: impl Iterator<Item = Outcome>) -> Option<Share> {
        let viable: Vec<Outcome> = outcomes.filter(|it| *it != Outcome::Unviable).collect();
        let caught = viable.iter().filter(|it| **it != Outcome::Missed).count();
        if viable.is_empty() {
            return None;
        }
        let n = viable.len() as f64;
        let p = caught as f64 / n;
        let middle = p + Z * Z / (2.0 * n);
        let wide = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let of_100 = |value: f64| 100.0 * value / (1.0 + Z * Z / n);
        Some(Share {
            caught,
            viable: viable.len(),
            share: 100.0 * p,
            low: of_100(middle - wide).max(0.0),
            high: of_100(middle + wide).min(100.0),
        })
    }
}

/// The outcomes of all mutants that were tested.
#[derive(Debug, Default)]
pub struct Ledger(BTreeMap<String, Part>);

impl Ledger {
    /// Reads a file. Without one, the ledger is empty.
    pub fn read(file: &Path) -> Done<Ledger> {
        if !file.exists() {
            return Ok(Ledger::default());
        }
        let text = fs::read_to_string(file).at("reading", file)?;
        match Ledger::parse(&text) {
            Some(ledger) => Ok(ledger),
            None => failed(format!("{} is no list of mutants", file.display())),
        }
    }

    fn parse(text: &str) -> Option<Ledger> {
        let whole: Value = serde_json::from_str(text).ok()?;
        let mut ledger = Ledger::default();
        for (name, part) in whole.as_object()? {
            let mut made = BTreeMap::new();
            for (key, words) in part["made"].as_object()? {
                let outcome = |at: usize| Outcome::of(words[at].as_str()?);
                let (first, now) = (outcome(0)?, outcome(1)?);
                made.insert(key.clone(), Made { first, now });
            }
            let population = part["mutants"].as_u64()? as usize;
            ledger.0.insert(name.clone(), Part { population, made });
        }
        Some(ledger)
    }

    /// Writes the ledger to a new file, which then replaces the old one by a rename.
    pub fn write(&self, file: &Path) -> Done<()> {
        let beside = file.with_extension("json.new");
        fs::write(&beside, self.text()).at("writing", &beside)?;
        fs::rename(&beside, file).at("renaming", &beside)
    }

    fn text(&self) -> String {
        let parts: serde_json::Map<String, Value> = self
            .0
            .iter()
            .map(|(name, part)| {
                let made: serde_json::Map<String, Value> = part
                    .made
                    .iter()
                    .map(|(key, made)| (key.clone(), json!([made.first.word(), made.now.word()])))
                    .collect();
                let value = json!({"mutants": part.population, "made": made});
                (name.clone(), value)
            })
            .collect();
        format!("{:#}\n", Value::Object(parts))
    }

    /// Sets a part's current mutants. A tested mutant whose code is gone does not count any more in
    /// the current share.
    pub fn set_population(&mut self, part: &str, all: &[Mutant]) {
        let part = self.part(part);
        part.population = all.len();
        for (key, made) in &mut part.made {
            if !all.iter().any(|mutant| mutant.key == *key) {
                made.now = Outcome::Unviable;
            }
        }
    }

    /// Adds the outcome of a mutant.
    pub fn add(&mut self, part: &str, key: String, now: Outcome) {
        let made = &mut self.part(part).made;
        made.entry(key)
            .and_modify(|made| made.now = now)
            .or_insert(Made { first: now, now });
    }

    fn part(&mut self, name: &str) -> &mut Part {
        self.0.entry(name.to_owned()).or_default()
    }

    fn made(&self, part: &str, key: &str) -> Option<Made> {
        self.0.get(part)?.made.get(key).copied()
    }

    /// Returns up to `count` mutants that were not tested yet, chosen at random.
    pub fn fresh(&self, part: &str, all: &[Mutant], seed: u64, count: usize) -> Vec<Mutant> {
        let order = |mutant: &Mutant| {
            let mut hasher = DefaultHasher::new();
            (seed, &mutant.key).hash(&mut hasher);
            hasher.finish()
        };
        let is_new = |mutant: &&Mutant| self.made(part, &mutant.key).is_none();
        let mut left: Vec<Mutant> = all.iter().filter(is_new).cloned().collect();
        left.sort_by_key(order);
        left.truncate(count);
        left
    }

    /// Returns the mutants that were missed the last time.
    pub fn missed(&self, part: &str, all: &[Mutant]) -> Vec<Mutant> {
        let is_missed = |mutant: &&Mutant| {
            let made = self.made(part, &mutant.key);
            made.is_some_and(|made| made.now == Outcome::Missed)
        };
        all.iter().filter(is_missed).cloned().collect()
    }

    /// Returns the share of each part that is caught now, in percent.
    pub fn shares(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().filter_map(|(name, part)| {
            let share = Share::of(part.made.values().map(|made| made.now))?;
            Some((name.as_str(), share.share))
        })
    }

    /// Returns a table with a row for each part and one for all.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "part       mutants  made  unviable  hang  caught of the sample  (95 %)         caught now\n",
        );
        let everything: Vec<Made> = self
            .0
            .values()
            .flat_map(|part| part.made.values().copied())
            .collect();
        let population = self.0.values().map(|part| part.population).sum();
        let mut row = |name: &str, population: usize, made: &[Made]| {
            let count = |of: Outcome| made.iter().filter(|one| one.first == of).count();
            let shares = [
                Share::of(made.iter().map(|one| one.first)),
                Share::of(made.iter().map(|one| one.now)),
            ];
            let [Some(first), Some(now)] = shares else {
                return;
            };
            let _ = writeln!(
                text,
                "{name:10} {population:7} {:5} {:9} {:5}  {:4} of {:4} {:5.1} %  {:5.1} to {:5.1} %  {:4} of {:4} {:5.1} %",
                made.len(),
                count(Outcome::Unviable),
                count(Outcome::Timeout),
                first.caught,
                first.viable,
                first.share,
                first.low,
                first.high,
                now.caught,
                now.viable,
                now.share,
            );
        };
        for (name, part) in &self.0 {
            let made: Vec<Made> = part.made.values().copied().collect();
            row(name, part.population, &made);
        }
        row("all", population, &everything);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = [
        "src/a.rs:3:5: replace > with == in decode",
        "src/a.rs:9:7: replace > with == in decode",
        "src/b.rs:3:5: replace f -> Result<(), E> with Ok(())",
        "src/a.rs:1:1: delete ! in g",
    ];

    #[test]
    fn a_mutant_keeps_its_key_when_lines_move() {
        let all = mutants(NAMES.into_iter());
        assert_eq!(all[0].key, "src/a.rs: replace > with == in decode #1");
        assert_eq!(all[1].key, "src/a.rs: replace > with == in decode #2");
        assert_eq!(
            all[2].key,
            "src/b.rs: replace f -> Result<(), E> with Ok(()) #1"
        );
        let moved = mutants(["src/a.rs:77:5: replace > with == in decode"].into_iter());
        assert_eq!(moved[0].key, all[0].key);
        assert_eq!((all[0].file(), all[2].file()), ("src/a.rs", "src/b.rs"));
    }

    #[test]
    fn a_sample_has_none_twice_and_depends_on_the_seed() {
        let names: Vec<String> = (0..100)
            .map(|n| format!("a.rs:{n}:1: change {n}"))
            .collect();
        let all = mutants(names.iter().map(String::as_str));
        let mut ledger = Ledger::default();
        let first = ledger.fresh("p", &all, 1, 30);
        assert_eq!(first, ledger.fresh("p", &all, 1, 30));
        assert_ne!(first, ledger.fresh("p", &all, 2, 30));
        for mutant in &first {
            ledger.add("p", mutant.key.clone(), Outcome::Caught);
        }
        let second = ledger.fresh("p", &all, 1, 100);
        assert_eq!(second.len(), 70);
        assert!(!second.iter().any(|mutant| first.contains(mutant)));
    }

    #[test]
    fn what_was_missed_first_stays_in_the_sample() {
        let all = mutants(NAMES.into_iter());
        let mut ledger = Ledger::default();
        ledger.set_population("p", &all);
        for (mutant, came) in all.iter().zip([
            Outcome::Caught,
            Outcome::Missed,
            Outcome::Unviable,
            Outcome::Timeout,
        ]) {
            ledger.add("p", mutant.key.clone(), came);
        }
        assert_eq!(ledger.missed("p", &all), [all[1].clone()]);
        let before = ledger.shares().next().unwrap();
        assert_eq!(before.0, "p");
        assert!((before.1 - 66.67).abs() < 0.01, "{before:?}");
        ledger.add("p", all[1].key.clone(), Outcome::Caught);
        assert!(ledger.missed("p", &all).is_empty());
        // A mutant whose code was removed stays in the sample.
        ledger.add(
            "p",
            "src/gone.rs: delete ! in g #1".to_owned(),
            Outcome::Missed,
        );
        ledger.set_population("p", &all);
        assert!(ledger.shares().all(|(_, share)| share > 99.9));
        let read = Ledger::parse(&ledger.text()).unwrap();
        assert_eq!(read.text(), ledger.text());
        let table = read.table();
        assert!(
            table.contains("2 of    4  50.0 %") && table.contains("3 of    3 100.0 %"),
            "{table}"
        );
        assert!(Ledger::parse("{\"p\": {}}").is_none());
    }

    #[test]
    fn intervals_are_wilsons() {
        let of = |caught: usize, missed: usize| {
            let all = [vec![Outcome::Caught; caught], vec![Outcome::Missed; missed]].concat();
            Share::of(all.into_iter())
        };
        // Compared with published tables of Wilson's interval: 9 of 10, and 10 of 10.
        let share = of(9, 1).unwrap();
        assert!(
            (share.low - 59.6).abs() < 0.1 && (share.high - 98.2).abs() < 0.1,
            "{share:?}"
        );
        let share = of(10, 0).unwrap();
        assert!(
            (share.low - 72.2).abs() < 0.1 && share.high > 99.9,
            "{share:?}"
        );
        assert_eq!(of(0, 0), None);
    }

    #[test]
    fn outcomes_are_found_by_name() {
        let text = r#"{"outcomes": [
            {"scenario": "Baseline", "summary": "Success"},
            {"scenario": {"Mutant": {"name": "a"}}, "summary": "CaughtMutant"},
            {"scenario": {"Mutant": {"name": "b"}}, "summary": "MissedMutant"},
            {"scenario": {"Mutant": {"name": "c"}}, "summary": "Unviable"},
            {"scenario": {"Mutant": {"name": "d"}}, "summary": "Timeout"}]}"#;
        let found: Vec<(String, Outcome)> = outcomes(text).into_iter().collect();
        let expected = [
            ("a", Outcome::Caught),
            ("b", Outcome::Missed),
            ("c", Outcome::Unviable),
            ("d", Outcome::Timeout),
        ];
        assert_eq!(found, expected.map(|(name, came)| (name.to_owned(), came)));
    }
}
