//! Streams: each has an HSA queue, into which its packets go.

use crate::runtime::{Device, checked, lock, runtime};
use crate::signal::Signal;
use crate::{Error, error, hsa};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The number of packets in a stream's queue.
const PACKETS: u32 = 1024;
/// How many signals a stream keeps before it waits for their completion.
const PENDING: usize = 256;
/// Header bits of a packet: it runs after all packets before it, with acquire and release of all
/// memory.
const FENCES: u32 = 1 << 8 | 2 << 9 | 2 << 11;
/// Packet types.
const DISPATCH: u32 = 2;
/// See [`DISPATCH`].
const BARRIER_AND: u32 = 3;
/// `hipStreamNonBlocking`.
const NON_BLOCKING: u32 = 1;

/// A stream. A call that uses a stream holds a reference, and so keeps the queue from being destroyed
/// by another thread meanwhile: `hipFree` and `hipDeviceSynchronize` use the streams of all threads.
#[derive(Debug)]
pub struct Stream {
    /// The device that it runs on.
    pub device: &'static Device,
    /// The flags that it was created with.
    pub flags: u32,
    queue: *mut hsa::Queue,
    signals: Mutex<Signals>,
    is_null: bool,
    work: Work,
}

/// How many pieces of work a stream has got, and who has waited for how many of them.
#[derive(Debug, Default)]
struct Work {
    given: AtomicU64,
    /// As many were done at the last wait.
    done: AtomicU64,
    /// The null stream waits for as many.
    null_waits: AtomicU64,
    /// The stream waits for as many of the null stream's.
    waits_for_null: AtomicU64,
}

// SAFETY: the queue is HSA's, and was created for several producers.
unsafe impl Send for Stream {}
// SAFETY: the queue is HSA's, and was created for several producers.
unsafe impl Sync for Stream {}

#[derive(Debug, Default)]
struct Signals {
    free: Vec<Arc<Signal>>,
    /// The signals that its packets name, until the stream is next waited for.
    pending: Vec<Arc<Signal>>,
}

/// A kernel launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    /// Address of the descriptor.
    pub kernel_object: u64,
    /// Workgroups.
    pub groups: [u32; 3],
    /// Work-items of a workgroup.
    pub items: [u32; 3],
    /// Bytes of group segment: the kernel's plus the launch's.
    pub group_segment: u32,
    /// Bytes of private segment.
    pub private_segment: u32,
}

/// All streams, for hipDeviceSynchronize.
static STREAMS: Mutex<Vec<Arc<Stream>>> = Mutex::new(Vec::new());

impl Stream {
    /// Creates the null stream of a device.
    pub fn null(device: &'static Device) -> Result<Arc<Stream>, Error> {
        Stream::make(device, 0, true)
    }

    /// Creates a stream on a device.
    pub fn new(device: &'static Device, flags: u32) -> Result<Arc<Stream>, Error> {
        Stream::make(device, flags, false)
    }

    fn make(device: &'static Device, flags: u32, is_null: bool) -> Result<Arc<Stream>, Error> {
        let mut queue = std::ptr::null_mut();
        // SAFETY: the agent is live, and the out pointer is ours; HSA_QUEUE_TYPE_MULTI is 0.
        checked(unsafe {
            hsa::hsa_queue_create(
                device.agent,
                PACKETS,
                0,
                std::ptr::null(),
                std::ptr::null_mut(),
                u32::MAX,
                u32::MAX,
                &raw mut queue,
            )
        })?;
        // As in AMD's HIP, this is done before the first dispatch, which is when a device reads it.
        // SAFETY: the queue was just created.
        unsafe { hsa::hsa_amd_profiling_set_profiler_enabled(queue, 1) };
        let stream = Arc::new(Stream {
            device,
            flags,
            queue,
            signals: Mutex::default(),
            is_null,
            work: Work::default(),
        });
        lock(&STREAMS).push(Arc::clone(&stream));
        Ok(stream)
    }

    /// Returns the stream of a handle. Null is the null stream of the current device.
    pub fn of(handle: *const Stream) -> Result<Arc<Stream>, Error> {
        if handle.is_null() {
            return crate::runtime::current()?.null_stream();
        }
        lock(&STREAMS)
            .iter()
            .find(|stream| std::ptr::eq(Arc::as_ptr(stream), handle))
            .cloned()
            .ok_or(error::INVALID_HANDLE)
    }

    /// Returns the streams of a device.
    pub fn all_of(device: &Device) -> Vec<Arc<Stream>> {
        let mut streams = lock(&STREAMS).clone();
        streams.retain(|stream| stream.device.agent == device.agent);
        streams
    }

    /// Destroys it. The last call that uses it frees the queue.
    pub fn destroy(&self) {
        let _ = self.synchronize();
        lock(&STREAMS).retain(|stream| !std::ptr::eq(Arc::as_ptr(stream), self));
    }

    /// Writes a packet, its first word last, and rings the doorbell.
    fn submit(&self, packet: [u32; 16]) {
        // SAFETY: the queue is live. The index belongs to us alone. The slot is free after the
        // device has read so far. A packet is valid from the moment at which its first word says
        // so.
        unsafe {
            let index = hsa::hsa_queue_add_write_index_screlease(self.queue, 1);
            let size = u64::from((*self.queue).size);
            while index - hsa::hsa_queue_load_read_index_scacquire(self.queue) >= size {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
            let slot = (*self.queue)
                .base
                .add((index % size) as usize)
                .cast::<u32>();
            for (word, value) in packet.iter().enumerate().skip(1) {
                slot.add(word).write_volatile(*value);
            }
            AtomicU32::from_ptr(slot).store(packet[0], Ordering::Release);
            hsa::hsa_signal_store_screlease((*self.queue).doorbell, index as i64);
        }
    }

    /// Starts a piece of work: the null stream's comes after all that was given to the blocking
    /// streams of its device, and theirs after all that was given to the null stream.
    pub fn begin(&self) -> Result<(), Error> {
        if self.is_null {
            for other in Stream::all_of(self.device) {
                if !other.is_null && other.flags & NON_BLOCKING == 0 {
                    self.follow(&other, &other.work.null_waits)?;
                }
            }
        } else if self.flags & NON_BLOCKING == 0
            && let Some(null) = self.device.null_stream_if_any()
        {
            self.follow(null, &self.work.waits_for_null)?;
        }
        Ok(())
    }

    /// Ends a piece of work, whose packets have been submitted.
    pub fn end(&self) {
        self.work.given.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits, on the device, for what another stream has got, unless this stream waits for as much.
    fn follow(&self, other: &Stream, waits: &AtomicU64) -> Result<(), Error> {
        let given = other.work.given.load(Ordering::SeqCst);
        if given <= other.work.done.load(Ordering::SeqCst) || given <= waits.load(Ordering::SeqCst)
        {
            return Ok(());
        }
        let signal = self.take_signal()?;
        other.barrier(0, signal.handle());
        self.barrier(signal.handle(), 0);
        waits.fetch_max(given, Ordering::SeqCst);
        self.keep([signal])
    }

    /// Launches a kernel. Its arguments are not passed, since kernels compute nothing here.
    pub fn launch(&self, launch: Launch) -> Result<(), Error> {
        self.begin()?;
        let [gx, gy, gz] = launch.groups;
        let [x, y, z] = launch.items;
        let object = launch.kernel_object;
        let mut packet = [0; 16];
        packet[0] = DISPATCH | FENCES | 3 << 16;
        packet[1] = x | y << 16;
        packet[2] = z;
        packet[3] = gx.saturating_mul(x);
        packet[4] = gy.saturating_mul(y);
        packet[5] = gz.saturating_mul(z);
        packet[6] = launch.private_segment;
        packet[7] = launch.group_segment;
        packet[8] = object as u32;
        packet[9] = (object >> 32) as u32;
        self.submit(packet);
        self.end();
        Ok(())
    }

    /// Submits a barrier, which waits for everything before it and for `dep` (0: nothing more),
    /// then completes `signal` (0: none).
    pub fn barrier(&self, dep: u64, signal: u64) {
        let mut packet = [0; 16];
        packet[0] = BARRIER_AND | FENCES;
        packet[2] = dep as u32;
        packet[3] = (dep >> 32) as u32;
        packet[14] = signal as u32;
        packet[15] = (signal >> 32) as u32;
        self.submit(packet);
    }

    /// Returns a signal with value 1 that nothing else uses.
    pub fn take_signal(&self) -> Result<Arc<Signal>, Error> {
        let free = lock(&self.signals).free.pop();
        match free {
            Some(signal) => {
                signal.set();
                Ok(signal)
            }
            None => Signal::new().map(Arc::new),
        }
    }

    /// Keeps signals that packets of this stream name until the stream has been waited for.
    pub fn keep(&self, named: impl IntoIterator<Item = Arc<Signal>>) -> Result<(), Error> {
        let pending = {
            let mut signals = lock(&self.signals);
            signals.pending.extend(named);
            signals.pending.len()
        };
        if pending > PENDING {
            self.synchronize()?;
        }
        Ok(())
    }

    /// Waits for everything that was submitted before.
    pub fn synchronize(&self) -> Result<(), Error> {
        let given = self.work.given.load(Ordering::SeqCst);
        let signal = self.take_signal()?;
        let before = std::mem::take(&mut lock(&self.signals).pending);
        self.barrier(0, signal.handle());
        signal.wait();
        self.work.done.fetch_max(given, Ordering::SeqCst);
        // An event or another stream may still refer to a signal.
        let mut unused = before;
        unused.push(signal);
        unused.retain(|signal| Arc::strong_count(signal) == 1);
        lock(&self.signals).free.extend(unused);
        Ok(())
    }

    /// Copies after everything before it is done, and before everything after it. Returns at once.
    pub fn copy(&self, to: *mut c_void, from: *const c_void, bytes: usize) -> Result<(), Error> {
        let runtime = runtime()?;
        let (to_agent, from_agent) = (runtime.owner(to), runtime.owner(from));
        if bytes == 0 {
            return Ok(());
        }
        self.begin()?;
        if runtime.is_host(to_agent) && runtime.is_host(from_agent) {
            self.synchronize()?;
            // SAFETY: these are the application's ranges.
            unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
            return Ok(());
        }
        let (before, done) = (self.take_signal()?, self.take_signal()?);
        self.barrier(0, before.handle());
        let waited_for = before.handle();
        let mut engines = 0;
        // SAFETY: agents and signals are live. The ranges are the application's, which keeps them
        // until the stream has been waited for.
        let status = unsafe {
            hsa::hsa_amd_memory_copy_engine_status(to_agent, from_agent, &raw mut engines);
            // Between devices, HSA chooses the engine, as in AMD's HIP when it knows of none.
            if engines == 0 || !runtime.is_host(to_agent) && !runtime.is_host(from_agent) {
                hsa::hsa_amd_memory_async_copy(
                    to,
                    to_agent,
                    from,
                    from_agent,
                    bytes,
                    1,
                    &raw const waited_for,
                    done.handle(),
                )
            } else {
                hsa::hsa_amd_memory_async_copy_on_engine(
                    to,
                    to_agent,
                    from,
                    from_agent,
                    bytes,
                    1,
                    &raw const waited_for,
                    done.handle(),
                    engines,
                    false,
                )
            }
        };
        checked(status)?;
        self.barrier(done.handle(), 0);
        self.end();
        self.keep([before, done])
    }

    /// Returns whether all work is done.
    pub fn is_idle(&self) -> bool {
        // A queue that has taken all packets may still be running the last one. Only a barrier
        // shows this, and waiting for it is allowed.
        let Ok(signal) = self.take_signal() else {
            return false;
        };
        self.barrier(0, signal.handle());
        // Half a millisecond is the time of a barrier on an idle device.
        let idle = signal.wait_for(500_000);
        let mut signals = lock(&self.signals);
        if idle {
            signals.free.push(signal);
        } else {
            signals.pending.push(signal);
        }
        idle
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the queue is ours, and this was the last reference to the stream.
        unsafe { hsa::hsa_queue_destroy(self.queue) };
    }
}
