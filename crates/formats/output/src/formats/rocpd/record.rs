//! A row as SQLite keeps it: the types of its values, and the values (source:
//! sqlite.org/fileformat2.html#record_format).

use super::pages::varint;

/// The row under construction.
#[derive(Default)]
pub(super) struct Record {
    types: Vec<u8>,
    values: Vec<u8>,
    whole: Vec<u8>,
}

impl Record {
    /// Starts a row of a table: its id, which is not among the values, and its guid.
    pub(super) fn begin(&mut self, guid: &str) -> &mut Record {
        self.clear().null().text(guid)
    }

    /// Starts an entry of an index.
    pub(super) fn clear(&mut self) -> &mut Record {
        self.types.clear();
        self.values.clear();
        self
    }

    /// Adds NULL.
    pub(super) fn null(&mut self) -> &mut Record {
        self.types.push(0);
        self
    }

    /// Adds a whole number in as few bytes as it needs.
    #[inline]
    pub(super) fn number(&mut self, number: impl Into<i64>) -> &mut Record {
        let number = number.into();
        // The bits without the sign, and the number of bytes that SQLite has for so many.
        let bits = 64 - (number ^ (number >> 63)).leading_zeros();
        let (of, len) = match bits {
            0 | 1 if number & !1 == 0 => (8 + number as u8, 0),
            0..=7 => (1, 1),
            8..=15 => (2, 2),
            16..=23 => (3, 3),
            24..=31 => (4, 4),
            32..=47 => (5, 6),
            _ => (6, 8),
        };
        self.types.push(of);
        if len > 0 {
            let end = self.values.len() + len;
            let bytes = (number << (64 - 8 * len)).to_be_bytes();
            self.values.extend_from_slice(&bytes);
            self.values.truncate(end);
        }
        self
    }

    /// Adds a whole number, or NULL.
    pub(super) fn maybe(&mut self, number: Option<i64>) -> &mut Record {
        match number {
            Some(number) => self.number(number),
            None => self.null(),
        }
    }

    /// Adds a real number. As in SQLite, what is no number is NULL.
    pub(super) fn real(&mut self, number: f64) -> &mut Record {
        if number.is_nan() {
            return self.null();
        }
        self.types.push(7);
        self.values
            .extend_from_slice(&number.to_bits().to_be_bytes());
        self
    }

    /// Adds a text.
    pub(super) fn text(&mut self, text: &str) -> &mut Record {
        let mut of = [0; 9];
        let len = varint(&mut of, 0, text.len() as u64 * 2 + 13);
        self.types
            .extend_from_slice(of.get(..len).unwrap_or_default());
        self.values.extend_from_slice(text.as_bytes());
        self
    }

    /// Returns the row.
    pub(super) fn end(&mut self) -> &[u8] {
        // The length of the head contains its own length.
        let mut len = [0; 9];
        let mut size = varint(&mut len, 0, self.types.len() as u64 + 1);
        if size > 1 {
            size = varint(&mut len, 0, (self.types.len() + size) as u64);
        }
        self.whole.clear();
        self.whole
            .extend_from_slice(len.get(..size).unwrap_or_default());
        self.whole.extend_from_slice(&self.types);
        self.whole.extend_from_slice(&self.values);
        &self.whole
    }

    /// Returns the whole number at a place among the values of a row.
    pub(super) fn number_at(row: &[u8], place: usize) -> Option<i64> {
        let (head, mut at) = read(row, 0)?;
        let mut value = usize::try_from(head).ok()?;
        for number in 0..=place {
            let (of, next) = read(row, at)?;
            at = next;
            let len = match of {
                0 | 8 | 9 => 0,
                1..=4 => of as usize,
                5 => 6,
                6 | 7 => 8,
                text => usize::try_from(text.checked_sub(12)? / 2).ok()?,
            };
            if number == place {
                let bytes = row.get(value..value + len)?;
                let sign = bytes.first().map_or(0, |first| (*first as i8 >> 7).into());
                return match of {
                    1..=6 => Some(
                        bytes
                            .iter()
                            .fold(sign, |sum, byte| sum << 8 | i64::from(*byte)),
                    ),
                    8 | 9 => i64::try_from(of - 8).ok(),
                    _ => None,
                };
            }
            value += len;
        }
        None
    }
}

/// Reads a number with a variable length, which has fewer than nine bytes here. Returns the place
/// behind it as well.
fn read(row: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    loop {
        let byte = *row.get(at)?;
        at += 1;
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((number, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_others() {
        let numbers = [
            0,
            1,
            -1,
            127,
            -128,
            128,
            -129,
            32_768,
            -8_388_609,
            1 << 31,
            1 << 46,
            -(1 << 47),
            1 << 47,
            i64::MIN,
            i64::MAX,
        ];
        let mut record = Record::default();
        record.begin("a guid").real(1.5).text(&"x".repeat(300));
        for number in numbers {
            record.number(number);
        }
        let row = record.text("end").end().to_vec();
        for (place, number) in (4..).zip(numbers) {
            assert_eq!(Record::number_at(&row, place), Some(number));
        }
        for place in [0, 1, 2, 3, 4 + numbers.len(), 100] {
            assert_eq!(Record::number_at(&row, place), None);
        }
        assert_eq!(Record::number_at(&row[..9], 5), None);
    }

    /// The head has its own length at its front, whose length counts, too.
    #[test]
    fn a_head_that_is_long_counts_the_bytes_of_its_length() {
        for (values, wanted) in [
            (0, &[1_u8][..]),
            (126, &[127]),
            (127, &[0x81, 0x01]),
            (130, &[0x81, 0x04]),
            (300, &[0x82, 0x2e]),
        ] {
            let mut record = Record::default();
            for _ in 0..values {
                record.null();
            }
            let row = record.end();
            assert_eq!(&row[..wanted.len()], wanted, "{values}");
            assert_eq!(row.len(), wanted.len() + values, "{values}");
        }
    }
}
