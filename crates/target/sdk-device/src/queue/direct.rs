//! Queues whose doorbell is rung past the hooks.
//!
//! A program may store to the doorbell itself instead of calling the runtime; HIP does so with
//! `DEBUG_CLR_DIRECT_DOORBELL=1`. We notice that by its effect: the device takes packets for which
//! no doorbell was rung through us. From then on packets are looked at when the next ones are
//! reserved, on the application's thread, and in each round of the worker thread. A dispatch that
//! still waits for the device at that time is timed. The others are recorded as untimed, with the
//! reason.
//!
//! Decisions: AMD-064 (`docs/deviations/amd.md`).

use super::queue_state::{Locked, QueueState};
use super::scan;
use crate::state::STATE;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::original;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// How long, in nanoseconds, the device may have had packets before a thread rings for them. A
/// device that remaps a queue takes all valid packets, and the thread that wrote them may be
/// preempted before it rings.
const OWED: u64 = 5_000_000;
/// HIP's environment variable.
const SWITCH: &[u8] = b"DEBUG_CLR_DIRECT_DOORBELL=";

/// Returns whether this process was started with HIP's variable switched on.
pub(super) fn is_asked_for() -> bool {
    // Read the environment with which the process was started, since the list in memory may change
    // while it is read.
    let environment = std::fs::read("/proc/self/environ").unwrap_or_default();
    is_on(&environment)
}

fn is_on(environment: &[u8]) -> bool {
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(SWITCH));
    !matches!(value, None | Some(b"" | b"0" | b"false"))
}

/// Returns the write and the read index, or `None` if the application has destroyed the queue.
fn indices(queue: &QueueState) -> Option<(u64, u64)> {
    queue.visit(|pointer| {
        // SAFETY: `visit` calls this only with a live queue.
        unsafe {
            (
                original::hsa_queue_load_write_index_scacquire(pointer.0 as *mut _),
                original::hsa_queue_load_read_index_scacquire(pointer.0 as *mut _),
            )
        }
    })
}

/// Does one round of the worker thread.
pub(super) fn watch(queue: &'static QueueState) {
    let Some((written, read)) = indices(queue) else {
        return;
    };
    // The usual case takes no lock, since threads of the application might have to wait for it.
    if !queue.is_direct() && read <= queue.covered.load(Relaxed) {
        return;
    }
    let Some(mut inner) = queue.lock() else {
        return;
    };
    if !queue.is_direct() {
        let known = inner.rung_by_us();
        if read <= known {
            inner.owed_since = 0;
            return;
        }
        if inner.owed_since == 0 || inner.owed_above != known {
            (inner.owed_above, inner.owed_since) = (known, now());
            return;
        }
        if now().saturating_sub(inner.owed_since) < OWED {
            return;
        }
        queue.direct.store(1, Relaxed);
    }
    look(queue, &mut inner, written);
}

/// Looks at a queue's packets when the session closes: it is the last chance to look at what the
/// device has taken.
pub(super) fn close(queue: &'static QueueState, inner: &mut Locked<'_>) {
    let Some((written, read)) = indices(queue) else {
        return;
    };
    if queue.is_direct() || read > inner.rung_by_us() {
        queue.direct.store(1, Relaxed);
        look(queue, inner, written);
    }
}

fn look(queue: &'static QueueState, inner: &mut Locked<'_>, written: u64) {
    queue.visit(|_| scan::look(queue, inner, None, written));
}

/// Returns the number of packets that were looked at, and for which no doorbell was rung through
/// us.
pub(super) fn past(queue: &QueueState, inner: &Locked<'_>) -> u64 {
    if queue.is_direct() {
        inner.next.saturating_sub(inner.rung_by_us())
    } else {
        0
    }
}

/// Returns the note about packets that were rung past the hooks, if there were any. `queues` is the
/// number of queues that they were on.
pub(super) fn note(packets: u64, queues: u64) -> Option<String> {
    let switch = "DEBUG_CLR_DIRECT_DOORBELL";
    if packets > 0 {
        return Some(format!(
            "{packets} packets on {queues} queues bypassed midair ({switch}, or the program's own doorbell): their dispatches are counted, and have times if they were still waiting when midair saw them"
        ));
    }
    let none = STATE.queues.used.load(Acquire) == 0;
    (none && STATE.queues.direct.load(Relaxed)).then(|| {
        format!("{switch} is set, and no queue activity was observed: dispatches may be missing")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_read() {
        for on in [
            "DEBUG_CLR_DIRECT_DOORBELL=1\0",
            "A=b\0DEBUG_CLR_DIRECT_DOORBELL=true",
        ] {
            assert!(is_on(on.as_bytes()), "{on}");
        }
        for off in [
            "",
            "A=DEBUG_CLR_DIRECT_DOORBELL=1",
            "DEBUG_CLR_DIRECT_DOORBELL=0\0",
            "DEBUG_CLR_DIRECT_DOORBELL=",
        ] {
            assert!(!is_on(off.as_bytes()), "{off}");
        }
    }
}
