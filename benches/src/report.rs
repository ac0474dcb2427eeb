//! The table in which the numbers are shown.

use std::time::Duration;

/// Rows with what was measured, p50, p99, the greatest value, the number of values, and the budget.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<[String; 6]>,
}

impl Table {
    /// Makes a table with its head.
    pub fn new() -> Table {
        let head = ["measured", "p50", "p99", "max", "n", "budget"];
        Table {
            rows: vec![head.map(str::to_owned)],
        }
    }

    /// Adds a row of times.
    pub fn times(&mut self, what: &str, times: &[Duration], budget: &str) {
        let sorted = sorted(times);
        let at = |part: f64| unit(percentile(&sorted, part));
        let row = [
            what.to_owned(),
            at(0.5),
            at(0.99),
            at(1.0),
            sorted.len().to_string(),
            budget.to_owned(),
        ];
        self.rows.push(row);
    }

    /// Adds a row of ns per call.
    pub fn per_call(&mut self, what: &str, ns: &[f64], budget: &str) {
        let mut sorted = ns.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let value = sorted.get(index(sorted.len(), part)).copied();
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} ns"))
        };
        let row = [
            what.to_owned(),
            at(0.5),
            at(0.99),
            at(1.0),
            sorted.len().to_string(),
            budget.to_owned(),
        ];
        self.rows.push(row);
    }

    /// Adds a row of numbers without a unit.
    pub fn plain(&mut self, what: &str, numbers: &[f64], budget: &str) {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let value = sorted.get(index(sorted.len(), part)).copied();
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
        };
        let row = [
            what.to_owned(),
            at(0.5),
            at(0.99),
            at(1.0),
            sorted.len().to_string(),
            budget.to_owned(),
        ];
        self.rows.push(row);
    }

    /// Prints all rows, and the load of the machine meanwhile.
    pub fn print(&self) {
        print!("{}", self.text());
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        println!(
            "load {} on {cores} cores",
            load.split(' ').take(3).collect::<Vec<_>>().join(" ")
        );
    }

    /// Returns all rows, a line each, with two spaces or more between cells.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let widths = self
                .rows
                .iter()
                .filter_map(|row| row.get(column).map(|text| text.chars().count()));
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..6).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (text, &width))| match column {
                    0 | 5 => format!("{text:width$}"),
                    _ => format!("{text:>width$}"),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

fn sorted(times: &[Duration]) -> Vec<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted
}

/// Returns the index of a percentile in `count` sorted values: the smallest one at which at least
/// this part of the values is not greater.
fn index(count: usize, part: f64) -> usize {
    ((count as f64 * part).ceil() as usize).clamp(1, count.max(1)) - 1
}

fn percentile(sorted: &[Duration], part: f64) -> Duration {
    sorted
        .get(index(sorted.len(), part))
        .copied()
        .unwrap_or_default()
}

fn unit(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us < 1000.0 {
        format!("{us:.1} us")
    } else {
        format!("{:.2} ms", us / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        for (part, expected) in [(0.5, 100), (0.99, 198), (1.0, 200)] {
            assert_eq!(
                percentile(&sorted(&times), part),
                Duration::from_micros(expected)
            );
        }
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
        assert_eq!(
            percentile(&[Duration::from_micros(3)], 0.01),
            Duration::from_micros(3)
        );
    }

    #[test]
    fn units() {
        assert_eq!(unit(Duration::from_nanos(1500)), "1.5 us");
        assert_eq!(unit(Duration::from_micros(2500)), "2.50 ms");
    }
}
