//! Tokens: random bytes that the listener puts into this process's memory for an attacher to read.
//!
//! Whoever knows one has read this memory, and the kernel lets nobody do that who may not trace
//! this process: `/proc/PID/mem` and `process_vm_readv` both ask for `PTRACE_MODE_ATTACH`, with all
//! that Yama, Landlock and other security modules have to say. So nothing of that is decided here.
//!
//! A token is made for one connection and is good for one answer. Nothing is gained by hashing it:
//! the attacher sends it to the process that it read it from, as the kernel tells it who listens.
//!
//! The page is not inherited by a child of `fork`, which may be put into a sandbox and still has a
//! copy of all other memory. It lies at a random address: an attacher that is refused later has
//! learned that address, and must not learn from it where libraries lie.

use midair_record::connect::{SECRET_LEN, TOKEN_LEN, Token};
use std::ptr::NonNull;

/// How many tokens there can be at a time.
pub(crate) const SLOTS: usize = 8;
/// Distance of two tokens, in bytes.
const STRIDE: usize = 64;
/// Length of the mapping, in bytes; the kernel makes whole pages of it.
const LEN: usize = 4096;

const _: () = assert!(TOKEN_LEN <= STRIDE && SLOTS * STRIDE <= LEN);

/// Where the page may lie: first address and length of ranges that are tried in turn. Above the
/// memory that programs lay out themselves, below the libraries and stacks; the second is for
/// kernels that give a process 39 bits of addresses.
const RANGES: [(usize, usize); 2] = [(1 << 44, 6 << 44), (1 << 36, 3 << 36)];
/// Any page size that Linux has divides this.
const ALIGNMENT: usize = 1 << 16;

/// The page of tokens. Only the listener's thread uses it.
#[derive(Debug)]
pub(crate) struct Tokens {
    page: NonNull<u8>,
}

/// Fills `to` with random bytes. Returns false where the kernel has none, or refuses.
pub(crate) fn random(to: &mut [u8]) -> bool {
    // SAFETY: the kernel writes at most so many bytes into `to`.
    let got = unsafe { libc::getrandom(to.as_mut_ptr().cast(), to.len(), libc::GRND_NONBLOCK) };
    usize::try_from(got) == Ok(to.len())
}

fn map_at(hint: usize) -> Option<NonNull<u8>> {
    // SAFETY: a fresh mapping; an address is only a wish (no MAP_FIXED), so nothing is replaced.
    let page = unsafe {
        libc::mmap(
            std::ptr::without_provenance_mut(hint),
            LEN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    (page != libc::MAP_FAILED)
        .then(|| NonNull::new(page.cast()))
        .flatten()
}

fn unmap(page: NonNull<u8>) {
    // SAFETY: a mapping of this module's, and of this length; the caller gives it up.
    unsafe { libc::munmap(page.as_ptr().cast(), LEN) };
}

impl Tokens {
    /// Maps the page. `None` where the process may not have it, or has no random numbers.
    pub(crate) fn map() -> Option<Tokens> {
        let mut page = None;
        for (from, len) in RANGES {
            let mut bytes = [0; size_of::<usize>()];
            if !random(&mut bytes) {
                return None;
            }
            let at = (from + usize::from_ne_bytes(bytes) % len) & !(ALIGNMENT - 1);
            let got = map_at(at)?;
            if got.addr().get() == at {
                page = Some(got);
                break;
            }
            unmap(got);
        }
        // In so full an address space, or so small a one, the kernel chooses.
        let page = match page {
            Some(page) => page,
            None => map_at(0)?,
        };
        let tokens = Tokens { page };
        // SAFETY: the mapping that was just made. No child may have a copy of what is in it; that a
        // dump of this process has none is a wish.
        let kept = unsafe {
            libc::madvise(page.as_ptr().cast(), LEN, libc::MADV_DONTDUMP);
            libc::madvise(page.as_ptr().cast(), LEN, libc::MADV_DONTFORK)
        };
        (kept == 0).then_some(tokens)
    }

    /// Address of a token; `None` when there is no such slot.
    fn at(&self, slot: usize) -> Option<NonNull<[u8; TOKEN_LEN]>> {
        // SAFETY: inside the page, by the assertion above.
        (slot < SLOTS).then(|| unsafe { self.page.byte_add(slot * STRIDE).cast() })
    }

    /// Makes a new token in `slot` and returns its address. `None` where the kernel gives no random
    /// bytes.
    pub(crate) fn fresh(&self, slot: usize) -> Option<u64> {
        let at = self.at(slot)?;
        let mut secret = [0; SECRET_LEN];
        if !random(&mut secret) {
            return None;
        }
        // SAFETY: `at` is inside the page, which only this thread writes. Volatile: it is read by
        // other processes.
        unsafe { at.write_volatile(Token { secret }.bytes()) };
        Some(at.addr().get() as u64)
    }

    /// Whether `answer` is the token in `slot`. It is gone afterwards: it is good for one answer.
    pub(crate) fn take(&self, slot: usize, answer: &Token) -> bool {
        let Some(at) = self.at(slot) else {
            return false;
        };
        // SAFETY: as in `fresh`.
        let there = unsafe { at.read_volatile() };
        self.wipe(slot);
        // How long this takes says nothing about how much of it is right.
        let different = there
            .iter()
            .zip(answer.bytes())
            .fold(0, |all, (one, other)| all | (one ^ other));
        different == 0
    }

    /// Takes away what is in `slot`.
    pub(crate) fn wipe(&self, slot: usize) {
        if let Some(at) = self.at(slot) {
            // SAFETY: as in `fresh`.
            unsafe { at.write_volatile([0; TOKEN_LEN]) };
        }
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        unmap(self.page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_one_answer() {
        let tokens = Tokens::map().unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for slot in 0..SLOTS {
            let at = tokens.fresh(slot).unwrap();
            // SAFETY: inside the page, and written just now.
            let bytes =
                unsafe { *std::ptr::with_exposed_provenance::<[u8; TOKEN_LEN]>(at as usize) };
            let token = Token::read(&bytes).unwrap();
            assert!(seen.insert(token.secret), "no two are equal");
            let mut other = token;
            other.secret[SECRET_LEN - 1] ^= 1;
            assert!(!tokens.take(slot, &other), "{slot}");
            assert!(!tokens.take(slot, &token), "a wrong answer has used it up");
            let at = tokens.fresh(slot).unwrap();
            // SAFETY: as above.
            let bytes =
                unsafe { *std::ptr::with_exposed_provenance::<[u8; TOKEN_LEN]>(at as usize) };
            let token = Token::read(&bytes).unwrap();
            assert!(tokens.take(slot, &token), "{slot}");
            assert!(!tokens.take(slot, &token), "it is used up");
        }
        // An empty slot has no token: not even one of zeros.
        let secret = [0; SECRET_LEN];
        assert!(!tokens.take(0, &Token { secret }));
        assert!(tokens.fresh(SLOTS).is_none());
    }

    #[test]
    fn a_child_has_no_copy_and_the_address_says_nothing() {
        let tokens = Tokens::map().unwrap();
        let at = tokens.fresh(0).unwrap() as usize;
        // SAFETY: the child only calls `mincore`, which takes any address, and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut one = 0_u8;
            // SAFETY: asks about pages; writes one byte into `one`.
            unsafe {
                let page = std::ptr::without_provenance_mut(at & !0xfff);
                libc::_exit(libc::mincore(page, 1, &raw mut one));
            }
        }
        let mut status = 0;
        // SAFETY: our own child; a valid out pointer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 0);
        let others: Vec<_> = (0..4).map(|_| Tokens::map().unwrap()).collect();
        let far = |other: &Tokens| (other.page.addr().get() - 1).abs_diff(at) > 1 << 24;
        assert!(others.iter().all(far), "{others:?} {at:x}");
    }
}
