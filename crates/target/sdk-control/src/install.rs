//! Slots of the live tables. Each is hooked by one aligned store, and is restored only if it still
//! contains our function.

use crate::tables::Live;
use midair_domain::{KindSet, sets};
use midair_record::event::kind;
use midair_sdk_device::hooks::{Hook, Purpose};
use midair_sdk_hot::wrappers::{Slot, TABLES, Table};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr};

/// What a session needs to hook.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// Kinds whose calls are recorded.
    pub recorded: KindSet,
    /// Kinds whose calls are reported to tools.
    pub called: KindSet,
    /// Kinds of the device's work and of memory.
    pub work: KindSet,
    /// Whether tools count on whole devices.
    pub counts_devices: bool,
    /// Whether the program's calls that pause and resume are followed.
    pub pauses: bool,
}

impl Need {
    /// Returns the kinds whose calls get a correlation id: those that are recorded, and HIP's if
    /// something that they launch is recorded; and the wanted kinds of device work.
    pub fn tracked(&self) -> KindSet {
        // Ranges are made from the calls that start and end them.
        let ranges = self.recorded.contains(kind::MARKER_CORE_RANGE_API);
        let calls = if self.device() {
            self.recorded | self.called | sets::HIP_CALLS
        } else {
            self.recorded | self.called
        };
        (calls | self.work)
            .with_if(
                kind::HIP_RUNTIME_API_EXT,
                self.recorded.contains(kind::HIP_GRAPH) || self.recorded.contains(kind::HIP_EVENT),
            )
            .with_if(kind::MARKER_CORE_API, ranges)
            .with_if(kind::MARKER_CONTROL_API, self.pauses)
    }

    /// Whether the runtime has to be open for what is wanted.
    pub fn runtime(&self) -> bool {
        !self.work.is_empty()
    }

    /// Whether ROCTx is wanted.
    pub fn markers(&self) -> bool {
        self.tracked().intersects(sets::MARKERS)
    }

    /// Whether any work of the device is wanted.
    pub fn device(&self) -> bool {
        self.work.intersects(sets::NEEDS_DEVICE)
    }

    fn wants(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Kernels => self.work.contains(kind::KERNEL_DISPATCH),
            Purpose::Copies => self.work.contains(kind::MEMORY_COPY),
            Purpose::Signals => self.device(),
            Purpose::Allocations => self.work.contains(kind::MEMORY_ALLOCATION),
            Purpose::Counters => self.work.contains(kind::COUNTER_COLLECTION),
            Purpose::Always => true,
        }
    }
}

/// A slot that we hooked.
#[derive(Debug, Clone, Copy)]
struct HookedSlot {
    cell: &'static AtomicPtr<()>,
    ours: *mut (),
    before: *mut (),
    /// See [`Live::home`].
    home: usize,
}

impl HookedSlot {
    fn is_at(&self, cell: &AtomicPtr<()>) -> bool {
        std::ptr::eq(self.cell, cell)
    }

    /// Whether a slot with `value` contains neither our function nor another party's wrapper over
    /// it. Then a party that was there before us has restored what it found, or the runtime's own
    /// function.
    fn is_gone(&self, value: *mut ()) -> bool {
        // SAFETY: dladdr takes any address, and an all-zero Dl_info is valid.
        let (known, info) = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            (libc::dladdr(value.cast(), &mut info) != 0, info)
        };
        value == self.before || known && info.dli_fbase.addr() == self.home
    }

    /// Whether the slot itself contains neither.
    fn has_gone(&self) -> bool {
        self.is_gone(self.cell.load(Acquire))
    }
}

/// Slots that contain our functions, and *covered* slots, where another party put a wrapper over
/// ours in an earlier session. In a covered slot our function stays below the wrapper and passes
/// calls on. It is used again when a session starts, and is removed when the wrapper is.
#[derive(Debug)]
pub struct Installed {
    /// All hooks.
    hooks: Vec<&'static [Hook]>,
    hooked: Vec<HookedSlot>,
    covered: Vec<HookedSlot>,
}

/// What is known about slots apart from a process's own lists.
#[derive(Debug)]
pub struct Marks {
    /// Whether slots may contain our functions, or other parties' wrappers over them, that are in
    /// no list of this process, because it was forked while they were hooked.
    pub inherited: AtomicBool,
    /// Whether some slots were covered at the end of the last session.
    pub covered: AtomicBool,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks::new()
    }
}

impl Marks {
    /// Creates the marks of a process in which nothing was hooked yet.
    pub const fn new() -> Marks {
        Marks {
            inherited: AtomicBool::new(false),
            covered: AtomicBool::new(false),
        }
    }
}

/// Whether a slot's value is one of our functions for it.
fn is_ours(hooks: &[&'static [Hook]], slot: &Slot, value: *mut ()) -> bool {
    value.cast_const() == slot.wrapper
        || hooks
            .iter()
            .copied()
            .flatten()
            .any(|hook| hook.name == slot.name && hook.function == value.cast_const())
}

// SAFETY: the pointers are addresses of functions, which are compared and stored, but never
// followed.
unsafe impl Send for Installed {}

fn table_of(live: &Live) -> Option<&'static Table> {
    TABLES.get(live.index())
}

/// Returns the slots of a table that are inside the live table, each with its cell.
fn slots_of(live: &Live) -> impl Iterator<Item = (&'static Slot, &'static AtomicPtr<()>)> {
    let slots = table_of(live).map_or(&[][..], |table| table.slots);
    slots
        .iter()
        .filter_map(|slot| Some((slot, live.slot_of(slot)?)))
}

/// Takes the slot of this cell out of a list.
fn remove(list: &mut Vec<HookedSlot>, cell: &AtomicPtr<()>) -> Option<HookedSlot> {
    let at = list.iter().position(|slot| slot.is_at(cell))?;
    Some(list.swap_remove(at))
}

impl Installed {
    /// Creates it with nothing hooked; `hooks` are all hooks.
    pub fn new(hooks: Vec<&'static [Hook]>) -> Installed {
        Installed {
            hooks,
            hooked: Vec::new(),
            covered: Vec::new(),
        }
    }

    /// Saves what the slots of a table contain, for the wrappers and for our own calls. Hooks
    /// nothing.
    pub fn save_originals(&mut self, live: &Live, marks: &Marks) {
        self.covered.retain(|covered| !covered.has_gone());
        for (slot, cell) in slots_of(live) {
            let mut known = self.covered.iter().chain(&self.hooked);
            if known.any(|known| known.is_at(cell)) {
                // What is in the slot calls our function, and our function calls what it always
                // called.
                continue;
            }
            let value = cell.load(Acquire);
            let before = slot.original.load(Acquire);
            if !before.is_null() && value.cast_const() != before.cast_const() {
                let inherited = HookedSlot {
                    cell,
                    ours: slot.wrapper.cast_mut(),
                    before,
                    home: live.home(),
                };
                if is_ours(&self.hooks, slot, value) {
                    // The slot has had our function since before the fork. It is used again, and
                    // restored at the end.
                    self.covered.push(HookedSlot {
                        ours: value,
                        ..inherited
                    });
                    continue;
                }
                if marks.inherited.load(Relaxed) && !inherited.is_gone(value) {
                    // The slot has another party's function, maybe over ours. If ours called it,
                    // the call could go in a circle.
                    self.covered.push(inherited);
                    continue;
                }
            }
            if !value.is_null() {
                slot.original.store(value, Release);
            }
        }
    }

    /// Hooks `hsa_init`, if it is in this table.
    pub fn hook_opener(&mut self, live: &Live) {
        self.hook_where(live, &Need::default(), |name| name == "hsa_init");
    }

    /// Hooks the slots that `need` asks for.
    pub fn hook(&mut self, live: &Live, need: &Need) {
        self.hook_where(live, need, |_| true);
    }

    fn hook_where(&mut self, live: &Live, need: &Need, wanted: impl Fn(&str) -> bool) {
        let all = table_of(live).is_some_and(|table| need.tracked().contains(table.kind));
        for (slot, cell) in slots_of(live).filter(|(slot, _)| wanted(slot.name)) {
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
            if let Some(covered) = remove(&mut self.covered, cell) {
                // The slot is below another party's wrapper; or ours is on top again, since that
                // wrapper was removed.
                let on_top = cell.load(Acquire) == covered.ours && covered.ours != ours;
                let replaced = on_top
                    && cell
                        .compare_exchange(covered.ours, ours, AcqRel, Relaxed)
                        .is_ok();
                self.hooked.push(HookedSlot {
                    ours: if replaced { ours } else { covered.ours },
                    ..covered
                });
                continue;
            }
            if self.hooked.iter().any(|hooked| hooked.is_at(cell)) {
                continue;
            }
            let before = slot.original.load(Acquire);
            // The slot is empty (an extension that is not loaded), or was changed after it was
            // saved; the next search finds it.
            if !before.is_null() && cell.compare_exchange(before, ours, AcqRel, Relaxed).is_ok() {
                self.hooked.push(HookedSlot {
                    cell,
                    ours,
                    before,
                    home: live.home(),
                });
            }
        }
    }

    /// Hooks one entry of a table that has no wrappers, whatever it contains; an entry may be
    /// empty. `original` gets the previous value, to which `ours` passes calls on.
    pub fn hook_entry(
        &mut self,
        cell: &'static AtomicPtr<()>,
        home: usize,
        original: &AtomicPtr<()>,
        ours: *mut (),
    ) {
        if self.hooked.iter().any(|hooked| hooked.is_at(cell)) {
            return;
        }
        if let Some(covered) = remove(&mut self.covered, cell)
            && !covered.has_gone()
        {
            // It is below another party's wrapper, which passes its calls on to ours.
            self.hooked.push(covered);
            return;
        }
        let entry = |before| HookedSlot {
            cell,
            ours,
            before,
            home,
        };
        let before = cell.load(Acquire);
        if before == ours {
            // It has been hooked since before a fork, so the function that it passes calls on to is
            // known.
            self.hooked.push(entry(original.load(Acquire)));
            return;
        }
        original.store(before, Release);
        if cell.compare_exchange(before, ours, AcqRel, Relaxed).is_ok() {
            self.hooked.push(entry(before));
        }
    }

    /// Restores every slot that still contains our function. Returns how many slots are covered by
    /// another party's wrapper.
    pub fn restore(&mut self, marks: &Marks) -> usize {
        let mut all = std::mem::take(&mut self.hooked);
        all.append(&mut self.covered);
        for slot in all {
            let restored = slot
                .cell
                .compare_exchange(slot.ours, slot.before, AcqRel, Relaxed);
            if restored.is_err_and(|there| !slot.is_gone(there)) {
                self.covered.push(slot);
            }
        }
        marks.covered.store(!self.covered.is_empty(), Relaxed);
        if self.covered.is_empty() {
            marks.inherited.store(false, Relaxed);
        }
        self.covered.len()
    }

    /// Returns how many slots contain our functions.
    pub fn len(&self) -> usize {
        self.hooked.len()
    }

    /// Whether no slot contains our function.
    pub fn is_empty(&self) -> bool {
        self.hooked.is_empty()
    }
}
