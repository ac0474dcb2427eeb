//! A buffer of a tool and the records that wait in it.

use crate::converted::Converted;
use midair_abi::constants as c;
use midair_abi::records::{HipApiExt, KernelDispatch, RecordHeader};
use midair_sdk_hot::operations::Opaque;
use std::ffi::c_void;
use std::thread::ThreadId;

/// The category of most records.
const TRACING: i32 = c::ROCPROFILER_BUFFER_CATEGORY_TRACING;
/// The index of the word in each of AMD's records that is the external correlation id.
const EXTERNAL: usize = 3;
const _: () = {
    use midair_abi::layout as theirs;
    assert!(theirs::rocprofiler_buffer_tracing_hip_api_record_t::correlation_id == 16);
    assert!(theirs::rocprofiler_buffer_tracing_hip_api_ext_record_t::correlation_id == 16);
    assert!(theirs::rocprofiler_buffer_tracing_hsa_api_record_t::correlation_id == 16);
    assert!(theirs::rocprofiler_buffer_tracing_marker_api_record_t::correlation_id == 16);
    assert!(theirs::rocprofiler_buffer_tracing_kernel_dispatch_record_t::correlation_id == 16);
    assert!(theirs::rocprofiler_buffer_tracing_memory_copy_record_t::correlation_id == 16);
    assert!(theirs::rocprofiler_buffer_tracing_memory_allocation_record_t::correlation_id == 16);
    assert!(theirs::rocprofiler_buffer_tracing_scratch_memory_record_t::correlation_id == 16);
    assert!(theirs::rocprofiler_buffer_tracing_hip_graph_record_t::correlation_id == 16);
    assert!(theirs::rocprofiler_buffer_tracing_hip_event_record_t::correlation_id == 16);
    assert!(theirs::rocprofiler_correlation_id_t::external == 8);
};

/// Bytes of the largest record that we put into a buffer.
const LARGEST: usize = size_of::<KernelDispatch>();
const _: () = assert!(LARGEST >= size_of::<HipApiExt>());

/// `rocprofiler_buffer_tracing_cb_t`: context, buffer, headers, their number, the tool's data,
/// records dropped before these.
pub type BufferCallback =
    unsafe extern "C-unwind" fn(u64, u64, *mut *mut RecordHeader, usize, *mut c_void, u64);

/// Records that wait for the callback.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The records, one after the other, aligned to 8 bytes.
    pub words: Vec<u64>,
    /// Category, kind and first word of each.
    pub index: Vec<(i32, u32, usize)>,
    /// Records that were dropped since the last callback.
    pub dropped: u64,
}

impl Batch {
    pub fn bytes(&self) -> usize {
        self.words.len() * 8
    }
    pub fn is_empty(&self) -> bool {
        self.index.is_empty() && self.dropped == 0
    }
}

/// A buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub context: u64,
    pub size: usize,
    pub watermark: usize,
    pub lossless: bool,
    pub callback: BufferCallback,
    pub data: Opaque,
    /// Handle of the callback thread; 0 for the thread that delivers.
    pub thread: u64,
    pub batch: Batch,
    /// A callback is running, or waits for its thread.
    pub busy: bool,
    /// The thread that runs the callback.
    pub runner: Option<ThreadId>,
}

impl Buffer {
    /// Adds a record, or counts it as dropped. `external` is its external correlation id.
    pub fn push(&mut self, record: &Converted, external: u64) {
        let words = record.words();
        // An empty buffer accepts any record: otherwise a buffer smaller than a record would never
        // get one.
        let full = self.batch.bytes() + words.len() * 8 > self.size && !self.batch.words.is_empty();
        if full && !self.lossless {
            self.batch.dropped += 1;
            return;
        }
        let at = self.batch.words.len();
        self.batch.index.push((TRACING, record.kind(), at));
        let at = self.batch.words.len() + EXTERNAL;
        self.batch.words.extend_from_slice(words);
        if let Some(word) = self.batch.words.get_mut(at) {
            *word = external;
        }
    }
    /// Adds a record that has no external correlation id, or counts it as dropped.
    pub fn push_plain(&mut self, kind: u32, words: &[u64]) {
        self.push_of(TRACING, kind, words);
    }
    /// Adds a record of the counters category, or counts it as dropped.
    pub fn push_counted(&mut self, kind: u32, words: &[u64]) {
        self.push_of(c::ROCPROFILER_BUFFER_CATEGORY_COUNTERS, kind, words);
    }
    /// Adds a sample of a program counter, or counts it as dropped.
    pub fn push_sample(&mut self, kind: u32, words: &[u64]) {
        self.push_of(c::ROCPROFILER_BUFFER_CATEGORY_PC_SAMPLING, kind, words);
    }
    fn push_of(&mut self, category: i32, kind: u32, words: &[u64]) {
        let full = self.batch.bytes() + words.len() * 8 > self.size && !self.batch.words.is_empty();
        if full && !self.lossless {
            self.batch.dropped += 1;
            return;
        }
        let at = self.batch.words.len();
        self.batch.index.push((category, kind, at));
        self.batch.words.extend_from_slice(words);
    }
    /// Whether the callback should be called now: the watermark is reached, or the next record
    /// might not fit.
    pub fn due(&self) -> bool {
        let filled = self.batch.bytes();
        !self.busy && (filled >= self.watermark || filled + LARGEST > self.size)
    }
}
