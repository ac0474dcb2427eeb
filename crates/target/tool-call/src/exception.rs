//! Exceptions that have left a tool's function (source: the Itanium C++ ABI, exception handling,
//! levels 1 and 2).

use crate::arch;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

/// The header by which unwinders and languages recognise an exception (`_Unwind_Exception`).
#[repr(C)]
pub(crate) struct Exception {
    class: u64,
    cleanup: Option<unsafe extern "C" fn(c_int, *mut Exception)>,
    private: [usize; 2],
}

impl std::fmt::Debug for Exception {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Exception({:#x})", self.class)
    }
}

/// The unwinder's view of a frame.
#[repr(C)]
pub(crate) struct Context {
    _opaque: [u8; 0],
}

/// `_Unwind_Action`.
const SEARCH: c_int = 1;
const HANDLER_FRAME: c_int = 4;
const FORCED: c_int = 8;
/// `_Unwind_Reason_Code`.
const HANDLER_FOUND: c_int = 6;
const INSTALL_CONTEXT: c_int = 7;
const CONTINUE: c_int = 8;
/// The register in which a landing pad gets the exception (`__builtin_eh_return_data_regno(0)`): 0
/// on x86-64 (rax) and on aarch64 (x0).
const RESULT: c_int = 0;

unsafe extern "C-unwind" {
    fn _Unwind_RaiseException(exception: *mut Exception) -> c_int;
}
unsafe extern "C" {
    fn _Unwind_DeleteException(exception: *mut Exception);
    fn _Unwind_SetGR(context: *mut Context, register: c_int, value: usize);
    fn _Unwind_SetIP(context: *mut Context, address: usize);
}

/// Answers the unwinder's questions about the catching frame: it takes every exception. A thread
/// that is cancelled, or ends itself, unwinds by force, which passes through the frame.
pub(crate) unsafe extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    exception: *mut Exception,
    context: *mut Context,
) -> c_int {
    if actions & FORCED != 0 {
        return CONTINUE;
    }
    if actions & SEARCH != 0 {
        return HANDLER_FOUND;
    }
    if actions & HANDLER_FRAME == 0 {
        return CONTINUE;
    }
    // SAFETY: the context is the unwinder's own, in the phase in which it may be changed.
    unsafe {
        _Unwind_SetGR(context, RESULT, exception.expose_provenance());
        _Unwind_SetIP(context, arch::landing());
    }
    INSTALL_CONTEXT
}

/// Vendor and language: "GNUCC++\0" and "CLNGC++\0". The last byte is 1 for a dependent exception,
/// which refers to another one (`std::rethrow_exception`).
const GNU: u64 = u64::from_be_bytes(*b"GNUCC++\0");
const CLANG: u64 = u64::from_be_bytes(*b"CLNGC++\0");
/// "MOZ\0RUST": a Rust panic.
const RUST: u64 = u64::from_be_bytes(*b"MOZ\0RUST");

/// `std::type_info`, as far as it is equal in all runtimes.
#[repr(C)]
struct TypeInfo {
    functions: *const [*const c_void; 5],
    name: *const c_char,
}

/// `type_info::__do_catch`, or `can_catch` in LLVM's runtime. Arguments: the type thrown; the
/// object's address, which becomes the requested part's; and how many pointers surround it.
type DoCatch =
    unsafe extern "C" fn(*const TypeInfo, *const TypeInfo, *mut *mut c_void, u32) -> bool;
const DO_CATCH: usize = 4;

/// Returns the type and the object of a C++ exception.
///
/// The header lies between the runtime's own words and the object. The runtime's words contain the
/// type, at a fixed distance before the header.
unsafe fn thrown(exception: NonNull<Exception>) -> Option<(*const TypeInfo, *mut c_void)> {
    const WORD: usize = size_of::<usize>();
    // The type is ten words before the header. After it come a destructor, two handlers, `next`,
    // two numbers in one word, three words of the personality, and padding.
    const TYPE: usize = 10 * WORD;
    let header = exception.as_ptr();
    // SAFETY: the caller promises a live exception, and its class determines the layout.
    unsafe {
        let class = (*header).class;
        let stands_for = class & 0xff == 1;
        let object = match class & !0xff {
            GNU if stands_for => header.byte_sub(TYPE).cast::<*mut c_void>().read(),
            CLANG if stands_for => header.byte_sub(TYPE + WORD).cast::<*mut c_void>().read(),
            GNU | CLANG => header.add(1).cast(),
            _ => return None,
        };
        if object.is_null() {
            return None;
        }
        let own = object.cast::<Exception>().sub(1);
        let kind = own.byte_sub(TYPE).cast::<*const TypeInfo>().read();
        (!kind.is_null()).then_some((kind, object))
    }
}

/// Returns a function or an object of the runtime that threw. That runtime is the library that
/// contains the exception's cleanup function.
unsafe fn of_runtime(exception: NonNull<Exception>, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the caller promises a live exception.
    let cleanup = unsafe { exception.as_ref() }.cleanup?;
    // SAFETY: dladdr takes any address, an all-zero Dl_info is valid, and the name belongs to the
    // loader.
    let found = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(cleanup as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let library = libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        // The handle is never closed: the runtime stays loaded as long as the process.
        if library.is_null() {
            libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr())
        } else {
            libc::dlsym(library, name.as_ptr())
        }
    };
    (!found.is_null()).then_some(found)
}

/// How many bytes of an exception's text are reported.
const MOST: usize = 500;

unsafe fn text(at: *const c_char) -> Option<String> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the caller promises a C string.
    let mut text = unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned();
    if text.len() > MOST {
        let end = (0..=MOST).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push_str("...");
    }
    Some(text)
}

/// Describes what was thrown: its type, and its message.
///
/// # Safety
/// The exception must be live, and must not be being unwound.
pub(crate) unsafe fn describe(exception: NonNull<Exception>) -> String {
    // SAFETY: the caller's promise.
    let class = unsafe { exception.as_ref() }.class;
    if class == RUST {
        return "a Rust panic".to_owned();
    }
    // SAFETY: the caller's promise.
    let Some((kind, object)) = (unsafe { thrown(exception) }) else {
        return "an exception that is not of C++".to_owned();
    };
    // SAFETY: the object is the runtime's own, and names are C strings that live as long as it.
    unsafe {
        let mangled = CStr::from_ptr((*kind).name);
        let name = readable(exception, mangled);
        // The thrown object is itself a C string.
        let said = if matches!(mangled.to_bytes(), b"PKc" | b"Pc") {
            text(object.cast::<*const c_char>().read())
        } else {
            what(exception, kind, object)
        };
        match said {
            Some(said) => format!("{name}: {said}"),
            None => name,
        }
    }
}

/// Returns what a `std::exception` says about itself.
unsafe fn what(
    exception: NonNull<Exception>,
    kind: *const TypeInfo,
    object: *mut c_void,
) -> Option<String> {
    // SAFETY: the caller passes a live exception, its type and its object. The symbol of this name
    // is `std::exception`'s type. Its virtual functions start with two destructors and `what`.
    unsafe {
        let base = of_runtime(exception, c"_ZTISt9exception")?.cast::<TypeInfo>();
        let do_catch = (*(*base).functions)[DO_CATCH];
        let do_catch = std::mem::transmute::<*const c_void, DoCatch>(do_catch);
        let mut part = object;
        if !do_catch(base, kind, &raw mut part, 1) {
            return None;
        }
        let functions = part.cast::<*const [*const c_void; 3]>().read();
        let say = std::mem::transmute::<
            *const c_void,
            unsafe extern "C" fn(*const c_void) -> *const c_char,
        >((*functions)[2]);
        text(say(part))
    }
}

/// Returns a type's name as in a program, where the runtime can demangle it.
unsafe fn readable(exception: NonNull<Exception>, mangled: &CStr) -> String {
    type Demangle =
        unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;
    let plain = || mangled.to_string_lossy().into_owned();
    // SAFETY: the caller promises a live exception.
    let Some(demangle) = (unsafe { of_runtime(exception, c"__cxa_demangle") }) else {
        return plain();
    };
    // SAFETY: this is the C++ ABI's function of this name. It returns memory that the C library's
    // `free` takes.
    unsafe {
        let demangle = std::mem::transmute::<*mut c_void, Demangle>(demangle);
        let mut status = 0;
        let name = demangle(
            mangled.as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &raw mut status,
        );
        let words = text(name).unwrap_or_else(plain);
        libc::free(name.cast());
        words
    }
}

/// Ends an exception as the end of a `catch` block does: the runtime that threw it counts it as
/// caught and destroys its object.
///
/// # Safety
/// The exception must be live, must not be being unwound, and must not be used afterwards.
pub(crate) unsafe fn discard(exception: NonNull<Exception>) {
    type Begin = unsafe extern "C-unwind" fn(*mut Exception) -> *mut c_void;
    type End = unsafe extern "C-unwind" fn();
    // SAFETY: the caller's promise.
    let class = unsafe { exception.as_ref() }.class;
    if class == RUST {
        // Rust's cleanup function would end the process, so the exception's memory is leaked.
        return;
    }
    if matches!(class & !0xff, GNU | CLANG) {
        // SAFETY: the caller's promise.
        let found = unsafe {
            of_runtime(exception, c"__cxa_begin_catch")
                .zip(of_runtime(exception, c"__cxa_end_catch"))
        };
        if let Some((begin, end)) = found {
            // A destructor that throws ends in this separate call.
            let _ = crate::call(&[], || {
                // SAFETY: these are the C++ ABI's functions of these names.
                unsafe {
                    std::mem::transmute::<*mut c_void, Begin>(begin)(exception.as_ptr());
                    std::mem::transmute::<*mut c_void, End>(end)();
                }
            })
            .map_err(std::mem::forget);
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { _Unwind_DeleteException(exception.as_ptr()) };
}

/// Throws a caught exception again. Where nothing catches it, the process ends in the way of its
/// runtime, as if it had never been caught.
///
/// # Safety
/// As for [`discard`].
pub(crate) unsafe fn raise(exception: NonNull<Exception>) -> ! {
    // SAFETY: the caller's promise.
    unsafe {
        _Unwind_RaiseException(exception.as_ptr());
        if let Some(begin) = of_runtime(exception, c"__cxa_begin_catch") {
            type Begin = unsafe extern "C" fn(*mut Exception) -> *mut c_void;
            std::mem::transmute::<*mut c_void, Begin>(begin)(exception.as_ptr());
        }
        if let Some(terminate) = of_runtime(exception, c"_ZSt9terminatev") {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(terminate)();
        }
        libc::abort()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    static CLEANED: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C" fn cleanup(_reason: c_int, exception: *mut Exception) {
        CLEANED.fetch_add(1, SeqCst);
        // SAFETY: `throw` made it with Box::into_raw.
        drop(unsafe { Box::from_raw(exception) });
    }

    unsafe extern "C-unwind" fn throw() -> u32 {
        let made = Box::into_raw(Box::new(Exception {
            class: u64::from_be_bytes(*b"MIDRTEST"),
            cleanup: Some(cleanup),
            private: [0; 2],
        }));
        // SAFETY: the exception was just made.
        unsafe { _Unwind_RaiseException(made) };
        7
    }

    /// All checks are in one test, since the count belongs to the process.
    #[test]
    fn an_exception_ends_where_the_function_was_called() {
        let kept = [1_u64, 2, 3, 4, 5, 6, 7, 8].map(std::hint::black_box);
        // SAFETY: the function takes no arguments.
        let caught = crate::call(&[], || unsafe { throw() });
        let thrown = caught.expect_err("it was caught");
        assert_eq!(
            thrown.to_string(),
            "it threw an exception that is not of C++"
        );
        assert_eq!(kept.iter().sum::<u64>(), 36);
        assert_eq!(CLEANED.load(SeqCst), 0);
        drop(thrown);
        assert_eq!(CLEANED.load(SeqCst), 1);
        assert_eq!(crate::call(&[], || 12).ok(), Some(12));
        // If an inner call passes it on, it ends in the outer call.
        let outer = crate::call(&[], || {
            // SAFETY: the function takes no arguments.
            let inner = crate::call(&[], || unsafe { throw() });
            match inner {
                Ok(value) => value,
                Err(thrown) => thrown.pass_on(),
            }
        });
        drop(outer.expect_err("passed on"));
        assert_eq!(CLEANED.load(SeqCst), 2);
    }

    #[test]
    fn a_function_that_leaves_is_over() {
        let left = crate::call(&[], || {
            let inner = crate::call(&[], || {
                crate::guard::leave("exit", 3);
                1
            });
            assert_eq!(
                inner.err().map(|it| it.to_string()),
                Some("it called exit(3)".into())
            );
            crate::guard::leave("abort", 0);
            2
        });
        assert_eq!(
            left.err().map(|it| it.to_string()),
            Some("it called abort()".into())
        );
        assert!(!crate::guard::is_inside());
        crate::guard::leave("exit", 3);
    }
}
