//! The spool: one memfd per session that carries records from the target to the attaching side.
//!
//! The attaching side makes, sizes, seals and pre-faults it (so that its own cgroup is charged),
//! then passes it to the target. Layout:
//!
//! ```text
//! page 0        Head: identity, control words, counters
//! settings_at   the environment buffer (what the tool is asked for)
//! chunks_at     chunk_count chunks of CHUNK bytes, each a ChunkHead and records
//! ```
//!
//! A thread of the target claims a chunk with one atomic add and one compare-and-swap, then fills
//! it alone: store the record, then publish its bytes with one release store of `committed`. The
//! reader follows `committed` of each chunk, copies the bytes out, and frees a sealed chunk when it
//! has read all of it. When no chunk is free the record is dropped and counted: no thread ever
//! waits. What a target had committed before it was killed stays readable.
//!
//! Both sides map the same pages, may write all of them at any moment, and do not trust each other.
//! So everything in the pages is an atomic, or is copied by atomic accesses (`bytes`). A reference
//! to a struct of atomics is sound whoever writes there. The words that describe the layout are
//! read once and checked by the writer, in [`Area::new`]. The reader, which made the layout, never
//! reads them.
//!
//! Decisions: ENG-060 (`docs/deviations/engine.md`).

mod bytes;
mod made;
#[cfg_attr(miri, path = "spool/mapping_miri.rs")]
mod mapping;
mod reader;
mod writer;

pub use made::Unread;
pub use reader::{MapError, Reader, ReaderOptions};
pub use writer::{Area, ChunkWriter};

use crate::event;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// First eight bytes of a spool.
pub const MAGIC: u64 = u64::from_le_bytes(*b"midair\x00S");
/// Bytes of a chunk, with its head. Under Miri, which is a thousand times slower, chunks are small.
pub const CHUNK: usize = if cfg!(miri) { 4 * 1024 } else { 64 * 1024 };
/// Default size of a spool in bytes.
pub const DEFAULT_SIZE: usize = 64 * 1024 * 1024;
/// Bytes kept for settings.
pub const SETTINGS: usize = if cfg!(miri) { 8 * 1024 } else { 256 * 1024 };
/// Bytes of [`Head`].
pub const HEAD: usize = 4096;

/// Values of [`Head::command`], written by the attaching side.
pub mod command {
    /// Go on.
    pub const RUN: u32 = 0;
    /// Stop collecting, drain, restore the slots, then report
    /// [`state::COMPLETE`](super::state::COMPLETE).
    pub const DETACH: u32 = 1;
}

/// Values of [`Head::state`], written by the target.
pub mod state {
    /// Set-up has not ended.
    pub const STARTING: u32 = 0;
    /// The tables are hooked and calls are recorded.
    pub const ATTACHED: u32 = 1;
    /// Stopping.
    pub const DETACHING: u32 = 2;
    /// No more records will be written.
    pub const COMPLETE: u32 = 3;
    /// Set-up failed and was undone; see [`Head::status`](super::Head::status) and `message`.
    pub const FAILED: u32 = 4;
}

/// Bits of [`Head::outcome`], written by the target at its end.
pub mod outcome {
    /// A slot held another tool's wrapper, which calls ours: our wrapper stays below it and only
    /// passes calls on.
    pub const SLOT_KEPT: u32 = 1;
    /// The drain's deadline passed with work still running.
    pub const STILL_RUNNING: u32 = 2;
    /// The attacher's lease ran out.
    pub const LEASE_EXPIRED: u32 = 4;
    /// The process was about to exit.
    pub const PROCESS_EXIT: u32 = 8;
    /// The runtime was shut down.
    pub const RUNTIME_SHUT_DOWN: u32 = 16;
    /// A thread was still inside a record store at the deadline: the spool was left mapped.
    pub const MEMORY_KEPT: u32 = 32;
    /// No API table was found to hook (no runtime was loaded).
    pub const NO_TABLES: u32 = 64;
    /// Another profiler started or asked for CUPTI, so the session ended early. The records up to
    /// then are complete.
    pub const YIELDED: u32 = 128;
    /// A thread of the application opened its runtime and continued before the runtime was hooked:
    /// its first calls may be missing.
    pub const HOOKED_LATE: u32 = 256;
    /// The session ended before its first burst (`--max-overhead`): nothing was recorded.
    pub const NO_BURST: u32 = 512;
    /// No burst could follow the last one (`--max-overhead`), so what came later was not recorded.
    pub const BURSTS_ENDED: u32 = 1024;
}

/// Values of [`Head::status`], written by the target with [`state::FAILED`].
pub mod status {
    /// No reason other than the message.
    pub const OTHER: u32 = 0;
    /// No suitable CUPTI was found.
    pub const NO_CUPTI: u32 = 1;
    /// Another profiler uses CUPTI, which accepts only one subscriber.
    pub const OTHER_PROFILER: u32 = 2;
}

/// Number of counters in [`Head::dropped`].
pub const DROP_SLOTS: usize = 64;
/// Returns the counter for dropped records of a kind. Each domain has its own; all descriptions
/// share the last one. A barrier counts as the call that it belongs to.
pub const fn drop_slot(kind: u8) -> usize {
    if kind == event::kind::BARRIER {
        event::kind::HIP_EVENT as usize
    } else if (kind as usize) < DROP_SLOTS {
        kind as usize
    } else {
        DROP_SLOTS - 1
    }
}

/// Bytes of [`Head::message`].
pub const MESSAGE: usize = 1024;

/// The number of queues in [`Head::flights`].
pub const FLIGHTS: usize = 48;

/// The dispatch at the head of a queue.
#[repr(C)]
#[derive(Debug)]
pub struct Flight {
    /// Our number of the queue; 0: this entry is unused.
    pub queue: AtomicU32,
    /// KFD node id of its agent.
    pub node: AtomicU32,
    /// Number of the dispatch in this session.
    pub dispatch: AtomicU64,
    /// Its packet's kernel object.
    pub kernel_object: AtomicU64,
    /// When the doorbell rang for it, CLOCK_BOOTTIME ns.
    pub rung: AtomicU64,
    /// Dispatches of this queue that have not ended, including this one.
    pub under_way: AtomicU32,
    /// Padding, 0.
    pub reserved: AtomicU32,
}

/// Page 0 of a spool. Either side may write any of it at any moment.
#[repr(C)]
#[derive(Debug)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::VERSION`].
    pub version: AtomicU32,
    /// Bytes of this struct's page.
    pub head_size: AtomicU32,
    /// Bytes of the whole spool.
    pub total_size: AtomicU64,
    /// Offset of the settings.
    pub settings_at: AtomicU64,
    /// Bytes of settings in use.
    pub settings_len: AtomicU64,
    /// Offset of the first chunk.
    pub chunks_at: AtomicU64,
    /// Number of chunks.
    pub chunk_count: AtomicU64,
    /// Random number of the session.
    pub session: AtomicU64,
    /// How long the target may drain at detach, ms.
    pub drain_ms: AtomicU32,
    /// Lease: the target stops by itself when `lease_tick` has not changed for this many ms (0 =
    /// never).
    pub lease_ms: AtomicU32,
    /// Futex word, see [`command`].
    pub command: AtomicU32,
    /// Futex word, see [`state`].
    pub state: AtomicU32,
    /// Incremented by the attaching side.
    pub lease_tick: AtomicU64,
    /// Incremented by the worker thread during a session.
    pub target_tick: AtomicU64,
    /// Index of the next chunk to try.
    pub claim: AtomicU64,
    /// Records dropped because no chunk was free, by [`drop_slot`].
    pub dropped: [AtomicU64; DROP_SLOTS],
    /// Why the set-up failed, see [`status`].
    pub status: AtomicU32,
    /// See [`outcome`].
    pub outcome: AtomicU32,
    /// CLOCK_BOOTTIME ns when the tables were hooked.
    pub attached_at: AtomicU64,
    /// CLOCK_BOOTTIME ns when the tables were restored.
    pub detached_at: AtomicU64,
    /// Bytes of `message` in use.
    pub message_len: AtomicU32,
    /// Slots hooked.
    pub slots: AtomicU32,
    /// Message about a failure, UTF-8.
    pub message: [AtomicU8; MESSAGE],
    /// What runs at the head of each queue, for a view of the running session. The worker thread
    /// writes this in each of its rounds without synchronising with readers, so a reader may see
    /// parts of two rounds.
    pub flights: [Flight; FLIGHTS],
    /// For how long nothing was recorded since `attached_at`, ns: in pauses of the program, outside
    /// of collection periods, between bursts. The worker thread writes this in each of its rounds.
    pub unrecorded: AtomicU64,
}

const _: () = assert!(size_of::<Head>() <= HEAD);

/// States of a chunk ([`ChunkHead::state`]).
pub mod chunk {
    /// Owned by no thread.
    pub const FREE: u32 = 0;
    /// A thread is filling it.
    pub const OPEN: u32 = 1;
    /// Full, or its thread has ended: no more bytes will come.
    pub const SEALED: u32 = 2;
}

/// First 64 bytes of a chunk.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ChunkHead {
    /// See [`chunk`].
    pub state: AtomicU32,
    /// Bytes of complete records after this head.
    pub committed: AtomicU32,
    /// Thread id of the owner.
    pub tid: AtomicU32,
    /// Padding, 0.
    pub reserved: AtomicU32,
    /// Number of the claim that took it: the reader visits chunks in this order.
    pub claimed: AtomicU64,
    /// Padding, 0.
    pub reserved_too: [AtomicU64; 5],
}

const _: () = assert!(size_of::<ChunkHead>() == 64);
/// Bytes of records that fit in a chunk.
pub const CHUNK_BODY: usize = CHUNK - size_of::<ChunkHead>();
