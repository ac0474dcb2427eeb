//! The contents of a model at one moment, with names.

use crate::code::Line;
use crate::gauge::Counter;
use crate::histogram::Histogram;
use crate::lane::{self, Lane, Span};
use crate::model::{Called, FURTHER, Lanes, Model};
use crate::recent::{SLOT, windows};
use midair_output::{Hottest, Shares, Stat, table};
use std::collections::BTreeMap;

/// The most rows of each table. They are those with the most time now, and of the rest those with
/// the most time so far.
const MOST_ROWS: usize = 512;

/// The name of a kernel whose description was not seen.
pub(crate) const UNSEEN: &str = "(kernel loaded before the attach, not described)";
/// The name of the kernels beyond the limit.
pub(crate) const FURTHER_KERNELS: &str = "(further kernels)";

/// One process at one moment. Times are CLOCK_BOOTTIME ns, durations ns, and shares from 0 to 1.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Its pid, as the attacher sees it.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// When the session started.
    pub since: u64,
    /// When the snapshot was taken.
    pub now: u64,
    /// What "now" means in rates and shares: this much time before `now`.
    pub window: u64,
    /// The number of records since the attach.
    pub records: u64,
    /// The current rate of records per second.
    pub records_rate: f64,
    /// The number of records that were lost since the attach.
    pub lost: u64,
    /// The number of dispatches and copies without times.
    pub untimed: u64,
    /// The number of bytes on the disk.
    pub kept_bytes: u64,
    /// The share of one processor that our worker thread takes in the target, on average since the
    /// attach. None where it is not known.
    pub worker: Option<f64>,
    /// The devices, by node.
    pub devices: Vec<Device>,
    /// The kernels, by time now, then by time so far.
    pub kernels: Vec<Kernel>,
    /// The lines of code that launched work, in the same order. None without `--stacks`.
    pub code: Option<Vec<Line>>,
    /// Why the session takes no stacks, where that was asked for.
    pub no_stacks: Option<String>,
    /// The calls, by time now.
    pub calls: Vec<Call>,
    /// The copies, by direction.
    pub copies: Vec<Copies>,
    /// The queues that were used, by number.
    pub queues: Vec<Queue>,
    /// Counters of whole GPUs, where some are counted.
    pub counters: Vec<Counter>,
    /// How its session ended, if it has.
    pub ended: Option<String>,
}

/// A GPU in the window.
#[derive(Debug, Clone, Default)]
pub struct Device {
    /// KFD node id.
    pub node: u32,
    /// The number that people know it by.
    pub gpu: u32,
    /// The window. It is shorter than the snapshot's where more happened than is kept.
    pub window: u64,
    /// The share of the window in which a kernel ran.
    pub busy: f64,
    /// What happened in the rest of the window.
    pub idle: Idle,
}

/// Shares of a window in which no kernel ran. Each moment counts under the first member that
/// applies.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Idle {
    /// Copies from this device or to it ran.
    pub copies: f64,
    /// A dispatch was launched and had not started.
    pub launching: f64,
    /// A thread of the host waited for a device.
    pub waiting: f64,
    /// Nothing was queued.
    pub nothing: f64,
}

/// A kernel.
#[derive(Debug, Clone, Default)]
pub struct Kernel {
    /// Our number for it. 0 stands for kernels that were not described.
    pub id: u64,
    /// Its short name.
    pub name: String,
    /// Its name in the code object.
    pub symbol: String,
    /// Its current share of the time of all kernels.
    pub share: f64,
    /// Its share in the window before, to show the change.
    pub before: f64,
    /// The current rate of dispatches that ended, per second.
    pub rate: f64,
    /// Its times since the attach.
    pub total: Stat,
    /// Its times since the attach.
    pub histogram: Histogram,
    /// Its instruction with the most samples, where program counters are sampled.
    pub hottest: Option<Hottest>,
}

/// A function.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// Whether it waits for the device.
    pub waits: bool,
    /// The current rate of calls that returned, per second.
    pub rate: f64,
    /// The current average number of threads in it: 1 where one thread was in it all the time.
    pub threads: f64,
    /// Its times since the attach.
    pub total: Stat,
}

/// Copies of one direction.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    /// The direction.
    pub name: String,
    /// The current rate in bytes per second.
    pub rate: f64,
    /// The bytes since the attach.
    pub bytes: u64,
    /// Their times since the attach.
    pub total: Stat,
}

/// A queue.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// Our number.
    pub id: u32,
    /// The node of its agent.
    pub node: u32,
    /// The number that people know that GPU by.
    pub gpu: u32,
    /// The number of dispatches that have ended since the attach.
    pub ended: u64,
    /// The dispatch at its head.
    pub head: Option<Head>,
}

/// The dispatch at the head of a queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Head {
    /// The number of the dispatch.
    pub dispatch: u64,
    /// The kernel's short name.
    pub name: String,
    /// The time since the dispatch was launched or the one before it ended, whichever is later; ns.
    pub age: u64,
    /// The number of dispatches that have not ended, including this one.
    pub under_way: u32,
}

impl Snapshot {
    /// Makes the snapshot of one process.
    pub fn of(pid: u32, name: &str, model: &Model) -> Snapshot {
        let pulse = &model.pulse;
        let now = pulse.now;
        let (recent, before) = windows(now);
        let window = now
            .saturating_sub(model.since)
            .min(now.saturating_sub(recent.start * SLOT))
            .max(1);
        let seconds = window as f64 / 1e9;
        let per_second = |count: u64| count as f64 / seconds;
        let (kernels, labels) = kernels(model, &recent, &before, per_second);
        Snapshot {
            pid,
            name: name.to_owned(),
            since: model.since,
            now,
            window,
            records: model.records,
            records_rate: per_second(model.all.sum(&recent).bytes),
            lost: pulse.lost,
            untimed: model.untimed,
            kept_bytes: pulse.kept_bytes,
            worker: worker(model),
            devices: devices(model, now.saturating_sub(window)),
            kernels,
            code: code(model, per_second),
            no_stacks: model.code.why_none(),
            calls: calls(model, &recent, window, per_second),
            copies: copies(model, &recent, per_second),
            queues: queues(model, &labels),
            counters: model.counters(now.saturating_sub(window)),
            ended: model.ended.clone(),
        }
    }

    /// Returns the share of the window in which the busiest device ran a kernel.
    pub fn busy(&self) -> f64 {
        self.devices
            .iter()
            .map(|device| device.busy)
            .fold(0.0, f64::max)
    }

    /// Returns the current rate of dispatches that ended, per second.
    pub fn kernel_rate(&self) -> f64 {
        self.kernels.iter().map(|kernel| kernel.rate).sum()
    }

    /// Returns the current rate of copied bytes per second.
    pub fn copy_rate(&self) -> f64 {
        self.copies.iter().map(|copies| copies.rate).sum()
    }
}

fn worker(model: &Model) -> Option<f64> {
    let (began, first) = model.worker_began?;
    let spent = model.pulse.worker_ns?.saturating_sub(first);
    let time = model.pulse.now.saturating_sub(began);
    (time > 0).then(|| spent as f64 / time as f64)
}

/// Returns the earliest time when the dispatch at the head of a queue may have started.
pub(crate) fn began(model: &Model, flight: &crate::Flight) -> u64 {
    let last = model.queues.get(&flight.queue);
    let last = last.map_or(0, |queue| queue.last_end);
    // What happened before the attach was not seen.
    flight.rung.max(last).max(model.since).min(model.pulse.now)
}

fn devices(model: &Model, from: u64) -> Vec<Device> {
    let now = model.pulse.now;
    let device = |(node, lanes): (&u32, &Lanes)| {
        let of = [&lanes.busy, &lanes.copying, &lanes.queued, &model.waiting];
        let known = of.map(Lane::known_since).into_iter().fold(from, u64::max);
        let from = known.min(now.saturating_sub(1));
        let window = now - from;
        let heads: Vec<Span> = model
            .pulse
            .flights
            .iter()
            .filter(|flight| flight.node == *node)
            .map(|flight| (began(model, flight).max(from), now))
            .filter(|span| span.0 < span.1)
            .collect();
        let busy = lane::united(lanes.busy.within(from, now), &heads);
        let rest = [&lanes.copying, &lanes.queued, &model.waiting];
        let [copying, queued, waiting] = rest.map(|lane| lane.within(from, now));
        // The causes are the same as on the screen after an attach.
        let shares = Shares::of([&busy, &copying, &queued, &waiting], from, now);
        let share = |ns: u64| ns as f64 / window as f64;
        Device {
            node: *node,
            gpu: model.gpu(*node),
            window,
            busy: share(shares.busy),
            idle: Idle {
                copies: share(shares.copies),
                launching: share(shares.starting),
                waiting: share(shares.waited),
                nothing: share(shares.nothing),
            },
        }
    };
    let gpus = model.devices.iter().filter(|(_, lanes)| lanes.is_gpu);
    gpus.map(device).collect()
}

/// Returns the rows of kernels, and their short names by our numbers.
fn kernels(
    model: &Model,
    recent: &std::ops::Range<u64>,
    before: &std::ops::Range<u64>,
    per_second: impl Fn(u64) -> f64,
) -> (Vec<Kernel>, BTreeMap<u64, String>) {
    let all = |of: &std::ops::Range<u64>| {
        let ns: u64 = model
            .kernels
            .values()
            .map(|ran| ran.recent.sum(of).ns)
            .sum();
        ns.max(1) as f64
    };
    let (all_now, all_before) = (all(recent), all(before));
    let mut rows: Vec<Kernel> = model
        .kernels
        .iter()
        .map(|(id, ran)| {
            let now = ran.recent.sum(recent);
            Kernel {
                id: *id,
                share: now.ns as f64 / all_now,
                before: ran.recent.sum(before).ns as f64 / all_before,
                rate: per_second(now.calls),
                total: ran.total,
                ..Kernel::default()
            }
        })
        .collect();
    rows.sort_by(|a, b| {
        let by_share = b.share.total_cmp(&a.share);
        by_share.then_with(|| (b.total.total, a.id).cmp(&(a.total.total, b.id)))
    });
    rows.truncate(MOST_ROWS);
    let mut ids: Vec<u64> = rows.iter().map(|row| row.id).collect();
    let heads = model.pulse.flights.iter();
    ids.extend(heads.map(|flight| model.kernel_of(flight.kernel_object)));
    ids.sort_unstable();
    ids.dedup();
    let named: Vec<(u64, &[u8])> = ids
        .iter()
        .filter_map(|id| Some((*id, model.symbol(*id)?)))
        .collect();
    let symbols: Vec<&[u8]> = named.iter().map(|(_, symbol)| *symbol).collect();
    let labels = table::kernel_labels(&symbols);
    let labels: BTreeMap<u64, String> = named.iter().map(|(id, _)| *id).zip(labels).collect();
    let hottest = model.sampled.1.hottest(&model.sampled.0);
    for row in &mut rows {
        row.hottest = hottest.iter().find(|it| it.kernel == row.id).copied();
        row.name = name_of(row.id, &labels);
        row.symbol = model.symbol(row.id).map_or_else(String::new, |symbol| {
            String::from_utf8_lossy(symbol).into_owned()
        });
        if let Some(ran) = model.kernels.get(&row.id) {
            row.histogram = ran.histogram.clone();
        }
    }
    (rows, labels)
}

fn code(model: &Model, per_second: impl Fn(u64) -> f64) -> Option<Vec<Line>> {
    let mut lines = model.code.lines(model.pulse.now, per_second)?;
    lines.truncate(MOST_ROWS);
    Some(lines)
}

/// Returns the name of a kernel by its name in the code object, as screens show it.
pub fn kernel_label(symbol: &str) -> String {
    let label = table::kernel_labels(&[symbol.as_bytes()]).pop();
    label.unwrap_or_default()
}

fn name_of(id: u64, labels: &BTreeMap<u64, String>) -> String {
    match labels.get(&id) {
        Some(label) => label.clone(),
        None if id == FURTHER => FURTHER_KERNELS.to_owned(),
        None => UNSEEN.to_owned(),
    }
}

fn calls(
    model: &Model,
    recent: &std::ops::Range<u64>,
    window: u64,
    per_second: impl Fn(u64) -> f64,
) -> Vec<Call> {
    let row = |(key, called): (&(u8, u32), &Called)| {
        let now = called.recent.sum(recent);
        Call {
            name: model.names.operation(key.0, key.1).into_owned(),
            waits: called.waits,
            rate: per_second(now.calls),
            threads: now.ns as f64 / window as f64,
            total: called.total,
        }
    };
    let mut rows: Vec<Call> = model.calls.iter().map(row).collect();
    rows.sort_by(|a, b| {
        let by_time = b.threads.total_cmp(&a.threads);
        by_time.then_with(|| (b.total.total, &a.name).cmp(&(a.total.total, &b.name)))
    });
    rows.truncate(MOST_ROWS);
    rows
}

fn copies(
    model: &Model,
    recent: &std::ops::Range<u64>,
    per_second: impl Fn(u64) -> f64,
) -> Vec<Copies> {
    let row = |(direction, called): (&u32, &Called)| Copies {
        name: direction_name(model, *direction),
        rate: per_second(called.recent.sum(recent).bytes),
        bytes: called.bytes,
        total: called.total,
    };
    model.copies.iter().map(row).collect()
}

/// Returns the name of a direction of copies.
pub(crate) fn direction_name(model: &Model, direction: u32) -> String {
    let copy = midair_domain::kind::MEMORY_COPY;
    let prefix = format!("{}_", model.names.kind(copy));
    let name = model.names.operation(copy, direction);
    name.replace(&prefix, "").to_lowercase().replace('_', " ")
}

fn queues(model: &Model, labels: &BTreeMap<u64, String>) -> Vec<Queue> {
    let head = |id: u32| {
        let flight = model
            .pulse
            .flights
            .iter()
            .find(|flight| flight.queue == id)?;
        Some(Head {
            dispatch: flight.dispatch,
            name: name_of(model.kernel_of(flight.kernel_object), labels),
            age: model.pulse.now - began(model, flight),
            under_way: flight.under_way,
        })
    };
    let known = model.queues.iter();
    let rows = known.map(|(id, queue)| Queue {
        id: *id,
        node: queue.node,
        gpu: model.gpu(queue.node),
        ended: queue.dispatches,
        head: head(*id),
    });
    rows.take(MOST_ROWS).collect()
}

/// Returns for each process whether the others probably wait for it. They do for those that end
/// kernels at less than four fifths of the usual rate, which is the median of all that run.
pub fn stragglers(snapshots: &[Snapshot]) -> Vec<bool> {
    let rate = |it: &Snapshot| it.ended.is_none().then(|| it.kernel_rate());
    let mut rates: Vec<f64> = snapshots.iter().filter_map(rate).collect();
    rates.sort_by(f64::total_cmp);
    let usual = match rates.len() {
        0 | 1 => 0.0,
        count => rates.get(count / 2).copied().unwrap_or_default(),
    };
    let is_late = |rate: f64| rate < 0.8 * usual;
    snapshots
        .iter()
        .map(|it| rate(it).is_some_and(is_late))
        .collect()
}
