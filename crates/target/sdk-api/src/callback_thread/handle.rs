//! A callback thread, and the functions of tools that are called when a thread is created.

use midair_sdk_hot::operations::Opaque;
use std::ffi::{c_int, c_void};
use std::sync::mpsc::Sender;

/// Something to do on a callback thread.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// A callback thread.
#[derive(Debug)]
pub(crate) struct CallbackThread {
    /// Its queue of work.
    pub work: Sender<Work>,
}

impl CallbackThread {
    /// Queues work; false when the thread is gone.
    pub fn send(&self, work: Work) -> bool {
        self.work.send(work).is_ok()
    }
}

/// `rocprofiler_internal_thread_library_cb_t`: the library that creates a thread, the tool's data.
pub type ThreadNotice = unsafe extern "C-unwind" fn(c_int, *mut c_void);

/// A tool's functions for the creation of threads: (before, after, libraries, data).
pub(crate) type Listener = (Option<ThreadNotice>, Option<ThreadNotice>, c_int, Opaque);
