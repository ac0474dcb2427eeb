//! `rocpd package`: an index of databases, and a directory (`.rpdb`) that has them.

use crate::index::{INDEX, text};
use crate::{input, sql, unreadable, unwritable};
use midair_failure::{Failure, Kind};
use midair_output::files::{Directory, OneFile};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// What the name of a directory with an index ends in.
const ENDING: &str = "rpdb";
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

fn lost(error: midair_output::WriteError) -> Failure {
    Failure::new(Kind::Output, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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
