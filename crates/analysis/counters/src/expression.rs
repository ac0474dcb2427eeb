//! The language of derived counters.
//!
//! It has numbers, names of counters and of an agent's properties, `+ - * /`, parentheses, and
//! three functions (source: `docs/sources.md#counters`):
//!
//! * `reduce(X, sum|avr|min|max)`: one value made of all values; with a third argument
//!   `[DIMENSION_A, DIMENSION_B]`, one for each place in the dimensions that are not named.
//! * `select(X, [DIMENSION_A=[1], DIMENSION_B=[0]])`: the values at that place.
//! * `accumulate(X, NONE|LOW_RES|HIGH_RES)`: the event X, which the hardware sums up at each cycle.

use crate::dimension::{Dimension, Position};
use std::fmt;

/// The parsed definition of a derived counter.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// A number.
    Number(f64),
    /// A counter, or a property of the agent.
    Name(String),
    /// An operation on two values at each place.
    Both(Box<Expression>, Operator, Box<Expression>),
    /// The values of several places combined into one.
    Reduce {
        /// The operand.
        of: Box<Expression>,
        /// How they are combined.
        how: Reduction,
        /// The dimensions that are combined; empty: all.
        over: Vec<Dimension>,
    },
    /// The values of some places.
    Select {
        /// The operand.
        of: Box<Expression>,
        /// The number in each of these dimensions.
        at: Vec<(Dimension, u32)>,
    },
    /// A counter that the hardware sums up at each cycle.
    Accumulated(String, Accumulate),
}

/// An operation on two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; by zero gives zero, as in AMD's tools.
    Divide,
}

/// How several values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their mean.
    Average,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

/// How the hardware sums up an event. The discriminants are the flags of AMD's packet library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u32)]
pub enum Accumulate {
    /// It counts the event, and sums up nothing.
    #[default]
    None = 0,
    /// It sums up every few cycles.
    LowRes = 1,
    /// It sums up at each cycle.
    HighRes = 2,
}

/// Why a definition could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The place, in bytes from the start.
    pub at: usize,
    /// What was expected there.
    pub expected: &'static str,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} expected at character {}", self.expected, self.at + 1)
    }
}

impl std::error::Error for Unreadable {}

/// How deep parentheses and functions may be nested.
const DEPTH: u32 = 64;

impl Expression {
    /// Reads a definition.
    ///
    /// # Errors
    /// When the text stops being a definition: says where.
    pub fn parse(text: &str) -> Result<Expression, Unreadable> {
        let mut reader = Reader {
            text,
            at: 0,
            depth: 0,
        };
        let expression = reader.sum()?;
        reader.space();
        if reader.at < text.len() {
            return Err(reader.expected("an operator or the end"));
        }
        Ok(expression)
    }

    /// Calls `see` with each name, and with how it is counted.
    pub fn names(&self, see: &mut impl FnMut(&str, Accumulate)) {
        match self {
            Expression::Number(_) => {}
            Expression::Name(name) => see(name, Accumulate::None),
            Expression::Accumulated(name, how) => see(name, *how),
            Expression::Both(left, _, right) => {
                left.names(see);
                right.names(see);
            }
            Expression::Reduce { of, .. } | Expression::Select { of, .. } => of.names(see),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Reader<'a> {
    fn expected(&self, expected: &'static str) -> Unreadable {
        Unreadable {
            at: self.at,
            expected,
        }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Consumes a character if it is the next one.
    fn takes(&mut self, c: char) -> bool {
        self.space();
        let there = self.rest().starts_with(c);
        self.at += if there { c.len_utf8() } else { 0 };
        there
    }

    fn needs(&mut self, c: char, what: &'static str) -> Result<(), Unreadable> {
        if self.takes(c) {
            Ok(())
        } else {
            Err(self.expected(what))
        }
    }

    /// Consumes the longest run of such characters.
    fn run(&mut self, of: impl Fn(char) -> bool) -> &'a str {
        self.space();
        let rest = self.rest();
        let end = rest.find(|c| !of(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn word(&mut self) -> &'a str {
        self.run(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    fn sum(&mut self) -> Result<Expression, Unreadable> {
        let mut left = self.product()?;
        loop {
            let operator = if self.takes('+') {
                Operator::Add
            } else if self.takes('-') {
                Operator::Subtract
            } else {
                return Ok(left);
            };
            left = Expression::Both(Box::new(left), operator, Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expression, Unreadable> {
        let mut left = self.operand()?;
        loop {
            let operator = if self.takes('*') {
                Operator::Multiply
            } else if self.takes('/') {
                Operator::Divide
            } else {
                return Ok(left);
            };
            left = Expression::Both(Box::new(left), operator, Box::new(self.operand()?));
        }
    }

    fn operand(&mut self) -> Result<Expression, Unreadable> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(self.expected("fewer parentheses"));
        }
        let operand = self.simple();
        self.depth -= 1;
        operand
    }

    fn simple(&mut self) -> Result<Expression, Unreadable> {
        if self.takes('(') {
            let inner = self.sum()?;
            self.needs(')', "a closing parenthesis")?;
            return Ok(inner);
        }
        if self.takes('-') {
            let zero = Box::new(Expression::Number(0.0));
            let negated = Box::new(self.operand()?);
            return Ok(Expression::Both(zero, Operator::Subtract, negated));
        }
        self.space();
        let begin = self.at;
        let number = self.run(|c| c.is_ascii_digit() || c == '.');
        if !number.is_empty() {
            return number
                .parse()
                .map(Expression::Number)
                .map_err(|_| Unreadable {
                    at: begin,
                    expected: "a number",
                });
        }
        match self.word() {
            "" => Err(self.expected("a counter, a number or a parenthesis")),
            "reduce" => self.reduce(),
            "select" => self.select(),
            "accumulate" => self.accumulate(),
            name => Ok(Expression::Name(name.to_owned())),
        }
    }

    fn reduce(&mut self) -> Result<Expression, Unreadable> {
        self.needs('(', "an opening parenthesis")?;
        let of = Box::new(self.sum()?);
        self.needs(',', "a comma")?;
        let how = match self.word() {
            "sum" => Reduction::Sum,
            "avr" => Reduction::Average,
            "min" => Reduction::Min,
            "max" => Reduction::Max,
            _ => return Err(self.expected("sum, avr, min or max")),
        };
        let mut over = Vec::new();
        if self.takes(',') {
            self.needs('[', "an opening bracket")?;
            loop {
                over.push(self.dimension()?);
                if !self.takes(',') {
                    break;
                }
            }
            self.needs(']', "a closing bracket")?;
        }
        self.needs(')', "a closing parenthesis")?;
        Ok(Expression::Reduce { of, how, over })
    }

    fn select(&mut self) -> Result<Expression, Unreadable> {
        self.needs('(', "an opening parenthesis")?;
        let of = Box::new(self.sum()?);
        self.needs(',', "a comma")?;
        self.needs('[', "an opening bracket")?;
        let mut at = Vec::new();
        loop {
            let dimension = self.dimension()?;
            self.needs('=', "an equals sign")?;
            self.needs('[', "an opening bracket")?;
            let number = self.run(|c| c.is_ascii_digit()).parse();
            let number: Option<u32> = number.ok().filter(|number| *number <= Position::MAX);
            at.push((
                dimension,
                number.ok_or_else(|| self.expected("a number below 64"))?,
            ));
            self.needs(']', "a closing bracket")?;
            if !self.takes(',') {
                break;
            }
        }
        self.needs(']', "a closing bracket")?;
        self.needs(')', "a closing parenthesis")?;
        Ok(Expression::Select { of, at })
    }

    fn dimension(&mut self) -> Result<Dimension, Unreadable> {
        Dimension::named(self.word()).ok_or_else(|| self.expected("the name of a dimension"))
    }

    fn accumulate(&mut self) -> Result<Expression, Unreadable> {
        self.needs('(', "an opening parenthesis")?;
        let name = self.word();
        if name.is_empty() {
            return Err(self.expected("a counter"));
        }
        self.needs(',', "a comma")?;
        let how = match self.word() {
            "NONE" => Accumulate::None,
            "LOW_RES" => Accumulate::LowRes,
            "HIGH_RES" => Accumulate::HighRes,
            _ => return Err(self.expected("NONE, LOW_RES or HIGH_RES")),
        };
        self.needs(')', "a closing parenthesis")?;
        Ok(Expression::Accumulated(name.to_owned(), how))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{Architecture, Definition};

    #[test]
    fn all_of_amds_definitions_are_read() {
        let mut read = 0;
        for architecture in Architecture::all() {
            for counter in architecture.counters {
                if let Definition::Derived { expression } = counter.definition {
                    let parsed = Expression::parse(expression);
                    assert!(parsed.is_ok(), "{}: {expression}: {parsed:?}", counter.name);
                    read += 1;
                }
            }
        }
        assert!(read > 700, "{read}");
    }

    #[test]
    fn what_binds_closer_is_done_first() {
        let shown = |text: &str| format!("{:?}", Expression::parse(text).unwrap());
        assert_eq!(shown("a+b*c"), shown("a+(b*c)"));
        assert_eq!(shown("a-b-c"), shown("(a-b)-c"));
        assert_eq!(shown(" a / b * c "), shown("(a/b)*c"));
        assert_ne!(shown("a-(b-c)"), shown("a-b-c"));
    }

    #[test]
    fn mistakes_are_said_with_their_place() {
        for (text, at, expected) in [
            ("", 0, "a counter, a number or a parenthesis"),
            ("a b", 2, "an operator or the end"),
            ("(a", 2, "a closing parenthesis"),
            ("reduce(a,total)", 14, "sum, avr, min or max"),
            ("reduce(a,sum,[X])", 15, "the name of a dimension"),
            ("select(a,[DIMENSION_XCC=[64]])", 27, "a number below 64"),
            ("accumulate(a,FULL)", 17, "NONE, LOW_RES or HIGH_RES"),
            ("1.2.3", 0, "a number"),
            ("é", 0, "a counter, a number or a parenthesis"),
        ] {
            let unreadable = Expression::parse(text).unwrap_err();
            assert_eq!(
                (unreadable.at, unreadable.expected),
                (at, expected),
                "{text}"
            );
        }
        assert!(Expression::parse(&"(".repeat(100_000)).is_err());
        assert!(Expression::parse(&"-".repeat(100_000)).is_err());
    }
}
