//! Queues whose packets an SDK may intercept.
//!
//! The runtime lets an SDK intercept only queues that were made for it, and such a queue slows down
//! every dispatch, profiled or not. So a queue is made an intercept queue only when there is a
//! reason: an SDK has registered a callback for queues or an interceptor, or
//! `ROCPROFILER_REGISTER_ATTACHMENT_QUEUES_ENABLED` is set (AMD's helper makes all queues so). An
//! SDK that wants to intercept a queue made before that gets a status
//! ([`crate::status::NOT_AVAILABLE`]).
//!
//! Decisions: AMD-041 (`docs/deviations/amd.md`).

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Passes packets on to the device: packets, number of packets.
pub type Writer = unsafe extern "C-unwind" fn(*const c_void, u64);
/// An SDK's interceptor. Its arguments are packets, number of packets, index of the first packet,
/// the interceptor's data, and the function that passes packets on.
pub type Interceptor =
    unsafe extern "C-unwind" fn(*const c_void, u64, u64, *mut c_void, Option<Writer>);
/// `hsa_amd_queue_intercept_handler`.
pub type Handler =
    unsafe extern "C-unwind" fn(*const c_void, u64, u64, *mut c_void, Option<Writer>);

/// An interceptor with its data.
struct Installed {
    function: Interceptor,
    data: *mut c_void,
}

/// The interceptor of one queue. There is none until an SDK sets one.
pub struct InterceptorSlot(AtomicPtr<Installed>);

impl InterceptorSlot {
    /// Makes a slot that is never freed, because the runtime keeps its address.
    pub fn leak() -> *mut InterceptorSlot {
        Box::into_raw(Box::new(InterceptorSlot(AtomicPtr::new(
            std::ptr::null_mut(),
        ))))
    }

    /// Sets the interceptor. The previous one is not freed, since a thread may be inside it.
    ///
    /// # Safety
    /// `function` may be called with `data` on any thread, as long as the process lives.
    pub unsafe fn set(&self, function: Interceptor, data: *mut c_void) {
        self.replace(Box::into_raw(Box::new(Installed { function, data })));
    }

    /// Removes the interceptor. It is not freed either.
    pub fn clear(&self) {
        self.replace(std::ptr::null_mut());
    }

    fn replace(&self, installed: *mut Installed) {
        let before = self.0.swap(installed, Ordering::AcqRel);
        match (before.is_null(), installed.is_null()) {
            (true, false) => add_reason(),
            (false, true) => remove_reason(),
            _ => {}
        }
    }
}

/// The number of reasons to make intercept queues.
static REASONS: AtomicUsize = AtomicUsize::new(0);

/// Adds a reason: an interceptor, or a callback for queues.
pub fn add_reason() {
    REASONS.fetch_add(1, Ordering::AcqRel);
}

/// Removes a reason.
pub fn remove_reason() {
    REASONS.fetch_sub(1, Ordering::AcqRel);
}

/// Whether a queue that is made now must be an intercept queue.
pub fn needed() -> bool {
    REASONS.load(Ordering::Acquire) != 0
        || midair_register::config::variable(c"ROCPROFILER_REGISTER_ATTACHMENT_QUEUES_ENABLED")
            .is_some_and(|value| midair_register::config::truth(&value))
}

/// The handler of every intercept queue that we made; `data` is its [`InterceptorSlot`].
///
/// # Safety
/// The runtime calls it as such a handler.
pub unsafe extern "C-unwind" fn on_packets(
    packets: *const c_void,
    count: u64,
    index: u64,
    data: *mut c_void,
    writer: Option<Writer>,
) {
    // SAFETY: the slot that was given to the runtime is never freed, and neither is any interceptor
    // that was ever set.
    let installed = unsafe {
        (*data.cast::<InterceptorSlot>())
            .0
            .load(Ordering::Acquire)
            .as_ref()
    };
    match (installed, writer) {
        // SAFETY: this is the SDK's function. It gets its own data and the runtime's arguments.
        (Some(installed), _) => unsafe {
            (installed.function)(packets, count, index, installed.data, writer);
        },
        // SAFETY: this is the runtime's function, and it gets the runtime's packets.
        (None, Some(writer)) => unsafe { writer(packets, count) },
        (None, None) => {}
    }
}
