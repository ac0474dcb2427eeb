//! The tables that were registered. Append only, of fixed size and made of atomics, so that it can be read at any time, also
//! in a child that was forked while somebody wrote.

use crate::client::{CLIENTS, INSTANCES, ROCATTACH};
use crate::code::Code;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Most tables that one registration may bring. Real ones bring one, ROCTx three.
pub const MAX_TABLES: u64 = 64;

const EMPTY: u32 = 0;
const FILLING: u32 = 1;
const READY: u32 = 2;

/// One registration.
#[derive(Debug)]
pub struct Entry {
    state: AtomicU32,
    client: AtomicUsize,
    version: AtomicU32,
    instance: AtomicU32,
    tables: AtomicPtr<*mut c_void>,
    length: AtomicUsize,
    handed_over: AtomicBool,
}

const PLACES: usize = CLIENTS.len() * INSTANCES as usize;

static ENTRIES: [Entry; PLACES] = [const {
    Entry {
        state: AtomicU32::new(EMPTY),
        client: AtomicUsize::new(0),
        version: AtomicU32::new(0),
        instance: AtomicU32::new(0),
        tables: AtomicPtr::new(std::ptr::null_mut()),
        length: AtomicUsize::new(0),
        handed_over: AtomicBool::new(false),
    }
}; PLACES];

static COUNTS: [AtomicU32; CLIENTS.len()] = [const { AtomicU32::new(0) }; CLIENTS.len()];

impl Entry {
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
    /// Which copy of the library, from 0.
    pub fn instance(&self) -> u32 {
        self.instance.load(Ordering::Relaxed)
    }
    /// The array of table addresses: ours, never freed.
    pub fn tables(&self) -> *mut *mut c_void {
        self.tables.load(Ordering::Relaxed)
    }
    /// How many tables.
    pub fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }
    /// Takes the right to hand this entry over: true for one caller only, until [`Entry::give_back`].
    pub fn claim(&self) -> bool {
        !self.handed_over.swap(true, Ordering::AcqRel)
    }
    /// Marks it as not handed over.
    pub fn give_back(&self) {
        self.handed_over.store(false, Ordering::Release);
    }
    /// The `handle` that the library got.
    pub fn handle(&self) -> u64 {
        u64::from(INSTANCES) * self.client() as u64 + u64::from(self.instance())
    }
}

/// Keeps a registration. The table addresses are copied; the tables must live as long as the process, as they do in AMD's.
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
    for entry in &ENTRIES {
        if entry
            .state
            .compare_exchange(EMPTY, FILLING, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            continue;
        }
        entry.client.store(client, Ordering::Relaxed);
        entry.version.store(version, Ordering::Relaxed);
        entry.instance.store(instance, Ordering::Relaxed);
        entry.tables.store(kept.as_mut_ptr(), Ordering::Relaxed);
        entry.length.store(length, Ordering::Relaxed);
        entry.state.store(READY, Ordering::Release);
        return Ok(entry);
    }
    // Cannot come: there is a place for every copy of every library.
    Err(Code::ExcessApiInstances)
}

/// Everything kept, in the order in which it must be handed over: the attach helper's table first.
pub fn entries() -> impl Iterator<Item = &'static Entry> {
    let ready = || {
        ENTRIES
            .iter()
            .filter(|e| e.state.load(Ordering::Acquire) == READY)
    };
    ready()
        .filter(|e| e.client() == ROCATTACH)
        .chain(ready().filter(|e| e.client() != ROCATTACH))
}

/// Whether a library of this index has registered.
pub fn has(client: usize) -> bool {
    entries().any(|e| e.client() == client)
}
