//! `cargo mutate`: which changes of the code its own tests notice, in the parts that decide
//! much.
//!
//! cargo-mutants lists the changes. It would make one, build, run all tests, and go on with the next,
//! which takes days on two processors. Here all mutants of a part are in one build, each behind a
//! switch (`dev/mutants/switches`), and only tests that reach a mutant run for it. So all of register's are
//! made in ten minutes.
//!
//! End-to-end tests do not count here: damage must show near where it is. This is not in CI.
//! `--again` takes the mutants that were missed, after tests were added for them; with `--new`, only
//! tests that were not there when all mutants were made run for them. `--sample N` takes N mutants, chosen by `--seed`, of those that have no outcome yet. With `--built` nothing is built:
//! that is for a machine with more processors, to which this program (`MIDAIR_ROOT` is the checkout
//! there), the test programs and `target/mutants/PART` were carried. Tests that fail without a mutant,
//! as those do that need what is not there, are left out and counted.
#![forbid(unsafe_code)]

mod build;
mod errors;
mod judge;
mod ledger;
mod tree;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use build::Built;
use judge::{Tests, side_by_side};
use ledger::{Ledger, Outcome as Came, Outcomes};
use midair_dev_kit::run::{Outcome, failed, root, target_directory};

/// The words of the command line, and what it does.
const USAGE: &str = "[--sample N] [--seed N] [--for MINUTES] [--jobs N] [--again] [--new] [--built] [PART ...]

Say which changes of the code its own tests catch, all in one build of each part. bench-results/mutants.json has the sums.
Needs cargo-mutants.";

/// The share of mutants that a part's own tests must catch, in percent.
const WANTED: f64 = 90.0;
/// The value for nice(1), by which everything else goes first.
const NICE: &str = "5";

/// A part of the product that is tested in this way.
struct Part {
    name: &'static str,
    package: &'static str,
    /// The file of its crate's root, which gets the switches.
    root: &'static str,
    /// Another package with tests for what this part's library exports.
    beside: Option<&'static str>,
    /// Files below its `src`. Without any, all files are taken.
    files: &'static [&'static str],
    /// The arguments that choose its test programs.
    programs: &'static [&'static str],
    /// Parts of the names of tests that are left out.
    skip: &'static [&'static str],
}

const ALL: &[&str] = &["--lib", "--tests"];
/// Only the unit tests, because the others enter real processes and take minutes.
const UNIT: &[&str] = &["--lib"];

/// Each of these takes longer than most others together.
const LONG_TESTS_OF_OUTPUT: &[&str] = &[
    "a_thousand_ranks_are_one_table",
    "memory_does_not_grow_with_the_trace",
    "perfetto_ui::",
    "the_intervals_hold_what_a_full_recording_has",
];

const PARTS: &[Part] = &[
    Part {
        name: "settings",
        package: "midair-settings",
        root: "crates/between/settings/src/lib.rs",
        beside: None,
        files: &[],
        programs: ALL,
        skip: &[],
    },
    Part {
        name: "record",
        package: "midair-record",
        root: "crates/between/record/src/lib.rs",
        beside: None,
        files: &[],
        programs: ALL,
        skip: &[],
    },
    Part {
        name: "output",
        package: "midair-output",
        root: "crates/formats/output/src/lib.rs",
        beside: None,
        files: &[],
        programs: ALL,
        skip: LONG_TESTS_OF_OUTPUT,
    },
    Part {
        name: "demangle",
        package: "midair-demangle",
        root: "crates/formats/demangle/src/lib.rs",
        beside: Some("midair-output"),
        files: &[],
        programs: ALL,
        skip: LONG_TESTS_OF_OUTPUT,
    },
    Part {
        name: "register",
        package: "midair-register",
        root: "crates/target/register/src/lib.rs",
        beside: Some("midair-register-so"),
        files: &[],
        programs: ALL,
        skip: &[],
    },
    Part {
        name: "decode",
        package: "midair-cuda",
        root: "crates/target/cuda/src/lib.rs",
        beside: None,
        files: &["crates/target/cuda/src/cupti/decode.rs"],
        programs: &["--lib", "--test", "records"],
        // Each of these needs a process of its own.
        skip: &["session::", "watch::", "work::"],
    },
    Part {
        name: "rights",
        package: "midair-session",
        root: "crates/attacher/session/src/lib.rs",
        beside: None,
        files: &["crates/attacher/session/src/rights.rs"],
        programs: UNIT,
        skip: &[],
    },
    Part {
        name: "tree",
        package: "midair-session",
        root: "crates/attacher/session/src/lib.rs",
        beside: None,
        files: &["crates/attacher/session/src/tree/*.rs"],
        programs: UNIT,
        skip: &[],
    },
];

/// The contents of the command line.
struct Wanted {
    parts: Vec<&'static Part>,
    sample: Option<usize>,
    seed: u64,
    jobs: usize,
    until: Option<Instant>,
    again: bool,
    new: bool,
    built: bool,
}

/// Runs `cargo mutate`.
pub fn mutants_task(words: &[String]) -> Outcome<()> {
    let wanted = parse(words)?;
    let there = wanted.built || has_cargo_mutants();
    if !there {
        return failed("needs cargo-mutants: cargo install --locked cargo-mutants");
    }
    let file = root().join("bench-results/mutants.json");
    let mut ledger = Ledger::read(&file)?;
    for part in &wanted.parts {
        println!("== {}", part.name);
        let came = take(part, &wanted)?;
        ledger.0.insert(part.name.to_owned(), came);
        ledger::write(&ledger, &file)?;
    }
    print!("{}", ledger.table());
    let short: Vec<&str> = ledger
        .0
        .iter()
        .filter(|(_, part)| part.share().is_some_and(|share| share < WANTED))
        .map(|(name, _)| name.as_str())
        .collect();
    if short.is_empty() {
        return Ok(());
    }
    failed(format!(
        "fewer than {WANTED} % of the mutants are caught in {}: {}",
        short.join(", "),
        file.display()
    ))
}

fn has_cargo_mutants() -> bool {
    let version = Command::new("cargo-mutants")
        .args(["mutants", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

fn parse(words: &[String]) -> Outcome<Wanted> {
    let mut wanted = Wanted {
        parts: Vec::new(),
        sample: None,
        seed: 1,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        until: None,
        again: false,
        new: false,
        built: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--again" => wanted.again = true,
            "--new" => wanted.new = true,
            "--built" => wanted.built = true,
            "--sample" | "--seed" | "--for" | "--jobs" => {
                let Some(value) = words.next().and_then(|value| value.parse::<u64>().ok()) else {
                    return failed(format!("{word} needs a number"));
                };
                match word.as_str() {
                    "--sample" => wanted.sample = Some(value as usize),
                    "--seed" => wanted.seed = value,
                    "--jobs" => wanted.jobs = value.max(1) as usize,
                    _ => wanted.until = Some(Instant::now() + Duration::from_secs(60 * value)),
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

/// Makes a part's mutants. Those that survive are counted, and are not an error of this task.
fn take(part: &Part, wanted: &Wanted) -> Outcome<ledger::Part> {
    let built = match wanted.built {
        true => build::built(part)?,
        false => build::build(part)?,
    };
    let keys = ledger::keys(&built.names);
    let file = target_directory()
        .join("mutants")
        .join(part.name)
        .join("outcomes.json");
    let mut known = ledger::read_outcomes(&file)?;
    known.retain(|key, _| keys.contains(key));
    let mut tests = Tests::look(part, &built, wanted.jobs)?;
    if wanted.new {
        tests.leave_out(&ledger::read_names(&file.with_file_name("tests.json"))?);
    }
    let chosen = choose(&built, &keys, &known, wanted);
    println!(
        "{}: {} mutants, {} to make, {} tests",
        part.name,
        keys.len(),
        chosen.len(),
        tests.count()
    );
    let known = Mutex::new(known);
    let work = |at: usize| -> Outcome<()> {
        let mutant = chosen[at];
        let name = &built.names[mutant as usize];
        let came = tests.judge(mutant, built.first[&mutant], ledger::file(name))?;
        if came == Came::Missed {
            println!("missed: {name}");
        }
        let mut known = known.lock().unwrap_or_else(|it| it.into_inner());
        known.insert(keys[mutant as usize].clone(), came);
        if known.len().is_multiple_of(20) {
            ledger::write(&*known, &file)?;
        }
        Ok(())
    };
    side_by_side(chosen.len(), wanted.jobs, wanted.until, work)?;
    let known = known.into_inner().unwrap_or_else(|it| it.into_inner());
    ledger::write(&known, &file)?;
    if !wanted.again && known.len() == built.first.len() {
        ledger::write(&tests.names(), &file.with_file_name("tests.json"))?;
    }
    let count = |wanted: Came| known.values().filter(|came| **came == wanted).count();
    let missed = |(key, came): (&String, &Came)| (*came == Came::Missed).then(|| key.clone());
    Ok(ledger::Part {
        commit: built.commit.clone(),
        tests: tests.count(),
        left_out: tests.left_out(),
        mutants: keys.len(),
        unviable: built.unviable.len(),
        not_made: keys.len() - built.unviable.len() - built.first.len(),
        caught: count(Came::Caught),
        hang: count(Came::Timeout),
        missed: known.iter().filter_map(missed).collect(),
    })
}

/// Chooses the mutants to make.
fn choose(built: &Built, keys: &[String], known: &Outcomes, wanted: &Wanted) -> Vec<u32> {
    let is_chosen = |number: &u32| {
        let came = known.get(&keys[*number as usize]);
        match wanted.again {
            true => came == Some(&Came::Missed),
            false => came.is_none(),
        }
    };
    let mut chosen: Vec<u32> = built.first.keys().copied().filter(is_chosen).collect();
    let Some(sample) = wanted.sample else {
        return chosen;
    };
    chosen.sort_by_key(|number| {
        let mut hasher = DefaultHasher::new();
        (wanted.seed, &keys[*number as usize]).hash(&mut hasher);
        hasher.finish()
    });
    chosen.truncate(sample);
    let order: BTreeSet<u32> = chosen.into_iter().collect();
    order.into_iter().collect()
}

fn main() -> std::process::ExitCode {
    midair_dev_kit::run_task("mutate", USAGE, mutants_task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_part_is_there() {
        for part in PARTS {
            for file in part.files.iter().chain([&part.root]) {
                let file = file.trim_end_matches("*.rs");
                assert!(root().join(file).exists(), "{file}");
            }
        }
    }

    #[test]
    fn a_sample_has_none_twice_and_depends_on_the_seed() {
        let built = Built {
            commit: String::new(),
            names: (0..100).map(|n| format!("a.rs:{n}:1: f {n}")).collect(),
            unviable: BTreeSet::new(),
            first: (0..100).map(|n| (n, n)).collect(),
            programs: Vec::new(),
        };
        let keys = ledger::keys(&built.names);
        let words = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            parse(&words).unwrap()
        };
        let mut known: Outcomes = BTreeMap::new();
        let first = choose(&built, &keys, &known, &words("--sample 30"));
        assert_eq!(first.len(), 30);
        assert_eq!(first, choose(&built, &keys, &known, &words("--sample 30")));
        assert_ne!(
            first,
            choose(&built, &keys, &known, &words("--sample 30 --seed 2"))
        );
        for (number, came) in first
            .iter()
            .zip([Came::Missed, Came::Timeout].iter().cycle())
        {
            known.insert(keys[*number as usize].clone(), *came);
        }
        let second = choose(&built, &keys, &known, &words(""));
        assert_eq!(second.len(), 70);
        assert!(!second.iter().any(|it| first.contains(it)));
        let again = choose(&built, &keys, &known, &words("--again"));
        assert_eq!(again.len(), 15);
    }

    #[test]
    fn words() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            parse(&words)
        };
        let all = parse("").unwrap();
        assert_eq!(
            (all.parts.len(), all.sample, all.seed),
            (PARTS.len(), None, 1)
        );
        assert!(all.until.is_none() && !all.again && !all.new && !all.built);
        let some = parse("--sample 7 --seed 9 --for 3 --jobs 5 tree --again --new --built rights")
            .unwrap();
        let names: Vec<&str> = some.parts.iter().map(|part| part.name).collect();
        assert_eq!(names, ["tree", "rights"]);
        assert_eq!((some.sample, some.seed, some.jobs), (Some(7), 9, 5));
        assert!(some.again && some.new && some.built);
        let left = some.until.unwrap() - Instant::now();
        assert!(left > Duration::from_secs(170) && left <= Duration::from_secs(180));
        for wrong in ["nothing", "--sample", "--seed x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
