//! A stand-in for AMD's HIP runtime (`libamdhip64.so.7`): the functions that the demo and the tests
//! call, over `libhsa-runtime64.so.1` alongside it.
//!
//! Programs are plain C, compiled by gcc. A kernel is a host function with a device name,
//! registered as hipcc's output registers it (`__hipRegisterFatBinary`, `__hipRegisterFunction`),
//! or it comes from a code object (`hipModuleLoadData`). Kernels take their time on the modelled
//! device and compute nothing, but copies do copy. As in AMD's runtime, a stream is an HSA queue,
//! kernels are dispatched without a signal, and a wait adds a barrier with one. The null stream of
//! a device and its blocking streams wait for each other.
//!
//! Every other function of the table answers `hipErrorNotSupported`. This library is never staged
//! or installed.

pub mod api;
mod code;
mod hsa;
mod runtime;
mod signal;
mod stream;
mod tables;
mod unsupported;

/// `hipError_t`.
pub type Error = u32;

/// Values of `hipError_t` (source: api/hip_types.json).
pub mod error {
    use super::Error;
    /// Done.
    pub const SUCCESS: Error = 0;
    /// A wrong argument.
    pub const INVALID_VALUE: Error = 1;
    /// No memory.
    pub const OUT_OF_MEMORY: Error = 2;
    /// A kernel that was not registered.
    pub const INVALID_DEVICE_FUNCTION: Error = 98;
    /// No device.
    pub const NO_DEVICE: Error = 100;
    /// No such device.
    pub const INVALID_DEVICE: Error = 101;
    /// Not a code object.
    pub const INVALID_IMAGE: Error = 200;
    /// Not a stream, event, module or function.
    pub const INVALID_HANDLE: Error = 400;
    /// No such kernel in a module.
    pub const NOT_FOUND: Error = 500;
    /// Work is not done yet.
    pub const NOT_READY: Error = 600;
    /// The device failed.
    pub const LAUNCH_FAILURE: Error = 719;
    /// Not in the stand-in.
    pub const NOT_SUPPORTED: Error = 801;
}
