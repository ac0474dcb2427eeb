//! Counters for the tools in the process. This is the layer between what tools configure
//! (`midair_sdk_api::counting`) and what devices receive (`midair_sdk_device`).
//!
//! In a process that was started with its tools, a tool chooses the counters of each dispatch
//! ([`serialized::User`]). In a process that tools were attached to, windows count what the tools choose
//! ([`mod@tool_requests`]). Whole devices are counted in both ([`devices`]).

pub(crate) mod devices;
mod helper;
pub(crate) mod kept;
mod packets;
pub(crate) mod tool_requests;

use crate::state::STATE;
use kept::{Counting, Ready, locked};
use midair_aqlprofile::{for_each_name, question};
use midair_counters::wire::Gpu;
use midair_record::event::WindowResult;
use midair_sdk_api::counting::config::Config;
use midair_sdk_api::counting::dispatch::{self, CountedDispatch};
use midair_sdk_api::notes;
use midair_sdk_device::queue::serialized::{self, Choice, Counted, Dispatch, Prepared, User};
use midair_sdk_device::sink::Sink;
use midair_sdk_device::symbols;
use midair_sdk_hot::callbacks::work;
use packets::Packets;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long the worker thread has to learn the name of a kernel that was just loaded.
const NAME_LIMIT: Duration = Duration::from_millis(50);

/// Returns the packets of a list. They are equal for the same counters on GPUs of one kind.
fn packets_of(config: &Config) -> Result<Arc<Packets>, String> {
    let device = config.device();
    let [xccs, engines, units, arrays, domain, location] = device.cut();
    let gpu = Gpu {
        name: device.name.clone(),
        xccs,
        engines,
        units,
        arrays,
        domain,
        location,
    };
    let (question, which) = question(&gpu, config.events());
    if question.events.is_empty() {
        return Err(format!("the counters of {} are unknown", gpu.name));
    }
    let mut helper = locked(&STATE.counting.helper);
    let known = helper
        .made
        .iter()
        .find(|made| made.gpu == gpu && made.events == question.events && made.which == which);
    if let Some(known) = known {
        return Ok(known.clone());
    }
    let mut template = helper::ask(&mut helper, &question)?;
    template.slots = for_each_name(&template.slots, &which);
    let made = Arc::new(Packets {
        gpu,
        events: question.events,
        which,
        template,
    });
    helper.made.push(made.clone());
    Ok(made)
}

/// Returns a dispatch in the form that tools get.
fn dispatch_of(dispatch: &Dispatch) -> dispatch::Dispatch {
    let packet = &dispatch.packet;
    dispatch::Dispatch {
        agent: work::agent_id(symbols::agent_node(dispatch.agent)),
        queue: u64::from(dispatch.queue_id),
        kernel: symbols::kernel_id_within(packet.kernel_object, NAME_LIMIT),
        number: dispatch.dispatch_id,
        correlation: dispatch.launch.correlation,
        tid: dispatch.launch.tid,
        private_segment: packet.private_segment,
        group_segment: packet.group_segment,
        workgroup: packet.workgroup,
        grid: packet.grid,
    }
}

impl Counting {
    /// Returns the counters of a list on an agent, and prepares them if necessary.
    fn ready(&self, chosen: &CountedDispatch, agent: u64) -> Result<Ready, String> {
        let (handle, config) = &chosen.config;
        let of = (*handle, agent);
        let known = locked(&self.ready)
            .iter()
            .find(|ready| ready.of == of)
            .cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let packets = packets_of(config)?;
        let counters = Prepared::new(agent, &packets.group(symbols::agent_node(agent)))?;
        let ready = Ready {
            of,
            counters: Arc::new(counters),
            packets,
        };
        locked(&self.ready).push(ready.clone());
        Ok(ready)
    }
}

/// Registers that tools in this process count around dispatches, so that queues are created for
/// this from now on.
pub(crate) fn take_dispatches() {
    if !serialized::add_user(&STATE.counting) {
        notes::post("too many tools count in dispatches: tools of this process get no values");
    }
}

/// Ends the counting of a session, after all values were delivered. Returns notes for the user.
pub(crate) fn close() -> Vec<String> {
    let chosen = tool_requests::close();
    let counting = &STATE.counting;
    locked(&counting.waiting).clear();
    locked(&counting.ready).clear();
    locked(&counting.helper).end();
    let void = counting.void.swap(0, Relaxed);
    let void =
        (void > 0).then(|| format!("{void} dispatches with a tool's counters have no values"));
    chosen.into_iter().chain(void).collect()
}

impl User for Counting {
    fn choose(&self, dispatch: &Dispatch) -> Choice {
        if !dispatch::is_on() {
            return Choice::default();
        }
        let Some(chosen) = dispatch::choose(&dispatch_of(dispatch)) else {
            return Choice::default();
        };
        match self.ready(&chosen, dispatch.agent) {
            Ok(ready) => {
                let data = self.next.fetch_add(1, Relaxed);
                locked(&self.waiting).insert(data, (chosen, ready.packets));
                Choice {
                    counters: Some(ready.counters),
                    data,
                }
            }
            Err(why) => {
                self.void.fetch_add(1, Relaxed);
                notes::post_from_anywhere(&format!("cannot count: {why}"));
                Choice::default()
            }
        }
    }

    fn deliver(&self, counted: &Counted<'_>, _sink: &mut Sink) {
        let Some((chosen, packets)) = locked(&self.waiting).remove(&counted.data) else {
            return;
        };
        if counted.result != WindowResult::Counted {
            self.void.fetch_add(1, Relaxed);
            return;
        }
        let number = counted.dispatch.dispatch_id;
        let values = chosen
            .config
            .1
            .values(&packets.template, counted.words, number);
        // If the kernel has no times of its own, use the times of the packets around it, or none.
        let times = counted.kernel.unwrap_or((0, 0));
        chosen.deliver(values, times);
    }
}
