//! The place where lists of records wait for their turn in the document.
//!
//! Records come in the order in which they were collected, and the document has one list for each
//! kind. Each list is gathered in memory block by block. Whole blocks go to one file without a name
//! alongside the results, and are read back in order when all of the session's records have been seen.

use super::emit::Emit;
use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The file. It is made with the first block, since small sessions need none.
pub(super) struct Spill {
    directory: PathBuf,
    file: OnceCell<File>,
    /// The number of bytes in use.
    len: Cell<u64>,
}

/// A block in the file.
struct Block {
    at: u64,
    len: usize,
}

impl Spill {
    pub(super) fn new(directory: &Path) -> Spill {
        Spill {
            directory: directory.to_owned(),
            file: OnceCell::new(),
            len: Cell::new(0),
        }
    }

    /// Forgets the contents.
    pub(super) fn clear(&self) {
        self.len.set(0);
    }

    /// Returns a list without elements.
    pub(super) fn list(&self) -> List<'_> {
        List(Emit::new(Blocks {
            spill: self,
            blocks: Vec::new(),
        }))
    }

    fn append(&self, bytes: &[u8]) -> io::Result<Block> {
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                let file = tempfile::tempfile_in(&self.directory)?;
                self.file.get_or_init(|| file)
            }
        };
        let at = self.len.get();
        file.write_all_at(bytes, at)?;
        self.len.set(at + bytes.len() as u64);
        Ok(Block {
            at,
            len: bytes.len(),
        })
    }

    fn read(&self, block: &Block, into: &mut Vec<u8>) -> io::Result<()> {
        into.resize(block.len, 0);
        match self.file.get() {
            Some(file) => file.read_exact_at(into, block.at),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// The blocks that a list has written to the file.
pub(super) struct Blocks<'s> {
    spill: &'s Spill,
    blocks: Vec<Block>,
}

impl Write for Blocks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.blocks.push(self.spill.append(bytes)?);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The elements of a list, with commas between them and no brackets around them.
pub(super) struct List<'s>(pub(super) Emit<Blocks<'s>>);

impl List<'_> {
    /// Writes the list into a document.
    pub(super) fn put<W: Write>(self, key: &'static str, out: &mut Emit<W>) -> io::Result<()> {
        let (written, rest) = self.0.into_parts();
        out.key(key)?;
        out.open_array()?;
        let mut bytes = Vec::new();
        for block in &written.blocks {
            written.spill.read(block, &mut bytes)?;
            out.raw(&bytes)?;
        }
        out.raw(&rest)?;
        out.close_array()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_are_filled_by_turns_come_back_whole() {
        let spill = Spill::new(&std::env::temp_dir());
        for _session in 0..2 {
            let (mut odd, mut even) = (spill.list(), spill.list());
            for number in 0..40_000_u32 {
                let list = if number % 2 == 0 { &mut even } else { &mut odd };
                list.0.open_object().unwrap();
                list.0.number("n", number).unwrap();
                list.0.close_object().unwrap();
            }
            let mut bytes = Vec::new();
            let mut out = Emit::new(&mut bytes);
            out.open_object().unwrap();
            even.put("even", &mut out).unwrap();
            spill.list().put("none", &mut out).unwrap();
            odd.put("odd", &mut out).unwrap();
            out.close_object().unwrap();
            out.flush().unwrap();
            assert!(spill.file.get().is_some());
            let found: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(found["none"], serde_json::json!([]));
            for (key, first) in [("even", 0), ("odd", 1)] {
                let list = found[key].as_array().unwrap();
                assert_eq!(list.len(), 20_000);
                let numbers = list.iter().map(|each| each["n"].as_u64().unwrap());
                assert!(numbers.eq((first..40_000).step_by(2)));
            }
            spill.clear();
        }
    }
}
