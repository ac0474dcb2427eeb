//! The parts of a tool's callback service: a set of operations, the tool's function, and its data.

use midair_abi::records::CallbackRecord;
use std::ffi::{c_int, c_void};

/// The number of words of an [`OperationSet`]: room for 1024 operations; the largest table has 517.
const WORDS: usize = 16;

/// A set of operation ids of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationSet([u64; WORDS]);

impl OperationSet {
    /// The empty set.
    pub const NONE: OperationSet = OperationSet([0; WORDS]);
    /// The set of all operations.
    pub const ALL: OperationSet = OperationSet([u64::MAX; WORDS]);
    /// Whether an id is in it.
    pub fn has(&self, operation: u32) -> bool {
        self.0
            .get(operation as usize / 64)
            .is_some_and(|word| word >> (operation % 64) & 1 != 0)
    }
    /// Adds an id.
    pub fn add(&mut self, operation: u32) {
        if let Some(word) = self.0.get_mut(operation as usize / 64) {
            *word |= 1 << (operation % 64);
        }
    }
    /// Adds all ids of another set.
    pub fn add_all(&mut self, other: &OperationSet) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(word, more)| *word |= more);
    }
}

/// `rocprofiler_callback_tracing_cb_t`: record, the user data for an enter/exit pair, the tool's
/// data. It may run on a thread of the application that is cancelled during the call.
pub type TracingCallback = unsafe extern "C-unwind" fn(CallbackRecord, *mut u64, *mut c_void);

/// `rocprofiler_external_correlation_id_request_cb_t`: thread, context, kind, operation, internal
/// id, where to store the external one, the tool's data. A result other than 0 means the id that
/// was pushed.
pub type RequestCallback =
    unsafe extern "C-unwind" fn(u64, u64, c_int, c_int, u64, *mut u64, *mut c_void) -> c_int;

/// A pointer of a tool, which only the tool dereferences.
#[derive(Debug, Clone, Copy)]
pub struct Opaque(pub *mut c_void);

// SAFETY: we never dereference it. Tools learn that their data may be passed to them on another
// thread.
unsafe impl Send for Opaque {}
