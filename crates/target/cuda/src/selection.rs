//! Decides from the settings what is recorded.

use midair_domain::{Domain, KindSet, built, domain, sets};
use midair_settings::{CUDA_ALL_CALLS, CUDA_HW_TRACE, CUPTI, STACKS, STACKS_BUDGET, Settings};

/// What a session is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The kinds of records that are wanted.
    pub kinds: KindSet,
    /// Whether calls that only ask for state are recorded, too.
    pub all_calls: bool,
    /// Whether kernels are timed by the GPU's own hardware, where it can be done.
    pub hw_trace: bool,
    /// Whether the stacks of launches are wanted.
    pub stacks: Option<midair_stacks::Wanted>,
    /// The CUPTI that the user named: a path in the target's own file system.
    pub cupti: Option<String>,
}

impl Choice {
    /// Returns whether records of this kind are wanted.
    pub fn has(&self, kind: u8) -> bool {
        self.kinds.contains(kind)
    }

    /// Returns whether calls of the runtime or of the driver are wanted. Waits are recorded with
    /// them.
    pub fn calls(&self) -> bool {
        self.kinds.intersects(sets::CUDA_CALLS)
    }

    /// CUPTI's kinds of activities that are to be enabled, in the order in which messages to users
    /// name them: kernels first.
    pub fn activities(&self) -> Vec<u32> {
        let mut domains: Vec<&Domain> = self.kinds.iter().filter_map(domain).collect();
        domains.sort_by_key(|domain| domain.files.phrase.map(|phrase| phrase.rank));
        domains
            .iter()
            .flat_map(|domain| domain.activities)
            .copied()
            .collect()
    }

    /// Reads the settings. If none of the switches is on, the usual domains are recorded, without
    /// those that are switched off.
    pub fn of(settings: &Settings) -> Choice {
        let cuda = || built().filter(|domain| domain.runtimes.cuda && !domain.asks().is_empty());
        let is = |domain: &Domain, wanted: bool| {
            let mut asks = domain.asks().iter();
            asks.any(|ask| settings.boolean(ask.name()) == Ok(Some(wanted)))
        };
        let of = |domains: &mut dyn Iterator<Item = &'static Domain>| -> KindSet {
            domains.map(|domain| domain.kind).collect()
        };
        let mut kinds = of(&mut cuda().filter(|domain| is(domain, true)));
        if kinds.is_empty() {
            kinds = of(&mut cuda().filter(|domain| domain.usual && !is(domain, false)));
        }
        Choice {
            kinds,
            all_calls: settings.is_on(CUDA_ALL_CALLS),
            hw_trace: settings.is_on(CUDA_HW_TRACE),
            stacks: midair_stacks::Wanted::of(settings.text(STACKS), settings.text(STACKS_BUDGET)),
            cupti: settings.text(CUPTI).map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_abi::cupti::activity_kind;
    use midair_domain::kind;
    use midair_settings::{CUDA_DRIVER_API_TRACE, CUDA_RUNTIME_API_TRACE};

    fn of(words: &[(&str, &str)]) -> Choice {
        let mut settings = Settings::new();
        for (name, value) in words {
            settings.set(*name, *value);
        }
        Choice::of(&settings)
    }

    #[test]
    fn kernels_and_copies_where_nothing_is_said() {
        let choice = of(&[]);
        let usual = [kind::KERNEL_DISPATCH, kind::MEMORY_COPY, kind::MEMORY_SET];
        assert_eq!(choice.kinds, KindSet::of(&usual));
        assert_eq!((choice.cupti, choice.hw_trace), (None, false));
        assert!(of(&[(CUDA_HW_TRACE, "1")]).hw_trace);
        let choice = of(&[("ROCPROF_MEMORY_COPY_TRACE", "0")]);
        assert_eq!(choice.kinds, KindSet::of(&[kind::KERNEL_DISPATCH]));
    }

    #[test]
    fn what_is_said_and_no_more() {
        let choice = of(&[
            (CUDA_DRIVER_API_TRACE, "1"),
            (CUPTI, "/opt/x/libcupti.so.13"),
        ]);
        let driver = [kind::CUDA_DRIVER_API, kind::SYNCHRONIZATION];
        assert_eq!(choice.kinds, KindSet::of(&driver));
        assert!(choice.calls());
        assert_eq!(choice.cupti.as_deref(), Some("/opt/x/libcupti.so.13"));
        assert!(!choice.all_calls);
        assert!(of(&[(CUDA_DRIVER_API_TRACE, "1"), (CUDA_ALL_CALLS, "1")]).all_calls);
        let choice = of(&[
            ("ROCPROF_MARKER_TRACE", "true"),
            ("ROCPROF_MEMORY_ALLOCATION_TRACE", "1"),
        ]);
        let memory = [
            kind::MARKER_CORE_RANGE_API,
            kind::MEMORY_ALLOCATION,
            kind::UNIFIED_MEMORY,
        ];
        assert_eq!(choice.kinds, KindSet::of(&memory));
    }

    #[test]
    fn kernels_are_enabled_first_and_each_activity_once() {
        let settings = [
            ("ROCPROF_MARKER_API_TRACE", "1"),
            ("ROCPROF_MEMORY_ALLOCATION_TRACE", "1"),
            ("ROCPROF_MEMORY_COPY_TRACE", "1"),
            ("ROCPROF_KERNEL_TRACE", "1"),
            (CUDA_RUNTIME_API_TRACE, "1"),
            (CUDA_DRIVER_API_TRACE, "1"),
        ];
        let all = [
            activity_kind::CONCURRENT_KERNEL,
            activity_kind::MEMCPY,
            activity_kind::MEMCPY2,
            activity_kind::MEMSET,
            activity_kind::MARKER,
            activity_kind::MEMORY2,
            activity_kind::UNIFIED_MEMORY_COUNTER,
            activity_kind::RUNTIME,
            activity_kind::DRIVER,
            activity_kind::SYNCHRONIZATION,
        ];
        assert_eq!(of(&settings).activities(), all);
    }
}
