//! The connection, and what every part of the writer needs: errors, statements, and texts and
//! numbers in the form that SQLite takes.

use super::guid::Guid;
use super::schema;
use foldhash::fast::RandomState;
use rusqlite::{Connection, ErrorCode, Statement};
use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::Hash;
use std::io;

/// The most things of one sort that are remembered as being in the file. When there are more, all
/// are forgotten and looked up in the file again.
const MOST_SEEN: usize = 1 << 16;
/// The error number of Linux for a full disk.
const ENOSPC: i32 = 28;

/// Why writing to the file failed.
#[derive(Debug)]
pub(super) struct Failed(io::Error);

pub(super) type Step<T> = Result<T, Failed>;

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed(error)
    }
}

impl From<Failed> for io::Error {
    fn from(Failed(error): Failed) -> Self {
        error
    }
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Failed(match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => io::Error::from_raw_os_error(ENOSPC),
            _ => io::Error::other(error),
        })
    }
}

/// A connection, and the guid in the names of its tables.
pub(super) struct Database<'c> {
    connection: &'c Connection,
    guid: &'c Guid,
}

impl<'c> Database<'c> {
    pub(super) fn new(connection: &'c Connection, guid: &'c Guid) -> Database<'c> {
        Database { connection, guid }
    }

    pub(super) fn guid(&self) -> &'c Guid {
        self.guid
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Returns a statement that inserts rows.
    pub(super) fn insert(&self, table: &str, columns: &str) -> Step<Statement<'c>> {
        let sql = schema::insert("INSERT", table, columns, self.guid);
        Ok(self.connection.prepare(&sql)?)
    }

    /// Returns a statement that inserts rows whose id is not in use, and does nothing for others.
    pub(super) fn ensure(&self, table: &str, columns: &str) -> Step<Statement<'c>> {
        let sql = schema::insert("INSERT OR IGNORE", table, columns, self.guid);
        Ok(self.connection.prepare(&sql)?)
    }

    pub(super) fn find_string(&self) -> Step<Statement<'c>> {
        Ok(self.connection.prepare(&schema::find_string(self.guid))?)
    }
}

/// Remembers what is in the file already. Its size has a limit, because inserting a row again does
/// no harm.
pub(super) struct Seen<K>(HashSet<K, RandomState>);

impl<K> Default for Seen<K> {
    fn default() -> Self {
        Seen(HashSet::default())
    }
}

impl<K: Hash + Eq> Seen<K> {
    /// Whether this has to be inserted.
    pub(super) fn first(&mut self, key: K) -> bool {
        if self.0.len() >= MOST_SEEN {
            self.0.clear();
        }
        self.0.insert(key)
    }
}

/// Returns the number as a signed integer, as SQLite has them. Addresses keep their bits.
pub(super) fn whole(number: u64) -> i64 {
    number.cast_signed()
}

/// Returns a text that every reader sees whole. Many readers end a text at a NUL.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns JSON whose texts every reader sees whole. `json_extract` ends them at a NUL.
pub(super) fn json(text: String) -> String {
    if !text.contains("\\u0000") {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        // A backslash is followed by another character, which may be a backslash.
        let (taken, put) = match escape.strip_prefix("\\u0000") {
            Some(_) => (6, "\\ufffd"),
            None => (2, escape.get(..2).unwrap_or(escape)),
        };
        out.push_str(put);
        rest = escape.get(taken..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_nul_stays_in_json() {
        let value = serde_json::json!({ "a": "x\0\0y", "b\0": "\\u0000 \\\0 \"\0" });
        let clean: serde_json::Value = serde_json::from_str(&json(value.to_string())).unwrap();
        let wanted = serde_json::json!({
            "a": "x\u{fffd}\u{fffd}y", "b\u{fffd}": "\\u0000 \\\u{fffd} \"\u{fffd}"
        });
        assert_eq!(clean, wanted);
    }

    /// `.cargo/config.toml` leaves these out: they would be a quarter of SQLite, three times.
    #[test]
    fn sqlite_has_no_parts_that_no_table_of_ours_uses() {
        let database = Connection::open_in_memory().unwrap();
        let mut options = database.prepare("PRAGMA compile_options").unwrap();
        let options = options.query_map([], |row| row.get(0)).unwrap();
        let options: Vec<String> = options.map(Result::unwrap).collect();
        assert!(options.iter().any(|option| option == "THREADSAFE=1"));
        for part in ["FTS3", "FTS5", "RTREE", "DBSTAT", "STAT4", "SOUNDEX"] {
            let there = options.iter().find(|option| option.contains(part));
            assert_eq!(there, None, "{options:?}");
        }
    }
}
