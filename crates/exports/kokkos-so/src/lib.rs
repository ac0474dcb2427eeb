//! `libmidair-kokkos.so.1`: Kokkos's regions as ROCTx ranges, for `--kokkos-trace`.
//!
//! Kokkos loads the library that `KOKKOS_TOOLS_LIBS` names when it is initialized, and calls its
//! functions `kokkosp_*` around loops, fences, copies and the program's own regions (source: Kokkos
//! Tools' public interface). Here each becomes a call of the ROCTx library that our command lines
//! preload. Without one nothing is done.
//!
//! Nothing here allocates around a loop or takes a lock. Loops are timed on the GPU, so Kokkos is
//! asked not to wait for the device after each of them.
//!
//! Decision: AMD-083 (`docs/deviations/amd.md`).

use midair_capi_build::edge;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// Functions of ROCTx. They are looked up when Kokkos initializes its tool.
static PUSH: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static POP: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static MARK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static START: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static STOP: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The most sections that a program may have. Further ones are not recorded.
const SECTIONS: usize = 1024;

/// A section of the program: a range that may start and end on any thread.
struct Section {
    name: OnceLock<CString>,
    /// The running range's number and 1, or 0 while there is none.
    range: AtomicU64,
}

static KNOWN: [Section; SECTIONS] = [const {
    Section {
        name: OnceLock::new(),
        range: AtomicU64::new(0),
    }
}; SECTIONS];
static CREATED: AtomicU32 = AtomicU32::new(0);

fn push(message: &CStr) {
    let at = PUSH.load(Acquire);
    if !at.is_null() {
        // SAFETY: `roctxRangePushA` has this type, and the message is a C string.
        unsafe {
            let push: extern "C" fn(*const c_char) -> c_int = std::mem::transmute(at);
            push(message.as_ptr());
        }
    }
}

fn pop() {
    let at = POP.load(Acquire);
    if !at.is_null() {
        // SAFETY: `roctxRangePop` has this type.
        let pop: extern "C" fn() -> c_int = unsafe { std::mem::transmute(at) };
        pop();
    }
}

/// Returns a name that Kokkos passes.
///
/// # Safety
/// It must be null or a C string that lives during the call.
unsafe fn text<'a>(name: *const c_char) -> &'a CStr {
    if name.is_null() {
        return c"";
    }
    // SAFETY: the caller promises that it is a C string.
    unsafe { CStr::from_ptr(name) }
}

/// Starts a range of the calling thread, and writes a number for Kokkos, which hands it back at the
/// end. ROCTx needs none.
///
/// # Safety
/// As [`text`]; `id` is null or can be written.
unsafe fn begin(name: *const c_char, id: *mut u64) {
    edge((), || {
        if !id.is_null() {
            // SAFETY: the caller promises that it can be written.
            unsafe { id.write(0) };
        }
        // SAFETY: as the caller promises.
        push(unsafe { text(name) });
    });
}

/// `Kokkos_Tools_ToolSettings`: what a tool asks for.
#[repr(C)]
pub struct ToolSettings {
    requires_global_fencing: bool,
    padding: [bool; 255],
}

/// `Kokkos_Profiling_SpaceHandle`: the name of a memory, passed by value.
#[repr(C)]
pub struct SpaceHandle {
    name: [c_char; 64],
}

/// Kokkos has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn kokkosp_init_library(_: c_int, _: u64, _: u32, _: *mut c_void) {
    edge((), || {
        for (place, name) in [
            (&PUSH, c"roctxRangePushA"),
            (&POP, c"roctxRangePop"),
            (&MARK, c"roctxMarkA"),
            (&START, c"roctxRangeStartA"),
            (&STOP, c"roctxRangeStop"),
        ] {
            // SAFETY: the handle is one of the loader's own, and the name is a C string.
            place.store(
                unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) },
                Release,
            );
        }
    });
}

/// Kokkos ends. Ranges that are open stay so, as the program left them.
#[unsafe(no_mangle)]
pub extern "C" fn kokkosp_finalize_library() {}

/// Asks Kokkos not to wait for the device after each loop, which it does for tools that do not
/// say so.
///
/// # Safety
/// `settings` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kokkosp_request_tool_settings(_: u32, settings: *mut ToolSettings) {
    if !settings.is_null() {
        // SAFETY: Kokkos passes its own structure, which can be written.
        unsafe { (*settings).requires_global_fencing = false };
    }
}

macro_rules! loops {
    ($($begin:ident $end:ident)*) => {$(
        /// A loop starts on the calling thread.
        ///
        /// # Safety
        /// `name` is null or a C string; `id` is null or can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $begin(name: *const c_char, _: u32, id: *mut u64) {
            // SAFETY: as the caller promises.
            unsafe { begin(name, id) };
        }

        /// It ends there.
        #[unsafe(no_mangle)]
        pub extern "C" fn $end(_: u64) {
            edge((), pop);
        }
    )*};
}

loops! {
    kokkosp_begin_parallel_for kokkosp_end_parallel_for
    kokkosp_begin_parallel_scan kokkosp_end_parallel_scan
    kokkosp_begin_parallel_reduce kokkosp_end_parallel_reduce
    kokkosp_begin_fence kokkosp_end_fence
}

/// A region of the program starts on the calling thread.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kokkosp_push_profile_region(name: *const c_char) {
    // SAFETY: as the caller promises.
    unsafe { begin(name, std::ptr::null_mut()) };
}

/// It ends there.
#[unsafe(no_mangle)]
pub extern "C" fn kokkosp_pop_profile_region() {
    edge((), pop);
}

/// A copy between two arrays starts: the range is named after both.
///
/// # Safety
/// The names are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kokkosp_begin_deep_copy(
    _: SpaceHandle,
    to: *const c_char,
    _: *const c_void,
    _: SpaceHandle,
    from: *const c_char,
    _: *const c_void,
    _: u64,
) {
    edge((), || {
        // SAFETY: as the caller promises.
        let (to, from) = unsafe { (text(to), text(from)) };
        let mut buffer = [0_u8; 512];
        // What does not fit is cut. The last byte stays 0, since a C string ends there.
        let mut room = &mut buffer[..511];
        for part in [to.to_bytes(), b" <- ", from.to_bytes()] {
            let _ = room.write_all(part);
        }
        if let Ok(message) = CStr::from_bytes_until_nul(&buffer) {
            push(message);
        }
    });
}

/// It ends.
#[unsafe(no_mangle)]
pub extern "C" fn kokkosp_end_deep_copy() {
    edge((), pop);
}

/// A moment of the program.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kokkosp_profile_event(name: *const c_char) {
    edge((), || {
        let at = MARK.load(Acquire);
        if !at.is_null() {
            // SAFETY: `roctxMarkA` has this type; the caller promises that the name is a C string.
            unsafe {
                let mark: extern "C" fn(*const c_char) = std::mem::transmute(at);
                mark(text(name).as_ptr());
            }
        }
    });
}

/// Makes a section, which does not start yet.
///
/// # Safety
/// `name` is null or a C string; `id` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kokkosp_create_profile_section(name: *const c_char, id: *mut u32) {
    edge((), || {
        let number = CREATED
            .fetch_update(Relaxed, Relaxed, |count| {
                ((count as usize) < SECTIONS).then_some(count + 1)
            })
            .unwrap_or(u32::MAX);
        if let Some(section) = KNOWN.get(number as usize) {
            // SAFETY: as the caller promises.
            let _ = section.name.set(unsafe { text(name) }.to_owned());
        }
        if !id.is_null() {
            // SAFETY: the caller promises that it can be written.
            unsafe { id.write(number) };
        }
    });
}

/// A section starts.
#[unsafe(no_mangle)]
pub extern "C" fn kokkosp_start_profile_section(id: u32) {
    edge((), || {
        let at = START.load(Acquire);
        let section = KNOWN.get(id as usize);
        if let Some((section, name)) = section.and_then(|it| Some((it, it.name.get()?)))
            && !at.is_null()
        {
            // SAFETY: `roctxRangeStartA` has this type.
            let range = unsafe {
                let start: extern "C" fn(*const c_char) -> u64 = std::mem::transmute(at);
                start(name.as_ptr())
            };
            section.range.store(range.wrapping_add(1), Release);
        }
    });
}

/// It ends.
#[unsafe(no_mangle)]
pub extern "C" fn kokkosp_stop_profile_section(id: u32) {
    edge((), || {
        let at = STOP.load(Acquire);
        let range = KNOWN.get(id as usize).map(|it| it.range.swap(0, Acquire));
        if let Some(range @ 1..) = range
            && !at.is_null()
        {
            // SAFETY: `roctxRangeStop` has this type.
            let stop: extern "C" fn(u64) = unsafe { std::mem::transmute(at) };
            stop(range - 1);
        }
    });
}

/// A section is used no more. Its number is not given again.
#[unsafe(no_mangle)]
pub extern "C" fn kokkosp_destroy_profile_section(id: u32) {
    kokkosp_stop_profile_section(id);
}
