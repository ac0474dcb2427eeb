//! The hooks in tables that this test makes: what they record, what happens when the runtime is
//! initialised again, and what happens when there are two copies of it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

use midair_abi::tables::{HSA_AMD_EXT, HSA_CORE, Table};
use midair_sdk_attach::{hooks, objects, status, table};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

static MADE: AtomicUsize = AtomicUsize::new(0);
static DESTROYED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn create(
    _agent: u64,
    _size: u32,
    _kind: u32,
    _callback: *const c_void,
    _data: *mut c_void,
    _private: u32,
    _group: u32,
    result: *mut *mut c_void,
) -> u32 {
    let number = MADE.fetch_add(1, Ordering::SeqCst) + 1;
    // SAFETY: the out pointer is the test's own.
    unsafe { result.write(std::ptr::without_provenance_mut(number << 6)) };
    0
}
unsafe extern "C" fn destroy(_queue: *mut c_void) -> u32 {
    DESTROYED.fetch_add(1, Ordering::SeqCst);
    0
}
unsafe extern "C" fn freeze(_executable: u64, options: *const c_char) -> u32 {
    // It fails if there are options.
    u32::from(!options.is_null())
}
unsafe extern "C" fn end(_handle: u64) -> u32 {
    0
}
unsafe extern "C" fn read(_code: *const c_void, _size: usize, reader: *mut u64) -> u32 {
    // SAFETY: the out pointer is the test's own.
    unsafe { reader.write(77) };
    0
}
unsafe extern "C" fn load(_: u64, _: u64, _: u64, _: *const c_char, loaded: *mut u64) -> u32 {
    // SAFETY: the hook always passes a valid out pointer.
    unsafe { loaded.write(88) };
    0
}

/// A runtime's tables.
struct Runtime {
    core: Vec<u64>,
    ext: Vec<u64>,
}

fn offset(table: &Table, name: &str) -> usize {
    let function = table.functions.iter().find(|f| f.name.as_str() == name);
    function.unwrap().offset as usize / 8
}

impl Runtime {
    fn new() -> Runtime {
        let table = |table: &Table| {
            let mut words = vec![0; table.size as usize / 8];
            words[0] = 2 | u64::from(table.size) << 32;
            words
        };
        let mut runtime = Runtime {
            core: table(&HSA_CORE),
            ext: table(&HSA_AMD_EXT),
        };
        runtime.reset();
        runtime
    }
    /// Sets the tables to what the runtime makes.
    fn reset(&mut self) {
        for (name, function) in [
            ("hsa_queue_create", create as *const c_void),
            ("hsa_queue_destroy", destroy as *const c_void),
            ("hsa_executable_freeze", freeze as *const c_void),
            ("hsa_executable_destroy", end as *const c_void),
            (
                "hsa_code_object_reader_create_from_memory",
                read as *const c_void,
            ),
            ("hsa_code_object_reader_destroy", end as *const c_void),
            (
                "hsa_executable_load_agent_code_object",
                load as *const c_void,
            ),
        ] {
            self.core[offset(&HSA_CORE, name)] = function.expose_provenance() as u64;
        }
    }
    fn install(&mut self) -> c_int {
        let api: [u64; 4] = [
            3,
            0,
            self.core.as_mut_ptr().expose_provenance() as u64,
            self.ext.as_mut_ptr().expose_provenance() as u64,
        ];
        // SAFETY: the tables have the layout that the hooks know.
        unsafe { hooks::install(api.as_ptr().cast()) }
    }
    fn slot<F: Copy>(&self, name: &str) -> F {
        let address: *const c_void =
            std::ptr::with_exposed_provenance(self.core[offset(&HSA_CORE, name)] as usize);
        assert_eq!(size_of::<F>(), size_of_val(&address));
        // SAFETY: each caller names the function's own type.
        unsafe { std::mem::transmute_copy(&address) }
    }
    fn new_queue(&self) -> usize {
        let create: hooks::QueueCreate = self.slot("hsa_queue_create");
        let mut queue = std::ptr::null_mut();
        let (none, data) = (std::ptr::null(), std::ptr::null_mut());
        // SAFETY: the function is the one in the table, and it takes these arguments.
        let answer = unsafe { create(5, 64, 0, none, data, 0, 0, &raw mut queue) };
        assert_eq!(answer, 0);
        queue.addr()
    }
    fn destroy_queue(&self, queue: usize) {
        let destroy: unsafe extern "C" fn(usize) -> u32 = self.slot("hsa_queue_destroy");
        // SAFETY: as above.
        assert_eq!(unsafe { destroy(queue) }, 0);
    }
}

fn queues() -> Vec<(usize, u64)> {
    let mut all = Vec::new();
    objects::each_queue(|queue, agent| all.push((queue, agent)));
    all
}

fn executables() -> Vec<u64> {
    let mut all = Vec::new();
    objects::each_executable(|executable| all.push(executable));
    all
}

#[test]
fn objects_are_recorded_until_the_runtime_is_initialised_again() {
    // SAFETY: null is refused.
    let none = unsafe { hooks::install(std::ptr::null()) };
    assert_eq!(none, status::INVALID_ARGUMENT);
    // An older runtime has a table that ends before the last of the slots. Nothing is changed in
    // it.
    let mut old = Runtime::new();
    old.core[0] = 2 | 800 << 32;
    let before = old.core.clone();
    assert_eq!(old.install(), status::NOT_AVAILABLE);
    assert_eq!(old.core, before);
    assert!(!hooks::active());

    let mut runtime = Runtime::new();
    assert_eq!(
        (runtime.install(), hooks::active()),
        (status::SUCCESS, true)
    );
    let hooked = runtime.core.clone();
    assert_eq!(
        (runtime.install(), &hooked),
        (status::SUCCESS, &runtime.core)
    );
    let (one, two) = (runtime.new_queue(), runtime.new_queue());
    assert_eq!(queues(), [(one, 5), (two, 5)]);
    runtime.destroy_queue(one);
    assert_eq!(
        (queues(), DESTROYED.load(Ordering::SeqCst)),
        (vec![(two, 5)], 1)
    );
    // The call is forwarded for a queue that existed before.
    runtime.destroy_queue(0x1234);
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 2);

    let freeze: unsafe extern "C" fn(u64, *const c_char) -> u32 =
        runtime.slot("hsa_executable_freeze");
    let read: unsafe extern "C" fn(*const c_void, usize, *mut u64) -> u32 =
        runtime.slot("hsa_code_object_reader_create_from_memory");
    let load: unsafe extern "C" fn(u64, u64, u64, *const c_char, *mut u64) -> u32 =
        runtime.slot("hsa_executable_load_agent_code_object");
    let end: unsafe extern "C" fn(u64) -> u32 = runtime.slot("hsa_executable_destroy");
    let close: unsafe extern "C" fn(u64) -> u32 = runtime.slot("hsa_code_object_reader_destroy");
    let mut reader = 0;
    let none = std::ptr::null_mut();
    // SAFETY: the functions are those in the table, and they take these arguments.
    unsafe {
        let mut code = *b"code object";
        assert_eq!(read(code.as_ptr().cast(), code.len(), &raw mut reader), 0);
        code.fill(0);
        // The application does not want the handle; we still need it.
        assert_eq!(load(9, 5, reader, std::ptr::null(), none), 0);
        assert_eq!(close(reader), 0);
        assert_eq!(freeze(10, c"no".as_ptr()), 1);
        assert_eq!(freeze(9, std::ptr::null()), 0);
        let (at, size) = objects::bytes_of(88).unwrap();
        assert_eq!(std::slice::from_raw_parts(at, size), b"code object");
        assert_eq!(executables(), [9]);
        assert_eq!(end(9), 0);
    }
    assert!(executables().is_empty() && objects::bytes_of(88).is_none());

    // In the table, a plain queue cannot be intercepted, and an unknown one is not a queue.
    // SAFETY: the table is never freed.
    let table = unsafe { &*table::address().cast::<table::RocAttachDispatchTable>() };
    assert_eq!(table.size, 96);
    // SAFETY: no interceptor is given.
    unsafe {
        assert_eq!(
            (table.set_write_interceptor)(two, None, none.cast()),
            status::NOT_AVAILABLE
        );
        assert_eq!(
            (table.set_write_interceptor)(one, None, none.cast()),
            status::INVALID_ARGUMENT
        );
        assert_eq!(
            (table.add_queue_cb)(None, none.cast()),
            status::INVALID_ARGUMENT
        );
    }

    // Another copy of the runtime is left alone, since its functions belong to another module.
    let mut other = Runtime::new();
    for word in other.core.iter_mut().skip(2).filter(|word| **word != 0) {
        *word = (libc::getpid as *const c_void).expose_provenance() as u64;
    }
    let before = other.core.clone();
    assert_eq!((other.install(), &before), (status::SUCCESS, &other.core));
    assert_eq!(queues(), [(two, 5)]);

    // The runtime was shut down and makes its tables again.
    runtime.reset();
    assert_eq!(
        (runtime.install(), &hooked),
        (status::SUCCESS, &runtime.core)
    );
    assert!(queues().is_empty());
    let three = runtime.new_queue();
    assert_eq!(queues(), [(three, 5)]);
}
