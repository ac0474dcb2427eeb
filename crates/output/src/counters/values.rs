//! Values of a session's counters.

use crate::json::pieces;
use midair_agents::Agent;
use midair_counters::counted;
use midair_counters::value::Values;
use serde_json::{Map, Value};

/// The agent's properties, under AMD's names. Definitions may use them besides counters.
#[derive(Debug, Default)]
pub(crate) struct Properties(Map<String, Value>);

impl Properties {
    pub(crate) fn of(agent: Option<&Agent>) -> Properties {
        let text = agent.and_then(|agent| pieces::agent(agent).ok());
        let value = text.and_then(|text| serde_json::from_str(&text).ok());
        Properties(value.unwrap_or_default())
    }
}

impl counted::Properties for Properties {
    fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }
}

/// Returns the sum over all places, which is the one number in a row of csv.
pub(crate) fn sum(values: &Values) -> f64 {
    values.iter().map(|(_, value)| value).sum()
}
