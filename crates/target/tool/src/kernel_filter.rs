//! Which dispatches are counted: the SDK asks about each kernel whether the user's expressions
//! match it.

use crate::files;
use crate::sdk::Sdk;
use midair_capi_build::edge;
use midair_results::{ChosenKernels, chosen_kernels};
use std::ffi::c_int;
use std::sync::{PoisonError, RwLock};

/// The session's choice; None: every kernel.
static CHOSEN: RwLock<Option<ChosenKernels>> = RwLock::new(None);

/// Passes the choice in the session's settings to the SDK. Call it before the contexts are started.
pub(crate) fn begin(sdk: Sdk) {
    // An invalid expression was reported before the session started.
    let chosen = chosen_kernels(&files::settings(sdk)).ok().flatten();
    let ranges: Vec<[u64; 2]> = chosen
        .iter()
        .flat_map(ChosenKernels::iterations)
        .map(|range| [*range.start(), *range.end()])
        .collect();
    let is_all = chosen.is_none();
    *CHOSEN.write().unwrap_or_else(PoisonError::into_inner) = chosen;
    sdk.choose_kernels((!is_all).then_some(takes), &ranges);
}

/// Ends the choice when the session is over.
pub(crate) fn end(sdk: Sdk) {
    sdk.choose_kernels(None, &[]);
    *CHOSEN.write().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Whether a kernel is counted.
unsafe extern "C" fn takes(symbol: *const u8, len: usize) -> c_int {
    edge(1, || {
        // SAFETY: the SDK passes this many bytes.
        let symbol = unsafe { std::slice::from_raw_parts(symbol, len) };
        let chosen = CHOSEN.read().unwrap_or_else(PoisonError::into_inner);
        let takes = chosen.as_ref().is_none_or(|chosen| chosen.takes(symbol));
        c_int::from(takes)
    })
}
