//! What the C API knows: clients, contexts, buffers, callback threads. One lock for all of it; it is never held while a
//! function of a tool runs, and nothing on an application's hot path takes it.

use crate::buffer::Buffer;
use crate::callback_thread::CallbackThread;
use crate::context::Context;
use crate::registration::Client;
use crate::status::Status;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    /// The client whose `initialize` runs: only then may things be configured.
    pub configuring: Option<u32>,
    /// A client is between its `configure` and the end of its `initialize`. One at a time.
    pub busy: bool,
    /// After the end.
    pub finalized: bool,
    /// Whether a client's `initialize` has returned since the start.
    pub initialized: bool,
    /// The tools that are named have been attached since.
    pub named_used: bool,
    /// By handle - 1.
    pub contexts: Vec<Context>,
    /// By handle - 1; `None` when destroyed.
    pub buffers: Vec<Option<Buffer>>,
    /// By handle - 1.
    pub threads: Vec<CallbackThread>,
    /// By handle - 1.
    pub clients: Vec<Client>,
}

static STATE: Mutex<State> = Mutex::new(State::new());

impl State {
    const fn new() -> State {
        State {
            configuring: None,
            busy: false,
            finalized: false,
            initialized: false,
            named_used: false,
            contexts: Vec::new(),
            buffers: Vec::new(),
            threads: Vec::new(),
            clients: Vec::new(),
        }
    }
}

/// Takes the lock. A panic of another holder does not matter: every change is made in one piece.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
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

/// Handles count from 1, so that a zeroed one is nobody's.
pub(crate) fn index(handle: u64) -> Option<usize> {
    usize::try_from(handle).ok()?.checked_sub(1)
}

/// See `forked` in `midair-sdk-control`: the parent's tools are not the child's.
pub fn begin_anew() {
    // SAFETY: in a forked child before its first session: the only thread that uses it.
    unsafe { midair_sdk_hot::fork::renew(&STATE, State::new()) };
}
