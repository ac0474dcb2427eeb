//! Tells runtimes once when a tool becomes active in this process
//! (`rocprofiler_register_runtime_tool_activation_callback`). Newer HIP runtimes are linked against
//! it.

use crate::code::Code;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// `rocprofiler_register_tool_activation_mode_t`: a tool was there from the start.
pub const STARTUP: u32 = 1;
/// A tool attached later.
pub const ATTACH: u32 = 2;

/// Mode, and the data of the registration.
pub type Callback = unsafe extern "C" fn(u32, *mut c_void);

/// How many callbacks there may be. Each runtime has one.
const MOST: usize = 64;

/// A callback: its function as a number, 0 while the slot is free, and its data. Nothing locks,
/// since a callback may call anything.
struct Slot {
    callback: AtomicUsize,
    data: AtomicUsize,
    /// Whether function and data are complete.
    ready: AtomicBool,
    called: AtomicBool,
}

static SLOTS: [Slot; MOST] = [const {
    Slot {
        callback: AtomicUsize::new(0),
        data: AtomicUsize::new(0),
        ready: AtomicBool::new(false),
        called: AtomicBool::new(false),
    }
}; MOST];
/// How the first tool became active; 0: none did.
static MODE: AtomicU32 = AtomicU32::new(0);

/// Keeps a callback, or calls it if a tool is active already. The same callback with the same data
/// is called once, however often it is registered.
///
/// # Safety
/// `name` is null or NUL-terminated. The callback may be called with `data`, on any thread.
pub unsafe fn register(name: *const c_char, callback: Option<Callback>, data: *mut c_void) -> Code {
    let (false, Some(callback)) = (name.is_null(), callback) else {
        return Code::InvalidArgument;
    };
    let (callback, data) = (callback as usize, data as usize);
    for slot in &SLOTS {
        let before =
            slot.callback
                .compare_exchange(0, callback, Ordering::SeqCst, Ordering::SeqCst);
        match before {
            Ok(_) => {
                slot.data.store(data, Ordering::SeqCst);
                slot.ready.store(true, Ordering::SeqCst);
                tell(slot, MODE.load(Ordering::SeqCst));
                return Code::Success;
            }
            Err(known)
                if known == callback
                    && slot.ready.load(Ordering::SeqCst)
                    && slot.data.load(Ordering::SeqCst) == data =>
            {
                return Code::Success;
            }
            Err(_) => {}
        }
    }
    Code::ExcessApiInstances
}

/// Notes that a tool is active, and calls each callback that was not called yet.
pub(crate) fn activate(mode: u32) {
    let first = MODE.compare_exchange(0, mode, Ordering::SeqCst, Ordering::SeqCst);
    let mode = first.map_or_else(|before| before, |_| mode);
    for slot in &SLOTS {
        tell(slot, mode);
    }
}

fn tell(slot: &Slot, mode: u32) {
    if mode == 0 || !slot.ready.load(Ordering::SeqCst) || slot.called.swap(true, Ordering::SeqCst) {
        return;
    }
    let callback = slot.callback.load(Ordering::SeqCst) as *mut c_void;
    let data = slot.data.load(Ordering::SeqCst) as *mut c_void;
    // SAFETY: the slot is ready, so its number is the address of a function of this type.
    let callback: Option<Callback> = unsafe { crate::library::function(callback) };
    if let Some(callback) = callback {
        // SAFETY: who registered it permits the call with this data.
        unsafe { callback(mode, data) };
    }
}
