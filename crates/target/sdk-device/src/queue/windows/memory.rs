//! Allocates memory from which the device executes commands, and into which it writes counters.

use crate::queries;
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
/// `hsa_device_type_t` plus one, as [`symbols::agents`] returns it.
const CPU: u32 = 1;

/// Returns whether the runtime has allocated this memory on the host; false if the runtime does not
/// know.
pub(super) fn is_of_the_host(at: u64) -> bool {
    /// `HSA_EXT_POINTER_TYPE_HSA`: memory that the runtime has allocated.
    const ALLOCATED: u32 = 1;
    queries::pointer(at).is_some_and(|pointer| {
        pointer.kind == ALLOCATED && processors().any(|agent| agent == pointer.owner)
    })
}

/// Returns the CPU agents.
fn processors() -> impl Iterator<Item = u64> {
    let agents = symbols::agents().into_iter();
    agents.filter_map(|(agent, kind)| (kind == CPU).then_some(agent))
}

/// Host memory that a GPU may read and write, and from which it may take commands. Only
/// [`Memory::free`] gives it back; dropping the value leaves the memory to the device for good.
#[derive(Debug)]
pub(in crate::queue) struct Memory {
    /// The address, a multiple of 4096.
    pub at: u64,
}

impl Memory {
    /// Allocates `bytes` zeroed bytes for the agent `gpu`. Returns `None` if the runtime refuses.
    pub(in crate::queue) fn allocate(gpu: u64, bytes: usize) -> Option<Memory> {
        Memory::allocate_some(gpu, bytes, bytes)
    }

    /// The same, but only the first bytes are zeroed.
    pub(in crate::queue) fn allocate_some(gpu: u64, bytes: usize, zeroed: usize) -> Option<Memory> {
        let pool = pools().find(|pool| is_fit(*pool))?;
        let mut at: *mut c_void = std::ptr::null_mut();
        // Older runtimes know no flags.
        let allocated = [EXECUTABLE, 0].into_iter().any(|flags| {
            // SAFETY: this is the runtime's own function, with one of its pools and a valid out
            // pointer.
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
        // SAFETY: this is the runtime's own function, with one agent and the memory that was
        // allocated above.
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
        // SAFETY: this many bytes were allocated, and nothing uses them yet.
        unsafe { at.cast::<u8>().write_bytes(0, zeroed.min(bytes)) };
        Some(memory)
    }

    /// Writes commands to an address inside this memory, which the device does not use yet.
    pub(in crate::queue) fn write(&self, at: u64, words: &[u32]) {
        let to = std::ptr::with_exposed_provenance_mut::<u32>(at as usize);
        // SAFETY: the caller has reserved this many words at `at`.
        unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    }

    /// Gives the memory back. No packet in any ring may refer to it any more.
    pub(in crate::queue) fn free(self) {
        let at = std::ptr::with_exposed_provenance_mut(self.at as usize);
        // SAFETY: this is the runtime's memory, and the caller promises that it is not used.
        unsafe { original::hsa_amd_memory_pool_free(at) };
    }
}

/// Returns the memory pools of the CPU agents.
fn pools() -> impl Iterator<Item = u64> {
    processors().flat_map(queries::pools)
}

/// Returns whether a pool consists of fine-grained host memory, whose changes devices see at once,
/// and allows allocation.
fn is_fit(pool: u64) -> bool {
    let ask = |what| queries::pool::<u32>(pool, what);
    ask(info::SEGMENT) == Some(GLOBAL)
        && ask(info::GLOBAL_FLAGS).is_some_and(|flags| flags & FINE_GRAINED != 0)
        && ask(info::ALLOC_ALLOWED).is_some_and(|allowed| allowed != 0)
}
