//! Calls of tools' functions. If an exception or a call of `exit` leaves such a function, this ends
//! here as a [`Thrown`], and does not end the process.
//!
//! **Exceptions.** Rust cannot catch exceptions of other languages: `catch_unwind` ends the process
//! when one arrives. A `try` block in C++ could, but its code needs the C++ runtime when our
//! library is loaded. A process that is entered may have no C++ runtime (a `NEEDED` would then keep
//! our library from loading), or several, if a tool brings its own. A runtime that is linked into
//! our library would treat exceptions that another runtime has thrown as its own. So the catching
//! frame is written in assembly ([`arch`]), with a midair personality function. A `catch (...)`
//! consists of nothing else, and it needs only the unwinder, which Rust's standard library needs in
//! any case. Where C++ functions have to be called, they belong to the runtime that threw, which
//! the exception itself identifies ([`exception`]).
//!
//! **Exit.** In a library that was loaded as a tool, and in no other, calls of `exit` and similar
//! functions lead here ([`imports`]). Inside a tool's function they return to its caller.
//!
//! The following cannot be caught: `exit` called by a library that the tool depends on, or in a
//! constructor of the tool's library; a direct system call; a signal; an exception that meets a
//! `noexcept` function or the end of a thread; and anything that a thread of the tool's own does.
//!
//! A thread that is cancelled inside a tool's function is not stopped from ending: cancellation is
//! not an exception of the tool's, and passes through.
//!
//! Decision: AMD-080 (`docs/deviations/amd.md`).

mod arch;
mod exception;
mod guard;
pub mod imports;

use exception::Exception;
use guard::Guard;
use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Memory that is lent to a tool during one call: its start, and its size in bytes. If the tool
/// frees it, nothing happens, see [`imports`].
pub type Lent = (*const c_void, usize);

/// What left a tool's function in place of its return. Dropping it disposes of the exception.
#[derive(Debug)]
pub struct Thrown {
    how: How,
}

#[derive(Debug)]
enum How {
    /// An exception that nothing else has caught.
    Exception(NonNull<Exception>, String),
    /// A call of the function of this name, with its status if it has one.
    Left(&'static str, i32),
    /// It was passed on.
    Nothing,
}

impl fmt::Display for Thrown {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.how {
            How::Exception(_, text) => write!(to, "it threw {text}"),
            How::Left(name @ ("abort" | "assert"), _) => write!(to, "it called {name}()"),
            How::Left(name, status) => write!(to, "it called {name}({status})"),
            How::Nothing => to.write_str("it returned"),
        }
    }
}

impl Drop for Thrown {
    fn drop(&mut self) {
        if let How::Exception(exception, _) = self.how {
            // SAFETY: this value caught the exception, and does not use it any more.
            unsafe { exception::discard(exception) };
        }
    }
}

impl Thrown {
    /// Continues as if it had not been caught, for a caller that made us call its own function.
    /// Call it where nothing of midair's below on the stack must be undone, in a function of the ABI
    /// `C-unwind`.
    pub fn pass_on(mut self) -> ! {
        match std::mem::replace(&mut self.how, How::Nothing) {
            How::Exception(exception, _) => {
                std::mem::forget(self);
                // SAFETY: the exception was caught, and nothing else uses it.
                unsafe { exception::raise(exception) }
            }
            How::Left(name, status) => {
                std::mem::forget(self);
                imports::leave(name, status)
            }
            How::Nothing => std::process::abort(),
        }
    }
}

/// Calls a tool's function. `body` makes this call and does nothing else: during the call it must
/// hold no value that has to be dropped.
///
/// # Errors
/// [`Thrown`] when the function did not return.
pub fn call<R>(lent: &[Lent], body: impl FnOnce() -> R) -> Result<R, Thrown> {
    struct Run<F, R> {
        body: Option<F>,
        result: MaybeUninit<R>,
    }
    unsafe extern "C-unwind" fn run<F: FnOnce() -> R, R>(data: *mut c_void) {
        // SAFETY: `data` is the value below, which nothing else uses during the call.
        let run = unsafe { &mut *data.cast::<Run<F, R>>() };
        if let Some(body) = run.body.take() {
            run.result.write(body());
        }
    }
    fn function_for<F: FnOnce() -> R, R>(_: &Run<F, R>) -> arch::Function {
        run::<F, R>
    }
    let mut run = Run {
        body: Some(body),
        result: MaybeUninit::uninit(),
    };
    let function = function_for(&run);
    let mut guard = Guard::new(lent);
    let outer = guard.enter();
    // SAFETY: the function takes this data, and the guard lives across the call.
    let left = unsafe { arch::call(function, (&raw mut run).cast(), guard.stack_pointer()) };
    guard.exit(outer);
    match NonNull::new(left) {
        // SAFETY: the function returned, so it has written its result.
        None => Ok(unsafe { run.result.assume_init() }),
        Some(left) => Err(Thrown {
            how: match guard.left() {
                Some((name, status)) => How::Left(name, status),
                None => {
                    // SAFETY: the unwinder passed on a live exception.
                    let text = unsafe { exception::describe(left) };
                    How::Exception(left, text)
                }
            },
        }),
    }
}
