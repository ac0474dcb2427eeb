//! Sorting of more events than fit into memory.
//!
//! Records come when a call returns or a kernel has ended, and from one queue after the other. The
//! events of a location have to be in the order of their times. So they are gathered in memory,
//! sorted when a limit is reached, and written as a sorted run into a file without a name. At the
//! end the runs are merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Bytes that are gathered before they become a run.
const GATHERED: usize = 32 << 20;
/// So many runs of about one size are merged into one. Each run that is merged has a buffer.
const FAN: usize = 16;
/// The size of a run's buffer.
const BUFFER: usize = 64 << 10;
/// Bytes of the fixed part of an event in a run.
const HEAD: usize = 44;
/// Marks an event of a metric, in the word that has its row and the length of its extra bytes.
const METRIC: u64 = 1 << 31;

/// What happens on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A region is entered and left.
    Region(u32),
    /// A metric has a value, which is in `extra`.
    Metric(u32),
}

/// An event of a row, or the start and the end of a region together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event<'a> {
    pub(super) row: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) what: What,
    /// The number of attributes in `extra`, or the bits of a metric's value.
    pub(super) number: u64,
    pub(super) extra: &'a [u8],
}

/// The order of events: by row and start. Of two that start together, the longer one comes first,
/// since it encloses the other. Of two that also end together, the enclosing one was recorded later.
type Key = (u32, u64, Reverse<u64>, Reverse<u64>);

#[derive(Debug, Clone, Copy)]
struct Head {
    row: u32,
    start: u64,
    end: u64,
    /// The order in which events came.
    turn: u64,
    what: What,
    number: u64,
    /// Where the extra bytes are.
    at: usize,
    len: usize,
}

impl Head {
    fn key(&self) -> Key {
        (self.row, self.start, Reverse(self.end), Reverse(self.turn))
    }

    fn event<'a>(&self, extra: &'a [u8]) -> Event<'a> {
        Event {
            row: self.row,
            start: self.start,
            end: self.end,
            what: self.what,
            number: self.number,
            extra,
        }
    }
}

/// Events that are being gathered.
pub(super) struct Sorter {
    directory: PathBuf,
    heads: Vec<Head>,
    extras: Vec<u8>,
    turn: u64,
    limit: usize,
    /// Runs by size: each of a level is about [`FAN`] times as long as one of the level before.
    runs: Vec<Vec<File>>,
}

impl Sorter {
    /// Makes a sorter that keeps its runs in a directory.
    pub(super) fn new(directory: &Path) -> Sorter {
        Sorter::with_limit(directory, GATHERED)
    }

    fn with_limit(directory: &Path, limit: usize) -> Sorter {
        Sorter {
            directory: directory.to_owned(),
            heads: Vec::new(),
            extras: Vec::new(),
            turn: 0,
            limit,
            runs: Vec::new(),
        }
    }

    /// Adds an event.
    pub(super) fn push(&mut self, event: Event<'_>) -> io::Result<()> {
        self.heads.push(Head {
            row: event.row,
            start: event.start,
            end: event.end,
            turn: self.turn,
            what: event.what,
            number: event.number,
            at: self.extras.len(),
            len: event.extra.len(),
        });
        self.turn += 1;
        self.extras.extend_from_slice(event.extra);
        if self.heads.len() * size_of::<Head>() + self.extras.len() < self.limit {
            return Ok(());
        }
        let memory = self.gathered();
        let run = self.merged(vec![memory])?;
        self.keep(0, run)
    }

    /// Gives all events in their order, and forgets them.
    ///
    /// # Errors
    /// The errors of `each`, and what `failed` makes of our own.
    pub(super) fn drain<E>(
        &mut self,
        failed: impl Fn(io::Error) -> E,
        mut each: impl FnMut(&Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let files = std::mem::take(&mut self.runs).into_iter().flatten();
        let sources = files.map(Source::run).collect::<io::Result<Vec<_>>>();
        let mut sources = sources.map_err(&failed)?;
        sources.push(self.gathered());
        merge(sources, &failed, |head, extra| each(&head.event(extra)))
    }

    /// Takes what is in memory, sorted.
    fn gathered(&mut self) -> Source {
        let mut heads = std::mem::take(&mut self.heads);
        heads.sort_unstable_by_key(Head::key);
        Source::Memory {
            heads: heads.into_iter(),
            extras: std::mem::take(&mut self.extras),
            head: None,
        }
    }

    /// Writes sources into one run.
    fn merged(&self, sources: Vec<Source>) -> io::Result<File> {
        let file = tempfile::tempfile_in(&self.directory)?;
        let mut out = BufWriter::with_capacity(BUFFER, file);
        merge(sources, &|error| error, |head, extra| {
            out.write_all(&bytes(head))?;
            out.write_all(extra)
        })?;
        let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(file)
    }

    /// Keeps a run. Runs of one level that are many become one of the next.
    fn keep(&mut self, mut level: usize, mut run: File) -> io::Result<()> {
        loop {
            if self.runs.len() <= level {
                self.runs.resize_with(level + 1, Vec::new);
            }
            let Some(runs) = self.runs.get_mut(level) else {
                return Ok(());
            };
            runs.push(run);
            if runs.len() < FAN {
                return Ok(());
            }
            let sources = std::mem::take(runs).into_iter().map(Source::run);
            let sources = sources.collect::<io::Result<Vec<_>>>()?;
            run = self.merged(sources)?;
            level += 1;
        }
    }
}

/// Sorted events.
enum Source {
    Memory {
        heads: std::vec::IntoIter<Head>,
        extras: Vec<u8>,
        head: Option<Head>,
    },
    Run {
        file: BufReader<File>,
        head: Option<Head>,
        extra: Vec<u8>,
    },
}

impl Source {
    fn run(mut file: File) -> io::Result<Source> {
        file.rewind()?;
        Ok(Source::Run {
            file: BufReader::with_capacity(BUFFER, file),
            head: None,
            extra: Vec::new(),
        })
    }

    /// Goes to the next event, and returns its key.
    fn next(&mut self) -> io::Result<Option<Key>> {
        let next = match self {
            Source::Memory { heads, head, .. } => {
                *head = heads.next();
                head
            }
            Source::Run { file, head, extra } => {
                *head = read(file, extra)?;
                head
            }
        };
        Ok(next.as_ref().map(Head::key))
    }

    fn current(&self) -> Option<(&Head, &[u8])> {
        match self {
            Source::Memory { head, extras, .. } => {
                let head = head.as_ref()?;
                Some((head, extras.get(head.at..head.at + head.len)?))
            }
            Source::Run { head, extra, .. } => Some((head.as_ref()?, extra)),
        }
    }
}

fn merge<E>(
    mut sources: Vec<Source>,
    failed: &impl Fn(io::Error) -> E,
    mut each: impl FnMut(&Head, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut next = BinaryHeap::new();
    for (number, source) in sources.iter_mut().enumerate() {
        let key = source.next().map_err(failed)?;
        next.extend(key.map(|key| Reverse((key, number))));
    }
    while let Some(Reverse((_, number))) = next.pop() {
        let Some(source) = sources.get_mut(number) else {
            continue;
        };
        if let Some((head, extra)) = source.current() {
            each(head, extra)?;
        }
        let key = source.next().map_err(failed)?;
        next.extend(key.map(|key| Reverse((key, number))));
    }
    Ok(())
}

fn bytes(head: &Head) -> [u8; HEAD] {
    let (is_metric, what) = match head.what {
        What::Region(region) => (0, region),
        What::Metric(metric) => (METRIC, metric),
    };
    let mut bytes = [0; HEAD];
    let words = [
        u64::from(head.row) << 32 | is_metric | head.len as u64,
        head.start,
        head.end,
        head.turn,
        head.number,
    ];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    if let Some(last) = bytes.last_chunk_mut() {
        *last = what.to_le_bytes();
    }
    bytes
}

/// Reads an event of a run, or none at its end.
fn read(file: &mut impl Read, extra: &mut Vec<u8>) -> io::Result<Option<Head>> {
    let mut bytes = [0; HEAD];
    match file.read_exact(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut words = bytes.chunks_exact(8).map(|word| {
        let word = word.first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(word)
    });
    let mut word = || words.next().unwrap_or_default();
    let (place, start, end, turn, number) = (word(), word(), word(), word(), word());
    let what = u32::from_le_bytes(bytes.last_chunk().copied().unwrap_or_default());
    let is_metric = place & METRIC != 0;
    let len = (place as u32 & !(METRIC as u32)) as usize;
    extra.resize(len, 0);
    file.read_exact(extra)?;
    Ok(Some(Head {
        row: (place >> 32) as u32,
        start,
        end,
        turn,
        what: match is_metric {
            false => What::Region(what),
            true => What::Metric(what),
        },
        number,
        at: 0,
        len,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(sorter: &mut Sorter) -> Vec<(u32, u64, u64, What, u64, Vec<u8>)> {
        let mut all = Vec::new();
        sorter
            .drain(
                |error| error,
                |event| {
                    let extra = event.extra.to_vec();
                    all.push((
                        event.row,
                        event.start,
                        event.end,
                        event.what,
                        event.number,
                        extra,
                    ));
                    io::Result::Ok(())
                },
            )
            .unwrap();
        all
    }

    #[test]
    fn outer_regions_come_before_inner_ones() {
        let mut sorter = Sorter::new(&std::env::temp_dir());
        for (row, start, end, region) in [
            (1, 5, 9, 1),
            (0, 12, 14, 2),
            (0, 10, 20, 3),
            (0, 10, 12, 4),
            (0, 10, 20, 5),
        ] {
            let event = Event {
                row,
                start,
                end,
                what: What::Region(region),
                number: 0,
                extra: &[],
            };
            sorter.push(event).unwrap();
        }
        let order: Vec<What> = sorted(&mut sorter).iter().map(|event| event.3).collect();
        assert_eq!(order, [5, 3, 4, 2, 1].map(What::Region));
        assert!(sorted(&mut sorter).is_empty());
    }

    /// A run is written as soon as the limit is reached, by the bytes of heads and extras together.
    #[test]
    fn a_run_is_written_when_the_limit_is_reached() {
        let event = Event {
            row: 0,
            start: 1,
            end: 2,
            what: What::Region(1),
            number: 1,
            extra: &[7; 10],
        };
        let two = 2 * (size_of::<Head>() + event.extra.len());
        for (limit, runs) in [(two - 1, 1), (two, 1), (two + 1, 0)] {
            let mut sorter = Sorter::with_limit(&std::env::temp_dir(), limit);
            sorter.push(event).unwrap();
            assert!(sorter.runs.is_empty(), "{limit}");
            sorter.push(event).unwrap();
            assert_eq!(sorter.runs.iter().flatten().count(), runs, "{limit}");
            assert_eq!(sorted(&mut sorter).len(), 2);
        }
    }

    /// With a small limit there are runs of several levels. The order is the same as from a single
    /// sort.
    #[test]
    fn runs_are_merged_into_one_order() {
        let mut sorter = Sorter::with_limit(&std::env::temp_dir(), 400);
        let mut wanted = Vec::new();
        let mut state = 1_u64;
        for turn in 0..5000_u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (row, start) = ((state >> 60) as u32 & 3, state >> 40 & 0xff);
            let end = start + (state >> 50 & 7);
            let what = match turn % 3 {
                0 => What::Metric(turn as u32),
                _ => What::Region(turn as u32),
            };
            let extra = turn.to_le_bytes();
            let extra = extra.get(..turn as usize % 9).unwrap();
            let event = Event {
                row,
                start,
                end,
                what,
                number: u64::MAX - turn,
                extra,
            };
            sorter.push(event).unwrap();
            wanted.push((row, start, end, what, u64::MAX - turn, extra.to_vec()));
        }
        assert!(sorter.runs.len() > 2, "{}", sorter.runs.len());
        assert!(sorter.runs.iter().all(|runs| runs.len() < FAN));
        let turn = |number: u64| Reverse(u64::MAX - number);
        wanted.sort_by_key(|event| (event.0, event.1, Reverse(event.2), turn(event.4)));
        assert_eq!(sorted(&mut sorter), wanted);
    }

    #[test]
    fn as_many_runs_as_are_merged_at_once_become_one_of_the_next_level() {
        let mut sorter = Sorter::with_limit(&std::env::temp_dir(), 1);
        let mut push = |count: usize| {
            for start in 0..count as u64 {
                let event = Event {
                    row: 0,
                    start,
                    end: start,
                    what: What::Region(1),
                    number: 0,
                    extra: &[],
                };
                sorter.push(event).unwrap();
            }
            sorter.runs.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(push(FAN - 1), [FAN - 1]);
        assert_eq!(push(1), [0, 1]);
        assert_eq!(push(FAN + 1), [1, 2]);
    }

    #[test]
    fn only_the_end_of_a_run_is_its_end() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        let mut extra = Vec::new();
        assert!(read(&mut io::empty(), &mut extra).unwrap().is_none());
        let error = read(&mut Broken, &mut extra).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
