//! The descriptions that records refer to, as the records from which they came.

use super::Index;
use midair_record::event::{encode, note};

impl Index {
    /// Returns code objects, kernels, queues and devices as records. They need no other records
    /// before them.
    pub fn descriptions(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for object in self.code_objects.values() {
            out.extend(encode(&object.record, &object.uri));
        }
        for symbol in self.symbols.values() {
            out.extend(encode(&symbol.record, &symbol.name));
        }
        for queue in self.queues.values() {
            out.extend(encode(queue, &[]));
        }
        for device in self.cuda.devices.values() {
            let name = device.name.as_bytes();
            let fits = name.get(..device.record.name_len as usize).unwrap_or(name);
            let mut record = device.record;
            record.name_len = fits.len() as u32;
            out.extend(encode(&record, fits));
        }
        for text in &self.notes {
            out.extend(note(text));
        }
        out
    }
}
