//! The curves of counters, in bounded memory: where there are too many values, neighbours become
//! their mean.

use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The most values of all curves.
pub(super) const MOST_VALUES: usize = 50_000;
/// The most curves. Further ones are only counted.
const MOST_CURVES: usize = 256;

/// A value over a time, or the mean of several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Value {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) mean: f64,
    /// The nanoseconds for which there are values, and how many these are.
    covered: u64,
    pub(super) count: u64,
}

impl Value {
    fn merge(&self, other: &Value) -> Value {
        let covered = self.covered.saturating_add(other.covered);
        let mean = match covered {
            0 => (self.mean + other.mean) / 2.0,
            all => {
                let share = self.covered as f64 / all as f64;
                self.mean * share + other.mean * (1.0 - share)
            }
        };
        Value {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
            mean,
            covered,
            count: self.count + other.count,
        }
    }
}

/// A curve, and the process to which it belongs.
#[derive(Debug)]
pub(super) struct Curve {
    pub(super) process: usize,
    pub(super) name: String,
    pub(super) values: Vec<Value>,
}

/// All curves.
#[derive(Debug, Default)]
pub(super) struct Series {
    pub(super) curves: Vec<Curve>,
    by_name: HashMap<(usize, String), usize, RandomState>,
    values: usize,
    /// Whether values were merged.
    pub(super) is_merged: bool,
    /// The number of values of curves beyond the limit.
    pub(super) left_out: u64,
}

impl Series {
    /// Adds the value that a curve had between two times.
    pub(super) fn add(
        &mut self,
        process: usize,
        name: String,
        (start, end): (u64, u64),
        value: f64,
    ) {
        let place = match self.by_name.get(&(process, name.clone())) {
            Some(place) => *place,
            None if self.curves.len() >= MOST_CURVES => {
                self.left_out += 1;
                return;
            }
            None => {
                self.by_name
                    .insert((process, name.clone()), self.curves.len());
                self.curves.push(Curve {
                    process,
                    name,
                    values: Vec::new(),
                });
                self.curves.len() - 1
            }
        };
        if self.values >= MOST_VALUES {
            self.halve();
        }
        let end = end.max(start);
        if let Some(curve) = self.curves.get_mut(place) {
            self.values += 1;
            curve.values.push(Value {
                start,
                end,
                mean: if value.is_finite() { value } else { 0.0 },
                covered: end - start,
                count: 1,
            });
        }
    }

    fn halve(&mut self) {
        self.is_merged = true;
        for curve in &mut self.curves {
            curve.values.sort_by_key(|value| value.start);
            curve.values = curve
                .values
                .chunks(2)
                .filter_map(|pair| match pair {
                    [one, other] => Some(one.merge(other)),
                    [one] => Some(*one),
                    _ => None,
                })
                .collect();
        }
        self.values = self.curves.iter().map(|curve| curve.values.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_stay_small_and_keep_their_means() {
        let mut series = Series::default();
        for number in 0..200_000_u64 {
            for (process, value) in [(0, 2.0), (1, (number % 2) as f64)] {
                let times = (number * 10, number * 10 + 10);
                series.add(process, "SQ_WAVES".to_owned(), times, value);
            }
        }
        assert!(series.is_merged && series.left_out == 0);
        let all: usize = series.curves.iter().map(|curve| curve.values.len()).sum();
        assert!((MOST_VALUES / 2..=MOST_VALUES).contains(&all), "{all}");
        for (curve, wanted) in series.curves.iter().zip([2.0, 0.5]) {
            let of = |value: &Value| (value.mean * value.covered as f64, value.covered as f64);
            let sums = curve.values.iter().map(of);
            let (sum, time) = sums.fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
            assert!((sum / time - wanted).abs() < 1e-9, "{}", sum / time);
        }
        for number in 0..1000 {
            series.add(2, format!("counter {number}"), (0, 1), f64::NAN);
        }
        assert_eq!(series.curves.len(), MOST_CURVES);
        assert!(series.left_out > 700);
    }

    fn value((start, end): (u64, u64), mean: f64, covered: u64, count: u64) -> Value {
        Value {
            start,
            end,
            mean,
            covered,
            count,
        }
    }

    #[test]
    fn a_merged_value_is_the_mean_over_the_time_that_is_covered() {
        let first = value((100, 400), 1.0, 300, 2);
        // There is a gap of 50 ns before it.
        let second = value((450, 550), 5.0, 100, 1);
        let wanted = value((100, 550), 2.0, 400, 3);
        assert_eq!(first.merge(&second), wanted);
        assert_eq!(second.merge(&first), wanted);
        // Without any time they count the same.
        let [first, second] = [value((7, 7), 3.0, 0, 1), value((9, 9), 4.0, 0, 4)];
        assert_eq!(first.merge(&second), value((7, 9), 3.5, 0, 5));
    }

    #[test]
    fn neighbours_in_time_are_merged_and_an_odd_one_stays() {
        let mut series = Series::default();
        for start in [40, 10, 0, 20, 30] {
            let times = (start, start + 10);
            series.add(0, "waves".to_owned(), times, start as f64);
        }
        series.halve();
        let [curve] = &series.curves[..] else {
            panic!("{:?}", series.curves);
        };
        assert_eq!(
            curve.values,
            [
                value((0, 20), 5.0, 20, 2),
                value((20, 40), 25.0, 20, 2),
                value((40, 50), 40.0, 10, 1),
            ]
        );
        assert_eq!((series.values, series.is_merged), (3, true));
    }
}
