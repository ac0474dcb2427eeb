//! Counters: which there are, where they are counted, and how much each dispatch counted.

use super::emit::Emit;
use super::parts::{correlation, dispatch_correlation, dispatch_info, times};
use super::size;
use crate::counters::batch::Batch;
use crate::counters::values::sum;
use crate::counters::{Counter, Counts, Reading, Verdict};
use crate::job::Job;
use midair_counters::value::Values;
use midair_counters::{Definition, Dimension, Position};
use std::collections::BTreeMap;
use std::io;

/// The counter is in the upper 16 bits of an instance's id, and its place is in the others.
const PLACE_BITS: u32 = 48;

/// The nature of a counter, in texts.
#[derive(Default)]
pub(crate) struct Nature {
    pub(crate) description: &'static str,
    pub(crate) block: &'static str,
    pub(crate) expression: &'static str,
}

impl Nature {
    pub(crate) fn of(counter: &Counter<'_>) -> Nature {
        let name = counter.wanted.name;
        let Some(found) = counter.prepared.architecture.counter(name) else {
            return Nature::default();
        };
        let (block, expression) = match found.definition {
            Definition::Basic { block, .. } => (block, ""),
            Definition::Derived { expression } => ("", expression),
        };
        Nature {
            description: found.description,
            block,
            expression,
        }
    }
}

/// Returns the dimensions with more than one place, and how many places there are. The instance is
/// always among them. They are in AMD's order, the last first.
fn extents(places: &Values) -> Vec<(Dimension, u32)> {
    let extent = |dimension: Dimension| {
        let numbers = places.iter().map(|(place, _)| place.get(dimension));
        (dimension, numbers.max().unwrap_or(0) + 1)
    };
    let all = Dimension::ALL.into_iter().rev().map(extent);
    all.filter(|(dimension, extent)| *extent > 1 || *dimension == Dimension::Instance)
        .collect()
}

fn dimension<W: io::Write>(out: &mut Emit<W>, of: Dimension, extent: u32) -> io::Result<()> {
    out.open_object()?;
    out.number("id", of as u8)?;
    out.number("instance_size", extent)?;
    out.text("name", of.name())?;
    out.close_object()
}

/// A counter as its list has it.
struct Listed<'a> {
    node: u32,
    id: u64,
    name: &'a str,
    description: &'a str,
    block: &'a str,
    expression: &'a str,
    is_derived: bool,
    places: Values,
}

/// Returns the counters that were asked for.
fn listed<'a>(job: &'a Job<'_>) -> Vec<Listed<'a>> {
    let known = &job.trace.known.counts;
    let mut places = known.places();
    let known = known.counters().map(|(id, counter)| Listed {
        node: counter.node,
        id,
        name: &counter.name,
        description: &counter.description,
        block: &counter.block,
        expression: &counter.expression,
        is_derived: counter.is_derived,
        places: places.remove(&id).unwrap_or_default(),
    });
    let known: Vec<Listed<'a>> = known.collect();
    let asked = job.counting.counters(&job.trace.counters);
    let asked = asked.into_iter().map(|counter| {
        let nature = Nature::of(&counter);
        Listed {
            node: counter.node,
            id: counter.id,
            name: counter.wanted.name,
            description: nature.description,
            block: nature.block,
            expression: nature.expression,
            is_derived: counter.wanted.expression.is_some(),
            places: job.counting.places(&counter),
        }
    });
    asked.chain(known).collect()
}

/// Writes the counters that were asked for.
pub(super) fn list<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    out.key("counters")?;
    out.open_array()?;
    for counter in listed(job) {
        let extents = extents(&counter.places);
        out.open_object()?;
        out.handle("agent_id", job.handle(counter.node))?;
        out.handle("id", counter.id)?;
        out.number("is_constant", 0)?;
        out.number("is_derived", u8::from(counter.is_derived))?;
        out.text("name", counter.name)?;
        out.text("description", counter.description)?;
        out.text("block", counter.block)?;
        out.text("expression", counter.expression)?;
        out.key("dimensions")?;
        out.open_array()?;
        for (of, extent) in &extents {
            dimension(out, *of, *extent)?;
        }
        out.close_array()?;
        out.key("instances")?;
        out.open_array()?;
        for (place, _) in &counter.places {
            instance(out, counter.id, *place, &extents)?;
        }
        out.close_array()?;
        out.close_object()?;
    }
    out.close_array()
}

fn instance<W: io::Write>(
    out: &mut Emit<W>,
    counter: u64,
    place: Position,
    extents: &[(Dimension, u32)],
) -> io::Result<()> {
    out.open_object()?;
    out.number("instance_id", counter << PLACE_BITS | place.0)?;
    out.number("counter_id", counter)?;
    out.key("dimensions")?;
    out.open_array()?;
    for (dimension, _) in extents {
        out.open_object()?;
        out.text("dimension_name", dimension.name())?;
        out.number("index", place.get(*dimension))?;
        out.close_object()?;
    }
    out.close_array()?;
    out.close_object()
}

/// Writes all dimensions of all counters.
pub(super) fn dimensions<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let mut all: BTreeMap<Dimension, u32> = BTreeMap::new();
    for counter in listed(job) {
        for (dimension, extent) in extents(&counter.places) {
            let known = all.entry(dimension).or_default();
            *known = extent.max(*known);
        }
    }
    out.key("dimension_ids")?;
    out.open_array()?;
    for (of, extent) in all {
        dimension(out, of, extent)?;
    }
    out.close_array()
}

/// Writes a dispatch with the values of its counters at each place.
pub(super) fn element<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    counts: &Counts<'_>,
) -> io::Result<()> {
    let kernel = counts.kernel;
    out.open_object()?;
    out.number("thread_id", kernel.tid)?;
    out.key("dispatch_data")?;
    out.open_object()?;
    out.number("size", size::DISPATCH_COUNTING)?;
    dispatch_correlation(out, job, kernel);
    times(out, kernel.start, kernel.end);
    dispatch_info(out, job, kernel);
    out.close_object()?;
    records(out, counts)?;
    out.handle("stream_id", job.index.stream(kernel.stream))?;
    out.close_object()
}

/// Writes several dispatches that were launched at once, and what they counted together at each
/// place.
pub(super) fn batch<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    counts: &Counts<'_>,
    batch: &Batch,
) -> io::Result<()> {
    let kernel = counts.kernel;
    out.open_object()?;
    out.number("batch_id", counts.window)?;
    out.number("thread_id", kernel.tid)?;
    correlation(out, kernel.correlation, None);
    times(out, batch.start, batch.end);
    out.handle("agent_id", job.handle(kernel.node))?;
    out.handle("queue_id", u64::from(kernel.queue_id))?;
    out.number("count", batch.count)?;
    out.key("dispatches")?;
    out.open_array()?;
    for member in &batch.members {
        out.open_object()?;
        out.number("dispatch_id", member.dispatch_id)?;
        out.number("kernel_id", member.kernel_id)?;
        out.close_object()?;
    }
    out.close_array()?;
    records(out, counts)?;
    out.handle("stream_id", job.index.stream(kernel.stream))?;
    out.close_object()
}

fn records<W: io::Write>(out: &mut Emit<W>, counts: &Counts<'_>) -> io::Result<()> {
    out.key("records")?;
    out.open_array()?;
    for (id, _, values) in &counts.counters {
        for (_, value) in values {
            out.open_object()?;
            out.handle("counter_id", *id)?;
            out.real("value", *value)?;
            out.close_object()?;
        }
    }
    out.close_array()
}

/// Writes what a whole device counted from one reading to the next, as sums over the device.
pub(super) fn reading<W: io::Write>(
    out: &mut Emit<W>,
    job: &Job<'_>,
    reading: &Reading,
) -> io::Result<()> {
    out.open_object()?;
    out.number("reading", reading.number)?;
    out.handle("agent_id", job.handle(reading.node))?;
    times(out, reading.start, reading.end);
    out.key("records")?;
    out.open_array()?;
    for (id, _, values, _) in &reading.counters {
        out.open_object()?;
        out.handle("counter_id", *id)?;
        out.real("value", sum(values))?;
        out.close_object()?;
    }
    out.close_array()?;
    out.close_object()
}

/// Writes for each agent, by its node's number, whether the kernel driver's profiler lock was held.
fn locks<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let locks = &job.trace.counters.locks;
    if locks.is_empty() {
        return Ok(());
    }
    out.key("profiler_locks")?;
    out.open_object()?;
    for (node, state) in locks {
        out.any_key(&node.to_string())?;
        out.text_value(state)?;
    }
    out.close_object()
}

/// Writes for each agent, by its node's number, which other processes used it.
fn others<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    let others = &job.trace.counters.others;
    if others.is_empty() {
        return Ok(());
    }
    out.key("other_processes")?;
    out.open_object()?;
    for (node, processes) in others {
        out.any_key(&node.to_string())?;
        out.open_array()?;
        for process in processes {
            out.value(*process)?;
        }
        out.close_array()?;
    }
    out.close_object()
}

/// Writes how many windows there were, and how many with each verdict. Writes nothing where no
/// counters were asked for.
pub(super) fn windows<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    locks(out, job)?;
    others(out, job)?;
    let windows = &job.counting.windows;
    let interval = job.trace.counters.interval;
    if interval != 0 {
        out.key("device_counters")?;
        out.open_object()?;
        out.number("interval_ns", interval)?;
        out.number("readings", windows.readings.counted)?;
        out.number("disturbed", windows.readings.disturbed)?;
        out.number("without_plausible_times", windows.readings.without_times)?;
        return out.close_object();
    }
    if windows.count() == 0 && job.trace.counters.agents.is_empty() {
        return Ok(());
    }
    let tally = windows.tally();
    out.key("counters")?;
    out.open_object()?;
    out.number("dispatches", windows.chosen)?;
    out.number("windows", windows.count())?;
    for verdict in Verdict::ALL {
        out.number(verdict.key(), tally.get(&verdict).copied().unwrap_or(0))?;
    }
    out.number("too_many_to_keep", windows.beyond)?;
    out.close_object()
}
