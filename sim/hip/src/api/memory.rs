use super::put;
use crate::runtime::{Device, answer, checked, current, device, runtime};
use crate::stream::Stream;
use crate::{Error, error, hsa};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

fn allocate(out: *mut *mut c_void, device: Option<&Device>, bytes: usize) -> Result<(), Error> {
    let at = if bytes == 0 {
        std::ptr::null_mut()
    } else {
        runtime()?.allocate(device, bytes)?
    };
    // SAFETY: the application promises that its out pointer is null or writable.
    unsafe { put(out, at) }
}

pub unsafe extern "C" fn hipMalloc(out: *mut *mut c_void, bytes: usize) -> Error {
    answer(current().and_then(|device| allocate(out, Some(device), bytes)))
}

pub unsafe extern "C" fn hipHostMalloc(out: *mut *mut c_void, bytes: usize, _flags: u32) -> Error {
    answer(allocate(out, None, bytes))
}

pub unsafe extern "C" fn hipFree(at: *mut c_void) -> Error {
    // It waits for the device, as AMD's function does.
    let idle = current().and_then(|device| {
        let mut streams = Stream::all_of(device).into_iter();
        streams.try_for_each(|stream| stream.synchronize())
    });
    answer(idle.and_then(|()| runtime()?.free(at)))
}

pub unsafe extern "C" fn hipHostFree(at: *mut c_void) -> Error {
    answer(runtime().and_then(|runtime| runtime.free(at)))
}

pub unsafe extern "C" fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> Error {
    answer(current().and_then(|device| {
        // SAFETY: they are the application's out pointers.
        unsafe {
            put(free, device.memory as usize)?;
            put(total, device.memory as usize)
        }
    }))
}

fn copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: *const Stream,
    waits: bool,
) -> Error {
    answer(Stream::of(stream).and_then(|stream| {
        stream.copy(to, from, bytes)?;
        if waits { stream.synchronize() } else { Ok(()) }
    }))
}

pub unsafe extern "C" fn hipMemcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    _kind: u32,
) -> Error {
    copy(to, from, bytes, std::ptr::null(), true)
}

pub unsafe extern "C" fn hipMemcpyWithStream(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    _kind: u32,
    stream: *const Stream,
) -> Error {
    copy(to, from, bytes, stream, true)
}

pub unsafe extern "C" fn hipMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    _kind: u32,
    stream: *const Stream,
) -> Error {
    copy(to, from, bytes, stream, false)
}

pub unsafe extern "C" fn hipMemcpyHtoD(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Error {
    copy(to, from, bytes, std::ptr::null(), true)
}

pub unsafe extern "C" fn hipMemcpyDtoH(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Error {
    copy(to, from, bytes, std::ptr::null(), true)
}

pub unsafe extern "C" fn hipMemcpyDtoD(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> Error {
    copy(to, from, bytes, std::ptr::null(), true)
}

/// Returns the null stream of the source's device, whose engine copies the bytes.
fn peer_stream(from: c_int) -> Result<Arc<Stream>, Error> {
    device(from as usize)?.null_stream()
}

pub unsafe extern "C" fn hipMemcpyPeer(
    to: *mut c_void,
    to_device: c_int,
    from: *const c_void,
    from_device: c_int,
    bytes: usize,
) -> Error {
    answer(device(to_device as usize).and_then(|_| {
        let stream = peer_stream(from_device)?;
        stream.copy(to, from, bytes)?;
        stream.synchronize()
    }))
}

pub unsafe extern "C" fn hipMemcpyPeerAsync(
    to: *mut c_void,
    to_device: c_int,
    from: *const c_void,
    from_device: c_int,
    bytes: usize,
    stream: *const Stream,
) -> Error {
    answer(device(to_device as usize).and_then(|_| {
        device(from_device as usize)?;
        Stream::of(stream)?.copy(to, from, bytes)
    }))
}

fn set(at: *mut c_void, value: u8, bytes: usize, stream: *const Stream) -> Error {
    answer(Stream::of(stream).and_then(|stream| {
        stream.begin()?;
        stream.synchronize()?;
        if !bytes.is_multiple_of(4) {
            return Err(error::NOT_SUPPORTED);
        }
        let word = u32::from_ne_bytes([value; 4]);
        // SAFETY: it is the application's range, of this many words.
        checked(unsafe { hsa::hsa_amd_memory_fill(at, word, bytes / 4) })
    }))
}

pub unsafe extern "C" fn hipMemset(at: *mut c_void, value: c_int, bytes: usize) -> Error {
    set(at, value as u8, bytes, std::ptr::null())
}

/// Fills memory before it returns. So the caller continues later than with AMD's function, but
/// never too early.
pub unsafe extern "C" fn hipMemsetAsync(
    at: *mut c_void,
    value: c_int,
    bytes: usize,
    stream: *const Stream,
) -> Error {
    set(at, value as u8, bytes, stream)
}
