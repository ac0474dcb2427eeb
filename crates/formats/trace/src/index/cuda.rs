//! The part of the index that only a CUDA process has.

use super::{Index, printable};
use crate::cuda::devices::Device;
use crate::cuda::{names_stream, unfinished};
use midair_record::event::{
    CudaDevice, Header, MemorySet, NO_NODE, Synchronization, UnifiedMemory, cuda_node,
};
use std::collections::BTreeMap;

/// Further devices are not described: no machine has so many.
const MOST_DEVICES: usize = 1024;
/// Operations from this number on share an entry. CUPTI has fewer of each kind.
const MOST_OPERATIONS: u32 = 64;

/// The state of a CUDA process's records.
#[derive(Debug, Clone, Default)]
pub struct Cuda {
    /// Whether there was any record of CUDA.
    pub(super) seen: bool,
    /// Its devices, by ordinal.
    pub devices: BTreeMap<u32, Device>,
}

impl Index {
    /// Whether the records come from a CUDA process.
    pub fn is_cuda(&self) -> bool {
        self.cuda.seen
    }

    fn add_work(&mut self, header: &Header, start: u64, end: u64) {
        let Header {
            kind,
            operation,
            flags,
            ..
        } = *header;
        self.cuda.seen = true;
        self.count(header);
        self.add_flags(flags);
        if self.add_untimed(flags, unfinished(start, end)) {
            return;
        }
        let key = (kind, operation.min(MOST_OPERATIONS));
        self.work.entry(key).or_default().add(start, end);
    }

    pub(super) fn add_set(&mut self, set: &MemorySet) {
        self.add_stream(set.stream);
        self.activity.add_set(set);
        self.add_work(&set.header, set.start, set.end);
    }

    pub(super) fn add_wait(&mut self, wait: &Synchronization) {
        if names_stream(wait.stream) {
            self.add_stream(wait.stream);
        }
        self.activity.add_synchronization(wait);
        self.add_work(&wait.header, wait.start, wait.end);
    }

    pub(super) fn add_unified(&mut self, moved: &UnifiedMemory) {
        // The record does not tell its stream's context, so the stream is not one of those that
        // have numbers.
        self.add_work(&moved.header, moved.start, moved.end);
    }

    pub(super) fn add_device(&mut self, device: &CudaDevice, name: &[u8]) {
        self.cuda.seen = true;
        let ordinal = device.ordinal;
        let known = self.cuda.devices.contains_key(&ordinal);
        // The last ordinal would give the number that stands for no device.
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
