//! Random numbers without a state: functions of a seed and a count.

/// A bijection on 64 bits in which each bit of the result depends on all bits of the argument (the
/// finalizer of `SplitMix64`, after its step).
#[inline]
pub const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns an evenly distributed number below `limit`, made from a random number.
#[inline]
pub(crate) fn below(random: u64, limit: u32) -> u32 {
    ((u64::from((random >> 32) as u32) * u64::from(limit)) >> 32) as u32
}

/// Whether a draw succeeds that succeeds in `probability` of 2^32 cases; with `u32::MAX` it always
/// does.
#[inline]
pub fn chance(random: u64, probability: u32) -> bool {
    probability == u32::MAX || ((random >> 32) as u32) < probability
}

/// The rounds of [`permuted`]. As soon as a number has moved once, it is at every place with the
/// same probability, and in each round it moves with probability 1/2.
const ROUNDS: u64 = 12;

/// Returns where the number `at` goes in a random permutation of the numbers below `size`; `key`
/// selects the permutation. It takes constant time and no memory, so that threads that ask for 0,
/// 1, 2 and so on get each number once, in whichever order they run.
///
/// This is the *swap-or-not* network: a round pairs each number with another one (their sum is the
/// round's key), and swaps the pair or not, by a bit that both compute alike.
#[inline]
pub fn permuted(at: u32, size: u32, key: u64) -> u32 {
    if size < 2 {
        return 0;
    }
    let mut at = at % size;
    for round in 0..ROUNDS {
        let random = mix(key ^ round << 56);
        let sum = below(random, size);
        let other = (sum + size - at) % size;
        let pair = u64::from(at.max(other));
        if mix(random ^ pair) & 1 == 1 {
            at = other;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_has_each_number_once() {
        for size in 1..80 {
            for key in 0..20 {
                let mut seen: Vec<u32> = (0..size).map(|n| permuted(n, size, key)).collect();
                seen.sort_unstable();
                assert!(seen.into_iter().eq(0..size), "{size} {key}");
            }
        }
        assert_eq!(permuted(7, 0, 1), 0);
    }

    #[test]
    fn each_number_is_at_each_place_equally_often() {
        const SIZE: u32 = 12;
        let mut seen = [[0_u32; SIZE as usize]; SIZE as usize];
        for key in 0..12_000 {
            for at in 0..SIZE {
                seen[at as usize][permuted(at, SIZE, mix(key)) as usize] += 1;
            }
        }
        // 1,000 on average; the standard deviation is 30.
        let all = seen.iter().flatten();
        assert!(all.clone().all(|n| (850..1150).contains(n)), "{seen:?}");
    }

    #[test]
    fn neighbours_do_not_stay_neighbours() {
        // Every distance between the places of 0 and 1 occurs about equally often.
        let mut seen = [0_u32; 8];
        for key in 0..8_000 {
            let [a, b] = [0, 1].map(|at| permuted(at, 8, mix(key ^ 99)));
            seen[((b + 8 - a) % 8) as usize] += 1;
        }
        assert_eq!(seen[0], 0);
        assert!(
            seen[1..].iter().all(|n| (950..1350).contains(n)),
            "{seen:?}"
        );
    }

    #[test]
    fn draws_succeed_as_often_as_they_should() {
        let count = |p: u32| (0..100_000).filter(|n| chance(mix(*n), p)).count();
        assert_eq!(count(0), 0);
        assert_eq!(count(u32::MAX), 100_000);
        assert!((24_300..25_700).contains(&count(1 << 30)));
        assert!(chance(u64::MAX, u32::MAX));
        assert!((0..100_000).all(|n| below(mix(n), 3) < 3));
    }
}
