//! Calls of tools' functions. What leaves such a function in another way than by its return ends
//! here, as a [`Thrown`], and not the process: an exception, or a call of `exit`.
//!
//! **Exceptions.** Rust cannot catch those of other languages: `catch_unwind` ends the process when
//! one arrives. A `try` block in C++ could, but its code needs the C++ runtime when our library is
//! loaded, and a process that is entered may have none (a `NEEDED` would refuse it), or several: a
//! tool that brings its own. A runtime linked into our library would count exceptions as its own
//! that another one has thrown. So the frame that catches is written in assembly ([`arch`]), with a
//! personality function of ours. That is all that a `catch (...)` is made of, and it needs nothing
//! but the unwinder, which Rust's standard library brings in any case. What is to be done in the
//! words of C++ is done by the runtime that threw, which the exception itself names
//! ([`exception`]).
//!
//! **Exit.** In a library that was loaded as a tool, and in no other, calls of `exit` and its like
//! lead here ([`imports`]). Inside a tool's function they return to its caller.
//!
//! What cannot be caught: `exit` called by a library that the tool depends on or in a constructor of
//! its library, a system call made directly, a signal, an exception that meets a `noexcept`
//! function or a thread's own end, and whatever a thread of the tool's own does.
//!
//! A thread that is cancelled inside a tool's function is not kept: that is not an exception of the
//! tool's, and passes.
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

/// Memory that is lent to a tool during one call: where it begins, and bytes. A tool that frees it
/// is ignored, see [`imports`].
pub type Lent = (*const c_void, usize);

/// What left a tool's function instead of its return. It is disposed of when it is dropped.
#[derive(Debug)]
pub struct Thrown {
    how: How,
}

#[derive(Debug)]
enum How {
    /// An exception that nobody has caught yet.
    Exception(NonNull<Exception>, String),
    /// A call of the function of this name, with a status where it has one.
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
            // SAFETY: it was caught by this value, which is not used any more.
            unsafe { exception::discard(exception) };
        }
    }
}

impl Thrown {
    /// Goes on as if it had not been caught: for a caller of ours who made us call its function. To
    /// be called with nothing of ours below on the stack that must be undone, in a function of the
    /// ABI `C-unwind`.
    pub fn pass_on(mut self) -> ! {
        match std::mem::replace(&mut self.how, How::Nothing) {
            How::Exception(exception, _) => {
                std::mem::forget(self);
                // SAFETY: it was caught, and nobody else has it.
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

/// Calls a tool's function, which `body` does and nothing else: no value that must be dropped may be
/// alive in it during the call.
///
/// # Errors
/// [`Thrown`] when the function did not return.
pub fn call<R>(lent: &[Lent], body: impl FnOnce() -> R) -> Result<R, Thrown> {
    struct Run<F, R> {
        body: Option<F>,
        result: MaybeUninit<R>,
    }
    unsafe extern "C-unwind" fn run<F: FnOnce() -> R, R>(data: *mut c_void) {
        // SAFETY: the value below, which nobody else uses during the call.
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
    // SAFETY: the function takes this data; the guard lives across the call.
    let left = unsafe { arch::call(function, (&raw mut run).cast(), guard.stack_pointer()) };
    guard.exit(outer);
    match NonNull::new(left) {
        // SAFETY: the function returned, and has written its result before.
        None => Ok(unsafe { run.result.assume_init() }),
        Some(left) => Err(Thrown {
            how: match guard.left() {
                Some((name, status)) => How::Left(name, status),
                None => {
                    // SAFETY: the unwinder handed it over.
                    let text = unsafe { exception::describe(left) };
                    How::Exception(left, text)
                }
            },
        }),
    }
}
