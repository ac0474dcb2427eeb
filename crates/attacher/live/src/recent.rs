//! Sums over the last seconds, in slots of a quarter of a second.

use std::ops::Range;

/// Nanoseconds of a slot.
pub(crate) const SLOT: u64 = 250_000_000;
/// The number of slots that are kept: two windows, and one for records that come late.
const SLOTS: usize = 17;
/// The number of slots of a window.
pub(crate) const WINDOW: u64 = 8;

#[derive(Debug, Default, Clone, Copy)]
struct Slot {
    /// The number of the slot, counted from time 0.
    number: u64,
    calls: u32,
    ns: u64,
    bytes: u64,
}

/// What one thing did recently.
#[derive(Debug, Default, Clone)]
pub(crate) struct Recent {
    slots: [Slot; SLOTS],
}

/// A sum over slots.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) calls: u64,
    pub(crate) ns: u64,
    pub(crate) bytes: u64,
}

/// Returns the slot of a time.
pub(crate) fn slot(time: u64) -> u64 {
    time / SLOT
}

/// Returns the slots of the window that ends now, and of the one before it.
pub(crate) fn windows(now: u64) -> (Range<u64>, Range<u64>) {
    let end = slot(now) + 1;
    let begin = end.saturating_sub(WINDOW);
    (begin..end, begin.saturating_sub(WINDOW)..begin)
}

impl Recent {
    /// Adds something that lasted from `start` to `end`. It is counted where it ended. Its time is
    /// added to the slots over which it lasted, as far as they are kept.
    pub(crate) fn add(&mut self, start: u64, end: u64, bytes: u64) {
        let last = slot(end);
        let first = slot(start).max(last.saturating_sub(SLOTS as u64 - 1));
        if let Some(entry) = self.at(last) {
            entry.calls = entry.calls.saturating_add(1);
            entry.bytes = entry.bytes.saturating_add(bytes);
        }
        for number in first..=last {
            let (from, to) = (number * SLOT, (number + 1) * SLOT);
            let part = end.min(to).saturating_sub(start.max(from));
            if let Some(entry) = self.at(number) {
                entry.ns = entry.ns.saturating_add(part);
            }
        }
    }

    /// Adds what another one has.
    pub(crate) fn merge(&mut self, other: &Recent) {
        for slot in &other.slots {
            if let Some(entry) = self.at(slot.number) {
                entry.calls = entry.calls.saturating_add(slot.calls);
                entry.ns = entry.ns.saturating_add(slot.ns);
                entry.bytes = entry.bytes.saturating_add(slot.bytes);
            }
        }
    }

    /// Returns the slot, emptied where an older one was in its place, or None where a newer one is.
    fn at(&mut self, number: u64) -> Option<&mut Slot> {
        let entry = self.slots.get_mut((number % SLOTS as u64) as usize)?;
        if entry.number < number {
            *entry = Slot {
                number,
                ..Slot::default()
            };
        }
        (entry.number == number).then_some(entry)
    }

    /// Returns the sum over these slots.
    pub(crate) fn sum(&self, numbers: &Range<u64>) -> Sum {
        let mut sum = Sum::default();
        for entry in self
            .slots
            .iter()
            .filter(|slot| numbers.contains(&slot.number))
        {
            sum.calls += u64::from(entry.calls);
            sum.ns = sum.ns.saturating_add(entry.ns);
            sum.bytes = sum.bytes.saturating_add(entry.bytes);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_where_it_was_spent() {
        let mut recent = Recent::default();
        let base = 1_000 * SLOT;
        recent.add(base + 10, base + 30, 5);
        recent.add(base - SLOT / 2, base + SLOT / 2, 7);
        let of = |numbers| recent.sum(&numbers);
        assert_eq!(
            of(1_000..1_001),
            Sum {
                calls: 2,
                ns: 20 + SLOT / 2,
                bytes: 12
            }
        );
        assert_eq!(of(999..1_000).ns, SLOT / 2);
        assert_eq!(of(1_001..1_009), Sum::default());
    }

    #[test]
    fn old_slots_make_room_and_late_comers_do_not_take_it() {
        let mut recent = Recent::default();
        recent.add(0, 10, 1);
        let later = SLOTS as u64 * SLOT;
        recent.add(later, later + 10, 1);
        assert_eq!(recent.sum(&(0..1)), Sum::default());
        recent.add(1, 2, 1);
        assert_eq!(recent.sum(&(SLOTS as u64..SLOTS as u64 + 1)).calls, 1);
        // A record that claims to have lasted for ever costs no more than the slots.
        recent.add(0, u64::MAX / 2, 0);
    }
}
