//! From the memory that a window's counters were read into to values of counters.

use crate::json::pieces;
use midair_agents::Agent;
use midair_counters::plan::Wanted;
use midair_counters::value::{NoValue, Values};
use midair_counters::{Accumulate, Definition, Expression, Prepared};
use serde_json::{Map, Value};

/// Definitions within definitions beyond this depth are not followed. AMD's have at most four.
const MOST_DEPTH: usize = 32;

/// What definitions may name besides counters: properties of an agent, under AMD's names.
#[derive(Debug, Default)]
pub(crate) struct Properties(Map<String, Value>);

impl Properties {
    pub(crate) fn of(agent: Option<&Agent>) -> Properties {
        let text = agent.and_then(|agent| pieces::agent(agent).ok());
        let value = text.and_then(|text| serde_json::from_str(&text).ok());
        Properties(value.unwrap_or_default())
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }
}

/// Values of one window.
pub(crate) struct Counted<'a> {
    prepared: &'a Prepared,
    properties: &'a Properties,
    /// Of each event, in the group's order.
    events: Vec<Values>,
}

impl<'a> Counted<'a> {
    pub(crate) fn read(
        prepared: &'a Prepared,
        properties: &'a Properties,
        memory: &[u64],
    ) -> Counted<'a> {
        let mut events = vec![Values::new(); prepared.group.events.len()];
        for (event, position, value) in prepared.template.values(memory) {
            if let Some(values) = events.get_mut(event as usize) {
                values.push((position, value as f64));
            }
        }
        for values in &mut events {
            values.sort_by_key(|(position, _)| *position);
        }
        Counted {
            prepared,
            properties,
            events,
        }
    }

    /// A counter's values by their places.
    pub(crate) fn of(&self, counter: &Wanted) -> Result<Values, NoValue> {
        match &counter.expression {
            Some(expression) => self.compute(expression, 0),
            None => self.look(counter.name, Accumulate::None, 0),
        }
    }

    fn compute(&self, expression: &Expression, depth: usize) -> Result<Values, NoValue> {
        expression.evaluate(&|name, how| self.look(name, how, depth + 1).ok())
    }

    /// An event, a counter within a definition, or a property of the agent.
    fn look(&self, name: &str, how: Accumulate, depth: usize) -> Result<Values, NoValue> {
        let missing = || NoValue::Missing(name.to_owned());
        // AMD's names of counters in several forms mean one event.
        let counter = self.prepared.architecture.counter(name);
        let canonical = counter.map_or(name, |counter| counter.name);
        let events = &self.prepared.group.events;
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

/// The sum over all places: the one number that a row of csv has.
pub(crate) fn sum(values: &Values) -> f64 {
    values.iter().map(|(_, value)| value).sum()
}
