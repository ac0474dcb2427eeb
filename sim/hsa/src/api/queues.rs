use crate::machine::{ENABLE_PROFILING, Held, Queue, Works, answer, with};
use crate::signals::put;
use crate::{Status, status};
use std::ffi::c_void;
use std::sync::atomic::Ordering::SeqCst;

/// Returns the queue at this address, which the application has to keep as long as it uses it.
fn queue(at: *mut Queue) -> Option<&'static Queue> {
    // SAFETY: it is null or a live midair queue, by the contract of each function that calls this.
    // The fields that change are atomic.
    unsafe { at.as_ref() }
}

pub unsafe extern "C" fn hsa_queue_create(
    agent: u64,
    size: u32,
    kind: u32,
    _callback: *const c_void,
    _data: *mut c_void,
    _private: u32,
    _group: u32,
    out: *mut *mut Queue,
) -> Status {
    answer(with(|machine| {
        let made = machine.create_queue(agent, kind, Works::Compute, u64::from(size) * 64)?;
        // SAFETY: the caller promises that the out pointer is null or writable.
        match unsafe { put(out, made) } {
            0 => Ok(()),
            status => Err(status),
        }
    }))
}

/// `hsa_amd_queue_create_desc_t` of version 1 (source: `docs/sources.md#hsa-newer`).
#[repr(C)]
#[derive(Debug)]
pub struct Descriptor {
    version: u16,
    flags: u16,
    engine: u8,
    reserved_header: [u8; 3],
    ring_bytes: u32,
    priority: u32,
    callback: *const c_void,
    data: *mut c_void,
    queue: *mut Queue,
    /// For a compute queue: mask of units (8 bytes), kind, private segment, and more.
    of_engine: [u32; 8],
    traffic_class: u32,
    reserved: [u8; 20],
}

const _: () = assert!(size_of::<Descriptor>() == 96);

/// Creates the queue that a descriptor asks for.
fn create_one(agent: u64, wanted: &Descriptor) -> Result<*mut Queue, Status> {
    let works = match wanted.engine {
        0 => Works::Compute,
        1 => Works::Sdma,
        _ => return Err(status::INVALID_QUEUE_CREATION),
    };
    if wanted.version != 1 || wanted.ring_bytes == 0 {
        return Err(status::INVALID_ARGUMENT);
    }
    let kind = match works {
        Works::Compute => wanted.of_engine[2],
        Works::Sdma => 0,
    };
    with(|machine| machine.create_queue(agent, kind, works, wanted.ring_bytes.into()))
}

pub unsafe extern "C" fn hsa_amd_queue_create(
    agent: u64,
    descriptors: *mut Descriptor,
    count: u32,
) -> Status {
    if descriptors.is_null() || count == 0 {
        return status::INVALID_ARGUMENT;
    }
    let mut first_error = status::SUCCESS;
    for number in 0..count as usize {
        // SAFETY: the caller promises `count` descriptors, which nothing else uses during the call.
        let wanted = unsafe { &mut *descriptors.add(number) };
        let made = create_one(agent, wanted);
        wanted.queue = made.unwrap_or(std::ptr::null_mut());
        if let (Err(why), status::SUCCESS) = (made, first_error) {
            first_error = why;
        }
    }
    first_error
}

pub unsafe extern "C" fn hsa_queue_destroy(at: *mut Queue) -> Status {
    let mut held = Held::take();
    let Some(owned) = held.open().and_then(|machine| machine.remove_queue(at)) else {
        return status::INVALID_ARGUMENT;
    };
    // Do this without the lock, see hsa_shut_down.
    drop(held);
    owned.end(at);
    status::SUCCESS
}

pub unsafe extern "C" fn hsa_amd_queue_get_info(
    at: *mut Queue,
    which: u32,
    value: *mut c_void,
) -> Status {
    answer(with(|machine| {
        let (agent, works) = machine.queue_facts(at).ok_or(status::INVALID_ARGUMENT)?;
        // SAFETY: the caller's buffer has room for the attribute's type: a handle, or a 32-bit
        // number.
        let status = unsafe {
            match which {
                0 => put(value.cast(), agent),
                // HSA_AMD_QUEUE_INFO_ENGINE_TYPE
                13 if crate::vintage::makes_queues_by_descriptor() => {
                    put(value.cast(), works as u32)
                }
                _ => status::INVALID_ARGUMENT,
            }
        };
        if status == 0 { Ok(()) } else { Err(status) }
    }))
}

pub extern "C" fn hsa_amd_profiling_set_profiler_enabled(at: *mut Queue, enable: i32) -> Status {
    let Some(queue) = queue(at) else {
        return status::INVALID_ARGUMENT;
    };
    if enable == 0 {
        queue.properties.fetch_and(!ENABLE_PROFILING, SeqCst);
    } else {
        queue.properties.fetch_or(ENABLE_PROFILING, SeqCst);
    }
    status::SUCCESS
}

macro_rules! load {
    ($field:ident: $($name:ident),*) => { $(
        pub extern "C" fn $name(at: *mut Queue) -> u64 {
            queue(at).map_or(0, |queue| queue.$field.load(SeqCst))
        }
    )* };
}
load!(read: hsa_queue_load_read_index_scacquire, hsa_queue_load_read_index_relaxed);
load!(write: hsa_queue_load_write_index_scacquire, hsa_queue_load_write_index_relaxed);

macro_rules! store {
    ($field:ident: $($name:ident),*) => { $(
        pub extern "C" fn $name(at: *mut Queue, value: u64) {
            if let Some(queue) = queue(at) {
                queue.$field.store(value, SeqCst);
            }
        }
    )* };
}
store!(read: hsa_queue_store_read_index_relaxed, hsa_queue_store_read_index_screlease);
store!(write: hsa_queue_store_write_index_relaxed, hsa_queue_store_write_index_screlease);

macro_rules! add {
    ($($name:ident),*) => { $(
        pub extern "C" fn $name(at: *mut Queue, value: u64) -> u64 {
            queue(at).map_or(0, |queue| queue.write.fetch_add(value, SeqCst))
        }
    )* };
}
add!(
    hsa_queue_add_write_index_scacq_screl,
    hsa_queue_add_write_index_scacquire,
    hsa_queue_add_write_index_relaxed,
    hsa_queue_add_write_index_screlease
);

macro_rules! cas {
    ($($name:ident),*) => { $(
        pub extern "C" fn $name(at: *mut Queue, expected: u64, value: u64) -> u64 {
            queue(at).map_or(0, |queue| {
                let result = queue.write.compare_exchange(expected, value, SeqCst, SeqCst);
                result.unwrap_or_else(|there| there)
            })
        }
    )* };
}
cas!(
    hsa_queue_cas_write_index_scacq_screl,
    hsa_queue_cas_write_index_scacquire,
    hsa_queue_cas_write_index_relaxed,
    hsa_queue_cas_write_index_screlease
);
