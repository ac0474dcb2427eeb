use super::copies::fill_on;
use crate::machine::{Allocation, Block, answer, with};
use crate::signals::put;
use crate::{Status, status};
use std::ffi::c_void;

pub unsafe extern "C" fn hsa_amd_memory_pool_allocate(
    pool: u64,
    bytes: usize,
    _flags: u32,
    out: *mut *mut c_void,
) -> Status {
    answer(with(|machine| {
        let agent = machine
            .agent_of_pool(pool)
            .ok_or(status::INVALID_ARGUMENT)?;
        if bytes == 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        if bytes as u64 > agent.memory {
            return Err(status::OUT_OF_RESOURCES);
        }
        let handle = agent.handle;
        let block =
            Block::map((bytes as u64).next_multiple_of(4096)).ok_or(status::OUT_OF_RESOURCES)?;
        let allocation = Allocation {
            block,
            asked: bytes as u64,
            agent: handle,
        };
        machine.allocations.insert(block.at, allocation);
        let at = std::ptr::with_exposed_provenance_mut(block.at as usize);
        // SAFETY: the caller promises that the out pointer is null or writable.
        match unsafe { put(out, at) } {
            0 => Ok(()),
            status => Err(status),
        }
    }))
}

pub unsafe extern "C" fn hsa_amd_memory_pool_free(at: *mut c_void) -> Status {
    answer(with(|machine| {
        let freed = machine
            .allocations
            .remove(&(at.addr() as u64))
            .ok_or(status::INVALID_ALLOCATION)?;
        freed.block.unmap();
        Ok(())
    }))
}

/// Does nothing: all agents see all memory, since the devices use the process's addresses.
pub unsafe extern "C" fn hsa_amd_agents_allow_access(
    _count: u32,
    _agents: *const u64,
    _flags: *const u32,
    at: *const c_void,
) -> Status {
    answer(with(|machine| {
        machine
            .allocation(at.addr() as u64)
            .map(|_| ())
            .ok_or(status::INVALID_ALLOCATION)
    }))
}

/// `hsa_amd_pointer_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PointerInfo {
    size: u32,
    kind: u32,
    agent_base: u64,
    host_base: u64,
    bytes: u64,
    user_data: u64,
    owner: u64,
    flags: u32,
    registered: bool,
}

pub unsafe extern "C" fn hsa_amd_pointer_info(
    at: *const c_void,
    info: *mut PointerInfo,
    _alloc: *const c_void,
    count: *mut u32,
    _accessible: *mut *mut u64,
) -> Status {
    answer(with(|machine| {
        if info.is_null() {
            return Err(status::INVALID_ARGUMENT);
        }
        let found = machine.allocation(at.addr() as u64).copied();
        let host = machine.agents.first().map_or(0, |agent| agent.handle);
        // SAFETY: the caller's struct starts with its size.
        let size = unsafe { info.cast::<u32>().read() };
        let mut full = PointerInfo {
            size,
            kind: 0,
            agent_base: 0,
            host_base: 0,
            bytes: 0,
            user_data: 0,
            owner: 0,
            flags: 0,
            registered: false,
        };
        if let Some(found) = found {
            full.kind = 1;
            (full.agent_base, full.bytes) = (found.block.at, found.asked);
            full.owner = found.agent;
            full.host_base = if found.agent == host {
                found.block.at
            } else {
                0
            };
            full.flags = if found.agent == host { 2 } else { 4 };
        }
        let bytes = (size as usize).min(size_of::<PointerInfo>());
        // SAFETY: no more bytes are written than the caller's struct has, according to its size.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const full).cast::<u8>(), info.cast(), bytes);
            if !count.is_null() {
                count.write(0);
            }
        }
        Ok(())
    }))
}

pub unsafe extern "C" fn hsa_memory_copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: these are the caller's ranges, and all memory here belongs to the process.
    unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
    status::SUCCESS
}

pub unsafe extern "C" fn hsa_amd_memory_fill(at: *mut c_void, value: u32, count: usize) -> Status {
    let agent = with(|machine| {
        let found = machine
            .allocation(at.addr() as u64)
            .ok_or(status::INVALID_ALLOCATION)?;
        Ok(machine
            .agent(found.agent)
            .filter(|agent| agent.is_gpu())
            .map(|agent| agent.handle))
    });
    match agent {
        Ok(Some(agent)) => fill_on(agent, at.addr() as u64, value, count as u64),
        Ok(None) => {
            for index in 0..count {
                // SAFETY: the caller promises `count` words from `at` on.
                unsafe { at.cast::<u32>().add(index).write_unaligned(value) };
            }
            status::SUCCESS
        }
        Err(status) => status,
    }
}
