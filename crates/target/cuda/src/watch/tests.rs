//! Functions made here, in a page of their own, stand for CUPTI's.
#![cfg(target_arch = "x86_64")]

use super::*;
use crate::session::fake::alone;

/// `mov rax, rdi; add rax, r9; nop..; ret`, behind the 4 bytes that compilers put first.
const ADDS: [u8; 16] = [
    0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xf8, 0x4c, 0x01, 0xc8, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3,
];
type Adds = extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;

struct Code {
    at: usize,
}

impl Code {
    fn new() -> Code {
        // SAFETY: a fresh page, filled before it becomes code.
        unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(page, libc::MAP_FAILED);
            std::ptr::copy_nonoverlapping(ADDS.as_ptr(), page.cast(), ADDS.len());
            std::ptr::copy_nonoverlapping(ADDS.as_ptr(), page.cast::<u8>().add(64), ADDS.len());
            assert_eq!(
                libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC),
                0
            );
            Code {
                at: page.expose_provenance(),
            }
        }
    }
    fn functions(&self) -> [usize; 2] {
        [self.at, self.at + 64]
    }
    fn call(&self, which: usize, first: u64, last: u64) -> u64 {
        // SAFETY: the code above has this type.
        let function: Adds = unsafe { std::mem::transmute(self.functions()[which]) };
        function(first, 2, 3, 4, 5, last)
    }
    fn bytes(&self, which: usize) -> [u8; 16] {
        // SAFETY: the page above.
        unsafe { std::ptr::with_exposed_provenance::<[u8; 16]>(self.functions()[which]).read() }
    }
    /// As the kernel tells the page's rights.
    fn rights(&self) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let parse = |text| usize::from_str_radix(text, 16).unwrap();
            (parse(from)..parse(to)).contains(&self.at)
        });
        line.unwrap().split(' ').nth(1).unwrap().to_owned()
    }
}

#[test]
fn a_caller_waits_until_the_watch_ends_and_gets_its_result() {
    let _alone = alone();
    let code = Code::new();
    assert_eq!(code.call(0, 40, 2), 42);
    for _ in 0..20 {
        // SAFETY: the functions of this test, whose page stays.
        let watch = unsafe { Watch::begin(&code.functions()) }.unwrap();
        assert_eq!((watch.count(), watch.requests()), (2, 0));
        assert_eq!((code.bytes(0)[0], code.rights().as_str()), (0xe9, "r-xp"));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let callers: Vec<_> = [0, 1, 0]
                .map(|which| {
                    let (over, code) = (&over, &code);
                    scope.spawn(move || {
                        let sum = code.call(which, 1 << 40, 7);
                        (sum, over.load(SeqCst))
                    })
                })
                .into_iter()
                .collect();
            while watch.requests() < 3 {
                std::thread::yield_now();
            }
            // What the worker thread does before it lets them continue.
            over.store(true, SeqCst);
            drop(watch);
            for caller in callers {
                assert_eq!(caller.join().unwrap(), ((1 << 40) + 7, true));
            }
        });
        assert_eq!((code.bytes(0), code.bytes(1)), (ADDS, ADDS));
        assert_eq!(code.rights(), "r-xp");
        assert_eq!(code.call(1, 1, 1), 2);
    }
}

#[test]
fn callers_after_the_session_go_on_at_once_and_are_counted() {
    let _alone = alone();
    let code = Code::new();
    assert_eq!(end_kept(), None);
    for came in [0, 1] {
        // SAFETY: the functions of this test, whose page stays.
        unsafe { Watch::begin(&code.functions()) }.unwrap().keep();
        assert_eq!((code.bytes(0)[0], code.bytes(1)[0]), (0xe9, 0xe9));
        let begin = Instant::now();
        for _ in 0..came {
            std::thread::scope(|scope| {
                let caller = scope.spawn(|| code.call(1, 40, 2));
                assert_eq!(caller.join().unwrap(), 42);
            });
        }
        assert!(begin.elapsed() < PATIENCE);
        assert_eq!((end_kept(), end_kept()), (Some(came), None));
        assert_eq!((code.bytes(0), code.bytes(1)), (ADDS, ADDS));
    }
}

#[test]
fn a_caller_that_waits_goes_on_when_the_watch_is_kept() {
    let _alone = alone();
    let code = Code::new();
    // SAFETY: as above.
    let watch = unsafe { Watch::begin(&code.functions()) }.unwrap();
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| code.call(0, 40, 2));
        while watch.requests() == 0 {
            std::thread::yield_now();
        }
        assert!(!caller.is_finished());
        watch.keep();
        assert_eq!(caller.join().unwrap(), 42);
    });
    assert_eq!(end_kept(), Some(1));
}

#[test]
fn the_worker_thread_does_not_wait_for_itself() {
    let _alone = alone();
    let code = Code::new();
    // SAFETY: as above.
    let watch = unsafe { Watch::begin(&code.functions()) }.unwrap();
    let begin = Instant::now();
    assert_eq!(code.call(1, 40, 2), 42);
    assert!(begin.elapsed() < PATIENCE);
    assert_eq!(
        (code.bytes(1), code.bytes(0)[0], watch.requests()),
        (ADDS, 0xe9, 0)
    );
    drop(watch);
    assert_eq!(code.bytes(0), ADDS);
}

#[test]
fn foreign_code_stays_and_unaligned_addresses_are_refused() {
    let _alone = alone();
    let code = Code::new();
    // SAFETY: nothing is changed: the second address is refused, and the first one put back.
    let refused = unsafe { Watch::begin(&[code.at, code.at + 68]) };
    assert!(refused.is_err());
    drop(refused);
    assert_eq!(code.bytes(0), ADDS);
    // SAFETY: as above.
    let watch = unsafe { Watch::begin(&[code.at]) }.unwrap();
    let theirs = u64::from_le_bytes([0xc3; 8]);
    let page = Segment::of(code.at);
    assert!(page.writable(true));
    // SAFETY: a whole instruction in a page of this test.
    unsafe { word(code.at) }.store(theirs, SeqCst);
    assert!(page.writable(false));
    drop(watch);
    assert_eq!(code.bytes(0)[0], 0xc3);
}

#[test]
fn waits_are_limited() {
    let _alone = alone();
    let code = Code::new();
    // SAFETY: as above.
    let watch = unsafe { Watch::begin(&code.functions()) }.unwrap();
    let begin = Instant::now();
    let sum = std::thread::scope(|scope| scope.spawn(|| code.call(0, 2, 2)).join().unwrap());
    assert_eq!(sum, 4);
    assert!(begin.elapsed() >= PATIENCE);
    assert_eq!(code.bytes(0), ADDS);
    assert_eq!(watch.requests(), 1);
    drop(watch);
    assert_eq!((code.bytes(0), code.bytes(1)), (ADDS, ADDS));
}
