//! Files that are appended to a program: `midair` as **one file** carries its libraries, its data and
//! its helper behind its own end, so that copying it is installing it.
//!
//! ```text
//! program (ELF)  | file | file | ... | index | trailer
//! ```
//!
//! Each file is one LZ4 frame with a checksum. The index has a line for each file: its offset from the
//! start of the program, its length in the program, its own length, whether it is to be run, its
//! name. The trailer, the last [`TRAILER`] bytes, has [`MAGIC`], the index's offset and its length.
//! The kernel maps what the ELF headers name, and so never reads any of this; `strip` cuts it off.
#![forbid(unsafe_code)]

use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

/// The start of a trailer. The number is the version of the layout.
pub const MAGIC: [u8; 16] = *b"midair bundle 1\n";
/// Bytes of a trailer.
pub const TRAILER: usize = MAGIC.len() + 16;
/// The longest index that we write; a longer one is not ours.
const MAX_INDEX: u64 = 64 << 10;
/// The longest file that we append; a longer one is not ours.
const MAX_FILE: u64 = 256 << 20;

/// One file that is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried<'a> {
    /// Its path below the prefix of an installation, as in `lib/librocprofiler-sdk.so.1`.
    pub name: &'a str,
    /// Whether it is a program.
    pub executable: bool,
    /// What is in it.
    pub bytes: &'a [u8],
}

/// A program with files behind its end.
///
/// Everything is read through one descriptor. So the content comes from the file which was opened,
/// even if another program lies at its path by then.
#[derive(Debug)]
pub struct Bundle {
    file: File,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    offset: u64,
    /// Its compressed length in the program.
    stored: u64,
    /// The length of the file itself.
    length: u64,
    executable: bool,
    name: String,
}

/// Returns the program with these files behind its end. The same files in the same order give the
/// same bytes.
///
/// # Errors
/// Invalid input for a name that is empty or has a line break, and for files that exceed a bundle's
/// limits.
pub fn append(program: &[u8], files: &[Carried<'_>]) -> io::Result<Vec<u8>> {
    let mut whole = program.to_vec();
    let mut index = String::new();
    for file in files {
        if file.name.is_empty() || file.name.contains('\n') || file.bytes.len() as u64 > MAX_FILE {
            return Err(bad(format!("{:?} cannot be carried", file.name)));
        }
        let offset = whole.len();
        let info = FrameInfo::new()
            .content_checksum(true)
            .block_size(BlockSize::Max4MB);
        let mut encoder = FrameEncoder::with_frame_info(info, &mut whole);
        encoder.write_all(file.bytes)?;
        encoder.finish().map_err(io::Error::other)?;
        let (stored, length) = (whole.len() - offset, file.bytes.len());
        let executable = u8::from(file.executable);
        // Writing to a String cannot fail.
        let _ = writeln!(
            index,
            "{offset} {stored} {length} {executable} {}",
            file.name
        );
    }
    if index.len() as u64 > MAX_INDEX {
        return Err(bad("too many files".to_owned()));
    }
    let offset = whole.len() as u64;
    whole.extend_from_slice(index.as_bytes());
    whole.extend_from_slice(&MAGIC);
    whole.extend_from_slice(&offset.to_le_bytes());
    whole.extend_from_slice(&(index.len() as u64).to_le_bytes());
    Ok(whole)
}

impl Bundle {
    /// Returns what the running program carries, or none if it carries nothing.
    ///
    /// # Errors
    /// The kernel's; invalid data for something that starts like a bundle and is none.
    pub fn of_this_program() -> io::Result<Option<Bundle>> {
        // Its path is not used, since another file may lie there by now.
        Bundle::open(File::open("/proc/self/exe")?)
    }

    /// Returns what this program carries, or none if it carries nothing.
    ///
    /// # Errors
    /// The kernel's; invalid data for something that starts like a bundle and is none.
    pub fn open(file: File) -> io::Result<Option<Bundle>> {
        let end = file.metadata()?.len();
        let Some(trailer_at) = end.checked_sub(TRAILER as u64) else {
            return Ok(None);
        };
        let mut trailer = [0; TRAILER];
        file.read_exact_at(&mut trailer, trailer_at)?;
        let Some(numbers) = trailer.strip_prefix(&MAGIC) else {
            return Ok(None);
        };
        let (offset, length) = numbers.split_at(8);
        let (offset, length) = (number(offset), number(length));
        if length > MAX_INDEX || offset.checked_add(length) != Some(trailer_at) {
            return Err(bad("the trailer is wrong".to_owned()));
        }
        let mut index = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut index, offset)?;
        let index = std::str::from_utf8(&index).map_err(|why| bad(why.to_string()))?;
        let entries = index.lines().map(|line| {
            Entry::parse(line, offset).ok_or_else(|| bad(format!("{line:?} is not an entry")))
        });
        let entries = entries.collect::<io::Result<_>>()?;
        Ok(Some(Bundle { file, entries }))
    }

    /// Returns the names of the files, in the order in which they were appended, and whether each
    /// is a program.
    pub fn files(&self) -> impl Iterator<Item = (&str, bool)> {
        self.entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry.executable))
    }

    /// Returns the contents of the file with that name.
    ///
    /// # Errors
    /// Not found for a name that is not carried; invalid data where the bytes are not those that
    /// were appended; the kernel's.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or(io::ErrorKind::NotFound)?;
        let mut stored = vec![0; usize::try_from(entry.stored).unwrap_or(0)];
        self.file.read_exact_at(&mut stored, entry.offset)?;
        let mut bytes = Vec::new();
        // One byte more than there should be is read, so that a longer file is noticed.
        FrameDecoder::new(stored.as_slice())
            .take(entry.length + 1)
            .read_to_end(&mut bytes)
            .map_err(|why| bad(format!("{name}: {why}")))?;
        if bytes.len() as u64 != entry.length {
            return Err(bad(format!(
                "{name}: {} bytes instead of {}",
                bytes.len(),
                entry.length
            )));
        }
        Ok(bytes)
    }
}

impl Entry {
    /// Parses a line of an index that starts at `end`.
    fn parse(line: &str, end: u64) -> Option<Entry> {
        let mut words = line.splitn(5, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (offset, stored, length) = (number()?, number()?, number()?);
        let executable = match words.next()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let name = words.next().filter(|name| !name.is_empty())?.to_owned();
        let within = offset.checked_add(stored)? <= end;
        (within && length <= MAX_FILE).then_some(Entry {
            offset,
            stored,
            length,
            executable,
            name,
        })
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn bad(why: String) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the files appended to this program are damaged: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILES: [Carried<'static>; 3] = [
        Carried {
            name: "lib/a.so",
            executable: false,
            bytes: b"a library, a library, a library, a library",
        },
        Carried {
            name: "lib/with a blank",
            executable: true,
            bytes: b"#!/bin/sh\n",
        },
        Carried {
            name: "empty",
            executable: false,
            bytes: b"",
        },
    ];

    fn opened(bytes: &[u8]) -> io::Result<Option<Bundle>> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Bundle::open(file)
    }

    #[test]
    fn what_was_appended_is_read_and_the_program_is_as_it_was() {
        let whole = append(b"\x7fELF...", &FILES).unwrap();
        assert!(whole.starts_with(b"\x7fELF..."));
        let bundle = opened(&whole).unwrap().unwrap();
        for file in FILES {
            assert_eq!(bundle.read(file.name).unwrap(), file.bytes);
        }
        let named: Vec<_> = FILES.map(|file| (file.name, file.executable)).to_vec();
        assert_eq!(bundle.files().collect::<Vec<_>>(), named);
        let missing = bundle.read("lib/b.so").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(append(b"\x7fELF...", &FILES).unwrap(), whole);
    }

    #[test]
    fn a_program_without_anything_behind_it_carries_nothing() {
        for plain in [&b""[..], b"short", &[0; 4096]] {
            assert!(opened(plain).unwrap().is_none());
        }
        assert!(Bundle::of_this_program().unwrap().is_none());
    }

    proptest! {
        /// Changed bytes are never taken for what was appended.
        #[test]
        fn damage_is_found(at in 0_usize..4096, to in any::<u8>(), cut in 0_usize..64) {
            let program = [7; 100];
            let mut whole = append(&program, &FILES).unwrap();
            let at = program.len() + at % (whole.len() - program.len());
            whole[at] = to;
            whole.truncate(whole.len() - cut);
            if let Ok(Some(bundle)) = opened(&whole) {
                for (name, _) in bundle.files() {
                    if let (Ok(bytes), Some(file)) =
                        (bundle.read(name), FILES.iter().find(|file| file.name == name))
                    {
                        prop_assert_eq!(bytes, file.bytes);
                    }
                }
            }
        }
    }
}
