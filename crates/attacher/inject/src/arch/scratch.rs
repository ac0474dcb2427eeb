//! The part of the boot block that only the boot code uses: structures for its system calls,
//! prepared by the attacher.

use std::mem::{offset_of, size_of};

use midair_record::boot::{BootBlock, ENTRY, THREAD_NAME};

/// Layout of [`BootBlock::text`].
#[repr(C)]
pub(crate) struct Scratch {
    /// `/proc/thread-self/fd/` and space for the number. It is not `/proc/self`: that is the first
    /// thread, and if it has ended, no descriptors are found there.
    pub(crate) path: [u8; 32],
    /// `struct msghdr`.
    pub(crate) message: [u64; 7],
    /// `struct iovec`.
    pub(crate) part: [u64; 2],
    /// Room for one received descriptor.
    pub(crate) control: [u64; 3],
    /// Bytes of the received message.
    pub(crate) payload: [u8; 64],
    /// `struct pollfd`: descriptor, then events.
    pub(crate) poll: [u32; 2],
    /// The two descriptors that socketpair returns.
    pub(crate) pair: [u32; 2],
    /// `struct sched_param`, zero, and padding.
    pub(crate) sched: [u32; 2],
    /// Every signal but [`SETXID`].
    pub(crate) all_signals: u64,
    /// Name of the worker thread.
    pub(crate) name: [u8; 16],
    /// Name of the library's entry.
    pub(crate) entry: [u8; 32],
    /// `pthread_attr_t` (56 bytes on x86-64, 64 on aarch64).
    pub(crate) attributes: [u64; 8],
    /// `pthread_t` of the worker thread.
    pub(crate) thread: u64,
    /// The guard page below the worker thread's stack, which gets no access rights.
    pub(crate) guard_base: u64,
    /// Its length.
    pub(crate) guard_len: u64,
    /// The inodes of our descriptors: near end, far end, library. The program may close these
    /// descriptor numbers and use them itself, so each is checked before it is closed.
    pub(crate) inodes: [u64; 3],
    /// A copy of the message of dlerror, which is freed with the worker thread.
    pub(crate) error: [u8; ERROR_BYTES],
}

/// Room for the message of dlerror with its final zero.
pub(crate) const ERROR_BYTES: usize = 512;

const _: () = assert!(size_of::<Scratch>() <= 1024);
// The kernel and the C library require these structures to be aligned.
const _: () = assert!(offset_of!(BootBlock, text).is_multiple_of(8));

/// Offset of a member in the boot block.
macro_rules! at {
    ($member:ident) => {
        std::mem::offset_of!(midair_record::boot::BootBlock, text)
            + std::mem::offset_of!(crate::arch::Scratch, $member)
    };
}
pub(crate) use at;

/// Writes the structures into `block`, the bytes of a boot block that will lie at `base` in the
/// target.
pub(crate) fn fill_scratch(block: &mut [u8], base: u64, guard: (u64, u64)) {
    let address = |offset: usize| base.wrapping_add(offset as u64).to_le_bytes();
    let mut put = |offset: usize, bytes: &[u8]| {
        if let Some(place) = block.get_mut(offset..offset.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
    };
    put(at!(path), b"/proc/thread-self/fd/");
    // msghdr: name, namelen, iov, iovlen, control, controllen, flags.
    put(at!(message) + 16, &address(at!(part)));
    put(at!(message) + 24, &1_u64.to_le_bytes());
    put(at!(message) + 32, &address(at!(control)));
    put(at!(message) + 40, &24_u64.to_le_bytes());
    put(at!(part), &address(at!(payload)));
    put(at!(part) + 8, &64_u64.to_le_bytes());
    // POLLIN
    put(at!(poll) + 4, &1_u16.to_le_bytes());
    put(at!(all_signals), &(!SETXID).to_le_bytes());
    put(at!(name), THREAD_NAME.as_bytes());
    put(at!(entry), ENTRY.as_bytes());
    put(at!(guard_base), &guard.0.to_le_bytes());
    put(at!(guard_len), &guard.1.to_le_bytes());
}

// Both names end with a zero within their space.
const _: () = assert!(THREAD_NAME.len() < 16 && ENTRY.len() < 32);

/// SIGSETXID, as a bit of a mask: the signal by which the C library changes the user of all threads
/// (setuid(3)). The C library waits until every thread has obeyed. So the worker thread does not
/// block it: the program's next setuid would not return otherwise.
pub(crate) const SETXID: u64 = 1 << (33 - 1);
