//! The live API tables, and the exported functions that jump through them.

use std::arch::naked_asm;
use std::sync::atomic::AtomicPtr;

/// A HIP table: its size, then function pointers.
#[repr(C)]
#[derive(Debug)]
pub struct Table<const N: usize> {
    header: usize,
    slots: [AtomicPtr<()>; N],
}

/// The address of a table, which the stubs load.
#[repr(transparent)]
#[derive(Debug)]
pub struct Place<const N: usize>(*const Table<N>);

// SAFETY: it is the address of a static, and never changes.
unsafe impl<const N: usize> Sync for Place<N> {}

#[expect(non_snake_case, reason = "AMD's functions under AMD's names")]
mod generated {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/tables.rs"));
}
