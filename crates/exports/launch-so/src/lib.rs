//! `libmidair-launch.so.1`, which our command lines preload into the program that they start, and
//! never into anything else. `_exit`, `_Exit` and the `exec` functions run no exit handlers, so
//! records would be lost without notice. Therefore these functions are defined here: the session
//! ends and the files are written. Then the process exits, or becomes another program.
//!
//! Some ways to end a program are not covered, because nothing can intercept them: SIGKILL, system
//! calls made directly, and the `exec` functions that take a list (`execl`). The C library's code
//! for the latter does not call the other `exec` functions by name.
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
        // SAFETY: the handle is one of the loader's own, and the name is a C string.
        unsafe { libc::dlsym(place, name.as_ptr()) }
    };
    if let Ok(name) = CString::new(LEAVE) {
        END.store(find(libc::RTLD_DEFAULT, &name), Release);
    }
    EXECVE.store(find(libc::RTLD_NEXT, c"execve"), Release);
    EXECVPE.store(find(libc::RTLD_NEXT, c"execvpe"), Release);
}

/// Ends the session of this process. In a forked child of any kind, the SDK does nothing.
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
        // SAFETY: this is the system call that the C library's function makes.
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

/// Ends the session, then calls the C library's own function, if it was found. If that call fails,
/// the program continues without being recorded.
///
/// # Safety
/// The arguments are valid for an `exec` function of the C library.
unsafe fn pass(
    slot: &AtomicPtr<c_void>,
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    end(true);
    let function = slot.load(Acquire);
    if function.is_null() {
        // SAFETY: the errno is the calling thread's own.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        return -1;
    }
    // SAFETY: this is the C library's function of this type, with the caller's arguments.
    unsafe { std::mem::transmute::<*mut c_void, Execve>(function)(program, arguments, environment) }
}

/// Replaces the program and gives the new one this environment.
///
/// # Safety
/// As the C library's `execve`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller promises that these are arguments for `execve`.
    unsafe { pass(&EXECVE, program, arguments, environment) }
}

/// Replaces the program. The new one keeps the present environment.
///
/// # Safety
/// As the C library's `execv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(program: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller promises that these are arguments for `execv`. `environ` is the C
    // library's own.
    unsafe { pass(&EXECVE, program, arguments, environ) }
}

/// Replaces the program by one that is searched for, and gives it this environment.
///
/// # Safety
/// As the C library's `execvpe`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller promises that these are arguments for `execvpe`.
    unsafe { pass(&EXECVPE, program, arguments, environment) }
}

/// Replaces the program by one that is searched for. It keeps the present environment.
///
/// # Safety
/// As the C library's `execvp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(program: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: the caller promises that these are arguments for `execvp`. `environ` is the C
    // library's own.
    unsafe { pass(&EXECVPE, program, arguments, environ) }
}
