//! Counters of whole devices, read from records while they arrive.

use crate::counters::{Counting, PartialReading, values};
use midair_agents::Agent;
use midair_counters::CounterPlan;
use midair_record::event::CounterWindow;

/// What a counter of a device was from one reading to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceValue {
    /// KFD node id of the device.
    pub node: u32,
    /// The counter.
    pub name: &'static str,
    /// Whether the value is a rate: a counter that is a sum over time. Others are ratios and the
    /// like.
    pub per_second: bool,
    /// When the reading before was made, CLOCK_BOOTTIME ns.
    pub start: u64,
    /// When this one was made.
    pub end: u64,
    /// The value, over all instances of the counter.
    pub value: f64,
}

/// Assembles the readings of a session from its records.
#[derive(Debug)]
pub struct DeviceReadings {
    plan: CounterPlan,
    counting: Counting,
    partial: PartialReading,
}

impl DeviceReadings {
    /// Returns the reader for this plan, or none if the counters do not count whole devices.
    pub fn of(plan: &CounterPlan, agents: &[Agent]) -> Option<DeviceReadings> {
        if plan.interval == 0 {
            return None;
        }
        let agent = |node: u32| agents.iter().find(|agent| agent.node_id == node).cloned();
        Some(DeviceReadings {
            counting: Counting::of_plan(plan, agent),
            plan: plan.clone(),
            partial: PartialReading::default(),
        })
    }

    /// Takes a record. Returns the values of all counters when the last record of a reading has
    /// come.
    pub fn take(&mut self, part: &CounterWindow, words: &[u8]) -> Vec<DeviceValue> {
        let reading = self.partial.part(&self.plan, &self.counting, part, words);
        let Some(reading) = reading else {
            return Vec::new();
        };
        let counters = reading.counters.iter();
        counters
            .map(|(_, name, all, is_sum)| DeviceValue {
                node: reading.node,
                name,
                per_second: *is_sum,
                start: reading.start,
                end: reading.end,
                value: reading.shown(values::sum(all), *is_sum),
            })
            .collect()
    }
}
