//! Advisories in the form of RustSec's database: TOML, alone or at the head of a Markdown file.

use std::path::Path;

use semver::{Version, VersionReq};

use super::toml::Document;
use midair_dev_kit::run::{At, Failure, Outcome};

/// A known weakness of some versions of a crate.
#[derive(Debug)]
pub(super) struct Advisory {
    pub(super) id: String,
    pub(super) package: String,
    pub(super) title: String,
    /// Whether it only says that a crate is not maintained, or the like, which is no weakness.
    pub(super) only_informs: bool,
    /// The versions without the weakness: repaired ones, and those that never had it.
    without: Vec<VersionReq>,
}

/// A package of a lock file.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) name: String,
    pub(super) version: Version,
    pub(super) lock: String,
}

impl Advisory {
    /// Returns whether a package has a version with the weakness.
    pub(super) fn is_about(&self, package: &Locked) -> bool {
        // Requirements match no prerelease, so a prerelease counts as its release.
        let version = Version {
            pre: semver::Prerelease::EMPTY,
            ..package.version.clone()
        };
        self.package == package.name && !self.without.iter().any(|good| good.matches(&version))
    }

    /// Reads an advisory. `Ok(None)` means that it was withdrawn.
    fn parse(text: &str) -> Result<Option<Advisory>, String> {
        let fenced = text.split_once("```toml").map(|(_, rest)| rest);
        let head = fenced.and_then(|rest| Some(rest.split_once("```")?.0));
        let document = Document::parse(head.unwrap_or(text))?;
        if document.text("advisory.withdrawn").is_some() {
            return Ok(None);
        }
        let must = |key: &str| document.text(key).ok_or(format!("no {key}"));
        let mut without = Vec::new();
        for key in ["versions.patched", "versions.unaffected"] {
            for text in document.texts(key) {
                let good = VersionReq::parse(&text).map_err(|error| format!("{text}: {error}"))?;
                without.push(good);
            }
        }
        // A Markdown file has the title as its heading.
        let heading = text.lines().find_map(|line| line.strip_prefix("# "));
        let title = document.text("advisory.title");
        let informs = document.text("advisory.informational");
        Ok(Some(Advisory {
            id: must("advisory.id")?,
            package: must("advisory.package")?,
            title: title.or(heading.map(str::to_owned)).unwrap_or_default(),
            // An unsound crate counts as a weakness.
            only_informs: informs.is_some_and(|kind| kind != "unsound"),
            without,
        }))
    }
}

/// Returns all advisories in the files below a directory.
pub(super) fn below(directory: &Path) -> Outcome<Vec<Advisory>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).at("listing", directory)? {
        let path = entry.at("listing", directory)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            found.extend(below(&path)?);
        } else if name.starts_with("RUSTSEC-") {
            let text = std::fs::read_to_string(&path).at("reading", &path)?;
            let advisory = Advisory::parse(&text);
            let advisory = advisory.map_err(|why| Failure(format!("{}: {why}", path.display())))?;
            found.extend(advisory);
        }
    }
    Ok(found)
}

/// Returns the packages of a lock file.
pub(super) fn locked(text: &str, lock: &str) -> Outcome<Vec<Locked>> {
    let document = Document::parse(text).map_err(|why| Failure(format!("{lock}: {why}")))?;
    let package = |table: &toml::Table| {
        let text = |key: &str| table.get(key)?.as_str();
        Some(Locked {
            name: text("name")?.to_owned(),
            version: Version::parse(text("version")?).ok()?,
            lock: lock.to_owned(),
        })
    };
    document
        .tables("package")
        .map(package)
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| Failure(format!("{lock}: a package has no name or version")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(version: &str) -> Locked {
        Locked {
            name: "one".to_owned(),
            version: Version::parse(version).unwrap(),
            lock: String::new(),
        }
    }

    #[test]
    fn versions_that_are_not_without_it_have_it() {
        let text = "```toml\n[advisory]\nid = \"RUSTSEC-2020-0001\"\npackage = \"one\"\n\
            date = \"2020-01-01\"\n\n[versions]\npatched = [\"^0.6.14\", \">= 1.6.1\"]\n\
            unaffected = [\"< 0.6.3\"]\n```\n\n# A title\n\nWords.\n";
        let advisory = Advisory::parse(text).unwrap().unwrap();
        assert_eq!(
            (&*advisory.id, &*advisory.title),
            ("RUSTSEC-2020-0001", "A title")
        );
        for (version, has_it) in [
            ("0.6.2", false),
            ("0.6.3", true),
            ("0.6.13", true),
            ("0.6.14", false),
            ("1.0.0", true),
            ("1.6.1", false),
            ("2.0.0", false),
            ("1.6.0-alpha.1", true),
        ] {
            assert_eq!(advisory.is_about(&package(version)), has_it, "{version}");
        }
        assert!(!advisory.only_informs);
    }

    #[test]
    fn without_a_repaired_version_all_have_it() {
        let text = "[advisory]\nid = \"RUSTSEC-2020-0002\"\npackage = \"one\"\n\
            informational = \"unmaintained\"\n[versions]\npatched = []\n";
        let advisory = Advisory::parse(text).unwrap().unwrap();
        assert!(advisory.is_about(&package("9.9.9")) && advisory.only_informs);
        let withdrawn = text.replace("[versions]", "withdrawn = \"2021-01-01\"\n[versions]");
        assert!(Advisory::parse(&withdrawn).unwrap().is_none());
        assert!(Advisory::parse("[advisory]\nid = \"x\"\n").is_err());
        let odd = text.replace("patched = []", "patched = [\"what\"]");
        assert!(Advisory::parse(&odd).is_err());
    }
}
