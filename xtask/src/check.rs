//! `cargo xtask check`: the quick answer while a change is made. It runs format, lints and unit
//! tests, for the packages that changed and for those that depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value as Json;

use crate::setup;
use midair_dev_kit::run::{Failure, Outcome, cargo, failed, output, root, run};

/// Files of the root directory that every package depends on.
const OF_ALL: [&str; 5] = [
    "Cargo.toml",
    "Cargo.lock",
    "clippy.toml",
    "rust-toolchain.toml",
    ".cargo/config.toml",
];

/// Runs `cargo xtask check`.
pub fn check_task(words: &[String]) -> Outcome<()> {
    let base = match words {
        [] => base()?,
        [option, commit] if option == "--since" => commit.clone(),
        _ => return failed("takes --since COMMIT, or nothing"),
    };
    let changed = changed_files(&base)?;
    let packages = packages()?;
    let chosen = chosen(&packages, &changed);
    println!(
        "since {base}: {} files, {} packages with their dependents",
        changed.len(),
        chosen.len()
    );
    timed("format", || run(&mut cargo(&["fmt", "--all", "--check"])))?;
    if chosen.is_empty() {
        return Ok(());
    }
    timed("lints", || {
        // What did not change is not compiled again. With the whole workspace, other packages have
        // the features with which the suite builds them, and are not compiled a second time.
        let mut clippy = cargo(&["clippy", "--workspace", "--all-targets"]);
        run(clippy.args(["--", "-D", "warnings"]))
    })?;
    timed("unit tests", || {
        let units: BTreeSet<&str> = chosen
            .iter()
            .copied()
            .filter(|name| packages[*name].has_units)
            .collect();
        if units.is_empty() {
            return Ok(());
        }
        if setup::has_subcommand("nextest") {
            let mut nextest = cargo(&["nextest", "run", "--workspace", "--lib", "--bins"]);
            nextest.args(["--no-tests", "pass", "--filterset", &filter(&units)]);
            return run(&mut nextest);
        }
        let mut test = cargo(&["test", "--lib", "--bins"]);
        for package in units {
            test.args(["--package", package]);
        }
        run(&mut test)
    })
}

/// Runs a step and says how long it took.
fn timed(name: &str, step: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    println!("== {name}");
    let began = Instant::now();
    let outcome = step();
    println!("== {name}: {:.1} s", began.elapsed().as_secs_f64());
    outcome
}

/// Returns nextest's filter for the tests of these packages.
fn filter(packages: &BTreeSet<&str>) -> String {
    let all: Vec<String> = packages
        .iter()
        .map(|name| format!("package(={name})"))
        .collect();
    all.join(" + ")
}

/// Returns the commit where this work left the main branch, or the newest one on it.
fn base() -> Outcome<String> {
    let mut tried = Vec::new();
    for main in ["origin/main", "main"] {
        let mut git = git(&["merge-base", "HEAD", main]);
        match output(&mut git) {
            Ok(said) => return Ok(String::from_utf8_lossy(&said).trim().to_owned()),
            Err(failure) => tried.push(failure.0),
        }
    }
    failed(format!("no main branch: {}", tried.join("; ")))
}

fn git(words: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args(words).current_dir(root());
    git
}

/// Returns the files that differ from a commit, with those that git does not know yet.
fn changed_files(base: &str) -> Outcome<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for words in [
        &["diff", "--name-only", "--no-renames", base][..],
        &["ls-files", "--others", "--exclude-standard"],
    ] {
        let said = output(&mut git(words))?;
        found.extend(String::from_utf8_lossy(&said).lines().map(PathBuf::from));
    }
    Ok(found)
}

/// A package of the workspace.
struct Package {
    /// Its directory in the project.
    directory: PathBuf,
    /// The packages of the workspace that it depends on in any way.
    needs: BTreeSet<String>,
    /// Whether it has a library or program with unit tests.
    has_units: bool,
}

fn packages() -> Outcome<BTreeMap<String, Package>> {
    let mut command = cargo(&["metadata", "--format-version", "1", "--no-deps", "--quiet"]);
    let said: Json = serde_json::from_slice(&output(&mut command)?)
        .map_err(|error| Failure(format!("what cargo metadata says: {error}")))?;
    Ok(read_packages(&said, &root()))
}

fn read_packages(said: &Json, root: &Path) -> BTreeMap<String, Package> {
    let list = |value: &Json| value.as_array().cloned().unwrap_or_default();
    let mut packages = BTreeMap::new();
    for package in list(&said["packages"]) {
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
        let directory = manifest.parent().unwrap_or(&manifest);
        let directory = directory.strip_prefix(root).unwrap_or(directory);
        let needs = list(&package["dependencies"])
            .iter()
            .filter(|dependency| !dependency["path"].is_null())
            .filter_map(|dependency| Some(dependency["name"].as_str()?.to_owned()))
            .collect();
        let has_units = list(&package["targets"]).iter().any(|target| {
            let kinds = list(&target["kind"]);
            let is_of = |kind: &Json| {
                kind.as_str()
                    .is_some_and(|it| it == "bin" || it.ends_with("lib"))
            };
            target["test"] == true && kinds.iter().any(is_of)
        });
        let name = package["name"].as_str().unwrap_or_default().to_owned();
        let directory = directory.to_owned();
        packages.insert(
            name,
            Package {
                directory,
                needs,
                has_units,
            },
        );
    }
    packages
}

/// Returns the packages that files belong to, and all that depend on them.
fn chosen<'a>(
    packages: &'a BTreeMap<String, Package>,
    changed: &BTreeSet<PathBuf>,
) -> BTreeSet<&'a str> {
    let every = OF_ALL.iter().any(|name| changed.contains(Path::new(name)));
    // A package can lie in another one's directory; the file is of the innermost.
    let owner = |file: &PathBuf| {
        let above = packages
            .iter()
            .filter(|(_, package)| file.starts_with(&package.directory));
        above.max_by_key(|(_, package)| package.directory.components().count())
    };
    let mut chosen: BTreeSet<&str> = match every {
        true => packages.keys().map(String::as_str).collect(),
        false => changed
            .iter()
            .filter_map(owner)
            .map(|(name, _)| name.as_str())
            .collect(),
    };
    // Facts that many packages are built from.
    if changed.iter().any(|file| file.starts_with("api")) {
        chosen.extend(
            packages
                .get_key_value("midair-abi")
                .map(|(name, _)| name.as_str()),
        );
    }
    loop {
        let dependents = packages
            .iter()
            .filter(|(_, package)| {
                package
                    .needs
                    .iter()
                    .any(|need| chosen.contains(need.as_str()))
            })
            .map(|(name, _)| name.as_str());
        let more: BTreeSet<&str> = chosen.iter().copied().chain(dependents).collect();
        if more.len() == chosen.len() {
            return chosen;
        }
        chosen = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> BTreeMap<String, Package> {
        let package = |name: &str, needs: &[&str]| {
            let dependencies: Vec<Json> = needs
                .iter()
                .map(|need| serde_json::json!({"name": need, "path": "/p"}))
                .chain([serde_json::json!({"name": "serde", "path": null})])
                .collect();
            let target = serde_json::json!({"kind": ["lib"], "test": name != "c"});
            serde_json::json!({"name": name, "manifest_path": format!("/p/crates/{name}/Cargo.toml"),
                "dependencies": dependencies, "targets": [target]})
        };
        let all = [
            package("a", &[]),
            package("b", &["a"]),
            package("c", &["b"]),
        ];
        read_packages(&serde_json::json!({"packages": all}), Path::new("/p"))
    }

    #[test]
    fn tests_of_the_chosen_packages_run() {
        let of = |names: &[&'static str]| filter(&names.iter().copied().collect());
        assert_eq!(of(&["a"]), "package(=a)");
        assert_eq!(of(&["a", "b-c"]), "package(=a) + package(=b-c)");
    }

    #[test]
    fn dependents_are_chosen_too() {
        let packages = three();
        let of = |files: &[&str]| -> Vec<String> {
            let files = files.iter().map(PathBuf::from).collect();
            chosen(&packages, &files)
                .into_iter()
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(of(&["crates/b/src/lib.rs"]), ["b", "c"]);
        assert_eq!(of(&["crates/a/Cargo.toml", "README.md"]), ["a", "b", "c"]);
        assert_eq!(of(&["crates/c/x"]), ["c"]);
        assert_eq!(of(&["README.md", "crates/bc/x"]), [""; 0]);
        assert_eq!(of(&["Cargo.lock"]), ["a", "b", "c"]);
        assert!(packages["a"].has_units && !packages["c"].has_units);
        assert_eq!(packages["b"].needs.len(), 1);
    }
}
