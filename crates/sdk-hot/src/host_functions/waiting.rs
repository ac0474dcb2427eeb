//! What a program said of a kernel, until the worker thread takes it.

use std::ffi::CString;

/// What a program says of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFunction {
    /// The kernel's mangled name, that of its symbol without `.kd`.
    pub device_function: CString,
    /// Address that stands for the kernel in launches.
    pub host_function: u64,
    /// Address of what `__hipRegisterFatBinary` gave.
    pub modules: u64,
    /// Most threads of a block.
    pub thread_limit: u32,
    /// Launch bounds, (0, 0, 0) where nothing was said: thread and block ids, block and grid sizes.
    pub bounds: [[u32; 3]; 4],
    /// Size of a work group, 0 where nothing was said.
    pub workgroup_size: u64,
}

/// One that waits for the worker thread.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub function: HostFunction,
    pub next: *mut Waiting,
}
