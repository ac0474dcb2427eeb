//! A session built from AMD's own json, so that what we write for it can be compared with what
//! AMD's tool wrote.

use midair_agents::{Agent, Sources};
use midair_output::{
    Index, Kind, Names, Node, Outcome, Parameter, Process, RecordWriter, Shape, Trace,
};
use midair_record::event::{self, Api, CodeObject, Copy, Header, Kernel, KernelSymbol, kind};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The value of pointers to texts, where AMD's tool printed the text instead.
pub const TEXT_POINTER: u64 = 0x1234;

pub fn golden(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn golden_json() -> Value {
    let mut all: Value = serde_json::from_str(&golden("r_results.json")).unwrap();
    all["rocprofiler-sdk-tool"][0].take()
}

pub fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("not a number: {value}"))
}

pub fn small(value: &Value) -> u32 {
    u32::try_from(number(value)).unwrap()
}

pub fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}

pub fn list(value: &Value) -> &[Value] {
    value
        .as_array()
        .unwrap_or_else(|| panic!("not a list: {value}"))
}

/// Returns the agents of the lab, with the handles and the product's name that this run of AMD's
/// tool had.
pub fn agents() -> Vec<Agent> {
    let fixtures =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../attacher/agents/tests/fixtures");
    let sources = Sources {
        topology: fixtures.join("topology"),
        cpuinfo: fixtures.join("cpuinfo"),
        numa: PathBuf::new(),
        drm: PathBuf::new(),
        amdgpu_ids: Vec::new(),
    };
    let mut agents = sources.read().unwrap();
    for (agent, handle) in agents.iter_mut().zip(48_127..) {
        agent.handle = handle;
    }
    agents[1].product_name = "AMD Instinct MI300X (modelled)".to_owned();
    agents
}

/// Returns the number that files have for a kind of records.
fn number_of(kind: u8) -> usize {
    usize::from(midair_domain::domain(kind).unwrap().number.unwrap())
}

/// Returns names with the golden's numbers. The parameters of each call come from AMD's headers.
pub fn names(golden: &Value) -> Names {
    let kinds = |key: &str| -> Vec<Kind> {
        let kind = |value: &Value| Kind {
            name: text(&value["kind"]).into(),
            operations: list(&value["operations"])
                .iter()
                .map(|name| text(name).into())
                .collect(),
        };
        list(&golden["strings"][key]).iter().map(kind).collect()
    };
    let amd = Names::amd();
    let mut by_name: HashMap<String, Vec<Parameter>> = HashMap::new();
    for ((kind, operation), parameters) in &amd.parameters {
        by_name.insert(
            amd.operation(*kind, *operation).into_owned(),
            parameters.clone(),
        );
    }
    let mut names = Names {
        buffer: kinds("buffer_records"),
        callback: kinds("callback_records"),
        ..Names::default()
    };
    for kind in [kind::HIP_RUNTIME_API_EXT, kind::HIP_COMPILER_API_EXT] {
        for (operation, name) in (0..).zip(&names.buffer[number_of(kind)].operations) {
            if let Some(parameters) = by_name.get(name.as_ref()) {
                names
                    .parameters
                    .insert((kind, operation), parameters.clone());
            }
        }
    }
    names
}

/// Returns the raw handle that stands for a stream's number.
fn stream(id: &Value) -> u64 {
    number(&id["handle"]) * 0x1_0000
}

fn node_of(agents: &[Agent], id: &Value) -> u32 {
    agents
        .iter()
        .find(|agent| agent.handle == number(&id["handle"]))
        .unwrap()
        .node_id
}

fn header(record: &Value) -> Header {
    Header {
        kind: midair_domain::of_number(number(&record["kind"]) as u8)
            .unwrap()
            .kind,
        operation: small(&record["operation"]),
        ..Header::default()
    }
}

fn extents(value: &Value) -> [u32; 3] {
    ["x", "y", "z"].map(|key| small(&value[key]))
}

/// Returns the words that a printed argument had.
fn words(shape: &Shape, printed: &str) -> Vec<u64> {
    let word = match shape {
        Shape::Pointer if printed == "(null)" => 0,
        Shape::Pointer => match printed.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
            None => TEXT_POINTER,
        },
        Shape::Signed(_) => printed.parse::<i64>().unwrap() as u64,
        Shape::Unsigned(_) => printed.parse().unwrap(),
        Shape::Enum { values, .. } => {
            values.iter().find(|(_, name)| name == printed).unwrap().0 as u64
        }
        Shape::Struct(_) => {
            let [z, y, x] = ["z=", ", y=", ", x="].map(|key| {
                let digits = printed.split(key).nth(1).unwrap();
                digits
                    .split([',', '}'])
                    .next()
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
            });
            return vec![x | y << 32, z];
        }
        other => panic!("the golden has no {other:?}"),
    };
    vec![word]
}

pub fn append_api(writer: &mut RecordWriter, names: &Names, record: &Value) {
    let header = header(record);
    let printed = record.get("args").map_or(&[][..], |args| list(args));
    let parameters = if printed.is_empty() {
        &[]
    } else {
        names.parameters(header.kind, header.operation)
    };
    assert_eq!(parameters.len(), printed.len(), "{record}");
    let words: Vec<u64> = parameters
        .iter()
        .zip(printed)
        .flat_map(|(p, printed)| words(&p.shape, printed["value"].as_str().unwrap()))
        .collect();
    let tail: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let api = Api {
        header,
        start: number(&record["start_timestamp"]),
        end: number(&record["end_timestamp"]),
        correlation: number(&record["correlation_id"]["internal"]),
        ancestor: number(&record["correlation_id"]["ancestor"]),
        stream: record.get("stream_id").map_or(0, stream),
        retval: record
            .get("retval")
            .map_or(0, |retval| number(&retval["uint64_t_retval"])),
        tid: small(&record["thread_id"]),
        nargs: words.len() as u32,
    };
    append(writer, &event::encode(&api, &tail));
}

pub fn append(writer: &mut RecordWriter, record: &[u8]) {
    assert_eq!(writer.append(record).unwrap(), 1);
}

pub fn kernel(agents: &[Agent], record: &Value) -> Kernel {
    let info = &record["dispatch_info"];
    Kernel {
        header: header(record),
        start: number(&record["start_timestamp"]),
        end: number(&record["end_timestamp"]),
        correlation: number(&record["correlation_id"]["internal"]),
        dispatch_id: number(&info["dispatch_id"]),
        kernel_id: number(&info["kernel_id"]),
        stream: stream(&record["stream_id"]),
        queue_id: small(&info["queue_id"]["handle"]),
        node: node_of(agents, &info["agent_id"]),
        tid: small(&record["thread_id"]),
        private_segment: small(&info["private_segment_size"]),
        group_segment: small(&info["group_segment_size"]),
        workgroup: extents(&info["workgroup_size"]),
        grid: extents(&info["grid_size"]),
        ..Kernel::default()
    }
}

pub fn copy(agents: &[Agent], record: &Value) -> Copy {
    Copy {
        header: header(record),
        start: number(&record["start_timestamp"]),
        end: number(&record["end_timestamp"]),
        correlation: number(&record["correlation_id"]["internal"]),
        bytes: number(&record["bytes"]),
        stream: stream(&record["stream_id"]),
        dst_node: node_of(agents, &record["dst_agent_id"]),
        src_node: node_of(agents, &record["src_agent_id"]),
        tid: small(&record["thread_id"]),
        ..Copy::default()
    }
}

pub fn append_described(writer: &mut RecordWriter, agents: &[Agent], golden: &Value) {
    for object in list(&golden["code_objects"]).iter().skip(1) {
        let uri = text(&object["uri"]);
        let record = CodeObject {
            header: Header {
                kind: kind::CODE_OBJECT,
                ..Header::default()
            },
            code_object_id: number(&object["code_object_id"]),
            load_base: number(&object["load_base"]),
            load_size: number(&object["load_size"]),
            load_delta: object["load_delta"].as_i64().unwrap(),
            memory_base: number(&object["memory_base"]),
            memory_size: number(&object["memory_size"]),
            node: node_of(agents, &object["agent_id"]),
            uri_len: uri.len() as u32,
        };
        append(writer, &event::encode(&record, uri.as_bytes()));
    }
    for symbol in list(&golden["kernel_symbols"]).iter().skip(1) {
        let name = text(&symbol["kernel_name"]);
        let record = KernelSymbol {
            header: Header {
                kind: kind::KERNEL_SYMBOL,
                ..Header::default()
            },
            kernel_id: number(&symbol["kernel_id"]),
            code_object_id: number(&symbol["code_object_id"]),
            kernel_object: number(&symbol["kernel_object"]),
            entry_offset: symbol["kernel_code_entry_byte_offset"].as_i64().unwrap(),
            kernarg_size: small(&symbol["kernarg_segment_size"]),
            kernarg_align: small(&symbol["kernarg_segment_alignment"]),
            group_segment: small(&symbol["group_segment_size"]),
            private_segment: small(&symbol["private_segment_size"]),
            sgpr: small(&symbol["sgpr_count"]),
            arch_vgpr: small(&symbol["arch_vgpr_count"]),
            accum_vgpr: small(&symbol["accum_vgpr_count"]),
            name_len: name.len() as u32,
        };
        append(writer, &event::encode(&record, name.as_bytes()));
    }
}

pub fn writer() -> RecordWriter {
    RecordWriter::create_in(&std::env::temp_dir()).unwrap()
}

/// Returns the whole golden session.
pub fn trace(golden: &Value, names: &Names) -> Trace {
    let mut writer = writer();
    append_session(&mut writer, golden, names);
    Trace {
        known: Default::default(),
        agents: agents(),
        ..trace_of(writer, golden)
    }
}

/// Appends all records of the golden session.
pub fn append_session(writer: &mut RecordWriter, golden: &Value, names: &Names) {
    let agents = agents();
    let records = &golden["buffer_records"];
    // Calls are ordered as they returned, inner ones first, as a thread writes them. The order
    // within each list stays.
    let end = |record: &&Value| number(&record["end_timestamp"]);
    let mut hip = list(&records["hip_api"]).iter().peekable();
    let mut hsa = list(&records["hsa_api"]).iter().peekable();
    loop {
        let next = match (hip.peek().map(end), hsa.peek().map(end)) {
            (Some(outer), Some(inner)) if outer < inner => hip.next(),
            (Some(_), None) => hip.next(),
            _ => hsa.next(),
        };
        let Some(record) = next else { break };
        append_api(writer, names, record);
    }
    for record in list(&records["kernel_dispatch"]) {
        append(writer, &event::encode(&kernel(&agents, record), &[]));
    }
    append_described(writer, &agents, golden);
    for record in list(&records["memory_copy"]) {
        append(writer, &event::encode(&copy(&agents, record), &[]));
    }
}

/// Returns a session with the golden's process and the given records.
pub fn trace_of(writer: RecordWriter, golden: &Value) -> Trace {
    let metadata = &golden["metadata"];
    let node = &metadata["node"];
    Trace {
        known: Default::default(),
        process: Process {
            pid: small(&metadata["pid"]),
            ppid: 1,
            command: list(&metadata["command"]).iter().map(text).collect(),
            init_time: number(&metadata["init_time"]),
            fini_time: number(&metadata["fini_time"]),
            node: Node {
                machine_id: text(&node["machine_id"]),
                system_name: text(&node["system_name"]),
                hostname: text(&node["hostname"]),
                release: text(&node["release"]),
                version: text(&node["version"]),
                hardware_name: text(&node["hardware_name"]),
                domain_name: text(&node["domain_name"]),
            },
            ..Process::default()
        },
        agents: agents(),
        records: writer.finish().unwrap(),
        lost: Vec::new(),
        notes: Vec::new(),
        outcome: Outcome::default(),
        counters: Default::default(),
        gpu: None,
        attach: Default::default(),
    }
}

pub fn index(trace: &Trace) -> &Index {
    trace.records.index()
}

/// Returns the names of a directory's entries, sorted.
pub fn entries(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Whether a file contains the bytes of a text.
pub fn contains(file: &Path, text: &str) -> bool {
    let bytes = fs::read(file).unwrap();
    let mut parts = bytes.windows(text.len());
    parts.any(|part| part == text.as_bytes())
}

/// Returns what Python's SQLite finds in a rocpd file, and its answers to queries.
pub fn reader(file: &Path, queries: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/rocpd_reader.py");
    let output = std::process::Command::new("python3")
        .arg(script)
        .arg(file)
        .args(queries)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}
