//! CUPTI's records are decoded as its own headers lay them out (`records.tsv`: a C program filled
//! each field by its name, compiled with the headers of each version), and never beyond their end.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

use midair_abi::cupti::{LAYOUTS, Layouts, activity_kind, layouts_for};
use midair_cuda::cupti::activity::{
    Activity, Api, Kernel, Marker, Memcpy, Memory, Memset, Synchronization, Text, UnifiedMemory,
};
use midair_cuda::cupti::decode::{LONGEST, decode, kind as kind_of, read, size};
use proptest::prelude::*;

const KINDS: [(&str, u32); 10] = [
    ("CONCURRENT_KERNEL", activity_kind::CONCURRENT_KERNEL),
    ("MEMCPY", activity_kind::MEMCPY),
    ("MEMCPY2", activity_kind::MEMCPY2),
    ("MEMSET", activity_kind::MEMSET),
    ("RUNTIME", activity_kind::RUNTIME),
    ("DRIVER", activity_kind::DRIVER),
    ("MARKER", activity_kind::MARKER),
    ("SYNCHRONIZATION", activity_kind::SYNCHRONIZATION),
    ("MEMORY2", activity_kind::MEMORY2),
    (
        "UNIFIED_MEMORY_COUNTER",
        activity_kind::UNIFIED_MEMORY_COUNTER,
    ),
];

fn text(address: usize) -> Text<'static> {
    Text::at(std::ptr::without_provenance(address))
}

/// What the C program wrote.
fn expected(kind: u32) -> Activity<'static> {
    match kind {
        activity_kind::CONCURRENT_KERNEL => Activity::Kernel(Kernel {
            start: 0x1111_1111_2222_2222,
            end: 0x1111_1111_2222_3333,
            completed: 0x1111_1111_2222_4444,
            correlation: 0x89ab_cdef,
            device: 3,
            context: 4,
            stream: 5,
            grid: [6, 7, 8],
            block: [9, 10, 11],
            static_shared: 12,
            dynamic_shared: 70_000,
            local_per_thread: 14,
            registers: 33,
            name: text(0x12_3456_789a),
            graph: 16,
            graph_node: 0x2222_2222_3333_3333,
        }),
        activity_kind::MEMCPY => Activity::Memcpy(Memcpy {
            kind: 8,
            src_kind: 3,
            dst_kind: 5,
            flags: 1,
            bytes: 0x10_0000_0010,
            start: 17,
            end: 18,
            device: 19,
            context: 20,
            stream: 21,
            peers: None,
            correlation: 22,
            graph_node: 23,
            graph: 24,
        }),
        activity_kind::MEMCPY2 => Activity::Memcpy(Memcpy {
            kind: 10,
            src_kind: 3,
            dst_kind: 3,
            flags: 0,
            bytes: 0x20_0000_0010,
            start: 25,
            end: 26,
            device: 27,
            context: 28,
            stream: 29,
            peers: Some((30, 31)),
            correlation: 32,
            graph_node: 33,
            graph: 34,
        }),
        activity_kind::MEMSET => Activity::Memset(Memset {
            value: 0xab,
            bytes: 0x30_0000_0010,
            start: 35,
            end: 36,
            device: 37,
            context: 38,
            stream: 39,
            correlation: 40,
            memory_kind: 3,
            graph_node: 41,
            graph: 42,
        }),
        activity_kind::RUNTIME => Activity::Api(Api {
            runtime: true,
            cbid: 211,
            start: 43,
            end: 44,
            thread: 45,
            correlation: 46,
            result: 2,
        }),
        activity_kind::DRIVER => Activity::Api(Api {
            runtime: false,
            cbid: 307,
            start: 47,
            end: 48,
            thread: 49,
            correlation: 50,
            result: 0,
        }),
        activity_kind::MARKER => Activity::Marker(Marker {
            flags: 2,
            timestamp: 51,
            id: 52,
            object_kind: 2,
            process: 53,
            thread: 54,
            name: text(0x5555),
            domain: text(0x6666),
        }),
        activity_kind::SYNCHRONIZATION => Activity::Synchronization(Synchronization {
            kind: 3,
            start: 55,
            end: 56,
            correlation: 57,
            context: 58,
            stream: u32::MAX,
            event: 59,
        }),
        activity_kind::MEMORY2 => Activity::Memory(Memory {
            operation: 1,
            kind: 3,
            correlation: 60,
            address: 0x7f00_0000_1000,
            bytes: 61,
            timestamp: 62,
            device: 63,
            context: 64,
            stream: 65,
            name: text(0x7777),
        }),
        activity_kind::UNIFIED_MEMORY_COUNTER => Activity::UnifiedMemory(UnifiedMemory {
            kind: 1,
            value: 66,
            start: 67,
            end: 68,
            address: 0x7f00_0000_2000,
            src: 69,
            dst: 70,
            stream: 71,
        }),
        other => panic!("{other}"),
    }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn records_are_read_as_each_versions_headers_write_them() {
    let mut seen = Vec::new();
    for line in include_str!("records.tsv").lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let (_, kind) = KINDS.iter().find(|(name, _)| *name == fields[1]).unwrap();
        let mut bytes = bytes_of(fields[2]);
        for api in fields[0].split(',') {
            let layouts = layouts_for(api.parse().unwrap()).unwrap();
            assert_eq!(layouts.api.to_string(), api);
            assert_eq!(
                size(layouts, *kind),
                Some(bytes.len()),
                "{api} {}",
                fields[1]
            );
            assert!(bytes.len() <= LONGEST);
            // SAFETY: a whole record of this version, which lives longer.
            let told = unsafe { read(layouts, *kind, bytes.as_mut_ptr()) };
            assert_eq!(told, expected(*kind), "{api} {}", fields[1]);
            seen.push((layouts.api, *kind));
        }
    }
    seen.sort_unstable();
    seen.dedup();
    let mut apis: Vec<u32> = LAYOUTS.iter().map(|known| known.api).collect();
    apis.dedup();
    assert_eq!(seen.len(), apis.len() * KINDS.len());
}

/// Two pages; the second is inaccessible.
struct Edge(*mut u8);

impl Edge {
    const PAGE: usize = 4096;
    fn new() -> Edge {
        // SAFETY: fresh memory at an address of the kernel's choice; the second half of it loses
        // its rights.
        unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                2 * Edge::PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(start, libc::MAP_FAILED);
            let second = start.cast::<u8>().add(Edge::PAGE);
            assert_eq!(
                libc::mprotect(second.cast(), Edge::PAGE, libc::PROT_NONE),
                0
            );
            Edge(start.cast())
        }
    }
    /// Stores a record so that it ends where the first page does.
    fn put(&self, record: &[u8]) -> *const u8 {
        // SAFETY: the first page is as long, and ours.
        unsafe {
            let at = self.0.add(Edge::PAGE - record.len());
            at.copy_from_nonoverlapping(record.as_ptr(), record.len());
            at
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made.
        unsafe { libc::munmap(self.0.cast(), 2 * Edge::PAGE) };
    }
}

#[test]
fn nothing_is_read_beyond_the_end_of_a_record() {
    let edge = Edge::new();
    for layouts in &LAYOUTS {
        for (_, kind) in KINDS {
            let mut record = vec![0xff; size(layouts, kind).unwrap()];
            record[..4].copy_from_slice(&kind.to_ne_bytes());
            // SAFETY: a record of this kind; what lies behind it would end the test.
            let told = unsafe { read(layouts, kind, edge.put(&record)) };
            assert!(!matches!(told, Activity::Other(_)));
        }
        // Of a kind that is not decoded, only its number is read.
        let unknown = activity_kind::OVERHEAD.to_ne_bytes();
        // SAFETY: four bytes are there.
        let told = unsafe {
            let record = edge.put(&unknown);
            read(layouts, kind_of(record), record)
        };
        assert_eq!(told, Activity::Other(activity_kind::OVERHEAD));
    }
}

/// Of a record that is cut off, what is there is decoded, and the rest is 0.
fn cut(layouts: &Layouts, kind: u32, bytes: &[u8]) {
    let whole = size(layouts, kind).unwrap_or(0);
    let mut filled = bytes.to_vec();
    filled.resize(whole.max(bytes.len()), 0);
    let (short, long) = (decode(layouts, kind, bytes), decode(layouts, kind, &filled));
    if bytes.len() >= whole {
        assert_eq!(short, long);
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_without_a_fault(
        version in 0..LAYOUTS.len(),
        kind in prop_oneof![0_u32..70, any::<u32>()],
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        cut(&LAYOUTS[version], kind, &bytes);
    }
}
