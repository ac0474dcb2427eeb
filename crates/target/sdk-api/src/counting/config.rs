//! A list of an agent's counters that are counted together.

use super::device::Device;
use super::ids::instance;
use super::table::{Metric, What};
use crate::status::Status;
use midair_abi::counting::CounterRecord;
use midair_counters::counted::{Counted, Properties};
use midair_counters::group::{self, Group};
use midair_counters::plan::{Error, Wanted};
use midair_counters::{Architecture, Event, Position, Template};

/// The counter that is counted when a list has only constants.
const CARRIER: &str = "GRBM_COUNT";

fn group_of(architecture: &'static Architecture, names: &[&str]) -> Result<Group, Status> {
    let mut group = group::one(architecture, names).map_err(|error| match error {
        Error::TooMany { .. } => Status::EXCEEDS_HW_LIMIT,
        Error::Unknown { .. } => Status::PROFILE_COUNTER_NOT_FOUND,
        _ => Status::AST_GENERATION_FAILED,
    })?;
    if group.events.is_empty() {
        // Something has to be counted around a dispatch, so that values are delivered when it ends.
        let carrier = architecture.wanted(CARRIER);
        group.events = carrier.map_or_else(|_| Vec::new(), |wanted| wanted.events);
    }
    Ok(group)
}

/// One counter of the list.
#[derive(Debug)]
struct Listed {
    id: u64,
    /// None for a property of the agent.
    wanted: Option<Wanted>,
    name: &'static str,
}

/// A checked list of counters.
#[derive(Debug)]
pub struct Config {
    device: Device,
    listed: Vec<Listed>,
    /// None for an agent without counters.
    counted: Option<(&'static Architecture, Group)>,
}

impl Config {
    /// Checks that the counters can be counted at once.
    pub(crate) fn new(device: Device, metrics: &[(u64, Metric)]) -> Result<Config, Status> {
        let names: Vec<&str> = metrics
            .iter()
            .filter(|(_, metric)| matches!(metric.what, What::Counted(_)))
            .map(|(_, metric)| metric.name)
            .collect();
        let architecture = metrics.first().map_or_else(
            || Architecture::find(&device.name),
            |(_, metric)| Some(metric.architecture),
        );
        let counted = match architecture {
            Some(architecture) => Some((architecture, group_of(architecture, &names)?)),
            None => None,
        };
        let wanted = |metric: &Metric| match metric.what {
            What::Constant => None,
            What::Counted(_) => {
                let counters = counted.iter().flat_map(|(_, group)| &group.counters);
                counters
                    .into_iter()
                    .find(|wanted| wanted.name == metric.name)
                    .cloned()
            }
        };
        let listed = metrics
            .iter()
            .map(|(id, metric)| Listed {
                id: *id,
                wanted: wanted(metric),
                name: metric.name,
            })
            .collect();
        Ok(Config {
            device,
            listed,
            counted,
        })
    }

    /// Returns the ids of the counters.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.listed.iter().map(|listed| listed.id)
    }

    /// Returns the agent that it is for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the events that the hardware has to count for it, in the order of the events of
    /// [`midair_counters::template::Slot`]; empty if nothing is counted.
    pub fn events(&self) -> &[Event] {
        self.counted
            .as_ref()
            .map_or(&[], |(_, group)| &group.events)
    }

    /// Returns the values of all counters at all places, as a tool gets them. `memory` is what the
    /// template's commands have read into. A counter that cannot be computed has no values.
    pub fn values(&self, template: &Template, memory: &[u64], dispatch: u64) -> Vec<CounterRecord> {
        let nothing = Group::default();
        let (architecture, group) = match &self.counted {
            Some((architecture, group)) => (Some(*architecture), group),
            None => (None, &nothing),
        };
        let counted =
            architecture.map(|found| Counted::read(found, group, template, &self.device, memory));
        let mut all = Vec::new();
        for listed in &self.listed {
            let values = match (&listed.wanted, &counted) {
                (Some(wanted), Some(counted)) => counted.of(wanted).unwrap_or_default(),
                (None, _) => {
                    let value = self.device.get(listed.name);
                    value.map_or_else(Vec::new, |value| vec![(Position::default(), value)])
                }
                _ => Vec::new(),
            };
            all.extend(values.into_iter().map(|(place, value)| CounterRecord {
                id: instance(listed.id, place),
                counter_value: value,
                dispatch_id: dispatch,
                user_data: 0,
                agent_id: self.device.id,
            }));
        }
        all
    }
}
