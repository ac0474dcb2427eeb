//! Builds a part's tests with all of its mutants, each behind a switch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::errors::{Places, blame};
use super::{NICE, Part, tree};
use midair_dev_kit::run::{At, Outcome, cargo, failed, output, root, run, target_directory};

/// How often what does not compile is left out. Three times are usual.
const TURNS: u32 = 20;

/// A program with tests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Program {
    pub file: PathBuf,
    /// Where cargo would run it.
    pub directory: PathBuf,
}

/// A part's tests, built with its mutants.
#[derive(Debug, Serialize, Deserialize)]
pub struct Built {
    /// The commit of which it was built.
    pub commit: String,
    /// The mutants' names, by number.
    pub names: Vec<String>,
    /// These do not compile.
    pub unviable: BTreeSet<u32>,
    /// The first number of its place for each mutant that was made. Those in constants, for
    /// example, are neither here nor unviable.
    pub first: BTreeMap<u32, u32>,
    pub programs: Vec<Program>,
}

/// The file with what is known of a part's build.
fn file(part: &Part) -> PathBuf {
    let home = target_directory().join("mutants").join(part.name);
    home.join("built.json")
}

/// Returns what was built earlier, perhaps on another machine.
pub fn built(part: &Part) -> Outcome<Built> {
    let file = file(part);
    let text = fs::read_to_string(&file).at("reading", &file)?;
    match serde_json::from_str(&text) {
        Ok(built) => Ok(built),
        Err(error) => failed(format!("{}: {error}", file.display())),
    }
}

/// Builds a part.
pub fn build(part: &Part) -> Outcome<Built> {
    let above = target_directory().join("mutants");
    let (home, copy) = (above.join(part.name), above.join("copy"));
    fs::create_dir_all(&home).at("making", &home)?;
    let commit = output(Command::new("git").current_dir(root()).args([
        "describe",
        "--always",
        "--dirty",
        "--abbrev=8",
    ]))?;
    let switches = switches()?;
    let listed = list(part)?;
    let list = home.join("list.json");
    fs::write(&list, &listed).at("writing", &list)?;
    let listed: Vec<Value> = match serde_json::from_slice(&listed) {
        Ok(listed) => listed,
        Err(error) => return failed(format!("cargo mutants --list: {error}")),
    };
    let names: Vec<String> = listed
        .iter()
        .map(|one| one["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    let is_arm = |number: u32| {
        let mutant = listed.get(number as usize);
        mutant.is_some_and(|mutant| mutant["genre"] == "MatchArm")
    };
    let (mut unviable, mut without) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..TURNS {
        tree::mirror(&root(), &copy)?;
        let places = change(part, &switches, &home, &copy, &unviable, &without)?;
        let (programs, errors) = compile(part, &above.join("build"), &copy)?;
        if errors.is_empty() {
            let sites = places.values().flat_map(|it| &it.sites);
            let first = sites
                .flat_map(|site| site.0.iter().map(|number| (*number, site.0[0])))
                .collect();
            let built = Built {
                commit: String::from_utf8_lossy(&commit).trim().to_owned(),
                names,
                unviable,
                first,
                programs,
            };
            super::ledger::write(&built, &file(part))?;
            return Ok(built);
        }
        let text = |file: &str| fs::read_to_string(copy.join(file)).unwrap_or_default();
        let found = blame(&errors, &places, text, is_arm);
        if found.unviable.is_empty() && found.without.is_empty() {
            return failed(format!(
                "{} does not compile with its mutants:\n{}",
                part.name,
                found.unexplained.join("\n")
            ));
        }
        println!(
            "{}: {} mutants do not compile, {} cannot be switched",
            part.name,
            found.unviable.len(),
            found.without.len()
        );
        unviable.extend(found.unviable);
        without.extend(found.without);
    }
    failed(format!("{}: each build has new errors", part.name))
}

/// Builds the program that changes the files, which is in a workspace of its own, and runs its tests.
fn switches() -> Outcome<PathBuf> {
    let target = target_directory().join("mutants/switches");
    let manifest = root().join("dev/mutants/switches/Cargo.toml");
    for task in ["test", "build"] {
        run(cargo(&[task, "--quiet", "--manifest-path"])
            .arg(&manifest)
            .env("CARGO_TARGET_DIR", &target)
            .stdout(Stdio::null()))?;
    }
    Ok(target.join("debug/switches"))
}

/// Returns all mutants of a part as JSON.
fn list(part: &Part) -> Outcome<Vec<u8>> {
    let mut command = Command::new("cargo-mutants");
    command.args(["mutants", "--list", "--json", "--package", part.package]);
    for file in part.files {
        command.args(["--file", file]);
    }
    output(command.current_dir(root()))
}

/// Puts the mutants into the copy, without those that are left out.
fn change(
    part: &Part,
    switches: &Path,
    home: &Path,
    copy: &Path,
    unviable: &BTreeSet<u32>,
    without: &BTreeSet<u32>,
) -> Outcome<BTreeMap<String, Places>> {
    let (left, places) = (home.join("left.json"), home.join("places.json"));
    let numbers: Vec<&u32> = unviable.union(without).collect();
    fs::write(&left, serde_json::json!(numbers).to_string()).at("writing", &left)?;
    run(Command::new(switches)
        .arg(copy)
        .arg(home.join("list.json"))
        .args([&left, &places])
        .arg(part.root))?;
    let text = fs::read_to_string(&places).at("reading", &places)?;
    match serde_json::from_str(&text) {
        Ok(places) => Ok(places),
        Err(error) => failed(format!("{}: {error}", places.display())),
    }
}

/// Returns the test programs, or the errors.
fn compile(part: &Part, target: &Path, copy: &Path) -> Outcome<(Vec<Program>, Vec<Value>)> {
    let mut command = Command::new("nice");
    command
        .args(["-n", NICE, "cargo", "test", "--no-run"])
        .arg("--message-format=json")
        .args(["--package", part.package])
        .args(part.beside.iter().flat_map(|it| ["--package", it]))
        .args(part.programs)
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_INCREMENTAL", "1")
        // The change makes code that no lint is meant for.
        .env("RUSTFLAGS", "--cap-lints warn")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_PROFILE_TEST_DEBUG", "0")
        .stderr(Stdio::null());
    let ended = command.output().at("starting", Path::new("nice"))?;
    let (mut programs, mut errors) = (Vec::new(), Vec::new());
    for line in ended.stdout.split(|byte| *byte == b'\n') {
        let Ok(said) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        if said["reason"] == "compiler-message" && said["message"]["level"] == "error" {
            errors.push(said["message"].clone());
        }
        let is_test = said["profile"]["test"] == true;
        if let (true, Some(file), Some(manifest)) = (
            is_test,
            said["executable"].as_str(),
            said["manifest_path"].as_str(),
        ) {
            let manifest = Path::new(manifest);
            programs.push(Program {
                file: PathBuf::from(file),
                directory: manifest.parent().unwrap_or(manifest).to_path_buf(),
            });
        }
    }
    if errors.is_empty() && !ended.status.success() {
        return failed(format!("building {}: {}", part.name, ended.status));
    }
    Ok((programs, errors))
}
