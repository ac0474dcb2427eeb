//! Values of a session's counters.

use crate::agent_numbers;
use midair_agents::Agent;
use midair_counters::counted;
use midair_counters::value::Values;
use std::collections::HashMap;

/// The agent's properties, under AMD's names. Definitions may use them besides counters.
#[derive(Debug, Default)]
pub(crate) struct Properties(HashMap<&'static str, u64>);

impl Properties {
    pub(crate) fn of(agent: Option<&Agent>) -> Properties {
        let Some(agent) = agent else {
            return Properties::default();
        };
        let hardware = agent_numbers::hardware(agent).map(|(name, value)| (name, value.into()));
        Properties(
            hardware
                .into_iter()
                .chain(agent_numbers::limits(agent))
                .collect(),
        )
    }
}

impl counted::Properties for Properties {
    fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).map(|value| *value as f64)
    }
}

/// Returns the sum over all places, which is the one number in a row of csv.
pub(crate) fn sum(values: &Values) -> f64 {
    values.iter().map(|(_, value)| value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_counters::counted::Properties as _;
    use midair_counters::plan::PROPERTIES;

    #[test]
    fn each_property_that_definitions_may_name_is_known() {
        let agent = Agent {
            hive_id: 1 << 40,
            ..Agent::default()
        };
        let properties = Properties::of(Some(&agent));
        for name in PROPERTIES {
            assert!(properties.get(name).is_some(), "{name}");
        }
        assert_eq!(properties.get("hive_id"), Some(1_099_511_627_776.0));
        assert_eq!(properties.get("name"), None);
        assert_eq!(Properties::of(None).get("cu_count"), None);
    }
}
