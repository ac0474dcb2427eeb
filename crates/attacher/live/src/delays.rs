//! Times from a doorbell to a start, in classes whose bounds are the same everywhere: each is 2^(1/8) times
//! the one before it, and one second is a bound. These are the classes of schema 3 of Prometheus' native
//! histograms and of scale 3 of OpenTelemetry's exponential ones, so that both get counts and no estimates.

/// The classes of each doubling, as the binary logarithm.
pub const SCHEMA: i32 = 3;
const EACH: i32 = 1 << SCHEMA;
/// The classes of one nanosecond and of two hours; what is longer counts in the last.
const FIRST: i32 = -30 * EACH;
const LAST: i32 = 13 * EACH;
const WIDTH: usize = (LAST - FIRST + 1) as usize;

/// The number of times in each class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delays {
    zero: u64,
    counts: Box<[u64; WIDTH]>,
    sum: u64,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays {
            zero: 0,
            counts: Box::new([0; WIDTH]),
            sum: 0,
        }
    }
}

impl FromIterator<u64> for Delays {
    fn from_iter<T: IntoIterator<Item = u64>>(times: T) -> Delays {
        let mut delays = Delays::default();
        for ns in times {
            delays.add(ns);
        }
        delays
    }
}

/// Returns the class of a time above 0: class `i` reaches up to 2^(i/8) seconds, which belong to it.
fn class(ns: u64) -> i32 {
    let seconds = ns as f64 / 1e9;
    ((seconds.log2() * f64::from(EACH)).ceil() as i32).clamp(FIRST, LAST)
}

impl Delays {
    /// Counts a time.
    pub(crate) fn add(&mut self, ns: u64) {
        self.sum = self.sum.saturating_add(ns);
        let count = match ns {
            0 => Some(&mut self.zero),
            _ => self.counts.get_mut((class(ns) - FIRST) as usize),
        };
        if let Some(count) = count {
            *count += 1;
        }
    }

    /// Adds another's times.
    pub(crate) fn merge(&mut self, other: &Delays) {
        self.zero += other.zero;
        self.sum = self.sum.saturating_add(other.sum);
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
    }

    /// Returns the number of times of 0.
    pub fn zero(&self) -> u64 {
        self.zero
    }

    /// Returns the number of all times.
    pub fn count(&self) -> u64 {
        self.zero + self.counts.iter().sum::<u64>()
    }

    /// Returns the sum of all times, ns.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the counts of the classes from the first to the last that is not empty, and the first one's
    /// number: class `i` reaches up to 2^(i/8) seconds.
    pub fn classes(&self) -> (i32, &[u64]) {
        let first = self.counts.iter().position(|count| *count > 0);
        let last = self.counts.iter().rposition(|count| *count > 0);
        match (first, last) {
            (Some(first), Some(last)) => (FIRST + first as i32, &self.counts[first..=last]),
            _ => (0, &[]),
        }
    }

    /// Returns the number of times up to 2^`power` seconds.
    pub fn up_to(&self, power: i32) -> u64 {
        let classes = (power * EACH - FIRST + 1).clamp(0, WIDTH as i32) as usize;
        self.zero + self.counts.iter().take(classes).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_class_whose_bounds_it_is_between() {
        for ns in (0..62).flat_map(|power| [1_u64 << power, (1 << power) + 1, 3 << power]) {
            let at = class(ns);
            let bound = |class: i32| 2_f64.powf(f64::from(class) / 8.0) * 1e9;
            assert!(at == LAST || ns as f64 <= bound(at) * (1.0 + 1e-12), "{ns}");
            assert!(at == FIRST || ns as f64 > bound(at - 1) * (1.0 - 1e-12));
        }
        // A bound belongs to the class below it.
        assert_eq!([class(1_000_000_000), class(1_000_000_001)], [0, 1]);
        assert_eq!(
            [class(500_000_000), class(1), class(u64::MAX)],
            [-8, -239, LAST]
        );
    }

    #[test]
    fn all_that_is_added_is_counted() {
        let none = Delays::default();
        assert_eq!((none.classes(), none.count()), ((0, &[][..]), 0));
        let times = [0, 1, 250_000_000, 250_000_000, 260_000_000, u64::MAX];
        let delays = Delays::from_iter(times);
        let mut both = delays.clone();
        both.merge(&delays);
        assert_eq!((both.count(), both.zero(), both.sum()), (12, 2, u64::MAX));
        assert_eq!(
            [both.up_to(-31), both.up_to(-2), both.up_to(-1)],
            [2, 8, 10]
        );
        assert_eq!(both.up_to(99), 12);
        let (first, counts) = both.classes();
        assert_eq!((first, counts[0], counts.len()), (-239, 2, WIDTH - 1));
    }
}
