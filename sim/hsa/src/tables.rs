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

/// The root table: a version, and where the others are; the last one, of PC sampling, is not there.
#[repr(C)]
#[derive(Debug)]
pub struct Root<const N: usize> {
    header: [u32; 4],
    tables: [*const (); N],
}

// SAFETY: addresses of a static's parts, never changed.
unsafe impl<const N: usize> Sync for Root<N> {}

/// Where a table is: what the stubs load.
#[repr(transparent)]
#[derive(Debug)]
pub struct Place<const N: usize>(*const Table<N>);

// SAFETY: the address of a static, never changed.
unsafe impl<const N: usize> Sync for Place<N> {}

mod generated {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/tables.rs"));
}
pub(crate) use generated::ALL;
