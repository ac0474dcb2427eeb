//! Hardware counters: a track for each counter of each agent. As in AMD's traces, its value is what
//! a dispatch counted while the dispatch ran, and 0 elsewhere. What several dispatches that were
//! launched at once counted together is on a separate track, from the first start to the last end.

use super::Scene;
use crate::counters::values::sum;
use crate::counters::{Counts, Reading};
use crate::files::WriteError;

/// Keeps the numbers of these tracks different from other tracks' numbers.
const COUNTERS: u64 = u64::MAX - 1;
const BATCHES: u64 = u64::MAX - 3;

/// Keeps the numbers of the tracks of whole devices different from other tracks' numbers.
const READINGS: u64 = u64::MAX - 2;

impl Scene<'_> {
    /// Writes what a whole device counted from one reading to the next: the rate per second, or the
    /// value itself where it is not a sum.
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
                // Another group had its turn, so there is a gap.
                Some(end) => self.out.number(uuid, end, 0.0)?,
            }
            let value = reading.shown(sum(values), *is_sum);
            self.out.number(uuid, reading.start, value)?;
        }
        Ok(())
    }

    /// Writes that there are no values behind the last reading.
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
        // A dispatch without times has no place on a track.
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
