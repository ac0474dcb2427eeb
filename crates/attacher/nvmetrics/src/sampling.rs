//! The helper's side: CUPTI and the driver, loaded into this process.
//!
//! * [`library`]: files, functions, and the structs that functions take.
//! * [`host`]: which metrics there are, and which fit into one pass.
//! * [`device`]: the sampling itself.
//! * [`evaluator`]: counters into values, without looking the metrics' names up for each sample.
//! * [`values`]: the thread that computes the values, alongside the decoding.
//! * [`run()`]: the sequence of all these steps.

pub mod device;
pub mod evaluator;
pub mod host;
pub mod library;
mod run;
mod values;

pub use run::run;

/// What could not be done: a function, its status (-1 where there is none), and words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The function, or what was tried.
    pub what: String,
    /// Its status.
    pub status: i32,
    /// More, if there is more.
    pub words: String,
}

impl Refusal {
    fn new(what: impl Into<String>, words: impl Into<String>) -> Refusal {
        Refusal {
            what: what.into(),
            status: -1,
            words: words.into(),
        }
    }
}
