//! External correlation ids: per context and thread a stack of a tool's values, whose top goes with what the thread does.
//!
//! Tools that are told of calls get the value as it is then, from a table without locks. Records in buffers get the value of the moment
//! that they begin at, from the history of changes: what writes them does not look.
//!
//! Decisions: AMD-047 (`docs/deviations/amd.md`).

pub(crate) mod stack;

use crate::state::{self, STATE};
use crate::status::Status;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::external_ids;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

/// Changes that are remembered of a context and thread. Records arrive within milliseconds of what they tell.
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

/// Puts a value on top.
///
/// # Errors
/// [`Status::CONTEXT_NOT_FOUND`]; [`Status::OUT_OF_RESOURCES`] when too many contexts and threads have values.
pub fn push(context: u64, tid: u64, value: u64) -> Result<(), Status> {
    change(context, tid, |values| {
        values.push(value);
        Ok(())
    })
}

/// Takes the value on top off and returns it.
///
/// # Errors
/// As [`push`]; [`Status::INVALID_ARGUMENT`] when there is none.
pub fn pop(context: u64, tid: u64) -> Result<u64, Status> {
    change(context, tid, |values| {
        values.pop().ok_or(Status::INVALID_ARGUMENT)
    })
}

/// The value that was on top at a moment; 0 when there was none, or nobody remembers.
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
