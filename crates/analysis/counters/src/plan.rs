//! What must be counted for the counters that were asked for.

use crate::architecture::{Architecture, Definition};
use crate::expression::{Accumulate, Expression, Unreadable};
use std::collections::BTreeSet;
use std::fmt;

/// An event of the hardware.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event {
    /// The counter's name.
    pub name: &'static str,
    /// Its block.
    pub block: &'static str,
    /// Its number in the block.
    pub event: u32,
    /// How the hardware sums it up.
    pub accumulate: Accumulate,
}

impl Event {
    /// Returns how many of the block's counters it occupies.
    pub fn slots(&self) -> u32 {
        // It takes one counter for the event itself, and one that sums it up.
        if self.accumulate == Accumulate::None {
            1
        } else {
            2
        }
    }
}

/// A counter that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Its name.
    pub name: &'static str,
    /// How it is computed; None for a basic counter.
    pub expression: Option<Expression>,
    /// The events that have to be counted for it, sorted.
    pub events: Vec<Event>,
}

/// Why counters cannot be counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The GPU's counters are not known.
    Gpu(String),
    /// The GPU has no such counter.
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The GPU.
        architecture: &'static str,
        /// Names that resemble it, the nearest first.
        nearest: Vec<&'static str>,
    },
    /// There are more events of one block than it can count at once.
    TooMany {
        /// The block.
        block: &'static str,
        /// How many of its counters would be needed.
        needed: u32,
        /// How many it has.
        there: u32,
    },
    /// A definition cannot be read.
    Definition {
        /// The counter.
        name: String,
        /// What is wrong with it.
        what: Unreadable,
    },
    /// A definition needs itself.
    Circle(String),
    /// An event of another block than SQ cannot be summed up.
    Accumulated(String),
    /// An added definition names a block that the GPU does not have.
    Block {
        /// The counter.
        name: String,
        /// The block.
        block: String,
        /// The GPU.
        architecture: &'static str,
    },
    /// This process has added too many different definitions.
    Full,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Gpu(name) => write!(f, "the counters of {name} are unknown"),
            Error::Unknown {
                name,
                architecture,
                nearest,
            } => {
                write!(f, "{architecture} has no counter {name}")?;
                match &nearest[..] {
                    [] => Ok(()),
                    names => write!(f, "; near it are {}", names.join(", ")),
                }
            }
            Error::TooMany {
                block,
                needed,
                there,
            } => write!(
                f,
                "these counters need {needed} counters of {block}, which has {there}"
            ),
            Error::Definition { name, what } => write!(f, "the definition of {name}: {what}"),
            Error::Circle(name) => write!(f, "the definition of {name} is recursive"),
            Error::Accumulated(name) => {
                write!(f, "{name} cannot be accumulated: only counters of SQ can")
            }
            Error::Block {
                name,
                block,
                architecture,
            } => write!(f, "{name} needs block {block}, which {architecture} lacks"),
            Error::Full => f.write_str("too many different definitions of counters in one process"),
        }
    }
}

impl std::error::Error for Error {}

/// The properties of an agent that definitions may name: fields of `rocprofiler_agent_t`.
pub const PROPERTIES: [&str; 29] = [
    "array_count",
    "caches_count",
    "cpu_core_id_base",
    "cpu_cores_count",
    "cu_per_simd_array",
    "device_id",
    "domain",
    "drm_render_minor",
    "gds_size_in_kb",
    "gfx_target_version",
    "hive_id",
    "io_links_count",
    "lds_size_in_kb",
    "location_id",
    "max_engine_clk_ccompute",
    "max_slots_scratch_cu",
    "max_waves_per_simd",
    "mem_banks_count",
    "num_cp_queues",
    "num_gws",
    "num_sdma_engines",
    "num_sdma_queues_per_engine",
    "num_sdma_xgmi_engines",
    "simd_arrays_per_engine",
    "simd_count",
    "simd_id_base",
    "simd_per_cu",
    "vendor_id",
    "wave_front_size",
];

/// Whether definitions may name this property of an agent.
pub fn is_property(name: &str) -> bool {
    PROPERTIES.binary_search(&name).is_ok()
}

impl Architecture {
    /// Returns what has to be counted for a counter.
    ///
    /// # Errors
    /// When there is no such counter, or a definition is wrong.
    pub fn wanted(&'static self, name: &str) -> Result<Wanted, Error> {
        let mut events = BTreeSet::new();
        let counter = self.collect(name, Accumulate::None, &mut events, &mut Vec::new())?;
        let Some((name, expression)) = counter else {
            return Err(self.unknown(name));
        };
        Ok(Wanted {
            name,
            expression,
            events: events.into_iter().collect(),
        })
    }

    fn unknown(&self, name: &str) -> Error {
        Error::Unknown {
            name: name.to_owned(),
            architecture: self.name,
            nearest: self.nearest(name),
        }
    }

    /// Adds the events that a name needs. Returns the counter of that name; None for an agent's
    /// property.
    fn collect(
        &'static self,
        name: &str,
        accumulate: Accumulate,
        events: &mut BTreeSet<Event>,
        within: &mut Vec<&'static str>,
    ) -> Result<Option<(&'static str, Option<Expression>)>, Error> {
        let Some(counter) = self.counter(name) else {
            let known = !within.is_empty() && is_property(name);
            return if known {
                Ok(None)
            } else {
                Err(self.unknown(name))
            };
        };
        match counter.definition {
            Definition::Basic { block, .. } if block != "SQ" && accumulate != Accumulate::None => {
                Err(Error::Accumulated(name.to_owned()))
            }
            Definition::Basic { block, event } => {
                events.insert(Event {
                    name: counter.name,
                    block,
                    event,
                    accumulate,
                });
                Ok(Some((counter.name, None)))
            }
            Definition::Derived { .. } if accumulate != Accumulate::None => {
                Err(Error::Accumulated(name.to_owned()))
            }
            Definition::Derived { expression } => {
                if within.contains(&counter.name) {
                    return Err(Error::Circle(name.to_owned()));
                }
                let parsed = Expression::parse(expression).map_err(|what| Error::Definition {
                    name: name.to_owned(),
                    what,
                })?;
                within.push(counter.name);
                let mut failed = None;
                parsed.names(&mut |inner, how| {
                    if failed.is_none() {
                        failed = self.collect(inner, how, events, within).err();
                    }
                });
                within.pop();
                failed.map_or(Ok(Some((counter.name, Some(parsed)))), Err)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_every_gpu_can_be_planned() {
        assert!(PROPERTIES.is_sorted());
        for architecture in Architecture::all() {
            for counter in architecture.counters {
                let wanted = architecture.wanted(counter.name);
                assert!(
                    wanted.is_ok(),
                    "{} {}: {wanted:?}",
                    architecture.name,
                    counter.name
                );
            }
        }
    }

    #[test]
    fn a_derived_counter_needs_those_of_its_definition() {
        let gfx942 = Architecture::find("gfx942").unwrap();
        let names = |name: &str| -> Vec<&str> {
            let wanted = gfx942.wanted(name).unwrap();
            wanted.events.iter().map(|event| event.name).collect()
        };
        assert_eq!(names("SQ_WAVES"), ["SQ_WAVES"]);
        assert_eq!(names("FetchSize"), names("FETCH_SIZE"));
        assert_eq!(
            names("FETCH_SIZE"),
            ["TCC_BUBBLE", "TCC_EA0_RDREQ", "TCC_EA0_RDREQ_32B"]
        );
        assert!(names("MAX_WAVE_SIZE").is_empty());
        let occupancy = gfx942.wanted("MeanOccupancyPerCU").unwrap();
        let level = occupancy
            .events
            .iter()
            .find(|e| e.name == "SQ_LEVEL_WAVES")
            .unwrap();
        assert_eq!((level.accumulate, level.slots()), (Accumulate::HighRes, 2));
    }

    #[test]
    fn what_there_is_not_is_said_with_what_was_meant() {
        let gfx942 = Architecture::find("gfx942").unwrap();
        let text = gfx942.wanted("SQ_WAVE").unwrap_err().to_string();
        assert!(
            text.starts_with("gfx942 has no counter SQ_WAVE; near it are SQ_WAVES"),
            "{text}"
        );
        // A property of the agent is no counter.
        assert!(gfx942.wanted("simd_count").is_err());
        assert!(gfx942.wanted("").is_err());
    }
}
