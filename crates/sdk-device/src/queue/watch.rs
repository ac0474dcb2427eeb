//! Signals of the application that carry times which nobody has read yet.
//!
//! We never stand between a signal and who waits for it; so the times of a dispatch or copy with a signal of its own are read by
//! our thread when it has fired, or at the last moment: when the application stores to the signal, destroys it, or hands it to the
//! next packet. A lookup is one or two cache lines. Keys stay for the session (applications reuse their signals); a session that
//! meets more signals than fit leaves the rest to our thread's look.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

const CAPACITY: usize = 1 << 14;
const PROBES: usize = 16;

struct Cell {
    signal: AtomicU64,
    /// Address of the watching entry, 0 = none; its lowest bit tells copies (1) from flights (0).
    watcher: AtomicUsize,
}

static CELLS: [Cell; CAPACITY] = [const {
    Cell {
        signal: AtomicU64::new(0),
        watcher: AtomicUsize::new(0),
    }
}; CAPACITY];
static WATCHED: AtomicUsize = AtomicUsize::new(0);

/// Who watches a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watcher {
    /// Address of a [`super::flight::Flight`].
    Flight(usize),
    /// Index of a copy.
    Copy(usize),
}

impl Watcher {
    fn pack(self) -> usize {
        match self {
            Watcher::Flight(address) => address,
            Watcher::Copy(index) => (index << 1) | 1,
        }
    }
    fn unpack(word: usize) -> Option<Watcher> {
        match word {
            0 => None,
            copy if copy & 1 == 1 => Some(Watcher::Copy(copy >> 1)),
            flight => Some(Watcher::Flight(flight)),
        }
    }
}

fn cells(signal: u64) -> impl Iterator<Item = &'static Cell> {
    let start = ((signal >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize;
    (0..PROBES).filter_map(move |step| CELLS.get((start + step) % CAPACITY))
}

/// Watches `signal` for `watcher`; returns who watched it before.
pub fn watch(signal: u64, watcher: Watcher) -> Option<Watcher> {
    for cell in cells(signal) {
        let known = cell.signal.load(Acquire);
        if known == signal
            || known == 0 && {
                match cell.signal.compare_exchange(0, signal, AcqRel, Acquire) {
                    Ok(_) => {
                        WATCHED.fetch_add(1, Relaxed);
                        true
                    }
                    Err(other) => other == signal,
                }
            }
        {
            return Watcher::unpack(cell.watcher.swap(watcher.pack(), AcqRel));
        }
    }
    None
}

/// Ends the watch and tells who had it. Cheap when nothing is watched.
#[inline]
pub fn unwatch(signal: u64) -> Option<Watcher> {
    if WATCHED.load(Relaxed) == 0 {
        return None;
    }
    for cell in cells(signal) {
        match cell.signal.load(Acquire) {
            0 => return None,
            known if known == signal => return Watcher::unpack(cell.watcher.swap(0, AcqRel)),
            _ => {}
        }
    }
    None
}

/// Ends the watch of `watcher` only.
pub fn release(signal: u64, watcher: Watcher) {
    for cell in cells(signal) {
        match cell.signal.load(Acquire) {
            0 => return,
            known if known == signal => {
                let _ = cell
                    .watcher
                    .compare_exchange(watcher.pack(), 0, AcqRel, Relaxed);
                return;
            }
            _ => {}
        }
    }
}

/// Forgets everything. Only while no session is on.
pub fn clear() {
    if WATCHED.swap(0, Relaxed) != 0 {
        for cell in &CELLS {
            cell.watcher.store(0, Relaxed);
            cell.signal.store(0, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_watcher_is_told_once() {
        clear();
        assert_eq!(watch(0x1000, Watcher::Flight(64)), None);
        assert_eq!(watch(0x1000, Watcher::Copy(3)), Some(Watcher::Flight(64)));
        release(0x1000, Watcher::Flight(64));
        assert_eq!(unwatch(0x1000), Some(Watcher::Copy(3)));
        assert_eq!(unwatch(0x1000), None);
        assert_eq!(unwatch(0x2000), None);
        clear();
    }
}
