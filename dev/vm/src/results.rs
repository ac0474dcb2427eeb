//! The results that a guest handed over.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use midair_dev_kit::run::{At, Outcome, failed};

use super::boot::Ran;

/// The result of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    pub program: String,
    pub name: String,
    /// One of passed, flaky, left-out, failed, timeout and not-run.
    pub outcome: String,
    pub seconds: f64,
}

impl Test {
    fn is(&self, outcomes: &[&str]) -> bool {
        outcomes.contains(&self.outcome.as_str())
    }
}

/// The results of a row.
#[derive(Debug)]
pub struct Results {
    pub release: String,
    pub modules: String,
    pub tests: Vec<Test>,
    /// Why tests were left out, in the kit's words.
    pub left_out: Vec<String>,
    /// The lines that the checks printed.
    pub said: Vec<String>,
    /// The cells of the torture matrix: how many were right, not right and left out, and which were
    /// not right.
    pub torture: Option<Torture>,
    /// Lines of the kernel's log that must not be caused by anything of midair's.
    pub complaints: Vec<String>,
}

/// The sums of the torture matrix.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Torture {
    pub right: usize,
    pub wrong: Vec<String>,
    pub left_out: Vec<String>,
}

/// Reads the results.
pub fn read(ran: &Ran) -> Outcome<Results> {
    let at = |name: &str| ran.results.join(name);
    let text = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
    let tests = tests(&text("results"));
    if tests.is_empty() {
        return failed(format!("no results in {}", ran.results.display()));
    }
    let mut said = Vec::new();
    let mut left_out = Vec::new();
    let mut names: Vec<_> = fs::read_dir(&ran.results)
        .at("reading", &ran.results)?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort();
    for name in names.iter().filter(|name| name.starts_with("said-")) {
        let lines = text(name);
        said.extend(lines.lines().map(|line| line.replacen("said: ", "", 1)));
    }
    for test in tests.iter().filter(|test| test.is(&["left-out"])) {
        left_out.push(format!(
            "{} {}: {}",
            test.program,
            test.name,
            why(&at("logs"), test)
        ));
    }
    Ok(Results {
        release: text("kernel").trim().to_owned(),
        modules: text("lsm").trim().to_owned(),
        tests,
        left_out,
        said,
        torture: torture(&text("torture.json")),
        complaints: complaints(&text("dmesg")),
    })
}

fn tests(text: &str) -> Vec<Test> {
    let parse = |line: &str| {
        let mut words = line.split('\t');
        Some(Test {
            program: words.next()?.to_owned(),
            name: words.next()?.to_owned(),
            outcome: words.next()?.to_owned(),
            seconds: words.next()?.parse().ok()?,
        })
    };
    let mut found: Vec<Test> = text.lines().filter_map(parse).collect();
    found.sort_by(|a, b| (&a.program, &a.name).cmp(&(&b.program, &b.name)));
    found
}

/// Returns the words with which a test was left out.
fn why(logs: &Path, test: &Test) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = test.name.chars().map(safe).collect();
    let log = fs::read_to_string(logs.join(format!("{}-{name}", test.program)));
    let log = log.unwrap_or_default();
    let said = log
        .lines()
        .find_map(|line| line.split_once("LEFT OUT, NOT TESTED: "));
    said.map_or_else(String::new, |(_, why)| {
        why.split_once(": ").map_or(why, |(_, why)| why).to_owned()
    })
}

fn torture(text: &str) -> Option<Torture> {
    let value: Value = serde_json::from_str(text).ok()?;
    let mut found = Torture::default();
    for cell in value["cells"].as_array()? {
        let name = format!("{} {}", cell["row"], cell["cell"].as_str().unwrap_or("?"));
        match (cell["tally"]["left_out"].as_str(), cell["good"] == true) {
            (Some(why), _) => found.left_out.push(format!("{name}: {why}")),
            (None, true) => found.right += 1,
            (None, false) => found.wrong.push(format!("{name}: {}", notes(cell))),
        }
    }
    Some(found)
}

fn notes(cell: &Value) -> String {
    let notes = cell["tally"]["notes"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let texts: Vec<&str> = notes.iter().filter_map(Value::as_str).collect();
    texts.join("; ")
}

/// Returns what the kernel itself complained about.
fn complaints(log: &str) -> Vec<String> {
    let bad = [
        "BUG:",
        "WARNING:",
        "Oops",
        "soft lockup",
        "hung_task",
        "blocked for more than",
    ];
    let lines = log
        .lines()
        .filter(|line| bad.iter().any(|it| line.contains(it)));
    lines.map(str::to_owned).collect()
}

impl Results {
    /// Returns how many tests had one of these results.
    pub fn count(&self, outcomes: &[&str]) -> usize {
        self.tests.iter().filter(|test| test.is(outcomes)).count()
    }

    /// Returns the names of tests with one of these results.
    pub fn named(&self, outcomes: &[&str]) -> Vec<String> {
        let found = self.tests.iter().filter(|test| test.is(outcomes));
        found
            .map(|test| format!("{} {}", test.program, test.name))
            .collect()
    }

    /// Returns whether nothing failed.
    pub fn is_right(&self) -> bool {
        self.count(&["failed", "timeout"]) == 0
            && self.torture.as_ref().is_none_or(|it| it.wrong.is_empty())
    }

    /// Returns the results in one line.
    pub fn summary(&self) -> String {
        let mut text = format!(
            "{}: {} passed, {} flaky, {} failed, {} took too long, {} left out, {} not run",
            self.release,
            self.count(&["passed"]),
            self.count(&["flaky"]),
            self.count(&["failed"]),
            self.count(&["timeout"]),
            self.count(&["left-out"]),
            self.count(&["not-run"]),
        );
        if let Some(torture) = &self.torture {
            text.push_str(&format!(
                "; torture: {} cells right, {} not right, {} left out",
                torture.right,
                torture.wrong.len(),
                torture.left_out.len()
            ));
        }
        text
    }

    /// Returns the results for the table's file.
    pub fn as_json(&self) -> Value {
        json!({
            "release": self.release,
            "security_modules": self.modules,
            "passed": self.count(&["passed"]),
            "flaky": self.named(&["flaky"]),
            "failed": self.named(&["failed"]),
            "not_run": self.count(&["not-run"]),
            "took_too_long": self.named(&["timeout"]),
            "left_out": self.left_out,
            "said": self.said,
            "complaints": self.complaints,
            "torture": self.torture.as_ref().map(|it| json!({
                "right": it.right,
                "wrong": it.wrong,
                "left_out": it.left_out,
            })),
        })
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn lines_become_tests_and_what_is_no_line_is_passed_over() {
        let found = tests("b\tx::y\tfailed\t1.5\na\tz\tpassed\t0.1\nbroken\n");
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].program.as_str(), found[1].seconds), ("a", 1.5));
    }

    #[test]
    fn cells_are_counted_by_how_they_came_out() {
        let text = r#"{"cells": [{"row": 1, "cell": "a", "good": true},
            {"row": 2, "cell": "b", "good": false, "tally": {"notes": ["x"]}},
            {"row": 3, "cell": "c", "good": true, "tally": {"left_out": "no"}}]}"#;
        let found = torture(text).unwrap();
        assert_eq!(found.right, 1);
        assert_eq!(found.wrong, ["2 b: x"]);
        assert_eq!(found.left_out, ["3 c: no"]);
        assert_eq!(torture(""), None);
    }
}
