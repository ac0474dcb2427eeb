//! Files that appear complete or not at all.
//!
//! Each is written without a name, in its final directory (mode 0600). It gets its name when the
//! whole trace is written. If this process is killed before that, nothing is left. A temporary name
//! is used where the file system has no files without names, and for a file that something else
//! opens by its name ([`temporary`]). It never replaces something that exists. When anything fails,
//! temporary files are removed. Those of a process that was killed are removed by the next process
//! that writes there. Files of an earlier run stay.
//!
//! Where the results must not take the place of others, they get a name of their own ([`own_name`]),
//! and no file is ever given a name that something has.

mod archive;
mod own_name;
mod temporary;

pub(crate) use archive::{ArchiveFile, NewArchive};
pub(crate) use own_name::Suffixes;

use crate::names::LONGEST_SUFFIX;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, renameat2};
use own_name::Claim;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use temporary::Temporaries;

/// The most names that are claimed for one result. Each that fails is held by another session.
const MOST_CLAIMS: u32 = 4096;

/// What could not be written, and why.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A directory could not be made, or nothing could be made in it.
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

impl WriteError {
    /// Whether a name was taken that nothing had a moment ago.
    pub(crate) fn is_taken(&self) -> bool {
        match self {
            WriteError::Directory { source, .. } | WriteError::File { source, .. } => {
                source.kind() == io::ErrorKind::AlreadyExists
            }
            WriteError::Records(_) => false,
        }
    }
}

/// Returns a path that fits on a line.
fn shortened(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    match text.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => path.to_path_buf(),
    }
}

/// Refuses a path on which another user has planted a link. That is a link in a directory to which
/// everybody may write (sticky, such as /tmp), which belongs neither to us nor to the directory's
/// owner. The kernel refuses these as well where `fs.protected_symlinks` is 1, which is not the
/// case everywhere.
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

/// Returns the user who will own the files.
fn our_uid() -> u32 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    // The ids are the real, effective, saved and file system ids (source: proc(5)).
    let of_files = line.and_then(|ids| ids.split_ascii_whitespace().nth(3));
    of_files.and_then(|id| id.parse().ok()).unwrap_or(u32::MAX)
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
    no_planted_links(wanted).map_err(|source| WriteError::Directory {
        path: wanted.to_path_buf(),
        source,
    })?;
    let there = wanted.ancestors().find(|path| path.is_dir());
    // The last ancestor of a relative path is empty. It means the current directory.
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
    /// The first part of their names with the separator, or empty when none was asked for.
    stem: String,
    /// Whether a file that is made there without a name can be given one.
    named_later: bool,
    temporaries: Arc<Temporaries>,
    /// Whether the files may take the place of others.
    replaces: bool,
    /// Keeps other sessions from taking the same name.
    claim: Option<Claim>,
    /// Files that are written and do not have their names yet.
    ready: Vec<Pending>,
    /// Directories that are written, and do not have their names yet.
    archives: Vec<NewArchive>,
    /// Files of an earlier trace with this name that would be wrong beside this one.
    outdated: Vec<PathBuf>,
}

/// A file that does not have its final name yet.
#[derive(Debug)]
struct Pending {
    /// The descriptor. It keeps a file without a name alive, and holds the lock of one with a
    /// temporary name.
    file: File,
    /// Its temporary name, if it has one. It is removed unless the file is renamed.
    temporary: Option<PathBuf>,
    path: PathBuf,
    /// Where it may have a temporary name.
    temporaries: Arc<Temporaries>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nothing more can be done about a file that cannot be removed. The failure that led
            // here is reported.
            let _ = fs::remove_file(temporary);
        }
    }
}

impl Pending {
    /// Begins an empty file for `path`. It has no name where files can be given their names later.
    fn begin(
        path: PathBuf,
        named_later: bool,
        temporaries: &Arc<Temporaries>,
    ) -> Result<Pending, WriteError> {
        let failed = |source| WriteError::File {
            path: path.clone(),
            source,
        };
        let temporaries = Arc::clone(temporaries);
        let directory = path.parent().filter(|_| named_later);
        if let Some(file) = directory.and_then(|directory| unnamed(directory).ok()) {
            return Ok(Pending {
                file,
                temporary: None,
                path,
                temporaries,
            });
        }
        let create = |name: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            options.create_new(true).mode(0o600).open(name)
        };
        let name = path.file_name().unwrap_or_default();
        let (file, temporary) = temporaries.make(name, create).map_err(failed)?;
        let _locked = file.try_lock();
        Ok(Pending {
            file,
            temporary: Some(temporary),
            path,
            temporaries,
        })
    }

    fn failed(&self, source: io::Error) -> WriteError {
        WriteError::File {
            path: self.path.clone(),
            source,
        }
    }

    /// Returns its temporary name. A file that has none gets one here.
    fn temporary(&mut self) -> Result<&Path, WriteError> {
        if self.temporary.is_none() {
            let name = self.path.file_name().unwrap_or_default();
            let linked = self.temporaries.make(name, |name| link(&self.file, name));
            let ((), name) = linked.map_err(|source| self.failed(source))?;
            self.temporary = Some(name);
        }
        Ok(self.temporary.as_deref().unwrap_or(&self.path))
    }

    /// Gives the file its final name. What has this name is replaced, or else the error says so.
    fn name(&mut self, replaces: bool) -> Result<(), WriteError> {
        let path = self.path.clone();
        if self.temporary.is_none() {
            match link(&self.file, &path) {
                Ok(()) => return Ok(()),
                Err(error) if is_taken(&error) && !replaces => return Err(self.failed(error)),
                Err(_) => {}
            }
        }
        let temporary = self.temporary()?;
        let renamed = match replaces {
            true => fs::rename(temporary, path),
            false => rename_apart(temporary, &path),
        };
        renamed.map_err(|source| self.failed(source))?;
        self.temporary = None;
        Ok(())
    }
}

fn is_taken(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

/// Renames a file to a name that nothing has.
fn rename_apart(from: &Path, to: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        // NFS and some others cannot do that. Most of them have links.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::ENOTSUP) => {}
        renamed => return renamed.map_err(io::Error::from),
    }
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if is_taken(&error) => Err(error),
        // Nothing is left but to look first.
        Err(_) if fs::symlink_metadata(to).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Returns a new locked file without a name, if it can be given one.
fn unnamed(directory: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_TMPFILE.bits())
        .mode(0o600)
        .open(directory)?;
    // Through this link the file will get its name.
    fs::symlink_metadata(own_link(&file))?;
    // Nobody else can lock the file first, since it has no name.
    let _locked = file.try_lock();
    Ok(file)
}

/// Whether a file without a name can be given one in this directory. AppArmor refuses that to a
/// process whose profile lacks `mediate_deleted`, with ENOENT, and only at the moment when the name
/// is given. By then everything would have been written, so it is tried with an empty file first.
fn named_later(directory: &Path, temporaries: &Temporaries) -> bool {
    let Ok(file) = unnamed(directory) else {
        return false;
    };
    match temporaries.make("try".as_ref(), |name| link(&file, name)) {
        Ok(((), name)) => fs::remove_file(name).is_ok(),
        Err(_) => false,
    }
}

fn own_link(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives a file without a name a name that nothing has yet.
fn link(file: &File, name: &Path) -> io::Result<()> {
    let follow = AtFlags::AT_SYMLINK_FOLLOW;
    let own = own_link(file);
    nix::unistd::linkat(AT_FDCWD, own.as_str(), AT_FDCWD, name, follow).map_err(io::Error::from)
}

impl FileSet {
    /// Makes the directories that `directory`/`prefix` needs. The files take the place of others.
    pub(crate) fn new(directory: &Path, prefix: &str) -> Result<FileSet, WriteError> {
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
        no_planted_links(&directory).map_err(|source| WriteError::Directory {
            path: directory.clone(),
            source,
        })?;
        fs::create_dir_all(&directory).map_err(|source| WriteError::Directory {
            path: directory.clone(),
            source,
        })?;
        let temporaries = Arc::new(Temporaries::of(&directory));
        let named_later = named_later(&directory, &temporaries);
        Ok(FileSet {
            directory,
            stem: own_name::stem(stem),
            named_later,
            temporaries,
            replaces: true,
            claim: None,
            ready: Vec::new(),
            archives: Vec::new(),
            outdated: Vec::new(),
        })
    }

    /// Does the same for files that never take the place of others. Returns as well the number of
    /// the result, which is at least `from`, and its prefix.
    pub(crate) fn of_its_own(
        directory: &Path,
        prefix: &str,
        from: u64,
        suffixes: &Suffixes,
    ) -> Result<(FileSet, u64, String), WriteError> {
        let mut files = FileSet::new(directory, prefix)?;
        files.replaces = false;
        let place = files.directory.clone();
        let mut exists = |name: &str| fs::symlink_metadata(place.join(name)).is_ok();
        let mut number = from;
        for _ in 0..MOST_CLAIMS {
            number = own_name::free_number(prefix, number, suffixes, &mut exists);
            let stem = own_name::stem(&own_name::numbered(prefix, number));
            // Where no name can be claimed, two results may share a number, and still no file of
            // one takes the place of the other's.
            let Some(hidden) = files.temporaries.own() else {
                break;
            };
            match Claim::take(hidden, &stem) {
                // The session that had the name may have ended just now.
                Ok(Some(_)) if own_name::is_taken(&stem, &suffixes.all, &mut exists) => {}
                Ok(None) => number = number.saturating_add(1),
                claim => {
                    files.claim = claim.ok().flatten();
                    break;
                }
            }
        }
        let prefix = own_name::numbered(prefix, number);
        files.stem = own_name::stem(&prefix);
        Ok((files, number, prefix))
    }

    /// Returns an empty set in the same place, for files that are written beside the others.
    pub(crate) fn part(&self) -> FileSet {
        FileSet {
            directory: self.directory.clone(),
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

    /// Returns the directory of the files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Begins `PREFIX_suffix`.
    pub(crate) fn create(&self, suffix: &str) -> Result<OutputFile, WriteError> {
        OutputFile::begin(self.path(suffix), self.named_later, &self.temporaries)
    }

    /// Returns the place of the files, for a format that begins further files later.
    pub(crate) fn folder(&self) -> Folder {
        Folder {
            directory: self.directory.clone(),
            stem: self.stem.clone(),
            named_later: self.named_later,
            temporaries: Arc::clone(&self.temporaries),
        }
    }

    /// Begins `PREFIX_suffix` as an empty file that something else opens by its temporary name.
    pub(crate) fn reserve(&self, suffix: &str) -> Result<ReservedFile, WriteError> {
        let path = self.path(suffix);
        let mut pending = Pending::begin(path, self.named_later, &self.temporaries)?;
        pending.temporary()?;
        Ok(ReservedFile(pending))
    }

    fn path(&self, suffix: &str) -> PathBuf {
        self.directory.join(format!("{}{suffix}", self.stem))
    }

    /// Marks `PREFIX_suffix` of an earlier trace for removal, when the files of this one get their
    /// names.
    pub(crate) fn outdate(&mut self, suffix: &str) {
        self.outdated.push(self.path(suffix));
    }

    /// Adds a finished file.
    pub(crate) fn add(&mut self, file: OutputFile) -> Result<(), WriteError> {
        self.ready.push(file.finish()?);
        Ok(())
    }

    /// Adds a file that something else has finished.
    pub(crate) fn add_reserved(&mut self, file: ReservedFile) {
        self.ready.push(file.0);
    }

    /// Adds a finished directory of files.
    pub(crate) fn add_archive(&mut self, archive: NewArchive) {
        self.archives.push(archive);
    }

    /// Gives all files their names, and returns the paths. Files that take no other's place have
    /// all of their names or none.
    pub(crate) fn commit(mut self) -> Result<Vec<PathBuf>, WriteError> {
        let mut named = 0;
        let given = self.name_all(&mut named);
        let archives = self.archives.iter().map(NewArchive::path);
        let files = self.ready.iter().map(|pending| pending.path.as_path());
        if given.is_err() && !self.replaces {
            for path in archives.clone().take(named) {
                archive::remove(path);
            }
            for path in files.take(named.saturating_sub(self.archives.len())) {
                let _ = fs::remove_file(path);
            }
        }
        given?;
        let files = self.ready.iter().map(|pending| pending.path.as_path());
        let paths = files.chain(archives).map(Path::to_path_buf).collect();
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

/// The place of a trace's files, for formats that do not begin all of their files at once.
#[derive(Debug)]
pub(crate) struct Folder {
    directory: PathBuf,
    stem: String,
    named_later: bool,
    temporaries: Arc<Temporaries>,
}

impl Folder {
    /// Begins `PREFIX_suffix`.
    pub(crate) fn create(&self, suffix: &str) -> Result<OutputFile, WriteError> {
        let path = self.directory.join(format!("{}{suffix}", self.stem));
        OutputFile::begin(path, self.named_later, &self.temporaries)
    }

    /// Returns the same place in another directory.
    pub(crate) fn moved(self, directory: PathBuf) -> Folder {
        Folder {
            temporaries: Arc::new(Temporaries::of(&directory)),
            directory,
            ..self
        }
    }

    /// Begins a file with this name in a directory below, which is made if it does not exist.
    pub(crate) fn create_below(&self, below: &Path, name: &str) -> Result<OutputFile, WriteError> {
        let directory = self.directory.join(below);
        let failed = |source| WriteError::Directory {
            path: directory.clone(),
            source,
        };
        no_planted_links(&directory).map_err(failed)?;
        fs::create_dir_all(&directory).map_err(failed)?;
        let temporaries = Arc::new(Temporaries::of(&directory));
        OutputFile::begin(directory.join(name), self.named_later, &temporaries)
    }
}

/// A file that is complete, or that something else writes.
#[derive(Debug)]
pub(crate) struct ReservedFile(Pending);

impl ReservedFile {
    /// Returns its present path, which leads to an empty file that only we use.
    pub(crate) fn temporary(&self) -> &Path {
        self.0.temporary.as_deref().unwrap_or(&self.0.path)
    }

    /// Returns a descriptor of the file.
    pub(crate) fn open(&self) -> io::Result<File> {
        self.0.file.try_clone()
    }

    /// Returns the error for a failed write to this file.
    pub(crate) fn failed(&self, source: io::Error) -> WriteError {
        self.0.failed(source)
    }
}

/// A file being written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    writer: BufWriter<File>,
    pending: Pending,
}

impl OutputFile {
    fn begin(
        path: PathBuf,
        named_later: bool,
        temporaries: &Arc<Temporaries>,
    ) -> Result<OutputFile, WriteError> {
        let pending = Pending::begin(path, named_later, temporaries)?;
        let file = pending.file.try_clone();
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
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
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

    /// Returns the error for a failed write to this file.
    pub(crate) fn failed(&self, source: io::Error) -> WriteError {
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
