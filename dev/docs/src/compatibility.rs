//! Makes docs/compatibility.md from `api/compatibility.tsv`, and checks the table against our own tables: of
//! options, of kinds, of exported functions. Tests of `midair-output`, `midair-compute` and `midair-cli` check
//! the parts about files and about other commands.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

use midair_abi::names::{BUFFER_KINDS, CALLBACK_KINDS, Kind};
use midair_settings::options::options;

use midair_dev_kit::run::{At, Outcome, failed, root};

const TABLE: &str = "api/compatibility.tsv";
const EXPORTS: &str = "tests/e2e/exports.txt";
/// The page, below docs.
pub const PAGE: &str = "docs/compatibility.md";

/// Whether midair has something of AMD's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Same,
    Differs,
    Ignored,
    NotBuilt,
}

impl State {
    const ALL: [(State, &str, &str); 4] = [
        (State::Same, "same", "same"),
        (State::Differs, "differs", "differs"),
        (State::Ignored, "ignored", "no effect"),
        (State::NotBuilt, "none", "not built"),
    ];

    fn of(word: &str) -> Option<State> {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, it, _)| *it == word).map(|(state, ..)| state)
    }
}

#[derive(Debug)]
struct Row<'a> {
    name: &'a str,
    since: &'a str,
    state: State,
    decisions: &'a str,
    columns: usize,
}

impl Row<'_> {
    /// Returns the name with the number of its columns, or with the words of an option that are refused.
    fn shown(&self, part: &str) -> String {
        let long = self.name.trim_start_matches('-');
        let option = options().find(|option| part == "rocprofv3" && option.long == long);
        let refused: Vec<String> = option
            .filter(|option| option.is_built())
            .map_or(&[][..], |option| option.later_words)
            .iter()
            .map(|word| format!("`{word}`"))
            .collect();
        match (self.columns, refused.as_slice()) {
            (0, []) => format!("`{}`", self.name),
            (0, words) => format!("`{}` (not {})", self.name, words.join(", ")),
            (columns, _) => format!("`{}` ({columns} columns)", self.name),
        }
    }
}

#[derive(Debug)]
struct Part<'a> {
    id: &'a str,
    heading: &'a str,
    sentence: &'a str,
    rows: Vec<Row<'a>>,
}

impl Part<'_> {
    fn names(&self) -> Vec<&str> {
        self.rows.iter().map(|row| row.name).collect()
    }

    fn count(&self, state: State) -> usize {
        self.rows.iter().filter(|row| row.state == state).count()
    }
}

fn parts(text: &str) -> Outcome<Vec<Part<'_>>> {
    let mut all: Vec<Part> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split('\t');
        let mut next = || fields.next().unwrap_or_default();
        let first = next();
        if let Some(id) = first.strip_prefix("= ") {
            all.push(Part {
                id,
                heading: next(),
                sentence: next(),
                rows: Vec::new(),
            });
            continue;
        }
        let (name, since, word, decisions, columns) = (next(), next(), next(), next(), next());
        let part = all.last_mut().filter(|part| part.id == first);
        let (Some(part), Some(state)) = (part, State::of(word)) else {
            return failed(format!("{TABLE}: cannot read {line:?}"));
        };
        if state == State::Differs && decisions.is_empty() {
            return failed(format!("{TABLE}: {name} differs by no decision"));
        }
        part.rows.push(Row {
            name,
            since,
            state,
            decisions,
            columns: columns.split(',').filter(|it| !it.is_empty()).count(),
        });
    }
    Ok(all)
}

/// Compares the rows about options with the table of options.
fn check_options(part: &Part, wrong: &mut Vec<String>) {
    for row in &part.rows {
        let long = row.name.trim_start_matches('-');
        match options().find(|option| option.long == long) {
            None => wrong.push(format!("{} is not in the table of options", row.name)),
            Some(option) if option.is_built() == (row.state == State::NotBuilt) => {
                wrong.push(format!(
                    "{}: the table of options has another state",
                    row.name
                ));
            }
            Some(_) => {}
        }
    }
}

/// Compares the rows about kinds with AMD's kinds, without the kind "none".
fn check_kinds(part: &Part, kinds: &[Kind], wrong: &mut Vec<String>) {
    let known: Vec<&str> = kinds
        .iter()
        .skip(1)
        .map(|kind| kind.name.as_str())
        .collect();
    if part.names() != known {
        wrong.push(format!(
            "the part {} has other kinds than the headers",
            part.id
        ));
    }
}

/// The exported functions of AMD's interfaces, by library.
struct Exports<'a>(Vec<(&'a str, BTreeSet<&'a str>)>);

impl<'a> Exports<'a> {
    fn of(text: &'a str) -> Exports<'a> {
        let mut all: Vec<(&str, BTreeSet<&str>)> = Vec::new();
        for line in text.lines() {
            match (line.strip_prefix("  T "), all.last_mut()) {
                (Some(name), Some((_, names))) if !name.starts_with("midair_") => {
                    names.insert(name);
                }
                (None, _) if !line.contains(" -> ") => all.push((line.trim(), BTreeSet::new())),
                _ => {}
            }
        }
        all.retain(|(library, names)| library.starts_with("librocprof") && !names.is_empty());
        Exports(all)
    }
}

fn check_functions(part: &Part, exports: &Exports, wrong: &mut Vec<String>) {
    for row in &part.rows {
        if !exports.0.iter().any(|(_, names)| names.contains(row.name)) {
            wrong.push(format!("{} is not exported", row.name));
        }
    }
}

/// Returns the links to decisions.
fn links(decisions: &str) -> String {
    let link = |id: &str| {
        let page = match id.split('-').next() {
            Some("FMT") => "formats",
            Some("ENG") => "engine",
            Some("CUDA") => "cuda",
            _ => "amd",
        };
        format!("[{id}](deviations/{page}.md#{})", id.to_ascii_lowercase())
    };
    let all: Vec<String> = decisions.split_whitespace().map(link).collect();
    all.join(", ")
}

/// Writes a table with one line for all rows that have the same state, version and decisions.
fn table(part: &Part, out: &mut String) {
    out.push_str("| | names | since | decisions |\n|---|---|---|---|\n");
    for (state, _, word) in State::ALL {
        let mut done: Vec<(&str, &str)> = Vec::new();
        let of_state = || part.rows.iter().filter(move |row| row.state == state);
        for key in of_state().map(|row| (row.since, row.decisions)) {
            if done.contains(&key) {
                continue;
            }
            done.push(key);
            let same = of_state().filter(|row| (row.since, row.decisions) == key);
            let names: Vec<String> = same.map(|row| row.shown(part.id)).collect();
            let (names, decisions) = (names.join(", "), links(key.1));
            let _ = writeln!(out, "| {word} | {names} | {} | {decisions} |", key.0);
        }
    }
}

fn page(parts: &[Part], exports: &Exports) -> String {
    let mut out = format!(
        "# Compatibility with AMD's tools\n\n\
         Made by `cargo xtask docs` from `{TABLE}`: do not edit. AMD's interfaces up to SDK 1.4 (ROCm 10.1), as far as\n\
         [the sources](sources.md) have them.\n\n\
         * same: does what AMD's does.\n\
         * differs: does it in another way, which the decision says.\n\
         * no effect: is accepted with a warning.\n\
         * not built: is refused by name, or with a status.\n\
         * since: AMD's version that has it first, where that is known.\n\n\
         | | same | differs | no effect | not built |\n|---|---|---|---|---|\n"
    );
    let all: usize = exports.0.iter().map(|(_, names)| names.len()).sum();
    for part in parts {
        let mut same = part.count(State::Same);
        if part.id == "function" {
            same = all - part.rows.len();
        }
        let others = [State::Differs, State::Ignored, State::NotBuilt];
        let [differs, ignored, none] = others.map(|state| part.count(state));
        let heading = part.heading;
        let _ = writeln!(
            out,
            "| {heading} | {same} | {differs} | {ignored} | {none} |"
        );
    }
    for part in parts {
        let _ = write!(out, "\n## {}\n\n", part.heading);
        if !part.sentence.is_empty() {
            let _ = write!(out, "{}\n\n", part.sentence);
        }
        if part.id == "function" {
            out.push_str("| library | functions |\n|---|---|\n");
            for (library, names) in &exports.0 {
                let _ = writeln!(out, "| `{library}` | {} |", names.len());
            }
            out.push('\n');
        }
        table(part, &mut out);
    }
    out
}

/// Returns the page's text.
///
/// # Errors
/// Fails when the table contradicts our own tables.
pub fn markdown() -> Outcome<String> {
    let read = |name: &str| {
        let path = root().join(name);
        fs::read_to_string(&path).at("reading", &path)
    };
    let (text, exported) = (read(TABLE)?, read(EXPORTS)?);
    let (parts, exports) = (parts(&text)?, Exports::of(&exported));
    let mut wrong = Vec::new();
    for part in &parts {
        match part.id {
            "rocprofv3" => check_options(part, &mut wrong),
            "buffer" => check_kinds(part, BUFFER_KINDS, &mut wrong),
            "callback" => check_kinds(part, CALLBACK_KINDS, &mut wrong),
            "function" => check_functions(part, &exports, &mut wrong),
            _ => {}
        }
    }
    match wrong.is_empty() {
        true => Ok(page(&parts, &exports)),
        false => failed(format!("{TABLE}: {}", wrong.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a comment\n= rocprofv3\tOptions\tA sentence.\n\
        rocprofv3\t--kernel-trace\t\tsame\n\
        rocprofv3\t--spm\t2026\tnone\tAMD-067\n\
        rocprofv3\t--pmc\t\tdiffers\tAMD-120 FMT-023\n";

    fn wrong(text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for part in parts(text).unwrap() {
            check_options(&part, &mut wrong);
        }
        wrong
    }

    #[test]
    fn a_row_that_contradicts_the_options_is_found() {
        assert_eq!(wrong(TEXT), Vec::<String>::new());
        assert_eq!(wrong(&TEXT.replace("same", "none")).len(), 1);
        assert_eq!(wrong(&TEXT.replace("none", "same")).len(), 1);
        assert_eq!(wrong(&TEXT.replace("--spm", "--spmm")).len(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for text in [
            TEXT.replace("same", "equal"),
            TEXT.replace("AMD-120 FMT-023", ""),
            TEXT.replace("= rocprofv3", "= other"),
        ] {
            assert!(parts(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn kinds_are_those_of_the_headers() {
        let names = |kinds: &[&str]| -> String {
            let row = |kind: &&str| format!("buffer\t{kind}\t\tsame\n");
            "= buffer\tKinds\t\n".to_owned() + &kinds.iter().map(row).collect::<String>()
        };
        let known: Vec<&str> = CALLBACK_KINDS.iter().map(|it| it.name.as_str()).collect();
        for (kinds, mistakes) in [(&known[1..], 0), (&known[..], 1), (&known[2..], 1)] {
            let (text, mut wrong) = (names(kinds), Vec::new());
            check_kinds(&parts(&text).unwrap()[0], CALLBACK_KINDS, &mut wrong);
            assert_eq!(wrong.len(), mistakes, "{wrong:?}");
        }
    }

    #[test]
    fn functions_are_counted_by_library() {
        let text = "libmidair.so.0\n  T midair_detach\nlibrocprofiler-x.so -> librocprofiler-x.so.1\n\
            librocprofiler-x.so.1\n  T midair_enter\n  T rocprofiler_a\n  T rocprofiler_b\n";
        let exports = Exports::of(text);
        assert_eq!(exports.0.len(), 1);
        assert_eq!(exports.0[0].0, "librocprofiler-x.so.1");
        assert_eq!(exports.0[0].1.len(), 2);
        let rows = "= function\tFunctions\t\nfunction\trocprofiler_a\t\tsame\nfunction\trocprofiler_c\t\tsame\n";
        let mut wrong = Vec::new();
        check_functions(&parts(rows).unwrap()[0], &exports, &mut wrong);
        assert_eq!(wrong, ["rocprofiler_c is not exported"]);
    }

    #[test]
    fn rows_of_one_state_version_and_decision_are_one_line() {
        let rows = "rocprofv3\t--hip-trace\t\tsame\nrocprofv3\t--replay-mode\t\tsame\n";
        let text = TEXT.to_owned() + rows;
        let mut out = String::new();
        table(&parts(&text).unwrap()[0], &mut out);
        let lines: Vec<&str> = out.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| same | `--kernel-trace`, `--hip-trace`, `--replay-mode` (not `kernel`) |  |  |",
                "| differs | `--pmc` |  | [AMD-120](deviations/amd.md#amd-120), [FMT-023](deviations/formats.md#fmt-023) |",
                "| not built | `--spm` | 2026 | [AMD-067](deviations/amd.md#amd-067) |",
            ]
        );
    }
}
