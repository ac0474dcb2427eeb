use super::put;
use crate::runtime::{answer, checked, lock};
use crate::stream::{Stream, new_signal, wait};
use crate::{Error, error, hsa};
use std::sync::Mutex;

/// `hipEventDisableTiming`.
const DISABLE_TIMING: u32 = 2;

/// An event.
pub struct Event {
    signal: u64,
    timed: bool,
    /// The agent of the stream that it was recorded in.
    recorded: Mutex<Option<u64>>,
}

/// The existing events.
static EVENTS: Mutex<Vec<&'static Event>> = Mutex::new(Vec::new());

fn find(handle: *const Event) -> Result<&'static Event, Error> {
    let events = lock(&EVENTS);
    let found = events.iter().find(|event| std::ptr::eq(**event, handle));
    found.copied().ok_or(error::INVALID_HANDLE)
}

impl Event {
    fn is_done(&self) -> bool {
        // SAFETY: it is the event's own signal.
        lock(&self.recorded).is_none() || unsafe { hsa::hsa_signal_load_scacquire(self.signal) } < 1
    }
    fn wait(&self) {
        if lock(&self.recorded).is_some() {
            wait(self.signal);
        }
    }
}

fn create(out: *mut *const Event, flags: u32) -> Result<(), Error> {
    let event: &'static Event = Box::leak(Box::new(Event {
        signal: new_signal()?,
        timed: flags & DISABLE_TIMING == 0,
        recorded: Mutex::new(None),
    }));
    lock(&EVENTS).push(event);
    // SAFETY: the application promises that its out pointer is null or writable.
    unsafe { put(out, std::ptr::from_ref(event)) }
}

pub unsafe extern "C" fn hipEventCreate(out: *mut *const Event) -> Error {
    answer(create(out, 0))
}

pub unsafe extern "C" fn hipEventCreateWithFlags(out: *mut *const Event, flags: u32) -> Error {
    answer(create(out, flags))
}

pub extern "C" fn hipEventDestroy(handle: *const Event) -> Error {
    answer(find(handle).map(|event| {
        event.wait();
        lock(&EVENTS).retain(|other| !std::ptr::eq(*other, event));
        // SAFETY: it is the event's own signal, which was waited for.
        unsafe { hsa::hsa_signal_destroy(event.signal) };
    }))
}

pub extern "C" fn hipEventRecord(handle: *const Event, stream: *const Stream) -> Error {
    answer(find(handle).and_then(|event| {
        let stream = Stream::of(stream)?;
        // A second record takes the event away from the first, since its signal cannot count for
        // both.
        event.wait();
        // SAFETY: it is the event's own signal, and nothing in flight refers to it.
        unsafe { hsa::hsa_signal_silent_store_relaxed(event.signal, 1) };
        *lock(&event.recorded) = Some(stream.device.agent);
        stream.barrier(0, event.signal);
        Ok(())
    }))
}

pub extern "C" fn hipEventSynchronize(handle: *const Event) -> Error {
    answer(find(handle).map(Event::wait))
}

pub extern "C" fn hipEventQuery(handle: *const Event) -> Error {
    answer(find(handle).and_then(|event| {
        if event.is_done() {
            Ok(())
        } else {
            Err(error::NOT_READY)
        }
    }))
}

pub extern "C" fn hipStreamWaitEvent(
    stream: *const Stream,
    handle: *const Event,
    _flags: u32,
) -> Error {
    answer(find(handle).and_then(|event| {
        let stream = Stream::of(stream)?;
        if !event.is_done() {
            stream.barrier(event.signal, 0);
        }
        Ok(())
    }))
}

pub unsafe extern "C" fn hipEventElapsedTime(
    out: *mut f32,
    from: *const Event,
    to: *const Event,
) -> Error {
    let end = |handle: *const Event| {
        let event = find(handle)?;
        let agent = lock(&event.recorded).ok_or(error::INVALID_HANDLE)?;
        if !event.timed {
            return Err(error::INVALID_HANDLE);
        }
        if !event.is_done() {
            return Err(error::NOT_READY);
        }
        let mut times = [0; 2];
        // SAFETY: it is the event's own signal, and the out struct is ours.
        checked(unsafe {
            hsa::hsa_amd_profiling_get_dispatch_time(agent, event.signal, &raw mut times)
        })?;
        Ok(times[1])
    };
    answer(end(from).and_then(|from| {
        let ns = end(to)? as f64 - from as f64;
        // SAFETY: the application promises that its out pointer is null or writable.
        unsafe { put(out, (ns / 1e6) as f32) }
    }))
}
