//! The live API tables, and the exported functions that jump through them.

use std::arch::naked_asm;
use std::sync::atomic::{AtomicPtr, AtomicU32};

/// An HSA table: `{u32 major, u32 size, u32 step, u32 reserved}`, then function pointers.
#[repr(C)]
#[derive(Debug)]
pub struct Table<const N: usize> {
    pub(crate) header: [AtomicU32; 4],
    pub(crate) slots: [AtomicPtr<()>; N],
}

/// The root table: a version, and the addresses of the other tables. The last one, of PC sampling,
/// is missing.
#[repr(C)]
#[derive(Debug)]
pub struct Root<const N: usize> {
    header: [u32; 4],
    tables: [*const (); N],
}

// SAFETY: these are addresses of parts of a static, and never change.
unsafe impl<const N: usize> Sync for Root<N> {}

/// The address of a table, which the stubs load.
#[repr(transparent)]
#[derive(Debug)]
pub struct Place<const N: usize>(*const Table<N>);

// SAFETY: it is the address of a static, and never changes.
unsafe impl<const N: usize> Sync for Place<N> {}

mod generated {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/tables.rs"));
}
pub(crate) use generated::ALL;
