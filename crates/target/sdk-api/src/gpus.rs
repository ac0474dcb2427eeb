//! The machine's GPUs, for the collecting side.

use crate::agents;

/// Returns the ids by which the kernel driver knows the GPUs.
pub fn ids() -> impl Iterator<Item = u32> {
    agents::gpus()
}
