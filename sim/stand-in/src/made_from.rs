//! The record of the sources that a staged product was made from. `cargo xtask stage` writes it
//! alongside the stage, and tests compare it with the sources, so that no test runs against a product
//! that is older than its sources.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// What a stage's record says about the sources of now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The stage was made from them.
    Current,
    /// This source was changed or removed afterwards.
    Changed(PathBuf),
    /// There is no record.
    Unknown,
}

/// Returns the place of a stage's record: next to the stage, because the stage itself is shipped.
pub fn record_of(stage: &Path) -> PathBuf {
    stage.with_extension("made-from")
}

/// Writes the record of a stage: the sources below `root` with their contents.
///
/// # Errors
/// Fails when a source cannot be read, or the record cannot be written.
pub fn write(root: &Path, stage: &Path, sources: &BTreeSet<PathBuf>) -> io::Result<()> {
    let mut text = String::new();
    for source in sources {
        let path = root.join(source);
        let metadata = path.metadata()?;
        let (seconds, nanoseconds, size) = stamp(&metadata);
        let hash = hash(&path)?;
        text.push_str(&format!(
            "{seconds} {nanoseconds} {size} {hash:016x} {}\n",
            source.display()
        ));
    }
    let record = record_of(stage);
    let fresh = record.with_extension(format!("new{}", std::process::id()));
    std::fs::write(&fresh, text)?;
    std::fs::rename(&fresh, &record)
}

/// Compares a stage's record with the sources below `root`. Contents are read only where time or
/// size differ: 700 sources take about a millisecond.
///
/// # Errors
/// Fails when a source that is there cannot be read.
pub fn compare(root: &Path, stage: &Path) -> io::Result<State> {
    let Ok(text) = std::fs::read_to_string(record_of(stage)) else {
        return Ok(State::Unknown);
    };
    for line in text.lines() {
        let Some(recorded) = Recorded::read(line) else {
            return Ok(State::Unknown);
        };
        let path = root.join(recorded.path);
        let is_same = match path.metadata() {
            Ok(metadata) if stamp(&metadata) == recorded.stamp => true,
            Ok(_) => hash(&path)? == recorded.hash,
            // A whole directory without sources: the product was carried to another machine.
            Err(_) => !path.parent().is_some_and(Path::is_dir),
        };
        if !is_same {
            return Ok(State::Changed(recorded.path.to_owned()));
        }
    }
    Ok(State::Current)
}

/// A line of the record.
struct Recorded<'a> {
    stamp: (i64, i64, u64),
    hash: u64,
    path: &'a Path,
}

impl Recorded<'_> {
    fn read(line: &str) -> Option<Recorded<'_>> {
        let mut words = line.splitn(5, ' ');
        Some(Recorded {
            stamp: (
                words.next()?.parse().ok()?,
                words.next()?.parse().ok()?,
                words.next()?.parse().ok()?,
            ),
            hash: u64::from_str_radix(words.next()?, 16).ok()?,
            path: Path::new(words.next()?),
        })
    }
}

fn stamp(metadata: &std::fs::Metadata) -> (i64, i64, u64) {
    (metadata.mtime(), metadata.mtime_nsec(), metadata.size())
}

/// Returns a hash of a file's contents. Writer and reader are compiled by the same compiler.
fn hash(path: &Path) -> io::Result<u64> {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(&std::fs::read(path)?);
    Ok(hasher.finish())
}

/// Returns the files below `root` that cargo's dependency information `text` names (the `.d` file
/// next to a library or program), relative to `root`.
pub fn sources_of(root: &Path, text: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let Some((_, sources)) = line.split_once(": ") else {
            continue;
        };
        // A space in a name is written as `\ `.
        let sources = sources.replace("\\ ", "\0");
        for source in sources.split(' ').filter(|source| !source.is_empty()) {
            let path = normal(Path::new(&source.replace('\0', " ")));
            if let Ok(relative) = path.strip_prefix(root)
                && path.is_file()
            {
                found.insert(relative.to_owned());
            }
        }
    }
    found
}

/// Returns a path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_current_until_a_source_changes() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let stage = root.join("target/stage");
        let source = Path::new("crates/a b/lib.rs");
        std::fs::create_dir_all(&stage).unwrap();
        std::fs::create_dir_all(root.join("crates/a b")).unwrap();
        std::fs::write(root.join(source), "one").unwrap();
        assert_eq!(compare(root, &stage).unwrap(), State::Unknown);
        write(root, &stage, &BTreeSet::from([source.to_owned()])).unwrap();
        assert_eq!(compare(root, &stage).unwrap(), State::Current);
        // A new time alone, as after a checkout of the same contents, is no change.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(100);
        let touched = std::fs::File::options().write(true).open(root.join(source));
        touched.unwrap().set_modified(later).unwrap();
        assert_eq!(compare(root, &stage).unwrap(), State::Current);
        std::fs::write(root.join(source), "two").unwrap();
        let changed = State::Changed(source.to_owned());
        assert_eq!(compare(root, &stage).unwrap(), changed);
        std::fs::remove_file(root.join(source)).unwrap();
        assert_eq!(compare(root, &stage).unwrap(), changed);
        // A machine with the product alone has no sources.
        std::fs::remove_dir(root.join("crates/a b")).unwrap();
        assert_eq!(compare(root, &stage).unwrap(), State::Current);
        std::fs::write(record_of(&stage), "cut").unwrap();
        assert_eq!(compare(root, &stage).unwrap(), State::Unknown);
    }

    #[test]
    fn cargos_dependency_information_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("crates/a/build")).unwrap();
        std::fs::create_dir_all(root.join("api")).unwrap();
        for file in ["crates/a/lib.rs", "api/x y.json"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        let at = root.display();
        let text = format!(
            "{at}/target/debug/liba.so: {at}/crates/a/../../api/x\\ y.json {at}/crates/a/build \
             {at}/crates/a/lib.rs {at}/crates/a/gone.rs /usr/include/x.h\n"
        );
        let expected = ["api/x y.json", "crates/a/lib.rs"].map(PathBuf::from);
        assert_eq!(sources_of(&root, &text), BTreeSet::from(expected));
        assert!(sources_of(&root, "").is_empty());
    }
}
