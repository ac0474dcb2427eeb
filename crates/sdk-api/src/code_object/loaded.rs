//! What a tool was told is loaded, until it is told that it is not any more.

use crate::context::services::CodeObjectService;
use midair_abi::constants as c;
use midair_abi::records::{CodeObjectLoad, HostKernelSymbol, KernelSymbol};
use std::ffi::c_void;

/// A code object, or something in one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payload {
    /// The code object itself.
    Object(CodeObjectLoad),
    /// A kernel of it.
    Symbol(KernelSymbol),
    /// The function by which the program launches a kernel of it. Told when it is loaded only, as
    /// AMD's library does.
    Host(HostKernelSymbol),
}

// SAFETY: the pointers in it are texts that live for ever and are not changed.
unsafe impl Send for Payload {}

impl Payload {
    /// AMD's operation.
    pub fn operation(&self) -> i32 {
        match self {
            Payload::Object(_) => c::ROCPROFILER_CODE_OBJECT_LOAD,
            Payload::Symbol(_) => c::ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER,
            Payload::Host(_) => c::ROCPROFILER_CODE_OBJECT_HOST_KERNEL_SYMBOL_REGISTER,
        }
    }

    /// Number of the code object that it is, or is in.
    pub fn code_object(&self) -> u64 {
        match self {
            Payload::Object(object) => object.code_object_id,
            Payload::Symbol(symbol) => symbol.code_object_id,
            Payload::Host(host) => host.code_object_id,
        }
    }

    /// Its struct, as callbacks are given it.
    pub fn as_pointer(&mut self) -> *mut c_void {
        match self {
            Payload::Object(object) => (&raw mut *object).cast(),
            Payload::Symbol(symbol) => (&raw mut *symbol).cast(),
            Payload::Host(host) => (&raw mut *host).cast(),
        }
    }
}

/// One thing that one context was told of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    /// Handle of the context.
    pub context: u64,
    /// Its service.
    pub service: CodeObjectService,
    /// What it was told of.
    pub payload: Payload,
    /// The tool's word, as it left it.
    pub user_data: u64,
}
