//! The tool's functions with any arguments and in any order, once it is bound to our SDK: from
//! several threads, before it is initialised and after its end.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

use midair_abi::private::{SDK_TABLE_VERSION, SdkTable};
use midair_abi::registration::{ClientFinalize, ClientId, ConfigureAttachResult, ConfigureResult};
use midair_sdk_api::{changes, context, notes, registration, setting};
use midair_sdk_control::capi;
use midair_settings::Settings;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

type Bind = unsafe extern "C" fn(*const SdkTable) -> c_int;
type Configure =
    unsafe extern "C" fn(u32, *const c_char, u32, *mut ClientId) -> *mut ConfigureResult;
type ConfigureAttach =
    unsafe extern "C" fn(u32, *const c_char, u32, *mut ClientId) -> *mut ConfigureAttachResult;

/// The first number that is no `rocprofiler_status_t` (api/rocprofiler_sdk.json).
fn first_unknown_status() -> c_int {
    let api = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../api/rocprofiler_sdk.json");
    let api: serde_json::Value = serde_json::from_slice(&std::fs::read(api).unwrap()).unwrap();
    let last = &api["enums"]["rocprofiler_status_t"]["values"]["ROCPROFILER_STATUS_LAST"];
    last.as_i64().unwrap() as c_int
}

fn file() -> CString {
    let test = std::env::current_exe().unwrap();
    let file = test.parent().unwrap().join("librocprofiler_sdk_tool.so");
    CString::new(file.to_str().unwrap()).unwrap()
}

/// Returns a function of the library.
///
/// # Safety
/// `F` is the function's type.
unsafe fn function<F: Copy>(name: &CStr) -> F {
    // SAFETY: both texts are NUL-terminated, and the caller promises the type.
    unsafe {
        let library = libc::dlopen(file().as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let at = libc::dlsym(library, name.as_ptr());
        assert!(!at.is_null(), "{name:?}");
        assert_eq!(size_of::<F>(), size_of_val(&at));
        std::mem::transmute_copy(&at)
    }
}

/// Numbers without an order, the same in each run.
struct Any(u64);

impl Any {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A table of another build, of another size or at an odd address is not taken, and neither is one
/// of another SDK once there is one.
fn binds_to_one_table(bind: Bind) {
    let good: SdkTable = *capi::table();
    let leak = |table: SdkTable| -> *const SdkTable { Box::leak(Box::new(table)) };
    let wrong = || {
        let sizes = [0, 1, good.size - 8, good.size + 8, usize::MAX];
        let versions = [0, SDK_TABLE_VERSION - 1, SDK_TABLE_VERSION + 1, u32::MAX];
        let odd = std::ptr::from_ref(capi::table()).wrapping_byte_add(1);
        let mut all = vec![null(), odd];
        all.extend(sizes.map(|size| leak(SdkTable { size, ..good })));
        all.extend(versions.map(|version| leak(SdkTable { version, ..good })));
        all
    };
    // SAFETY: each address is null or odd, or points to a table that lives for ever.
    unsafe {
        for table in wrong() {
            assert_eq!(bind(table), -1);
        }
        assert_eq!(bind(capi::table()), 0);
        for table in wrong() {
            assert_eq!(bind(table), -1);
        }
        assert_eq!(bind(leak(good)), -1, "another SDK");
        assert_eq!(bind(capi::table()), 0, "again");
    }
}

/// The functions that the tool gave.
#[derive(Clone, Copy)]
struct Tool {
    initialize: unsafe extern "C-unwind" fn(Option<ClientFinalize>, *mut c_void) -> c_int,
    finalize: unsafe extern "C-unwind" fn(*mut c_void),
    attach:
        unsafe extern "C-unwind" fn(Option<ClientFinalize>, *mut u64, u64, *mut c_void) -> c_int,
    detach: unsafe extern "C-unwind" fn(*mut c_void),
}

/// Calls them in any order on five threads. Returns how many calls were made.
fn calls(tool: Tool, round: u64) -> u32 {
    let unknown = first_unknown_status();
    let made = AtomicU32::new(0);
    let one = |any: &mut Any| {
        let mut contexts = [any.below(70), u64::MAX];
        let list = match any.below(2) {
            0 => null_mut(),
            _ => contexts.as_mut_ptr(),
        };
        let (what, count) = (any.below(4), any.below(3));
        // SAFETY: the functions are the tool's. Their pointers are null or valid.
        let status = unsafe {
            match what {
                0 => (tool.initialize)(None, null_mut()),
                1 => (tool.attach)(None, list, count, null_mut()),
                2 => {
                    (tool.detach)(null_mut());
                    0
                }
                _ => {
                    (tool.finalize)(null_mut());
                    0
                }
            }
        };
        // A status of the SDK, or -1 for a failure that the tool has reported itself.
        assert!((-1..unknown).contains(&status), "{status}");
        made.fetch_add(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for thread in 1..=5 {
            let one = &one;
            scope.spawn(move || {
                let mut any = Any(0x9e37_79b9_7f4a_7c15 ^ (round << 8 | thread));
                (0..400).for_each(|_| one(&mut any));
            });
        }
    });
    made.into_inner()
}

#[test]
fn any_arguments_in_any_state_from_any_thread() {
    // SAFETY: these are the types of the functions.
    let (bind, configure, configure_attach): (Bind, Configure, ConfigureAttach) = unsafe {
        (
            function(c"midair_tool_bind"),
            function(c"rocprofiler_configure"),
            function(c"rocprofiler_configure_attach"),
        )
    };
    // SAFETY: the arguments are null or valid.
    unsafe {
        assert!(configure(0, null(), 0, null_mut()).is_null());
        assert!(configure_attach(0, null(), 0, null_mut()).is_null());
    }
    changes::become_worker();
    notes::open(true);
    binds_to_one_table(bind);

    // SAFETY: zero is a value of each field of the struct; the text is NUL-terminated.
    let tool = unsafe {
        let mut id: ClientId = std::mem::zeroed();
        for (version, text) in [(0, null()), (u32::MAX, c"%n".as_ptr())] {
            let with = configure(version, text, u32::MAX, &raw mut id);
            assert_eq!((*with).size, size_of::<ConfigureResult>());
            assert_eq!(CStr::from_ptr(id.name), c"midair");
        }
        let plain = &*configure(0, null(), 0, null_mut());
        let attach = &*configure_attach(0, null(), 0, null_mut());
        assert_eq!(attach.size, size_of::<ConfigureAttachResult>());
        Tool {
            initialize: plain.initialize.unwrap(),
            finalize: plain.finalize.unwrap(),
            attach: attach.tool_attach.unwrap(),
            detach: attach.tool_detach.unwrap(),
        }
    };
    // Nothing is registered, and no context can be made.
    assert_eq!(calls(tool, 1), 2000);
    assert!(context::wanted().is_empty());

    // A tool of the SDK, in a session of its own, whose functions others call, too.
    registration::load_list(&file(), capi::table()).unwrap();
    let settings = [
        ("ROCPROF_HIP_API_TRACE", "1"),
        ("ROCPROF_KERNEL_TRACE", "1"),
    ];
    setting::publish(settings.into_iter().collect::<Settings>());
    registration::attach().unwrap();
    assert!(!context::wanted().is_empty());
    assert_eq!(calls(tool, 2), 2000);
    registration::detach().unwrap();
    assert!(context::wanted().is_empty(), "a detach stops all contexts");

    registration::finalize();
    assert_eq!(calls(tool, 3), 2000);
    assert!(context::wanted().is_empty());
}
