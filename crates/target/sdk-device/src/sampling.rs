//! Samples of program counters of waves, which AMD's runtime has the devices take.
//!
//! midair's own thread ([`control`]) calls the runtime's functions, since a call may not return: the worker
//! thread waits for none of them longer than until a deadline. The runtime passes samples to
//! [`inbox::ready`], on a thread of its own or on ours. The worker thread takes them from there, finds the
//! code object and the dispatch of each, and writes records.
//!
//! Decisions: AMD-183 (`docs/deviations/amd.md`).

mod calls;
mod control;
pub(crate) mod dispatches;
mod inbox;
pub(crate) mod kept;
mod raw;
mod request;
mod writing;

pub use request::{Method, Request, Unit};

use crate::domain::{Device, Domain};
use crate::queries;
use crate::state::STATE;
use crate::symbols;
use calls::Calls;
use control::{Control, Stage};
use midair_record::event::{kind, note};
use midair_sdk_hot::clock::now;
use std::sync::PoisonError;
use std::time::Duration;
use writing::Writing;

/// How long the runtime's calls may take at the end of a session, in ns. After that the session ends
/// without them.
const PATIENCE: u64 = 2_000_000_000;
/// How long the start of a session waits for the devices to sample, in ns. A short session would see
/// nothing otherwise.
const START: u64 = 500_000_000;
/// How often that is looked at.
const NAP: Duration = Duration::from_millis(1);

/// The domain of one method.
#[derive(Debug)]
pub struct Samples {
    method: Method,
    control: Option<Control>,
    writing: Writing,
    /// When the session asked for the end; 0 = it has not.
    closed: u64,
}

impl Samples {
    /// Makes the domain of a method.
    pub fn new(method: Method) -> Samples {
        Samples {
            method,
            control: None,
            writing: Writing::default(),
            closed: 0,
        }
    }

    fn take(&mut self, device: &mut Device<'_>, at_end: bool) -> bool {
        let Some(control) = &self.control else {
            return false;
        };
        for text in control.complaints() {
            device.sink.put(kind::NOTE, &note(&text));
        }
        self.writing.arrive(inbox::take(), control.agents());
        let dispatches = device.harvester.dispatches();
        self.writing
            .write(self.kind(), dispatches, device.sink, at_end)
    }
}

impl Domain for Samples {
    fn kind(&self) -> u8 {
        match self.method {
            Method::HostTrap => kind::PC_SAMPLING_HOST_TRAP,
            Method::Stochastic => kind::PC_SAMPLING_STOCHASTIC,
        }
    }

    fn open(&mut self, device: &mut Device<'_>) {
        let asked = asked().filter(|request| request.method == self.method);
        let Some(request) = asked.filter(|_| self.control.is_none()) else {
            return;
        };
        let calls = *STATE
            .sampling
            .calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(calls) = calls else {
            let text = "cannot sample program counters: the HSA runtime has no functions for that";
            device.sink.put(kind::NOTE, &note(text));
            return;
        };
        let agents = queries::agents().unwrap_or_default();
        let agents = agents
            .into_iter()
            .filter(|agent| symbols::agent_is_gpu(*agent));
        let agents = agents.map(|agent| (agent, symbols::agent_node(agent)));
        self.closed = 0;
        self.writing = Writing::default();
        device.harvester.dispatches().begin();
        match Control::start(calls, request, agents.collect()) {
            Ok(control) => {
                let begun = now();
                while control.stage() == Stage::Starting && now().saturating_sub(begun) < START {
                    std::thread::sleep(NAP);
                }
                self.control = Some(control);
            }
            Err(error) => {
                let text = format!("cannot sample program counters: no thread for it: {error}");
                device.sink.put(kind::NOTE, &note(&text));
            }
        }
    }

    fn pass(&mut self, device: &mut Device<'_>) -> bool {
        self.take(device, false)
    }

    fn under_way(&self) -> u64 {
        let Some(control) = &self.control else {
            return 0;
        };
        let waits = self.closed != 0
            && control.stage() != Stage::Ended
            && now().saturating_sub(self.closed) < PATIENCE;
        u64::from(waits)
    }

    fn close(&mut self, _device: &mut Device<'_>) {
        if let Some(control) = &self.control {
            self.closed = now().max(1);
            control.end();
        }
    }

    fn restore(&mut self, device: &mut Device<'_>) {
        // The device's last samples come while the runtime ends its session.
        while self.under_way() > 0 {
            self.take(device, false);
            std::thread::sleep(NAP);
        }
    }

    fn books(&mut self, device: &mut Device<'_>) {
        if self.control.is_none() {
            return;
        }
        self.take(device, true);
        let Some(control) = self.control.take() else {
            return;
        };
        let stage = control.stage();
        if stage != Stage::Ended {
            let text = format!(
                "cannot end the sampling of program counters: the runtime's call does not return ({})",
                stage.text()
            );
            device.sink.put(kind::NOTE, &note(&text));
        }
        for text in self.writing.notes(inbox::close()) {
            device.sink.put(kind::NOTE, &note(&text));
        }
        device.harvester.dispatches().end();
    }
}

/// Sets what the next session asks for. Called between sessions.
pub fn ask(request: Option<Request>) {
    *STATE
        .sampling
        .asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = request.map(Box::new);
}

/// Returns what the session asks for.
pub fn asked() -> Option<Request> {
    STATE
        .sampling
        .asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_deref()
        .copied()
}

/// Sets the runtime's functions: the entries of its table, in the table's order.
///
/// # Safety
/// They are functions of the HSA runtime, which is never unloaded.
pub unsafe fn offer(entries: [usize; 7]) {
    // SAFETY: the caller's promise.
    let calls = unsafe { Calls::of(entries) };
    *STATE
        .sampling
        .calls
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = calls;
}
