//! Names and their numbers: a name is written once with a number, and then referred to by it.

use super::messages::InternedString;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Further names of events are not interned, where there are more than this, or where they take
/// more bytes than the limit.
const MOST_NAMES: usize = 1 << 14;
const MOST_NAME_BYTES: usize = 4 << 20;
/// The number of places in which texts are remembered by their addresses.
const PLACES: usize = 512;

/// Names and their numbers, which start at 1.
#[derive(Default)]
pub(super) struct Interner {
    numbers: HashMap<String, u64, RandomState>,
    texts: Vec<String>,
    bytes: usize,
    /// The address and the number of texts that were seen, in a place that follows from the address.
    /// Most texts come from the same address each time, and comparing a text takes a fraction of the
    /// time of hashing it.
    seen: Vec<(usize, u64)>,
}

impl Interner {
    fn known(&mut self, name: &str) -> Option<u64> {
        let address = name.as_ptr().addr();
        // Texts lie close together, so the lower bits differ most.
        let place = (address ^ address >> 9) % PLACES;
        if let Some((seen, number)) = self.seen.get(place)
            && *seen == address
            && let Some(text) = self.texts.get((*number as usize).wrapping_sub(1))
            && text == name
        {
            return Some(*number);
        }
        let number = *self.numbers.get(name)?;
        self.seen.resize(PLACES, (0, 0));
        if let Some(seen) = self.seen.get_mut(place) {
            *seen = (address, number);
        }
        Some(number)
    }

    /// Returns the number of a name. One that has none yet gets one, and is added to `new`.
    pub(super) fn number(&mut self, new: &mut Vec<InternedString>, name: &str) -> u64 {
        if let Some(number) = self.known(name) {
            return number;
        }
        let number = self.numbers.len() as u64 + 1;
        self.bytes += name.len();
        self.numbers.insert(name.to_owned(), number);
        self.texts.push(name.to_owned());
        new.push(InternedString {
            iid: Some(number),
            name: Some(name.to_owned()),
        });
        number
    }

    /// Does the same as [`Interner::number`], but returns none where there are too many names
    /// already.
    pub(super) fn number_if_few(
        &mut self,
        new: &mut Vec<InternedString>,
        name: &str,
    ) -> Option<u64> {
        if let Some(number) = self.known(name) {
            return Some(number);
        }
        let is_full = self.numbers.len() >= MOST_NAMES || self.bytes + name.len() > MOST_NAME_BYTES;
        (!is_full).then(|| self.number(new, name))
    }
}
