use super::put;
use crate::runtime::{answer, checked, lock};
use crate::signal::Signal;
use crate::stream::Stream;
use crate::{Error, error, hsa};
use std::sync::{Arc, Mutex};

/// `hipEventDisableTiming`.
const DISABLE_TIMING: u32 = 2;

/// The last record of an event.
#[derive(Clone)]
struct Recorded {
    /// Each record has a signal of its own: what waits for an earlier one does not wait for this.
    signal: Arc<Signal>,
    /// The agent of the stream that the event was recorded in.
    agent: u64,
}

/// An event.
pub struct Event {
    timed: bool,
    recorded: Mutex<Option<Recorded>>,
}

/// The existing events.
static EVENTS: Mutex<Vec<Arc<Event>>> = Mutex::new(Vec::new());

fn find(handle: *const Event) -> Result<Arc<Event>, Error> {
    let events = lock(&EVENTS);
    let found = events
        .iter()
        .find(|event| std::ptr::eq(Arc::as_ptr(event), handle));
    found.cloned().ok_or(error::INVALID_HANDLE)
}

impl Event {
    fn recorded(&self) -> Option<Recorded> {
        lock(&self.recorded).clone()
    }
    /// Returns the signal of its last record, if that is not done yet.
    fn pending(&self) -> Option<Arc<Signal>> {
        let signal = self.recorded()?.signal;
        (!signal.is_done()).then_some(signal)
    }
}

fn create(out: *mut *const Event, flags: u32) -> Result<(), Error> {
    let event = Arc::new(Event {
        timed: flags & DISABLE_TIMING == 0,
        recorded: Mutex::new(None),
    });
    let handle = Arc::as_ptr(&event);
    lock(&EVENTS).push(event);
    // SAFETY: the application promises that its out pointer is null or writable.
    unsafe { put(out, handle) }
}

pub unsafe extern "C" fn hipEventCreate(out: *mut *const Event) -> Error {
    answer(create(out, 0))
}

pub unsafe extern "C" fn hipEventCreateWithFlags(out: *mut *const Event, flags: u32) -> Error {
    answer(create(out, flags))
}

pub extern "C" fn hipEventDestroy(handle: *const Event) -> Error {
    answer(find(handle).map(|event| {
        lock(&EVENTS).retain(|other| !Arc::ptr_eq(other, &event));
    }))
}

pub extern "C" fn hipEventRecord(handle: *const Event, stream: *const Stream) -> Error {
    answer(find(handle).and_then(|event| {
        let stream = Stream::of(stream)?;
        stream.begin()?;
        let signal = stream.take_signal()?;
        stream.barrier(0, signal.handle());
        stream.end();
        *lock(&event.recorded) = Some(Recorded {
            signal: Arc::clone(&signal),
            agent: stream.device.agent,
        });
        stream.keep([signal])
    }))
}

pub extern "C" fn hipEventSynchronize(handle: *const Event) -> Error {
    answer(find(handle).map(|event| {
        if let Some(signal) = event.pending() {
            signal.wait();
        }
    }))
}

pub extern "C" fn hipEventQuery(handle: *const Event) -> Error {
    answer(find(handle).and_then(|event| match event.pending() {
        None => Ok(()),
        Some(_) => Err(error::NOT_READY),
    }))
}

pub extern "C" fn hipStreamWaitEvent(
    stream: *const Stream,
    handle: *const Event,
    _flags: u32,
) -> Error {
    answer(find(handle).and_then(|event| {
        let stream = Stream::of(stream)?;
        let Some(signal) = event.pending() else {
            return Ok(());
        };
        stream.barrier(signal.handle(), 0);
        stream.end();
        stream.keep([signal])
    }))
}

pub unsafe extern "C" fn hipEventElapsedTime(
    out: *mut f32,
    from: *const Event,
    to: *const Event,
) -> Error {
    let end = |handle: *const Event| {
        let event = find(handle)?;
        let recorded = event.recorded().ok_or(error::INVALID_HANDLE)?;
        if !event.timed {
            return Err(error::INVALID_HANDLE);
        }
        if !recorded.signal.is_done() {
            return Err(error::NOT_READY);
        }
        let mut times = [0; 2];
        // SAFETY: the record's signal is live, and the out struct is ours.
        checked(unsafe {
            hsa::hsa_amd_profiling_get_dispatch_time(
                recorded.agent,
                recorded.signal.handle(),
                &raw mut times,
            )
        })?;
        Ok(times[1])
    };
    answer(end(from).and_then(|from| {
        let ns = end(to)? as f64 - from as f64;
        // SAFETY: the application promises that its out pointer is null or writable.
        unsafe { put(out, (ns / 1e6) as f32) }
    }))
}
