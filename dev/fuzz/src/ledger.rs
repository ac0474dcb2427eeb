//! The total that each fuzzer was given: `bench-results/fuzz.json`, and `fuzz.md`, which is made
//! from it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::fuzzer::Slice;
use midair_dev_kit::run::{At, Failure, Outcome};

/// All fuzzers by their names.
#[derive(Debug, Default)]
pub struct Ledger {
    directory: PathBuf,
    entries: BTreeMap<String, Entry>,
}

/// The entry of one fuzzer since its count started.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Entry {
    /// The time that it ran on a processor, as opposed to the time that passed.
    pub processor_seconds: f64,
    pub inputs: u64,
    /// How many edges of the program's flow its corpus reaches.
    pub edges: u64,
    pub corpus: u64,
    /// How many inputs still break something.
    pub findings: u64,
    /// How many inputs broke something and are repaired.
    pub repaired: u64,
    /// The commit that the count started with.
    pub since: String,
    /// The commit of the last slice.
    pub commit: String,
}

impl Entry {
    fn of(value: &Value) -> Entry {
        let number = |key: &str| value[key].as_u64().unwrap_or(0);
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Entry {
            processor_seconds: value["processor_seconds"].as_f64().unwrap_or(0.0),
            inputs: number("inputs"),
            edges: number("edges"),
            corpus: number("corpus"),
            findings: number("findings"),
            repaired: number("repaired"),
            since: text("since"),
            commit: text("commit"),
        }
    }

    fn as_json(&self) -> Value {
        json!({
            // The kernel tells times with this precision.
            "processor_seconds": (self.processor_seconds * 100.0).round() / 100.0,
            "inputs": self.inputs,
            "edges": self.edges,
            "corpus": self.corpus,
            "findings": self.findings,
            "repaired": self.repaired,
            "since": self.since,
            "commit": self.commit,
        })
    }

    /// Adds the results of a slice.
    fn add(&mut self, slice: &Slice, commit: &str) {
        self.processor_seconds += slice.processor.as_secs_f64();
        self.inputs += slice.inputs;
        // A fuzzer that was ended tells neither of these.
        if slice.edges > 0 {
            (self.edges, self.corpus) = (slice.edges, slice.corpus);
        }
        self.findings = slice.findings;
        commit.clone_into(&mut self.commit);
        if self.since.is_empty() {
            commit.clone_into(&mut self.since);
        }
    }

    /// Returns whether it ran as long as is wanted, without a finding.
    fn is_done(&self, seconds: f64) -> bool {
        self.findings == 0 && self.processor_seconds >= seconds
    }
}

impl Ledger {
    /// Reads the ledger of a directory. If there is none, it is empty.
    pub fn read(directory: &Path) -> Outcome<Ledger> {
        let path = directory.join("fuzz.json");
        let text = match path.exists() {
            true => fs::read_to_string(&path).at("reading", &path)?,
            false => "{}".to_owned(),
        };
        let table: Map<String, Value> = serde_json::from_str(&text)
            .map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        let entries = table
            .iter()
            .map(|(name, value)| (name.clone(), Entry::of(value)));
        Ok(Ledger {
            directory: directory.to_path_buf(),
            entries: entries.collect(),
        })
    }

    /// Writes both files, neither of which ever exists in part.
    fn write(&self) -> Outcome<()> {
        let table: Map<String, Value> = self
            .entries
            .iter()
            .map(|(name, entry)| (name.clone(), entry.as_json()))
            .collect();
        let text = serde_json::to_string_pretty(&json!(table))
            .map_err(|error| Failure(format!("the fuzzers' ledger: {error}")))?;
        for (name, text) in [("fuzz.json", text + "\n"), ("fuzz.md", self.page())] {
            let path = self.directory.join(name);
            let new = self.directory.join(format!(".{name}.new"));
            fs::write(&new, text).at("writing", &new)?;
            fs::rename(&new, &path).at("writing", &path)?;
        }
        Ok(())
    }

    /// Returns the entry of a fuzzer.
    pub fn entry(&self, name: &str) -> Entry {
        self.entries.get(name).cloned().unwrap_or_default()
    }

    /// Adds a slice.
    pub fn add(&mut self, slice: &Slice, commit: &str) -> Outcome<()> {
        let entry = self.entries.entry(slice.name.clone()).or_default();
        entry.add(slice, commit);
        self.write()
    }

    /// Restarts a fuzzer's count. The numbers of repaired and of open findings are kept.
    pub fn begin_anew(&mut self, name: &str, repaired: u64, open: u64) -> Outcome<()> {
        let entry = self.entries.entry(name.to_owned()).or_default();
        *entry = Entry {
            findings: open,
            repaired: entry.repaired + repaired,
            ..Entry::default()
        };
        self.write()
    }

    /// Returns which of these fuzzers has had the least time and needs more. Fuzzers with a finding
    /// are left out.
    pub fn next<'a>(
        &self,
        names: impl Iterator<Item = &'a String>,
        seconds: f64,
    ) -> Option<&'a String> {
        names
            .map(|name| (self.entry(name), name))
            .filter(|(entry, _)| entry.findings == 0 && !entry.is_done(seconds))
            .min_by(|(one, _), (other, _)| {
                one.processor_seconds.total_cmp(&other.processor_seconds)
            })
            .map(|(_, name)| name)
    }

    /// Returns whether each of these ran as long as is wanted, without a finding.
    pub fn is_done(&self, names: &[String], seconds: f64) -> bool {
        names.iter().all(|name| self.entry(name).is_done(seconds))
    }

    /// Returns the ledger as a page.
    fn page(&self) -> String {
        let mut text = String::from(
            "# Fuzzers\n\n\
             Written by `cargo xtask fuzz`: processor time of each fuzzer, added up over its runs since the count began.\n\
             A finding ends a fuzzer's runs; after the repair its count begins anew.\n\n\
             | fuzzer | processor minutes | inputs | edges | corpus | findings | repaired | from | to |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        for (name, entry) in &self.entries {
            text.push_str(&format!(
                "| {name} | {:.1} | {} | {} | {} | {} | {} | {} | {} |\n",
                entry.processor_seconds / 60.0,
                entry.inputs,
                entry.edges,
                entry.corpus,
                entry.findings,
                entry.repaired,
                entry.since,
                entry.commit,
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn slice(name: &str, seconds: u64, findings: u64) -> Slice {
        Slice {
            name: name.to_owned(),
            processor: Duration::from_secs(seconds),
            passed: Duration::from_secs(2 * seconds),
            ended_well: findings == 0,
            findings,
            inputs: 10,
            edges: 5,
            corpus: 3,
        }
    }

    #[test]
    fn slices_add_up_over_runs_and_the_one_with_least_is_next() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["elf", "maps", "auxv"].map(str::to_owned);
        let mut ledger = Ledger::read(directory.path()).unwrap();
        ledger.add(&slice("elf", 100, 0), "a").unwrap();
        ledger.add(&slice("maps", 90, 0), "a").unwrap();
        assert_eq!(ledger.next(names.iter(), 120.0).unwrap(), "auxv");

        let mut ledger = Ledger::read(directory.path()).unwrap();
        ledger.add(&slice("elf", 30, 0), "b").unwrap();
        let entry = ledger.entry("elf");
        assert_eq!((entry.processor_seconds, entry.inputs), (130.0, 20));
        assert_eq!((entry.since.as_str(), entry.commit.as_str()), ("a", "b"));
        let some = &names[..2];
        assert_eq!(ledger.next(some.iter(), 120.0).unwrap(), "maps");
        assert!(!ledger.is_done(some, 120.0));
        ledger.add(&slice("maps", 30, 0), "b").unwrap();
        assert!(ledger.is_done(some, 120.0));
        assert_eq!(ledger.next(some.iter(), 120.0), None);
        let page = fs::read_to_string(directory.path().join("fuzz.md")).unwrap();
        assert!(page.contains("| elf | 2.2 | 20 | 5 | 3 | 0 | 0 | a | b |"));
    }

    #[test]
    fn a_finding_ends_the_runs_and_its_repair_begins_the_count_anew() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["elf".to_owned()];
        let mut ledger = Ledger::read(directory.path()).unwrap();
        ledger.add(&slice("elf", 100, 1), "a").unwrap();
        assert_eq!(ledger.next(names.iter(), 600.0), None);
        assert!(!ledger.is_done(&names, 1.0));
        ledger.begin_anew("elf", 1, 0).unwrap();
        let entry = ledger.entry("elf");
        assert_eq!((entry.processor_seconds, entry.repaired), (0.0, 1));
        assert_eq!(ledger.next(names.iter(), 600.0).unwrap(), "elf");
    }
}
