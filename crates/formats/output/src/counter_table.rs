//! The table of counters at the end of `midair attach`: for each kernel what its dispatches counted
//! on average, from how many windows, and how certain that is.

use crate::counter_findings;
use crate::counter_report::CounterReport;
use crate::counters::batch::Batch;
use crate::counters::reader::Reader;
use crate::counters::{Counting, Counts, Verdict, values};
use crate::job::Job;
use crate::model::{Plan, Trace};
use crate::table::{Style, fit};
use midair_counters::statistics::{Class, Counter, Window, Windows};
use midair_record::event::{Kernel, Record, kind};
use midair_trace::api::Names;
use midair_trace::record_file::WalkError;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt::Write;

/// Further classes are not shown, since a target can invent any number.
const MOST_CLASSES: usize = 1 << 12;
/// The most counters of one class that are shown.
const MOST_COUNTERS: usize = 16;

/// The widths of the columns behind the name.
const COUNT: usize = 9;
const MEAN: usize = 14;
const SURE: usize = 10;

/// One class of dispatches.
#[derive(Default)]
pub(crate) struct Counted {
    pub(crate) statistics: Windows,
    /// KFD node id of the agent.
    pub(crate) node: u32,
    /// The place of each counter among the values, by name.
    pub(crate) counters: BTreeMap<&'static str, Counter>,
    /// Nanoseconds on the device.
    time: u64,
    /// The kernels of a batch, and their number. Empty for a class of dispatches.
    pub(crate) batch: (String, u64),
}

/// The number of batches that each batch with a window is taken to stand for. The real number is
/// not known, and the confidence interval should be that for very many.
const BATCHES_EACH: u64 = 1000;

fn class(kernel: &Kernel) -> Class {
    Class {
        node: kernel.node,
        kernel: kernel.kernel_id,
        grid: kernel.grid,
        workgroup: kernel.workgroup,
        lds: kernel.group_segment,
    }
}

/// Returns the table, or an empty text where no counters were counted.
pub fn counter_table(trace: &Trace, names: &Names, plan: &Plan, style: Style) -> String {
    CounterReport::of(trace, names, plan, style).text
}

/// A class of dispatches or, with another number than 0, a sort of batches.
pub(crate) type Row = ((Class, u64), Counted);

/// The index of the counter that shows changes over time, among a window's values.
pub(crate) const OVER_TIME: usize = 0;

/// Returns all rows: those that took most of the GPU's time first.
pub(crate) fn rows(job: &Job<'_>) -> Vec<Row> {
    let (classes, batches) = classes(job);
    let mut all: Vec<Row> = Vec::new();
    all.extend(classes.into_iter().map(|(class, of)| ((class, 0), of)));
    let batches = batches.into_iter();
    all.extend(batches.map(|(sort, of)| ((Class::default(), sort), of)));
    all.sort_by_key(|(class, counted)| (Reverse(counted.time), *class));
    all
}

/// Returns the rows as members of the JSON document.
pub(crate) fn fields(job: &Job<'_>, rows: &[Row]) -> Vec<Value> {
    rows.iter().map(|row| field(job, row)).collect()
}

fn field(job: &Job<'_>, ((class, _), counted): &Row) -> Value {
    let statistics = &counted.statistics;
    let counters = counted.counters.iter().filter_map(|(name, counter)| {
        let mean = statistics.mean(*counter)?;
        let range = statistics.range(*counter);
        Some(json!({
            "name": name,
            "mean": mean.value,
            "windows": mean.n,
            "interval_95": mean.interval().map(|(low, high)| [low, high]),
            "min": range.map(|range| range.0),
            "max": range.map(|range| range.1),
            "coverage": statistics.coverage_of(counter.group),
            "exceeds": counter_findings::excess(job, counted, name, *counter)
                .map(|excess| excess.field()),
        }))
    });
    let (_, together) = &counted.batch;
    let is_batch = *together > 0;
    let kernel = name_of(job, class, counted);
    json!({
        "agent": (!is_batch).then(|| job.agent_name(class.node)),
        "kernel": kernel,
        "grid": (!is_batch).then_some(class.grid),
        "workgroup": (!is_batch).then_some(class.workgroup),
        "lds_bytes": (!is_batch).then_some(class.lds),
        "batch_of": is_batch.then_some(*together),
        "dispatches": (!is_batch).then(|| statistics.dispatches()),
        "windows": statistics.windows(),
        "shared_windows": statistics.shared_windows(),
        "total_ns": counted.time,
        "drift": counter_findings::drift(job, counted).map(|change| change.field()),
        "counters": counters.collect::<Vec<_>>(),
    })
}

/// Returns the name of a row's kernel, or the names of a batch's kernels.
pub(crate) fn name_of(job: &Job<'_>, class: &Class, counted: &Counted) -> String {
    let (kernels, together) = &counted.batch;
    match together {
        0 => job.kernel_name_by_id(class.kernel).to_string(),
        _ => kernels.clone(),
    }
}

/// Collects the classes of dispatches and the sorts of batches.
fn classes(job: &Job<'_>) -> (HashMap<Class, Counted>, HashMap<u64, Counted>) {
    let records = &job.trace.records;
    let mut classes: HashMap<Class, Counted> = HashMap::new();
    let mut batches: HashMap<u64, Counted> = HashMap::new();
    // The position of each dispatch with values within its class.
    let mut ordinals: HashMap<u64, u64> = HashMap::new();
    // Records that cannot be read are missing in the table. The writer of the files has already
    // reported that.
    let _ = records.walk_all(
        |kind| kind == kind::KERNEL_DISPATCH,
        |record| {
            if let Record::Kernel(kernel, _) = record
                && records.is_chosen(kernel)
            {
                let class = class(kernel);
                if classes.len() < MOST_CLASSES || classes.contains_key(&class) {
                    let duration = kernel.end.saturating_sub(kernel.start);
                    let counted = classes.entry(class).or_default();
                    counted.time = counted.time.saturating_add(duration);
                    let ordinal = counted.statistics.dispatched(duration);
                    if job.counting.windows.has_values(kernel.dispatch_id) {
                        ordinals.insert(kernel.dispatch_id, ordinal);
                    }
                }
            }
            Ok::<(), Infallible>(())
        },
    );
    for window in job.counting.windows.iter() {
        if matches!(window.verdict, Verdict::Shared | Verdict::NotKnown)
            && let Some(kernel) = &window.kernel
        {
            let counted = match &window.batch {
                None => classes.get_mut(&class(kernel)),
                Some(batch) => sort_of(&mut batches, batch, job),
            };
            if let Some(counted) = counted {
                counted.statistics.shared();
            }
        }
    }
    let mut reader = Reader::new(job);
    let _: Result<(), WalkError<Infallible>> = records.walk_all(
        |kind| kind == kind::COUNTER_COLLECTION,
        |record| {
            let Record::CounterWindow(part, words) = record else {
                return Ok(());
            };
            let Some(counts) = reader.part(part, words) else {
                return Ok(());
            };
            if let Some(batch) = counts.batch {
                let Some(counted) = sort_of(&mut batches, batch, job) else {
                    return Ok(());
                };
                let duration = batch.end.saturating_sub(batch.start);
                counted.time = counted.time.saturating_add(duration);
                let ordinal = counted.statistics.dispatched(duration);
                counted.statistics.dispatched_more(BATCHES_EACH - 1);
                counted.count(&job.counting, &counts, part.group, (ordinal, duration));
            } else if let Some(counted) = classes.get_mut(&class(counts.kernel))
                && let Some(ordinal) = ordinals.get(&counts.kernel.dispatch_id)
            {
                let duration = counts.kernel.end.saturating_sub(counts.kernel.start);
                counted.count(&job.counting, &counts, part.group, (*ordinal, duration));
            }
            Ok(())
        },
    );
    classes.retain(|_, counted| {
        counted.statistics.windows() > 0 || counted.statistics.shared_windows() > 0
    });
    (classes, batches)
}

/// Returns the row for a batch's sort, unless there are too many rows.
fn sort_of<'b>(
    batches: &'b mut HashMap<u64, Counted>,
    batch: &Batch,
    job: &Job<'_>,
) -> Option<&'b mut Counted> {
    let is_new = !batches.contains_key(&batch.sort);
    if is_new && batches.len() >= MOST_CLASSES {
        return None;
    }
    let counted = batches.entry(batch.sort).or_default();
    if is_new {
        counted.batch = (batch.kernels(|id| job.kernel_name_by_id(id)), batch.count);
    }
    Some(counted)
}

impl Counted {
    /// Adds what a window counted.
    fn count(
        &mut self,
        counting: &Counting,
        counts: &Counts<'_>,
        group: u32,
        (ordinal, duration): (u64, u64),
    ) {
        self.node = counts.kernel.node;
        let mut sums = Vec::with_capacity(1 + counts.counters.len());
        sums.push(counts.over_time.unwrap_or(f64::NAN));
        for (value, (id, _, values)) in (OVER_TIME + 1..).zip(&counts.counters) {
            // A counter that is in several groups is taken from the first of them.
            let place = Counter { group, value };
            if let Some(name) = counting.name(*id) {
                self.counters.entry(name).or_insert(place);
            }
            sums.push(values::sum(values));
        }
        let window = Window {
            ordinal,
            duration,
            values: sums,
        };
        self.statistics.counted(group, window);
    }
}

/// Returns the table of these rows.
pub(crate) fn text(job: &Job<'_>, all: &[Row], style: Style) -> String {
    let (bold, plain) = if style.colour {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    let width = style.columns.clamp(60, 160) - COUNT - MEAN - SURE;
    // Writing to a String cannot fail.
    let mut out = String::new();
    if !all.is_empty() {
        let _ = writeln!(
            out,
            "{bold}{:<width$}{:>COUNT$}{:>MEAN$}{:>SURE$}{plain}",
            "COUNTER", "WINDOWS", "MEAN", "95 %"
        );
    }
    let rows = style.rows.max(1);
    let first = all.first().map(|((class, _), _)| class.node);
    let several = all.iter().any(|((class, _), _)| Some(class.node) != first);
    for ((class, _), counted) in all.iter().take(rows) {
        let of = match several {
            true => format!(" of {}", job.agent_name(class.node)),
            false => String::new(),
        };
        let statistics = &counted.statistics;
        let [x, y, z] = class.grid;
        let (_, together) = &counted.batch;
        let name = if *together > 0 {
            format!(
                "{} [batch]{of}: {} times {together} dispatches together, {} shared",
                name_of(job, class, counted),
                statistics.windows(),
                statistics.shared_windows()
            )
        } else {
            format!(
                "{} [{x},{y},{z}]{of}: {} of {} dispatches, {} shared",
                name_of(job, class, counted),
                statistics.windows(),
                statistics.dispatches(),
                statistics.shared_windows()
            )
        };
        // The numbers stand at the end of the name, so a long name is cut before them.
        let tail = name.len() - name.rfind(" [").unwrap_or(0);
        let kept = (width + COUNT + MEAN + SURE).saturating_sub(tail);
        let (head, tail) = name.split_at(name.len() - tail);
        let _ = writeln!(out, "{}{tail}", fit(head, kept, style.unicode));
        let whole = width + COUNT + MEAN + SURE;
        if let Some(change) = counter_findings::drift(job, counted).filter(|c| c.is_told()) {
            let text = format!("  ! {}", change.text());
            let _ = writeln!(out, "{}", fit(&text, whole, style.unicode));
        }
        for (name, counter) in counted.counters.iter().take(MOST_COUNTERS) {
            let Some(mean) = statistics.mean(*counter) else {
                continue;
            };
            let sure = match mean.relative() {
                Some(relative) => format!("±{:.1}%", relative * 100.0),
                None if mean.half == Some(0.0) => "±0".to_owned(),
                None => "?".to_owned(),
            };
            let shown = fit(&format!("  {name}"), width, style.unicode);
            let _ = writeln!(
                out,
                "{shown:<width$}{:>COUNT$}{:>MEAN$}{sure:>SURE$}",
                mean.n,
                short(mean.value)
            );
            if let Some(excess) = counter_findings::excess(job, counted, name, *counter) {
                let text = format!("    ! {}", excess.text());
                let _ = writeln!(out, "{}", fit(&text, whole, style.unicode));
            }
        }
        let more = counted.counters.len().saturating_sub(MOST_COUNTERS);
        if more > 0 {
            let _ = writeln!(out, "  ({more} other counters)");
        }
    }
    if all.len() > rows {
        let _ = writeln!(out, "({} other kernels or grids)", all.len() - rows);
    }
    out
}

/// Returns a number in at most eight digits.
pub(crate) fn short(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e9 {
        format!("{value:.0}")
    } else if value.abs() >= 1e9 || value.abs() < 0.001 {
        format!("{value:.3e}")
    } else if value.abs() >= 1000.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_whole_ones_stay_whole() {
        let all = [
            0.0,
            64.0,
            1.5,
            999.9996,
            1000.25,
            123_456.78,
            999_999_999.0,
            1e9,
            1.5e12,
            0.001,
            0.000_01,
            -3.0,
            -0.25,
            -1e9,
        ];
        let texts: Vec<String> = all.into_iter().map(short).collect();
        assert_eq!(
            texts,
            [
                "0",
                "64",
                "1.500",
                "1000.000",
                "1000.2",
                "123456.8",
                "999999999",
                "1.000e9",
                "1.500e12",
                "0.001",
                "1.000e-5",
                "-3",
                "-0.250",
                "-1.000e9"
            ]
        );
    }
}
