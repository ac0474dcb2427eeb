//! Agents, code objects and kernels as the HSA runtime knows them, also those that were loaded before us.
//!
//! Everything comes from the runtime's own queries: the loader extension lists all executables and
//! their code objects, the executables list their symbols, and a kernel's descriptor tells its
//! number of registers. The worker thread makes these queries at the attach and whenever an
//! executable has been frozen or destroyed.

pub mod choice;
pub(crate) mod known;
pub mod leaving;

use crate::sink::Sink;
use crate::state::STATE;
use known::Known;
use midair_record::event::{self, Agent, CodeObject, Header, KernelSymbol, Plain, kind};
use midair_sdk_hot::wrappers::{self, original};
use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// HSA constants (source: api/hsa_types.json).
mod hsa {
    pub const SYSTEM_INFO_VERSION_MAJOR: u32 = 0;
    pub const AGENT_INFO_DEVICE: u32 = 17;
    pub const AGENT_INFO_DRIVER_NODE_ID: u32 = 0xA004;
    pub const EXTENSION_AMD_LOADER: u16 = 0x201;
    pub const SYMBOL_KIND_KERNEL: u32 = 1;
    pub const SYMBOL_TYPE: u32 = 0;
    pub const SYMBOL_NAME_LENGTH: u32 = 1;
    pub const SYMBOL_NAME: u32 = 2;
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
    pub const CODE_OBJECT_URI_LENGTH: u32 = 11;
    pub const CODE_OBJECT_URI: u32 = 12;
    pub const STORAGE_MEMORY: u32 = 2;
    pub const EXECUTABLE_STATE: u32 = 2;
    pub const FROZEN: u32 = 1;
}

type Status = u32;
type EachExecutable = unsafe extern "C" fn(u64, *mut c_void) -> Status;
type EachCodeObject = unsafe extern "C" fn(u64, u64, *mut c_void) -> Status;

/// `hsa_ven_amd_loader_1_03_pfn_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Loader {
    query_host_address: Option<unsafe extern "C" fn(*const c_void, *mut *const c_void) -> Status>,
    query_segment_descriptors: usize,
    query_executable: usize,
    iterate_code_objects: Option<unsafe extern "C" fn(u64, EachCodeObject, *mut c_void) -> Status>,
    code_object_info: Option<unsafe extern "C" fn(u64, u32, *mut c_void) -> Status>,
    create_from_file: usize,
    iterate_executables: Option<unsafe extern "C" fn(EachExecutable, *mut c_void) -> Status>,
}

fn known() -> MutexGuard<'static, Option<Known>> {
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
    let mut node = 0_u32;
    // SAFETY: this is the runtime's own query with an out pointer of the right size, and it returns
    // an error for a wrong handle.
    unsafe {
        original::hsa_agent_get_info(
            agent,
            hsa::AGENT_INFO_DRIVER_NODE_ID,
            (&raw mut node).cast(),
        )
    };
    node
}

/// Returns the agent of a live queue; 0 if the runtime has no function that tells.
///
/// # Safety
/// `queue` must be a live `hsa_queue_t`.
pub unsafe fn queue_agent(queue: u64) -> u64 {
    let mut agent = 0_u64;
    let mut slots = wrappers::hsa_amd_ext::SLOTS.iter();
    let slot = slots.find(|slot| slot.name == "hsa_amd_queue_get_info");
    // The tables of older runtimes end before this slot.
    if slot.is_none_or(|slot| slot.original.load(Acquire).is_null()) {
        return 0;
    }
    // SAFETY: the caller promises a live queue, and the out pointer is valid. 0 is
    // HSA_AMD_QUEUE_INFO_AGENT, for which the runtime takes no lock.
    let status = unsafe {
        original::hsa_amd_queue_get_info(
            std::ptr::with_exposed_provenance_mut(queue as usize),
            0,
            (&raw mut agent).cast(),
        )
    };
    if status == 0 { agent } else { 0 }
}

/// Returns the engine that processes a queue (`hsa_amd_queue_engine_t`). It is 0, which runs
/// kernels, if the runtime cannot make queues for other engines.
///
/// # Safety
/// `queue` must be a live `hsa_queue_t`.
pub unsafe fn queue_engine(queue: u64) -> u32 {
    /// `HSA_AMD_QUEUE_INFO_ENGINE_TYPE` (source: `docs/sources.md#hsa-newer`).
    const ENGINE_TYPE: u32 = 13;
    let mut slots = wrappers::hsa_amd_ext::SLOTS.iter();
    let create = slots.find(|slot| slot.name == "hsa_amd_queue_create");
    // The tables of older runtimes end before this slot.
    if create.is_none_or(|slot| slot.original.load(Acquire).is_null()) {
        return 0;
    }
    let mut engine = 0_u32;
    // SAFETY: the caller promises a live queue, and the out pointer is of the attribute's type. A
    // runtime that does not know the attribute returns an error and writes nothing.
    let status = unsafe {
        original::hsa_amd_queue_get_info(
            std::ptr::with_exposed_provenance_mut(queue as usize),
            ENGINE_TYPE,
            (&raw mut engine).cast(),
        )
    };
    if status == 0 { engine } else { 0 }
}

/// Returns whether an agent is a GPU.
pub fn agent_is_gpu(agent: u64) -> bool {
    let mut device = 0_u32;
    // SAFETY: this is the runtime's own query with an out pointer of the right size, and it returns
    // an error for a wrong handle.
    let status = unsafe {
        original::hsa_agent_get_info(agent, hsa::AGENT_INFO_DEVICE, (&raw mut device).cast())
    };
    status == 0 && device == 1
}

/// Returns whether the runtime is open and ready for use.
///
/// The runtime reports itself as open while its first `hsa_init` is still running, with no loader
/// and half a list of agents: a query at that moment ends the process. `hsa_init` holds a lock
/// until it is done, so a second `hsa_init`, which only increments a count, waits for the first.
/// `hsa_shut_down` then decrements the count at once. Neither is called if the runtime is not open,
/// since we must not initialise it.
pub fn runtime_is_open() -> bool {
    let mut version = 0_u16;
    // SAFETY: this is the runtime's own query of a constant, with an out pointer of its size. It
    // returns an error if the runtime is closed.
    let asked = unsafe {
        original::hsa_system_get_info(hsa::SYSTEM_INFO_VERSION_MAJOR, (&raw mut version).cast())
    };
    if asked != 0 {
        return false;
    }
    // SAFETY: these functions take no arguments, and the second one undoes the first.
    let waited = unsafe { original::hsa_init() == 0 && original::hsa_shut_down() == 0 };
    let mut count = 0_u64;
    unsafe extern "C" fn each(_agent: u64, data: *mut c_void) -> Status {
        // SAFETY: `data` is the counter below, and is used only during the call.
        unsafe { *data.cast::<u64>() += 1 };
        0
    }
    // SAFETY: this is the runtime's own query, and the callback matches its type.
    let status =
        unsafe { original::hsa_iterate_agents(each as *mut c_void, (&raw mut count).cast()) };
    waited && status == 0 && count > 0
}

/// Notes that executables changed, so that what the runtime has loaded is listed again.
pub fn set_changed() {
    STATE.symbols.changed.store(true, Relaxed);
}

/// Begins a new session, in which numbers count from the start.
pub fn forget() {
    *known() = None;
}

/// Begins a new collection, in which everything is recorded again. Addresses may have been reused
/// since the last one, so nothing keeps its old number.
pub fn begin() {
    let mut known = known();
    let before = known.take().unwrap_or_default();
    *known = Some(Known {
        next_kernel: before.next_kernel,
        next_code_object: before.next_code_object,
        ..Known::default()
    });
    drop(known);
    STATE.symbols.kernels.store(0, Release);
    STATE.symbols.changed.store(true, Relaxed);
}

/// Returns the runtime's agents: the handle, and 1 for a CPU or 2 for a GPU, as in AMD's tools.
pub fn agents() -> Vec<(u64, u32)> {
    unsafe extern "C" fn each(agent: u64, data: *mut c_void) -> Status {
        // SAFETY: `data` is the vector below, and is used only during the call.
        unsafe { (*data.cast::<Vec<u64>>()).push(agent) };
        0
    }
    let mut agents: Vec<u64> = Vec::new();
    // SAFETY: this is the runtime's own query, and the callback matches its type.
    unsafe { original::hsa_iterate_agents(each as *mut c_void, (&raw mut agents).cast()) };
    let with_type = |handle| {
        let mut device = 0_u32;
        // SAFETY: the agent is alive, and the out pointer has the right size.
        unsafe {
            original::hsa_agent_get_info(handle, hsa::AGENT_INFO_DEVICE, (&raw mut device).cast())
        };
        // hsa_device_type_t counts from 0: CPU, GPU.
        (handle, device.saturating_add(1))
    };
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

/// The functions of the runtime's loader that we need.
#[derive(Debug, Clone, Copy)]
struct Functions {
    loader: Loader,
    executables: unsafe extern "C" fn(EachExecutable, *mut c_void) -> Status,
    code_objects: unsafe extern "C" fn(u64, EachCodeObject, *mut c_void) -> Status,
    code_object_info: unsafe extern "C" fn(u64, u32, *mut c_void) -> Status,
}

impl Functions {
    fn ask() -> Option<Functions> {
        let mut loader = Loader::default();
        // SAFETY: this is the runtime's own query with a buffer of the size that is passed.
        let status = unsafe {
            original::hsa_system_get_major_extension_table(
                hsa::EXTENSION_AMD_LOADER,
                1,
                size_of::<Loader>() as u64,
                (&raw mut loader).cast(),
            )
        };
        (status == 0).then_some(Functions {
            loader,
            executables: loader.iterate_executables?,
            code_objects: loader.iterate_code_objects?,
            code_object_info: loader.code_object_info?,
        })
    }

    /// Calls `visit` for each executable. No thread that announces it destroys an executable during
    /// the visit. A handle must not be kept for later: it could be that of freed memory, which the
    /// runtime does not check.
    fn visit(&self, mut visit: impl FnMut(u64)) {
        unsafe extern "C" fn each(executable: u64, data: *mut c_void) -> Status {
            // SAFETY: `data` is the vector below, and is used only during the call.
            unsafe { (*data.cast::<Vec<u64>>()).push(executable) };
            0
        }
        let looking = leaving::Looking::begin();
        let mut executables: Vec<u64> = Vec::new();
        // SAFETY: this is the runtime's own query, and the callback matches its type.
        unsafe { (self.executables)(each, (&raw mut executables).cast()) };
        for executable in executables {
            if !leaving::has_left(executable) {
                visit(executable);
            }
        }
        drop(looking);
    }

    /// Returns the code objects of an executable that is being visited.
    fn code_objects_of(&self, executable: u64) -> Vec<u64> {
        unsafe extern "C" fn each(_executable: u64, object: u64, data: *mut c_void) -> Status {
            // SAFETY: `data` is the vector below, and is used only during the call.
            unsafe { (*data.cast::<Vec<u64>>()).push(object) };
            0
        }
        let mut objects: Vec<u64> = Vec::new();
        // SAFETY: this is the runtime's own query, and the callback matches its type.
        unsafe { (self.code_objects)(executable, each, (&raw mut objects).cast()) };
        objects
    }
}

/// Writes the records of code objects and kernels that were not recorded yet, if anything changed.
/// Returns a complaint if the runtime cannot be asked.
pub fn refresh(sink: &mut Sink) -> Option<&'static str> {
    if !STATE.symbols.changed.swap(false, Relaxed) {
        return None;
    }
    let Some(functions) = Functions::ask() else {
        return Some(
            "the runtime's loader extension cannot list executables: kernels loaded before the attach have no names",
        );
    };
    functions.visit(|executable| tell_executable(&functions, executable, sink));
    STATE.symbols.kernels.store(
        known().as_ref().map_or(0, |k| k.kernels.len() as u64),
        Release,
    );
    None
}

fn tell_executable(functions: &Functions, executable: u64, sink: &mut Sink) {
    let mut state = 0_u32;
    // SAFETY: this is the runtime's own query with an out pointer of the right size.
    unsafe {
        original::hsa_executable_get_info(
            executable,
            hsa::EXECUTABLE_STATE,
            (&raw mut state).cast(),
        )
    };
    if state != hsa::FROZEN {
        // Its kernels have no addresses yet. They are recorded when the executable is frozen, which
        // sets `changed` again.
        return;
    }
    let mut ranges = Vec::new();
    for object in functions.code_objects_of(executable) {
        // SAFETY: this is a handle of the runtime. It is valid as long as its executable, which is
        // being visited.
        if let Some(range) = unsafe { tell_code_object(functions.code_object_info, object, sink) } {
            ranges.push(range);
        }
    }
    if let Some(book) = known().as_mut() {
        let bases = ranges.iter().map(|range| range.base).collect();
        book.bases.insert(executable, bases);
    }
    tell_kernels(executable, &ranges, &functions.loader, sink);
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
    if let Some(functions) = Functions::ask() {
        functions.visit(|executable| {
            let Some(place) = asked.iter().position(|asked| *asked == executable) else {
                return;
            };
            let objects = kernel_objects(executable);
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
/// How much of a kernel's name is recorded, in bytes.
const KEPT_NAME: usize = 3072;
/// The longest text that the runtime is asked for, in bytes. Mangled names of templates have up to
/// 500 KiB.
const MOST_TEXT: usize = 1 << 20;

/// Records a code object, if that is not done yet. Returns where it lies; `None` if the runtime does
/// not tell.
///
/// # Safety
/// `info` is the loader's query of code objects, and `object` one of the loader's, of an executable
/// that is not destroyed meanwhile.
unsafe fn tell_code_object(
    info: unsafe extern "C" fn(u64, u32, *mut c_void) -> Status,
    object: u64,
    sink: &mut Sink,
) -> Option<Range> {
    let get = |attribute: u32| {
        let mut value = 0_u64;
        // SAFETY: the caller promises a valid `object`, and 8 bytes hold any of the scalar
        // attributes that are queried here.
        let status = unsafe { info(object, attribute, (&raw mut value).cast()) };
        (status == 0).then_some(value)
    };
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
    drop(guard);
    let in_memory = get(hsa::CODE_OBJECT_STORAGE)? as u32 == hsa::STORAGE_MEMORY;
    let uri_len = get(hsa::CODE_OBJECT_URI_LENGTH).unwrap_or(0) as u32 as usize;
    let uri = text_of(uri_len, KEPT_URI, |to| {
        // SAFETY: the caller promises a valid `object`, and `to` has room for the length that the
        // runtime reported.
        unsafe { info(object, hsa::CODE_OBJECT_URI, to) }
    });
    let record = CodeObject {
        header: Header {
            kind: kind::CODE_OBJECT,
            ..Header::default()
        },
        code_object_id: id,
        load_base: base,
        load_size: size,
        load_delta: get(hsa::CODE_OBJECT_LOAD_DELTA).unwrap_or(0) as i64,
        memory_base: if in_memory {
            get(hsa::CODE_OBJECT_MEMORY_BASE).unwrap_or(0)
        } else {
            0
        },
        memory_size: if in_memory {
            get(hsa::CODE_OBJECT_MEMORY_SIZE).unwrap_or(0)
        } else {
            0
        },
        node: get(hsa::CODE_OBJECT_AGENT).map_or(0, agent_node),
        uri_len: uri.len() as u32,
    };
    sink.put(kind::CODE_OBJECT, &event::encode(&record, &uri));
    Some(Range { base, size, id })
}

/// Returns the first `kept` bytes of a text that the runtime writes by itself. `len` is the length
/// that the runtime reported. `ask` has the runtime write the text; its argument has room for `len`
/// bytes and a zero. A text that is too long to be asked for, or that the runtime does not write, is
/// empty.
fn text_of(len: usize, kept: usize, ask: impl FnOnce(*mut c_void) -> Status) -> Vec<u8> {
    if len > MOST_TEXT {
        return Vec::new();
    }
    // The runtime writes all of the text, whatever is kept of it.
    let mut text = vec![0_u8; len + 1];
    if ask(text.as_mut_ptr().cast()) != 0 {
        return Vec::new();
    }
    text.truncate(len.min(kept));
    text.shrink_to_fit();
    text
}

/// Returns the kernels of an executable: each symbol, and its kernel object.
fn kernel_objects(executable: u64) -> Vec<(u64, u64)> {
    unsafe extern "C" fn each(_executable: u64, symbol: u64, data: *mut c_void) -> Status {
        // SAFETY: `data` is the vector below, and is used only during the call.
        unsafe { (*data.cast::<Vec<u64>>()).push(symbol) };
        0
    }
    let mut symbols: Vec<u64> = Vec::new();
    // SAFETY: this is the runtime's own query, the callback matches its type, and the query returns
    // an error for a destroyed executable.
    unsafe {
        original::hsa_executable_iterate_symbols(
            executable,
            each as *mut c_void,
            (&raw mut symbols).cast(),
        )
    };
    let kernel = |symbol| {
        let kind = symbol_info(symbol, hsa::SYMBOL_TYPE)? as u32;
        let object = symbol_info(symbol, hsa::SYMBOL_KERNEL_OBJECT)?;
        (kind == hsa::SYMBOL_KIND_KERNEL && object != 0).then_some((symbol, object))
    };
    symbols.into_iter().filter_map(kernel).collect()
}

/// Returns a scalar attribute of a symbol of a live executable.
fn symbol_info(symbol: u64, attribute: u32) -> Option<u64> {
    let mut value = 0_u64;
    // SAFETY: the runtime has listed this symbol, and 8 bytes hold any of the scalar attributes
    // that are queried here.
    let status = unsafe {
        original::hsa_executable_symbol_get_info(symbol, attribute, (&raw mut value).cast())
    };
    (status == 0).then_some(value)
}

fn tell_kernels(executable: u64, ranges: &[Range], loader: &Loader, sink: &mut Sink) {
    for (symbol, kernel_object) in kernel_objects(executable) {
        let get = |attribute| symbol_info(symbol, attribute);
        let code_object = ranges
            .iter()
            .find(|range| kernel_object.wrapping_sub(range.base) < range.size)
            .or(ranges.first())
            .map_or(0, |range| range.id);
        let mut guard = known();
        let Some(book) = guard.as_mut() else { return };
        if book.kernels.contains_key(&kernel_object) {
            continue;
        }
        book.next_kernel += 1;
        let kernel_id = book.next_kernel;
        book.kernels.insert(kernel_object, kernel_id);
        drop(guard);
        let name_len = get(hsa::SYMBOL_NAME_LENGTH).unwrap_or(0) as u32 as usize;
        let name = text_of(name_len, KEPT_NAME, |to| {
            // SAFETY: the symbol is one of a live executable, and `to` has room for the length that
            // the runtime reported.
            unsafe { original::hsa_executable_symbol_get_info(symbol, hsa::SYMBOL_NAME, to) }
        });
        choice::judge(kernel_object, &name);
        let registers = descriptor(loader, kernel_object).unwrap_or_default();
        let record = KernelSymbol {
            header: Header {
                kind: kind::KERNEL_SYMBOL,
                ..Header::default()
            },
            kernel_id,
            code_object_id: code_object,
            kernel_object,
            entry_offset: registers.entry_offset,
            kernarg_size: get(hsa::SYMBOL_KERNARG_SIZE).unwrap_or(0) as u32,
            kernarg_align: get(hsa::SYMBOL_KERNARG_ALIGN).unwrap_or(0) as u32,
            group_segment: get(hsa::SYMBOL_GROUP).unwrap_or(0) as u32,
            private_segment: get(hsa::SYMBOL_PRIVATE).unwrap_or(0) as u32,
            sgpr: registers.sgpr,
            arch_vgpr: registers.arch_vgpr,
            accum_vgpr: registers.accum_vgpr,
            name_len: name.len() as u32,
        };
        sink.put(kind::KERNEL_SYMBOL, &event::encode(&record, &name));
    }
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

fn descriptor(loader: &Loader, kernel_object: u64) -> Option<Registers> {
    let query = loader.query_host_address?;
    let mut host: *const c_void = std::ptr::null();
    // SAFETY: this is the loader's own query. It looks the address up, and returns an error if it
    // knows nothing there.
    let status = unsafe {
        query(
            std::ptr::with_exposed_provenance(kernel_object as usize),
            &mut host,
        )
    };
    if status != 0 || host.is_null() {
        return None;
    }
    let mut bytes = [0_u8; 64];
    // SAFETY: this is the loader's host copy of a loaded segment, and a kernel descriptor has 64
    // bytes.
    unsafe { std::ptr::copy_nonoverlapping(host.cast::<u8>(), bytes.as_mut_ptr(), 64) };
    Some(registers(&bytes))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A runtime that has a text of `has` bytes. Like a real one it writes all of them, and no zero;
    /// unlike one, it looks at the buffer first.
    fn write(into: *mut c_void, has: usize) -> Status {
        // SAFETY: the caller's buffer is its own allocation.
        if unsafe { libc::malloc_usable_size(into) } < has {
            return 1;
        }
        // SAFETY: the buffer has that much room.
        unsafe { into.cast::<u8>().write_bytes(b'k', has) };
        0
    }

    #[test]
    fn a_long_text_has_room_for_all_that_the_runtime_writes() {
        let text = |len: usize| text_of(len, KEPT_NAME, |to| write(to, len));
        assert_eq!(text(0), b"");
        for len in [1, KEPT_NAME - 1, KEPT_NAME] {
            assert_eq!(text(len), vec![b'k'; len], "{len}");
        }
        for len in [KEPT_NAME + 1, 4000, 200_000, MOST_TEXT] {
            assert_eq!(text(len), vec![b'k'; KEPT_NAME], "{len}");
        }
        let is_asked = std::cell::Cell::new(false);
        let too_long = text_of(MOST_TEXT + 1, KEPT_NAME, |_| {
            is_asked.set(true);
            0
        });
        assert!(too_long.is_empty() && !is_asked.get());
        // The runtime returns an error.
        assert_eq!(text_of(5, KEPT_NAME, |_| 1), b"");
    }
}
