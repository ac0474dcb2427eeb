//! Counters of whole devices for the tools in the process ([`Engine`]).

use super::kept::{Counting, Running, locked};
use super::packets_of;
use crate::state::STATE;
use midair_abi::counting::CounterRecord;
use midair_sdk_api::counting::config::Config;
use midair_sdk_api::counting::devices::{self, Engine};
use midair_sdk_api::notes;
use midair_sdk_api::status::Status;
use midair_sdk_device::queue::device::served::{self, Served};
use midair_sdk_device::queue::windows;
use midair_sdk_device::symbols;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Starts counting for running contexts that do not count yet, because the runtime is open and its
/// queues are known. Called on the worker thread, also when contexts have changed. `is_wanted`:
/// some context counts on devices.
pub(crate) fn opened(is_wanted: bool) {
    if !STATE.counting.is_open.swap(true, SeqCst) {
        devices::set_engine(&STATE.counting);
    }
    if is_wanted {
        served::watch();
    }
    devices::runtime_is_open();
}

/// Enables counting in queues that the application has created or used since the last round of the
/// worker thread. Does not wait for a thread that reads.
pub(crate) fn pass() {
    if let Ok(mut all) = STATE.counting.running.try_lock() {
        all.values_mut().for_each(|running| running.served.follow());
    }
}

/// Stops all counting, because the session ends.
pub(crate) fn closes() {
    let counting = &STATE.counting;
    if counting.is_open.swap(false, SeqCst) {
        devices::runtime_closes();
        // Stop counters that a thread of the tool has been using all the time.
        let left = std::mem::take(&mut *locked(&counting.running));
        for running in left.into_values() {
            running.served.stop();
        }
    }
}

impl Engine for Counting {
    fn is_open(&self) -> bool {
        self.is_open.load(SeqCst)
    }

    fn start(&self, config: &Arc<Config>) -> Result<u64, Status> {
        let node = config.device().node;
        let agent = symbols::agents()
            .into_iter()
            .map(|(agent, _)| agent)
            .find(|agent| symbols::agent_node(*agent) == node)
            .ok_or(Status::AGENT_NOT_FOUND)?;
        let told = |why: &str| {
            notes::post_from_anywhere(&format!("cannot count on a device: {why}"));
        };
        if windows::are_taken() || windows::has_plan() {
            told("counters of dispatches are");
            return Err(Status::CONTEXT_CONFLICT);
        }
        let packets = packets_of(config).map_err(|why| {
            told(&why);
            Status::NOT_AVAILABLE
        })?;
        let served = Served::start(agent, &packets.group(node)).map_err(|why| {
            told(why);
            Status::NO_PROFILE_QUEUE
        })?;
        let number = self.next.fetch_add(1, Relaxed);
        let running = Running {
            served,
            packets,
            config: config.clone(),
        };
        let mut all = locked(&self.running);
        if self.is_open() {
            all.insert(number, running);
            return Ok(number);
        }
        // The session has ended in the meantime.
        drop(all);
        running.served.stop();
        Err(Status::HSA_NOT_LOADED)
    }

    fn read(&self, started: u64) -> Result<Vec<CounterRecord>, Status> {
        let mut all = locked(&self.running);
        let running = all.get_mut(&started).ok_or(Status::ERROR)?;
        let words = running.served.read().ok_or(Status::ERROR)?;
        let template = &running.packets.template;
        Ok(running.config.values(template, &words, 0))
    }

    fn stop(&self, started: u64) {
        let running = locked(&self.running).remove(&started);
        if let Some(running) = running {
            running.served.stop();
        }
    }
}
