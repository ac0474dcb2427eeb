//! The agents in AMD's layout.

use midair_abi::agent::Agent;
use std::ffi::c_void;

/// The agents that C structs point to; they live as long as the process.
#[derive(Debug)]
pub(crate) struct List {
    pub agents: Vec<Agent>,
    pub pointers: Vec<*const c_void>,
}

// SAFETY: the list is created once, never changed, and never freed.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}
