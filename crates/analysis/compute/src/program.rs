//! Expressions prepared for evaluation: names are resolved to columns and numbers, shorthands are
//! expanded, and parts that several expressions contain are stored once.

use crate::architecture::{Architecture, Form};
use crate::expression::{Comparison, Expression, Function, Malformed, Operator};
use crate::frame::Frame;
use std::collections::{BTreeSet, HashMap};

/// The hardware's name for the sum of a level over time.
pub(crate) const LEVEL_SUM: &str = "SQ_ACCUM_PREV_HIRES";

/// A part of a program.
pub(crate) type Id = u32;

/// What a part computes. Numbers are stored as bits, so that parts can be compared and hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// A number; NaN stands for no value.
    Number(u64),
    /// A column of the frame.
    Column(u32),
    /// The number 1 for each dispatch.
    Ones,
    /// `-x`.
    Negative(Id),
    /// An operation on two values.
    Both(Operator, Id, Id),
    /// 1 where the comparison holds, 0 elsewhere.
    Compare(Comparison, Id, Id),
    /// A condition, the value where it holds, and the value elsewhere.
    If(Id, Id, Id),
    /// The lesser of two in each dispatch.
    Lesser(Id, Id),
    /// The greater of two in each dispatch.
    Greater(Id, Id),
    /// The value without its fraction.
    Whole(Id),
    /// Rounded to this many digits; halves go to the even neighbour.
    Round(Id, i32),
    /// The remainder of a division.
    Rest(Id, Id),
    /// A difference; a negative one becomes zero.
    Clamp(Id),
    /// One value over all dispatches.
    Aggregate(Aggregate, Id),
}

/// How the values of all dispatches become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Aggregate {
    Sum,
    Average,
    Least,
    Greatest,
    Deviation,
    /// The bits of the quantile.
    Quantile(u64),
}

/// What an expression lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Counters and fields that the files do not have.
    pub counters: BTreeSet<String>,
    /// Properties of the GPU that the files do not have.
    pub properties: BTreeSet<String>,
}

impl Lacks {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.properties.is_empty()
    }
}

/// What all expressions are read with.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The architecture, for its shorthands.
    pub architecture: &'static Architecture,
    /// Which formulas are used.
    pub form: Form,
    /// The word of `--normal-unit`.
    pub unit: &'a str,
    /// Properties of the GPU.
    pub properties: &'a HashMap<String, f64>,
}

/// What an expression of one row is read with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Row<'a> {
    /// The level counter that `SQ_ACCUM_PREV_HIRES` stands for, or nothing.
    pub level: &'a str,
    /// The L2 channel that `::_1` stands for.
    pub channel: Option<u32>,
}

/// The expressions over one frame.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    setting: Setting<'a>,
    frame: &'a Frame,
    pub(crate) nodes: Vec<Node>,
    /// Whether each part has a value for each dispatch.
    pub(crate) wide: Vec<bool>,
    ids: HashMap<Node, Id>,
    parsed: HashMap<&'static str, Expression>,
}

impl<'a> Program<'a> {
    pub(crate) fn new(setting: Setting<'a>, frame: &'a Frame) -> Program<'a> {
        Program {
            setting,
            frame,
            nodes: Vec::new(),
            wide: Vec::new(),
            ids: HashMap::new(),
            parsed: HashMap::new(),
        }
    }

    pub(crate) fn frame(&self) -> &'a Frame {
        self.frame
    }

    pub(crate) fn node(&self, id: Id) -> Node {
        self.nodes[id as usize]
    }

    pub(crate) fn is_wide(&self, id: Id) -> bool {
        self.wide[id as usize]
    }

    pub(crate) fn add(&mut self, node: Node) -> Id {
        if let Some(id) = self.ids.get(&node) {
            return *id;
        }
        let wide = match node {
            Node::Number(_) | Node::Aggregate(..) => false,
            Node::Column(_) | Node::Ones => true,
            Node::Negative(a) | Node::Whole(a) | Node::Round(a, _) | Node::Clamp(a) => {
                self.is_wide(a)
            }
            Node::Both(_, a, b)
            | Node::Compare(_, a, b)
            | Node::Lesser(a, b)
            | Node::Greater(a, b)
            | Node::Rest(a, b) => self.is_wide(a) || self.is_wide(b),
            Node::If(a, b, c) => self.is_wide(a) || self.is_wide(b) || self.is_wide(c),
        };
        let id = Id::try_from(self.nodes.len()).unwrap_or(Id::MAX);
        self.nodes.push(node);
        self.wide.push(wide);
        self.ids.insert(node, id);
        id
    }

    fn number(&mut self, number: f64) -> Id {
        self.add(Node::Number(number.to_bits()))
    }

    /// Adds one of the tables' expressions.
    pub(crate) fn take(
        &mut self,
        text: &'static str,
        row: Row<'_>,
        lacks: &mut Lacks,
    ) -> Result<Id, Malformed> {
        if !self.parsed.contains_key(text) {
            self.parsed.insert(text, Expression::parse(text)?);
        }
        let expression = self.parsed.get(text).cloned().unwrap_or(Expression::None);
        self.compile(&expression, row, lacks)
    }

    /// Adds an expression. What it lacks is added to `lacks`, and has no value.
    pub(crate) fn compile(
        &mut self,
        expression: &Expression,
        row: Row<'_>,
        lacks: &mut Lacks,
    ) -> Result<Id, Malformed> {
        let node = match expression {
            Expression::Number(number) => Node::Number(number.to_bits()),
            Expression::None => Node::Number(f64::NAN.to_bits()),
            Expression::Name(name) => return Ok(self.column(name, row, lacks)),
            Expression::Channel(name) => {
                let Some(channel) = row.channel else {
                    return Err(wrong("a channel is used outside a channel table"));
                };
                return Ok(self.column(&format!("{name}[{channel}]"), row, lacks));
            }
            Expression::Variable(name) => return self.variable(name, row, lacks),
            Expression::Negative(a) => Node::Negative(self.compile(a, row, lacks)?),
            Expression::Both(a, how, b) => {
                let a = self.compile(a, row, lacks)?;
                Node::Both(*how, a, self.compile(b, row, lacks)?)
            }
            Expression::Compare(..) => return Err(wrong("a comparison is not a value")),
            Expression::If {
                then,
                condition,
                otherwise,
            } => {
                let Expression::Compare(a, how, b) = &**condition else {
                    return Err(wrong("the condition is not a comparison"));
                };
                let a = self.compile(a, row, lacks)?;
                let b = self.compile(b, row, lacks)?;
                let condition = self.add(Node::Compare(*how, a, b));
                let then = self.compile(then, row, lacks)?;
                Node::If(condition, then, self.compile(otherwise, row, lacks)?)
            }
            Expression::Call(function, values) => {
                let mut ids = Vec::with_capacity(values.len());
                for value in values {
                    ids.push(self.compile(value, row, lacks)?);
                }
                return self.call(*function, &ids);
            }
        };
        Ok(self.add(node))
    }

    fn call(&mut self, function: Function, values: &[Id]) -> Result<Id, Malformed> {
        let node = match (function, values) {
            (Function::Avg, [x]) => return Ok(self.aggregate(Aggregate::Average, *x)),
            (Function::Sum, [x]) => return Ok(self.aggregate(Aggregate::Sum, *x)),
            (Function::Min, [x]) => return Ok(self.aggregate(Aggregate::Least, *x)),
            (Function::Max, [x]) => return Ok(self.aggregate(Aggregate::Greatest, *x)),
            (Function::Std, [x]) => return Ok(self.aggregate(Aggregate::Deviation, *x)),
            (Function::Median, [x]) => {
                return Ok(self.aggregate(Aggregate::Quantile(0.5_f64.to_bits()), *x));
            }
            (Function::Quantile, [x, q]) => {
                let q = self.literal(*q)?;
                return Ok(self.aggregate(Aggregate::Quantile(q.to_bits()), *x));
            }
            (Function::Min, [a, b]) => Node::Lesser(*a, *b),
            (Function::Max, [a, b]) => Node::Greater(*a, *b),
            (Function::ToInt, [x]) => Node::Whole(*x),
            (Function::Round, [x, digits]) => Node::Round(*x, self.literal(*digits)? as i32),
            (Function::Mod, [a, b]) => Node::Rest(*a, *b),
            (Function::NoiseClamp, [difference, _]) => Node::Clamp(*difference),
            _ => return Err(wrong("a function has too many or too few arguments")),
        };
        Ok(self.add(node))
    }

    /// Aggregates over all dispatches. A value that is the same for all stays as it is, as in AMD's
    /// functions.
    pub(crate) fn aggregate(&mut self, how: Aggregate, of: Id) -> Id {
        match (self.is_wide(of), how) {
            (false, Aggregate::Deviation) => self.number(0.0),
            (false, _) => of,
            (true, _) => self.add(Node::Aggregate(how, of)),
        }
    }

    fn literal(&self, id: Id) -> Result<f64, Malformed> {
        match self.node(id) {
            Node::Number(bits) => Ok(f64::from_bits(bits)),
            _ => Err(wrong("expected a literal number")),
        }
    }

    fn column(&mut self, name: &str, row: Row<'_>, lacks: &mut Lacks) -> Id {
        // In files, the sum of a level over time is named after the level (sums of single passes
        // are renamed when they are read). Under the hardware's name it belongs to no level in
        // particular.
        let found = if name == LEVEL_SUM && !row.level.is_empty() {
            self.frame.index(&format!("{}_ACCUM", row.level))
        } else {
            // Values are sums over all places of the GPU, with or without `_sum` in the counter's
            // name.
            let frame = self.frame;
            let plain = || frame.index(name.strip_suffix("_sum")?);
            frame.index(name).or_else(plain)
        };
        match found {
            Some(index) => self.add(Node::Column(u32::try_from(index).unwrap_or(u32::MAX))),
            None => {
                let name = match name {
                    LEVEL_SUM if !row.level.is_empty() => {
                        format!("{}_ACCUM", row.level)
                    }
                    name => name.to_owned(),
                };
                lacks.counters.insert(name);
                // No value for each dispatch.
                let ones = self.add(Node::Ones);
                let nothing = self.number(f64::NAN);
                self.add(Node::Both(Operator::Multiply, ones, nothing))
            }
        }
    }

    fn variable(&mut self, name: &str, row: Row<'_>, lacks: &mut Lacks) -> Result<Id, Malformed> {
        let Setting {
            architecture,
            unit,
            properties,
            ..
        } = self.setting;
        let given = |name: &str| properties.get(name).copied();
        if name == "denom" {
            if unit == "per_kernel" {
                return Ok(self.add(Node::Ones));
            }
            let found = architecture
                .denominators
                .iter()
                .find(|(word, _)| *word == unit);
            let Some((_, text)) = found else {
                return Err(wrong("unknown normalization unit"));
            };
            return self.take(text, row, lacks);
        }
        if let Some((_, text)) = architecture
            .builtins
            .iter()
            .find(|(known, _)| *known == name)
        {
            return self.take(text, row, lacks);
        }
        // The same property has one name in 2025 and another in 2026.
        let other = match name {
            "num_hbm_channels" => "num_memory_channels",
            "num_memory_channels" => "num_hbm_channels",
            other => other,
        };
        match given(name).or_else(|| given(other)) {
            Some(number) => Ok(self.number(number)),
            None => {
                lacks.properties.insert(name.to_owned());
                Ok(self.number(f64::NAN))
            }
        }
    }

    /// Collects the columns that a part reads.
    pub(crate) fn columns(&self, id: Id, into: &mut BTreeSet<u32>) {
        match self.node(id) {
            Node::Column(index) => {
                into.insert(index);
            }
            Node::Number(_) | Node::Ones => {}
            Node::Negative(a)
            | Node::Whole(a)
            | Node::Round(a, _)
            | Node::Clamp(a)
            | Node::Aggregate(_, a) => self.columns(a, into),
            Node::Both(_, a, b)
            | Node::Compare(_, a, b)
            | Node::Lesser(a, b)
            | Node::Greater(a, b)
            | Node::Rest(a, b) => {
                self.columns(a, into);
                self.columns(b, into);
            }
            Node::If(a, b, c) => {
                self.columns(a, into);
                self.columns(b, into);
                self.columns(c, into);
            }
        }
    }
}

fn wrong(what: &str) -> Malformed {
    Malformed {
        at: 0,
        what: what.to_owned(),
    }
}

/// Returns the result of an operation on two numbers.
pub(crate) fn both(how: Operator, a: f64, b: f64) -> f64 {
    match how {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
    }
}

/// Whether a comparison holds. A missing value differs from everything.
pub(crate) fn holds(how: Comparison, a: f64, b: f64) -> bool {
    match how {
        Comparison::Equal => a == b,
        Comparison::NotEqual => a != b,
        Comparison::Less => a < b,
        Comparison::LessEqual => a <= b,
        Comparison::Greater => a > b,
        Comparison::GreaterEqual => a >= b,
    }
}

/// Rounds to this many digits.
pub(crate) fn round(value: f64, digits: i32) -> f64 {
    if digits == 0 {
        return value.round_ties_even();
    }
    let scale = 10_f64.powi(digits);
    (value * scale).round_ties_even() / scale
}

/// Returns the remainder of a division, with the sign of the divisor.
pub(crate) fn rest(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
        rest + b
    } else {
        rest
    }
}

/// Returns the lesser of two; no value where one has none.
pub(crate) fn lesser(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.min(b)
    }
}

/// Returns the greater of two; no value where one has none.
pub(crate) fn greater(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}
