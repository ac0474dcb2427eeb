//! Data that a target can invent in CUDA's records. Every format must be written, and must be
//! readable.

use crate::common::{append, index, list, reader, writer};
use crate::cuda::{ALL, copy, device, everything, kernel, read_json, rows, trace};
use crate::rocpd_rows::{header, plan};
use midair_output::{Names, table, write};
use midair_record::event::{
    self, Allocation, Api, Copy, CudaDevice, CudaLaunch, CudaTransfer, Header, Kernel,
    KernelSymbol, Marker, MemorySet, Plain, Queue, RuntimeInit, Synchronization, UnifiedMemory,
    kind,
};
use serde_json::json;

/// Numbers that no CUDA has must be counted and written, and nothing may overflow.
#[test]
fn numbers_that_a_target_invents_are_harmless() {
    let mut all = everything();
    let (wild, told) = kernel();
    let wild = Kernel {
        header: header(kind::KERNEL_DISPATCH, u32::MAX),
        start: u64::MAX,
        end: 0,
        dispatch_id: u64::MAX,
        kernel_id: u64::MAX,
        stream: u64::MAX,
        queue_id: u32::MAX,
        node: u32::MAX - 1,
        ..wild
    };
    let told = CudaLaunch {
        graph: u32::MAX,
        graph_node: u64::MAX,
        context: u32::MAX,
        registers: u32::MAX,
        ..told
    };
    append(&mut all, &event::encode(&wild, told.bytes()));
    for number in [10, 64, u32::MAX] {
        copy(&mut all, number, (u32::MAX - 1, 70_000), u64::MAX - 200);
        let set = MemorySet {
            header: header(kind::MEMORY_SET, number),
            node: number,
            stream: u64::MAX,
            bytes: u64::MAX,
            graph_node: u64::MAX,
            ..MemorySet::default()
        };
        append(&mut all, &event::encode(&set, &[]));
        let wait = Synchronization {
            header: header(kind::SYNCHRONIZATION, number),
            start: u64::MAX,
            ..Synchronization::default()
        };
        append(&mut all, &event::encode(&wait, &[]));
        let moved = UnifiedMemory {
            header: header(kind::UNIFIED_MEMORY, number),
            end: u64::MAX,
            src_node: number,
            dst_node: number,
            ..UnifiedMemory::default()
        };
        append(&mut all, &event::encode(&moved, &[]));
        device(&mut all, number);
    }
    device(&mut all, u32::MAX - (1 << 16));
    let directory = tempfile::tempdir().unwrap();
    let trace = trace(all);
    write(&trace, &Names::amd(), &plan(directory.path(), &ALL)).unwrap();
    assert_eq!(rows(directory.path(), "memory_set_trace").len(), 4);
    let json = read_json(directory.path());
    assert_eq!(list(&json["buffer_records"]["unified_memory"]).len(), 5);
    // There are the three numbers, less the one that stands for no device, and the numbers that
    // every process has.
    assert_eq!(list(&json["agents"]).len(), 1 + 2 + 2);
    let file = reader(
        &directory.path().join("r_results.db"),
        &["SELECT COUNT(*) AS n FROM memory_copies"],
    );
    assert_eq!(file["answers"][0][0]["n"], 3 + 3 + 4);
}

/// A sequence of numbers that is the same each time (xorshift). Odd numbers are more frequent than
/// by chance.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn word(&mut self) -> u64 {
        match self.next() % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => u64::from(u32::MAX),
            3 => 1 << 63,
            // These are plausible numbers of devices, contexts and operations.
            4 => (1 << 48) + self.next() % 4,
            5 | 6 => self.next() % 64,
            _ => self.next(),
        }
    }

    /// Returns a record of this form and size with random numbers. The last `len` bytes, which hold
    /// lengths of what follows, are 0.
    fn record<T: Plain>(&mut self, kind: u8, tail: usize, len: usize, like: &T) -> Vec<u8> {
        let mut bytes = event::encode(like, &vec![0; tail]);
        let size = bytes.len() as u16;
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&self.word().to_ne_bytes());
        }
        let end = bytes.len();
        bytes[end - len..].fill(0);
        let operation = self.word() as u32;
        let header = Header {
            size,
            kind,
            flags: self.next() as u8,
            operation,
        };
        bytes[..8].copy_from_slice(header.bytes());
        bytes
    }
}

#[test]
fn records_by_chance_are_written_and_read() {
    let names = Names::amd();
    let launch = size_of::<CudaLaunch>();
    let transfer = size_of::<CudaTransfer>();
    for seed in 1..=6 {
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let c = &mut chance;
        let mut all = writer();
        const EACH: usize = 40;
        for _ in 0..EACH {
            for record in [
                c.record(kind::KERNEL_DISPATCH, launch, 0, &Kernel::default()),
                c.record(kind::MEMORY_COPY, transfer, 0, &Copy::default()),
                c.record(kind::MEMORY_SET, 0, 0, &MemorySet::default()),
                c.record(kind::SYNCHRONIZATION, 0, 0, &Synchronization::default()),
                c.record(kind::UNIFIED_MEMORY, 0, 0, &UnifiedMemory::default()),
                c.record(kind::CUDA_RUNTIME_API, 0, 4, &Api::default()),
                c.record(kind::CUDA_DRIVER_API, 0, 4, &Api::default()),
                c.record(kind::MEMORY_ALLOCATION, 0, 0, &Allocation::default()),
                c.record(kind::MARKER_CORE_RANGE_API, 0, 4, &Marker::default()),
                c.record(kind::CUDA_DEVICE, 0, 8, &CudaDevice::default()),
                c.record(kind::KERNEL_SYMBOL, 0, 4, &KernelSymbol::default()),
                c.record(kind::QUEUE, 0, 0, &Queue::default()),
                c.record(kind::RUNTIME_INITIALIZATION, 0, 0, &RuntimeInit::default()),
            ] {
                append(&mut all, &record);
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let trace = trace(all);
        let index = index(&trace);
        let mut plan = plan(directory.path(), &ALL);
        plan.stats = true;
        plan.summary = true;
        write(&trace, &names, &plan).unwrap();
        table::summary(index, &names, plan.kernel_names, table::Style::default());
        for (name, count) in [
            ("kernel", EACH),
            ("memory_copy", EACH),
            ("memory_set", EACH),
            ("synchronization", EACH),
            ("unified_memory", EACH),
            ("cuda_api", 2 * EACH),
            ("memory_allocation", EACH),
            ("marker_api", EACH),
        ] {
            let rows = rows(directory.path(), &format!("{name}_trace"));
            assert_eq!(rows.len(), count, "{seed}: {name}");
            let key = if name == "kernel" {
                "kernel_dispatch"
            } else {
                name
            };
            let json = read_json(directory.path());
            assert_eq!(
                list(&json["buffer_records"][key]).len(),
                count,
                "{seed}: {name}"
            );
        }
        let file = reader(
            &directory.path().join("r_results.db"),
            &[
                "SELECT (SELECT COUNT(*) FROM kernels) AS kernels, (SELECT COUNT(*) FROM memory_copies) AS copies,
                    (SELECT COUNT(*) FROM regions_and_samples) AS calls, (SELECT COUNT(*) FROM memory_allocations) AS memory",
            ],
        );
        let (integrity, keys) = (&file["integrity"], &file["foreign_keys"]);
        assert_eq!((integrity, keys), (&json!([["ok"]]), &json!([])), "{seed}");
        // Copies and fills; calls, waits, unified memory and marks.
        let wanted =
            json!({"kernels": EACH, "copies": 2 * EACH, "calls": 5 * EACH, "memory": EACH});
        assert_eq!(file["answers"][0][0], wanted, "{seed}");
    }
}
