//! Our thread as the listener makes it: the counterpart of the engine's boot code, for a process that is entered without tracing.
//!
//! One at most. It lives as the engine's does (`midair_record::boot`): it loads the library that the attacher sends, calls its entry
//! and is parked by it on the mailbox of its boot block; so an attacher that traces finds and wakes it like one of its own. The block
//! is a static of ours: no memory is mapped, and none is left.

use crate::bounded;
use crate::door;
use crate::lock::agent_word;
use crate::procfs;
use midair_guest::number::{Identity, Own};
use midair_record::boot::{BootBlock, ENTRY, MAGIC, MAILBOX_OFFSET, THREAD_NAME, mailbox, step};
use midair_record::knock::{Answer, outcome};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Bytes of its stack: what the engine gives it.
const STACK: usize = 1024 * 1024;
/// How long it waits for the attacher's first words, in ms.
const PATIENCE: u32 = 5000;
/// Numbers that libraries are loaded by begin below this one and go down, as the engine's do.
const NUMBERS: u64 = 1024;

/// How long a thread of ours that is about to be free is waited for, in ms.
const ENDING: u32 = 100;

struct Block(UnsafeCell<MaybeUninit<BootBlock>>);
// SAFETY: only who has claimed `agent_word` writes the plain fields, and then the one thread that was made for it.
unsafe impl Sync for Block {}
static BLOCK: Block = Block(UnsafeCell::new(MaybeUninit::zeroed()));

/// What `fd_near` of the block means, when the thread begins.
struct Near(UnsafeCell<Option<Identity>>);
// SAFETY: as for the block.
unsafe impl Sync for Near {}
static NEAR: Near = Near(UnsafeCell::new(None));

fn block() -> *mut BootBlock {
    BLOCK.0.get().cast()
}

/// The word in the block that others wait on.
fn word() -> &'static std::sync::atomic::AtomicU32 {
    // SAFETY: a static; zeroes are a value of an atomic, and it is never moved.
    unsafe { &(*block()).mailbox }
}

/// The number that was last used here: never again, since the loader knows libraries by path.
static LAST_NUMBER: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// What became of a wish to have the thread.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A new thread has the connection, and answers on it.
    Made,
    /// The parked thread has a copy, and is to be woken once the connection was answered on and closed.
    Woken {
        /// The thread.
        waking: Waking,
        /// The listener's own descriptor.
        connection: Own,
    },
    /// This is to be answered.
    No(Box<Answer>, Own),
}

/// A parked thread that has its connection, and has not been woken yet.
#[derive(Debug)]
pub(crate) struct Waking {
    /// Its id.
    pub(crate) tid: u32,
    /// Address of the word that it waits on.
    word: *mut u32,
}

impl Waking {
    /// Wakes it.
    pub(crate) fn now(self) {
        for flag in [libc::FUTEX_PRIVATE_FLAG, 0] {
            // SAFETY: waking has no effect on memory, and any address may be named.
            unsafe { libc::syscall(libc::SYS_futex, self.word, libc::FUTEX_WAKE | flag, 1) };
        }
    }
}

fn busy(tid: u32, connection: Own) -> Taken {
    let mut answer = Answer::new(outcome::BUSY);
    answer.tid = tid;
    Taken::No(answer.into(), connection)
}

/// Gives `connection` to our thread: the parked one, else a new one.
pub(crate) fn take(connection: Own) -> Taken {
    // One of ours, unless it ended; then whatever the engine made. The last session may be over for its attacher a moment before its
    // thread is parked, or gone.
    for _ in 0..ENDING {
        if agent_word().load(Ordering::Acquire) == 0 {
            break;
        }
        if word().load(Ordering::Acquire) == mailbox::PARKED {
            // SAFETY: the block is this process's, and its thread goes on only when the mailbox says so.
            return unsafe { hand_over(block(), connection) };
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    if agent_word().load(Ordering::Acquire) != 0 {
        // SAFETY: a word that its thread has written once.
        return busy(unsafe { (*block()).tid }, connection);
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
            let mut answer = Answer::new(outcome::OTHER_VERSION);
            (answer.tid, answer.error) = (tid.cast_unsigned(), version.cast_signed());
            return Taken::No(answer.into(), connection);
        }
        // SAFETY: a thread of our name waits on a word of a block with our magic and version: it is one of the engine's, mapped for as
        // long as its thread lives, and its thread goes on only when the mailbox says so.
        return unsafe { hand_over(at, connection) };
    }
    busy(first.cast_unsigned(), connection)
}

fn failed(step: u32, errno: c_int, connection: Own) -> Taken {
    let mut answer = Answer::new(outcome::FAILED);
    (answer.step, answer.error) = (step, errno);
    Taken::No(answer.into(), connection)
}

fn last_errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The block that a thread waits on, and its version, if it is one; read without trusting that it is.
fn parked_block(tid: i32) -> Option<(*mut BootBlock, u32)> {
    let at = procfs::futex_address(tid)?.checked_sub(MAILBOX_OFFSET)?;
    let mut head = [0_u8; MAILBOX_OFFSET];
    if !at.is_multiple_of(align_of::<BootBlock>()) || !bounded::copy(at, &mut head) {
        return None;
    }
    let (magic, version) = head.split_at(offset_of!(BootBlock, version));
    let magic = u64::from_ne_bytes(magic.try_into().ok()?);
    let version = u32::from_ne_bytes(version.try_into().ok()?);
    (magic == MAGIC).then_some((std::ptr::with_exposed_provenance_mut(at), version))
}

/// # Safety
/// `at` is the live block of a thread of ours.
unsafe fn hand_over(at: *mut BootBlock, connection: Own) -> Taken {
    // SAFETY: the caller's promise; atomics are read and written by everybody.
    let (word, tid) = unsafe { (&(*at).mailbox, (*at).tid) };
    if word.load(Ordering::Acquire) != mailbox::PARKED {
        return busy(tid, connection);
    }
    let Some(copy) = connection.copy(0) else {
        return failed(step::SOCKET, last_errno(), connection);
    };
    // SAFETY: as above.
    let handed = unsafe { &(*at).handed };
    let left = copy.leave();
    handed.store(left.0.cast_unsigned().wrapping_add(1), Ordering::Release);
    let changed = word.compare_exchange(
        mailbox::PARKED,
        mailbox::HANDED,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if changed.is_err() {
        // An attacher that traces was quicker. The thread may have found the connection already, and hung up on it.
        if handed.swap(0, Ordering::AcqRel) != 0 {
            drop(Own::again(left));
        }
        return busy(tid, connection);
    }
    let waking = Waking {
        tid,
        word: word.as_ptr(),
    };
    Taken::Woken { waking, connection }
}

/// Makes the thread. The listener's signal mask, all blocked, is its own from the beginning.
fn make(connection: Own) -> Taken {
    let Some(number) = free_number() else {
        return failed(step::RECEIVE, libc::EMFILE, connection);
    };
    agent_word().store(1, Ordering::Release);
    // The connection itself, and no copy: nothing of it stays behind here.
    let left = connection.leave();
    // SAFETY: no thread has the block; the listener is the only one that makes any. Zeroes are a value of each field.
    unsafe {
        NEAR.0.get().write(Some(left.1));
        block().write_bytes(0, 1);
        (*block()).magic = MAGIC;
        (*block()).version = midair_record::VERSION;
        (*block()).fd_near = left.0;
        (*block()).fd_far = -1;
        (*block()).library_fd = number;
        (*block()).patience_ms = PATIENCE;
    }
    // SAFETY: `main` takes no argument.
    let made = unsafe { crate::listener::spawn(main, STACK) };
    match made {
        Ok(()) => Taken::Made,
        Err(errno) => {
            agent_word().store(0, Ordering::Release);
            failed(step::THREAD, errno, Own::again(left))
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

/// Not `/proc/self`: that is the first thread, which may have ended, and then has no descriptors.
const PATH: &[u8] = b"/proc/thread-self/fd/";

/// Libraries that were loaded by descriptor, of ours or not. Nothing is allocated under the loader's lock.
fn loaded_by_number() -> Numbers {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid struct with a NUL-terminated name or none, and `found` as it was given.
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
            && let Some(place) = found.list.get_mut(found.count)
        {
            *place = number;
            found.count += 1;
        }
        0
    }
    let mut found = Numbers {
        list: [-1; 256],
        count: 0,
    };
    // SAFETY: the callback fits, and what it is passed outlives the call.
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
    // SAFETY: a handle that dlopen gave, and a NUL-terminated name; the function has this type in every library that has it.
    unsafe { crate::library::function(libc::dlsym(library, name.as_ptr())) }
}

/// The entry of a library of ours that is loaded already: by a thread that has ended, or by the process this one was forked from. A
/// second copy would put itself over the first in the same tables.
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

/// The thread.
extern "C" fn main(_: *mut c_void) -> *mut c_void {
    let at = block();
    become_ours();
    // SAFETY: this thread's own block; see `make`.
    unsafe { (*at).tid = libc::gettid().cast_unsigned() };
    word().store(mailbox::STARTED, Ordering::Release);
    // SAFETY: as above. `serve` or the library may have taken the connection: then it is -1.
    let (near, file) = unsafe { ((*at).fd_near, *NEAR.0.get()) };
    let failure = std::panic::catch_unwind(|| {
        // SAFETY: this thread owns it; it is closed below and nowhere else, except by the library, which says so in the block.
        serve(unsafe { BorrowedFd::borrow_raw(near) })
    })
    .unwrap_or(Ok(()));
    // SAFETY: this thread's own block.
    let left = unsafe { std::mem::replace(&mut (*at).fd_near, -1) };
    // A library that was woken later has put another connection there.
    let connection = match file {
        Some(file) if left == near => Some(Own::again((left, file))),
        _ => Own::new(left),
    };
    if let Some(connection) = connection
        && connection.is_ours()
        && let Err(answer) = failure
    {
        door::answer(connection.as_fd(), &answer);
    }
    word().store(mailbox::ENDED, Ordering::Release);
    // The block is free from here on.
    agent_word().store(0, Ordering::Release);
    std::ptr::null_mut()
}

/// Name, policy and processors as the engine's boot code sets them: the process's, not those of whoever made the listener.
fn become_ours() {
    let mut name = [0_u8; 16];
    for (to, from) in name.iter_mut().zip(THREAD_NAME.bytes()) {
        *to = from;
    }
    // SAFETY: a NUL-terminated name, plain data for the kernel to read or fill. What fails leaves the thread as it is.
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

/// From the first answer to the end of the library's entry.
fn serve(connection: BorrowedFd<'_>) -> Result<(), Box<Answer>> {
    let at = block();
    let no = |step: u32, errno: c_int| {
        let mut answer = Box::new(Answer::new(outcome::FAILED));
        (answer.step, answer.error) = (step, errno);
        answer
    };
    let here = entry_here();
    let mut first = Answer::new(if here.is_some() {
        outcome::LOADED
    } else {
        outcome::SEND
    });
    // SAFETY: this thread's own block.
    (first.tid, first.library_fd) = unsafe { ((*at).tid, (*at).library_fd) };
    first.gpu = crate::serve::has_gpu_runtime().into();
    if !door::answer(connection, &first) {
        return Ok(());
    }
    let entry = match here {
        Some(entry) => entry,
        None => {
            if !door::readable(connection, PATIENCE as c_int) {
                return Err(no(step::SILENCE, 0));
            }
            let (said, library) = receive(connection).map_err(|errno| no(step::RECEIVE, errno))?;
            word().store(mailbox::TALKING, Ordering::Release);
            let Some(library) = library else {
                // "none": nothing is to be loaded, and that was meant so. No word at all: the attacher is gone.
                return if said {
                    Ok(())
                } else {
                    Err(no(step::SILENCE, 0))
                };
            };
            load(library)?
        }
    };
    word().store(mailbox::TALKING, Ordering::Release);
    // SAFETY: the library's entry gets this thread's live block, which is mapped for ever.
    unsafe { entry(at) };
    // SAFETY: this thread's own block again.
    let (failed_at, errno) = unsafe { ((*at).error_step, (*at).error) };
    if failed_at == 0 {
        Ok(())
    } else {
        Err(no(failed_at, errno))
    }
}

/// Takes the attacher's message: whether there was one, and the descriptor that came with it.
fn receive(connection: BorrowedFd<'_>) -> Result<(bool, Option<Own>), c_int> {
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
    // SAFETY: the buffers outlive the call. There is room for one descriptor; the kernel closes any more.
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
    Ok((got > 0, fd.and_then(Own::new)))
}

/// Loads the library by the number that the attacher was told.
fn load(library: Own) -> Result<Entry, Box<Answer>> {
    let mut answer = Box::new(Answer::new(outcome::FAILED));
    // SAFETY: this thread's own block.
    let wanted = unsafe { (*block()).library_fd };
    let Some(held) = library.copy(wanted) else {
        (answer.step, answer.error) = (step::RECEIVE, last_errno());
        return Err(answer);
    };
    drop(library);
    let number = held.number();
    // SAFETY: this thread's own block.
    unsafe { (*block()).library_fd = number };
    LAST_NUMBER.store(wanted, Ordering::Relaxed);
    let path = path(number);
    // SAFETY: a NUL-terminated path. What runs in its initialisers is what the attacher wants to run here.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        answer.step = match can_be_opened(&path) {
            true => step::LOAD,
            false => step::PATH,
        };
    }
    drop(held);
    if library.is_null() {
        // SAFETY: dlerror gives null or a text that is valid until this thread's next dl call.
        unsafe {
            let text = libc::dlerror();
            if !text.is_null() {
                answer.say(CStr::from_ptr(text).to_bytes());
            }
        }
        return Err(answer);
    }
    answer.step = step::ENTRY;
    entry_of(library).ok_or(answer)
}

/// Whether a file can be opened for reading, as the loader opens it.
fn can_be_opened(path: &CStr) -> bool {
    // SAFETY: a NUL-terminated path; what is opened is this function's, which closes it.
    unsafe {
        let number = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        number >= 0 && libc::close(number) == 0
    }
}

/// In a forked child: the thread was the parent's. Atomics only.
pub(crate) fn forked() {
    agent_word().store(0, Ordering::Release);
}
