//! Hardware counters: a track for each counter of each agent. Its value is what a dispatch counted,
//! while the dispatch ran, and 0 elsewhere, as in AMD's traces.

use super::Scene;
use crate::counters::Counts;
use crate::counters::values::sum;
use crate::files::WriteError;

/// Keeps numbers of these tracks apart from those of others.
const COUNTERS: u64 = u64::MAX - 1;

impl Scene<'_> {
    pub(super) fn counters(&mut self, counts: &Counts<'_>) -> Result<(), WriteError> {
        let kernel = counts.kernel;
        // A dispatch without times has no place on a track.
        if kernel.start == 0 {
            return Ok(());
        }
        let agent = self.job.agent_index(kernel.node);
        for (id, name, values) in &counts.counters {
            let uuid = self.out.uuid(&[COUNTERS, *id, u64::from(kernel.node)]);
            if self.out.describe(uuid) {
                let name = format!("{} [{}] PMC {name}", agent.label, agent.index);
                self.out.number_track(uuid, &name)?;
                let begin = self.job.trace.process.init_time.min(kernel.start);
                self.out.number(uuid, begin, 0.0)?;
            }
            self.out.number(uuid, kernel.start, sum(values))?;
            self.out.number(uuid, kernel.end.max(kernel.start), 0.0)?;
        }
        Ok(())
    }
}
