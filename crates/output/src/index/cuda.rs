//! What only a CUDA process has, in the first pass.

use super::{Index, Stat, printable};
use crate::cuda::devices::Device;
use crate::cuda::{names_stream, unfinished};
use midair_record::event::{
    CudaDevice, Header, MemorySet, NO_NODE, Synchronization, UnifiedMemory, cuda_node, kind,
};
use std::collections::{BTreeMap, HashMap};

/// Devices beyond this many are not described: no machine has so many.
const MOST_DEVICES: usize = 1024;
/// Operations from here on share one place: CUPTI has fewer of each kind.
const MOST_OPERATIONS: u32 = 64;

/// What a CUDA process's records told.
#[derive(Debug, Default)]
pub struct Cuda {
    /// Whether there was anything of CUDA.
    pub(super) seen: bool,
    /// Its devices, by ordinal.
    pub devices: BTreeMap<u32, Device>,
    /// Fills, waits and what unified memory did, by kind and operation.
    pub work: HashMap<(u8, u32), Stat>,
    /// How many of each kind there were, with times or without.
    pub(super) counts: BTreeMap<u8, u64>,
}

impl Index {
    /// Whether the records are those of a CUDA process.
    pub fn is_cuda(&self) -> bool {
        self.cuda.seen
    }

    /// Whether there are CUDA calls.
    pub fn has_cuda_calls(&self) -> bool {
        self.calls.keys().any(|(kind, _)| is_cuda_call(*kind))
    }

    /// Whether there is work of a kind of CUDA's.
    pub(crate) fn has_cuda_work(&self, wanted: u8) -> bool {
        self.cuda.counts.contains_key(&wanted)
    }

    fn see_work(&mut self, header: &Header, start: u64, end: u64) {
        let Header {
            kind,
            operation,
            flags,
            ..
        } = *header;
        self.cuda.seen = true;
        *self.cuda.counts.entry(kind).or_default() += 1;
        self.see_flags(flags);
        if self.see_untimed(flags, unfinished(start, end)) {
            return;
        }
        let key = (kind, operation.min(MOST_OPERATIONS));
        self.cuda.work.entry(key).or_default().add(start, end);
    }

    pub(super) fn see_set(&mut self, set: &MemorySet) {
        self.see_stream(set.stream);
        self.see_work(&set.header, set.start, set.end);
    }

    pub(super) fn see_wait(&mut self, wait: &Synchronization) {
        if names_stream(wait.stream) {
            self.see_stream(wait.stream);
        }
        self.see_work(&wait.header, wait.start, wait.end);
    }

    pub(super) fn see_unified(&mut self, moved: &UnifiedMemory) {
        // Of its stream no context is told, so it is none of those that have numbers.
        self.see_work(&moved.header, moved.start, moved.end);
    }

    pub(super) fn see_device(&mut self, device: &CudaDevice, name: &[u8]) {
        self.cuda.seen = true;
        let ordinal = device.ordinal;
        let known = self.cuda.devices.contains_key(&ordinal);
        // The last number stands for no device at all.
        if cuda_node(ordinal) == NO_NODE || (!known && self.cuda.devices.len() >= MOST_DEVICES) {
            self.ids_refused += 1;
            return;
        }
        let device = Device {
            record: *device,
            name: printable(name),
        };
        self.cuda.devices.insert(ordinal, device);
    }
}

/// Whether a kind is one of CUDA's calls.
pub(crate) fn is_cuda_call(kind: u8) -> bool {
    matches!(kind, kind::CUDA_RUNTIME_API | kind::CUDA_DRIVER_API)
}
