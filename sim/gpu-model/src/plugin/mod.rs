//! The C interface: what ROCr 7.2 looks up in the library that `HSA_MODEL_LIB` names.
//!
//! Interface 0.4 (observed, `docs/sources.md#hsa`): one exported function returns a table of
//! functions. ROCr creates one model per process, tells it where all device memory is mapped,
//! passes it each queue, and passes a function that raises events.

mod aperture;
#[cfg_attr(not(target_arch = "x86_64"), path = "bus_unknown.rs")]
mod bus;
mod device;
mod firmware_log;
mod kfd;
#[cfg_attr(not(target_arch = "x86_64"), path = "kfd_entry_unknown.rs")]
mod kfd_entry;
mod last_ring;
mod waits;
mod worker;

pub use device::{Device, QUEUES_PER_NODE, Served};

use crate::engine::Place;
use crate::log::{Event, Record};
use crate::machine::Machine;
use crate::pmu::Pmu;
use crate::sampling::Sampling;
use crate::settings::Settings;
use aperture::Aperture;
use firmware_log::FirmwareLog;
use std::cell::Cell;
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use worker::Worker;

type Raise = unsafe extern "C" fn(*mut c_void, u32);

/// How ROCr describes a queue.
#[repr(C)]
pub struct QueueInfo {
    ring: u64,
    write_index: u64,
    read_index: u64,
    doorbell: u64,
    ring_bytes: u32,
    kind: u32,
}
/// [`QueueInfo::kind`] of an SDMA queue; other queues that ROCr creates in model mode are AQL
/// queues.
const SDMA: u32 = 1;

/// The table that ROCr asks for.
#[repr(C)]
pub struct Functions {
    major: u32,
    minor: u32,
    create: extern "C" fn() -> *mut Model,
    destroy: unsafe extern "C" fn(*mut Model),
    set_global_aperture: unsafe extern "C" fn(*mut Model, *mut u8, u64),
    alloced_memory: extern "C" fn(*mut Model, *mut c_void, u64, u32),
    freed_memory: unsafe extern "C" fn(*mut Model, *mut c_void, u64),
    set_notify_event: extern "C" fn(*mut Model, *const c_void, *mut c_void),
    set_wait_event: extern "C" fn(*mut Model, *const c_void, *mut c_void),
    register_queue: unsafe extern "C" fn(*mut Model, *const QueueInfo) -> *mut Worker,
    set_set_event: unsafe extern "C" fn(*mut Model, Option<Raise>, *mut c_void),
    destroy_queue: unsafe extern "C" fn(*mut Model, *mut Worker),
}

static FUNCTIONS: Functions = Functions {
    major: 0,
    minor: 4,
    create,
    destroy,
    set_global_aperture,
    alloced_memory,
    freed_memory,
    set_notify_event,
    set_wait_event,
    register_queue,
    set_set_event,
    destroy_queue,
};

/// Returns the table of functions, which lives as long as the library. ROCr looks this function up.
// SAFETY: the name belongs to ROCr's interface, and to nothing else in a process.
#[unsafe(no_mangle)]
pub extern "C" fn get_hsakmt_model_functions() -> *const Functions {
    // ROCr has loaded this library and asked its driver for nothing yet.
    let settings = Settings::from_lookup(|name| std::env::var(name).ok());
    if let Ok(settings) = settings
        && settings.sampling
    {
        kfd::install(settings.clock_mhz, settings.debugged);
    }
    &raw const FUNCTIONS
}

/// The event function that ROCr passed, and its argument.
struct Interrupt {
    raise: Raise,
    data: *mut c_void,
}
// SAFETY: ROCr requires that the function may be called from the model's threads. The argument is
// only passed back to it.
unsafe impl Send for Interrupt {}

/// One modelled GPU.
pub struct Model {
    shared: Arc<Shared>,
    queues: AtomicU32,
    rings: Mutex<Rings>,
}

/// The rings of AQL queues, for [`freed_memory`].
#[derive(Default)]
struct Rings {
    /// How many queues exist.
    live: usize,
    /// The ring of the queue that was destroyed last, until it is freed.
    last: Option<u64>,
}

/// The state that the queues' threads share.
struct Shared {
    settings: Arc<Settings>,
    aperture: Aperture,
    interrupt: Mutex<Option<Interrupt>>,
    log: Option<File>,
    firmware_log: Option<FirmwareLog>,
    /// How often queues were remapped.
    mappings: AtomicU64,
    pmu: Pmu,
}

/// Ends the process: a test must never continue with a model that cannot do what was requested, or
/// with a log that has holes.
fn give_up(what: &str) -> ! {
    eprintln!("[gpu-model] {what}: aborting");
    std::process::abort()
}

impl Shared {
    fn new(settings: Settings) -> Shared {
        let log = settings.log.as_ref().map(|path| {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .unwrap_or_else(|error| give_up(&format!("MODEL_LOG={path}: {error}")))
        });
        let firmware_log = settings
            .firmware_log
            .as_ref()
            .map(|dir| FirmwareLog::new(dir, settings.firmware_slots, settings.firmware_counts));
        Shared {
            firmware_log,
            pmu: Pmu::new(settings.rules()),
            settings: Arc::new(settings),
            aperture: Aperture::default(),
            interrupt: Mutex::new(None),
            log,
            mappings: AtomicU64::new(0),
        }
    }

    /// Counts a remapping: when a queue is created or destroyed, KFD unmaps all queues from the
    /// device and maps them again.
    fn map_anew(&self) {
        if self.settings.remap {
            self.mappings.fetch_add(1, Ordering::AcqRel);
        }
    }
}

thread_local! {
    /// The last event that this thread raised, until its worker takes it (0: none), see
    /// [`worker::Echo`].
    static RAISED: Cell<u32> = const { Cell::new(0) };
}

impl Shared {
    /// Does the same as [`Machine::log`], for callers that do not import the trait.
    fn write(&self, queue: u32, event: &Event) {
        Machine::log(self, queue, event);
    }

    /// Raises an event.
    fn interrupt(&self, event: u32) {
        let interrupt = self
            .interrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(Interrupt { raise, data }) = *interrupt {
            // Do not hold the lock: the function is ROCr's and may take its time.
            drop(interrupt);
            // SAFETY: ROCr passed this function and this argument for this use; they are valid
            // until it destroys the model.
            unsafe { raise(data, event) };
        }
    }
}

impl Machine for Shared {
    fn load_u16(&self, at: u64) -> u16 {
        self.aperture.load_u16(at)
    }
    fn load_u32(&self, at: u64) -> u32 {
        self.aperture.load_u32(at)
    }
    fn load_u64(&self, at: u64) -> u64 {
        self.aperture.load_u64(at)
    }
    fn store_u16(&self, at: u64, value: u16) {
        self.aperture.store_u16(at, value);
    }
    fn store_u32(&self, at: u64, value: u32) {
        self.aperture.store_u32(at, value);
    }
    fn store_u64(&self, at: u64, value: u64) {
        self.aperture.store_u64(at, value);
    }
    fn add_u64(&self, at: u64, value: u64) {
        self.aperture.add_u64(at, value);
    }
    fn swap_u64(&self, at: u64, from: u64, to: u64) -> bool {
        self.aperture.swap_u64(at, from, to)
    }
    fn increment_u32(&self, at: u64) -> u32 {
        self.aperture.increment_u32(at)
    }
    fn copy(&self, to: u64, from: u64, bytes: u64) {
        self.aperture.copy(to, from, bytes);
    }
    fn fill(&self, to: u64, pattern: &[u8], bytes: u64) {
        self.aperture.fill(to, pattern, bytes);
    }
    fn now(&self) -> u64 {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: clock_gettime writes one timespec, which is ours. This clock exists on every
        // Linux that we support.
        unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
    fn raise(&self, event: u32) {
        RAISED.set(event);
        self.interrupt(event);
    }
    fn firmware_log(&self, queue: u32, index: u64, ends: bool, time: u64) {
        if let Some(log) = &self.firmware_log {
            log.write(queue, index, ends, time);
        }
    }
    fn mappings(&self) -> u64 {
        self.mappings.load(Ordering::Acquire)
    }
    fn pmu(&self) -> Option<&Pmu> {
        Some(&self.pmu)
    }
    fn sampling(&self) -> Option<Sampling> {
        if self.settings.sampling {
            kfd::sampling(self)
        } else {
            None
        }
    }
    fn bus_reads(&self, ring: u64) -> Option<u64> {
        bus::reads(ring)
    }
    fn log(&self, queue: u32, event: &Event) {
        if self.log.is_none() && !self.settings.debug {
            return;
        }
        let line = Record {
            time: self.now(),
            pid: std::process::id(),
            queue,
            event: event.clone(),
        }
        .line();
        if let Some(mut log) = self.log.as_ref() {
            // A line is one write to a file that is opened for appending, so lines of several
            // threads and processes do not mix.
            match log.write(line.as_bytes()) {
                Ok(written) if written == line.len() => {}
                Ok(_) => give_up("the log took only a part of a record"),
                Err(error) => give_up(&format!("the log cannot be written: {error}")),
            }
        }
        if self.settings.debug {
            eprint!("[gpu-model] {line}");
        }
    }
}

extern "C" fn create() -> *mut Model {
    let settings = Settings::from_lookup(|name| std::env::var(name).ok())
        .unwrap_or_else(|what| give_up(&what));
    let (eager, seed, kernel_ns) = (settings.eager, settings.seed, settings.kernel_ns);
    let shared = Arc::new(Shared::new(settings));
    shared.log(
        0,
        &Event::Model {
            eager,
            seed,
            kernel_ns,
        },
    );
    Box::into_raw(Box::new(Model {
        shared,
        queues: AtomicU32::new(0),
        rings: Mutex::default(),
    }))
}

unsafe extern "C" fn destroy(model: *mut Model) {
    // SAFETY: ROCr passes what create() returned, once, after it has destroyed the queues.
    // Remaining threads keep their own reference to the shared state.
    drop(unsafe { Box::from_raw(model) });
}

unsafe extern "C" fn set_global_aperture(model: *mut Model, base: *mut u8, bytes: u64) {
    // SAFETY: ROCr passes a live model.
    let model = unsafe { &*model };
    model.shared.aperture.set(base, bytes);
}

extern "C" fn alloced_memory(_: *mut Model, _: *mut c_void, _: u64, _: u32) {}
unsafe extern "C" fn freed_memory(model: *mut Model, at: *mut c_void, _: u64) {
    // SAFETY: ROCr passes a live model.
    let model = unsafe { &*model };
    let last = {
        let mut rings = model.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.live == 0
            && rings
                .last
                .take_if(|ring| *ring == at.addr() as u64)
                .is_some()
    };
    if last {
        let interrupt = model.shared.interrupt.lock();
        let raise = match &*interrupt.unwrap_or_else(PoisonError::into_inner) {
            Some(interrupt) => interrupt.raise,
            // Without this function there is no event to raise.
            None => return,
        };
        // It is ROCr's own function, so it is in ROCr's library.
        last_ring::let_handler_finish(raise as *const c_void);
    }
}
// Both are for models that run elsewhere and have to be waited for. This model polls.
extern "C" fn set_notify_event(_: *mut Model, _: *const c_void, _: *mut c_void) {}
extern "C" fn set_wait_event(_: *mut Model, _: *const c_void, _: *mut c_void) {}

unsafe extern "C" fn set_set_event(model: *mut Model, raise: Option<Raise>, data: *mut c_void) {
    if let Some(raise) = raise {
        waits::let_them_sleep(raise as *const () as usize);
    }
    // SAFETY: ROCr passes a live model.
    let model = unsafe { &*model };
    *model
        .shared
        .interrupt
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = raise.map(|raise| Interrupt { raise, data });
}

unsafe extern "C" fn register_queue(model: *mut Model, info: *const QueueInfo) -> *mut Worker {
    // SAFETY: ROCr passes a live model and a queue description that is valid during the call.
    let (model, info) = unsafe { (&*model, &*info) };
    let (sdma, number) = (
        info.kind == SDMA,
        model.queues.fetch_add(1, Ordering::Relaxed),
    );
    let place = Place {
        number,
        ring: info.ring,
        ring_bytes: u64::from(info.ring_bytes),
        write_index_at: info.write_index,
        read_index_at: info.read_index,
        doorbell_at: info.doorbell,
    };
    if !sdma && model.shared.settings.device_rings {
        if !model.shared.aperture.holds(place.ring) {
            give_up("MODEL_RING=device: the ring is mapped only once");
        }
        bus::watch(place.ring, place.ring_bytes).unwrap_or_else(|what| give_up(&what));
    }
    model.shared.map_anew();
    if !sdma {
        model
            .rings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .live += 1;
    }
    match Worker::start(Arc::clone(&model.shared), sdma, place) {
        Ok(worker) => Box::into_raw(Box::new(worker)),
        Err(error) => give_up(&format!("no thread for queue {number}: {error}")),
    }
}

unsafe extern "C" fn destroy_queue(model: *mut Model, queue: *mut Worker) {
    // SAFETY: ROCr passes a live model, and what register_queue() returned, once.
    let (model, queue) = unsafe { (&*model, Box::from_raw(queue)) };
    if let Some(ring) = queue.aql_ring() {
        let mut rings = model.rings.lock().unwrap_or_else(PoisonError::into_inner);
        rings.live -= 1;
        rings.last = Some(ring);
    }
    let ring = queue.aql_ring();
    let shared = Arc::clone(&model.shared);
    queue.stop();
    shared.map_anew();
    if let Some(ring) = ring {
        bus::forget(ring);
    }
}
