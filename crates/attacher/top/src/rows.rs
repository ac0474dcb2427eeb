//! The kernels of all processes that are shown, or the lines of code that launched them, by name.

use crate::view::{By, Sort, View};
use midair_live::{Histogram, Snapshot};
use midair_output::{Hottest, Stat};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// One line of the table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) symbol: String,
    pub(crate) share: f64,
    pub(crate) change: f64,
    pub(crate) rate: f64,
    pub(crate) total: Stat,
    pub(crate) histogram: Histogram,
    /// The instruction with the most samples, in the process with the most of them.
    pub(crate) hottest: Option<Hottest>,
    /// How many queues have this kernel at their heads.
    pub(crate) in_flight: usize,
}

impl View {
    /// Returns the kernels, or the lines of code, that pass the filter, in the order that the user chose.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut rows = rows(&self.snapshots, self.by);
        rows.retain(|row| self.filter.is_empty() || row.name.to_lowercase().contains(&self.filter));
        rows.sort_by(|a, b| by(self.sort, a, b).then_with(|| a.name.cmp(&b.name)));
        rows
    }
}

fn by(sort: Sort, a: &Row, b: &Row) -> Ordering {
    match sort {
        Sort::Share => b
            .share
            .total_cmp(&a.share)
            .then(b.total.total.cmp(&a.total.total)),
        Sort::Change => b.change.abs().total_cmp(&a.change.abs()),
        Sort::Rate => b.rate.total_cmp(&a.rate),
        Sort::Mean => b.total.mean().total_cmp(&a.total.mean()),
        Sort::Total => b.total.total.cmp(&a.total.total),
        Sort::Name => Ordering::Equal,
    }
}

/// Returns one line for all kernels, or lines of code, with the same name, regardless of process and code object.
/// Shares cover all processes together, each of which counts equally.
fn rows(snapshots: &[Snapshot], by: By) -> Vec<Row> {
    let running: Vec<&Snapshot> = snapshots.iter().filter(|it| it.ended.is_none()).collect();
    let shown: Vec<&Snapshot> = match running.is_empty() {
        true => snapshots.iter().collect(),
        false => running,
    };
    let processes = shown.len().max(1) as f64;
    let mut by_name: BTreeMap<&str, Row> = BTreeMap::new();
    for snapshot in &shown {
        if by == By::Code {
            for line in snapshot.code.iter().flatten() {
                let row = by_name.entry(&line.code.name).or_default();
                row.name.clone_from(&line.code.name);
                row.symbol = line.code.whole();
                row.share += line.share / processes;
                row.change += (line.share - line.before) / processes;
                row.rate += line.rate;
                row.total.merge(&line.total);
                row.histogram.merge(&line.histogram);
            }
            continue;
        }
        for kernel in &snapshot.kernels {
            let row = by_name.entry(&kernel.name).or_default();
            row.name.clone_from(&kernel.name);
            row.symbol.clone_from(&kernel.symbol);
            row.share += kernel.share / processes;
            row.change += (kernel.share - kernel.before) / processes;
            row.rate += kernel.rate;
            row.total.merge(&kernel.total);
            row.histogram.merge(&kernel.histogram);
            let all = |it: &Option<Hottest>| it.map_or(0, |it| it.all);
            if all(&kernel.hottest) > all(&row.hottest) {
                row.hottest = kernel.hottest;
            }
        }
        for head in snapshot
            .queues
            .iter()
            .filter_map(|queue| queue.head.as_ref())
        {
            let row = by_name.entry(&head.name).or_default();
            row.name.clone_from(&head.name);
            row.in_flight += 1;
        }
    }
    by_name.into_values().collect()
}

impl Row {
    /// Returns the hottest instruction and its share of the kernel's samples: `+0x10 60%`.
    pub(crate) fn hottest_in_words(&self) -> String {
        self.hottest.map_or_else(String::new, |it| {
            let share = 100.0 * it.count as f64 / it.all.max(1) as f64;
            format!(" +{:#x} {share:.0}%", it.offset)
        })
    }
}
