//! The times of one kernel in classes, four for each doubling.

/// The number of classes, which reach from 0 ns to beyond an hour.
pub const WIDTH: usize = 4 * 42;

/// The number of times in each class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram(Box<[u32; WIDTH]>);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(Box::new([0; WIDTH]))
    }
}

/// Returns the class of a time.
fn class(ns: u64) -> usize {
    if ns < 4 {
        return ns as usize;
    }
    let octave = u64::BITS - 1 - ns.leading_zeros();
    let quarter = (ns >> (octave - 2)) & 3;
    ((octave as usize - 1) * 4 + quarter as usize).min(WIDTH - 1)
}

/// Returns the least time of a class, ns.
fn least(class: usize) -> u64 {
    if class < 4 {
        return class as u64;
    }
    let (octave, quarter) = (class / 4 + 1, class as u64 % 4);
    (4 + quarter) << (octave - 2)
}

impl Histogram {
    /// Counts a time.
    pub(crate) fn add(&mut self, ns: u64) {
        if let Some(count) = self.0.get_mut(class(ns)) {
            *count = count.saturating_add(1);
        }
    }

    /// Adds another's times.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.0.iter_mut().zip(other.0.iter()) {
            *count = count.saturating_add(*more);
        }
    }

    /// Returns the classes from the first to the last that is not empty: the least time (ns) and
    /// the count of each.
    pub fn classes(&self) -> Vec<(u64, u32)> {
        let first = self.0.iter().position(|count| *count > 0);
        let last = self.0.iter().rposition(|count| *count > 0);
        let (Some(first), Some(last)) = (first, last) else {
            return Vec::new();
        };
        let part = self.0.iter().enumerate().take(last + 1).skip(first);
        part.map(|(class, count)| (least(class), *count)).collect()
    }

    /// Returns the least time (ns) of the class in which the given share of all times is reached,
    /// or 0 where there are no times. The median is the result for 0.5, with an error of at most a
    /// quarter.
    pub fn quantile(&self, share: f64) -> u64 {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (class, count) in self.0.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return least(class);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_one_another_without_a_gap() {
        for at in 1..WIDTH - 1 {
            assert_eq!(class(least(at)), at);
            assert_eq!(class(least(at + 1) - 1), at);
            assert!(least(at + 1) as f64 <= least(at) as f64 * 2.0);
        }
        assert_eq!(class(u64::MAX), WIDTH - 1);
    }

    #[test]
    fn a_median_is_within_its_class() {
        let mut histogram = Histogram::default();
        for ns in 1..=1_000 {
            histogram.add(ns * 1_000);
        }
        let median = histogram.quantile(0.5);
        assert!((400_000..=500_000).contains(&median), "{median}");
        assert_eq!(
            histogram.classes().iter().map(|class| class.1).sum::<u32>(),
            1_000
        );
        assert_eq!(Histogram::default().quantile(0.5), 0);
        assert_eq!(Histogram::default().classes(), []);
    }
}
