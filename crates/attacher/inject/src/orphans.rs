//! Orphaned mappings: midair's memory in a target that no thread uses. They are left behind when an
//! attacher dies between mapping the memory and the end of the worker thread there. The next
//! attacher that borrows a thread unmaps them.
//!
//! The mappings lie at addresses that are recognised later ([`hint`]), even before anything was
//! written to them. A mapping is only unmapped if it is proven to be unused. First, no thread of
//! the process is traced, so no attacher is at work. Second, the mapping's worker thread never
//! existed or has ended. Third, the thread that was borrowed to make it does not run in it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::offset_of;
use std::time::Duration;

use midair_procinfo::maps::Mapping;
use midair_procinfo::syscall::Activity;
use midair_procinfo::{Tid, task};
use midair_ptrace::{Deadline, Pace, RemoteAddr};
use midair_record::boot::{BootBlock, MAGIC, mailbox};

use crate::inspection::Inspection;
use crate::mappings::{CODE_LEN, Mappings, WHOLE_LEN};
use crate::worker::Block;

/// The first address for our mappings, if there is space: "mi" in ASCII, far from where kernels
/// place anything by themselves.
const FIRST: u64 = 0x6d69_0000_0000;
/// The distance between two such addresses.
const STRIDE: u64 = 2 << 20;
/// The number of such addresses. There are many, so that no attacker knows the address of
/// executable memory beforehand.
const PLACES: u64 = 1 << 16;
/// How many mappings are unmapped at one time. The borrowed thread has to wait meanwhile.
const MOST: usize = 4;
/// How long we wait to see the thread that was borrowed for a mapping outside of it.
const PATIENCE: Duration = Duration::from_millis(20);

/// Returns an address to ask for. The kernel takes another one if something is in the way.
pub(crate) fn hint() -> u64 {
    let chance = RandomState::new().build_hasher().finish();
    FIRST + chance % PLACES * STRIDE
}

/// Returns midair's mappings that are unused.
pub(crate) fn find(look: &Inspection) -> Vec<Mappings> {
    let mut ours = look
        .modules
        .mappings
        .iter()
        .filter(|mapping| is_ours(mapping));
    let Some(first) = ours.next() else {
        return Vec::new();
    };
    // Whatever was mapped after this inspection is not in the list. An attacher that mapped memory
    // before it and is still at work traces a thread.
    let traced = |tid: Tid| task::status(tid).is_ok_and(|status| status.tracer.is_some());
    let Ok(tids) = task::list(look.tid) else {
        return Vec::new();
    };
    if tids.iter().any(|&tid| traced(tid)) {
        return Vec::new();
    }
    std::iter::once(first)
        .chain(ours)
        .filter(|mapping| is_nobodys(look, &tids, mapping))
        .map(|mapping| Mappings::at(RemoteAddr::new(mapping.start)))
        .take(MOST)
        .collect()
}

fn is_ours(mapping: &Mapping) -> bool {
    let place = mapping.start.wrapping_sub(FIRST);
    let len = mapping.end - mapping.start;
    place.is_multiple_of(STRIDE)
        && place / STRIDE < PLACES
        && mapping.execute
        && !mapping.write
        && !mapping.shared
        && mapping.inode == 0
        && (len == WHOLE_LEN || len == CODE_LEN)
}

fn is_nobodys(look: &Inspection, tids: &[Tid], mapping: &Mapping) -> bool {
    let block = Block {
        memory: look.memory(),
        at: Mappings::at(RemoteAddr::new(mapping.start)).data,
    };
    let word = |offset: usize| block.word(offset).ok();
    match block.word64(offset_of!(BootBlock, magic)) {
        Ok(MAGIC) => {}
        // Nothing was written, so no thread was ever sent there.
        Ok(0) => return mapping.end - mapping.start == WHOLE_LEN,
        _ => return false,
    }
    let inside = |id: u32| {
        tids.iter().copied().find(|&tid| {
            task::status(tid)
                .is_ok_and(|status| status.own_tid().is_some_and(|tid| tid.get() == id))
        })
    };
    let (Some(borrowed), Some(_)) = (
        word(offset_of!(BootBlock, borrowed)).filter(|&id| id != 0),
        word(offset_of!(BootBlock, tid)),
    ) else {
        return false;
    };
    if inside(borrowed).is_some_and(|tid| !is_seen_outside(tid, mapping.start)) {
        return false;
    }
    // No thread can start to run in it now, so what is read from here on stays true.
    let (Some(made), Some(state), Some(worker)) = (
        word(offset_of!(BootBlock, stub_result)),
        block.mailbox().ok(),
        word(offset_of!(BootBlock, tid)),
    ) else {
        return false;
    };
    match state {
        // A thread that was made but has not run yet has not stored its id.
        mailbox::EMPTY => made != 1,
        mailbox::FAILED | mailbox::ENDED => worker != 0 && inside(worker).is_none(),
        // A library was loaded by this worker thread, or, in a forked child, the block says that it
        // was.
        _ => false,
    }
}

/// Returns true if a thread is blocked outside of the mapping at `start`. It does not come back
/// there by itself.
fn is_seen_outside(tid: Tid, start: u64) -> bool {
    let within = |address: u64| address.wrapping_sub(start) < WHOLE_LEN;
    let deadline = Deadline::after(PATIENCE);
    let mut pace = Pace::new();
    loop {
        match task::activity(tid) {
            Ok(Activity::Syscall(call)) => return !within(call.sp) && !within(call.pc),
            Ok(Activity::Blocked { sp, pc }) => return !within(sp) && !within(pc),
            Ok(Activity::Running) => {}
            Err(_) => return !task::is_alive(tid),
        }
        if deadline.passed() {
            return false;
        }
        pace.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, len: u64, rights: &str) -> Mapping {
        let text = format!("{start:x}-{:x} {rights} 00000000 00:00 0", start + len);
        midair_procinfo::maps::line(text.as_bytes()).unwrap()
    }

    #[test]
    fn ours_are_known_by_place_length_and_rights() {
        for _ in 0..100 {
            assert!(is_ours(&mapping(hint(), WHOLE_LEN, "r-xp")));
        }
        assert_ne!(hint(), hint());
        assert!(is_ours(&mapping(FIRST, CODE_LEN, "r-xp")));
        for other in [
            mapping(FIRST, 2 * CODE_LEN, "r-xp"),
            mapping(FIRST, WHOLE_LEN, "rw-p"),
            mapping(FIRST, WHOLE_LEN, "r-xs"),
            mapping(FIRST + CODE_LEN, WHOLE_LEN, "r-xp"),
            mapping(FIRST - STRIDE, WHOLE_LEN, "r-xp"),
            mapping(FIRST + PLACES * STRIDE, WHOLE_LEN, "r-xp"),
        ] {
            assert!(!is_ours(&other), "{other:?}");
        }
    }
}
