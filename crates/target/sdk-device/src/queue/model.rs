//! Queues in our own memory, and the runtime's functions on them, for tests. What a device does
//! happens when a test says so.
//!
//! The process has only one state of this crate, so a [`Session`] excludes all others.

use super::harvest::Harvester;
use super::queue_state::QueueState;
use super::scan::{self, Ring};
use super::state::{self, Hint};
use crate::layout::QueuePointer;
use crate::sink::Sink;
use midair_domain::KindSet;
use midair_record::event::{Header, Kernel, Plain, QueueCounts, kind};
use midair_record::spool::{ChunkWriter, Reader, ReaderOptions};
use midair_sdk_hot::pause;
use midair_sdk_hot::probe::{self, Busy};
use midair_sdk_hot::wrappers::TABLES;
use std::ffi::c_void;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The size of a model queue in packets, unless a test wants another one.
pub(crate) const SIZE: usize = 16;
/// The header of a dispatch.
pub(crate) const DISPATCH: u16 = 2;
/// The header of a dispatch that starts when all packets before it have ended.
pub(crate) const ORDERED_DISPATCH: u16 = 2 | 1 << 8;
const INVALID: u64 = 1;
/// The words of the queue's block that hold its indices, behind `amd_queue_t`.
const WRITTEN: usize = 64;
const READ: usize = 65;

/// Takes the stores to signals since the last call.
pub(crate) fn rung() -> Vec<(u64, i64)> {
    std::mem::take(&mut *RUNG.lock().unwrap_or_else(PoisonError::into_inner))
}

static ALONE: Mutex<()> = Mutex::new(());
/// The number of pieces of memory that were allocated and not freed.
pub(crate) static ALLOCATED: AtomicI64 = AtomicI64::new(0);
/// The stores to signals that were not made by the application: handle and value.
static RUNG: Mutex<Vec<(u64, i64)>> = Mutex::new(Vec::new());

fn words<'a>(address: u64, count: usize) -> &'a [AtomicU64] {
    // SAFETY: the addresses in this module point to leaked arrays of at least this many words.
    unsafe {
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address as usize), count)
    }
}

fn leak<T>(value: T) -> u64 {
    std::ptr::from_ref(Box::leak(Box::new(value))).expose_provenance() as u64
}

#[repr(C, align(64))]
struct Words<const N: usize>([AtomicU64; N]);

impl<const N: usize> Words<N> {
    fn leak() -> u64 {
        leak(Words([const { AtomicU64::new(0) }; N]))
    }
}

/// A user signal of the application (`amd_signal_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserSignal(pub u64);

impl UserSignal {
    pub(crate) fn new(value: i64) -> UserSignal {
        let signal = UserSignal(Words::<8>::leak());
        words(signal.0, 8)[0].store(1, SeqCst);
        words(signal.0, 8)[1].store(value as u64, SeqCst);
        signal
    }

    /// The device writes the times.
    pub(crate) fn write_times(self, start: u64, end: u64) {
        words(self.0, 8)[4].store(start, SeqCst);
        words(self.0, 8)[5].store(end, SeqCst);
    }

    /// The device writes the times and decrements the value.
    pub(crate) fn fire(self, start: u64, end: u64) {
        self.write_times(start, end);
        words(self.0, 8)[1].fetch_sub(1, SeqCst);
    }

    /// The application arms it for its next use.
    pub(crate) fn arm(self) {
        words(self.0, 8)[1].store(1, SeqCst);
    }
}

/// The runtime's functions.
mod runtime {
    use super::{ALLOCATED, READ, RUNG, SeqCst, UserSignal, WRITTEN, c_void, words};

    pub(super) unsafe extern "C-unwind" fn write_index(queue: *mut c_void) -> u64 {
        words(queue.expose_provenance() as u64, 128)[WRITTEN].load(SeqCst)
    }
    pub(super) unsafe extern "C-unwind" fn cas_write_index(
        queue: *mut c_void,
        expected: u64,
        value: u64,
    ) -> u64 {
        let written = &words(queue.expose_provenance() as u64, 128)[WRITTEN];
        let hit = written.compare_exchange(expected, value, SeqCst, SeqCst);
        hit.unwrap_or_else(|found| found)
    }
    pub(super) unsafe extern "C-unwind" fn read_index(queue: *mut c_void) -> u64 {
        words(queue.expose_provenance() as u64, 128)[READ].load(SeqCst)
    }
    pub(super) unsafe extern "C-unwind" fn store(signal: u64, value: i64) {
        RUNG.lock().unwrap().push((signal, value));
    }
    pub(super) unsafe extern "C-unwind" fn make_signal(
        value: i64,
        _consumers: u32,
        _list: *mut c_void,
        _attributes: u64,
        out: *mut c_void,
    ) -> u32 {
        // SAFETY: the caller's out pointer.
        unsafe { *out.cast::<u64>() = UserSignal::new(value).0 };
        0
    }
    pub(super) unsafe extern "C-unwind" fn destroy_signal(_signal: u64) -> u32 {
        0
    }
    pub(super) unsafe extern "C-unwind" fn profile(_queue: *mut c_void, _on: i32) -> u32 {
        0
    }
    /// One tick is a nanosecond.
    pub(super) unsafe extern "C-unwind" fn convert(
        _agent: u64,
        tick: u64,
        out: *mut c_void,
    ) -> u32 {
        // SAFETY: the caller's out pointer.
        unsafe { *out.cast::<u64>() = tick };
        0
    }
    pub(super) unsafe extern "C-unwind" fn copy_times(signal: u64, out: *mut c_void) -> u32 {
        let words = words(signal, 8);
        // SAFETY: the caller's out pointer, of two words.
        unsafe { *out.cast::<[u64; 2]>() = [words[4].load(SeqCst), words[5].load(SeqCst)] };
        0
    }
    type Each = unsafe extern "C" fn(u64, *mut c_void) -> u32;
    /// Agent 6, a processor, and agent 7, a GPU; both of node 0.
    pub(super) unsafe extern "C-unwind" fn agents(each: *mut c_void, data: *mut c_void) -> u32 {
        // SAFETY: the caller's callback of this type, and its data.
        unsafe {
            let each = std::mem::transmute::<*mut c_void, Each>(each);
            each(6, data) | each(7, data)
        }
    }
    pub(super) unsafe extern "C-unwind" fn agent_info(
        agent: u64,
        what: u32,
        out: *mut c_void,
    ) -> u32 {
        const DEVICE: u32 = 17;
        const NODE: u32 = 0xA004;
        let value = match what {
            DEVICE => u32::from(agent == 7),
            NODE => agent as u32 - 6,
            _ => return 1,
        };
        // SAFETY: the caller's out pointer.
        unsafe { *out.cast::<u32>() = value };
        0
    }
    /// Each agent has one pool, with the agent's number.
    pub(super) unsafe extern "C-unwind" fn pools(
        agent: u64,
        each: *mut c_void,
        data: *mut c_void,
    ) -> u32 {
        // SAFETY: the caller's callback of this type, and its data.
        unsafe { std::mem::transmute::<*mut c_void, Each>(each)(agent, data) }
    }
    /// The CPU agent's pool is fine-grained, and all pools allow allocation.
    pub(super) unsafe extern "C-unwind" fn pool_info(
        pool: u64,
        what: u32,
        out: *mut c_void,
    ) -> u32 {
        let value = match (what, pool) {
            (0, _) => 0_u32,
            (1, 6) => 2,
            (1, _) => 4,
            _ => 1,
        };
        // SAFETY: the caller's out pointer.
        unsafe { *out.cast::<u32>() = value };
        0
    }
    pub(super) unsafe extern "C-unwind" fn allocate(
        pool: u64,
        bytes: u64,
        _flags: u32,
        out: *mut c_void,
    ) -> u32 {
        assert_eq!(pool, 6);
        let layout = std::alloc::Layout::from_size_align(bytes as usize, 4096).unwrap();
        // SAFETY: the layout is not empty, and the out pointer is the caller's.
        unsafe { *out.cast::<*mut u8>() = std::alloc::alloc_zeroed(layout) };
        ALLOCATED.fetch_add(1, SeqCst);
        0
    }
    pub(super) unsafe extern "C-unwind" fn free(_at: *mut c_void) -> u32 {
        ALLOCATED.fetch_sub(1, SeqCst);
        0
    }
    pub(super) unsafe extern "C-unwind" fn allow(
        count: u32,
        agents: *mut c_void,
        _flags: *mut c_void,
        _at: *mut c_void,
    ) -> u32 {
        // SAFETY: the caller's list.
        assert_eq!((count, unsafe { *agents.cast::<u64>() }), (1, 7));
        0
    }
    /// Rings are host memory, which the runtime has allocated.
    pub(super) unsafe extern "C-unwind" fn pointer_info(
        _at: *mut c_void,
        out: *mut c_void,
        _allocate: *mut c_void,
        _count: *mut c_void,
        _agents: *mut c_void,
    ) -> u32 {
        const ALLOCATED: u32 = 1;
        // SAFETY: the caller's structure.
        unsafe {
            out.cast::<u32>().add(1).write(ALLOCATED);
            out.cast::<u64>().add(5).write(6);
        }
        0
    }
    pub(super) unsafe extern "C-unwind" fn no_table(_: u16, _: u16, _: u64, _: *mut c_void) -> u32 {
        1
    }

    /// The queues exist already: the caller's descriptors name them.
    pub(super) unsafe extern "C-unwind" fn make_queues(
        _agent: u64,
        _descriptors: *mut c_void,
        _count: u32,
    ) -> u32 {
        0
    }
    /// The queue is of agent 7, and for kernels.
    pub(super) unsafe extern "C-unwind" fn queue_info(
        _queue: *mut c_void,
        what: u32,
        out: *mut c_void,
    ) -> u32 {
        const AGENT: u32 = 0;
        const ENGINE: u32 = 13;
        // SAFETY: the caller's out pointer, of the attribute's type.
        unsafe {
            match what {
                AGENT => *out.cast::<u64>() = 7,
                ENGINE => *out.cast::<u32>() = 0,
                _ => return 1,
            }
        }
        0
    }

    pub(super) const FUNCTIONS: [(&str, *const ()); 22] = [
        ("hsa_amd_queue_create", make_queues as *const ()),
        ("hsa_amd_queue_get_info", queue_info as *const ()),
        ("hsa_amd_pointer_info", pointer_info as *const ()),
        (
            "hsa_queue_load_write_index_scacquire",
            write_index as *const (),
        ),
        (
            "hsa_queue_load_write_index_relaxed",
            write_index as *const (),
        ),
        (
            "hsa_queue_load_read_index_scacquire",
            read_index as *const (),
        ),
        ("hsa_signal_store_screlease", store as *const ()),
        ("hsa_signal_store_relaxed", store as *const ()),
        ("hsa_amd_signal_create", make_signal as *const ()),
        ("hsa_signal_destroy", destroy_signal as *const ()),
        (
            "hsa_amd_profiling_set_profiler_enabled",
            profile as *const (),
        ),
        (
            "hsa_amd_profiling_convert_tick_to_system_domain",
            convert as *const (),
        ),
        (
            "hsa_amd_profiling_get_async_copy_time",
            copy_times as *const (),
        ),
        ("hsa_agent_get_info", agent_info as *const ()),
        ("hsa_iterate_agents", agents as *const ()),
        ("hsa_amd_agent_iterate_memory_pools", pools as *const ()),
        ("hsa_amd_memory_pool_get_info", pool_info as *const ()),
        ("hsa_amd_memory_pool_allocate", allocate as *const ()),
        ("hsa_amd_memory_pool_free", free as *const ()),
        ("hsa_amd_agents_allow_access", allow as *const ()),
        (
            "hsa_queue_cas_write_index_scacq_screl",
            cas_write_index as *const (),
        ),
        (
            "hsa_system_get_major_extension_table",
            no_table as *const (),
        ),
    ];
}

/// A queue of the application.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelQueue {
    at: u64,
    ring: u64,
    size: usize,
    pub doorbell: u64,
    pub state: &'static QueueState,
}

impl ModelQueue {
    fn new(size: usize) -> ModelQueue {
        let hint = Hint {
            agent: 7,
            engine: Some(0),
            reserved: None,
        };
        // SAFETY: the queue was just made, and is never freed.
        ModelQueue::learned(size, |at| unsafe {
            state::learn(QueuePointer(at), hint).unwrap()
        })
    }

    /// Makes a queue that is learned with this hint.
    pub(crate) fn learned(
        size: usize,
        learn: impl FnOnce(u64) -> &'static QueueState,
    ) -> ModelQueue {
        let packets = (0..size).map(|_| Words([const { AtomicU64::new(0) }; 8]));
        let packets: &[Words<8>] = Vec::leak(packets.collect());
        let (at, ring, doorbell) = (
            Words::<128>::leak(),
            packets.as_ptr().expose_provenance() as u64,
            Words::<8>::leak(),
        );
        let queue = words(at, 128);
        for (word, value) in [(1, ring), (2, doorbell), (3, size as u64), (4, 1)] {
            queue[word].store(value, SeqCst);
        }
        // The queue's profiling is on.
        queue[22].store(1 << 35, SeqCst);
        for packet in words(ring, 8 * size).chunks(8) {
            packet[0].store(INVALID, SeqCst);
        }
        words(doorbell, 8)[0].store(crate::layout::KIND_DOORBELL as u64, SeqCst);
        words(doorbell, 8)[6].store(at, SeqCst);
        let state = learn(at);
        ModelQueue {
            at,
            ring,
            size,
            doorbell,
            state,
        }
    }

    fn packet(&self, index: u64) -> &[AtomicU64] {
        let at = 8 * (index as usize % self.size);
        &words(self.ring, 8 * self.size)[at..at + 8]
    }

    /// The application reserves one packet through the hook.
    pub(crate) fn reserve_one(&self) -> u64 {
        self.reserve_batch(1)
    }

    /// The application reserves several packets at once.
    pub(crate) fn reserve_batch(&self, count: u64) -> u64 {
        let queue = std::ptr::with_exposed_provenance_mut(self.at as usize);
        let original = || words(self.at, 128)[WRITTEN].fetch_add(count, SeqCst);
        // SAFETY: this is the model's queue, which is never freed.
        unsafe { crate::hooks::reserve(queue, count, original) }
    }

    /// Returns a packet's words.
    pub(crate) fn words(&self, index: u64) -> [u64; 8] {
        std::array::from_fn(|n| self.packet(index)[n].load(SeqCst))
    }

    /// Returns the number of reserved packets.
    pub(crate) fn written(&self) -> u64 {
        words(self.at, 128)[WRITTEN].load(SeqCst)
    }

    /// Returns the next packet that the device takes.
    pub(crate) fn read(&self) -> u64 {
        words(self.at, 128)[READ].load(SeqCst)
    }

    /// Reserves the packets below `end`.
    pub(crate) fn reserve(&self, end: u64) {
        words(self.at, 128)[WRITTEN].store(end, SeqCst);
    }

    /// Writes packet `index` as a producer: a dispatch with this header and completion signal (0:
    /// none).
    pub(crate) fn write(&self, index: u64, header: u16, signal: u64) {
        let packet = self.packet(index);
        packet[1].store(1, SeqCst);
        packet[4].store(0xabcd, SeqCst);
        packet[7].store(signal, SeqCst);
        packet[0].store(u64::from(header) | 1 << 16 | 64 << 32, SeqCst);
    }

    /// Returns the completion signal of packet `index`.
    pub(crate) fn signal(&self, index: u64) -> UserSignal {
        UserSignal(self.packet(index)[7].load(SeqCst))
    }

    /// Marks all packets below `end` as taken by the device.
    pub(crate) fn take(&self, end: u64) {
        let read = &words(self.at, 128)[READ];
        for index in read.load(SeqCst)..end {
            let first = &self.packet(index)[0];
            first.store(first.load(SeqCst) & !0xffff | INVALID, SeqCst);
        }
        read.store(end, SeqCst);
    }

    /// Rings on the calling thread for all packets up to `value`.
    pub(crate) fn ring(&self, value: i64) -> Ring {
        scan::doorbell(self.state, &mut Busy::enter().unwrap(), value).0
    }
}

/// A session that records kernels.
#[derive(Debug)]
pub(crate) struct Session {
    pub harvester: Harvester,
    pub sink: Sink,
    reader: Reader,
    _alone: MutexGuard<'static, ()>,
}

impl Session {
    pub(crate) fn begin() -> Session {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in TABLES.iter().flat_map(|table| table.slots) {
            let named = |(name, _): &&(&str, *const ())| *name == slot.name;
            if let Some((_, function)) = runtime::FUNCTIONS.iter().find(named) {
                slot.original.store(function.cast_mut(), SeqCst);
            }
        }
        RUNG.lock().unwrap_or_else(PoisonError::into_inner).clear();
        state::clear();
        state::number_from_one();
        pause::begin(pause::Mode::default());
        pause::set_shared(false);
        assert!(probe::session::prepare() && state::provide());
        let reader = Reader::create(&ReaderOptions {
            size: 1 << 20,
            settings: Vec::new(),
            drain_ms: 1,
            lease_ms: 0,
            session: 1,
        })
        .unwrap();
        // SAFETY: the reader outlives the session, which is stopped before.
        let area = unsafe { reader.area() }.unwrap();
        // SAFETY: as above; no thread is inside, since sessions exclude each other.
        unsafe { probe::session::start(area, 1) };
        let kinds = KindSet::of(&[
            kind::KERNEL_DISPATCH,
            kind::MEMORY_COPY,
            kind::COUNTER_COLLECTION,
            kind::THREAD_TRACE,
        ]);
        probe::session::open(kinds, kinds);
        let mut harvester = Harvester::default();
        assert!(harvester.prepare());
        Session {
            harvester,
            sink: Sink {
                area,
                writer: ChunkWriter::new(),
                tid: 1,
            },
            reader,
            _alone: alone,
        }
    }

    pub(crate) fn queue(&self) -> ModelQueue {
        ModelQueue::new(SIZE)
    }

    /// Makes a queue with this many packets.
    pub(crate) fn queue_of(&self, size: usize) -> ModelQueue {
        ModelQueue::new(size)
    }

    /// Does a round of the worker thread.
    pub(crate) fn pass(&mut self) {
        self.harvester.pass(&mut self.sink);
    }

    /// The same for windows of counters.
    pub(crate) fn count(&mut self) {
        if let Some(keeper) = self.harvester.counters() {
            keeper.pass(&mut self.sink);
        }
    }

    /// Returns what our code rang so far.
    pub(crate) fn rung(&self) -> Vec<(u64, i64)> {
        RUNG.lock().unwrap().clone()
    }

    pub(crate) fn records(&mut self, mut each: impl FnMut(Header, &[u8])) {
        self.reader
            .drain(|mut bytes| {
                while let Some(header) = Header::read(bytes) {
                    each(header, bytes);
                    bytes = &bytes[usize::from(header.size)..];
                }
                Ok::<_, ()>(())
            })
            .unwrap();
    }

    /// Returns the kernels that were written since the last call: packet, start, end, reason.
    pub(crate) fn kernels(&mut self) -> Vec<(u64, u64, u64, u32)> {
        let mut kernels = Vec::new();
        self.records(|header, bytes| {
            if header.kind == kind::KERNEL_DISPATCH {
                let kernel = Kernel::read(bytes).unwrap();
                kernels.push((
                    kernel.packet_index,
                    kernel.start,
                    kernel.end,
                    kernel.untimed,
                ));
            }
        });
        kernels
    }

    /// Returns the counts of the only queue, at the end.
    pub(crate) fn finish(&mut self) -> QueueCounts {
        self.harvester.close(&mut self.sink);
        self.harvester.finish(&mut self.sink);
        let mut counts = None;
        self.records(|header, bytes| {
            if header.kind == kind::QUEUE_COUNTS {
                counts = QueueCounts::read(bytes);
            }
        });
        counts.unwrap()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let limit = Duration::from_secs(10);
        probe::session::close(limit);
        probe::session::stop();
        assert!(probe::quiesce(limit));
        self.harvester.give_back();
        state::clear();
    }
}
