//! The parts of hardware counting that need neither a GPU nor AMD's library.
//!
//! * [`architecture`]: which counters a GPU has, and which name was probably meant.
//! * [`expression`]: the language of derived counters. [`value`] computes them; [`counted`] turns
//!   memory into values.
//! * [`definitions`]: counters that a user adds. [`available`]: a list of all counters.
//! * [`dimension`]: where on the device a value was counted.
//! * [`plan`]: what must be counted for the counters that were asked for. [`group`]: which of it
//!   fits into one pass.
//! * [`template`]: the packets of a pass as words, with the places of the addresses, so that a
//!   target needs nothing of AMD's library. [`wire`]: these packets as text between two processes.
//! * [`bounds`]: what a counter cannot exceed.
//! * [`prepared`]: what a session counts, by agent.
//! * [`statistics`]: what some windows tell about all dispatches.
//!
//! The facts are in `api/counters.json`; for their sources see `docs/sources.md#counters`.
#![forbid(unsafe_code)]

pub mod architecture;
pub mod available;
pub mod bounds;
pub mod counted;
pub mod definitions;
mod descriptions;
pub mod dimension;
pub mod expression;
pub mod group;
pub mod plan;
pub mod prepared;
pub mod statistics;
pub mod template;
pub mod value;
pub mod wire;

pub use architecture::{Architecture, Counter, Definition};
pub use definitions::Definitions;
pub use dimension::{Dimension, Position};
pub use expression::{Accumulate, Expression};
pub use plan::{Error, Event};
pub use prepared::{CounterPlan, Prepared};
pub use template::Template;
