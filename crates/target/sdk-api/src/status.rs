//! `rocprofiler_status_t`: the statuses of the C API, with AMD's names and our descriptions.

use midair_abi::constants as c;
use midair_abi::names::{Name, STATUS_NAMES};
use std::ffi::{CStr, c_int};

/// A status other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub i32);

impl Status {
    /// Unspecified.
    pub const ERROR: Status = Status(c::ROCPROFILER_STATUS_ERROR);
    /// No such context.
    pub const CONTEXT_NOT_FOUND: Status = Status(c::ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_FOUND);
    /// No such buffer.
    pub const BUFFER_NOT_FOUND: Status = Status(c::ROCPROFILER_STATUS_ERROR_BUFFER_NOT_FOUND);
    /// No such kind.
    pub const KIND_NOT_FOUND: Status = Status(c::ROCPROFILER_STATUS_ERROR_KIND_NOT_FOUND);
    /// No such operation.
    pub const OPERATION_NOT_FOUND: Status = Status(c::ROCPROFILER_STATUS_ERROR_OPERATION_NOT_FOUND);
    /// No such callback thread.
    pub const THREAD_NOT_FOUND: Status = Status(c::ROCPROFILER_STATUS_ERROR_THREAD_NOT_FOUND);
    /// The context has no service.
    pub const CONTEXT_INVALID: Status = Status(c::ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID);
    /// The context does not run.
    pub const CONTEXT_NOT_STARTED: Status = Status(c::ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_STARTED);
    /// A callback of the buffer is running.
    pub const BUFFER_BUSY: Status = Status(c::ROCPROFILER_STATUS_ERROR_BUFFER_BUSY);
    /// The context has this service.
    pub const SERVICE_ALREADY_CONFIGURED: Status =
        Status(c::ROCPROFILER_STATUS_ERROR_SERVICE_ALREADY_CONFIGURED);
    /// Only a tool's `initialize` may do this.
    pub const CONFIGURATION_LOCKED: Status =
        Status(c::ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED);
    /// Not built yet.
    pub const NOT_IMPLEMENTED: Status = Status(c::ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED);
    /// A layout or version that is not ours.
    pub const INCOMPATIBLE_ABI: Status = Status(c::ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_ABI);
    /// An invalid value.
    pub const INVALID_ARGUMENT: Status = Status(c::ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT);
    /// The library has been finalised.
    pub const FINALIZED: Status = Status(c::ROCPROFILER_STATUS_ERROR_FINALIZED);
    /// Memory or threads ran out.
    pub const OUT_OF_RESOURCES: Status = Status(c::ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES);
    /// No such agent.
    pub const AGENT_NOT_FOUND: Status = Status(c::ROCPROFILER_STATUS_ERROR_AGENT_NOT_FOUND);
    /// The agent is of a kind that cannot do this.
    pub const AGENT_ARCH_NOT_SUPPORTED: Status =
        Status(c::ROCPROFILER_STATUS_ERROR_AGENT_ARCH_NOT_SUPPORTED);
    /// No such configuration of counters.
    pub const PROFILE_NOT_FOUND: Status = Status(c::ROCPROFILER_STATUS_ERROR_PROFILE_NOT_FOUND);
    /// There is no HSA runtime yet, or no session that uses it.
    pub const HSA_NOT_LOADED: Status = Status(c::ROCPROFILER_STATUS_ERROR_HSA_NOT_LOADED);
    /// Another running context counts around dispatches.
    pub const CONTEXT_CONFLICT: Status = Status(c::ROCPROFILER_STATUS_ERROR_CONTEXT_CONFLICT);
    /// The context cannot do this now.
    pub const CONTEXT_ERROR: Status = Status(c::ROCPROFILER_STATUS_ERROR_CONTEXT_ERROR);
    /// A context counts around dispatches or on devices.
    pub const AGENT_DISPATCH_CONFLICT: Status =
        Status(c::ROCPROFILER_STATUS_ERROR_AGENT_DISPATCH_CONFLICT);
    /// The list of counters belongs to another agent.
    pub const AGENT_MISMATCH: Status = Status(c::ROCPROFILER_STATUS_ERROR_AGENT_MISMATCH);
    /// There is no queue to count with.
    pub const NO_PROFILE_QUEUE: Status = Status(c::ROCPROFILER_STATUS_ERROR_NO_PROFILE_QUEUE);
    /// No such counter.
    pub const COUNTER_NOT_FOUND: Status = Status(c::ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND);
    /// No such dimension.
    pub const DIM_NOT_FOUND: Status = Status(c::ROCPROFILER_STATUS_ERROR_DIM_NOT_FOUND);
    /// The counter belongs to another agent.
    pub const METRIC_NOT_VALID_FOR_AGENT: Status =
        Status(c::ROCPROFILER_STATUS_ERROR_METRIC_NOT_VALID_FOR_AGENT);
    /// A counter of the list cannot be counted.
    pub const PROFILE_COUNTER_NOT_FOUND: Status =
        Status(c::ROCPROFILER_STATUS_ERROR_PROFILE_COUNTER_NOT_FOUND);
    /// An invalid expression.
    pub const AST_GENERATION_FAILED: Status =
        Status(c::ROCPROFILER_STATUS_ERROR_AST_GENERATION_FAILED);
    /// More than the hardware counts at once.
    pub const EXCEEDS_HW_LIMIT: Status = Status(c::ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT);
    /// The kernel driver is too old.
    pub const INCOMPATIBLE_KERNEL: Status = Status(c::ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_KERNEL);
    /// The process may not do this.
    pub const PERMISSION_DENIED: Status = Status(c::ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED);
    /// It is not available here.
    pub const NOT_AVAILABLE: Status = Status(c::ROCPROFILER_STATUS_ERROR_NOT_AVAILABLE);
}

impl std::fmt::Display for Status {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (text(self.0), name(self.0)) {
            (Some(text), Some(name)) => {
                write!(to, "{} ({})", text.to_string_lossy(), name.as_str())
            }
            _ => write!(to, "status {}", self.0),
        }
    }
}

impl From<Status> for c_int {
    fn from(status: Status) -> c_int {
        status.0
    }
}

/// Returns AMD's name of a status; `None` when there is no such status.
pub fn name(status: i32) -> Option<Name> {
    STATUS_NAMES.get(usize::try_from(status).ok()?).copied()
}

/// Returns the description of a status.
pub fn text(status: i32) -> Option<&'static CStr> {
    TEXTS.get(usize::try_from(status).ok()?).copied()
}

/// The descriptions by value. The texts are our own.
static TEXTS: [&CStr; 42] = [
    c"Success",
    c"Something failed that has no status of its own",
    c"There is no context with this id",
    c"There is no buffer with this id",
    c"There is no such tracing kind",
    c"The kind has no such operation",
    c"There is no callback thread with this id",
    c"There is no agent with this id",
    c"There is no counter with this id",
    c"The context failed",
    c"Nothing is configured for the context",
    c"The context is not running",
    c"Another running context needs the same thing for itself",
    c"The context id must be zero before the context is created",
    c"A callback of the buffer is running",
    c"The context already has this service",
    c"Configuration is only possible while the tool is being initialised",
    c"This function is not built yet",
    c"Tool and library do not agree on a layout",
    c"An argument has an impossible value",
    c"The agent does not have this metric",
    c"The library has been finalised",
    c"No HSA runtime is loaded",
    c"There is no such counter dimension",
    c"The profile has no such counter",
    c"The counter's formula could not be read",
    c"There is no formula for the counter",
    c"The packet has no coordinates of the event",
    c"The running kernel driver is too old for this",
    c"Memory, threads or hardware resources ran out",
    c"There is no profile with this id",
    c"Counting for an agent and for dispatches exclude each other",
    c"The agent has no context (internal)",
    c"The samples come faster than they can be taken",
    c"There is no queue to profile with",
    c"The agent has no hardware counters for this",
    c"The agent is another than the one the configuration was made for",
    c"This is not available here",
    c"The hardware cannot count so much at once",
    c"The agent's architecture is not supported",
    c"The process may not do this",
    c"The registration library is of another version",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_name_and_words() {
        assert_eq!(TEXTS.len(), STATUS_NAMES.len());
        assert_eq!(
            name(16).unwrap().as_str(),
            "ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED"
        );
        assert!(
            text(16)
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("Configuration")
        );
        assert!(name(42).is_none() && text(-1).is_none());
    }
}
