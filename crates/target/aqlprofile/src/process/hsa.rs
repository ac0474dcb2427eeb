//! The HSA runtime's functions that AMD's library calls to learn about the GPU, answered from the
//! question. The linker exports them (`build.rs`), so they come before the runtime's own, which knows no
//! GPU here.
//!
//! Source: `docs/sources.md#att`.

use midair_aqlprofile::making::AGENT;
use midair_counters::wire::{Answer, Gpu};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// The GPU. The library asks for it once.
static DESCRIBED: Mutex<Option<Gpu>> = Mutex::new(None);

/// The agent of a processor, without which the library ends the process.
const PROCESSOR: u64 = AGENT + 1;
/// Its pools of memory; the second is for arguments of kernels.
const POOLS: [u64; 2] = [1, 2];
const ARGUMENTS: u64 = POOLS[1];
/// The bit of a pool for arguments of kernels.
const KERNARG: u32 = 1;
/// Bytes of `HSA_AGENT_INFO_NAME`.
const NAME: usize = 64;

/// Sets the GPU. Returns false where another one has been asked for.
pub fn describe(gpu: &Gpu) -> bool {
    let mut described = DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner);
    described.get_or_insert_with(|| gpu.clone()) == gpu
}

/// The answer to a question about another GPU.
pub fn another() -> Answer {
    Answer::Refused {
        code: 0,
        what: "trace threads of another GPU in one process".into(),
    }
}

/// What the library asks about agents (`hsa_agent_info_t`, `hsa_amd_agent_info_t`).
mod info {
    pub const NAME: u32 = 0;
    pub const WAVEFRONT: u32 = 6;
    pub const QUEUE_MAX_SIZE: u32 = 14;
    pub const DEVICE: u32 = 17;
    pub const UNITS: u32 = 0xa002;
    pub const LOCATION: u32 = 0xa006;
    pub const WAVES_OF_UNIT: u32 = 0xa00a;
    pub const SIMDS_OF_UNIT: u32 = 0xa00b;
    pub const ENGINES: u32 = 0xa00c;
    pub const ARRAYS: u32 = 0xa00d;
    pub const DOMAIN: u32 = 0xa00f;
    pub const FREQUENCY: u32 = 0xa016;
    pub const XCCS: u32 = 0xa111;
}

/// Answers about an agent. What is not known is 0: the library has zeroed its own memory.
///
/// # Safety
/// `to` is as large as the question demands.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsa_agent_get_info(agent: u64, what: u32, to: *mut c_void) -> c_int {
    let described = DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(gpu) = described.as_ref() else {
        return 1;
    };
    let value = match what {
        info::NAME => {
            let bytes = gpu.name.as_bytes();
            let bytes = bytes.get(..bytes.len().min(NAME - 1)).unwrap_or_default();
            let mut name = [0; NAME];
            name.iter_mut()
                .zip(bytes)
                .for_each(|(to, byte)| *to = *byte);
            // SAFETY: a name's place has 64 bytes.
            unsafe { to.cast::<[u8; NAME]>().write(name) };
            return 0;
        }
        info::FREQUENCY => {
            // SAFETY: a frequency has eight bytes.
            unsafe { to.cast::<u64>().write_unaligned(100_000_000) };
            return 0;
        }
        info::DEVICE => u32::from(agent == AGENT),
        info::WAVEFRONT => 64,
        info::QUEUE_MAX_SIZE => 1 << 17,
        info::UNITS => gpu.units,
        info::LOCATION => gpu.location,
        info::WAVES_OF_UNIT => 32,
        info::SIMDS_OF_UNIT => 4,
        info::ENGINES => gpu.engines,
        info::ARRAYS => gpu.arrays,
        info::DOMAIN => gpu.domain,
        info::XCCS => gpu.xccs,
        _ => return 0,
    };
    // SAFETY: these have four bytes.
    unsafe { to.cast::<u32>().write_unaligned(value) };
    0
}

type OnHandle = unsafe extern "C" fn(u64, *mut c_void) -> c_int;

/// Calls a function for each handle, until it returns a value other than 0.
///
/// # Safety
/// `call` is sound with `data`.
unsafe fn each(handles: [u64; 2], call: OnHandle, data: *mut c_void) -> c_int {
    for handle in handles {
        // SAFETY: the caller's promise.
        let status = unsafe { call(handle, data) };
        if status != 0 {
            return status;
        }
    }
    0
}

/// # Safety
/// `call` is sound with `data`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsa_iterate_agents(call: OnHandle, data: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { each([PROCESSOR, AGENT], call, data) }
}

/// # Safety
/// `call` is sound with `data`.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsa_amd_agent_iterate_memory_pools(
    _: u64,
    call: OnHandle,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { each(POOLS, call, data) }
}

/// # Safety
/// `to` has at least four bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsa_amd_memory_pool_get_info(pool: u64, what: u32, to: *mut c_void) -> c_int {
    /// `HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS`; all other questions are for the segment, global.
    const FLAGS: u32 = 1;
    let value = if what == FLAGS && pool == ARGUMENTS {
        KERNARG
    } else {
        0
    };
    // SAFETY: the caller's promise.
    unsafe { to.cast::<u32>().write_unaligned(value) };
    0
}

/// # Safety
/// `to` has eight bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsa_system_get_info(_: u32, to: *mut c_void) -> c_int {
    // The library asks for the frequency of the system's clock, and divides by it.
    // SAFETY: the caller's promise.
    unsafe { to.cast::<u64>().write_unaligned(1_000_000_000) };
    0
}

/// Returns a table without functions.
///
/// # Safety
/// `table` has `bytes` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsa_system_get_major_extension_table(
    _: u16,
    _: u16,
    bytes: usize,
    table: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { table.cast::<u8>().write_bytes(0, bytes) };
    0
}

/// The runtime is not started for this process.
#[unsafe(no_mangle)]
extern "C" fn hsa_init() -> c_int {
    0
}

/// The same for its end.
#[unsafe(no_mangle)]
extern "C" fn hsa_shut_down() -> c_int {
    0
}
