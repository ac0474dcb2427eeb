//! CUPTI's own threads: it makes two at its first use in a process, and they end when it is
//! finalized.
//!
//! They inherit the name of the thread that makes them. The worker thread has the name by which
//! attachers find it, so it takes another name meanwhile. If threads of that other name exist, we
//! were the first to use CUPTI.

use super::threads;
use midair_record::boot::MAKER_NAME;

/// The calling thread has the name [`MAKER_NAME`] until this is dropped.
#[derive(Debug)]
pub(super) struct Named {
    before: [u8; 16],
}

impl Named {
    /// Renames the calling thread.
    pub(super) fn begin() -> Named {
        let (mut before, mut name) = ([0; 16], [0_u8; 16]);
        for (to, from) in name.iter_mut().zip(MAKER_NAME.bytes()) {
            *to = from;
        }
        // SAFETY: 16 bytes for the name, and a terminated name.
        unsafe {
            libc::prctl(libc::PR_GET_NAME, before.as_mut_ptr());
            libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        }
        Named { before }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // SAFETY: a name that the kernel gave, terminated.
        unsafe { libc::prctl(libc::PR_SET_NAME, self.before.as_ptr()) };
    }
}

/// Whether CUPTI has threads that were made by our first use. `true` where that cannot be
/// determined.
pub(super) fn are_ours() -> bool {
    threads::others().is_none_or(|others| {
        let mut names = others
            .iter()
            .filter_map(|thread| std::fs::read(format!("{thread}/comm")).ok());
        names.any(|name| name.trim_ascii_end() == MAKER_NAME.as_bytes())
    })
}

const _: () = assert!(MAKER_NAME.len() < 16);
