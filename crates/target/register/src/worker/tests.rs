//! Which threads are parked worker threads, and which only look like one.

use super::*;
use crate::testing::{in_a_child, limit_descriptors, send_byte};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const DEADLINE: Duration = Duration::from_secs(20);

/// Only one test at a time can have threads that look like workers, or use the block.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread of the program's own that has the worker's name and waits on a word of something that
/// looks like a parked block.
pub(crate) struct Pretender {
    page: usize,
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Pretender {
    /// One that cannot be distinguished from a parked worker thread of the engine.
    pub(crate) fn parked() -> Pretender {
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        Pretender::new(libc::MAP_PRIVATE, writable, true, MAGIC)
    }

    /// Takes the connection that the thread was given, if it was given one.
    pub(crate) fn take(&self) -> Option<VerifiedFd> {
        let at = std::ptr::with_exposed_provenance::<BootBlock>(self.page);
        // SAFETY: the page is as `new` made it.
        let handed = unsafe {
            if (*at).mailbox.load(Ordering::Acquire) != mailbox::HANDED {
                return None;
            }
            (*at).handed.swap(0, Ordering::AcqRel)
        };
        VerifiedFd::new(handed.cast_signed() - 1)
    }

    fn new(sharing: c_int, protection: c_int, begins_there: bool, magic: u64) -> Pretender {
        // SAFETY: the page is new. It gets the fields of a block, then its protection.
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
            (*block).magic = magic;
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
                // SAFETY: the name is NUL-terminated, and the futex word is mapped.
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
        // SAFETY: nothing refers to the page any more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.page), PAGE) };
    }
}

/// Waits until the thread is woken or the word has changed. Dropping the [`Pretender`] wakes it.
///
/// # Safety
/// The word has to be mapped.
unsafe fn wait(word: usize) {
    // SAFETY: the caller promises that the word is mapped.
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

pub(crate) fn connection() -> (VerifiedFd, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (VerifiedFd::new(ours.into_raw_fd()).unwrap(), theirs)
}

/// The program chooses the thread's name and its address. Nothing may be written there because of
/// these alone, or the program could crash.
#[test]
fn a_thread_that_only_looks_parked_is_given_nothing() {
    let _alone = alone();
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    for (sharing, protection, begins_there, magic) in [
        (libc::MAP_PRIVATE, libc::PROT_READ, true, MAGIC),
        (libc::MAP_SHARED, writable, true, MAGIC),
        (libc::MAP_PRIVATE, writable, false, MAGIC),
        (libc::MAP_PRIVATE, writable, true, MAGIC ^ 1),
    ] {
        let pretender = Pretender::new(sharing, protection, begins_there, magic);
        let (ours, _theirs) = connection();
        let Assignment::Refused(reply, ours) = assign(ours) else {
            panic!("it was given the connection");
        };
        assert_eq!(reply.outcome, outcome::BUSY);
        assert!(ours.is_ours());
        drop(pretender);
    }
}

/// A block that cannot be distinguished from one of the engine's is taken for one. It lies in
/// memory that may be written.
#[test]
fn a_parked_block_is_given_the_connection() {
    let _alone = alone();
    let pretender = Pretender::parked();
    let (ours, _theirs) = connection();
    let Assignment::Woken { wakeup, connection } = assign(ours) else {
        panic!("it was refused");
    };
    assert!(connection.is_ours());
    wakeup.wake();
    assert!(pretender.take().is_some());
}

/// The attacher learns which of these it was: nothing to load, no peer, or a broken socket.
#[test]
fn what_an_attacher_may_send_is_told_apart() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    send_byte(&theirs, None);
    assert!(matches!(receive(ours.as_fd()), Ok((true, None))));
    let file = tempfile::tempfile().unwrap();
    send_byte(&theirs, Some(file.as_raw_fd()));
    let Ok((true, Some(received))) = receive(ours.as_fd()) else {
        panic!("nothing came");
    };
    let inode = |fd: RawFd| {
        std::fs::metadata(format!("/proc/self/fd/{fd}"))
            .unwrap()
            .ino()
    };
    assert_eq!(inode(received.number()), inode(file.as_raw_fd()));
    drop(theirs);
    assert!(matches!(receive(ours.as_fd()), Ok((false, None))));
    assert!(matches!(receive(file.as_fd()), Err(libc::ENOTSOCK)));
}

/// Loads a library by a descriptor number, as this crate and the engine do, and returns the address
/// of a function of it.
fn load_by_number(number: RawFd, function: &CStr) -> usize {
    // SAFETY: the library has no constructors, and both names are NUL-terminated.
    unsafe {
        let library = libc::dlopen(path(number).as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null());
        let at = libc::dlsym(library, function.as_ptr()).addr();
        assert_ne!(at, 0);
        at
    }
}

fn library(dir: &std::path::Path, name: &str, function: &str) -> std::path::PathBuf {
    let (source, file) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(
        &source,
        format!("void {function}(void *at) {{ (void)at; }}\n"),
    )
    .unwrap();
    let mut compiler = std::process::Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .args([&file, &source]);
    assert!(compiler.status().unwrap().success());
    file
}

/// A midair library that was loaded by a number is found again, though its descriptor is closed.
/// One that is not ours is not.
#[test]
fn a_library_that_is_here_is_not_sent_again() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let theirs = library(dir.path(), "libtheirs.so", "their_function");
    let ours = library(dir.path(), "libours.so", ENTRY);
    // The loader tells libraries apart by their paths, so both numbers are taken at one time.
    let files = [theirs, ours].map(|file| std::fs::File::open(file).unwrap());
    let [first, second] = [0, 1].map(|at: usize| files[at].as_raw_fd());
    load_by_number(first, c"their_function");
    assert!(entry_here().is_none());
    assert!(loaded_by_number().get().contains(&first));
    let at = load_by_number(second, &CString::new(ENTRY).unwrap());
    drop(files);
    assert_eq!(entry_here().map(|entry| entry as usize), Some(at));
    // Neither number is used again.
    assert!(loaded_by_number().get().contains(&second));
    let free = free_number().unwrap();
    assert!(free != first && free != second && free >= 3);
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::fcntl(free, libc::F_GETFD) }, -1);
}

/// The attacher learns why a library could not be loaded, in the loader's words, or that it has not
/// our function.
#[test]
fn why_a_library_cannot_be_used_is_told() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "no library").unwrap();
    let theirs = library(dir.path(), "libtheirs-sent.so", "their_function");
    let sent = |file: &std::path::Path| {
        let number = free_number().unwrap();
        // SAFETY: no worker thread exists, so no other thread uses the block.
        unsafe { (*block()).library_fd.store(number, Ordering::Relaxed) };
        let file = std::fs::File::open(file).unwrap();
        load(VerifiedFd::new(file.into_raw_fd()).unwrap())
    };
    let refused = sent(&text).unwrap_err();
    assert_eq!(refused.step, step::LOAD);
    let said = String::from_utf8_lossy(refused.message()).into_owned();
    assert!(said.contains("/proc/thread-self/fd/"), "{said}");
    assert_eq!(sent(&theirs).unwrap_err().step, step::ENTRY);
}

#[test]
fn whether_a_file_can_be_opened_is_found_without_keeping_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let path = CString::new(file.to_str().unwrap()).unwrap();
    assert!(!can_be_opened(&path));
    std::fs::write(&file, "").unwrap();
    assert!(can_be_opened(&path));
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let copies = open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|of| of == file));
    assert_eq!(copies.count(), 0);
}

/// Numbers that fit into each table of descriptors are taken first, then those below the program's limit,
/// downward. None is taken twice, and none that the program uses.
#[test]
fn numbers_of_a_small_table_come_first() {
    // The child has copies of what other tests of this process have open, also just below a limit.
    let _alone = alone();
    let _endpoints = crate::endpoint::tests::alone();
    let ended = in_a_child(|| {
        let last = |number: RawFd| LAST_NUMBER.store(number, Ordering::Relaxed);
        last(RawFd::MAX);
        // Another test of this process may have loaded a library by this number.
        let lowest = match loaded_by_number().get().contains(&3) {
            true => -1,
            false => 3,
        };
        for (limit, wanted) in [(300, 63), (50, 49), (3, -1), (4, lowest)] {
            limit_descriptors(limit);
            // SAFETY: the number is this child's copy, if it is open.
            unsafe { libc::close(3) };
            assert_eq!(free_number(), Some(wanted).filter(|it| *it >= 0));
        }
        limit_descriptors(200);
        // SAFETY: the calls take numbers of this child.
        unsafe {
            for number in [63, 62, 40, 199] {
                assert_eq!(libc::dup2(0, number), number);
            }
        }
        assert_eq!(free_number(), Some(61));
        for (used, next) in [(41, 39), (32, 198), (101, 100), (64, 31), (250, 198)] {
            last(used);
            assert_eq!(free_number(), Some(next));
        }
        0
    });
    assert_eq!(ended, 0);
}

#[test]
fn a_forked_child_has_no_worker() {
    let _alone = alone();
    worker_word().store(Presence::Present, Ordering::Release);
    forked();
    assert_eq!(worker_word().load(Ordering::Acquire), Presence::Absent);
}
