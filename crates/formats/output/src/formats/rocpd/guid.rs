//! The id of a file: a UUID of version 7.

use crate::process::Process;
use std::fmt;

/// A guid, in the two spellings that occur in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Guid(String);

impl Guid {
    /// Returns the guid of a session. Its time is when collecting started, in milliseconds of the
    /// boot clock as in AMD's files. The rest is a hash of machine, process and that time. The same
    /// session always has the same guid, and another session of the same process has another one.
    /// (AMD's guid identifies the process, so two sessions of one process cannot be united.)
    pub(super) fn of(process: &Process) -> Guid {
        let words = [
            u64::from(process.pid),
            u64::from(process.ppid),
            process.init_time,
        ];
        let mut bytes = process.node.machine_id.as_bytes().to_vec();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let high = hash(&bytes, 1);
        let low = hash(&bytes, 2);
        let milliseconds = (process.init_time / 1_000_000) & 0xffff_ffff_ffff;
        let text = format!(
            "{:08x}-{:04x}-7{:03x}-{:04x}-{:012x}",
            milliseconds >> 16,
            milliseconds & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48) & 0x3fff,
            low & 0xffff_ffff_ffff
        );
        Guid(text)
    }

    /// Returns a text in the place of a guid.
    pub(super) fn named(text: &str) -> Guid {
        Guid(text.to_owned())
    }

    /// Returns the end of the names of tables: an underscore, and the guid with underscores.
    pub(super) fn suffix(&self) -> String {
        format!("_{}", self.0.replace('-', "_"))
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Returns an FNV-1a hash, mixed so that each bit depends on all bits of the input.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_is_a_uuid_of_version_7_and_differs_by_session() {
        let mut process = Process {
            pid: 2371,
            init_time: 3_544_541_389_313,
            ..Process::default()
        };
        let first = Guid::of(&process);
        let text = first.to_string();
        assert_eq!(text.len(), 36);
        assert!(text.starts_with("00000036-15dd-7"), "{text}");
        assert!(matches!(text.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
        assert_eq!(first, Guid::of(&process));
        assert_eq!(first.suffix(), format!("_{}", text.replace('-', "_")));
        process.init_time += 1;
        assert_ne!(first, Guid::of(&process));
        process.node.machine_id = "m".into();
        assert_ne!(Guid::of(&process), first);
    }
}
