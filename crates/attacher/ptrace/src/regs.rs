/// A signal mask: bit n-1 set means that signal n is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalMask(pub u64);

impl SignalMask {
    /// The mask that blocks what either of the two blocks.
    #[must_use]
    pub fn and(self, other: SignalMask) -> SignalMask {
        SignalMask(self.0 | other.0)
    }

    /// Blocks every signal but those that the kernel forces upon a thread for what it executes:
    /// SIGTRAP, and SIGSYS of syscall user dispatch. If one of these were blocked, the kernel would
    /// reset its process-wide handler before the tracer sees the signal (`docs/sources.md#inject`).
    pub const ALL_BUT_FORCED: SignalMask =
        SignalMask(!(1 << (libc::SIGTRAP - 1) | 1 << (libc::SIGSYS - 1)));
}
