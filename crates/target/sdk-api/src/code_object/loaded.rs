//! What was reported to a tool as loaded, until it is reported as unloaded.

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
    /// The function by which the program launches one of its kernels. Only its loading is reported,
    /// as by AMD's library.
    Host(HostKernelSymbol),
}

// SAFETY: the pointers in it are to texts that live forever and never change.
unsafe impl Send for Payload {}

impl Payload {
    /// Returns AMD's operation.
    pub fn operation(&self) -> i32 {
        match self {
            Payload::Object(_) => c::ROCPROFILER_CODE_OBJECT_LOAD,
            Payload::Symbol(_) => c::ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER,
            Payload::Host(_) => c::ROCPROFILER_CODE_OBJECT_HOST_KERNEL_SYMBOL_REGISTER,
        }
    }

    /// Returns the number of the code object that it is, or is in.
    pub fn code_object(&self) -> u64 {
        match self {
            Payload::Object(object) => object.code_object_id,
            Payload::Symbol(symbol) => symbol.code_object_id,
            Payload::Host(host) => host.code_object_id,
        }
    }

    /// Returns a pointer to its struct, as callbacks get it.
    pub fn as_pointer(&mut self) -> *mut c_void {
        match self {
            Payload::Object(object) => (&raw mut *object).cast(),
            Payload::Symbol(symbol) => (&raw mut *symbol).cast(),
            Payload::Host(host) => (&raw mut *host).cast(),
        }
    }
}

/// Something that was reported to one context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Loaded {
    /// Handle of the context.
    pub context: u64,
    /// Its service.
    pub service: CodeObjectService,
    /// What was reported.
    pub payload: Payload,
    /// The tool's user data, as the tool left it.
    pub user_data: u64,
}
