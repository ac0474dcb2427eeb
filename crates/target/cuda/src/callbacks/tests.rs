use super::*;
use crate::session::fake;
use std::sync::MutexGuard;

/// How often "CUPTI's function" ran, and whether it ran while it was said to be freed.
static CALLS: AtomicU32 = AtomicU32::new(0);
static FREED: AtomicBool = AtomicBool::new(false);
static LATE: AtomicBool = AtomicBool::new(false);
/// While it is set, a thread stays in the function.
static STAY: AtomicBool = AtomicBool::new(false);

fn alone() -> MutexGuard<'static, ()> {
    let alone = fake::alone();
    CALLS.store(0, SeqCst);
    for flag in [&FREED, &LATE, &STAY] {
        flag.store(false, SeqCst);
    }
    alone
}

unsafe extern "C" fn cuptis(
    _: *mut c_void,
    b: usize,
    c: usize,
    d: usize,
    _: usize,
    _: usize,
) -> usize {
    CALLS.fetch_add(1, SeqCst);
    while STAY.load(SeqCst) {
        std::thread::yield_now();
    }
    LATE.fetch_or(FREED.load(SeqCst), SeqCst);
    b + 10 * c + 100 * d
}

/// What a driver keeps: nothing, CUPTI's function, the data for it, a state.
struct Kept([AtomicUsize; 4]);

impl Kept {
    fn new(data: usize) -> Kept {
        let words = [0, cuptis as *const () as usize, data, 2];
        Kept(words.map(AtomicUsize::new))
    }

    fn range(&self) -> Range<usize> {
        let start = self.0.as_ptr().addr();
        start..start + size_of_val(&self.0)
    }

    fn function(&self) -> usize {
        self.0[1].load(SeqCst)
    }

    /// A call of CUDA.
    fn call(&self) -> usize {
        self.call_in(1)
    }

    /// The same in a domain.
    fn call_in(&self, domain: usize) -> usize {
        // SAFETY: `cuptis`, or the relay that stands in for it.
        let function = unsafe { std::mem::transmute::<usize, Callback>(self.function()) };
        let data = std::ptr::without_provenance_mut(self.0[2].load(SeqCst));
        // SAFETY: as the driver calls it; the data is never dereferenced.
        unsafe { function(data, domain, 2, 3, 4, 5) }
    }
}

fn code() -> Range<usize> {
    let at = cuptis as *const () as usize;
    at..at + 1
}

fn replaced(kept: &Kept) -> Callbacks {
    Callbacks::replace_in(&code(), &[kept.range()]).unwrap()
}

#[test]
fn calls_pass_through_with_their_arguments_and_result_until_it_is_closed() {
    let _alone = alone();
    let kept = Kept::new(8);
    let callbacks = replaced(&kept);
    assert!(!code().contains(&kept.function()));
    assert_eq!((kept.call(), CALLS.load(SeqCst)), (321, 1));
    let closed = callbacks.close().unwrap();
    // The thread that finalizes goes on calling CUDA.
    assert_eq!((kept.call(), CALLS.load(SeqCst)), (321, 2));
    let of_others = std::thread::scope(|scope| scope.spawn(|| kept.call()).join().unwrap());
    assert_eq!((of_others, CALLS.load(SeqCst)), (0, 2));
    // CUPTI was not finalized.
    drop(closed);
    std::thread::scope(|scope| scope.spawn(|| kept.call()).join().unwrap());
    assert_eq!(CALLS.load(SeqCst), 3);
    drop(callbacks);
    assert!(code().contains(&kept.function()));
}

#[test]
fn no_thread_is_in_cupti_while_it_is_freed() {
    let _alone = alone();
    for data in 1..=100 {
        let kept = Kept::new(data);
        // Threads that entered before are waited for by `quiesce`, so there are none here.
        let callbacks = replaced(&kept);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        kept.call();
                    }
                });
            }
            std::thread::sleep(Duration::from_micros(100));
            let closed = callbacks.close().unwrap();
            FREED.store(true, SeqCst);
            std::thread::sleep(Duration::from_micros(100));
            FREED.store(false, SeqCst);
            closed.stay();
            callbacks.end();
            stop.store(true, SeqCst);
        });
    }
    assert!(!LATE.load(SeqCst));
}

#[test]
fn a_thread_that_stays_in_cupti_is_named_and_calls_pass_again() {
    let _alone = alone();
    let kept = Kept::new(8);
    let callbacks = replaced(&kept);
    STAY.store(true, SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| kept.call());
        while CALLS.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert!(callbacks.close().is_err());
        STAY.store(false, SeqCst);
        scope.spawn(|| assert_eq!(kept.call(), 321));
    });
    assert_eq!(CALLS.load(SeqCst), 2);
}

/// CUPTI asks the driver for memory meanwhile, and sleeps there.
#[test]
fn a_thread_that_makes_a_graph_is_counted_before_the_end_and_others_wait_for_it() {
    let _alone = alone();
    let kept = Kept::new(8);
    let callbacks = replaced(&kept);
    STAY.store(true, SeqCst);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| kept.call_in(6));
        let changing = scope.spawn(|| kept.call_in(19));
        while CALLS.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
        // A launch before the end of recording is not.
        assert_eq!(callbacks.sum(|relay| &relay.inside), 1);
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            STAY.store(false, SeqCst);
        });
        let closed = callbacks.close().unwrap();
        assert_eq!(
            (working.join().unwrap(), changing.join().unwrap()),
            (326, 339)
        );
        let kept_out = scope.spawn(|| kept.call_in(19));
        assert_eq!(kept_out.join().unwrap(), 0);
        closed.stay();
    });
    callbacks.end();
    assert_eq!(CALLS.load(SeqCst), 2);
}

/// CUPTI is called about it in the middle of the call.
#[test]
fn a_call_that_makes_a_context_is_waited_for_until_it_ends() {
    let _alone = alone();
    let kept = Kept::new(8);
    let callbacks = replaced(&kept);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (made, wait) = std::sync::mpsc::channel();
        scope.spawn({
            let (kept, ended) = (&kept, &ended);
            move || {
                kept.call_in(2);
                made.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                ended.store(true, SeqCst);
                kept.call_in(6);
            }
        });
        wait.recv().unwrap();
        let closed = callbacks.close().unwrap();
        assert!(ended.load(SeqCst));
        closed.stay();
    });
    callbacks.end();
}

#[test]
fn a_late_thread_of_an_earlier_session_reaches_nothing() {
    let _alone = alone();
    let kept = Kept::new(8);
    let callbacks = replaced(&kept);
    let late = Kept::new(8);
    late.0[1].store(kept.function(), SeqCst);
    callbacks.close().unwrap().stay();
    callbacks.end();
    let called = std::thread::scope(|scope| scope.spawn(|| late.call()).join().unwrap());
    assert_eq!((called, CALLS.load(SeqCst)), (0, 0));
    // Nor if the relay is in use again, for other data.
    let again = Kept::new(16);
    let sessions: Vec<Callbacks> = (0..RELAYS).map(|_| replaced_again(&again)).collect();
    assert_eq!((late.call(), CALLS.load(SeqCst)), (0, 0));
    drop(sessions);
}

/// One session after the other on the same word.
fn replaced_again(kept: &Kept) -> Callbacks {
    kept.0[1].store(cuptis as *const () as usize, SeqCst);
    replaced(kept)
}

#[test]
fn at_the_first_use_calls_are_left_out_and_new_contexts_wait_for_the_tables() {
    let _alone = alone();
    let kept = Kept::new(8);
    let first_use = FirstUse::of(replaced(&kept)).unwrap();
    let of_other = |domain| std::thread::scope(|it| it.spawn(|| kept.call_in(domain)).join());
    std::thread::scope(|scope| {
        // The calling thread is CUPTI's user.
        assert_eq!(kept.call_in(6), 326);
        let context = scope.spawn(|| kept.call_in(2));
        assert_eq!(of_other(6).unwrap(), 0);
        assert!(!context.is_finished());
        assert_eq!(CALLS.load(SeqCst), 1);
        first_use.tables_are_made();
        assert_eq!(context.join().unwrap(), 322);
    });
    assert_eq!((of_other(2).unwrap(), of_other(6).unwrap()), (322, 0));
    assert_eq!((first_use.missed(), CALLS.load(SeqCst)), (0, 3));
    drop(first_use.end());
    assert!(code().contains(&kept.function()));
}

#[test]
fn cupti_is_used_alone_only_in_a_moment_without_others() {
    let _alone = alone();
    let kept = Kept::new(8);
    let callbacks = replaced(&kept);
    std::thread::scope(|scope| {
        let used = callbacks.alone(|| {
            let of_other = scope.spawn(|| kept.call_in(6)).join().unwrap();
            assert_eq!((of_other, kept.call_in(6)), (0, 326));
            scope.spawn(|| kept.call_in(2))
        });
        assert_eq!(used.unwrap().join().unwrap(), 322);
    });
    let of_other = |domain| std::thread::scope(|it| it.spawn(|| kept.call_in(domain)).join());
    assert_eq!(of_other(6).unwrap(), 326);
    // A thread that is in a call about a context: its end is not seen.
    assert_eq!(of_other(2).unwrap(), 322);
    let used = callbacks.alone(|| panic!("used alongside a thread with a new context"));
    assert!(used.is_err());
    assert!(FirstUse::of(callbacks).is_err());
    assert!(code().contains(&kept.function()));
    assert_eq!(of_other(6).unwrap(), 326);
}

/// It may hold a lock that CUPTI needs to make its tables.
#[test]
fn a_thread_with_a_new_context_does_not_wait_for_long() {
    let _alone = alone();
    let kept = Kept::new(8);
    let first_use = FirstUse::of(replaced(&kept)).unwrap();
    let called = std::thread::scope(|it| it.spawn(|| kept.call_in(2)).join().unwrap());
    assert_eq!((called, first_use.missed(), CALLS.load(SeqCst)), (0, 1, 0));
    drop(first_use);
    assert_eq!(
        kept.call_in(2),
        322,
        "a first use that fails lets calls pass"
    );
}

#[test]
fn only_words_that_are_surely_cuptis_are_replaced() {
    let _alone = alone();
    let kept = Kept::new(0);
    assert!(Callbacks::replace_in(&code(), &[kept.range()]).is_none());
    let many = [const { AtomicUsize::new(0) }; 3 * MOST_WORDS];
    many.iter()
        .for_each(|word| word.store(code().start, SeqCst));
    let start = many.as_ptr().addr();
    let range = start..start + size_of_val(&many);
    assert!(Callbacks::replace_in(&code(), &[range]).is_none());
    assert!(many.iter().all(|word| code().contains(&word.load(SeqCst))));
    assert!(Callbacks::replace_in(&code(), &[]).is_none());
}

#[test]
fn a_forked_child_has_the_drivers_words_as_they_were() {
    let _alone = alone();
    let kept = Kept::new(8);
    let callbacks = replaced(&kept);
    reset_after_fork();
    assert!(code().contains(&kept.function()));
    drop(callbacks);
    assert!(code().contains(&kept.function()));
}

#[test]
fn the_data_of_a_library_is_what_can_be_written() {
    static OWN: AtomicUsize = AtomicUsize::new(1);
    let at = (&raw const OWN).addr();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let data = data_of(cuptis as *const () as usize);
    let parts: Vec<_> = data
        .iter()
        .flat_map(|range| writable(&maps, range))
        .collect();
    assert!(parts.iter().any(|part| part.contains(&at)), "{parts:x?}");
    assert!(!parts.iter().any(|part| part.contains(&code().start)));
    assert!(data_of(16).is_empty());
    let parts = writable("1000-3000 rw-p 0\n3000-4000 r--p 0\n", &(0x2000..0x5000));
    assert_eq!(parts, vec![0x2000..0x3000; 1]);
}
