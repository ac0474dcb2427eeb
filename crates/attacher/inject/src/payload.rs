//! The library that the worker thread loads. It is read on this side and sent as a memory file.
//!
//! It is copied piece by piece and never held in memory as a whole: this process may have little
//! memory (`RLIMIT_AS`), and the library has tens of MiB.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread::JoinHandle;

use midair_ptrace::{memfd_filled, send_bytes, send_with_descriptor};

use crate::error::{During, EnterError};
use crate::mappings::memfd_name;
use crate::options::Library;

/// The number of bytes that are copied at a time.
const PIECE: usize = 64 << 10;

/// Where a library's bytes are.
enum Content {
    File(Arc<File>),
    Bytes(Vec<u8>),
}

/// A library.
pub(crate) struct Payload {
    content: Content,
    /// See [`Library::Opened`]; empty for the usual one.
    word: &'static str,
}

impl Payload {
    /// Returns a memory file with the library's bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn memory_file(&self, name: &CStr) -> io::Result<OwnedFd> {
        memfd_filled(name, |to| match &self.content {
            Content::File(from) => copy(from, to),
            Content::Bytes(bytes) => to.write_all(bytes),
        })
    }

    /// Returns such a file with the name that has this number.
    fn copy(&self, fd: i32) -> io::Result<OwnedFd> {
        let name = CString::new(memfd_name(self.word, fd)).unwrap_or_default();
        self.memory_file(&name)
    }
}

/// Opens the library and checks that it can be read.
#[expect(
    clippy::disallowed_methods,
    reason = "our own library, which the caller names"
)]
pub(crate) fn read(library: &Library) -> Result<Option<Payload>, EnterError> {
    const PHASE: &str = "reading the library";
    let (content, word) = match library {
        Library::File(path) => {
            let file = File::open(path).during(PHASE)?;
            (Content::File(Arc::new(file)), "")
        }
        Library::Opened { file, word } => (Content::File(Arc::clone(file)), *word),
        Library::Bytes(bytes) => (Content::Bytes(bytes.clone()), ""),
        Library::Nothing => return Ok(None),
    };
    if let Content::File(file) = &content {
        file.read_at(&mut [0], 0).during(PHASE)?;
    }
    Ok(Some(Payload { content, word }))
}

/// Copies a file from its start and leaves its position alone.
fn copy(from: &File, to: &mut File) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let count = match from.read_at(&mut piece, at) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(piece.get(..count).unwrap_or_default())?;
        at += count as u64;
    }
}

/// Sends the library, or a message that there is none.
pub(crate) fn send(
    channel: &OwnedFd,
    library: Option<&Payload>,
    fd: i32,
) -> Result<(), EnterError> {
    send_copy(channel, library.map(|library| library.copy(fd)))
}

fn send_copy(channel: &OwnedFd, copy: Option<io::Result<OwnedFd>>) -> Result<(), EnterError> {
    const PHASE: &str = "sending the library";
    let Some(copy) = copy else {
        return send_bytes(channel.as_fd(), b"none").during(PHASE);
    };
    let file = copy.during(PHASE)?;
    send_with_descriptor(channel.as_fd(), b"library", file.as_fd()).during(PHASE)
}

/// A library that is copied while the process is entered, which takes as long.
pub(crate) struct Copying {
    library: Option<Arc<Payload>>,
    fd: i32,
    /// None if no thread could be made.
    thread: Option<JoinHandle<io::Result<OwnedFd>>>,
}

impl Copying {
    /// Starts to copy.
    pub(crate) fn begin(library: Option<Payload>, fd: i32) -> Copying {
        let library = library.map(Arc::new);
        let thread = library.as_ref().and_then(|library| {
            let library = Arc::clone(library);
            let builder = std::thread::Builder::new().name("midair-copy".into());
            builder.spawn(move || library.copy(fd)).ok()
        });
        Copying {
            library,
            fd,
            thread,
        }
    }

    /// Waits for the copy, and sends it.
    pub(crate) fn send(self, channel: &OwnedFd) -> Result<(), EnterError> {
        let copied = self.thread.and_then(|thread| thread.join().ok());
        let library = self.library.as_ref();
        send_copy(
            channel,
            library.map(|library| copied.unwrap_or_else(|| library.copy(self.fd))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, SeekFrom};

    #[test]
    fn a_memory_file_has_all_bytes_and_the_position_stays() {
        for length in [0, 1, PIECE, 2 * PIECE + 7] {
            let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let position = file.stream_position().unwrap();
            let file = Arc::new(file);
            let opened = Library::Opened {
                file: Arc::clone(&file),
                word: "",
            };
            for library in [opened, Library::Bytes(bytes.clone())] {
                let payload = read(&library).unwrap().unwrap();
                let mut copy = File::from(payload.memory_file(c"copy").unwrap());
                copy.seek(SeekFrom::Start(0)).unwrap();
                let mut copied = Vec::new();
                copy.read_to_end(&mut copied).unwrap();
                assert!(copied == bytes, "{length} bytes");
            }
            assert_eq!((&*file).stream_position().unwrap(), position);
        }
    }

    #[test]
    fn what_cannot_be_read_is_said_at_once() {
        for path in ["/", "/no/such/library"] {
            assert!(read(&Library::File(path.into())).is_err(), "{path}");
        }
    }
}
