//! The calls and times of each domain, by name, from which `--stats` and `--summary` are made.
//!
//! Decisions: FMT-002, FMT-003 (`docs/deviations/formats.md`).

use crate::job::Job;
use midair_domain::{KindSet, Statistics};
use midair_record::event::kind;
use midair_trace::index::Stat;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The calls of one domain. Dispatches and copies without times are not included. They are in the
/// notes.
#[derive(Debug)]
pub(crate) struct DomainStats {
    pub(crate) domain: &'static Statistics,
    pub(crate) total: Stat,
    /// By name.
    pub(crate) operations: BTreeMap<String, Stat>,
}

/// A name and its calls, for sorting.
pub(crate) type Entry<'a> = (&'a str, &'a Stat);

/// Sorts the entries by total time, the longest first, and by name where the times are equal.
pub(crate) fn by_total(mut entries: Vec<Entry<'_>>) -> Vec<Entry<'_>> {
    entries.sort_by_key(|(name, stat)| (Reverse(stat.total), *name));
    entries
}

/// Returns all domains that have calls, in the order of json's `summary`. Several rows of the table
/// of domains may share one.
pub(crate) fn collect(jobs: &[Job<'_>]) -> Vec<DomainStats> {
    let mut shared: BTreeMap<u8, (&'static Statistics, KindSet)> = BTreeMap::new();
    for domain in midair_domain::built() {
        if let Some(statistics) = domain.files.statistics {
            let kinds = &mut shared
                .entry(statistics.json_rank)
                .or_insert((statistics, KindSet::EMPTY))
                .1;
            *kinds = kinds.with(domain.kind);
        }
    }
    let of = |(domain, kinds)| {
        let mut operations = BTreeMap::new();
        for job in jobs {
            add_operations(&mut operations, job, kinds);
        }
        let mut total = Stat::default();
        for stat in operations.values() {
            total.merge(stat);
        }
        DomainStats {
            domain,
            total,
            operations,
        }
    };
    let mut all: Vec<DomainStats> = shared.into_values().map(of).collect();
    all.retain(|stats| stats.total.calls > 0);
    all
}

fn add_operations(by_name: &mut BTreeMap<String, Stat>, job: &Job<'_>, kinds: KindSet) {
    let index = job.index;
    let mut add = |name: String, stat: &Stat| {
        let known: &mut Stat = by_name.entry(name).or_default();
        known.merge(stat);
    };
    for ((kind, operation), stat) in index.operations(kinds) {
        add(job.names.operation(*kind, *operation).into_owned(), stat);
    }
    if kinds.contains(kind::MARKER_CORE_RANGE_API) {
        for (message, stat) in &index.markers {
            add(message.clone(), stat);
        }
    }
    if kinds.contains(kind::KERNEL_DISPATCH)
        && let Some(renamed) = &job.renamed
    {
        for (name, stat) in renamed.sums() {
            let name = name.map_or_else(|id| job.kernel_name_by_id(id).into_owned(), str::to_owned);
            add(name, stat);
        }
    } else if kinds.contains(kind::KERNEL_DISPATCH) {
        // Several code objects can have one kernel (a library loaded for each device). There is one
        // line for each name.
        for (id, stat) in &index.kernels {
            add(job.kernel_name_by_id(*id).into_owned(), stat);
        }
    }
}

/// Returns a number like C's `%.*e`, with at least two digits of exponent.
pub(crate) fn exponent(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{exponent:0>2}")
        }
        // This is NaN or an infinity.
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_cs() {
        for (value, digits, wanted) in [
            (0.009598, 3, "9.598e-03"),
            (0.0, 8, "0.00000000e+00"),
            (14_389_070.354_839, 3, "1.439e+07"),
            (1e100, 3, "1.000e+100"),
        ] {
            assert_eq!(exponent(value, digits), wanted);
        }
    }

    /// Compares with the sum of squares in whole numbers, which is exact, also beyond what 64 bits
    /// of squares can hold.
    #[test]
    fn deviations_are_right_for_any_sum() {
        let stat = |durations: &[u64]| {
            let mut all = Stat::default();
            for duration in durations {
                let one = Stat {
                    calls: 1,
                    total: *duration,
                    squares: u128::from(*duration).pow(2),
                    ..Stat::default()
                };
                all.merge(&one);
            }
            all
        };
        // Three samples of about two seconds, 0.1 s apart (`docs/sources.md#rocprofv3`).
        let seconds = stat(&[1_900_000_000, 2_000_000_000, 2_100_000_000]);
        assert_eq!(seconds.deviation(), 1.0e8);
        assert_eq!(
            stat(&[74_010, 80_770, 77_376]).variance(),
            11_424_465.333_333_334
        );
        assert_eq!(stat(&[5]).deviation(), 0.0);
        assert_eq!(stat(&[]).mean(), 0.0);
        let large = stat(&[1 << 62, 1 << 62, 0]);
        assert!((large.deviation() / (2.0_f64.powi(62) / 3.0_f64.sqrt()) - 1.0).abs() < 1e-9);
        // The squares fit into 128 bits, and twice their sum does not.
        let largest = stat(&[u64::MAX - 1, 1]);
        assert!((largest.deviation() / (2.0_f64.powi(64) / 2.0_f64.sqrt()) - 1.0).abs() < 1e-9);
    }
}
