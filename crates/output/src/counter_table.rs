//! The table of counters at the end of `midair attach`: for each kernel what its dispatches counted on
//! average, from how many windows, and how sure that is.

use crate::api::Names;
use crate::counters::batch::Batch;
use crate::counters::{Counts, Reader, Verdict, values};
use crate::device_table::device_table;
use crate::job::Job;
use crate::model::{Plan, Trace};
use crate::record_file::WalkError;
use crate::table::{Style, fit};
use midair_counters::statistics::{Class, Counter, Window, Windows};
use midair_record::event::{Kernel, Record, kind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt::Write;

/// Classes beyond this many are not shown. A target can invent any number.
const MOST_CLASSES: usize = 1 << 12;
/// Counters of one class that are shown.
const MOST_COUNTERS: usize = 16;

/// Widths behind the name.
const COUNT: usize = 9;
const MEAN: usize = 14;
const SURE: usize = 10;

/// One class of dispatches.
#[derive(Default)]
struct Counted {
    statistics: Windows,
    /// Where each counter stands: by name.
    counters: BTreeMap<&'static str, Counter>,
    /// Nanoseconds on the device.
    time: u64,
    /// The kernels of a batch, and their number. Empty for a class of dispatches.
    batch: (String, u64),
}

/// Each batch with a window stands for so many without one: how many there were is not known, and
/// the interval is to be the one for very many.
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

/// The table; empty where no counters were counted.
pub fn counter_table(trace: &Trace, names: &Names, plan: &Plan, style: Style) -> String {
    if trace.records.index().count_of(kind::COUNTER_COLLECTION) == 0 {
        return String::new();
    }
    let job = Job::new(trace, names, plan);
    if trace.counters.interval != 0 {
        return device_table(&job, style);
    }
    let (classes, batches) = classes(&job);
    text(&job, classes, batches, style)
}

/// Classes of dispatches, and sorts of batches.
fn classes(job: &Job<'_>) -> (HashMap<Class, Counted>, HashMap<u64, Counted>) {
    let records = &job.trace.records;
    let mut classes: HashMap<Class, Counted> = HashMap::new();
    let mut batches: HashMap<u64, Counted> = HashMap::new();
    // Which of its class each dispatch with values is.
    let mut ordinals: HashMap<u64, u64> = HashMap::new();
    // What cannot be read is missing in the table; the files' writer has said so.
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
                counted.count(&counts, part.group, ordinal, duration);
            } else if let Some(counted) = classes.get_mut(&class(counts.kernel))
                && let Some(ordinal) = ordinals.get(&counts.kernel.dispatch_id)
            {
                let duration = counts.kernel.end.saturating_sub(counts.kernel.start);
                counted.count(&counts, part.group, *ordinal, duration);
            }
            Ok(())
        },
    );
    classes.retain(|_, counted| {
        counted.statistics.windows() > 0 || counted.statistics.shared_windows() > 0
    });
    (classes, batches)
}

/// The row of a batch's sort, unless there are too many.
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
        counted.batch = (batch.kernels(job), batch.count);
    }
    Some(counted)
}

impl Counted {
    /// Takes what a window counted.
    fn count(&mut self, counts: &Counts<'_>, group: u32, ordinal: u64, duration: u64) {
        let mut sums = Vec::with_capacity(counts.counters.len());
        for (value, (_, name, values)) in counts.counters.iter().enumerate() {
            // One that is in several groups is told of the first.
            let place = Counter { group, value };
            self.counters.entry(name).or_insert(place);
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

fn text(
    job: &Job<'_>,
    classes: HashMap<Class, Counted>,
    batches: HashMap<u64, Counted>,
    style: Style,
) -> String {
    let mut all: Vec<((Class, u64), Counted)> = Vec::new();
    all.extend(classes.into_iter().map(|(class, of)| ((class, 0), of)));
    let batches = batches.into_iter();
    all.extend(batches.map(|(sort, of)| ((Class::default(), sort), of)));
    all.sort_by_key(|(class, counted)| (Reverse(counted.time), *class));
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
    for ((class, _), counted) in all.iter().take(rows) {
        let statistics = &counted.statistics;
        let [x, y, z] = class.grid;
        let (kernels, together) = &counted.batch;
        let name = if *together > 0 {
            format!(
                "{kernels} [batch]: {} times {together} dispatches together, {} shared",
                statistics.windows(),
                statistics.shared_windows()
            )
        } else {
            format!(
                "{} [{x},{y},{z}]: {} of {} dispatches, {} shared",
                job.kernel_name_by_id(class.kernel),
                statistics.windows(),
                statistics.dispatches(),
                statistics.shared_windows()
            )
        };
        // The numbers stand at the end: a long name is cut before them.
        let tail = name.len() - name.rfind(" [").unwrap_or(0);
        let kept = (width + COUNT + MEAN + SURE).saturating_sub(tail);
        let (head, tail) = name.split_at(name.len() - tail);
        let _ = writeln!(out, "{}{tail}", fit(head, kept, style.unicode));
        for (name, counter) in counted.counters.iter().take(MOST_COUNTERS) {
            let Some(mean) = statistics.mean(*counter) else {
                continue;
            };
            let sure = match mean.relative() {
                Some(relative) => format!("±{:.1}%", relative * 100.0),
                None if mean.half == Some(0.0) => "±0".to_owned(),
                None => "?".to_owned(),
            };
            let name = fit(&format!("  {name}"), width, style.unicode);
            let _ = writeln!(
                out,
                "{name:<width$}{:>COUNT$}{:>MEAN$}{sure:>SURE$}",
                mean.n,
                short(mean.value)
            );
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

/// At most eight digits.
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
        let all = [0.0, 64.0, 1.5, 123_456.78, 1.5e12, 0.000_01, -3.0];
        let texts: Vec<String> = all.into_iter().map(short).collect();
        assert_eq!(
            texts,
            ["0", "64", "1.500", "123456.8", "1.500e12", "1.000e-5", "-3"]
        );
    }
}
