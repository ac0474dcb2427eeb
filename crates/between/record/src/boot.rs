//! The boot block: a page of the target, made by the attacher, through which the worker thread in
//! the target is started, receives the library, and is woken again later.
//!
//! The life of the worker thread: the stub on a borrowed thread starts it. It blocks all signals,
//! makes a socket pair and announces it in [`BootBlock::mailbox`]. The attacher takes the far end
//! with `pidfd_getfd` and sends the library. The thread loads it and calls [`ENTRY`]. After a
//! session it parks in a futex wait on `mailbox`, until the next attacher stores [`mailbox::KICK`]
//! there. An attacher finds a parked worker thread by its name and the futex address in
//! `/proc/TID/syscall`, and checks [`BootBlock::magic`].

use std::sync::atomic::{AtomicI32, AtomicU32};

/// First eight bytes of a boot block.
pub const MAGIC: u64 = u64::from_le_bytes(*b"midair\x00B");
/// Name (`comm`) of the worker thread: the one thread that midair runs in a target.
pub const THREAD_NAME: &str = "midair-worker";
/// Name of the thread of a session without an attacher that yields to a session with one: only
/// tools in the process receive its records. At most 15 bytes.
pub const LOCAL_NAME: &str = "midair-local";
/// Name of the thread of a session without an attacher that keeps the process for itself: it writes
/// files, or another injector started it. At most 15 bytes.
pub const SOLE_NAME: &str = "midair-sole";
/// The worker thread's name while the library of a runtime creates threads on it. Those threads
/// inherit the name of their creator, and must not be mistaken for worker threads.
pub const MAKER_NAME: &str = "midair-cupti";
/// Name of the function that the boot code looks up in the library it loaded:
/// `extern "C" fn(*mut BootBlock)`. It returns when the thread is to end.
///
/// The name is part of the ABI between builds, as are the memory files named
/// `midair-agent-WORD-N.so` and the names of the shipped libraries: they keep the word "agent",
/// while the thread is called worker thread everywhere else.
pub const ENTRY: &str = "midair_agent_enter";

/// Values of [`BootBlock::mailbox`].
pub mod mailbox {
    /// Nothing has run yet.
    pub const EMPTY: u32 = 0;
    /// The worker thread runs.
    pub const STARTED: u32 = 1;
    /// The socket pair is made: the attacher may take `fd_far`.
    pub const OPEN: u32 = 2;
    /// The worker thread reads from the socket; the far end is closed in the target.
    pub const TALKING: u32 = 3;
    /// A session is over (or none was requested), and the worker thread waits on this word.
    pub const PARKED: u32 = 4;
    /// An attacher asks the parked worker thread to make a socket pair.
    pub const KICK: u32 = 5;
    /// Something failed: see `error` and `error_text`.
    pub const FAILED: u32 = 6;
    /// The worker thread is about to end.
    pub const ENDED: u32 = 7;
    /// The process's own listener woke the parked worker thread: the connection is in
    /// [`BootBlock::handed`](super::BootBlock::handed).
    pub const HANDED: u32 = 8;
}

/// Steps of [`BootBlock::error_step`].
pub mod step {
    /// `socketpair` failed.
    pub const SOCKET: u32 = 1;
    /// The attacher did not take the far end, or did not send a library, in time.
    pub const SILENCE: u32 = 2;
    /// `recvmsg` failed or received no descriptor.
    pub const RECEIVE: u32 = 3;
    /// `dlopen` failed; `error_text` has the message of dlerror.
    pub const LOAD: u32 = 4;
    /// The library has no [`super::ENTRY`].
    pub const ENTRY: u32 = 5;
    /// `pthread_create` failed; `error` is its result.
    pub const THREAD: u32 = 6;
    /// `dlopen` failed, and the library's path below `/proc/thread-self/fd` cannot be opened: the
    /// process does not see itself in `/proc`. `error_text` has the message of dlerror.
    pub const PATH: u32 = 7;
}

/// Layout of the boot block. Offsets up to `text` are used by hand-written assembly
/// (`crates/attacher/inject`): keep them.
/// Fields that change while the worker thread lives are atomic, because that thread, the process's
/// listener and an attacher, which writes from outside, access them at the same time. The other
/// fields are written before the thread is created.
#[repr(C)]
#[derive(Debug)]
pub struct BootBlock {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`crate::VERSION`].
    pub version: u32,
    /// A futex word, see [`mailbox`].
    pub mailbox: AtomicU32,
    /// The target's end of the socket pair (descriptor number in the target), -1 when closed.
    pub fd_near: AtomicI32,
    /// The attacher's end of the socket pair, -1 when closed.
    pub fd_far: AtomicI32,
    /// Thread id of the worker thread, in the target's pid namespace.
    pub tid: AtomicU32,
    /// The step that failed, see [`step`].
    pub error_step: AtomicU32,
    /// An errno, or 0.
    pub error: AtomicI32,
    /// Number of the descriptor that the library is loaded from. It is never a number that an
    /// earlier load in this process used, since glibc identifies libraries by path.
    pub library_fd: AtomicI32,
    /// Written by the stub: 0 while it runs, 1 when the thread was made, 2 when it was refused
    /// (`error`).
    pub stub_result: AtomicU32,
    /// Bytes of `affinity` in use.
    pub affinity_len: u32,
    /// Base of the code mapping, the first of the two mappings that the attacher made.
    pub code_base: u64,
    /// Length of the code mapping.
    pub code_len: u64,
    /// Base of the data mapping, which starts with this block.
    pub data_base: u64,
    /// Length of the data mapping (boot block, stub stack, thread stack).
    pub data_len: u64,
    /// `pthread_create` of the target.
    pub fn_pthread_create: u64,
    /// `pthread_attr_init`.
    pub fn_attr_init: u64,
    /// `pthread_attr_setdetachstate`.
    pub fn_attr_setdetachstate: u64,
    /// `pthread_attr_setstack`.
    pub fn_attr_setstack: u64,
    /// `dlopen`.
    pub fn_dlopen: u64,
    /// `dlsym`.
    pub fn_dlsym: u64,
    /// `dlerror`.
    pub fn_dlerror: u64,
    /// Address of [`ENTRY`] in a copy of the library that the process has loaded already (a child
    /// of `fork` has its parent's); it is then called, and no library is loaded. 0: the library
    /// that is sent is loaded.
    pub fn_entry: u64,
    /// Stack of the worker thread.
    pub stack_base: u64,
    /// Its length.
    pub stack_len: u64,
    /// Stack pointer for the stub.
    pub stub_stack_top: u64,
    /// Address of a prepared `rt_sigreturn` frame, which the stub uses to return when the attacher
    /// does not respond.
    pub sigframe: u64,
    /// Ticks of the CPU's counter (x86-64: time stamp counter, aarch64: virtual counter) after
    /// which the stub returns by itself.
    pub stub_patience_ticks: u64,
    /// Address of dlerror's text after a failed load (in the target).
    pub error_text: u64,
    /// How long the worker thread waits for the attacher's first message, in ms.
    pub patience_ms: u32,
    /// What the process's own listener passes on with [`mailbox::HANDED`]: the descriptor number of
    /// a connection plus one; 0 for none. It is a separate word, since an attacher that traces may
    /// wake the thread at the same moment. The thread that swaps it out owns the connection.
    pub handed: AtomicU32,
    /// Id of the thread that was borrowed to make the worker thread, in the target's pid namespace;
    /// 0: unknown.
    pub borrowed: u32,
    /// Ticks of the same counter after which the stub yields its CPU (`sched_yield`), repeatedly,
    /// while it waits for the attacher; x86-64 only. 0: never, since a seccomp filter might forbid
    /// that call.
    pub stub_turn_ticks: u32,
    /// CPU mask for the worker thread: the process's own, not the borrowed thread's.
    pub affinity: [u8; 128],
    /// `struct msghdr`, `iovec`, control buffer, path text and other scratch of the boot code.
    pub text: [u8; 1024],
}

/// Offset of the futex word in the block.
pub const MAILBOX_OFFSET: usize = std::mem::offset_of!(BootBlock, mailbox);

const _: () = assert!(MAILBOX_OFFSET == 12);
const _: () = assert!(std::mem::size_of::<BootBlock>() <= 4096);
