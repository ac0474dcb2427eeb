//! Packets for the tools in this process: the helper that makes them, and the packets made so far.

use super::packets::Packets;
use midair_aqlprofile::{Maker, PACKET_HELPER, Unseen};
use midair_counters::template::Template;
use midair_counters::wire::Question;
use midair_sdk_api::setting;
use std::path::PathBuf;
use std::sync::Arc;

/// The helper, and the packets made so far.
#[derive(Debug)]
pub(crate) struct State {
    helper: Unseen,
    pub(super) made: Vec<Arc<Packets>>,
}

impl State {
    pub const fn new() -> State {
        State {
            helper: Unseen::new(),
            made: Vec::new(),
        }
    }

    /// Ends the helper.
    pub fn end(&mut self) {
        self.helper.end();
    }
}

/// Asks for a group's packets.
pub(super) fn ask(state: &mut State, question: &Question) -> Result<Template, String> {
    let named = setting::with(|settings| {
        let paths = settings.list(PACKET_HELPER, ':').into_iter();
        paths.map(PathBuf::from).collect()
    });
    state.helper.name(named);
    let made = state.helper.template(question);
    made.map_err(|error| error.to_string())
}
