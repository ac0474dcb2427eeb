//! Whether a file is a complete shared library for this machine. The loader maps what the headers
//! say, without looking at the length of the file: in a truncated file, the first access to the
//! missing part would end the process.

#![expect(
    clippy::disallowed_methods,
    reason = "checked in the target's own process, which is about to load the file itself"
)]

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

const HEADER: usize = 64;
const SEGMENT: usize = 56;
const PT_LOAD: u32 = 1;
const ET_DYN: u16 = 3;
/// `e_machine` of this build.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    183
} else {
    62
};

/// Checks that a file is a complete shared library for this machine.
///
/// # Errors
/// What is wrong with it, as the rest of a sentence that starts with its path.
pub fn check(path: &str) -> Result<(), String> {
    if !path.starts_with('/') {
        return Err(String::from("is not an absolute path in the target"));
    }
    // Checked before the file is opened: opening a pipe would block until it has a writer.
    let kind = std::fs::metadata(path).map_err(|error| cannot(&error))?;
    if !kind.is_file() {
        return Err(String::from("is not a file"));
    }
    let file = File::open(path).map_err(|error| cannot(&error))?;
    let length = file.metadata().map_err(|error| cannot(&error))?.len();
    let mut header = [0; HEADER];
    read(&file, &mut header, 0)?;
    let segments = segments(&header)?;
    let mut loads = 0;
    for index in 0..segments.count {
        let mut segment = [0; SEGMENT];
        let at = segments.start.saturating_add(index * SEGMENT as u64);
        read(&file, &mut segment, at)?;
        if number::<4>(&segment, 0) as u32 == PT_LOAD {
            loads += 1;
            let end = number::<8>(&segment, 8).checked_add(number::<8>(&segment, 32));
            if end.is_none_or(|end| end > length) {
                return Err(String::from(
                    "is truncated: it ends before its last segment",
                ));
            }
        }
    }
    if loads == 0 {
        return Err(String::from("has no loadable segments"));
    }
    Ok(())
}

/// Location of the program header table.
struct Segments {
    start: u64,
    count: u64,
}

fn segments(header: &[u8; HEADER]) -> Result<Segments, String> {
    // The magic number, 64 bits, little endian.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err(String::from("is not a 64-bit library"));
    }
    if number::<2>(header, 16) != ET_DYN.into() {
        return Err(String::from("is not a shared library"));
    }
    if number::<2>(header, 18) != MACHINE.into() {
        return Err(String::from("is for another processor"));
    }
    if number::<2>(header, 54) != SEGMENT as u64 {
        return Err(String::from("has headers of an unknown size"));
    }
    Ok(Segments {
        start: number::<8>(header, 32),
        count: number::<2>(header, 56),
    })
}

/// A little-endian integer of `N` bytes, at most 8; bytes outside of the slice are 0.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut whole = [0; 8];
    for (to, from) in whole.iter_mut().zip(bytes.iter().skip(at).take(N)) {
        *to = *from;
    }
    u64::from_le_bytes(whole)
}

fn read(file: &File, into: &mut [u8], at: u64) -> Result<(), String> {
    file.read_exact_at(into, at)
        .map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => String::from("is truncated, or not a library"),
            _ => cannot(&error),
        })
}

fn cannot(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => String::from("does not exist in the target"),
        _ => format!("is not readable in the target ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn own() -> Vec<u8> {
        let process = crate::process::Process::own(false);
        let libc = process.mapped.iter().find(|it| it.contains("libc.so"));
        std::fs::read(libc.unwrap()).unwrap()
    }

    fn verdict(bytes: &[u8]) -> Result<(), String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        check(file.path().to_str().unwrap())
    }

    #[test]
    fn a_complete_library_passes_and_a_truncated_one_does_not() {
        let libc = own();
        assert_eq!(verdict(&libc), Ok(()));
        // Section headers and symbols for debuggers lie behind the last segment: they may be
        // missing.
        for length in [0, 3, 63, 64, 200, 5000, libc.len() / 2] {
            let cut = verdict(&libc[..length]).unwrap_err();
            assert!(
                cut.contains("truncated") || cut.contains("not"),
                "{length}: {cut}"
            );
        }
    }

    #[test]
    fn other_files_are_refused_by_their_kind() {
        let mut other = own();
        other[18] = 0xf3;
        assert!(verdict(&other).unwrap_err().contains("another processor"));
        other[4] = 1;
        assert!(verdict(&other).unwrap_err().contains("64-bit"));
        assert!(verdict(&[b'x'; 4096]).unwrap_err().contains("64-bit"));
        assert!(
            check("/nowhere/libcupti.so.12")
                .unwrap_err()
                .contains("does not exist")
        );
        assert!(check("/tmp").unwrap_err().contains("not a file"));
        assert!(check("libcupti.so.12").unwrap_err().contains("absolute"));
    }
}
