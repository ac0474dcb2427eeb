//! The state of the C API: clients, contexts, buffers, callback threads. One lock protects all of
//! it. It is never held while a function of a tool runs, and no hot path of an application takes
//! it.

use crate::buffer::batch::Buffer;
use crate::callback_thread::handle::CallbackThread;
use crate::context::services::Context;
use crate::graphs::Numbers;
use crate::registration::client::Client;
use crate::status::Status;

/// All of this state.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The client whose `initialize` is running. Configuration is allowed only then.
    pub configuring: Option<u32>,
    /// Whether a client is between its `configure` and the end of its `initialize`. Only one is at
    /// a time.
    pub busy: bool,
    /// Whether everything is being ended; see [`crate::registration::finalize`].
    pub finalized: bool,
    /// Whether every tool has ended.
    pub ended: bool,
    /// Whether a client's `initialize` has returned since the start.
    pub initialized: bool,
    /// Whether the named tools have been attached since they were named.
    pub named_used: bool,
    /// Why a tool was last refused, as text.
    pub refusal: Option<String>,
    /// Contexts by handle - 1.
    pub contexts: Vec<Context>,
    /// Buffers by handle - 1; `None` when destroyed.
    pub buffers: Vec<Option<Buffer>>,
    /// Callback threads by handle - 1.
    pub threads: Vec<CallbackThread>,
    /// Clients by handle - 1.
    pub clients: Vec<Client>,
    /// The numbers of HIP's graphs.
    pub graphs: Numbers,
}

impl Registry {
    pub const fn new() -> Registry {
        Registry {
            configuring: None,
            busy: false,
            finalized: false,
            ended: false,
            initialized: false,
            named_used: false,
            refusal: None,
            contexts: Vec::new(),
            buffers: Vec::new(),
            threads: Vec::new(),
            clients: Vec::new(),
            graphs: Numbers::new(),
        }
    }
}

impl Registry {
    /// Returns the client that may configure now.
    pub fn configuring(&self) -> Result<u32, Status> {
        if self.finalized {
            return Err(Status::FINALIZED);
        }
        self.configuring.ok_or(Status::CONFIGURATION_LOCKED)
    }
    /// Returns a context by its handle.
    pub fn context(&mut self, handle: u64) -> Result<&mut Context, Status> {
        index(handle)
            .and_then(|i| self.contexts.get_mut(i))
            .ok_or(Status::CONTEXT_NOT_FOUND)
    }
    /// Returns a buffer by its handle.
    pub fn buffer(&mut self, handle: u64) -> Result<&mut Buffer, Status> {
        index(handle)
            .and_then(|i| self.buffers.get_mut(i)?.as_mut())
            .ok_or(Status::BUFFER_NOT_FOUND)
    }
}

/// Returns the index of a handle. Handles count from 1, so that a zeroed handle refers to nothing.
pub(crate) fn index(handle: u64) -> Option<usize> {
    usize::try_from(handle).ok()?.checked_sub(1)
}
