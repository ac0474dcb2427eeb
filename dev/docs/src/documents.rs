//! Checks what can be checked of the documents: links, ids, sizes, options in examples.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use midair_settings::Front;
use midair_settings::options::options;

use crate::{environment, words};
use midair_dev_kit::run::{At, Outcome, failed, root};

/// Documents outside of the book.
const LOOSE: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "lab/README.md",
    "dev/mutants/README.md",
    "dev/vm/README.md",
    "examples/attach-tool/README.md",
];
/// Prefixes of the ids of deviations, each with its page.
const DEVIATIONS: &[(&str, &str)] = &[
    ("AMD", "amd.md"),
    ("ENG", "engine.md"),
    ("CUDA", "cuda.md"),
    ("FMT", "formats.md"),
];
/// Options of `midair` that are not in the table of settings.
const OTHER_OPTIONS: &[&str] = &["help", "version", "json", "table", "limit"];
/// The number of lines that the README must stay below.
const README_LINES: usize = 120;
const ARCHITECTURE_BYTES: usize = 8 * 1024;

/// One document.
struct Page {
    /// The path from the root of the repository.
    path: PathBuf,
    text: String,
}

/// Checks all documents and prints every mistake.
///
/// # Errors
/// Fails when there was a mistake or when a document cannot be read.
pub fn check() -> Outcome<()> {
    let mut paths: Vec<PathBuf> = LOOSE.iter().map(PathBuf::from).collect();
    collect(Path::new("docs"), "md", &mut paths)?;
    let pages = read(&paths)?;
    let mut sources = Vec::new();
    for directory in [
        "crates", "sim", "tests", "torture", "xtask", "dev", "benches", "fuzz",
    ] {
        collect(Path::new(directory), "rs", &mut sources)?;
    }
    let sources = read(&sources)?;

    let mut mistakes = Vec::new();
    links(&pages, &mut mistakes);
    contents(&pages, &mut mistakes);
    deviations(&pages, &sources, &mut mistakes);
    cited_topics(&pages, &sources, &mut mistakes);
    named_files(&pages, &mut mistakes);
    sizes(&pages, &mut mistakes);
    commands(&pages, &mut mistakes);
    exit_codes(&pages, &sources, &mut mistakes);
    let texts = pages.iter().chain(&sources);
    environment::check(
        texts.filter_map(|page| Some((page.path.to_str()?, page.text.as_str()))),
        &mut mistakes,
    );
    let texts = pages.iter();
    words::check(
        texts.filter_map(|page| Some((page.path.to_str()?, page.text.as_str()))),
        &mut mistakes,
    );
    let texts = sources.iter();
    words::check_sources(
        texts.filter_map(|page| Some((page.path.to_str()?, page.text.as_str()))),
        &mut mistakes,
    );
    words::subjects(&mut mistakes)?;
    for mistake in &mistakes {
        eprintln!("{mistake}");
    }
    match mistakes.len() {
        0 => Ok(()),
        count => failed(format!("{count} mistakes in documents")),
    }
}

/// Collects the files below a directory with this ending, sorted, by their paths from the root of
/// the repository.
fn collect(directory: &Path, ending: &str, found: &mut Vec<PathBuf>) -> Outcome<()> {
    let at = root().join(directory);
    let mut entries = fs::read_dir(&at)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .at("listing", &at)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = directory.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&path, ending, found)?;
        } else if path.extension().is_some_and(|found| found == ending) {
            found.push(path);
        }
    }
    Ok(())
}

fn read(paths: &[PathBuf]) -> Outcome<Vec<Page>> {
    let page = |path: &PathBuf| {
        let text = fs::read_to_string(root().join(path)).at("reading", path)?;
        Ok(Page {
            path: path.clone(),
            text,
        })
    };
    paths.iter().map(page).collect()
}

/// Checks that each link to a file leads to one, and to a heading or an id in it. Links in the book
/// must stay in the book.
fn links(pages: &[Page], mistakes: &mut Vec<String>) {
    for page in pages {
        let in_book = page.path.starts_with("docs");
        for link in links_of(&page.text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.path.clone(),
                file => normal(&page.path.with_file_name("").join(file)),
            };
            let there = pages.iter().find(|page| page.path == target);
            let wrong = |what: &str| format!("{}: link to {link}: {what}", page.path.display());
            if in_book && !target.starts_with("docs") {
                mistakes.push(wrong("it leads out of the book"));
            } else if in_book && target.ends_with("README.md") {
                mistakes.push(wrong("mdBook makes index.html of a README.md"));
            } else if there.is_none() && !root().join(&target).exists() {
                mistakes.push(wrong("there is no such file"));
            } else if !anchor.is_empty()
                && !there.is_some_and(|page| anchors_of(&page.text).contains(anchor))
            {
                mistakes.push(wrong("there is no such heading"));
            }
        }
    }
}

/// Turns `a/b/../c` into `a/c`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// Returns the lines of a text outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !fence && !in_code
    })
}

/// Returns the targets of a page's inline links and images.
fn links_of(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in prose(text) {
        let mut rest = line;
        while let Some((_, after)) = rest.split_once("](") {
            let Some((link, after)) = after.split_once(')') else {
                break;
            };
            found.push(link);
            rest = after;
        }
    }
    found
}

/// Returns what a link into a page may name: the ids that GitHub and mdBook make of its headings,
/// and ids that the page sets itself.
fn anchors_of(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(text) {
        if line.starts_with('#') {
            found.insert(slug(line.trim_start_matches('#').trim()));
        }
        let mut rest = line;
        while let Some((_, after)) = rest.split_once("<a id=\"") {
            let (id, after) = after.split_once('"').unwrap_or((after, ""));
            found.insert(id.to_owned());
            rest = after;
        }
    }
    found
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => c.to_lowercase().next(),
        _ => None,
    });
    kept.collect()
}

/// Checks that every page of the book is in the table of contents.
fn contents(pages: &[Page], mistakes: &mut Vec<String>) {
    let Some(summary) = pages.iter().find(|page| page.path.ends_with("SUMMARY.md")) else {
        return mistakes.push("docs/SUMMARY.md is missing".to_owned());
    };
    let listed: BTreeSet<PathBuf> = links_of(&summary.text)
        .into_iter()
        .map(|link| Path::new("docs").join(link))
        .collect();
    for page in pages.iter().filter(|page| page.path.starts_with("docs")) {
        if page.path != summary.path && !listed.contains(&page.path) {
            mistakes.push(format!("{} is not in docs/SUMMARY.md", page.path.display()));
        }
    }
}

/// Checks that ids of deviations are unique, on the page of their prefix, each with its decision and
/// reason, and that cited ids exist.
fn deviations(pages: &[Page], sources: &[Page], mistakes: &mut Vec<String>) {
    let mut known = BTreeSet::new();
    for (prefix, file) in DEVIATIONS {
        let path = Path::new("docs/deviations").join(file);
        let Some(page) = pages.iter().find(|page| page.path == path) else {
            mistakes.push(format!("{} is missing", path.display()));
            continue;
        };
        for decision in page.text.split("\n### ").skip(1) {
            let (id, rest) = decision.split_once('\n').unwrap_or((decision, ""));
            if ids_in(id) != [id] || !id.starts_with(prefix) {
                mistakes.push(format!("{}: '{id}' is no {prefix} id", path.display()));
                continue;
            }
            if !rest.starts_with("\n**Decision.** ") || !rest.contains("\n\n**Why.** ") {
                mistakes.push(format!(
                    "{}: {id} has no decision or no reason",
                    path.display()
                ));
            }
            if !known.insert(id.to_owned()) {
                mistakes.push(format!("{}: {id} is there twice", path.display()));
            }
        }
        if page
            .text
            .lines()
            .any(|line| line.starts_with('|') && !ids_in(line).is_empty())
        {
            mistakes.push(format!(
                "{}: an id in a table: one heading an id",
                path.display()
            ));
        }
    }
    for page in pages.iter().chain(sources) {
        for id in ids_in(&page.text) {
            if !known.contains(id) {
                mistakes.push(format!(
                    "{}: there is no deviation {id}",
                    page.path.display()
                ));
            }
        }
    }
}

/// Returns words such as `AMD-012` in a text.
fn ids_in(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let is_id = |word: &&str| {
        word.split_once('-').is_some_and(|(prefix, number)| {
            DEVIATIONS.iter().any(|(known, _)| *known == prefix)
                && number.len() == 3
                && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    words.filter(is_id).collect()
}

/// Checks that the topics of `docs/sources.md` which code cites exist.
fn cited_topics(pages: &[Page], sources: &[Page], mistakes: &mut Vec<String>) {
    const CITED: &str = concat!("docs/sources.md", "#");
    let page = pages.iter().find(|page| page.path.ends_with("sources.md"));
    let topics = page.map(|page| anchors_of(&page.text)).unwrap_or_default();
    for source in sources {
        for after in source.text.split(CITED).skip(1) {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric());
            let topic = &after[..end.unwrap_or(after.len())];
            if !topics.contains(topic) {
                mistakes.push(format!(
                    "{}: docs/sources.md has no topic '{topic}'",
                    source.path.display()
                ));
            }
        }
    }
}

/// Checks that the files of the repository which a page names in code spans exist.
fn named_files(pages: &[Page], mistakes: &mut Vec<String>) {
    const TOPS: [&str; 12] = [
        "crates/",
        "dev/",
        "tests/",
        "xtask/",
        "sim/",
        "torture/",
        "bench-results/",
        "examples/",
        "api/",
        "lab/",
        "include/",
        "docs/",
    ];
    for page in pages {
        let spans = page.text.split('`').skip(1).step_by(2);
        for path in spans.filter(|span| TOPS.iter().any(|top| span.starts_with(top))) {
            let path = path.split('#').next().unwrap_or(path);
            let plain = !path.contains([' ', '*', '{', '\n', '<']);
            if plain && !root().join(path).exists() {
                mistakes.push(format!("{}: there is no {path}", page.path.display()));
            }
        }
    }
}

fn sizes(pages: &[Page], mistakes: &mut Vec<String>) {
    for page in pages {
        let (lines, bytes) = (page.text.lines().count(), page.text.len());
        if page.path == Path::new("README.md") && lines >= README_LINES {
            mistakes.push(format!(
                "README.md has {lines} lines; fewer than {README_LINES} are wanted"
            ));
        }
        if page.path == Path::new("ARCHITECTURE.md") && bytes > ARCHITECTURE_BYTES {
            mistakes.push(format!(
                "ARCHITECTURE.md has {bytes} bytes; at most {ARCHITECTURE_BYTES} are wanted"
            ));
        }
    }
}

/// Checks that the options of our command lines in examples exist.
fn commands(pages: &[Page], mistakes: &mut Vec<String>) {
    for page in pages {
        for line in page.text.lines() {
            let line = line.trim_start();
            let Some(command) = line.strip_prefix("$ ") else {
                continue;
            };
            let front = match command.trim_start_matches("sudo ").split(' ').next() {
                Some("midair") => Front::Midair,
                Some("rocprofv3") => Front::Rocprofv3,
                _ => continue,
            };
            // The rest of the line is a comment, or belongs to another program.
            let own = command.split(" #").next().unwrap_or(command);
            let own = own.split(" -- ").next().unwrap_or(own);
            let words = own.split(' ').filter_map(|word| word.strip_prefix("--"));
            for word in words.map(|word| word.split('=').next().unwrap_or(word)) {
                let named = |name: &str| name == word;
                let known = OTHER_OPTIONS.contains(&word)
                    || options().any(|option| {
                        (option.front == Front::Both || option.front == front)
                            && (named(option.long) || option.aliases.iter().any(|name| named(name)))
                    });
                if !known {
                    mistakes.push(format!(
                        "{}: no option --{word}: {line}",
                        page.path.display()
                    ));
                }
            }
        }
    }
}

/// Checks that the page of exit codes has the code's, and no others but 0.
fn exit_codes(pages: &[Page], sources: &[Page], mistakes: &mut Vec<String>) {
    let page = pages
        .iter()
        .find(|page| page.path.ends_with("exit-codes.md"));
    let written: BTreeSet<u8> = page.map_or(BTreeSet::new(), |page| {
        let cells = page.text.lines().filter_map(|line| line.strip_prefix("| "));
        cells
            .filter_map(|line| line.split(' ').next()?.parse().ok())
            .collect()
    });
    let source = sources.iter().find(|source| {
        source.text.contains("pub enum Kind {") && source.path.starts_with("crates/between/failure")
    });
    let Some((_, body)) = source.and_then(|source| source.text.split_once("kinds! {")) else {
        return mistakes.push(
            "crates/between/failure: no enum Kind is found, whose exit codes docs/exit-codes.md describes"
                .to_owned(),
        );
    };
    let body = body.split('}').next().unwrap_or(body);
    let mut known: BTreeSet<u8> = body
        .lines()
        .filter_map(|line| line.split_once(" = ")?.1.split(',').next()?.parse().ok())
        .collect();
    known.insert(0);
    for code in known.symmetric_difference(&written) {
        mistakes.push(format!(
            "docs/exit-codes.md and crates/between/failure do not agree about exit code {code}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> Page {
        Page {
            path: path.into(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn links_and_anchors_are_found_outside_of_code() {
        let text = "# A heading, with `code`\n[x](a.md#b) and ![y](c.svg)\n```\n[no](no.md)\n```\n<a id=\"amd-001\"></a>\n";
        assert_eq!(links_of(text), ["a.md#b", "c.svg"]);
        let anchors: Vec<_> = anchors_of(text).into_iter().collect();
        assert_eq!(anchors, ["a-heading-with-code", "amd-001"]);
        assert_eq!(
            normal(Path::new("docs/attach/../cuda.md")),
            Path::new("docs/cuda.md")
        );
    }

    #[test]
    fn ids_are_words_with_a_known_prefix_and_three_digits() {
        assert_eq!(
            ids_in("see AMD-012, (FMT-001); not CUDA-12 nor XYZ-001"),
            ["AMD-012", "FMT-001"]
        );
    }

    #[test]
    fn each_kind_of_mistake_is_found() {
        let decision = "\n### AMD-001\n\n**Decision.** What.\n\n**Why.** Because.\n";
        let decisions =
            format!("{decision}{decision}\n### XYZ-1\n\n### AMD-003\n\nwhat\n\n| AMD-004 |\n");
        let pages = [
            page("README.md", &"line\n".repeat(README_LINES)),
            page("ARCHITECTURE.md", &"x".repeat(ARCHITECTURE_BYTES + 1)),
            page("docs/SUMMARY.md", "[a](a.md)"),
            page(
                "docs/a.md",
                "[out](../README.md) [in](README.md) [gone](gone.md) [self](#nothing)\n$ midair attach 1 --no-such-option\n",
            ),
            page("docs/b.md", "AMD-002, `crates/no-such-crate`, `crates/*`"),
            page("docs/deviations/amd.md", &decisions),
            page("docs/sources.md", "## hip\n"),
        ];
        let sources = [page("crates/x.rs", concat!("// docs/sources.md", "#hop"))];
        let found = |check: fn(&[Page], &[Page], &mut Vec<String>)| {
            let mut mistakes = Vec::new();
            check(&pages, &sources, &mut mistakes);
            mistakes.join("\n")
        };
        let all = found(|pages, sources, out| {
            links(pages, out);
            contents(pages, out);
            deviations(pages, sources, out);
            cited_topics(pages, sources, out);
            named_files(pages, out);
            sizes(pages, out);
            commands(pages, out);
            exit_codes(pages, sources, out);
        });
        for part in [
            "leads out of the book",
            "mdBook makes index.html",
            "gone.md: there is no such file",
            "#nothing: there is no such heading",
            "docs/b.md is not in docs/SUMMARY.md",
            "AMD-001 is there twice",
            "'XYZ-1' is no AMD id",
            "AMD-003 has no decision",
            "an id in a table",
            "there is no deviation AMD-002",
            "docs/deviations/engine.md is missing",
            "has no topic 'hop'",
            "there is no crates/no-such-crate",
            "README.md has 120 lines",
            "ARCHITECTURE.md has 8193 bytes",
            "no option --no-such-option",
            "no enum Kind is found",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
    }
}
