//! What the C API asks of the collecting side (hooks, queues, spool). A table of functions, so that tools, contexts and
//! buffers can be understood and tested without hooking anything.

use std::ffi::CStr;
use std::sync::OnceLock;

/// The collecting side. Set once, by [`set`], before the first tool is configured.
#[derive(Debug, Clone, Copy)]
pub struct Collector {
    /// The set of running contexts changed: bring hooks and queues into line with [`crate::context::wanted`]. When it returns
    /// after a stop, everything recorded so far has been given to [`crate::buffer::deliver`].
    pub apply: fn(),
    /// A runtime's tables, as `rocprofiler_set_api_table` got them: name, version, instance, addresses.
    pub adopt: fn(&CStr, u64, u64, &[usize]) -> bool,
    /// Words for the user, to be written among the session's records.
    pub note: fn(&str),
}

static COLLECTOR: OnceLock<Collector> = OnceLock::new();

/// Sets the collecting side; false when it was set before.
pub fn set(collector: Collector) -> bool {
    COLLECTOR.set(collector).is_ok()
}

/// Whether there is a collecting side.
pub fn is_set() -> bool {
    COLLECTOR.get().is_some()
}

/// Tells the collecting side that the set of running contexts changed.
pub(crate) fn apply() {
    if let Some(collector) = COLLECTOR.get() {
        (collector.apply)();
    }
}

/// Passes tables on; false when nobody takes them.
pub(crate) fn adopt(name: &CStr, version: u64, instance: u64, tables: &[usize]) -> bool {
    COLLECTOR
        .get()
        .is_some_and(|collector| (collector.adopt)(name, version, instance, tables))
}

/// Passes words on.
pub(crate) fn note(text: &str) {
    if let Some(collector) = COLLECTOR.get() {
        (collector.note)(text);
    }
}
