//! Queues and code objects that are alive, and who wants to hear of them.
//!
//! Who registers a callback is told of what is there already, and then of everything that comes and goes, with nothing missed and
//! nothing told twice: all telling is done by one thread at a time ([`Telling`]). A callback may ask for anything, and may make
//! queues itself: those are remembered, but nobody is told of them.

use crate::intercept::{self, Place};
use crate::status;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something has come.
pub const CREATED: c_int = 0;
/// Something is about to go.
pub const DESTROYED: c_int = 1;

/// Told of queues: queue, agent, [`CREATED`] or [`DESTROYED`], its data.
pub type QueueCallback = unsafe extern "C" fn(usize, u64, c_int, *mut c_void);
/// Told of executables: handle, [`CREATED`] or [`DESTROYED`], its data.
pub type ExecutableCallback = unsafe extern "C" fn(u64, c_int, *mut c_void);

/// A callback with its data.
#[derive(Clone, Copy)]
struct Told<F> {
    function: F,
    data: *mut c_void,
}

// SAFETY: the data is the SDK's, which is told that its callbacks come on the application's threads.
unsafe impl<F: Send> Send for Told<F> {}

#[derive(Clone, Copy)]
struct Queue {
    agent: u64,
    place: Option<&'static Place>,
}

struct Known {
    queues: BTreeMap<usize, Queue>,
    executables: BTreeSet<u64>,
    /// Bytes of code objects in memory, by reader.
    readers: BTreeMap<u64, Arc<[u8]>>,
    /// The same by loaded code object, with the executable that it belongs to.
    loaded: BTreeMap<u64, (u64, Arc<[u8]>)>,
    queue_callbacks: Vec<Told<QueueCallback>>,
    executable_callbacks: Vec<Told<ExecutableCallback>>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known {
    queues: BTreeMap::new(),
    executables: BTreeSet::new(),
    readers: BTreeMap::new(),
    loaded: BTreeMap::new(),
    queue_callbacks: Vec::new(),
    executable_callbacks: Vec::new(),
});

/// Held only while something is looked up or changed; never while a callback runs.
fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while callbacks run.
struct Telling(#[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

static TELLING: Mutex<()> = Mutex::new(());
static TELLER: AtomicI32 = AtomicI32::new(0);

impl Telling {
    /// Waits for the others. `None`: this thread is telling already, and was called by a callback.
    fn begin() -> Option<Telling> {
        // SAFETY: no arguments, no failure.
        let me = unsafe { libc::gettid() };
        if TELLER.load(Ordering::Relaxed) == me {
            return None;
        }
        let held = TELLING.lock().unwrap_or_else(PoisonError::into_inner);
        TELLER.store(me, Ordering::Relaxed);
        Some(Telling(held))
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        TELLER.store(0, Ordering::Relaxed);
    }
}

fn tell_queue(queue: usize, agent: u64, phase: c_int) {
    let callbacks: Vec<_> = known().queue_callbacks.clone();
    for told in callbacks {
        // SAFETY: the SDK's function with its own data.
        unsafe { (told.function)(queue, agent, phase, told.data) };
    }
}

fn tell_executable(executable: u64, phase: c_int) {
    let callbacks: Vec<_> = known().executable_callbacks.clone();
    for told in callbacks {
        // SAFETY: the SDK's function with its own data.
        unsafe { (told.function)(executable, phase, told.data) };
    }
}

/// The runtime has made a queue.
pub fn queue_created(queue: usize, agent: u64, place: Option<&'static Place>) {
    let telling = Telling::begin();
    known().queues.insert(queue, Queue { agent, place });
    if telling.is_some() {
        tell_queue(queue, agent, CREATED);
    }
}

/// The runtime is about to destroy a queue.
pub fn queue_destroyed(queue: usize) {
    let telling = Telling::begin();
    let found = known().queues.get(&queue).copied();
    if let Some(found) = found {
        if telling.is_some() {
            tell_queue(queue, found.agent, DESTROYED);
        }
        known().queues.remove(&queue);
        if let Some(place) = found.place {
            place.set(None, std::ptr::null_mut());
        }
    }
}

/// An executable is complete: its kernels can be launched.
pub fn executable_frozen(executable: u64) {
    let telling = Telling::begin();
    let new = known().executables.insert(executable);
    if new && telling.is_some() {
        tell_executable(executable, CREATED);
    }
}

/// The runtime is about to destroy an executable.
pub fn executable_destroyed(executable: u64) {
    let telling = Telling::begin();
    let was = known().executables.contains(&executable);
    if was && telling.is_some() {
        tell_executable(executable, DESTROYED);
    }
    let mut known = known();
    known.executables.remove(&executable);
    known.loaded.retain(|_, (of, _)| *of != executable);
}

/// A code object in memory is about to be loaded. The application may free it then, so it is copied.
pub fn reader_created(reader: u64, bytes: &[u8]) {
    known().readers.insert(reader, bytes.into());
}

/// Its bytes are needed no more, but by what was loaded from it.
pub fn reader_destroyed(reader: u64) {
    known().readers.remove(&reader);
}

/// A code object was loaded.
pub fn code_object_loaded(executable: u64, reader: u64, loaded: u64) {
    let mut known = known();
    if let Some(bytes) = known.readers.get(&reader).cloned() {
        known.loaded.insert(loaded, (executable, bytes));
    }
}

/// The runtime was opened anew: nothing of before exists.
pub fn forget() {
    let _telling = Telling::begin();
    let mut known = known();
    known.queues.clear();
    known.executables.clear();
    known.readers.clear();
    known.loaded.clear();
}

/// Calls `visit` for each queue that is alive, with nothing coming or going meanwhile.
pub fn each_queue(mut visit: impl FnMut(usize, u64)) {
    let _telling = Telling::begin();
    let all: Vec<_> = known()
        .queues
        .iter()
        .map(|(at, queue)| (*at, queue.agent))
        .collect();
    for (queue, agent) in all {
        visit(queue, agent);
    }
}

/// The same for executables.
pub fn each_executable(visit: impl FnMut(u64)) {
    let _telling = Telling::begin();
    let all: Vec<u64> = known().executables.iter().copied().collect();
    all.into_iter().for_each(visit);
}

/// What stands between the packets of a queue: `None` when it is not known, `Some(None)` when nothing can.
pub fn place_of(queue: usize) -> Option<Option<&'static Place>> {
    known().queues.get(&queue).map(|queue| queue.place)
}

/// Bytes of a loaded code object, as long as it is loaded.
pub fn bytes_of(loaded: u64) -> Option<(*const u8, usize)> {
    known()
        .loaded
        .get(&loaded)
        .map(|(_, bytes)| (bytes.as_ptr(), bytes.len()))
}

/// Tells `function` of all queues that are there, and then of those to come. From then on intercept queues are made.
///
/// # Safety
/// `function` may be called with `data` until it is removed.
pub unsafe fn add_queue_callback(function: QueueCallback, data: *mut c_void) -> c_int {
    let _telling = Telling::begin();
    let present = {
        let mut known = known();
        known.queue_callbacks.push(Told { function, data });
        known
            .queues
            .iter()
            .map(|(at, queue)| (*at, queue.agent))
            .collect::<Vec<_>>()
    };
    intercept::want();
    for (queue, agent) in present {
        // SAFETY: the SDK's function with its own data.
        unsafe { function(queue, agent, CREATED, data) };
    }
    status::SUCCESS
}

/// No longer tells it.
pub fn remove_queue_callback(function: QueueCallback) -> c_int {
    let _telling = Telling::begin();
    let mut known = known();
    let place = known
        .queue_callbacks
        .iter()
        .position(|told| std::ptr::fn_addr_eq(told.function, function));
    let Some(place) = place else {
        return status::INVALID_ARGUMENT;
    };
    known.queue_callbacks.remove(place);
    intercept::want_no_more();
    status::SUCCESS
}

/// Tells `function` of all executables that are there, and then of those to come.
///
/// # Safety
/// `function` may be called with `data` until it is removed.
pub unsafe fn add_executable_callback(function: ExecutableCallback, data: *mut c_void) -> c_int {
    let _telling = Telling::begin();
    let present = {
        let mut known = known();
        known.executable_callbacks.push(Told { function, data });
        known.executables.iter().copied().collect::<Vec<_>>()
    };
    for executable in present {
        // SAFETY: the SDK's function with its own data.
        unsafe { function(executable, CREATED, data) };
    }
    status::SUCCESS
}

/// No longer tells it.
pub fn remove_executable_callback(function: ExecutableCallback) -> c_int {
    let _telling = Telling::begin();
    let mut known = known();
    let place = known
        .executable_callbacks
        .iter()
        .position(|told| std::ptr::fn_addr_eq(told.function, function));
    let Some(place) = place else {
        return status::INVALID_ARGUMENT;
    };
    known.executable_callbacks.remove(place);
    status::SUCCESS
}
