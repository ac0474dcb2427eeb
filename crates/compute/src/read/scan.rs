//! All rows of a table of an SQLite file, read from the file's pages: a tenth of the time that a
//! question takes, where there are millions of rows and one wants a few numbers of each.
//!
//! SQLite itself says where the table begins and what its columns are. What such a file may have
//! besides, such as a log that was not merged into it, is left to SQLite: see [`Table::find`].
//! (Source: the file format, sqlite.org/fileformat2.html.)

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are read at once: neighbouring pages belong to one table as a rule.
const CHUNK: usize = 256 << 10;
/// Levels of a tree. Five have room for more rows than a file has bytes.
const DEPTH: usize = 20;
/// The greatest row that is put together from several pages.
const MOST: u64 = 64 << 20;

/// A value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cell {
    /// Nothing, or no number.
    None,
    /// A whole number.
    Whole(i64),
    /// Any other.
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
    /// It could not be read.
    Io(io::Error),
    /// SQLite's.
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

/// Gives each row's values of some columns, in the order in which they are stored.
///
/// # Errors
/// When the file is damaged, or has no such table or column.
pub(super) fn each(
    database: &Connection,
    path: &Path,
    table: &str,
    columns: &[&str],
    mut take: impl FnMut(&[Cell]),
) -> Result<(), Trouble> {
    let quoted = table.replace('"', "\"\"");
    let list: Vec<String> = columns.iter().map(|name| format!("\"{name}\"")).collect();
    // Names that are not there are an error of SQLite's.
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

/// A table, by its pages.
struct Table {
    file: File,
    /// Bytes of a page, and those of them that are used.
    page: usize,
    used: usize,
    pages: u64,
    root: u64,
    /// For each stored column: the place where it is wanted.
    wanted: Vec<Option<usize>>,
    /// Places of the column that is the row's number, which is not stored.
    numbers: Vec<usize>,
    width: usize,
    chunk: Vec<u8>,
    /// First byte of the chunk in the file.
    at: u64,
}

impl Table {
    /// None where SQLite has to be asked: there is a log beside the file, or it is no plain table.
    fn find(
        database: &Connection,
        path: &Path,
        table: &str,
        columns: &[&str],
    ) -> Result<Option<Table>, Trouble> {
        let beside = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            std::fs::metadata(name).is_ok_and(|metadata| metadata.len() > 0)
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
        let file = File::open(path)?;
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
        // What is behind the last column that is wanted is not looked at.
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
        }))
    }

    /// The bytes of a page in the chunk, which is replaced where it does not have it.
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
            // An error leaves nothing that could be taken for pages.
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
            // A branch: a child for each cell, and one behind them.
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

    /// Reads the cell whose offset stands there.
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
            // The columns that are wanted come first, as a rule.
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

    /// How many bytes of a row of this size lie in its leaf.
    fn local(&self, size: u64) -> usize {
        let used = self.used as u64;
        if size <= used - 35 {
            return size as usize;
        }
        let least = (used - 12) * 32 / 255 - 23;
        let more = least + (size - least) % (used - 4);
        (if more <= used - 35 { more } else { least }) as usize
    }

    /// A row that goes on in other pages.
    fn whole(&self, mut bytes: Vec<u8>, mut next: u64, size: u64) -> Result<Vec<u8>, Trouble> {
        if size > MOST {
            return Err(Trouble::Damaged);
        }
        let mut page = vec![0; self.used];
        while (bytes.len() as u64) < size {
            if next == 0 || next > self.pages {
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

/// A number of one to nine bytes, and how many.
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

/// Puts the columns of a row into their places. None where it does not reach so far.
#[inline]
fn record(bytes: &[u8], wanted: &[Option<usize>], row: &mut [Cell]) -> Option<()> {
    let (size, mut at) = varint(bytes)?;
    let end = usize::try_from(size).ok()?;
    let mut body = end;
    for place in wanted {
        if at >= end {
            // Columns that were added later are not stored in older rows.
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

/// A signed number of up to eight bytes.
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
    use super::*;

    /// What SQLite says, row by row, beside what the pages say.
    fn both(path: &Path, table: &str, columns: &[&str]) -> (Vec<Vec<Cell>>, Vec<Vec<Cell>>) {
        let database = Connection::open(path).unwrap();
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
                // Of all lengths, some over many pages; numbers of all sizes and signs.
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
                // Behind the first page, which tells SQLite where the table is.
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
            };
            let mut rows = 0;
            let result = table.rows(&mut |_: &[Cell]| rows += 1);
            damaged += u32::from(result.is_err());
            assert!(rows < 100_000);
        }
        assert!(damaged > 50, "{damaged}");
        std::fs::write(&path, &good[..good.len() / 2]).unwrap();
        let database = Connection::open(&path).unwrap();
        let cut = each(&database, &path, "t", &["a"], |_| {});
        assert!(cut.is_err());
    }
}
