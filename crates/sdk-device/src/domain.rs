//! A domain in the target: what a collection does for it, step by step.
//!
//! `midair-domain` has the row of each domain: who asks for it and how files name it. What happens in
//! the target is a [`Domain`]; a collection iterates over [`crate::domains::all`] at each step, in this order, and
//! knows no domain by name.

use crate::hook::Hook;
use crate::queue::harvest::Harvester;
use crate::sink::Sink;
use midair_domain::{KindSet, sets};
use std::sync::atomic::AtomicPtr;

/// What the worker has at hand at each step.
#[derive(Debug)]
pub struct Device<'a> {
    /// Signals, and what is known of agents.
    pub harvester: &'a mut Harvester,
    /// Where records are written.
    pub sink: &'a mut Sink,
}

/// An entry of the runtime's table for tools: where what it held before goes, and what goes in.
pub type Entry = (&'static AtomicPtr<()>, *mut ());

/// What happens in the target for one kind of records. All steps are the worker thread's.
pub trait Domain: std::fmt::Debug + Send {
    /// Kind of its records.
    fn kind(&self) -> u8;

    /// What stands in the slots of API tables while it is wanted.
    fn hooks(&self) -> &'static [Hook] {
        &[]
    }

    /// What stands in the entries of the runtime's table for tools while it is wanted, in the
    /// table's order.
    fn entries(&self) -> Vec<Entry> {
        Vec::new()
    }

    /// A collection begins: nothing is hooked, and no thread is inside. `wanted`: kinds of its
    /// records.
    fn begin(&mut self, _wanted: KindSet) {}

    /// What the running contexts want by now: kinds of records of all sorts. Called at the begin and
    /// whenever it changes.
    fn wanted(&mut self, _kinds: KindSet) {}

    /// The HSA runtime is open. `born_here`: it was seen closed in this collection.
    fn runtime_is_open(&mut self, _born_here: bool) {}

    /// It is wanted, and signals are there. Called again when contexts change.
    fn open(&mut self, _device: &mut Device<'_>) {}

    /// One round. Returns whether anything was written.
    fn pass(&mut self, _device: &mut Device<'_>) -> bool {
        false
    }

    /// Work that has not ended.
    fn under_way(&self) -> u64 {
        0
    }

    /// Nothing new is taken on; the hooks stay, while the rest ends.
    fn close(&mut self, _device: &mut Device<'_>) {}

    /// The rest has had its time: the last step before the hooks are removed.
    fn restore(&mut self, _device: &mut Device<'_>) {}

    /// The hooks are removed, and no thread is inside: writes what has not ended, and the counts.
    fn books(&mut self, _device: &mut Device<'_>) {}

    /// All domains have written theirs: gives the runtime back what is ours.
    fn release(&mut self, _device: &mut Device<'_>) {}
}

/// Whether a domain needs the device side: queues, signals, and the collecting of completions.
pub fn needs_device(domain: &dyn Domain) -> bool {
    sets::NEEDS_DEVICE.contains(domain.kind())
}
