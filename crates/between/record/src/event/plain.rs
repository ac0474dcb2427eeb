//! Conversion between records and bytes: the only unsafe code for records.

use super::{
    Agent, Allocation, Api, Barrier, Burst, Code, CodeObject, Copy, CounterWindow, CudaDevice,
    CudaLaunch, CudaTransfer, EventCall, GraphBuild, GraphCall, Header, Instruction, Kernel,
    KernelSymbol, KfdEvent, LaunchStack, Marker, MemorySet, Module, NativeCode, Note, PcSample,
    Queue, QueueCounts, RuntimeInit, Scratch, Stack, Synchronization, TraceData, UnifiedMemory,
};

/// A plain record: `repr(C)`, no padding with meaning, any bit pattern is a value.
///
/// # Safety
/// Implement it only for `repr(C)` structs of integers without padding bytes that start with a
/// [`Header`].
pub unsafe trait Plain: core::marker::Copy {
    /// Returns the struct's own bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: Plain types are repr(C) integers without padding, so every byte is initialised.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
    /// Reads one from the front of `bytes` (any alignment).
    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: the length was checked, the read is unaligned, and any bit pattern is a value of
        // a Plain type.
        Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
    }
}

macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: the type is repr(C) with integers only. Its sizes add up without padding (the
        // assertion below), and it starts with a Header.
        unsafe impl Plain for $t {}
        const _: () = assert!(size_of::<$t>() % 8 == 0);
    )* };
}
plain!(
    Header,
    Api,
    Kernel,
    Copy,
    Marker,
    Allocation,
    Scratch,
    RuntimeInit,
    KfdEvent,
    GraphCall,
    EventCall,
    Barrier,
    Agent,
    CodeObject,
    KernelSymbol,
    Queue,
    QueueCounts,
    CounterWindow,
    PcSample,
    TraceData,
    Note,
    MemorySet,
    Synchronization,
    UnifiedMemory,
    CudaDevice,
    Burst,
    Code,
    Stack,
    LaunchStack,
    NativeCode,
    Module,
    GraphBuild,
    Instruction
);

/// A struct that follows a record of fixed size and has no header of its own: `repr(C)`, integers
/// only, no padding.
pub(super) trait Words: Sized {
    /// Reads one from the front of `bytes` (any alignment).
    fn of_bytes(bytes: &[u8]) -> Option<Self>;
}

macro_rules! words {
    ($($t:ty),*) => { $(
        impl Words for $t {
            fn of_bytes(bytes: &[u8]) -> Option<$t> {
                let bytes = bytes.get(..size_of::<$t>())?;
                // SAFETY: the length was checked, the read is unaligned, and any bit pattern is a
                // valid integer.
                Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
            }
        }
        impl $t {
            /// Returns its bytes.
            pub fn bytes(&self) -> &[u8] {
                // SAFETY: the type is repr(C) with integers only and no padding (the sizes are
                // asserted), so every byte is initialised.
                unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<$t>()) }
            }
        }
    )* };
}
words!(CudaLaunch, CudaTransfer);
const _: () = assert!(size_of::<CudaLaunch>() == 32 && size_of::<CudaTransfer>() == 24);
