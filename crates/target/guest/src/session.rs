//! One session: the spool is mapped, and the work is set up, run and undone.

use crate::connection::{Session, send_reply};
use crate::lease::Lease;
use crate::{BUSY_TICK, IDLE_TICK, Work, announcement, now, wait_on};
use midair_record::spool::{Area, command, outcome, state};
use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Runs the session that an attacher offers, from start to end.
///
/// Returns what is left to report to the attacher.
pub(crate) fn run(work: &mut dyn Work, session: Session) -> Option<Over> {
    let len = session.sent.offer.spool_size as usize;
    // SAFETY: this makes a new shared mapping of a descriptor that was sent to us, at an address of
    // the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            session.spool.number(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        send_reply(&session.socket, false);
        return None;
    }
    // A forked child must not have the mapping at all.
    // SAFETY: the mapping is our own.
    unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
    // SAFETY: the area was mapped above, and is unmapped below only when nothing refers to it. The
    // attacher sealed its size.
    let Some(area) = (unsafe { Area::new(base.cast(), len) }) else {
        send_reply(&session.socket, false);
        // SAFETY: the mapping is our own, and no thread uses it.
        unsafe { libc::munmap(base, len) };
        return None;
    };
    send_reply(&session.socket, true);
    let Session {
        sent,
        spool,
        socket,
    } = session;
    // From here on the attacher is reached only through the words of the spool. No descriptor of
    // ours stays open.
    drop((spool, socket));
    let state = match work.set_up(area, sent) {
        Ok(()) => {
            if work.is_announced() {
                announcement::write();
            }
            serve(work, area);
            state::COMPLETE
        }
        Err(refused) => {
            work.give_up();
            area.head().status.store(refused.status, Relaxed);
            area.set_message(&refused.text);
            state::FAILED
        }
    };
    let mapping = (!work.end()).then_some((base, len));
    Some(Over {
        area,
        state,
        mapping,
    })
}

/// A session that is over, and whose attacher waits for the report. Dropping it reports the end: the next attacher may
/// come from then on, so the process must be free for it.
pub(crate) struct Over {
    area: Area,
    /// How it ended.
    state: u32,
    /// Where the spool is mapped, unless a thread may still write into it.
    mapping: Option<(*mut c_void, usize)>,
}

impl Drop for Over {
    fn drop(&mut self) {
        set_state(self.area, self.state);
        if let Some((base, len)) = self.mapping {
            // SAFETY: the mapping is our own, and `Work::end` says that no thread writes into it any
            // more.
            unsafe { libc::munmap(base, len) };
        }
    }
}

fn serve(work: &mut dyn Work, area: Area) {
    let head = area.head();
    head.slots.store(work.slots(), Relaxed);
    head.attached_at.store(now(), Relaxed);
    set_state(area, state::ATTACHED);
    let mut lease = Lease::new(
        head.lease_tick.load(Acquire),
        now(),
        head.lease_ms.load(Acquire),
    );
    let reason = loop {
        let busy = work.tick();
        head.slots.store(work.slots(), Relaxed);
        head.target_tick.fetch_add(1, Release);
        if head.command.load(Acquire) == command::DETACH {
            break 0;
        }
        if let Some(reason) = work.leaving() {
            break reason;
        }
        if lease.has_run_out(head.lease_tick.load(Acquire), now()) {
            break outcome::LEASE_EXPIRED;
        }
        wait_on(
            &head.command,
            command::RUN,
            Some(if busy { BUSY_TICK } else { IDLE_TICK }),
            false,
        );
    };
    set_state(area, state::DETACHING);
    let deadline = now() + u64::from(head.drain_ms.load(Acquire)) * 1_000_000;
    let detached = || head.detached_at.store(now(), Relaxed);
    let left = work.stop(deadline, &detached);
    let last_words = work.last_words();
    if !last_words.is_empty() {
        area.set_message(&last_words);
    }
    head.outcome.store(left | reason, Release);
}

fn set_state(area: Area, value: u32) {
    area.head().state.store(value, Release);
    // SAFETY: the futex word is in a live shared mapping, and waking has no effect on memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const area.head().state,
            libc::FUTEX_WAKE,
            i32::MAX,
            0,
            0,
            0,
        )
    };
}
