//! Devices, and the state of the process and of each thread.

use crate::stream::Stream;
use crate::{Error, error, hsa};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A GPU.
#[derive(Debug)]
pub struct Device {
    /// HIP's number.
    pub ordinal: usize,
    /// HSA's agent.
    pub agent: u64,
    /// Such as "gfx942".
    pub arch: String,
    /// The driver's name.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Compute units.
    pub units: u32,
    pool: u64,
    null_stream: OnceLock<Arc<Stream>>,
}

/// The process's runtime.
#[derive(Debug)]
pub struct Runtime {
    /// GPUs in HSA's order.
    pub devices: Vec<Device>,
    host: u64,
    host_pool: u64,
    /// The allocations: bytes and agent by address.
    memory: Mutex<BTreeMap<u64, (u64, u64)>>,
}

static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

thread_local! {
    /// `hipSetDevice`.
    pub static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// `hipGetLastError`.
    pub static LAST: Cell<Error> = const { Cell::new(error::SUCCESS) };
}

/// Returns a result in the form of the C interface.
pub fn answer(result: Result<(), Error>) -> Error {
    let code = result.err().unwrap_or(error::SUCCESS);
    if code != error::SUCCESS && code != error::NOT_READY {
        LAST.set(code);
    }
    code
}

/// Turns a status of HSA into an error of HIP.
pub fn checked(status: u32) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        0x1008 => Err(error::OUT_OF_MEMORY),
        _ => Err(error::LAUNCH_FAILURE),
    }
}

/// Takes a lock. A thread that panicked while it held the lock has reported this on stderr.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the runtime, which the first caller starts.
pub fn runtime() -> Result<&'static Runtime, Error> {
    RUNTIME.get_or_init(start).as_ref().ok_or(error::NO_DEVICE)
}

/// Returns the device with this number.
pub fn device(ordinal: usize) -> Result<&'static Device, Error> {
    runtime()?.devices.get(ordinal).ok_or(error::INVALID_DEVICE)
}

/// Returns the calling thread's device.
pub fn current() -> Result<&'static Device, Error> {
    device(CURRENT.get())
}

fn attribute<const N: usize>(agent: u64, which: u32) -> [u8; N] {
    let mut value = [0; N];
    // SAFETY: the agent is live, and each caller passes as many bytes as the attribute has.
    unsafe { hsa::hsa_agent_get_info(agent, which, value.as_mut_ptr().cast()) };
    value
}

fn text(bytes: [u8; 64]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

unsafe extern "C" fn collect(handle: u64, data: *mut c_void) -> u32 {
    // SAFETY: `data` is the caller's vector, and is used only during the call.
    unsafe { (*data.cast::<Vec<u64>>()).push(handle) };
    0
}

fn start() -> Option<Runtime> {
    let mut agents: Vec<u64> = Vec::new();
    // SAFETY: these are HSA's own functions, and the callback has the right type.
    unsafe {
        if hsa::hsa_init() != 0 {
            return None;
        }
        hsa::hsa_iterate_agents(collect, (&raw mut agents).cast());
    }
    let pool_of = |agent: u64| {
        let mut pools: Vec<u64> = Vec::new();
        // SAFETY: this is HSA's own function, and the callback has the right type.
        unsafe { hsa::hsa_amd_agent_iterate_memory_pools(agent, collect, (&raw mut pools).cast()) };
        pools.first().copied()
    };
    let (mut devices, mut host) = (Vec::new(), None);
    for agent in agents {
        let pool = pool_of(agent)?;
        // HSA_AGENT_INFO_DEVICE: 1 is a GPU.
        if u32::from_ne_bytes(attribute(agent, 17)) != 1 {
            host = host.or(Some((agent, pool)));
            continue;
        }
        let mut memory = 0_u64;
        // SAFETY: the pool is live, and its size has eight bytes.
        unsafe { hsa::hsa_amd_memory_pool_get_info(pool, 2, (&raw mut memory).cast()) };
        devices.push(Device {
            ordinal: devices.len(),
            agent,
            arch: text(attribute(agent, 0)),
            name: text(attribute(agent, 0xA009)),
            memory,
            units: u32::from_ne_bytes(attribute(agent, 0xA002)),
            pool,
            null_stream: OnceLock::new(),
        });
    }
    let (host, host_pool) = host?;
    (!devices.is_empty()).then_some(Runtime {
        devices,
        host,
        host_pool,
        memory: Mutex::default(),
    })
}

impl Device {
    /// Returns its null stream, which is created at the first use.
    pub fn null_stream(&'static self) -> Result<Arc<Stream>, Error> {
        if let Some(stream) = self.null_stream.get() {
            return Ok(Arc::clone(stream));
        }
        let made = Stream::null(self)?;
        let stream = self.null_stream.get_or_init(|| Arc::clone(&made));
        if !Arc::ptr_eq(stream, &made) {
            // Another thread was faster, so this stream is not needed.
            made.destroy();
        }
        Ok(Arc::clone(stream))
    }
    /// Returns its null stream, if it has been created.
    pub fn null_stream_if_any(&self) -> Option<&Arc<Stream>> {
        self.null_stream.get()
    }
}

impl Runtime {
    /// Allocates on a device, or on the host.
    pub fn allocate(&self, device: Option<&Device>, bytes: usize) -> Result<*mut c_void, Error> {
        let (pool, agent) = match device {
            Some(device) => (device.pool, device.agent),
            None => (self.host_pool, self.host),
        };
        let mut at = std::ptr::null_mut();
        // SAFETY: the pool is live, and the out pointer is ours.
        checked(unsafe { hsa::hsa_amd_memory_pool_allocate(pool, bytes, 0, &raw mut at) })
            .map_err(|_| error::OUT_OF_MEMORY)?;
        if device.is_none() {
            let all: Vec<u64> = self.devices.iter().map(|device| device.agent).collect();
            // SAFETY: the list has this many agents, and the memory was just allocated.
            unsafe {
                hsa::hsa_amd_agents_allow_access(
                    all.len() as u32,
                    all.as_ptr(),
                    std::ptr::null(),
                    at,
                )
            };
        }
        lock(&self.memory).insert(at.addr() as u64, (bytes as u64, agent));
        Ok(at)
    }

    /// Frees what [`Runtime::allocate`] returned.
    pub fn free(&self, at: *mut c_void) -> Result<(), Error> {
        if at.is_null() {
            return Ok(());
        }
        lock(&self.memory)
            .remove(&(at.addr() as u64))
            .ok_or(error::INVALID_VALUE)?;
        // SAFETY: it was allocated above, and is freed once.
        checked(unsafe { hsa::hsa_amd_memory_pool_free(at) })
    }

    /// Returns the owner of an address. Memory that was not allocated here belongs to the host.
    pub fn owner(&self, at: *const c_void) -> u64 {
        let at = at.addr() as u64;
        let memory = lock(&self.memory);
        let found = memory.range(..=at).next_back();
        found
            .filter(|(base, (bytes, _))| at - **base < *bytes)
            .map_or(self.host, |(_, (_, agent))| *agent)
    }

    /// Returns whether an agent is the host.
    pub fn is_host(&self, agent: u64) -> bool {
        agent == self.host
    }
}
