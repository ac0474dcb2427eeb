//! Calls and times of each domain, by name: what `--stats` and `--summary` are made of.
//!
//! Decisions: FMT-002, FMT-003 (`docs/deviations/formats.md`).

use crate::index::{Stat, is_hip, is_hsa, is_marker};
use crate::job::Job;
use midair_record::event::kind;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A domain as AMD's summaries have it. The order is that of AMD's numbers, which tables follow; CUDA's stand behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Domain {
    Hsa,
    Hip,
    Marker,
    Kernel,
    Copy,
    Scratch,
    Allocation,
    CudaRuntime,
    CudaDriver,
    Set,
    Wait,
    Unified,
}

impl Domain {
    /// In the order of json's `summary`.
    const ALL: [Domain; 12] = [
        Domain::Kernel,
        Domain::Hsa,
        Domain::Hip,
        Domain::Copy,
        Domain::Allocation,
        Domain::Marker,
        Domain::Scratch,
        Domain::CudaRuntime,
        Domain::CudaDriver,
        Domain::Set,
        Domain::Wait,
        Domain::Unified,
    ];

    /// Its name in tables, `domain_stats.csv` and json.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Domain::Hsa => "HSA_API",
            Domain::Hip => "HIP_API",
            Domain::Marker => "MARKER_API",
            Domain::Kernel => "KERNEL_DISPATCH",
            Domain::Copy => "MEMORY_COPY",
            Domain::Scratch => "SCRATCH_MEMORY",
            Domain::Allocation => "MEMORY_ALLOCATION",
            Domain::CudaRuntime => "CUDA_RUNTIME_API",
            Domain::CudaDriver => "CUDA_DRIVER_API",
            Domain::Set => "MEMORY_SET",
            Domain::Wait => "SYNCHRONIZATION",
            Domain::Unified => "UNIFIED_MEMORY",
        }
    }

    /// Its file of statistics.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Domain::Hsa => "hsa_api_stats.csv",
            Domain::Hip => "hip_api_stats.csv",
            Domain::Marker => "marker_api_stats.csv",
            Domain::Kernel => "kernel_stats.csv",
            Domain::Copy => "memory_copy_stats.csv",
            Domain::Scratch => "scratch_memory_stats.csv",
            Domain::Allocation => "memory_allocation_stats.csv",
            Domain::CudaRuntime => "cuda_runtime_api_stats.csv",
            Domain::CudaDriver => "cuda_driver_api_stats.csv",
            Domain::Set => "memory_set_stats.csv",
            Domain::Wait => "synchronization_stats.csv",
            Domain::Unified => "unified_memory_stats.csv",
        }
    }
}

/// One domain's calls. Dispatches and copies without times are not in it: they are in the notes.
#[derive(Debug)]
pub(crate) struct DomainStats {
    pub(crate) domain: Domain,
    pub(crate) total: Stat,
    /// By name.
    pub(crate) operations: BTreeMap<String, Stat>,
}

/// A name and its calls, for sorting.
pub(crate) type Entry<'a> = (&'a str, &'a Stat);

/// What took longest first; by name where times are equal.
pub(crate) fn by_total(mut entries: Vec<Entry<'_>>) -> Vec<Entry<'_>> {
    entries.sort_by_key(|(name, stat)| (Reverse(stat.total), *name));
    entries
}

/// All domains that have calls, in the order of json's `summary`.
pub(crate) fn collect(jobs: &[Job<'_>]) -> Vec<DomainStats> {
    let of = |domain| {
        let mut operations = BTreeMap::new();
        for job in jobs {
            add_operations(&mut operations, job, domain);
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
    let mut all: Vec<DomainStats> = Domain::ALL.into_iter().map(of).collect();
    all.retain(|stats| stats.total.calls > 0);
    all
}

fn add_operations(by_name: &mut BTreeMap<String, Stat>, job: &Job<'_>, domain: Domain) {
    let index = job.index;
    let mut add = |name: String, stat: &Stat| {
        let known: &mut Stat = by_name.entry(name).or_default();
        known.merge(stat);
    };
    let mut calls = |of: fn(u8) -> bool| {
        for ((kind, operation), stat) in index.calls.iter().filter(|((kind, _), _)| of(*kind)) {
            add(job.names.operation(*kind, *operation).into_owned(), stat);
        }
    };
    match domain {
        Domain::Hsa => calls(is_hsa),
        Domain::Hip => calls(is_hip),
        Domain::CudaRuntime => calls(|kind| kind == kind::CUDA_RUNTIME_API),
        Domain::CudaDriver => calls(|kind| kind == kind::CUDA_DRIVER_API),
        Domain::Set | Domain::Wait | Domain::Unified => {
            let wanted = match domain {
                Domain::Set => kind::MEMORY_SET,
                Domain::Wait => kind::SYNCHRONIZATION,
                _ => kind::UNIFIED_MEMORY,
            };
            for ((kind, operation), stat) in &index.cuda.work {
                if *kind == wanted {
                    add(job.names.operation(*kind, *operation).into_owned(), stat);
                }
            }
        }
        Domain::Marker => {
            calls(is_marker);
            for (message, stat) in &index.markers {
                add(message.clone(), stat);
            }
        }
        Domain::Kernel => {
            // Several code objects can have one kernel (a library loaded for each device): one line for a name.
            for (id, stat) in &index.kernels {
                add(job.kernel_name_by_id(*id).to_owned(), stat);
            }
        }
        Domain::Copy | Domain::Scratch | Domain::Allocation => {
            let (kind, stats) = match domain {
                Domain::Copy => (kind::MEMORY_COPY, &index.copies),
                Domain::Scratch => (kind::SCRATCH_MEMORY, &index.scratch),
                _ => (kind::MEMORY_ALLOCATION, &index.allocations),
            };
            for (operation, stat) in stats {
                add(job.names.operation(kind, *operation).into_owned(), stat);
            }
        }
    }
}

/// As C's `%.*e`: at least two digits of exponent.
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
        // Not a number, or beyond all.
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

    /// Against the sum of squares in whole numbers, which is exact, and past what 64 bits of squares hold.
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
    }
}
