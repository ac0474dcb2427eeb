//! Which threads are parked worker threads, and which only look like one.

use super::*;
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const DEADLINE: Duration = Duration::from_secs(20);

/// A thread of the program's own that has the worker's name and waits on a word of something that
/// looks like a parked block.
struct Pretender {
    page: usize,
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Pretender {
    fn new(sharing: c_int, protection: c_int, begins_there: bool) -> Pretender {
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

/// Waits until the thread is woken or the word has changed.
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

fn connection() -> (VerifiedFd, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (VerifiedFd::new(ours.into_raw_fd()).unwrap(), theirs)
}

/// The program chooses the thread's name and its address. Nothing may be written there because of
/// these alone, or the program could crash.
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

/// A block that cannot be distinguished from one of the engine's is taken for one. It lies in
/// memory that may be written.
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
    // SAFETY: the page is as this test made it.
    let handed = unsafe {
        assert_eq!((*at).mailbox.load(Ordering::Acquire), mailbox::HANDED);
        (*at).handed.swap(0, Ordering::AcqRel)
    };
    drop(VerifiedFd::new(handed.cast_signed() - 1));
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

/// A library of ours that was loaded by a number is found again, though its descriptor is closed.
/// One that is not ours is not.
#[test]
fn a_library_that_is_here_is_not_sent_again() {
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
