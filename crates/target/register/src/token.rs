//! Tokens: random bytes that the listener puts into this process's memory for an attacher to read.
//!
//! Whoever knows a token has read this memory, which the kernel allows only to processes that may
//! trace this one. `/proc/PID/mem` and `process_vm_readv` both require `PTRACE_MODE_ATTACH`,
//! including the checks of Yama, Landlock and other security modules. So none of these checks is
//! repeated here.
//!
//! A token is made for one connection and is good for one answer. Nothing would be gained by
//! hashing it: the attacher sends it to the process that it read it from, since the kernel tells it
//! who listens.
//!
//! A child of `fork` does not inherit the page. Such a child may be put into a sandbox and still
//! has a copy of all other memory. The page lies at a random address: an attacher that is refused
//! later has learned that address, and must not learn from it where libraries lie.

use midair_record::connect::{SECRET_LEN, TOKEN_LEN, Token};
use std::ptr::NonNull;

/// The number of tokens that there can be at a time.
pub(crate) const SLOTS: usize = 8;
/// The distance of two tokens, in bytes.
const STRIDE: usize = 64;
/// The length of the mapping, in bytes. The kernel makes whole pages of it.
const LEN: usize = 4096;

const _: () = assert!(TOKEN_LEN <= STRIDE && SLOTS * STRIDE <= LEN);

/// Where the page may lie: first address and length of the ranges that are tried in turn. They are
/// above the memory that programs lay out themselves, and below the libraries and stacks. The
/// second is for kernels that give a process 39 bits of addresses.
const RANGES: [(usize, usize); 2] = [(1 << 44, 6 << 44), (1 << 36, 3 << 36)];
/// A multiple of any page size that Linux has.
const ALIGNMENT: usize = 1 << 16;

/// The page of tokens. Only the listener's thread uses it.
#[derive(Debug)]
pub(crate) struct Tokens {
    page: NonNull<u8>,
}

/// Fills `to` with random bytes. Returns false where the kernel has none or refuses.
pub(crate) fn random(to: &mut [u8]) -> bool {
    // SAFETY: the kernel writes at most `to.len()` bytes into `to`.
    let got = unsafe { libc::getrandom(to.as_mut_ptr().cast(), to.len(), libc::GRND_NONBLOCK) };
    usize::try_from(got) == Ok(to.len())
}

fn map_at(hint: usize) -> Option<NonNull<u8>> {
    // SAFETY: this makes a new mapping. The address is only a hint (no MAP_FIXED), so nothing is
    // replaced.
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
    // SAFETY: the mapping is one of this module's and has this length, and the caller gives it up.
    unsafe { libc::munmap(page.as_ptr().cast(), LEN) };
}

impl Tokens {
    /// Maps the page. `None` where the process may not have it, or where there are no random
    /// numbers.
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
        // The address space is too full or too small, so the kernel chooses the address.
        let page = match page {
            Some(page) => page,
            None => map_at(0)?,
        };
        let tokens = Tokens { page };
        // SAFETY: the mapping was just made. No child may have a copy of its contents, so a failure
        // of that call counts. Excluding it from a dump of this process is only wished for.
        let kept = unsafe {
            libc::madvise(page.as_ptr().cast(), LEN, libc::MADV_DONTDUMP);
            libc::madvise(page.as_ptr().cast(), LEN, libc::MADV_DONTFORK)
        };
        (kept == 0).then_some(tokens)
    }

    /// Returns the address of a token. `None` when there is no such slot.
    fn at(&self, slot: usize) -> Option<NonNull<[u8; TOKEN_LEN]>> {
        // SAFETY: the address is inside the page, by the assertion above.
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
        // SAFETY: `at` is inside the page, which only this thread writes. The write is volatile
        // because other processes read the page.
        unsafe { at.write_volatile(Token { secret }.bytes()) };
        Some(at.addr().get() as u64)
    }

    /// Whether `answer` is the token in `slot`. The token is erased, since it is good for one
    /// answer.
    pub(crate) fn take(&self, slot: usize, answer: &Token) -> bool {
        let Some(at) = self.at(slot) else {
            return false;
        };
        // SAFETY: as in `fresh`.
        let there = unsafe { at.read_volatile() };
        self.wipe(slot);
        // All bytes are compared, so that the time says nothing about how many of them are right.
        let different = there
            .iter()
            .zip(answer.bytes())
            .fold(0, |all, (one, other)| all | (one ^ other));
        different == 0
    }

    /// Erases what is in `slot`.
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
pub(crate) mod tests {
    use super::*;

    /// Makes a token and reads it, as an attacher does.
    pub(crate) fn token_in(tokens: &Tokens, slot: usize) -> Token {
        let at = tokens.fresh(slot).unwrap() as usize;
        // SAFETY: the address is inside the page and was written just now.
        let bytes = unsafe { *std::ptr::with_exposed_provenance::<[u8; TOKEN_LEN]>(at) };
        Token::read(&bytes).unwrap()
    }

    #[test]
    fn no_token_disturbs_another() {
        let tokens = Tokens::map().unwrap();
        let all: Vec<Token> = (0..SLOTS).map(|slot| token_in(&tokens, slot)).collect();
        tokens.wipe(2);
        for (slot, token) in all.iter().enumerate() {
            assert_eq!(tokens.take(slot, token), slot != 2, "{slot}");
        }
    }

    #[test]
    fn the_page_goes_with_its_tokens() {
        let is_mapped = |page: NonNull<u8>| {
            let mut one = 0_u8;
            // SAFETY: the call asks about a page and writes one byte into `one`.
            unsafe { libc::mincore(page.as_ptr().cast(), 1, &raw mut one) == 0 }
        };
        let tokens = Tokens::map().unwrap();
        let page = tokens.page;
        assert!(is_mapped(page));
        drop(tokens);
        // Nothing else is mapped by chance at so random an address.
        assert!(!is_mapped(page));
    }

    #[test]
    fn a_token_is_good_for_one_answer() {
        let tokens = Tokens::map().unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for slot in 0..SLOTS {
            let token = token_in(&tokens, slot);
            assert!(seen.insert(token.secret), "no two are equal");
            let mut other = token;
            other.secret[SECRET_LEN - 1] ^= 1;
            assert!(!tokens.take(slot, &other), "{slot}");
            assert!(!tokens.take(slot, &token), "a wrong answer has used it up");
            let token = token_in(&tokens, slot);
            assert!(tokens.take(slot, &token), "{slot}");
            assert!(!tokens.take(slot, &token), "it is used up");
        }
        // What is wrong in one byte is not made up for by another.
        let mut other = token_in(&tokens, 0);
        other.secret[3] ^= 0x55;
        other.secret[17] ^= 0x55;
        assert!(!tokens.take(0, &other));
        // An empty slot has no token, not even one of zeros.
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
            // SAFETY: the call asks about pages and writes one byte into `one`.
            unsafe {
                let page = std::ptr::without_provenance_mut(at & !0xfff);
                libc::_exit(libc::mincore(page, 1, &raw mut one));
            }
        }
        let mut status = 0;
        // SAFETY: the child is our own, and the out pointer is valid.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 0);
        let others: Vec<_> = (0..4).map(|_| Tokens::map().unwrap()).collect();
        let far = |other: &Tokens| (other.page.addr().get() - 1).abs_diff(at) > 1 << 24;
        assert!(others.iter().all(far), "{others:?} {at:x}");
    }
}
