//! A stand-in for AMD's HSA runtime (`libhsa-runtime64.so.1`) on modelled GPUs: the functions that
//! the demo, the tests and a profiler call.
//!
//! It has what a profiler finds in the real runtime: exported functions that jump through live
//! tables of the real sizes, signals and queues with AMD's layouts in memory, packets that a packet
//! processor consumes, and code objects that are ELF files. Every function that is not modelled is
//! in its table, too, and returns `HSA_STATUS_ERROR`. The device is `midair-gpu-model`: its queue
//! engines, its log (the ground truth of tests) and both of its modes of consuming packets.
//!
//! `HSA_MODEL_TOPOLOGY` names the machine, in the files of the KFD driver. Without it there is no
//! device, and `hsa_init` reports this. No driver, root or GPU is needed. This library is never
//! staged or installed.
//!
//! `SIM_HSA_TABLES` selects the version of the runtime: see `vintage.rs`.

pub mod api;
mod elf;
mod machine;
mod signals;
mod tables;
mod texts;
mod unsupported;
mod vintage;

/// `hsa_status_t`.
pub type Status = u32;

/// Values of `hsa_status_t` (source: api/hsa_types.json).
pub mod status {
    use super::Status;
    /// Done.
    pub const SUCCESS: Status = 0;
    /// The plain error.
    pub const ERROR: Status = 0x1000;
    /// A wrong argument.
    pub const INVALID_ARGUMENT: Status = 0x1001;
    /// Such a queue cannot be created.
    pub const INVALID_QUEUE_CREATION: Status = 0x1002;
    /// Memory that was not allocated here.
    pub const INVALID_ALLOCATION: Status = 0x1003;
    /// Not an agent.
    pub const INVALID_AGENT: Status = 0x1004;
    /// No memory, or no device.
    pub const OUT_OF_RESOURCES: Status = 0x1008;
    /// `hsa_init` has not been called.
    pub const NOT_INITIALIZED: Status = 0x100B;
    /// Not a code object.
    pub const INVALID_CODE_OBJECT: Status = 0x1010;
    /// Not an executable.
    pub const INVALID_EXECUTABLE: Status = 0x1011;
    /// No such symbol.
    pub const INVALID_SYMBOL_NAME: Status = 0x1013;
}
