//! A thread's external correlation ids in a context.

use std::collections::VecDeque;

/// A stack of values.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    /// The values, the top last.
    pub values: Vec<u64>,
    /// Changes of the top: times and values.
    pub changes: VecDeque<(u64, u64)>,
}
