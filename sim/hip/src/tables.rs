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

/// Where a table is: what the stubs load.
#[repr(transparent)]
#[derive(Debug)]
pub struct Place<const N: usize>(*const Table<N>);

// SAFETY: the address of a static, never changed.
unsafe impl<const N: usize> Sync for Place<N> {}

#[expect(non_snake_case, reason = "AMD's functions under AMD's names")]
mod generated {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/tables.rs"));
}
