//! The argument of the iteration callback, with additional fields for our own SDK.
//!
//! The ABI's struct starts with its size so that it can grow. Ours has grown: after AMD's 32 bytes
//! follow a magic number, the table addresses and the handle. A caller that knows only AMD's fields
//! never reads those. Our SDK checks `size` and `magic`, and thus gets the live tables without an
//! additional exported symbol, a hand-over or an environment variable.

use std::ffi::{c_char, c_int, c_void};

/// `rocprofiler_register_registration_info_t` (api/rocprofiler_register.json), 32 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Bytes of the whole struct that is passed: 32 from AMD's register, more from ours.
    pub size: usize,
    /// The library's name; it lives as long as the process.
    pub common_name: *const c_char,
    /// Its version.
    pub lib_version: u32,
    /// How many tables it registered.
    pub api_table_length: u64,
}

/// [`Info`] as our register passes it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Extended {
    /// AMD's part.
    pub info: Info,
    /// [`MAGIC`].
    pub magic: u64,
    /// `info.api_table_length` addresses of tables, in an array that is never freed.
    pub tables: *const *mut c_void,
    /// The library's handle.
    pub handle: u64,
    /// Which copy of the library, from 0.
    pub instance: u64,
}

/// Value of [`Extended::magic`].
pub const MAGIC: u64 = u64::from_le_bytes(*b"midair\x00R");

/// `rocprofiler_register_registration_info_cb_t`: a result other than zero ends the iteration.
pub type Callback = unsafe extern "C" fn(*mut Info, *mut c_void) -> c_int;

/// The extended form behind `info`, when our register made it.
///
/// # Safety
/// `info` comes from a register library's iteration and is used only within the callback.
pub unsafe fn extended<'a>(info: *const Info) -> Option<&'a Extended> {
    // SAFETY: a register passes at least AMD's 32 bytes.
    let size = unsafe { info.as_ref() }?.size;
    if size < size_of::<Extended>() {
        return None;
    }
    // SAFETY: the struct says that it is at least as large as ours.
    let wide = unsafe { &*info.cast::<Extended>() };
    (wide.magic == MAGIC).then_some(wide)
}

const _: () = assert!(size_of::<Info>() == 32);
const _: () = assert!(std::mem::offset_of!(Info, common_name) == 8);
const _: () = assert!(std::mem::offset_of!(Info, lib_version) == 16);
const _: () = assert!(std::mem::offset_of!(Info, api_table_length) == 24);
const _: () = assert!(size_of::<Extended>() == 64);
