//! Which dispatches are counted, as far as that is known when they happen.

use crate::plan::{kernel_filter, kernel_names};
use midair_failure::Failure;
use midair_output::{KernelFilter, KernelNames};
use midair_settings::Settings;
use std::ops::RangeInclusive;

/// The user's choice of dispatches.
#[derive(Debug, Clone)]
pub struct ChosenKernels {
    filter: KernelFilter,
    names: KernelNames,
}

impl ChosenKernels {
    /// Whether a kernel with this symbol is chosen, by the name that it has in the results.
    pub fn takes(&self, symbol: &[u8]) -> bool {
        self.filter.takes_symbol(symbol, self.names)
    }

    /// Returns which dispatches of each kernel are chosen, counted from 1 where recording started. If
    /// it is empty, all are. Sorted.
    pub fn iterations(&self) -> &[RangeInclusive<u64>] {
        self.filter.iterations()
    }
}

/// Returns what the settings choose, or none for every dispatch.
///
/// # Errors
/// [`midair_failure::Kind::Usage`] for meaningless values.
pub fn chosen_kernels(settings: &Settings) -> Result<Option<ChosenKernels>, Failure> {
    let filter = kernel_filter(settings)?;
    Ok((!filter.is_all()).then(|| ChosenKernels {
        filter,
        names: kernel_names(settings),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_chosen_by_the_names_that_the_files_have() {
        let of = |pairs: &[(&str, &str)]| chosen_kernels(&pairs.iter().copied().collect()).unwrap();
        assert!(of(&[]).is_none());
        let include = ("ROCPROF_KERNEL_FILTER_INCLUDE_REGEX", "^vadd\\(float");
        let chosen = of(&[include, ("ROCPROF_KERNEL_FILTER_RANGE", "[2-3]")]).unwrap();
        assert_eq!(chosen.iterations(), [2..=3]);
        assert!(chosen.takes(b"_Z4vaddPfS_.kd"));
        assert!(!chosen.takes(b"_Z4vmulPfS_.kd") && !chosen.takes(b""));
        let mangled = of(&[include, ("ROCPROF_DEMANGLE_KERNELS", "0")]).unwrap();
        assert!(!mangled.takes(b"_Z4vaddPfS_.kd"));
        let bad = [("ROCPROF_KERNEL_FILTER_INCLUDE_REGEX", "(")];
        assert!(chosen_kernels(&bad.into_iter().collect()).is_err());
    }
}
