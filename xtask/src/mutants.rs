//! `cargo xtask mutants`: runs cargo-mutants on the parts that decide much and have tests of their
//! own.
//!
//! All mutants would take days on two processors, so a random sample is taken. `--sample N` takes N
//! mutants of each part that no earlier run took, chosen by `--seed`. The results are added to
//! `bench-results/mutants.json` after every mutant. So the share of caught mutants is known
//! within an interval that becomes narrower. This is not in CI. `--again` takes those that were
//! missed, after tests were added for them. These count in the second column only, because mutants
//! for which tests were written are no longer a random sample. End-to-end tests do not count here:
//! damage must show near where it is.
//!
//! Mutants are made in a copy of the tree below `target/mutants`, which is built incrementally.

mod ledger;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{At, Outcome, failed, output, root, target_directory};
use ledger::{Ledger, Mutant, Outcome as Came};

/// The share of mutants that a part's own tests must catch, in percent.
const WANTED: f64 = 90.0;
/// The longest time for the tests of one mutant, in seconds. On a busy machine those of output take
/// more than 180 s at opt-level 0, and would seem to hang. A mutant whose tests do hang counts as
/// caught.
const PATIENCE: &str = "600";
/// The longest time for the build of one mutant, in seconds.
const BUILD: &str = "900";
/// The value for nice(1), by which everything else goes first.
const NICE: &str = "5";
/// The sample of each part when none is given.
const SAMPLE: usize = 20;

/// A part of the product that is tested in this way.
struct Part {
    name: &'static str,
    package: &'static str,
    /// Another package with tests for what this part's library exports.
    beside: Option<&'static str>,
    /// Files below its `src`. Without any, all files are taken.
    files: &'static [&'static str],
    /// The arguments that choose its tests.
    tests: &'static [&'static str],
}

const ALL: &[&str] = &["--lib", "--tests"];
/// Only the unit tests, because the others enter real processes and take minutes.
const BESIDE: &[&str] = &["--lib"];

const PARTS: &[Part] = &[
    Part {
        name: "settings",
        package: "midair-settings",
        beside: None,
        files: &[],
        tests: ALL,
    },
    Part {
        name: "record",
        package: "midair-record",
        beside: None,
        files: &[],
        tests: ALL,
    },
    Part {
        name: "output",
        package: "midair-output",
        beside: None,
        files: &[],
        tests: &[
            "--lib",
            "--tests",
            "--",
            // Without optimization each of these takes longer than most others together.
            "--skip",
            "a_thousand_ranks_are_one_table",
            "--skip",
            "memory_does_not_grow_with_the_trace",
            "--skip",
            "perfetto_ui::",
            "--skip",
            "the_intervals_hold_what_a_full_recording_has",
        ],
    },
    Part {
        name: "register",
        package: "midair-register",
        beside: Some("midair-register-so"),
        files: &[],
        tests: ALL,
    },
    Part {
        name: "decode",
        package: "midair-cuda",
        beside: None,
        files: &["crates/cuda/src/cupti/decode.rs"],
        tests: &[
            "--lib",
            "--test",
            "records",
            "--",
            // Each of these needs a process of its own.
            "--skip",
            "session::",
            "--skip",
            "watch::",
            "--skip",
            "work::",
        ],
    },
    Part {
        name: "rights",
        package: "midair-session",
        beside: None,
        files: &["crates/session/src/rights.rs"],
        tests: BESIDE,
    },
    Part {
        name: "tree",
        package: "midair-session",
        beside: None,
        files: &["crates/session/src/tree/*.rs"],
        tests: BESIDE,
    },
];

/// The contents of the command line.
struct Wanted {
    parts: Vec<&'static Part>,
    sample: usize,
    seed: u64,
    until: Option<Instant>,
    again: bool,
}

/// Runs `cargo xtask mutants [--sample N] [--seed N] [--for MINUTES] [--again] [PART ...]`.
pub fn mutants_task(words: &[String]) -> Outcome<()> {
    let wanted = parse(words)?;
    let there = Command::new("cargo-mutants")
        .args(["mutants", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return failed("needs cargo-mutants: cargo install --locked cargo-mutants");
    }
    let file = root().join("bench-results/mutants.json");
    let mut ledger = Ledger::read(&file)?;
    let tree = target_directory().join("mutants/tree");
    tree::mirror(&root(), &tree)?;
    for part in &wanted.parts {
        println!("== {}", part.name);
        take(part, &wanted, &tree, &mut ledger, &file)?;
    }
    print!("{}", ledger.table());
    let short: Vec<&str> = ledger
        .shares()
        .filter(|(_, share)| *share < WANTED)
        .map(|(name, _)| name)
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

fn parse(words: &[String]) -> Outcome<Wanted> {
    let mut wanted = Wanted {
        parts: Vec::new(),
        sample: SAMPLE,
        seed: 1,
        until: None,
        again: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--again" => wanted.again = true,
            "--sample" | "--seed" | "--for" => {
                let Some(value) = words.next().and_then(|value| value.parse::<u64>().ok()) else {
                    return failed(format!("{word} needs a number"));
                };
                match word.as_str() {
                    "--sample" => wanted.sample = value as usize,
                    "--seed" => wanted.seed = value,
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

/// Takes this part's sample. Mutants that survive are counted, and are not an error of this task.
fn take(
    part: &Part,
    wanted: &Wanted,
    tree: &Path,
    ledger: &mut Ledger,
    file: &Path,
) -> Outcome<()> {
    let all = list(part, tree)?;
    let chosen = if wanted.again {
        ledger.missed(part.name, &all)
    } else {
        ledger.fresh(part.name, &all, wanted.seed, wanted.sample)
    };
    ledger.set_population(part.name, &all);
    let is_late = || wanted.until.is_some_and(|until| Instant::now() >= until);
    if chosen.is_empty() || is_late() {
        return ledger.write(file);
    }
    // First the tests must pass without a mutant. This also does most of the build.
    let mut tests = Command::new("nice");
    tests
        .args([
            "-n",
            NICE,
            "cargo",
            "test",
            "--quiet",
            "--package",
            part.package,
        ])
        .args(part.beside.iter().flat_map(|beside| ["--package", beside]))
        .args(part.tests);
    let ended = in_tree(&mut tests, tree).stderr(Stdio::inherit()).output();
    let ended = ended.at("starting", Path::new("nice"))?;
    if !ended.status.success() {
        print!("{}", String::from_utf8_lossy(&ended.stdout));
        return failed(format!(
            "the tests of {} fail without any mutant",
            part.name
        ));
    }
    for mutant in chosen {
        if is_late() {
            break;
        }
        let came = mutate(part, &mutant, &all, tree)?;
        println!("{came:?}: {}", mutant.key);
        ledger.add(part.name, mutant.key, came);
        ledger.write(file)?;
    }
    Ok(())
}

/// Makes a command run in the copy, with builds of its own and without debug information, which
/// nobody needs. Tests find the Python with their packages where `cargo xtask python` makes it.
fn in_tree<'a>(command: &'a mut Command, tree: &Path) -> &'a mut Command {
    if std::env::var_os("MIDAIR_PYTHON").is_none_or(|path| path.is_empty()) {
        command.env("MIDAIR_PYTHON", target_directory().join("python"));
    }
    command
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target_directory().join("mutants/build"))
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_TEST_DEBUG", "0")
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "0")
}

fn of_part<'a>(part: &Part, files: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new("nice");
    command.args([
        "-n",
        NICE,
        "cargo-mutants",
        "mutants",
        "--package",
        part.package,
    ]);
    for file in files {
        command.args(["--file", file]);
    }
    command
}

/// Returns all mutants of a part.
fn list(part: &Part, tree: &Path) -> Outcome<Vec<Mutant>> {
    let mut command = of_part(part, part.files.iter().copied());
    command.args(["--list", "--json"]);
    let said = output(in_tree(&mut command, tree))?;
    let listed: serde_json::Value = match serde_json::from_slice(&said) {
        Ok(listed) => listed,
        Err(error) => return failed(format!("cargo mutants --list: {error}")),
    };
    let names = listed.as_array().into_iter().flatten();
    Ok(ledger::mutants(
        names.filter_map(|one| one["name"].as_str()),
    ))
}

/// Makes a mutant and returns its outcome. `all` are those of the part, in the order of cargo-mutants.
fn mutate(part: &Part, mutant: &Mutant, all: &[Mutant], tree: &Path) -> Outcome<Came> {
    let results: PathBuf = target_directory().join("mutants").join(part.name);
    std::fs::create_dir_all(&results).at("making", &results)?;
    let mut command = of_part(part, [mutant.file()]);
    command
        .args([
            "--in-place",
            "--baseline",
            "skip",
            "--no-times",
            "--colors",
            "never",
        ])
        .args(["--timeout", PATIENCE, "--build-timeout", BUILD])
        .arg("--output")
        .arg(&results);
    // A mutant is chosen by its place in its file, not by `--re` with its name: version 27.1 does
    // not apply that to mutants that leave out a field of a struct, and would make all of them.
    let beside: Vec<&Mutant> = all.iter().filter(|it| it.file() == mutant.file()).collect();
    let place = beside.iter().position(|it| *it == mutant).unwrap_or(0);
    let shard = format!("{place}/{}", beside.len());
    command.args(["--sharding", "slice", "--shard", &shard]);
    if let Some(beside) = part.beside {
        command.args(["--test-package", part.package, "--test-package", beside]);
    }
    command.arg("--").args(part.tests).stdout(Stdio::null());
    let ended = in_tree(&mut command, tree).status();
    let ended = ended.at("starting", Path::new("nice"))?;
    // 2 means that it was missed, and 3 that the tests did not end.
    if !matches!(ended.code(), Some(0 | 2 | 3)) {
        return failed(format!(
            "cargo-mutants ended with {ended} for {}",
            part.name
        ));
    }
    let outcomes = results.join("mutants.out/outcomes.json");
    let text = std::fs::read_to_string(&outcomes).at("reading", &outcomes)?;
    match ledger::outcomes(&text).get(&mutant.name) {
        Some(came) => Ok(*came),
        None => failed(format!(
            "{} says nothing of {}",
            outcomes.display(),
            mutant.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_there() {
        for part in PARTS {
            for file in part.files {
                let file = file.trim_end_matches("*.rs");
                assert!(root().join(file).exists(), "{file}");
            }
        }
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
            (PARTS.len(), SAMPLE, 1)
        );
        assert!(all.until.is_none() && !all.again);
        let some = parse("--sample 7 --seed 9 --for 3 tree --again rights").unwrap();
        let names: Vec<&str> = some.parts.iter().map(|part| part.name).collect();
        assert_eq!(names, ["tree", "rights"]);
        assert_eq!((some.sample, some.seed, some.again), (7, 9, true));
        let left = some.until.unwrap() - Instant::now();
        assert!(left > Duration::from_secs(170) && left <= Duration::from_secs(180));
        for wrong in ["nothing", "--sample", "--seed x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
