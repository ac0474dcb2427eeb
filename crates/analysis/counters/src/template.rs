//! The packets of one counter group as words.
//!
//! AMD's library makes three buffers of commands: one starts the counters, one reads them into
//! memory, and one stops them. Only the second depends on an address: the address of the memory
//! that it reads into. So the commands are made once, for an address that does not exist. Each
//! window gets a copy in which that address is replaced ([`Template::patch`]).
//!
//! The places of the address are found by making the packets twice, for two addresses, and
//! comparing them ([`places`], AMD-102). The meaning of the memory is found by filling it with the
//! numbers of its own slots and asking the library to read it ([`Slot`]).

use crate::dimension::Position;
use std::fmt;

/// The packets of a counter group, for one kind of GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    /// Commands that reset, select and start the counters, for any address.
    pub start: Vec<u32>,
    /// Commands that sample, read and then stop the counters, for the address 0.
    pub read_stop: Vec<u32>,
    /// How many of these words only sample and read: after them the counters go on counting.
    pub read_words: u32,
    /// Where addresses are in `read_stop`, in ascending order.
    pub places: Vec<Place>,
    /// The size of the memory that is read into, in bytes.
    pub output_bytes: u64,
    /// The values in that memory, in ascending order.
    pub slots: Vec<Slot>,
}

/// An address in the commands: two words, the low and the high half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The first of its words.
    pub word: u32,
    /// The offset that is added to the memory's address.
    pub offset: u64,
    /// How the address is written.
    pub form: Form,
}

/// How an address is written in commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In bytes.
    Bytes,
    /// In units of 256 bytes, rounded down.
    Pages,
}

/// A value in the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The index of its 64-bit word.
    pub word: u32,
    /// The index of its event in the group.
    pub event: u32,
    /// Where it was counted.
    pub position: Position,
}

/// Why commands cannot become a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The length of the commands depends on the address.
    Length,
    /// This word depends on the address in a way that is not known.
    Word(usize),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::Length => f.write_str("their length depends on an address"),
            Unknown::Word(n) => write!(f, "word {n} depends on an address in an unknown way"),
        }
    }
}

impl std::error::Error for Unknown {}

const PAGE: u32 = 8;

impl Form {
    fn of(self, address: u64) -> u64 {
        match self {
            Form::Bytes => address,
            Form::Pages => address >> PAGE,
        }
    }
}

/// Finds the addresses in commands that were made twice, for memory of `bytes` bytes at each of two
/// addresses. In both forms, these addresses must differ in the lower and in the upper half, so
/// that each place shows in both of its words.
///
/// # Errors
/// When the commands differ in another way.
pub fn places(one: (&[u32], u64), other: (&[u32], u64), bytes: u64) -> Result<Vec<Place>, Unknown> {
    let ((a, base_a), (b, base_b)) = (one, other);
    if a.len() != b.len() {
        return Err(Unknown::Length);
    }
    let mut found = Vec::new();
    let mut word = 0;
    while word < a.len() {
        if a[word] == b[word] {
            word += 1;
            continue;
        }
        let pair = |of: &[u32]| Some(u64::from(of[word]) | u64::from(*of.get(word + 1)?) << 32);
        let (Some(in_a), Some(in_b)) = (pair(a), pair(b)) else {
            return Err(Unknown::Word(word));
        };
        let within = |form: Form, unit: u64| {
            let offset = in_a.checked_sub(form.of(base_a))?;
            let same = in_b.checked_sub(form.of(base_b))? == offset;
            (same && offset.checked_mul(unit)? <= bytes).then_some(Place {
                word: word as u32,
                offset: offset * unit,
                form,
            })
        };
        let place = within(Form::Bytes, 1).or_else(|| within(Form::Pages, 1 << PAGE));
        found.push(place.ok_or(Unknown::Word(word))?);
        word += 2;
    }
    Ok(found)
}

impl Template {
    /// Writes the memory's address into a copy of [`Template::read_stop`]. The address must be a
    /// multiple of 256.
    ///
    /// Places beyond the end of a copy that is too short are left out.
    pub fn patch(&self, commands: &mut [u32], memory: u64) {
        for place in &self.places {
            let value = place.form.of(memory.wrapping_add(place.offset));
            let at = place.word as usize;
            if let Some([low, high]) = commands.get_mut(at..at + 2) {
                (*low, *high) = (value as u32, (value >> 32) as u32);
            }
        }
    }

    /// Returns the values in the memory, one after another: event, place, value.
    pub fn values<'a>(
        &'a self,
        memory: &'a [u64],
    ) -> impl Iterator<Item = (u32, Position, u64)> + 'a {
        self.slots.iter().filter_map(|slot| {
            let value = memory.get(slot.word as usize)?;
            Some((slot.event, slot.position, *value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: u64 = 0x1111_1000_0000;
    const OTHER: u64 = 0x2222_5000_0000;

    /// Returns commands with two addresses among other words, one of them in pages.
    fn commands(base: u64) -> Vec<u32> {
        let halves = |value: u64| [value as u32, (value >> 32) as u32];
        let mut words = vec![0xc004_4000, 0xd1c0, 0];
        words.extend(halves(base + 8));
        words.push(0xc004_4000);
        words.extend(halves(base + 12));
        words.extend([0xc005_5800, 0, 1, 0]);
        words.extend(halves(base >> 8));
        words.push(10);
        words
    }

    #[test]
    fn addresses_are_found_and_replaced() {
        let (one, other) = (commands(ONE), commands(OTHER));
        let places = places((&one, ONE), (&other, OTHER), 4096).unwrap();
        let seen: Vec<(u32, u64, Form)> =
            places.iter().map(|p| (p.word, p.offset, p.form)).collect();
        assert_eq!(
            seen,
            [
                (3, 8, Form::Bytes),
                (6, 12, Form::Bytes),
                (12, 0, Form::Pages)
            ]
        );
        let mut template = Template {
            read_stop: one,
            places,
            ..Template::default()
        };
        let mut copy = template.read_stop.clone();
        template.patch(&mut copy, 0x7fff_dead_be00);
        assert_eq!(copy, commands(0x7fff_dead_be00));
        // A copy that ends in the middle of an address.
        let mut short = copy[..4].to_vec();
        template.patch(&mut short, 0);
        assert_eq!(short, &copy[..4]);
        template.slots = vec![
            Slot {
                word: 1,
                event: 0,
                position: Position(5),
            },
            Slot {
                word: 9,
                event: 1,
                position: Position(6),
            },
        ];
        let values: Vec<_> = template.values(&[7, 8]).collect();
        assert_eq!(values, [(0, Position(5), 8)]);
    }

    #[test]
    fn commands_that_depend_on_addresses_otherwise_are_refused() {
        let (one, mut other) = (commands(ONE), commands(OTHER));
        other[1] += 1;
        assert_eq!(
            places((&one, ONE), (&other, OTHER), 4096),
            Err(Unknown::Word(1))
        );
        // An offset beyond the memory is refused.
        let other = commands(OTHER);
        assert_eq!(
            places((&one, ONE), (&other, OTHER), 10),
            Err(Unknown::Word(6))
        );
        assert_eq!(
            places((&one, ONE), (&other[1..], OTHER), 4096),
            Err(Unknown::Length)
        );
        assert_eq!(
            places((&[1], 0), (&[2], 1 << 40), 4096),
            Err(Unknown::Word(0))
        );
    }
}
