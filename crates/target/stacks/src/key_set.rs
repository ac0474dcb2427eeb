//! A set of 64-bit keys, each with a number, for many threads at once.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How many places a key is looked for at.
const STEPS: usize = 32;

/// The keys. A key of 0 is a place that is free, so zeroed memory is an empty set.
///
/// A key is a hash of what it stands for. Among 65,536 of them two are the same with a probability
/// of one in eight thousand million.
#[derive(Debug)]
pub(crate) struct KeySet<const N: usize>([AtomicU64; N]);

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// It was there, with this number, from 1.
    Known(u32),
    /// It was not, and has this number now. No other thread finds it as new.
    New(u32),
    /// It was not, and there is no place left for it.
    Full,
}

impl<const N: usize> KeySet<N> {
    /// Removes all keys. No other thread may use the set meanwhile.
    pub(crate) fn clear(&self) {
        for place in &self.0 {
            place.store(0, Relaxed);
        }
    }

    /// Looks a key up, and adds it where it is missing.
    pub(crate) fn find(&self, key: u64) -> Found {
        let key = key.max(1);
        for step in 0..STEPS {
            let index = (key as usize).wrapping_add(step) % N;
            let Some(place) = self.0.get(index) else {
                break;
            };
            let number = index as u32 + 1;
            let mut there = place.load(Relaxed);
            if there == 0 {
                there = match place.compare_exchange(0, key, Relaxed, Relaxed) {
                    Ok(_) => return Found::New(number),
                    Err(other) => other,
                };
            }
            if there == key {
                return Found::Known(number);
            }
        }
        Found::Full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn each_key_is_new_to_one_thread_and_has_one_number() {
        let known: KeySet<1024> = KeySet(std::array::from_fn(|_| AtomicU64::new(0)));
        let known = &known;
        let keys: Vec<u64> = (0..500_u64)
            .map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        let found: Vec<Vec<Found>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| keys.iter().map(|key| known.find(*key)).collect()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let mut numbers = HashMap::new();
        for (at, key) in keys.iter().enumerate() {
            let of_threads: Vec<Found> = found.iter().map(|found| found[at]).collect();
            let new = of_threads
                .iter()
                .filter(|found| matches!(found, Found::New(_)));
            assert_eq!(new.count(), 1, "{of_threads:?}");
            for found in of_threads {
                let (Found::Known(number) | Found::New(number)) = found else {
                    panic!("there is room");
                };
                assert_eq!(*numbers.entry(number).or_insert(*key), *key);
            }
        }
    }

    #[test]
    fn a_full_set_says_so_and_an_emptied_one_takes_keys_again() {
        let known: KeySet<4> = KeySet(std::array::from_fn(|_| AtomicU64::new(0)));
        for key in 1..=4 {
            assert!(matches!(known.find(key), Found::New(_)));
        }
        assert_eq!(known.find(5), Found::Full);
        assert!(matches!(known.find(4), Found::Known(_)));
        known.clear();
        assert!(matches!(known.find(5), Found::New(_)));
    }
}
