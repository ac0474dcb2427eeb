//! `cargo xtask mutants`: cargo-mutants on the parts that decide much and are tested by themselves.
//!
//! Each mutant is a build, so this takes hours on two processors, runs at idle priority and is not
//! in CI; `--shard K/N` takes a sample. What a part's own tests do not catch is listed in
//! `target/mutants/PART/mutants.out/missed.txt`; end-to-end tests do not count here, since damage
//! must show near where it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::run::{At, Outcome, cargo, failed, root, target_directory};

/// The share of mutants that a part's own tests must catch, of 100.
const WANTED: u64 = 90;
/// The longest that the tests of one mutant may take, in seconds: one that hangs counts as caught.
const PATIENCE: &str = "180";

/// A part.
struct Part {
    name: &'static str,
    package: &'static str,
    /// Files below its `src`, all where there is none.
    files: &'static [&'static str],
    /// Which of its tests.
    tests: &'static [&'static str],
}

const ALL: &[&str] = &["--lib", "--tests"];
/// Tests beside the code: the others enter real processes and take minutes.
const BESIDE: &[&str] = &["--lib"];

const PARTS: &[Part] = &[
    Part {
        name: "settings",
        package: "midair-settings",
        files: &[],
        tests: ALL,
    },
    Part {
        name: "record",
        package: "midair-record",
        files: &[],
        tests: ALL,
    },
    Part {
        name: "output",
        package: "midair-output",
        files: &[],
        tests: ALL,
    },
    Part {
        name: "register",
        package: "midair-register",
        files: &[],
        tests: ALL,
    },
    Part {
        name: "decode",
        package: "midair-cuda",
        files: &["crates/cuda/src/cupti/decode.rs"],
        tests: ALL,
    },
    Part {
        name: "rights",
        package: "midair-session",
        files: &["crates/session/src/rights.rs"],
        tests: BESIDE,
    },
    Part {
        name: "tree",
        package: "midair-session",
        files: &["crates/session/src/tree/*.rs"],
        tests: BESIDE,
    },
];

/// What is asked for.
struct Wanted {
    parts: Vec<&'static Part>,
    shard: Option<String>,
    jobs: String,
}

/// What came of a part's mutants. Those that do not compile do not count.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    caught: u64,
    missed: u64,
    timeout: u64,
    unviable: u64,
}

impl Counts {
    fn parse(outcomes: &str) -> Option<Counts> {
        let outcomes: serde_json::Value = serde_json::from_str(outcomes).ok()?;
        let count = |name: &str| outcomes.get(name)?.as_u64();
        Some(Counts {
            caught: count("caught")?,
            missed: count("missed")?,
            timeout: count("timeout")?,
            unviable: count("unviable")?,
        })
    }

    fn viable(self) -> u64 {
        self.caught + self.missed + self.timeout
    }

    fn is_enough(self) -> bool {
        (self.caught + self.timeout) * 100 >= self.viable() * WANTED
    }

    /// Of 100, rounded down.
    fn share(self) -> u64 {
        ((self.caught + self.timeout) * 100)
            .checked_div(self.viable())
            .unwrap_or(100)
    }
}

/// `cargo xtask mutants [--shard K/N] [--jobs N] [PART ...]`.
pub fn mutants_task(words: &[String]) -> Outcome<()> {
    let wanted = parse(words)?;
    let there = cargo(&["mutants", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return failed("needs cargo-mutants: cargo install --locked cargo-mutants");
    }
    let mut rows = Vec::new();
    for part in &wanted.parts {
        println!("== {}", part.name);
        rows.push((part.name, mutate(part, &wanted)?));
    }
    println!("== summary");
    println!("part          caught  missed  hang  no build  share");
    for (name, counts) in &rows {
        println!(
            "{name:12} {:7} {:7} {:5} {:9} {:4} %",
            counts.caught,
            counts.missed,
            counts.timeout,
            counts.unviable,
            counts.share()
        );
    }
    match rows.iter().find(|(_, counts)| !counts.is_enough()) {
        Some((name, _)) => failed(format!(
            "{name} catches fewer than {WANTED} % of its mutants: {}",
            results(name).join("mutants.out/missed.txt").display()
        )),
        None => Ok(()),
    }
}

fn parse(words: &[String]) -> Outcome<Wanted> {
    let mut wanted = Wanted {
        parts: Vec::new(),
        shard: None,
        jobs: "1".to_owned(),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--shard" | "--jobs" => {
                let Some(value) = words.next() else {
                    return failed(format!("{word} needs a value"));
                };
                if word == "--jobs" {
                    wanted.jobs.clone_from(value);
                } else {
                    wanted.shard = Some(value.clone());
                }
            }
            name => match PARTS.iter().find(|part| part.name == name) {
                Some(part) => wanted.parts.push(part),
                None => return failed(format!("no part is called {name}")),
            },
        }
    }
    if wanted.parts.is_empty() {
        wanted.parts.extend(PARTS);
    }
    Ok(wanted)
}

fn results(part: &str) -> PathBuf {
    target_directory().join("mutants").join(part)
}

/// Runs one part. Mutants that survive are no error of the program's: they are counted.
fn mutate(part: &Part, wanted: &Wanted) -> Outcome<Counts> {
    let results = results(part.name);
    fs::create_dir_all(&results).at("making", &results)?;
    let mut command = Command::new("nice");
    command
        .current_dir(root())
        .args(["-n", "19"])
        .arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["mutants", "--no-times", "--package", part.package])
        .args(["--jobs", &wanted.jobs, "--timeout", PATIENCE])
        .arg("--output")
        .arg(&results);
    for file in part.files {
        command.args(["--file", file]);
    }
    if let Some(shard) = &wanted.shard {
        command.args(["--shard", shard]);
    }
    command.arg("--").args(part.tests);
    if wanted.jobs == "1" {
        // The tree is copied for each run: what it stands on need not be built each time.
        command.env("CARGO_TARGET_DIR", target_directory().join("mutants/build"));
    }
    let ended = command.status().at("starting", Path::new("nice"))?;
    let outcomes = results.join("mutants.out/outcomes.json");
    let text = fs::read_to_string(&outcomes).at("reading", &outcomes)?;
    match Counts::parse(&text) {
        // 2: some were missed; 3: some did not end.
        Some(counts) if matches!(ended.code(), Some(0 | 2 | 3)) => Ok(counts),
        _ => failed(format!(
            "cargo-mutants ended with {ended} for {}",
            part.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_of_a_hundred_are_enough() {
        let of = |caught, missed, timeout| Counts {
            caught,
            missed,
            timeout,
            unviable: 50,
        };
        assert!(of(90, 10, 0).is_enough() && of(85, 10, 5).is_enough());
        assert!(!of(89, 11, 0).is_enough());
        assert_eq!((of(89, 10, 0).share(), of(0, 0, 0).share()), (89, 100));
        let outcomes = r#"{"outcomes": [], "total_mutants": 7, "missed": 1, "caught": 3, "timeout": 1, "unviable": 2, "success": 0}"#;
        let expected = Counts {
            caught: 3,
            missed: 1,
            timeout: 1,
            unviable: 2,
        };
        assert_eq!(Counts::parse(outcomes), Some(expected));
        assert_eq!(Counts::parse("{}"), None);
    }

    #[test]
    fn every_part_is_there() {
        for part in PARTS {
            for file in part.files {
                let file = file.trim_end_matches("*.rs");
                assert!(root().join(file).exists(), "{file}");
            }
        }
        let words = ["--shard", "1/8", "tree"].map(str::to_owned);
        let wanted = parse(&words).unwrap();
        assert_eq!(
            (wanted.shard.as_deref(), wanted.parts.len()),
            (Some("1/8"), 1)
        );
        assert_eq!(parse(&[]).unwrap().parts.len(), PARTS.len());
        assert!(parse(&["nothing".to_owned()]).is_err());
    }
}
