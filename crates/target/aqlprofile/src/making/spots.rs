//! Finds addresses in commands that were made twice, for memory at two addresses.

use midair_record::trace_plan::Spot;

/// The shifts by which commands write addresses: bytes, units of 256 bytes, and pages of 4096 bytes.
const UNITS: [u32; 3] = [0, 8, 12];

/// Finds the words that depend on an address, and takes the addresses out of `one`. A low half is in one
/// word; the next word that depends on an address is its high half if it can be, whether it follows
/// directly or not.
///
/// # Errors
/// The number of a word that depends on an address in another way, or where the lengths differ the length.
pub(super) fn spots(
    (one, at): (&mut Vec<u32>, u64),
    (other, other_at): (&[u32], u64),
    bytes: u64,
) -> Result<Vec<Spot>, usize> {
    if one.len() != other.len() {
        return Err(one.len());
    }
    let mut found: Vec<Spot> = Vec::new();
    // What the last low half belongs to, until its high half comes.
    let mut low: Option<(u32, u64)> = None;
    for (word, (a, b)) in one.iter_mut().zip(other).enumerate() {
        if a == b {
            continue;
        }
        let high = low.take().and_then(|(unit, offset)| {
            let shift = unit + 32;
            let half = |at: u64| ((at + offset) >> shift) as u32;
            let rest = a.checked_sub(half(at))?;
            (b.checked_sub(half(other_at)) == Some(rest)).then_some((shift, offset, rest))
        });
        let (shift, offset, rest) = match high {
            Some(found) => found,
            None => {
                let of = |unit: &u32| {
                    let offset = a.wrapping_sub((at >> unit) as u32);
                    let same = b.wrapping_sub((other_at >> unit) as u32) == offset;
                    let offset = u64::from(offset) << unit;
                    (same && offset <= bytes).then_some((*unit, offset))
                };
                let (unit, offset) = UNITS.iter().find_map(of).ok_or(word)?;
                low = Some((unit, offset));
                (unit, offset, 0)
            }
        };
        *a = rest;
        found.push(Spot {
            word: word as u32,
            shift,
            offset,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u64 = 0x1111_1000_0000;
    const OTHER: u64 = 0x2222_5000_0000;

    /// A low and a high half in bytes, in units, and apart from each other in pages, with other bits.
    fn commands(base: u64) -> Vec<u32> {
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        let page = (base + 0x5000) >> 12;
        let mut words = vec![7];
        words.extend(halves(base + 8));
        words.extend([1, 2]);
        words.extend(halves(base >> 8));
        words.extend([page as u32, 3, (page >> 32) as u32 | 0x10]);
        words
    }

    #[test]
    fn addresses_are_found_and_can_be_written() {
        let mut one = commands(ONE);
        let found = spots((&mut one, ONE), (&commands(OTHER), OTHER), 1 << 20).unwrap();
        let seen: Vec<(u32, u32, u64)> =
            found.iter().map(|s| (s.word, s.shift, s.offset)).collect();
        assert_eq!(
            seen,
            [
                (1, 0, 8),
                (2, 32, 8),
                (5, 8, 0),
                (6, 40, 0),
                (7, 12, 0x5000),
                (9, 44, 0x5000)
            ]
        );
        let trace = midair_record::trace_plan::Trace {
            start: one,
            start_spots: found,
            ..Default::default()
        };
        for base in [ONE, 0x7fff_dead_b000, 0x1000] {
            assert_eq!(trace.start_at(base), commands(base), "{base:#x}");
        }
    }

    #[test]
    fn another_dependence_is_refused() {
        let mut one = commands(ONE);
        let mut other = commands(OTHER);
        other[3] = 5;
        assert_eq!(spots((&mut one, ONE), (&other, OTHER), 1 << 20), Err(3));
        let mut one = commands(ONE);
        assert_eq!(spots((&mut one, ONE), (&[], OTHER), 1 << 20), Err(10));
        // An offset outside the memory.
        assert_eq!(spots((&mut one, ONE), (&commands(OTHER), OTHER), 4), Err(1));
    }
}
