//! The stacks of calls that launch work (`--stacks`), taken in the thread that makes such a call.
//!
//! CUPTI calls a subscriber's function at the entry of the driver's calls that it names, with the
//! correlation id that the kernel's record has, too. A launch that is captured has no kernel: CUPTI calls
//! the function when it has become a node of a graph, and when nodes are copied, which each executable graph
//! does. Records of a graph's kernels name these copies. For that midair subscribes, and only for that:
//! CUPTI serves one subscriber, so a process with another one has no stacks, and one that comes
//! waits for the end of the session ([`crate::watch`]).
//!
//! Decisions: CUDA-011, CUDA-046 (`docs/deviations/cuda.md`).

use crate::cupti::{Cupti, NodeId, Status};
use crate::sink::Sink;
use midair_abi::cupti::LAUNCHES;
use midair_record::event::{GraphBuild, Header, Plain, graph_build, kind};
use midair_record::spool::{Area, ChunkWriter};
use midair_stacks::{ModuleRecord, Started};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use std::time::{Duration, Instant};

/// `CUPTI_CB_DOMAIN_DRIVER_API`.
const DRIVER_CALLS: u32 = 1;
/// `CUPTI_CB_DOMAIN_RESOURCE`.
const RESOURCES: u32 = 3;
/// `CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED` and `CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED`.
const NODE_CREATED: u32 = 13;
const NODE_CLONED: u32 = 20;
/// `CU_GRAPH_NODE_TYPE_KERNEL`.
const KERNEL_NODE: u32 = 0;
/// `CUPTI_API_ENTER`.
const ENTRY: u32 = 0;
/// The first CUPTI whose callbacks are used, by the version of CUDA.
const SAFE_SINCE: (u32, u32) = (13, 5);
/// How many threads can store stacks at a time. A thread for which there is no place counts its
/// stack as lost.
const WRITERS: usize = 64;
/// How long a thread may take to leave [`called`].
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// What CUPTI gives a subscriber's function for a call of the driver or of the runtime
/// (`CUpti_CallbackData`, source: CUPTI's headers of 12.0 to 13.5).
#[repr(C)]
struct CallbackData {
    site: u32,
    function: *const c_void,
    parameters: *const c_void,
    result: *mut c_void,
    symbol: *const c_void,
    context: *mut c_void,
    context_id: u32,
    data: *mut u64,
    correlation: u32,
}

const _: () = assert!(offset_of!(CallbackData, correlation) == 64);

/// What CUPTI gives it for something that the process makes (`CUpti_ResourceData`).
#[repr(C)]
struct ResourceData {
    context: *mut c_void,
    stream: *mut c_void,
    about: *const GraphData,
}

/// What it says about graphs (`CUpti_GraphData`).
#[repr(C)]
struct GraphData {
    graph: *mut c_void,
    original_graph: *mut c_void,
    node: *mut c_void,
    original_node: *mut c_void,
    node_type: u32,
    dependency: *mut c_void,
    exec: *mut c_void,
}

const _: () = assert!(offset_of!(GraphData, exec) == 48);

/// A place in which one thread at a time stores records.
struct Place {
    /// Whether a thread is in it.
    taken: AtomicBool,
    writer: UnsafeCell<ChunkWriter>,
}

// SAFETY: only the thread that has set `taken` uses the writer.
unsafe impl Sync for Place {}

/// How often the list of libraries is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The spool of the session.
struct Spool(UnsafeCell<Option<Area>>);

// SAFETY: it is written while stacks are off and no thread has a place, and read by threads that have
// a place and have seen that stacks are on.
unsafe impl Sync for Spool {}

static PLACES: [Place; WRITERS] = [const {
    Place {
        taken: AtomicBool::new(false),
        writer: UnsafeCell::new(ChunkWriter::new()),
    }
}; WRITERS];
static SPOOL: Spool = Spool(UnsafeCell::new(None));
/// The page with the word that says whether stacks are taken; null before the first session with stacks. A
/// forked child finds it wiped, so that it does not write into its parent's spool.
static SWITCH: AtomicPtr<AtomicBool> = AtomicPtr::new(std::ptr::null_mut());
/// Stacks for which there was no place.
static LOST: AtomicU64 = AtomicU64::new(0);
/// Whether it is not known of some nodes of graphs where they come from: CUPTI does not say, or there was no
/// room for a record.
static NODES_LOST: AtomicBool = AtomicBool::new(false);

/// A subscription to the calls that launch work. [`Launches::silence`] and [`Launches::end`] end it.
#[derive(Debug)]
pub struct Launches {
    subscriber: *mut c_void,
    started: Started,
    /// When the list of libraries was looked at.
    looked: Instant,
}

impl Launches {
    /// Subscribes, and is not called yet. Called on the worker thread while CUPTI is in use, after
    /// [`midair_stacks::begin`] and before another profiler is watched for.
    ///
    /// # Errors
    /// Says why there are no stacks; then nothing is subscribed.
    pub fn begin(cupti: &Cupti, started: Started, sink: &mut Sink) -> Result<Launches, String> {
        // SAFETY: stacks are off, and no thread has a place ([`is_safe`]). A chunk that a writer still holds
        // belongs to an earlier session whose end did not wait any longer.
        unsafe {
            PLACES
                .iter()
                .for_each(|place| (*place.writer.get()).forget());
            *SPOOL.0.get() = Some(sink.area());
        }
        LOST.store(0, Relaxed);
        NODES_LOST.store(false, Relaxed);
        if !make_switch() {
            stop();
            return Err(no_stacks("no memory is left"));
        }
        turn(true);
        let subscriber = cupti.subscribe(called).map_err(|why| {
            stop();
            match why {
                Status::OTHER_SUBSCRIBER => no_stacks(
                    "CUPTI serves one subscriber and has one already (torch.profiler stays subscribed after its first run)",
                ),
                _ => no_stacks(&format!("cuptiSubscribe says {why}")),
            }
        })?;
        Ok(Launches {
            subscriber,
            started,
            looked: Instant::now(),
        })
    }

    /// Chooses the calls that launch work. Returns false if this CUPTI has no callbacks.
    pub fn choose(&self, cupti: &Cupti, sink: &mut Sink) -> bool {
        let mut any = false;
        for (domain, call) in calls() {
            // An older CUPTI may not know a call.
            // SAFETY: a subscriber that CUPTI gave, which has not ended.
            let done = unsafe { cupti.enable_callback(self.subscriber, domain, call, true) };
            match domain {
                RESOURCES if done.is_err() => NODES_LOST.store(true, Relaxed),
                RESOURCES => {}
                _ => any |= done.is_ok(),
            }
        }
        if cupti.functions().graph_node_id.is_none() {
            NODES_LOST.store(true, Relaxed);
        }
        if any {
            sink.put(&self.started.on, &[]);
            report(&self.started.modules, sink);
            if let Some(text) = &self.started.note {
                sink.note(text);
            }
        }
        any
    }

    /// Reads the list of modules again, if libraries were loaded or unloaded.
    pub fn refresh(&mut self, sink: &mut Sink) {
        if self.looked.elapsed() > LOOK_EVERY {
            self.looked = Instant::now();
            report(&midair_stacks::refresh(), sink);
        }
    }

    /// Has CUPTI call nothing any more. Threads may still be on their way to the subscriber.
    pub fn silence(&self, cupti: &Cupti) {
        for (domain, call) in calls() {
            // SAFETY: a subscriber that CUPTI gave, which has not ended.
            let _ = unsafe { cupti.enable_callback(self.subscriber, domain, call, false) };
        }
    }

    /// Ends the subscription, once all threads have `left` CUPTI since it was silenced, and waits for
    /// those that are storing a stack. If one of them does not leave in time, [`are_left`] says so.
    ///
    /// CUPTI 13.0 frees the subscriber while a launching thread is about to call it: such a thread
    /// jumps to an address from freed memory ([`is_safe`]). So it is never unsubscribed before they have left.
    pub fn end(self, cupti: &Cupti, left: bool, sink: &mut Sink) {
        if left {
            // SAFETY: a subscriber that CUPTI gave; afterwards it is not used any more.
            let ended = unsafe { cupti.unsubscribe(self.subscriber) };
            if let Err(why) = ended {
                sink.note(&format!("cuptiUnsubscribe says {why}"));
            }
        } else {
            sink.note(
                "midair stays subscribed to CUPTI, since threads were inside calls of CUDA for too long: \
                 another profiler cannot subscribe until the process exits",
            );
        }
        stop();
        let (record, words) = midair_stacks::cost().record();
        sink.put(&record, &words);
        sink.lost(kind::LAUNCH_STACK, LOST.swap(0, Relaxed));
        if NODES_LOST.load(Relaxed) {
            sink.put(&graph_step(graph_build::CHANGE, 0, 0), &[]);
        }
    }
}

/// What CUPTI calls the subscriber for: domains and callback ids.
fn calls() -> impl Iterator<Item = (u32, u32)> {
    let launches = LAUNCHES.iter().map(|call| (DRIVER_CALLS, *call));
    launches.chain([NODE_CREATED, NODE_CLONED].map(|id| (RESOURCES, id)))
}

fn report(modules: &[ModuleRecord], sink: &mut Sink) {
    for (module, path) in modules {
        sink.put_with_text(module, path);
    }
}

/// Whether stacks can be taken without harm: by this CUPTI, and since no thread is left from an earlier
/// session, whose tables would be cleared under it.
///
/// Alongside 24 and 64 threads of PyTorch that come and go, CUPTI 13.0 ended processes with SIGSEGV in
/// sessions 1, 15, 58, 129 and 151 of stacks on an H100 and two H200, in some 5,000 in all; 13.5 none
/// in 1,206 (`bench-results/gpu-check-stacks.md`). The versions in between were not tried.
///
/// # Errors
/// Says why there are no stacks.
pub fn is_safe(cupti: &Cupti) -> Result<(), String> {
    if are_left() {
        return Err(no_stacks("threads are in calls of an earlier session"));
    }
    let (major, minor) = cupti.cuda();
    if (major, minor) >= SAFE_SINCE {
        return Ok(());
    }
    Err(no_stacks(&format!(
        "the process has CUPTI {major}.{minor}, whose callbacks can crash it; CUPTI 13.5 and newer are used"
    )))
}

fn no_stacks(why: &str) -> String {
    format!("{}{why}", midair_record::event::NO_STACKS)
}

/// Whether a thread may still write into the spool of a session that has ended.
pub fn are_left() -> bool {
    PLACES.iter().any(|place| place.taken.load(SeqCst))
}

/// Makes the page of [`SWITCH`], once. Returns false where the system gives none.
fn make_switch() -> bool {
    if !SWITCH.load(SeqCst).is_null() {
        return true;
    }
    let bytes = 4096;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: creates a fresh private page at an address that the kernel chooses, and changes only that
    // one. It is never unmapped once it is published.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return false;
        }
        if libc::madvise(page, bytes, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, bytes);
            return false;
        }
        SWITCH.store(page.cast(), SeqCst);
    }
    true
}

/// Whether stacks are taken.
fn is_on(order: Ordering) -> bool {
    // SAFETY: null, or the page of `make_switch`, which stays; a zero byte is `false`.
    unsafe { SWITCH.load(Relaxed).as_ref() }.is_some_and(|on| on.load(order))
}

fn turn(on: bool) {
    // SAFETY: as above.
    if let Some(switch) = unsafe { SWITCH.load(SeqCst).as_ref() } {
        switch.store(on, SeqCst);
    }
}

/// Takes no stack any more, and gives the chunks back if all threads leave their places in time.
fn stop() {
    turn(false);
    midair_stacks::end();
    if !wait_until_empty() {
        return;
    }
    for place in &PLACES {
        // SAFETY: stacks are off, no thread has a place, and the spool of these chunks is mapped until
        // the session has ended.
        unsafe { (*place.writer.get()).seal() };
    }
    // SAFETY: as above.
    unsafe { *SPOOL.0.get() = None };
    midair_stacks::release();
}

fn wait_until_empty() -> bool {
    let end = Instant::now() + LEAVE_LIMIT;
    while are_left() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}

/// CUPTI calls this at the entry and the exit of the calls that launch work, and at the ends of what makes
/// nodes of graphs, on the thread that makes the call.
///
/// # Safety
/// `data` is null or CUPTI's data of such a call, and `node_id` null or a [`NodeId`].
unsafe extern "C" fn called(node_id: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    if !is_on(Relaxed) {
        return;
    }
    if domain == RESOURCES {
        // SAFETY: the caller's promise; null is no function.
        unsafe {
            let node_id = std::mem::transmute::<*mut c_void, Option<NodeId>>(node_id);
            let about = data.cast::<ResourceData>().as_ref();
            let about = about.and_then(|resource| resource.about.as_ref());
            if let (Some(node_id), Some(about)) = (node_id, about) {
                node(node_id, id, about);
            }
        }
        return;
    }
    // SAFETY: the caller's promise.
    let Some(call) = (unsafe { data.cast::<CallbackData>().as_ref() }) else {
        return;
    };
    if call.site == ENTRY {
        let is_kept = with_writer(|store| {
            midair_stacks::take(call.correlation.into(), store);
            true
        });
        if !is_kept {
            LOST.fetch_add(1, Relaxed);
        }
    }
}

/// Stores where a node comes from: the stack that made it, or the node that it is a copy of.
///
/// # Safety
/// `node_id` is CUPTI's, and CUPTI has just made this node.
unsafe fn node(node_id: NodeId, callback: u32, about: &GraphData) {
    let id = |node: *mut c_void| {
        let mut id = 0;
        // SAFETY: a node that CUPTI names, and a live integer.
        let is_known = !node.is_null() && unsafe { node_id(node, &raw mut id) } == 0;
        is_known.then_some(id)
    };
    let (operation, subject, made) = match callback {
        NODE_CREATED if about.node_type == KERNEL_NODE => (graph_build::NODE, about.node, None),
        NODE_CLONED => (
            graph_build::NODE_COPY,
            about.original_node,
            Some(about.node),
        ),
        _ => return,
    };
    let (Some(subject), Some(made)) = (id(subject), made.map_or(Some(0), id)) else {
        NODES_LOST.store(true, Relaxed);
        return;
    };
    let is_kept = with_writer(|store| {
        let mut step = graph_step(operation, subject, made);
        if operation == graph_build::NODE {
            step.stack = midair_stacks::take(0, store);
        }
        store(kind::GRAPH_BUILD, [step.bytes(), &[]])
    });
    if !is_kept {
        NODES_LOST.store(true, Relaxed);
    }
}

fn graph_step(operation: u32, subject: u64, made: u64) -> GraphBuild {
    GraphBuild {
        header: Header {
            size: size_of::<GraphBuild>() as u16,
            kind: kind::GRAPH_BUILD,
            flags: 0,
            operation,
        },
        subject,
        made,
        ..GraphBuild::default()
    }
}

/// Runs `write` with what stores a record, if stacks are on. Returns false where there is no place for the
/// thread, or `write` says so.
fn with_writer(write: impl FnOnce(&mut dyn FnMut(u8, [&[u8]; 2]) -> bool) -> bool) -> bool {
    let Some(place) = free_place() else {
        return false;
    };
    let mut is_kept = true;
    // Between the two looks the session may have ended; this one counts, see `stop`.
    if is_on(SeqCst) {
        // SAFETY: this thread has a place, and stacks are on. So the spool is there and stays until the
        // place is free, and the writer is this thread's.
        unsafe {
            if let Some(area) = *SPOOL.0.get() {
                let writer = &mut *place.writer.get();
                is_kept = write(&mut |kind, parts| writer.store(area, 0, kind, parts));
            }
        }
    }
    place.taken.store(false, SeqCst);
    is_kept
}

/// Takes a place for the calling thread, mostly the one that it had before.
fn free_place() -> Option<&'static Place> {
    // SAFETY: has no arguments.
    let this = unsafe { libc::pthread_self() } as usize;
    // Threads' descriptors are some pages apart.
    let first = this >> 12;
    (0..WRITERS)
        .filter_map(|more| PLACES.get((first + more) % WRITERS))
        .find(|place| !place.taken.load(Relaxed) && !place.taken.swap(true, SeqCst))
}

/// In a forked child, before its first session: threads that had a place are not there.
pub fn reset_after_fork() {
    turn(false);
    for place in &PLACES {
        // SAFETY: no other thread is in this module, since there is none that makes calls of CUDA while
        // the worker thread prepares its first session. The chunk belongs to the parent's session.
        unsafe { (*place.writer.get()).forget() };
        place.taken.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_takes_no_stacks() {
        assert!(make_switch());
        turn(true);
        // SAFETY: the child reads one word and ends without running anything else.
        let child = unsafe {
            match libc::fork() {
                0 => libc::_exit(i32::from(is_on(SeqCst))),
                child => child,
            }
        };
        let mut status = -1;
        // SAFETY: an own child, and a live integer.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(is_on(SeqCst), "it stays on in the parent");
        turn(false);
        assert_eq!((ended, status), (child, 0));
    }
}
