//! JSON, piece by piece, without a tree.

use crate::digits;
use std::io::{self, Write};

/// Makes `,"key":` and what follows it, as one piece.
macro_rules! follows {
    ($key:literal) => {
        concat!(",\"", $key, "\":")
    };
    ($key:literal, $rest:literal) => {
        concat!(",\"", $key, "\":", $rest)
    };
}
pub(super) use follows;

/// The number of bytes that are gathered before they are passed on.
///
/// A file's own buffer is not larger, so they are copied only once.
const BLOCK: usize = 128 * 1024;

/// Writes JSON without spaces. Keys and values come in the order of the calls; the caller keeps
/// opens and closes paired and calls [`Emit::flush`] at the end.
pub(super) struct Emit<W> {
    out: W,
    /// The pieces are small, and gathering them here is several times faster than passing each on.
    pending: Vec<u8>,
    /// Whether the next key or value in this container follows another.
    comma: bool,
}

impl<W: Write> Emit<W> {
    pub(super) fn new(out: W) -> Self {
        Emit {
            out,
            pending: Vec::new(),
            comma: false,
        }
    }

    /// Passes on the bytes that are left.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.pass_on()?;
        self.out.flush()
    }

    /// Returns the writer below.
    pub(super) fn writer(&self) -> &W {
        &self.out
    }

    /// Returns the writer below, and the bytes that were not passed on yet.
    pub(super) fn into_parts(self) -> (W, Vec<u8>) {
        (self.out, self.pending)
    }

    /// Writes elements that are JSON already, with their commas, as the whole contents of an array.
    pub(super) fn raw(&mut self, elements: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(elements);
        if self.pending.len() < BLOCK {
            Ok(())
        } else {
            self.pass_on()
        }
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.out.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    #[inline]
    fn separate(&mut self) {
        if std::mem::replace(&mut self.comma, true) {
            self.pending.push(b',');
        }
    }

    fn open(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.separate();
        self.comma = false;
        self.pending.extend_from_slice(bracket);
        Ok(())
    }

    fn close(&mut self, bracket: &[u8]) -> io::Result<()> {
        self.comma = true;
        self.pending.extend_from_slice(bracket);
        // This is often enough, because no piece between two closes is large.
        if self.pending.len() < BLOCK {
            Ok(())
        } else {
            self.pass_on()
        }
    }

    pub(super) fn open_object(&mut self) -> io::Result<()> {
        self.open(b"{")
    }

    pub(super) fn close_object(&mut self) -> io::Result<()> {
        self.close(b"}")
    }

    pub(super) fn open_array(&mut self) -> io::Result<()> {
        self.open(b"[")
    }

    pub(super) fn close_array(&mut self) -> io::Result<()> {
        self.close(b"]")
    }

    fn quoted(&mut self, text: &str) -> io::Result<()> {
        // Hardly any text has a byte that needs an escape (RFC 8259).
        let is_special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
        if !digits::has(text.as_bytes(), is_special) {
            self.pending.push(b'"');
            self.pending.extend_from_slice(text.as_bytes());
            self.pending.push(b'"');
            return Ok(());
        }
        serde_json::to_writer(&mut self.pending, text).map_err(io::Error::from)
    }

    /// Writes the key of the value that comes next. Keys of the format need no escapes.
    #[inline]
    pub(super) fn key(&mut self, key: &'static str) -> io::Result<()> {
        self.separate();
        self.comma = false;
        self.pending.push(b'"');
        self.pending.extend_from_slice(key.as_bytes());
        self.pending.extend_from_slice(b"\":");
        Ok(())
    }

    /// Writes `,"key":`, without the comma where nothing comes before it. Records have many keys, so
    /// each is one piece (`follows!`).
    #[inline(always)]
    fn lead(&mut self, lead: &'static str) {
        // Both have a length that the compiler knows.
        if std::mem::replace(&mut self.comma, true) {
            self.pending.extend_from_slice(lead.as_bytes());
        } else {
            let lead = lead.as_bytes().get(1..).unwrap_or_default();
            self.pending.extend_from_slice(lead);
        }
    }

    /// Writes a key, as `follows!` makes it, and its number.
    #[inline(always)]
    pub(super) fn next(&mut self, lead: &'static str, number: u64) {
        self.lead(lead);
        digits::push_u64(&mut self.pending, number);
    }

    /// Writes a key and the start of its object or array.
    #[inline(always)]
    pub(super) fn next_open(&mut self, lead: &'static str) {
        self.lead(lead);
        self.comma = false;
    }

    /// Ends what [`Emit::next_open`] started.
    #[inline]
    pub(super) fn next_close(&mut self, bracket: u8) {
        self.pending.push(bracket);
        self.comma = true;
    }

    /// Writes a key and `{"handle":n}`.
    #[inline(always)]
    pub(super) fn next_handle(&mut self, lead: &'static str, handle: u64) {
        self.lead(lead);
        digits::push_u64(&mut self.pending, handle);
        self.pending.push(b'}');
    }

    /// Starts an object of an array with a piece that has its first keys.
    #[inline]
    pub(super) fn begin_with(&mut self, head: &[u8]) {
        self.separate();
        self.pending.extend_from_slice(head);
    }

    /// Writes a piece in which nothing is open that was not before.
    #[inline(always)]
    pub(super) fn piece(&mut self, piece: &'static str) {
        self.pending.extend_from_slice(piece.as_bytes());
    }

    /// Writes a number behind such a piece.
    #[inline]
    pub(super) fn digits(&mut self, number: u64) {
        digits::push_u64(&mut self.pending, number);
    }

    /// Writes a key that is any text.
    pub(super) fn any_key(&mut self, key: &str) -> io::Result<()> {
        self.separate();
        self.comma = false;
        self.quoted(key)?;
        self.pending.push(b':');
        Ok(())
    }

    /// Writes an object of an array, of which only the last value differs: `{...` up to it, and the
    /// text.
    pub(super) fn with_text(&mut self, head: &[u8], text: &str) -> io::Result<()> {
        self.separate();
        self.pending.extend_from_slice(head);
        self.quoted(text)?;
        self.close(b"}")
    }

    pub(super) fn text(&mut self, key: &'static str, text: &str) -> io::Result<()> {
        self.key(key)?;
        self.comma = true;
        self.quoted(text)
    }

    /// Writes a text after [`Emit::any_key`].
    pub(super) fn text_value(&mut self, text: &str) -> io::Result<()> {
        self.separate();
        self.quoted(text)
    }

    pub(super) fn texts<T: AsRef<str>>(
        &mut self,
        key: &'static str,
        texts: &[T],
    ) -> io::Result<()> {
        self.key(key)?;
        self.open_array()?;
        for text in texts {
            self.separate();
            self.quoted(text.as_ref())?;
        }
        self.close_array()
    }

    #[inline]
    pub(super) fn number(&mut self, key: &'static str, number: impl Into<i128>) -> io::Result<()> {
        self.key(key)?;
        self.value(number)
    }

    /// Writes a number that may be larger than 64 bits. Readers that hold it in fewer bits read it
    /// as a real number.
    pub(super) fn whole(&mut self, key: &'static str, number: u128) -> io::Result<()> {
        self.key(key)?;
        self.comma = true;
        write!(self.pending, "{number}")
    }

    /// Writes a real number, with as many digits as distinguish it from its neighbours.
    pub(super) fn real(&mut self, key: &'static str, number: f64) -> io::Result<()> {
        self.key(key)?;
        self.comma = true;
        serde_json::to_writer(&mut self.pending, &number).map_err(io::Error::from)
    }

    /// Writes a number in an array, or after [`Emit::key`].
    pub(super) fn value(&mut self, number: impl Into<i128>) -> io::Result<()> {
        self.separate();
        digits::push(&mut self.pending, number);
        Ok(())
    }

    pub(super) fn boolean(&mut self, key: &'static str, value: bool) -> io::Result<()> {
        self.key(key)?;
        self.comma = true;
        self.pending
            .extend_from_slice(if value { b"true" } else { b"false" });
        Ok(())
    }

    /// Writes `{"handle":n}`.
    pub(super) fn handle(&mut self, key: &'static str, handle: u64) -> io::Result<()> {
        self.key(key)?;
        self.comma = true;
        self.pending.extend_from_slice(b"{\"handle\":");
        digits::push_u64(&mut self.pending, handle);
        self.pending.push(b'}');
        Ok(())
    }

    /// Writes `{"x":…,"y":…,"z":…}`.
    pub(super) fn extents(&mut self, key: &'static str, extents: [u32; 3]) -> io::Result<()> {
        let [x, y, z] = extents;
        self.key(key)?;
        self.open_object()?;
        self.number("x", x)?;
        self.number("y", y)?;
        self.number("z", z)?;
        self.close_object()
    }

    /// Writes `{"name":bits,…}` for a word with bit fields, given as name, first bit and number of
    /// bits.
    pub(super) fn bits(
        &mut self,
        key: &'static str,
        word: u32,
        fields: &[(&'static str, u32, u32)],
    ) -> io::Result<()> {
        self.key(key)?;
        self.open_object()?;
        for (name, first, count) in fields {
            let mask = if *count >= 32 {
                u32::MAX
            } else {
                (1 << count) - 1
            };
            self.number(name, (word >> first) & mask)?;
        }
        self.close_object()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_escapes_are_right() {
        let mut bytes = Vec::new();
        let mut out = Emit::new(&mut bytes);
        out.open_object().unwrap();
        out.key("a").unwrap();
        out.open_array().unwrap();
        out.close_array().unwrap();
        out.texts("b", &["x\"\n\u{1}", "y"]).unwrap();
        out.number("c", -1_i64).unwrap();
        out.boolean("d", true).unwrap();
        out.bits("e", 0b1101, &[("low", 0, 1), ("high", 2, 2)])
            .unwrap();
        out.handle("f", u64::MAX).unwrap();
        out.key("g").unwrap();
        out.open_array().unwrap();
        out.value(1_u8).unwrap();
        out.value(2_u8).unwrap();
        out.close_array().unwrap();
        out.close_object().unwrap();
        out.flush().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let wanted = r#"{"a":[],"b":["x\"\n\u0001","y"],"c":-1,"d":true,"e":{"low":1,"high":3},"f":{"handle":18446744073709551615},"g":[1,2]}"#;
        assert_eq!(text, wanted);
    }
}
