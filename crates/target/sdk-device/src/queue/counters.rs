//! The domain of hardware counters.

use super::device::sampler::Sampler;
use super::serialized;
use super::timing::to_clock;
use super::windows::{self, keeper::Keeper};
use crate::domain::{Device, Domain};
use crate::hooks::{self, Hook};
use midair_record::event::kind;

/// The domain of counters: windows around dispatches, or readings of whole devices.
#[derive(Debug, Default)]
pub struct Counters {
    /// The number of windows that the device has not read.
    under_way: u64,
    /// Present if whole devices are read.
    sampler: Option<Sampler>,
}

impl Domain for Counters {
    fn kind(&self) -> u8 {
        kind::COUNTER_COLLECTION
    }
    fn hooks(&self) -> &'static [Hook] {
        hooks::COUNTERS
    }
    fn open(&mut self, device: &mut Device<'_>) {
        if windows::is_of_devices() {
            if self.sampler.is_none() {
                self.sampler = Sampler::open();
            }
        } else if windows::has_plan() || windows::tool_requests::is_wanted() {
            device.harvester.counters().get_or_insert_with(Keeper::open);
        }
        if serialized::is_asked() {
            device.harvester.serialized().open(device.sink, to_clock);
        }
    }
    fn pass(&mut self, device: &mut Device<'_>) -> bool {
        let mut read = device.harvester.serialized().pass(device.sink);
        self.under_way = device.harvester.serialized().under_way();
        if let Some(sampler) = &mut self.sampler {
            read += usize::from(sampler.pass(device.sink));
            self.under_way += sampler.under_way();
        }
        if let Some(keeper) = device.harvester.counters() {
            read += keeper.pass(device.sink);
            self.under_way += keeper.under_way();
        }
        read > 0
    }
    fn under_way(&self) -> u64 {
        self.under_way
    }
    fn close(&mut self, _device: &mut Device<'_>) {
        Keeper::close();
        if let Some(sampler) = &mut self.sampler {
            sampler.close();
        }
    }
    fn restore(&mut self, _device: &mut Device<'_>) {
        if let Some(sampler) = &mut self.sampler {
            sampler.restore();
        }
    }
    fn books(&mut self, device: &mut Device<'_>) {
        if let Some(sampler) = &mut self.sampler {
            sampler.finish(device.sink);
        }
        if let Some(keeper) = device.harvester.counters() {
            keeper.finish(device.sink);
        }
        device.harvester.serialized().finish(device.sink);
    }
    fn release(&mut self, device: &mut Device<'_>) {
        self.under_way = 0;
        if let Some(sampler) = self.sampler.take() {
            sampler.release(device.sink);
        }
        if let Some(keeper) = device.harvester.counters().take() {
            keeper.release(device.sink);
        }
    }
}
