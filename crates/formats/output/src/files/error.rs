//! Why results could not be written.

use midair_trace::record_file::WalkError;
use std::io;
use std::path::PathBuf;

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
    #[error("cannot read the collected records: {0}")]
    Records(io::Error),
}

impl From<WalkError<WriteError>> for WriteError {
    fn from(error: WalkError<WriteError>) -> Self {
        match error {
            WalkError::Read(source) => WriteError::Records(source),
            WalkError::Visit(error) => error,
        }
    }
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
