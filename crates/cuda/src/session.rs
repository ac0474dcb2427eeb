//! One session with one CUPTI: switched on, drained while it runs, switched off (see [`finish`]).
//!
//! We do not stay its subscriber: activity needs none, and a profiler that subscribes later must not be refused because of us.

#[cfg(test)]
mod fake;
mod finish;
#[cfg(test)]
mod tests;

use crate::choice::Choice;
use crate::clock::{Clock, Pair};
use crate::cupti::functions::UnifiedMemoryConfig;
use crate::cupti::{Cupti, Status, decode};
use crate::drain::Drain;
use crate::pool::{BUFFER, BUFFERS, Filled, Pool};
use crate::sink::Sink;
use crate::watch::Watch;
use midair_abi::cupti::{activity_kind, thread_id_type, unified_memory, unified_memory_scope};
use midair_guest::{Refused, now};
use midair_record::event::kind;
use midair_record::spool::{Area, status};
use std::collections::VecDeque;
use std::ffi::c_void;

/// The buffers of this process.
pub static POOL: Pool = Pool::new();

/// How often CUPTI is asked for what is finished, ns: what is recorded reaches the attacher that soon, also if the process is killed.
const FLUSH_EVERY: u64 = 100_000_000;
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
    /// Came back and not read to the end yet, for want of room in the spool.
    pending: VecDeque<Reading>,
    scratch: Vec<Filled>,
    flushed_at: u64,
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
        is_alone(cupti)?;
        let mut session = Session {
            cupti: cupti.clone(),
            drain: Drain::new(sink, Clock::default(), choice.calls),
            enabled: Vec::new(),
            watch: None,
            pending: VecDeque::new(),
            scratch: Vec::new(),
            flushed_at: now(),
            dropped: 0,
            broken: 0,
            told: None,
        };
        match session.switch_on(choice) {
            Ok(()) => {
                describe(&mut session.drain.sink);
                Ok(session)
            }
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
        if let Err(why) = cupti.set_thread_id_type(thread_id_type::SYSTEM) {
            let text = format!("thread ids are not the system's: cuptiSetThreadIdType says {why}");
            self.drain.sink.note(&text);
        }
        // Where CUPTI takes a clock it is ours, and no clock that is set counts. Where not, its own is converted; both look the same below.
        let _ = cupti.register_timestamp_callback(Some(clock));
        let registered = cupti.register_callbacks(requested, completed);
        registered.map_err(|why| does_not_work(&cupti, "cuptiActivityRegisterCallbacks", why))?;
        self.pair();
        if choice.memory
            && let Err(why) = cupti.configure_unified_memory(&mut unified_counters())
        {
            let text = format!("moves of unified memory are not recorded: CUPTI says {why}");
            self.drain.sink.note(&text);
        }
        let mut last = None;
        for wanted in kinds(choice) {
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
        self.flushed_at = now();
        Ok(())
    }

    /// One round. Whether the next one should come soon.
    pub fn tick(&mut self) -> bool {
        if now().saturating_sub(self.flushed_at) >= FLUSH_EVERY {
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
        // Buffers are not bound to contexts: null stands for all.
        if let Ok(dropped) = self.cupti.dropped(std::ptr::null_mut::<c_void>(), 0) {
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
        let Filled { start, valid, .. } = reading.filled;
        let mut until_look = 0;
        loop {
            if until_look == 0 {
                if !anyway && !self.drain.sink.has_room(ROOM) {
                    return false;
                }
                until_look = RECORDS_PER_LOOK;
            }
            until_look -= 1;
            // SAFETY: a buffer that CUPTI gave back with so many valid bytes, which goes to it again only when this has returned true.
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

/// The kinds that a choice stands for.
fn kinds(choice: &Choice) -> Vec<u32> {
    let groups: [(bool, &[u32]); 5] = [
        (choice.kernels, &[activity_kind::CONCURRENT_KERNEL]),
        (
            choice.copies,
            &[
                activity_kind::MEMCPY,
                activity_kind::MEMCPY2,
                activity_kind::MEMSET,
            ],
        ),
        (
            choice.calls,
            &[
                activity_kind::RUNTIME,
                activity_kind::DRIVER,
                activity_kind::SYNCHRONIZATION,
            ],
        ),
        (choice.markers, &[activity_kind::MARKER]),
        (
            choice.memory,
            &[
                activity_kind::MEMORY2,
                activity_kind::UNIFIED_MEMORY_COUNTER,
            ],
        ),
    ];
    let wanted = groups.iter().filter(|(on, _)| *on);
    wanted
        .flat_map(|(_, kinds)| kinds.iter().copied())
        .collect()
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
        functions.finalize as usize,
    ];
    let others = [
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

/// Whether nobody else has CUPTI: a subscriber is made and ended.
///
/// # Errors
/// Somebody has, or CUPTI does not work.
pub fn is_alone(cupti: &Cupti) -> Result<(), Refused> {
    unsafe extern "C" fn nothing(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}
    let what = match cupti.subscribe(nothing, std::ptr::null_mut()) {
        Ok(subscriber) => {
            return cupti
                .unsubscribe(subscriber)
                .map_err(|why| does_not_work(cupti, "cuptiUnsubscribe", why));
        }
        Err(Status::OTHER_SUBSCRIBER) => {
            return Err(refused(
                status::OTHER_PROFILER,
                "another profiler has subscribed to CUPTI in this process, which takes one at a time (PyTorch's stays subscribed \
                 from its first use on)",
            ));
        }
        Err(why) => why,
    };
    Err(does_not_work(cupti, "cuptiSubscribe", what))
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
    let (start, size) = match POOL.take() {
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

/// The clock of our records, for CUPTI: called on any thread.
unsafe extern "C" fn clock() -> u64 {
    now()
}
