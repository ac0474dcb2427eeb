//! Turns the memory that a group's counters were read into into values of counters.

use crate::architecture::{Architecture, Definition};
use crate::expression::{Accumulate, Expression};
use crate::group::Group;
use crate::plan::Wanted;
use crate::template::Template;
use crate::value::{NoValue, Values};

/// Definitions are followed to this depth of nesting. AMD's are nested four deep at most.
const MOST_DEPTH: usize = 32;

/// What definitions may name besides counters: properties of an agent, under AMD's names
/// ([`crate::plan::is_property`]).
pub trait Properties {
    /// Returns a property; None if it is not known.
    fn get(&self, name: &str) -> Option<f64>;
}

/// The values that were read at one time.
pub struct Counted<'a> {
    architecture: &'static Architecture,
    group: &'a Group,
    properties: &'a dyn Properties,
    /// The values of each event, in the group's order.
    events: Vec<Values>,
}

impl<'a> Counted<'a> {
    /// Takes the values from the memory that a template's commands have read into.
    pub fn read(
        architecture: &'static Architecture,
        group: &'a Group,
        template: &Template,
        properties: &'a dyn Properties,
        memory: &[u64],
    ) -> Counted<'a> {
        let mut events = vec![Values::new(); group.events.len()];
        for (event, position, value) in template.values(memory) {
            if let Some(values) = events.get_mut(event as usize) {
                values.push((position, value as f64));
            }
        }
        for values in &mut events {
            values.sort_by_key(|(position, _)| *position);
        }
        Counted {
            architecture,
            group,
            properties,
            events,
        }
    }

    /// Returns a counter's values by their places.
    ///
    /// # Errors
    /// When an event was not counted, or the operands are not counted at the same places.
    pub fn of(&self, counter: &Wanted) -> Result<Values, NoValue> {
        match &counter.expression {
            Some(expression) => self.compute(expression, 0),
            None => self.look(counter.name, Accumulate::None, 0),
        }
    }

    fn compute(&self, expression: &Expression, depth: usize) -> Result<Values, NoValue> {
        expression.evaluate(&|name, how| self.look(name, how, depth + 1).ok())
    }

    /// Returns the values of an event, of a counter within a definition, or of a property of the
    /// agent.
    fn look(&self, name: &str, how: Accumulate, depth: usize) -> Result<Values, NoValue> {
        let missing = || NoValue::Missing(name.to_owned());
        // AMD names some counters in several ways; all names mean the same event.
        let counter = self.architecture.counter(name);
        let canonical = counter.map_or(name, |counter| counter.name);
        let events = &self.group.events;
        let event = events
            .iter()
            .position(|event| event.name == canonical && event.accumulate == how);
        if let Some(values) = event.and_then(|event| self.events.get(event)) {
            return Ok(values.clone());
        }
        match counter.map(|counter| counter.definition) {
            Some(Definition::Derived { expression }) if depth < MOST_DEPTH => {
                let parsed = Expression::parse(expression).map_err(|_| missing())?;
                self.compute(&parsed, depth)
            }
            Some(_) => Err(missing()),
            None => {
                let property = self.properties.get(name).ok_or_else(missing)?;
                Ok(vec![(Default::default(), property)])
            }
        }
    }
}
