//! The list of domains that have a part of their own in the target.

use crate::domain::Domain;
use crate::sampling::{Method, Samples};
use crate::{allocations, copies, queue, scratch};

/// Returns all domains that have a part of their own in the target. API calls have none, since
/// wrappers record them.
pub fn all() -> Vec<Box<dyn Domain>> {
    vec![
        Box::new(queue::Kernels),
        Box::new(queue::Counters::default()),
        Box::new(queue::traces::ThreadTraces::default()),
        Box::new(copies::Copies::default()),
        Box::new(allocations::Allocations),
        Box::new(scratch::ScratchMemory),
        Box::new(Samples::new(Method::HostTrap)),
        Box::new(Samples::new(Method::Stochastic)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_domain_is_one_row_of_the_table_of_domains() {
        let mut kinds: Vec<u8> = all().iter().map(|domain| domain.kind()).collect();
        let rows = midair_domain::sets::NEEDS_RUNTIME;
        assert!(kinds.iter().all(|kind| rows.contains(*kind)), "{kinds:?}");
        kinds.dedup();
        assert_eq!(kinds.len(), all().len(), "no domain twice");
    }
}
