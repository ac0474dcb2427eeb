//! The identity of the target, for the headers of outputs and for file names.

use midair_agents::Agent;
use midair_output::Process;
use midair_output::names::Keys;

/// What outputs tell about the process and its machine.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// For the headers of outputs.
    pub process: Process,
    /// For file names.
    pub keys: Keys,
    /// The CPUs of its machine, and the GPUs that AMD's driver knows.
    pub agents: Vec<Agent>,
    /// Why the GPUs are not known: the driver is missing. It does not matter for a CUDA process.
    pub without_driver: Option<String>,
}
