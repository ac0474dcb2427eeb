use std::fmt;

/// An address in the target. It cannot be dereferenced here, nor mixed up with an address of this
/// process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RemoteAddr(u64);

impl RemoteAddr {
    /// The address as the target would see it.
    pub const fn new(address: u64) -> Self {
        RemoteAddr(address)
    }
    /// The address as a number, to be written into registers and structures of the target.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The address `bytes` higher. The sum wraps: it is for the kernel to refuse a nonsense
    /// address.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        RemoteAddr(self.0.wrapping_add(bytes))
    }
    /// The address `bytes` lower. The difference wraps.
    #[must_use]
    pub const fn minus(self, bytes: u64) -> Self {
        RemoteAddr(self.0.wrapping_sub(bytes))
    }
    /// The address rounded down to a multiple of `alignment`, which is a power of two.
    #[must_use]
    pub const fn align_down(self, alignment: u64) -> Self {
        RemoteAddr(self.0 & !(alignment - 1))
    }
}

impl fmt::Debug for RemoteAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for RemoteAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
