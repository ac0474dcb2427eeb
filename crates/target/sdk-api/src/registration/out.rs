//! Tools that are no longer used, because one of their functions threw, or called `exit`, instead
//! of returning. No function of such a tool is called again, and its contexts stop; the process and
//! the other tools go on.

use super::client::Phase;
use crate::context;
use crate::notes;
use crate::registry;
use crate::state;
use midair_sdk_hot::callbacks;
use std::fmt::Display;

/// Stops using the client that created a context: `stage` names its function, `how` says what it
/// did.
pub(crate) fn expel_owner(context: u64, stage: &str, how: &dyn Display) {
    let client = state::lock().context(context).map(|context| context.client);
    if let Ok(client) = client {
        expel(client, stage, how);
    }
}

/// Stops using a client.
pub(crate) fn expel(client: u32, stage: &str, how: &dyn Display) {
    let contexts: Vec<u64> = {
        let mut state = state::lock();
        let known = registry::index(u64::from(client))
            .and_then(|index| state.clients.get_mut(index))
            .filter(|client| client.phase != Phase::Ended);
        if let Some(client) = known {
            client.phase = Phase::Ended;
            client.named = false;
        }
        let owned = (1..).zip(&mut state.contexts);
        owned
            .filter(|(_, context)| context.client == client)
            .map(|(handle, context)| {
                context.out = true;
                handle
            })
            .collect()
    };
    context::stop_all(&contexts);
    notes::post_from_anywhere(&format!(
        "a tool is disabled and gets no more calls: in its {stage} {how}"
    ));
}

/// Stops using the clients whose functions threw on threads of the application. Called on the
/// worker thread in each round.
pub fn expel_reported() {
    for (context, how) in callbacks::take_thrown() {
        expel_owner(context, "callback", &how);
    }
}

/// Stores why a tool was refused, for the code that tells the user ([`why`]).
pub(crate) fn keep(reason: String) {
    state::lock().refusal = Some(reason);
}

/// Returns, as text, why the last tool was refused that was refused with `status`.
pub fn why(status: crate::status::Status) -> String {
    let kept = state::lock().refusal.take();
    kept.unwrap_or_else(|| status.to_string())
}
