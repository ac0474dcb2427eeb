//! The atomics and cells that this crate uses: the core library's, or `loom`'s in builds with
//! `--cfg loom`.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// Called when another thread has changed a word meanwhile and the caller is about to read it
/// again.
#[cfg(not(loom))]
#[inline]
pub(crate) fn pause() {
    core::hint::spin_loop();
}
#[cfg(loom)]
pub(crate) use loom::thread::yield_now as pause;

/// A cell with the same interface as `loom`'s cell, which checks accesses.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Makes a cell that contains `value`.
    pub const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer to the content. Dereferencing it is the responsibility of `f`.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Defines a function that is `const`, except under `loom`, whose atomics and cells cannot be made
/// in constants.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* pub fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block) => {
        $(#[$meta])*
        #[cfg(not(loom))]
        pub const fn $name($($argument: $type),*) -> $result $body

        $(#[$meta])*
        #[cfg(loom)]
        pub fn $name($($argument: $type),*) -> $result $body
    };
}
pub(crate) use const_unless_loom;
