use crate::machine::{Agent, answer, with};
use crate::signals::put;
use crate::{Status, status};
use std::ffi::c_void;

/// Returns the value of an attribute as bytes, in the type that AMD's headers give it.
fn attribute(agent: &Agent, attribute: u32) -> Option<Vec<u8>> {
    let word = |value: u64| Some((value as u32).to_ne_bytes().to_vec());
    let long = |value: u64| Some(value.to_ne_bytes().to_vec());
    let text = |text: &str| {
        let mut bytes = vec![0; 64];
        let len = text.len().min(63);
        bytes.splice(..len, text.bytes().take(len));
        Some(bytes)
    };
    let gpu = u64::from(agent.is_gpu());
    let simds = agent.property("simd_count");
    let per_unit = agent.property("simd_per_cu").max(1);
    match attribute {
        0 => text(&agent.name()),
        1 => text(if agent.is_gpu() { "AMD" } else { "CPU" }),
        // HSA_AGENT_FEATURE_KERNEL_DISPATCH.
        2 => word(gpu),
        3 => word(1),
        4 => word(1 - gpu),
        5 => word(2),
        6 => word(agent.property("wave_front_size")),
        7 => Some([1024_u16; 3].iter().flat_map(|v| v.to_ne_bytes()).collect()),
        8 => word(1024 * gpu),
        9 => Some([u32::MAX; 3].iter().flat_map(|v| v.to_ne_bytes()).collect()),
        10 => word(u64::from(u32::MAX)),
        11 => word(32),
        12 => word(128 * gpu),
        13 => word(64 * gpu),
        14 => word((gpu) << 17),
        15 => word(0),
        16 => word(u64::from(agent.node)),
        // hsa_device_type_t: 0 CPU, 1 GPU.
        17 => word(gpu),
        18 => Some(vec![0; 16]),
        20 => Some(vec![0; 128]),
        21 | 22 => Some(1_u16.to_ne_bytes().to_vec()),
        0xA000 => word(agent.property("device_id")),
        0xA001 => word(128),
        0xA002 => word(if agent.is_gpu() {
            simds / per_unit
        } else {
            agent.property("cpu_cores_count")
        }),
        0xA003 => word(agent.property("max_engine_clk_fcompute")),
        0xA004 => word(u64::from(agent.node)),
        0xA006 => word(agent.property("location_id")),
        0xA007 => word(4096),
        0xA008 => word(1600),
        0xA009 => text(&agent.model_name),
        0xA00A => word(agent.property("max_waves_per_simd") * per_unit),
        0xA00B => word(per_unit),
        0xA00F => word(agent.property("domain")),
        0xA010 => Some(vec![0]),
        0xA011 => text(&format!("GPU-{:016x}", agent.property("unique_id"))),
        0xA015 => long(agent.memory),
        0xA016 => long(1_000_000_000),
        0xA10A => word(agent.property("num_sdma_engines")),
        0xA10B => word(agent.property("num_sdma_xgmi_engines")),
        0xA111 => word(agent.property("num_xcc")),
        _ => None,
    }
}

pub unsafe extern "C" fn hsa_agent_get_info(handle: u64, which: u32, value: *mut c_void) -> Status {
    let bytes = with(|machine| {
        let agent = machine.agent(handle).ok_or(status::INVALID_AGENT)?;
        attribute(agent, which).ok_or(status::INVALID_ARGUMENT)
    });
    match bytes {
        Ok(_) if value.is_null() => status::INVALID_ARGUMENT,
        Ok(bytes) => {
            // SAFETY: the caller's buffer has room for the attribute's type, whose bytes these are.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), bytes.len()) };
            status::SUCCESS
        }
        Err(status) => status,
    }
}

pub unsafe extern "C" fn hsa_amd_agent_iterate_memory_pools(
    agent: u64,
    callback: Option<unsafe extern "C" fn(u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let Some(callback) = callback else {
        return status::INVALID_ARGUMENT;
    };
    match with(|machine| Ok(machine.agent(agent).ok_or(status::INVALID_AGENT)?.pool())) {
        // SAFETY: this calls the caller's function with the caller's data, as its type requires.
        Ok(pool) => unsafe { callback(pool, data) },
        Err(status) => status,
    }
}

pub unsafe extern "C" fn hsa_amd_memory_pool_get_info(
    pool: u64,
    which: u32,
    value: *mut c_void,
) -> Status {
    answer(with(|machine| {
        let agent = machine
            .agent_of_pool(pool)
            .ok_or(status::INVALID_ARGUMENT)?;
        // Global flags: kernel arguments and fine-grained on the host, coarse-grained on a device.
        let flags: u32 = if agent.is_gpu() { 4 } else { 1 | 2 };
        // SAFETY: the caller's buffer has room for the attribute's type.
        let status = unsafe {
            match which {
                0 => put(value.cast(), 0_u32),
                1 => put(value.cast(), flags),
                2 | 16 => put(value.cast(), agent.memory),
                5 => put(value.cast(), true),
                6 | 7 | 18 => put(value.cast(), 4096_u64),
                15 => put(value.cast(), !agent.is_gpu()),
                17 => put(value.cast(), u32::from(agent.is_gpu())),
                _ => status::INVALID_ARGUMENT,
            }
        };
        if status == 0 { Ok(()) } else { Err(status) }
    }))
}

pub unsafe extern "C" fn hsa_amd_agent_memory_pool_get_info(
    agent: u64,
    pool: u64,
    which: u32,
    value: *mut c_void,
) -> Status {
    answer(with(|machine| {
        let owner = machine
            .agent_of_pool(pool)
            .ok_or(status::INVALID_ARGUMENT)?;
        // hsa_amd_memory_pool_access_t: 1 allowed by default, 2 disallowed by default (a peer has
        // to be given access).
        let access: u32 = if owner.handle == agent || !owner.is_gpu() {
            1
        } else {
            2
        };
        // SAFETY: the caller's buffer has room for the attribute's type.
        let status = unsafe {
            match which {
                0 => put(value.cast(), access),
                1 => put(value.cast(), u32::from(owner.handle != agent)),
                _ => status::INVALID_ARGUMENT,
            }
        };
        if status == 0 { Ok(()) } else { Err(status) }
    }))
}
