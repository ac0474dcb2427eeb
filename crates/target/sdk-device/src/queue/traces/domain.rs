//! The domain of thread traces.

use super::keeper::Keeper;
use super::{has_plan, keeper};
use crate::domain::{Device, Domain};
use crate::hooks::{self, Hook};
use midair_record::event::{kind, note};

/// The domain.
#[derive(Debug, Default)]
pub struct ThreadTraces {
    keeper: Option<Keeper>,
}

impl Domain for ThreadTraces {
    fn kind(&self) -> u8 {
        kind::THREAD_TRACE
    }

    fn hooks(&self) -> &'static [Hook] {
        hooks::COUNTERS
    }

    fn open(&mut self, device: &mut Device<'_>) {
        if self.keeper.is_some() || !has_plan() {
            return;
        }
        if device.harvester.counters().is_some() {
            let text = "cannot trace threads: a tool in the process counts";
            device.sink.put(kind::NOTE, &note(text));
            return;
        }
        self.keeper = Some(Keeper::open());
    }

    fn pass(&mut self, device: &mut Device<'_>) -> bool {
        let keeper = self.keeper.as_mut();
        keeper.is_some_and(|keeper| keeper.pass(device.sink))
    }

    fn under_way(&self) -> u64 {
        self.keeper.as_ref().map_or(0, Keeper::under_way)
    }

    fn close(&mut self, _device: &mut Device<'_>) {
        keeper::close();
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
