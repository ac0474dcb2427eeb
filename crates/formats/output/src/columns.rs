//! Describes a table of the format `parquet` to its encoder.
//!
//! Only the attaching side has an encoder, which it hands over by [`install`]. In a started program
//! the tool writes the files itself. There is no encoder there, and the format is refused.

use std::io::{self, Write};
use std::sync::OnceLock;

/// The type of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Nanoseconds of CLOCK_BOOTTIME. They are signed, so that a difference may be negative.
    Time,
    /// An unsigned number.
    Number,
    /// A real number, stored as its bits.
    Real,
    /// A text, stored as its index in [`Group::texts`].
    Text,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What its values are.
    pub sort: Sort,
    /// Whether a row may have no value.
    pub optional: bool,
}

/// The values of a column in a group of rows.
#[derive(Debug, Clone, Default)]
pub struct Column {
    /// The values of the rows that have one, in order.
    pub values: Vec<i64>,
    /// For each row of an optional column, 1 where it has a value, else 0.
    pub levels: Vec<i16>,
}

/// A group of rows.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// The texts to which values refer.
    pub texts: &'a [String],
    /// One column for each field, in the order of the fields.
    pub columns: &'a [Column],
}

/// Where the bytes of a file go.
pub type Sink = Box<dyn Write + Send>;

/// Writes one file.
pub trait Encoder {
    /// Takes a group of rows.
    ///
    /// # Errors
    /// When the file cannot be written.
    fn group(&mut self, group: &Group<'_>) -> io::Result<()>;

    /// Ends the file, with these keys and values in its metadata. All bytes have been written when
    /// this returns.
    ///
    /// # Errors
    /// When the file cannot be written.
    fn finish(self: Box<Self>, metadata: Vec<(String, String)>) -> io::Result<()>;
}

/// Starts a file with these columns.
pub type Open = fn(Sink, &'static [Field]) -> io::Result<Box<dyn Encoder>>;

static ENCODER: OnceLock<Open> = OnceLock::new();

/// Makes this process able to write the format. Only the first encoder that is handed over counts.
pub fn install(open: Open) {
    let _ = ENCODER.set(open);
}

/// Returns the function that starts a file, if this process has an encoder.
pub(crate) fn encoder() -> Option<Open> {
    ENCODER.get().copied()
}
