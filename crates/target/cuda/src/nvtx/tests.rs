//! A table as NVTX's header lays it out, in the data of the test program, and a tool that counts
//! its calls.

use super::functions::{Attributes, connect};
use super::tables::{COMPLETE, FRESH, find};
use super::*;
use crate::cupti::Functions;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;

/// Words of a table, see [`tables`]. They are not all 0, so that they lie in the program's file and
/// not in fresh memory.
struct Image([AtomicUsize; 146]);
static IMAGE: Image = Image([const { AtomicUsize::new(1) }; 146]);

fn lay_out(state: u32, places: usize) -> usize {
    let start = IMAGE.0.as_ptr().addr();
    for (at, word) in IMAGE.0.iter().enumerate() {
        word.store(if (6..70).contains(&at) { places } else { 0 }, SeqCst);
    }
    for (at, value) in [
        (0, state as usize),
        (1, 16),
        (2, 99),
        (3, 24),
        (4, 3),
        (5, 98),
    ] {
        IMAGE.0[at].store(value, SeqCst);
    }
    let (mut place, mut list) = (6, 70);
    for functions in [15, 8, 14, 6, 15, 6] {
        for id in 1..=functions {
            IMAGE.0[list + id].store(start + (place + id - 1) * 8, SeqCst);
        }
        place += functions;
        list += functions + 2;
    }
    start
}

/// What the tool has received.
static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn heard() -> Vec<String> {
    std::mem::take(&mut *HEARD.lock().unwrap())
}

fn text(at: *const c_char) -> String {
    // SAFETY: a terminated text of the test.
    unsafe { CStr::from_ptr(at) }.to_str().unwrap().to_owned()
}

unsafe extern "C" fn tool_push(name: *const c_char) -> i32 {
    HEARD.lock().unwrap().push(format!("push {}", text(name)));
    5
}
unsafe extern "C" fn tool_pop() -> i32 {
    HEARD.lock().unwrap().push(String::from("pop"));
    6
}
unsafe extern "C" fn tool_create(name: *const c_char) -> usize {
    text(name).len() + 7000
}
unsafe extern "C" fn tool_domain_push(domain: usize, event: *const Attributes) -> i32 {
    // SAFETY: the event of the call.
    let event = unsafe { *event };
    assert_eq!(event.message_type, 1);
    let name = text(event.message);
    HEARD.lock().unwrap().push(format!("{domain}: {name}"));
    7
}

type Export = unsafe extern "C" fn(u32) -> *const c_void;

unsafe extern "C" fn tool(export: Export) -> i32 {
    // SAFETY: NVTX's own tables, as its header has them: a size and a function.
    unsafe {
        let version = export(3).cast::<[u32; 4]>();
        assert_eq!(((*version)[0], (*version)[2]), (24, 3));
        let table = export(1).cast::<usize>();
        assert_eq!(*table, 16);
        let functions: unsafe extern "C" fn(i32, *mut *mut *mut usize, *mut u32) -> i32 =
            std::mem::transmute(*table.add(1));
        for (module, size, fill) in [
            (
                1,
                16,
                &[
                    (9, tool_push as *const () as usize),
                    (11, tool_pop as *const () as usize),
                ][..],
            ),
            (
                5,
                16,
                &[
                    (12, tool_create as *const () as usize),
                    (4, tool_domain_push as *const () as usize),
                ][..],
            ),
        ] {
            let (mut list, mut count) = (std::ptr::null_mut(), 0);
            assert_eq!(functions(module, &raw mut list, &raw mut count), 1);
            assert_eq!(count, size);
            for (id, function) in fill {
                **list.add(*id) = *function;
            }
        }
        assert_eq!(functions(9, std::ptr::null_mut(), std::ptr::null_mut()), 0);
    }
    1
}

fn cupti() -> Cupti {
    unsafe extern "C" fn version(at: *mut u32) -> u32 {
        // SAFETY: a valid out pointer of the caller.
        unsafe { *at = 130_001 };
        0
    }
    unsafe extern "C" fn none() -> u32 {
        1
    }
    // SAFETY: only the version and the tool's entry are called.
    let functions = unsafe { Functions::find(|_| none as *mut c_void) };
    let functions = Functions {
        get_version: version,
        initialize_nvtx: Some(tool),
        ..functions.unwrap()
    };
    // SAFETY: as above.
    unsafe { Cupti::with_functions(functions) }.unwrap()
}

fn place(module: u32, id: usize) -> usize {
    let first = if module == 1 { 6 } else { 6 + 15 + 8 + 14 + 6 };
    IMAGE.0[first + id - 1].load(SeqCst)
}

fn push(name: &CStr) -> i32 {
    // SAFETY: what NVTX's inline function does with the entry.
    unsafe {
        let function: unsafe extern "C" fn(*const c_char) -> i32 = std::mem::transmute(place(1, 9));
        function(name.as_ptr())
    }
}

fn push_in(domain: usize, string: usize) -> i32 {
    let event = Attributes {
        version: 3,
        size: 48,
        category: 0,
        colour: [0; 2],
        payload_type: [0; 2],
        payload: 0,
        message_type: 3,
        message: std::ptr::with_exposed_provenance(string),
    };
    // SAFETY: as above.
    unsafe {
        let function: unsafe extern "C" fn(usize, *const Attributes) -> i32 =
            std::mem::transmute(place(5, 4));
        function(domain, &raw const event)
    }
}

/// One test, because a process has one of everything here.
#[test]
fn tables_are_found_hooked_and_restored() {
    // It is no table while a pointer leads elsewhere.
    let start = lay_out(COMPLETE, 0);
    IMAGE.0[80].fetch_add(8, SeqCst);
    assert!(!find().iter().any(|table| table.start() == start));
    let nvtx = Nvtx::begin(&cupti());
    assert!(nvtx.note().unwrap().contains("no library of this process"));
    drop(nvtx);
    lay_out(COMPLETE, 0);
    assert_eq!(
        find().iter().filter(|table| table.start() == start).count(),
        1
    );

    // The first call was made, without a tool.
    let cupti = cupti();
    let nvtx = Nvtx::begin(&cupti);
    assert_eq!(
        (nvtx.tables(), nvtx.note(), nvtx.last_note()),
        (1, None, None)
    );
    assert_eq!(push(c"one"), 5);
    let (string, domain): (usize, usize);
    // SAFETY: as NVTX's inline functions do.
    unsafe {
        let create: unsafe extern "C" fn(*const c_char) -> usize =
            std::mem::transmute(place(5, 12));
        domain = create(c"NCCL".as_ptr());
        let register: unsafe extern "C" fn(usize, *const c_char) -> usize =
            std::mem::transmute(place(5, 10));
        string = register(domain, c"reduce".as_ptr());
    }
    assert_eq!(push_in(domain, string), 7);
    assert_eq!(push_in(0, 0), 7);
    assert_eq!(push_in(0x1234, string + 8), 7);
    let unnamed = "0: (registered before the attach)";
    assert_eq!(heard(), ["push one", "7004: reduce", unnamed, unnamed]);
    drop(nvtx);
    assert!((6..70).all(|at| IMAGE.0[at].load(SeqCst) == 0));

    // Handles outlive a session, and CUPTI is asked once.
    assert!(connect(&cupti));
    let mut nvtx = Nvtx::begin(&cupti);
    assert_eq!(push_in(domain, string), 7);
    assert_eq!(heard(), ["7004: reduce"]);
    // A first call empties the entries: they are hooked again.
    IMAGE.0[6 + 8].store(0, SeqCst);
    nvtx.tick();
    assert_eq!(push(c"again"), 5);
    drop(nvtx);
    assert_eq!(place(1, 9), 0);

    // Before the first call: the function that makes the table is restored.
    lay_out(FRESH, 0x77);
    let nvtx = Nvtx::begin(&cupti);
    assert_eq!(push(c"early"), 5);
    assert_eq!(place(1, 12), 0x77);
    drop(nvtx);
    assert!((6..70).all(|at| IMAGE.0[at].load(SeqCst) == 0x77));
    // The first call was made meanwhile: then the function that makes the table must not be
    // restored.
    let nvtx = Nvtx::begin(&cupti);
    IMAGE.0[0].store(COMPLETE as usize, SeqCst);
    drop(nvtx);
    assert_eq!((place(1, 9), place(1, 12)), (0, 0x77));

    // Another tool's table is left alone.
    lay_out(COMPLETE, 0x55);
    let nvtx = Nvtx::begin(&cupti);
    assert_eq!(nvtx.tables(), 0);
    assert!(nvtx.note().unwrap().contains("of 1 libraries"));
    assert_eq!(nvtx.last_note(), None);
    drop(nvtx);
    assert!((6..70).all(|at| IMAGE.0[at].load(SeqCst) == 0x55));
}
