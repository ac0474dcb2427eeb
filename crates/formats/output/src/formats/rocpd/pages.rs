//! Pages of a SQLite file, written one behind the other (source: sqlite.org/fileformat2.html).
//!
//! Nearly all of a rocpd file are a few tables with a row for each thing that happened, and their
//! rows come in the order of their ids or are sorted first. Inserting each through SQLite takes
//! several times as long as writing the pages of such a table from left to right. So SQLite makes
//! the schema and all small tables, and [`Tree`] fills the pages of the large ones.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The size of a page.
pub(super) const PAGE: usize = 4096;
/// SQLite locks bytes from here on, and uses no page that has them.
const LOCK_PAGE: u32 = (0x4000_0000 / PAGE + 1) as u32;
/// The greatest number of a page.
const LAST_PAGE: u32 = 0xffff_fffe;
/// The number of bytes that are gathered before a write.
const BLOCK: usize = 64 * PAGE;

/// The kinds of pages.
mod kind {
    pub(super) const INNER_INDEX: u8 = 2;
    pub(super) const INNER_TABLE: u8 = 5;
    pub(super) const LEAF_INDEX: u8 = 10;
    pub(super) const LEAF_TABLE: u8 = 13;
}

/// The end of a file, where new pages are appended while SQLite does not write to it.
pub(super) struct Pages {
    file: File,
    buffer: Vec<u8>,
    /// The number of the first page in the buffer, and of the next page.
    first: u32,
    next: u32,
}

impl Pages {
    /// Appends to a file that SQLite has written.
    pub(super) fn after(file: File) -> io::Result<Pages> {
        let pages = file.metadata()?.len() / PAGE as u64;
        let next = u32::try_from(pages + 1).map_err(|_| too_large())?;
        Ok(Pages {
            file,
            buffer: Vec::with_capacity(BLOCK + PAGE),
            first: next,
            next,
        })
    }

    /// Appends a page and returns its number.
    fn put(&mut self, page: &[u8; PAGE]) -> io::Result<u32> {
        if self.next == LOCK_PAGE {
            self.buffer.extend_from_slice(&[0; PAGE]);
            self.next += 1;
        }
        let number = self.next;
        if number > LAST_PAGE {
            return Err(too_large());
        }
        self.next += 1;
        self.buffer.extend_from_slice(page);
        if self.buffer.len() >= BLOCK {
            self.flush()?;
        }
        Ok(number)
    }

    /// Appends the end of a long row, and returns the number of its first page. Each page starts with
    /// the number of the next one.
    fn put_rest(&mut self, rest: &[u8]) -> io::Result<u32> {
        let mut next = 0;
        let parts: Vec<&[u8]> = rest.chunks(PAGE - 4).collect();
        for part in parts.into_iter().rev() {
            let mut page = [0; PAGE];
            let used = u32::to_be_bytes(next)
                .into_iter()
                .chain(part.iter().copied());
            for (to, from) in page.iter_mut().zip(used) {
                *to = from;
            }
            next = self.put(&page)?;
        }
        Ok(next)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, offset(self.first))?;
        self.buffer.clear();
        self.first = self.next;
        Ok(())
    }

    /// Writes a page that SQLite has made.
    fn over(&mut self, number: u32, page: &[u8; PAGE]) -> io::Result<()> {
        self.file.write_all_at(page, offset(number))
    }

    /// Writes what is left, and tells SQLite that the file has changed and how long it is.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        let mut changes = [0; 4];
        self.file.read_exact_at(&mut changes, 24)?;
        let changes = u32::from_be_bytes(changes).wrapping_add(1).to_be_bytes();
        self.file.write_all_at(&changes, 24)?;
        self.file.write_all_at(&(self.next - 1).to_be_bytes(), 28)?;
        self.file.write_all_at(&changes, 92)
    }
}

fn offset(number: u32) -> u64 {
    u64::from(number.saturating_sub(1)) * PAGE as u64
}

fn too_large() -> io::Error {
    io::Error::from(io::ErrorKind::FileTooLarge)
}

/// A page that is being filled: pointers from the front, cells from the back.
struct Page {
    bytes: Box<[u8; PAGE]>,
    /// Where the pointers start, behind the head.
    head: usize,
    cells: usize,
    top: usize,
}

impl Page {
    fn new(kind: u8) -> Page {
        let mut bytes = Box::new([0; PAGE]);
        bytes[0] = kind;
        let is_leaf = matches!(kind, kind::LEAF_INDEX | kind::LEAF_TABLE);
        Page {
            bytes,
            head: if is_leaf { 8 } else { 12 },
            cells: 0,
            top: PAGE,
        }
    }

    fn clear(&mut self) {
        self.cells = 0;
        self.top = PAGE;
    }

    /// Whether cells with so many bytes fit.
    fn fits(&self, cells: usize, bytes: usize) -> bool {
        self.head + 2 * (self.cells + cells) + bytes <= self.top
    }

    /// Adds a cell that fits.
    fn add(&mut self, parts: [&[u8]; 3]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.top = self.top.saturating_sub(len);
        let mut at = self.top;
        for part in parts {
            if let Some(to) = self.bytes.get_mut(at..at + part.len()) {
                to.copy_from_slice(part);
            }
            at += part.len();
        }
        let pointer = self.head + 2 * self.cells;
        if let Some(to) = self.bytes.get_mut(pointer..pointer + 2) {
            to.copy_from_slice(&(self.top as u16).to_be_bytes());
        }
        self.cells += 1;
    }

    /// Writes the head, and returns the page. `right` is the child behind all cells.
    fn end(&mut self, right: Option<u32>) -> &[u8; PAGE] {
        let used = self.head + 2 * self.cells;
        if let Some(gap) = self.bytes.get_mut(used..self.top) {
            gap.fill(0);
        }
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(to) = self.bytes.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
        };
        put(3, &(self.cells as u16).to_be_bytes());
        put(5, &(self.top as u16).to_be_bytes());
        if let Some(right) = right {
            put(8, &right.to_be_bytes());
        }
        &self.bytes
    }
}

/// What separates a page from the next one: a table's greatest id in it, or an index's entry between
/// them.
type Divider = Vec<u8>;

/// Pages of a level above the leaves that are not written yet.
#[derive(Default)]
struct Level {
    children: Vec<(u32, Divider)>,
    bytes: usize,
}

/// The table or index whose pages are written, in the order of its keys.
pub(super) struct Tree {
    is_table: bool,
    root: u32,
    leaf: Page,
    /// The id of the last row.
    last: i64,
    /// An index's last entry. It becomes the divider if it does not fit into the page.
    held: Vec<u8>,
    levels: Vec<Level>,
}

impl Tree {
    /// Starts a table, whose root SQLite has made.
    pub(super) fn table(root: u32) -> Tree {
        Tree::new(root, true)
    }

    /// Starts an index, whose root SQLite has made.
    pub(super) fn index(root: u32) -> Tree {
        Tree::new(root, false)
    }

    fn new(root: u32, is_table: bool) -> Tree {
        let of = if is_table {
            kind::LEAF_TABLE
        } else {
            kind::LEAF_INDEX
        };
        Tree {
            is_table,
            root,
            leaf: Page::new(of),
            last: 0,
            held: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// Adds a row of a table. Its id is greater than the ids of all rows before.
    pub(super) fn row(&mut self, pages: &mut Pages, id: i64, record: &[u8]) -> io::Result<()> {
        let here = kept_in_leaf(record.len());
        let (record, rest) = record.split_at_checked(here).unwrap_or((record, &[]));
        let rest_at = match rest {
            [] => None,
            rest => Some(pages.put_rest(rest)?.to_be_bytes()),
        };
        let mut head = [0; 18];
        let mut len = varint(&mut head, 0, (record.len() + rest.len()) as u64);
        len = varint(&mut head, len, id.cast_unsigned());
        let head = head.get(..len).unwrap_or_default();
        let tail = rest_at.as_ref().map_or(&[][..], |at| &at[..]);
        if !self.leaf.fits(1, len + record.len() + tail.len()) {
            let number = pages.put(self.leaf.end(None))?;
            self.leaf.clear();
            let mut divider = [0; 9];
            let len = varint(&mut divider, 0, self.last.cast_unsigned());
            let divider = divider.get(..len).unwrap_or_default().to_vec();
            self.child(pages, 0, number, divider)?;
        }
        self.leaf.add([head, record, tail]);
        self.last = id;
        Ok(())
    }

    /// Adds an entry of an index, a short one that is not less than those before.
    pub(super) fn entry(&mut self, pages: &mut Pages, record: &[u8]) -> io::Result<()> {
        let mut cell = [0; 9];
        let len = varint(&mut cell, 0, record.len() as u64);
        let new = [cell.get(..len).unwrap_or_default(), record].concat();
        let held = std::mem::replace(&mut self.held, new);
        if held.is_empty() {
            return Ok(());
        }
        // The new entry may be the last one, and then it has to fit, too.
        if self.leaf.fits(2, held.len() + self.held.len()) {
            self.leaf.add([&held, &[], &[]]);
            return Ok(());
        }
        let number = pages.put(self.leaf.end(None))?;
        self.leaf.clear();
        self.child(pages, 0, number, held)
    }

    /// Adds a page that is complete to the level above it.
    fn child(
        &mut self,
        pages: &mut Pages,
        at: usize,
        number: u32,
        divider: Divider,
    ) -> io::Result<()> {
        if self.levels.len() <= at {
            self.levels.push(Level::default());
        }
        let Some(level) = self.levels.get_mut(at) else {
            return Ok(());
        };
        let size = divider.len() + 6;
        if level.bytes + size <= PAGE - 12 {
            level.bytes += size;
            level.children.push((number, divider));
            return Ok(());
        }
        // The last child starts the next page, so that no page is without cells.
        let kept = level.children.pop();
        let right = level.children.pop();
        let full = std::mem::take(&mut level.children);
        level.bytes = size + kept.as_ref().map_or(0, |(_, divider)| divider.len() + 6);
        level.children.extend(kept);
        level.children.push((number, divider));
        let Some((right, above)) = right else {
            return Ok(());
        };
        let mut page = self.inner(&full);
        let number = pages.put(page.end(Some(right)))?;
        self.child(pages, at + 1, number, above)
    }

    fn inner(&self, children: &[(u32, Divider)]) -> Page {
        let mut page = Page::new(match self.is_table {
            true => kind::INNER_TABLE,
            false => kind::INNER_INDEX,
        });
        for (number, divider) in children {
            page.add([&number.to_be_bytes(), divider, &[]]);
        }
        page
    }

    /// Writes what is left, the root last.
    pub(super) fn finish(mut self, pages: &mut Pages) -> io::Result<()> {
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            self.leaf.add([&held, &[], &[]]);
        }
        if self.leaf.cells == 0 {
            return Ok(());
        }
        let above = std::mem::take(&mut self.levels);
        let Some((top, lower)) = above.split_last() else {
            return pages.over(self.root, self.leaf.end(None));
        };
        let mut right = pages.put(self.leaf.end(None))?;
        for level in lower {
            right = pages.put(self.inner(&level.children).end(Some(right)))?;
        }
        pages.over(self.root, self.inner(&top.children).end(Some(right)))
    }
}

/// Returns how many bytes of a table's row are in its leaf.
fn kept_in_leaf(len: usize) -> usize {
    let most = PAGE - 35;
    if len <= most {
        return len;
    }
    let least = (PAGE - 12) * 32 / 255 - 23;
    let kept = least + (len - least) % (PAGE - 4);
    if kept <= most { kept } else { least }
}

/// Writes a number with a variable length at a place, and returns the place behind it.
#[inline]
pub(super) fn varint(out: &mut [u8], at: usize, number: u64) -> usize {
    // Nearly all of them are short.
    if number < 0x80
        && let Some(to) = out.get_mut(at)
    {
        *to = number as u8;
        return at + 1;
    }
    if number < 0x4000
        && let Some(to) = out.get_mut(at..at + 2)
    {
        to.copy_from_slice(&[(number >> 7) as u8 | 0x80, number as u8 & 0x7f]);
        return at + 2;
    }
    long_varint(out, at, number)
}

fn long_varint(out: &mut [u8], at: usize, number: u64) -> usize {
    let mut put = |at: usize, byte: u8| {
        if let Some(to) = out.get_mut(at) {
            *to = byte;
        }
    };
    if number >> 56 != 0 {
        // The ninth byte has eight bits.
        for (place, byte) in (at..at + 8).enumerate() {
            put(byte, (number >> (57 - 7 * place)) as u8 | 0x80);
        }
        put(at + 8, number as u8);
        return at + 9;
    }
    let len = (64 - (number | 1).leading_zeros() as usize).div_ceil(7);
    for place in 0..len {
        let more = if place + 1 < len { 0x80 } else { 0 };
        put(
            at + place,
            (number >> (7 * (len - 1 - place))) as u8 & 0x7f | more,
        );
    }
    at + len
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::*;
    use rusqlite::Connection;

    const SCHEMA: &str =
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b INTEGER); CREATE INDEX i ON t (b);";

    /// Lengths on both sides of what fits into a leaf, and of what fits into one more page.
    fn length(number: usize) -> usize {
        const ODD: [usize; 10] = [0, 1, 4050, 4055, 4060, 4065, 4600, 8140, 8190, 100_000];
        match number % 500 {
            0 => ODD.get(number / 500 % 10).copied().unwrap_or(0),
            _ => number % 90,
        }
    }

    /// Writes rows and the entries of an index, and lets SQLite check and use them.
    fn written(rows: usize) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let database = Connection::open(&path).unwrap();
        let pragma = format!("PRAGMA page_size = {PAGE}; {SCHEMA}");
        database.execute_batch(&pragma).unwrap();
        let root = |name: &str| -> u32 {
            let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?";
            database.query_row(sql, [name], |row| row.get(0)).unwrap()
        };
        let (mut table, mut index) = (Tree::table(root("t")), Tree::index(root("i")));
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path);
        let mut pages = Pages::after(file.unwrap()).unwrap();
        let mut record = Record::default();
        let id = |number: usize| number as i64 * 3 - 100;
        let b = |number: usize| (number as i64 - 5) << (number / 1000 % 50);
        let mut entries = Vec::new();
        let mut bytes = 0;
        for number in 0..rows {
            let text = "x".repeat(length(number));
            bytes += text.len();
            record.clear().null().text(&text).number(b(number));
            table.row(&mut pages, id(number), record.end()).unwrap();
            entries.push((b(number), id(number)));
        }
        table.finish(&mut pages).unwrap();
        entries.sort_unstable();
        for (b, id) in entries {
            let entry = record.clear().number(b).number(id).end();
            index.entry(&mut pages, entry).unwrap();
        }
        index.finish(&mut pages).unwrap();
        pages.finish().unwrap();
        for more in 0..2 {
            let mut check = database.prepare("PRAGMA integrity_check").unwrap();
            let found: String = check.query_row([], |row| row.get(0)).unwrap();
            assert_eq!(found, "ok", "{rows} rows and {more}");
            let sum = "SELECT COUNT(*), IFNULL(SUM(LENGTH(a)), 0) FROM t";
            let found: (i64, i64) = database
                .query_row(sum, [], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap();
            assert_eq!(found, ((rows + more) as i64, bytes as i64));
            for number in (0..rows).step_by(rows / 7 + 1) {
                let sql = "SELECT a FROM t WHERE b = ? AND id = ?";
                let a: String = database
                    .query_row(sql, [b(number), id(number)], |row| row.get(0))
                    .unwrap();
                assert_eq!(a.len(), length(number));
            }
            // SQLite goes on where we ended.
            database
                .execute("INSERT INTO t (a, b) VALUES ('', 7)", [])
                .unwrap();
        }
    }

    #[test]
    fn sqlite_reads_and_continues_what_was_written() {
        for rows in [0, 1, 2, 40, 41, 42, 150, 600, 2_000, 60_000] {
            written(rows);
        }
    }

    #[test]
    fn the_page_that_sqlite_locks_is_left_out() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(offset(LOCK_PAGE - 1)).unwrap();
        let mut pages = Pages::after(file).unwrap();
        let numbers: Vec<u32> = (0..3).map(|_| pages.put(&[1; PAGE]).unwrap()).collect();
        assert_eq!(numbers, [LOCK_PAGE - 1, LOCK_PAGE + 1, LOCK_PAGE + 2]);
        pages.finish().unwrap();
        assert_eq!(pages.file.metadata().unwrap().len(), offset(LOCK_PAGE + 3));
    }

    #[test]
    fn numbers_are_as_long_as_they_need() {
        for (number, wanted) in [
            (0, &[0_u8][..]),
            (127, &[127]),
            (128, &[0x81, 0]),
            (16_383, &[0xff, 0x7f]),
            (16_384, &[0x81, 0x80, 0]),
            (
                u64::MAX >> 8,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            ),
            (u64::MAX, &[0xff; 9]),
            (
                1 << 56,
                &[0x80, 0xc0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0][..],
            ),
        ] {
            let mut out = [0; 9];
            let len = varint(&mut out, 0, number);
            assert_eq!(&out[..len], wanted, "{number}");
        }
    }

    /// With dividers of nine bytes a child takes fifteen: 272 of them fit behind a head of twelve.
    /// Of a page that is full the last child starts the next page, and the one before that stands
    /// behind all cells.
    #[test]
    fn inner_pages_are_full_and_have_each_child_once() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(offset(3)).unwrap();
        let mut pages = Pages::after(file).unwrap();
        let mut tree = Tree::table(2);
        let first = 1000;
        for number in first..first + 2000 {
            tree.child(&mut pages, 0, number, vec![1; 9]).unwrap();
        }
        pages.flush().unwrap();
        let mut found = Vec::new();
        let mut page = [0; PAGE];
        let at = |page: &[u8; PAGE], at: usize| {
            u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
        };
        // The 273rd child ends the first page, and each 271 more the next one.
        for number in 3..3 + 7 {
            pages.file.read_exact_at(&mut page, offset(number)).unwrap();
            let cells = u16::from_be_bytes([page[3], page[4]]);
            assert_eq!((page[0], cells), (kind::INNER_TABLE, 270), "{number}");
            for cell in 0..usize::from(cells) {
                let pointer = u16::from_be_bytes([page[12 + 2 * cell], page[13 + 2 * cell]]);
                found.push(at(&page, pointer.into()));
            }
            found.push(at(&page, 8));
        }
        assert_eq!(pages.next, 10);
        assert_eq!(found, (first..first + 7 * 271).collect::<Vec<_>>());
    }
}
