use super::put;
use crate::runtime::{answer, current};
use crate::stream::Stream;
use crate::{Error, error};
use std::ffi::c_int;
use std::sync::Arc;

fn create(out: *mut *const Stream, flags: u32) -> Result<(), Error> {
    let stream = Stream::new(current()?, flags)?;
    // SAFETY: the application promises that its out pointer is null or writable.
    unsafe { put(out, Arc::as_ptr(&stream)) }
}

pub unsafe extern "C" fn hipStreamCreate(out: *mut *const Stream) -> Error {
    answer(create(out, 0))
}

pub unsafe extern "C" fn hipStreamCreateWithFlags(out: *mut *const Stream, flags: u32) -> Error {
    answer(create(out, flags))
}

pub unsafe extern "C" fn hipStreamCreateWithPriority(
    out: *mut *const Stream,
    flags: u32,
    _priority: c_int,
) -> Error {
    answer(create(out, flags))
}

pub unsafe extern "C" fn hipStreamGetFlags(handle: *const Stream, out: *mut u32) -> Error {
    // SAFETY: the application promises that its out pointer is null or writable.
    answer(Stream::of(handle).and_then(|stream| unsafe { put(out, stream.flags) }))
}

pub extern "C" fn hipStreamDestroy(handle: *const Stream) -> Error {
    if handle.is_null() {
        return error::INVALID_HANDLE;
    }
    answer(Stream::of(handle).map(|stream| stream.destroy()))
}

pub extern "C" fn hipStreamSynchronize(handle: *const Stream) -> Error {
    answer(Stream::of(handle).and_then(|stream| {
        if handle.is_null() {
            stream.begin()?;
        }
        stream.synchronize()
    }))
}

pub extern "C" fn hipStreamQuery(handle: *const Stream) -> Error {
    answer(Stream::of(handle).and_then(|stream| {
        if stream.is_idle() {
            Ok(())
        } else {
            Err(error::NOT_READY)
        }
    }))
}
