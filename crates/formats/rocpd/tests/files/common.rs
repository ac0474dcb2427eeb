//! Sessions, databases of them, and what a query finds.

use midair_agents::{Agent, AgentType};
use midair_output::{Format, Names, Node, Outcome, Plan, Process, RecordWriter, Trace, write};
use midair_record::event::{
    self, Allocation, Api, CodeObject, Copy, Header, Instruction, Kernel, KernelSymbol, Marker,
    NO_NODE, PcSample, Queue, RuntimeInit, Scratch, Untimed, flag, kind,
};
use rusqlite::Connection;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The start of the times.
pub const BEGIN: u64 = 1_000_000_000;

/// Returns the header of a record of this kind.
pub fn header(kind: u8, operation: u32) -> Header {
    Header {
        kind,
        operation,
        ..Header::default()
    }
}

fn agent(node: u32, agent_type: AgentType, name: &str) -> Agent {
    Agent {
        handle: 48_127 + u64::from(node),
        agent_type,
        node_id: node,
        logical_node_id: node as i32,
        logical_node_type_id: 0,
        name: name.to_owned(),
        vendor_name: "AMD".to_owned(),
        product_name: format!("product of {name}"),
        cu_count: 104,
        capability: 0x1440_2280,
        ..Agent::default()
    }
}

/// Returns the number of a function.
pub fn operation(names: &Names, kind: u8, name: &str) -> u32 {
    (0..2000)
        .find(|number| names.operation(kind, *number) == name)
        .unwrap()
}

/// Returns a process's session in which everything happens that HIP programs do.
pub fn session(pid: u32) -> Trace {
    session_with(pid, |_| {})
}

/// Returns the same with samples of program counters by one method.
pub fn sampled_session(pid: u32, kind: u8) -> Trace {
    session_with(pid, |put| {
        put(Instruction::record(
            1,
            0x8041,
            "s_waitcnt lgkmcnt(0)",
            "/src/vadd.hip:7",
        ));
        put(Instruction::record(1, 0x8049, "s_nop \"0\"", ""));
        for number in 0..40_u64 {
            let offset = 8 * (number % 3);
            let sample = PcSample {
                header: header(kind, 0),
                time: BEGIN + 1000 * number,
                pc: 0x9041 + offset,
                exec_mask: u64::MAX - number,
                dispatch_id: number % 4,
                correlation: 1 + number,
                code_object_id: 1,
                offset: 0x8041 + offset,
                hw_id: 0x8000_1234 + number as u32,
                wave_in_group: 3,
                chiplet: 1,
                node: 1,
                workgroup: [number as u32, 2, u32::MAX],
                // The fifth is invalid.
                snapshot: [u32::from(number != 4) | (number as u32 % 16) << 5, 20, 7],
            };
            put(event::encode(&sample, &[]));
        }
    })
}

/// Returns the same with further records.
pub fn session_with(pid: u32, more: impl FnOnce(&mut dyn FnMut(Vec<u8>))) -> Trace {
    let names = Names::amd();
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    let mut put = |record: Vec<u8>| assert_eq!(writer.append(&record).unwrap(), 1);
    put(event::encode(
        &RuntimeInit {
            header: header(kind::RUNTIME_INITIALIZATION, 2),
            time: BEGIN,
            correlation: 1,
            version: 70_200,
            tid: pid,
            ..RuntimeInit::default()
        },
        &[],
    ));
    let uri = b"file:///t/vadd#offset=20480&size=7480";
    put(event::encode(
        &CodeObject {
            header: header(kind::CODE_OBJECT, 0),
            code_object_id: 1,
            load_base: 0x1000,
            load_size: 0x2000,
            load_delta: 0x1000,
            memory_base: 0x55f0_549c_7ae0,
            memory_size: 7480,
            node: 1,
            uri_len: uri.len() as u32,
        },
        uri,
    ));
    for (id, name) in [(1, "_Z4vaddPKfS0_Pfi.kd"), (2, "_Z5scalePffi.kd")] {
        put(event::encode(
            &KernelSymbol {
                header: header(kind::KERNEL_SYMBOL, 0),
                kernel_id: id,
                code_object_id: 1,
                kernel_object: 0x9000 + id,
                entry_offset: 0x40,
                kernarg_size: 32,
                kernarg_align: 8,
                group_segment: 128,
                sgpr: 16,
                arch_vgpr: 8,
                accum_vgpr: 4,
                name_len: name.len() as u32,
                ..KernelSymbol::default()
            },
            name.as_bytes(),
        ));
    }
    put(event::encode(
        &Queue {
            header: header(kind::QUEUE, 0),
            queue_id: 1,
            node: 1,
            ..Queue::default()
        },
        &[],
    ));
    let mut correlation = 1;
    for round in 0..5_u64 {
        let at = BEGIN + round * 10_000;
        correlation += 1;
        let call = correlation;
        // (void* dst, const void* src, size_t sizeBytes, hipMemcpyKind kind, hipStream_t stream)
        let words = [0x7000 + round, 0x8000, 4096, 1, 0xabc0];
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word: &u64| word.to_le_bytes())
            .collect();
        let copying = operation(&names, kind::HIP_RUNTIME_API_EXT, "hipMemcpyAsync");
        put(event::encode(
            &Api {
                header: header(kind::HIP_RUNTIME_API_EXT, copying),
                start: at,
                end: at + 900,
                correlation: call,
                ancestor: 0,
                stream: 0xabc0,
                retval: round * 7,
                tid: pid + 1,
                nargs: 5,
            },
            &bytes,
        ));
        put(event::encode(
            &Copy {
                header: header(kind::MEMORY_COPY, 2),
                start: at + 100,
                end: at + 700,
                correlation: call,
                bytes: 4096,
                dst: 0x7000 + round,
                src: 0x8000,
                stream: 0xabc0,
                dst_node: 1,
                src_node: 0,
                tid: pid + 1,
                untimed: 0,
            },
            &[],
        ));
        correlation += 1;
        put(event::encode(
            &Api {
                header: header(kind::HSA_CORE_API, 5),
                start: at + 200,
                end: at + 300,
                correlation,
                ancestor: call,
                tid: pid + 1,
                ..Api::default()
            },
            &[],
        ));
        correlation += 1;
        let lost = round == 3;
        put(event::encode(
            &Kernel {
                header: Header {
                    flags: if lost { flag::UNTIMED } else { 0 },
                    ..header(kind::KERNEL_DISPATCH, 1)
                },
                start: if lost { 0 } else { at + 1000 },
                end: if lost { 0 } else { at + 1500 + round },
                correlation,
                rung: at + 400,
                dispatch_id: round + 1,
                kernel_id: 1 + round % 2,
                stream: if round % 2 == 0 { 0xabc0 } else { 0xdef0 },
                queue_id: 1,
                node: 1,
                tid: pid,
                untimed: if lost {
                    Untimed::SignalReused as u32
                } else {
                    0
                },
                private_segment: 16,
                group_segment: 128,
                workgroup: [256, 1, 1],
                grid: [65_536, 2, 1],
                ..Kernel::default()
            },
            &[],
        ));
        correlation += 1;
        let message = format!("round \"{round}\"");
        put(event::encode(
            &Marker {
                header: Header {
                    flags: if round == 4 { flag::OPEN_AT_DETACH } else { 0 },
                    // Of a thread, and of the process.
                    ..header(kind::MARKER_CORE_RANGE_API, 1 + round as u32 % 2)
                },
                start: at,
                end: at + 2000,
                correlation,
                tid: pid,
                len: message.len() as u32,
                ..Marker::default()
            },
            message.as_bytes(),
        ));
        correlation += 1;
        put(event::encode(
            &Marker {
                header: header(kind::MARKER_CORE_RANGE_API, 0),
                start: at + 50,
                end: at + 50,
                correlation,
                tid: pid,
                len: 4,
                ..Marker::default()
            },
            b"mark",
        ));
        correlation += 1;
        let free = round % 2 == 1;
        put(event::encode(
            &Allocation {
                header: header(kind::MEMORY_ALLOCATION, if free { 3 } else { 1 }),
                start: at + 3000,
                end: at + 3100,
                correlation,
                ancestor: call,
                address: 0x7f00_0000_0000 + round,
                bytes: if free { 0 } else { 1 << 20 },
                stream: 0,
                node: if free { NO_NODE } else { 1 },
                tid: pid,
            },
            &[],
        ));
    }
    correlation += 1;
    put(event::encode(
        &Scratch {
            header: header(kind::SCRATCH_MEMORY, 1),
            start: BEGIN + 60_000,
            end: BEGIN + 61_000,
            correlation,
            bytes: 1 << 16,
            queue_id: 1,
            node: 1,
            tid: pid,
            flags: 2,
            ..Scratch::default()
        },
        &[],
    ));
    // A kernel whose symbol was never seen.
    put(event::encode(
        &Kernel {
            header: header(kind::KERNEL_DISPATCH, 1),
            start: BEGIN + 62_000,
            end: BEGIN + 63_000,
            correlation: correlation + 1,
            dispatch_id: 6,
            kernel_object: 0xfeed_f00d,
            queue_id: 1,
            node: 1,
            tid: pid,
            ..Kernel::default()
        },
        &[],
    ));
    more(&mut put);
    finished(pid, writer)
}

/// Returns a process's session with these records.
pub fn ended(pid: u32, records: Vec<Vec<u8>>) -> Trace {
    let mut writer = RecordWriter::create_in(&std::env::temp_dir()).unwrap();
    for record in records {
        assert_eq!(writer.append(&record).unwrap(), 1);
    }
    finished(pid, writer)
}

fn finished(pid: u32, writer: RecordWriter) -> Trace {
    Trace {
        known: Default::default(),
        process: Process {
            pid,
            ppid: 1,
            command: vec!["/t/vadd".to_owned(), "3".to_owned()],
            init_time: BEGIN,
            fini_time: BEGIN + 1_000_000,
            node: Node {
                machine_id: "0123456789abcdef".to_owned(),
                system_name: "Linux".to_owned(),
                hostname: "host".to_owned(),
                release: "6.1".to_owned(),
                version: "#1".to_owned(),
                hardware_name: "x86_64".to_owned(),
                domain_name: "(none)".to_owned(),
            },
            threads: [(pid, "vadd".to_owned()), (pid + 1, "copier".to_owned())].into(),
            ..Process::default()
        },
        agents: vec![
            agent(0, AgentType::Cpu, "AMD EPYC"),
            agent(1, AgentType::Gpu, "gfx942"),
        ],
        records: writer.finish().unwrap(),
        lost: vec![("kernel dispatches".to_owned(), 2)],
        notes: vec!["a note of the attaching side".to_owned()],
        outcome: Outcome::default(),
        counters: Default::default(),
        gpu: None,
        attach: Default::default(),
    }
}

/// Returns a plan for these formats.
pub fn plan(directory: &Path, formats: &[Format]) -> Plan {
    Plan {
        directory: directory.to_owned(),
        prefix: "r".to_owned(),
        raw_directory: "%cwd%".to_owned(),
        raw_prefix: "r".to_owned(),
        formats: formats.to_vec(),
        stats: true,
        ..Plan::default()
    }
}

/// Writes a session's database and returns its path.
pub fn database(directory: &Path, trace: &Trace) -> PathBuf {
    let files = write(trace, &Names::amd(), &plan(directory, &[Format::Rocpd])).unwrap();
    files
        .into_iter()
        .find(|file| file.extension().is_some_and(|end| end == "db"))
        .unwrap()
}

/// Returns a database of AMD's tool.
pub fn of_amd(directory: &Path, name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/amd");
    let file = std::fs::File::open(here.join(format!("{name}.db.gz"))).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut bytes)
        .unwrap();
    let path = directory.join(format!("{name}.db"));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Returns the number that a query finds in a file.
pub fn count(path: &Path, query: &str) -> i64 {
    let connection = Connection::open(path).unwrap();
    connection
        .query_row(query, [], |row| row.get(0))
        .unwrap_or_else(|error| panic!("{query}: {error}"))
}
