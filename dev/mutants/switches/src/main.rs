//! Puts all mutants of a part into one program, each behind a switch.
//!
//! `cargo-mutants` makes one mutant, builds, and runs all tests. Here the mutants that it lists are
//! all built together. While a test runs, the environment says which one is on
//! (`src/runtime.rs`). The same switches tell which mutants a test reaches at all, so only these
//! tests run for a mutant.
//!
//! `switches TREE LIST LEFT PLACES CRATE_ROOT...` changes the files below TREE in place. LIST is what
//! `cargo mutants --list --json` says. LEFT is a list of numbers of mutants that are left out: those
//! that do not compile. PLACES is written: where each mutant is in the changed files.

mod edit;
mod find;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// A line and a column, as cargo-mutants writes them: both from 1, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
struct Point {
    line: usize,
    column: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
struct Span {
    start: Point,
    end: Point,
}

/// A mutant of cargo-mutants' list.
#[derive(Debug, Clone, Deserialize)]
struct Listed {
    file: String,
    genre: String,
    replacement: String,
    span: Span,
}

/// What became of a file's mutants.
#[derive(Debug, Default, Serialize)]
struct Changed {
    /// Where a mutant is in the changed file, in bytes: number, start, end.
    arms: Vec<(u32, usize, usize)>,
    /// Where a place with mutants is: their numbers, start, end.
    sites: Vec<(Vec<u32>, usize, usize)>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("switches: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), String> {
    let [tree, list, left, places, roots @ ..] = words else {
        return Err("TREE LIST LEFT PLACES CRATE_ROOT...".to_owned());
    };
    let tree = Path::new(tree);
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let json = |error: serde_json::Error| error.to_string();
    let listed: Vec<Listed> = serde_json::from_str(&read(Path::new(list))?).map_err(json)?;
    let left: BTreeSet<u32> = serde_json::from_str(&read(Path::new(left))?).map_err(json)?;
    let mut files: BTreeMap<&str, Vec<(u32, &Listed)>> = BTreeMap::new();
    for (number, mutant) in listed.iter().enumerate() {
        files
            .entry(&mutant.file)
            .or_default()
            .push((number as u32, mutant));
    }
    let mut all: BTreeMap<&str, Changed> = BTreeMap::new();
    for (file, mutants) in files {
        let path = tree.join(file);
        let (text, changed) =
            change(&read(&path)?, &mutants, &left).map_err(|error| format!("{file}: {error}"))?;
        fs::write(&path, text).map_err(|error| format!("{file}: {error}"))?;
        all.insert(file, changed);
    }
    for root in roots {
        let path = tree.join(root);
        let text = read(&path)? + include_str!("runtime.rs");
        fs::write(&path, text).map_err(|error| format!("{root}: {error}"))?;
    }
    let text = serde_json::to_string(&all).map_err(json)?;
    fs::write(places, text).map_err(|error| format!("{places}: {error}"))
}

/// Returns a file's text with its mutants behind switches.
fn change(
    text: &str,
    mutants: &[(u32, &Listed)],
    left: &BTreeSet<u32>,
) -> Result<(String, Changed), String> {
    let parsed = syn::parse_file(text).map_err(|error| error.to_string())?;
    let lines = edit::Lines::of(text);
    let mut at: BTreeMap<Span, Vec<(u32, &Listed)>> = BTreeMap::new();
    for (number, mutant) in mutants {
        at.entry(mutant.span).or_default().push((*number, mutant));
    }
    let mut finder = find::Finder::new(text, &lines, at, left);
    syn::visit::Visit::visit_file(&mut finder, &parsed);
    let changed = edit::apply(text, finder.done())?;
    let (arms, sites) = places::read(&changed)?;
    Ok((changed, Changed { arms, sites }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_each_kind() {
        let text = "fn f(a: u32, b: u32) -> bool {\n    a + 1 < b && !g(a)\n}\n";
        let span = |from: usize, to: usize| Span {
            start: Point {
                line: 2,
                column: from,
            },
            end: Point {
                line: 2,
                column: to,
            },
        };
        let one = |genre: &str, replacement: &str, span: Span| Listed {
            file: "a.rs".to_owned(),
            genre: genre.to_owned(),
            replacement: replacement.to_owned(),
            span,
        };
        let list = [
            one("FnValue", "true", span(5, 23)),
            one("FnValue", "false", span(5, 23)),
            one("BinaryOperator", "-", span(7, 8)),
            one("BinaryOperator", "*", span(7, 8)),
            one("BinaryOperator", "==", span(11, 12)),
            one("BinaryOperator", "||", span(15, 17)),
            one("UnaryOperator", "", span(18, 19)),
        ];
        let numbered: Vec<(u32, &Listed)> = (0..).zip(&list).collect();
        let (changed, places) = change(text, &numbered, &BTreeSet::from([4])).unwrap();
        let mut arms: Vec<u32> = places.arms.iter().map(|arm| arm.0).collect();
        arms.sort_unstable();
        assert_eq!(arms, [0, 1, 2, 3, 5, 6]);
        for wanted in ["return true;", "*l - *r", "*l * *r"] {
            assert!(changed.contains(wanted), "{changed}");
        }
        assert!(syn::parse_file(&changed).is_ok(), "{changed}");
    }

    #[test]
    fn arms_guards_and_fields_may_have_a_comma() {
        let text = "fn f(a: u8) -> S {\n    match a { 1 => x(), n if n > 2 => y(), _ => z() };\n    \
            S { a: 1, b: 2, ..s() }\n}\n";
        let one = |genre: &str, replacement: &str, line: usize, from: usize, to: usize| Listed {
            file: "a.rs".to_owned(),
            genre: genre.to_owned(),
            replacement: replacement.to_owned(),
            span: Span {
                start: Point { line, column: from },
                end: Point { line, column: to },
            },
        };
        let list = [
            one("MatchArm", "", 2, 15, 24),
            one("MatchArmGuard", "true", 2, 30, 35),
            one("MatchArmGuard", "false", 2, 30, 35),
            one("StructField", "", 3, 9, 14),
            one("StructField", "", 3, 15, 19),
        ];
        let numbered: Vec<(u32, &Listed)> = (0..).zip(&list).collect();
        let (changed, places) = change(text, &numbered, &BTreeSet::new()).unwrap();
        let mut arms: Vec<u32> = places.arms.iter().map(|arm| arm.0).collect();
        arms.sort_unstable();
        assert_eq!(arms, [0, 1, 2, 3, 4], "{changed}");
        for wanted in ["S {  b: 2, ..s() }", "S { a: 1,  ..s() }"] {
            assert!(changed.contains(wanted), "{changed}");
        }
        assert!(syn::parse_file(&changed).is_ok(), "{changed}");
    }
}
