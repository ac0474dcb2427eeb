//! The engine behind the C interface.

use crate::engine::{Engine, Live};
use midair_session::{Failure, Kind};
use midair_settings::Settings;

/// Until `midair-session` can attach: refuses, by name.
struct NotConnected;

impl Engine for NotConnected {
    fn attach(&self, _pid: i32, _settings: Settings) -> Result<Box<dyn Live>, Failure> {
        Err(Failure::new(
            Kind::NotBuilt,
            "this build's attach library is not connected to the engine yet",
        ))
    }
}

/// The engine.
pub fn engine() -> &'static dyn Engine {
    &NotConnected
}
