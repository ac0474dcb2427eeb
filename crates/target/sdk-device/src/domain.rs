//! The part of a domain that is in the target: what a collection does for it, step by step.
//!
//! `midair-domain` has a row for each domain: which option asks for it, and how files name it. What
//! happens in the target is a [`Domain`]. A collection iterates over [`crate::domains::all`] at
//! each step, in this order, and knows no domain by name.

use crate::hook::Hook;
use crate::queue::harvest::Harvester;
use crate::sink::Sink;
use midair_domain::{KindSet, sets};
use std::sync::atomic::AtomicPtr;

/// What the worker thread can use at each step.
#[derive(Debug)]
pub struct Device<'a> {
    /// The signals, and what is known about agents.
    pub harvester: &'a mut Harvester,
    /// Where records are written.
    pub sink: &'a mut Sink,
}

/// An entry of the runtime's table for tools: the place for its earlier value, and the value that
/// is stored.
pub type Entry = (&'static AtomicPtr<()>, *mut ());

/// What happens in the target for one kind of records. All steps run on the worker thread.
pub trait Domain: std::fmt::Debug + Send {
    /// Returns the kind of its records.
    fn kind(&self) -> u8;

    /// Returns the hooks that are stored in slots of dispatch tables while the domain is wanted.
    fn hooks(&self) -> &'static [Hook] {
        &[]
    }

    /// Returns what is stored in the entries of the runtime's table for tools while the domain is
    /// wanted, in the table's order.
    fn entries(&self) -> Vec<Entry> {
        Vec::new()
    }

    /// Starts a collection. Nothing is hooked, and no thread is inside. `wanted` are the kinds of
    /// its records.
    fn begin(&mut self, _wanted: KindSet) {}

    /// Tells which kinds of records, of all domains, the running contexts want now. Called at the
    /// start and whenever that changes.
    fn wanted(&mut self, _kinds: KindSet) {}

    /// Tells that the HSA runtime is open. `born_here` says that it was seen closed in this
    /// collection.
    fn runtime_is_open(&mut self, _born_here: bool) {}

    /// Opens the domain, which is wanted, when signals are available. Called again when contexts
    /// change.
    fn open(&mut self, _device: &mut Device<'_>) {}

    /// Does one round. Returns whether anything was written.
    fn pass(&mut self, _device: &mut Device<'_>) -> bool {
        false
    }

    /// Returns how much work has not ended.
    fn under_way(&self) -> u64 {
        0
    }

    /// Stops accepting new work. The hooks stay while the rest ends.
    fn close(&mut self, _device: &mut Device<'_>) {}

    /// Does the last step before the hooks are removed, when the wait for the rest is over.
    fn restore(&mut self, _device: &mut Device<'_>) {}

    /// Writes what has not ended, and the counts. The hooks are removed, and no thread is inside.
    fn books(&mut self, _device: &mut Device<'_>) {}

    /// Gives our objects back to the runtime, after all domains have written their counts.
    fn release(&mut self, _device: &mut Device<'_>) {}
}

/// Returns whether a domain needs the device side: queues, signals, and the harvest of completions.
pub fn needs_device(domain: &dyn Domain) -> bool {
    sets::NEEDS_DEVICE.contains(domain.kind())
}
