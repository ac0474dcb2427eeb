//! One session with one CUPTI: switched on, drained while it runs, switched off ([`finish`]). A session
//! that records in bursts does so at each burst.
//!
//! Activity records need no subscription, and PyTorch's profiler gives up for good when it finds a
//! subscriber at its first use. So we subscribe only for stacks ([`crate::launches`]).

mod counts;
#[cfg(test)]
pub(crate) mod fake;
mod finish;
mod others;
mod quiesce;
#[cfg(test)]
mod tests;
mod threads;
mod workers;

use crate::callbacks::Callbacks;
use crate::clock;
use crate::cupti::functions::UnifiedMemoryConfig;
use crate::cupti::{Cupti, Status, decode};
use crate::drain::Drain;
use crate::launches::{self, Launches};
use crate::nvtx::Nvtx;
use crate::pool::{BUFFER, BUFFERS, Filled, Pool};
use crate::selection::Choice;
use crate::sink::Sink;
use crate::thread_ends::{Held, ThreadEnds};
use crate::watch::Watch;
use counts::Counts;
pub use finish::{End, Off};
use midair_abi::cupti::{
    SILENT_DRIVER, SILENT_RUNTIME, activity_kind, attribute, thread_id_type, unified_memory,
    unified_memory_scope,
};
use midair_guest::{Refused, now};
use midair_record::event::{NO_STACKS, kind};
use midair_record::spool::{Area, status};
use midair_stacks::{Started, Wanted};
pub(crate) use others::{KEEP_LOADED, ONLY_OURS, USED};
use others::{another_came, does_not_work, entries, is_alone, refused};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::Ordering::SeqCst;

/// The buffers of this process.
pub static POOL: Pool = Pool::new();

/// The number of `cuKernelGetName` among the calls of the driver: CUPTI itself makes that call at
/// each launch.
pub(crate) const OWN_CALL: u32 = 719;

/// After this many ns without a buffer, CUPTI is flushed. Records then reach the attacher within
/// that time, even if the process is killed. CUPTI is not flushed while buffers fill by themselves,
/// since launches wait for CUPTI's locks during a flush.
const FLUSH_AFTER: u64 = 100_000_000;
/// CUPTI is flushed at least this often, in ns, since a thread that does little may run alongside one
/// whose buffers fill.
const FLUSH_EVERY: u64 = 1_000_000_000;
/// How many bytes of buffers are read in one round: between rounds the worker thread shows that it
/// is alive. (Not a number of buffers: each thread that ends returns one with little in it.)
const READ_AT_ONCE: usize = 4 * BUFFER;
/// Number of records that are read between two checks of the free space in the spool, and the space
/// that they may need: few are longer than 200 bytes.
const RECORDS_PER_CHECK: u32 = 64;
const MAX_BATCH_BYTES: usize = 128 * 1024;
/// How many free buffers are reserved for CUPTI, even if records are lost because the spool is
/// full.
const KEEP_FREE: usize = BUFFERS / 4;

/// The note on [`crate::callbacks::FirstUse::missed`].
const MISSED: &str = "CUPTI was not called about a context, a module or a graph that was made during the attach: if it was a \
                      context, its kernels are not recorded in this session; attach again to record them";

/// A running session.
#[derive(Debug)]
pub struct Session {
    cupti: Cupti,
    choice: Choice,
    drain: Drain,
    /// Kinds that are enabled.
    enabled: Vec<u32>,
    /// Single calls that CUPTI leaves out although their kind is enabled.
    left_out: Vec<LeftOut>,
    watch: Option<Watch>,
    /// CUPTI's destructors for threads, or why they cannot be held.
    thread_ends: Option<Result<ThreadEnds, &'static str>>,
    /// The driver's calls into CUPTI lead through midair.
    callbacks: Option<Callbacks>,
    /// Present where the stacks of launches are taken.
    launches: Option<Launches>,
    /// Present where marks and ranges are recorded.
    nvtx: Option<Nvtx>,
    /// Buffers that were returned and are not read to their end, because the spool was full.
    pending: VecDeque<Reading>,
    scratch: Vec<Filled>,
    flushed_at: u64,
    /// When the last buffer was returned.
    came_at: u64,
    /// Whether CUPTI was asked to use system thread ids.
    system_ids: bool,
    counts: Counts,
    /// The last error of CUPTI that was noted.
    noted_error: Option<(&'static str, Status)>,
    /// Notes that need not be repeated in the next burst.
    noted: Vec<String>,
    /// When the first kind was enabled, and threads reached CUPTI.
    on_since: u64,
    /// Whether this session has finalized CUPTI, after a burst. CUPTI is unused until the next one.
    finalized: bool,
}

/// A single call that CUPTI leaves out, by its number among the calls of the runtime or of the
/// driver.
#[derive(Debug, Clone, Copy)]
enum LeftOut {
    Runtime(u32),
    Driver(u32),
}

impl LeftOut {
    fn switch(self, cupti: &Cupti, on: bool) -> Result<(), Status> {
        match self {
            Self::Runtime(call) => cupti.enable_runtime_api(call, on),
            Self::Driver(call) => cupti.enable_driver_api(call, on),
        }
    }
}

/// A buffer, and how far it has been read.
#[derive(Debug)]
struct Reading {
    filled: Filled,
    /// The last record that was read; null before the first.
    record: *mut u8,
    /// Bytes up to the end of that record.
    behind: usize,
}

impl Session {
    /// Switches CUPTI on. `describe` stores what is known of the process.
    ///
    /// # Errors
    /// Why it is refused; everything is undone then.
    pub fn begin(
        cupti: &Cupti,
        choice: &Choice,
        sink: Sink,
        describe: impl FnOnce(&mut Sink),
    ) -> Result<Session, Refused> {
        let mut session = Session::new(cupti, choice, sink);
        match session.turn_on(describe) {
            Ok(()) => Ok(session),
            Err(why) => {
                session.drain.sink.seal();
                Err(why)
            }
        }
    }

    /// A session that does not use CUPTI yet.
    pub fn new(cupti: &Cupti, choice: &Choice, sink: Sink) -> Session {
        Session {
            cupti: cupti.clone(),
            choice: choice.clone(),
            drain: Drain::new(sink, choice.calls(), choice.all_calls),
            enabled: Vec::new(),
            left_out: Vec::new(),
            watch: None,
            thread_ends: None,
            callbacks: None,
            launches: None,
            nvtx: None,
            pending: VecDeque::new(),
            scratch: Vec::new(),
            flushed_at: now(),
            came_at: now(),
            system_ids: false,
            counts: Counts::default(),
            noted_error: None,
            noted: Vec::new(),
            on_since: 0,
            finalized: false,
        }
    }

    /// Switches CUPTI on, the first time or for another burst. `describe` stores what is known of the
    /// process.
    ///
    /// # Errors
    /// Why it is refused; everything is undone then.
    pub fn turn_on(&mut self, describe: impl FnOnce(&mut Sink)) -> Result<(), Refused> {
        if self.is_requested() {
            return Err(another_came());
        }
        // It has been on since the last burst; CUPTI is called by us now.
        drop(self.watch.take());
        // CUPTI is first used here.
        let _named = workers::Named::begin();
        let first_use = is_alone(&self.cupti, self.finalized)?;
        self.finalized = false;
        // This happens before calls are recorded, since it makes some itself.
        describe(&mut self.drain.sink);
        let choice = self.choice.clone();
        if first_use.is_none() && !KEEP_LOADED.load(SeqCst) {
            self.relay_callbacks();
        }
        let switched = self.switch_on(&choice);
        // Calls of other threads reach CUPTI from here on.
        if let Some(first_use) = first_use {
            if first_use.missed() > 0 {
                self.note(MISSED.to_owned());
            }
            self.callbacks = Some(first_use.end());
            self.on_since = now();
        }
        switched.inspect_err(|_| self.undo())
    }

    /// Enables the kinds.
    fn switch_on(&mut self, choice: &Choice) -> Result<(), Refused> {
        if !POOL.open() {
            return Err(refused(
                status::OTHER,
                "there is no room for CUPTI's buffers",
            ));
        }
        let cupti = self.cupti.clone();
        self.choose_thread_ids(choice);
        let registered = cupti.register_callbacks(requested, completed);
        registered.map_err(|why| does_not_work(&cupti, "cuptiActivityRegisterCallbacks", why))?;
        self.read_clocks();
        // Records that were dropped before belong to no session.
        let _ = cupti.dropped();
        if choice.has(kind::UNIFIED_MEMORY)
            && let Err(why) = cupti.configure_unified_memory(&mut unified_counters())
        {
            let text = format!("moves of unified memory are not recorded: CUPTI says {why}");
            self.note(text);
        }
        // If CUPTI is in use already, it has keys.
        self.watch_thread_ends();
        let held = self.hold_thread_ends();
        let mut last = None;
        self.on_since = 0;
        for wanted in choice.activities() {
            match cupti.enable(wanted) {
                Ok(()) => {
                    if self.enabled.is_empty() {
                        // It makes its key at its first use. A thread that ends before the relay is
                        // there is not seen by the next hold.
                        self.watch_thread_ends();
                    }
                    self.enabled.push(wanted);
                    if self.on_since == 0 {
                        self.on_since = now();
                    }
                }
                Err(why) => {
                    let name = activity_kind::name(wanted).unwrap_or("?");
                    let what = format!("cuptiActivityEnable({name})");
                    // Without kernels there is nothing worth recording; the failure of any other
                    // kind is noted for the user.
                    if wanted == activity_kind::CONCURRENT_KERNEL {
                        return Err(does_not_work(&cupti, &what, why));
                    }
                    self.note(format!("{what} says {why}: none are recorded"));
                    last = Some((what, why));
                }
            }
        }
        drop(held);
        // CUPTI may take another clock when it is used again.
        self.read_clocks();
        self.watch_thread_ends();
        self.leave_calls_out(choice);
        if let (true, Some((what, why))) = (self.enabled.is_empty(), last) {
            return Err(does_not_work(&cupti, &what, why));
        }
        self.watch_and_subscribe(choice.stacks);
        if self.enabled.contains(&activity_kind::MARKER) {
            let nvtx = Nvtx::begin(&cupti);
            if let Some(text) = nvtx.note() {
                self.note(text);
            }
            // NVTX calls lead into CUPTI without our functions, and would after the session.
            KEEP_LOADED.fetch_or(nvtx.is_cuptis(), SeqCst);
            self.nvtx = Some(nvtx);
        }
        self.flushed_at = now();
        Ok(())
    }

    /// Notices another profiler that comes from now on, and subscribes where `stacks` are wanted.
    fn watch_and_subscribe(&mut self, stacks: Option<Wanted>) {
        let stacks = stacks.and_then(|wanted| self.take_stacks(wanted));
        let [all, of_first_calls] =
            [false, true].map(|subscribed| entries(&self.cupti, subscribed));
        let held = stacks.is_some().then(|| self.hold_thread_ends());
        if let Some(started) = stacks {
            match Launches::begin(&self.cupti, started, &mut self.drain.sink) {
                Ok(launches) => self.launches = Some(launches),
                Err(text) => self.note(text),
            }
        }
        // The subscription of a profiler that comes between these two fails, and PyTorch's then gives
        // up for good. So nothing else is done in between.
        self.watch_for_others(match self.launches {
            Some(_) => &of_first_calls,
            None => &all,
        });
        let why_not = match (&self.launches, &self.watch) {
            (Some(_), None) => Some("another profiler that comes meanwhile cannot be made to wait"),
            (Some(launches), _) if !launches.choose(&self.cupti, &mut self.drain.sink) => {
                Some("this CUPTI has no callbacks")
            }
            _ => None,
        };
        if let Some(why) = why_not {
            // CUPTI has called nothing yet.
            self.end_launches(true);
            self.note(format!("{NO_STACKS}{why}"));
        }
        drop(held);
    }

    /// Prepares the tables of stacks. Where none can be taken, notes why.
    fn take_stacks(&mut self, wanted: Wanted) -> Option<Started> {
        if let Err(why) = launches::is_safe(&self.cupti) {
            self.note(why);
            return None;
        }
        match midair_stacks::begin(wanted) {
            Ok(started) => Some(started),
            Err(why) => {
                self.note(why.text());
                None
            }
        }
    }

    fn watch_for_others(&mut self, entries: &[usize]) {
        // SAFETY: these are entry points of functions of a library that stays loaded. The functions
        // are called at their entries, with integers and pointers only.
        match unsafe { Watch::begin(entries) } {
            Ok(watch) => self.watch = Some(watch),
            Err(why) => self.note(format!(
                "another profiler that comes meanwhile is not noticed: {why}"
            )),
        }
    }

    /// Ends the subscription, if there is one. `left`: whether all threads have left CUPTI since it was
    /// silenced.
    fn end_launches(&mut self, left: bool) {
        if let Some(launches) = self.launches.take() {
            launches.end(&self.cupti, left, &mut self.drain.sink);
        }
    }

    /// Finds the destructors by which CUPTI notices that a thread ends.
    fn watch_thread_ends(&mut self) {
        let function = self.cupti.functions().finalize as usize;
        // A key that has its relay keeps it. What fails is final: the keys are too many, or not shown.
        self.thread_ends = Some(match self.thread_ends.take() {
            Some(Ok(mut ends)) => ends.watch_more(function).map(|()| ends),
            Some(Err(why)) => Err(why),
            None => ThreadEnds::watch(function),
        });
    }

    /// Holds the threads that end, while CUPTI is switched or finalized.
    fn hold_thread_ends(&self) -> Result<Held, &'static str> {
        match &self.thread_ends {
            Some(Ok(ends)) => ends.hold(),
            Some(Err(why)) => Err(why),
            None => Err("CUPTI was not switched on"),
        }
    }

    /// Stores a note for the user, once in a session.
    fn note(&mut self, text: String) {
        if !self.noted.contains(&text) {
            self.drain.sink.note(&text);
            self.noted.push(text);
        }
    }

    /// Makes CUPTI leave out its own call, and those that only ask for state: nine of ten of the
    /// calls of PyTorch's loops (docs/sources.md#cupti). If CUPTI is older than these functions,
    /// [`Drain`] leaves the records out. [`Session::take_calls_in`] undoes it.
    fn leave_calls_out(&mut self, choice: &Choice) {
        let silent = |calls: &'static [u32]| if choice.all_calls { &[] } else { calls };
        let mut wanted: Vec<LeftOut> = Vec::new();
        if self.enabled.contains(&activity_kind::RUNTIME) {
            wanted.extend(
                silent(&SILENT_RUNTIME)
                    .iter()
                    .copied()
                    .map(LeftOut::Runtime),
            );
        }
        if self.enabled.contains(&activity_kind::DRIVER) {
            wanted.push(LeftOut::Driver(OWN_CALL));
            let silent = silent(&SILENT_DRIVER).iter().copied();
            wanted.extend(silent.filter(|call| *call != OWN_CALL).map(LeftOut::Driver));
        }
        // An older CUPTI may not know a call.
        wanted.retain(|call| call.switch(&self.cupti, false).is_ok());
        self.left_out = wanted;
    }

    /// Makes CUPTI record all calls again, immediately before their kinds are disabled. [`Drain`]
    /// leaves out what is recorded in between.
    ///
    /// CUPTI forgets single calls when their kind is disabled. But if a kind of calls is disabled
    /// while single calls of the driver are left out, CUPTI 13.0 may take a thread for being inside
    /// a call from then on: all later calls of that thread have one correlation id, in every
    /// profiler, and PyTorch's fails. Without midair, alongside PyTorch's graphs on an H100, this
    /// happened within 10,000 times on and off in each of five processes. With the calls switched
    /// on first, it did not happen in 300,000 (docs/sources.md#cupti).
    fn take_calls_in(&mut self) {
        for call in self.left_out.drain(..) {
            // CUPTI took the call when it was switched off.
            let _ = call.switch(&self.cupti, true);
        }
    }

    /// With one buffer per thread, the thread that requests a buffer tells both of its ids, and
    /// CUPTI need not ask the system at each record (a system call: 4 % of a loop of launches on an
    /// H200; docs/sources.md#cupti). Otherwise it must.
    fn choose_thread_ids(&mut self, choice: &Choice) {
        if !(choice.calls() || choice.has(kind::MARKER_CORE_RANGE_API)) {
            return;
        }
        let each = self
            .cupti
            .get_attribute::<u8>(attribute::PER_THREAD_ACTIVITY_BUFFER);
        if each == Ok(1) {
            self.drain.threads_by_half();
            return;
        }
        match self.cupti.set_thread_id_type(thread_id_type::SYSTEM) {
            Ok(()) => self.system_ids = true,
            Err(why) => self.note(format!(
                "thread ids are not the system's: cuptiSetThreadIdType says {why}"
            )),
        }
    }

    /// Runs one round. Returns whether the next one should follow soon.
    pub fn tick(&mut self) -> bool {
        if let Some(nvtx) = &mut self.nvtx {
            nvtx.tick();
        }
        let since = |moment: u64| now().saturating_sub(moment);
        let quiet = since(self.came_at.max(self.flushed_at));
        if quiet >= FLUSH_AFTER || since(self.flushed_at) >= FLUSH_EVERY {
            self.flush(false);
        }
        self.take_returned();
        if let Some(launches) = &mut self.launches {
            launches.refresh(&mut self.drain.sink);
        }
        let read = self.read_pending(READ_AT_ONCE, false);
        read > 0 || !self.pending.is_empty()
    }

    /// Whether another profiler waits for the end of this session.
    pub fn is_requested(&self) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| watch.requests() > 0)
    }

    /// When CUPTI was switched on the last time.
    pub fn on_since(&self) -> u64 {
        self.on_since
    }

    /// The sink of the session's records.
    pub fn sink(&mut self) -> &mut Sink {
        &mut self.drain.sink
    }

    /// How many kinds are enabled.
    pub fn slots(&self) -> u32 {
        self.enabled.len() as u32
    }

    /// Adds a reading of both clocks.
    fn read_clocks(&mut self) {
        let cupti = &self.cupti;
        if let Some(reading) = clock::Reading::read(|| cupti.timestamp().ok(), now) {
            self.drain.clock.add(reading);
        }
    }

    /// Flushes CUPTI: completed records, or all of them.
    fn flush(&mut self, forced: bool) {
        let flushed = self.cupti.flush_all(forced);
        self.flushed_at = now();
        self.note_error("cuptiActivityFlushAll", flushed);
        self.read_clocks();
        if let Ok(dropped) = self.cupti.dropped() {
            self.counts.dropped += dropped as u64;
            self.drain.sink.lost(kind::KERNEL_DISPATCH, dropped as u64);
        }
    }

    /// Notes an error, once while it stays the same.
    fn note_error(&mut self, what: &'static str, result: Result<(), Status>) {
        if let Err(why) = result
            && self.noted_error != Some((what, why))
        {
            self.noted_error = Some((what, why));
            self.drain.sink.note(&format!("{what} says {why}"));
        }
    }

    /// Takes the buffers that were returned.
    fn take_returned(&mut self) {
        POOL.filled(&mut self.scratch);
        if !self.scratch.is_empty() {
            self.came_at = now();
        }
        let fresh = self.scratch.drain(..).map(|filled| Reading {
            filled,
            record: std::ptr::null_mut(),
            behind: 0,
        });
        self.pending.extend(fresh);
    }

    /// Reads buffers until `most` bytes of them were read, as far as there is space in the spool;
    /// also without space, if CUPTI may soon have no buffer left or `anyway` is set. Returns how many
    /// were read to their end.
    fn read_pending(&mut self, most: usize, anyway: bool) -> usize {
        let (mut count, mut bytes) = (0, 0);
        while bytes < most
            && let Some(mut reading) = self.pending.pop_front()
        {
            let anyway = anyway || POOL.free_count() <= KEEP_FREE;
            if !self.read(&mut reading, anyway) {
                self.pending.push_front(reading);
                break;
            }
            POOL.recycle(&reading.filled);
            count += 1;
            bytes += reading.filled.valid;
        }
        count
    }

    /// Reads the records of a buffer. Returns false where the spool has no space for the rest.
    fn read(&mut self, reading: &mut Reading, anyway: bool) -> bool {
        let layouts = self.cupti.layouts();
        let Filled {
            start,
            valid,
            owner,
            ..
        } = reading.filled;
        self.drain.owner((owner >> 32) as u32, owner as u32);
        let mut until_check = 0;
        loop {
            if until_check == 0 {
                if !anyway && !self.drain.sink.has_room(MAX_BATCH_BYTES) {
                    return false;
                }
                until_check = RECORDS_PER_CHECK;
            }
            until_check -= 1;
            // SAFETY: a buffer that CUPTI returned with so many valid bytes. One of midair's is given
            // to CUPTI again only after this has returned true; one of another profiler is never
            // given back to its owner.
            let next = unsafe { self.cupti.next_record(start, valid, reading.record) };
            let record = match next {
                Ok(Some(next)) => next,
                Ok(None) => return true,
                Err(why) => {
                    self.note_error("cuptiActivityGetNextRecord", Err(why));
                    break;
                }
            };
            // CUPTI is not trusted here: a record must lie in the buffer, behind the previous one.
            let at = record.addr().wrapping_sub(start.addr());
            if at < reading.behind || at.saturating_add(8) > valid {
                break;
            }
            // SAFETY: eight bytes of the buffer are there.
            let kind = unsafe { decode::kind(record) };
            let size = decode::size(layouts, kind).unwrap_or(8);
            if at + size > valid {
                break;
            }
            (reading.record, reading.behind) = (record, at + size);
            // SAFETY: the whole record lies in the buffer; its texts belong to CUPTI, which is not
            // finalized yet.
            unsafe { self.drain.convert(&decode::read(layouts, kind, record)) };
        }
        self.counts.broken += 1;
        self.drain.sink.lost(kind::KERNEL_DISPATCH, 1);
        true
    }
}

/// In a forked child, before its first session: CUPTI is a copy there, without its threads.
pub fn reset_after_fork() {
    POOL.reset_after_fork();
    USED.store(false, SeqCst);
    KEEP_LOADED.store(true, SeqCst);
}

/// All counters of unified memory, for all devices.
fn unified_counters() -> Vec<UnifiedMemoryConfig> {
    let kinds = [
        unified_memory::BYTES_TRANSFER_HTOD,
        unified_memory::BYTES_TRANSFER_DTOH,
        unified_memory::BYTES_TRANSFER_DTOD,
        unified_memory::GPU_PAGE_FAULT,
    ];
    let config = |kind| UnifiedMemoryConfig {
        scope: unified_memory_scope::PROCESS_ALL_DEVICES,
        kind,
        device: 0,
        enable: 1,
    };
    kinds.into_iter().map(config).collect()
}

/// The sink of a session in `area`.
///
/// # Safety
/// As [`Sink::new`].
pub unsafe fn sink(area: Area) -> Sink {
    // SAFETY: a system call without arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    // SAFETY: the caller's promise.
    unsafe { Sink::new(area, tid) }
}

/// CUPTI requests a buffer, on any thread.
unsafe extern "C" fn requested(buffer: *mut *mut u8, bytes: *mut usize, records: *mut usize) {
    let (start, size) = match POOL.take(caller) {
        Some(start) => (start, POOL.given()),
        None => (std::ptr::null_mut(), 0),
    };
    // SAFETY: CUPTI's out pointers.
    unsafe {
        buffer.write(start);
        bytes.write(size);
        // As many records as fit.
        records.write(0);
    }
}

/// CUPTI returns a buffer, on any thread.
unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, valid: usize) {
    POOL.put_back(buffer, size, valid);
}

/// The calling thread: the low half of its `pthread_self` in the upper half, its thread id in the
/// lower. One system call for each buffer that a thread fills.
fn caller() -> u64 {
    // SAFETY: neither has arguments.
    let (this, tid) = unsafe { (libc::pthread_self(), libc::syscall(libc::SYS_gettid)) };
    this << 32 | tid as u64 & 0xffff_ffff
}
