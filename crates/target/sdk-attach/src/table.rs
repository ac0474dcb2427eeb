//! `RocAttachDispatchTable`, which an SDK gets as the table "rocattach". It has 96 bytes: its size,
//! then eleven functions.

use crate::hooks;
use crate::intercept::Interceptor;
use crate::objects::{self, ExecutableCallback, QueueCallback};
use crate::status::{ERROR, INVALID_ARGUMENT, NOT_AVAILABLE, SUCCESS};
use midair_capi_build::edge;
use std::ffi::{c_int, c_void};

/// A visitor of queues. Its arguments are the queue, the agent and the visitor's data.
pub type QueueVisitor = unsafe extern "C" fn(usize, u64, *mut c_void);
/// A visitor of executables. Its arguments are the handle and the visitor's data.
pub type ExecutableVisitor = unsafe extern "C" fn(u64, *mut c_void);

/// The table. Each function returns a `rocprofiler_status_t`, except the first (a version) and
/// `is_hsa_interception_active`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RocAttachDispatchTable {
    /// The size of the table in bytes.
    pub size: u64,
    /// 10000 major + 100 minor + patch.
    pub get_version: unsafe extern "C" fn() -> c_int,
    /// Visits the queues that are alive.
    pub iterate_all_queues: unsafe extern "C" fn(Option<QueueVisitor>, *mut c_void) -> c_int,
    /// Sets the interceptor of a queue, or removes it (null).
    pub set_write_interceptor:
        unsafe extern "C" fn(usize, Option<Interceptor>, *mut c_void) -> c_int,
    /// Visits the executables that are alive.
    pub iterate_all_code_objects:
        unsafe extern "C" fn(Option<ExecutableVisitor>, *mut c_void) -> c_int,
    /// Adds a callback for executables. It is called for existing ones first.
    pub add_code_object_cb: unsafe extern "C" fn(Option<ExecutableCallback>, *mut c_void) -> c_int,
    /// Removes a callback for executables.
    pub remove_code_object_cb: unsafe extern "C" fn(Option<ExecutableCallback>) -> c_int,
    /// Adds a callback for queues. It is called for existing ones first.
    pub add_queue_cb: unsafe extern "C" fn(Option<QueueCallback>, *mut c_void) -> c_int,
    /// Removes a callback for queues.
    pub remove_queue_cb: unsafe extern "C" fn(Option<QueueCallback>) -> c_int,
    /// Returns the bytes of a code object that was loaded from memory. They belong to us and are
    /// valid while the code object is loaded.
    pub lookup_memory_codeobj_data:
        unsafe extern "C" fn(u64, *mut *const c_void, *mut u64) -> c_int,
    /// Whether the hooks are installed in HSA's tables.
    pub is_hsa_interception_active: unsafe extern "C" fn() -> c_int,
    /// Installs the hooks in HSA's tables.
    pub initialize_hsa_interception: unsafe extern "C" fn(*const hooks::HsaApiTable) -> c_int,
}

const _: () = assert!(size_of::<RocAttachDispatchTable>() == 96);
const _: () =
    assert!(std::mem::offset_of!(RocAttachDispatchTable, lookup_memory_codeobj_data) == 72);

static TABLE: RocAttachDispatchTable = RocAttachDispatchTable {
    size: size_of::<RocAttachDispatchTable>() as u64,
    get_version,
    iterate_all_queues,
    set_write_interceptor,
    iterate_all_code_objects,
    add_code_object_cb,
    remove_code_object_cb,
    add_queue_cb,
    remove_queue_cb,
    lookup_memory_codeobj_data,
    is_hsa_interception_active,
    initialize_hsa_interception,
};

/// Returns the table's address. An SDK saves the functions in it and may store functions of its own
/// there, as in any runtime's table. So the table is copied once into writable memory, which is
/// never freed.
pub fn address() -> *mut c_void {
    static COPY: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let at = *COPY.get_or_init(|| Box::into_raw(Box::new(TABLE)).expose_provenance());
    std::ptr::with_exposed_provenance_mut(at)
}

unsafe extern "C" fn get_version() -> c_int {
    crate::VERSION as c_int
}

unsafe extern "C" fn iterate_all_queues(visit: Option<QueueVisitor>, data: *mut c_void) -> c_int {
    edge(ERROR, || {
        let Some(visit) = visit else {
            return INVALID_ARGUMENT;
        };
        // SAFETY: this is the SDK's function, called with its own data.
        objects::each_queue(|queue, agent| unsafe { visit(queue, agent, data) });
        SUCCESS
    })
}

unsafe extern "C" fn set_write_interceptor(
    queue: usize,
    function: Option<Interceptor>,
    data: *mut c_void,
) -> c_int {
    edge(ERROR, || match objects::interceptor_slot(queue) {
        None => INVALID_ARGUMENT,
        Some(None) => NOT_AVAILABLE,
        Some(Some(slot)) => {
            match function {
                // SAFETY: this is the SDK's function with its own data, which the SDK never frees.
                Some(function) => unsafe { slot.set(function, data) },
                None => slot.clear(),
            }
            SUCCESS
        }
    })
}

unsafe extern "C" fn iterate_all_code_objects(
    visit: Option<ExecutableVisitor>,
    data: *mut c_void,
) -> c_int {
    edge(ERROR, || {
        let Some(visit) = visit else {
            return INVALID_ARGUMENT;
        };
        // SAFETY: this is the SDK's function, called with its own data.
        objects::each_executable(|executable| unsafe { visit(executable, data) });
        SUCCESS
    })
}

unsafe extern "C" fn add_code_object_cb(
    function: Option<ExecutableCallback>,
    data: *mut c_void,
) -> c_int {
    edge(ERROR, || {
        function.map_or(INVALID_ARGUMENT, |function| {
            // SAFETY: this is the SDK's function with its own data.
            unsafe { objects::add_executable_callback(function, data) }
        })
    })
}

unsafe extern "C" fn remove_code_object_cb(function: Option<ExecutableCallback>) -> c_int {
    edge(ERROR, || {
        function.map_or(INVALID_ARGUMENT, objects::remove_executable_callback)
    })
}

unsafe extern "C" fn add_queue_cb(function: Option<QueueCallback>, data: *mut c_void) -> c_int {
    edge(ERROR, || {
        function.map_or(INVALID_ARGUMENT, |function| {
            // SAFETY: this is the SDK's function with its own data.
            unsafe { objects::add_queue_callback(function, data) }
        })
    })
}

unsafe extern "C" fn remove_queue_cb(function: Option<QueueCallback>) -> c_int {
    edge(ERROR, || {
        function.map_or(INVALID_ARGUMENT, objects::remove_queue_callback)
    })
}

unsafe extern "C" fn lookup_memory_codeobj_data(
    loaded: u64,
    data: *mut *const c_void,
    size: *mut u64,
) -> c_int {
    edge(ERROR, || {
        let Some((at, bytes)) = objects::bytes_of(loaded) else {
            return INVALID_ARGUMENT;
        };
        if data.is_null() || size.is_null() {
            return INVALID_ARGUMENT;
        }
        // SAFETY: the pointers are not null, and the caller lets us write to them.
        unsafe {
            data.write(at.cast());
            size.write(bytes as u64);
        }
        SUCCESS
    })
}

unsafe extern "C" fn is_hsa_interception_active() -> c_int {
    edge(0, || c_int::from(hooks::active()))
}

unsafe extern "C" fn initialize_hsa_interception(table: *const hooks::HsaApiTable) -> c_int {
    // SAFETY: the caller promises that the table is null or HSA's live table.
    edge(ERROR, || unsafe { hooks::install(table) })
}
