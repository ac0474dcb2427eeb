//! The worker thread as the listener makes it: the counterpart of the engine's boot code, for a
//! process that is attached to without tracing.
//!
//! There is at most one. It lives as the engine's does (`midair_record::boot`): it loads the
//! library that the attacher sends, calls its entry function, and is parked by it on the mailbox of
//! its boot block; so an attacher that traces finds and wakes it like one of the engine's. The
//! block is a static of this library: no memory is mapped, and none is left behind.
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
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Stack size in bytes, as the engine's.
const STACK: usize = 1024 * 1024;
/// How long it waits for the attacher's first message, in ms.
const PATIENCE: u32 = 5000;
/// Descriptor numbers that libraries are loaded by begin below this one and go down, as the
/// engine's do.
const NUMBERS: u64 = 1024;

/// How long a worker thread that is about to be free is waited for, in ms.
const ENDING: u32 = 100;

struct Block(UnsafeCell<MaybeUninit<BootBlock>>);
// SAFETY: only the thread that has claimed `worker_word` writes the plain fields, and then the one
// thread that was made for it.
unsafe impl Sync for Block {}
static BLOCK: Block = Block(UnsafeCell::new(MaybeUninit::zeroed()));

/// The file that `fd_near` of the block refers to, when the thread begins.
struct NearFile(UnsafeCell<Option<Identity>>);
// SAFETY: as for the block.
unsafe impl Sync for NearFile {}
static NEAR_FILE: NearFile = NearFile(UnsafeCell::new(None));

fn block() -> *mut BootBlock {
    BLOCK.0.get().cast()
}

/// The futex word in the block.
fn word() -> &'static std::sync::atomic::AtomicU32 {
    // SAFETY: a static; zero is a valid value of an atomic, and it is never moved.
    unsafe { &(*block()).mailbox }
}

/// The number that was last used here. It is never used again, since the loader identifies
/// libraries by path.
static LAST_NUMBER: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// What became of a connection that was to be given to the worker thread.
#[derive(Debug)]
pub(crate) enum Assignment {
    /// A new thread has the connection, and replies on it.
    Made,
    /// The parked thread has a copy. It is to be woken once the reply was sent and the connection
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

/// A parked thread that has its connection, and has not been woken yet.
#[derive(Debug)]
pub(crate) struct Wakeup {
    /// Its thread id.
    pub(crate) tid: u32,
    /// Address of the futex word that it waits on.
    word: *mut u32,
}

impl Wakeup {
    /// Wakes the thread.
    pub(crate) fn wake(self) {
        for flag in [libc::FUTEX_PRIVATE_FLAG, 0] {
            // SAFETY: waking does not affect memory, and any address may be passed.
            unsafe { libc::syscall(libc::SYS_futex, self.word, libc::FUTEX_WAKE | flag, 1) };
        }
    }
}

fn busy(tid: u32, connection: VerifiedFd) -> Assignment {
    let mut reply = ConnectReply::new(outcome::BUSY);
    reply.tid = tid;
    Assignment::Refused(reply.into(), connection)
}

/// Gives `connection` to the worker thread: the parked one, or else a new one.
pub(crate) fn assign(connection: VerifiedFd) -> Assignment {
    // First the listener's own worker thread, unless it ended; then one that the engine made. For
    // its attacher the last session may be over shortly before its thread is parked, or has ended.
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
        // SAFETY: a static, and a word that its thread has written once.
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
        // that may be written. Its thread has parked, and from then on it and the block stay as
        // long as the process (`midair_guest::enter`).
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

/// The block that a thread is parked on, and its version, if it is a block of the engine's.
///
/// Any thread of the program can have the worker's name and wait on any word. So everything is read
/// through the kernel, without trusting the address, and what is returned for our own version can be
/// written to: anonymous private memory, as the engine maps it, in which the block says of itself
/// that it begins there.
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
        // Of another version nothing else is known, and nothing else is asked.
        return Some((block, version));
    }
    let whole = at..at.checked_add(size_of::<BootBlock>())?;
    let good = long(offset_of!(BootBlock, data_base))? == at as u64
        && word(MAILBOX_OFFSET)? == mailbox::PARKED
        && procfs::is_anonymous_and_writable(&whole);
    good.then_some((block, version))
}

/// # Safety
/// `at` is the block of a worker thread, and stays mapped and writable.
unsafe fn hand_over(at: *mut BootBlock, connection: VerifiedFd) -> Assignment {
    // SAFETY: the caller's promise; atomics are accessed by everybody.
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
    // An exchange and no plain store: whoever takes a number out of there owns what it refers to.
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
        // An attacher that traces was faster. The thread may have found the connection already, and
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

/// Makes the thread. It starts with the listener's signal mask: all signals blocked.
fn make(connection: VerifiedFd) -> Assignment {
    let Some(number) = free_number() else {
        return failed(step::RECEIVE, libc::EMFILE, connection);
    };
    worker_word().store(Presence::Present, Ordering::Release);
    // The connection itself, and no copy: no descriptor stays behind here.
    let left = connection.into_parts();
    // SAFETY: no thread uses the block; the listener is the only one that makes a worker thread.
    // Zero is a valid value of each field.
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

/// A descriptor number that no library was loaded by and that is free now.
fn free_number() -> Option<RawFd> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid out pointer.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let top = if got == 0 { limit.rlim_cur } else { 256 };
    let top = RawFd::try_from(top.min(NUMBERS)).ok()?;
    let loaded = loaded_by_number();
    let last = LAST_NUMBER.load(Ordering::Relaxed);
    (3..top.min(last)).rev().find(|number| {
        // SAFETY: takes numbers.
        let open = unsafe { libc::fcntl(*number, libc::F_GETFD) } >= 0;
        !open && !loaded.get().contains(number)
    })
}

/// Not `/proc/self`: that is the main thread, which may have ended, and then has no descriptors.
const PATH: &[u8] = b"/proc/thread-self/fd/";

/// Numbers that libraries were loaded by, ours or not. Nothing is allocated under the loader's
/// lock.
fn loaded_by_number() -> Numbers {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid struct with a NUL-terminated name or null, and `found`
        // as it was given.
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
        list: [-1; 256],
        count: 0,
    };
    // SAFETY: the callback has the right type, and what it is passed outlives the call.
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
    // SAFETY: a handle that dlopen gave, and a NUL-terminated name; the function has this type in
    // every library that has it.
    unsafe { crate::library::function(libc::dlsym(library, name.as_ptr())) }
}

/// The entry function of a library of ours that is loaded already: by a thread that has ended, or
/// by the process that this one was forked from. A second copy would hook the same tables on top of
/// the first.
fn entry_here() -> Option<Entry> {
    loaded_by_number().get().iter().find_map(|number| {
        // SAFETY: loads nothing; the library is never unloaded.
        let library = unsafe {
            libc::dlopen(
                path(*number).as_ptr(),
                libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD,
            )
        };
        (!library.is_null()).then(|| entry_of(library)).flatten()
    })
}

/// The thread's function.
extern "C" fn main(_: *mut c_void) -> *mut c_void {
    let at = block();
    set_attributes();
    // SAFETY: this thread's own block; see `make`.
    unsafe {
        let tid = libc::gettid().cast_unsigned();
        (*at).tid.store(tid, Ordering::Relaxed);
    };
    word().store(mailbox::STARTED, Ordering::Release);
    // SAFETY: as above. `serve` or the library may have taken the connection: then it is -1.
    let (near, file) = unsafe {
        let near = (*at).fd_near.load(Ordering::Relaxed);
        (near, *NEAR_FILE.0.get())
    };
    let result = std::panic::catch_unwind(|| {
        // SAFETY: this thread owns it; it is closed below and nowhere else, except by the library,
        // which records that in the block.
        serve(unsafe { BorrowedFd::borrow_raw(near) })
    })
    .unwrap_or(Ok(()));
    // SAFETY: this thread's own block.
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

/// Sets name, scheduling policy and affinity as the engine's boot code does: the process's, not
/// those of the thread that made the listener.
fn set_attributes() {
    let mut name = [0_u8; 16];
    for (to, from) in name.iter_mut().zip(THREAD_NAME.bytes()) {
        *to = from;
    }
    // SAFETY: a NUL-terminated name, and plain data for the kernel to read or fill. What fails
    // leaves the thread as it is.
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

/// From the first reply to the end of the library's entry function.
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
    // SAFETY: this thread's own block.
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
                // "none": nothing is to be loaded, as the attacher intends. No message at all: the
                // attacher is gone.
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
    // SAFETY: the library's entry function gets this thread's live block, which stays as long as
    // the process lives.
    unsafe { entry(at) };
    // SAFETY: this thread's own block again.
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
    // SAFETY: plain data; zero is a value of each field.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the buffers outlive the call. There is space for one descriptor; the kernel closes
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
    // SAFETY: the kernel filled the control buffer; the header is inside it or null.
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

/// Loads the library by the number that the attacher was told.
fn load(library: VerifiedFd) -> Result<Entry, Box<ConnectReply>> {
    let mut reply = Box::new(ConnectReply::new(outcome::FAILED));
    // SAFETY: this thread's own block.
    let wanted = unsafe { (*block()).library_fd.load(Ordering::Relaxed) };
    let Some(held) = library.duplicate(wanted) else {
        (reply.step, reply.error) = (step::RECEIVE, last_errno());
        return Err(reply);
    };
    drop(library);
    let number = held.number();
    // SAFETY: this thread's own block.
    unsafe { (*block()).library_fd.store(number, Ordering::Relaxed) };
    LAST_NUMBER.store(wanted, Ordering::Relaxed);
    let path = path(number);
    // SAFETY: a NUL-terminated path. What runs in its constructors is what the attacher wants to
    // run here.
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
    // SAFETY: a NUL-terminated path; what is opened is this function's, which closes it.
    unsafe {
        let number = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        number >= 0 && libc::close(number) == 0
    }
}

/// In a forked child: the thread was the parent's. Uses atomics only.
pub(crate) fn forked() {
    worker_word().store(Presence::Absent, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::time::{Duration, Instant};

    const PAGE: usize = 4096;
    const DEADLINE: Duration = Duration::from_secs(20);

    /// A thread of the program's own that has the worker's name, and waits on a word of what looks
    /// like a parked block.
    struct Pretender {
        page: usize,
        done: Arc<AtomicBool>,
        thread: Option<std::thread::JoinHandle<()>>,
    }

    impl Pretender {
        fn new(sharing: c_int, protection: c_int, begins_there: bool) -> Pretender {
            // SAFETY: a fresh page, which gets the fields of a block, then its protection.
            let page = unsafe {
                let page = libc::mmap(
                    std::ptr::null_mut(),
                    PAGE,
                    libc::PROT_READ | libc::PROT_WRITE,
                    sharing | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                );
                assert_ne!(page, libc::MAP_FAILED);
                let block = page.cast::<BootBlock>();
                (*block).magic = MAGIC;
                (*block).version = midair_record::VERSION;
                (*block).mailbox.store(mailbox::PARKED, Ordering::Relaxed);
                (*block).data_base = if begins_there { page as u64 } else { 0 };
                assert_eq!(libc::mprotect(page, PAGE, protection), 0);
                page.expose_provenance()
            };
            let (done, tid) = (
                Arc::new(AtomicBool::new(false)),
                Arc::new(AtomicU32::new(0)),
            );
            let thread = {
                let (done, tid) = (done.clone(), tid.clone());
                std::thread::spawn(move || {
                    let name = CString::new(THREAD_NAME).unwrap();
                    // SAFETY: a NUL-terminated name; a futex word that is mapped.
                    unsafe {
                        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                        tid.store(libc::gettid().cast_unsigned(), Ordering::Release);
                        while !done.load(Ordering::Acquire) {
                            wait(page + MAILBOX_OFFSET);
                        }
                    }
                })
            };
            let began = Instant::now();
            let waits = || {
                let tid = tid.load(Ordering::Acquire).cast_signed();
                tid != 0 && procfs::futex_address(tid) == Some(page + MAILBOX_OFFSET)
            };
            while !waits() {
                assert!(began.elapsed() < DEADLINE);
                std::thread::yield_now();
            }
            let thread = Some(thread);
            Pretender { page, done, thread }
        }
    }

    impl Drop for Pretender {
        fn drop(&mut self) {
            self.done.store(true, Ordering::Release);
            let thread = self.thread.take().unwrap();
            while !thread.is_finished() {
                let word = std::ptr::with_exposed_provenance_mut(self.page + MAILBOX_OFFSET);
                Wakeup { tid: 0, word }.wake();
                std::thread::yield_now();
            }
            thread.join().unwrap();
            // SAFETY: the page, to which nothing refers any more.
            unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.page), PAGE) };
        }
    }

    /// Returns when it is woken, or the word has changed.
    unsafe fn wait(word: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                mailbox::PARKED,
                std::ptr::null::<libc::timespec>(),
            )
        };
    }

    fn connection() -> (VerifiedFd, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (VerifiedFd::new(ours.into_raw_fd()).unwrap(), theirs)
    }

    /// The thread's name and its address are the program's to choose: nothing may be written there
    /// on their word, or the program would end.
    #[test]
    fn a_thread_that_only_looks_parked_is_given_nothing() {
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        for (sharing, protection, begins_there) in [
            (libc::MAP_PRIVATE, libc::PROT_READ, true),
            (libc::MAP_SHARED, writable, true),
            (libc::MAP_PRIVATE, writable, false),
        ] {
            let pretender = Pretender::new(sharing, protection, begins_there);
            let (ours, _theirs) = connection();
            let Assignment::Refused(reply, ours) = assign(ours) else {
                panic!("it was given the connection");
            };
            assert_eq!(reply.outcome, outcome::BUSY);
            assert!(ours.is_ours());
            drop(pretender);
        }
    }

    /// What cannot be told from a block of the engine's is taken for one. It is memory that may be
    /// written.
    #[test]
    fn a_parked_block_is_given_the_connection() {
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let pretender = Pretender::new(libc::MAP_PRIVATE, writable, true);
        let (ours, _theirs) = connection();
        let Assignment::Woken { wakeup, connection } = assign(ours) else {
            panic!("it was refused");
        };
        assert!(connection.is_ours());
        wakeup.wake();
        let at = std::ptr::with_exposed_provenance::<BootBlock>(pretender.page);
        // SAFETY: the page, as this test made it.
        let handed = unsafe {
            assert_eq!((*at).mailbox.load(Ordering::Acquire), mailbox::HANDED);
            (*at).handed.swap(0, Ordering::AcqRel)
        };
        drop(VerifiedFd::new(handed.cast_signed() - 1));
    }
}
