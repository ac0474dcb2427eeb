//! Stacks at which work was launched (`--stacks`), in the form of AMD's readers:
//! `{"frames": [{"program_counter": {"function", "filename", "line_number"}}]}`.
//!
//! A text is in `rocpd_string` once, and `call_stack` of an event is `{"id": …}`, which is what one
//! launch costs. A view that shows `call_stack` has the text.

use super::database::{Step, json};
use super::strings::Strings;
use foldhash::fast::RandomState;
use midair_trace::index::Stacks;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The `call_stack` of an event without one.
const NONE: &str = "{}";

/// The `call_stack` of each stack's events.
#[derive(Default)]
pub(super) struct CallStacks(HashMap<u32, String, RandomState>);

impl CallStacks {
    /// Returns the `call_stack` of an event at this stack; 0 for none.
    pub(super) fn of(
        &mut self,
        stacks: &Stacks,
        strings: &mut Strings<'_>,
        stack: u32,
    ) -> Step<&str> {
        if stack == 0 {
            return Ok(NONE);
        }
        Ok(match self.0.entry(stack) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(match text(stacks, stack) {
                Some(text) => format!("{{\"id\":{}}}", strings.id(&text)?),
                None => NONE.to_owned(),
            }),
        })
    }
}

/// Returns the text of a stack, if it was described.
fn text(stacks: &Stacks, stack: u32) -> Option<String> {
    let frames = stacks.frames(stack)?.map(|(function, line)| {
        json!({
            "program_counter": {
                "function": function.name,
                "filename": function.file,
                "line_number": line,
            },
        })
    });
    let frames: Vec<Value> = frames.collect();
    Some(json(json!({ "frames": frames }).to_string()))
}
