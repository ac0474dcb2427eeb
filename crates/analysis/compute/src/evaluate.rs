//! Evaluation of metrics over dispatches.
//!
//! A part of an expression has either one value, or one value for each dispatch. Values of
//! dispatches are computed in blocks that fit into the processor's cache, and only where an
//! aggregate over all dispatches needs them. A part that several metrics share is computed once.
//! Where counters took turns, see [`crate::sample`].
//! [`crate::sample`].

mod walk;

use crate::architecture::Form;
use crate::expression::Malformed;
use crate::frame::{Column, Frame};
use crate::program::{self, Aggregate, Id, Lacks, Node, Program, Row, Setting};
use crate::read::PEAK;
use crate::sample::{Rows, Sample, half_width};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::rc::Rc;
use walk::Walk;

/// A value of a metric, or why there is none.
#[derive(Debug, Clone)]
pub struct Value {
    /// The value.
    pub result: Result<f64, Why>,
    /// How many dispatches were counted for it.
    pub n: usize,
    /// How many dispatches it describes.
    pub of: usize,
    /// The share of their time that the counted dispatches took, from 0 to 1.
    pub coverage: f64,
    /// Half the width of the interval in which the value lies with 95 % confidence. None: unknown,
    /// or every dispatch was counted.
    pub half_width: Option<f64>,
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Why {
    /// Counters were not collected, or properties of the GPU are not known.
    Lacks(String),
    /// Its counters were never counted in the same window.
    Apart,
    /// No window counted it in the chosen dispatches.
    Uncounted,
    /// A division by zero.
    ByZero,
    /// No dispatch was chosen.
    NoDispatch,
    /// The tables have no formula for this value.
    NoFormula,
    /// The formula cannot be parsed.
    Malformed(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Lacks(what) => f.write_str(what),
            Why::Apart => f.write_str("no dispatch has values of all its counters"),
            Why::Uncounted => f.write_str("no selected dispatch has values of its counters"),
            Why::ByZero => f.write_str("its divisor is zero"),
            Why::NoDispatch => f.write_str("no dispatch is selected"),
            Why::NoFormula => f.write_str("this architecture has no formula for it"),
            Why::Malformed(what) => write!(f, "its formula cannot be read: {what}"),
        }
    }
}

impl Value {
    fn unknown(why: Why, of: usize) -> Value {
        Value {
            result: Err(why),
            n: 0,
            of,
            coverage: 0.0,
            half_width: None,
        }
    }

    /// Returns the number, if there is one.
    pub fn number(&self) -> Option<f64> {
        self.result.as_ref().ok().copied()
    }

    /// Whether every dispatch was counted.
    pub fn is_exact(&self) -> bool {
        self.n == self.of
    }

    /// Whether the value, and the whole of its interval, is above a limit that it cannot exceed.
    pub fn exceeds(&self, limit: f64) -> bool {
        let half_width = self.half_width.or(self.is_exact().then_some(0.0));
        // What only rounding makes larger than the limit is not meant.
        let is_above = |(value, half): (f64, f64)| value - half > limit * (1.0 + 1e-9);
        self.number().zip(half_width).is_some_and(is_above)
    }
}

/// Sums and extremes of a part: first the estimate, then the values with each group left out.
#[derive(Debug, Clone)]
struct Stats {
    sum: Vec<f64>,
    count: Vec<f64>,
    least: f64,
    greatest: f64,
}

/// Evaluates metrics over chosen dispatches of a frame.
#[derive(Debug)]
pub struct Evaluator<'a> {
    program: Program<'a>,
    form: Form,
    rows: Rows,
    /// How many dispatches the rows stand for.
    of: usize,
    samples: Vec<Rc<Sample>>,
    sample_of: HashMap<Vec<u32>, usize>,
    stats: HashMap<(Id, usize), Rc<Stats>>,
    gaps: HashMap<u32, bool>,
}

impl<'a> Evaluator<'a> {
    /// Creates an evaluator over these dispatches.
    pub fn new(setting: Setting<'a>, frame: &'a Frame, rows: Rows) -> Evaluator<'a> {
        Evaluator {
            form: setting.form,
            program: Program::new(setting, frame),
            of: rows.dispatches(frame),
            rows,
            samples: Vec::new(),
            sample_of: HashMap::new(),
            stats: HashMap::new(),
            gaps: HashMap::new(),
        }
    }

    /// Applies the same formulas to other dispatches.
    pub fn choose(&mut self, rows: Rows) {
        self.of = rows.dispatches(self.program.frame());
        self.rows = rows;
        self.samples.clear();
        self.sample_of.clear();
        self.stats.clear();
    }

    /// Returns the chosen dispatches.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Returns the value of one of the tables' expressions.
    pub fn value(&mut self, text: &'static str, row: Row<'_>) -> Value {
        let mut lacks = Lacks::default();
        let id = self.program.take(text, row, &mut lacks);
        self.finish(id, &lacks)
    }

    /// Returns minimum, quartiles and maximum of an expression that has a value for each dispatch.
    pub fn spread(&mut self, text: &'static str, row: Row<'_>) -> [Value; 5] {
        let quantile = |q: f64| Aggregate::Quantile(q.to_bits());
        [
            Aggregate::Least,
            quantile(0.25),
            quantile(0.5),
            quantile(0.75),
            Aggregate::Greatest,
        ]
        .map(|how| {
            let mut lacks = Lacks::default();
            let id = self.program.take(text, row, &mut lacks);
            let id = id.map(|id| self.program.aggregate(how, id));
            self.finish(id, &lacks)
        })
    }

    fn finish(&mut self, id: Result<Id, Malformed>, lacks: &Lacks) -> Value {
        let of = self.of;
        let id = match id {
            Ok(id) => id,
            Err(malformed) => return Value::unknown(Why::Malformed(malformed.to_string()), of),
        };
        if !lacks.is_empty() {
            return Value::unknown(Why::Lacks(lacking(lacks)), of);
        }
        let mut columns = BTreeSet::new();
        self.program.columns(id, &mut columns);
        if of == 0 && !columns.is_empty() {
            return Value::unknown(Why::NoDispatch, of);
        }
        columns.retain(|column| self.has_gaps(*column));
        let columns: Vec<u32> = columns.into_iter().collect();
        let number = self.sample(&columns);
        let sample = Rc::clone(&self.samples[number]);
        let (replicates, sample) = if sample.rows.is_empty() && !columns.is_empty() {
            // Evaluate each column by itself: its counters were counted in different counter
            // groups, and so in different windows.
            let mut least: Option<Rc<Sample>> = None;
            for column in &columns {
                let number = self.sample(&[*column]);
                let alone = &self.samples[number];
                if alone.rows.is_empty() {
                    return Value::unknown(Why::Uncounted, of);
                }
                if least
                    .as_ref()
                    .is_none_or(|least| alone.rows.len() < least.rows.len())
                {
                    least = Some(Rc::clone(alone));
                }
            }
            match self.apart(id) {
                Some(replicates) if self.form == Form::Sums => {
                    (replicates, least.unwrap_or(sample))
                }
                _ => return Value::unknown(Why::Apart, of),
            }
        } else {
            (self.single(id, number), sample)
        };
        let value = replicates.first().copied().unwrap_or(f64::NAN);
        Value {
            result: match value.is_finite() {
                true => Ok(value),
                false => Err(Why::ByZero),
            },
            n: sample.rows.dispatches(self.program.frame()),
            of,
            coverage: sample.coverage,
            half_width: half_width(&replicates),
        }
    }

    fn has_gaps(&mut self, column: u32) -> bool {
        let frame = self.program.frame();
        *self
            .gaps
            .entry(column)
            .or_insert_with(|| frame.column(column as usize).has_gaps())
    }

    fn sample(&mut self, columns: &[u32]) -> usize {
        if let Some(number) = self.sample_of.get(columns) {
            return *number;
        }
        let frame = self.program.frame();
        let all: Vec<&Column> = columns.iter().map(|c| frame.column(*c as usize)).collect();
        self.samples
            .push(Rc::new(Sample::of(frame, &self.rows, &all)));
        let number = self.samples.len() - 1;
        self.sample_of.insert(columns.to_vec(), number);
        number
    }

    /// Evaluates a part that has one value: first the estimate, then the values with each group
    /// left out.
    fn single(&mut self, id: Id, sample: usize) -> Vec<f64> {
        match self.program.node(id) {
            Node::Number(bits) => vec![f64::from_bits(bits)],
            Node::Negative(a) => each(&self.single(a, sample), |a| -a),
            Node::Whole(a) => each(&self.single(a, sample), f64::trunc),
            Node::Round(a, digits) => each(&self.single(a, sample), |a| program::round(a, digits)),
            Node::Clamp(a) => each(&self.single(a, sample), |a| if a < 0.0 { 0.0 } else { a }),
            Node::Both(how, a, b) => {
                let (a, b) = (self.single(a, sample), self.single(b, sample));
                pairs(&a, &b, |a, b| program::both(how, a, b))
            }
            Node::Compare(how, a, b) => {
                let (a, b) = (self.single(a, sample), self.single(b, sample));
                pairs(&a, &b, |a, b| {
                    f64::from(u8::from(program::holds(how, a, b)))
                })
            }
            Node::Lesser(a, b) => {
                let (a, b) = (self.single(a, sample), self.single(b, sample));
                pairs(&a, &b, program::lesser)
            }
            Node::Greater(a, b) => {
                let (a, b) = (self.single(a, sample), self.single(b, sample));
                pairs(&a, &b, program::greater)
            }
            Node::Rest(a, b) => {
                let (a, b) = (self.single(a, sample), self.single(b, sample));
                pairs(&a, &b, program::rest)
            }
            Node::If(condition, then, otherwise) => {
                let condition = self.single(condition, sample);
                let (then, otherwise) = (self.single(then, sample), self.single(otherwise, sample));
                let width = condition.len().max(then.len()).max(otherwise.len());
                (0..width)
                    .map(|at| match pick(&condition, at) != 0.0 {
                        true => pick(&then, at),
                        false => pick(&otherwise, at),
                    })
                    .collect()
            }
            Node::Aggregate(how, of) => {
                let sample = self.widest(of, sample);
                self.aggregate(how, of, sample)
            }
            // Outside an aggregate, only something that is equal for all dispatches has one value.
            Node::Column(_) | Node::Ones => vec![f64::NAN],
        }
    }

    /// Returns the sample that a part is aggregated over: all dispatches, where all of them have
    /// the part's columns. Times are known of every dispatch; the times of counted dispatches are
    /// not typical, since counting takes time.
    fn widest(&mut self, of: Id, sample: usize) -> usize {
        let partial = match &self.samples[sample].strata {
            None => return sample,
            Some(strata) => strata.all() < self.of,
        };
        let mut columns = BTreeSet::new();
        self.program.columns(of, &mut columns);
        // The other parts of the formula know nothing about classes without a window.
        if partial || columns.iter().any(|column| self.has_gaps(*column)) {
            return sample;
        }
        self.sample(&[])
    }

    fn aggregate(&mut self, how: Aggregate, of: Id, sample: usize) -> Vec<f64> {
        match how {
            Aggregate::Sum | Aggregate::Average | Aggregate::Least | Aggregate::Greatest => {
                let stats = self.stats(of, sample);
                let some = stats.count.first().is_some_and(|count| *count > 0.0);
                match how {
                    _ if !some => vec![f64::NAN],
                    Aggregate::Sum => stats.sum.clone(),
                    Aggregate::Average => pairs(&stats.sum, &stats.count, |sum, count| sum / count),
                    Aggregate::Least => vec![stats.least],
                    _ => vec![stats.greatest],
                }
            }
            Aggregate::Deviation => {
                let sample_rows = self.samples[sample].rows.len();
                if sample_rows <= 1 {
                    return vec![0.0];
                }
                let stats = self.stats(of, sample);
                let values = self.collect(of, sample);
                let count = values.len() as f64;
                if count < 2.0 {
                    return vec![f64::NAN];
                }
                let mean = match (stats.sum.as_slice(), stats.count.as_slice()) {
                    ([sum], [count]) => sum / count,
                    _ => values.iter().sum::<f64>() / count,
                };
                let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
                vec![(squares / (count - 1.0)).sqrt()]
            }
            Aggregate::Quantile(bits) => {
                let mut values = self.collect(of, sample);
                vec![quantile(&mut values, f64::from_bits(bits))]
            }
        }
    }

    /// Returns the value as a mean over all dispatches, where each column is estimated by itself.
    /// None where the formula does not allow this.
    fn apart(&mut self, id: Id) -> Option<Vec<f64>> {
        Some(match self.program.node(id) {
            Node::Number(bits) => vec![f64::from_bits(bits)],
            Node::Ones => vec![1.0],
            Node::Column(column) => {
                let sample = match self.has_gaps(column) {
                    true => self.sample(&[column]),
                    false => self.sample(&[]),
                };
                self.aggregate(Aggregate::Average, id, sample)
            }
            Node::Aggregate(Aggregate::Sum | Aggregate::Average, of) => self.apart(of)?,
            Node::Negative(a) => each(&self.apart(a)?, |a| -a),
            Node::Whole(a) => self.apart(a)?,
            Node::Round(a, digits) => each(&self.apart(a)?, |a| program::round(a, digits)),
            Node::Clamp(a) => each(&self.apart(a)?, |a| if a < 0.0 { 0.0 } else { a }),
            Node::Both(how, a, b) => {
                let (a, b) = (self.apart(a)?, self.apart(b)?);
                pairs(&a, &b, |a, b| program::both(how, a, b))
            }
            Node::Lesser(a, b) => pairs(&self.apart(a)?, &self.apart(b)?, program::lesser),
            Node::Greater(a, b) => pairs(&self.apart(a)?, &self.apart(b)?, program::greater),
            // These depend on the values of single dispatches, which means do not tell.
            Node::Compare(..) | Node::If(..) | Node::Rest(..) | Node::Aggregate(..) => return None,
        })
    }

    fn stats(&mut self, of: Id, sample: usize) -> Rc<Stats> {
        if let Some(stats) = self.stats.get(&(of, sample)) {
            return Rc::clone(stats);
        }
        let scalars = self.scalars(of, sample);
        let shared = Rc::clone(&self.samples[sample]);
        let walk = Walk::new(&self.program, &scalars);
        let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
        let stats = match &shared.strata {
            None => {
                let (mut sum, mut rest, mut count) = (0.0, 0.0, 0_usize);
                let frame = self.program.frame();
                let weighed = frame.is_weighed();
                walk.blocks(of, &shared.rows, |first, values| {
                    let mut block = 0.0;
                    if weighed {
                        for (place, value) in (first..).zip(values) {
                            if !value.is_nan() {
                                let weight = frame.weight(shared.rows.at(place));
                                block += value * weight;
                                count += weight as usize;
                                least = value.min(least);
                                greatest = value.max(greatest);
                            }
                        }
                        add(&mut sum, &mut rest, block);
                        return;
                    }
                    for value in values {
                        if !value.is_nan() {
                            block += value;
                            count += 1;
                            least = value.min(least);
                            greatest = value.max(greatest);
                        }
                    }
                    add(&mut sum, &mut rest, block);
                });
                Stats {
                    sum: vec![if f64::is_finite(sum) { sum + rest } else { sum }],
                    count: vec![count as f64],
                    least,
                    greatest,
                }
            }
            Some(strata) => {
                let width = strata.width();
                let mut sums = vec![0.0; strata.classes() * width];
                let mut counts = sums.clone();
                walk.blocks(of, &shared.rows, |first, values| {
                    for (at, value) in (first..).zip(values) {
                        if !value.is_nan() {
                            let place =
                                strata.class[at] as usize * width + usize::from(strata.group[at]);
                            sums[place] += value;
                            counts[place] += 1.0;
                            least = value.min(least);
                            greatest = value.max(greatest);
                        }
                    }
                });
                Stats {
                    sum: strata.totals(&sums),
                    count: strata.totals(&counts),
                    least,
                    greatest,
                }
            }
        };
        let stats = Rc::new(stats);
        self.stats.insert((of, sample), Rc::clone(&stats));
        stats
    }

    /// Returns all values of a part.
    fn collect(&mut self, of: Id, sample: usize) -> Vec<f64> {
        let scalars = self.scalars(of, sample);
        let shared = Rc::clone(&self.samples[sample]);
        let mut all = Vec::with_capacity(shared.rows.len());
        Walk::new(&self.program, &scalars).blocks(of, &shared.rows, |_, values| {
            all.extend(values.iter().copied().filter(|value| !value.is_nan()));
        });
        all
    }

    /// Evaluates the parts below this one that have a single value.
    fn scalars(&mut self, of: Id, sample: usize) -> HashMap<Id, f64> {
        let mut found = HashMap::new();
        let mut open = vec![of];
        while let Some(id) = open.pop() {
            if !self.program.is_wide(id) {
                let value = self.single(id, sample).first().copied();
                found.insert(id, value.unwrap_or(f64::NAN));
                continue;
            }
            match self.program.node(id) {
                Node::Number(_) | Node::Column(_) | Node::Ones | Node::Aggregate(..) => {}
                Node::Negative(a) | Node::Whole(a) | Node::Round(a, _) | Node::Clamp(a) => {
                    open.push(a)
                }
                Node::Both(_, a, b)
                | Node::Compare(_, a, b)
                | Node::Lesser(a, b)
                | Node::Greater(a, b)
                | Node::Rest(a, b) => open.extend([a, b]),
                Node::If(a, b, c) => open.extend([a, b, c]),
            }
        }
        found
    }
}

/// Adds a value; `rest` collects what rounding has lost so far.
fn add(sum: &mut f64, rest: &mut f64, value: f64) {
    let next = *sum + value;
    if next.is_finite() {
        *rest += match sum.abs() >= value.abs() {
            true => (*sum - next) + value,
            false => (value - next) + *sum,
        };
    }
    *sum = next;
}

/// Returns the value below which a share `q` of the values lies, interpolated between two of them.
pub(crate) fn quantile(values: &mut [f64], q: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let place = (values.len() - 1) as f64 * q.clamp(0.0, 1.0);
    let below = place.floor() as usize;
    let (_, low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    let high = above.iter().copied().fold(f64::INFINITY, f64::min);
    let part = place - below as f64;
    if part == 0.0 || !high.is_finite() {
        return low;
    }
    low + (high - low) * part
}

fn each(values: &[f64], how: impl Fn(f64) -> f64) -> Vec<f64> {
    values.iter().map(|value| how(*value)).collect()
}

/// Returns the value at this place, or the only value.
fn pick(values: &[f64], at: usize) -> f64 {
    match values {
        [only] => *only,
        values => values.get(at).copied().unwrap_or(f64::NAN),
    }
}

fn pairs(a: &[f64], b: &[f64], how: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let width = a.len().max(b.len());
    (0..width).map(|at| how(pick(a, at), pick(b, at))).collect()
}

/// Says in words what is missing.
fn lacking(lacks: &Lacks) -> String {
    let list = |names: &BTreeSet<String>| {
        let mut words: Vec<&str> = names.iter().map(String::as_str).take(4).collect();
        let more = format!("{} more", names.len().saturating_sub(words.len()));
        if names.len() > words.len() {
            words.push(&more);
        }
        words.join(", ")
    };
    let mut parts = Vec::new();
    if !lacks.counters.is_empty() {
        parts.push(format!("not collected: {}", list(&lacks.counters)));
    }
    let (peaks, properties): (BTreeSet<String>, BTreeSet<String>) = lacks
        .properties
        .iter()
        .cloned()
        .partition(|name| name.ends_with(PEAK));
    if !properties.is_empty() {
        parts.push(format!("not in sysinfo.csv: {}", list(&properties)));
    }
    if !peaks.is_empty() {
        parts.push("no peaks were measured (roofline.csv)".to_owned());
    }
    parts.join("; ")
}
