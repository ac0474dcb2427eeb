//! A hook and when it is needed.

/// A hook and the slot that it is for.
#[derive(Debug)]
pub struct Hook {
    /// The name of the slot's function.
    pub name: &'static str,
    /// The function that is stored in the slot.
    pub function: *const (),
    /// What it is for.
    pub purpose: Purpose,
}

// SAFETY: `function` is the address of a function, and nothing writes through it.
unsafe impl Sync for Hook {}

/// When a hook is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// For dispatches.
    Kernels,
    /// For copies.
    Copies,
    /// For dispatches or copies, whose signals hold times.
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
