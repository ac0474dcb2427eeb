//! Which kernels changed while they were counted: the cycles of a dispatch in the last third of a
//! class's dispatches, compared with the first third.

use crate::frame::Frame;
use crate::sample::Rows;
use midair_counters::statistics::{Counter, Window, Windows};
use std::collections::BTreeMap;

/// The counters of cycles, the better one first.
const CYCLES: [&str; 2] = ["GRBM_GUI_ACTIVE", "GRBM_COUNT"];
/// Smaller changes tell nothing, however certain they are.
const LEAST: f64 = 0.01;
/// The most classes that are named.
const MOST: usize = 8;

/// Returns a line for each class that changed, those with the most time first.
pub fn of(frame: &Frame, rows: &Rows) -> Vec<String> {
    let mut cycles = CYCLES.into_iter();
    let found = cycles.find_map(|name| Some((name, frame.named(name)?)));
    let Some((name, column)) = found.filter(|_| !frame.is_weighed()) else {
        return Vec::new();
    };
    // The class's windows, one of its rows, and its time.
    let mut classes: BTreeMap<u32, (Windows, usize, u64)> = BTreeMap::new();
    for row in rows.iter() {
        let class = frame.class.get(row).copied().unwrap_or(0);
        // A duration that is unknown becomes 0.
        let duration = frame.duration(row) as u64;
        let (windows, _, time) = classes.entry(class).or_insert((Windows::default(), row, 0));
        let ordinal = windows.dispatched(duration);
        *time = time.saturating_add(duration);
        let value = column.get(row);
        if !value.is_nan() {
            let values = vec![value];
            windows.counted(
                0,
                Window {
                    ordinal,
                    duration,
                    values,
                },
            );
        }
    }
    let mut all: Vec<(Windows, usize, u64)> = classes.into_values().collect();
    all.sort_by_key(|(_, row, time)| (std::cmp::Reverse(*time), *row));
    let line = |(windows, row, _): &(Windows, usize, u64)| {
        let drift = windows.drift([Counter { group: 0, value: 0 }])?;
        let change = drift.relative()?;
        (drift.is_certain && change.abs() >= LEAST).then(|| {
            let kernel = frame.kernel.get(*row).copied().unwrap_or(0);
            format!(
                "{}: {name} {:+.1} % from the first to the last third of {} dispatches",
                frame.names.text(kernel),
                100.0 * change,
                windows.dispatches()
            )
        })
    };
    all.iter().filter_map(line).take(MOST).collect()
}
