//! Which dispatches are counted: the SDK asks about each kernel whether the user's expressions
//! match it.

use crate::collector;
use crate::sdk::Sdk;
use midair_capi_build::edge;
use midair_settings::Settings;
use midair_trace::kernel_filter::KernelFilter;
use midair_trace::kernel_name::KernelNames;
use std::ffi::c_int;
use std::sync::{PoisonError, RwLock};

/// A choice of kernels, by the names that they have in the results.
struct KernelSelection {
    filter: KernelFilter,
    names: KernelNames,
    /// Whether names are chosen, not only numbers.
    is_named: bool,
}

/// The session's choice; None: every kernel.
static SELECTION: RwLock<Option<KernelSelection>> = RwLock::new(None);

/// Passes the choice in the session's settings to the SDK. Call it before the contexts are started. If
/// dispatches are traced, the first of each kernel is chosen where the settings say nothing, as by AMD's
/// tool.
pub(crate) fn begin(sdk: Sdk, traces: bool) {
    let chosen = chosen(&collector::settings(sdk));
    let mut ranges: Vec<[u64; 2]> = chosen
        .iter()
        .flat_map(|chosen| chosen.filter.iterations())
        .map(|range| [*range.start(), *range.end()])
        .collect();
    if traces && ranges.is_empty() {
        ranges.push([1, 1]);
    }
    let is_named = chosen.as_ref().is_some_and(|chosen| chosen.is_named);
    *SELECTION.write().unwrap_or_else(PoisonError::into_inner) = chosen;
    sdk.choose_kernels(is_named.then_some(takes), &ranges);
}

/// Ends the choice when the session is over.
pub(crate) fn end(sdk: Sdk) {
    sdk.choose_kernels(None, &[]);
    *SELECTION.write().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Whether a kernel is counted.
///
/// # Safety
/// `symbol` points to `len` bytes that stay as they are during the call.
unsafe extern "C" fn takes(symbol: *const u8, len: usize) -> c_int {
    edge(1, || {
        // SAFETY: the SDK passes this many bytes.
        let symbol = unsafe { std::slice::from_raw_parts(symbol, len) };
        let chosen = SELECTION.read().unwrap_or_else(PoisonError::into_inner);
        let takes = chosen
            .as_ref()
            .is_none_or(|chosen| chosen.filter.takes_symbol(symbol, chosen.names));
        c_int::from(takes)
    })
}

/// Returns what the settings choose. An invalid expression was reported before the session started.
fn chosen(settings: &Settings) -> Option<KernelSelection> {
    let choice = settings.kernel_choice().ok()?;
    let (include, exclude) = (choice.include.as_deref(), choice.exclude.as_deref());
    let filter = KernelFilter::new(include, exclude, choice.iterations).ok()?;
    (!filter.is_all()).then(|| KernelSelection {
        filter,
        is_named: include.is_some() || exclude.is_some(),
        names: KernelNames::chosen(
            settings.boolean("ROCPROF_DEMANGLE_KERNELS").ok().flatten(),
            settings.is_on("ROCPROF_TRUNCATE_KERNELS"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_chosen_by_the_names_that_the_files_have() {
        let of = |pairs: &[(&str, &str)]| chosen(&pairs.iter().copied().collect());
        let takes = |chosen: &Option<KernelSelection>, symbol: &[u8]| {
            let chosen = chosen.as_ref().unwrap();
            chosen.filter.takes_symbol(symbol, chosen.names)
        };
        assert!(of(&[]).is_none());
        let include = ("ROCPROF_KERNEL_FILTER_INCLUDE_REGEX", "^vadd\\(float");
        let some = of(&[include, ("ROCPROF_KERNEL_FILTER_RANGE", "[2-3]")]);
        assert_eq!(some.as_ref().unwrap().filter.iterations(), [2..=3]);
        assert!(takes(&some, b"_Z4vaddPfS_.kd"));
        assert!(!takes(&some, b"_Z4vmulPfS_.kd") && !takes(&some, b""));
        let mangled = of(&[include, ("ROCPROF_DEMANGLE_KERNELS", "0")]);
        assert!(!takes(&mangled, b"_Z4vaddPfS_.kd"));
        assert!(of(&[("ROCPROF_KERNEL_FILTER_INCLUDE_REGEX", "(")]).is_none());
    }
}
