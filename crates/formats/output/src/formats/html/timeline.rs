//! The timeline of the page: spans on rows, in bounded memory.
//!
//! Up to [`MOST_SPANS`] spans are kept as they are. When there are more, the short ones of a row are
//! merged by buckets of time, and a merged span has their number, the sum of their times and the
//! name of the longest. The buckets are twice as wide each time that there are too many spans again.
//! So the page has a bounded size, and shows each row everywhere, however many records there are.

use foldhash::fast::RandomState;
use midair_trace::limits;
use std::collections::HashMap;
use std::hash::Hash;

/// The most spans on a page.
pub(super) const MOST_SPANS: usize = 200_000;
/// The most rows. Further rows share one.
const MOST_ROWS: usize = 1024;
/// The most names, and the most bytes of them. Further names share one.
const MOST_NAMES: usize = 1 << 14;
const MOST_NAME_BYTES: usize = 4 << 20;
/// The most bytes of one name.
const LONGEST_NAME: usize = 1024;
/// The number of buckets when spans are merged for the first time.
const FIRST_BUCKETS: u64 = 1 << 16;
/// No span has this number.
const NONE: u32 = u32::MAX;

/// What a span is. The page colours and describes spans by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Category {
    Kernel,
    Copy,
    Call,
    Range,
    Wait,
    Memory,
    Driver,
}

impl Category {
    pub(super) fn text(self) -> &'static str {
        match self {
            Category::Kernel => "kernel",
            Category::Copy => "copy",
            Category::Call => "call",
            Category::Range => "range",
            Category::Wait => "wait",
            Category::Memory => "memory",
            Category::Driver => "driver",
        }
    }
}

/// What a row shows. Rows are shown in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    /// Iterations of the program's main loop.
    Steps,
    /// The phases of these.
    Phases,
    /// Work on a stream of a node.
    Stream(u32, u64),
    /// Kernels of a queue of a node.
    Queue(u32, u32),
    /// Copies to a node.
    CopyTo(u32),
    /// Changes of scratch memory on a node.
    Scratch(u32),
    /// The main thread.
    Main,
    /// Another thread.
    Thread(u32),
    /// ROCTx or NVTX ranges of the process.
    Ranges,
    /// Records of a kind with a row of its own.
    Own(u8),
    /// All rows beyond the limit.
    Others,
}

/// A row, and the process to which it belongs.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) process: usize,
    pub(super) key: Key,
    pub(super) name: String,
    /// The last short span, while spans are merged.
    last: u32,
}

/// A span, or several that were merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) row: u32,
    /// The name; of several, the longest one's.
    pub(super) name: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Nanoseconds of all.
    pub(super) sum: u64,
    /// Nanoseconds of the longest.
    pub(super) longest: u64,
    /// How many there are.
    pub(super) count: u64,
    /// The dispatch's number or the bytes, or 0.
    pub(super) value: u64,
}

impl Span {
    fn merge(&mut self, other: &Span) {
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.sum = self.sum.saturating_add(other.sum);
        self.count += other.count;
        if other.longest > self.longest {
            (self.longest, self.name) = (other.longest, other.name);
        }
    }
}

/// The rows, names and spans of all sessions.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) rows: Vec<Row>,
    by_key: HashMap<(usize, Key), u32, RandomState>,
    pub(super) names: Vec<(Category, String)>,
    by_name: HashMap<(Category, String), u32, RandomState>,
    name_bytes: usize,
    pub(super) spans: Vec<Span>,
    /// The nanoseconds of a bucket, or 0 as long as nothing was merged.
    pub(super) width: u64,
    /// The number of spans that were added.
    pub(super) added: u64,
}

impl Timeline {
    /// Returns the number of a row, which gets its name when it is used for the first time.
    pub(super) fn row(&mut self, process: usize, key: Key, name: impl FnOnce() -> String) -> u32 {
        if let Some(row) = self.by_key.get(&(process, key)) {
            return *row;
        }
        let (process, key, name) = if self.rows.len() < MOST_ROWS {
            (process, key, name())
        } else {
            (0, Key::Others, "(further rows)".to_owned())
        };
        if let Some(row) = self.by_key.get(&(process, key)) {
            return *row;
        }
        let row = self.rows.len() as u32;
        self.by_key.insert((process, key), row);
        let name = limits::cut(name.into(), LONGEST_NAME).into_owned();
        self.rows.push(Row {
            process,
            key,
            name,
            last: NONE,
        });
        row
    }

    /// Returns the number of a name.
    pub(super) fn name(&mut self, category: Category, name: &str) -> u32 {
        let name = limits::cut(name.into(), LONGEST_NAME);
        let key = (category, name.into_owned());
        if let Some(number) = self.by_name.get(&key) {
            return *number;
        }
        const FURTHER: &str = "(further names)";
        let is_full = self.names.len() >= MOST_NAMES || self.name_bytes >= MOST_NAME_BYTES;
        if is_full && key.1 != FURTHER {
            return self.name(category, FURTHER);
        }
        let number = self.names.len() as u32;
        self.name_bytes += key.1.len();
        self.names.push(key.clone());
        self.by_name.insert(key, number);
        number
    }

    /// Adds what took place between two times.
    pub(super) fn add(&mut self, row: u32, name: u32, (start, end): (u64, u64), value: u64) {
        let end = end.max(start);
        let time = end - start;
        let span = Span {
            row,
            name,
            start,
            end,
            sum: time,
            longest: time,
            count: 1,
            value,
        };
        self.added += 1;
        if self.merges(&span) {
            return;
        }
        if self.spans.len() >= MOST_SPANS {
            self.fold();
        }
        if self.is_short(&span)
            && let Some(row) = self.rows.get_mut(row as usize)
        {
            row.last = self.spans.len() as u32;
        }
        self.spans.push(span);
    }

    /// Whether spans of this length are merged.
    fn is_short(&self, span: &Span) -> bool {
        span.count > 1 || span.end - span.start < self.width
    }

    /// Merges a span into the last short one of its row, if both are in one bucket. Records come
    /// nearly in the order of time, so that most are merged here.
    fn merges(&mut self, span: &Span) -> bool {
        if self.width == 0 || !self.is_short(span) {
            return false;
        }
        let row = self.rows.get(span.row as usize);
        let last = row.map_or(NONE, |row| row.last) as usize;
        let width = self.width;
        match self.spans.get_mut(last) {
            Some(last) if last.start / width == span.start / width => {
                last.merge(span);
                true
            }
            _ => false,
        }
    }

    /// Merges spans until at most half as many are left as there may be.
    fn fold(&mut self) {
        let first = self.spans.iter().map(|span| span.start).min().unwrap_or(0);
        let last = self.spans.iter().map(|span| span.end).max().unwrap_or(0);
        loop {
            self.width = match self.width {
                0 => (last - first) / FIRST_BUCKETS + 1,
                width => width.saturating_mul(2),
            };
            self.merge_all();
            if self.spans.len() <= MOST_SPANS / 2 || self.width == u64::MAX {
                break;
            }
        }
        for row in &mut self.rows {
            row.last = NONE;
        }
    }

    fn merge_all(&mut self) {
        self.sort();
        let mut kept: Vec<Span> = Vec::with_capacity(self.spans.len() / 2);
        // The place of the short span that is open in the present bucket.
        let mut open: Option<usize> = None;
        for span in std::mem::take(&mut self.spans) {
            if !self.is_short(&span) {
                kept.push(span);
                continue;
            }
            let known = open.and_then(|place| kept.get_mut(place));
            match known {
                Some(known)
                    if known.row == span.row
                        && known.start / self.width == span.start / self.width =>
                {
                    known.merge(&span);
                }
                _ => {
                    open = Some(kept.len());
                    kept.push(span);
                }
            }
        }
        self.spans = kept;
    }

    /// Sorts the spans by row and time, outer ones before inner ones.
    pub(super) fn sort(&mut self) {
        self.spans
            .sort_by_key(|span| (span.row, span.start, u64::MAX - span.end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(spans: u64, step: u64, time: u64) -> Timeline {
        let mut timeline = Timeline::default();
        let rows = [1, 2].map(|tid| timeline.row(0, Key::Thread(tid), || format!("thread {tid}")));
        let name = timeline.name(Category::Call, "hipLaunchKernel");
        for number in 0..spans {
            let start = 1_000_000 + number * step;
            timeline.add(rows[number as usize % 2], name, (start, start + time), 0);
        }
        timeline
    }

    #[test]
    fn a_page_may_have_so_many_spans_as_they_are() {
        let timeline = timeline(MOST_SPANS as u64, 1000, 400);
        assert_eq!((timeline.spans.len(), timeline.width), (MOST_SPANS, 0));
        assert!(timeline.spans.iter().all(|span| span.count == 1));
    }

    /// Whatever is merged, none is lost: numbers and times stay.
    #[test]
    fn beyond_that_short_spans_are_merged_and_counted() {
        for spans in [200_001, 1_000_003, 3_000_000] {
            let timeline = timeline(spans, 1000, 400);
            assert!(timeline.spans.len() <= MOST_SPANS, "{spans}");
            assert!(timeline.spans.len() > 1000, "{spans}");
            let sum = |of: fn(&Span) -> u64| timeline.spans.iter().map(of).sum::<u64>();
            assert_eq!(sum(|span| span.count), spans);
            assert_eq!(sum(|span| span.sum), spans * 400);
            assert_eq!(timeline.added, spans);
            let longest = timeline.spans.iter().map(|span| span.end - span.start);
            assert!(longest.max() < Some(3 * timeline.width));
        }
    }

    #[test]
    fn a_long_span_stays_while_short_ones_are_merged() {
        let mut timeline = timeline(1000, 1_000_000, 400);
        let row = timeline.row(0, Key::Thread(1), String::new);
        let name = timeline.name(Category::Call, "hipDeviceSynchronize");
        timeline.add(row, name, (5_000_000, 500_000_000), 0);
        for number in 0..300_000 {
            timeline.add(row, name, (600_000_000 + number, 600_000_001 + number), 0);
        }
        let long: Vec<&Span> = timeline
            .spans
            .iter()
            .filter(|s| s.sum > 1_000_000)
            .collect();
        assert_eq!(long.len(), 1);
        assert_eq!((long[0].count, long[0].name), (1, name));
    }

    /// Spans that all cover everything, as a target can invent them.
    #[test]
    fn spans_of_any_length_fit() {
        let mut timeline = Timeline::default();
        for number in 0..500_000_u64 {
            let key = Key::Thread(number as u32 % 5000);
            let row = timeline.row(number as usize % 3, key, String::new);
            let name = timeline.name(Category::Range, &format!("range {number}"));
            timeline.add(row, name, (number % 7, u64::MAX - number % 5), 0);
        }
        assert!(timeline.spans.len() <= MOST_SPANS);
        assert!(timeline.rows.len() <= MOST_ROWS + 1);
        assert!(timeline.names.len() <= MOST_NAMES + 8);
        assert_eq!(timeline.spans.iter().map(|s| s.count).sum::<u64>(), 500_000);
    }

    /// Returns a span that was merged from `count` of `time` ns each.
    fn span(row: u32, name: u32, (start, end): (u64, u64), count: u64, time: u64) -> Span {
        Span {
            row,
            name,
            start,
            end,
            sum: time * count,
            longest: time,
            count,
            value: 0,
        }
    }

    #[test]
    fn each_category_has_its_word() {
        let words = [
            (Category::Kernel, "kernel"),
            (Category::Copy, "copy"),
            (Category::Call, "call"),
            (Category::Range, "range"),
            (Category::Wait, "wait"),
            (Category::Memory, "memory"),
            (Category::Driver, "driver"),
        ];
        for (category, word) in words {
            assert_eq!(category.text(), word);
        }
    }

    #[test]
    fn a_merged_span_has_the_name_of_the_longest() {
        let short = span(0, 1, (100, 110), 1, 10);
        let long = span(0, 2, (120, 150), 2, 15);
        let wanted = Span {
            row: 0,
            name: 2,
            start: 100,
            end: 150,
            sum: 40,
            longest: 15,
            count: 3,
            value: 0,
        };
        for (mut one, other) in [(short, long), (long, short)] {
            one.merge(&other);
            assert_eq!(one, wanted);
        }
        // Of equally long ones, the first gives the name.
        let mut first = short;
        first.merge(&span(0, 3, (200, 210), 1, 10));
        assert_eq!((first.name, first.longest, first.count), (1, 10, 2));
    }

    #[test]
    fn a_name_has_one_number_in_each_category() {
        let mut timeline = Timeline::default();
        let call = timeline.name(Category::Call, "hipFree");
        let range = timeline.name(Category::Range, "hipFree");
        let other = timeline.name(Category::Call, "hipMalloc");
        assert_eq!((call, range, other), (0, 1, 2));
        assert_eq!(timeline.name(Category::Range, "hipFree"), range);
        let names = [
            (Category::Call, "hipFree"),
            (Category::Range, "hipFree"),
            (Category::Call, "hipMalloc"),
        ];
        assert_eq!(
            timeline.names,
            names.map(|(of, name)| (of, name.to_owned()))
        );
    }

    #[test]
    fn names_beyond_their_number_or_bytes_share_one() {
        let number = |n: usize| format!("{n}");
        let long = |n: usize| format!("{n:0LONGEST_NAME$}");
        let by_number: (usize, &dyn Fn(usize) -> String) = (MOST_NAMES, &number);
        for (most, name) in [by_number, (MOST_NAME_BYTES / LONGEST_NAME, &long)] {
            let mut timeline = Timeline::default();
            for n in 0..most {
                assert_eq!(timeline.name(Category::Call, &name(n)), n as u32);
            }
            let further = most as u32;
            for n in [most, most + 1] {
                assert_eq!(timeline.name(Category::Call, &name(n)), further);
            }
            assert_eq!(timeline.names[most].1, "(further names)");
            assert_eq!(timeline.names.len(), most + 1);
            // Those that were there keep their numbers.
            assert_eq!(timeline.name(Category::Call, &name(most - 1)), further - 1);
        }
    }

    /// Returns a timeline in which spans below 100 ns are merged.
    fn merging() -> Timeline {
        let mut timeline = Timeline::default();
        for tid in [1, 2] {
            timeline.row(0, Key::Thread(tid), String::new);
        }
        timeline.width = 100;
        timeline
    }

    #[test]
    fn short_spans_of_one_row_and_bucket_are_merged_as_they_come() {
        let mut timeline = merging();
        for (row, start, end) in [
            (0, 1000, 1010),
            // A span of the other row, one as long as a bucket, and one before.
            (1, 1020, 1030),
            (0, 1030, 1130),
            (0, 1099, 1100),
            // The next bucket starts here.
            (0, 1100, 1101),
            (1, 1090, 1091),
        ] {
            timeline.add(row, 5, (start, end), 0);
        }
        let merged = |row, (start, end), sum, longest| Span {
            sum,
            longest,
            ..span(row, 5, (start, end), 2, 0)
        };
        assert_eq!(
            timeline.spans,
            [
                merged(0, (1000, 1100), 11, 10),
                merged(1, (1020, 1091), 11, 10),
                span(0, 5, (1030, 1130), 1, 100),
                span(0, 5, (1100, 1101), 1, 1),
            ]
        );
        assert_eq!(timeline.added, 6);
    }

    #[test]
    fn nothing_is_merged_before_there_is_a_width() {
        let mut timeline = merging();
        timeline.width = 0;
        for start in [10, 10, 11] {
            timeline.add(0, 5, (start, start), 0);
        }
        assert_eq!(timeline.spans.len(), 3);
    }

    #[test]
    fn all_short_spans_of_a_bucket_become_one() {
        let mut timeline = merging();
        timeline.spans = vec![
            span(0, 1, (1000, 1010), 1, 10),
            span(1, 2, (1010, 1020), 1, 10),
            // This one was merged before, so it goes on being merged, however much it covers.
            span(0, 3, (1020, 1195), 3, 20),
            span(0, 4, (1030, 1130), 1, 100),
            span(0, 5, (1205, 1206), 1, 1),
            span(0, 6, (1299, 1301), 1, 2),
        ];
        timeline.merge_all();
        let of = |span: &Span| {
            (
                span.row, span.name, span.start, span.end, span.count, span.sum,
            )
        };
        let found: Vec<_> = timeline.spans.iter().map(of).collect();
        assert_eq!(
            found,
            [
                (0, 3, 1000, 1195, 4, 70),
                (0, 4, 1030, 1130, 1, 100),
                (0, 6, 1205, 1301, 2, 3),
                (1, 2, 1010, 1020, 1, 10),
            ]
        );
    }

    /// The buckets are as many as there may be at first, and become wider until half as many spans
    /// are left as there may be.
    #[test]
    fn buckets_are_doubled_until_there_is_room() {
        let mut timeline = timeline(MOST_SPANS as u64, 1000, 400);
        timeline.fold();
        // All of it takes 199,999,400 ns, which are 65,536 times 3,051.7. Each bucket has spans of
        // both rows, which would be 131,072, so each is made as wide as two.
        assert_eq!(timeline.width, 2 * 3052);
        let buckets = 199_999_400_u64.div_ceil(2 * 3052) as usize;
        let left = timeline.spans.len();
        assert!(left.abs_diff(2 * buckets) <= 4, "{left}");
    }

    #[test]
    fn outer_spans_are_before_inner_ones() {
        // A machine that has been up for a month.
        const UP: u64 = 2_600_000_000_000_000;
        let mut timeline = Timeline::default();
        let [first, second] = [1, 2].map(|tid| timeline.row(0, Key::Thread(tid), String::new));
        let spans = [
            (second, UP, UP + 50),
            (first, UP + 10, UP + 20),
            (first, UP, UP + 10),
            (first, UP, UP + 1000),
            (first, UP, UP + 500),
        ];
        for (row, start, end) in spans {
            timeline.add(row, 0, (start, end), 0);
        }
        timeline.sort();
        let found: Vec<_> = timeline
            .spans
            .iter()
            .map(|span| (span.row, span.start - UP, span.end - UP))
            .collect();
        assert_eq!(
            found,
            [
                (first, 0, 1000),
                (first, 0, 500),
                (first, 0, 10),
                (first, 10, 20),
                (second, 0, 50),
            ]
        );
    }
}
