//! Reads Parquet files, row by row.
//!
//! Whoever wrote a file may have meant harm. So the sizes that it states are compared with its bytes
//! before any of them is believed, reading has a deadline, and a panic of the decoder is an error.

use parquet::column::page::Page;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

/// The bytes at the start and end of a file.
const MAGIC: [u8; 4] = *b"PAR1";
/// The most bytes of metadata. The metadata of 16 tables of a day has 2 MiB.
const MOST_METADATA: u32 = 16 << 20;
/// How long reading may take, besides what the bytes of the file may.
const TIME: Duration = Duration::from_secs(30);
/// The bytes that may take a second.
const BYTES_OF_A_SECOND: u64 = 1 << 20;
/// The rows between two looks at the clock.
const LOOK: u64 = 1024;

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The row has none.
    None,
    /// A whole number.
    Number(i64),
    /// Any other value, as text.
    Text(String),
}

/// A file that was opened.
pub struct Table {
    reader: SerializedFileReader<File>,
    names: Vec<String>,
    rows: u64,
    time: Duration,
}

impl Table {
    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read, or is no Parquet file.
    pub fn open(file: File) -> io::Result<Table> {
        let bytes = file.metadata()?.len();
        let mut end = [0; 8];
        let at = bytes.checked_sub(8).ok_or(io::ErrorKind::InvalidData)?;
        file.read_exact_at(&mut end, at)?;
        let [a, b, c, d, magic @ ..] = end;
        let metadata = u32::from_le_bytes([a, b, c, d]);
        if magic != MAGIC || metadata > MOST_METADATA || u64::from(metadata) > at {
            return Err(damaged("it has no metadata of a possible size"));
        }
        guarded(|| {
            let reader = SerializedFileReader::new(file)?;
            let found = reader.metadata();
            let fields = found.file_metadata().schema().get_fields();
            let names = fields.iter().map(|field| field.name().to_owned()).collect();
            let groups = found.row_groups().iter();
            let rows = groups.map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
            let rows = rows.fold(0, u64::saturating_add);
            let time = TIME.saturating_add(Duration::from_secs(bytes / BYTES_OF_A_SECOND));
            Ok(Table {
                reader,
                names,
                rows,
                time,
            })
        })
    }

    /// Returns the names of the columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns how many rows the file says that it has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Passes on each row, until `take` returns false.
    ///
    /// # Errors
    /// When the file contradicts itself, or uses a part of Parquet that is not built in, such as
    /// compression.
    pub fn each(&self, take: &mut dyn FnMut(Vec<Value>) -> bool) -> io::Result<()> {
        let began = Instant::now();
        guarded(|| {
            let mut count = 0_u64;
            for number in 0..self.reader.num_row_groups() {
                let group = self.reader.get_row_group(number)?;
                check(&*group)?;
                for row in RowIter::from_row_group(None, &*group)? {
                    count += 1;
                    if count.is_multiple_of(LOOK) && began.elapsed() > self.time {
                        return Err(general("it takes longer to read than its size explains"));
                    }
                    let row = row?;
                    let values = row.get_column_iter().map(|(_, field)| value(field));
                    if !take(values.collect()) {
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }
}

/// Refuses a group whose pages have another number of values than it has rows, or a dictionary with
/// more values than its bytes have room for.
fn check(group: &dyn RowGroupReader) -> Result<(), ParquetError> {
    let wrong = || general("its pages contradict its metadata");
    let found = group.metadata();
    let rows = u64::try_from(found.num_rows()).map_err(|_| wrong())?;
    for column in 0..group.num_columns() {
        let flat = found.schema_descr().column(column).max_rep_level() == 0;
        let mut values = 0_u64;
        for page in group.get_column_page_reader(column)? {
            match page? {
                Page::DictionaryPage {
                    buf, num_values, ..
                } if num_values as usize > buf.len() => return Err(wrong()),
                Page::DictionaryPage { .. } => {}
                Page::DataPage { num_values, .. } | Page::DataPageV2 { num_values, .. } => {
                    values = values.saturating_add(u64::from(num_values));
                }
            }
        }
        if flat && values != rows {
            return Err(wrong());
        }
    }
    Ok(())
}

fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::None,
        Field::Str(text) => Value::Text(text.clone()),
        Field::Long(number) => Value::Number(*number),
        Field::ULong(number) => match i64::try_from(*number) {
            Ok(number) => Value::Number(number),
            Err(_) => Value::Text(number.to_string()),
        },
        other => Value::Text(other.to_string()),
    }
}

/// Runs the decoder. It has checks that panic if a file contradicts itself.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> io::Result<T> {
    let said = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let got = panic::catch_unwind(AssertUnwindSafe(read));
    panic::set_hook(said);
    match got {
        Ok(got) => got.map_err(super::failed),
        Err(_) => Err(damaged("it is damaged")),
    }
}

fn general(what: &str) -> ParquetError {
    ParquetError::General(what.to_owned())
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Encoder, Field, Group, Sort};
    use std::io::Write;

    const FIELDS: &[Field] = &[
        Field {
            name: "name",
            sort: Sort::Text,
            optional: false,
        },
        Field {
            name: "start_ns",
            sort: Sort::Time,
            optional: false,
        },
        Field {
            name: "device",
            sort: Sort::Number,
            optional: true,
        },
    ];

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// A file of two groups of two rows.
    fn written() -> Vec<u8> {
        let named = tempfile::NamedTempFile::new().unwrap();
        let sink = Box::new(named.reopen().unwrap());
        let mut encoder = Encoder::begin(sink, FIELDS).unwrap();
        let column = |values: &[i64], levels: &[i16]| Column {
            values: values.to_vec(),
            levels: levels.to_vec(),
        };
        for start in [100, 200] {
            let columns = [
                column(&[0, 1], &[]),
                column(&[start, start + 1], &[]),
                column(&[7], &[0, 1]),
            ];
            let group = Group {
                texts: &["vadd(float*, int)".to_owned(), "scale".to_owned()],
                columns: &columns,
            };
            encoder.group(&group).unwrap();
        }
        encoder.finish(Vec::new()).unwrap();
        std::fs::read(named.path()).unwrap()
    }

    fn rows(bytes: &[u8]) -> io::Result<Vec<Vec<Value>>> {
        let table = Table::open(file(bytes))?;
        let mut all = Vec::new();
        table.each(&mut |row| {
            all.push(row);
            true
        })?;
        Ok(all)
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = written();
        let table = Table::open(file(&bytes)).unwrap();
        assert_eq!(table.names(), ["name", "start_ns", "device"]);
        assert_eq!(table.rows(), 4);
        let text = |text: &str| Value::Text(text.to_owned());
        let all = rows(&bytes).unwrap();
        assert_eq!(
            all[0],
            [text("vadd(float*, int)"), Value::Number(100), Value::None]
        );
        assert_eq!(
            all[3],
            [text("scale"), Value::Number(201), Value::Number(7)]
        );
        assert_eq!(all.len(), 4);
    }

    /// Any byte of a file may be another one, and a file may end anywhere: there is an error, or there
    /// are rows; never more rows than the file has, and no panic.
    #[test]
    fn no_file_is_believed() {
        let bytes = written();
        let mut refused = 0;
        for at in 0..bytes.len() {
            for to in [0, 0xff, bytes[at] ^ 1] {
                let mut other = bytes.clone();
                other[at] = to;
                match rows(&other) {
                    Ok(rows) => assert!(rows.len() <= 4, "{at} {to}"),
                    Err(_) => refused += 1,
                }
            }
            assert!(rows(&bytes[..at]).is_err(), "{at}");
        }
        assert!(refused > bytes.len() / 2, "{refused}");
    }
}
