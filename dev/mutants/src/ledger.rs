//! The outcomes of a part's mutants, and the table of all parts.
//!
//! All outcomes are kept below `target/mutants`, so that a run goes on where the last one stopped.
//! `bench-results/mutants.json` has the sums and the names of those that were missed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use midair_dev_kit::run::{At, Outcome as Done, failed};

/// In a normal distribution, 95 of 100 values lie within this many standard deviations.
const Z: f64 = 1.96;

/// The outcome of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A test failed.
    Caught,
    /// No test failed.
    Missed,
    /// The tests did not end, which counts as caught.
    Timeout,
}

/// Returns keys that edits elsewhere do not change: a mutant's name without line and column, and its
/// number among the mutants of the same name in the file. They have the form `FILE: CHANGE #N`.
pub fn keys(names: &[String]) -> Vec<String> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let key = |name: &String| {
        let (place, change) = name.split_once(": ").unwrap_or((name, ""));
        let called = format!("{}: {change}", file(place));
        let number = seen.entry(called.clone()).or_default();
        *number += 1;
        format!("{called} #{number}")
    };
    names.iter().map(key).collect()
}

/// Returns the path of a mutant's file.
pub fn file(name: &str) -> &str {
    name.split(':').next().unwrap_or_default()
}

/// The outcomes of a part's mutants by their keys.
pub type Outcomes = BTreeMap<String, Outcome>;

/// Reads the outcomes of earlier runs, of which there may be none.
pub fn read_outcomes(file: &Path) -> Done<Outcomes> {
    if !file.exists() {
        return Ok(Outcomes::new());
    }
    let text = fs::read_to_string(file).at("reading", file)?;
    match serde_json::from_str(&text) {
        Ok(outcomes) => Ok(outcomes),
        Err(error) => failed(format!("{}: {error}", file.display())),
    }
}

/// Reads the names of the tests that were there when all mutants were made.
pub fn read_names(file: &Path) -> Done<BTreeSet<String>> {
    let text = fs::read_to_string(file).at("reading", file)?;
    match serde_json::from_str(&text) {
        Ok(names) => Ok(names),
        Err(error) => failed(format!("{}: {error}", file.display())),
    }
}

/// Writes a value to a new file, which then replaces the old one by a rename.
pub fn write(value: &impl Serialize, file: &Path) -> Done<()> {
    let text = match serde_json::to_string_pretty(value) {
        Ok(text) => text + "\n",
        Err(error) => return failed(format!("{}: {error}", file.display())),
    };
    let beside = file.with_extension("json.new");
    fs::write(&beside, text).at("writing", &beside)?;
    fs::rename(&beside, file).at("renaming", &beside)
}

/// A share in percent, with the interval in which it lies with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Share {
    share: f64,
    low: f64,
    high: f64,
}

impl Share {
    /// Returns the share with Wilson's interval. When all were made, the interval is the share.
    fn of(caught: usize, made: usize, all: usize) -> Option<Share> {
        if made == 0 {
            return None;
        }
        let n = made as f64;
        let p = caught as f64 / n;
        let of_100 = |value: f64| (100.0 * value).clamp(0.0, 100.0);
        if made >= all {
            let share = of_100(p);
            return Some(Share {
                share,
                low: share,
                high: share,
            });
        }
        let middle = p + Z * Z / (2.0 * n);
        let wide = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        Some(Share {
            share: of_100(p),
            low: of_100((middle - wide) / (1.0 + Z * Z / n)),
            high: of_100((middle + wide) / (1.0 + Z * Z / n)),
        })
    }
}

/// What is known of a part.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The commit of the last run.
    pub commit: String,
    /// How many tests there were.
    pub tests: usize,
    /// How many more were left out, because they failed without a mutant.
    pub left_out: usize,
    /// How many mutants cargo-mutants lists.
    pub mutants: usize,
    /// Those that do not compile.
    pub unviable: usize,
    /// Those that cannot be put behind a switch, and were not made.
    pub not_made: usize,
    pub caught: usize,
    /// Those with which the tests did not end.
    pub hang: usize,
    /// The keys of those that no test noticed.
    pub missed: Vec<String>,
}

impl Part {
    /// How many were made.
    fn made(&self) -> usize {
        self.caught + self.hang + self.missed.len()
    }

    /// How many can be made.
    fn viable(&self) -> usize {
        self.mutants - self.unviable - self.not_made
    }

    /// Returns the share that is caught, in percent.
    pub fn share(&self) -> Option<f64> {
        let share = Share::of(self.caught + self.hang, self.made(), self.viable());
        Some(share?.share)
    }
}

/// All parts.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ledger(pub BTreeMap<String, Part>);

impl Ledger {
    /// Reads a file. Without one, the ledger is empty.
    pub fn read(file: &Path) -> Done<Ledger> {
        if !file.exists() {
            return Ok(Ledger::default());
        }
        let text = fs::read_to_string(file).at("reading", file)?;
        match serde_json::from_str(&text) {
            Ok(ledger) => Ok(ledger),
            Err(error) => failed(format!("{}: {error}", file.display())),
        }
    }

    /// Returns a table with a row for each part.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "part       mutants  unviable  not made   made  caught  hang  missed   share   95 %\n",
        );
        for (name, part) in &self.0 {
            let caught = part.caught + part.hang;
            let Some(share) = Share::of(caught, part.made(), part.viable()) else {
                continue;
            };
            let _ = writeln!(
                text,
                "{name:10} {:7} {:9} {:9} {:6} {:7} {:5} {:7} {:5.1} %  {:.1} to {:.1}",
                part.mutants,
                part.unviable,
                part.not_made,
                part.made(),
                part.caught,
                part.hang,
                part.missed.len(),
                share.share,
                share.low,
                share.high,
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_keeps_its_key_when_lines_move() {
        let names = [
            "src/a.rs:3:5: replace > with == in decode",
            "src/a.rs:9:7: replace > with == in decode",
            "src/b.rs:3:5: replace f -> Result<(), E> with Ok(())",
        ]
        .map(str::to_owned);
        let all = keys(&names);
        let wanted = [
            "src/a.rs: replace > with == in decode #1",
            "src/a.rs: replace > with == in decode #2",
            "src/b.rs: replace f -> Result<(), E> with Ok(()) #1",
        ];
        assert_eq!(all, wanted);
        let moved = ["src/a.rs:77:5: replace > with == in decode".to_owned()];
        assert_eq!(keys(&moved)[0], all[0]);
        assert_eq!(file(&names[2]), "src/b.rs");
    }

    #[test]
    fn a_table_tells_what_was_made_of_all() {
        let part = Part {
            mutants: 120,
            unviable: 15,
            not_made: 5,
            caught: 40,
            hang: 5,
            missed: vec!["src/a.rs: delete ! in f #1".to_owned(); 5],
            commit: "abc".to_owned(),
            tests: 30,
            left_out: 0,
        };
        assert!((part.share().unwrap() - 90.0).abs() < 0.01);
        let ledger = Ledger(BTreeMap::from([("p".to_owned(), part)]));
        let table = ledger.table();
        assert!(table.contains("90.0 %  78.6 to 95.7"), "{table}");
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("mutants.json");
        assert_eq!(Ledger::read(&file).unwrap(), Ledger::default());
        write(&ledger, &file).unwrap();
        assert_eq!(Ledger::read(&file).unwrap(), ledger);
        fs::write(&file, "{\"p\": 3}").unwrap();
        assert!(Ledger::read(&file).is_err());
    }

    #[test]
    fn intervals_are_wilsons() {
        // Compared with published tables of Wilson's interval: 9 of 10, and 10 of 10.
        let share = Share::of(9, 10, 100).unwrap();
        assert!(
            (share.low - 59.6).abs() < 0.1 && (share.high - 98.2).abs() < 0.1,
            "{share:?}"
        );
        let share = Share::of(10, 10, 100).unwrap();
        assert!(
            (share.low - 72.2).abs() < 0.1 && share.high > 99.9,
            "{share:?}"
        );
        // No interval when all were made.
        let share = Share::of(9, 10, 10).unwrap();
        assert_eq!((share.low, share.high), (share.share, share.share));
        assert_eq!(Share::of(0, 0, 10), None);
    }
}
