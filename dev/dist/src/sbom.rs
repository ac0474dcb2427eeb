//! The software bill of materials: every crate that is compiled into what is shipped, in SPDX 2.3's JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::Release;
use midair_dev_kit::run::{At, Failure, Outcome, cargo, output};
use midair_dev_stage::layout::PACKAGES;

/// Writes it.
pub fn make(release: &Release) -> Outcome<Vec<PathBuf>> {
    let metadata = output(&mut cargo(&[
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
        &format!("{}-unknown-linux-gnu", release.machine),
    ]))?;
    let metadata: Value = serde_json::from_slice(&metadata)
        .map_err(|why| Failure(format!("cargo metadata: {why}")))?;
    let date = output(
        Command::new("date")
            .args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"])
            .arg(format!("--date=@{}", release.time)),
    )?;
    let text = document(
        &metadata,
        &release.version,
        String::from_utf8_lossy(&date).trim(),
    );
    let to = release.to.join(format!(
        "midair-{}-{}.spdx.json",
        release.version, release.machine
    ));
    std::fs::write(&to, text + "\n").at("writing", &to)?;
    Ok(vec![to])
}

/// The document about the shipped packages of cargo's `metadata`.
fn document(metadata: &Value, version: &str, date: &str) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let is_shipped = |package: &Value| PACKAGES.contains(&text(&package["name"]).as_str());
    let mut open: Vec<String> = packages
        .iter()
        .filter(|(_, package)| is_shipped(package))
        .map(|(id, _)| id.clone())
        .collect();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    while let Some(id) = open.pop() {
        let Some(node) = nodes.get(&id).filter(|_| reached.insert(id.clone())) else {
            continue;
        };
        for dependency in list(&node["deps"]) {
            // Build scripts and tests are not compiled in.
            let linked = list(&dependency["dep_kinds"]);
            if linked.iter().any(|kind| kind["kind"].is_null()) {
                open.push(text(&dependency["pkg"]));
            }
        }
    }
    let described: Vec<Value> = reached
        .iter()
        .filter_map(|id| packages.get(id))
        .map(|package| {
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            let source = package["source"].as_str().map_or_else(
                || "NOASSERTION".to_owned(),
                |_| format!("https://crates.io/crates/{name}/{version}"),
            );
            json!({
                "SPDXID": format!("SPDXRef-{name}-{version}").replace(['_', '+'], "-"),
                "name": name,
                "versionInfo": version,
                "downloadLocation": source,
                "licenseDeclared": package["license"].as_str().unwrap_or("NOASSERTION").replace('/', " OR "),
                "filesAnalyzed": false,
            })
        })
        .collect();
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("midair-{version}"),
        "documentNamespace": format!("https://midair.invalid/spdx/{version}"),
        "creationInfo": { "created": date, "creators": ["Tool: cargo xtask dist"] },
        "packages": described,
    });
    format!("{document:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_what_only_builds_is_not() {
        let node = |id: &str, deps: Vec<Value>| json!({ "id": id, "deps": deps });
        let on = |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let package = |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": "registry" });
        let packages = ["midair-cli", "linked", "deep", "builds", "xtask"].map(package);
        let metadata = json!({
            "packages": packages,
            "resolve": { "nodes": [
                node("midair-cli", vec![on("linked", Value::Null), on("builds", json!("build"))]),
                node("linked", vec![on("deep", Value::Null)]),
                node("deep", vec![]), node("builds", vec![]),
                node("xtask", vec![on("builds", Value::Null)]),
            ] },
        });
        let document: Value =
            serde_json::from_str(&document(&metadata, "0.2.0", "2026-11-23T00:00:00Z")).unwrap();
        let names: Vec<&str> = document["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| package["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["deep", "linked", "midair-cli"]);
        assert_eq!(
            document["packages"][0]["licenseDeclared"],
            "MIT OR Apache-2.0"
        );
    }
}
