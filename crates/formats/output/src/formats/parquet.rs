//! Parquet: a directory for each run, host, rank and kind of records, so that readers see the files
//! of thousands of processes as one table.
//!
//! A file is `run=RUN/host=HOST/rank=RANK/kind=KIND/PID-BEGIN.parquet`. Hive, and everything after
//! it, names the parts of a table like that. `BEGIN` is the time when the recording started, in
//! nanoseconds since the machine's start, so that no recording replaces another. Rows are gathered
//! in groups, and a group is written when it is full, so memory does not depend on their number.
//! The metadata of each file says what was lost.
//!
//! Decision: FMT-034 (`docs/deviations/formats.md`).

mod cuda;
mod layout;
mod rows;
mod table;

use crate::counters::values::sum;
use crate::counters::{Counts, Reading};
use crate::files::{FileSet, Folder, ReservedFile, WriteError};
use crate::formats::json::pieces;
use crate::job::Job;
use crate::process::Place;
use crate::sink::{Opened, Sink, Writer};
use layout::{Kind, LAYOUTS};
use midair_record::event::Record;
use std::io;
use std::path::PathBuf;
use table::Table;

/// The text for an unknown value, which readers take for NULL (source: Hive's
/// `hive.exec.default.partition.name`).
const NOT_KNOWN: &str = "__HIVE_DEFAULT_PARTITION__";
/// The most characters of a run's or a host's name.
const MOST_NAME: usize = 100;

/// The writer, which has the tables of one session at a time.
struct Parquet {
    folder: Folder,
    done: Vec<ReservedFile>,
}

/// Makes the writer. No file is started yet, since a table only has files in the sessions with its
/// records.
pub(crate) fn open<'a>(jobs: &'a [Job<'a>], files: &FileSet) -> Opened<'a> {
    let plan = jobs.first().map(|job| job.plan);
    // By default the name of results starts with the host's name, which these paths contain in
    // another way.
    let named = plan.is_some_and(|plan| !plan.raw_prefix.is_empty());
    let base = plan.filter(|_| !named).map(|plan| plan.directory.clone());
    let folder = files.folder();
    let folder = match base {
        Some(base) => folder.moved(base)?,
        None => folder,
    };
    Ok(Box::new(Parquet {
        folder,
        done: Vec::new(),
    }))
}

/// Returns a part of a path. Characters with a meaning in paths are encoded as in a URL, which
/// readers undo.
fn part(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes().take(MOST_NAME) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    if text.is_empty() {
        text.push_str(NOT_KNOWN);
    }
    text
}

/// Returns the directory of a session's tables, without the part for the kind.
fn directory(place: &Place, host: &str) -> PathBuf {
    let rank = place.rank.map(|rank| rank.to_string());
    [
        format!("run={}", part(place.run.as_deref().unwrap_or_default())),
        format!("host={}", part(host)),
        format!("rank={}", part(&rank.unwrap_or_default())),
    ]
    .iter()
    .collect()
}

impl Writer for Parquet {
    fn begin<'s>(&'s mut self, job: &'s Job<'s>) -> Result<Box<dyn Sink + 's>, WriteError> {
        let process = &job.trace.process;
        let mut session = Session {
            job,
            place: directory(&process.place, &process.node.hostname),
            name: format!("{}-{}.parquet", process.pid, process.init_time),
            folder: &self.folder,
            tables: LAYOUTS.iter().map(|_| None).collect(),
            done: &mut self.done,
        };
        session.describe()?;
        Ok(Box::new(session))
    }

    fn finish(self: Box<Self>, files: &mut FileSet) -> Result<(), WriteError> {
        for file in self.done {
            files.add_reserved(file);
        }
        Ok(())
    }
}

/// The tables of one session.
struct Session<'s> {
    job: &'s Job<'s>,
    place: PathBuf,
    name: String,
    folder: &'s Folder,
    /// The tables that have rows, by [`Kind`].
    tables: Vec<Option<Table>>,
    done: &'s mut Vec<ReservedFile>,
}

impl Session<'_> {
    /// Returns the table of a kind. The table starts with its first row.
    fn table(&mut self, kind: Kind) -> Result<&mut Table, WriteError> {
        let at = kind as usize;
        if self.tables.get(at).is_none_or(Option::is_none) {
            let (directory, fields) = LAYOUTS.get(at).copied().unwrap_or_default();
            let below = self.place.join(format!("kind={directory}"));
            let file = self.folder.create_below(&below, &self.name)?;
            let table = Table::begin(file, fields)?;
            if let Some(place) = self.tables.get_mut(at) {
                *place = Some(table);
            }
        }
        let table = self.tables.get_mut(at).and_then(Option::as_mut);
        table.ok_or_else(|| WriteError::Records(io::ErrorKind::InvalidInput.into()))
    }

    /// Writes agents, and samples of a whole GPU.
    fn describe(&mut self) -> Result<(), WriteError> {
        let job = self.job;
        for agent in job.agents() {
            rows::agent(self.table(Kind::Agents)?, job, agent)?;
        }
        let Some(samples) = &job.trace.gpu else {
            return Ok(());
        };
        for sample in samples.samples() {
            for (metric, value) in sample.metrics.iter().zip(sample.values) {
                let metric = samples.metrics.get(*metric);
                let name = metric.map_or("", |metric| metric.name.as_str());
                if value.is_finite() {
                    let table = self.table(Kind::GpuMetrics)?;
                    rows::sample(table, samples.index, &sample, name, *value)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the metadata of each file.
    fn metadata(&self) -> io::Result<Vec<(String, String)>> {
        let process = &self.job.trace.process;
        let mut all = vec![
            ("midair.pid".to_owned(), process.pid.to_string()),
            ("midair.host".to_owned(), process.node.hostname.clone()),
            (
                "midair.command".to_owned(),
                serde_json::to_string(&process.command)?,
            ),
            ("midair.begin_ns".to_owned(), process.init_time.to_string()),
            ("midair.end_ns".to_owned(), process.fini_time.to_string()),
        ];
        let notes = pieces::midair(self.job)?.into_iter();
        all.extend(notes.map(|(key, value)| (format!("midair.{key}"), value)));
        Ok(all)
    }
}

impl Sink for Session<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        let job = self.job;
        match record {
            Record::Api(api, _) => rows::call(self.table(Kind::Calls)?, job, api),
            Record::Kernel(kernel, extra) => {
                rows::kernel(self.table(Kind::Kernels)?, job, kernel, extra.as_ref())
            }
            Record::Copy(copy, extra) => {
                rows::copy(self.table(Kind::MemoryCopies)?, job, copy, extra.as_ref())
            }
            Record::Marker(marker, message) => {
                rows::marker(self.table(Kind::Markers)?, job, marker, message)
            }
            Record::Allocation(allocation) => {
                rows::allocation(self.table(Kind::MemoryAllocations)?, job, allocation)
            }
            Record::Scratch(scratch) => {
                rows::scratch(self.table(Kind::ScratchMemory)?, job, scratch)
            }
            Record::Graph(call) => match job.graphs.of(call) {
                Some(launch) => rows::graph(self.table(Kind::GraphLaunches)?, job, call, &launch),
                None => Ok(()),
            },
            Record::Event(call) => match job.events.of(call) {
                Some(event) => rows::hip_event(self.table(Kind::HipEvents)?, job, call, event),
                None => Ok(()),
            },
            Record::MemorySet(set) => cuda::set(self.table(Kind::MemorySets)?, job, set),
            Record::Synchronization(wait) => {
                cuda::wait(self.table(Kind::Synchronizations)?, job, wait)
            }
            Record::UnifiedMemory(moved) => {
                cuda::unified(self.table(Kind::UnifiedMemory)?, job, moved)
            }
            _ => Ok(()),
        }
    }

    fn counted(&mut self, counts: &Counts<'_>) -> Result<(), WriteError> {
        let job = self.job;
        let Some(batch) = counts.batch else {
            for (_, name, values) in &counts.counters {
                let table = self.table(Kind::Counters)?;
                rows::counter(table, job, counts.kernel, name, sum(values))?;
            }
            return Ok(());
        };
        let (ids, kernels) = (
            batch.dispatch_ids(),
            batch.kernels(|id| job.kernel_name_by_id(id)),
        );
        for (_, name, values) in &counts.counters {
            let table = self.table(Kind::CounterBatches)?;
            rows::batch(
                table,
                job,
                counts,
                batch,
                (&ids, &kernels),
                (name, sum(values)),
            )?;
        }
        Ok(())
    }

    fn read(&mut self, reading: &Reading) -> Result<(), WriteError> {
        let job = self.job;
        for (_, name, values, _) in &reading.counters {
            let table = self.table(Kind::DeviceCounters)?;
            rows::reading(table, job, reading, name, sum(values))?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), WriteError> {
        let metadata = self.metadata();
        for table in std::mem::take(&mut self.tables).into_iter().flatten() {
            let metadata = match &metadata {
                Ok(metadata) => metadata.clone(),
                Err(error) => return Err(table.failed(io::Error::other(error.to_string()))),
            };
            self.done.push(table.finish(metadata)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_path_have_nothing_that_means_something_there() {
        let place = Place {
            run: Some("job/7=a".to_owned()),
            rank: Some(12),
            ranks: None,
        };
        let at = directory(&place, "n-1.example");
        let wanted = "run=job%2F7%3Da/host=n-1.example/rank=12";
        assert_eq!(at, PathBuf::from(wanted));
        let at = directory(&Place::default(), "");
        let wanted = format!("run={NOT_KNOWN}/host={NOT_KNOWN}/rank={NOT_KNOWN}");
        assert_eq!(at, PathBuf::from(wanted));
    }
}
