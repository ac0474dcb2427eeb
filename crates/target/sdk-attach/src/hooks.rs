//! Hooks in HSA's tables, which record the creation and destruction of queues and code objects. A
//! thread that is cancelled inside the runtime unwinds through them.

use crate::intercept;
use crate::objects;
use crate::status;
use midair_abi::tables::{HSA_AMD_EXT, HSA_CORE, Table};
use midair_capi_build::edge;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `HSA_STATUS_ERROR`.
const HSA_ERROR: u32 = 0x1000;

/// `hsa_queue_create` and `hsa_amd_queue_intercept_create`. Their arguments are HSA agent, size,
/// type, callback, the callback's data, private and group segment, and the result.
pub type QueueCreate = unsafe extern "C-unwind" fn(
    u64,
    u32,
    u32,
    *const c_void,
    *mut c_void,
    u32,
    u32,
    *mut *mut c_void,
) -> u32;
type QueueDestroy = unsafe extern "C-unwind" fn(*mut c_void) -> u32;
type ExecutableFreeze = unsafe extern "C-unwind" fn(u64, *const c_char) -> u32;
type ExecutableDestroy = unsafe extern "C-unwind" fn(u64) -> u32;
type ReaderFromMemory = unsafe extern "C-unwind" fn(*const c_void, usize, *mut u64) -> u32;
type ReaderDestroy = unsafe extern "C-unwind" fn(u64) -> u32;
type LoadCodeObject = unsafe extern "C-unwind" fn(u64, u64, u64, *const c_char, *mut u64) -> u32;

/// The start of `HsaApiTable`: a version of 16 bytes, then the tables (source:
/// api/hsa_api_tables.json).
#[repr(C)]
pub struct HsaApiTable {
    version: [u32; 4],
    core: *mut u8,
    amd_ext: *mut u8,
}

/// The previous value of a hooked slot.
struct Original(AtomicPtr<c_void>);

impl Original {
    const fn none() -> Original {
        Original(AtomicPtr::new(std::ptr::null_mut()))
    }
    /// Returns the saved value as a function of its type.
    ///
    /// # Safety
    /// `F` is the type of the function whose slot was saved here.
    unsafe fn get<F: Copy>(&self) -> Option<F> {
        // SAFETY: the caller promises that `F` is the function's type.
        unsafe { midair_register::library::function(self.0.load(Ordering::Acquire)) }
    }
}

static QUEUE_CREATE: Original = Original::none();
static QUEUE_DESTROY: Original = Original::none();
static EXECUTABLE_FREEZE: Original = Original::none();
static EXECUTABLE_DESTROY: Original = Original::none();
static READER_FROM_MEMORY: Original = Original::none();
static READER_DESTROY: Original = Original::none();
static LOAD_CODE_OBJECT: Original = Original::none();
static INTERCEPT_CREATE: Original = Original::none();
static INTERCEPT_REGISTER: Original = Original::none();
static SET_PROFILER: Original = Original::none();

/// One hook.
struct Hook {
    name: &'static str,
    original: &'static Original,
    ours: *const c_void,
}

fn core_hooks() -> [Hook; 7] {
    let hook = |name, original, ours| Hook {
        name,
        original,
        ours,
    };
    [
        hook(
            "hsa_queue_create",
            &QUEUE_CREATE,
            queue_create as *const c_void,
        ),
        hook(
            "hsa_queue_destroy",
            &QUEUE_DESTROY,
            queue_destroy as *const c_void,
        ),
        hook(
            "hsa_executable_freeze",
            &EXECUTABLE_FREEZE,
            executable_freeze as *const c_void,
        ),
        hook(
            "hsa_executable_destroy",
            &EXECUTABLE_DESTROY,
            executable_destroy as *const c_void,
        ),
        hook(
            "hsa_code_object_reader_create_from_memory",
            &READER_FROM_MEMORY,
            reader_from_memory as *const c_void,
        ),
        hook(
            "hsa_code_object_reader_destroy",
            &READER_DESTROY,
            reader_destroy as *const c_void,
        ),
        hook(
            "hsa_executable_load_agent_code_object",
            &LOAD_CODE_OBJECT,
            load_code_object as *const c_void,
        ),
    ]
}

/// The functions of AMD's extension that we call.
fn called() -> [(&'static str, &'static Original); 3] {
    [
        ("hsa_amd_queue_intercept_create", &INTERCEPT_CREATE),
        ("hsa_amd_queue_intercept_register", &INTERCEPT_REGISTER),
        ("hsa_amd_profiling_set_profiler_enabled", &SET_PROFILER),
    ]
}

/// Returns the slot of a function in a live table, unless the table ends before it.
///
/// # Safety
/// `base` is a live table of that kind, or null.
unsafe fn slot(base: *mut u8, table: &Table, name: &str) -> Option<&'static AtomicPtr<c_void>> {
    if base.is_null() {
        return None;
    }
    // SAFETY: a table starts with its major version, followed by its size as the minor version.
    let size = unsafe { base.cast::<u32>().add(1).read() };
    let function = table
        .functions
        .iter()
        .find(|function| function.name.as_str() == name)?;
    if function.offset + 8 > size {
        return None;
    }
    // SAFETY: the slot lies inside the table, which is aligned as its pointers are and lives as
    // long as the process.
    Some(unsafe { AtomicPtr::from_ptr(base.add(function.offset as usize).cast()) })
}

static INSTALLING: Mutex<bool> = Mutex::new(false);

/// Whether the hooks are installed in a table.
pub fn active() -> bool {
    *INSTALLING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the hooks in HSA's tables. A runtime that was shut down and initialised again passes
/// its tables again, and then what was recorded of the old ones is discarded. Tables of another
/// copy of the runtime are left alone, because a process has one set of hooks.
///
/// # Safety
/// `api` is null or HSA's live table of tables.
pub unsafe fn install(api: *const HsaApiTable) -> c_int {
    // SAFETY: the caller promises that `api` is null or live.
    let Some((core, ext)) = (unsafe { api.as_ref() }).map(|api| (api.core, api.amd_ext)) else {
        return status::INVALID_ARGUMENT;
    };
    let mut installed = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let hooks = core_hooks();
    let mut slots = Vec::with_capacity(hooks.len());
    for hook in &hooks {
        // SAFETY: the caller promises that the tables are live.
        let Some(slot) = (unsafe { slot(core, &HSA_CORE, hook.name) }) else {
            return status::NOT_AVAILABLE;
        };
        let now = slot.load(Ordering::Acquire);
        if now.is_null() {
            return status::NOT_AVAILABLE;
        }
        let before = hook.original.0.load(Ordering::Acquire);
        if *installed && now.cast_const() != hook.ours && !same_module(before, now) {
            return status::SUCCESS;
        }
        slots.push((hook, slot, now));
    }
    for (name, original) in called() {
        // SAFETY: the caller promises that the tables are live.
        if let Some(slot) = unsafe { slot(ext, &HSA_AMD_EXT, name) } {
            original
                .0
                .store(slot.load(Ordering::Acquire), Ordering::Release);
        }
    }
    // Every original is saved before the first hook can be called.
    let fresh: Vec<_> = slots
        .into_iter()
        .filter(|(hook, _, now)| now.cast_const() != hook.ours)
        .collect();
    for (hook, _, now) in &fresh {
        hook.original.0.store(*now, Ordering::Release);
    }
    if *installed && !fresh.is_empty() {
        objects::forget();
    }
    for (hook, slot, _) in fresh {
        slot.store(hook.ours.cast_mut(), Ordering::Release);
    }
    *installed = true;
    status::SUCCESS
}

fn same_module(one: *mut c_void, other: *mut c_void) -> bool {
    midair_register::library::base_of(one) == midair_register::library::base_of(other)
}

/// Makes an intercept queue by the runtime's own functions, with our handler for its packets.
/// `None` when the runtime has no such functions, or refuses (cooperative queues).
///
/// # Safety
/// The arguments come from an application's `hsa_queue_create`; `handler` is never freed.
#[expect(clippy::too_many_arguments, reason = "they are the C function's")]
unsafe fn create_intercepted(
    agent: u64,
    size: u32,
    kind: u32,
    callback: *const c_void,
    data: *mut c_void,
    private: u32,
    group: u32,
    slot: *mut intercept::InterceptorSlot,
) -> Option<*mut c_void> {
    type Install = unsafe extern "C-unwind" fn(*mut c_void, intercept::Handler, *mut c_void) -> u32;
    type Profile = unsafe extern "C-unwind" fn(*mut c_void, c_int) -> u32;
    let mut queue = std::ptr::null_mut();
    // SAFETY: these are the runtime's functions. They get the application's arguments and our own.
    unsafe {
        let create = INTERCEPT_CREATE.get::<QueueCreate>()?;
        let install = INTERCEPT_REGISTER.get::<Install>()?;
        if create(
            agent,
            size,
            kind,
            callback,
            data,
            private,
            group,
            &raw mut queue,
        ) != 0
        {
            return None;
        }
        if install(queue, intercept::on_packets, slot.cast()) != 0 {
            if let Some(destroy) = QUEUE_DESTROY.get::<QueueDestroy>() {
                destroy(queue);
            }
            return None;
        }
        if let Some(profile) = SET_PROFILER.get::<Profile>() {
            profile(queue, 1);
        }
    }
    Some(queue)
}

unsafe extern "C-unwind" fn queue_create(
    agent: u64,
    size: u32,
    kind: u32,
    callback: *const c_void,
    data: *mut c_void,
    private: u32,
    group: u32,
    result: *mut *mut c_void,
) -> u32 {
    // SAFETY: this is the type of the function in the slot that was saved here.
    let Some(create) = (unsafe { QUEUE_CREATE.get::<QueueCreate>() }) else {
        return HSA_ERROR;
    };
    if !result.is_null() && intercept::needed() {
        let slot = intercept::InterceptorSlot::leak();
        // SAFETY: the arguments are the application's own, and the handler's data is never freed.
        let made =
            unsafe { create_intercepted(agent, size, kind, callback, data, private, group, slot) };
        if let Some(queue) = made {
            // SAFETY: the pointer is not null, and is the caller's out pointer.
            unsafe { result.write(queue) };
            // SAFETY: the slot was leaked above.
            let slot = Some(unsafe { &*slot });
            edge((), || objects::queue_created(queue.addr(), agent, slot));
            return 0;
        }
        // SAFETY: the slot was leaked above and was not given to anybody.
        drop(unsafe { Box::from_raw(slot) });
    }
    // SAFETY: this passes on the application's own call.
    let answer = unsafe { create(agent, size, kind, callback, data, private, group, result) };
    if answer == 0 && !result.is_null() {
        // SAFETY: the runtime has written the result.
        let queue = unsafe { (*result).addr() };
        edge((), || objects::queue_created(queue, agent, None));
    }
    answer
}

unsafe extern "C-unwind" fn queue_destroy(queue: *mut c_void) -> u32 {
    // SAFETY: this is the type of the function in the slot that was saved here.
    let Some(destroy) = (unsafe { QUEUE_DESTROY.get::<QueueDestroy>() }) else {
        return HSA_ERROR;
    };
    edge((), || objects::queue_destroyed(queue.addr()));
    // SAFETY: this passes on the application's own call.
    unsafe { destroy(queue) }
}

unsafe extern "C-unwind" fn executable_freeze(executable: u64, options: *const c_char) -> u32 {
    // SAFETY: this is the type of the function in the slot that was saved here.
    let Some(freeze) = (unsafe { EXECUTABLE_FREEZE.get::<ExecutableFreeze>() }) else {
        return HSA_ERROR;
    };
    // SAFETY: this passes on the application's own call.
    let answer = unsafe { freeze(executable, options) };
    if answer == 0 {
        edge((), || objects::executable_frozen(executable));
    }
    answer
}

unsafe extern "C-unwind" fn executable_destroy(executable: u64) -> u32 {
    // SAFETY: this is the type of the function in the slot that was saved here.
    let Some(destroy) = (unsafe { EXECUTABLE_DESTROY.get::<ExecutableDestroy>() }) else {
        return HSA_ERROR;
    };
    edge((), || objects::executable_destroyed(executable));
    // SAFETY: this passes on the application's own call.
    unsafe { destroy(executable) }
}

unsafe extern "C-unwind" fn reader_from_memory(
    code: *const c_void,
    size: usize,
    reader: *mut u64,
) -> u32 {
    // SAFETY: this is the type of the function in the slot that was saved here.
    let Some(create) = (unsafe { READER_FROM_MEMORY.get::<ReaderFromMemory>() }) else {
        return HSA_ERROR;
    };
    // SAFETY: this passes on the application's own call.
    let answer = unsafe { create(code, size, reader) };
    if answer == 0 && !code.is_null() && !reader.is_null() {
        // SAFETY: the runtime has just read the same bytes and has written the handle.
        let (bytes, reader) = unsafe { (std::slice::from_raw_parts(code.cast(), size), *reader) };
        edge((), || objects::reader_created(reader, bytes));
    }
    answer
}

unsafe extern "C-unwind" fn reader_destroy(reader: u64) -> u32 {
    // SAFETY: this is the type of the function in the slot that was saved here.
    let Some(destroy) = (unsafe { READER_DESTROY.get::<ReaderDestroy>() }) else {
        return HSA_ERROR;
    };
    edge((), || objects::reader_destroyed(reader));
    // SAFETY: this passes on the application's own call.
    unsafe { destroy(reader) }
}

unsafe extern "C-unwind" fn load_code_object(
    executable: u64,
    agent: u64,
    reader: u64,
    options: *const c_char,
    loaded: *mut u64,
) -> u32 {
    // SAFETY: this is the type of the function in the slot that was saved here.
    let Some(load) = (unsafe { LOAD_CODE_OBJECT.get::<LoadCodeObject>() }) else {
        return HSA_ERROR;
    };
    let mut own = 0;
    let slot = if loaded.is_null() {
        &raw mut own
    } else {
        loaded
    };
    // SAFETY: this passes on the application's own call. Where the application does not want the
    // handle, the call gets an out pointer of midair's, since we still need it.
    let answer = unsafe { load(executable, agent, reader, options, slot) };
    if answer == 0 {
        // SAFETY: the runtime has written the handle.
        let loaded = unsafe { *slot };
        edge((), || {
            objects::code_object_loaded(executable, reader, loaded)
        });
    }
    answer
}
