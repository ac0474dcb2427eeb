//! Records of code objects and kernels that wait for room in the spool.
//!
//! A record is dropped if the spool is full when it is stored. Each kernel is described once, so
//! without its description all of its dispatches would have no name. Descriptions wait instead, in
//! their order, until the attaching side has made room.

use crate::sink::Sink;
use std::collections::VecDeque;

/// The most bytes that wait: the descriptions of some 4,000 kernels with the longest names.
const MOST: usize = 16 << 20;

/// Records that wait for room: their kind, and their bytes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    records: VecDeque<(u8, Vec<u8>)>,
    bytes: usize,
}

impl Waiting {
    /// Stores a record, or keeps it for later if there is no room. If too many wait, the record is
    /// dropped and counted.
    pub(super) fn put(&mut self, sink: &mut Sink, kind: u8, record: Vec<u8>) {
        let fits = self.records.is_empty() && sink.has_room(record.len());
        if fits || self.bytes + record.len() > MOST {
            sink.put(kind, &record);
        } else {
            self.bytes += record.len();
            self.records.push_back((kind, record));
        }
    }

    /// Stores the records that waited, as long as there is room; with `all`, also those that are
    /// dropped and counted for lack of it.
    pub(super) fn store(&mut self, sink: &mut Sink, all: bool) {
        while let Some((_, record)) = self.records.front()
            && (all || sink.has_room(record.len()))
            && let Some((kind, record)) = self.records.pop_front()
        {
            self.bytes -= record.len();
            sink.put(kind, &record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::{self, Header, KernelSymbol, Record, kind};
    use midair_record::spool::{CHUNK, ChunkWriter, Reader, ReaderOptions, drop_slot};

    fn symbol(kernel_id: u64) -> Vec<u8> {
        let record = KernelSymbol {
            header: Header {
                kind: kind::KERNEL_SYMBOL,
                ..Header::default()
            },
            kernel_id,
            name_len: 4000,
            ..KernelSymbol::default()
        };
        event::encode(&record, &[b'k'; 4000])
    }

    /// Returns the numbers of the kernels in the spool, in their order.
    fn drain(reader: &mut Reader) -> Vec<u64> {
        let mut ids = Vec::new();
        let mut take = |mut bytes: &[u8]| -> Result<(), ()> {
            while !bytes.is_empty() {
                let (record, size) = event::decode(bytes).map_err(drop)?;
                if let Record::KernelSymbol(symbol, _) = record {
                    ids.push(symbol.kernel_id);
                }
                bytes = bytes.get(size..).unwrap_or_default();
            }
            Ok(())
        };
        reader.drain(&mut take).unwrap();
        ids
    }

    #[test]
    fn descriptions_wait_while_the_spool_is_full() {
        let options = ReaderOptions {
            size: 3 * CHUNK,
            settings: Vec::new(),
            drain_ms: 1,
            lease_ms: 0,
            session: 1,
        };
        let mut reader = Reader::create(&options).unwrap();
        // SAFETY: the reader outlives the sink.
        let area = unsafe { reader.area() }.unwrap();
        let mut sink = Sink {
            area,
            writer: ChunkWriter::new(),
            tid: 1,
        };
        let mut waiting = Waiting::default();
        (1..=100).for_each(|id| waiting.put(&mut sink, kind::KERNEL_SYMBOL, symbol(id)));
        assert!(waiting.records.len() > 20);
        let mut told = Vec::new();
        while !waiting.records.is_empty() {
            let now = drain(&mut reader);
            assert!(!now.is_empty());
            told.extend(now);
            waiting.store(&mut sink, false);
        }
        told.extend(drain(&mut reader));
        assert_eq!(told, (1..=100).collect::<Vec<u64>>());
        assert_eq!(waiting.bytes, 0);
        let slot = drop_slot(kind::KERNEL_SYMBOL);
        assert_eq!(reader.dropped()[slot], 0);
        // At the end nothing waits any more, and what is lost is counted.
        (1..=100).for_each(|id| waiting.put(&mut sink, kind::KERNEL_SYMBOL, symbol(id)));
        waiting.store(&mut sink, true);
        assert!(waiting.records.is_empty());
        let lost = reader.dropped()[slot];
        assert_eq!(drain(&mut reader).len() as u64 + lost, 100);
        assert!(lost > 0);
    }
}
