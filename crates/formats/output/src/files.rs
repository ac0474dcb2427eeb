//! Files that appear complete or not at all.
//!
//! Each is written without a name, in its final directory (mode 0600). It gets its name when the
//! whole trace is written. If this process is killed before that, nothing is left. A temporary name
//! is used where the file system has no files without names, and for a file that something else
//! opens by its name ([`temporary`]). It never replaces something that exists. When anything fails,
//! temporary files are removed. If a process was killed, the next process that writes there removes
//! its temporary files. Files of an earlier run stay.
//!
//! Where the results must not take the place of others, they get a name of their own ([`own_name`]),
//! and no file is ever given a name that something has.

mod archive;
mod directory;
mod error;
mod one_file;
mod own_name;
mod pending;
mod temporary;

pub(crate) use archive::{ArchiveFile, NewArchive};
pub use own_name::Numbering;
pub(crate) use own_name::Suffixes;

use crate::names::LONGEST_SUFFIX;
pub use directory::Directory;
pub use error::WriteError;
pub use one_file::OneFile;
use own_name::Claim;
use pending::{Entry, Pending};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use temporary::Temporaries;

/// The most names that are claimed for one result. Each that fails is held by another session.
const MOST_CLAIMS: u32 = 4096;

/// Returns a path that fits on a line.
fn shortened(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => path.to_path_buf(),
    }
}

/// Checks whether files could be made at `directory`/`prefix`, and leaves nothing behind. A file
/// without a name is made in the directory, or in the nearest existing one above it, and the
/// longest name is looked up.
///
/// # Errors
/// What the writing would fail with.
pub(crate) fn probe(directory: &Path, prefix: &str) -> Result<(), WriteError> {
    let path = directory.join(format!("{prefix}{LONGEST_SUFFIX}"));
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
    Directory::nearest(wanted)
        .and_then(|there| tempfile::tempfile_in(there.handle()))
        .map_err(|source| WriteError::Directory {
            path: wanted.to_path_buf(),
            source,
        })?;
    Ok(())
}

/// The files of one trace.
#[derive(Debug)]
pub struct FileSet {
    /// Keeps other sessions from taking the same name. It is a file among the temporary ones, whose
    /// directory is removed when it is empty: so it goes first.
    claim: Option<Claim>,
    /// Where the files go.
    directory: Arc<Directory>,
    /// The first part of their names with the separator, or empty when none was asked for.
    stem: String,
    /// Whether a file that is made there without a name can be given one.
    named_later: bool,
    temporaries: Arc<Temporaries>,
    /// Whether the files may take the place of others.
    replaces: bool,
    /// Files that are written and do not have their names yet.
    ready: Vec<Pending>,
    /// Directories that are written, and do not have their names yet.
    archives: Vec<NewArchive>,
    /// Files of an earlier trace with this name that would be wrong alongside this one.
    outdated: Vec<Entry>,
}

impl FileSet {
    /// Makes the directories that `directory`/`prefix` needs. The files take the place of others.
    pub fn new(directory: &Path, prefix: &str) -> Result<FileSet, WriteError> {
        let (below, stem) = prefix
            .rsplit_once('/')
            .map_or(("", prefix), |(below, stem)| (below, stem));
        // "/x" is an absolute path.
        let below = if prefix.starts_with('/') && below.is_empty() {
            "/"
        } else {
            below
        };
        let directory = directory.join(below);
        let made = Directory::make(&directory).map_err(|source| WriteError::Directory {
            path: directory,
            source,
        })?;
        Ok(FileSet::within(made, own_name::stem(stem)))
    }

    /// Makes nothing yet. The files take the place of others in the directory.
    fn within(directory: Directory, stem: String) -> FileSet {
        let directory = Arc::new(directory);
        let temporaries = Arc::new(Temporaries::of(&directory));
        let named_later = pending::named_later(&directory, &temporaries);
        FileSet {
            directory,
            stem,
            named_later,
            temporaries,
            replaces: true,
            claim: None,
            ready: Vec::new(),
            archives: Vec::new(),
            outdated: Vec::new(),
        }
    }

    /// Does the same for files that never take the place of others. Returns as well the number of
    /// the result, which is at least `from`, and its prefix.
    pub(crate) fn of_its_own(
        directory: &Path,
        (numbering, prefix): (Numbering, &str),
        from: u64,
        suffixes: &Suffixes,
    ) -> Result<(FileSet, u64, String), WriteError> {
        let mut files = FileSet::new(directory, prefix)?;
        files.replaces = false;
        let place = Arc::clone(&files.directory);
        let mut exists = |name: &str| fs::symlink_metadata(place.at(name)).is_ok();
        let mut number = from;
        for _ in 0..MOST_CLAIMS {
            number = own_name::free_number(numbering, prefix, number, suffixes, &mut exists);
            let stem = own_name::stem(&numbering.prefix(prefix, number));
            // Where no name can be claimed, two results may share a number, and still no file of
            // one takes the place of the other's.
            let Some(hidden) = files.temporaries.own() else {
                break;
            };
            match Claim::take(&hidden, &stem) {
                // The session that had the name may have ended just now.
                Ok(Some(_)) if own_name::is_taken(&stem, &suffixes.all, &mut exists) => {}
                Ok(None) => number = number.saturating_add(1),
                claim => {
                    files.claim = claim.ok().flatten();
                    break;
                }
            }
        }
        let prefix = numbering.prefix(prefix, number);
        files.stem = own_name::stem(&prefix);
        Ok((files, number, prefix))
    }

    /// Returns an empty set in the same place, for files that are written next to the others.
    pub(crate) fn part(&self) -> FileSet {
        FileSet {
            directory: Arc::clone(&self.directory),
            stem: self.stem.clone(),
            named_later: self.named_later,
            temporaries: Arc::clone(&self.temporaries),
            replaces: self.replaces,
            claim: None,
            ready: Vec::new(),
            archives: Vec::new(),
            outdated: Vec::new(),
        }
    }

    /// Adds the files of a part.
    pub(crate) fn join(&mut self, part: FileSet) {
        self.ready.extend(part.ready);
        self.archives.extend(part.archives);
        self.outdated.extend(part.outdated);
    }

    /// Returns a path to the directory of the files, for files without a name. It is good as long as
    /// this value lives.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.handle()
    }

    /// Starts `PREFIX_suffix`.
    pub fn create(&self, suffix: &str) -> Result<OutputFile, WriteError> {
        OutputFile::begin(self.entry(suffix), self.named_later, &self.temporaries)
    }

    /// Returns the place of the files, for a format that starts further files later.
    pub(crate) fn folder(&self) -> Folder {
        Folder {
            directory: Arc::clone(&self.directory),
            stem: self.stem.clone(),
            named_later: self.named_later,
            temporaries: Arc::clone(&self.temporaries),
        }
    }

    /// Starts `PREFIX_suffix` as an empty file that something else opens by its temporary name.
    pub fn reserve(&self, suffix: &str) -> Result<ReservedFile, WriteError> {
        let entry = self.entry(suffix);
        let mut pending = Pending::begin(entry, self.named_later, &self.temporaries)?;
        pending.temporary()?;
        Ok(ReservedFile(pending))
    }

    fn entry(&self, suffix: &str) -> Entry {
        let name = format!("{}{suffix}", self.stem);
        Entry::new(&self.directory, name)
    }

    /// Marks `PREFIX_suffix` of an earlier trace for removal, when the files of this one get their
    /// names.
    pub(crate) fn outdate(&mut self, suffix: &str) {
        self.outdated.push(self.entry(suffix));
    }

    /// Adds a finished file.
    pub fn add(&mut self, file: OutputFile) -> Result<(), WriteError> {
        self.ready.push(file.finish()?);
        Ok(())
    }

    /// Adds a file that something else has finished.
    pub fn add_reserved(&mut self, file: ReservedFile) {
        self.ready.push(file.0);
    }

    /// Adds a finished directory of files.
    pub(crate) fn add_archive(&mut self, archive: NewArchive) {
        self.archives.push(archive);
    }

    /// Gives all files their names, and returns the paths. Files that take no other's place have
    /// all of their names or none.
    pub fn commit(mut self) -> Result<Vec<PathBuf>, WriteError> {
        let mut named = 0;
        let given = self.name_all(&mut named);
        let archives = self.archives.iter().map(NewArchive::entry);
        let files = self.ready.iter().map(Pending::entry);
        if given.is_err() && !self.replaces {
            for entry in archives.clone().take(named) {
                archive::remove(&entry.at());
            }
            for entry in files
                .clone()
                .take(named.saturating_sub(self.archives.len()))
            {
                let _ = fs::remove_file(entry.at());
            }
        }
        given?;
        let paths = files.chain(archives).map(Entry::path).collect();
        for old in &self.outdated {
            match fs::remove_file(old.at()) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(old.failed(source));
                }
                _ => {}
            }
        }
        Ok(paths)
    }

    /// Gives all files their names, and counts them.
    fn name_all(&mut self, named: &mut usize) -> Result<(), WriteError> {
        // Before the files that refer to them.
        for archive in &self.archives {
            archive.name(self.replaces)?;
            *named += 1;
        }
        for pending in &mut self.ready {
            pending.name(self.replaces)?;
            *named += 1;
        }
        Ok(())
    }
}

/// The place of a trace's files, for formats that do not start all of their files at once.
#[derive(Debug)]
pub(crate) struct Folder {
    directory: Arc<Directory>,
    stem: String,
    named_later: bool,
    temporaries: Arc<Temporaries>,
}

impl Folder {
    /// Starts `PREFIX_suffix`.
    pub(crate) fn create(&self, suffix: &str) -> Result<OutputFile, WriteError> {
        let entry = Entry::new(&self.directory, format!("{}{suffix}", self.stem));
        OutputFile::begin(entry, self.named_later, &self.temporaries)
    }

    /// Starts the directory `PREFIX_suffix`.
    pub(crate) fn archive(&self, suffix: &str) -> Result<NewArchive, WriteError> {
        let entry = Entry::new(&self.directory, format!("{}{suffix}", self.stem));
        NewArchive::begin(entry, &self.temporaries)
    }

    /// Returns the same place in another directory, which is made if it does not exist.
    pub(crate) fn moved(self, directory: PathBuf) -> Result<Folder, WriteError> {
        let made = Directory::make(&directory).map_err(|source| WriteError::Directory {
            path: directory,
            source,
        })?;
        let directory = Arc::new(made);
        Ok(Folder {
            temporaries: Arc::new(Temporaries::of(&directory)),
            directory,
            ..self
        })
    }

    /// Starts a file with this name in a directory below, which is made if it does not exist.
    pub(crate) fn create_below(&self, below: &Path, name: &str) -> Result<OutputFile, WriteError> {
        let made = self.directory.make_below(below);
        let directory = made.map_err(|source| WriteError::Directory {
            path: self.directory.path().join(below),
            source,
        })?;
        let directory = Arc::new(directory);
        let temporaries = Arc::new(Temporaries::of(&directory));
        let entry = Entry::new(&directory, name);
        OutputFile::begin(entry, self.named_later, &temporaries)
    }
}

/// A file that is complete, or that something else writes.
#[derive(Debug)]
pub struct ReservedFile(Pending);

impl ReservedFile {
    /// Returns its present path, which leads to an empty file that only we use.
    pub fn temporary(&self) -> PathBuf {
        self.0.present()
    }

    /// Returns the same path without links, for SQLite: it opens files where no link is on the way.
    pub fn resolved(&self) -> PathBuf {
        let path = self.temporary();
        match (path.parent().map(Path::canonicalize), path.file_name()) {
            (Some(Ok(directory)), Some(name)) => directory.join(name),
            _ => path,
        }
    }

    /// Returns a descriptor of the file.
    pub(crate) fn open(&self) -> io::Result<File> {
        self.0.open()
    }

    /// Returns the error for a failed write to this file.
    pub(crate) fn failed(&self, source: io::Error) -> WriteError {
        self.0.failed(source)
    }
}

/// A file being written.
#[derive(Debug)]
pub struct OutputFile {
    writer: BufWriter<File>,
    pending: Pending,
}

impl OutputFile {
    fn begin(
        entry: Entry,
        named_later: bool,
        temporaries: &Arc<Temporaries>,
    ) -> Result<OutputFile, WriteError> {
        let pending = Pending::begin(entry, named_later, temporaries)?;
        let file = pending.open();
        let file = file.map_err(|source| pending.failed(source))?;
        Ok(OutputFile {
            writer: BufWriter::with_capacity(128 * 1024, file),
            pending,
        })
    }

    /// Splits a file that something else writes and flushes into its writer and the part that gives
    /// it its name.
    pub(crate) fn apart(self) -> (BufWriter<File>, ReservedFile) {
        (self.writer, ReservedFile(self.pending))
    }

    /// Ends the writing of this file before the whole trace ends, and returns the part that gives
    /// it its name.
    pub(crate) fn close(self) -> Result<ReservedFile, WriteError> {
        Ok(ReservedFile(self.finish()?))
    }

    /// Appends bytes. The error names the file.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.writer
            .write_all(bytes)
            .map_err(|source| self.failed(source))
    }

    /// Writes bytes over earlier ones.
    pub(crate) fn patch(&mut self, at: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let written = self.writer.flush().and_then(|()| {
            let file = self.writer.get_ref();
            file.write_all_at(bytes, at)
        });
        written.map_err(|source| self.failed(source))
    }

    /// Lets everybody read the file: what is in it is no secret.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn readable_by_all(&self) -> Result<(), WriteError> {
        let mode = fs::Permissions::from_mode(0o644);
        let set = self.writer.get_ref().set_permissions(mode);
        set.map_err(|source| self.failed(source))
    }

    /// Returns the error for a failed write to this file.
    pub fn failed(&self, source: io::Error) -> WriteError {
        self.pending.failed(source)
    }

    fn finish(mut self) -> Result<Pending, WriteError> {
        self.writer.flush().map_err(|source| self.failed(source))?;
        let OutputFile { writer, pending } = self;
        // A failure to close (a quota, a network file system) would be silent in Drop. A flushed
        // BufWriter has nothing left to write, and write errors were reported above.
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
mod tests;
