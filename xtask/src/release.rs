//! Checks a release: the tag, the workspace and the changelog must name one version. The
//! changelog's section for it is published with the release.

use std::path::Path;

use midair_dev_kit::run::{At, Failure, Outcome, failed, root};

/// The version, whose only place is the workspace, from which every package has it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs `cargo xtask release`.
pub fn release_task(words: &[String]) -> Outcome<()> {
    let changelog = root().join("CHANGELOG.md");
    let text = std::fs::read_to_string(&changelog).at("reading", &changelog)?;
    match words {
        [word, tag] if word == "--notes" => {
            if tag != &format!("v{VERSION}") {
                return failed(format!(
                    "the tag is {tag}, and the workspace's version {VERSION}"
                ));
            }
            print!("{}", notes(&text, VERSION)?);
            Ok(())
        }
        _ => failed("takes --notes TAG"),
    }
}

/// Returns the section of this version, without its heading.
fn notes(changelog: &str, version: &str) -> Outcome<String> {
    let missing = || {
        let file = Path::new("CHANGELOG.md").display();
        Failure(format!(
            "{file} has no section \"## {version} (YYYY-MM-DD)\""
        ))
    };
    let mut sections = changelog.split("\n## ").skip(1);
    let section = sections.find(|section| {
        let heading = section.lines().next().unwrap_or_default();
        let mut words = heading.split(' ');
        words.next() == Some(version) && words.next().is_some_and(is_date)
    });
    let (_, body) = section
        .and_then(|section| section.split_once('\n'))
        .ok_or_else(missing)?;
    Ok(format!("{}\n", body.trim()))
}

/// Returns whether a word is a date such as `(2026-11-24)`.
fn is_date(word: &str) -> bool {
    let inner = word
        .strip_prefix('(')
        .and_then(|word| word.strip_suffix(')'));
    inner.is_some_and(|date| {
        date.len() == 10
            && date.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_of_a_version_is_its_notes() {
        let text = "# Changelog\n\n## Unreleased\n\n* new\n\n## 0.2.0 (2026-11-24)\n\n### Added\n\n* a\n\n## 0.1.0\n\n* b\n";
        assert_eq!(notes(text, "0.2.0").unwrap(), "### Added\n\n* a\n");
        assert!(
            notes(text, "0.1.0").is_err(),
            "without a date it is not released"
        );
        assert!(notes(text, "0.3.0").is_err());
    }

    /// The changelog has a section for the version that is built, unless it is the one before
    /// `Unreleased`.
    #[test]
    fn the_changelog_names_the_workspaces_version() {
        let text = std::fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
        assert!(text.contains(&format!("\n## {VERSION}")), "{VERSION}");
    }
}
