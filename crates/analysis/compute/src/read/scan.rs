//! Reads all rows of a table of an SQLite file directly from the file's pages. Where there are
//! millions of rows and a few numbers of each are wanted, this takes a tenth of the time of a
//! query.
//!
//! SQLite itself says where the table starts and what its columns are. Everything else that such a
//! file may have, such as a log that was not merged into it, is left to SQLite: see
//! [`Table::find`]. (Source: the file format, sqlite.org/fileformat2.html.)

use super::bound::Database;
use crate::files;
use rusqlite::OptionalExtension;
use rusqlite::types::ValueRef;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How many bytes are read at once: neighbouring pages usually belong to one table.
const CHUNK: usize = 256 << 10;
/// The most levels of a tree. Five levels have room for more rows than a file has bytes.
const DEPTH: usize = 20;
/// The size of the largest row that is put together from several pages.
const MOST: u64 = 64 << 20;

/// A value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cell {
    /// NULL, or a value that is not a number.
    None,
    /// A whole number.
    Whole(i64),
    /// A floating-point number.
    Real(f64),
}

impl Cell {
    pub(super) fn real(self) -> f64 {
        match self {
            Cell::None => f64::NAN,
            Cell::Whole(number) => number as f64,
            Cell::Real(number) => number,
        }
    }

    pub(super) fn whole(self) -> Option<i64> {
        match self {
            Cell::None => None,
            Cell::Whole(number) => Some(number),
            Cell::Real(number) => Some(number as i64),
        }
    }

    fn of(value: ValueRef<'_>) -> Cell {
        match value {
            ValueRef::Integer(number) => Cell::Whole(number),
            ValueRef::Real(number) => Cell::Real(number),
            _ => Cell::None,
        }
    }
}

/// Why a table could not be read.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The file contradicts itself.
    Damaged,
    /// The file could not be read.
    Io(io::Error),
    /// SQLite reported an error.
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Database(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Trouble::Damaged,
            _ => Trouble::Io(error),
        }
    }
}

/// Passes on each row's values of some columns, in the order in which the rows are stored.
///
/// # Errors
/// When the file is damaged, or has no such table or column.
pub(super) fn each(
    database: &Database,
    path: &Path,
    table: &str,
    columns: &[&str],
    mut take: impl FnMut(&[Cell]),
) -> Result<(), Trouble> {
    let quoted = table.replace('"', "\"\"");
    let list: Vec<String> = columns.iter().map(|name| format!("\"{name}\"")).collect();
    // SQLite reports an error if a name does not exist.
    let mut statement =
        database.prepare(&format!("SELECT {} FROM \"{quoted}\"", list.join(", ")))?;
    if let Some(found) = Table::find(database, path, table, columns)? {
        return found.rows(&mut take);
    }
    let mut row_of = vec![Cell::None; columns.len()];
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for (place, cell) in row_of.iter_mut().enumerate() {
            *cell = Cell::of(row.get_ref(place)?);
        }
        take(&row_of);
    }
    Ok(())
}

/// A table and the pages of its file.
struct Table {
    file: File,
    /// The size of a page in bytes, and how many of them are used.
    page: usize,
    used: usize,
    pages: u64,
    root: u64,
    /// For each stored column: its place among the wanted ones, if it is wanted.
    wanted: Vec<Option<usize>>,
    /// The places of the column that is the row id, which is not stored as a column.
    numbers: Vec<usize>,
    width: usize,
    chunk: Vec<u8>,
    /// First byte of the chunk in the file.
    at: u64,
    /// How many pages were read that continue rows.
    further: std::cell::Cell<u64>,
}

impl Table {
    /// Returns None where SQLite has to be asked: there is a log next to the file, or the table is
    /// not a plain one.
    fn find(
        database: &Database,
        path: &Path,
        table: &str,
        columns: &[&str],
    ) -> Result<Option<Table>, Trouble> {
        let beside = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            files::state(name.as_ref()).is_some_and(|(bytes, _)| bytes > 0)
        };
        if beside("-wal") || beside("-journal") {
            return Ok(None);
        }
        let found: Option<(i64, String)> = database
            .query_row(
                "SELECT rootpage, sql FROM sqlite_master WHERE type = 'table' AND name = ?1",
                [table],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?;
        let Some((root, sql)) = found else {
            return Ok(None);
        };
        let words = sql.to_ascii_uppercase();
        if words.contains("WITHOUT") || words.contains("GENERATED") || words.contains("VIRTUAL") {
            return Ok(None);
        }
        let mut statement = database.prepare("SELECT name, type, pk FROM pragma_table_info(?1)")?;
        let mut rows = statement.query([table])?;
        let (mut wanted, mut numbers, mut keys) = (Vec::new(), Vec::new(), 0);
        let mut number = None;
        while let Some(row) = rows.next()? {
            let (name, kind, key): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let place = columns.iter().position(|wanted| *wanted == name);
            if key > 0 {
                keys += 1;
                if kind.eq_ignore_ascii_case("INTEGER") {
                    number = place;
                }
            }
            wanted.push(place);
        }
        if keys == 1 {
            numbers.extend(number);
        }
        let file = database.file.try_clone()?;
        let mut head = [0; 100];
        file.read_exact_at(&mut head, 0)?;
        let page = match u16::from_be_bytes([head[16], head[17]]) {
            1 => 1 << 16,
            size => usize::from(size),
        };
        let used = page.saturating_sub(usize::from(head[20]));
        let root = u64::try_from(root).unwrap_or(0);
        if !page.is_power_of_two() || used < 480 || root == 0 {
            return Err(Trouble::Damaged);
        }
        let pages = file.metadata()?.len() / page as u64;
        // Columns behind the last wanted one are not looked at.
        let last = wanted.iter().rposition(Option::is_some);
        wanted.truncate(last.map_or(0, |last| last + 1));
        Ok(Some(Table {
            file,
            page,
            used,
            pages,
            root,
            wanted,
            numbers,
            width: columns.len(),
            chunk: Vec::new(),
            at: 0,
            further: 0.into(),
        }))
    }

    /// Returns where a page starts in the chunk. Reads another chunk if the page is not in this
    /// one.
    fn place(&mut self, number: u64) -> Result<usize, Trouble> {
        if number == 0 || number > self.pages {
            return Err(Trouble::Damaged);
        }
        let begin = (number - 1) * self.page as u64;
        let inside =
            begin >= self.at && begin + self.page as u64 <= self.at + self.chunk.len() as u64;
        if !inside {
            let end = self.pages * self.page as u64;
            let size = (CHUNK.max(self.page) as u64).min(end - begin) as usize;
            self.chunk.resize(size, 0);
            // If the read fails, no bytes of the chunk may be taken for pages.
            self.at = u64::MAX / 2;
            self.file.read_exact_at(&mut self.chunk, begin)?;
            self.at = begin;
        }
        Ok((begin - self.at) as usize)
    }

    fn rows(mut self, take: &mut impl FnMut(&[Cell])) -> Result<(), Trouble> {
        let mut row = vec![Cell::None; self.width];
        let mut visited = 0;
        self.branch(self.root, 0, &mut visited, &mut row, take)
    }

    fn branch(
        &mut self,
        number: u64,
        depth: usize,
        visited: &mut u64,
        row: &mut [Cell],
        take: &mut impl FnMut(&[Cell]),
    ) -> Result<(), Trouble> {
        *visited += 1;
        if depth > DEPTH || *visited > self.pages {
            return Err(Trouble::Damaged);
        }
        let place = self.place(number)?;
        let page = &self.chunk[place..place + self.used];
        let head = if number == 1 { 100 } else { 0 };
        let kind = page[head];
        let cells = usize::from(u16::from_be_bytes([page[head + 3], page[head + 4]]));
        match kind {
            // An inner page: a child for each cell, and one more behind them.
            0x05 => {
                let mut children = Vec::with_capacity(cells + 1);
                for cell in 0..cells {
                    let at = offset(page, head + 12 + 2 * cell).ok_or(Trouble::Damaged)?;
                    children.push(word(page, at).ok_or(Trouble::Damaged)?);
                }
                children.push(word(page, head + 8).ok_or(Trouble::Damaged)?);
                for child in children {
                    self.branch(child, depth + 1, visited, row, take)?;
                }
                Ok(())
            }
            0x0d => {
                for cell in 0..cells {
                    self.leaf(place, head + 8 + 2 * cell, row)?;
                    take(row);
                }
                Ok(())
            }
            _ => Err(Trouble::Damaged),
        }
    }

    /// Reads the cell that the offset at `pointer` leads to.
    fn leaf(&mut self, place: usize, pointer: usize, row: &mut [Cell]) -> Result<(), Trouble> {
        let page = &self.chunk[place..place + self.used];
        let at = offset(page, pointer).ok_or(Trouble::Damaged)?;
        let cell = page.get(at..).ok_or(Trouble::Damaged)?;
        let (size, n) = varint(cell).ok_or(Trouble::Damaged)?;
        let (number, m) = varint(&cell[n..]).ok_or(Trouble::Damaged)?;
        let payload = &cell[n + m..];
        row.fill(Cell::None);
        let here = self.local(size);
        let here = payload.get(..here).ok_or(Trouble::Damaged)?;
        let done = if here.len() as u64 == size {
            record(here, &self.wanted, row).ok_or(Trouble::Damaged)?;
            true
        } else {
            // The wanted columns usually come first, and so lie in the leaf.
            record(here, &self.wanted, row).is_some()
        };
        if !done {
            let rest = payload.get(here.len()..here.len() + 4);
            let next = rest
                .and_then(|rest| word(rest, 0))
                .ok_or(Trouble::Damaged)?;
            let whole = self.whole(here.to_vec(), next, size)?;
            row.fill(Cell::None);
            record(&whole, &self.wanted, row).ok_or(Trouble::Damaged)?;
        }
        for place in &self.numbers {
            if row[*place] == Cell::None {
                row[*place] = Cell::Whole(number as i64);
            }
        }
        Ok(())
    }

    /// Returns how many bytes of a row of this size are stored in its leaf.
    fn local(&self, size: u64) -> usize {
        let used = self.used as u64;
        if size <= used - 35 {
            return size as usize;
        }
        let least = (used - 12) * 32 / 255 - 23;
        let more = least + (size - least) % (used - 4);
        (if more <= used - 35 { more } else { least }) as usize
    }

    /// Reads a row that continues on other pages.
    fn whole(&self, mut bytes: Vec<u8>, mut next: u64, size: u64) -> Result<Vec<u8>, Trouble> {
        if size > MOST {
            return Err(Trouble::Damaged);
        }
        let mut page = vec![0; self.used];
        while (bytes.len() as u64) < size {
            if next == 0 || next > self.pages {
                return Err(Trouble::Damaged);
            }
            // Each page continues one row.
            self.further.set(self.further.get() + 1);
            if self.further.get() > self.pages {
                return Err(Trouble::Damaged);
            }
            self.file
                .read_exact_at(&mut page, (next - 1) * self.page as u64)?;
            next = word(&page, 0).ok_or(Trouble::Damaged)?;
            let missing = (size - bytes.len() as u64).min(self.used as u64 - 4) as usize;
            bytes.extend_from_slice(&page[4..4 + missing]);
        }
        Ok(bytes)
    }
}

fn offset(page: &[u8], at: usize) -> Option<usize> {
    let bytes = page.get(at..at + 2)?;
    Some(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
}

fn word(page: &[u8], at: usize) -> Option<u64> {
    let bytes = page.get(at..at + 4)?;
    Some(u64::from(u32::from_be_bytes([
        bytes[0], bytes[1], bytes[2], bytes[3],
    ])))
}

/// Returns a number of one to nine bytes, and its length.
#[inline]
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = u64::from(first & 0x7f);
    for n in 1..9 {
        let byte = *bytes.get(n)?;
        if n == 8 {
            return Some((value << 8 | u64::from(byte), 9));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            return Some((value, n + 1));
        }
    }
    None
}

/// Stores the wanted columns of a row at their places. Returns None where the bytes end before
/// them.
#[inline]
fn record(bytes: &[u8], wanted: &[Option<usize>], row: &mut [Cell]) -> Option<()> {
    let (size, mut at) = varint(bytes)?;
    let end = usize::try_from(size).ok()?;
    let mut body = end;
    for place in wanted {
        if at >= end {
            // Rows that were stored before a column was added do not have it.
            return Some(());
        }
        let (kind, n) = varint(bytes.get(at..)?)?;
        at += n;
        let length = match kind {
            0 | 8 | 9 => 0,
            1..=4 => kind as usize,
            5 => 6,
            6 | 7 => 8,
            10 | 11 => return None,
            kind => usize::try_from((kind - 12) / 2).ok()?,
        };
        if let Some(place) = place {
            let value = bytes.get(body..body.checked_add(length)?)?;
            row[*place] = match kind {
                1..=6 => Cell::Whole(whole(value)),
                7 => Cell::Real(f64::from_bits(whole(value) as u64)),
                8 => Cell::Whole(0),
                9 => Cell::Whole(1),
                _ => Cell::None,
            };
        }
        body = body.checked_add(length)?;
    }
    Some(())
}

/// Returns a signed number of up to eight bytes.
#[inline]
fn whole(bytes: &[u8]) -> i64 {
    let mut value = match bytes.first() {
        Some(first) if *first >= 0x80 => -1_i64,
        _ => 0,
    };
    for byte in bytes {
        value = value << 8 | i64::from(*byte);
    }
    value
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::bound::open;
    use super::*;
    use rusqlite::Connection;

    /// Returns the rows as SQLite reads them, and as the pages have them.
    fn both(path: &Path, table: &str, columns: &[&str]) -> (Vec<Vec<Cell>>, Vec<Vec<Cell>>) {
        let database = open(path).unwrap();
        let mut pages = Vec::new();
        let found = Table::find(&database, path, table, columns).unwrap();
        found
            .unwrap()
            .rows(&mut |row: &[Cell]| pages.push(row.to_vec()))
            .unwrap();
        let list: Vec<String> = columns.iter().map(|name| format!("\"{name}\"")).collect();
        let text = format!("SELECT {} FROM \"{table}\" ORDER BY rowid", list.join(", "));
        let mut statement = database.prepare(&text).unwrap();
        let mut rows = statement.query([]).unwrap();
        let mut asked = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            let cells = (0..columns.len()).map(|place| Cell::of(row.get_ref(place).unwrap()));
            asked.push(cells.collect());
        }
        (pages, asked)
    }

    #[test]
    fn pages_say_what_sqlite_says() {
        let temporary = tempfile::tempdir().unwrap();
        for page in [512, 4096, 65536] {
            let path = temporary.path().join(format!("{page}.db"));
            let database = Connection::open(&path).unwrap();
            database
                .execute_batch(&format!(
                    "PRAGMA page_size = {page}; PRAGMA journal_mode = DELETE;
                     CREATE TABLE other (a, b);
                     CREATE TABLE t (id INTEGER PRIMARY KEY, long TEXT, number, real REAL, last);
                     ALTER TABLE t ADD COLUMN later INTEGER;"
                ))
                .unwrap();
            let change = database.unchecked_transaction().unwrap();
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            for n in 0..3000_i64 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Texts of all lengths, some over many pages; numbers of all sizes and both signs.
                let length = if n % 50 == 0 { 5000 } else { n % 40 };
                let number = (random as i64) >> (random % 64);
                change
                    .execute(
                        "INSERT INTO t (id, long, number, real, last) VALUES (?1, ?2, ?3, ?4, ?5)",
                        (
                            3 * n - 1000,
                            "x".repeat(length as usize),
                            (n % 7 != 0).then_some(number),
                            f64::from_bits(random >> 2),
                            n % 3 - 1,
                        ),
                    )
                    .unwrap();
                change
                    .execute("INSERT INTO other VALUES (1, 'other')", [])
                    .unwrap();
            }
            change
                .execute("DELETE FROM t WHERE id % 5 = 0", [])
                .unwrap();
            change.commit().unwrap();
            drop(database);
            for columns in [
                &["id", "number", "real", "last", "later"][..],
                &["last", "id"],
                &["number"],
            ] {
                let (pages, asked) = both(&path, "t", columns);
                assert!(pages.len() > 2000);
                assert_eq!(pages, asked, "{page} {columns:?}");
            }
        }
    }

    /// A leaf may claim that many rows have one long text in common.
    #[test]
    fn a_page_that_continues_a_row_is_read_once() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("t.db");
        let database = Connection::open(&path).unwrap();
        // Of a row of this size the leaf has 39 bytes.
        let make = "PRAGMA page_size = 512; CREATE TABLE t (long TEXT, a INTEGER);
                    INSERT INTO t VALUES (printf('%.*c', 99601, 'x'), 7);";
        database.execute_batch(make).unwrap();
        let database = open(&path).unwrap();
        let table = Table::find(&database, &path, "t", &["a"]).unwrap().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let leaf = (table.root as usize - 1) * 512;
        let pointer = [bytes[leaf + 8], bytes[leaf + 9]];
        let rows = 50;
        bytes[leaf + 4] = rows;
        for row in 1..usize::from(rows) {
            bytes[leaf + 8 + 2 * row..][..2].copy_from_slice(&pointer);
        }
        std::fs::write(&path, &bytes).unwrap();
        let mut read = 0;
        let error = table.rows(&mut |_: &[Cell]| read += 1).unwrap_err();
        assert!(
            matches!(error, Trouble::Damaged) && read == 1,
            "{read}: {error:?}"
        );
    }

    #[test]
    fn damaged_pages_are_an_error_and_no_panic() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("t.db");
        let database = Connection::open(&path).unwrap();
        database
            .execute_batch(
                "PRAGMA page_size = 512; CREATE TABLE t (a INTEGER, b REAL);
                 WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 900)
                 INSERT INTO t SELECT x, x / 3.0 FROM n;",
            )
            .unwrap();
        let database = open(&path).unwrap();
        let found = Table::find(&database, &path, "t", &["a", "b"]).unwrap();
        let root = found.unwrap().root;
        let good = std::fs::read(&path).unwrap();
        let mut random = 0x1234_5678_9abc_def1_u64;
        let mut damaged = 0;
        for _ in 0..400 {
            let mut bytes = good.clone();
            for _ in 0..20 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Damage a byte behind the first page, which tells SQLite where the table is.
                let at = 512 + (random as usize) % (bytes.len() - 512);
                bytes[at] = (random >> 40) as u8;
            }
            let broken = temporary.path().join("broken.db");
            std::fs::write(&broken, &bytes).unwrap();
            let table = Table {
                file: File::open(&broken).unwrap(),
                page: 512,
                used: 512,
                pages: bytes.len() as u64 / 512,
                root,
                wanted: vec![Some(0), Some(1)],
                numbers: Vec::new(),
                width: 2,
                chunk: Vec::new(),
                at: 0,
                further: 0.into(),
            };
            let mut rows = 0;
            let result = table.rows(&mut |_: &[Cell]| rows += 1);
            damaged += u32::from(result.is_err());
            assert!(rows < 100_000);
        }
        assert!(damaged > 50, "{damaged}");
        std::fs::write(&path, &good[..good.len() / 2]).unwrap();
        let database = open(&path).unwrap();
        let cut = each(&database, &path, "t", &["a"], |_| {});
        assert!(cut.is_err());
    }
}
