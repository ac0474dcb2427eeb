use super::*;
use crate::session::fake;
use std::sync::atomic::AtomicBool;
use std::sync::{MutexGuard, mpsc};

/// How often the destructor ran.
static DESTROYED: AtomicU32 = AtomicU32::new(0);
/// Whether it ran while its library was said to be torn down.
static LATE: AtomicBool = AtomicBool::new(false);
static TORN_DOWN: AtomicBool = AtomicBool::new(false);

fn alone() -> MutexGuard<'static, ()> {
    let alone = fake::alone();
    DESTROYED.store(0, SeqCst);
    LATE.store(false, SeqCst);
    TORN_DOWN.store(false, SeqCst);
    alone
}

unsafe extern "C" fn destroy(_data: *mut c_void) {
    LATE.fetch_or(TORN_DOWN.load(SeqCst), SeqCst);
    DESTROYED.fetch_add(1, SeqCst);
}

/// A key whose destructor is in this test's program, as CUPTI's is in CUPTI.
struct Owned(libc::pthread_key_t);

impl Owned {
    fn new() -> Owned {
        let mut key = 0;
        // SAFETY: an out pointer, and a function of the right type.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(destroy)) };
        assert_eq!(made, 0);
        Owned(key)
    }

    /// Runs a thread that has data under the key and ends; `wait` runs on it before.
    fn thread(&self, wait: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
        let key = self.0;
        std::thread::spawn(move || {
            // SAFETY: the key exists; the data is never dereferenced.
            unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(8)) };
            wait();
        })
    }

    fn delete(&self) {
        // SAFETY: the key is this test's.
        unsafe { libc::pthread_key_delete(self.0) };
    }
}

fn watch() -> ThreadEnds {
    ThreadEnds::watch(destroy as *const () as usize).unwrap()
}

fn destructor(key: &Owned) -> usize {
    keys().unwrap()[key.0 as usize].destructor.load(SeqCst)
}

/// Waits until a thread is held: it counts as inside for moments only, so its wait is looked for.
fn until_ended(threads: &[std::thread::JoinHandle<()>]) {
    let end = Instant::now() + Duration::from_secs(20);
    while !threads.iter().all(std::thread::JoinHandle::is_finished) {
        assert!(Instant::now() < end, "the threads do not end");
        std::thread::yield_now();
    }
}

#[test]
fn ends_are_held_and_then_go_through_cuptis_destructor() {
    let _alone = alone();
    let key = Owned::new();
    let ends = watch();
    assert_ne!(destructor(&key), destroy as *const () as usize);
    let held = ends.hold().unwrap();
    TORN_DOWN.store(true, SeqCst);
    let (tell, told) = mpsc::channel();
    let threads = [0, 1, 2].map(|_| {
        let tell = tell.clone();
        key.thread(move || tell.send(()).unwrap())
    });
    for _ in &threads {
        told.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    // Rust counts a thread as finished before the C library runs destructors.
    until_ended(&threads);
    assert_eq!(DESTROYED.load(SeqCst), 0);
    TORN_DOWN.store(false, SeqCst);
    drop(held);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((DESTROYED.load(SeqCst), LATE.load(SeqCst)), (3, false));
    drop(ends);
    assert_eq!(destructor(&key), destroy as *const () as usize);
    key.delete();
}

#[test]
fn data_of_a_key_that_was_deleted_meanwhile_is_left_alone() {
    let _alone = alone();
    let key = Owned::new();
    let ends = watch();
    let held = ends.hold().unwrap();
    let (tell, told) = mpsc::channel();
    let thread = key.thread(move || tell.send(()).unwrap());
    told.recv_timeout(Duration::from_secs(20)).unwrap();
    until_ended(std::slice::from_ref(&thread));
    key.delete();
    drop(held);
    thread.join().unwrap();
    assert_eq!(DESTROYED.load(SeqCst), 0);
    drop(ends);
}

#[test]
fn cuptis_own_threads_and_those_of_other_keys_are_not_held() {
    let _alone = alone();
    let key = Owned::new();
    let ends = watch();
    let held = ends.hold().unwrap();
    let own = key.thread(|| {
        let mut name = [0_u8; 16];
        name[..MAKER_NAME.len()].copy_from_slice(MAKER_NAME.as_bytes());
        // SAFETY: a terminated name.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    });
    own.join().unwrap();
    assert_eq!(DESTROYED.load(SeqCst), 1);
    std::thread::spawn(|| {}).join().unwrap();
    drop(held);
    drop(ends);
    key.delete();
}

#[test]
fn a_thread_that_stays_in_the_destructor_cannot_be_held() {
    let _alone = alone();
    let key = Owned::new();
    let ends = watch();
    INSIDE.fetch_add(1, SeqCst);
    assert!(ends.hold().is_err());
    INSIDE.fetch_sub(1, SeqCst);
    assert_eq!(HELD.load(SeqCst), 0);
    assert!(ends.hold().is_ok());
    drop(ends);
    key.delete();
}

#[test]
fn a_further_watch_keeps_the_gates_and_adds_those_of_new_keys() {
    let _alone = alone();
    let key = Owned::new();
    let mut ends = watch();
    let (relay, relays) = (destructor(&key), ends.relays.len());
    assert_ne!(relay, destroy as *const () as usize);
    let later = Owned::new();
    ends.watch_more(destroy as *const () as usize).unwrap();
    assert_eq!(destructor(&key), relay);
    assert_ne!(destructor(&later), destroy as *const () as usize);
    assert_eq!(ends.relays.len(), relays + 1);
    drop(ends);
    for key in [key, later] {
        assert_eq!(destructor(&key), destroy as *const () as usize);
        key.delete();
    }
}

#[test]
fn a_key_that_has_a_new_owner_keeps_its_destructor() {
    let _alone = alone();
    let key = Owned::new();
    let ends = watch();
    keys().unwrap()[key.0 as usize].destructor.store(7, SeqCst);
    drop(ends);
    assert_eq!(destructor(&key), 7);
    key.delete();
}
