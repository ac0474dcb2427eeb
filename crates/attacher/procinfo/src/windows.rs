//! Reads a file in large windows and keeps them.
//!
//! The ELF reader asks for each symbol's name separately. For a C library with three thousand
//! symbols that would be three thousand seeks and reads, which take tens of milliseconds of an
//! attach. A mapping would avoid that as well, but a truncated file would then end
//! this process.

use crate::allowance::{AT_ONCE, Allowance};
use object::read::{ReadCache, ReadRef};
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The bytes of one window.
const WINDOW: u64 = 256 * 1024;
/// The most windows that are kept.
const MOST: usize = 64;

/// Reads a file through windows.
#[derive(Debug)]
pub(crate) struct Windows<'a> {
    file: &'a File,
    at: u64,
    loaded: HashMap<u64, Vec<u8>>,
}

impl<'a> Windows<'a> {
    pub(crate) fn over(file: &'a File) -> Windows<'a> {
        Windows {
            file,
            at: 0,
            loaded: HashMap::new(),
        }
    }

    fn window(&mut self, number: u64) -> io::Result<&[u8]> {
        if !self.loaded.contains_key(&number) {
            let mut bytes = vec![0; WINDOW as usize];
            let mut filled = 0;
            while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match self.file.read_at(rest, number * WINDOW + filled as u64) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            bytes.truncate(filled);
            if self.loaded.len() >= MOST {
                self.loaded.clear();
            }
            self.loaded.insert(number, bytes);
        }
        Ok(self.loaded.get(&number).map_or(&[], Vec::as_slice))
    }
}

impl Read for Windows<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // For a large table no second copy is kept.
        if into.len() as u64 > WINDOW {
            let count = self.file.read_at(into, self.at)?;
            self.at += count as u64;
            return Ok(count);
        }
        let (number, offset) = (self.at / WINDOW, (self.at % WINDOW) as usize);
        let rest = self.window(number)?.get(offset..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Windows<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let outside = || io::Error::from(io::ErrorKind::InvalidInput);
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.checked_add_signed(by).ok_or_else(outside)?,
            SeekFrom::End(by) => {
                let len = self.file.metadata()?.len();
                len.checked_add_signed(by).ok_or_else(outside)?
            }
        };
        Ok(self.at)
    }
}

/// A file's bytes for the ELF reader, up to the process's [`Allowance`] and up to [`AT_ONCE`]. The
/// file may claim any sizes, and none of them may exhaust this process's memory.
#[derive(Debug)]
pub(crate) struct Bounded<'a> {
    cache: ReadCache<Windows<'a>>,
    allowance: &'a Allowance,
    taken: Cell<u64>,
}

impl<'a> Bounded<'a> {
    pub(crate) fn over(file: &'a File, allowance: &'a Allowance) -> Bounded<'a> {
        Bounded {
            cache: ReadCache::new(Windows::over(file)),
            allowance,
            taken: Cell::new(0),
        }
    }

    fn take(&self, bytes: u64) -> Result<(), ()> {
        let taken = self.taken.get().saturating_add(bytes);
        self.taken.set(taken);
        if taken > AT_ONCE {
            return Err(());
        }
        self.allowance.read(bytes).map_err(drop)
    }
}

impl<'a> ReadRef<'a> for &'a Bounded<'_> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.take(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let text = self.cache.read_bytes_at_until(range, delimiter)?;
        self.take(text.len() as u64)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_the_file_does_also_across_windows_and_at_the_end() {
        let path = std::env::current_exe().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let file = File::open(&path).unwrap();
        let mut windows = Windows::over(&file);
        for at in [0, WINDOW - 3, 2 * WINDOW, whole.len() as u64 - 5] {
            windows.seek(SeekFrom::Start(at)).unwrap();
            let mut some = vec![0; 5];
            windows.read_exact(&mut some).unwrap();
            assert_eq!(some, whole[at as usize..at as usize + 5]);
        }
        assert_eq!(windows.read(&mut [0; 8]).unwrap(), 0);
        assert!(windows.seek(SeekFrom::Current(i64::MIN)).is_err());
    }
}
