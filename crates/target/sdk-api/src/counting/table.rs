//! The counters of all architectures by their ids.
//!
//! Ids are small numbers from 1 on, since AMD's records have only 16 bits for them. Counters with
//! the same name on two architectures have two ids. For each architecture, the properties of an
//! agent come first, as constants.

use crate::status::Status;
use midair_counters::plan::{Error, PROPERTIES};
use midair_counters::{Architecture, Counter, Definitions};

/// The greatest id, since ids have 16 bits.
const MOST: usize = (1 << 16) - 1;

/// A counter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Metric {
    pub architecture: &'static Architecture,
    pub name: &'static str,
    pub what: What,
}

/// What a counter is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    /// A property of the agent.
    Constant,
    /// It is counted, or computed from counted values.
    Counted(&'static Counter),
}

/// An architecture and the ids of its counters.
#[derive(Debug)]
struct Listed {
    architecture: &'static Architecture,
    ids: Vec<u64>,
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Table {
    /// Architecture and name, by id - 1.
    metrics: Vec<(usize, &'static str, bool)>,
    architectures: Vec<Listed>,
    /// Definitions in addition to AMD's.
    added: Definitions,
    /// Whether AMD's counters are left out.
    bare: bool,
}

fn status(error: &Error) -> Status {
    match error {
        Error::Full => Status::OUT_OF_RESOURCES,
        Error::TooMany { .. } => Status::EXCEEDS_HW_LIMIT,
        _ => Status::AST_GENERATION_FAILED,
    }
}

/// Returns an architecture with the added definitions, with or without AMD's counters.
fn with(
    architecture: &'static Architecture,
    bare: bool,
    added: &Definitions,
) -> Result<&'static Architecture, Error> {
    let base = if bare { architecture.bare() } else { None };
    base.unwrap_or(architecture).with(added)
}

impl Table {
    /// Checks that definitions can be used; an invalid one is an invalid argument.
    pub fn check(added: &Definitions, append: bool) -> Result<(), Status> {
        for architecture in Architecture::all() {
            with(architecture, !append, added).map_err(|error| match error {
                Error::Full => Status::OUT_OF_RESOURCES,
                _ => Status::INVALID_ARGUMENT,
            })?;
        }
        Ok(())
    }

    /// Creates the table with what a tool has loaded.
    pub fn new(custom: Option<&(Definitions, bool)>) -> Table {
        let (added, append) = custom.cloned().unwrap_or((Definitions::default(), true));
        let mut table = Table {
            metrics: Vec::new(),
            architectures: Vec::new(),
            added,
            bare: !append,
        };
        for (n, base) in Architecture::all().iter().enumerate() {
            // The definitions were checked when they were loaded.
            let architecture = with(base, table.bare, &table.added).unwrap_or(base);
            let constants = PROPERTIES.iter().map(|name| (n, *name, true));
            let counters = architecture.counters.iter().map(|c| (n, c.name, false));
            let first = table.metrics.len();
            if !architecture.counters.is_empty() {
                table.metrics.extend(constants.chain(counters));
            }
            table.metrics.truncate(MOST);
            table.architectures.push(Listed {
                architecture,
                ids: (first..table.metrics.len())
                    .map(|at| at as u64 + 1)
                    .collect(),
            });
        }
        table
    }

    /// Returns the ids of an architecture's counters; empty for an unknown architecture.
    pub fn of(&self, name: &str) -> Vec<u64> {
        let listed = self
            .architectures
            .iter()
            .find(|listed| listed.architecture.name == name);
        listed.map_or_else(Vec::new, |listed| listed.ids.clone())
    }

    /// Returns a counter by its id.
    pub fn metric(&self, id: u64) -> Option<Metric> {
        let at = usize::try_from(id).ok()?.checked_sub(1)?;
        let (architecture, name, is_constant) = *self.metrics.get(at)?;
        let architecture = self.architectures.get(architecture)?.architecture;
        Some(Metric {
            architecture,
            name,
            what: if is_constant {
                What::Constant
            } else {
                What::Counted(architecture.counter(name)?)
            },
        })
    }

    /// Adds a counter to an architecture. Returns its id.
    pub fn create(
        &mut self,
        name: &str,
        counter: &str,
        expression: &str,
        description: &str,
    ) -> Result<u64, Status> {
        let (n, listed) = self
            .architectures
            .iter_mut()
            .enumerate()
            .find(|(_, listed)| listed.architecture.name == name)
            .ok_or(Status::AGENT_NOT_FOUND)?;
        let is_taken = listed.architecture.counter(counter).is_some()
            || midair_counters::plan::is_property(counter);
        if is_taken {
            return Err(Status::INVALID_ARGUMENT);
        }
        if self.metrics.len() >= MOST {
            return Err(Status::OUT_OF_RESOURCES);
        }
        let mut added = self.added.clone();
        added
            .add(name, counter, description, expression)
            .map_err(|_| Status::INVALID_ARGUMENT)?;
        let base = Architecture::find(name).ok_or(Status::AGENT_NOT_FOUND)?;
        let architecture = with(base, self.bare, &added).map_err(|error| status(&error))?;
        let made = architecture.counter(counter).ok_or(Status::ERROR)?;
        // A counter that cannot be counted at all is refused.
        architecture
            .wanted(counter)
            .map_err(|error| status(&error))?;
        listed.architecture = architecture;
        self.added = added;
        self.metrics.push((n, made.name, false));
        let id = self.metrics.len() as u64;
        listed.ids.push(id);
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(table: &Table, architecture: &str, name: &str) -> u64 {
        let all = table.of(architecture);
        let found = all
            .iter()
            .find(|id| table.metric(**id).unwrap().name == name);
        *found.unwrap()
    }

    #[test]
    fn every_counter_has_an_id_of_its_own() {
        let table = Table::new(None);
        let all: usize = Architecture::all()
            .iter()
            .map(|a| a.counters.len() + PROPERTIES.len())
            .sum();
        assert_eq!(table.metrics.len(), all);
        for architecture in Architecture::all() {
            let ids = table.of(architecture.name);
            assert_eq!(ids.len(), architecture.counters.len() + PROPERTIES.len());
            for id in ids {
                assert_eq!(
                    table.metric(id).unwrap().architecture.name,
                    architecture.name
                );
            }
        }
        assert!(table.metric(0).is_none() && table.metric(all as u64 + 1).is_none());
        assert!(table.metric(u64::MAX).is_none());
        assert!(table.of("gfx900").is_empty());
        let waves = id(&table, "gfx942", "SQ_WAVES");
        assert_ne!(waves, id(&table, "gfx90a", "SQ_WAVES"));
    }

    #[test]
    fn created_counters_come_last_and_ids_stay() {
        let mut table = Table::new(None);
        let waves = id(&table, "gfx942", "SQ_WAVES");
        let made = table.create("gfx942", "TWICE", "2*reduce(SQ_WAVES,sum)", "");
        let made = made.unwrap();
        assert_eq!(made, table.metrics.len() as u64);
        let again = table.create("gfx942", "FOURFOLD", "2*TWICE", "").unwrap();
        assert_eq!(table.metric(again).unwrap().name, "FOURFOLD");
        assert_eq!(id(&table, "gfx942", "SQ_WAVES"), waves);
        assert!(!table.of("gfx90a").contains(&made));
        let wrong = [
            ("gfx942", "TWICE", "1", Status::INVALID_ARGUMENT),
            ("gfx942", "SQ_WAVES", "1", Status::INVALID_ARGUMENT),
            ("gfx942", "simd_count", "1", Status::INVALID_ARGUMENT),
            ("gfx942", "A B", "1", Status::INVALID_ARGUMENT),
            ("gfx942", "BAD", "reduce(", Status::AST_GENERATION_FAILED),
            ("gfx942", "BAD", "NONE_SUCH", Status::AST_GENERATION_FAILED),
            ("gfx900", "BAD", "1", Status::AGENT_NOT_FOUND),
        ];
        for (architecture, name, expression, status) in wrong {
            let made = table.create(architecture, name, expression, "");
            assert_eq!(made, Err(status), "{name} {expression}");
        }
    }
}
