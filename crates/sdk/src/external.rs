//! External correlation ids: per context and thread a stack of a tool's values, whose top goes with what the thread does.
//!
//! Tools that are told of calls get the value as it is then, from a table without locks. Records in buffers get the value of the moment
//! that they begin at, from the history of changes: what writes them does not look.

use crate::clock::now;
use crate::state;
use crate::status::Status;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};

/// Changes that are remembered of a context and thread. Records arrive within milliseconds of what they tell.
const HISTORY: usize = 4096;
/// Contexts and threads with values of their own; a power of two.
const PLACES: usize = 4096;
/// How far from its own place an entry may be.
const PROBES: usize = 32;

#[derive(Debug, Default)]
struct Stack {
    values: Vec<u64>,
    /// When which value came to the top.
    changes: VecDeque<(u64, u64)>,
}

static STACKS: Mutex<Option<HashMap<(u64, u64), Stack>>> = Mutex::new(None);

/// A top of a stack. A key is never taken out; the value of an empty stack is 0.
#[derive(Debug)]
struct Top {
    key: AtomicU64,
    value: AtomicU64,
}

static TOPS: [Top; PLACES] = [const {
    Top {
        key: AtomicU64::new(0),
        value: AtomicU64::new(0),
    }
}; PLACES];

fn key(context: u64, tid: u64) -> u64 {
    context << 32 | tid & 0xffff_ffff
}

fn places(key: u64) -> impl Iterator<Item = &'static Top> {
    let first = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..PROBES).filter_map(move |step| TOPS.get((first as usize + step) % PLACES))
}

/// The value that goes with what a thread does now. For the application's threads: no lock.
pub(crate) fn current(context: u64, tid: u64) -> u64 {
    let key = key(context, tid);
    for top in places(key) {
        match top.key.load(Acquire) {
            0 => return 0,
            there if there == key => return top.value.load(Acquire),
            _ => {}
        }
    }
    0
}

fn set_current(context: u64, tid: u64, value: u64) -> Result<(), Status> {
    let key = key(context, tid);
    let place = places(key).find(|top| {
        let there = top.key.load(Acquire);
        there == key
            || there == 0
                && match top.key.compare_exchange(0, key, AcqRel, Acquire) {
                    Ok(_) => true,
                    Err(other) => other == key,
                }
    });
    place
        .ok_or(Status::OUT_OF_RESOURCES)?
        .value
        .store(value, Release);
    Ok(())
}

fn change<T>(
    context: u64,
    tid: u64,
    act: impl FnOnce(&mut Vec<u64>) -> Result<T, Status>,
) -> Result<T, Status> {
    state::lock().context(context)?;
    let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    let stack = stacks
        .get_or_insert_default()
        .entry((context, tid))
        .or_default();
    let result = act(&mut stack.values)?;
    let top = stack.values.last().copied().unwrap_or(0);
    set_current(context, tid, top)?;
    if stack.changes.len() == HISTORY {
        stack.changes.pop_front();
    }
    stack.changes.push_back((now(), top));
    USED.store(1, Relaxed);
    Ok(result)
}

/// 1 once a tool has pushed a value.
static USED: AtomicU64 = AtomicU64::new(0);

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
    if USED.load(Relaxed) == 0 {
        return 0;
    }
    let stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(stack) = stacks.as_ref().and_then(|all| all.get(&(context, tid))) else {
        return 0;
    };
    let after = stack.changes.partition_point(|(when, _)| *when <= time);
    after
        .checked_sub(1)
        .and_then(|last| stack.changes.get(last))
        .map_or(0, |(_, value)| *value)
}

/// See [`crate::forked`].
pub(crate) fn begin_anew() {
    // SAFETY: in a forked child before its first session: the only thread that uses it.
    unsafe { crate::forked::renew(&STACKS, None) };
    for top in &TOPS {
        top.value.store(0, Relaxed);
        top.key.store(0, Release);
    }
    USED.store(0, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tops_are_those_of_their_context_and_thread() {
        for tid in 1..1000 {
            set_current(1, tid, tid * 3).unwrap();
        }
        set_current(2, 7, 5).unwrap();
        assert!((1..1000).all(|tid| current(1, tid) == tid * 3));
        assert_eq!((current(2, 7), current(2, 8), current(3, 7)), (5, 0, 0));
        set_current(2, 7, 0).unwrap();
        assert_eq!(current(2, 7), 0);
    }
}
