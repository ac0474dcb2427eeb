//! Samples of program counters for tools: what they configure, and records in AMD's layout
//! (`docs/sources.md#samples`). One setting holds for all contexts of the process, as for its driver.

pub(crate) mod records;
pub(crate) mod setting;

pub use setting::Setting;

use crate::agents;
use crate::hardware;
use crate::state;
use crate::status::Status;
use setting::SamplesService;

/// Adds an agent to those that a context samples.
///
/// # Errors
/// [`Status::SERVICE_ALREADY_CONFIGURED`] for an agent that the context has,
/// [`Status::CONTEXT_CONFLICT`] for a second setting in this process, [`Status::INVALID_ARGUMENT`] for a
/// setting that the agent does not offer, and what [`hardware::configurations`] returns.
pub(crate) fn configure(
    context: u64,
    agent: u64,
    setting: Setting,
    buffer: u64,
) -> Result<(), Status> {
    hardware::may_configure(context)?;
    hardware::has_buffer(buffer)?;
    let offered = hardware::configurations(agent)?;
    if !offered.iter().any(|offered| offered.fits(&setting)) {
        return Err(Status::INVALID_ARGUMENT);
    }
    let node = agents::by_id(agent).ok_or(Status::AGENT_NOT_FOUND)?.node_id;
    let mut state = state::lock();
    let differs = |service: &SamplesService| service.setting != setting;
    let mut others = state.contexts.iter().filter_map(|it| it.samples.as_ref());
    if others.any(differs) {
        return Err(Status::CONTEXT_CONFLICT);
    }
    let service = state
        .context(context)?
        .samples
        .get_or_insert_with(|| SamplesService {
            setting,
            buffers: Vec::new(),
        });
    if service.buffers.iter().any(|(known, _)| *known == node) {
        return Err(Status::SERVICE_ALREADY_CONFIGURED);
    }
    service.buffers.push((node, buffer));
    Ok(())
}
