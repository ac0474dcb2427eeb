//! The index of a package of databases: a small file in YAML. Of YAML only the form that AMD's command and
//! this one write is read: one key a line, and the names as one text or as a list.

use crate::unreadable;
use midair_failure::Failure;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The name of the index in a directory.
pub(crate) const INDEX: &str = "index.yaml";
/// The version of the index's form, in AMD's spelling.
const VERSION: &str = "rocpd_package_version";
/// The most bytes of an index.
const LONGEST: u64 = 1 << 20;

/// Returns the databases that an index names.
///
/// # Errors
/// When it cannot be read, or names none.
pub(crate) fn listed(index: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| unreadable(index, error);
    let mut text = String::new();
    let file = std::fs::File::open(index).map_err(failed)?;
    file.take(LONGEST)
        .read_to_string(&mut text)
        .map_err(failed)?;
    let directory = index.parent().unwrap_or(Path::new("."));
    let names = names(&text);
    if names.is_empty() {
        return Err(unreadable(index, "it names no databases"));
    }
    Ok(names.iter().map(|name| directory.join(name)).collect())
}

/// Whether a path is an index.
pub(crate) fn is_index(path: &Path) -> bool {
    path.extension()
        .is_some_and(|end| end == "yaml" || end == "yml")
}

/// Returns the text of an index.
pub(crate) fn text(names: &[String]) -> String {
    let mut files = String::new();
    match names {
        [one] => files.push_str(&format!(" {}\n", scalar(one))),
        all => {
            files.push('\n');
            for name in all {
                files.push_str(&format!("    - {}\n", scalar(name)));
            }
        }
    }
    format!("rocprofiler-sdk:\n  rocpd:\n    files:{files}    path: .\n    {VERSION}: '1.0'\n")
}

/// Returns a text as YAML has it: in quotes unless it can be nothing else.
fn scalar(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._/-".contains(letter);
    let starts = |letter: char| letter.is_ascii_alphabetic() || letter == '_' || letter == '/';
    match text.chars().all(is_plain) && (text.starts_with(starts) || text.starts_with("../")) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "''")),
    }
}

/// Returns the names that an index lists.
fn names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_list = false;
    for line in text.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("files:") {
            is_list = rest.trim().is_empty();
            names.extend(value(rest));
        } else if let Some(item) = line.strip_prefix("- ") {
            names.extend(value(item).filter(|_| is_list));
        } else if !line.is_empty() && !line.starts_with('#') {
            is_list = false;
        }
    }
    names
}

fn value(text: &str) -> Option<String> {
    let text = text.trim();
    let inside = |mark: char| text.strip_prefix(mark)?.strip_suffix(mark);
    let value = match (inside('\''), inside('"')) {
        (Some(text), _) => text.replace("''", "'"),
        (None, Some(text)) => text.replace("\\\"", "\"").replace("\\\\", "\\"),
        (None, None) => text.to_owned(),
    };
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_names_what_it_was_made_of() {
        let all = ["a.db", "../b c.db", "it's.db", "42.db", "/x/y.db"].map(str::to_owned);
        for some in [&all[..1], &all[1..2], &all[..]] {
            assert_eq!(names(&text(some)), some, "{}", text(some));
        }
        // The form that AMD's command writes.
        let amds = "rocprofiler-sdk:\n  rocpd:\n    files:\n    - 0.db\n    - node1/1.db\n    path: .\n    \
                    rocpd_package_version: '1.0'\n";
        assert_eq!(names(amds), ["0.db", "node1/1.db"]);
        assert_eq!(
            text(&["a.db".to_owned(), "b.db".to_owned()]),
            amds.replace("0.db", "a.db").replace("node1/1.db", "b.db")
        );
        assert_eq!(names("files: [a.db]\nother:\n- no.db\n"), ["[a.db]"]);
    }
}
