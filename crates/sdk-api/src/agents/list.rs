//! The agents in AMD's layout.

use midair_abi::agent::Agent;
use std::ffi::c_void;

/// What the C structs point to; lives as long as the process.
#[derive(Debug)]
pub(crate) struct List {
    pub agents: Vec<Agent>,
    pub pointers: Vec<*const c_void>,
}

// SAFETY: made once, never changed, never freed.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}
