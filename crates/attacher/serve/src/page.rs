//! Metrics as families of samples, before a format is chosen: [`crate::text`], [`crate::exposition`] and
//! [`crate::otlp`] write them.

use midair_failure::plain;
use midair_live::Delays;

/// The most bytes of a label's value.
const MOST_LABEL: usize = 256;

/// What a family's numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They only grow.
    Counter,
    Gauge,
    /// They are 1, and the labels are what is said.
    Info,
    /// They are times.
    Histogram,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    Delays(Delays),
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Number(number)
    }
}

/// A value, and what it is of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: Value,
}

/// Samples of one name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The unit, as the name ends with it, or nothing.
    pub(crate) unit: &'static str,
    pub(crate) help: &'static str,
    pub(crate) samples: Vec<Sample>,
}

impl Family {
    /// Returns the samples' own name: Prometheus' rule.
    pub(crate) fn sampled(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Info => format!("{}_info", self.name),
            Kind::Gauge | Kind::Histogram => self.name.to_owned(),
        }
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) {
        let labels = labels.iter().map(|(key, text)| (*key, cut(text)));
        self.samples.push(Sample {
            labels: labels.collect(),
            value: value.into(),
        });
    }
}

/// Returns a value as a label may have it. Names are a process's own words.
fn cut(text: &str) -> String {
    let mut text = plain::line(text).into_owned();
    if text.len() > MOST_LABEL {
        text.truncate(text.floor_char_boundary(MOST_LABEL));
        text.push('…');
    }
    text
}

/// All families.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Page(pub(crate) Vec<Family>);

impl Page {
    /// Starts a family.
    pub(crate) fn family(
        &mut self,
        name: &'static str,
        kind: Kind,
        unit: &'static str,
        help: &'static str,
    ) -> &mut Family {
        self.0.push_mut(Family {
            name,
            kind,
            unit,
            help,
            samples: Vec::new(),
        })
    }
}
