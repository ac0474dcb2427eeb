//! Computes derived counters.
//!
//! A value has a place ([`Position`]): its number in each dimension of its block.
//!
//! * A counter of the hardware has a value for each instance of its block. A number, a property of
//!   the agent, and a value that was reduced over everything are one value, at no place in
//!   particular.
//! * `reduce` over some dimensions keeps the others. `select` keeps the values with these numbers,
//!   which then have no place in those dimensions.
//! * An operator works place by place, and needs the same places on both sides; a single value goes
//!   with all of them. Values of blocks with different dimensions are reduced first.
//! * `accumulate` names another event: the hardware sums it up at each cycle.
//! * A division by zero is zero, and a counter that was not counted has no value.

use crate::dimension::{Dimension, Position};
use crate::expression::{Accumulate, Expression, Operator, Reduction};
use std::collections::BTreeMap;
use std::fmt;

/// A counter's values with their places, sorted. A number is one value at [`Position::default`].
pub type Values = Vec<(Position, f64)>;

/// Why a derived counter has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoValue {
    /// This counter was not counted.
    Missing(String),
    /// Two counters are not counted at the same places.
    Places,
}

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoValue::Missing(name) => write!(f, "{name} was not counted"),
            NoValue::Places => f.write_str("its counters have different dimensions"),
        }
    }
}

impl std::error::Error for NoValue {}

impl Expression {
    /// Computes the expression from what `look` returns: counters, and properties of the agent.
    ///
    /// A value without places (a number, or a value that was reduced to one) goes with every place
    /// of the other operand, on either side of the operator. AMD's tools swap the operands where
    /// the left one has fewer places, which turns `1/X` into `X/1`; we do not (AMD-103).
    ///
    /// # Errors
    /// When a counter was not counted, or when the places of operands differ.
    pub fn evaluate(
        &self,
        look: &impl Fn(&str, Accumulate) -> Option<Values>,
    ) -> Result<Values, NoValue> {
        let known =
            |name: &str, how| look(name, how).ok_or_else(|| NoValue::Missing(name.to_owned()));
        match self {
            Expression::Number(number) => Ok(vec![(Position::default(), *number)]),
            Expression::Name(name) => known(name, Accumulate::None),
            Expression::Accumulated(name, how) => known(name, *how),
            Expression::Both(left, operator, right) => {
                both(left.evaluate(look)?, *operator, right.evaluate(look)?)
            }
            Expression::Reduce { of, how, over } => Ok(reduce(of.evaluate(look)?, *how, over)),
            Expression::Select { of, at } => Ok(select(of.evaluate(look)?, at)),
        }
    }
}

fn both(mut left: Values, operator: Operator, mut right: Values) -> Result<Values, NoValue> {
    let apply = |a: f64, b: f64| match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide if b == 0.0 => 0.0,
        Operator::Divide => a / b,
    };
    if let [(_, b)] = right[..] {
        left.iter_mut().for_each(|(_, a)| *a = apply(*a, b));
        return Ok(left);
    }
    if let [(_, a)] = left[..] {
        right.iter_mut().for_each(|(_, b)| *b = apply(a, *b));
        return Ok(right);
    }
    if left.len() != right.len() || left.iter().zip(&right).any(|(a, b)| a.0 != b.0) {
        return Err(NoValue::Places);
    }
    for (a, b) in left.iter_mut().zip(right) {
        a.1 = apply(a.1, b.1);
    }
    Ok(left)
}

fn reduce(values: Values, how: Reduction, over: &[Dimension]) -> Values {
    let mut groups: BTreeMap<Position, Vec<f64>> = BTreeMap::new();
    for (position, value) in values {
        let place = if over.is_empty() {
            Position::default()
        } else {
            over.iter()
                .fold(position, |place, dimension| place.with(*dimension, 0))
        };
        groups.entry(place).or_default().push(value);
    }
    let one = |values: Vec<f64>| match how {
        Reduction::Sum => values.iter().sum(),
        Reduction::Average => values.iter().sum::<f64>() / values.len() as f64,
        Reduction::Min => values.into_iter().fold(f64::INFINITY, f64::min),
        Reduction::Max => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
    };
    groups
        .into_iter()
        .map(|(place, values)| (place, one(values)))
        .collect()
}

fn select(values: Values, at: &[(Dimension, u32)]) -> Values {
    let here = |position: &Position| at.iter().all(|(d, number)| position.get(*d) == *number);
    let chosen = values.into_iter().filter(|(position, _)| here(position));
    let clear = |position: Position| at.iter().fold(position, |p, (d, _)| p.with(*d, 0));
    chosen
        .map(|(position, value)| (clear(position), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(engine: u32, instance: u32) -> Position {
        Position::default()
            .with(Dimension::ShaderEngine, engine)
            .with(Dimension::Instance, instance)
    }

    /// X is 1, 2, 3, 4 at (0,0), (0,1), (1,0), (1,1); TWO is 2.
    fn look(name: &str, how: Accumulate) -> Option<Values> {
        let factor = if how == Accumulate::HighRes {
            10.0
        } else {
            1.0
        };
        let x = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(instance, engine)| {
            (
                at(engine, instance),
                factor * f64::from(1 + instance + 2 * engine),
            )
        });
        match name {
            "X" => {
                let mut x = x.to_vec();
                x.sort_by_key(|(position, _)| *position);
                Some(x)
            }
            "TWO" => Some(vec![(Position::default(), 2.0)]),
            "OTHER" => Some(vec![(at(0, 0), 1.0), (at(5, 0), 1.0)]),
            _ => None,
        }
    }

    fn compute(text: &str) -> Result<Values, NoValue> {
        Expression::parse(text).unwrap().evaluate(&look)
    }

    fn number(text: &str) -> f64 {
        match compute(text).unwrap()[..] {
            [(_, value)] => value,
            ref values => panic!("{values:?}"),
        }
    }

    #[test]
    fn values_are_reduced_and_combined() {
        assert_eq!(number("reduce(X,sum)"), 10.0);
        assert_eq!(number("reduce(X,avr)"), 2.5);
        assert_eq!(number("reduce(X,max)-reduce(X, min)"), 3.0);
        assert_eq!(number("100*reduce(X,sum)/TWO/4"), 125.0);
        assert_eq!(number("reduce(accumulate(X, HIGH_RES),sum)"), 100.0);
        assert_eq!(number("1/(TWO-2)"), 0.0, "division by zero");
        assert_eq!(number("-TWO"), -2.0);
        assert_eq!(number("reduce(X*X,sum)"), 30.0);
    }

    #[test]
    fn a_number_goes_with_every_place_on_either_side() {
        assert_eq!(number("reduce(X-1,sum)"), 6.0);
        assert_eq!(number("reduce(1-X,sum)"), -6.0);
        assert_eq!(number("reduce(12/X,sum)"), 25.0);
    }

    #[test]
    fn dimensions_are_reduced_and_selected_by_name() {
        let by_engine = compute("reduce(X,sum,[DIMENSION_INSTANCE])").unwrap();
        assert_eq!(by_engine, [(at(0, 0), 3.0), (at(1, 0), 7.0)]);
        assert_eq!(
            number("select(X,[DIMENSION_SHADER_ENGINE=[1], DIMENSION_INSTANCE=[0]])"),
            3.0
        );
        assert!(compute("select(X,[DIMENSION_XCC=[3]])").unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_computed_is_said() {
        assert_eq!(compute("X+Y"), Err(NoValue::Missing("Y".into())));
        assert_eq!(
            compute("reduce(X,sum,[DIMENSION_INSTANCE])+OTHER"),
            Err(NoValue::Places)
        );
    }
}
