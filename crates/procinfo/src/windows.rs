//! A file read in large windows that are kept.
//!
//! The ELF reader asks for each symbol's name by itself: of a C library with three thousand symbols that would be three thousand
//! seeks and reads, tens of milliseconds of an attach. A mapping would do as well, but a file that somebody truncates would then end
//! this process.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Bytes of a window.
const WINDOW: u64 = 256 * 1024;

/// The reader.
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
            self.loaded.insert(number, bytes);
        }
        Ok(self.loaded.get(&number).map_or(&[], Vec::as_slice))
    }
}

impl Read for Windows<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
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
