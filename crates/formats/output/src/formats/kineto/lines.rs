//! Events of Chrome's JSON, one on each line.

use crate::digits;
use crate::files::{OutputFile, WriteError};
use std::io;

/// The number of bytes that are gathered before they are passed on. The file's own buffer is not
/// larger, so they are copied only once.
const BLOCK: usize = 128 * 1024;

/// A document of events under construction.
pub(super) struct Lines {
    file: OutputFile,
    pending: Vec<u8>,
    /// Whether an event was written already, so that the next one needs a comma before it.
    follows: bool,
}

/// Where an event is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) pid: u64,
    pub(super) tid: u64,
}

/// An event while its arguments are added.
pub(super) struct Args<'l> {
    pending: &'l mut Vec<u8>,
    follows: bool,
}

impl Args<'_> {
    fn key(&mut self, key: &str) {
        if std::mem::replace(&mut self.follows, true) {
            self.pending.push(b',');
        }
        self.pending.push(b'"');
        // Keys are our own, and need no escapes.
        self.pending.extend_from_slice(key.as_bytes());
        self.pending.extend_from_slice(b"\":");
    }

    pub(super) fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        digits::push_u64(self.pending, number);
    }

    /// Adds a real number. An infinite one, or NaN, is written as 0, because JSON cannot express
    /// it.
    pub(super) fn real(&mut self, key: &str, number: f64) -> io::Result<()> {
        self.key(key);
        let number = if number.is_finite() { number } else { 0.0 };
        serde_json::to_writer(&mut *self.pending, &number).map_err(io::Error::from)
    }

    pub(super) fn text(&mut self, key: &str, text: &str) -> io::Result<()> {
        self.key(key);
        serde_json::to_writer(&mut *self.pending, text).map_err(io::Error::from)
    }

    pub(super) fn extents(&mut self, key: &str, extents: [u32; 3]) {
        self.key(key);
        for (at, extent) in extents.into_iter().enumerate() {
            self.pending.push(if at == 0 { b'[' } else { b',' });
            digits::push_u64(self.pending, u64::from(extent));
        }
        self.pending.push(b']');
    }
}

impl Lines {
    /// Starts the document with the text before the first event.
    pub(super) fn begin(file: OutputFile, head: &str) -> Lines {
        Lines {
            file,
            pending: head.as_bytes().to_vec(),
            follows: false,
        }
    }

    /// Ends the document with the text behind the last event.
    pub(super) fn end(mut self, tail: &str) -> Result<OutputFile, WriteError> {
        self.pending.extend_from_slice(tail.as_bytes());
        self.file.put(&self.pending)?;
        Ok(self.file)
    }

    /// Returns the error for a failed write to the file.
    pub(super) fn failed(&self, source: io::Error) -> WriteError {
        self.file.failed(source)
    }

    fn open(&mut self, phase: u8, place: Place) {
        if std::mem::replace(&mut self.follows, true) {
            self.pending.extend_from_slice(b",\n");
        }
        self.pending.extend_from_slice(b"{\"ph\":\"");
        self.pending.push(phase);
        self.pending.extend_from_slice(b"\",\"pid\":");
        digits::push_u64(&mut self.pending, place.pid);
        self.pending.extend_from_slice(b",\"tid\":");
        digits::push_u64(&mut self.pending, place.tid);
    }

    fn what(&mut self, category: &str, name: &[u8]) {
        if !category.is_empty() {
            self.pending.extend_from_slice(b",\"cat\":\"");
            self.pending.extend_from_slice(category.as_bytes());
            self.pending.push(b'"');
        }
        self.pending.extend_from_slice(b",\"name\":");
        self.pending.extend_from_slice(name);
    }

    /// Adds a time in microseconds, with nanosecond precision.
    fn microseconds(&mut self, key: &[u8], nanoseconds: u64) {
        self.pending.extend_from_slice(key);
        digits::push_u64(&mut self.pending, nanoseconds / 1000);
        let rest = (nanoseconds % 1000) as u16;
        let digit = |of: u16| b'0' + (of % 10) as u8;
        self.pending
            .extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
    }

    fn args(
        &mut self,
        put: impl FnOnce(&mut Args<'_>) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        self.pending.extend_from_slice(b",\"args\":{");
        let mut args = Args {
            pending: &mut self.pending,
            follows: false,
        };
        put(&mut args).map_err(|error| self.file.failed(error))?;
        self.pending.extend_from_slice(b"}}");
        if self.pending.len() < BLOCK {
            return Ok(());
        }
        self.file.put(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    /// Adds an event that took time. `name` is a JSON text with its quotes.
    pub(super) fn complete(
        &mut self,
        (category, name): (&str, &[u8]),
        place: Place,
        (start, end): (u64, u64),
        put: impl FnOnce(&mut Args<'_>) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        self.open(b'X', place);
        self.what(category, name);
        self.microseconds(b",\"ts\":", start);
        self.microseconds(b",\"dur\":", end.saturating_sub(start));
        self.args(put)
    }

    /// Adds an event without a duration.
    pub(super) fn instant(
        &mut self,
        (category, name): (&str, &[u8]),
        place: Place,
        time: u64,
        put: impl FnOnce(&mut Args<'_>) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        self.open(b'i', place);
        self.what(category, name);
        self.microseconds(b",\"ts\":", time);
        self.pending.extend_from_slice(b",\"s\":\"t\"");
        self.args(put)
    }

    /// Adds one end of the arrow from a call to its work.
    pub(super) fn arrow(
        &mut self,
        is_start: bool,
        correlation: u64,
        place: Place,
        time: u64,
    ) -> Result<(), WriteError> {
        self.open(if is_start { b's' } else { b'f' }, place);
        self.what("ac2g", b"\"ac2g\"");
        self.microseconds(b",\"ts\":", time);
        self.pending.extend_from_slice(b",\"id\":");
        digits::push_u64(&mut self.pending, correlation);
        if !is_start {
            self.pending.extend_from_slice(b",\"bp\":\"e\"");
        }
        self.pending.push(b'}');
        Ok(())
    }

    /// Adds a number that is valid from a time on.
    pub(super) fn counter(
        &mut self,
        name: &[u8],
        place: Place,
        time: u64,
        value: f64,
    ) -> Result<(), WriteError> {
        self.open(b'C', place);
        self.what("", name);
        self.microseconds(b",\"ts\":", time);
        self.args(|args| args.real("value", value))
    }

    /// Adds the name of a process or thread, and its position among others.
    pub(super) fn meta(
        &mut self,
        what: &str,
        place: Place,
        put: impl FnOnce(&mut Args<'_>) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        self.open(b'M', place);
        self.pending.extend_from_slice(b",\"name\":\"");
        self.pending.extend_from_slice(what.as_bytes());
        self.pending.push(b'"');
        self.args(put)
    }
}

/// Returns a text with its quotes, as JSON.
pub(super) fn quoted(text: &str) -> io::Result<Vec<u8>> {
    serde_json::to_vec(text).map_err(io::Error::from)
}
