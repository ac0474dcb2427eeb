//! The thread that calls the runtime's functions.

use super::calls::Calls;
use super::inbox;
use super::request::Request;
use midair_lockfree::{AtomicEnum, word_enum};
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often samples are taken out of the device's buffers. Without that, a few samples would wait until
/// the end of the session.
const FLUSH_EVERY: Duration = Duration::from_millis(500);

word_enum! {
    /// What the thread is doing.
    pub(super) enum Stage else Ended {
        /// It asks what the devices offer, and starts.
        Starting = 0,
        /// The devices sample.
        Sampling = 1,
        /// It takes samples out of the device's buffers.
        Flushing = 2,
        /// It stops the devices.
        Stopping = 3,
        /// It gives the runtime's sessions back.
        Destroying = 4,
        /// Everything is over.
        Ended = 5,
    }
}

impl Stage {
    /// Returns the function that may be running.
    pub(super) fn text(self) -> &'static str {
        match self {
            Stage::Starting => "hsa_ven_amd_pcs_create or _start",
            Stage::Sampling | Stage::Ended => "none",
            Stage::Flushing => "hsa_ven_amd_pcs_flush",
            Stage::Stopping => "hsa_ven_amd_pcs_stop",
            Stage::Destroying => "hsa_ven_amd_pcs_destroy",
        }
    }
}

#[derive(Debug)]
struct Shared {
    stage: AtomicEnum<Stage>,
    ends: AtomicBool,
    complaints: Mutex<Vec<String>>,
    lock: Mutex<()>,
    changed: Condvar,
}

/// The thread, seen from the worker thread. It ends by itself after [`Control::end`]; if a call of the
/// runtime does not return, it stays behind.
#[derive(Debug)]
pub(super) struct Control {
    shared: Arc<Shared>,
    /// The nodes of the agents, by the number that their samples carry.
    nodes: Vec<u32>,
}

impl Control {
    /// Starts to sample the agents (handles and nodes).
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn start(
        calls: Calls,
        request: Request,
        agents: Vec<(u64, u32)>,
    ) -> io::Result<Control> {
        let shared = Arc::new(Shared {
            stage: AtomicEnum::new(),
            ends: AtomicBool::new(false),
            complaints: Mutex::new(Vec::new()),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        });
        let session = inbox::open();
        let nodes = agents.iter().map(|(_, node)| *node).collect();
        let ours = shared.clone();
        // The worker thread has all signals blocked, and so has this one, and the threads that the
        // runtime makes for us.
        std::thread::Builder::new()
            .name("midair-samples".into())
            .stack_size(1 << 20)
            .spawn(move || ours.run(calls, request, session, &agents))?;
        Ok(Control { shared, nodes })
    }

    /// Asks the thread to end.
    pub(super) fn end(&self) {
        self.shared.ends.store(true, Release);
        let held = self.shared.lock.lock();
        drop(held.unwrap_or_else(PoisonError::into_inner));
        self.shared.changed.notify_all();
    }

    pub(super) fn stage(&self) -> Stage {
        self.shared.stage.load(Acquire)
    }

    /// Returns what went wrong since the last call.
    pub(super) fn complaints(&self) -> Vec<String> {
        let complaints = &self.shared.complaints;
        std::mem::take(&mut *complaints.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the nodes of the agents, by the number that their samples carry.
    pub(super) fn agents(&self) -> &[u32] {
        &self.nodes
    }
}

impl Shared {
    fn complain(&self, text: String) {
        let mut complaints = self
            .complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        complaints.push(text);
    }

    fn run(&self, calls: Calls, request: Request, session: u32, agents: &[(u64, u32)]) {
        let mut live: Vec<u64> = Vec::new();
        for (number, (agent, node)) in agents.iter().enumerate() {
            match self.begin(calls, request, *agent, inbox::data_of(session, number)) {
                Ok(handle) => live.push(handle),
                Err(why) => self.complain(format!(
                    "cannot sample program counters of the GPU on node {node}: {why}"
                )),
            }
        }
        if agents.is_empty() {
            self.complain("cannot sample program counters: the runtime has no GPU".to_owned());
        }
        while !self.ends.load(Acquire) {
            self.stage.store(Stage::Sampling, Release);
            let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.ends.load(Acquire) {
                drop(self.changed.wait_timeout(held, FLUSH_EVERY));
            }
            self.stage.store(Stage::Flushing, Release);
            for handle in &live {
                // SAFETY: the session is live: it is destroyed below.
                let _ = unsafe { calls.flush(*handle) };
            }
        }
        self.stage.store(Stage::Stopping, Release);
        for handle in &live {
            // SAFETY: as above.
            if let Err(status) = unsafe { calls.stop(*handle) } {
                self.complain(format!(
                    "the runtime did not stop the sampling of program counters (status {status:#x})"
                ));
            }
        }
        self.stage.store(Stage::Flushing, Release);
        for handle in &live {
            // SAFETY: as above.
            let _ = unsafe { calls.flush(*handle) };
        }
        self.stage.store(Stage::Destroying, Release);
        for handle in live {
            // SAFETY: it is live, and not used again.
            if let Err(status) = unsafe { calls.destroy(handle) } {
                self.complain(format!(
                    "the runtime did not give a session of samples back (status {status:#x})"
                ));
            }
        }
        self.stage.store(Stage::Ended, Release);
    }

    /// Makes a session of an agent and starts it.
    fn begin(
        &self,
        calls: Calls,
        request: Request,
        agent: u64,
        data: *mut std::ffi::c_void,
    ) -> Result<u64, String> {
        /// `HSA_STATUS_ERROR_OUT_OF_RESOURCES`.
        const OUT_OF_RESOURCES: u32 = 0x1008;
        calls.check(agent, request)?;
        let refused = |status: u32| match status {
            OUT_OF_RESOURCES => {
                "another session in this process samples, or memory is short".to_owned()
            }
            status => format!(
                "the driver refuses it (status {status:#x}): another process samples with other \
                 settings, or a debugger is attached"
            ),
        };
        let handle = calls
            .create(agent, request, inbox::ready, data)
            .map_err(refused)?;
        // The runtime keeps from the session before which of its two buffers is in use, while the
        // device starts with the first. With samples in the wrong one, a flush would wait for good. A
        // flush now finds none, and sets both to the same (source: `docs/sources.md#samples`).
        // SAFETY: the session was made above.
        let started = unsafe { calls.flush(handle).and_then(|()| calls.start(handle)) };
        started.map_err(|status| {
            // SAFETY: as above; it is not used again.
            let _ = unsafe { calls.destroy(handle) };
            format!("the runtime does not start it (status {status:#x})")
        })?;
        Ok(handle)
    }
}
