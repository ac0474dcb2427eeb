//! `cargo xtask dependencies`: checks what we take from others against the rules in `deny.toml`,
//! which are about banned crates, licences and sources. It also fails for a version with a known
//! weakness.
//!
//! This does the part of cargo-deny that we use, on what cargo itself says. So it is checked on
//! every machine, by the same rules file. Known weaknesses are read from `advisories/`, which has
//! facts of RustSec's database about crates in our lock files, with the day on which they were
//! collected. Where `MIDAIR_ADVISORY_DB` names a whole copy of that database, that is read as well.

mod advisory;
mod licence;
mod toml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::run::{At, Failure, Outcome, cargo, failed, output, root};
use advisory::{Advisory, Locked};
use toml::Document;

/// The lock files of the workspace and of the fuzzers.
const LOCKS: [&str; 2] = ["Cargo.lock", "fuzz/Cargo.lock"];
/// The variable that names a copy of RustSec's database.
const DATABASE: &str = "MIDAIR_ADVISORY_DB";

/// Runs `cargo xtask dependencies`.
pub fn dependencies_task(words: &[String]) -> Outcome<()> {
    if !words.is_empty() {
        return failed("takes no arguments");
    }
    check()
}

/// Checks everything.
pub fn check() -> Outcome<()> {
    let rules = Document::parse(&read(&root().join("deny.toml"))?)
        .map_err(|why| Failure(format!("deny.toml: {why}")))?;
    let mut found = Vec::new();
    let targets = rules.texts("graph.targets");
    let mut packages = BTreeMap::new();
    for target in &targets {
        for package in metadata(target)? {
            packages.insert(package.id.clone(), package);
        }
    }
    let packages: Vec<Package> = packages.into_values().collect();
    for package in &packages {
        found.extend(against(&rules, package));
    }
    for (name, versions) in several(&packages) {
        println!("more than one version of {name}: {}", versions.join(", "));
    }

    let mut locked = Vec::new();
    for lock in LOCKS {
        let path = root().join(lock);
        locked.extend(advisory::locked(&read(&path)?, lock)?);
    }
    let known = advisories()?;
    let ignored = rules.texts("advisories.ignore");
    found.extend(weak(&known, &locked, &ignored));
    println!(
        "{} packages by licence and source, {} in lock files against {} advisories",
        packages.len(),
        locked.len(),
        known.len(),
    );
    if found.is_empty() {
        return Ok(());
    }
    failed(found.join("\n"))
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).at("reading", path)
}

/// Returns the advisories in the repository, and those of a whole database where there is one.
fn advisories() -> Outcome<Vec<Advisory>> {
    let ours = root().join("advisories");
    let mut known = advisory::below(&ours)?;
    if known.is_empty() {
        return failed(format!("no advisory in {}", ours.display()));
    }
    let collected = read(&ours.join("collected"))?;
    match std::env::var_os(DATABASE).map(PathBuf::from) {
        Some(database) => {
            let whole = advisory::below(&database.join("crates"))?;
            if whole.is_empty() {
                return failed(format!("no advisory in {}", database.display()));
            }
            println!("with RustSec's database in {}", database.display());
            known.extend(whole);
        }
        None => println!(
            "advisories about our dependencies as of {}; a whole database: {DATABASE}=DIR",
            collected.trim()
        ),
    }
    Ok(known)
}

/// Returns each advisory about a locked version. One that only says that a crate is not maintained
/// is printed instead.
fn weak(known: &[Advisory], locked: &[Locked], ignored: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for advisory in known {
        for package in locked.iter().filter(|package| advisory.is_about(package)) {
            let text = format!(
                "{} {} ({}) has {}: {}",
                package.name, package.version, package.lock, advisory.id, advisory.title
            );
            if advisory.only_informs || ignored.contains(&advisory.id) {
                println!("not counted: {text}");
            } else if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}

/// A package as cargo describes it.
#[derive(Debug, Clone)]
struct Package {
    id: String,
    name: String,
    version: String,
    licence: Option<String>,
    /// Where the package is from, or `None` if it is from this workspace.
    source: Option<String>,
    /// Dependencies from registries for which it accepts any version.
    wildcards: Vec<String>,
}

fn metadata(target: &str) -> Outcome<Vec<Package>> {
    let mut command = cargo(&["metadata", "--format-version", "1", "--locked", "--quiet"]);
    let said = output(command.args(["--all-features", "--filter-platform", target]))?;
    let said: Json = serde_json::from_slice(&said)
        .map_err(|error| Failure(format!("what cargo metadata says: {error}")))?;
    let packages = said["packages"].as_array().map(Vec::as_slice);
    // The list has all packages. Only those that are resolved belong to the platform.
    let nodes = said["resolve"]["nodes"].as_array().map(Vec::as_slice);
    let resolved: Vec<&str> = nodes
        .unwrap_or_default()
        .iter()
        .filter_map(|node| node["id"].as_str())
        .collect();
    let all: Vec<Package> = packages.unwrap_or_default().iter().map(package).collect();
    if all.is_empty() || resolved.is_empty() {
        return failed(format!("cargo metadata knows no packages for {target}"));
    }
    let of_target = |package: &Package| resolved.contains(&package.id.as_str());
    Ok(all.into_iter().filter(of_target).collect())
}

fn package(said: &Json) -> Package {
    let text = |key: &str| said[key].as_str().map(str::to_owned);
    let dependencies = said["dependencies"].as_array().map(Vec::as_slice);
    let any = |dependency: &&Json| dependency["req"] == "*" && dependency["path"].is_null();
    Package {
        id: text("id").unwrap_or_default(),
        name: text("name").unwrap_or_default(),
        version: text("version").unwrap_or_default(),
        licence: text("license"),
        source: text("source"),
        wildcards: dependencies
            .unwrap_or_default()
            .iter()
            .filter(any)
            .filter_map(|dependency| Some(dependency["name"].as_str()?.to_owned()))
            .collect(),
    }
}

/// Returns what the rules say against a package.
fn against(rules: &Document, package: &Package) -> Vec<String> {
    let mut found = Vec::new();
    let is = format!("{} {}", package.name, package.version);
    if rules.texts("bans.deny").contains(&package.name) {
        found.push(format!("{is} is banned"));
    }
    let Some(source) = &package.source else {
        // This rule is only for our own packages. What others accept is their own affair, since the
        // lock file decides.
        if rules.text("bans.wildcards").as_deref() == Some("deny") {
            let any = package.wildcards.iter();
            found.extend(any.map(|name| format!("{is} accepts any version of {name}")));
        }
        return found;
    };
    let registries = rules.texts("sources.allow-registry");
    let registry = source.strip_prefix("registry+");
    if !registry.is_some_and(|url| registries.iter().any(|allowed| allowed == url)) {
        found.push(format!("{is} is from {source}"));
    }
    let allowed = rules.texts("licenses.allow");
    match &package.licence {
        Some(text) if licence::is_allowed(text, &allowed) => {}
        Some(text) => found.push(format!("{is} has the licence {text}")),
        None => found.push(format!("{is} names no licence")),
    }
    found
}

/// Returns the packages with more than one version.
fn several(packages: &[Package]) -> BTreeMap<&str, Vec<&str>> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let list = versions.entry(&package.name).or_default();
        list.push(&package.version);
    }
    versions.retain(|_, list| list.len() > 1);
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
[licenses]
allow = ["MIT", "Apache-2.0"]
[bans]
wildcards = "deny"
deny = [{ crate = "tokio" }, { crate = "bindgen" }]
[sources]
allow-registry = ["https://github.com/rust-lang/crates.io-index"]
"#;

    fn good() -> Package {
        Package {
            id: String::new(),
            name: "one".to_owned(),
            version: "1.0.0".to_owned(),
            licence: Some("MIT OR Apache-2.0".to_owned()),
            source: Some("registry+https://github.com/rust-lang/crates.io-index".to_owned()),
            wildcards: Vec::new(),
        }
    }

    #[test]
    fn each_rule_refuses_what_it_names() {
        let rules = Document::parse(RULES).unwrap();
        let against = |package: Package| against(&rules, &package).join("; ");
        assert_eq!(against(good()), "");
        let mut banned = good();
        banned.name = "tokio".to_owned();
        assert_eq!(against(banned), "tokio 1.0.0 is banned");
        let mut viral = good();
        viral.licence = Some("GPL-3.0".to_owned());
        assert_eq!(against(viral), "one 1.0.0 has the licence GPL-3.0");
        let mut none = good();
        none.licence = None;
        assert_eq!(against(none), "one 1.0.0 names no licence");
        let mut elsewhere = good();
        elsewhere.source = Some("git+https://example.org/one".to_owned());
        assert_eq!(
            against(elsewhere),
            "one 1.0.0 is from git+https://example.org/one"
        );
        let mut ours = good();
        (ours.source, ours.licence) = (None, None);
        ours.wildcards.push("two".to_owned());
        assert_eq!(against(ours), "one 1.0.0 accepts any version of two");
    }

    #[test]
    fn a_version_with_a_weakness_is_found_in_a_lock_file() {
        let lock = "[[package]]\nname = \"bytes\"\nversion = \"1.11.0\"\n\n\
            [[package]]\nname = \"other\"\nversion = \"1.11.0\"\n";
        let locked = advisory::locked(lock, "Cargo.lock").unwrap();
        assert_eq!(locked.len(), 2);
        let known = advisory::below(&root().join("advisories")).unwrap();
        let found = weak(&known, &locked, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("bytes 1.11.0 (Cargo.lock) has RUSTSEC-2026-0007: "),
            "{found:?}"
        );
        let ignored = ["RUSTSEC-2026-0007".to_owned()];
        assert!(weak(&known, &locked, &ignored).is_empty());
        let repaired = lock.replace("1.11.0", "1.11.1");
        let locked = advisory::locked(&repaired, "Cargo.lock").unwrap();
        assert!(weak(&known, &locked, &[]).is_empty());
    }

    /// The list is about what we use. An advisory about a crate that we no longer use must be
    /// removed.
    #[test]
    fn every_advisory_is_about_a_crate_in_a_lock_file() {
        let mut names = Vec::new();
        for lock in LOCKS {
            let text = read(&root().join(lock)).unwrap();
            let locked = advisory::locked(&text, lock).unwrap();
            names.extend(locked.into_iter().map(|it| it.name));
        }
        for advisory in advisory::below(&root().join("advisories")).unwrap() {
            assert!(names.contains(&advisory.package), "{advisory:?}");
        }
    }
}
