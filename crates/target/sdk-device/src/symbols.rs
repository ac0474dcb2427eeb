//! Agents, code objects and kernels as the HSA runtime knows them, also those that were loaded before us.
//!
//! Everything comes from the runtime's own queries: the loader extension lists all executables and
//! their code objects, the executables list their symbols, and a kernel's descriptor tells its
//! number of registers. The worker thread makes these queries at the attach and whenever an
//! executable has been frozen or destroyed.

pub(crate) mod executables;
pub mod kernel_filter;
pub mod leaving;
mod names;
pub(crate) mod waiting;

use crate::queries::{self, Loader, Texts};
use crate::sink::Sink;
use crate::state::STATE;
use executables::LoadedCode;
use midair_record::event::{self, Agent, CodeObject, Header, KernelSymbol, MOST_NAME, Plain, kind};
use midair_sdk_hot::wrappers::{self, original};
use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use waiting::Waiting;

/// HSA constants (source: api/hsa_types.json).
mod hsa {
    pub const SYSTEM_INFO_VERSION_MAJOR: u32 = 0;
    pub const AGENT_INFO_DEVICE: u32 = 17;
    pub const AGENT_INFO_DRIVER_NODE_ID: u32 = 0xA004;
    pub const SYMBOL_KIND_KERNEL: u32 = 1;
    pub const SYMBOL_TYPE: u32 = 0;
    pub const SYMBOL_KERNARG_SIZE: u32 = 11;
    pub const SYMBOL_KERNARG_ALIGN: u32 = 12;
    pub const SYMBOL_GROUP: u32 = 13;
    pub const SYMBOL_PRIVATE: u32 = 14;
    pub const SYMBOL_KERNEL_OBJECT: u32 = 22;
    pub const CODE_OBJECT_AGENT: u32 = 3;
    pub const CODE_OBJECT_STORAGE: u32 = 4;
    pub const CODE_OBJECT_MEMORY_BASE: u32 = 5;
    pub const CODE_OBJECT_MEMORY_SIZE: u32 = 6;
    pub const CODE_OBJECT_LOAD_DELTA: u32 = 8;
    pub const CODE_OBJECT_LOAD_BASE: u32 = 9;
    pub const CODE_OBJECT_LOAD_SIZE: u32 = 10;
    pub const STORAGE_MEMORY: u32 = 2;
    pub const EXECUTABLE_STATE: u32 = 2;
    pub const QUEUE_AGENT: u32 = 0;
    /// Source: `docs/sources.md#hsa-newer`.
    pub const QUEUE_ENGINE_TYPE: u32 = 13;
    pub const FROZEN: u32 = 1;
}

fn known() -> MutexGuard<'static, Option<LoadedCode>> {
    STATE
        .symbols
        .known
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a kernel with this descriptor is loaded. It may return false when it cannot look
/// without waiting.
pub fn is_kernel(kernel_object: u64) -> bool {
    STATE.symbols.kernels.load(Acquire) != 0
        && kernel_object != 0
        && STATE.symbols.known.try_lock().is_ok_and(|known| {
            known
                .as_ref()
                .is_some_and(|k| k.kernels.contains_key(&kernel_object))
        })
}

/// Returns the code object that an address is in: its number and its load address. A code object
/// that is unloaded stays until another one is at its place.
pub(crate) fn code_object_at(address: u64) -> Option<(u64, u64)> {
    let known = known();
    let (base, (end, id)) = known.as_ref()?.ranges.range(..=address).next_back()?;
    (address < *end).then_some((*id, *base))
}

/// Returns the loaded code objects (number, load address, size), and how many have ever been.
pub(crate) fn code_objects() -> (Vec<(u64, u64, u64)>, u64) {
    let known = known();
    let Some(book) = known.as_ref() else {
        return (Vec::new(), 0);
    };
    let loaded = book.code_objects.iter().map(|(base, id)| {
        let range = book.ranges.get(base);
        let end = range
            .filter(|(_, of)| of == id)
            .map_or(*base, |(end, _)| *end);
        (*id, *base, end - base)
    });
    let mut loaded: Vec<_> = loaded.collect();
    loaded.sort_unstable();
    (loaded, book.next_code_object)
}

/// Returns how many code objects have ever been loaded, as far as is known.
pub(crate) fn count_of_code_objects() -> u64 {
    known().as_ref().map_or(0, |book| book.next_code_object)
}

/// Returns our number for a kernel; 0 = unknown.
pub fn kernel_id(kernel_object: u64) -> u64 {
    known()
        .as_ref()
        .and_then(|k| k.kernels.get(&kernel_object).copied())
        .unwrap_or(0)
}

/// [`kernel_id`] for a thread of the application. If the kernel was loaded a moment ago, the thread
/// waits for up to `limit` until the worker thread has learned it.
pub fn kernel_id_within(kernel_object: u64, limit: Duration) -> u64 {
    let end = Instant::now() + limit;
    loop {
        if let Ok(known) = STATE.symbols.known.try_lock()
            && let Some(id) = known
                .as_ref()
                .and_then(|known| known.kernels.get(&kernel_object))
        {
            return *id;
        }
        if Instant::now() >= end {
            return 0;
        }
        set_changed();
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Returns the number of a kernel whose executable was destroyed; 0 = unknown.
pub fn retired_kernel_id(kernel_object: u64) -> u64 {
    known()
        .as_ref()
        .and_then(|k| k.retired.get(&kernel_object).copied())
        .unwrap_or(0)
}

/// Returns the KFD node of an agent.
pub fn agent_node(agent: u64) -> u32 {
    queries::agent(agent, hsa::AGENT_INFO_DRIVER_NODE_ID).unwrap_or(0)
}

/// Returns whether the runtime has a function of AMD's extensions. The tables of older runtimes end
/// before newer slots.
fn has_function(name: &str) -> bool {
    let mut slots = wrappers::hsa_amd_ext::SLOTS.iter();
    let slot = slots.find(|slot| slot.name == name);
    slot.is_some_and(|slot| !slot.original.load(Acquire).is_null())
}

/// Returns the agent of a live queue; 0 if the runtime has no function that tells.
///
/// # Safety
/// `queue` must be a live `hsa_queue_t`.
pub unsafe fn queue_agent(queue: u64) -> u64 {
    if !has_function("hsa_amd_queue_get_info") {
        return 0;
    }
    // SAFETY: the caller promises a live queue. The runtime takes no lock for this attribute.
    unsafe { queries::queue(queue, hsa::QUEUE_AGENT) }.unwrap_or(0)
}

/// Returns the engine that processes a queue (`hsa_amd_queue_engine_t`). It is 0, which runs
/// kernels, if the runtime cannot make queues for other engines.
///
/// # Safety
/// `queue` must be a live `hsa_queue_t`.
pub unsafe fn queue_engine(queue: u64) -> u32 {
    if !has_function("hsa_amd_queue_create") {
        return 0;
    }
    // SAFETY: the caller promises a live queue, and a runtime with that function has this one. A
    // runtime that does not know the attribute returns an error.
    unsafe { queries::queue(queue, hsa::QUEUE_ENGINE_TYPE) }.unwrap_or(0)
}

/// Returns whether an agent is a GPU.
pub fn agent_is_gpu(agent: u64) -> bool {
    queries::agent(agent, hsa::AGENT_INFO_DEVICE) == Some(1_u32)
}

/// Returns whether the runtime is open and ready for use.
///
/// The runtime reports itself as open while its first `hsa_init` is still running, with no loader
/// and half a list of agents: a query at that moment ends the process. `hsa_init` holds a lock
/// until it is done, so a second `hsa_init`, which only increments a count, waits for the first.
/// `hsa_shut_down` then decrements the count at once. Neither is called if the runtime is not open,
/// since we must not initialise it.
pub fn runtime_is_open() -> bool {
    if queries::system::<u16>(hsa::SYSTEM_INFO_VERSION_MAJOR).is_none() {
        return false;
    }
    // SAFETY: these functions take no arguments, and the second one undoes the first.
    let waited = unsafe { original::hsa_init() == 0 && original::hsa_shut_down() == 0 };
    queries::agents().is_some_and(|agents| waited && !agents.is_empty())
}

/// Notes that executables changed, so that what the runtime has loaded is listed again.
pub fn set_changed() {
    STATE.symbols.changed.store(true, Relaxed);
}

/// Starts a new session, in which numbers count from the start.
pub fn forget() {
    *known() = None;
}

/// Starts a new collection, in which everything is recorded again. Addresses may have been reused
/// since the last one, so nothing keeps its old number.
pub fn begin() {
    let mut known = known();
    let before = known.take().unwrap_or_default();
    *known = Some(LoadedCode {
        next_kernel: before.next_kernel,
        next_code_object: before.next_code_object,
        ..LoadedCode::default()
    });
    drop(known);
    *waiting() = None;
    STATE.symbols.kernels.store(0, Release);
    STATE.symbols.changed.store(true, Relaxed);
}

/// Returns the runtime's agents: the handle, and 1 for a CPU or 2 for a GPU, as in AMD's tools.
pub fn agents() -> Vec<(u64, u32)> {
    let with_type = |handle| {
        let device = queries::agent(handle, hsa::AGENT_INFO_DEVICE).unwrap_or(0_u32);
        // hsa_device_type_t counts from 0: CPU, GPU.
        (handle, device.saturating_add(1))
    };
    let agents = queries::agents().unwrap_or_default();
    agents.into_iter().map(with_type).collect()
}

/// Writes the records of the agents.
pub fn write_agents(sink: &mut Sink) {
    for (handle, agent_type) in agents() {
        let record = Agent {
            header: Header {
                size: size_of::<Agent>() as u16,
                kind: kind::AGENT,
                ..Header::default()
            },
            handle,
            node: agent_node(handle),
            agent_type,
        };
        sink.put(kind::AGENT, record.bytes());
    }
}

/// Calls `visit` for each executable. No thread that announces it destroys an executable during the
/// visit. A handle must not be kept for later: it could refer to freed memory, which the runtime
/// does not check.
fn visit(loader: &Loader, mut visit: impl FnMut(u64)) {
    let looking = leaving::Looking::begin();
    for executable in loader.executables() {
        if !leaving::has_left(executable) {
            visit(executable);
        }
    }
    drop(looking);
}

fn waiting() -> MutexGuard<'static, Option<Box<Waiting>>> {
    let waiting = &STATE.symbols.waiting;
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the records that waited for room in the spool, at the end of a collection.
pub fn finish(sink: &mut Sink) {
    if let Some(waiting) = &mut *waiting() {
        waiting.store(sink, true);
    }
}

/// Writes the records of code objects and kernels that were not recorded yet, if anything changed.
/// Returns a complaint if the runtime cannot be asked.
pub fn refresh(sink: &mut Sink) -> Option<&'static str> {
    if let Some(waiting) = &mut *waiting() {
        waiting.store(sink, false);
    }
    if !STATE.symbols.changed.swap(false, Relaxed) {
        return None;
    }
    let Some(loader) = Loader::ask() else {
        return Some(
            "the runtime's loader extension cannot list executables: kernels loaded before the attach have no names",
        );
    };
    let mut told = Telling {
        loader,
        texts: Texts::new(),
        sink,
    };
    visit(&loader, |executable| {
        // SAFETY: the executable is being visited.
        unsafe { told.executable(executable) }
    });
    STATE.symbols.kernels.store(
        known().as_ref().map_or(0, |k| k.kernels.len() as u64),
        Release,
    );
    None
}

/// Returns a note about kernels whose names are recorded cut.
pub fn note() -> Option<String> {
    let cut = known().as_ref().map_or(0, |book| book.cut);
    (cut > 0).then(|| {
        format!(
            "kernel names with more than {MOST_NAME} bytes, which are truncated, with … and a distinguishing number: {cut}"
        )
    })
}

/// Lets threads go on that are about to destroy executables. The kernels of these executables are
/// recorded by now, and other kernels may be loaded at their addresses next. `gone` gets the
/// numbers of an executable's code objects before its thread goes on.
///
/// `asked` is what [`leaving::asked`] returned before what had ended was looked for. An executable
/// that was announced later waits for the next call: a dispatch of it may have ended since, and would
/// get the name of a kernel that is loaded at the same address.
pub fn retire(mut asked: Vec<u64>, gone: impl Fn(&[u64])) {
    if asked.is_empty() {
        return;
    }
    if let Some(loader) = Loader::ask() {
        visit(&loader, |executable| {
            let Some(place) = asked.iter().position(|asked| *asked == executable) else {
                return;
            };
            // SAFETY: the executable is being visited.
            let objects = unsafe { kernel_objects(executable) };
            let mut guard = known();
            let Some(book) = guard.as_mut() else { return };
            for (_, kernel_object) in objects {
                book.chosen.remove(&kernel_object);
                if let Some(id) = book.kernels.remove(&kernel_object) {
                    book.retired.insert(kernel_object, id);
                }
            }
            let bases = book.bases.remove(&executable).unwrap_or_default();
            let numbers: Vec<u64> = bases
                .iter()
                .filter_map(|base| book.code_objects.remove(base))
                .collect();
            drop(guard);
            gone(&numbers);
            asked.swap_remove(place);
            leaving::see(executable);
        });
    }
    // These are executables that the runtime does not list.
    asked.into_iter().for_each(leaving::see);
}

/// The address range of a code object, and its number.
#[derive(Debug, Clone, Copy)]
struct Range {
    base: u64,
    size: u64,
    id: u64,
}

/// How much of a code object's URI is recorded, in bytes. A URI holds the path of a file in escaped
/// form.
const KEPT_URI: usize = 2048;

/// Records what the runtime has loaded.
struct Telling<'s> {
    loader: Loader,
    texts: Texts,
    sink: &'s mut Sink,
}

impl Telling<'_> {
    /// Records an executable's code objects and kernels, as far as that is not done yet.
    ///
    /// # Safety
    /// The executable is not destroyed during the call.
    unsafe fn executable(&mut self, executable: u64) {
        // SAFETY: the caller promises a live executable.
        let state = unsafe { queries::executable::<u32>(executable, hsa::EXECUTABLE_STATE) };
        if state != Some(hsa::FROZEN) {
            // Its kernels have no addresses yet. They are recorded when the executable is frozen,
            // which sets `changed` again.
            return;
        }
        let mut ranges = Vec::new();
        // SAFETY: the caller promises a live executable.
        for object in unsafe { self.loader.code_objects(executable) } {
            // SAFETY: the runtime has listed it, and it is valid as long as its executable.
            if let Some(range) = unsafe { self.code_object(object) } {
                ranges.push(range);
            }
        }
        if let Some(book) = known().as_mut() {
            let bases = ranges.iter().map(|range| range.base).collect();
            book.bases.insert(executable, bases);
        }
        // SAFETY: the caller promises a live executable.
        for (symbol, kernel_object) in unsafe { kernel_objects(executable) } {
            let range = ranges
                .iter()
                .find(|range| kernel_object.wrapping_sub(range.base) < range.size)
                .or(ranges.first());
            // SAFETY: the runtime has listed it, and it is valid as long as its executable.
            unsafe { self.kernel(symbol, kernel_object, range.copied()) };
        }
    }

    /// Records a code object. Returns where it lies; `None` if the runtime does not tell.
    ///
    /// # Safety
    /// The code object is one of an executable that is not destroyed during the call.
    unsafe fn code_object(&mut self, object: u64) -> Option<Range> {
        let loader = self.loader;
        // SAFETY: the caller promises a live code object.
        let get = |attribute| unsafe { loader.code_object::<u64>(object, attribute) };
        let base = get(hsa::CODE_OBJECT_LOAD_BASE)?;
        let size = get(hsa::CODE_OBJECT_LOAD_SIZE)?;
        let mut guard = known();
        let book = guard.as_mut()?;
        if let Some(&id) = book.code_objects.get(&base) {
            return Some(Range { base, size, id });
        }
        book.next_code_object += 1;
        let id = book.next_code_object;
        book.code_objects.insert(base, id);
        book.ranges.insert(base, (base.saturating_add(size), id));
        drop(guard);
        let in_memory = get(hsa::CODE_OBJECT_STORAGE)? as u32 == hsa::STORAGE_MEMORY;
        let memory = |attribute| get(attribute).filter(|_| in_memory).unwrap_or(0);
        // SAFETY: the caller promises a live code object.
        let uri = unsafe { loader.uri(object, &mut self.texts) }.unwrap_or_default();
        let uri = uri.get(..KEPT_URI).unwrap_or(uri);
        let record = CodeObject {
            header: Header {
                kind: kind::CODE_OBJECT,
                ..Header::default()
            },
            code_object_id: id,
            load_base: base,
            load_size: size,
            load_delta: get(hsa::CODE_OBJECT_LOAD_DELTA).unwrap_or(0) as i64,
            memory_base: memory(hsa::CODE_OBJECT_MEMORY_BASE),
            memory_size: memory(hsa::CODE_OBJECT_MEMORY_SIZE),
            node: get(hsa::CODE_OBJECT_AGENT).map_or(0, agent_node),
            uri_len: uri.len() as u32,
        };
        let record = event::encode(&record, uri);
        self.put(kind::CODE_OBJECT, record);
        Some(Range { base, size, id })
    }

    /// Records a kernel that is in a code object.
    ///
    /// # Safety
    /// The symbol is one of an executable that is not destroyed during the call.
    unsafe fn kernel(&mut self, symbol: u64, kernel_object: u64, range: Option<Range>) {
        let mut guard = known();
        let Some(book) = guard.as_mut() else { return };
        if book.kernels.contains_key(&kernel_object) {
            return;
        }
        book.next_kernel += 1;
        let kernel_id = book.next_kernel;
        book.kernels.insert(kernel_object, kernel_id);
        drop(guard);
        // SAFETY: the caller promises a live symbol.
        let whole = unsafe { queries::symbol_name(symbol, &mut self.texts) };
        let is_cut = whole.is_ok_and(|name| name.len() > MOST_NAME);
        let name = names::recorded(whole, kernel_object, range);
        if is_cut && let Some(book) = known().as_mut() {
            book.cut += 1;
        }
        kernel_filter::judge(kernel_object, &name);
        let host = self.loader.host_address(kernel_object);
        let registers = host.map_or_else(Registers::default, |host| {
            // SAFETY: the loader has this copy of the kernel's descriptor, and the executable is not
            // destroyed.
            unsafe { descriptor(host) }
        });
        let get = |attribute| {
            // SAFETY: the caller promises a live symbol.
            unsafe { queries::symbol::<u32>(symbol, attribute) }.unwrap_or(0)
        };
        let record = KernelSymbol {
            header: Header {
                kind: kind::KERNEL_SYMBOL,
                ..Header::default()
            },
            kernel_id,
            code_object_id: range.map_or(0, |range| range.id),
            kernel_object,
            entry_offset: registers.entry_offset,
            kernarg_size: get(hsa::SYMBOL_KERNARG_SIZE),
            kernarg_align: get(hsa::SYMBOL_KERNARG_ALIGN),
            group_segment: get(hsa::SYMBOL_GROUP),
            private_segment: get(hsa::SYMBOL_PRIVATE),
            sgpr: registers.sgpr,
            arch_vgpr: registers.arch_vgpr,
            accum_vgpr: registers.accum_vgpr,
            name_len: name.len() as u32,
        };
        let record = event::encode(&record, &name);
        self.put(kind::KERNEL_SYMBOL, record);
    }

    /// Stores a description, or keeps it until there is room.
    fn put(&mut self, kind: u8, record: Vec<u8>) {
        let mut waiting = waiting();
        let waiting = waiting.get_or_insert_default();
        waiting.put(self.sink, kind, record);
    }
}

/// Returns the kernels of an executable: each symbol, and its kernel object.
///
/// # Safety
/// The executable is not destroyed during the call.
unsafe fn kernel_objects(executable: u64) -> Vec<(u64, u64)> {
    let kernel = |symbol| {
        // SAFETY: the runtime has listed this symbol, and the caller promises a live executable.
        let (kind, object) = unsafe {
            (
                queries::symbol::<u32>(symbol, hsa::SYMBOL_TYPE)?,
                queries::symbol::<u64>(symbol, hsa::SYMBOL_KERNEL_OBJECT)?,
            )
        };
        (kind == hsa::SYMBOL_KIND_KERNEL && object != 0).then_some((symbol, object))
    };
    // SAFETY: the caller promises a live executable.
    let symbols = unsafe { queries::symbols(executable) };
    symbols.into_iter().filter_map(kernel).collect()
}

/// The register counts in a kernel descriptor (64 bytes, LLVM's AMDGPU usage guide "Kernel
/// Descriptor").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Registers {
    entry_offset: i64,
    sgpr: u32,
    arch_vgpr: u32,
    accum_vgpr: u32,
}

/// Reads a descriptor.
///
/// # Safety
/// `at` is readable memory of 64 bytes.
unsafe fn descriptor(at: *const c_void) -> Registers {
    let mut bytes = [0_u8; 64];
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(at.cast::<u8>(), bytes.as_mut_ptr(), 64) };
    registers(&bytes)
}

/// Decodes a descriptor in the layout of gfx90a and later (unified register file). The result is
/// what AMD's tools show: the granulated counts times their granule.
fn registers(bytes: &[u8; 64]) -> Registers {
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map_or(0, u32::from_le_bytes)
    };
    let (rsrc3, rsrc1) = (word(44), word(48));
    let entry_offset = bytes
        .get(16..24)
        .and_then(|b| b.try_into().ok())
        .map_or(0, i64::from_le_bytes);
    let vgprs = ((rsrc1 & 0x3f) + 1) * 8;
    let accum_offset = ((rsrc3 & 0x3f) + 1) * 4;
    let arch_vgpr = accum_offset.min(vgprs);
    let sgpr = (((rsrc1 >> 6) & 0xf) / 2 + 1) * 16;
    Registers {
        entry_offset,
        sgpr,
        arch_vgpr,
        accum_vgpr: vgprs - arch_vgpr,
    }
}
