//! Slots of the live tables: taken by one aligned store each, given back only if they still hold ours.

use crate::tables::Live;
use midair_domain::{KindSet, sets};
use midair_record::event::kind;
use midair_sdk_device::hooks::{Hook, Purpose};
use midair_sdk_hot::wrappers::{Slot, TABLES, Table};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

/// What a session needs of the tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// Kinds whose calls are recorded.
    pub recorded: KindSet,
    /// Kinds whose calls tools are told of.
    pub called: KindSet,
    /// Kinds of the device's work and of memory.
    pub work: KindSet,
}

impl Need {
    /// Kinds whose calls get a correlation id: what is recorded, and HIP's when something that it
    /// launches is; and the kinds of the device's work that is wanted.
    pub fn tracked(&self) -> KindSet {
        // Ranges are made from the calls that begin and end them.
        let ranges = self.recorded.contains(kind::MARKER_CORE_RANGE_API);
        let calls = if self.device() {
            self.recorded | self.called | sets::HIP_CALLS
        } else {
            self.recorded | self.called
        };
        (calls | self.work).with_if(kind::MARKER_CORE_API, ranges)
    }

    /// Whether the runtime has to be open for what is wanted.
    pub fn runtime(&self) -> bool {
        !self.work.is_empty()
    }

    /// Whether ROCTx is wanted.
    pub fn markers(&self) -> bool {
        self.tracked().intersects(sets::MARKERS)
    }

    /// Whether any of the device's work is wanted.
    pub fn device(&self) -> bool {
        self.work.intersects(sets::NEEDS_DEVICE)
    }

    fn wants(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Kernels => self.work.contains(kind::KERNEL_DISPATCH),
            Purpose::Copies => self.work.contains(kind::MEMORY_COPY),
            Purpose::Signals => self.device(),
            Purpose::Allocations => self.work.contains(kind::MEMORY_ALLOCATION),
            Purpose::Always => true,
        }
    }
}

/// A slot that holds ours.
#[derive(Debug, Clone, Copy)]
struct Taken {
    address: usize,
    ours: *mut (),
    before: *mut (),
    /// See [`Live::home`].
    home: usize,
}

impl Taken {
    /// Whether a slot with `value` has neither ours nor anybody's wrapper over ours: somebody who
    /// was there before us has put back what there was before, or even the runtime's own function.
    fn is_gone(&self, value: *mut ()) -> bool {
        // SAFETY: dladdr takes any address; the out structure is plain data that zero is a value of.
        let (known, info) = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            (libc::dladdr(value.cast(), &mut info) != 0, info)
        };
        value == self.before || known && info.dli_fbase.addr() == self.home
    }
}

/// Slots that hold ours, and those where somebody put a wrapper over ours in an earlier session:
/// ours stays below it as a pass-through, is in use again when a session is on, and goes when it
/// comes to the top again.
#[derive(Debug)]
pub struct Installed {
    /// All hooks there are.
    hooks: Vec<&'static [Hook]>,
    taken: Vec<Taken>,
    buried: Vec<Taken>,
}

/// What is known of slots beyond a process's own lists.
#[derive(Debug)]
pub struct Marks {
    /// Slots may hold ours, or somebody's wrapper over ours, that no list of this process knows of:
    /// it was forked while they were in.
    pub inherited: AtomicBool,
    /// Wrappers stood over ours at the end of the last session.
    pub buried: AtomicBool,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks::new()
    }
}

impl Marks {
    /// Of a process that nothing was hooked in.
    pub const fn new() -> Marks {
        Marks {
            inherited: AtomicBool::new(false),
            buried: AtomicBool::new(false),
        }
    }
}

/// Whether a slot's value is one of ours for it.
fn is_ours(hooks: &[&'static [Hook]], slot: &Slot, value: *mut ()) -> bool {
    value.cast_const() == slot.wrapper
        || hooks
            .iter()
            .copied()
            .flatten()
            .any(|hook| hook.name == slot.name && hook.function == value.cast_const())
}

// SAFETY: the pointers are addresses of functions and slots, only used by the worker thread.
unsafe impl Send for Installed {}

fn slot_at(address: usize) -> &'static AtomicPtr<()> {
    // SAFETY: the address of an aligned slot inside a live table, checked writable when the table
    // was found; a runtime's tables are statics of a library that is not unloaded.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicPtr<()>>(address) }
}

fn table_of(live: &Live) -> Option<&'static Table> {
    TABLES.get(live.index)
}

impl Installed {
    /// Nothing is in yet; `hooks` are all there are.
    pub fn new(hooks: Vec<&'static [Hook]>) -> Installed {
        Installed {
            hooks,
            taken: Vec::new(),
            buried: Vec::new(),
        }
    }

    /// Saves what the slots of a table hold, for the wrappers and for our own calls. Takes nothing yet.
    pub fn adopt(&mut self, live: &Live, marks: &Marks) {
        let Some(table) = table_of(live) else { return };
        self.buried
            .retain(|buried| !buried.is_gone(slot_at(buried.address).load(Acquire)));
        for slot in table
            .slots
            .iter()
            .filter(|slot| slot.offset + 8 <= live.size)
        {
            let address = live.base + slot.offset;
            let ours = self.buried.iter().chain(&self.taken);
            if ours.into_iter().any(|taken| taken.address == address) {
                // What is in the slot calls ours, and ours calls what it always called.
                continue;
            }
            let value = slot_at(address).load(Acquire);
            let before = slot.original.load(Acquire);
            if !before.is_null() && value.cast_const() != before.cast_const() {
                let taken = Taken {
                    address,
                    ours: slot.wrapper.cast_mut(),
                    before,
                    home: live.home,
                };
                if is_ours(&self.hooks, slot, value) {
                    // Ours since before the fork: in use again, and given back at the end.
                    self.buried.push(Taken {
                        ours: value,
                        ..taken
                    });
                    continue;
                }
                if marks.inherited.load(Relaxed) && !taken.is_gone(value) {
                    // Somebody's, maybe over ours: to call it from ours could go round in a circle.
                    self.buried.push(taken);
                    continue;
                }
            }
            if !value.is_null() {
                slot.original.store(value, Release);
            }
        }
    }

    /// Takes the slot of `hsa_init`, if it is in this table.
    pub fn take_opener(&mut self, live: &Live) {
        self.take_some(live, &Need::default(), |name| name == "hsa_init");
    }

    /// Takes the slots that `need` asks for. Returns how many hold ours now.
    pub fn take(&mut self, live: &Live, need: &Need) -> usize {
        self.take_some(live, need, |_| true)
    }

    fn take_some(&mut self, live: &Live, need: &Need, wanted: impl Fn(&str) -> bool) -> usize {
        let Some(table) = table_of(live) else {
            return 0;
        };
        let all = need.tracked().contains(table.kind);
        for slot in table
            .slots
            .iter()
            .filter(|slot| slot.offset + 8 <= live.size && wanted(slot.name))
        {
            let address = live.base + slot.offset;
            let hook = self
                .hooks
                .iter()
                .copied()
                .flatten()
                .find(|hook| hook.name == slot.name && need.wants(hook.purpose));
            let ours = match hook {
                Some(hook) => hook.function,
                None if all => slot.wrapper,
                None => continue,
            }
            .cast_mut();
            let cell = slot_at(address);
            if let Some(at) = self
                .buried
                .iter()
                .position(|buried| buried.address == address)
            {
                // Below somebody's wrapper, or on top again since that one left.
                let buried = self.buried.swap_remove(at);
                if cell.load(Acquire) == buried.ours
                    && buried.ours != ours
                    && cell
                        .compare_exchange(buried.ours, ours, AcqRel, Relaxed)
                        .is_ok()
                {
                    self.taken.push(Taken {
                        address,
                        ours,
                        ..buried
                    });
                } else {
                    self.taken.push(buried);
                }
                continue;
            }
            if self.taken.iter().any(|taken| taken.address == address) {
                continue;
            }
            let before = slot.original.load(Acquire);
            // Nothing there (an extension that is not loaded), or changed since it was saved: the
            // next look will find it.
            if !before.is_null() && cell.compare_exchange(before, ours, AcqRel, Relaxed).is_ok() {
                self.taken.push(Taken {
                    address,
                    ours,
                    before,
                    home: live.home,
                });
            }
        }
        self.taken.len()
    }

    /// Takes one entry of a table that has no wrappers, whatever it holds: an entry may be empty.
    /// `original` gets what it held, and is what `ours` passes on to.
    pub fn take_entry(
        &mut self,
        address: usize,
        home: usize,
        original: &AtomicPtr<()>,
        ours: *mut (),
    ) {
        if self.taken.iter().any(|taken| taken.address == address) {
            return;
        }
        if let Some(at) = self
            .buried
            .iter()
            .position(|buried| buried.address == address)
        {
            let buried = self.buried.swap_remove(at);
            if !buried.is_gone(slot_at(address).load(Acquire)) {
                // Below somebody's wrapper: what that passes on comes to ours.
                self.taken.push(buried);
                return;
            }
        }
        let cell = slot_at(address);
        let before = cell.load(Acquire);
        if before == ours {
            // Since before a fork: what it passes on to is known.
            self.taken.push(Taken {
                address,
                ours,
                before: original.load(Acquire),
                home,
            });
            return;
        }
        original.store(before, Release);
        if cell.compare_exchange(before, ours, AcqRel, Relaxed).is_ok() {
            self.taken.push(Taken {
                address,
                ours,
                before,
                home,
            });
        }
    }

    /// Gives every slot back that still holds ours. Returns how many hold somebody else's wrapper over ours.
    pub fn restore(&mut self, marks: &Marks) -> usize {
        for taken in self
            .taken
            .drain(..)
            .chain(std::mem::take(&mut self.buried))
            .collect::<Vec<_>>()
        {
            match slot_at(taken.address).compare_exchange(taken.ours, taken.before, AcqRel, Relaxed)
            {
                Ok(_) => {}
                Err(there) if taken.is_gone(there) => {}
                Err(_) => self.buried.push(taken),
            }
        }
        marks.buried.store(!self.buried.is_empty(), Relaxed);
        if self.buried.is_empty() {
            marks.inherited.store(false, Relaxed);
        }
        self.buried.len()
    }
}

impl Installed {
    /// Slots that hold ours.
    pub fn len(&self) -> usize {
        self.taken.len()
    }
    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
}
