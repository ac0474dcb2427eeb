use super::put;
use crate::runtime::{CURRENT, LAST, answer, current, device, runtime};
use crate::stream::Stream;
use crate::{Error, error};
use std::ffi::{c_char, c_int, c_void};

pub extern "C" fn hipInit(_flags: u32) -> Error {
    answer(runtime().map(|_| ()))
}

pub unsafe extern "C" fn hipDriverGetVersion(out: *mut c_int) -> Error {
    // SAFETY: the application promises that its out pointer is null or writable.
    answer(unsafe { put(out, 70_253_211) })
}

pub unsafe extern "C" fn hipRuntimeGetVersion(out: *mut c_int) -> Error {
    // SAFETY: the application promises that its out pointer is null or writable.
    answer(unsafe { put(out, 70_253_211) })
}

pub unsafe extern "C" fn hipGetDeviceCount(out: *mut c_int) -> Error {
    let count = runtime().map(|runtime| runtime.devices.len() as c_int);
    // SAFETY: the application promises that its out pointer is null or writable.
    answer(count.and_then(|count| unsafe { put(out, count) }))
}

pub extern "C" fn hipSetDevice(ordinal: c_int) -> Error {
    answer(device(ordinal as usize).map(|device| CURRENT.set(device.ordinal)))
}

pub unsafe extern "C" fn hipGetDevice(out: *mut c_int) -> Error {
    // SAFETY: the application promises that its out pointer is null or writable.
    answer(current().and_then(|device| unsafe { put(out, device.ordinal as c_int) }))
}

pub unsafe extern "C" fn hipDeviceGet(out: *mut c_int, ordinal: c_int) -> Error {
    // SAFETY: the application promises that its out pointer is null or writable.
    answer(device(ordinal as usize).and_then(|_| unsafe { put(out, ordinal) }))
}

pub unsafe extern "C" fn hipDeviceGetName(out: *mut c_char, len: c_int, ordinal: c_int) -> Error {
    answer(device(ordinal as usize).and_then(|device| {
        if out.is_null() || len <= 0 {
            return Err(error::INVALID_VALUE);
        }
        let name = device.name.as_bytes();
        let count = name.len().min(len as usize - 1);
        // SAFETY: the application's buffer has `len` bytes; fewer are copied, plus one 0.
        unsafe {
            std::ptr::copy_nonoverlapping(name.as_ptr(), out.cast(), count);
            out.add(count).write(0);
        }
        Ok(())
    }))
}

pub unsafe extern "C" fn hipDeviceTotalMem(out: *mut usize, ordinal: c_int) -> Error {
    // SAFETY: the application promises that its out pointer is null or writable.
    answer(device(ordinal as usize).and_then(|device| unsafe { put(out, device.memory as usize) }))
}

/// Fills in the fields of `hipDeviceProp_tR0600` that programs print (offsets: api/hip_types.json).
/// The struct has 1472 bytes.
pub unsafe extern "C" fn hipGetDevicePropertiesR0600(out: *mut c_void, ordinal: c_int) -> Error {
    answer(device(ordinal as usize).and_then(|device| {
        let mut bytes = [0_u8; 1472];
        let mut set = |at: usize, value: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + value.len()) {
                place.copy_from_slice(value);
            }
        };
        let short = |text: &str| text.bytes().take(255).collect::<Vec<_>>();
        set(0, &short(&device.name));
        set(288, &device.memory.to_ne_bytes());
        set(308, &64_u32.to_ne_bytes());
        set(320, &1024_u32.to_ne_bytes());
        set(360, &9_u32.to_ne_bytes());
        set(364, &4_u32.to_ne_bytes());
        set(388, &device.units.to_ne_bytes());
        set(1160, &short(&device.arch));
        // SAFETY: the application's struct has this size.
        unsafe { put(out.cast(), bytes) }
    }))
}

pub unsafe extern "C" fn hipDeviceCanAccessPeer(out: *mut c_int, from: c_int, to: c_int) -> Error {
    let both = device(from as usize).and_then(|_| device(to as usize));
    // SAFETY: the application promises that its out pointer is null or writable.
    answer(both.and_then(|_| unsafe { put(out, c_int::from(from != to)) }))
}

pub extern "C" fn hipDeviceEnablePeerAccess(peer: c_int, _flags: u32) -> Error {
    answer(device(peer as usize).map(|_| ()))
}

pub extern "C" fn hipDeviceDisablePeerAccess(peer: c_int) -> Error {
    answer(device(peer as usize).map(|_| ()))
}

pub extern "C" fn hipDeviceSynchronize() -> Error {
    answer(current().and_then(|device| {
        Stream::all_of(device)
            .into_iter()
            .try_for_each(|stream| stream.synchronize())
    }))
}

pub extern "C" fn hipGetLastError() -> Error {
    LAST.replace(error::SUCCESS)
}

pub extern "C" fn hipPeekAtLastError() -> Error {
    LAST.get()
}

/// Returns name and explanation of an error.
fn described(code: Error) -> (&'static std::ffi::CStr, &'static std::ffi::CStr) {
    match code {
        error::SUCCESS => (c"hipSuccess", c"no error"),
        error::INVALID_VALUE => (c"hipErrorInvalidValue", c"invalid argument"),
        error::OUT_OF_MEMORY => (c"hipErrorOutOfMemory", c"out of memory"),
        error::INVALID_DEVICE_FUNCTION => {
            (c"hipErrorInvalidDeviceFunction", c"invalid device function")
        }
        error::NO_DEVICE => (c"hipErrorNoDevice", c"no ROCm-capable device is detected"),
        error::INVALID_DEVICE => (c"hipErrorInvalidDevice", c"invalid device ordinal"),
        error::INVALID_IMAGE => (c"hipErrorInvalidImage", c"device kernel image is invalid"),
        error::INVALID_HANDLE => (c"hipErrorInvalidHandle", c"invalid resource handle"),
        error::NOT_FOUND => (c"hipErrorNotFound", c"named symbol not found"),
        error::NOT_READY => (c"hipErrorNotReady", c"device not ready"),
        error::LAUNCH_FAILURE => (c"hipErrorLaunchFailure", c"unspecified launch failure"),
        error::NOT_SUPPORTED => (c"hipErrorNotSupported", c"operation not supported"),
        _ => (c"hipErrorUnknown", c"unknown error"),
    }
}

pub extern "C" fn hipGetErrorName(code: Error) -> *const c_char {
    described(code).0.as_ptr()
}

pub extern "C" fn hipGetErrorString(code: Error) -> *const c_char {
    described(code).1.as_ptr()
}
