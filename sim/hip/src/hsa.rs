//! The functions of libhsa-runtime64.so.1 that we call. They are called through its exported stubs,
//! so that a profiler sees the calls as with AMD's HIP. `build.rs` reads the names in
//! this block.

use std::ffi::{c_char, c_void};

unsafe extern "C" {
    pub fn hsa_init() -> u32;
    pub fn hsa_iterate_agents(each: EachAgent, data: *mut c_void) -> u32;
    pub fn hsa_agent_get_info(agent: u64, attribute: u32, value: *mut c_void) -> u32;
    pub fn hsa_amd_agent_iterate_memory_pools(
        agent: u64,
        each: EachAgent,
        data: *mut c_void,
    ) -> u32;
    pub fn hsa_amd_memory_pool_get_info(pool: u64, attribute: u32, value: *mut c_void) -> u32;
    pub fn hsa_amd_memory_pool_allocate(
        pool: u64,
        bytes: usize,
        flags: u32,
        at: *mut *mut c_void,
    ) -> u32;
    pub fn hsa_amd_memory_pool_free(at: *mut c_void) -> u32;
    pub fn hsa_amd_agents_allow_access(
        count: u32,
        agents: *const u64,
        flags: *const u32,
        at: *const c_void,
    ) -> u32;
    pub fn hsa_amd_memory_fill(at: *mut c_void, value: u32, count: usize) -> u32;
    pub fn hsa_queue_create(
        agent: u64,
        size: u32,
        kind: u32,
        callback: *const c_void,
        data: *mut c_void,
        private: u32,
        group: u32,
        queue: *mut *mut Queue,
    ) -> u32;
    pub fn hsa_queue_destroy(queue: *mut Queue) -> u32;
    pub fn hsa_queue_add_write_index_screlease(queue: *mut Queue, count: u64) -> u64;
    pub fn hsa_queue_load_read_index_scacquire(queue: *mut Queue) -> u64;
    pub fn hsa_signal_create(
        value: i64,
        count: u32,
        consumers: *const u64,
        signal: *mut u64,
    ) -> u32;
    pub fn hsa_signal_destroy(signal: u64) -> u32;
    pub fn hsa_signal_load_scacquire(signal: u64) -> i64;
    pub fn hsa_signal_silent_store_relaxed(signal: u64, value: i64);
    pub fn hsa_signal_store_screlease(signal: u64, value: i64);
    pub fn hsa_signal_wait_scacquire(
        signal: u64,
        condition: u32,
        value: i64,
        timeout: u64,
        state: u32,
    ) -> i64;
    pub fn hsa_amd_memory_copy_engine_status(to: u64, from: u64, mask: *mut u32) -> u32;
    pub fn hsa_amd_memory_async_copy(
        to: *mut c_void,
        to_agent: u64,
        from: *const c_void,
        from_agent: u64,
        bytes: usize,
        count: u32,
        deps: *const u64,
        completion: u64,
    ) -> u32;
    pub fn hsa_amd_memory_async_copy_on_engine(
        to: *mut c_void,
        to_agent: u64,
        from: *const c_void,
        from_agent: u64,
        bytes: usize,
        count: u32,
        deps: *const u64,
        completion: u64,
        engine: u32,
        force: bool,
    ) -> u32;
    pub fn hsa_amd_profiling_set_profiler_enabled(queue: *mut Queue, enable: i32) -> u32;
    pub fn hsa_amd_profiling_get_dispatch_time(
        agent: u64,
        signal: u64,
        times: *mut [u64; 2],
    ) -> u32;
    pub fn hsa_code_object_reader_create_from_memory(
        bytes: *const c_void,
        size: usize,
        reader: *mut u64,
    ) -> u32;
    pub fn hsa_code_object_reader_destroy(reader: u64) -> u32;
    pub fn hsa_executable_create_alt(
        profile: u32,
        rounding: u32,
        options: *const c_char,
        executable: *mut u64,
    ) -> u32;
    pub fn hsa_executable_load_agent_code_object(
        executable: u64,
        agent: u64,
        reader: u64,
        options: *const c_char,
        loaded: *mut u64,
    ) -> u32;
    pub fn hsa_executable_freeze(executable: u64, options: *const c_char) -> u32;
    pub fn hsa_executable_destroy(executable: u64) -> u32;
    pub fn hsa_executable_get_symbol_by_name(
        executable: u64,
        name: *const c_char,
        agent: *const u64,
        symbol: *mut u64,
    ) -> u32;
    pub fn hsa_executable_symbol_get_info(symbol: u64, attribute: u32, value: *mut c_void) -> u32;
}

/// A callback for agents and for pools.
pub type EachAgent = unsafe extern "C" fn(u64, *mut c_void) -> u32;

/// The start of `hsa_queue_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Queue {
    kind: u32,
    features: u32,
    /// The ring.
    pub base: *mut [u32; 16],
    /// The doorbell.
    pub doorbell: u64,
    /// The number of packets.
    pub size: u32,
}
