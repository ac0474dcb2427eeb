//! A callback thread, and who is told of threads.

use midair_sdk_hot::operations::Opaque;
use std::ffi::{c_int, c_void};
use std::sync::mpsc::Sender;

/// Something to do on a callback thread.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// A callback thread.
#[derive(Debug)]
pub(crate) struct CallbackThread {
    /// What it is to do next.
    pub work: Sender<Work>,
}

impl CallbackThread {
    /// Hands work over; false when the thread is gone.
    pub fn send(&self, work: Work) -> bool {
        self.work.send(work).is_ok()
    }
}

/// `rocprofiler_internal_thread_library_cb_t`: the library that makes a thread, the tool's data.
pub type ThreadNotice = unsafe extern "C" fn(c_int, *mut c_void);

/// Whom to tell before and after a thread is made: (before, after, libraries, data).
pub(crate) type Listener = (Option<ThreadNotice>, Option<ThreadNotice>, c_int, Opaque);
