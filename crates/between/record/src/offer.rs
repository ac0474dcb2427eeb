//! The first message of a session: what the attacher sends over the socket, with the spool and the
//! tools as descriptors.

use crate::counter_plan::MAX_BYTES;

/// Maximum number of tools in a session.
pub const MAX_TOOLS: usize = 8;
const MAGIC: u64 = u64::from_le_bytes(*b"midair\x00O");

/// The attacher's offer. It comes with these descriptors: the spool, the tools, and the plan of
/// counters if there is one.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offer {
    magic: u64,
    version: u32,
    /// Number of tools.
    pub tools: u32,
    /// Bytes of the spool.
    pub spool_size: u64,
    /// Identities of the tools' files (equal for equal contents): a tool is loaded once per
    /// process.
    pub tool_identity: [u64; MAX_TOOLS],
    /// Bytes of the plan of counters ([`crate::counter_plan`]); 0 = there is none.
    pub plan_bytes: u64,
}

impl Offer {
    /// Makes an offer of this version.
    pub fn new(
        spool_size: u64,
        tools: u32,
        tool_identity: [u64; MAX_TOOLS],
        plan_bytes: u64,
    ) -> Offer {
        Offer {
            magic: MAGIC,
            version: crate::VERSION,
            tools,
            spool_size,
            tool_identity,
            plan_bytes,
        }
    }
    /// Whether it is a valid offer of this version.
    pub fn is_ours(&self) -> bool {
        self.magic == MAGIC
            && self.version == crate::VERSION
            && self.tools as usize <= MAX_TOOLS
            && self.plan_bytes <= MAX_BYTES as u64
    }
    /// Returns how many descriptors come with it.
    pub fn descriptors(&self) -> usize {
        1 + self.tools as usize + usize::from(self.plan_bytes > 0)
    }
    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: repr(C), integers only, no padding (8 + 4 + 4 + 8 + 64 + 8).
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Offer>()) }
    }
}

/// The target's reply: whether it accepted the spool. Everything else is in the head of the spool.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    magic: u64,
    accepted: u64,
}

impl Reply {
    /// Makes a reply.
    pub fn new(accepted: bool) -> Reply {
        Reply {
            magic: MAGIC,
            accepted: accepted.into(),
        }
    }
    /// Reads a reply; `None` when the bytes are not a reply.
    pub fn read(bytes: &[u8]) -> Option<bool> {
        let (magic, accepted) = bytes.get(..16)?.split_at(8);
        (magic == MAGIC.to_ne_bytes()).then(|| accepted != [0; 8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offers_bytes_are_those_of_its_fields() {
        let mut identity = [0; MAX_TOOLS];
        identity[1] = 0x1122;
        let offer = Offer::new(77, 2, identity, 9);
        let bytes = offer.bytes();
        assert_eq!(bytes.len(), size_of::<Offer>());
        let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        assert_eq!(word(0), MAGIC);
        let last = bytes.len() - 8;
        assert_eq!(
            (word(16), word(24), word(32), word(last)),
            (77, 0, 0x1122, 9)
        );
        assert!(offer.is_ours());
        let (magic, version) = (MAGIC ^ 1, crate::VERSION + 1);
        assert!(!Offer { magic, ..offer }.is_ours());
        assert!(!Offer { version, ..offer }.is_ours());
        assert!(!Offer::default().is_ours());
        assert!(Offer::new(77, MAX_TOOLS as u32, identity, 0).is_ours());
        assert_eq!(offer.descriptors(), 4);
        assert_eq!(Offer::new(77, 2, identity, 0).descriptors(), 3);
        assert!(!Offer::new(77, MAX_TOOLS as u32 + 1, identity, 0).is_ours());
        assert!(Offer::new(77, 0, identity, MAX_BYTES as u64).is_ours());
        assert!(!Offer::new(77, 0, identity, MAX_BYTES as u64 + 1).is_ours());
    }

    #[test]
    fn replies() {
        let bytes = |magic: u64, word: u64| [magic.to_ne_bytes(), word.to_ne_bytes()].concat();
        assert_eq!(Reply::read(&bytes(MAGIC, 1)), Some(true));
        assert_eq!(Reply::read(&bytes(MAGIC, 0)), Some(false));
        assert_eq!(Reply::read(&bytes(MAGIC + 1, 1)), None);
        assert_eq!(Reply::read(&bytes(MAGIC, 1)[..15]), None);
    }
}
