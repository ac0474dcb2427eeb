//! The counters that metrics need.

use crate::architecture::{Architecture, Form, Metric};
use crate::expression::Expression;
use crate::frame::field;
use crate::program::LEVEL_SUM;
use std::collections::BTreeSet;

/// Adds the counters that an expression needs.
pub(crate) fn counters_of(
    text: &str,
    level: &str,
    architecture: &'static Architecture,
    into: &mut BTreeSet<String>,
) {
    // All expressions of the tables can be parsed (tests/evaluation.rs).
    let Ok(expression) = Expression::parse(text) else {
        return;
    };
    let mut open = vec![expression];
    while let Some(expression) = open.pop() {
        match expression {
            Expression::Name(name) => {
                let name = match name.split_once('[') {
                    // The channels are instances of one counter.
                    Some((counter, _)) => counter.to_owned(),
                    None if name == LEVEL_SUM && !level.is_empty() => {
                        format!("{level}_ACCUM")
                    }
                    None => name,
                };
                if !field::OF_DISPATCH.contains(&name.as_str()) && !name.ends_with("_Timestamp") {
                    into.insert(name);
                }
            }
            Expression::Channel(name) => {
                into.insert(name);
            }
            Expression::Variable(name) => {
                if name == "denom" {
                    for (_, text) in architecture.denominators {
                        counters_of(text, level, architecture, into);
                    }
                } else if let Some((_, text)) = architecture
                    .builtins
                    .iter()
                    .find(|(known, _)| *known == name)
                {
                    counters_of(text, level, architecture, into);
                }
            }
            Expression::Number(_) | Expression::None => {}
            Expression::Negative(a) => open.push(*a),
            Expression::Both(a, _, b) | Expression::Compare(a, _, b) => open.extend([*a, *b]),
            Expression::If {
                then,
                condition,
                otherwise,
            } => open.extend([*then, *condition, *otherwise]),
            Expression::Call(_, values) => open.extend(values),
        }
    }
}

/// Returns the counters that a metric needs, in both forms.
pub(crate) fn counters(metric: &Metric, architecture: &'static Architecture) -> BTreeSet<String> {
    let mut counters = BTreeSet::new();
    for cell in metric.cells {
        for form in [Form::Means, Form::Sums] {
            if let Some(text) = cell.content.formula(form) {
                counters_of(text, metric.level, architecture, &mut counters);
            }
        }
    }
    counters
}
