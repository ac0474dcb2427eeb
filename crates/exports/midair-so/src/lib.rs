//! `libmidair.so.0`: the interface for C programs, over the crate `midair`. `include/midair/midair.h`
//! describes it.

use midair::{Attach, Error, Format, Kind, Recording, Session};
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The status of a panic, which has no exit code.
const PANIC: c_int = 1;

thread_local! {
    /// Reason and remedy of the last failure.
    static LAST: RefCell<(CString, CString)> = RefCell::default();
}

/// `midair_options`.
#[derive(Debug)]
pub struct Options(Attach);

/// `midair_kernel`.
#[derive(Debug)]
#[repr(C)]
pub struct Kernel {
    size: usize,
    name: *const c_char,
    start: u64,
    end: u64,
    dispatch: u64,
    correlation: u64,
    stream: u64,
    thread: u32,
    node: u32,
    queue: u32,
    workgroup: [u32; 3],
    grid: [u32; 3],
}

/// `midair_kernel_callback`.
pub type KernelCallback = Option<unsafe extern "C" fn(*const Kernel, *mut c_void) -> c_int>;

/// Why a function fails.
enum Failed {
    /// A failure of the crate `midair`.
    Error(Error),
    /// A callback returned this.
    Callback(c_int),
    /// An argument is invalid, such as a null pointer.
    Argument(&'static str),
}

const NULL_OBJECT: Failed = Failed::Argument("cannot use an object: the pointer is null");
const NULL_TEXT: Failed = Failed::Argument("cannot read a string: the pointer is null");

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Error(error)
    }
}

fn text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Runs the body of a function, stores the reason of a failure, and returns the status.
fn edge(body: impl FnOnce() -> Result<(), Failed>) -> c_int {
    let ended = midair_capi_build::edge(None, || Some(body()));
    let (message, remedy, status) = match ended {
        Some(Ok(())) => return 0,
        Some(Err(Failed::Callback(status))) => return status,
        Some(Err(Failed::Argument(what))) => {
            let status = Kind::Usage.exit_code();
            (text(what), text("see midair.h"), c_int::from(status))
        }
        Some(Err(Failed::Error(error))) => (
            text(&error.to_string()),
            text(error.remedy()),
            c_int::from(error.kind().exit_code()),
        ),
        None => (
            text("an internal error of midair"),
            text("please report it"),
            PANIC,
        ),
    };
    // While a thread ends, its variable may be gone.
    let _ = LAST.try_with(|last| last.replace((message, remedy)));
    status
}

/// Returns the text that C passed.
///
/// # Safety
/// `text` is null or a text that ends with NUL, and outlives the result.
unsafe fn given<'a>(text: *const c_char) -> Result<&'a str, Failed> {
    if text.is_null() {
        return Err(NULL_TEXT);
    }
    // SAFETY: it is not null, and the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Failed::Argument("cannot read a string: it is not UTF-8"))
}

/// Returns what C points to.
///
/// # Safety
/// `object` is null or one of midair's that is not freed, and outlives the result.
unsafe fn object<'a, T>(object: *const T) -> Result<&'a T, Failed> {
    // SAFETY: the caller's promise.
    unsafe { object.as_ref() }.ok_or(NULL_OBJECT)
}

/// Returns the place for a result, which is null from then on.
///
/// # Safety
/// `to` is null or writable, and outlives the result.
unsafe fn place<'a, T>(to: *mut *mut T) -> Result<&'a mut *mut T, Failed> {
    // SAFETY: the caller's promise. The pointer may be uninitialized, so it is written first.
    unsafe {
        if !to.is_null() {
            to.write(std::ptr::null_mut());
        }
        to.as_mut()
    }
    .ok_or(Failed::Argument(
        "cannot return a result: the pointer to it is null",
    ))
}

/// Takes an object back from C.
///
/// # Safety
/// `object` is null, or came from `Box::into_raw` and is not used again.
unsafe fn take<T>(object: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller's promise.
    (!object.is_null()).then(|| unsafe { Box::from_raw(object) })
}

/// Returns a part of the last failure. The pointer is valid until the next failure on this thread.
fn last(part: impl FnOnce(&(CString, CString)) -> &CString) -> *const c_char {
    midair_capi_build::edge(c"".as_ptr(), || {
        LAST.try_with(|last| part(&last.borrow()).as_ptr())
            .unwrap_or(c"".as_ptr())
    })
}

/// Returns the `midair` of the installation that this library belongs to.
fn installed() -> Option<PathBuf> {
    // SAFETY: all-zero is a valid structure, which the call fills.
    let path = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let here = installed as *const () as *const c_void;
        if libc::dladdr(here, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname).to_bytes().to_vec()
    };
    let library = Path::new(OsStr::from_bytes(&path)).canonicalize().ok()?;
    let program = library.parent()?.parent()?.join("bin/midair");
    program.exists().then_some(program)
}

/// See midair.h.
#[unsafe(no_mangle)]
pub extern "C" fn midair_error_message() -> *const c_char {
    last(|(message, _)| message)
}

/// See midair.h.
#[unsafe(no_mangle)]
pub extern "C" fn midair_error_remedy() -> *const c_char {
    last(|(_, remedy)| remedy)
}

/// See midair.h.
#[unsafe(no_mangle)]
pub extern "C" fn midair_options_new(pid: u32) -> *mut Options {
    midair_capi_build::edge(std::ptr::null_mut(), || {
        let mut attach = Attach::new(pid);
        if std::env::var_os("MIDAIR").is_none()
            && let Some(program) = installed()
        {
            attach = attach.program(program);
        }
        Box::into_raw(Box::new(Options(attach)))
    })
}

/// See midair.h.
///
/// # Safety
/// `options` is null, or of [`midair_options_new`] and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_options_free(options: *mut Options) {
    // SAFETY: the caller's promise.
    midair_capi_build::edge((), || drop(unsafe { take(options) }));
}

/// See midair.h.
///
/// # Safety
/// `options` is null or of [`midair_options_new`]; `words` has `count` pointers; the strings end with
/// NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_options_add(
    options: *mut Options,
    name: *const c_char,
    words: *const *const c_char,
    count: usize,
) -> c_int {
    edge(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { options.as_mut() }.ok_or(NULL_OBJECT)?;
        // SAFETY: the caller's promise.
        let name = unsafe { given(name)? };
        let words: &[*const c_char] = match (count, words.is_null()) {
            (0, _) => &[],
            (_, true) => return Err(NULL_TEXT),
            // SAFETY: it is not null, and the rest is the caller's promise.
            (_, false) => unsafe { std::slice::from_raw_parts(words, count) },
        };
        let words: Vec<&str> = words
            .iter()
            // SAFETY: the caller's promise.
            .map(|word| unsafe { given(*word) })
            .collect::<Result<_, _>>()?;
        options.0 = options.0.clone().option(name, words);
        Ok(())
    })
}

/// See midair.h.
///
/// # Safety
/// `options` is null or of [`midair_options_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_options_set_duration(options: *mut Options, ns: u64) -> c_int {
    edge(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { options.as_mut() }.ok_or(NULL_OBJECT)?;
        options.0 = options.0.clone().duration(Duration::from_nanos(ns));
        Ok(())
    })
}

/// See midair.h.
///
/// # Safety
/// `options` is null or of [`midair_options_new`]; `session` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_start(
    options: *const Options,
    session: *mut *mut Session,
) -> c_int {
    edge(|| {
        // SAFETY: the caller's promise.
        let (place, options) = unsafe { (place(session)?, object(options)?) };
        *place = Box::into_raw(Box::new(options.0.clone().start()?));
        Ok(())
    })
}

/// Ends a session in either way.
///
/// # Safety
/// `session` is null or of [`midair_start`] and not used again; `recording` is null or writable.
unsafe fn end(
    session: *mut Session,
    recording: *mut *mut Recording,
    how: impl FnOnce(Session) -> Result<Recording, Error>,
) -> c_int {
    edge(|| {
        // SAFETY: the caller's promise.
        let (session, place) = unsafe { (take(session), place(recording)) };
        // Without a place for the recording, the session ends all the same: it is dropped here.
        let (session, place) = (session.ok_or(NULL_OBJECT)?, place?);
        *place = Box::into_raw(Box::new(how(*session)?));
        Ok(())
    })
}

/// See midair.h.
///
/// # Safety
/// As [`midair_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_detach(
    session: *mut Session,
    recording: *mut *mut Recording,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { end(session, recording, Session::detach) }
}

/// See midair.h.
///
/// # Safety
/// `session` is null or of [`midair_start`] and not used again; `recording` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_wait(
    session: *mut Session,
    recording: *mut *mut Recording,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { end(session, recording, Session::wait) }
}

/// See midair.h.
///
/// # Safety
/// `recording` is null or of [`midair_detach`] or [`midair_wait`]; `callback` is a function of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_recording_kernels(
    recording: *const Recording,
    callback: KernelCallback,
    data: *mut c_void,
) -> c_int {
    edge(|| {
        // SAFETY: the caller's promise.
        let recording = unsafe { object(recording)? };
        let callback = callback.ok_or(Failed::Argument(
            "cannot call the callback: the pointer is null",
        ))?;
        for kernel in recording.kernels() {
            let kernel = kernel?;
            let name = text(&kernel.name);
            let shown = Kernel {
                size: size_of::<Kernel>(),
                name: name.as_ptr(),
                start: kernel.start,
                end: kernel.end,
                dispatch: kernel.dispatch,
                correlation: kernel.correlation,
                stream: kernel.stream,
                thread: kernel.thread,
                node: kernel.node,
                queue: kernel.queue,
                workgroup: kernel.workgroup,
                grid: kernel.grid,
            };
            // SAFETY: the caller's function, with a structure that lives during the call.
            match unsafe { callback(&raw const shown, data) } {
                0 => {}
                status => return Err(Failed::Callback(status)),
            }
        }
        Ok(())
    })
}

/// See midair.h.
///
/// # Safety
/// `recording` is null or of [`midair_detach`] or [`midair_wait`]; the texts end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_recording_write(
    recording: *const Recording,
    format: *const c_char,
    path: *const c_char,
) -> c_int {
    edge(|| {
        // SAFETY: the caller's promise.
        let (recording, format) = unsafe { (object(recording)?, given(format)?) };
        if path.is_null() {
            return Err(NULL_TEXT);
        }
        // SAFETY: it is not null, and the rest is the caller's promise.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
        let format = Format::of(format)
            .ok_or(Failed::Argument("cannot write this format: it is unknown"))?;
        recording.to_file(format, path)?;
        Ok(())
    })
}

/// See midair.h.
///
/// # Safety
/// `recording` is null or of [`midair_detach`] or [`midair_wait`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_recording_status(recording: *const Recording) -> c_int {
    edge(|| {
        // SAFETY: the caller's promise.
        match unsafe { object(recording)? }.incomplete() {
            Some(error) => Err(error.clone().into()),
            None => Ok(()),
        }
    })
}

/// See midair.h.
///
/// # Safety
/// `recording` is null, or of [`midair_detach`] or [`midair_wait`] and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn midair_recording_free(recording: *mut Recording) {
    // SAFETY: the caller's promise.
    midair_capi_build::edge((), || drop(unsafe { take(recording) }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status_and_a_message() {
        let status = edge(|| std::panic::panic_any(()));
        assert_eq!(status, PANIC);
        // SAFETY: the function returns a string that lives until the next failure.
        let message = unsafe { CStr::from_ptr(midair_error_message()) };
        assert_eq!(message, c"an internal error of midair");
    }

    #[test]
    fn a_callback_s_status_is_returned() {
        assert_eq!(edge(|| Err(Failed::Callback(-7))), -7);
        assert_eq!(edge(|| Ok(())), 0);
    }
}
