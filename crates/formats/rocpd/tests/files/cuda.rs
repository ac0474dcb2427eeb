//! A CUDA process's database becomes what an attach writes, byte by byte, in each format.

use crate::common::{BEGIN, database, ended, header, operation, plan};
use crate::convert::check_formats;
use midair_output::{Format, Names, Trace};
use midair_record::event::{
    self, Allocation, Api, Copy, CudaDevice, CudaLaunch, CudaTransfer, Header, Kernel,
    KernelSymbol, Marker, MemorySet, NO_NODE, Queue, RuntimeInit, Synchronization, UnifiedMemory,
    Untimed, cuda_node, cuda_stream, flag, kind,
};
use midair_rocpd::{CsvForm, Input, convert};

/// The streams, in the order in which they are first used.
const STREAMS: [u64; 3] = [cuda_stream(1, 14), cuda_stream(1, 7), cuda_stream(2, 7)];
const TID: u32 = 4243;

fn device(ordinal: u32, name: &str) -> Vec<u8> {
    let record = CudaDevice {
        header: header(kind::CUDA_DEVICE, 0),
        memory: 150_754_820_096,
        uuid: [7 + ordinal as u8; 16],
        ordinal,
        pci_domain: 1,
        pci_bus: 0x1b + ordinal,
        pci_device: 3,
        major: 9,
        minor: 1,
        multiprocessors: 132,
        warp: 32,
        threads_per_multiprocessor: 2048,
        threads_per_block: 1024,
        shared_per_multiprocessor: 233_472,
        clock_khz: 1_980_000,
        memory_clock_khz: 3_201_000,
        memory_bus_bits: 6016,
        l2_bytes: 62_914_560,
        block_limits: [1024, 1024, 64],
        grid_limits: [i32::MAX as u32, 65_535, 65_535],
        name_len: name.len() as u32,
        ..CudaDevice::default()
    };
    event::encode(&record, name.as_bytes())
}

/// Returns the records of what comes before the rounds.
fn descriptions() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for operation in [64, 65] {
        let runtime = RuntimeInit {
            header: header(kind::RUNTIME_INITIALIZATION, operation),
            time: BEGIN,
            version: 130_000,
            tid: TID,
            ..RuntimeInit::default()
        };
        all.push(event::encode(&runtime, &[]));
    }
    // The process sees other devices than the machine's first two, in another order.
    all.push(device(2, "NVIDIA H200"));
    all.push(device(0, "NVIDIA A100-SXM4-40GB"));
    for (kernel_id, name) in [(1, "_Z4vaddPKfS0_Pfi"), (2, "ampere_sgemm_128x64_nn")] {
        let symbol = KernelSymbol {
            header: header(kind::KERNEL_SYMBOL, 0),
            kernel_id,
            arch_vgpr: 16,
            group_segment: 64,
            name_len: name.len() as u32,
            ..KernelSymbol::default()
        };
        all.push(event::encode(&symbol, name.as_bytes()));
    }
    for (queue_id, handle) in (1..).zip(STREAMS) {
        let queue = Queue {
            header: header(kind::QUEUE, 0),
            handle,
            queue_id,
            node: cuda_node(if queue_id == 3 { 2 } else { 0 }),
            ..Queue::default()
        };
        all.push(event::encode(&queue, &[]));
    }
    all
}

/// Returns what one round's calls did on the device: kernels, copies, fills.
fn work(round: u64, at: u64) -> Vec<Vec<u8>> {
    let stream = STREAMS[round as usize % 3];
    let context = (stream >> 32) as u32;
    let node = cuda_node(if context == 2 { 2 } else { 0 });
    let is_lost = round == 3;
    let kernel = Kernel {
        header: Header {
            flags: if is_lost { flag::UNTIMED } else { 0 },
            ..header(kind::KERNEL_DISPATCH, 1)
        },
        start: if is_lost { 0 } else { at + 300 },
        end: if is_lost { 0 } else { at + 600 + round },
        correlation: 10 * round + 2,
        dispatch_id: round + 1,
        // The third kernel has no description, and neither has the device of the last one.
        kernel_id: 1 + round % 3,
        stream,
        queue_id: 1 + round as u32 % 3,
        node: if round == 5 { cuda_node(7) } else { node },
        tid: TID,
        untimed: if is_lost {
            Untimed::RunningAtDetach as u32
        } else {
            0
        },
        private_segment: 8,
        group_segment: 1064,
        workgroup: [256, 1, 1],
        grid: [4096, 2, 1],
        ..Kernel::default()
    };
    let (graph, graph_node) = match round {
        4 => (4, 17_179_869_190),
        _ => (0, 0),
    };
    let launch = CudaLaunch {
        graph_node,
        graph,
        context,
        registers: 20,
        static_shared: 64,
        dynamic_shared: 1000,
        ..CudaLaunch::default()
    };
    let mut all = vec![event::encode(&kernel, launch.bytes())];
    let ends = [
        (1, NO_NODE, node),
        (2, node, NO_NODE),
        (8, node, node),
        (10, cuda_node(0), cuda_node(2)),
        (9, NO_NODE, NO_NODE),
        (3, NO_NODE, node),
    ];
    let (copy_kind, src_node, dst_node) = ends[round as usize % 6];
    let copy = Copy {
        header: header(kind::MEMORY_COPY, 0),
        start: at + 700,
        end: at + 800,
        correlation: 10 * round + 3,
        bytes: 4096 + round,
        stream,
        src_node,
        dst_node,
        tid: TID,
        ..Copy::default()
    };
    let transfer = CudaTransfer {
        graph_node,
        graph,
        context,
        copy_kind,
        memory_kinds: (3 << 16) | (round as u32 % 3),
    };
    all.push(event::encode(&copy, transfer.bytes()));
    let set = MemorySet {
        header: header(kind::MEMORY_SET, if round == 2 { 5 } else { 3 }),
        start: at + 820,
        end: at + 850,
        correlation: 10 * round + 4,
        bytes: 512,
        stream,
        graph_node,
        graph,
        context,
        value: 255,
        node,
        tid: TID,
        ..MemorySet::default()
    };
    all.push(event::encode(&set, &[]));
    all
}

/// Returns one round's calls, waits and movements.
fn host(names: &Names, round: u64, at: u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let call = |kind, name: &str, times: (u64, u64), correlation| {
        let api = Api {
            header: header(kind, operation(names, kind, name)),
            start: times.0,
            end: times.1,
            correlation,
            retval: if round == 1 { 700 } else { 0 },
            tid: TID,
            ..Api::default()
        };
        event::encode(&api, &[])
    };
    let (runtime, driver) = (kind::CUDA_RUNTIME_API, kind::CUDA_DRIVER_API);
    // A call of the driver below one of the runtime, with its id.
    let id = 10 * round + 2;
    all.push(call(driver, "cuLaunchKernel", (at + 110, at + 180), id));
    all.push(call(runtime, "cudaLaunchKernel", (at + 100, at + 200), id));
    all.push(call(
        runtime,
        "cudaMemcpyAsync",
        (at + 210, at + 210),
        id + 1,
    ));
    let is_event = round.is_multiple_of(2);
    let stream = match (is_event, round) {
        (_, 0) => cuda_stream(1, u32::MAX),
        // A stream that has no other work.
        (_, 1) => cuda_stream(1, 99),
        _ => STREAMS[1],
    };
    let wait = Synchronization {
        header: Header {
            flags: if round == 5 { flag::OPEN_AT_DETACH } else { 0 },
            ..header(kind::SYNCHRONIZATION, if is_event { 1 } else { 3 })
        },
        start: at + 900,
        end: at + 990,
        correlation: id + 3,
        stream,
        event: if is_event { 9 } else { u32::MAX },
        context: 1,
        tid: TID,
        ..Synchronization::default()
    };
    all.push(event::encode(&wait, &[]));
    let moved = UnifiedMemory {
        header: header(kind::UNIFIED_MEMORY, 1 + round as u32 % 4),
        start: at + 1000,
        end: at + 1000 + round * 10,
        address: 0x7f00_0000_0000 + (round << 16),
        value: 65_536,
        stream: if round == 0 { 7 } else { u32::MAX.into() },
        src_node: if round.is_multiple_of(2) {
            NO_NODE
        } else {
            cuda_node(2)
        },
        dst_node: cuda_node(0),
    };
    all.push(event::encode(&moved, &[]));
    let message = format!("step {round}");
    let range = Marker {
        header: header(kind::MARKER_CORE_RANGE_API, 1 + round as u32 % 2),
        start: at,
        end: at + 2000,
        correlation: id + 4,
        tid: TID,
        len: message.len() as u32,
        ..Marker::default()
    };
    all.push(event::encode(&range, message.as_bytes()));
    let memory = Allocation {
        header: header(kind::MEMORY_ALLOCATION, if is_event { 1 } else { 3 }),
        start: at + 20,
        end: at + 30,
        correlation: id + 5,
        address: 0x7f00_0000_0000,
        bytes: 1 << 20,
        node: cuda_node(0),
        tid: TID,
        ..Allocation::default()
    };
    all.push(event::encode(&memory, &[]));
    all
}

/// Returns a session with something of everything that a CUDA process can contain.
fn session() -> Trace {
    let names = Names::amd();
    let mut all = descriptions();
    for round in 0..6 {
        let at = BEGIN + round * 10_000;
        all.extend(host(&names, round, at));
        all.extend(work(round, at));
    }
    let mut trace = ended(4242, all);
    trace.agents.truncate(1);
    trace
}

#[test]
fn each_format_of_a_cuda_process_is_the_attachs() {
    let formats = [
        Format::Csv,
        Format::Json,
        Format::Pftrace,
        Format::Otf2,
        Format::Kineto,
        Format::Html,
        Format::Parquet,
        Format::Pprof,
    ];
    let wanted = check_formats(&session(), &formats);
    let of = |end: &str| {
        let found = wanted.iter().find(|(name, _)| name.ends_with(end));
        found
            .unwrap_or_else(|| panic!("{end}: {:?}", wanted.keys()))
            .1
    };
    assert!(of("cuda_api_trace.csv").contains("cudaLaunchKernel"));
    assert!(of("kernel_trace.csv").contains("17179869190"));
    assert!(of("results.json").contains("NVIDIA A100-SXM4-40GB"));
}

/// A file of an earlier midair does not say which devices there were, and of which streams the queues are.
#[test]
fn an_earlier_file_is_known_as_cudas_by_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = database(dir.path(), &session());
    let earlier = rusqlite::Connection::open(&path).unwrap();
    let table: String = earlier
        .query_row(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_metadata%'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let forget = format!("DELETE FROM \"{table}\" WHERE tag LIKE 'midair_cuda%'");
    assert_eq!(earlier.execute(&forget, []).unwrap(), 2);
    let input = Input::open(&[path]).unwrap();
    let out = dir.path().join("out");
    let formats = [Format::Csv, Format::Json];
    let converted = convert(&input, &plan(&out, &formats), CsvForm::Attach, None).unwrap();
    assert_eq!(converted.notes, [""; 0]);
    let text = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(text("r_kernel_trace.csv").lines().count(), 1 + 6);
    assert_eq!(text("r_cuda_api_trace.csv").lines().count(), 1 + 18);
    assert!(
        text("r_kernel_trace.csv")
            .lines()
            .next()
            .unwrap()
            .ends_with("\"Cuda_Stream\"")
    );
    assert!(text("r_results.json").contains("NVIDIA A100-SXM4-40GB"));
}

/// Kernels alone say that it was a CUDA process, and so does a process that did nothing else.
#[test]
fn a_session_of_few_kinds_is_known_as_cudas() {
    let (names, formats) = (Names::amd(), [Format::Csv, Format::Json, Format::Kineto]);
    let (work, host) = (work(0, BEGIN), host(&names, 0, BEGIN));
    for some in [&work[..1], &work[1..2], &host[6..], &[]] {
        let mut all = descriptions();
        all.extend(some.iter().cloned());
        let mut trace = ended(4242, all);
        trace.agents.truncate(1);
        check_formats(&trace, &formats);
    }
}
