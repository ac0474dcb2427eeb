//! One line of a table, with its quotes and numbers.

use crate::digits;
use crate::files::{FileSet, OutputFile, WriteError};
use crate::job::Job;
use crate::stats;
use midair_record::event::Record;
use midair_trace::limits;
use std::borrow::Cow;

/// The last column in tables of several processes that have no column with the process.
pub(super) const PROCESS: &str = "Process_Id";

/// The number of bytes of a name that every row may have.
const SHORT_NAME: usize = 256;

/// Starts a file with the names of its columns.
pub(super) fn begin(
    files: &FileSet,
    suffix: &str,
    columns: &[&str],
) -> Result<OutputFile, WriteError> {
    let mut file = files.create(suffix)?;
    let mut row = Row::default();
    for column in columns {
        row.text(column);
    }
    file.put(row.end())?;
    Ok(file)
}

/// From this number of an agent or operation on, its text is made again for each row. A target can
/// invent any number; the meaningful ones are smaller.
const MOST_KNOWN: usize = 1 << 12;

/// What a known text is the name of.
#[derive(Debug, Clone, Copy)]
enum Known {
    Agent(u32),
    Operation(u8, u32),
}

/// Appends a text with its quotes.
fn quote(line: &mut Vec<u8>, text: &str) {
    line.push(b'"');
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\n' | b'\r');
    // Hardly any text has such a byte, and searching for one takes a fraction of the time of a
    // byte-wise copy.
    if !digits::has(text.as_bytes(), is_special) {
        line.extend_from_slice(text.as_bytes());
        line.push(b'"');
        return;
    }
    for byte in text.bytes() {
        match byte {
            b'"' => line.extend_from_slice(b"\"\""),
            b'\n' | b'\r' => line.push(b' '),
            other => line.push(other),
        }
    }
    line.push(b'"');
}

/// One line under construction. It is kept between records to save the allocation.
#[derive(Debug, Default)]
pub(super) struct Row {
    line: Vec<u8>,
    /// The quoted texts of one session: agents, then operations by kind.
    pub(super) texts: Vec<Vec<Vec<u8>>>,
    /// How many bytes long names may still take.
    pub(super) names: u64,
    /// The number of names that were written short.
    pub(super) shortened: u64,
}

impl Row {
    fn separate(&mut self) {
        if !self.line.is_empty() {
            self.line.push(b',');
        }
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.separate();
        quote(&mut self.line, text);
        self
    }

    /// Appends a text that is made and quoted only once. Few such texts stand in many rows.
    fn known(&mut self, what: Known, make: impl FnOnce() -> String) -> &mut Self {
        self.separate();
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let place = match what {
            Known::Agent(node) => (0, number(node.into())),
            Known::Operation(kind, operation) => (1 + usize::from(kind), number(operation.into())),
        };
        if place.1 >= MOST_KNOWN {
            quote(&mut self.line, &make());
            return self;
        }
        if self.texts.len() <= place.0 {
            self.texts.resize_with(place.0 + 1, Vec::new);
        }
        let Some(texts) = self.texts.get_mut(place.0) else {
            return self;
        };
        if texts.len() <= place.1 {
            texts.resize_with(place.1 + 1, Vec::new);
        }
        if let Some(text) = texts.get_mut(place.1) {
            if text.is_empty() {
                quote(text, &make());
            }
            self.line.extend_from_slice(text);
        }
        self
    }

    /// Appends the name of an agent.
    pub(super) fn agent(&mut self, job: &Job<'_>, node: u32) -> &mut Self {
        self.known(Known::Agent(node), || job.agent_name(node))
    }

    /// Appends the names of a kind of records and of an operation, in two columns.
    pub(super) fn operation(&mut self, job: &Job<'_>, kind: u8, operation: u32) -> &mut Self {
        self.known(Known::Operation(kind, operation), || {
            job.names.operation(kind, operation).into_owned()
        })
    }

    /// Appends a name that stands in many rows.
    pub(super) fn name(&mut self, name: Cow<'_, str>) -> &mut Self {
        if name.len() <= SHORT_NAME {
            return self.text(&name);
        }
        match self.names.checked_sub(name.len() as u64) {
            Some(left) => {
                self.names = left;
                self.text(&name)
            }
            None => {
                self.shortened += 1;
                self.text(&limits::cut(name, SHORT_NAME))
            }
        }
    }

    pub(super) fn number(&mut self, number: impl Into<i128>) -> &mut Self {
        self.separate();
        digits::push(&mut self.line, number);
        self
    }

    /// Appends a real number of statistics: six digits after the point above 0.01, else with an
    /// exponent.
    pub(super) fn real(&mut self, number: f64) -> &mut Self {
        if number > 0.01 {
            self.raw(&format!("{number:.6}"))
        } else {
            self.raw(&stats::exponent(number, 8))
        }
    }

    /// Appends a number that is a text already.
    pub(super) fn raw(&mut self, text: &str) -> &mut Self {
        self.separate();
        self.line.extend_from_slice(text.as_bytes());
        self
    }

    pub(super) fn end(&mut self) -> &[u8] {
        self.line.push(b'\n');
        &self.line
    }

    pub(super) fn clear(&mut self) {
        self.line.clear();
    }
}

pub(super) fn call_row(row: &mut Row, job: &Job<'_>, record: &Record<'_>) {
    let Record::Api(api, _) = record else {
        return;
    };
    let kind = api.header.kind;
    row.text(&job.names.kind(kind))
        .operation(job, kind, api.header.operation);
    row.number(job.trace.process.pid)
        .number(api.tid)
        .number(api.correlation)
        .number(api.start)
        .number(api.end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_and_stay_on_one_line() {
        let mut row = Row::default();
        row.text("a \"b\"\nc,d").number(7_u32).number(-1_i64);
        assert_eq!(row.end(), b"\"a \"\"b\"\" c,d\",7,-1\n");
    }
}
