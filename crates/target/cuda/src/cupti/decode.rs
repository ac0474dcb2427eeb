//! Decodes CUPTI's records by the layouts of the CUPTI that wrote them.

use super::activity::{
    Activity, Api, Kernel, Marker, Memcpy, Memory, Memset, Synchronization, Text, UnifiedMemory,
};
use midair_abi::cupti::{Layouts, Place, activity_kind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

/// No record is longer, in bytes: the longest is a kernel of CUPTI 13, with 248.
pub const LONGEST: usize = 256;
const WORD: usize = size_of::<u64>();

/// The kind of a record: every record starts with it.
///
/// # Safety
/// Four bytes at `record` are mapped, readable and writable.
pub unsafe fn kind(record: *const u8) -> u32 {
    let mut bytes = [0; 4];
    // SAFETY: the caller's promise.
    unsafe { copy_out(record, &mut bytes) };
    u32::from_ne_bytes(bytes)
}

/// Decodes a record of a kind that was read already, from a copy that is made of it here. A thread
/// that CUPTI made give up its buffer may still be inside a call that writes to it, so there is no
/// reference to the buffer.
///
/// # Safety
/// `record` points to a record of the CUPTI that `layouts` belongs to: so many bytes as its kind has
/// are mapped there, readable and writable.
pub unsafe fn read<'a>(layouts: &Layouts, kind: u32, record: *const u8) -> Activity<'a> {
    let Some(size) = size(layouts, kind).filter(|size| *size <= LONGEST) else {
        return Activity::Other(kind);
    };
    let mut copy = [0; LONGEST];
    let Some(bytes) = copy.get_mut(..size) else {
        return Activity::Other(kind);
    };
    // SAFETY: the caller's promise.
    unsafe { copy_out(record, bytes) };
    decode(layouts, kind, bytes)
}

/// Copies bytes out by atomic loads: by words where they are aligned.
///
/// # Safety
/// `to.len()` bytes at `from` are mapped, readable and writable.
#[inline]
unsafe fn copy_out(from: *const u8, to: &mut [u8]) {
    let from = from.cast_mut();
    let by_words = if from.cast::<u64>().is_aligned() {
        to.len() / WORD
    } else {
        0
    };
    let (words, rest) = to.split_at_mut(by_words * WORD);
    for (index, word) in words.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
        // SAFETY: the caller's promise; an aligned word inside the range.
        let there = unsafe { AtomicU64::from_ptr(from.cast::<u64>().add(index)) };
        *word = there.load(Relaxed).to_ne_bytes();
    }
    for (index, byte) in rest.iter_mut().enumerate() {
        // SAFETY: the caller's promise; a byte inside the range.
        let there = unsafe { AtomicU8::from_ptr(from.add(by_words * WORD + index)) };
        *byte = there.load(Relaxed);
    }
}

/// Size of a record of a kind, in bytes; `None` for kinds that are not decoded.
pub fn size(layouts: &Layouts, kind: u32) -> Option<usize> {
    Some(match kind {
        activity_kind::KERNEL | activity_kind::CONCURRENT_KERNEL => layouts.kernel.size,
        activity_kind::RUNTIME | activity_kind::DRIVER => layouts.call.size,
        activity_kind::MEMCPY => layouts.memcpy.size,
        activity_kind::MEMCPY2 => layouts.memcpy_peer.size,
        activity_kind::MEMSET => layouts.memset.size,
        activity_kind::MARKER => layouts.marker.size,
        activity_kind::SYNCHRONIZATION => layouts.synchronization.size,
        activity_kind::MEMORY2 => layouts.memory.size,
        activity_kind::UNIFIED_MEMORY_COUNTER => layouts.unified_memory.size,
        _ => return None,
    })
}

/// Decodes a record of a kind from its bytes. A field that lies outside of them is 0. How long the
/// texts that it points to stay is for the caller to know: see [`Text::get`].
pub fn decode<'a>(layouts: &Layouts, kind: u32, bytes: &[u8]) -> Activity<'a> {
    let fields = Fields(bytes);
    match kind {
        activity_kind::KERNEL | activity_kind::CONCURRENT_KERNEL => {
            Activity::Kernel(kernel(layouts, fields))
        }
        activity_kind::RUNTIME | activity_kind::DRIVER => {
            Activity::Api(api(layouts, fields, kind == activity_kind::RUNTIME))
        }
        activity_kind::MEMCPY => Activity::Memcpy(memcpy(layouts, fields)),
        activity_kind::MEMCPY2 => Activity::Memcpy(memcpy_peer(layouts, fields)),
        activity_kind::MEMSET => Activity::Memset(memset(layouts, fields)),
        activity_kind::MARKER => Activity::Marker(marker(layouts, fields)),
        activity_kind::SYNCHRONIZATION => {
            Activity::Synchronization(synchronization(layouts, fields))
        }
        activity_kind::MEMORY2 => Activity::Memory(memory(layouts, fields)),
        activity_kind::UNIFIED_MEMORY_COUNTER => {
            Activity::UnifiedMemory(unified_memory(layouts, fields))
        }
        other => Activity::Other(other),
    }
}

fn kernel<'a>(layouts: &Layouts, r: Fields<'_>) -> Kernel<'a> {
    let l = &layouts.kernel;
    Kernel {
        start: r.long(l.start),
        end: r.long(l.end),
        completed: r.long(l.completed),
        correlation: r.word(l.correlation_id),
        device: r.word(l.device_id),
        context: r.word(l.context_id),
        stream: r.word(l.stream_id),
        grid: [r.word(l.grid_x), r.word(l.grid_y), r.word(l.grid_z)],
        block: [r.word(l.block_x), r.word(l.block_y), r.word(l.block_z)],
        static_shared: r.word(l.static_shared_memory),
        dynamic_shared: r.word(l.dynamic_shared_memory),
        local_per_thread: r.word(l.local_memory_per_thread),
        registers: r.word(l.registers_per_thread),
        name: r.text(l.name),
        graph: r.word(l.graph_id),
        graph_node: r.long(l.graph_node_id),
    }
}

fn api(layouts: &Layouts, r: Fields<'_>, runtime: bool) -> Api {
    let l = &layouts.call;
    Api {
        runtime,
        cbid: r.word(l.cbid),
        start: r.long(l.start),
        end: r.long(l.end),
        thread: r.word(l.thread_id),
        correlation: r.word(l.correlation_id),
        result: r.word(l.return_value),
    }
}

fn memcpy(layouts: &Layouts, r: Fields<'_>) -> Memcpy {
    let l = &layouts.memcpy;
    Memcpy {
        kind: r.word(l.copy_kind),
        src_kind: r.word(l.src_kind),
        dst_kind: r.word(l.dst_kind),
        flags: r.word(l.flags),
        bytes: r.long(l.bytes),
        start: r.long(l.start),
        end: r.long(l.end),
        device: r.word(l.device_id),
        context: r.word(l.context_id),
        stream: r.word(l.stream_id),
        peers: None,
        correlation: r.word(l.correlation_id),
        graph: r.word(l.graph_id),
        graph_node: r.long(l.graph_node_id),
    }
}

fn memcpy_peer(layouts: &Layouts, r: Fields<'_>) -> Memcpy {
    let l = &layouts.memcpy_peer;
    Memcpy {
        kind: r.word(l.copy_kind),
        src_kind: r.word(l.src_kind),
        dst_kind: r.word(l.dst_kind),
        flags: r.word(l.flags),
        bytes: r.long(l.bytes),
        start: r.long(l.start),
        end: r.long(l.end),
        device: r.word(l.device_id),
        context: r.word(l.context_id),
        stream: r.word(l.stream_id),
        peers: Some((r.word(l.src_device_id), r.word(l.dst_device_id))),
        correlation: r.word(l.correlation_id),
        graph: r.word(l.graph_id),
        graph_node: r.long(l.graph_node_id),
    }
}

fn memset(layouts: &Layouts, r: Fields<'_>) -> Memset {
    let l = &layouts.memset;
    Memset {
        value: r.word(l.value),
        bytes: r.long(l.bytes),
        start: r.long(l.start),
        end: r.long(l.end),
        device: r.word(l.device_id),
        context: r.word(l.context_id),
        stream: r.word(l.stream_id),
        correlation: r.word(l.correlation_id),
        memory_kind: r.word(l.memory_kind),
        graph: r.word(l.graph_id),
        graph_node: r.long(l.graph_node_id),
    }
}

fn marker<'a>(layouts: &Layouts, r: Fields<'_>) -> Marker<'a> {
    let l = &layouts.marker;
    Marker {
        flags: r.word(l.flags),
        timestamp: r.long(l.timestamp),
        id: r.word(l.id),
        object_kind: r.word(l.object_kind),
        process: r.word(l.process_id),
        thread: r.word(l.thread_id),
        name: r.text(l.name),
        domain: r.text(l.domain),
    }
}

fn synchronization(layouts: &Layouts, r: Fields<'_>) -> Synchronization {
    let l = &layouts.synchronization;
    Synchronization {
        kind: r.word(l.type_of),
        start: r.long(l.start),
        end: r.long(l.end),
        correlation: r.word(l.correlation_id),
        context: r.word(l.context_id),
        stream: r.word(l.stream_id),
        event: r.word(l.cuda_event_id),
    }
}

fn memory<'a>(layouts: &Layouts, r: Fields<'_>) -> Memory<'a> {
    let l = &layouts.memory;
    Memory {
        operation: r.word(l.memory_operation_type),
        kind: r.word(l.memory_kind),
        correlation: r.word(l.correlation_id),
        address: r.long(l.address),
        bytes: r.long(l.bytes),
        timestamp: r.long(l.timestamp),
        device: r.word(l.device_id),
        context: r.word(l.context_id),
        stream: r.word(l.stream_id),
        name: r.text(l.name),
    }
}

fn unified_memory(layouts: &Layouts, r: Fields<'_>) -> UnifiedMemory {
    let l = &layouts.unified_memory;
    UnifiedMemory {
        kind: r.word(l.counter_kind),
        value: r.long(l.value),
        start: r.long(l.start),
        end: r.long(l.end),
        address: r.long(l.address),
        src: r.word(l.src_id),
        dst: r.word(l.dst_id),
        stream: r.word(l.stream_id),
    }
}

/// The bytes of a record.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// An integer of 1, 2, 4 or 8 bytes.
    #[inline]
    fn long(self, place: Place) -> u64 {
        let at = usize::from(place.offset);
        let number = match place.width {
            8 => self.bytes(at).map(u64::from_ne_bytes),
            4 => self.bytes(at).map(|bytes| u32::from_ne_bytes(bytes).into()),
            2 => self.bytes(at).map(|bytes| u16::from_ne_bytes(bytes).into()),
            1 => self.bytes(at).map(|bytes| u8::from_ne_bytes(bytes).into()),
            _ => None,
        };
        number.unwrap_or(0)
    }
    /// The low 32 bits of an integer.
    #[inline]
    fn word(self, place: Place) -> u32 {
        self.long(place) as u32
    }
    #[inline]
    fn text<'a>(self, place: Place) -> Text<'a> {
        Text::at(std::ptr::with_exposed_provenance(self.long(place) as usize))
    }
    #[inline]
    fn bytes<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }
}
