//! Assembles windows and readings of whole devices while records are walked, and passes them to the sinks.

use super::Counts;
use super::readings::{Partial as PartialReading, Reading};
use super::windows;
use crate::files::WriteError;
use crate::job::Job;
use crate::sink::Sink;
use midair_record::event::{CounterWindow, Record};
use std::collections::HashMap;

/// Assembles windows while records are walked.
pub(crate) struct Reader<'j> {
    job: &'j Job<'j>,
    /// The words of incomplete windows. Only good windows are read, and few of them are
    /// interleaved.
    open: HashMap<u64, Vec<u64>>,
    readings: PartialReading,
}

impl<'j> Reader<'j> {
    pub(crate) fn new(job: &'j Job<'j>) -> Reader<'j> {
        Reader {
            job,
            open: HashMap::new(),
            readings: PartialReading::default(),
        }
    }

    /// Takes a record of a whole device. Returns a reading when its last record has come.
    pub(crate) fn reading(&mut self, part: &CounterWindow, words: &[u8]) -> Option<Reading> {
        if self.job.trace.counters.interval == 0 {
            return None;
        }
        self.readings
            .part(&self.job.trace.counters, &self.job.counting, part, words)
    }

    /// Takes a record of a window. Returns a dispatch's counters when the last record of its window
    /// has come.
    pub(crate) fn part(&mut self, part: &CounterWindow, words: &[u8]) -> Option<Counts<'j>> {
        let job = self.job;
        let window = job.counting.windows.of(part)?;
        if !window.is_good() {
            return None;
        }
        let prepared = windows::group(&job.trace.counters, &window.head)?;
        let memory = self.open.entry(part.window).or_default();
        let (words, _) = words.as_chunks();
        memory.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
        if memory.len() < window.head.total as usize {
            return None;
        }
        let memory = self.open.remove(&part.window)?;
        let node = window.head.node;
        let mut counters = Vec::new();
        for wanted in &prepared.group.counters {
            let id = job.counting.ids.get(&(node, wanted.name));
            let values = job.counting.values(node, prepared, wanted, &memory);
            if let (Some(id), Some(values)) = (id, values) {
                counters.push((*id, wanted.name, values));
            }
        }
        counters.sort_by_key(|(_, name, _)| *name);
        let over_time = job.trace.counters.over_time(node);
        let over_time = over_time.and_then(|name| prepared.event(name));
        let sum_of = |event: u32| {
            let values = prepared.template.values(&memory);
            let own = values.filter(|(of, ..)| *of == event);
            own.map(|(.., value)| value as f64).sum()
        };
        Some(Counts {
            over_time: over_time.map(sum_of),
            kernel: window.kernel.as_ref()?,
            batch: window.batch.as_deref(),
            window: part.window,
            counters,
        })
    }

    /// Passes a record on to the sinks. A window is passed on as the counters that it gives.
    pub(crate) fn give(
        &mut self,
        record: &Record<'_>,
        sinks: &mut [Box<dyn Sink + '_>],
    ) -> Result<(), WriteError> {
        if let Record::Kernel(kernel, _) = record
            && let Some(counters) = self.job.trace.known.counts.of(kernel.dispatch_id)
        {
            let counts = Counts {
                kernel,
                batch: None,
                window: 0,
                counters,
                over_time: None,
            };
            return sinks.iter_mut().try_for_each(|sink| sink.counted(&counts));
        }
        let Record::CounterWindow(part, words) = record else {
            return sinks.iter_mut().try_for_each(|sink| sink.record(record));
        };
        if let Some(reading) = self.reading(part, words) {
            return sinks.iter_mut().try_for_each(|sink| sink.read(&reading));
        }
        match self.part(part, words) {
            Some(counts) => sinks.iter_mut().try_for_each(|sink| sink.counted(&counts)),
            None => Ok(()),
        }
    }
}
