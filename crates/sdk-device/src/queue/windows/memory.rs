//! Memory that the device executes commands from and writes counters into.

use crate::symbols;
use midair_sdk_hot::wrappers::original;
use std::ffi::c_void;

/// `HSA_AMD_MEMORY_POOL_INFO_*` (source: `docs/sources.md#hsa`).
mod info {
    pub const SEGMENT: u32 = 0;
    pub const GLOBAL_FLAGS: u32 = 1;
    pub const ALLOC_ALLOWED: u32 = 5;
}
/// `HSA_AMD_SEGMENT_GLOBAL`.
const GLOBAL: u32 = 0;
/// `HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED`.
const FINE_GRAINED: u32 = 2;
/// `HSA_AMD_MEMORY_POOL_EXECUTABLE_FLAG`.
const EXECUTABLE: u32 = 4;
/// `hsa_device_type_t` plus one, as [`symbols::agents`] has it.
const CPU: u32 = 1;

/// Whether the runtime has allocated this memory on the host. Not where it does not know.
pub(super) fn is_of_the_host(at: u64) -> bool {
    /// `hsa_amd_pointer_info_t` (source: `docs/sources.md#hsa`), with room behind it for what newer
    /// runtimes add.
    #[repr(C)]
    struct Info {
        size: u32,
        kind: u32,
        addresses: [u64; 2],
        bytes: u64,
        user_data: u64,
        owner: u64,
        flags: [u32; 2],
    }
    /// `HSA_EXT_POINTER_TYPE_HSA`: memory that the runtime has allocated.
    const ALLOCATED: u32 = 1;
    let mut info = Info {
        size: size_of::<Info>() as u32,
        kind: 0,
        addresses: [0; 2],
        bytes: 0,
        user_data: 0,
        owner: 0,
        flags: [0; 2],
    };
    // SAFETY: the runtime's own query with a valid out pointer, of the size that is in it; no list of
    // agents is asked for.
    let status = unsafe {
        original::hsa_amd_pointer_info(
            std::ptr::with_exposed_provenance_mut(at as usize),
            (&raw mut info).cast(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    let processors = symbols::agents()
        .into_iter()
        .filter(|(_, kind)| *kind == CPU);
    let is_one = |owner: u64| processors.into_iter().any(|(agent, _)| agent == owner);
    status == 0 && info.kind == ALLOCATED && is_one(info.owner)
}

/// Memory of the host's that a GPU may read, write and take commands from. It is given back with
/// [`Memory::free`] only: whoever drops it leaves it to the device for good.
#[derive(Debug)]
pub(in crate::queue) struct Memory {
    /// Its address, a multiple of 4096.
    pub at: u64,
}

impl Memory {
    /// `bytes` zeroed bytes for the agent `gpu`; none if the runtime refuses.
    pub(in crate::queue) fn allocate(gpu: u64, bytes: usize) -> Option<Memory> {
        let pool = pools().find(|pool| is_fit(*pool))?;
        let mut at: *mut c_void = std::ptr::null_mut();
        // Older runtimes know no flags.
        let allocated = [EXECUTABLE, 0].into_iter().any(|flags| {
            // SAFETY: the runtime's own function with a pool of its own and a valid out pointer.
            let status = unsafe {
                original::hsa_amd_memory_pool_allocate(
                    pool,
                    bytes as u64,
                    flags,
                    (&raw mut at).cast(),
                )
            };
            status == 0 && !at.is_null()
        });
        if !allocated {
            return None;
        }
        let memory = Memory {
            at: at.expose_provenance() as u64,
        };
        let agents = [gpu];
        // SAFETY: the runtime's own function, with one agent and memory that was allocated above.
        let status = unsafe {
            original::hsa_amd_agents_allow_access(
                1,
                agents.as_ptr().cast_mut().cast(),
                std::ptr::null_mut(),
                at,
            )
        };
        if status != 0 || !memory.at.is_multiple_of(4096) {
            memory.free();
            return None;
        }
        // SAFETY: so many bytes were allocated, and nobody uses them yet.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) };
        Some(memory)
    }

    /// Writes commands to an address inside, which the device does not use yet.
    pub(in crate::queue) fn write(&self, at: u64, words: &[u32]) {
        let to = std::ptr::with_exposed_provenance_mut::<u32>(at as usize);
        // SAFETY: the caller has set so many words aside there.
        unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    }

    /// Gives it back. Nothing in any ring refers to it any more.
    pub(in crate::queue) fn free(self) {
        let at = std::ptr::with_exposed_provenance_mut(self.at as usize);
        // SAFETY: memory of the runtime's that the caller says is not used.
        unsafe { original::hsa_amd_memory_pool_free(at) };
    }
}

/// Pools of the processors.
fn pools() -> impl Iterator<Item = u64> {
    unsafe extern "C" fn each(pool: u64, data: *mut c_void) -> u32 {
        // SAFETY: `data` is the vector below, during the call only.
        unsafe { (*data.cast::<Vec<u64>>()).push(pool) };
        0
    }
    let processors = symbols::agents()
        .into_iter()
        .filter(|(_, kind)| *kind == CPU);
    processors.flat_map(|(agent, _)| {
        let mut pools: Vec<u64> = Vec::new();
        // SAFETY: the runtime's own query; the callback matches its type.
        unsafe {
            original::hsa_amd_agent_iterate_memory_pools(
                agent,
                each as *mut c_void,
                (&raw mut pools).cast(),
            );
        }
        pools
    })
}

/// Whether a pool is one of the host's memory that devices see at once, and may be allocated from.
fn is_fit(pool: u64) -> bool {
    let ask = |what: u32| {
        // Room for a flag of one byte, too, which the runtime calls a bool.
        let mut value = 0_u32;
        // SAFETY: the runtime's own query with an out pointer that has room for any of the three.
        let status =
            unsafe { original::hsa_amd_memory_pool_get_info(pool, what, (&raw mut value).cast()) };
        (status == 0).then_some(value)
    };
    ask(info::SEGMENT) == Some(GLOBAL)
        && ask(info::GLOBAL_FLAGS).is_some_and(|flags| flags & FINE_GRAINED != 0)
        && ask(info::ALLOC_ALLOWED).is_some_and(|allowed| allowed != 0)
}
