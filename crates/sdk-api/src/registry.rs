//! What the C API knows: clients, contexts, buffers, callback threads. One lock for all of it; it is
//! never held while a function of a tool runs, and nothing on an application's hot path takes it.

use crate::buffer::batch::Buffer;
use crate::callback_thread::handle::CallbackThread;
use crate::context::services::Context;
use crate::registration::client::Client;
use crate::status::Status;

/// All of it.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The client whose `initialize` is running: only then may things be configured.
    pub configuring: Option<u32>,
    /// A client is between its `configure` and the end of its `initialize`. One at a time.
    pub busy: bool,
    /// Everything is being ended; see [`crate::registration::finalize`].
    pub finalized: bool,
    /// Every tool has ended, too.
    pub ended: bool,
    /// Whether a client's `initialize` has returned since the start.
    pub initialized: bool,
    /// The tools that are named have been attached since they were named.
    pub named_used: bool,
    /// Why a tool was refused last, in words.
    pub refusal: Option<String>,
    /// By handle - 1.
    pub contexts: Vec<Context>,
    /// By handle - 1; `None` when destroyed.
    pub buffers: Vec<Option<Buffer>>,
    /// By handle - 1.
    pub threads: Vec<CallbackThread>,
    /// By handle - 1.
    pub clients: Vec<Client>,
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
        }
    }
}

impl Registry {
    /// The client that may configure now.
    pub fn configuring(&self) -> Result<u32, Status> {
        if self.finalized {
            return Err(Status::FINALIZED);
        }
        self.configuring.ok_or(Status::CONFIGURATION_LOCKED)
    }
    /// A context by its handle.
    pub fn context(&mut self, handle: u64) -> Result<&mut Context, Status> {
        index(handle)
            .and_then(|i| self.contexts.get_mut(i))
            .ok_or(Status::CONTEXT_NOT_FOUND)
    }
    /// A buffer by its handle.
    pub fn buffer(&mut self, handle: u64) -> Result<&mut Buffer, Status> {
        index(handle)
            .and_then(|i| self.buffers.get_mut(i)?.as_mut())
            .ok_or(Status::BUFFER_NOT_FOUND)
    }
}

/// Handles count from 1, so that a zeroed handle names nothing.
pub(crate) fn index(handle: u64) -> Option<usize> {
    usize::try_from(handle).ok()?.checked_sub(1)
}
