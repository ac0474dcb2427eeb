//! Launches of HIP's graphs (`--hip-graph-trace`): the calls, with what is known of the kernels that
//! they launched.
//!
//! A kernel has the correlation id of the call that launched it. Its record often comes before the
//! call's, so all launches are read first, and then all kernels, also those that are left out
//! of the results. The thread of a launch counts the dispatches that it sees, so a launch whose
//! kernels are not all recorded is known as such.
//!
//! Decision: FMT-054 (`docs/deviations/formats.md`).

use crate::model::Trace;
use foldhash::fast::RandomState;
use midair_record::event::{GraphCall, Kernel, Record, flag, graph, kind};
use midair_trace::index::untimed;
use midair_trace::record_file::{RecordFile, WalkError};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;

/// The most launches that are reported. Further ones are counted.
const MOST_LAUNCHES: usize = if cfg!(test) { 16 } else { 1 << 22 };

/// A place that all kernels of a launch had in common.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Common {
    #[default]
    Unknown,
    One(u32),
    Several,
}

impl Common {
    fn add(&mut self, place: u32) {
        *self = match *self {
            Common::Unknown => Common::One(place),
            Common::One(known) if known == place => Common::One(place),
            _ => Common::Several,
        };
    }

    fn one(self) -> Option<u32> {
        match self {
            Common::One(place) => Some(place),
            Common::Unknown | Common::Several => None,
        }
    }
}

/// What is known of the kernels of a launch.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    graph: u32,
    kernels: u32,
    untimed: u32,
    node: Common,
    queue: Common,
    /// Start of the first, and end of the last; both 0 where none has times.
    start: u64,
    end: u64,
}

impl Found {
    fn add(&mut self, kernel: &Kernel) {
        self.kernels = self.kernels.saturating_add(1);
        self.node.add(kernel.node);
        self.queue.add(kernel.queue_id);
        if untimed(kernel.header.flags, kernel.untimed).is_some() {
            self.untimed = self.untimed.saturating_add(1);
            return;
        }
        self.start = match self.start {
            0 => kernel.start,
            start => start.min(kernel.start),
        };
        self.end = self.end.max(kernel.end);
    }
}

/// A launch of a graph, as it is in the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The number of the graph: graphs are numbered from 1 in the order of their first launches.
    pub(crate) graph: u64,
    /// How many kernels it launched.
    pub(crate) kernels: u32,
    /// Start of the first kernel and end of the last or, where none has times, start and end of the
    /// call.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The agent and the queue, where all kernels had the same.
    pub(crate) node: Option<u32>,
    pub(crate) queue: Option<u32>,
    remark: Option<&'static str>,
}

impl Launch {
    /// Returns what a reader of its times has to know.
    pub(crate) fn remark(&self) -> Option<&'static str> {
        self.remark
    }
}

/// The launches of a session.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    launches: HashMap<u64, Found, RandomState>,
    /// Launches that HIP refused.
    failed: u64,
    /// Launches that ran when recording started or ended.
    cut: u64,
    /// Launches of whose kernels some have no record.
    incomplete: u64,
    /// Launches that were too many to be reported.
    beyond: u64,
    unread: Option<String>,
}

/// Launches as they were read: when, which handle, and the correlation id.
type Read = Vec<(u64, u64, u64)>;

impl Graphs {
    /// Reads the launches of a session, and their kernels.
    pub(crate) fn read(trace: &Trace) -> Graphs {
        let mut all = Graphs::default();
        let records = &trace.records;
        if records.index().count_of(kind::HIP_GRAPH) > 0 {
            let read = all
                .read_calls(records)
                .and_then(|()| all.read_kernels(records));
            let read = read.and_then(|()| all.compare(records));
            all.unread = read.err().map(|error| error.to_string());
        }
        all
    }

    fn read_calls(&mut self, records: &RecordFile) -> io::Result<()> {
        let mut launches = Read::new();
        let mut destroyed: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut ends = 0;
        each_call(records, |call| match call.header.operation {
            graph::EXEC_LAUNCH if call.result != 0 => self.failed += 1,
            graph::EXEC_LAUNCH if call.header.flags & flag::CUT != 0 => self.cut += 1,
            graph::EXEC_LAUNCH if launches.len() >= MOST_LAUNCHES => self.beyond += 1,
            graph::EXEC_LAUNCH => launches.push((call.start, call.graph, call.correlation)),
            graph::EXEC_DESTROY if call.result == 0 && ends < MOST_LAUNCHES => {
                ends += 1;
                destroyed.entry(call.graph).or_default().push(call.start);
            }
            _ => {}
        })?;
        destroyed
            .values_mut()
            .for_each(|times| times.sort_unstable());
        launches.sort_unstable();
        let mut numbers: HashMap<(u64, usize), u32> = HashMap::new();
        for (start, handle, correlation) in launches {
            // HIP gives the handle of a graph that was destroyed to another one.
            let before = destroyed.get(&handle);
            let before = before.map_or(0, |times| times.partition_point(|time| *time < start));
            let next = numbers.len() as u32 + 1;
            let graph = *numbers.entry((handle, before)).or_insert(next);
            let found = Found {
                graph,
                ..Found::default()
            };
            self.launches.insert(correlation, found);
        }
        Ok(())
    }

    fn read_kernels(&mut self, records: &RecordFile) -> io::Result<()> {
        let walked = records.walk_all(
            |of| of == kind::KERNEL_DISPATCH,
            |record| {
                if let Record::Kernel(kernel, _) = record
                    && let Some(found) = self.launches.get_mut(&kernel.correlation)
                {
                    found.add(kernel);
                }
                Ok::<(), Infallible>(())
            },
        );
        read(walked)
    }

    /// Counts the launches of whose kernels some are missing.
    fn compare(&mut self, records: &RecordFile) -> io::Result<()> {
        let mut incomplete = 0;
        each_call(records, |call| {
            let found = self.told(call);
            incomplete += u64::from(found.is_some_and(|found| found.kernels < call.dispatches));
        })?;
        self.incomplete = incomplete;
        Ok(())
    }

    fn told(&self, call: &GraphCall) -> Option<&Found> {
        let is_told = call.header.operation == graph::EXEC_LAUNCH
            && call.result == 0
            && call.header.flags & flag::CUT == 0;
        self.launches.get(&call.correlation).filter(|_| is_told)
    }

    /// Returns the launch that a record of a call stands for, if it is in the results.
    pub(crate) fn of(&self, call: &GraphCall) -> Option<Launch> {
        let found = self.told(call)?;
        let is_timed = found.end != 0;
        let (start, end) = if is_timed {
            (found.start, found.end)
        } else {
            (call.start, call.end)
        };
        let remark = if found.kernels < call.dispatches {
            Some("some of its kernels have no record: the times cover the others")
        } else if !is_timed {
            Some("none of its kernels has times: the times are the call's times")
        } else if found.untimed > 0 {
            Some("some of its kernels have no times: the times cover the others")
        } else {
            None
        };
        Some(Launch {
            graph: u64::from(found.graph),
            kernels: found.kernels.max(call.dispatches),
            start,
            end,
            node: found.node.one(),
            queue: found.queue.one(),
            remark,
        })
    }

    /// Returns the number of the graph that launched a kernel; 0 where none did.
    pub(crate) fn of_kernel(&self, kernel: &Kernel) -> u64 {
        let found = self.launches.get(&kernel.correlation);
        found.map_or(0, |found| u64::from(found.graph))
    }

    /// Returns what a reader has to know.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let counted = [
            (self.failed, "of graphs failed: they are not in the results"),
            (
                self.cut,
                "of graphs ran while recording started, ended, or was paused: they are not in the results, since some of their kernels may be missing",
            ),
            (
                self.incomplete,
                "of graphs have kernels without records: their counts include these, their times do not",
            ),
            (
                self.beyond,
                "of graphs are not in the results: their number exceeds a limit",
            ),
        ];
        let unread = self.unread.iter();
        let unread = unread.map(|why| format!("cannot read launches of graphs: {why}"));
        let counted = counted.into_iter().filter(|(count, _)| *count > 0);
        counted
            .map(|(count, what)| format!("{count} launches {what}"))
            .chain(unread)
    }
}

fn each_call(records: &RecordFile, mut see: impl FnMut(&GraphCall)) -> io::Result<()> {
    read(records.walk_all(
        |of| of == kind::HIP_GRAPH,
        |record| {
            if let Record::Graph(call) = record {
                see(call);
            }
            Ok::<(), Infallible>(())
        },
    ))
}

fn read(walked: Result<(), WalkError<Infallible>>) -> io::Result<()> {
    walked.map_err(|error| match error {
        WalkError::Read(error) => error,
        WalkError::Visit(never) => match never {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::{Header, encode};
    use midair_trace::record_file::RecordWriter;

    #[test]
    fn launches_beyond_the_limit_are_counted() {
        let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
        for number in 1..=MOST_LAUNCHES as u64 + 3 {
            let call = GraphCall {
                header: Header {
                    kind: kind::HIP_GRAPH,
                    operation: graph::EXEC_LAUNCH,
                    ..Header::default()
                },
                start: number,
                end: number + 1,
                correlation: number,
                ..GraphCall::default()
            };
            writer.append(&encode(&call, &[])).unwrap();
        }
        let mut graphs = Graphs::default();
        graphs.read_calls(&writer.finish().unwrap()).unwrap();
        assert_eq!((graphs.launches.len(), graphs.beyond), (MOST_LAUNCHES, 3));
    }
}
