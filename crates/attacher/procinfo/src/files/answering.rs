//! Which memory of a process can be read without the risk of waiting for ever.
//!
//! A page of a mapped file comes from the file's file system. So another user's memory is touched
//! only where it is anonymous, or shows a regular file of a file system that answers
//! ([`super::mounts`]). This is known from the process's list of mappings, which the process may
//! change at any time. Only a deadline helps against such a change.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use midair_ptrace::{Answers, Memory};

use super::kernel::kernel_text;
use super::mounts::Mounts;
use super::place::Rules;
use crate::Tid;
use crate::maps::{self, Mapping};

/// The least time between two readings of the mappings. They are read again for an address that was
/// not known. There may be many of them, and a walk of a stack meets many numbers that are no
/// addresses.
const REFRESH: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Answering {
    tid: Tid,
    mounts: Mounts,
    known: RwLock<Known>,
}

#[derive(Debug)]
struct Known {
    /// The ranges that answer, by address. No range is adjacent to the next.
    ranges: Vec<(u64, u64)>,
    read: Instant,
}

/// Returns the memory of the process of a live thread with these mappings, as far as it answers.
/// For a process of the caller's own all memory counts as answering.
pub(crate) fn memory(tid: Tid, mappings: &[Mapping], rules: &Rules) -> Memory {
    let Some(mounts) = rules.mounts.clone() else {
        return Memory::of(tid);
    };
    let known = RwLock::new(Known {
        ranges: ranges(mappings, &mounts),
        read: Instant::now(),
    });
    let answering = Answering { tid, mounts, known };
    Memory::answering(tid, Arc::new(answering))
}

/// Whether the kernel can provide the mapping's pages without the help of a user's server.
fn answers(mapping: &Mapping, mounts: &Mounts) -> bool {
    match mapping.inode {
        // Anonymous memory, a stack, a heap, or memory of the kernel's own.
        0 => !mapping.path.starts_with(b"/"),
        // A device's driver may do anything, so its memory is not touched.
        _ if mapping.path.starts_with(b"/dev/") && !mapping.path.starts_with(b"/dev/shm/") => {
            mapping.path == b"/dev/zero"
        }
        _ => mapping.is_file() && mounts.device_answers(mapping.device) == Some(true),
    }
}

fn ranges(mappings: &[Mapping], mounts: &Mounts) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::new();
    for mapping in mappings.iter().filter(|mapping| answers(mapping, mounts)) {
        match all.last_mut() {
            Some((_, end)) if *end == mapping.start => *end = mapping.end,
            _ => all.push((mapping.start, mapping.end)),
        }
    }
    all
}

impl Known {
    /// Returns how many of the `len` bytes at `at` lie in a range that answers.
    fn answering(&self, at: u64, len: usize) -> usize {
        let after = self.ranges.partition_point(|&(start, _)| start <= at);
        let range = after
            .checked_sub(1)
            .and_then(|index| self.ranges.get(index));
        let left = range.map_or(0, |&(_, end)| end.saturating_sub(at));
        usize::try_from(left).unwrap_or(usize::MAX).min(len)
    }

    /// Adds a range that no known range contained.
    fn add(&mut self, start: u64, end: u64) {
        let at = self.ranges.partition_point(|&(known, _)| known < start);
        self.ranges.insert(at, (start, end));
    }
}

impl Answers for Answering {
    fn answering(&self, at: u64, len: usize) -> usize {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let some = known.answering(at, len);
        if some == len || known.read.elapsed() < REFRESH {
            return some;
        }
        drop(known);
        // The address may lie on a stack that was mapped since, so the list is read again.
        let Ok(text) = kernel_text(format!("{}/maps", self.tid)) else {
            return some;
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        *known = Known {
            ranges: ranges(&maps::parse(&text), &self.mounts),
            read: Instant::now(),
        };
        known.answering(at, len)
    }

    fn mapped(&self, at: u64, len: usize) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.add(at, at.saturating_add(len as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_answers() {
        let text = b"1000-2000 rw-p 00000000 00:00 0 \n\
            2000-3000 rw-p 00000000 00:00 0    [heap]\n\
            5000-6000 r--p 00000000 fe:00 12   /lib/libc.so.6\n\
            6000-7000 r--p 00000000 00:fe 12   /a\n\
            7000-8000 rw-s 00000000 00:06 12   /dev/dri/renderD128\n\
            8000-9000 rw-p 00000000 00:00 0    anon_inode:x\n";
        let mappings = maps::parse(text);
        let ranges = ranges(&mappings, &Mounts::default());
        assert_eq!(
            ranges,
            [(0x1000, 0x3000), (0x5000, 0x6000), (0x8000, 0x9000)]
        );
        let mut known = Known {
            ranges,
            read: Instant::now(),
        };
        // Memory that an attacher mapped is known at once, no matter when the list was read.
        assert_eq!(known.answering(0x9000, 8), 0);
        known.add(0x9000, 0xa000);
        known.add(0x4000, 0x4800);
        assert_eq!(
            (known.answering(0x9000, 8), known.answering(0x4000, 8)),
            (8, 8)
        );
        for (at, len, some) in [
            (0x0, 8, 0),
            (0x1000, 8, 8),
            (0x2ff8, 16, 8),
            (0x3000, 1, 0),
            (0x5ff0, 0x2000, 0x10),
            (0x6000, 4, 0),
            (u64::MAX, 4, 0),
        ] {
            assert_eq!(known.answering(at, len), some, "{at:x}");
        }
    }

    #[test]
    fn a_mapping_that_came_later_is_found() {
        let me = crate::Pid::own().leader();
        let answering = Answering {
            tid: me,
            mounts: Mounts::of(None).unwrap(),
            known: RwLock::new(Known {
                ranges: Vec::new(),
                read: Instant::now() - REFRESH,
            }),
        };
        let here = &answering as *const Answering as u64;
        assert_eq!(answering.answering(here, 4), 4);
        let code = only_what_answers as *const () as u64;
        assert_eq!(answering.answering(code, 4), 4);
        assert_eq!(answering.answering(16, 4), 0);
    }
}
