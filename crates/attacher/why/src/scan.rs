//! Finding the queues of a process in its memory.
//!
//! The runtime tells only the program where its queues are, and a program that hangs rings no
//! doorbell that would reveal it. But a queue can be recognized: it has a constant at a fixed
//! place, sizes that are powers of two, and a doorbell signal that leads back to it. So the scan
//! reads all memory that a runtime may have used for queues: private, writable, and present (pages
//! that the process has never touched are not touched by the scan either).

use crate::aql::{ALIGNMENT, Place, QUEUE};
use crate::memory::Bytes;
use midair_procinfo::maps::Mapping;
use midair_procinfo::{Tid, files};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// The most bytes that are scanned.
const MOST: u64 = 16 << 30;
/// The longest time that the scan may take.
const LONGEST: Duration = Duration::from_secs(4);
/// The most queues that are reported, and the most places that may be queues.
const MOST_QUEUES: usize = 1024;
const MOST_PLACES: usize = 1 << 14;
/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Returns the queues of a process, sorted by their numbers in the runtime.
pub(crate) fn queues(
    live: Tid,
    mappings: &[Mapping],
    memory: &impl Bytes,
    notes: &mut Vec<String>,
) -> Vec<Place> {
    let deadline = Instant::now() + LONGEST;
    let pages = files::kernel_file(format!("{live}/pagemap")).ok();
    let mut found = BTreeSet::new();
    let mut left = MOST;
    // Small mappings come first: the runtime's own data do not lie where the tensors do.
    let mut order: Vec<&Mapping> = mappings.iter().filter(|it| may_hold_queues(it)).collect();
    order.sort_by_key(|mapping| mapping.end - mapping.start);
    let mut whole = true;
    'all: for mapping in order {
        for (start, end) in present(pages.as_ref(), mapping) {
            let mut from = start;
            while from < end {
                if left == 0 || Instant::now() > deadline || found.len() >= MOST_PLACES {
                    whole = false;
                    break 'all;
                }
                let to = end.min(from + PIECE);
                left = left.saturating_sub(to - from);
                through(memory, from, to, &mut found);
                // The pieces overlap, since a queue may lie across the end of one.
                from = if to == end {
                    end
                } else {
                    to - QUEUE.next_multiple_of(ALIGNMENT) as u64
                };
            }
        }
    }
    if !whole {
        notes.push(
            "queues may be missing: the process has more memory than midair scans".to_owned(),
        );
    }
    let mut places: Vec<Place> = found.into_iter().filter(|it| it.is_live(memory)).collect();
    places.sort_by_key(|place| (place.id, place.at));
    if places.len() > MOST_QUEUES {
        notes.push(format!(
            "the process has {} queues: midair inspected {MOST_QUEUES} of them",
            places.len()
        ));
        places.truncate(MOST_QUEUES);
    }
    places
}

/// Whether a runtime may have used this memory for its queues.
fn may_hold_queues(mapping: &Mapping) -> bool {
    let path = mapping.path.as_slice();
    let is_anonymous = mapping.inode == 0 && !path.starts_with(b"/");
    let is_shared = [&b"/memfd:"[..], b"/dev/shm/", b"/dev/zero", b"/SYSV"]
        .iter()
        .any(|name| path.starts_with(name));
    mapping.read
        && mapping.write
        && (is_anonymous || is_shared)
        && ![&b"[vvar"[..], b"[vsyscall", b"[stack"]
            .iter()
            .any(|name| path.starts_with(name))
}

/// Returns the parts of a mapping that are in memory (source: Linux, admin-guide/mm/pagemap), or
/// all of it where the kernel does not tell.
fn present(pages: Option<&File>, mapping: &Mapping) -> Vec<(u64, u64)> {
    /// Entries that are read at a time.
    const AT_ONCE: u64 = 8192;
    const PRESENT: u64 = 1 << 63;
    let Some(pages) = pages else {
        return vec![(mapping.start, mapping.end)];
    };
    let mut runs: Vec<(u64, u64)> = Vec::new();
    let (first, last) = (mapping.start / PAGE, mapping.end / PAGE);
    let mut at = first;
    while at < last {
        let count = AT_ONCE.min(last - at);
        let mut bytes = vec![0; 8 * count as usize];
        if pages.read_exact_at(&mut bytes, 8 * at).is_err() {
            return vec![(mapping.start, mapping.end)];
        }
        for (n, entry) in bytes.chunks_exact(8).enumerate() {
            let entry = entry
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word));
            if entry & PRESENT == 0 {
                continue;
            }
            let start = (at + n as u64) * PAGE;
            match runs.last_mut() {
                Some((_, end)) if *end == start => *end = start + PAGE,
                _ => runs.push((start, start + PAGE)),
            }
        }
        at += count;
    }
    runs
}

/// Adds the queues that lie wholly within a piece of memory.
fn through(memory: &impl Bytes, from: u64, to: u64, found: &mut BTreeSet<Place>) {
    let mut bytes = vec![0; (to - from) as usize];
    if !memory.fill(from, &mut bytes) {
        return;
    }
    for (n, start) in (0..bytes.len().saturating_sub(QUEUE - 1))
        .step_by(ALIGNMENT)
        .enumerate()
    {
        let at = from + (n * ALIGNMENT) as u64;
        if let Some(place) = bytes
            .get(start..start + QUEUE)
            .and_then(|bytes| Place::of(at, bytes))
        {
            found.insert(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::fake::Pieces;

    /// Adds an `amd_queue_t` at `at`, with its ring and its doorbell.
    fn add(memory: &mut Pieces, bytes: &mut [u8], at: usize, base: u64, ring: u64) {
        let mut put = |offset: usize, value: &[u8]| {
            bytes[at + offset..at + offset + value.len()].copy_from_slice(value);
        };
        put(4, &1_u32.to_le_bytes());
        put(8, &ring.to_le_bytes());
        put(16, &(ring + 0x10_0000).to_le_bytes());
        put(24, &64_u32.to_le_bytes());
        put(136, &128_u32.to_le_bytes());
        memory.put(ring, &[0; 4096]);
        let way_back = base + at as u64;
        memory.words(ring + 0x10_0000, &[u64::MAX, 0, 0, 0, 0, 0, way_back, 0]);
    }

    #[test]
    fn queues_are_told_from_what_looks_like_them() {
        let mut memory = Pieces::default();
        let base = 0x7f00_0000_0000;
        let mut bytes = vec![0; 3 << 20];
        // One queue at the start, one across the end of a piece, and one whose doorbell leads
        // elsewhere.
        for (at, ring) in [(0, 0x1000_0000), ((1 << 20) - 64, 0x2000_0000)] {
            add(&mut memory, &mut bytes, at, base, ring);
        }
        add(&mut memory, &mut bytes, 8192, base, 0x3000_0000);
        memory.set(0x3000_0000 + 0x10_0000 + 48, 1);
        memory.put(base, &bytes);
        let text = format!("{base:x}-{:x} rw-p 0 00:00 0 ", base + (3 << 20));
        let mappings = midair_procinfo::maps::parse(text.as_bytes());
        let mut notes = Vec::new();
        // There is no such process, so its pages cannot be asked for.
        let found = queues(Tid::MAX, &mappings, &memory, &mut notes);
        let at: Vec<u64> = found.iter().map(|place| place.at - base).collect();
        assert_eq!(at, [0, (1 << 20) - 64], "{found:?}");
        assert!(notes.is_empty());
    }

    #[test]
    fn devices_and_files_are_left_alone() {
        let text = b"1000-2000 rw-p 0 00:00 0 \n\
            2000-3000 rw-s 0 00:06 5 /dev/dri/renderD128\n\
            3000-4000 rw-s 0 00:06 5 /dev/kfd\n\
            4000-5000 rw-s 0 00:01 5 /memfd:x (deleted)\n\
            5000-6000 rw-p 0 fe:01 5 /usr/lib/x.so\n\
            6000-7000 r--p 0 00:00 0 \n\
            7000-8000 rw-p 0 00:00 0 [stack]\n\
            8000-9000 rw-p 0 00:00 0 [heap]\n";
        let mappings = midair_procinfo::maps::parse(text);
        let starts: Vec<u64> = mappings
            .iter()
            .filter(|mapping| may_hold_queues(mapping))
            .map(|mapping| mapping.start)
            .collect();
        assert_eq!(starts, [0x1000, 0x4000, 0x8000]);
    }
}
