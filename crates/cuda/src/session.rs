//! One session with one CUPTI: switched on, drained while it runs, switched off (see [`finish`]).
//!
//! We are never its subscriber, not even for a moment: activity needs none, and PyTorch's profiler gives up for good where somebody is at
//! its first use.

#[cfg(test)]
pub(crate) mod fake;
mod finish;
mod quiesce;
#[cfg(test)]
mod tests;
mod workers;

use crate::choice::Choice;
use crate::clock::Pair;
use crate::cupti::functions::UnifiedMemoryConfig;
use crate::cupti::{Cupti, Status, decode};
use crate::drain::Drain;
use crate::nvtx::Nvtx;
use crate::pool::{BUFFER, BUFFERS, Filled, Pool};
use crate::sink::Sink;
use crate::watch::Watch;
use midair_abi::cupti::{
    activity_kind, attribute, result, thread_id_type, unified_memory, unified_memory_scope,
};
use midair_cupti_file::Origin;
use midair_guest::{Refused, now};
use midair_record::event::kind;
use midair_record::spool::{Area, status};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// The buffers of this process.
pub static POOL: Pool = Pool::new();

/// CUPTI is not to be finalized in this process: see [`finish`].
pub(crate) static KEEP: AtomicBool = AtomicBool::new(false);
/// We have used CUPTI in this process since it was last finalized.
pub(crate) static USED: AtomicBool = AtomicBool::new(false);
/// We brought CUPTI into this process and were the first to use it, and nobody else was seen to.
pub(crate) static BROUGHT: AtomicBool = AtomicBool::new(false);

/// The number of `cuKernelGetName` among the driver's calls: CUPTI itself makes that call at each launch.
pub(crate) const OWN_CALL: u32 = 719;

/// After so long without a buffer CUPTI is asked for what is finished, ns: what is recorded reaches the attacher that soon, also if the
/// process is killed. Where buffers fill by themselves it is not asked: while it looks, launches wait for its locks.
const FLUSH_AFTER: u64 = 100_000_000;
/// But so often in any case: a thread that does little may stand beside one whose buffers fill.
const FLUSH_EVERY: u64 = 1_000_000_000;
/// Buffers that are read in one round: our thread shows in between that it lives.
const READ_AT_ONCE: usize = 4;
/// Records that are read between two looks at the room in the spool, and the room that they may need: few are longer than 200 bytes.
const RECORDS_PER_LOOK: u32 = 64;
const ROOM: usize = 128 * 1024;
/// So many free buffers are left for CUPTI, even if records are lost for want of room in the spool.
const KEEP_FREE: usize = BUFFERS / 4;

/// A session that is on.
#[derive(Debug)]
pub struct Session {
    cupti: Cupti,
    drain: Drain,
    /// Kinds that are switched on.
    enabled: Vec<u32>,
    watch: Option<Watch>,
    /// Where marks and ranges are wanted.
    nvtx: Option<Nvtx>,
    /// Came back and not read to the end yet, for want of room in the spool.
    pending: VecDeque<Reading>,
    scratch: Vec<Filled>,
    flushed_at: u64,
    /// When the last buffer came.
    came_at: u64,
    /// CUPTI was told to tell the system's thread ids.
    system_ids: bool,
    /// Records that CUPTI dropped.
    dropped: u64,
    /// Buffers whose records could not be walked to the end.
    broken: u64,
    /// An error of CUPTI's that was told already.
    told: Option<(&'static str, Status)>,
}

/// A buffer, and how far it was read.
#[derive(Debug)]
struct Reading {
    filled: Filled,
    /// The last record that was read; null before the first.
    record: *mut u8,
    /// Bytes up to its end.
    behind: usize,
}

impl Session {
    /// Switches CUPTI on. `describe` writes what is known of the process.
    ///
    /// # Errors
    /// Why not; everything is put back then.
    pub fn begin(
        cupti: &Cupti,
        choice: &Choice,
        sink: Sink,
        describe: impl FnOnce(&mut Sink),
    ) -> Result<Session, Refused> {
        // CUPTI is first used here.
        let _named = workers::Named::begin();
        is_alone(cupti)?;
        let mut session = Session {
            cupti: cupti.clone(),
            drain: Drain::new(sink, choice.calls()),
            enabled: Vec::new(),
            watch: None,
            nvtx: None,
            pending: VecDeque::new(),
            scratch: Vec::new(),
            flushed_at: now(),
            came_at: now(),
            system_ids: false,
            dropped: 0,
            broken: 0,
            told: None,
        };
        // Before calls are recorded: it makes some.
        describe(&mut session.drain.sink);
        match session.switch_on(choice) {
            Ok(()) => Ok(session),
            Err(why) => {
                session.take_back();
                Err(why)
            }
        }
    }

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
        self.pair();
        // What was dropped before is not ours.
        let _ = cupti.dropped();
        if choice.has(kind::UNIFIED_MEMORY)
            && let Err(why) = cupti.configure_unified_memory(&mut unified_counters())
        {
            let text = format!("moves of unified memory are not recorded: CUPTI says {why}");
            self.drain.sink.note(&text);
        }
        let mut last = None;
        for wanted in choice.activities() {
            match cupti.enable(wanted) {
                Ok(()) => self.enabled.push(wanted),
                Err(why) => {
                    let name = activity_kind::name(wanted).unwrap_or("?");
                    let what = format!("cuptiActivityEnable({name})");
                    // Without kernels there is nothing worth to be recorded; of the rest the user is told.
                    if wanted == activity_kind::CONCURRENT_KERNEL {
                        return Err(does_not_work(&cupti, &what, why));
                    }
                    self.drain
                        .sink
                        .note(&format!("{what} says {why}: none are recorded"));
                    last = Some((what, why));
                }
            }
        }
        if self.enabled.contains(&activity_kind::DRIVER) {
            // Where CUPTI is older than this function, `Drain` passes these records by.
            let _ = cupti.enable_driver_api(OWN_CALL, false);
        }
        if let (true, Some((what, why))) = (self.enabled.is_empty(), last) {
            return Err(does_not_work(&cupti, &what, why));
        }
        // SAFETY: entries of functions of a library that stays loaded, called by their entries, with integers and pointers only.
        match unsafe { Watch::begin(&entries(&cupti)) } {
            Ok(watch) => self.watch = Some(watch),
            Err(why) => self.drain.sink.note(&format!(
                "another profiler that comes meanwhile is not noticed: {why}"
            )),
        }
        if self.enabled.contains(&activity_kind::MARKER) {
            let nvtx = Nvtx::begin(&cupti);
            if let Some(text) = nvtx.note() {
                self.drain.sink.note(&text);
            }
            // Calls of NVTX's lead into it without us, and would go on doing so.
            KEEP.fetch_or(nvtx.is_cuptis(), SeqCst);
            self.nvtx = Some(nvtx);
        }
        self.flushed_at = now();
        Ok(())
    }

    /// With one buffer per thread, the thread that asks for it says both of its numbers, and CUPTI need not ask the system for one at each
    /// record (a system call, 4 % of a loop of launches on an H200). Without, it must.
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
            Err(why) => self.drain.sink.note(&format!(
                "thread ids are not the system's: cuptiSetThreadIdType says {why}"
            )),
        }
    }

    /// One round. Whether the next one should come soon.
    pub fn tick(&mut self) -> bool {
        if let Some(nvtx) = &mut self.nvtx {
            nvtx.tick();
        }
        let since = |moment: u64| now().saturating_sub(moment);
        let quiet = since(self.came_at.max(self.flushed_at));
        if quiet >= FLUSH_AFTER || since(self.flushed_at) >= FLUSH_EVERY {
            self.flush(false);
        }
        self.take();
        let read = self.read_pending(READ_AT_ONCE, false);
        read > 0 || !self.pending.is_empty()
    }

    /// Another profiler waits for us.
    pub fn is_asked(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.asked() > 0)
    }

    /// How much is switched on.
    pub fn slots(&self) -> u32 {
        self.enabled.len() as u32
    }

    /// A pair of both clocks.
    fn pair(&mut self) {
        let cupti = &self.cupti;
        if let Some(pair) = Pair::read(|| cupti.timestamp().ok(), now) {
            self.drain.clock.add(pair);
        }
    }

    /// Asks CUPTI for what is finished, or for everything.
    fn flush(&mut self, forced: bool) {
        let flushed = self.cupti.flush_all(forced);
        self.flushed_at = now();
        self.told("cuptiActivityFlushAll", flushed);
        self.pair();
        if let Ok(dropped) = self.cupti.dropped() {
            self.dropped += dropped as u64;
            self.drain.sink.lost(kind::KERNEL_DISPATCH, dropped as u64);
        }
    }

    /// Tells of an error, once while it stays the same.
    fn told(&mut self, what: &'static str, result: Result<(), Status>) {
        if let Err(why) = result
            && self.told != Some((what, why))
        {
            self.told = Some((what, why));
            self.drain.sink.note(&format!("{what} says {why}"));
        }
    }

    /// Takes what came back.
    fn take(&mut self) {
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

    /// Reads at most so many buffers, as far as there is room in the spool; also without room, if CUPTI may soon have no buffer left or
    /// `anyway`. Returns how many were read to the end.
    fn read_pending(&mut self, most: usize, anyway: bool) -> usize {
        let mut count = 0;
        while count < most
            && let Some(mut reading) = self.pending.pop_front()
        {
            let anyway = anyway || POOL.left() <= KEEP_FREE;
            if !self.read(&mut reading, anyway) {
                self.pending.push_front(reading);
                break;
            }
            POOL.recycle(&reading.filled);
            count += 1;
        }
        count
    }

    /// Reads records of a buffer. False where the spool has no room for the rest.
    fn read(&mut self, reading: &mut Reading, anyway: bool) -> bool {
        let layouts = self.cupti.layouts();
        let Filled {
            start,
            valid,
            owner,
            ..
        } = reading.filled;
        self.drain.owner((owner >> 32) as u32, owner as u32);
        let mut until_look = 0;
        loop {
            if until_look == 0 {
                if !anyway && !self.drain.sink.has_room(ROOM) {
                    return false;
                }
                until_look = RECORDS_PER_LOOK;
            }
            until_look -= 1;
            // SAFETY: a buffer that CUPTI gave back with so many valid bytes. One of ours goes to it again only when this has returned
            // true; another profiler's is not given back to him at all, and he keeps what he gave away.
            let next = unsafe { self.cupti.next_record(start, valid, reading.record) };
            let record = match next {
                Ok(Some(next)) => next,
                Ok(None) => return true,
                Err(why) => {
                    self.told("cuptiActivityGetNextRecord", Err(why));
                    break;
                }
            };
            // CUPTI's word is not taken for it: a record lies in the buffer and behind the one before.
            let at = record.addr().wrapping_sub(start.addr());
            if at < reading.behind || at.saturating_add(8) > valid {
                break;
            }
            // SAFETY: eight bytes of the buffer are there.
            let kind = unsafe { record.cast::<u32>().read_unaligned() };
            let size = decode::size(layouts, kind).unwrap_or(8);
            if at + size > valid {
                break;
            }
            (reading.record, reading.behind) = (record, at + size);
            // SAFETY: the whole record lies in the buffer, which nobody changes now; its texts are CUPTI's, which is not finalized yet.
            unsafe { self.drain.see(&decode::read(layouts, record)) };
        }
        self.broken += 1;
        self.drain.sink.lost(kind::KERNEL_DISPATCH, 1);
        true
    }
}

/// In a forked child, before its first session: CUPTI is a copy there, without its threads.
pub fn begin_anew() {
    POOL.begin_anew();
    USED.store(false, SeqCst);
    KEEP.store(true, SeqCst);
}

/// All counters of unified memory, of all devices.
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

/// Entries of the functions by which another profiler comes.
fn entries(cupti: &Cupti) -> Vec<usize> {
    let functions = cupti.functions();
    let mut entries = vec![
        functions.subscribe as usize,
        functions.register_callbacks as usize,
        functions.enable as usize,
        functions.set_attribute as usize,
        functions.finalize as usize,
    ];
    // PyTorch's begins its second and later runs with its clock.
    entries.extend(functions.register_timestamp_callback.map(|it| it as usize));
    let others = [
        c"cuptiEnableCallback",
        c"cuptiEnableDomain",
        c"cuptiSubscribe_v2",
        c"cuptiActivityRegisterCallbacks_v2",
        c"cuptiActivityEnable_v2",
        c"cuptiActivityEnableContext",
    ];
    entries.extend(
        others
            .iter()
            .filter_map(|name| cupti.symbol(name))
            .map(|it| it.addr()),
    );
    // One function under two names is one entry.
    entries.sort_unstable();
    entries.dedup();
    entries
}

/// Uses CUPTI for the first time, and looks whether nobody else records. A profiler that is there and idle (PyTorch's stays subscribed from
/// its first use on) is no obstacle.
///
/// Whoever makes CUPTI's threads is the first to use it, so nobody records. Only where they were there before is it asked, by the one
/// question that there is: kernels cannot be recorded one by one while somebody has them recorded side by side. To ask is not harmless:
/// where eight threads launch kernels meanwhile, that question as first use hung the process at every fiftieth time or so (CUPTI's lock
/// and the driver's, taken in both orders), and crashed it where CUPTI was in use before (H200, CUPTI 13.0). So it is not asked where
/// CUPTI came with us, either: then another profiler that came in while we were away, and records, is not noticed.
///
/// # Errors
/// Somebody does, or CUPTI does not work.
fn is_alone(cupti: &Cupti) -> Result<(), Refused> {
    let used_before = workers::are_ours();
    if !used_before {
        // Names of things: a kind that touches no launch, and that no profiler we know of records.
        let harmless = activity_kind::NAME;
        let used = cupti
            .enable(harmless)
            .and_then(|()| cupti.disable(harmless));
        used.map_err(|why| does_not_work(cupti, "cuptiActivityEnable(NAME)", why))?;
    }
    let ours = workers::are_ours();
    if !USED.swap(true, SeqCst) && !ours {
        // Somebody else used it before, in whatever way: it is his to finalize.
        KEEP.store(true, SeqCst);
    }
    if ours && !used_before {
        BROUGHT.fetch_or(cupti.origin() != Origin::Mapped, SeqCst);
        return Ok(());
    }
    if BROUGHT.load(SeqCst) {
        return Ok(());
    }
    match cupti.enable(activity_kind::KERNEL) {
        Ok(()) => {
            cupti
                .disable(activity_kind::KERNEL)
                .map_err(|why| does_not_work(cupti, "cuptiActivityDisable(KERNEL)", why))?;
            give_back_theirs(cupti);
            Ok(())
        }
        Err(Status(result::ERROR_NOT_COMPATIBLE)) => Err(refused(
            status::OTHER_PROFILER,
            "another profiler is recording this process's kernels through CUPTI, which serves one at a time",
        )),
        Err(why) => Err(does_not_work(cupti, "cuptiActivityEnable(KERNEL)", why)),
    }
}

/// Lets CUPTI return its buffers to the profiler that is registered. A kernel that a thread launched while we asked is recorded in a
/// buffer of that profiler's; left there, everything that we record would follow it into that buffer and come back to nobody who
/// reads it (an H200 with PyTorch's profiler: 21 of 397 sessions without a kernel; with this, none of 200).
fn give_back_theirs(cupti: &Cupti) {
    // Whoever is still inside a call may be writing to it: then it stays, and is read when it comes.
    if quiesce::wait(finish::LEAVE_LIMIT) {
        // Where nobody is registered CUPTI says so, and has no buffer.
        let _ = cupti.flush_all(true);
    }
}

fn does_not_work(cupti: &Cupti, what: &str, why: Status) -> Refused {
    let (major, minor) = cupti.cuda();
    let path = cupti.path();
    refused(
        status::NO_CUPTI,
        &format!("CUPTI {major}.{minor} ({path}) does not work in this process: {what} says {why}"),
    )
}

fn refused(status: u32, text: &str) -> Refused {
    Refused {
        status,
        text: text.to_owned(),
    }
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

/// CUPTI asks for a buffer, on any thread.
unsafe extern "C" fn requested(buffer: *mut *mut u8, bytes: *mut usize, records: *mut usize) {
    let (start, size) = match POOL.take(caller) {
        Some(start) => (start, BUFFER),
        None => (std::ptr::null_mut(), 0),
    };
    // SAFETY: places of CUPTI's for the answer.
    unsafe {
        buffer.write(start);
        bytes.write(size);
        // As many records as fit.
        records.write(0);
    }
}

/// CUPTI gives a buffer back, on any thread.
unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    POOL.give(buffer, valid);
}

/// The calling thread: the low half of its `pthread_self` above its number. One system call for each buffer that a thread fills.
fn caller() -> u64 {
    // SAFETY: neither has arguments.
    let (this, tid) = unsafe { (libc::pthread_self(), libc::syscall(libc::SYS_gettid)) };
    this << 32 | tid as u64 & 0xffff_ffff
}
