//! Hardware counters as a domain.

use super::windows::keeper::Keeper;
use crate::domain::{Device, Domain};
use crate::hooks::{self, Hook};
use midair_domain::KindSet;
use midair_record::event::kind;

/// Windows of counters around dispatches.
#[derive(Debug, Default)]
pub struct Counters {
    keeper: Option<Keeper>,
    /// Memory and signals were asked for in this collection.
    opened: bool,
}

impl Domain for Counters {
    fn kind(&self) -> u8 {
        kind::COUNTER_COLLECTION
    }
    fn hooks(&self) -> &'static [Hook] {
        hooks::COUNTERS
    }
    fn begin(&mut self, _wanted: KindSet) {
        self.opened = false;
    }
    fn open(&mut self) {
        if !std::mem::replace(&mut self.opened, true) {
            self.keeper = Some(Keeper::open());
        }
    }
    fn pass(&mut self, device: &mut Device<'_>) -> bool {
        let keeper = self.keeper.as_mut();
        keeper.is_some_and(|keeper| keeper.pass(device.sink) > 0)
    }
    fn under_way(&self) -> u64 {
        self.keeper.as_ref().map_or(0, Keeper::under_way)
    }
    fn close(&mut self, _device: &mut Device<'_>) {
        if let Some(keeper) = &mut self.keeper {
            keeper.close();
        }
    }
    fn books(&mut self, device: &mut Device<'_>) {
        if let Some(keeper) = &mut self.keeper {
            keeper.finish(device.sink);
        }
    }
    fn release(&mut self, device: &mut Device<'_>) {
        if let Some(keeper) = self.keeper.take() {
            keeper.release(device.sink);
        }
    }
}
