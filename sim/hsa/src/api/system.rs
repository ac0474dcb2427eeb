use super::code::loader_table;
use crate::machine::{Held, answer, with};
use crate::signals::put;
use crate::{Status, status, vintage};
use std::ffi::{CStr, c_char, c_void};

/// `HSA_EXTENSION_AMD_LOADER`.
const LOADER: u16 = 0x201;

pub extern "C" fn hsa_init() -> Status {
    answer(Held::take().any().enter())
}

pub extern "C" fn hsa_shut_down() -> Status {
    let mut held = Held::take();
    let Some(machine) = held.open() else {
        return status::NOT_INITIALIZED;
    };
    let ended = machine.leave();
    // Do this without the lock: a queue's thread may be about to wake a thread that then takes the
    // lock.
    drop(held);
    for served in ended {
        served.stop();
    }
    status::SUCCESS
}

/// Returns CLOCK_BOOTTIME in ns, the clock of the system and of every device.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub unsafe extern "C" fn hsa_system_get_info(attribute: u32, value: *mut c_void) -> Status {
    if Held::take().open().is_none() {
        vintage::answer_slowly();
        return status::NOT_INITIALIZED;
    }
    // SAFETY: `value` has room for what AMD's headers define for the attribute: two bytes for
    // versions, eight for times, four for enums.
    unsafe {
        match attribute {
            0 => put(value.cast(), 1_u16),
            1 => put(value.cast(), 18_u16),
            2 => put(value.cast(), now()),
            3 => put(value.cast(), 1_000_000_000_u64),
            4 => put(value.cast(), u64::MAX),
            5 => put(value.cast(), 0_u32),
            6 => put(value.cast(), 1_u32),
            7 => put(value.cast(), extensions()),
            _ => status::INVALID_ARGUMENT,
        }
    }
}

/// Returns the bit mask of supported extensions: bit N is extension N.
fn extensions() -> [u8; 128] {
    let mut mask = [0; 128];
    mask[usize::from(LOADER / 8)] |= 1 << (LOADER % 8);
    mask
}

pub unsafe extern "C" fn hsa_system_get_extension_table(
    extension: u16,
    major: u16,
    _minor: u16,
    table: *mut c_void,
) -> Status {
    // SAFETY: the caller's table has version 1.03, the only one that has this many entries.
    unsafe { hsa_system_get_major_extension_table(extension, major, 7 * 8, table) }
}

pub unsafe extern "C" fn hsa_system_get_major_extension_table(
    extension: u16,
    major: u16,
    bytes: usize,
    table: *mut c_void,
) -> Status {
    if extension != LOADER || major != 1 || table.is_null() {
        return status::INVALID_ARGUMENT;
    }
    let ours = loader_table();
    // SAFETY: the caller's buffer has `bytes` bytes, and no more bytes are copied than our table
    // has.
    unsafe {
        std::ptr::copy_nonoverlapping(
            ours.as_ptr().cast::<u8>(),
            table.cast(),
            bytes.min(size_of_val(&ours)),
        )
    };
    status::SUCCESS
}

pub unsafe extern "C" fn hsa_system_major_extension_supported(
    extension: u16,
    major: u16,
    minor: *mut u16,
    result: *mut bool,
) -> Status {
    // SAFETY: the caller promises that the out pointers are null or writable.
    unsafe {
        put(minor, 3);
        put(result, extension == LOADER && major == 1)
    }
}

pub unsafe extern "C" fn hsa_status_string(code: Status, text: *mut *const c_char) -> Status {
    let words: &CStr = match code {
        status::SUCCESS => c"done",
        status::NOT_INITIALIZED => c"hsa_init has not been called",
        status::OUT_OF_RESOURCES => c"no memory or no device",
        _ => c"an error of the stand-in runtime",
    };
    // SAFETY: the caller promises that the out pointer is null or writable.
    unsafe { put(text, words.as_ptr()) }
}

pub unsafe extern "C" fn hsa_iterate_agents(
    callback: Option<unsafe extern "C" fn(u64, *mut c_void) -> Status>,
    data: *mut c_void,
) -> Status {
    let Some(callback) = callback else {
        return status::INVALID_ARGUMENT;
    };
    let handles = with(|machine| {
        Ok(machine
            .agents
            .iter()
            .map(|agent| agent.handle)
            .collect::<Vec<_>>())
    });
    let handles = match handles {
        Ok(handles) => handles,
        Err(status) => return status,
    };
    for handle in handles {
        // SAFETY: this calls the caller's function with the caller's data, as its type requires.
        let status = unsafe { callback(handle, data) };
        if status != status::SUCCESS {
            return status;
        }
    }
    status::SUCCESS
}
