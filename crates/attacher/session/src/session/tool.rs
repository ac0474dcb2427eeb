//! The tools of a session, as they are sent: copies in memory.

use crate::install::Install;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

/// A tool in memory.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) file: File,
    pub(super) identity: u64,
}

/// Copies a library into memory, so that the target needs neither our path nor our file system, and
/// hashes its contents.
pub(crate) fn memory_copy(from: &File) -> std::io::Result<Tool> {
    let mut identity = 0xcbf2_9ce4_8422_2325;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    let file = midair_ptrace::memfd_filled(c"midair-tool", |file| {
        loop {
            let got = fill(from, &mut piece, at)?;
            if got == 0 {
                return Ok(());
            }
            at += got as u64;
            let part = piece.get(..got).unwrap_or_default();
            identity = mixed(identity, part);
            file.write_all(part)?;
        }
    })?;
    let file = File::from(file);
    Ok(Tool { file, identity })
}

/// Whether one of the tools has the same bytes as our own. A user may have copied ours to another
/// place.
pub(super) fn has_copy_of_ours(tools: &[Tool], install: &Install) -> bool {
    let ours = install.open(&install.tool);
    let ours = ours.and_then(|file| memory_copy(&file));
    ours.is_ok_and(|ours| tools.iter().any(|tool| tool.identity == ours.identity))
}

/// Reads from `offset` on until `piece` is full or the file ends. The file's own position is not
/// used, since others share it.
fn fill(file: &File, piece: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut got = 0;
    while let Some(rest) = piece.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// The number of bytes that are copied at a time. If a whole tool were read at once, the allocator
/// would keep that memory for each thread that attaches.
const PIECE: usize = 64 << 10;

/// Returns an FNV-1a hash over words. It is fast, and only equality matters.
fn mixed(hash: u64, bytes: &[u8]) -> u64 {
    // Whole words, not bytes: each attach reads all of the tool, and a build without optimisation
    // spent 100 ms here.
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words
        .iter()
        .fold(hash, |hash, word| mixed_word(hash, *word));
    if rest.is_empty() {
        return hash;
    }
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    mixed_word(hash, last)
}

fn mixed_word(hash: u64, word: [u8; 8]) -> u64 {
    (hash ^ u64::from_le_bytes(word))
        .wrapping_mul(0x100_0000_01b3)
        .rotate_left(23)
}
