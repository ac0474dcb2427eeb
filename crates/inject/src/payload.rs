//! The library that the worker thread loads: read on this side, sent as a memory file.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use midair_ptrace::{memfd_with, send_bytes, send_with_descriptor};

use crate::error::{During, EnterError};
use crate::mappings::memfd_name;
use crate::options::Library;

/// A library in memory.
pub(crate) struct Payload {
    pub(crate) bytes: Vec<u8>,
    /// See [`Library::Opened`]; empty for the usual one.
    word: &'static str,
}

#[expect(
    clippy::disallowed_methods,
    reason = "our own library, which the caller names"
)]
pub(crate) fn read(library: &Library) -> Result<Option<Payload>, EnterError> {
    const PHASE: &str = "reading the library";
    let (bytes, word) = match library {
        Library::File(path) => (std::fs::read(path).during(PHASE)?, ""),
        Library::Opened { file, word } => (whole(file).during(PHASE)?, *word),
        Library::Bytes(bytes) => (bytes.clone(), ""),
        Library::Nothing => return Ok(None),
    };
    Ok(Some(Payload { bytes, word }))
}

/// All bytes of an open file.
fn whole(file: &File) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Sends the library, or word that there is none.
pub(crate) fn send(
    channel: &OwnedFd,
    library: Option<&Payload>,
    fd: i32,
) -> Result<(), EnterError> {
    const PHASE: &str = "sending the library";
    let Some(Payload { bytes, word }) = library else {
        return send_bytes(channel.as_fd(), b"none").during(PHASE);
    };
    let name = CString::new(memfd_name(word, fd)).unwrap_or_default();
    let file = memfd_with(&name, bytes).during(PHASE)?;
    send_with_descriptor(channel.as_fd(), b"library", file.as_fd()).during(PHASE)
}
