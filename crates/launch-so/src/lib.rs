//! `libmidair-launch.so.1`: preloaded by our command lines into the program that they start, and
//! never into anything else. `_exit`, `_Exit` and the `exec` functions run no exit handlers:
//! records would be lost without notice. So they are defined here: the session ends and the files
//! are written, then the process exits, or becomes another program.
//!
//! Not covered, because nothing can intercept them: SIGKILL, system calls made directly, and the
//! `exec` functions that take a list (`execl`), whose C library does not call the others by name.
//!
//! Decisions: AMD-042 (`docs/deviations/amd.md`).

use midair_abi::private::{LEAVE, Leave};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

/// The SDK's function that ends the session, and the C library's own `exec` functions. They are
/// looked up when the library is loaded, since a child of `vfork` must not call the loader.
static END: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static EXECVE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static EXECVPE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        midair_capi_build::edge((), look_up);
    }
    at_load
};

fn look_up() {
    let find = |place: *mut c_void, name: &CStr| {
        // SAFETY: one of the loader's own handles and a C string.
        unsafe { libc::dlsym(place, name.as_ptr()) }
    };
    if let Ok(name) = CString::new(LEAVE) {
        END.store(find(libc::RTLD_DEFAULT, &name), Release);
    }
    EXECVE.store(find(libc::RTLD_NEXT, c"execve"), Release);
    EXECVPE.store(find(libc::RTLD_NEXT, c"execvpe"), Release);
}

/// Ends the session of this process. In a forked child of whatever kind, the SDK does nothing.
fn end(becomes_another: bool) {
    let end = END.load(Acquire);
    if !end.is_null() {
        // SAFETY: only our SDK exports this name, with this type.
        unsafe { std::mem::transmute::<*mut c_void, Leave>(end)(c_int::from(becomes_another)) };
    }
}

/// Ends the process with this status, without its exit handlers.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    end(false);
    loop {
        // SAFETY: what the C library's function does.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// As [`_exit`].
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    _exit(status)
}

type Execve =
    unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Ends the session, then calls the C library's own function, if it was found. Where that fails,
/// the program goes on without being recorded.
///
/// # Safety
/// The arguments are those of an `exec` function of the C library.
unsafe fn pass(
    slot: &AtomicPtr<c_void>,
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    end(true);
    let function = slot.load(Acquire);
    if function.is_null() {
        // SAFETY: the calling thread's own variable.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return -1;
    }
    // SAFETY: the C library's function of this type, with the caller's arguments.
    unsafe { std::mem::transmute::<*mut c_void, Execve>(function)(program, arguments, environment) }
}

/// Replaces the program.
///
/// # Safety
/// As the C library's `execve`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { pass(&EXECVE, program, arguments, environment) }
}

/// Replaces the program, which keeps this environment.
///
/// # Safety
/// As the C library's `execv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(program: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise; the C library's own variable.
    unsafe { pass(&EXECVE, program, arguments, environ) }
}

/// Replaces the program by one that is searched for, with this environment.
///
/// # Safety
/// As the C library's `execvpe`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { pass(&EXECVPE, program, arguments, environment) }
}

/// Replaces the program by one that is searched for; it keeps this environment.
///
/// # Safety
/// As the C library's `execvp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(program: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise; the C library's own variable.
    unsafe { pass(&EXECVPE, program, arguments, environ) }
}
