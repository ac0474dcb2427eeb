//! External correlation ids: for each context and thread a stack of a tool's values, whose top is
//! attached to what the thread does.
//!
//! For calls that are reported to tools, the current value is read from a lock-free table. Records
//! in buffers get the value of the time at which they started, from the history of changes, since the
//! code that writes them does not read the table.
//!
//! Decisions: AMD-047 (`docs/deviations/amd.md`).

pub(crate) mod stack;

use crate::state::{self, STATE};
use crate::status::Status;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::external_ids;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// How many changes are kept for a context and thread. Records arrive within milliseconds of the
/// event.
const HISTORY: usize = 4096;

fn change<T>(
    context: u64,
    tid: u64,
    act: impl FnOnce(&mut Vec<u64>) -> Result<T, Status>,
) -> Result<T, Status> {
    state::lock().context(context)?;
    let mut stacks = STATE
        .external
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let stack = stacks
        .get_or_insert_default()
        .entry((context, tid))
        .or_default();
    let result = act(&mut stack.values)?;
    let top = stack.values.last().copied().unwrap_or(0);
    if !external_ids::set_current(context, tid, top) {
        return Err(Status::OUT_OF_RESOURCES);
    }
    if stack.changes.len() == HISTORY {
        stack.changes.pop_front();
    }
    stack.changes.push_back((now(), top));
    STATE.external_used.store(1, Relaxed);
    Ok(result)
}

/// Pushes a value.
///
/// # Errors
/// [`Status::CONTEXT_NOT_FOUND`]; [`Status::OUT_OF_RESOURCES`] when too many contexts and threads
/// have values.
pub fn push(context: u64, tid: u64, value: u64) -> Result<(), Status> {
    change(context, tid, |values| {
        values.push(value);
        Ok(())
    })
}

/// Pops the value on top and returns it.
///
/// # Errors
/// As [`push`]; [`Status::INVALID_ARGUMENT`] when the stack is empty.
pub fn pop(context: u64, tid: u64) -> Result<u64, Status> {
    change(context, tid, |values| {
        values.pop().ok_or(Status::INVALID_ARGUMENT)
    })
}

/// Returns the value that was on top at a given time; 0 when there was none, or when the history
/// does not reach back to that time.
pub(crate) fn at(context: u64, tid: u64, time: u64) -> u64 {
    if STATE.external_used.load(Relaxed) == 0 {
        return 0;
    }
    let stacks = STATE
        .external
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let Some(stack) = stacks.as_ref().and_then(|all| all.get(&(context, tid))) else {
        return 0;
    };
    let after = stack.changes.partition_point(|(when, _)| *when <= time);
    after
        .checked_sub(1)
        .and_then(|last| stack.changes.get(last))
        .map_or(0, |(_, value)| *value)
}
