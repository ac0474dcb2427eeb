//! The rule about words in CONTRIBUTING.md, as far as a list of phrases can tell: each phrase with a
//! better one, for documents, and for comments and messages in sources. Also the subjects of commits.

mod source;

use std::process::Command;

use midair_dev_kit::run::{Outcome, output, root};

/// A phrase in lower case that prose must not have, and a better phrase.
type Phrase = (&'static str, &'static str);

const PHRASES: &[Phrase] = &[
    ("anew", "again"),
    ("gives way", "detaches, yields"),
    ("give way", "detach, yield"),
    ("makes way", "detaches, yields"),
    ("holds up", "blocks"),
    ("holds its readers up", "reading blocks"),
    ("hold up", "block"),
    ("held up", "blocked"),
    ("is born", "is started"),
    ("are born", "are started"),
    ("was born", "was started"),
    ("take turns", "are multiplexed"),
    ("takes turns", "is multiplexed"),
    ("of ours", "midair's, our"),
    ("that of", "name the noun: the buffer is the profiler's"),
    (
        "those of",
        "name the noun: it has the first dispatch's values",
    ),
    ("nobody", "no process, no user"),
    ("somebody", "a process, a user"),
    ("beside", "alongside, next to, in a helper process"),
    ("told apart", "distinguished"),
    ("told", "reported, notified, asked"),
    ("begin", "start"),
    ("begins", "starts"),
    ("began", "started"),
    ("begun", "started"),
    ("beginning", "start"),
];

/// Pages of the past, whose words stay.
const PAST: [&str; 2] = ["CHANGELOG.md", "docs/release-0.2.0.md"];
/// Phrases that documents still have.
const NOT_YET_IN_DOCUMENTS: [&str; 1] = ["told"];
/// Phrases that comments still have.
const NOT_YET_IN_COMMENTS: [&str; 1] = ["of ours"];

/// The commit after which the rule about subjects holds.
const SUBJECTS_SINCE: &str = "09f5cee3897d";
const SUBJECT_LENGTH: usize = 72;

/// Reports each phrase of the list with its file and line.
///
/// `texts` are pairs of a path and a text.
pub fn check<'a>(texts: impl Iterator<Item = (&'a str, &'a str)>, mistakes: &mut Vec<String>) {
    for (path, text) in texts.filter(|(path, _)| !PAST.contains(path)) {
        let words = words_of(document_lines(text));
        report(path, &words, &NOT_YET_IN_DOCUMENTS, mistakes);
    }
}

/// Does the same for the comments of Rust sources, and for the string literals of the product: help
/// texts, failures, notes and screens.
pub fn check_sources<'a>(
    texts: impl Iterator<Item = (&'a str, &'a str)>,
    mistakes: &mut Vec<String>,
) {
    for (path, text) in texts.filter(|(path, _)| !path.starts_with("dev/docs/src/words")) {
        let prose = source::prose(text);
        let comments = words_of(with_breaks(&prose.comments));
        report(path, &comments, &NOT_YET_IN_COMMENTS, mistakes);
        let is_test = path.contains("/tests") || path.contains("/benches/");
        if path.starts_with("crates/") && !is_test {
            // "BEGIN" of SQL is not prose.
            let prose = prose
                .literals
                .iter()
                .filter(|(_, text)| !text.contains("BEGIN;"));
            for (line, literal) in prose {
                let literal = without_code(literal);
                let lines = (*line..).zip(literal.split('\n'));
                report(path, &words_of(lines), &[], mistakes);
            }
        }
    }
}

fn report(path: &str, words: &[Word], allowed: &[&str], mistakes: &mut Vec<String>) {
    for (phrase, better) in PHRASES
        .iter()
        .filter(|(phrase, _)| !allowed.contains(phrase))
    {
        let wanted: Vec<&str> = phrase.split(' ').collect();
        for found in words.windows(wanted.len()) {
            if found
                .iter()
                .map(|word| word.text.as_str())
                .eq(wanted.iter().copied())
                && found[..found.len() - 1].iter().all(|word| !word.ends)
            {
                let line = found[0].line;
                mistakes.push(format!("{path}:{line}: \"{phrase}\": better \"{better}\""));
            }
        }
    }
}

/// Returns lines of comments with a break between comments that are not adjacent.
fn with_breaks<'a>(comments: &[(usize, &'a str)]) -> impl Iterator<Item = (usize, &'a str)> {
    let mut last = 0;
    comments.iter().flat_map(move |&(line, text)| {
        let gap = (line > last + 1).then_some((line, "."));
        last = line;
        gap.into_iter().chain([(line, text)])
    })
}

/// Returns a string literal's text without placeholders and escapes.
fn without_code(literal: &str) -> String {
    let mut text = String::new();
    let mut characters = literal.chars();
    while let Some(character) = characters.next() {
        match character {
            // The rest of a continued line follows a line break.
            '\\' => text.extend(characters.next().map(|next| match next {
                '\n' => '\n',
                _ => ' ',
            })),
            '{' => {
                characters.by_ref().find(|found| *found == '}');
                text.push('.');
            }
            other => text.push(other),
        }
    }
    text
}

/// A word in lower case, without punctuation.
struct Word {
    line: usize,
    text: String,
    /// Punctuation follows.
    ends: bool,
}

fn words_of<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Word> {
    let mut words = Vec::new();
    for (line, text) in lines {
        // What is between backticks is code.
        for part in text.split('`').step_by(2) {
            for word in part.split_whitespace() {
                let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
                words.push(Word {
                    line,
                    text: bare.to_lowercase(),
                    ends: !word.ends_with(bare),
                });
            }
        }
    }
    words
}

/// Returns the lines of a page outside of code blocks, each with its number.
fn document_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !fence && !in_code && !line.starts_with("    ")
    })
}

/// Reports subjects of commits that are not `area: imperative` in 72 characters.
///
/// # Errors
/// Fails when git fails.
pub fn subjects(mistakes: &mut Vec<String>) -> Outcome<()> {
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(words).current_dir(root());
        git
    };
    // An archive of the sources has no history, and a shallow clone not all of it.
    let mut known = git(&["merge-base", "--is-ancestor", SUBJECTS_SINCE, "HEAD"]);
    if output(&mut known).is_err() {
        return Ok(());
    }
    let since = format!("{SUBJECTS_SINCE}..HEAD");
    let said = output(&mut git(&["log", "--no-merges", "--format=%h %s", &since]))?;
    for line in String::from_utf8_lossy(&said).lines() {
        let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(wrong) = wrong_subject(subject) {
            mistakes.push(format!("commit {commit}: {wrong}: {subject}"));
        }
    }
    Ok(())
}

fn wrong_subject(subject: &str) -> Option<&'static str> {
    if subject.starts_with("Revert \"") {
        return None;
    }
    if subject.chars().count() > SUBJECT_LENGTH {
        return Some("the subject has more than 72 characters");
    }
    match subject.split_once(": ") {
        Some((area, said)) if !area.is_empty() && !said.is_empty() => None,
        _ => Some("the subject is not \"area: imperative\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_found_in_prose_only() {
        let page =
            "A thread of\nours, `of ours`.\n```\nof ours\n```\n    of ours\nits part of. Ours is\n";
        let mut found = Vec::new();
        check([("a.md", page)].into_iter(), &mut found);
        let wanted = ["a.md:1: \"of ours\": better \"midair's, our\""];
        assert_eq!(found, wanted);
        found.clear();
        check([("CHANGELOG.md", "anew")].into_iter(), &mut found);
        assert!(found.is_empty());
    }

    #[test]
    fn comments_and_messages_are_checked_and_tests_are_not() {
        let source = "// It starts anew; a process of ours.\n// a thread must give\n// way\nfn f() { m(\"it is done \\\n  anew\", \"{told} by nobody here\", \"anew\"); }\n\
                      #[cfg(test)]\nmod tests { const A: &str = \"it is done anew\"; }\n";
        let mut found = Vec::new();
        check_sources([("crates/a/src/b.rs", source)].into_iter(), &mut found);
        let wanted = [
            "crates/a/src/b.rs:1: \"anew\": better \"again\"",
            "crates/a/src/b.rs:2: \"give way\": better \"detach, yield\"",
            "crates/a/src/b.rs:5: \"anew\": better \"again\"",
            "crates/a/src/b.rs:5: \"nobody\": better \"no process, no user\"",
        ];
        assert_eq!(found, wanted);
        found.clear();
        check_sources(
            [("sim/b.rs", "fn f() { m(\"it is done anew\"); }")].into_iter(),
            &mut found,
        );
        assert!(found.is_empty());
    }

    #[test]
    fn subjects_have_an_area_and_72_characters() {
        assert_eq!(wrong_subject("engine: refuse a frozen cgroup"), None);
        assert_eq!(wrong_subject("Revert \"engine: refuse it\""), None);
        assert!(wrong_subject("Refuse a frozen cgroup").is_some());
        assert!(wrong_subject(&format!("engine: {}", "x".repeat(65))).is_some());
    }
}
