//! A CUPTI made of functions of this test: it records what the test tells it to, into our buffers,
//! and keeps a log.

use crate::cupti::functions::{BufferCompleted, BufferRequested, Functions, UnifiedMemoryConfig};
use crate::cupti::{Cupti, decode};
use crate::session::{KEEP_LOADED, ONLY_OURS, USED};
use midair_abi::cupti::{Layouts, Place, activity_kind, layouts_for, result, thread_id_type};
use std::ffi::{c_char, c_void};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// CUDA 13.0's.
const API: u32 = 130_001;

#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub(crate) log: Vec<String>,
    pub(crate) enabled: Vec<u32>,
    /// Kinds in the order in which they were disabled.
    pub(super) disabled: Vec<u32>,
    /// Calls that were left out one by one: whether of the runtime, and their ids.
    pub(super) left_out: Vec<(bool, u32)>,
    /// How many of these there were when a kind of calls was disabled.
    pub(super) left_out_at_the_end: usize,
    pub(super) subscriber: bool,
    /// Its own thread; dropped to end it.
    worker: Option<(std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>)>,
    /// Whether another user used it before us.
    pub(crate) used: bool,
    /// How often it was asked to record kernels one by one, which is not harmless.
    pub(crate) asked: usize,
    /// Whether another profiler records kernels.
    pub(crate) recorded: bool,
    /// Whether each thread has a buffer of its own, and identifies itself by the half of
    /// `pthread_self`.
    pub(super) by_half: bool,
    /// A kind that cannot be enabled.
    pub(crate) refuses: Option<u32>,
    /// Records dropped for lack of a buffer: since the last query, and in all.
    dropped: usize,
    pub(super) dropped_ever: usize,
    /// Whether a flush leaves the buffer out, which comes when CUPTI's thread ids are reset.
    pub(super) returns_late: bool,
    /// Result at the end of each buffer.
    pub(super) end: u32,
    callbacks: Option<(BufferRequested, BufferCompleted)>,
    /// Start, size, used.
    pub(super) buffer: Option<(usize, usize, usize)>,
}

static FAKE: Mutex<Option<Fake>> = Mutex::new(None);
/// There is one fake, one pool, one driver, one watch of callers and of ending threads, and one word of
/// each kind that outlives a session.
static ONE: Mutex<()> = Mutex::new(());

/// Has a test use them alone, from the state at the start of a process. All tests that use any of
/// them take this lock, since `cargo test` runs the tests of all modules in one process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    with(|fake| *fake = Fake::default());
    for word in [&KEEP_LOADED, &USED, &ONLY_OURS] {
        word.store(false, SeqCst);
    }
    guard
}

fn lock() -> MutexGuard<'static, Option<Fake>> {
    FAKE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Accesses the state of the fake.
pub(crate) fn with<T>(look: impl FnOnce(&mut Fake) -> T) -> T {
    look(lock().get_or_insert_with(Fake::default))
}

pub(crate) fn layouts() -> &'static Layouts {
    layouts_for(API).unwrap()
}

/// A record's bytes, field by field.
pub(crate) struct Bytes(Vec<u8>);

impl Bytes {
    pub(crate) fn of(kind: u32) -> Bytes {
        let mut bytes = vec![0; decode::size(layouts(), kind).unwrap()];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        Bytes(bytes)
    }
    pub(crate) fn with(mut self, place: Place, value: u64) -> Bytes {
        let (at, width) = (usize::from(place.offset), usize::from(place.width));
        self.0[at..at + width].copy_from_slice(&value.to_ne_bytes()[..width]);
        self
    }
}

/// CUPTI records something on the calling thread.
pub(crate) fn emit(bytes: &Bytes) {
    let mut guard = lock();
    let fake = guard.get_or_insert_with(Fake::default);
    let size = bytes.0.len();
    let full = fake
        .buffer
        .is_some_and(|(_, whole, used)| used + size > whole);
    if full {
        return_buffer(fake);
    }
    if fake.buffer.is_none()
        && let Some((requested, _)) = fake.callbacks
    {
        let (mut start, mut whole, mut most) = (std::ptr::null_mut(), 0, 0);
        // SAFETY: our own callback, with valid out pointers.
        unsafe { requested(&raw mut start, &raw mut whole, &raw mut most) };
        fake.buffer = (!start.is_null()).then(|| (start.expose_provenance(), whole, 0));
    }
    match &mut fake.buffer {
        Some((start, _, used)) => {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(*start + *used);
            // SAFETY: the buffer has space for it, as was checked above.
            unsafe { std::ptr::copy_nonoverlapping(bytes.0.as_ptr(), to, size) };
            *used += size;
        }
        None => {
            fake.dropped += 1;
            fake.dropped_ever += 1;
        }
    }
}

fn return_buffer(fake: &mut Fake) {
    if let (Some((start, whole, used)), Some((_, completed))) = (fake.buffer.take(), fake.callbacks)
    {
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: our own callback, and a buffer that it gave.
        unsafe { completed(std::ptr::null_mut(), 0, start, whole, used) };
    }
}

fn log(what: String) {
    with(|fake| fake.log.push(what));
}

unsafe extern "C" fn get_version(version: *mut u32) -> u32 {
    // SAFETY: a valid out pointer.
    unsafe { version.write(API) };
    0
}
unsafe extern "C" fn get_result_string(_: u32, _: *mut *const c_char) -> u32 {
    1
}
unsafe extern "C" fn subscribe(
    subscriber: *mut *mut c_void,
    _: Option<unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void)>,
    _: *mut c_void,
) -> u32 {
    with(|fake| {
        if std::mem::replace(&mut fake.subscriber, true) {
            return result::ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
        }
        fake.log.push("subscribe".to_owned());
        // SAFETY: a valid out pointer.
        unsafe { subscriber.write(std::ptr::without_provenance_mut(1)) };
        0
    })
}
unsafe extern "C" fn unsubscribe(_: *mut c_void) -> u32 {
    with(|fake| fake.subscriber = false);
    log("unsubscribe".to_owned());
    0
}
unsafe extern "C" fn enable(kind: u32) -> u32 {
    with(|fake| {
        if fake.worker.is_none() && !fake.used {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let worker = std::thread::spawn(move || {
                let _ = stopped.recv();
            });
            fake.worker = Some((stop, worker));
        }
        if kind == activity_kind::NAME {
            return 0;
        }
        if kind == activity_kind::KERNEL {
            fake.asked += 1;
            return if fake.recorded {
                result::ERROR_NOT_COMPATIBLE
            } else {
                0
            };
        }
        if fake.refuses == Some(kind) {
            return result::ERROR_INSUFFICIENT_PRIVILEGES;
        }
        fake.enabled.push(kind);
        fake.log
            .push(format!("enable {}", activity_kind::name(kind).unwrap()));
        0
    })
}
unsafe extern "C" fn disable(kind: u32) -> u32 {
    if [activity_kind::KERNEL, activity_kind::NAME].contains(&kind) {
        return 0;
    }
    with(|fake| {
        fake.enabled.retain(|it| *it != kind);
        fake.disabled.push(kind);
        if [activity_kind::DRIVER, activity_kind::RUNTIME].contains(&kind) {
            fake.left_out_at_the_end += fake.left_out.len();
        }
    });
    log("disable".to_owned());
    0
}
fn choose(runtime: bool, call: u32, on: u8) -> u32 {
    with(|fake| {
        fake.left_out.retain(|it| *it != (runtime, call));
        if on == 0 {
            fake.left_out.push((runtime, call));
        }
    });
    0
}
unsafe extern "C" fn enable_runtime_api(call: u32, on: u8) -> u32 {
    choose(true, call, on)
}
unsafe extern "C" fn enable_driver_api(call: u32, on: u8) -> u32 {
    choose(false, call, on)
}
unsafe extern "C" fn register_callbacks(
    requested: Option<BufferRequested>,
    completed: Option<BufferCompleted>,
) -> u32 {
    with(|fake| fake.callbacks = requested.zip(completed));
    log("register".to_owned());
    0
}
unsafe extern "C" fn flush_all(flag: u32) -> u32 {
    with(|fake| {
        if !fake.returns_late {
            return_buffer(fake);
        }
    });
    if flag == 1 {
        log("flush".to_owned());
    }
    0
}
unsafe extern "C" fn finalize() -> u32 {
    with(|fake| {
        return_buffer(fake);
        (fake.callbacks, fake.subscriber) = (None, false);
        fake.enabled.clear();
        if let Some((stop, worker)) = fake.worker.take() {
            drop(stop);
            worker.join().unwrap();
        }
        fake.log.push("finalize".to_owned());
    });
    0
}
unsafe extern "C" fn next_record(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> u32 {
    // SAFETY: a valid pointer to a record of the buffer, or to null.
    let last = unsafe { record.read() };
    let next = if last.is_null() {
        buffer
    } else {
        // SAFETY: a record that was given before; all have a size.
        unsafe { last.add(decode::size(layouts(), last.cast::<u32>().read_unaligned()).unwrap()) }
    };
    if next.addr() >= buffer.addr() + valid {
        return match with(|fake| fake.end) {
            0 => result::ERROR_MAX_LIMIT_REACHED,
            other => other,
        };
    }
    // SAFETY: a valid out pointer.
    unsafe { record.write(next) };
    0
}
unsafe extern "C" fn dropped(_: *mut c_void, _: u32, count: *mut usize) -> u32 {
    let dropped = with(|fake| std::mem::take(&mut fake.dropped));
    // SAFETY: a valid out pointer.
    unsafe { count.write(dropped) };
    0
}
unsafe extern "C" fn timestamp(time: *mut u64) -> u32 {
    // SAFETY: a valid out pointer.
    unsafe { time.write(midair_guest::now()) };
    0
}
unsafe extern "C" fn get_attribute(_: u32, _: *mut usize, value: *mut c_void) -> u32 {
    let by_half = with(|fake| fake.by_half);
    // SAFETY: a valid out pointer.
    unsafe { value.cast::<u8>().write(by_half.into()) };
    0
}
unsafe extern "C" fn set_attribute(_: u32, _: *mut usize, _: *mut c_void) -> u32 {
    1
}
unsafe extern "C" fn set_thread_id_type(kind: u32) -> u32 {
    if kind == thread_id_type::DEFAULT {
        with(return_buffer);
    }
    0
}
unsafe extern "C" fn configure(_: *mut UnifiedMemoryConfig, _: u32) -> u32 {
    result::ERROR_UM_PROFILING_NOT_SUPPORTED
}

unsafe extern "C" fn nvtx(_: unsafe extern "C" fn(u32) -> *const c_void) -> i32 {
    1
}

/// The fake, as it is loaded.
pub(crate) fn cupti() -> Cupti {
    let functions = Functions {
        get_version,
        get_result_string,
        subscribe,
        unsubscribe,
        enable,
        disable,
        register_callbacks,
        flush_all,
        finalize,
        next_record,
        dropped,
        timestamp,
        get_attribute,
        set_attribute,
        set_thread_id_type,
        configure_unified_memory: configure,
        register_timestamp_callback: None,
        enable_runtime_api: Some(enable_runtime_api),
        enable_driver_api: Some(enable_driver_api),
        enable_hw_trace: None,
        enable_callback: None,
        graph_node_id: None,
        supported_domains: None,
        flush_period: None,
        initialize_nvtx: Some(nvtx),
    };
    // SAFETY: they behave like CUPTI's, and stay.
    unsafe { Cupti::with_functions(functions) }.unwrap()
}
