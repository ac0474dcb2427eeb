//! The tables that were registered. The store is append-only, has a fixed size and is made of
//! atomics. So it can be read at any time, even in a child that was forked while another thread
//! wrote.

use crate::client::{CLIENTS, INSTANCES, ROCATTACH};
use crate::code::Code;
use midair_lockfree::{AtomicEnum, Slot, SlotState, SlotTable, word_enum};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// The maximum number of tables in one registration. Real ones have one, ROCTx has three.
pub const MAX_TABLES: u64 = 64;

word_enum! {
    /// The state of an entry. No entry is ever freed.
    enum State else Free {
        /// Unused.
        Free = 0,
        /// A thread is storing a registration.
        Held = 1,
        /// It contains a registration.
        Ready = 2,
    }
}

impl SlotState for State {
    const FREE: State = State::Free;
    const HELD: State = State::Held;
}

/// One registration.
#[derive(Debug)]
pub struct Entry {
    client: AtomicUsize,
    version: AtomicU32,
    instance: AtomicU32,
    tables: AtomicPtr<*mut c_void>,
    length: AtomicUsize,
    handed_over: AtomicBool,
}

const CAPACITY: usize = CLIENTS.len() * INSTANCES as usize;

static ENTRIES: SlotTable<AtomicEnum<State>, CAPACITY, Entry> =
    SlotTable::new([const { Slot::new(AtomicEnum::new(), Entry::new(), ()) }; CAPACITY]);

static COUNTS: [AtomicU32; CLIENTS.len()] = [const { AtomicU32::new(0) }; CLIENTS.len()];

impl Entry {
    const fn new() -> Entry {
        Entry {
            client: AtomicUsize::new(0),
            version: AtomicU32::new(0),
            instance: AtomicU32::new(0),
            tables: AtomicPtr::new(std::ptr::null_mut()),
            length: AtomicUsize::new(0),
            handed_over: AtomicBool::new(false),
        }
    }
    /// Index of the library in [`CLIENTS`].
    pub fn client(&self) -> usize {
        self.client.load(Ordering::Relaxed)
    }
    /// The library's name.
    pub fn name(&self) -> &'static CStr {
        CLIENTS.get(self.client()).map_or(c"", |c| c.name)
    }
    /// The library's version, as it encodes it (10000 * major + 100 * minor + patch).
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Relaxed)
    }
    /// The number of this copy of the library, from 0.
    pub fn instance(&self) -> u32 {
        self.instance.load(Ordering::Relaxed)
    }
    /// The array of table addresses; it belongs to us and is never freed.
    pub fn tables(&self) -> *mut *mut c_void {
        self.tables.load(Ordering::Relaxed)
    }
    /// Number of tables.
    pub fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }
    /// Claims the right to hand this entry over. Returns true for one caller only, until
    /// [`Entry::unclaim`].
    pub fn claim(&self) -> bool {
        !self.handed_over.swap(true, Ordering::AcqRel)
    }
    /// Marks it as not handed over.
    pub fn unclaim(&self) {
        self.handed_over.store(false, Ordering::Release);
    }
    /// The handle that the library received.
    pub fn handle(&self) -> u64 {
        u64::from(INSTANCES) * self.client() as u64 + u64::from(self.instance())
    }
}

/// Keeps a registration. The table addresses are copied; the tables must live as long as the
/// process, as they do in AMD's runtimes.
///
/// # Errors
/// [`Code::ExcessApiInstances`] when this library registered too often.
///
/// # Safety
/// `tables` points to `length` readable pointers, `length` at most [`MAX_TABLES`].
pub unsafe fn keep(
    client: usize,
    version: u32,
    tables: *const *mut c_void,
    length: usize,
) -> Result<&'static Entry, Code> {
    let count = COUNTS.get(client).ok_or(Code::UnsupportedApi)?;
    let instance = count
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
            (n < INSTANCES).then_some(n + 1)
        })
        .map_err(|_| Code::ExcessApiInstances)?;
    // SAFETY: the caller vouches for `length` readable pointers.
    let copy: Box<[*mut c_void]> = unsafe { std::slice::from_raw_parts(tables, length) }.into();
    let kept = Box::leak(copy);
    // The table has an entry for every copy of every library.
    let (_, held) = ENTRIES.claim().ok_or(Code::ExcessApiInstances)?;
    let entry = held.shared();
    entry.client.store(client, Ordering::Relaxed);
    entry.version.store(version, Ordering::Relaxed);
    entry.instance.store(instance, Ordering::Relaxed);
    entry.tables.store(kept.as_mut_ptr(), Ordering::Relaxed);
    entry.length.store(length, Ordering::Relaxed);
    held.publish(State::Ready);
    Ok(entry)
}

/// Returns all entries in the order in which they must be handed over: the attach helper's table
/// first.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    let ready = || {
        ENTRIES
            .used()
            .filter(|(_, slot)| slot.state() == State::Ready)
            .map(|(_, slot)| slot.shared())
    };
    ready()
        .filter(|e| e.client() == ROCATTACH)
        .chain(ready().filter(|e| e.client() != ROCATTACH))
}

/// Whether a library of this index has registered.
pub fn has(client: usize) -> bool {
    entries().any(|e| e.client() == client)
}
