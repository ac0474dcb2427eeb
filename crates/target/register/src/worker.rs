//! The worker thread that the listener makes. It is the counterpart of the engine's boot code, for
//! a process that is attached to without tracing.
//!
//! There is at most one. It lives as the engine's worker thread does (`midair_record::boot`): it
//! loads the library that the attacher sends and calls the library's entry function, which parks it
//! on the mailbox of its boot block. So an attacher that traces finds and wakes it like one of the
//! engine's. The block is a static of this library: no memory is mapped, and none is left behind.
//!
//! Decisions: ENG-061 (`docs/deviations/engine.md`).

use crate::bounded;
use crate::endpoint;
use crate::lock::{Presence, worker_word};
use crate::procfs;
use midair_guest::verified_fd::{Identity, VerifiedFd};
use midair_record::boot::{BootBlock, ENTRY, MAGIC, MAILBOX_OFFSET, THREAD_NAME, mailbox, step};
use midair_record::connect::{ConnectReply, outcome};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Stack size in bytes, the same as the engine's.
const STACK: usize = 1024 * 1024;
/// How long the thread waits for the attacher's first message, in ms.
const PATIENCE: u32 = 5000;
/// Libraries are loaded by descriptor numbers below this one, and go down.
const NUMBERS: u64 = 1024;

/// The numbers that are tried first. Each table of descriptors has room for 64. The kernel enlarges it for a
/// higher number, after all processors were seen outside of the process.
const NEAR: Range<RawFd> = 32..64;

/// How long to wait for a worker thread that is about to be free, in ms.
const ENDING: u32 = 100;

struct Block(UnsafeCell<MaybeUninit<BootBlock>>);
// SAFETY: only the thread that has claimed `worker_word` writes the plain fields, and after it only
// the one thread that was made for the block.
unsafe impl Sync for Block {}
static BLOCK: Block = Block(UnsafeCell::new(MaybeUninit::zeroed()));

/// The file to which the block's `fd_near` refers when the thread starts.
struct NearFile(UnsafeCell<Option<Identity>>);
// SAFETY: the same threads access it, one after the other, as for the block.
unsafe impl Sync for NearFile {}
static NEAR_FILE: NearFile = NearFile(UnsafeCell::new(None));

fn block() -> *mut BootBlock {
    BLOCK.0.get().cast()
}

/// Returns the futex word in the block.
fn word() -> &'static std::sync::atomic::AtomicU32 {
    // SAFETY: the block is a static and never moves, and zero is a valid value of an atomic.
    unsafe { &(*block()).mailbox }
}

/// The number that was used last here. It is never used again, since the loader identifies
/// libraries by path.
static LAST_NUMBER: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// The result of giving a connection to the worker thread.
#[derive(Debug)]
pub(crate) enum Assignment {
    /// A new thread has the connection, and replies on it.
    Made,
    /// The parked thread has a copy. It is to be woken once the reply is sent and the connection is
    /// closed.
    Woken {
        /// The thread.
        wakeup: Wakeup,
        /// The listener's own descriptor.
        connection: VerifiedFd,
    },
    /// The request is refused with this reply.
    Refused(Box<ConnectReply>, VerifiedFd),
}

/// A parked thread that has its connection and has not been woken yet.
#[derive(Debug)]
pub(crate) struct Wakeup {
    /// The thread's id.
    pub(crate) tid: u32,
    /// The address of the futex word that the thread waits on.
    word: *mut u32,
}

impl Wakeup {
    /// Wakes the thread.
    pub(crate) fn wake(self) {
        for flag in [libc::FUTEX_PRIVATE_FLAG, 0] {
            // SAFETY: waking does not change memory, and any address may be passed.
            unsafe { libc::syscall(libc::SYS_futex, self.word, libc::FUTEX_WAKE | flag, 1) };
        }
    }
}

fn busy(tid: u32, connection: VerifiedFd) -> Assignment {
    let mut reply = ConnectReply::new(outcome::BUSY);
    reply.tid = tid;
    Assignment::Refused(reply.into(), connection)
}

/// Gives `connection` to the parked worker thread, or else to a new one.
pub(crate) fn assign(connection: VerifiedFd) -> Assignment {
    // The listener's own worker thread is tried first, unless it has ended, and then one that the
    // engine made. An attacher may see that the last session is over shortly before the session's
    // thread is parked or has ended, so it is waited for.
    for _ in 0..ENDING {
        if worker_word().load(Ordering::Acquire) == Presence::Absent {
            break;
        }
        if word().load(Ordering::Acquire) == mailbox::PARKED {
            // SAFETY: the block is this process's own, and its thread continues only when the
            // mailbox says so.
            return unsafe { hand_over(block(), connection) };
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    if worker_word().load(Ordering::Acquire) != Presence::Absent {
        // SAFETY: the block is a static, and its thread has written the word once.
        let tid = unsafe { (*block()).tid.load(Ordering::Relaxed) };
        return busy(tid, connection);
    }
    let name = THREAD_NAME.as_bytes();
    let mut others = procfs::threads()
        .into_iter()
        .filter(|tid| procfs::name(*tid).is_some_and(|comm| comm == name))
        .peekable();
    let Some(first) = others.peek().copied() else {
        return make(connection);
    };
    for tid in others {
        let Some((at, version)) = parked_block(tid) else {
            continue;
        };
        if version != midair_record::VERSION {
            let mut reply = ConnectReply::new(outcome::OTHER_VERSION);
            (reply.tid, reply.error) = (tid.cast_unsigned(), version.cast_signed());
            return Assignment::Refused(reply.into(), connection);
        }
        // SAFETY: `parked_block` has found a whole block of the engine's, of our version, in memory
        // that may be written. Its thread has parked. From then on the thread and the block exist
        // as long as the process does (`midair_guest::enter`).
        return unsafe { hand_over(at, connection) };
    }
    busy(first.cast_unsigned(), connection)
}

fn failed(step: u32, errno: c_int, connection: VerifiedFd) -> Assignment {
    let mut reply = ConnectReply::new(outcome::FAILED);
    (reply.step, reply.error) = (step, errno);
    Assignment::Refused(reply.into(), connection)
}

fn last_errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Returns the block that a thread is parked on and the block's version, if it is a block of the
/// engine's.
///
/// Any thread of the program can have the worker's name and wait on any word. So everything is read
/// through the kernel, without trusting the address. A block of our own version that is returned
/// can be written to: it lies in anonymous private memory, as the engine maps it, and the block
/// itself says that it starts there.
fn parked_block(tid: i32) -> Option<(*mut BootBlock, u32)> {
    let at = procfs::futex_address(tid)?.checked_sub(MAILBOX_OFFSET)?;
    let long = |member: usize| {
        let mut bytes = [0; 8];
        let readable = bounded::copy(at.checked_add(member)?, &mut bytes);
        readable.then(|| u64::from_ne_bytes(bytes))
    };
    let word = |member: usize| {
        let mut bytes = [0; 4];
        let readable = bounded::copy(at.checked_add(member)?, &mut bytes);
        readable.then(|| u32::from_ne_bytes(bytes))
    };
    if !at.is_multiple_of(align_of::<BootBlock>()) || long(offset_of!(BootBlock, magic))? != MAGIC {
        return None;
    }
    let block = std::ptr::with_exposed_provenance_mut(at);
    let version = word(offset_of!(BootBlock, version))?;
    if version != midair_record::VERSION {
        // Of another version nothing else is known, so nothing else is checked.
        return Some((block, version));
    }
    let whole = at..at.checked_add(size_of::<BootBlock>())?;
    let good = long(offset_of!(BootBlock, data_base))? == at as u64
        && word(MAILBOX_OFFSET)? == mailbox::PARKED
        && procfs::is_anonymous_and_writable(&whole);
    good.then_some((block, version))
}

/// Hands `connection` over to the parked worker thread whose block is `at`.
///
/// # Safety
/// `at` is the block of a worker thread, and stays mapped and writable.
unsafe fn hand_over(at: *mut BootBlock, connection: VerifiedFd) -> Assignment {
    // SAFETY: the caller promises that the block is mapped. These fields are atomics, which any
    // thread may access.
    let (word, tid) = unsafe { (&(*at).mailbox, (*at).tid.load(Ordering::Relaxed)) };
    if word.load(Ordering::Acquire) != mailbox::PARKED {
        return busy(tid, connection);
    }
    let Some(copy) = connection.duplicate(0) else {
        return failed(step::SOCKET, last_errno(), connection);
    };
    // SAFETY: as above.
    let handed = unsafe { &(*at).handed };
    let left = copy.into_parts();
    // An exchange is made and no plain store: whoever takes a number out of the word owns the
    // descriptor.
    let forgotten = handed.swap(left.0.cast_unsigned().wrapping_add(1), Ordering::AcqRel);
    if forgotten != 0 {
        drop(VerifiedFd::new(forgotten.wrapping_sub(1).cast_signed()));
    }
    let changed = word.compare_exchange(
        mailbox::PARKED,
        mailbox::HANDED,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if changed.is_err() {
        // An attacher that traces was faster. The thread may already have found the connection and
        // closed it.
        if handed.swap(0, Ordering::AcqRel) != 0 {
            drop(VerifiedFd::from_parts(left));
        }
        return busy(tid, connection);
    }
    let wakeup = Wakeup {
        tid,
        word: word.as_ptr(),
    };
    Assignment::Woken { wakeup, connection }
}

/// Makes the worker thread. It starts with the listener's signal mask: all signals blocked.
fn make(connection: VerifiedFd) -> Assignment {
    let Some(number) = free_number() else {
        return failed(step::RECEIVE, libc::EMFILE, connection);
    };
    worker_word().store(Presence::Present, Ordering::Release);
    // The thread gets the connection itself and no copy, so that no descriptor stays behind here.
    let left = connection.into_parts();
    // SAFETY: no thread uses the block, since only the listener makes worker threads. Zero is a
    // valid value of each field.
    unsafe {
        NEAR_FILE.0.get().write(Some(left.1));
        block().write_bytes(0, 1);
        (*block()).magic = MAGIC;
        (*block()).version = midair_record::VERSION;
        (*block()).fd_near.store(left.0, Ordering::Relaxed);
        (*block()).fd_far.store(-1, Ordering::Relaxed);
        (*block()).library_fd.store(number, Ordering::Relaxed);
        (*block()).patience_ms = PATIENCE;
    }
    // SAFETY: `main` takes no argument.
    let made = unsafe { crate::listener::spawn(main, STACK) };
    match made {
        Ok(()) => Assignment::Made,
        Err(errno) => {
            worker_word().store(Presence::Absent, Ordering::Release);
            failed(step::THREAD, errno, VerifiedFd::from_parts(left))
        }
    }
}

/// Returns a descriptor number by which no library was loaded and that is free now.
fn free_number() -> Option<RawFd> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the out pointer is valid.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let top = if got == 0 { limit.rlim_cur } else { 256 };
    let top = RawFd::try_from(top.min(NUMBERS)).ok()?;
    let loaded = loaded_by_number();
    let last = LAST_NUMBER.load(Ordering::Relaxed);
    // Numbers in the first part come first, and in each part the highest.
    let place = |number: RawFd| (NEAR.contains(&number), number);
    let near = NEAR.rev().filter(|number| *number < top);
    let rest = (3..top).rev().filter(|number| !NEAR.contains(number));
    let unused = |number: &RawFd| last == RawFd::MAX || place(*number) < place(last);
    near.chain(rest).filter(unused).find(|number| {
        // SAFETY: the call takes numbers.
        let open = unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
        !open && !loaded.get().contains(number)
    })
}

/// This is not `/proc/self`: that is the main thread, which may have ended, and then has no
/// descriptors.
const PATH: &[u8] = b"/proc/thread-self/fd/";

/// Returns the numbers by which libraries were loaded, ours or not. Nothing is allocated under the
/// loader's lock.
fn loaded_by_number() -> Numbers {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid struct with a NUL-terminated name or null. It passes
        // `found` as it was given below.
        let (name, found) = unsafe {
            if (*info).dlpi_name.is_null() {
                return 0;
            }
            (
                CStr::from_ptr((*info).dlpi_name),
                &mut *found.cast::<Numbers>(),
            )
        };
        let number = name.to_bytes().strip_prefix(PATH);
        let number = number.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        if let Some(number) = number
            && let Some(entry) = found.list.get_mut(found.count)
        {
            *entry = number;
            found.count += 1;
        }
        0
    }
    let mut found = Numbers {
        list: [0; 256],
        count: 0,
    };
    // SAFETY: the callback has the right type, and the data passed to it outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    found
}

struct Numbers {
    list: [RawFd; 256],
    count: usize,
}

impl Numbers {
    fn get(&self) -> &[RawFd] {
        self.list.get(..self.count).unwrap_or(&[])
    }
}

fn path(number: RawFd) -> CString {
    let mut path = PATH.to_vec();
    path.extend_from_slice(number.to_string().as_bytes());
    CString::new(path).unwrap_or_default()
}

type Entry = unsafe extern "C" fn(*mut BootBlock);

fn entry_of(library: *mut c_void) -> Option<Entry> {
    let name = CString::new(ENTRY).ok()?;
    // SAFETY: the handle is one that dlopen gave, and the name is NUL-terminated. The function has
    // this type in every library that has it.
    unsafe { crate::library::function(libc::dlsym(library, name.as_ptr())) }
}

/// Returns the entry function of a midair library that is loaded already. A thread that has ended
/// may have loaded it, or the process that this one was forked from. A second copy would hook the
/// same tables on top of the first.
fn entry_here() -> Option<Entry> {
    loaded_by_number().get().iter().find_map(|number| {
        // SAFETY: the call loads nothing, and the library is never unloaded.
        let library = unsafe {
            libc::dlopen(
                path(*number).as_ptr(),
                libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD,
            )
        };
        (!library.is_null()).then(|| entry_of(library)).flatten()
    })
}

/// The function that the thread runs.
extern "C" fn main(_: *mut c_void) -> *mut c_void {
    let at = block();
    set_attributes();
    // SAFETY: the block is this thread's own, see `make`.
    unsafe {
        let tid = libc::gettid().cast_unsigned();
        (*at).tid.store(tid, Ordering::Relaxed);
    };
    word().store(mailbox::STARTED, Ordering::Release);
    // SAFETY: as above.
    let (near, file) = unsafe {
        let near = (*at).fd_near.load(Ordering::Relaxed);
        (near, *NEAR_FILE.0.get())
    };
    let result = std::panic::catch_unwind(|| {
        // SAFETY: this thread owns the descriptor. It is closed below and nowhere else, except by
        // the library, which records that in the block.
        serve(unsafe { BorrowedFd::borrow_raw(near) })
    })
    .unwrap_or(Ok(()));
    // SAFETY: the block is this thread's own. `serve` or the library may have taken the connection:
    // then it is -1, which is no descriptor.
    let left = unsafe { (*at).fd_near.swap(-1, Ordering::Relaxed) };
    // A library that was woken later has stored another connection there.
    let connection = match file {
        Some(file) if left == near => Some(VerifiedFd::from_parts((left, file))),
        _ => VerifiedFd::new(left),
    };
    if let Some(connection) = connection
        && connection.is_ours()
        && let Err(reply) = result
    {
        endpoint::send_reply(connection.as_fd(), &reply);
    }
    word().store(mailbox::ENDED, Ordering::Release);
    // The block is free from here on.
    worker_word().store(Presence::Absent, Ordering::Release);
    std::ptr::null_mut()
}

/// Sets name, scheduling policy and affinity as the engine's boot code does. Policy and affinity
/// are the process's, not the ones of the thread that made the listener.
fn set_attributes() {
    let mut name = [0_u8; 16];
    for (to, from) in name.iter_mut().zip(THREAD_NAME.bytes()) {
        *to = from;
    }
    // SAFETY: the name is NUL-terminated, and the kernel reads or fills plain data. A call that
    // fails leaves the thread as it is.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        let plain: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const plain);
        let mut processors: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if libc::sched_getaffinity(libc::getpid(), size, &raw mut processors) == 0 {
            libc::sched_setaffinity(0, size, &raw const processors);
        }
    }
}

/// Runs everything from the first reply to the end of the library's entry function.
fn serve(connection: BorrowedFd<'_>) -> Result<(), Box<ConnectReply>> {
    let at = block();
    let failure = |step: u32, errno: c_int| {
        let mut reply = Box::new(ConnectReply::new(outcome::FAILED));
        (reply.step, reply.error) = (step, errno);
        reply
    };
    let here = entry_here();
    let mut first = ConnectReply::new(if here.is_some() {
        outcome::LOADED
    } else {
        outcome::SEND
    });
    // SAFETY: the block is this thread's own.
    (first.tid, first.library_fd) = unsafe {
        let tid = (*at).tid.load(Ordering::Relaxed);
        (tid, (*at).library_fd.load(Ordering::Relaxed))
    };
    first.gpu = crate::serve::has_gpu_runtime().into();
    if !endpoint::send_reply(connection, &first) {
        return Ok(());
    }
    let entry = match here {
        Some(entry) => entry,
        None => {
            if !endpoint::readable(connection, PATIENCE as c_int) {
                return Err(failure(step::SILENCE, 0));
            }
            let (received, library) =
                receive(connection).map_err(|errno| failure(step::RECEIVE, errno))?;
            word().store(mailbox::TALKING, Ordering::Release);
            let Some(library) = library else {
                // A message without a descriptor means that nothing is to be loaded, as the
                // attacher intends. No message at all means that the attacher is gone.
                return if received {
                    Ok(())
                } else {
                    Err(failure(step::SILENCE, 0))
                };
            };
            load(library)?
        }
    };
    word().store(mailbox::TALKING, Ordering::Release);
    // SAFETY: the library's entry function gets this thread's live block, which exists as long as
    // the process does.
    unsafe { entry(at) };
    // SAFETY: the block is this thread's own.
    let (failed_at, errno) = unsafe {
        let step = (*at).error_step.load(Ordering::Relaxed);
        (step, (*at).error.load(Ordering::Relaxed))
    };
    if failed_at == 0 {
        Ok(())
    } else {
        Err(failure(failed_at, errno))
    }
}

/// Receives the attacher's message. Returns whether there was one, and the descriptor that came
/// with it.
fn receive(connection: BorrowedFd<'_>) -> Result<(bool, Option<VerifiedFd>), c_int> {
    let mut words = [0_u8; 64];
    let mut part = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: words.len(),
    };
    let mut control = [0_u64; 3];
    // SAFETY: the struct is plain data, and zero is a value of each field.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the buffers outlive the call. They have space for one descriptor; the kernel closes
    // any further ones.
    let got = unsafe {
        libc::recvmsg(
            connection.as_raw_fd(),
            &raw mut message,
            libc::MSG_CMSG_CLOEXEC,
        )
    };
    if got < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel filled the control buffer, and the header is inside it or null.
    let fd = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let sent = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && (*header).cmsg_len as usize == libc::CMSG_LEN(4) as usize;
        sent.then(|| libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned())
    };
    Ok((got > 0, fd.and_then(VerifiedFd::new)))
}

/// Loads the library under the descriptor number that the attacher sent.
fn load(library: VerifiedFd) -> Result<Entry, Box<ConnectReply>> {
    let mut reply = Box::new(ConnectReply::new(outcome::FAILED));
    // SAFETY: the block is this thread's own.
    let wanted = unsafe { (*block()).library_fd.load(Ordering::Relaxed) };
    let Some(held) = library.duplicate(wanted) else {
        (reply.step, reply.error) = (step::RECEIVE, last_errno());
        return Err(reply);
    };
    drop(library);
    let number = held.number();
    // SAFETY: the block is this thread's own.
    unsafe { (*block()).library_fd.store(number, Ordering::Relaxed) };
    LAST_NUMBER.store(wanted, Ordering::Relaxed);
    let path = path(number);
    // SAFETY: the path is NUL-terminated. The library's constructors run, and the attacher wants
    // that code to run here.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        reply.step = match can_be_opened(&path) {
            true => step::LOAD,
            false => step::PATH,
        };
    }
    drop(held);
    if library.is_null() {
        // SAFETY: dlerror returns null or a text that is valid until this thread's next dl call.
        unsafe {
            let text = libc::dlerror();
            if !text.is_null() {
                reply.set_message(CStr::from_ptr(text).to_bytes());
            }
        }
        return Err(reply);
    }
    reply.step = step::ENTRY;
    entry_of(library).ok_or(reply)
}

/// Whether a file can be opened for reading, as the loader opens it.
fn can_be_opened(path: &CStr) -> bool {
    // SAFETY: the path is NUL-terminated. This function owns the descriptor that it opens, and
    // closes it.
    unsafe {
        let number = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        number >= 0 && libc::close(number) == 0
    }
}

/// Resets the worker's state in a forked child, since the thread was the parent's. Uses atomics
/// only.
pub(crate) fn forked() {
    worker_word().store(Presence::Absent, Ordering::Release);
}

#[cfg(test)]
pub(crate) mod tests;
