//! The old roctracer's libroctx64.so.4, which has no dispatch tables. Its
//! `roctxRegisterTracerCallback` stores one function, which is called at the start of each call
//! (source: Debian's libroctx64-4 6.4.1 and 7.2.4; the struct is declared as users of that function
//! declare it). We store our function in that variable and pass calls on to the previous one.

use super::{Event, operation, record, takes_id};
use crate::probe::Busy;
use crate::state::STATE;
use midair_domain::KindSet;
use midair_record::event::kind;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Our callback in the old library's variable.
#[derive(Debug, Clone, Copy)]
pub struct Tap {
    variable: &'static AtomicPtr<()>,
}

impl Tap {
    /// Stores our callback. Called on the worker thread.
    ///
    /// # Safety
    /// `variable` must be the aligned address of the variable in which a loaded libroctx64.so.4
    /// keeps its callback, and that library must stay loaded.
    pub unsafe fn install(variable: usize) -> Option<Tap> {
        // SAFETY: the caller promises an aligned address of a variable that stays mapped.
        let variable =
            unsafe { AtomicPtr::from_ptr(std::ptr::with_exposed_provenance_mut(variable)) };
        let ours = legacy as *mut ();
        let before = variable.load(Acquire);
        if before != ours {
            STATE.legacy_roctx_before.store(before, Release);
            variable
                .compare_exchange(before, ours, AcqRel, Relaxed)
                .ok()?;
        }
        Some(Tap { variable })
    }

    /// Whether our callback is in this variable.
    pub fn is_in(&self, variable: usize) -> bool {
        self.variable.as_ptr().addr() == variable
    }

    /// Restores the previous callback, if ours is still in the variable.
    pub fn remove(self) {
        let _ = self.variable.compare_exchange(
            legacy as *mut (),
            STATE.legacy_roctx_before.load(Acquire),
            AcqRel,
            Relaxed,
        );
    }
}

/// What the old library passes to its callback: `roctx_api_data_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LegacyData {
    message: *const u8,
    id: u64,
}

/// The old library's domain number for ROCTx.
const LEGACY_DOMAIN: u32 = 6;

/// Type of the old library's callback: domain, operation, [`LegacyData`].
type LegacyCallback = unsafe extern "C" fn(u32, u32, *const LegacyData) -> i32;

/// Our callback for the old roctracer's libroctx64.so.4, called at the start of each call.
///
/// # Safety
/// Only that library calls it.
unsafe extern "C" fn legacy(domain: u32, operation: u32, data: *const LegacyData) -> i32 {
    let before = STATE.legacy_roctx_before.load(Acquire);
    let answer = if before.is_null() {
        0
    } else {
        // SAFETY: the library's variable held it, so it is a callback of this type.
        let before = unsafe { std::mem::transmute::<*mut (), LegacyCallback>(before) };
        // SAFETY: this forwards the library's own call.
        unsafe { before(domain, operation, data) }
    };
    if domain != LEGACY_DOMAIN || data.is_null() || operation > operation::STOP {
        return answer;
    }
    let Some(mut busy) = Busy::enter() else {
        return answer;
    };
    let recorded: KindSet = [kind::MARKER_CORE_API, kind::MARKER_CORE_RANGE_API]
        .into_iter()
        .filter(|kind| busy.records(*kind))
        .collect();
    if recorded.is_empty() {
        return answer;
    }
    // SAFETY: it is the library's struct, which is valid during its call.
    let LegacyData { message, id } = unsafe { data.read() };
    let now = crate::clock::now();
    let event = Event {
        kind: kind::MARKER_CORE_API,
        operation,
        start: now,
        end: now,
        correlation: if takes_id(recorded, kind::MARKER_CORE_API, operation) {
            busy.fresh_correlation()
        } else {
            0
        },
        ancestor: 0,
        flags: busy.flags_now(),
        retval: if operation == operation::START { id } else { 0 },
        first: if operation == operation::STOP {
            id
        } else {
            message.expose_provenance() as u64
        },
    };
    // SAFETY: the application passed the message to the call that this callback reports.
    unsafe { record(&mut busy, &event, recorded) };
    answer
}
