//! Finds the live API tables of the HIP and HSA runtimes in this process. The program need not opt
//! in, and there are no side effects.
//!
//! Every exported HIP and HSA function is a stub that jumps through the runtime's live table.
//! [`decode`] reads the stubs and finds the table. The table is accepted only if several functions
//! agree on it, each at the offset that the ABI has for its name. Nothing is called, so a runtime
//! that is not initialised stays so.

pub mod decode;
pub mod elf;
mod legacy_roctx;
pub mod maps;
pub mod samples;
pub mod tools;

use maps::Maps;
use midair_abi::tables::TableId;
use midair_domain::sets;
use midair_sdk_hot::wrappers::{self, Slot, Table};
use std::sync::atomic::AtomicPtr;

/// A live table of a runtime, which was proven to be one when it was found.
#[derive(Debug, Clone, Copy)]
pub struct Live {
    index: usize,
    base: usize,
    size: usize,
    home: usize,
}

impl Live {
    /// Creates the table with this index in [`wrappers::TABLES`], at `base`, with its own `size` in
    /// bytes. `home` is where the runtime's library is loaded; a slot that no tool has hooked
    /// contains a function of it.
    ///
    /// # Safety
    /// `base` must be aligned to 8 and the start of `size` writable bytes that stay mapped forever
    /// (a static of a library that is not unloaded). They must consist of words that every party
    /// reads and writes as whole words.
    pub(crate) unsafe fn new(index: usize, base: usize, size: usize, home: usize) -> Live {
        Live {
            index,
            base,
            size,
            home,
        }
    }

    /// Returns which table it is; an index into [`wrappers::TABLES`].
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns its address.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Returns where the runtime's library is loaded.
    pub fn home(&self) -> usize {
        self.home
    }

    /// Returns the slot at an offset; `None` outside the table.
    pub fn slot(&self, offset: usize) -> Option<&'static AtomicPtr<()>> {
        let end = offset.checked_add(size_of::<usize>())?;
        if !offset.is_multiple_of(size_of::<usize>()) || end > self.size {
            return None;
        }
        let address = std::ptr::with_exposed_provenance_mut::<*mut ()>(self.base + offset);
        // SAFETY: it is an aligned word inside the table, as the caller of `new` promised.
        Some(unsafe { AtomicPtr::from_ptr(address) })
    }

    /// Returns the slot of a function, if this table has it.
    pub fn slot_of(&self, slot: &Slot) -> Option<&'static AtomicPtr<()>> {
        let is_rccl = wrappers::TABLES
            .get(self.index)
            .is_some_and(|table| table.id == TableId::Rccl);
        self.slot(if is_rccl {
            rccl_offset(self.size, slot.offset)?
        } else {
            slot.offset
        })
    }

    /// Returns all its slots, including those whose function we do not know.
    pub fn slots(&self) -> impl Iterator<Item = &'static AtomicPtr<()>> + use<> {
        let live = *self;
        let first = if self.is_hsa() || self.index >= wrappers::TABLES.len() {
            16
        } else {
            8
        };
        (first..live.size)
            .step_by(size_of::<usize>())
            .filter_map(move |offset| live.slot(offset))
    }

    /// Whether it is one of the HSA runtime's tables.
    pub fn is_hsa(&self) -> bool {
        wrappers::TABLES
            .get(self.index)
            .is_some_and(|table| table.hsa)
    }
}

/// Returns where a slot of the first version of RCCL's table is in a table of `size` bytes. With 41
/// functions, two versions later, `ncclCommShrink` comes before `ncclCommSplit`. What a table of
/// another size has there is not known (source: docs/sources.md#libraries).
fn rccl_offset(size: usize, offset: usize) -> Option<usize> {
    const WORD: usize = size_of::<usize>();
    const SPLIT: usize = WORD * 24;
    match size / WORD - 1 {
        _ if offset < SPLIT => Some(offset),
        37 | 38 => Some(offset),
        41 => Some(offset + WORD),
        _ => None,
    }
}

/// What a search through the loaded libraries has found.
#[derive(Debug, Default)]
pub struct Found {
    /// Tables that can be hooked.
    pub live: Vec<Live>,
    /// Libraries that are loaded, but whose table does not exist yet.
    pub not_yet: Vec<&'static str>,
    /// Tables that a second library has as well, with the name of that library.
    twice: Vec<(usize, String)>,
    /// Libraries whose stubs could not be understood, with the reason.
    pub refused: Vec<String>,
    /// Where the old roctracer's libroctx64.so.4, which has no tables, stores its callback.
    pub legacy_roctx: Option<usize>,
}

impl Found {
    /// Adds the table of a library that has passed it on by itself, if the search found none.
    pub fn complete(&mut self, id: TableId, at: usize) {
        let is_it = |index: usize| {
            wrappers::TABLES
                .get(index)
                .is_some_and(|table| table.id == id)
        };
        if self.live.iter().any(|live| is_it(live.index)) {
            return;
        }
        if let Some(live) = handed_over(id, at) {
            let name = wrappers::TABLES
                .get(live.index)
                .map_or("", |table| table.name);
            self.refused.retain(|why| !why.starts_with(name));
            self.not_yet.retain(|other| *other != name);
            self.live.push(live);
        }
    }

    /// Whether any runtime is loaded.
    pub fn is_any(&self) -> bool {
        !(self.live.is_empty() && self.not_yet.is_empty() && self.refused.is_empty())
    }
}

/// How many functions of a library must agree on its table.
const WITNESSES: usize = 3;
/// The most bytes that come before a table in its library's object.
const MOST_SHIFT: usize = 512;
/// The most functions that are decoded.
const DECODED: usize = 12;

/// Searches for all tables.
pub fn find() -> Found {
    let mut found = Found::default();
    let Some(maps) = Maps::of_self() else {
        found
            .refused
            .push("cannot read /proc/thread-self/maps".to_owned());
        return found;
    };
    elf::with_modules(|module| {
        let legacy = legacy_roctx::variable_of(&maps, module);
        for (index, table) in wrappers::TABLES.iter().enumerate() {
            match look(&maps, module, index, table) {
                Look::Absent => {}
                Look::Live(live) => match found.live.iter().find(|known| known.index == index) {
                    // Several libraries may export functions of one runtime.
                    Some(known) if known.base == live.base => {}
                    Some(_) => found.twice.push((index, module.name.clone())),
                    None => found.live.push(live),
                },
                Look::NotYet => found.not_yet.push(table.name),
                // The old library's functions have bodies of their own. Our library has both:
                // tables, and the old function.
                Look::Refused(_) if table.id == TableId::RoctxCore && legacy.is_some() => {
                    match &legacy {
                        Some(Ok(variable)) => {
                            found.legacy_roctx = found.legacy_roctx.or(Some(*variable))
                        }
                        Some(Err(why)) => found.refused.push(why.clone()),
                        None => {}
                    }
                }
                // Finalizer and image functions jump through the runtime's own tables until their
                // extension is loaded.
                Look::Refused(_) if table.hsa && table.slots.len() < 20 => {}
                Look::Refused(why) => found
                    .refused
                    .push(format!("{} of {}: {why}", table.name, module.name)),
            }
        }
    });
    // There are two copies of a runtime. It is not known which of them the program uses, so neither
    // is hooked. Slots of a copy that were hooked before the other one was loaded stay hooked.
    for (index, module) in std::mem::take(&mut found.twice) {
        found.live.retain(|live| live.index != index);
        if let Some(table) = wrappers::TABLES.get(index) {
            found.refused.push(format!(
                "two copies of {} exist, the second in {module}: neither is recorded unless one already is",
                table.name
            ));
        }
    }
    found
}

/// Makes runtimes create their tables. Some create them in their first call, which would then not
/// be recorded. This calls the function that every stub calls first, if three stubs agree on it:
/// that function creates the table and initialises nothing else. It is for a process that is
/// starting, and only while no library is being loaded. `libraries`: include those above HIP. These
/// register themselves while they create their tables, behind a guard that no other thread passes
/// in that time. So it must be false where one of them may be doing this.
pub fn make(libraries: bool) {
    let Some(maps) = Maps::of_self() else { return };
    let mut getters: Vec<usize> = Vec::new();
    elf::with_modules(|module| {
        let made_by_call =
            |table: &&Table| !table.hsa && (libraries || !sets::LIBRARY_CALLS.contains(table.kind));
        for table in wrappers::TABLES.iter().filter(made_by_call) {
            let stubs = table
                .slots
                .iter()
                .filter_map(|slot| {
                    let stub = decode::stub(&maps, module.symbol(slot.name)?).ok()?;
                    let unmade = stub.table.is_none() && stub.offset as usize == slot.offset;
                    unmade.then_some(stub.getter)?
                })
                .take(WITNESSES);
            let stubs: Vec<usize> = stubs.collect();
            if let [first, rest @ ..] = stubs.as_slice()
                && stubs.len() == WITNESSES
                && rest.iter().all(|getter| getter == first)
            {
                getters.push(*first);
            }
        }
    });
    for getter in getters {
        // SAFETY: this calls the runtime's own function without arguments, as the runtime's stubs
        // do. It was decoded as a function that returns a table.
        unsafe {
            let getter: unsafe extern "C" fn() -> *const () =
                std::mem::transmute(std::ptr::with_exposed_provenance::<()>(getter));
            getter();
        }
    }
}

enum Look {
    Absent,
    NotYet,
    Live(Live),
    Refused(String),
}

fn look(maps: &Maps, module: &elf::Module<'_>, index: usize, table: &Table) -> Look {
    let mut agreed: Option<(u64, usize)> = None;
    let mut not_yet = 0;
    let mut trouble = None;
    let mut decoded = 0;
    for slot in table.slots {
        if decoded == DECODED {
            break;
        }
        let Some(function) = module.symbol(slot.name) else {
            continue;
        };
        decoded += 1;
        match decode::stub(maps, function) {
            Ok(decode::Stub {
                table: None,
                offset,
                ..
            }) if shift(table, offset, slot.offset).is_some() => not_yet += 1,
            Ok(decode::Stub {
                table: Some(object),
                offset,
                ..
            }) if let Some(shift) = shift(table, offset, slot.offset) => {
                let base = object.wrapping_add(shift);
                match &mut agreed {
                    None => agreed = Some((base, 1)),
                    Some((known, votes)) if *known == base => *votes += 1,
                    Some((known, _)) => {
                        trouble = Some(format!(
                            "{} names a table at {base:#x}, others at {known:#x}",
                            slot.name
                        ))
                    }
                }
            }
            Ok(stub) => {
                trouble = Some(format!(
                    "{} jumps through offset {}, not {}",
                    slot.name, stub.offset, slot.offset
                ))
            }
            // A function with its own body among the stubs is nothing unusual (hsa_init, hip*Spt
            // …).
            Err(_) => {}
        }
    }
    if decoded == 0 {
        return Look::Absent;
    }
    if let Some(why) = trouble {
        return Look::Refused(why);
    }
    match agreed {
        Some((base, votes)) if votes >= WITNESSES.min(decoded) => {
            check(maps, index, table, base as usize, module.base())
        }
        None if not_yet >= WITNESSES.min(decoded) => Look::NotYet,
        _ if decoded < WITNESSES => Look::Absent,
        _ => Look::Refused("its functions are not the known stubs".to_owned()),
    }
}

/// Returns how many bytes the table is behind the start of the object that a stub jumps through:
/// AMD's ROCTx library has its tables in one object (source: `docs/sources.md#nvtx`). `None` if
/// this is impossible.
fn shift(table: &Table, offset: u32, of_slot: usize) -> Option<u64> {
    let shift = (offset as usize).checked_sub(of_slot)?;
    let is_part = matches!(table.id, TableId::RoctxControl | TableId::RoctxName);
    (shift == 0 || is_part && shift <= MOST_SHIFT).then_some(shift as u64)
}

fn check(maps: &Maps, index: usize, table: &Table, base: usize, home: usize) -> Look {
    let Some(size) = own_size(maps, table, base) else {
        return Look::Refused(format!("the table at {base:#x} has no plausible size"));
    };
    if !base.is_multiple_of(8) || !maps.is_writable(base, size) {
        return Look::Refused(format!("the table at {base:#x} is not writable memory"));
    }
    for slot in table.slots.iter().filter(|slot| slot.offset + 8 <= size) {
        let entry = maps.read_u64(base + slot.offset).unwrap_or(0) as usize;
        if entry != 0 && !maps.is_text(entry) {
            return Look::Refused(format!(
                "the entry of {} ({entry:#x}) is not code",
                slot.name
            ));
        }
    }
    // SAFETY: it was just seen to be aligned and writable. A runtime's tables are statics of a
    // library that is not unloaded, and its stubs read whole words.
    Look::Live(unsafe { Live::new(index, base, size, home) })
}

/// Returns the table of a library above HIP that the library itself has passed on, for a library
/// whose functions are not understood. `at` is its address.
pub fn handed_over(id: TableId, at: usize) -> Option<Live> {
    let index = wrappers::TABLES.iter().position(|table| table.id == id)?;
    let table = wrappers::TABLES.get(index)?;
    let maps = Maps::of_self()?;
    let first = maps.read_u64(at + table.slots.first()?.offset)? as usize;
    // SAFETY: dladdr takes any address, and an all-zero Dl_info is valid.
    let home = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(std::ptr::without_provenance(first), &mut info);
        info.dli_fbase.addr()
    };
    match check(&maps, index, table, at, home) {
        Look::Live(live) => Some(live),
        _ => None,
    }
}

/// Returns the table's own size. A HIP table starts with its size as a `size_t`; an HSA table with
/// `{u32 major, u32 minor = size, …}` (source: `docs/sources.md#hsa`).
fn own_size(maps: &Maps, table: &Table, base: usize) -> Option<usize> {
    let first = maps.read_u64(base)?;
    let size = if table.hsa {
        (first >> 32) as usize
    } else {
        first as usize
    };
    (size.is_multiple_of(8) && (16..=16 * 1024).contains(&size)).then_some(size)
}

/// Returns the process's count of loaded and unloaded libraries. It changes when a runtime may have
/// been loaded.
pub fn loader_epoch() -> u64 {
    elf::epoch()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rccls_table_is_read_by_its_size() {
        let size = |functions: usize| 8 + 8 * functions;
        let (before, split, last) = (8 * 23, 8 * 24, 8 * 37);
        for functions in [37, 38, 39, 41, 42] {
            assert_eq!(rccl_offset(size(functions), before), Some(before));
        }
        for functions in [37, 38] {
            assert_eq!(rccl_offset(size(functions), split), Some(split));
            assert_eq!(rccl_offset(size(functions), last), Some(last));
        }
        assert_eq!(rccl_offset(size(41), split), Some(split + 8));
        assert_eq!(rccl_offset(size(41), last), Some(last + 8));
        for functions in [39, 40, 42] {
            assert_eq!(rccl_offset(size(functions), split), None);
        }
    }
}
