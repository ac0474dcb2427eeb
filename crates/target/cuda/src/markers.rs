//! NVTX ranges: CUPTI delivers a start and an end, and midair writes one record for both.
//!
//! A pushed range has the id 0 in both records, and ends when its thread next pops in the same
//! domain. A started range has an id of its own (seen with CUPTI 13.0; docs/sources.md#nvtx).

use std::collections::HashMap;

/// The maximum number of open ranges. Where there are more, the older half is left out and counted:
/// ranges that a program forgets to end are the oldest in the end.
const MOST_OPEN: usize = 65_536;
/// Maximum length of a message, in bytes.
const MOST_TEXT: usize = 1024;

/// Operation numbers of marker records: AMD's, within `MARKER_CORE_RANGE_API`.
pub mod operation {
    /// A mark.
    pub const MARK: u32 = 0;
    /// A range that was pushed and popped by one thread.
    pub const THREAD_RANGE: u32 = 1;
    /// A range that was started and stopped, possibly by different threads.
    pub const PROCESS_RANGE: u32 = 2;
}

/// A marker record as CUPTI delivers it.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Mark, start or end.
    pub kind: EventKind,
    /// CLOCK_BOOTTIME, ns.
    pub time: u64,
    /// 0, or the id of a started range.
    pub id: u32,
    /// Thread id.
    pub tid: u32,
    /// The message; empty at an end.
    pub name: &'a [u8],
    /// The domain's name; empty for the default domain.
    pub domain: &'a [u8],
}

/// Kind of a marker record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A mark.
    Mark,
    /// The start of a range.
    Begin,
    /// Its end.
    End,
}

/// A mark, or a range that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// A number of [`operation`].
    pub operation: u32,
    /// Start, ns.
    pub start: u64,
    /// End, ns.
    pub end: u64,
    /// Id; 0 for a pushed range.
    pub id: u32,
    /// Id of the thread that started it.
    pub tid: u32,
    /// `domain:message`, or the message alone.
    pub text: Vec<u8>,
}

/// Open ranges.
#[derive(Debug, Default)]
pub struct Markers {
    /// By thread and domain, innermost last.
    pushed: HashMap<(u32, Vec<u8>), Vec<Range>>,
    /// By id.
    started: HashMap<u32, Range>,
    open: usize,
    /// The number of ends whose start was before the session.
    pub unmatched_ends: u64,
    /// The number of ranges beyond the maximum.
    pub too_many: u64,
}

impl Markers {
    /// Takes a marker record, and returns the mark or range that it completes.
    pub fn add(&mut self, event: &Event<'_>) -> Option<Range> {
        match event.kind {
            EventKind::Mark => Some(begin(event, operation::MARK)),
            EventKind::Begin => {
                if self.open >= MOST_OPEN {
                    self.make_room();
                }
                self.open += 1;
                if event.id == 0 {
                    let stack = self.pushed.entry((event.tid, event.domain.to_vec()));
                    stack
                        .or_default()
                        .push(begin(event, operation::THREAD_RANGE));
                } else if self
                    .started
                    .insert(event.id, begin(event, operation::PROCESS_RANGE))
                    .is_some()
                {
                    self.open -= 1;
                }
                None
            }
            EventKind::End => {
                let range = if event.id == 0 {
                    let stack = self.pushed.get_mut(&(event.tid, event.domain.to_vec()));
                    stack.and_then(Vec::pop)
                } else {
                    self.started.remove(&event.id)
                };
                let Some(mut range) = range else {
                    self.unmatched_ends += 1;
                    return None;
                };
                self.open -= 1;
                range.end = event.time;
                Some(range)
            }
        }
    }

    /// Leaves out the older half of the open ranges.
    fn make_room(&mut self) {
        let pushed = self.pushed.values().flatten();
        let mut starts: Vec<u64> = pushed
            .chain(self.started.values())
            .map(|range| range.start)
            .collect();
        let (before, half) = (starts.len(), starts.len() / 2);
        if half >= before {
            return;
        }
        let (_, middle, _) = starts.select_nth_unstable(half);
        let middle = *middle;
        for stack in self.pushed.values_mut() {
            stack.retain(|range| range.start > middle);
        }
        self.pushed.retain(|_, stack| !stack.is_empty());
        self.started.retain(|_, range| range.start > middle);
        let left = self.pushed.values().map(Vec::len).sum::<usize>() + self.started.len();
        self.too_many += (before - left) as u64;
        self.open = left;
    }

    /// Takes the ranges that are open at the end of the session, at `time`.
    pub fn close(&mut self, time: u64) -> Vec<Range> {
        let pushed = self.pushed.drain().flat_map(|(_, stack)| stack);
        let mut left: Vec<Range> = pushed
            .chain(self.started.drain().map(|(_, range)| range))
            .collect();
        for range in &mut left {
            range.end = time.max(range.start);
        }
        left.sort_by_key(|range| range.start);
        self.open = 0;
        left
    }
}

fn begin(event: &Event<'_>, operation: u32) -> Range {
    let mut text = Vec::with_capacity(event.domain.len() + event.name.len() + 1);
    if !event.domain.is_empty() {
        text.extend_from_slice(event.domain);
        text.push(b':');
    }
    text.extend_from_slice(event.name);
    text.truncate(MOST_TEXT);
    Range {
        operation,
        start: event.time,
        end: event.time,
        id: event.id,
        tid: event.tid,
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(
        kind: EventKind,
        time: u64,
        id: u32,
        tid: u32,
        name: &'static str,
        domain: &'static str,
    ) -> Event<'static> {
        Event {
            kind,
            time,
            id,
            tid,
            name: name.as_bytes(),
            domain: domain.as_bytes(),
        }
    }

    #[test]
    fn pushed_ranges_end_innermost_first_in_their_thread_and_domain() {
        let mut markers = Markers::default();
        for begin in [
            event(EventKind::Begin, 1, 0, 7, "outer", ""),
            event(EventKind::Begin, 2, 0, 8, "other thread", ""),
            event(EventKind::Begin, 3, 0, 7, "ncclAllReduce", "NCCL"),
            event(EventKind::Begin, 4, 0, 7, "inner", ""),
        ] {
            assert_eq!(markers.add(&begin), None);
        }
        let mut end = |time, tid, domain| {
            let range = markers.add(&event(EventKind::End, time, 0, tid, "", domain));
            range.map(|it| {
                (
                    String::from_utf8(it.text).unwrap(),
                    it.operation,
                    it.start,
                    it.end,
                    it.tid,
                )
            })
        };
        assert_eq!(end(5, 7, ""), Some(("inner".into(), 1, 4, 5, 7)));
        assert_eq!(
            end(6, 7, "NCCL"),
            Some(("NCCL:ncclAllReduce".into(), 1, 3, 6, 7))
        );
        assert_eq!(end(7, 7, ""), Some(("outer".into(), 1, 1, 7, 7)));
        assert_eq!(end(8, 7, ""), None);
        assert_eq!(markers.unmatched_ends, 1);
        let left = markers.close(20);
        assert_eq!(left.len(), 1);
        assert_eq!(
            (left[0].text.as_slice(), left[0].end),
            (&b"other thread"[..], 20)
        );
        assert!(markers.close(21).is_empty());
    }

    #[test]
    fn started_ranges_end_by_their_id_and_marks_have_no_duration() {
        let mut markers = Markers::default();
        assert_eq!(
            markers.add(&event(EventKind::Begin, 1, 5, 7, "five", "")),
            None
        );
        assert_eq!(
            markers.add(&event(EventKind::Begin, 2, 6, 7, "six", "")),
            None
        );
        let five = markers
            .add(&event(EventKind::End, 9, 5, 8, "", ""))
            .unwrap();
        assert_eq!(
            (five.operation, five.start, five.end, five.id, five.tid),
            (2, 1, 9, 5, 7)
        );
        assert_eq!(markers.add(&event(EventKind::End, 10, 5, 8, "", "")), None);
        let mark = markers
            .add(&event(EventKind::Mark, 11, 0, 7, "here", "D"))
            .unwrap();
        assert_eq!((mark.operation, mark.start, mark.end), (0, 11, 11));
        assert_eq!(mark.text, b"D:here");
    }

    /// A program that forgets to pop has its other ranges all the same.
    #[test]
    fn ranges_that_are_forgotten_make_room_for_others() {
        let mut markers = Markers::default();
        let most = MOST_OPEN as u64;
        for time in 1..=most + 3 {
            let forgotten = event(EventKind::Begin, time, 0, 7, "forgotten", "");
            assert_eq!(markers.add(&forgotten), None);
        }
        assert_eq!(markers.too_many, most / 2 + 1);
        markers.add(&event(EventKind::Begin, most + 4, 0, 7, "good", ""));
        markers.add(&event(EventKind::Begin, most + 4, 9, 7, "started", ""));
        let good = markers.add(&event(EventKind::End, most + 5, 0, 7, "", ""));
        assert_eq!(good.map(|range| range.text), Some(b"good".to_vec()));
        let started = markers.add(&event(EventKind::End, most + 5, 9, 7, "", ""));
        assert_eq!(started.map(|range| range.text), Some(b"started".to_vec()));
        let open = markers.close(most + 6).len() as u64;
        assert_eq!(open + markers.too_many, most + 3);
    }
}
