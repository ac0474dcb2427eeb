/// A signal mask: bit n-1 set means that signal n is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalMask(pub u64);

impl SignalMask {
    /// What either of them blocks.
    #[must_use]
    pub fn and(self, other: SignalMask) -> SignalMask {
        SignalMask(self.0 | other.0)
    }

    /// Every signal blocked but SIGTRAP. With SIGTRAP blocked the kernel would force a trap's
    /// delivery by resetting the process-wide handler (`docs/sources.md#inject`).
    pub const ALL_BUT_TRAP: SignalMask = SignalMask(!(1 << (libc::SIGTRAP - 1)));
}
