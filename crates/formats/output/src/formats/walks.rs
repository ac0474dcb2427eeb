//! Shares the formats out among threads. Each thread walks over the records by itself and feeds the
//! sinks of its formats, so threads have nothing to pass to each other. Reading and decoding the
//! records again costs little alongside writing them in any format.

use super::Row;
use crate::counters::reader::Reader;
use crate::files::{FileSet, WriteError};
use crate::job::Job;
use crate::progress::{self, Walked};
use crate::sink::{Sink, Writer};
use midair_domain::KindSet;
use midair_record::event::kind;
use midair_trace::record_file::WalkError;
use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// The formats of one thread, by their places among all formats.
type Share = Vec<usize>;

/// The files of formats, by their places.
type Parts = Vec<(usize, FileSet)>;

/// Why a thread wrote nothing.
enum Halt {
    Failed(WriteError),
    /// Another thread failed.
    Stopped,
}

impl From<WriteError> for Halt {
    fn from(error: WriteError) -> Halt {
        Halt::Failed(error)
    }
}

impl From<WalkError<Halt>> for Halt {
    fn from(error: WalkError<Halt>) -> Halt {
        match error {
            WalkError::Read(source) => Halt::Failed(WriteError::Records(source)),
            WalkError::Visit(halt) => halt,
        }
    }
}

/// Writes these formats with up to this many threads, and adds their files to the set in the order
/// of the formats.
pub(super) fn write(
    jobs: &[Job<'_>],
    rows: &[&Row],
    threads: usize,
    files: &mut FileSet,
) -> Result<(), WriteError> {
    let shares = shares(rows, threads);
    for job in jobs {
        progress::expect(job.trace.records.records(), shares.len() as u64);
    }
    let mut parts = Parts::new();
    let mut failed = None;
    for written in all(jobs, rows, &shares, files) {
        match written {
            Ok(part) => parts.extend(part),
            Err(Halt::Failed(error)) => failed = failed.or(Some(error)),
            Err(Halt::Stopped) => {}
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    parts.sort_by_key(|(place, _)| *place);
    for (_, part) in parts {
        files.join(part);
    }
    Ok(())
}

/// Shares the formats out so that the threads take about equally long: each format goes to the
/// thread that has the least so far, the slowest format first. Every thread has at least one.
fn shares(rows: &[&Row], threads: usize) -> Vec<Share> {
    let count = threads.clamp(1, rows.len().max(1));
    let mut order: Share = (0..rows.len()).collect();
    let cost = |place: &usize| rows.get(*place).map_or(0, |row| row.cost);
    order.sort_by_key(|place| std::cmp::Reverse(cost(place)));
    let mut shares = vec![(0, Share::new()); count];
    for place in order {
        if let Some((sum, share)) = shares.iter_mut().min_by_key(|(sum, _)| *sum) {
            *sum += cost(&place);
            share.push(place);
        }
    }
    let mut shares: Vec<Share> = shares.into_iter().map(|(_, share)| share).collect();
    shares.retain(|share| !share.is_empty());
    // Several formats may write a file of the same name. The last one stays, as in one thread.
    shares.iter_mut().for_each(|share| share.sort_unstable());
    shares
}

/// Writes all shares: the first one in this thread, each of the others in a thread of its own, or
/// here as well where no thread can be made.
fn all(
    jobs: &[Job<'_>],
    rows: &[&Row],
    shares: &[Share],
    files: &FileSet,
) -> Vec<Result<Parts, Halt>> {
    let Some((first, others)) = shares.split_first() else {
        return Vec::new();
    };
    let stop = AtomicBool::new(false);
    let stop = &stop;
    let work = move |share: &Share| {
        let written = one(jobs, rows, share, files, stop);
        if written.is_err() {
            stop.store(true, Relaxed);
        }
        written
    };
    thread::scope(|scope| {
        let begun: Vec<_> = others
            .iter()
            .map(|share| {
                let thread = thread::Builder::new().name("writer".to_owned());
                (share, thread.spawn_scoped(scope, move || work(share)))
            })
            .collect();
        let mut all = vec![work(first)];
        for (share, thread) in begun {
            all.push(match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(_) => work(share),
            });
        }
        all
    })
}

/// Writes one share in one walk over the records of each session.
fn one(
    jobs: &[Job<'_>],
    rows: &[&Row],
    share: &Share,
    files: &FileSet,
    stop: &AtomicBool,
) -> Result<Parts, Halt> {
    let mut writers: Vec<(usize, Box<dyn Writer + '_>)> = Vec::new();
    for place in share {
        if let Some(row) = rows.get(*place) {
            writers.push((*place, (row.open)(jobs, files)?));
        }
    }
    for job in jobs {
        let mut sinks = Vec::with_capacity(writers.len());
        for (_, writer) in &mut writers {
            sinks.push(writer.begin(job)?);
        }
        walk(job, &mut sinks, stop)?;
        for sink in sinks {
            sink.finish()?;
        }
    }
    let mut parts = Parts::new();
    for (place, writer) in writers {
        let mut part = files.part();
        writer.finish(&mut part)?;
        parts.push((place, part));
    }
    Ok(parts)
}

/// Feeds the sinks with the records that one of them wants.
fn walk(job: &Job<'_>, sinks: &mut [Box<dyn Sink + '_>], stop: &AtomicBool) -> Result<(), Halt> {
    let records = &job.trace.records;
    let wanted = sinks.iter().try_fold(KindSet::EMPTY, |wanted, sink| {
        Some(wanted.union(sink.wants()?))
    });
    if wanted.is_some_and(|wanted| !job.index.has(wanted)) {
        progress::pass_over(records.records());
        return Ok(());
    }
    let (walked, due) = (RefCell::new(Walked::default()), Cell::new(false));
    let mut counters = Reader::new(job);
    records.walk(
        |kind| {
            if walked.borrow_mut().add() {
                due.set(true);
            }
            kind < kind::FIRST_DESCRIPTION && wanted.is_none_or(|wanted| wanted.contains(kind))
        },
        |record| {
            if due.take() && stop.load(Relaxed) {
                return Err(Halt::Stopped);
            }
            Ok(counters.give(record, sinks)?)
        },
    )?;
    Ok(())
}
