//! Which calls are reported to which contexts.

use crate::operations::{Opaque, OperationSet, RequestCallback, TracingCallback};
use midair_domain::KindSet;
use midair_record::event::kind;
use std::sync::atomic::AtomicBool;

/// A context's service.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// Handle of the context.
    pub context: u64,
    /// Whether the context is running: it may have been stopped since the services were published.
    pub on: &'static AtomicBool,
    /// Operations that are reported to it.
    pub operations: OperationSet,
    /// The tool's function.
    pub callback: TracingCallback,
    /// Its data.
    pub data: Opaque,
}

/// A context's request to be asked for external correlation ids.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Handle of the context.
    pub context: u64,
    /// Whether the context is running.
    pub on: &'static AtomicBool,
    /// Record kinds whose events it is asked for.
    pub kinds: KindSet,
    /// The record kinds whose records go into its buffers.
    pub stored: KindSet,
    /// The tool's function.
    pub callback: RequestCallback,
    /// Its data.
    pub data: Opaque,
}

/// The callback services of the running contexts, by record kind. Never changed once published.
#[derive(Debug, Clone)]
pub struct Services {
    by_kind: Vec<Vec<Service>>,
    /// Services for HIP streams.
    streams: Vec<Service>,
    /// Contexts that are asked for external ids.
    requests: Vec<Request>,
    /// Kinds with a service.
    kinds: KindSet,
}

impl Default for Services {
    fn default() -> Services {
        Services {
            by_kind: vec![Vec::new(); usize::from(KindSet::LIMIT)],
            streams: Vec::new(),
            requests: Vec::new(),
            kinds: KindSet::EMPTY,
        }
    }
}

impl Services {
    /// Adds a service for calls of a record kind ([`super::record_kind`]).
    pub fn add(&mut self, record_kind: u8, service: Service) {
        if let Some(list) = self.by_kind.get_mut(usize::from(record_kind)) {
            self.kinds = self.kinds.with(record_kind);
            if record_kind == kind::MARKER_CORE_RANGE_API {
                // Ranges are made from the calls that start and end them.
                self.kinds = self.kinds.with(kind::MARKER_CORE_API);
            }
            list.push(service);
        }
    }

    /// Adds a service for HIP streams.
    pub fn add_streams(&mut self, service: Service) {
        self.kinds = self.kinds.with(kind::HIP_RUNTIME_API_EXT);
        self.streams.push(service);
    }

    /// Adds a context that is asked for external ids.
    pub fn add_request(&mut self, request: Request) {
        if !request.kinds.is_empty() {
            self.kinds |= request.kinds;
            self.requests.push(request);
        }
    }

    /// Whether there are no services.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns the services for calls of a record kind.
    pub(super) fn of(&self, record_kind: u8) -> impl Iterator<Item = &Service> {
        self.by_kind
            .get(usize::from(record_kind))
            .into_iter()
            .flatten()
    }

    /// Returns the services for HIP streams.
    pub(super) fn streams(&self) -> impl Iterator<Item = &Service> {
        self.streams.iter()
    }

    /// Returns the contexts that are asked for the external ids of a kind.
    pub(super) fn requests(&self, record_kind: u8) -> impl Iterator<Item = &Request> {
        self.requests
            .iter()
            .filter(move |request| request.kinds.contains(record_kind))
    }

    /// Returns the kinds with a service.
    pub fn kinds(&self) -> KindSet {
        self.kinds
    }
}
