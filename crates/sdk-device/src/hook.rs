//! A hook and when it is needed.

/// A hook and the slot it is for.
#[derive(Debug)]
pub struct Hook {
    /// Function of the slot.
    pub name: &'static str,
    /// What is put into it.
    pub function: *const (),
    /// What it is for.
    pub purpose: Purpose,
}

// SAFETY: `function` is the address of a function, never written through.
unsafe impl Sync for Hook {}

/// When a hook is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// For dispatches.
    Kernels,
    /// For copies.
    Copies,
    /// For dispatches or copies: signals that carry times.
    Signals,
    /// For allocations.
    Allocations,
    /// For hardware counters.
    Counters,
    /// In every session.
    Always,
}

/// A list of hooks, by purpose: `hooks! { Kernels: hsa_queue_destroy, …; … }`.
#[macro_export]
macro_rules! hooks {
    ($($purpose:ident: $($name:ident),*;)*) => {
        &[$($($crate::hook::Hook {
            name: stringify!($name),
            function: $name as *const (),
            purpose: $crate::hook::Purpose::$purpose,
        },)*)*]
    };
}
