//! A limit on how much is read of all the files that one process has mapped.
//!
//! A process chooses what it maps: a file with holes can have any size and still take no room on
//! the disk. What is read of such a file takes memory in this process, whether it lies on a disk or
//! not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The bytes that may be read of all files of one process. This bounds the time, to a few seconds.
const READ: u64 = 4 << 30;
/// The bytes that may be kept of them while the process is being examined: symbols and unwind
/// tables. PyTorch's libraries have some 100 MiB of them.
const KEPT: u64 = 192 << 20;
/// The bytes of one table that may be in memory while it is read.
pub(crate) const AT_ONCE: u64 = 128 << 20;

/// What may still be read of one process's files. Clones share it.
#[derive(Debug, Clone)]
pub struct Allowance(Arc<Left>);

#[derive(Debug)]
struct Left {
    read: AtomicU64,
    kept: AtomicU64,
}

impl Default for Allowance {
    fn default() -> Self {
        Allowance(Arc::new(Left {
            read: AtomicU64::new(READ),
            kept: AtomicU64::new(KEPT),
        }))
    }
}

impl Allowance {
    /// Deducts bytes that are about to be read.
    pub(crate) fn read(&self, bytes: u64) -> io::Result<()> {
        take(&self.0.read, bytes)
    }

    /// Deducts bytes that are about to be kept.
    pub(crate) fn keep(&self, bytes: u64) -> io::Result<()> {
        take(&self.0.kept, bytes)
    }
}

fn take(left: &AtomicU64, bytes: u64) -> io::Result<()> {
    let taken = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
    taken.map(drop).map_err(|_| {
        io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the mapped files of the process exceed midair's size limit",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_what_is_left() {
        let one = Allowance::default();
        let other = one.clone();
        one.keep(KEPT - 10).unwrap();
        assert!(other.keep(11).is_err());
        other.keep(10).unwrap();
        assert!(one.keep(1).is_err() && one.read(READ).is_ok());
    }
}
