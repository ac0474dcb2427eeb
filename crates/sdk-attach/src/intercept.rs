//! Queues between whose packets an SDK may put its own.
//!
//! The runtime can do that only for queues that were made for it, and such a queue costs on every dispatch, profiled or not. So a queue
//! is made an intercept queue when there is a reason to: an SDK has asked to be told of queues or to intercept one, or
//! `ROCPROFILER_REGISTER_ATTACHMENT_QUEUES_ENABLED` says that all shall be (AMD's helper makes all of them so). An SDK that
//! wants to intercept a queue that was there before is refused by status ([`crate::status::NOT_AVAILABLE`]).
//!
//! Decisions: AMD-041 (`docs/deviations/amd.md`).

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Gives packets to the device: packets, how many.
pub type Writer = unsafe extern "C-unwind" fn(*const c_void, u64);
/// What an SDK puts between: packets, how many, index of the first, its data, and what passes packets on.
pub type Interceptor =
    unsafe extern "C-unwind" fn(*const c_void, u64, u64, *mut c_void, Option<Writer>);
/// `hsa_amd_queue_intercept_handler`.
pub type Handler =
    unsafe extern "C-unwind" fn(*const c_void, u64, u64, *mut c_void, Option<Writer>);

/// An interceptor with its data.
struct Between {
    function: Interceptor,
    data: *mut c_void,
}

/// What stands between the packets of one queue: nothing, until an SDK says so.
pub struct Place(AtomicPtr<Between>);

impl Place {
    /// A place that lives for ever: the runtime keeps its address.
    pub fn leak() -> *mut Place {
        Box::into_raw(Box::new(Place(AtomicPtr::new(std::ptr::null_mut()))))
    }

    /// Puts an interceptor there, or takes it away. What stood there before is not freed: a thread may be inside.
    pub fn set(&self, function: Option<Interceptor>, data: *mut c_void) {
        let between = function.map_or(std::ptr::null_mut(), |function| {
            Box::into_raw(Box::new(Between { function, data }))
        });
        let before = self.0.swap(between, Ordering::AcqRel);
        match (before.is_null(), between.is_null()) {
            (true, false) => want(),
            (false, true) => want_no_more(),
            _ => {}
        }
    }
}

/// How many reasons there are to make intercept queues.
static REASONS: AtomicUsize = AtomicUsize::new(0);

/// Somebody wants to intercept, or to hear of queues.
pub fn want() {
    REASONS.fetch_add(1, Ordering::AcqRel);
}

/// One of them no longer does.
pub fn want_no_more() {
    REASONS.fetch_sub(1, Ordering::AcqRel);
}

/// Whether a queue that is made now shall be an intercept queue.
pub fn wanted() -> bool {
    REASONS.load(Ordering::Acquire) != 0
        || midair_register::config::variable(c"ROCPROFILER_REGISTER_ATTACHMENT_QUEUES_ENABLED")
            .is_some_and(|value| midair_register::config::truth(&value))
}

/// Between the packets of every intercept queue that we made; `data` is its [`Place`].
///
/// # Safety
/// Called by the runtime as such a handler.
pub unsafe extern "C-unwind" fn on_packets(
    packets: *const c_void,
    count: u64,
    index: u64,
    data: *mut c_void,
    writer: Option<Writer>,
) {
    // SAFETY: the place that was given to the runtime lives for ever, and so does what was ever put there.
    let between = unsafe { (*data.cast::<Place>()).0.load(Ordering::Acquire).as_ref() };
    match (between, writer) {
        // SAFETY: the SDK's function, with its own data and what the runtime gave us.
        (Some(between), _) => unsafe {
            (between.function)(packets, count, index, between.data, writer);
        },
        // SAFETY: the runtime's function with the runtime's packets.
        (None, Some(writer)) => unsafe { writer(packets, count) },
        (None, None) => {}
    }
}
