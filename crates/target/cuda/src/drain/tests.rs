//! What becomes of each of CUPTI's records, one by one.

use super::*;
use crate::clock::Reading;
use midair_abi::cupti::memcpy_kind;
use midair_record::event::Record;
use midair_record::spool::{Reader, ReaderOptions};

struct Session {
    reader: Reader,
    drain: Drain,
}

impl Session {
    /// CUPTI's clock is ours.
    fn new(calls: bool) -> Session {
        let reader = Reader::create(&ReaderOptions {
            size: 1 << 20,
            settings: Vec::new(),
            drain_ms: 0,
            lease_ms: 0,
            session: 1,
        })
        .unwrap();
        // SAFETY: the reader is dropped after the drain's last use.
        let sink = unsafe { Sink::new(reader.area().unwrap(), 1) };
        let mut drain = Drain::new(sink, calls, false);
        drain.clock.add(Reading {
            cupti: 1,
            boot: 1,
            wall: 1,
            ticks: (0, 0),
        });
        Session { reader, drain }
    }

    fn convert(&mut self, activity: &Activity<'_>) {
        // SAFETY: the texts are static.
        unsafe { self.drain.convert(activity) };
    }

    /// What was stored since the last call, without queues and symbols.
    fn records<T>(&mut self, mut of: impl FnMut(Record<'_>) -> Option<T>) -> Vec<T> {
        let mut all = Vec::new();
        let read = self.reader.drain(|mut bytes| {
            while !bytes.is_empty() {
                let (record, size) = event::decode(bytes).unwrap();
                all.extend(of(record));
                bytes = &bytes[size..];
            }
            Ok::<_, ()>(())
        });
        read.unwrap();
        all
    }
}

fn kernel(start: u64, end: u64) -> Kernel<'static> {
    Kernel {
        start,
        end,
        completed: end,
        correlation: 7,
        device: 1,
        context: 2,
        stream: 3,
        grid: [1; 3],
        block: [1; 3],
        static_shared: 0,
        dynamic_shared: 0,
        local_per_thread: 0,
        registers: 1,
        name: Text::at(c"k".as_ptr()),
        graph: 0,
        graph_node: 0,
    }
}

fn copy(kind: u32) -> Memcpy {
    Memcpy {
        kind,
        src_kind: memory_kind::DEVICE,
        dst_kind: memory_kind::DEVICE,
        flags: 0,
        bytes: 64,
        start: 10,
        end: 20,
        device: 1,
        context: 2,
        stream: 3,
        peers: None,
        correlation: 7,
        graph: 0,
        graph_node: 0,
    }
}

fn call(thread: u32, runtime: bool, cbid: u32) -> Activity<'static> {
    Activity::Api(Api {
        runtime,
        cbid,
        start: 10,
        end: 20,
        thread,
        correlation: 7,
        result: 0,
    })
}

#[test]
fn calls_that_only_ask_are_left_out_unless_all_are_wanted() {
    let name = midair_abi::cupti::runtime_cbid;
    let driver = midair_abi::cupti::driver_cbid;
    let calls = [
        (true, name("cudaGetDevice").unwrap()),
        (true, name("cudaLaunchKernel").unwrap()),
        (true, name("cudaStreamQuery").unwrap()),
        (false, driver("cuCtxGetCurrent").unwrap()),
        (false, driver("cuDevicePrimaryCtxGetState").unwrap()),
        (false, driver("cuStreamSynchronize").unwrap()),
    ];
    for (all, expected) in [(false, 3), (true, calls.len())] {
        let mut session = Session::new(true);
        session.drain.all_calls = all;
        let other = session.drain.own + 1;
        for (runtime, cbid) in calls {
            session.convert(&call(other, runtime, cbid));
        }
        let kept = session.records(|record| match record {
            Record::Api(api, _) => Some(api.header.operation),
            _ => None,
        });
        assert_eq!(kept.len(), expected, "{kept:?}");
    }
}

#[test]
fn calls_of_our_own_are_left_out() {
    let mut session = Session::new(true);
    let own = session.drain.own;
    assert_ne!(own, 0);
    let other = own + 1;
    session.convert(&call(own, true, 211));
    session.convert(&call(own, false, 307));
    // What CUPTI's own thread calls in our name.
    session.convert(&call(other, false, OWN_CALL));
    session.convert(&call(other, true, OWN_CALL));
    session.convert(&call(other, false, 307));
    let kept = session.records(|record| match record {
        Record::Api(api, _) => Some((api.header.kind, api.header.operation, api.tid)),
        _ => None,
    });
    let expected = [
        (kind::CUDA_RUNTIME_API, OWN_CALL, other),
        (kind::CUDA_DRIVER_API, 307, other),
    ];
    assert_eq!(kept, expected);
    // By the half of `pthread_self`, our own thread is known by its owner's number.
    session.drain.threads_by_half();
    session.drain.owner(0xdead, own);
    session.convert(&call(0xdead, true, 211));
    session.drain.owner(0xbeef, other);
    session.convert(&call(0xbeef, true, 211));
    session.convert(&call(0xdead, true, 211));
    let tids = session.records(|record| match record {
        Record::Api(api, _) => Some(api.tid),
        _ => None,
    });
    assert_eq!(tids, [other]);
}

#[test]
fn a_copy_goes_from_where_to_where() {
    let (host, here, there) = (HOST, cuda_node(1), cuda_node(4));
    let paged = memory_kind::PAGEABLE;
    let (pinned, device) = (memory_kind::PINNED, memory_kind::DEVICE);
    let by = |kind: u32| copy(kind);
    let between = |src_kind: u32, dst_kind: u32| Memcpy {
        src_kind,
        dst_kind,
        ..copy(memcpy_kind::UNKNOWN)
    };
    let peers = |kind: u32| Memcpy {
        peers: Some((4, 1)),
        ..copy(kind)
    };
    for (copy, expected) in [
        (by(memcpy_kind::HTOH), (1, host, host)),
        (by(memcpy_kind::HTOD), (2, host, here)),
        (by(memcpy_kind::HTOA), (2, host, here)),
        (by(memcpy_kind::DTOH), (3, here, host)),
        (by(memcpy_kind::ATOH), (3, here, host)),
        (by(memcpy_kind::DTOD), (4, here, here)),
        (by(memcpy_kind::DTOA), (4, here, here)),
        (by(memcpy_kind::ATOD), (4, here, here)),
        (by(memcpy_kind::ATOA), (4, here, here)),
        (by(memcpy_kind::PTOP), (4, here, here)),
        (peers(memcpy_kind::PTOP), (4, there, here)),
        (peers(memcpy_kind::DTOD), (4, there, here)),
        // The driver chose.
        (between(paged, pinned), (1, host, host)),
        (between(pinned, device), (2, host, here)),
        (between(paged, memory_kind::ARRAY), (2, host, here)),
        (between(device, paged), (3, here, host)),
        (between(memory_kind::MANAGED, pinned), (3, here, host)),
        (between(device, device), (4, here, here)),
    ] {
        let mut session = Session::new(true);
        session.convert(&Activity::Memcpy(copy));
        let found = session.records(|record| match record {
            Record::Copy(copy, _) => Some((copy.header.operation, copy.src_node, copy.dst_node)),
            _ => None,
        });
        assert_eq!(found, [expected], "{copy:?}");
    }
}

#[test]
fn unified_memory_names_the_device_that_each_kind_is_about() {
    let (src, dst, none) = (cuda_node(5), cuda_node(6), NO_NODE);
    for (kind, expected) in [
        (unified_memory::BYTES_TRANSFER_HTOD, (none, dst)),
        (unified_memory::BYTES_TRANSFER_DTOH, (src, none)),
        (unified_memory::BYTES_TRANSFER_DTOD, (src, dst)),
        (unified_memory::GPU_PAGE_FAULT, (src, none)),
        (unified_memory::THRASHING, (src, none)),
        (unified_memory::THROTTLING, (src, none)),
        (unified_memory::REMOTE_MAP, (src, none)),
        // Page faults of a processor.
        (3, (none, none)),
    ] {
        let mut session = Session::new(true);
        session.convert(&Activity::UnifiedMemory(UnifiedMemory {
            kind,
            value: 1,
            start: 30,
            end: 20,
            address: 0x1000,
            src: 5,
            dst: 6,
            stream: 3,
        }));
        let found = session.records(|record| match record {
            Record::UnifiedMemory(moved) => Some((moved.src_node, moved.dst_node, moved.end)),
            _ => None,
        });
        assert_eq!(found, [(expected.0, expected.1, 30)], "{kind}");
    }
}

#[test]
fn what_is_released_has_neither_bytes_nor_a_device() {
    let memory = |operation: u32, kind: u32| {
        Activity::Memory(Memory {
            operation,
            kind,
            correlation: 7,
            address: 0x1000,
            bytes: 64,
            timestamp: 10,
            device: 1,
            context: 2,
            stream: u32::MAX,
            name: Text::at(std::ptr::null()),
        })
    };
    let allocated = memory_operation::ALLOCATION;
    let mut session = Session::new(true);
    session.convert(&memory(allocated, memory_kind::DEVICE));
    session.convert(&memory(allocated, memory_kind::PINNED));
    session.convert(&memory(memory_operation::RELEASE, memory_kind::DEVICE));
    let found = session.records(|record| match record {
        Record::Allocation(it) => Some((it.header.operation, it.bytes, it.node, it.stream)),
        _ => None,
    });
    let expected = [
        (1, 64, cuda_node(1), 0),
        (1, 64, HOST, 0),
        (3, 0, NO_NODE, 0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_kernel_without_a_time_is_untimed_and_counted() {
    let mut session = Session::new(true);
    for (start, end) in [(100, 105), (0, 200), (100, 0), (0, 0), (200, 100)] {
        session.convert(&Activity::Kernel(kernel(start, end)));
    }
    let running = Untimed::RunningAtDetach as u32;
    let found = session.records(|record| match record {
        Record::Kernel(it, _) => Some((it.start, it.end, it.untimed, it.header.flags)),
        _ => None,
    });
    let expected = [
        (100, 105, 0, 0),
        (0, 0, running, flag::UNTIMED),
        (0, 0, running, flag::UNTIMED),
        (0, 0, running, flag::UNTIMED),
        (0, 0, Untimed::BadTimes as u32, flag::UNTIMED),
    ];
    assert_eq!(found, expected);
    assert_eq!((session.drain.untimed, session.drain.longest), (4, 5));
}

#[test]
fn the_longest_kernel_is_remembered() {
    let mut session = Session::new(false);
    for (start, end) in [(100, 160), (1000, 301_000), (400_000, 400_001)] {
        session.convert(&Activity::Kernel(kernel(start, end)));
    }
    assert_eq!(session.drain.longest, 300_000);
    let callers = session.records(|record| match record {
        Record::Kernel(it, _) => Some(it.header.flags),
        _ => None,
    });
    assert_eq!(callers, [flag::NO_CALLER; 3]);
}

/// A graph of anything at all.
#[test]
fn graphs_are_noticed_whatever_they_are_of() {
    let fill = Memset {
        value: 0,
        bytes: 64,
        start: 10,
        end: 20,
        device: 1,
        context: 2,
        stream: 3,
        correlation: 7,
        memory_kind: memory_kind::DEVICE,
        graph: 0,
        graph_node: 0,
    };
    let copy = copy(memcpy_kind::DTOD);
    let kernel = kernel(10, 20);
    let has_graphs = |activity: &Activity<'_>| {
        let mut session = Session::new(true);
        session.convert(activity);
        session.drain.graphs
    };
    for (graph, graph_node) in [(0, 0), (9, 0), (0, 9)] {
        let all = [
            Activity::Kernel(Kernel {
                graph,
                graph_node,
                ..kernel
            }),
            Activity::Memcpy(Memcpy {
                graph,
                graph_node,
                ..copy
            }),
            Activity::Memset(Memset {
                graph,
                graph_node,
                ..fill
            }),
        ];
        for activity in all {
            let expected = (graph, graph_node) != (0, 0);
            assert_eq!(has_graphs(&activity), expected, "{activity:?}");
        }
    }
}
