//! The machine's GPUs, for the side that collects.

use crate::agents;

/// Ids by which the kernel driver knows them.
pub fn ids() -> impl Iterator<Item = u32> {
    agents::gpus()
}
