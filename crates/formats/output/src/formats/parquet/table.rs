//! A table that is being written: rows are gathered in columns until a group is full.

use crate::files::{OutputFile, ReservedFile, WriteError};
use foldhash::fast::RandomState;
use midair_columns::{Column, Encoder, Field, Group};
use std::collections::HashMap;
use std::io;

/// The number of rows of a group, as many as DuckDB gives to one thread at a time.
const ROWS: usize = 122_880;
/// With this many bytes of texts a group is full as well.
const MOST_TEXTS: usize = 8 << 20;
/// The bytes of texts that are kept for the next group.
const KEPT_TEXTS: usize = 1 << 20;

/// The key by which a text is remembered: the kind and the number of what has the name.
pub(super) type Known = (u8, u64);

/// The table.
pub(super) struct Table {
    file: ReservedFile,
    encoder: Encoder,
    fields: &'static [Field],
    columns: Vec<Column>,
    /// The number of whole rows, and the column of the next value.
    rows: usize,
    at: usize,
    texts: Vec<String>,
    text_bytes: usize,
    by_text: HashMap<String, i64>,
    known: HashMap<Known, i64, RandomState>,
    /// The last text of each column, since most rows are like the one before.
    last: Vec<Option<(Known, i64)>>,
}

impl Table {
    pub(super) fn begin(file: OutputFile, fields: &'static [Field]) -> Result<Table, WriteError> {
        let (writer, file) = file.apart();
        let encoder =
            Encoder::begin(Box::new(writer), fields).map_err(|error| file.failed(error))?;
        Ok(Table {
            file,
            encoder,
            columns: vec![Column::default(); fields.len()],
            last: vec![None; fields.len()],
            fields,
            rows: 0,
            at: 0,
            texts: Vec::new(),
            text_bytes: 0,
            by_text: HashMap::new(),
            known: HashMap::default(),
        })
    }

    /// Returns the error for a failed write to this file.
    pub(super) fn failed(&self, source: io::Error) -> WriteError {
        self.file.failed(source)
    }

    fn put(&mut self, bits: i64) -> &mut Table {
        let optional = self.fields.get(self.at).is_some_and(|field| field.optional);
        if let Some(column) = self.columns.get_mut(self.at) {
            if optional {
                column.levels.resize(self.rows, 0);
                column.levels.push(1);
            }
            column.values.push(bits);
        }
        self.at += 1;
        self
    }

    /// Adds a number.
    pub(super) fn number(&mut self, number: impl Into<u64>) -> &mut Table {
        self.put(number.into().cast_signed())
    }

    /// Adds a time in nanoseconds.
    pub(super) fn time(&mut self, time: u64) -> &mut Table {
        self.put(time.cast_signed())
    }

    /// Adds a real number.
    pub(super) fn real(&mut self, number: f64) -> &mut Table {
        self.put(number.to_bits().cast_signed())
    }

    /// Adds a text.
    pub(super) fn text(&mut self, text: &str) -> &mut Table {
        let key = self.key(text);
        self.put(key)
    }

    /// Adds a text that is made once for all rows of the group that use it.
    pub(super) fn named(&mut self, known: Known, make: impl FnOnce() -> String) -> &mut Table {
        let last = self.last.get(self.at).copied().flatten();
        if let Some((_, key)) = last.filter(|(last, _)| *last == known) {
            return self.put(key);
        }
        let key = match self.known.get(&known) {
            Some(key) => *key,
            None => {
                let key = self.key(&make());
                self.known.insert(known, key);
                key
            }
        };
        if let Some(last) = self.last.get_mut(self.at) {
            *last = Some((known, key));
        }
        self.put(key)
    }

    /// Leaves an optional column without a value.
    pub(super) fn nothing(&mut self) -> &mut Table {
        if let Some(column) = self.columns.get_mut(self.at) {
            column.levels.resize(self.rows + 1, 0);
        }
        self.at += 1;
        self
    }

    fn key(&mut self, text: &str) -> i64 {
        if let Some(key) = self.by_text.get(text) {
            return *key;
        }
        let key = self.texts.len() as i64;
        self.text_bytes += text.len();
        self.texts.push(text.to_owned());
        self.by_text.insert(text.to_owned(), key);
        key
    }

    /// Ends a row. The remaining columns are optional and get no value.
    pub(super) fn end(&mut self) -> Result<(), WriteError> {
        self.at = 0;
        self.rows += 1;
        match self.rows >= ROWS || self.text_bytes >= MOST_TEXTS {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        if self.rows == 0 {
            return Ok(());
        }
        for (column, field) in self.columns.iter_mut().zip(self.fields) {
            if field.optional {
                column.levels.resize(self.rows, 0);
            }
        }
        let group = Group {
            texts: &self.texts,
            columns: &self.columns,
        };
        let written = self.encoder.group(&group);
        written.map_err(|error| self.file.failed(error))?;
        for column in &mut self.columns {
            column.values.clear();
            column.levels.clear();
        }
        self.rows = 0;
        if self.text_bytes > KEPT_TEXTS {
            self.texts.clear();
            self.text_bytes = 0;
            self.by_text.clear();
            self.known.clear();
            self.last.fill(None);
        }
        Ok(())
    }

    /// Writes the last group, and ends the file.
    pub(super) fn finish(
        mut self,
        metadata: Vec<(String, String)>,
    ) -> Result<ReservedFile, WriteError> {
        self.flush()?;
        let ended = self.encoder.finish(metadata);
        ended.map_err(|error| self.file.failed(error))?;
        Ok(self.file)
    }
}
