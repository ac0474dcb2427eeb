//! A context and the services that its tool configured.

use crate::counting::services::Devices;
use crate::sampling::setting::SamplesService;
use midair_record::event::{Record, RuntimeInit};
use midair_sdk_hot::callbacks::requests::RequestCallback;
use midair_sdk_hot::operations::{Opaque, OperationSet, TracingCallback};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// A buffered service of a context.
#[derive(Debug)]
pub(crate) struct BufferService {
    /// `rocprofiler_buffer_tracing_kind_t`, as the tool passed it.
    pub kind: i32,
    /// Which operations.
    pub operations: OperationSet,
    /// Handle of the buffer; 0 for the spool.
    pub buffer: u64,
}

/// A callback service of a context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallbackService {
    /// `rocprofiler_callback_tracing_kind_t`, as the tool passed it.
    pub kind: i32,
    /// Which operations.
    pub operations: OperationSet,
    /// The tool's function.
    pub callback: TracingCallback,
    /// Its data.
    pub data: Opaque,
}

/// A context's request to be asked for external correlation ids.
#[derive(Debug, Clone)]
pub(crate) struct RequestService {
    /// `rocprofiler_external_correlation_id_request_kind_t`; none means all.
    pub kinds: Vec<i32>,
    /// The tool's function.
    pub callback: RequestCallback,
    /// Its data.
    pub data: Opaque,
}

/// The code-object service of a context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeObjectService {
    /// Which of loading and symbol registration it wants.
    pub operations: OperationSet,
    /// The tool's function.
    pub callback: TracingCallback,
    /// Its data.
    pub data: Opaque,
}

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    /// Handle of the client that created it.
    pub client: u32,
    /// Its tool is no longer used ([`crate::registration::out`]): none of its functions is called
    /// any more.
    pub out: bool,
    /// It is running.
    pub active: bool,
    /// The same for the application's threads. It lives forever, since a thread may read it late.
    pub on: &'static AtomicBool,
    /// When it was last started, ns.
    pub started_at: u64,
    /// When it was last stopped, ns.
    pub stopped_at: u64,
    /// The runtimes that were reported to it since then, one bit per operation.
    pub runtimes: u64,
    /// Its records go to the attacher's spool, not to buffers.
    pub spool: bool,
    /// Buffered services.
    pub services: Vec<BufferService>,
    /// Code-object service.
    pub code_objects: Option<CodeObjectService>,
    /// Other callback services.
    pub callbacks: Vec<CallbackService>,
    /// It counts around dispatches.
    pub counts: bool,
    /// It counts on whole devices.
    pub devices: Option<Arc<Devices>>,
    /// It samples program counters.
    pub samples: Option<SamplesService>,
    /// It is asked for external correlation ids.
    pub request: Option<RequestService>,
}

/// Returns a runtime's bit in [`Context::runtimes`].
fn bit(runtime: &RuntimeInit) -> u64 {
    1_u64.checked_shl(runtime.header.operation).unwrap_or(0)
}

impl Context {
    /// Whether it has a service that counts. A session prepares for it before it runs, since queues
    /// are created for it.
    pub fn is_counting(&self) -> bool {
        !self.out && (self.counts || self.devices.is_some())
    }

    /// Starts it. Returns false when it is already running.
    pub fn begin(&mut self, now: u64) -> bool {
        if self.active {
            return false;
        }
        self.active = true;
        self.started_at = now;
        self.runtimes = 0;
        self.on.store(true, SeqCst);
        true
    }

    /// Notes that this runtime was reported to it.
    pub fn tell(&mut self, runtime: &RuntimeInit) {
        self.runtimes |= bit(runtime);
    }

    /// Whether this runtime was reported to it before. A session reports each runtime once, but a
    /// context may see several sessions, or a session that other tools join.
    pub fn was_told(&self, record: &Record<'_>) -> bool {
        matches!(record, Record::RuntimeInit(runtime) if self.runtimes & bit(runtime) != 0)
    }

    /// Stops it. Returns false when it is not running.
    pub fn end(&mut self, now: u64) -> bool {
        if !self.active {
            return false;
        }
        self.active = false;
        self.stopped_at = now;
        self.on.store(false, SeqCst);
        true
    }

    /// Whether something that ends now may belong to it: it is running, or was running, and what
    /// started then still arrives.
    pub fn covers_end(&self) -> bool {
        self.started_at != 0
    }
    /// Whether something that started at `begin` belongs to this context. Records arrive late, some
    /// after the stop.
    pub fn covers(&self, begin: u64) -> bool {
        !self.out
            && self.started_at != 0
            && begin >= self.started_at
            && (self.active || begin <= self.stopped_at)
    }
}
