//! Means and ratios of a sample, with their intervals.

use super::ENOUGH;
use super::student::quantile;

/// Windows in a part: enough to estimate a spread from.
const PER_PART: usize = 8;
/// The greatest number of parts.
const PARTS: usize = 32;

/// The relative error that rounding may make in a mean.
const ROUNDING: f64 = 1e-9;

/// A value that was computed from windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// How many windows it comes from; with two groups, the windows of the group that has fewer.
    pub n: usize,
    /// Half of the interval's width: the true value is within `value ± half` with 95 % confidence.
    /// None for fewer than [`ENOUGH`] windows, which do not tell.
    pub half: Option<f64>,
    /// The standard error and its degrees of freedom.
    pub(super) error: Option<(f64, f64)>,
}

impl Estimate {
    fn new(value: f64, n: usize, error: Option<(f64, f64)>) -> Estimate {
        let error = error.filter(|_| n >= ENOUGH);
        Estimate {
            value,
            n,
            half: error.map(|(error, degrees)| error * quantile(degrees)),
            error,
        }
    }

    /// Returns the ends of the interval.
    pub fn interval(&self) -> Option<(f64, f64)> {
        let half = self.half?;
        Some((self.value - half, self.value + half))
    }

    /// Returns half of the interval's width relative to the value; None for the value 0.
    pub fn relative(&self) -> Option<f64> {
        (self.value != 0.0).then(|| Some(self.half? / self.value.abs()))?
    }

    /// Whether the whole interval is above a limit that the true value cannot exceed (hits are no
    /// more than requests). Then the counters do not mean what their names say, and the value is
    /// shown as it is.
    pub fn exceeds(&self, limit: f64) -> bool {
        // What sums of rounded numbers are above it is not meant.
        let limit = limit + limit.abs() * ROUNDING;
        self.interval().is_some_and(|(low, _)| low > limit)
    }
}

/// A change of a class over time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// The mean in the first third of the dispatches.
    pub first: Estimate,
    /// The mean in the last third.
    pub last: Estimate,
    /// Whether they differ by more than chance explains (95 %).
    pub is_certain: bool,
}

impl Drift {
    /// Returns the change relative to the mean of the first third; None when that is 0.
    pub fn relative(&self) -> Option<f64> {
        let first = self.first.value;
        (first != 0.0).then(|| (self.last.value - first) / first.abs())
    }
}

/// A run of consecutive dispatches, with the values of the windows among them.
struct Part<T> {
    dispatches: f64,
    values: Vec<T>,
}

/// The dispatches that a mean covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Population {
    /// These dispatches. If each of them had a window, nothing is uncertain.
    These,
    /// All dispatches that the program could have made in the same way. Two means of these differ by
    /// chance even if each dispatch had a window.
    Alike,
}

/// Cuts the dispatches into parts with equally many windows; `sample` is sorted by ordinal. A part
/// ends half-way between its last window and the first window of the next part. (Parts of a fixed
/// length would contain very different densities of windows where a schedule starts.)
fn parts<T: Copy>(sample: &[(u64, T)], dispatches: u64) -> Vec<Part<T>> {
    let n = sample.len();
    // There can be more windows than dispatches, if some dispatches were not recorded.
    let seen = dispatches.max(n as u64) as f64;
    let count = (n / PER_PART).clamp(1, PARTS);
    let mut begin = 0.0;
    let part = |part: usize| {
        let (from, to) = (n * part / count, n * (part + 1) / count);
        let end = match (sample.get(to.wrapping_sub(1)), sample.get(to)) {
            (Some((last, _)), Some((next, _))) => (*last as f64 + *next as f64 + 1.0) / 2.0,
            _ => seen,
        };
        let length = end - begin;
        begin = end;
        let values = sample.get(from..to).unwrap_or_default();
        Part {
            dispatches: length.max(values.len() as f64),
            values: values.iter().map(|(_, value)| *value).collect(),
        }
    };
    (0..count).map(part).collect()
}

/// Returns the weighted mean of the parts.
fn weighted<T>(parts: &[Part<T>], value: impl Fn(&T) -> f64) -> f64 {
    let all: f64 = parts.iter().map(|part| part.dispatches).sum();
    let of_part = |part: &Part<T>| {
        let sum: f64 = part.values.iter().map(&value).sum();
        part.dispatches / all * sum / part.values.len() as f64
    };
    parts.iter().map(of_part).sum()
}

/// Returns the standard error of that mean, and its degrees of freedom (Satterthwaite). Parts with
/// few windows and a large weight lead to few degrees of freedom. `of` says what is to be known.
fn error<T>(parts: &[Part<T>], of: Population, value: impl Fn(&T) -> f64) -> (f64, f64) {
    let all: f64 = parts.iter().map(|part| part.dispatches).sum();
    let (mut variance, mut below, mut least) = (0.0, 0.0, f64::INFINITY);
    for part in parts {
        let n = part.values.len() as f64;
        if n < 2.0 {
            continue;
        }
        let mean = part.values.iter().map(&value).sum::<f64>() / n;
        let squares: f64 = part.values.iter().map(|v| (value(v) - mean).powi(2)).sum();
        let weight = part.dispatches / all;
        let unseen = match of {
            Population::These => (1.0 - n / part.dispatches).max(0.0),
            Population::Alike => 1.0,
        };
        let own = weight * weight * unseen * squares / (n - 1.0) / n;
        variance += own;
        below += own * own / (n - 1.0);
        least = least.min(n - 1.0);
    }
    let degrees = if below > 0.0 {
        variance * variance / below
    } else {
        least
    };
    (variance.sqrt(), degrees)
}

pub(super) fn mean(sample: &[(u64, f64)], dispatches: u64) -> Option<Estimate> {
    if sample.is_empty() {
        return None;
    }
    let parts = parts(sample, dispatches);
    let value = weighted(&parts, |v| *v);
    let error = error(&parts, Population::These, |v| *v);
    Some(Estimate::new(value, sample.len(), Some(error)))
}

pub(super) fn ratio(sample: &[(u64, (f64, f64))], dispatches: u64) -> Option<Estimate> {
    if sample.is_empty() {
        return None;
    }
    let parts = parts(sample, dispatches);
    let below = weighted(&parts, |(_, b)| *b);
    if below == 0.0 {
        return None;
    }
    let value = weighted(&parts, |(a, _)| *a) / below;
    // The residual of a after its share of b has the variance s_a² + R² s_b² − 2 R s_ab.
    let (error, degrees) = error(&parts, Population::These, |(a, b)| a - value * b);
    let error = (error / below.abs(), degrees);
    Some(Estimate::new(value, sample.len(), Some(error)))
}

/// Returns the quotient of two estimates that come from different windows.
pub(super) fn quotient(one: &Estimate, other: &Estimate) -> Option<Estimate> {
    if other.value == 0.0 {
        return None;
    }
    let value = one.value / other.value;
    let error = one
        .error
        .zip(other.error)
        .map(|((of_one, f), (of_other, g))| {
            // The variance of a/b is (da/b)² + (a db/b²)². For a value that is not 0, this is the
            // sum of the relative variances.
            let a = (of_one / other.value).powi(2);
            let b = (value * of_other / other.value).powi(2);
            ((a + b).sqrt(), joined(a, f, b, g))
        });
    Some(Estimate::new(value, one.n.min(other.n), error))
}

/// Returns the degrees of freedom of a sum of two variances (Welch and Satterthwaite).
fn joined(a: f64, degrees_a: f64, b: f64, degrees_b: f64) -> f64 {
    let below = a * a / degrees_a + b * b / degrees_b;
    if below > 0.0 {
        (a + b).powi(2) / below
    } else {
        degrees_a.min(degrees_b)
    }
}

pub(super) fn drift(sample: &[(u64, f64)], dispatches: u64) -> Option<Drift> {
    let third = dispatches / 3;
    let (from, to) = (
        sample.partition_point(|(ordinal, _)| *ordinal < third),
        sample.partition_point(|(ordinal, _)| *ordinal < dispatches - third),
    );
    let before = sample.get(..from)?;
    let later: Vec<(u64, f64)> = sample
        .get(to..)?
        .iter()
        .map(|(ordinal, value)| (ordinal - (dispatches - third), *value))
        .collect();
    if before.len() < ENOUGH || later.len() < ENOUGH {
        return None;
    }
    let (first, last) = (mean(before, third)?, mean(&later, third)?);
    let spread = |sample| error(&parts(sample, third), Population::Alike, |v| *v);
    let ((a, f), (b, g)) = (spread(before), spread(&later));
    let (a, b) = (a * a, b * b);
    let limit = (a + b).sqrt() * quantile(joined(a, f, b, g));
    Some(Drift {
        first,
        last,
        is_certain: (last.value - first.value).abs() > limit,
    })
}
