//! What the tool can collect, and which settings have no effect; both follow from the table of
//! domains.

use midair_domain::{Ask, DOMAINS, Domain, RequestedBy, built};
use std::ffi::{CStr, c_int};

/// A domain that a setting can ask for in a process with AMD's runtimes.
#[derive(Debug, Clone, Copy)]
pub struct Collected {
    /// Its row of the table.
    pub domain: &'static Domain,
    /// AMD's buffer-tracing kind.
    pub kind: c_int,
}

impl Collected {
    /// Returns the settings that ask for it. The SDK handles their older names.
    pub fn settings(&self) -> impl Iterator<Item = &'static CStr> {
        self.domain.asks().iter().map(|ask| ask.setting)
    }
}

/// Returns what the tool collects.
pub fn collected() -> impl Iterator<Item = Collected> {
    built()
        .filter(|domain| !domain.asks().is_empty())
        .filter_map(|domain| {
            Some(Collected {
                domain,
                kind: domain.buffer_kind()?,
            })
        })
}

/// Returns the kinds that go with every domain: which runtimes were loaded, then and later.
pub fn with_all() -> impl Iterator<Item = c_int> {
    built()
        .filter(|domain| domain.asked == RequestedBy::WithAll)
        .filter_map(Domain::buffer_kind)
}

/// Settings that change how something is collected, and are not built either.
const MODES: [&CStr; 1] = [c"ROCPROF_KERNEL_REPLAY"];

/// Returns the settings that ask for something that is not collected yet, each once. The command
/// line refuses them by name. If they are set in the environment, a note says that they have no
/// effect.
pub fn not_built() -> impl Iterator<Item = &'static CStr> {
    let first = |domain: &'static Domain| domain.asks().first().map(|ask: &Ask| ask.setting);
    let of_domains = DOMAINS
        .iter()
        .enumerate()
        .filter(|(_, domain)| !domain.built)
        .filter_map(move |(at, domain)| {
            let setting = first(domain)?;
            let earlier = DOMAINS.get(..at).unwrap_or_default();
            let repeated = earlier
                .iter()
                .any(|earlier| first(earlier) == Some(setting));
            (!repeated).then_some(setting)
        });
    of_domains.chain(MODES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_built_is_named_once() {
        let mut settings: Vec<&CStr> = not_built().collect();
        assert!(!settings.contains(&c"ROCPROF_COUNTER_COLLECTION"));
        assert!(settings.contains(&c"ROCPROF_SPM_COUNTER_COLLECTION"));
        assert!(!settings.contains(&c"ROCPROFILER_PC_SAMPLING_BETA_ENABLED"));
        assert!(!settings.contains(&c"ROCPROF_KERNEL_RENAME"));
        assert!(!settings.contains(&c"ROCPROF_KERNEL_TRACE"));
        let all = settings.len();
        settings.sort_unstable();
        settings.dedup();
        assert_eq!(settings.len(), all);
        assert_eq!(with_all().count(), 1);
    }
}
