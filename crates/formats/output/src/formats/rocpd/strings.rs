//! The table `rocpd_string`, which has each text once.

use super::database::{Database, Step, text};
use rusqlite::{OptionalExtension, Statement, params};
use std::collections::{BTreeSet, HashMap};

/// The most texts that are remembered. Further ones are looked up in the file. Only a target that
/// invents operations has so many.
const MOST: usize = 1 << 16;

/// Texts and their ids.
pub(super) struct Strings<'c> {
    insert: Statement<'c>,
    find: Statement<'c>,
    known: HashMap<String, i64>,
    next: i64,
}

impl<'c> Strings<'c> {
    /// The id of the empty text, which views look up for dispatches that are in no region.
    pub(super) const EMPTY: i64 = 1;

    /// Inserts what is known beforehand, sorted as in AMD's files, with the empty text first.
    pub(super) fn new(database: &Database<'c>, first: BTreeSet<String>) -> Step<Strings<'c>> {
        let mut strings = Strings {
            insert: database.insert("string", "id, string")?,
            find: database.find_string()?,
            known: HashMap::new(),
            next: Self::EMPTY,
        };
        strings.id("")?;
        for text in &first {
            strings.id(text)?;
        }
        Ok(strings)
    }

    /// Returns the id of a text, which is inserted if it is new.
    pub(super) fn id(&mut self, wanted: &str) -> Step<i64> {
        if let Some(id) = self.known.get(wanted) {
            return Ok(*id);
        }
        let clean = text(wanted);
        let found: Option<i64> = self
            .find
            .query_row(params![clean], |row| row.get(0))
            .optional()?;
        let id = match found {
            Some(id) => id,
            None => {
                let id = self.next;
                self.insert.execute(params![id, clean])?;
                self.next += 1;
                id
            }
        };
        if self.known.len() < MOST {
            self.known.insert(wanted.to_owned(), id);
        }
        Ok(id)
    }
}
