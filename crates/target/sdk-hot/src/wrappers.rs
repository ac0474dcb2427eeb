//! One wrapper for each slot of the API tables, generated from `api/*.json` by `build/wrappers.rs`.
//!
//! A wrapper asks [`crate::probe`] whether its call is traced, calls the function that the slot
//! held before, and has the call recorded. It is `C-unwind`: a C++ exception of an application's
//! callback, or the unwinding of a cancelled thread, passes through it. So nothing in its frame has
//! a destructor.

use midair_abi::tables::TableId;
use std::ffi::c_void;
use std::mem::transmute;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

/// A table that can be hooked.
#[derive(Debug)]
pub struct Table {
    /// Its id.
    pub id: TableId,
    /// C name of the struct.
    pub name: &'static str,
    /// Record kind of its calls.
    pub kind: u8,
    /// HSA tables start with a version, HIP tables with a size.
    pub hsa: bool,
    /// `sizeof` of the newest table that we know; a running runtime's table may be smaller or
    /// larger.
    pub size: usize,
    /// Its slots in order.
    pub slots: &'static [Slot],
}

/// A slot of a table.
#[derive(Debug)]
pub struct Slot {
    /// Name of the function.
    pub name: &'static str,
    /// Byte offset in the table.
    pub offset: usize,
    /// Operation id of its records.
    pub operation: u32,
    /// Address of our plain wrapper.
    pub wrapper: *const (),
    /// Where the wrapper finds the function to call. The slot's old value must be stored here
    /// before the wrapper is installed, and must never be cleared: a thread may be inside the
    /// wrapper at any later time.
    pub original: &'static AtomicPtr<()>,
    /// Whether one of the arguments is a `hipStream_t`.
    pub has_stream: bool,
}

// SAFETY: `wrapper` is the address of a function, and is never written through.
unsafe impl Sync for Slot {}

/// `dim3`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim3 {
    /// First.
    pub x: u32,
    /// Second.
    pub y: u32,
    /// Third.
    pub z: u32,
}

/// `hipExtent`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes or elements.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

/// `hipPitchedPtr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PitchedPtr {
    /// Address.
    pub ptr: *mut c_void,
    /// Bytes of a row.
    pub pitch: u64,
    /// Logical width.
    pub xsize: u64,
    /// Logical height.
    pub ysize: u64,
}

/// `hipIpcMemHandle_t`, `hipIpcEventHandle_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpcHandle {
    /// Opaque.
    pub reserved: [u8; 64],
}

/// `hsa_fabric_handle_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FabricHandle {
    /// Opaque.
    pub handle: [u8; 16],
}

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniqueId {
    /// Opaque.
    pub internal: [u8; 128],
}

/// `hipChannelFormatDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelFormatDesc {
    /// Bits of x.
    pub x: i32,
    /// Bits of y.
    pub y: i32,
    /// Bits of z.
    pub z: i32,
    /// Bits of w.
    pub w: i32,
    /// `hipChannelFormatKind`.
    pub f: u32,
}

/// `hsa_ext_control_directives_t`: passed in memory, whatever its fields are.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlDirectives {
    /// Opaque to us.
    pub words: [u64; 18],
}

const _: () =
    assert!(size_of::<Dim3>() == 12 && size_of::<Extent>() == 24 && size_of::<PitchedPtr>() == 32);
const _: () = assert!(size_of::<IpcHandle>() == 64 && align_of::<IpcHandle>() == 1);
const _: () = assert!(size_of::<FabricHandle>() == 16 && align_of::<FabricHandle>() == 1);
const _: () = assert!(size_of::<UniqueId>() == 128 && align_of::<UniqueId>() == 1);
const _: () =
    assert!(size_of::<ChannelFormatDesc>() == 20 && size_of::<ControlDirectives>() == 144);

/// Types whose bytes may be read as integers.
///
/// # Safety
/// The type must have no padding: each of its `size_of` bytes is initialised in every value.
unsafe trait Bytes: Copy {}
// SAFETY: three u32 are 12 bytes, as asserted above.
unsafe impl Bytes for Dim3 {}
// SAFETY: three u64 are 24 bytes, as asserted above.
unsafe impl Bytes for Extent {}
// SAFETY: a pointer and three u64 are 32 bytes, as asserted above.
unsafe impl Bytes for PitchedPtr {}
// SAFETY: an array of 64 bytes, as asserted above.
unsafe impl Bytes for IpcHandle {}
// SAFETY: an array of 16 bytes, as asserted above.
unsafe impl Bytes for FabricHandle {}
// SAFETY: an array of 128 bytes, as asserted above.
unsafe impl Bytes for UniqueId {}
// SAFETY: four i32 and a u32 are 20 bytes, as asserted above.
unsafe impl Bytes for ChannelFormatDesc {}
// SAFETY: an array of 18 words is 144 bytes, as asserted above.
unsafe impl Bytes for ControlDirectives {}

/// Returns the 8-byte word number `index` of a struct, zero-extended at its end.
#[inline]
fn word<T: Bytes>(value: &T, index: usize) -> u64 {
    let mut bytes = [0; 8];
    let from = (index * 8).min(size_of::<T>());
    let len = (size_of::<T>() - from).min(8);
    // SAFETY: `from + len` is at most the size of T, all of whose bytes are initialised (`Bytes`).
    // `bytes` has room for 8.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const *value).cast::<u8>().add(from),
            bytes.as_mut_ptr(),
            len,
        )
    };
    u64::from_ne_bytes(bytes)
}

#[allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::unused_unit,
    clippy::let_unit_value,
    reason = "names and signatures are AMD's, and functions without a result look like all others"
)]
mod generated {
    use super::*;
    include!(concat!(env!("OUT_DIR"), "/wrappers.rs"));
}
pub use generated::*;
