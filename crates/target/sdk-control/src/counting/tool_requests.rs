//! Counters around dispatches for attached tools ([`Chooser`]). Windows count the lists that a tool
//! chooses. The tool gets the values that are known to belong to one dispatch.

use super::kept::{Counting, Void, locked};
use super::{dispatch_of, packets_of};
use crate::state::STATE;
use midair_aqlprofile::planned::disabled_after;
use midair_record::counter_plan::Group;
use midair_sdk_api::counting;
use midair_sdk_api::counting::dispatch;
use midair_sdk_api::notes;
use midair_sdk_device::queue::serialized::{self, Dispatch};
use midair_sdk_device::queue::windows::tool_requests::{Chooser, Fate, set_chooser};
use midair_sdk_device::symbols;
use std::sync::atomic::Ordering::Relaxed;

/// The most chosen dispatches that have not ended; further ones have no values.
const MOST: usize = 1 << 16;

/// Sets whether tools in this process choose dispatches whose queues may be older than the tools.
/// If all queues were created for counting, the tools count as in a program that was started with
/// them.
pub(crate) fn serve(is_wanted: bool) {
    set_chooser((is_wanted && !serialized::is_asked()).then_some(&STATE.counting));
}

/// Ends the choices of a session. Returns a note for the user.
pub(super) fn close() -> Option<String> {
    set_chooser(None);
    let counting = &STATE.counting;
    let open = std::mem::take(&mut *locked(&counting.chosen)).len() as u64;
    let of = |void: &Void| void.take();
    let (none, shared) = (of(&counting.without), of(&counting.not_alone) + open);
    (none + shared > 0).then(|| {
        format!(
            "of the dispatches with a tool's counters, {none} had no window, and {shared} shared theirs or were not read: these have no values"
        )
    })
}

impl Chooser for Counting {
    fn choose(&self, dispatch: &Dispatch) -> Option<u64> {
        if !dispatch::is_on() {
            return None;
        }
        let chosen = dispatch::choose(&dispatch_of(dispatch))?;
        let list = chosen.config.0;
        let mut all = locked(&self.chosen);
        if all.len() >= MOST {
            self.without.add();
            return None;
        }
        all.insert(dispatch.dispatch_id, chosen);
        Some(list)
    }

    fn group(&self, list: u64, agent: u64) -> Option<Group> {
        let config = counting::config(list)?;
        match packets_of(&config) {
            Ok(packets) => {
                let mut group = packets.group(symbols::agent_node(agent));
                // Leave nothing enabled in a queue of the application.
                group.read_stop = disabled_after(&group.start, &group.read_stop);
                Some(group)
            }
            Err(why) => {
                notes::post_from_anywhere(&format!("cannot count: {why}"));
                None
            }
        }
    }

    fn ended(&self, dispatch: u64, fate: Fate<'_>) {
        let Some(chosen) = locked(&self.chosen).remove(&dispatch) else {
            return;
        };
        let (list, words, times) = match fate {
            Fate::Counted(list, words, times) => (list, words, times),
            Fate::NoWindow => return self.without.add(),
            Fate::NotAlone => return self.not_alone.add(),
        };
        // The window counted another list than the tool wanted, or the list was removed.
        let (wanted, config) = &chosen.config;
        match packets_of(config) {
            Ok(packets) if *wanted == list => {
                let values = config.values(&packets.template, words, dispatch);
                chosen.deliver(values, times);
            }
            _ => self.without.add(),
        }
    }
}

impl Void {
    fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn take(&self) -> u64 {
        self.0.swap(0, Relaxed)
    }
}
