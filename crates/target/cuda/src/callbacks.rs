//! Keeps the driver out of CUPTI while CUPTI is finalized, and while it is first used.
//!
//! CUPTI gives the driver a function, which the driver calls at the start and the end of calls of CUDA, also while no
//! kind is enabled. `cuptiFinalize` makes the driver stop calling it, and then frees the memory that the function
//! uses without waiting for the threads that are in it. A thread that loses its processor there for long enough
//! touches freed memory: of some 7,500 sessions alongside seven programs of 24 and 64 launching threads on
//! 16 processors, two ended their process (H200, CUPTI 13.0 and 13.5; CUDA-042 in `docs/deviations/cuda.md`).
//!
//! The driver keeps the function's address in its own data, in the only word there that points into CUPTI's code
//! (CUPTI 12.8 to 13.5 on driver 580). During a session that word is replaced by the address of a function of
//! this module, which counts the threads in CUPTI's function. While CUPTI is finalized it returns without calling
//! CUPTI, which does not need these calls any more.
//!
//! Calls and launches take CUPTI microseconds, and there are many: these threads are counted from the end of recording
//! on. When a context is made CUPTI asks the driver for memory and streams, which takes up to seconds, most of them
//! asleep. So these threads are counted for the whole session (CUPTI 13.5 ended a process so in one of 209 sessions).
//!
//! CUPTI keeps data with a context from then on. If it is finalized before the call that makes or destroys the context
//! has ended, the data stays, the next use of CUPTI takes it for its own, and a later call reads at address 0. CUPTI
//! 13.0 alone ended 26 processes in 75 s so, and none where no such call was in progress at `cuptiFinalize` (H200;
//! CUDA-045). So the end waits for these calls, too: the last thing that a call does is to call CUPTI about itself.
//!
//! CUPTI 13.5 fails at its first use, too. It lets the function read a table before it has allocated it, and a thread
//! that calls CUDA at that moment reads at address 0 and ends the process (H200; CUDA-043). And when a kind is enabled
//! it stores the end and the start of a list of functions one after the other, while threads go through the list
//! without a lock: one that reads in between runs past its end (CUDA-044). By then the driver calls the function
//! already. So CUPTI is made to register it first, by a call that does nothing else, and the function is closed until
//! all kinds are enabled ([`FirstUse`]).
//!
//! Calls and launches are left out meanwhile. A new context is not: CUPTI lists contexts when it registers, and
//! records nothing in one of which it was not called (all kernels of it, CUPTI 13.0 and 13.5). So calls about contexts,
//! modules and graphs wait until the table is there, which takes some 2 ms.

use crate::cupti::{Cupti, Driver};
use crate::thread_ends::is_cuptis;
use crate::watch::Segment;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

/// Maximum number of words in the driver that are replaced: drivers of 580 have one.
const MOST_WORDS: usize = 4;
/// Number of functions that stand in for CUPTI's. Each session takes the next ones, so that a thread on its way into
/// one of an earlier session does not meet a later session's there.
const RELAYS: usize = 4 * MOST_WORDS;
/// How long threads may take to leave CUPTI's function.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// How long it is closed at a time while threads leave it: less than [`WAIT_LIMIT`].
const LEAVE_TIME: Duration = Duration::from_millis(20);
/// How often it is looked at.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// How long the first use waits for threads that entered CUPTI's function before they were counted. They read a word
/// there and leave.
const PASS_TIME: Duration = Duration::from_millis(1);
/// The domains in which the driver calls CUPTI, as bits, that are only about calls and launched work: launches, calls of
/// the driver, calls of the runtime, copies and fills. The others are about contexts, modules, graphs and memory
/// (CUPTI 13.0 and 13.5 on driver 580; `bench-results/gpu-check-callbacks.md`).
const WORK: u64 = 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 11;
/// The domain about contexts, and those about calls: the last thing that a call does.
const CONTEXTS: u64 = 1 << 2;
const CALLS: u64 = 1 << 6 | 1 << 7;
/// How long a thread waits that makes a context, a module or a graph. It may hold a lock that CUPTI needs.
const WAIT_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 50 });

/// CUPTI's function. It takes up to four arguments (its data, a domain, the number of a call, the call's arguments)
/// and returns a status; two more registers are passed on in case that a version uses them.
type Callback = unsafe extern "C" fn(*mut c_void, usize, usize, usize, usize, usize) -> usize;

/// A function that stands in for CUPTI's.
struct Relay {
    /// The address of CUPTI's function; 0 before the first use.
    original: AtomicUsize,
    /// The data that the driver passes to it.
    data: AtomicUsize,
    /// The domains, as bits, in which threads may enter CUPTI's function.
    open: AtomicU64,
    /// The domains, as bits, in which threads are counted that enter it.
    counted: AtomicU64,
    /// Number of counted threads in CUPTI's function, and how many of them are there because of a context or the like.
    inside: AtomicU32,
    changing: AtomicU32,
}

static TABLE: [Relay; RELAYS] = [const {
    Relay {
        original: AtomicUsize::new(0),
        data: AtomicUsize::new(0),
        open: AtomicU64::new(0),
        counted: AtomicU64::new(0),
        inside: AtomicU32::new(0),
        changing: AtomicU32::new(0),
    }
}; RELAYS];
static FUNCTIONS: [Callback; RELAYS] = [
    relay::<0>,
    relay::<1>,
    relay::<2>,
    relay::<3>,
    relay::<4>,
    relay::<5>,
    relay::<6>,
    relay::<7>,
    relay::<8>,
    relay::<9>,
    relay::<10>,
    relay::<11>,
    relay::<12>,
    relay::<13>,
    relay::<14>,
    relay::<15>,
];
/// The relay that is tried next.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The thread that switches CUPTI, as `pthread_self` has it: its own calls of CUDA go through.
static FINALIZER: AtomicUsize = AtomicUsize::new(0);
/// Whether threads that make a context and the like wait: CUPTI makes its tables at its first use, or threads leave it.
static WAIT: AtomicBool = AtomicBool::new(false);
/// Whether midair had CUPTI register its function, and no moment came in which it could be used for the first time.
static STARTED: AtomicBool = AtomicBool::new(false);
/// Number of calls about contexts and the like that did not wait for that any longer.
static MISSED: AtomicU32 = AtomicU32::new(0);
/// Words that lead to a relay: the relay's number at the index, the word's address; 0 for none.
static WORDS: [AtomicUsize; RELAYS] = [const { AtomicUsize::new(0) }; RELAYS];
/// Threads, as `pthread_self` has them, in a call of CUDA that has called CUPTI about a context; 0 for none.
static IN_CALLS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
/// How many there are.
static CALLS_IN: AtomicUsize = AtomicUsize::new(0);

/// The driver's calls into CUPTI lead through relays until this is dropped.
#[derive(Debug)]
pub struct Callbacks {
    relays: Vec<usize>,
}

/// The driver's calls do not reach CUPTI until this is dropped.
#[derive(Debug)]
pub struct Closed<'callbacks>(&'callbacks Callbacks);

/// CUPTI's first use in this process, or since it was finalized. Until this is dropped, calls and launches of other
/// threads do not reach CUPTI.
#[derive(Debug)]
pub struct FirstUse(Callbacks);

impl FirstUse {
    /// Has CUPTI register its function with the driver, and keeps threads out of it. `None` if CUPTI is in use, or has
    /// no word in the driver then.
    ///
    /// # Errors
    /// Threads are in the function all the time, so this is no moment for its first use.
    pub fn begin(cupti: &Cupti) -> Result<Option<FirstUse>, &'static str> {
        let function = cupti.functions().finalize as usize;
        let Some(driver) = Driver::open() else {
            return Ok(None);
        };
        let code = code_of(function);
        let Some(data) = data_of_driver(driver.function()) else {
            return Ok(None);
        };
        let is_used = is_registered(&code, &data) && !STARTED.load(SeqCst);
        if is_used || cupti.start().is_err() {
            return Ok(None);
        }
        let first_use = Callbacks::replace_in(&code, &data).map(FirstUse::of);
        STARTED.store(matches!(first_use, Some(Err(_))), SeqCst);
        first_use.transpose()
    }

    fn of(callbacks: Callbacks) -> Result<FirstUse, &'static str> {
        MISSED.store(0, SeqCst);
        callbacks.shut()?.stay();
        std::thread::sleep(PASS_TIME);
        Ok(FirstUse(callbacks))
    }

    /// CUPTI has made its tables: from here on it is called about contexts, modules and graphs.
    pub fn tables_are_made(&self) {
        self.0.open(!WORK);
        WAIT.store(false, SeqCst);
    }

    /// How often CUPTI was not called about such a change, since the thread could not wait.
    pub fn missed(&self) -> u32 {
        MISSED.load(SeqCst)
    }

    /// The first use is over: all calls reach CUPTI.
    pub fn end(self) -> Callbacks {
        self.0.reopen();
        self.0
    }
}

/// Whether the driver's data has a word that points into CUPTI's code. CUPTI 13.0 leaves it there when it is finalized.
fn is_registered(code: &Range<usize>, data: &[Range<usize>]) -> bool {
    data.iter().any(|range| !pointers(code, range).is_empty())
}

impl Callbacks {
    /// Replaces the words of the driver that point into CUPTI's code. `cupti` and `driver` are a function of each.
    /// Returns `None` where there is no such word, or there are more than midair knows; then nothing is changed.
    pub fn replace(cupti: usize, driver: usize) -> Option<Callbacks> {
        Callbacks::replace_in(&code_of(cupti), &data_of_driver(driver)?)
    }

    fn replace_in(code: &Range<usize>, data: &[Range<usize>]) -> Option<Callbacks> {
        FINALIZER.store(own_thread(), SeqCst);
        forget_calls();
        let mut callbacks = Callbacks { relays: Vec::new() };
        callbacks.replace_more_in(code, data)?;
        (!callbacks.relays.is_empty()).then_some(callbacks)
    }

    /// The same with words that CUPTI has written since.
    pub fn replace_more(&mut self, cupti: usize, driver: usize) -> Option<()> {
        self.replace_more_in(&code_of(cupti), &data_of_driver(driver)?)
    }

    fn replace_more_in(&mut self, code: &Range<usize>, data: &[Range<usize>]) -> Option<()> {
        let found: Vec<usize> = data
            .iter()
            .flat_map(|range| pointers(code, range))
            .collect();
        if self.relays.len() + found.len() > MOST_WORDS {
            return None;
        }
        found
            .into_iter()
            .try_for_each(|at| self.replace_word(at, code))
    }

    /// Makes one word lead to a free relay. `None` if none is free.
    fn replace_word(&mut self, at: usize, code: &Range<usize>) -> Option<()> {
        let number = (0..RELAYS)
            .map(|_| NEXT.fetch_add(1, SeqCst) % RELAYS)
            .find(|number| {
                !self.relays.contains(number)
                    && (TABLE.get(*number)).is_some_and(|relay| relay.inside.load(SeqCst) == 0)
            })?;
        let (relay, function) = (TABLE.get(number)?, FUNCTIONS.get(number)?);
        let original = word(at).load(SeqCst);
        if !code.contains(&original) {
            return None;
        }
        relay.original.store(original, SeqCst);
        relay.data.store(data_of_word(at), SeqCst);
        relay.counted.store(!WORK, SeqCst);
        relay.open.store(u64::MAX, SeqCst);
        let ours = *function as *const () as usize;
        (word(at).compare_exchange(original, ours, SeqCst, SeqCst)).ok()?;
        WORDS.get(number)?.store(at, SeqCst);
        self.relays.push(number);
        Some(())
    }

    fn relays(&self) -> impl Iterator<Item = &'static Relay> {
        self.relays.iter().filter_map(|number| TABLE.get(*number))
    }

    /// From here on all threads in CUPTI's function are counted.
    pub fn count_all(&self) {
        self.relays()
            .for_each(|relay| relay.counted.store(u64::MAX, SeqCst));
    }

    /// Lets no more threads into CUPTI's function, and waits for those that are in it. Only the calling thread and
    /// CUPTI's own pass.
    ///
    /// # Errors
    /// One of them does not leave it in time; then threads pass again.
    pub fn close(&self) -> Result<Closed<'_>, &'static str> {
        let closed = self.shut()?;
        WAIT.store(false, SeqCst);
        Ok(closed)
    }

    /// Uses CUPTI while no other thread is in its function. Calls and launches are left out meanwhile, and threads that
    /// make a context and the like wait.
    ///
    /// # Errors
    /// As for [`Callbacks::close`]; then it was not used.
    pub fn alone<T>(&self, using: impl FnOnce() -> T) -> Result<T, &'static str> {
        let closed = self.shut()?;
        let got = using();
        drop(closed);
        WAIT.store(false, SeqCst);
        Ok(got)
    }

    /// Closes the functions; threads that make a context and the like wait from then on. If a thread does not leave, they have
    /// waited for so short a time that CUPTI is called about all of their contexts.
    fn shut(&self) -> Result<Closed<'_>, &'static str> {
        FINALIZER.store(own_thread(), SeqCst);
        let end = Instant::now() + LEAVE_LIMIT;
        loop {
            if self.sum(|relay| &relay.changing) == 0 && !are_in_calls() {
                WAIT.store(true, SeqCst);
                self.open(0);
                let reopened = Instant::now() + LEAVE_TIME;
                while Instant::now() < reopened {
                    if self.sum(|relay| &relay.inside) == 0 && !are_in_calls() {
                        return Ok(Closed(self));
                    }
                    std::thread::sleep(LOOK_INTERVAL);
                }
                self.reopen();
            }
            if Instant::now() >= end {
                return Err(if are_in_calls() {
                    "threads were making or destroying contexts for too long"
                } else {
                    "a thread took too long to leave a callback of CUPTI"
                });
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn sum(&self, count: impl Fn(&Relay) -> &AtomicU32) -> u32 {
        self.relays().map(|relay| count(relay).load(SeqCst)).sum()
    }

    /// CUPTI is finalized: puts the driver's words back. A thread that still comes through a relay finds nothing to
    /// call.
    pub fn end(mut self) {
        self.open(0);
        std::mem::take(&mut self.relays)
            .into_iter()
            .for_each(restore);
    }

    /// Lets all threads in.
    fn reopen(&self) {
        self.open(u64::MAX);
        WAIT.store(false, SeqCst);
    }

    /// Lets threads in, in these domains.
    fn open(&self, domains: u64) {
        for relay in self.relays() {
            relay.open.store(domains, SeqCst);
        }
    }
}

impl Closed<'_> {
    /// Keeps threads out until the callbacks are opened, or for good.
    pub fn stay(self) {
        std::mem::forget(self);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.open(u64::MAX);
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        self.reopen();
        self.relays.iter().for_each(|number| restore(*number));
    }
}

/// Puts CUPTI's function back where a relay is. A word that leads elsewhere meanwhile stays.
fn restore(number: usize) {
    if let (Some(at), Some(relay), Some(function)) =
        (WORDS.get(number), TABLE.get(number), FUNCTIONS.get(number))
    {
        let at = at.swap(0, SeqCst);
        if at != 0 {
            let (ours, original) = (*function as *const () as usize, &relay.original);
            let original = original.load(SeqCst);
            let _ = word(at).compare_exchange(ours, original, SeqCst, SeqCst);
        }
    }
}

/// In a forked child, before its first session: the worker thread that would restore the words is not there, and no
/// thread is in CUPTI.
pub fn reset_after_fork() {
    (0..RELAYS).for_each(restore);
    WAIT.store(false, SeqCst);
    IN_CALLS.iter().for_each(|it| it.store(0, SeqCst));
    CALLS_IN.store(0, SeqCst);
    for relay in &TABLE {
        relay.inside.store(0, SeqCst);
        relay.changing.store(0, SeqCst);
    }
}

/// A word of the driver's data.
fn word(at: usize) -> &'static AtomicUsize {
    // SAFETY: `at` is an aligned address in writable memory of a library that is never unloaded
    // ([`Callbacks::replace`]). The driver and CUPTI read and write such words by plain accesses of whole words.
    unsafe { AtomicUsize::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
}

/// What the driver passes to the function that a word points to.
fn data_of_word(at: usize) -> usize {
    word(at + size_of::<usize>()).load(SeqCst)
}

/// Where CUPTI's code is, by one of its functions.
fn code_of(cupti: usize) -> Range<usize> {
    let code = Segment::of(cupti);
    code.start..code.start + code.bytes
}

/// The driver's data that can be read and written, by one of its functions.
fn data_of_driver(driver: usize) -> Option<Vec<Range<usize>>> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", std::process::id())).ok()?;
    let parts = data_of(driver);
    Some(
        parts
            .iter()
            .flat_map(|range| writable(&maps, range))
            .collect(),
    )
}

/// The addresses of words that point into CUPTI's code and have data behind them.
fn pointers(code: &Range<usize>, data: &Range<usize>) -> Vec<usize> {
    let first = data.start.next_multiple_of(size_of::<usize>());
    // The word after it is read, too.
    let end = data.end.saturating_sub(2 * size_of::<usize>() - 1);
    (first..end)
        .step_by(size_of::<usize>())
        .filter(|at| {
            code.contains(&word(*at).load(Relaxed))
                && word(at + size_of::<usize>()).load(Relaxed) != 0
        })
        .collect()
}

/// The writable segments, with the zeroed part, of the library that contains a function.
fn data_of(function: usize) -> Vec<Range<usize>> {
    struct Search {
        function: usize,
        found: Vec<Range<usize>>,
    }
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the search of `data_of`, used by nothing else during the call; `info` is valid during the
        // callback (dl_iterate_phdr(3)).
        let (search, info) = unsafe { (&mut *data.cast::<Search>(), &*info) };
        let headers = (0..usize::from(info.dlpi_phnum)).map(|index| {
            // SAFETY: this is the loader's own table, which has this many headers.
            unsafe { &*info.dlpi_phdr.add(index) }
        });
        let parts: Vec<(Range<usize>, bool)> = headers
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(|header| {
                let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
                let end = start.saturating_add(header.p_memsz as usize);
                (start..end, header.p_flags & libc::PF_W != 0)
            })
            .collect();
        if !parts
            .iter()
            .any(|(part, _)| part.contains(&search.function))
        {
            return 0;
        }
        let written = parts.into_iter().filter(|(_, is_written)| *is_written);
        search.found = written.map(|(part, _)| part).collect();
        1
    }
    let mut search = Search {
        function,
        found: Vec::new(),
    };
    // SAFETY: the callback gets this pointer back, and only during the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// The parts of a range that can be read and written, by the lines of `/proc/PID/maps`.
fn writable(maps: &str, range: &Range<usize>) -> Vec<Range<usize>> {
    let parts = maps.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?.max(range.start);
        let end = usize::from_str_radix(end, 16).ok()?.min(range.end);
        (start < end && fields.next()?.starts_with("rw")).then_some(start..end)
    });
    parts.collect()
}

fn own_thread() -> usize {
    // SAFETY: a function without arguments.
    unsafe { libc::pthread_self() as usize }
}

/// Stands in for CUPTI's function. It runs on a thread that calls CUDA.
///
/// # Safety
/// Only the driver calls it, with the arguments that CUPTI's function takes.
unsafe extern "C" fn relay<const NUMBER: usize>(
    data: *mut c_void,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> usize {
    let Some(relay) = TABLE.get(NUMBER) else {
        return 0;
    };
    // SAFETY: the caller's promise.
    let call = || unsafe { call(NUMBER, data, [b, c, d, e, f]) };
    let domain = 1_u64 << (b as u32).min(u64::BITS - 1);
    if domain & CALLS != 0 && are_in_calls() {
        ends_call();
    }
    let mut entered = relay.enter(domain);
    if entered.is_none() {
        if own_thread() == FINALIZER.load(SeqCst) || is_cuptis() {
            return call();
        }
        if domain & WORK == 0 {
            entered = relay.wait_to_enter(domain);
        }
    }
    match entered {
        Some(counts) => {
            let status = call();
            if domain == CONTEXTS {
                is_in_call();
            }
            relay.leave(counts);
            status
        }
        None => 0,
    }
}

/// Notes that the calling thread is in a call that makes or destroys a context.
fn is_in_call() {
    let own = own_thread();
    if own == FINALIZER.load(SeqCst) || is_cuptis() {
        return;
    }
    if IN_CALLS.iter().any(|it| it.load(SeqCst) == own) {
        return;
    }
    // It is counted first, so that the count never goes below zero.
    CALLS_IN.fetch_add(1, SeqCst);
    let take = |it: &AtomicUsize| it.compare_exchange(0, own, SeqCst, SeqCst).is_ok();
    if !IN_CALLS.iter().any(take) {
        CALLS_IN.fetch_sub(1, SeqCst);
    }
}

/// The calling thread's call is over, or it makes another one.
fn ends_call() {
    let own = own_thread();
    let is_own = |it: &AtomicUsize| it.compare_exchange(own, 0, SeqCst, SeqCst).is_ok();
    if IN_CALLS.iter().any(is_own) {
        CALLS_IN.fetch_sub(1, SeqCst);
    }
}

fn are_in_calls() -> bool {
    CALLS_IN.load(SeqCst) != 0
}

/// Forgets calls about whose end CUPTI was not called.
fn forget_calls() {
    for it in &IN_CALLS {
        if it.swap(0, SeqCst) != 0 {
            CALLS_IN.fetch_sub(1, SeqCst);
        }
    }
}

/// As what a thread is counted that is in CUPTI's function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    Nothing,
    Inside,
    Changing,
}

impl Relay {
    /// Counts a thread in if it may enter CUPTI's function. Threads that may not are not counted, so that the count
    /// comes to 0 alongside threads that go on calling CUDA.
    fn enter(&self, domain: u64) -> Option<Counts> {
        let is_open = || self.open.load(SeqCst) & domain != 0;
        if !is_open() {
            return None;
        }
        let counts = match domain & WORK {
            0 => Counts::Changing,
            _ if self.counted.load(SeqCst) & domain != 0 => Counts::Inside,
            _ => return Some(Counts::Nothing),
        };
        self.inside.fetch_add(1, SeqCst);
        if counts == Counts::Changing {
            self.changing.fetch_add(1, SeqCst);
        }
        if is_open() {
            return Some(counts);
        }
        self.leave(counts);
        None
    }

    fn leave(&self, counts: Counts) {
        if counts == Counts::Changing {
            self.changing.fetch_sub(1, SeqCst);
        }
        if counts != Counts::Nothing {
            self.inside.fetch_sub(1, SeqCst);
        }
    }

    /// Waits while it is to wait, and counts the thread in. It asks again in any case: that may have ended since the
    /// first time.
    fn wait_to_enter(&self, domain: u64) -> Option<Counts> {
        // SAFETY: the thread's own errno, which CUDA does not expect to change here.
        let errno = unsafe { *libc::__errno_location() };
        let end = Instant::now() + WAIT_LIMIT;
        while WAIT.load(SeqCst) && Instant::now() < end {
            std::thread::sleep(LOOK_INTERVAL);
        }
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        let entered = self.enter(domain);
        MISSED.fetch_add(u32::from(entered.is_none()), SeqCst);
        entered
    }
}

/// Calls CUPTI's function, unless this thread comes from an earlier session.
///
/// # Safety
/// As for the function.
unsafe fn call(number: usize, data: *mut c_void, arguments: [usize; 5]) -> usize {
    let (Some(relay), Some(at)) = (TABLE.get(number), WORDS.get(number)) else {
        return 0;
    };
    let original = relay.original.load(SeqCst);
    let is_current = |known: usize| data.expose_provenance() == known;
    // A thread that loaded the relay's address before an earlier session's end has other data. CUPTI may change it, too.
    let is_known = is_current(relay.data.load(SeqCst))
        || (Some(at.load(SeqCst)).filter(|at| *at != 0))
            .is_some_and(|at| is_current(data_of_word(at)));
    if original == 0 || !is_known {
        return 0;
    }
    // SAFETY: the address was found where the driver keeps CUPTI's function.
    let original = unsafe { std::mem::transmute::<usize, Callback>(original) };
    let [b, c, d, e, f] = arguments;
    // SAFETY: the caller's promise. The data exists: CUPTI is finalized only once this thread has left, unless this is
    // the thread that does it, or CUPTI's own.
    unsafe { original(data, b, c, d, e, f) }
}

#[cfg(test)]
mod tests;
