//! The domain of kernel dispatches.

use super::direct;
use super::state;
use crate::domain::{Device, Domain};
use crate::hooks::{self, Hook};
use midair_domain::KindSet;
use midair_record::event::{kind, note};

/// The domain of kernel dispatches.
#[derive(Debug, Clone, Copy)]
pub struct Kernels;

impl Domain for Kernels {
    fn kind(&self) -> u8 {
        kind::KERNEL_DISPATCH
    }
    fn hooks(&self) -> &'static [Hook] {
        hooks::KERNELS
    }
    fn begin(&mut self, _wanted: KindSet) {
        state::clear();
    }
    fn runtime_is_open(&mut self, born_here: bool) {
        state::set_born_here(born_here);
        state::set_direct(direct::is_asked_for());
    }
    fn pass(&mut self, device: &mut Device<'_>) -> bool {
        device.harvester.pass(device.sink) > 0
    }
    fn under_way(&self) -> u64 {
        // No thread waits for a barrier: it may wait for an event that never comes.
        state::all().map(|queue| queue.flights.dispatches()).sum()
    }
    fn close(&mut self, device: &mut Device<'_>) {
        device.harvester.close(device.sink);
    }
    fn restore(&mut self, device: &mut Device<'_>) {
        device.harvester.put_back();
    }
    fn books(&mut self, device: &mut Device<'_>) {
        device.harvester.finish(device.sink);
    }
    fn release(&mut self, device: &mut Device<'_>) {
        let unseen = state::unseen();
        if unseen > 0 {
            let text = format!("{unseen} queues were not recorded: their number exceeds a limit");
            device.sink.put(kind::NOTE, &note(&text));
        }
        let others = state::other_engines();
        if others > 0 {
            let text = format!(
                "{others} copy engine queues that the program created itself were not recorded: their copies are not in the trace"
            );
            device.sink.put(kind::NOTE, &note(&text));
        }
        device.harvester.give_back();
    }
}
