//! The environment buffer: how settings travel into a target.
//!
//! Layout (`docs/sources.md#register`): the number of variables as a little-endian `u32`, then each variable
//! as its name, a NUL, its value, a NUL. There is no total length: `rocprofiler_register_attach` gets a bare
//! pointer, so a reader must stay within the mapping that contains it. Bytes behind the last variable are
//! ignored.

use crate::Settings;

/// Why bytes are not an environment buffer. Offsets count bytes from its start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    /// Fewer than four bytes.
    #[error("the environment buffer has {0} bytes, too few for its count")]
    NoCount(usize),
    /// It announces more variables than could fit.
    #[error(
        "the environment buffer announces {count} variables, more than its {bytes} bytes can hold"
    )]
    TooMany {
        /// The number announced.
        count: u32,
        /// The bytes available.
        bytes: usize,
    },
    /// The bytes end inside a variable.
    #[error("the environment buffer ends inside variable {index}, at byte {offset}")]
    Cut {
        /// Which variable, from 0.
        index: u32,
        /// Where the unfinished text starts.
        offset: usize,
    },
    /// A name that no environment can hold.
    #[error("variable {index} of the environment buffer has an unusable name")]
    Name {
        /// Which variable, from 0.
        index: u32,
    },
    /// A name or value that is not UTF-8; only [`Settings::decode`] asks for it.
    #[error("variable {index} of the environment buffer is not UTF-8")]
    NotText {
        /// Which variable, from 0.
        index: u32,
    },
    /// A name or value with a NUL inside, which this layout cannot carry.
    #[error("{name:?} has a NUL character in it, which an environment buffer cannot carry")]
    Nul {
        /// The variable.
        name: String,
    },
}

/// The variables of a buffer, borrowed from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Names and values, in the buffer's order.
    pub pairs: Vec<(&'a [u8], &'a [u8])>,
    /// Bytes that belong to the buffer; what follows is not part of it.
    pub used: usize,
}

/// Reads a buffer. Every access is bounded by `bytes`; an announced count allocates nothing before it has
/// proved possible.
pub fn decode(bytes: &[u8]) -> Result<Decoded<'_>, BufferError> {
    let Some((head, mut rest)) = bytes.split_first_chunk::<4>() else {
        return Err(BufferError::NoCount(bytes.len()));
    };
    let count = u32::from_le_bytes(*head);
    // The smallest variable: one byte of name and two NULs.
    if u64::from(count) * 3 > rest.len() as u64 {
        return Err(BufferError::TooMany {
            count,
            bytes: bytes.len(),
        });
    }
    let mut pairs = Vec::with_capacity(count as usize);
    for index in 0..count {
        let (name, after) = text(rest, bytes.len(), index)?;
        let (value, after) = text(after, bytes.len(), index)?;
        if name.is_empty() || name.contains(&b'=') {
            return Err(BufferError::Name { index });
        }
        pairs.push((name, value));
        rest = after;
    }
    Ok(Decoded {
        pairs,
        used: bytes.len() - rest.len(),
    })
}

/// One NUL-terminated text, and what follows it.
fn text(rest: &[u8], total: usize, index: u32) -> Result<(&[u8], &[u8]), BufferError> {
    let Some(end) = rest.iter().position(|byte| *byte == 0) else {
        return Err(BufferError::Cut {
            index,
            offset: total - rest.len(),
        });
    };
    Ok((&rest[..end], &rest[end + 1..]))
}

impl Settings {
    /// The settings as an environment buffer.
    pub fn encode(&self) -> Result<Vec<u8>, BufferError> {
        let mut bytes = (self.len() as u32).to_le_bytes().to_vec();
        for (name, value) in self.iter() {
            if name.contains('\0') || value.contains('\0') {
                return Err(BufferError::Nul {
                    name: name.to_owned(),
                });
            }
            for part in [name, value] {
                bytes.extend_from_slice(part.as_bytes());
                bytes.push(0);
            }
        }
        Ok(bytes)
    }

    /// The settings in an environment buffer. A name that occurs twice has its last value, as after repeated
    /// `setenv`.
    pub fn decode(bytes: &[u8]) -> Result<Settings, BufferError> {
        let mut settings = Settings::new();
        for (index, (name, value)) in decode(bytes)?.pairs.into_iter().enumerate() {
            match (std::str::from_utf8(name), std::str::from_utf8(value)) {
                (Ok(name), Ok(value)) => settings.set(name, value),
                _ => {
                    return Err(BufferError::NotText {
                        index: index as u32,
                    });
                }
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(count: u32, body: &[u8]) -> Vec<u8> {
        [&count.to_le_bytes()[..], body].concat()
    }

    #[test]
    fn bytes_are_those_of_the_document() {
        let mut settings = Settings::new();
        settings.set("ROCP_TOOL_ATTACH", "1");
        settings.set("ROCPROF_OUTPUT_PATH", "");
        let bytes = settings.encode().unwrap();
        // Settings are kept in the order of their names.
        assert_eq!(
            bytes,
            raw(2, b"ROCPROF_OUTPUT_PATH\0\0ROCP_TOOL_ATTACH\x001\0")
        );
        assert_eq!(Settings::decode(&bytes).unwrap(), settings);
    }

    #[test]
    fn what_follows_is_not_looked_at() {
        let bytes = raw(1, b"A\0b\0\xff\xff\xff garbage without an end");
        let decoded = decode(&bytes).unwrap();
        assert_eq!(decoded.pairs, [(&b"A"[..], &b"b"[..])]);
        assert_eq!(decoded.used, 8);
    }

    #[test]
    fn refusals_by_name() {
        assert_eq!(decode(b""), Err(BufferError::NoCount(0)));
        assert_eq!(decode(b"\x01\0\0"), Err(BufferError::NoCount(3)));
        assert_eq!(
            decode(&raw(u32::MAX, b"A\0b\0")),
            Err(BufferError::TooMany {
                count: u32::MAX,
                bytes: 8
            })
        );
        // Two variables take three bytes each at least.
        assert_eq!(decode(&raw(2, b"A\0\0B\0\0")).unwrap().used, 10);
        assert_eq!(
            decode(&raw(2, b"A\0\0B\0")),
            Err(BufferError::TooMany { count: 2, bytes: 9 })
        );
        assert_eq!(
            decode(&raw(1, b"NAME")),
            Err(BufferError::Cut {
                index: 0,
                offset: 4
            })
        );
        assert_eq!(
            decode(&raw(1, b"A\0value")),
            Err(BufferError::Cut {
                index: 0,
                offset: 6
            })
        );
        assert_eq!(
            decode(&raw(1, b"\0v\0")),
            Err(BufferError::Name { index: 0 })
        );
        assert_eq!(
            decode(&raw(2, b"A\0b\0C=D\0e\0")),
            Err(BufferError::Name { index: 1 })
        );
        assert_eq!(
            Settings::decode(&raw(1, b"A\0\xff\0")),
            Err(BufferError::NotText { index: 0 })
        );
        let mut settings = Settings::new();
        settings.set("A", "b\0c");
        assert_eq!(
            settings.encode(),
            Err(BufferError::Nul { name: "A".into() })
        );
    }

    #[test]
    fn the_last_of_two_values_counts() {
        let settings = Settings::decode(&raw(2, b"A\x001\0A\x002\0")).unwrap();
        assert_eq!(settings.get("A"), Some("2"));
        assert_eq!(settings.len(), 1);
    }

    /// Arbitrary bytes are either refused, or read wholly within bounds and written back unchanged.
    #[test]
    fn garbage_is_refused_or_read_within_bounds() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut accepted = 0;
        for _ in 0..20_000 {
            let len = (next() % 64) as usize;
            let mut bytes: Vec<u8> = (0..len)
                .map(|_| b"AB=\0\0C\xff1"[(next() % 8) as usize])
                .collect();
            // A small count, so that a good share passes the first check.
            let count = ((next() % 6) as u32).to_le_bytes();
            for (byte, of_count) in bytes.iter_mut().zip(count) {
                *byte = of_count;
            }
            if let Ok(decoded) = decode(&bytes) {
                accepted += 1;
                assert!(decoded.used <= bytes.len());
                let mut again = (decoded.pairs.len() as u32).to_le_bytes().to_vec();
                for (name, value) in &decoded.pairs {
                    again.extend_from_slice(name);
                    again.push(0);
                    again.extend_from_slice(value);
                    again.push(0);
                }
                assert_eq!(again, bytes[..decoded.used]);
            }
            let _ = Settings::decode(&bytes);
        }
        assert!(
            accepted > 100,
            "only {accepted} buffers got through: the generator tests nothing"
        );
    }

    /// Every proper prefix of a good buffer is refused.
    #[test]
    fn every_cut_is_refused() {
        let mut settings = Settings::new();
        for index in 0..20 {
            settings.set(format!("NAME_{index}"), "v".repeat(index));
        }
        let bytes = settings.encode().unwrap();
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "cut at {end}");
        }
    }
}
