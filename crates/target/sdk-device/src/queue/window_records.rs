//! Writes the records of windows. They are the same for all ways to count: around chosen dispatches
//! ([`super::windows`]), around every dispatch ([`super::serialized`]), and on whole devices
//! ([`super::device`]).

use crate::sink::Sink;
use midair_record::event::{CounterWindow, Header, MAX_RECORD, Plain, kind};

/// The largest number of words in one record.
const RECORD_WORDS: usize = (MAX_RECORD - size_of::<CounterWindow>()) / 8;

/// Numbers windows and writes their records. There is one for each session and way to count.
#[derive(Debug, Default)]
pub(super) struct Writer {
    written: u64,
    /// The bytes of a record.
    bytes: Vec<u8>,
}

impl Writer {
    /// Makes a writer that has written nothing.
    pub(super) const fn new() -> Writer {
        Writer {
            written: 0,
            bytes: Vec::new(),
        }
    }

    /// Returns the number of windows that were written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes a window with its values, in as many records as that takes; a window without values
    /// takes one. The header, the window's number and the fields about the words are filled in
    /// here.
    pub(super) fn put(
        &mut self,
        sink: &mut Sink,
        mut window: CounterWindow,
        mut words: impl ExactSizeIterator<Item = u64>,
    ) {
        self.written += 1;
        window.window = self.written;
        window.total = words.len() as u32;
        window.first = 0;
        loop {
            let count = words.len().min(RECORD_WORDS);
            window.words = count as u32;
            window.header = Header {
                size: (size_of::<CounterWindow>() + 8 * count) as u16,
                kind: kind::COUNTER_COLLECTION,
                ..Header::default()
            };
            self.bytes.clear();
            self.bytes.extend_from_slice(window.bytes());
            for word in words.by_ref().take(count) {
                self.bytes.extend_from_slice(&word.to_ne_bytes());
            }
            sink.put(kind::COUNTER_COLLECTION, &self.bytes);
            window.first += count as u32;
            if window.first >= window.total {
                break;
            }
        }
    }
}

/// Returns whether these can be a window's times: the start and the end of the packet that starts
/// the counters, then the start and the end of the packet that reads them.
pub(super) fn is_plausible([begin, start, end, read_end]: [u64; 4]) -> bool {
    begin != 0 && start >= begin && end >= start && read_end >= end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::model::Session;
    use midair_record::event::WindowResult;

    /// Returns what was written: the window and its words.
    fn written(session: &mut Session) -> Vec<(CounterWindow, Vec<u64>)> {
        let mut all = Vec::new();
        session.records(|header, bytes| {
            assert_eq!(header.kind, kind::COUNTER_COLLECTION);
            let words = bytes[size_of::<CounterWindow>()..usize::from(header.size)].chunks(8);
            let words = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
            all.push((CounterWindow::read(bytes).unwrap(), words.collect()));
        });
        all
    }

    #[test]
    fn a_window_takes_as_many_records_as_its_words_need() {
        let mut session = Session::begin();
        let mut writer = Writer::new();
        let most = RECORD_WORDS as u64;
        for (number, total) in (1..).zip([0, 1, most, most + 1, 3 * most]) {
            let window = CounterWindow {
                node: 4,
                result: WindowResult::Counted as u32,
                ..CounterWindow::default()
            };
            writer.put(
                &mut session.sink,
                window,
                (0..total as usize).map(|word| word as u64),
            );
            assert_eq!(writer.written(), number);
            let records = written(&mut session);
            assert_eq!(records.len() as u64, total.div_ceil(most).max(1), "{total}");
            let mut all = Vec::new();
            for (window, words) in records {
                assert_eq!((window.window, window.node), (number, 4));
                assert_eq!(u64::from(window.total), total);
                assert_eq!(window.first as usize, all.len());
                assert_eq!(window.words as usize, words.len());
                all.extend(words);
            }
            assert!(all.into_iter().eq(0..total), "{total}");
        }
    }

    #[test]
    fn times_of_a_window_follow_one_another() {
        assert!(is_plausible([1, 1, 1, 1]) && is_plausible([1, 2, 3, 4]));
        for times in [[0, 2, 3, 4], [3, 2, 3, 4], [1, 4, 3, 4], [1, 2, 3, 2]] {
            assert!(!is_plausible(times), "{times:?}");
        }
    }
}
