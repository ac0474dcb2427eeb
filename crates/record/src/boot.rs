//! The boot block: a page of the target, made by the attacher, through which our thread in the target is started, fed and
//! later woken again.
//!
//! Life of our thread: the stub on a parked thread starts it; it blocks all signals, makes a socket pair and announces it in
//! [`BootBlock::mailbox`]; the attacher takes the far end with `pidfd_getfd` and sends the library; the thread loads it and
//! calls [`ENTRY`]; after a session it parks in a futex wait on `mailbox`, for ever, or until the next attacher says
//! [`mailbox::KICK`]. An attacher finds a parked thread by its name and the futex address in `/proc/TID/syscall`, and checks
//! [`BootBlock::magic`].

use std::sync::atomic::AtomicU32;

/// First eight bytes of a boot block.
pub const MAGIC: u64 = u64::from_le_bytes(*b"midair\x00B");
/// Name (`comm`) of the worker thread: the one thread that midair runs in a target.
pub const THREAD_NAME: &str = "midair-worker";
/// Its name while it makes a runtime's library make threads, which take the name of their maker: they are not to be found as ours.
pub const MAKER_NAME: &str = "midair-cupti";
/// Name of the function that the boot code looks up in the library it loaded: `extern "C" fn(*mut BootBlock)`. It returns
/// when the thread shall end.
///
/// The name is part of the ABI between builds, as are the memory files named `midair-agent-WORD-N.so` and the names of the shipped
/// libraries: they keep the word "agent", while the thread is called worker thread everywhere else.
pub const ENTRY: &str = "midair_agent_enter";

/// Values of [`BootBlock::mailbox`].
pub mod mailbox {
    /// Nothing has run yet.
    pub const EMPTY: u32 = 0;
    /// Our thread runs.
    pub const STARTED: u32 = 1;
    /// The socket pair is made: the attacher may take `fd_far`.
    pub const OPEN: u32 = 2;
    /// Our thread reads from the socket; the far end is closed in the target.
    pub const TALKING: u32 = 3;
    /// A session is over (or was never asked for) and our thread waits on this word.
    pub const PARKED: u32 = 4;
    /// An attacher asks our parked thread to make a socket pair.
    pub const KICK: u32 = 5;
    /// Something failed: see `error` and `error_text`.
    pub const FAILED: u32 = 6;
    /// Our thread is about to return.
    pub const ENDED: u32 = 7;
    /// The process's own listener woke our parked thread: the connection is in [`BootBlock::handed`](super::BootBlock::handed).
    pub const HANDED: u32 = 8;
}

/// Steps of [`BootBlock::error_step`].
pub mod step {
    /// `socketpair` failed.
    pub const SOCKET: u32 = 1;
    /// Nobody took the far end or sent a library in time.
    pub const SILENCE: u32 = 2;
    /// `recvmsg` failed or brought no descriptor.
    pub const RECEIVE: u32 = 3;
    /// `dlopen` refused; `error_text` holds dlerror's words.
    pub const LOAD: u32 = 4;
    /// The library has no [`super::ENTRY`].
    pub const ENTRY: u32 = 5;
    /// `pthread_create` failed; `error` is its result.
    pub const THREAD: u32 = 6;
    /// `dlopen` refused, and the library's path below `/proc/thread-self/fd` cannot be opened: the process does not see
    /// itself in `/proc`. `error_text` holds dlerror's words.
    pub const PATH: u32 = 7;
}

/// Layout of the boot block. Offsets up to `text` are used by hand-written assembly (`crates/inject`): keep them.
#[repr(C)]
#[derive(Debug)]
pub struct BootBlock {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`crate::VERSION`].
    pub version: u32,
    /// A futex word, see [`mailbox`].
    pub mailbox: AtomicU32,
    /// Our end of the socket pair (descriptor number in the target), -1 when closed.
    pub fd_near: i32,
    /// The attacher's end of the socket pair, -1 when closed.
    pub fd_far: i32,
    /// Thread id of our thread, in the target's pid namespace.
    pub tid: u32,
    /// Where it failed, see [`step`].
    pub error_step: u32,
    /// An errno, or 0.
    pub error: i32,
    /// Descriptor number that the library gets; never one that an earlier load in this process had, since glibc knows
    /// libraries by path.
    pub library_fd: i32,
    /// Written by the stub: 0 while it runs, 1 when the thread was made, 2 when it was refused (`error`).
    pub stub_result: AtomicU32,
    /// Bytes of `affinity` in use.
    pub affinity_len: u32,
    /// Base and length of the two mappings that the attacher made: code.
    pub code_base: u64,
    /// Length of the code mapping.
    pub code_len: u64,
    /// Base of the data mapping, which begins with this block.
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
    /// [`ENTRY`] of a copy of the library that the process has already (a child of `fork` has its parent's): it is called instead
    /// of loading one. 0: the library that is sent is loaded.
    pub fn_entry: u64,
    /// Stack of our thread.
    pub stack_base: u64,
    /// Its length.
    pub stack_len: u64,
    /// Stack pointer for the stub.
    pub stub_stack_top: u64,
    /// Address of a prepared `rt_sigreturn` frame: the stub's way out when nobody answers.
    pub sigframe: u64,
    /// Ticks of the processor's counter (x86-64: time stamp counter, aarch64: virtual counter) after which the stub leaves by itself.
    pub stub_patience_ticks: u64,
    /// Address of dlerror's text after a failed load (in the target).
    pub error_text: u64,
    /// How long our thread waits for the attacher's first words, in ms.
    pub patience_ms: u32,
    /// What the process's own listener hands over with [`mailbox::HANDED`]: the descriptor of a connection, and one more; 0 for none. A
    /// word of its own, since an attacher that traces may wake the thread at the same moment: whoever swaps it out has it.
    pub handed: AtomicU32,
    /// Id of the thread that was borrowed to make ours, in the target's pid namespace; 0: not known.
    pub borrowed: u32,
    /// Ticks of the same counter after which the stub, while it waits to be taken back, gives its processor away (`sched_yield`), again
    /// and again; x86-64 only. 0: never, since a filter of system calls might forbid that.
    pub stub_turn_ticks: u32,
    /// CPU mask for our thread: the process's own, not that of the thread we entered through.
    pub affinity: [u8; 128],
    /// `struct msghdr`, `iovec`, control buffer, path text and other scratch of the boot code.
    pub text: [u8; 1024],
}

/// Offset of the futex word in the block.
pub const MAILBOX_OFFSET: usize = std::mem::offset_of!(BootBlock, mailbox);

const _: () = assert!(MAILBOX_OFFSET == 12);
const _: () = assert!(std::mem::size_of::<BootBlock>() <= 4096);
