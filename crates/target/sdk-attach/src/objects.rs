//! Queues and code objects that are alive, and the callbacks for them.
//!
//! A callback that is registered is called for everything that exists already, and then for
//! everything that is created and destroyed. Nothing is missed and nothing is reported twice,
//! because callbacks are called by one thread at a time ([`Notification`]). A callback may query
//! anything, and may create queues itself. Those queues are recorded but not reported.

use crate::intercept::{self, InterceptorSlot};
use crate::status;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An object was created.
pub const CREATED: c_int = 0;
/// An object is about to be destroyed.
pub const DESTROYED: c_int = 1;

/// Callback for queues: queue, agent, [`CREATED`] or [`DESTROYED`], its data.
pub type QueueCallback = unsafe extern "C" fn(usize, u64, c_int, *mut c_void);
/// Callback for executables: handle, [`CREATED`] or [`DESTROYED`], its data.
pub type ExecutableCallback = unsafe extern "C" fn(u64, c_int, *mut c_void);

/// A callback with its data.
#[derive(Clone, Copy)]
struct Callback<F> {
    function: F,
    data: *mut c_void,
}

// SAFETY: the data belongs to the SDK, which knows that its callbacks are called on threads of the
// application.
unsafe impl<F: Send> Send for Callback<F> {}

#[derive(Clone, Copy)]
struct Queue {
    agent: u64,
    slot: Option<&'static InterceptorSlot>,
}

struct Known {
    queues: BTreeMap<usize, Queue>,
    executables: BTreeSet<u64>,
    /// The bytes of code objects in memory, by reader.
    readers: BTreeMap<u64, Arc<[u8]>>,
    /// The same bytes by loaded code object, with the executable that it belongs to.
    loaded: BTreeMap<u64, (u64, Arc<[u8]>)>,
    queue_callbacks: Vec<Callback<QueueCallback>>,
    executable_callbacks: Vec<Callback<ExecutableCallback>>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known {
    queues: BTreeMap::new(),
    executables: BTreeSet::new(),
    readers: BTreeMap::new(),
    loaded: BTreeMap::new(),
    queue_callbacks: Vec::new(),
    executable_callbacks: Vec::new(),
});

/// Locks what is known. The lock is held only while something is looked up or changed, and never
/// while a callback runs.
fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard that is held while callbacks run.
struct Notification(#[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

static NOTIFYING: Mutex<()> = Mutex::new(());
static NOTIFIER: AtomicI32 = AtomicI32::new(0);

impl Notification {
    /// Waits until no other thread notifies. `None` means that this thread is notifying already: a
    /// callback has called this.
    fn begin() -> Option<Notification> {
        // SAFETY: the call has no arguments and cannot fail.
        let me = unsafe { libc::gettid() };
        if NOTIFIER.load(Ordering::Relaxed) == me {
            return None;
        }
        let held = NOTIFYING.lock().unwrap_or_else(PoisonError::into_inner);
        NOTIFIER.store(me, Ordering::Relaxed);
        Some(Notification(held))
    }
}

impl Drop for Notification {
    fn drop(&mut self) {
        NOTIFIER.store(0, Ordering::Relaxed);
    }
}

fn notify_queue(queue: usize, agent: u64, phase: c_int) {
    let callbacks: Vec<_> = known().queue_callbacks.clone();
    for callback in callbacks {
        // SAFETY: this is the SDK's function, called with its own data.
        unsafe { (callback.function)(queue, agent, phase, callback.data) };
    }
}

fn notify_executable(executable: u64, phase: c_int) {
    let callbacks: Vec<_> = known().executable_callbacks.clone();
    for callback in callbacks {
        // SAFETY: this is the SDK's function, called with its own data.
        unsafe { (callback.function)(executable, phase, callback.data) };
    }
}

/// Records a queue that the runtime has created.
pub fn queue_created(queue: usize, agent: u64, slot: Option<&'static InterceptorSlot>) {
    let notification = Notification::begin();
    known().queues.insert(queue, Queue { agent, slot });
    if notification.is_some() {
        notify_queue(queue, agent, CREATED);
    }
}

/// Forgets a queue that the runtime is about to destroy.
pub fn queue_destroyed(queue: usize) {
    let notification = Notification::begin();
    let found = known().queues.get(&queue).copied();
    if let Some(found) = found {
        if notification.is_some() {
            notify_queue(queue, found.agent, DESTROYED);
        }
        known().queues.remove(&queue);
        if let Some(slot) = found.slot {
            slot.clear();
        }
    }
}

/// Records an executable that is complete: its kernels can be launched.
pub fn executable_frozen(executable: u64) {
    let notification = Notification::begin();
    let new = known().executables.insert(executable);
    if new && notification.is_some() {
        notify_executable(executable, CREATED);
    }
}

/// Forgets an executable that the runtime is about to destroy.
pub fn executable_destroyed(executable: u64) {
    let notification = Notification::begin();
    let was = known().executables.contains(&executable);
    if was && notification.is_some() {
        notify_executable(executable, DESTROYED);
    }
    let mut known = known();
    known.executables.remove(&executable);
    known.loaded.retain(|_, (of, _)| *of != executable);
}

/// Records a code object in memory that is about to be loaded. The application may free its bytes
/// after loading, so they are copied.
pub fn reader_created(reader: u64, bytes: &[u8]) {
    known().readers.insert(reader, bytes.into());
}

/// Forgets a reader. Its bytes are no longer needed, except by what was loaded from it.
pub fn reader_destroyed(reader: u64) {
    known().readers.remove(&reader);
}

/// Records a code object that was loaded.
pub fn code_object_loaded(executable: u64, reader: u64, loaded: u64) {
    let mut known = known();
    if let Some(bytes) = known.readers.get(&reader).cloned() {
        known.loaded.insert(loaded, (executable, bytes));
    }
}

/// Forgets all objects. The runtime was initialised again, so no earlier object exists.
pub fn forget() {
    let _notification = Notification::begin();
    let mut known = known();
    known.queues.clear();
    known.executables.clear();
    known.readers.clear();
    known.loaded.clear();
}

/// Calls `visit` for each queue that is alive, while none is created or destroyed.
pub fn each_queue(mut visit: impl FnMut(usize, u64)) {
    let _notification = Notification::begin();
    let all: Vec<_> = known()
        .queues
        .iter()
        .map(|(at, queue)| (*at, queue.agent))
        .collect();
    for (queue, agent) in all {
        visit(queue, agent);
    }
}

/// Calls `visit` for each executable that is alive, while none is created or destroyed.
pub fn each_executable(visit: impl FnMut(u64)) {
    let _notification = Notification::begin();
    let all: Vec<u64> = known().executables.iter().copied().collect();
    all.into_iter().for_each(visit);
}

/// Returns the interceptor slot of a queue: `None` when the queue is unknown, and `Some(None)` when
/// it cannot be intercepted.
pub fn interceptor_slot(queue: usize) -> Option<Option<&'static InterceptorSlot>> {
    known().queues.get(&queue).map(|queue| queue.slot)
}

/// Returns the bytes of a loaded code object. They are valid as long as it is loaded.
pub fn bytes_of(loaded: u64) -> Option<(*const u8, usize)> {
    known()
        .loaded
        .get(&loaded)
        .map(|(_, bytes)| (bytes.as_ptr(), bytes.len()))
}

/// Calls `function` for all queues that exist, and then for those that are created later. From then
/// on intercept queues are made.
///
/// # Safety
/// `function` may be called with `data` until it is removed.
pub unsafe fn add_queue_callback(function: QueueCallback, data: *mut c_void) -> c_int {
    let _notification = Notification::begin();
    let present = {
        let mut known = known();
        known.queue_callbacks.push(Callback { function, data });
        known
            .queues
            .iter()
            .map(|(at, queue)| (*at, queue.agent))
            .collect::<Vec<_>>()
    };
    intercept::add_reason();
    for (queue, agent) in present {
        // SAFETY: this is the SDK's function, called with its own data.
        unsafe { function(queue, agent, CREATED, data) };
    }
    status::SUCCESS
}

/// Removes a callback for queues.
pub fn remove_queue_callback(function: QueueCallback) -> c_int {
    let _notification = Notification::begin();
    let mut known = known();
    let index = known
        .queue_callbacks
        .iter()
        .position(|callback| std::ptr::fn_addr_eq(callback.function, function));
    let Some(index) = index else {
        return status::INVALID_ARGUMENT;
    };
    known.queue_callbacks.remove(index);
    intercept::remove_reason();
    status::SUCCESS
}

/// Calls `function` for all executables that exist, and then for those that are created later.
///
/// # Safety
/// `function` may be called with `data` until it is removed.
pub unsafe fn add_executable_callback(function: ExecutableCallback, data: *mut c_void) -> c_int {
    let _notification = Notification::begin();
    let present = {
        let mut known = known();
        known.executable_callbacks.push(Callback { function, data });
        known.executables.iter().copied().collect::<Vec<_>>()
    };
    for executable in present {
        // SAFETY: this is the SDK's function, called with its own data.
        unsafe { function(executable, CREATED, data) };
    }
    status::SUCCESS
}

/// Removes a callback for executables.
pub fn remove_executable_callback(function: ExecutableCallback) -> c_int {
    let _notification = Notification::begin();
    let mut known = known();
    let index = known
        .executable_callbacks
        .iter()
        .position(|callback| std::ptr::fn_addr_eq(callback.function, function));
    let Some(index) = index else {
        return status::INVALID_ARGUMENT;
    };
    known.executable_callbacks.remove(index);
    status::SUCCESS
}
