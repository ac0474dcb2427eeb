//! What a program registered about a kernel, until the worker thread takes it.

use std::ffi::CString;

/// What a program registers about a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFunction {
    /// The kernel's mangled name: its symbol's name without `.kd`.
    pub device_function: CString,
    /// The address by which launches refer to the kernel.
    pub host_function: u64,
    /// The address that `__hipRegisterFatBinary` returned.
    pub modules: u64,
    /// The most threads of a block.
    pub thread_limit: u32,
    /// Launch bounds; (0, 0, 0) where none were given: thread and block ids, block and grid sizes.
    pub bounds: [[u32; 3]; 4],
    /// Size of a work group; 0 where none was given.
    pub workgroup_size: u64,
}

/// A registration that waits for the worker thread.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub function: HostFunction,
    pub next: *mut Waiting,
}
