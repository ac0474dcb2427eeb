//! The parser of `/proc/TID/maps`, the list of a process's mappings.

use crate::{decimal, hex};

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// The first address after the mapping.
    pub end: u64,
    /// Whether it may be read.
    pub read: bool,
    /// Whether it may be written.
    pub write: bool,
    /// Whether it may be executed.
    pub execute: bool,
    /// Whether it is shared (`s`), so that other processes see changes to it, and not private
    /// (`p`).
    pub shared: bool,
    /// Offset into the file, in bytes.
    pub offset: u64,
    /// Device of the file: major, minor.
    pub device: (u32, u32),
    /// Inode of the file, 0 when there is none.
    pub inode: u64,
    /// The path as the kernel prints it (newlines are `\012`), a name in brackets, or nothing. It
    /// does not include ` (deleted)`.
    pub path: Vec<u8>,
    /// Whether the kernel printed ` (deleted)` behind the path.
    pub deleted: bool,
}

impl Mapping {
    /// Whether `address` lies in the mapping.
    pub fn holds(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
    /// Whether the mapping shows a file.
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.first() == Some(&b'/')
    }
}

/// Parses the whole file. Lines of an unknown form are left out.
pub fn parse(text: &[u8]) -> Vec<Mapping> {
    text.split(|&byte| byte == b'\n').filter_map(line).collect()
}

/// Parses one line.
pub fn line(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let range = word(&mut rest)?;
    let perms = word(&mut rest)?;
    let offset = hex(word(&mut rest)?)?;
    let device = word(&mut rest)?;
    let inode = decimal(word(&mut rest)?)?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    let colon = device.iter().position(|&byte| byte == b':')?;
    let device = (
        u32::try_from(hex(&device[..colon])?).ok()?,
        u32::try_from(hex(&device[colon + 1..])?).ok()?,
    );
    if perms.len() < 4 || start >= end {
        return None;
    }
    let begin = rest
        .iter()
        .position(|&byte| byte != b' ')
        .unwrap_or(rest.len());
    let path = &rest[begin..];
    let (path, deleted) = match path.strip_suffix(b" (deleted)") {
        Some(bare) => (bare, true),
        None => (path, false),
    };
    Some(Mapping {
        start,
        end,
        read: perms[0] == b'r',
        write: perms[1] == b'w',
        execute: perms[2] == b'x',
        shared: perms[3] == b's',
        offset,
        device,
        inode,
        path: path.to_vec(),
        deleted,
    })
}

/// Removes the next word from `rest` and returns it.
fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let from = rest.iter().position(|&byte| byte != b' ')?;
    let tail = &rest[from..];
    let to = tail
        .iter()
        .position(|&byte| byte == b' ')
        .unwrap_or(tail.len());
    *rest = &tail[to..];
    Some(&tail[..to])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_mapping() {
        let got = line(b"7f0a1000-7f0a3000 r-xp 00026000 fe:01 131102                     /usr/lib/a b.so (deleted)")
            .unwrap();
        assert_eq!(
            (got.start, got.end, got.offset, got.inode),
            (0x7f0a_1000, 0x7f0a_3000, 0x26000, 131_102)
        );
        assert_eq!(
            (got.read, got.write, got.execute, got.shared),
            (true, false, true, false)
        );
        assert_eq!((got.device, got.deleted), ((0xfe, 1), true));
        assert_eq!(got.path, b"/usr/lib/a b.so");
        assert!(got.is_file() && got.holds(0x7f0a_1000) && !got.holds(0x7f0a_3000));
    }

    #[test]
    fn names_nothing_and_bytes_that_are_no_text() {
        assert_eq!(line(b"1000-2000 rw-p 00000000 00:00 0 ").unwrap().path, b"");
        assert_eq!(
            line(b"1000-2000 rw-p 00000000 00:00 0    [heap]")
                .unwrap()
                .path,
            b"[heap]"
        );
        assert_eq!(
            line(b"1000-2000 rw-p 00000000 00:00 7    /\xff\xfe")
                .unwrap()
                .path,
            b"/\xff\xfe"
        );
    }

    #[test]
    fn nonsense_is_left_out() {
        for bad in [
            &b""[..],
            b"x",
            b"1-0 rw-p 0 0:0 0",
            b"1000-2000 r 0 0:0 0",
            b"1000-2000 rw-p zz 0:0 0",
            b"+1-+2 rwxp 0 0:0 0",
        ] {
            assert_eq!(line(bad), None, "{}", crate::show(bad));
        }
        assert_eq!(parse(b"bad\n1000-2000 rw-p 00000000 00:00 0\n\n").len(), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it reads a file of /proc")]
    fn our_own() {
        let maps = parse(&std::fs::read("/proc/self/maps").unwrap());
        let here = nonsense_is_left_out as *const () as u64;
        assert!(
            maps.iter()
                .any(|mapping| mapping.holds(here) && mapping.execute && mapping.is_file())
        );
    }
}
