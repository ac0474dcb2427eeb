//! The boot clock of another process.
//!
//! A process in a time namespace (containers of LXC and sysbox, whatever CRIU restored) has a boot
//! clock of its own, which is ahead of ours or behind it. Its records have the times of its clock,
//! so the present that they are compared with must be of that clock, too.

use midair_procinfo::task;
use midair_ptrace::Pid;
use nix::time::{ClockId, clock_gettime};

/// By how much a reading of the kernel's offsets may miss what was measured, ns.
const SLACK: i64 = 5_000_000;

/// Returns our own boot clock, ns.
pub(crate) fn boottime() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map(|time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        .unwrap_or(0)
}

/// Returns the boot clock of the kernel and of its drivers, ns.
pub(crate) fn of_kernel() -> u64 {
    let ahead = task::boot_offset(Pid::own()).unwrap_or(0);
    boottime().wrapping_sub(ahead as u64)
}

/// The boot clock of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Clock {
    /// How far it is ahead of ours, ns.
    ahead: i64,
}

impl Clock {
    /// Determines the clock from a moment that the process has noted by it. By our clock that was
    /// between the two times of `between`.
    pub(crate) fn of(pid: Pid, noted: u64, between: (u64, u64)) -> Clock {
        let offset = |pid| task::boot_offset(pid).unwrap_or(0);
        let told = offset(pid).wrapping_sub(offset(Pid::own()));
        Clock {
            ahead: ahead(told, noted, between),
        }
    }

    /// Returns the present by this clock, ns.
    pub(crate) fn now(self) -> u64 {
        self.at(boottime())
    }

    /// Converts a time of our clock.
    pub(crate) fn at(self, ours: u64) -> u64 {
        ours.wrapping_add_signed(self.ahead)
    }
}

/// Returns how far a clock is ahead. The kernel's value counts if it agrees with what was
/// measured: it tells the offset that the process's next children will have, which need not be its
/// own.
fn ahead(told: i64, noted: u64, (from, to): (u64, u64)) -> i64 {
    let (least, most) = (
        noted.wrapping_sub(to) as i64,
        noted.wrapping_sub(from) as i64,
    );
    let agrees =
        |offset: i64| offset >= least.saturating_sub(SLACK) && offset <= most.saturating_add(SLACK);
    match [0, told].into_iter().find(|offset| agrees(*offset)) {
        Some(offset) => offset,
        // The moment was noted just before it was seen.
        None => least,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_offset_is_what_the_kernel_says_if_it_was_seen() {
        let between = (50 * SECOND, 50 * SECOND + 1000);
        for (told, noted, wanted) in [
            // There is no namespace, whatever the children will have.
            (0, 50 * SECOND + 7, 0),
            (3_000_000_000, 50 * SECOND + 7, 0),
            (3_000_000_000, 53 * SECOND + 7, 3_000_000_000),
            (-20_000_000_000, 30 * SECOND + 7, -20_000_000_000),
            // The kernel tells nothing, or the children's offset.
            (0, 53 * SECOND + 700, 3_000_000_000 - 300),
            (9, 30 * SECOND + 700, -20_000_000_000 - 300),
        ] {
            assert_eq!(ahead(told, noted, between), wanted, "{told} {noted}");
        }
        // The process may have noted anything.
        ahead(i64::MIN, u64::MAX, (u64::MAX, 0));
        ahead(i64::MAX, 0, (0, u64::MAX));
    }

    #[test]
    fn we_are_in_no_namespace_of_ours() {
        let now = boottime();
        let clock = Clock::of(Pid::own(), now, (now, now));
        assert_eq!(clock, Clock::default());
        assert!(clock.now() >= now);
        assert_eq!(Clock { ahead: -5 }.at(7), 2);
    }
}
