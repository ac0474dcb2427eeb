//! Parquet files, written with the encoder of arrow-rs.
//!
//! `midair-output` knows the contents of the tables and writes them with an [`Encoder`]. [`read`]
//! reads such files back, for `midair show`.
#![forbid(unsafe_code)]

pub mod read;

use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use std::io::{self, Write};
use std::sync::Arc;

/// The most bytes of a dictionary, beyond which values would be stored one by one. This is more
/// than a table allows for a group, since a kernel's name may have kilobytes.
const MOST_DICTIONARY: usize = 64 << 20;

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

/// A file that has been started.
pub struct Encoder {
    writer: SerializedFileWriter<Sink>,
    fields: &'static [Field],
}

fn begin(sink: Sink, fields: &'static [Field]) -> Result<SerializedFileWriter<Sink>, ParquetError> {
    let mut columns = Vec::with_capacity(fields.len());
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("midair {}", env!("CARGO_PKG_VERSION")))
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BINARY_PACKED)
        .set_dictionary_page_size_limit(MOST_DICTIONARY)
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::None);
    for field in fields {
        columns.push(Arc::new(column(field)?));
        let path = || ColumnPath::from(field.name);
        properties = match field.sort {
            Sort::Text => properties
                .set_column_dictionary_enabled(path(), true)
                .set_column_encoding(path(), Encoding::PLAIN),
            Sort::Real => properties.set_column_encoding(path(), Encoding::PLAIN),
            // Readers use these statistics to skip whole groups of rows.
            Sort::Time => {
                properties.set_column_statistics_enabled(path(), EnabledStatistics::Chunk)
            }
            Sort::Number => properties,
        };
    }
    let schema = Type::group_type_builder("midair").with_fields(columns);
    SerializedFileWriter::new(
        sink,
        Arc::new(schema.build()?),
        Arc::new(properties.build()),
    )
}

/// A column of the schema.
fn column(field: &Field) -> Result<Type, ParquetError> {
    let (physical, logical) = match field.sort {
        Sort::Time => (Physical::INT64, Some(LogicalType::integer(64, true))),
        Sort::Number => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Sort::Real => (Physical::DOUBLE, None),
        Sort::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let repetition = match field.optional {
        true => Repetition::OPTIONAL,
        false => Repetition::REQUIRED,
    };
    Type::primitive_type_builder(field.name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition)
        .build()
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        // The error of the file itself, for example that the disk is full.
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

impl Encoder {
    /// Starts a file with these columns.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn begin(sink: Sink, fields: &'static [Field]) -> io::Result<Encoder> {
        let writer = begin(sink, fields).map_err(failed)?;
        Ok(Encoder { writer, fields })
    }

    /// Takes a group of rows.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn group(&mut self, group: &Group<'_>) -> io::Result<()> {
        self.rows(group).map_err(failed)
    }

    /// Ends the file, with these keys and values in its metadata. All bytes have been written when
    /// this returns.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(self, metadata: Vec<(String, String)>) -> io::Result<()> {
        let mut writer = self.writer;
        for (key, value) in metadata {
            writer.append_key_value_metadata(KeyValue::new(key, value));
        }
        let mut sink = writer.into_inner().map_err(failed)?;
        sink.flush()
    }

    fn rows(&mut self, group: &Group<'_>) -> Result<(), ParquetError> {
        let texts: Vec<ByteArray> = group
            .texts
            .iter()
            .map(|text| ByteArray::from(text.as_bytes().to_vec()))
            .collect();
        let mut values: Vec<ByteArray> = Vec::new();
        let mut reals: Vec<f64> = Vec::new();
        let mut rows = self.writer.next_row_group()?;
        for (field, column) in self.fields.iter().zip(group.columns) {
            let levels = field.optional.then_some(column.levels.as_slice());
            let Some(mut writer) = rows.next_column()? else {
                break;
            };
            match field.sort {
                Sort::Time | Sort::Number => {
                    writer
                        .typed::<Int64Type>()
                        .write_batch(&column.values, levels, None)?;
                }
                Sort::Real => {
                    reals.clear();
                    reals.extend(
                        column
                            .values
                            .iter()
                            .map(|bits| f64::from_bits(*bits as u64)),
                    );
                    writer
                        .typed::<DoubleType>()
                        .write_batch(&reals, levels, None)?;
                }
                Sort::Text => {
                    values.clear();
                    let text = |key: &i64| texts.get(usize::try_from(*key).ok()?).cloned();
                    values.extend(
                        column
                            .values
                            .iter()
                            .map(|key| text(key).unwrap_or_else(|| Vec::new().into())),
                    );
                    writer
                        .typed::<ByteArrayType>()
                        .write_batch(&values, levels, None)?;
                }
            }
            writer.close()?;
        }
        rows.close()?;
        Ok(())
    }
}
