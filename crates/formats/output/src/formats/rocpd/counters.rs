//! Counters. `rocpd_info_pmc` describes them, and `rocpd_pmc_event` has what a dispatch counted at
//! each place. The event is the dispatch's. Several dispatches that were launched at once
//! have one event of their own, whose `extdata` names them. Even where the user did not ask for
//! dispatches, those with counters have rows, as in AMD's files.

use super::database::{Database, Step, json, whole};
use super::info::Info;
use super::rows::Rows;
use crate::counters::values::sum;
use crate::counters::{Counts, Reading};
use crate::formats::json::counters::Nature;
use crate::formats::json::pieces;
use crate::job::Job;
use midair_counters::Dimension;
use midair_record::event::kind;
use rusqlite::params;

/// Describes the counters that were asked for.
pub(super) fn describe(
    database: &Database<'_>,
    job: &Job<'_>,
    info: &mut Info<'_, '_>,
) -> Step<()> {
    let mut statement = database.insert(
        "info_pmc",
        "id, nid, pid, agent_id, target_arch, name, symbol, description, long_description, component, units, value_type, block, expression, is_constant, is_derived, extdata",
    )?;
    for counter in job.counting.counters(&job.trace.counters) {
        let agent = info.agent(counter.node)?;
        let nature = Nature::of(&counter);
        let name = counter.wanted.name;
        let extdata = match job.agent(counter.node) {
            Some(agent) => json(pieces::agent(agent)?),
            None => "{}".to_owned(),
        };
        statement.execute(params![
            whole(counter.id),
            info.nid,
            info.pid,
            agent,
            "GPU",
            name,
            name,
            nature.description,
            "",
            "rocm",
            "",
            "ABS",
            nature.block,
            nature.expression,
            0,
            counter.wanted.expression.is_some(),
            extdata,
        ])?;
    }
    Ok(())
}

impl Rows<'_, '_> {
    /// Writes what a whole device counted: a sample at the reading's time, and the sum over the
    /// device for each counter. It is on the process's main thread.
    pub(super) fn read(&mut self, reading: &Reading) -> Step<()> {
        let event = self.event(kind::COUNTER_COLLECTION, 0, 0, "{}")?;
        let name = format!("Counters of {}", self.job.agent_name(reading.node));
        let extdata = serde_json::json!({
            "reading": reading.number,
            "start": reading.start,
            "end": reading.end,
        });
        let pid = self.job.trace.process.pid;
        let sample = self.sample_on(pid, &name, reading.end, event, &extdata.to_string())?;
        for (id, _, values, _) in &reading.counters {
            let nowhere = [None; 3];
            self.long
                .value(event, Some(sample), whole(*id), sum(values), nowhere)?;
        }
        Ok(())
    }

    /// Writes what a dispatch counted.
    pub(super) fn counted(&mut self, counts: &Counts<'_>) -> Step<()> {
        let kernel = counts.kernel;
        let known = self.counters.written.get(&kernel.dispatch_id);
        let event = match (counts.batch, known) {
            (Some(batch), _) => {
                let all = batch.members.iter().map(|member| member.dispatch_id);
                let extdata = serde_json::json!({ "batch": {
                    "id": counts.window,
                    "count": batch.count,
                    "kernels": batch.kernels(|id| self.job.kernel_name_by_id(id)),
                    "start": batch.start,
                    "end": batch.end,
                    "dispatch_ids": all.collect::<Vec<u64>>(),
                } });
                self.event_of(kind::COUNTER_COLLECTION, kernel, &extdata.to_string())?
            }
            (None, Some(event)) => *event,
            (None, None) => {
                let event = self.dispatch(kernel, None)?;
                self.counters.wrote(self.job, kernel, event);
                event
            }
        };
        for (id, _, values) in &counts.counters {
            for (place, value) in values {
                let place = [Dimension::Xcc, Dimension::ShaderEngine, Dimension::Instance]
                    .map(|dimension| Some(i64::from(place.get(dimension))));
                self.long.value(event, None, whole(*id), *value, place)?;
            }
        }
        Ok(())
    }
}
