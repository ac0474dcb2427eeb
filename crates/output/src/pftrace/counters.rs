//! Hardware counters: a track for each counter of each agent. Its value is what a dispatch counted,
//! while the dispatch ran, and 0 elsewhere, as in AMD's traces. What several dispatches that were
//! launched at once counted together is on a track beside it, from the first's start to the last's
//! end.

use super::Scene;
use crate::counters::values::sum;
use crate::counters::{Counts, Reading};
use crate::files::WriteError;

/// Keeps numbers of these tracks apart from those of others.
const COUNTERS: u64 = u64::MAX - 1;
const BATCHES: u64 = u64::MAX - 3;

/// The same of tracks of whole devices.
const READINGS: u64 = u64::MAX - 2;

impl Scene<'_> {
    /// What a whole device counted: from one reading to the next, how many in a second, or the value
    /// itself of what is no sum.
    pub(super) fn reading(&mut self, reading: &Reading) -> Result<(), WriteError> {
        let agent = self.job.agent_index(reading.node);
        for (id, name, values, is_sum) in &reading.counters {
            let uuid = self.out.uuid(&[READINGS, *id, u64::from(reading.node)]);
            if self.out.describe(uuid) {
                let unit = if *is_sum { " /s" } else { "" };
                let name = format!("{} [{}] PMC {name}{unit}", agent.label, agent.index);
                self.out.number_track(uuid, &name)?;
            }
            match self.read.insert(uuid, reading.end) {
                Some(end) if end == reading.start => {}
                None => {}
                // Another group had its turn.
                Some(end) => self.out.number(uuid, end, 0.0)?,
            }
            let value = reading.shown(sum(values), *is_sum);
            self.out.number(uuid, reading.start, value)?;
        }
        Ok(())
    }

    /// Behind the last reading there are no values.
    pub(super) fn end_readings(&mut self) -> Result<(), WriteError> {
        for (uuid, end) in std::mem::take(&mut self.read) {
            self.out.number(uuid, end, 0.0)?;
        }
        Ok(())
    }

    pub(super) fn counters(&mut self, counts: &Counts<'_>) -> Result<(), WriteError> {
        let kernel = counts.kernel;
        let (tracks, what, (start, end)) = match counts.batch {
            None => (COUNTERS, "", (kernel.start, kernel.end)),
            Some(batch) => (BATCHES, " of batches", (batch.start, batch.end)),
        };
        // What has no times has no place on a track.
        if start == 0 {
            return Ok(());
        }
        let agent = self.job.agent_index(kernel.node);
        for (id, name, values) in &counts.counters {
            let uuid = self.out.uuid(&[tracks, *id, u64::from(kernel.node)]);
            if self.out.describe(uuid) {
                let name = format!("{} [{}] PMC {name}{what}", agent.label, agent.index);
                self.out.number_track(uuid, &name)?;
                let begin = self.job.trace.process.init_time.min(start);
                self.out.number(uuid, begin, 0.0)?;
            }
            self.out.number(uuid, start, sum(values))?;
            self.out.number(uuid, end.max(start), 0.0)?;
        }
        Ok(())
    }
}
