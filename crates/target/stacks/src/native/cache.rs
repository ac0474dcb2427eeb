//! The rules of addresses that were met before, for many threads at once.

use super::modules::Pages;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// How many rules fit. A process launches from some thousand places.
const PLACES: usize = 1 << 13;
/// How many places an address is looked for at.
const STEPS: usize = 16;
/// A bit of a key: its rule is about to be written.
const COMES: u64 = 1 << 63;

/// The rules. A place is filled once and never changes, so that no address gets another address's rule.
#[derive(Debug)]
pub(crate) struct Cache(Pages);

impl Cache {
    /// Makes an empty one. None if the system gives no memory.
    pub(crate) fn new() -> Option<Cache> {
        Pages::new(PLACES * 2 * size_of::<AtomicU64>()).map(Cache)
    }

    fn places(&self) -> &[[AtomicU64; 2]] {
        // SAFETY: the pages hold that many words, zeroed at first; any thread may use them as such.
        unsafe { std::slice::from_raw_parts(self.0.start().cast(), PLACES) }
    }

    /// Returns the word of an address, which `make` makes if it is not there.
    #[inline]
    pub(crate) fn find(&self, address: u64, make: impl FnOnce() -> u64) -> u64 {
        let places = self.places();
        let first = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2());
        for step in 0..STEPS {
            let Some([key, word]) = places.get((first as usize + step) % PLACES) else {
                break;
            };
            let mut there = key.load(Acquire);
            if there == address {
                return word.load(Relaxed);
            }
            if there == 0 {
                match key.compare_exchange(0, address | COMES, Relaxed, Relaxed) {
                    Ok(_) => {
                        let made = make();
                        word.store(made, Relaxed);
                        key.store(address, Release);
                        return made;
                    }
                    Err(other) => there = other,
                }
            }
            if there == address | COMES {
                break;
            }
        }
        make()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_word_also_where_there_is_no_room() {
        let cache = Cache::new().unwrap();
        let word = |address: u64| address.wrapping_mul(7) | 1;
        let all = 3 * PLACES as u64;
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for address in (1..all).chain(1..all) {
                        assert_eq!(cache.find(address, || word(address)), word(address));
                    }
                });
            }
        });
        let mut made = 0;
        let some = (1..all).filter(|address| {
            let before = made;
            cache.find(*address, || {
                made += 1;
                word(*address)
            });
            made == before
        });
        assert!(some.count() > PLACES * 9 / 10, "most places are filled");
    }
}
