//! Files that appear complete or not at all.
//!
//! Each is written under a temporary name beside its final one (mode 0600, never over something
//! that exists) and renamed when everything of the trace is written. When anything fails, the
//! temporary files are removed; files of an earlier run stay.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What could not be written, and why.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A directory could not be made, or nothing in it.
    #[error("cannot write to the directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be made, written, or given its name.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// Its final name.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Our own store of records could not be read.
    #[error("cannot read the records collected: {0}")]
    Records(io::Error),
}

/// A path that fits a line.
fn shortened(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => path.to_path_buf(),
    }
}

/// Refuses a path on which another user has planted a link: one in a directory that all may write
/// to (sticky, such as /tmp) that belongs neither to us nor to the directory's owner. The kernel
/// does so too where `fs.protected_symlinks` is 1, which is not the case everywhere.
fn no_planted_links(path: &Path) -> io::Result<()> {
    const FOR_ALL: u32 = 0o1002;
    let path = std::path::absolute(path)?;
    let mut above: Option<fs::Metadata> = None;
    let mut at = PathBuf::new();
    for part in path.components() {
        at.push(part);
        let Ok(meta) = fs::symlink_metadata(&at) else {
            return Ok(());
        };
        if meta.is_symlink()
            && let Some(above) = &above
            && above.mode() & FOR_ALL == FOR_ALL
            && meta.uid() != above.uid()
            && meta.uid() != our_uid()
        {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{} is a link that user {} has put there",
                    at.display(),
                    meta.uid()
                ),
            ));
        }
        above = fs::metadata(&at).ok();
    }
    Ok(())
}

/// The user as whom files are made.
fn our_uid() -> u32 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    // Real, effective, saved, of files (source: proc(5)).
    let of_files = line.and_then(|ids| ids.split_ascii_whitespace().nth(3));
    of_files.and_then(|id| id.parse().ok()).unwrap_or(u32::MAX)
}

/// Whether files could be made at `directory`/`prefix`. Nothing is left behind: a file without a
/// name is made in the directory, or in the nearest one above it that exists, and the longest name
/// is looked up.
///
/// # Errors
/// What the writing would fail with.
pub(crate) fn probe(directory: &Path, prefix: &str) -> Result<(), WriteError> {
    // As long as the longest suffix, with what makes a name a temporary one.
    const LONGEST: &str = "_memory_allocation_trace.csv.4194304.63.tmp.";
    let path = directory.join(format!("{prefix}{LONGEST}"));
    match fs::symlink_metadata(&path) {
        Err(source)
            if !matches!(
                source.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            let path = shortened(&directory.join(prefix));
            return Err(WriteError::File { path, source });
        }
        _ => {}
    }
    let wanted = path.parent().unwrap_or(directory);
    no_planted_links(wanted).map_err(|source| WriteError::Directory {
        path: wanted.to_path_buf(),
        source,
    })?;
    let there = wanted.ancestors().find(|path| path.is_dir());
    // A relative path's last ancestor is empty: the current directory.
    let there = there.unwrap_or(Path::new("."));
    tempfile::tempfile_in(there).map_err(|source| WriteError::Directory {
        path: wanted.to_path_buf(),
        source,
    })?;
    Ok(())
}

/// The files of one trace.
#[derive(Debug)]
pub(crate) struct FileSet {
    /// Where the files go.
    directory: PathBuf,
    /// First part of their names, with the separator; empty when none was asked for.
    stem: String,
    /// Written, not yet renamed.
    ready: Vec<Pending>,
    /// Files of an earlier trace of this name that would be wrong beside this one.
    outdated: Vec<PathBuf>,
}

/// A file under its temporary name; removed unless it is renamed.
#[derive(Debug)]
struct Pending {
    temporary: PathBuf,
    path: PathBuf,
    renamed: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.renamed {
            // Nothing more can be done about a file that cannot be removed; the failure that led
            // here is reported.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

impl FileSet {
    /// Makes the directories that `directory`/`prefix` needs.
    pub(crate) fn new(directory: &Path, prefix: &str) -> Result<FileSet, WriteError> {
        let (below, stem) = prefix
            .rsplit_once('/')
            .map_or(("", prefix), |(below, stem)| (below, stem));
        // "/x" is absolute and means what it says.
        let below = if prefix.starts_with('/') && below.is_empty() {
            "/"
        } else {
            below
        };
        let directory = directory.join(below);
        no_planted_links(&directory).map_err(|source| WriteError::Directory {
            path: directory.clone(),
            source,
        })?;
        fs::create_dir_all(&directory).map_err(|source| WriteError::Directory {
            path: directory.clone(),
            source,
        })?;
        let stem = if stem.is_empty() {
            String::new()
        } else {
            format!("{stem}_")
        };
        Ok(FileSet {
            directory,
            stem,
            ready: Vec::new(),
            outdated: Vec::new(),
        })
    }

    /// Where the files go.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Begins `PREFIX_suffix`.
    pub(crate) fn create(&self, suffix: &str) -> Result<OutputFile, WriteError> {
        let (file, pending) = self.begin(suffix)?;
        Ok(OutputFile {
            writer: BufWriter::with_capacity(128 * 1024, file),
            pending,
        })
    }

    /// Begins `PREFIX_suffix` as an empty file that something else opens by its temporary name.
    pub(crate) fn reserve(&self, suffix: &str) -> Result<ReservedFile, WriteError> {
        let (_, pending) = self.begin(suffix)?;
        Ok(ReservedFile(pending))
    }

    fn begin(&self, suffix: &str) -> Result<(File, Pending), WriteError> {
        let name = format!("{}{suffix}", self.stem);
        let path = self.directory.join(&name);
        let failed = |source| WriteError::File {
            path: path.clone(),
            source,
        };
        // Hidden while unfinished; the pid tells apart two sessions that write to one directory.
        for attempt in 0..64 {
            let temporary = format!(".{name}.{}.{attempt}.tmp", std::process::id());
            let temporary = path.with_file_name(temporary);
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&temporary)
            {
                Ok(file) => {
                    let pending = Pending {
                        temporary,
                        path,
                        renamed: false,
                    };
                    return Ok((file, pending));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    /// `PREFIX_suffix` of an earlier trace goes when this one gets its names.
    pub(crate) fn outdate(&mut self, suffix: &str) {
        self.outdated
            .push(self.directory.join(format!("{}{suffix}", self.stem)));
    }

    /// Takes a finished file.
    pub(crate) fn add(&mut self, file: OutputFile) -> Result<(), WriteError> {
        self.ready.push(file.finish()?);
        Ok(())
    }

    /// Takes a file that something else has finished.
    pub(crate) fn add_reserved(&mut self, file: ReservedFile) {
        self.ready.push(file.0);
    }

    /// Gives all files their names and returns these.
    pub(crate) fn commit(mut self) -> Result<Vec<PathBuf>, WriteError> {
        for pending in &mut self.ready {
            fs::rename(&pending.temporary, &pending.path).map_err(|source| WriteError::File {
                path: pending.path.clone(),
                source,
            })?;
            pending.renamed = true;
        }
        for path in &self.outdated {
            match fs::remove_file(path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(WriteError::File {
                        path: path.clone(),
                        source,
                    });
                }
                _ => {}
            }
        }
        Ok(self
            .ready
            .iter()
            .map(|pending| pending.path.clone())
            .collect())
    }
}

/// A file that something else writes.
#[derive(Debug)]
pub(crate) struct ReservedFile(Pending);

impl ReservedFile {
    /// Where it is now: an empty file that only we use.
    pub(crate) fn temporary(&self) -> &Path {
        &self.0.temporary
    }

    /// The error for a failed write to this file.
    pub(crate) fn failed(&self, source: io::Error) -> WriteError {
        WriteError::File {
            path: self.0.path.clone(),
            source,
        }
    }
}

/// A file being written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    writer: BufWriter<File>,
    pending: Pending,
}

impl OutputFile {
    /// Appends bytes; the error names the file.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.writer
            .write_all(bytes)
            .map_err(|source| self.failed(source))
    }

    /// The error for a failed write to this file.
    pub(crate) fn failed(&self, source: io::Error) -> WriteError {
        WriteError::File {
            path: self.pending.path.clone(),
            source,
        }
    }

    fn finish(mut self) -> Result<Pending, WriteError> {
        self.writer.flush().map_err(|source| self.failed(source))?;
        let OutputFile { writer, pending } = self;
        // A failure to close (a quota, a network file system) would be silent in Drop; a BufWriter
        // that was flushed has nothing left, and write errors were seen above.
        drop(writer);
        Ok(pending)
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn entries(path: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        fs::write(here.join("file"), "").unwrap();
        for good in ["", "new/and/newer", "./new"] {
            probe(&here.join(good), "r").unwrap();
            let prefix = Path::new(good).join("r");
            probe(here, prefix.to_str().unwrap()).unwrap();
        }
        for (bad, prefix) in [
            (here.join("file"), "r".to_owned()),
            (here.join("file/below"), "r".to_owned()),
            (here.to_path_buf(), "file/r".to_owned()),
            (here.to_path_buf(), "r".repeat(240)),
            (here.join("d".repeat(300)), "r".to_owned()),
            ("/proc/no/such".into(), "r".to_owned()),
        ] {
            let said = probe(&bad, &prefix).unwrap_err().to_string();
            assert!(said.starts_with("cannot write "), "{said}");
        }
        assert_eq!(entries(here), ["file"]);
    }

    #[test]
    fn files_appear_together_with_mode_0600_and_replace_older_ones() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("r_b.csv"), "old").unwrap();
        let mut files = FileSet::new(directory.path(), "r").unwrap();
        for suffix in ["a.csv", "b.csv"] {
            let mut file = files.create(suffix).unwrap();
            file.put(b"new").unwrap();
            files.add(file).unwrap();
        }
        assert_eq!(fs::read(directory.path().join("r_b.csv")).unwrap(), b"old");
        let paths = files.commit().unwrap();
        assert_eq!(entries(directory.path()), ["r_a.csv", "r_b.csv"]);
        for path in paths {
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
    }

    /// A link at a result's own name is replaced, not followed.
    #[test]
    fn a_link_at_the_final_name_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("precious"), "mine").unwrap();
        std::os::unix::fs::symlink(at("precious"), at("r_a.csv")).unwrap();
        let mut files = FileSet::new(directory.path(), "r").unwrap();
        let mut file = files.create("a.csv").unwrap();
        file.put(b"new").unwrap();
        files.add(file).unwrap();
        files.commit().unwrap();
        assert_eq!(fs::read(at("precious")).unwrap(), b"mine");
        assert!(fs::symlink_metadata(at("r_a.csv")).unwrap().is_file());
    }

    #[test]
    fn a_link_of_ours_is_a_way_and_one_that_is_planted_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        fs::create_dir(at("there")).unwrap();
        std::os::unix::fs::symlink(at("there"), at("link")).unwrap();
        no_planted_links(&at("link/new")).unwrap();
        // Only root can make one that belongs to another user; elsewhere the rest has been tested.
        if our_uid() == 0 {
            std::os::unix::fs::chown(directory.path(), Some(1001), None).unwrap();
            std::os::unix::fs::lchown(at("link"), Some(1000), None).unwrap();
            for path in [at("link"), at("link/new/and/newer")] {
                let said = probe(&path, "r").unwrap_err().to_string();
                assert!(said.contains("user 1000"), "{said}");
                assert!(FileSet::new(&path, "r").is_err());
            }
            // As in a directory that is his alone, where links are his to make.
            fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
            no_planted_links(&at("link")).unwrap();
        }
    }

    #[test]
    fn prefixes_may_have_directories_and_may_be_empty() {
        let directory = tempfile::tempdir().unwrap();
        for (prefix, wanted) in [
            ("", "x.csv"),
            ("sub/", "sub/x.csv"),
            ("sub/deep/r", "sub/deep/r_x.csv"),
            ("..", ".._x.csv"),
        ] {
            let mut files = FileSet::new(directory.path(), prefix).unwrap();
            let file = files.create("x.csv").unwrap();
            files.add(file).unwrap();
            assert_eq!(files.commit().unwrap(), [directory.path().join(wanted)]);
        }
        let elsewhere = directory.path().join("absolute/r");
        let files = FileSet::new(Path::new("/nowhere"), elsewhere.to_str().unwrap()).unwrap();
        assert_eq!(files.directory, directory.path().join("absolute"));
    }

    #[test]
    fn nothing_stays_of_what_was_not_committed() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = FileSet::new(directory.path(), "sub/r").unwrap();
        let done = files.create("done.csv").unwrap();
        files.add(done).unwrap();
        let open = files.create("open.csv").unwrap();
        assert_eq!(entries(&directory.path().join("sub")).len(), 2);
        drop((files, open));
        assert!(entries(&directory.path().join("sub")).is_empty());
    }

    /// A full disk is met at the flush, since writes are buffered.
    #[test]
    fn a_full_device_is_an_error_with_the_files_name() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = FileSet::new(directory.path(), "r").unwrap();
        let mut file = files.create("full.csv").unwrap();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        file.writer = BufWriter::new(full);
        file.put(b"x").unwrap();
        let error = files.add(file).unwrap_err();
        assert!(
            error.to_string().contains("r_full.csv") && error.to_string().contains("No space"),
            "{error}"
        );
        assert!(entries(directory.path()).is_empty());
    }

    #[test]
    fn a_name_taken_by_a_directory_is_refused_and_cleaned_up() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("r_a.csv")).unwrap();
        let mut files = FileSet::new(directory.path(), "r").unwrap();
        let file = files.create("a.csv").unwrap();
        files.add(file).unwrap();
        let error = files.commit().unwrap_err();
        assert!(error.to_string().contains("r_a.csv"), "{error}");
        assert_eq!(entries(directory.path()), ["r_a.csv"]);
    }
}
