//! `rocpd package`: an index of databases, and a directory (`.rpdb`) that has them.
//!
//! The index is a small file in YAML. Of YAML only the form that AMD's command and this one write is
//! read: one key a line, and the names as one text or as a list.

use crate::{input, sql, unreadable, unwritable};
use midair_failure::{Failure, Kind};
use midair_output::files::{Directory, OneFile};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// The name of the index in a directory.
pub(crate) const INDEX: &str = "index.yaml";
/// What the name of a directory with an index ends in.
const ENDING: &str = "rpdb";
/// The version of the index's form, in AMD's spelling.
const VERSION: &str = "rocpd_package_version";
/// The most bytes of an index.
const LONGEST: u64 = 1 << 20;
/// Bytes that are copied at once.
const BLOCK: usize = 1 << 20;

/// What becomes of the databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gather {
    /// They stay where they are.
    No,
    /// They are moved into the directory.
    Move,
    /// They are copied into the directory.
    Copy,
}

/// Makes the index, and returns its path. Without a directory it lies in the current one, or in a new
/// directory named by the time if databases are gathered.
///
/// # Errors
/// When a database is missing, or a file cannot be written.
pub fn package(
    paths: &[PathBuf],
    directory: Option<&Path>,
    gather: Gather,
) -> Result<PathBuf, Failure> {
    let mut files = input::files(paths)?;
    let directory = match (directory, gather) {
        (Some(directory), _) => with_ending(directory),
        (None, Gather::No) => PathBuf::from("."),
        (None, _) => PathBuf::from(format!("rocpd-{}.{ENDING}", now()?)),
    };
    Directory::make(&directory).map_err(|error| unwritable(&directory, error))?;
    if gather != Gather::No {
        for file in &mut files {
            let name = file.file_name().unwrap_or_default();
            let to = directory.join(name);
            if !is_same(file, &to) {
                put(file, &to, gather)?;
            }
            *file = to;
        }
    }
    let names: Result<Vec<String>, Failure> = files
        .iter()
        .map(|file| relative(file, &directory))
        .collect();
    let index = directory.join(INDEX);
    let mut out = OneFile::create(&index).map_err(lost)?;
    out.put(text(&names?).as_bytes()).map_err(lost)?;
    out.finish().map_err(lost)?;
    Ok(index)
}

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

fn with_ending(directory: &Path) -> PathBuf {
    if directory.extension().is_some_and(|end| end == ENDING) {
        return directory.to_owned();
    }
    // A trailing slash is no part of the name.
    let plain: PathBuf = directory.components().collect();
    let mut name = plain.into_os_string();
    name.push(format!(".{ENDING}"));
    PathBuf::from(name)
}

/// Returns the local time as part of a name.
fn now() -> Result<String, Failure> {
    let time = || {
        let connection = rusqlite::Connection::open_in_memory()?;
        let question = "SELECT strftime('%Y%m%d-%H%M%S', 'now', 'localtime')";
        connection.query_row(question, [], |row| row.get(0))
    };
    time().map_err(|error| sql("read the time", &error))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| std::fs::canonicalize(path).ok();
    of(one).is_some_and(|one| of(other).is_some_and(|other| one == other))
}

/// Copies or moves a database. What has the name already stays.
fn put(from: &Path, to: &Path, gather: Gather) -> Result<(), Failure> {
    if std::fs::symlink_metadata(to).is_ok() {
        let why = "the directory has another database of this name";
        return Err(unwritable(to, why).hint("give the databases different names"));
    }
    if gather == Gather::Move && std::fs::rename(from, to).is_ok() {
        return Ok(());
    }
    // Another file system.
    let mut source = std::fs::File::open(from).map_err(|error| unreadable(from, error))?;
    let mut out = OneFile::create(to).map_err(lost)?;
    let mut block = vec![0; BLOCK];
    loop {
        let read = source.read(&mut block);
        let count = read.map_err(|error| unreadable(from, error))?;
        if count == 0 {
            break;
        }
        out.put(block.get(..count).unwrap_or_default())
            .map_err(lost)?;
    }
    out.finish().map_err(lost)?;
    match gather {
        Gather::Move => std::fs::remove_file(from).map_err(|error| unwritable(from, error)),
        _ => Ok(()),
    }
}

/// Returns the path of a file from a directory on.
fn relative(file: &Path, directory: &Path) -> Result<String, Failure> {
    let whole = |path: &Path| std::fs::canonicalize(path).map_err(|error| unreadable(path, error));
    let (file, directory) = (whole(file)?, whole(directory)?);
    let mut rest = file.components().peekable();
    let mut up = directory.components().peekable();
    while rest.peek().is_some() && rest.peek() == up.peek() {
        rest.next();
        up.next();
    }
    let mut path: PathBuf = up.map(|_| Component::ParentDir).collect();
    path.extend(rest);
    let path = path.into_os_string().into_string();
    path.map_err(|_| unreadable(&file, "its name is no text, as the index needs it"))
}

/// Returns the text of an index.
fn text(names: &[String]) -> String {
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

fn lost(error: midair_output::WriteError) -> Failure {
    Failure::new(Kind::Output, error.to_string())
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

    #[test]
    fn a_directory_gets_the_ending_once() {
        for (given, wanted) in [
            ("x", "x.rpdb"),
            ("x.rpdb", "x.rpdb"),
            ("a/x/", "a/x.rpdb"),
            ("x.y", "x.y.rpdb"),
        ] {
            assert_eq!(with_ending(Path::new(given)), Path::new(wanted));
        }
    }
}
