//! Parquet files, written with the encoder of arrow-rs.
//!
//! `midair-output` knows the contents of the tables. It is also linked into the tool of a started
//! program, and no target process needs a Parquet encoder. So the encoder is here, and
//! the attaching side hands it over once ([`install`]).
//!
//! [`read`] reads such files back, for `midair show`.
#![forbid(unsafe_code)]

pub mod read;

use midair_output::columns::{self, Encoder, Field, Group, Sink, Sort};
use parquet::basic::{Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use std::io;
use std::sync::Arc;

/// The most bytes of a dictionary, beyond which values would be stored one by one. This is more
/// than a table allows for a group, since a kernel's name may have kilobytes.
const MOST_DICTIONARY: usize = 64 << 20;

/// Makes this process able to write Parquet.
pub fn install() {
    columns::install(open);
}

/// A file that has been started.
struct File {
    writer: SerializedFileWriter<Sink>,
    fields: &'static [Field],
}

fn open(sink: Sink, fields: &'static [Field]) -> io::Result<Box<dyn Encoder>> {
    let writer = begin(sink, fields).map_err(failed)?;
    Ok(Box::new(File { writer, fields }))
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

impl Encoder for File {
    fn group(&mut self, group: &Group<'_>) -> io::Result<()> {
        self.rows(group).map_err(failed)
    }

    fn finish(self: Box<Self>, metadata: Vec<(String, String)>) -> io::Result<()> {
        let mut writer = self.writer;
        for (key, value) in metadata {
            writer.append_key_value_metadata(KeyValue::new(key, value));
        }
        let mut sink = writer.into_inner().map_err(failed)?;
        sink.flush()
    }
}

impl File {
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
