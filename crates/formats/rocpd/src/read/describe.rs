//! What rows refer to: the process and its machine, agents, threads, code objects, kernels, queues.

use super::facts::{cut, header, object};
use super::{Session, Stopped, cuda};
use midair_agents::{Agent, AgentType};
use midair_domain::sets;
use midair_output::{Node, Outcome, Process, RecordFile, Trace, agent_of_json};
use midair_record::event::{
    self, CodeObject, KernelSymbol, NO_NODE, Queue, RuntimeInit, cuda_node, kind,
};
use midair_trace::cuda::{devices, runtime_name};
use rusqlite::OptionalExtension;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// The start of the tags of midair's metadata.
const TAGS: &str = "midair_";
/// What the outcome of a session starts with if nothing went wrong.
const ORDINARY: [&str; 2] = ["complete", "the process ended while attached"];

/// The tag of the numbers of a CUDA process's devices, by the ids of their agents.
const DEVICES: &str = "cuda_devices";
/// The tag of the devices and streams that a CUDA process's queues stand for.
const QUEUES: &str = "cuda_queues";

/// What midair says about the whole session, by tag.
type Metadata = BTreeMap<String, String>;

/// The descriptions of a session.
pub(super) struct Described {
    process: Process,
    agents: Vec<Agent>,
    lost: Vec<(String, u64)>,
    notes: Vec<String>,
    outcome: Outcome,
    /// Nodes of agents, and ids of threads, by the ids of their rows.
    pub(super) nodes: HashMap<i64, u32>,
    pub(super) threads: HashMap<i64, u32>,
    /// Kernels without a description, by the ids of their rows: the addresses of their descriptors.
    pub(super) unknown: HashMap<i64, u64>,
    /// Handles of streams, by the ids of their rows: 0 where it is not known.
    pub(super) streams: BTreeMap<u64, u64>,
    /// Whether the session is of a CUDA process.
    pub(super) is_cuda: bool,
    /// The descriptions as records.
    pub(super) records: Vec<Vec<u8>>,
}

/// Whether the session of an earlier midair is of a CUDA process.
fn is_cuda(session: &Session<'_>) -> rusqlite::Result<bool> {
    let kinds = sets::CUDA_CALLS.iter();
    let only_cuda = [
        kind::MEMORY_SET,
        kind::SYNCHRONIZATION,
        kind::UNIFIED_MEMORY,
    ];
    let names = kinds.chain(only_cuda).map(|kind| session.names.kind(kind));
    let names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    let question = format!(
        "SELECT 1 FROM {} WHERE category_id IN (SELECT id FROM {} WHERE string IN ({})) LIMIT 1",
        session.part.table("event"),
        session.part.table("string"),
        names.join(", ")
    );
    if session.connection.prepare(&question)?.exists([])? {
        return Ok(true);
    }
    // A recording of kernels alone has CUDA's facts about each launch.
    let question = format!(
        "SELECT extdata FROM {} LIMIT 1",
        session.part.table("kernel_dispatch")
    );
    let first: Option<Option<String>> = session
        .connection
        .query_row(&question, [], |row| row.get(0))
        .optional()?;
    let first = object(first.flatten().as_deref());
    Ok(first.get("registers").is_some())
}

impl Described {
    pub(super) fn read(session: &mut Session<'_>) -> Result<Described, Stopped> {
        let mut described = Described {
            process: Process::default(),
            agents: Vec::new(),
            lost: Vec::new(),
            notes: Vec::new(),
            outcome: Outcome::default(),
            nodes: HashMap::new(),
            threads: HashMap::new(),
            unknown: HashMap::new(),
            streams: BTreeMap::new(),
            is_cuda: false,
            records: Vec::new(),
        };
        let metadata = metadata(session)?;
        described.is_cuda = metadata.contains_key(DEVICES) || is_cuda(session)?;
        described.process(session)?;
        described.agents(session, &metadata)?;
        described.code_objects(session)?;
        described.symbols(session)?;
        described.streams(session)?;
        match metadata.get(QUEUES) {
            Some(queues) => described.cuda_queues(&object(Some(queues))),
            None => described.queues(session)?,
        }
        described.whole(session, &metadata);
        Ok(described)
    }

    /// Returns the trace of these records.
    pub(super) fn into_trace(self, records: RecordFile) -> Trace {
        Trace {
            known: Default::default(),
            process: self.process,
            agents: self.agents,
            records,
            lost: self.lost,
            notes: self.notes,
            outcome: self.outcome,
            counters: Default::default(),
            gpu: None,
            attach: Default::default(),
        }
    }

    fn process(&mut self, session: &Session<'_>) -> rusqlite::Result<()> {
        let of = |table: &str| session.part.table(table);
        let question = format!(
            "SELECT p.pid, p.ppid, p.init, p.fini, p.command, n.machine_id, n.system_name, n.hostname, n.release, \
             n.version, n.hardware_name, n.domain_name FROM {} AS p LEFT JOIN {} AS n ON n.id = p.nid ORDER BY p.id LIMIT 1",
            of("info_process"),
            of("info_node")
        );
        let found = session.connection.query_row(&question, [], |row| {
            let text = |at: usize| {
                row.get::<_, Option<String>>(at)
                    .map(Option::unwrap_or_default)
            };
            let number = |at: usize| row.get::<_, Option<i64>>(at).map(Option::unwrap_or_default);
            Ok(Process {
                pid: number(0)? as u32,
                ppid: number(1)? as u32,
                init_time: number(2)? as u64,
                fini_time: number(3)? as u64,
                // The file has the words of the command line with spaces between them.
                command: text(4)?.split(' ').map(str::to_owned).collect(),
                node: Node {
                    machine_id: text(5)?,
                    system_name: text(6)?,
                    hostname: text(7)?,
                    release: text(8)?,
                    version: text(9)?,
                    hardware_name: text(10)?,
                    domain_name: text(11)?,
                },
                ..Process::default()
            })
        });
        if let Some(process) = found.optional()? {
            self.process = process;
        }
        let question = format!("SELECT id, tid, name FROM {}", of("info_thread"));
        let mut statement = session.connection.prepare(&question)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let tid = row.get::<_, i64>(1)? as u32;
            self.threads.insert(row.get(0)?, tid);
            if let Some(name) = row.get::<_, Option<String>>(2)? {
                self.process.threads.insert(tid, name);
            }
        }
        Ok(())
    }

    /// Returns the handles of the streams in the order of their numbers from 1.
    pub(super) fn handles(&self) -> impl Iterator<Item = u64> {
        let last = self.streams.last_key_value().map_or(0, |(id, _)| *id);
        (1..=last).map(|id| self.streams.get(&id).copied().unwrap_or(0))
    }

    /// Returns the handle of a stream by the id of its row.
    pub(super) fn stream(&self, id: i64) -> u64 {
        let id = id as u64;
        let known = self.streams.get(&id).filter(|handle| **handle != 0);
        known.copied().unwrap_or(id)
    }

    fn agents(&mut self, session: &Session<'_>, metadata: &Metadata) -> rusqlite::Result<()> {
        let devices = object(metadata.get(DEVICES).map(String::as_str));
        // Earlier files do not have the numbers of devices: a process usually sees all.
        let mut next = 0;
        let mut ordinal = |id: i64| match devices.get(id.to_string()) {
            Some(known) => known.as_u64().map(|known| known as u32),
            None => {
                next += 1;
                Some(next - 1).filter(|_| devices.is_null())
            }
        };
        let question = format!(
            "SELECT id, absolute_index, logical_index, type_index, type, name, model_name, vendor_name, product_name, \
             extdata FROM {} ORDER BY id",
            session.part.table("info_agent")
        );
        let mut statement = session.connection.prepare(&question)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let number = |at: usize| row.get::<_, Option<i64>>(at);
            let text = |at: usize| row.get::<_, Option<String>>(at);
            let node = number(1)?.unwrap_or(id) as u32;
            self.nodes.insert(id, node);
            let extdata = text(9)?;
            if let Some(agent) = agent_of_json(&object(extdata.as_deref())) {
                let is_device = self.is_cuda && devices::is_device(&agent);
                let ordinal = is_device.then(|| ordinal(id)).flatten();
                let Some(ordinal) = ordinal else {
                    // CUDA's records name no node of the host.
                    if self.is_cuda && agent.agent_type == AgentType::Cpu {
                        self.nodes.insert(id, NO_NODE);
                    }
                    self.agents.push(agent);
                    continue;
                };
                self.nodes.insert(id, cuda_node(ordinal));
                self.records.push(devices::record_of(&agent, ordinal));
            } else if let (Some(logical), Some(name)) = (number(2)?, text(5)?) {
                // Another tool's file, without the further facts.
                self.agents.push(Agent {
                    agent_type: match text(4)?.as_deref() {
                        Some("CPU") => AgentType::Cpu,
                        Some("GPU") => AgentType::Gpu,
                        _ => AgentType::None,
                    },
                    handle: u64::from(node) + 1,
                    node_id: node,
                    logical_node_id: logical as i32,
                    logical_node_type_id: number(3)?.unwrap_or(-1) as i32,
                    name,
                    model_name: text(6)?.unwrap_or_default(),
                    vendor_name: text(7)?.unwrap_or_default(),
                    product_name: text(8)?.unwrap_or_default(),
                    ..Agent::default()
                });
            }
        }
        Ok(())
    }

    fn code_objects(&mut self, session: &Session<'_>) -> rusqlite::Result<()> {
        let question = format!(
            "SELECT id, agent_id, uri, load_base, load_size, load_delta, extdata FROM {} ORDER BY id",
            session.part.table("info_code_object")
        );
        let mut statement = session.connection.prepare(&question)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = |at: usize| row.get::<_, Option<i64>>(at).map(Option::unwrap_or_default);
            // Of a code object without a description only the number is known.
            let Some(uri) = row.get::<_, Option<String>>(2)? else {
                continue;
            };
            let extdata = object(row.get::<_, Option<String>>(6)?.as_deref());
            let further = |key: &str| extdata.get(key).and_then(Value::as_u64).unwrap_or(0);
            let node = self.nodes.get(&number(1)?).copied().unwrap_or_default();
            let record = CodeObject {
                header: header(kind::CODE_OBJECT, 0),
                code_object_id: number(0)? as u64,
                load_base: number(3)? as u64,
                load_size: number(4)? as u64,
                load_delta: number(5)?,
                memory_base: further("memory_base"),
                memory_size: further("memory_size"),
                node,
                uri_len: 0,
            };
            let tail = cut::<CodeObject>(uri.as_bytes());
            let record = CodeObject {
                uri_len: tail.len() as u32,
                ..record
            };
            self.records.push(event::encode(&record, tail));
        }
        Ok(())
    }

    fn symbols(&mut self, session: &Session<'_>) -> rusqlite::Result<()> {
        let question = format!(
            "SELECT id, code_object_id, kernel_name, kernel_object, kernarg_segment_size, kernarg_segment_alignment, \
             group_segment_size, private_segment_size, sgpr_count, arch_vgpr_count, accum_vgpr_count, extdata FROM {} ORDER BY id",
            session.part.table("info_kernel_symbol")
        );
        let mut statement = session.connection.prepare(&question)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = |at: usize| row.get::<_, Option<i64>>(at).map(Option::unwrap_or_default);
            let (id, code_object, address) = (number(0)?, number(1)?, number(3)?);
            let name = row.get::<_, Option<String>>(2)?.unwrap_or_default();
            let size = row.get::<_, Option<i64>>(4)?;
            if code_object == 0 && id == address && size.is_none() {
                self.unknown.insert(id, address as u64);
                continue;
            }
            let extdata = object(row.get::<_, Option<String>>(11)?.as_deref());
            let offset = extdata.get("kernel_code_entry_byte_offset");
            let word = |at: usize| number(at).map(|number| number as u32);
            let tail = cut::<KernelSymbol>(name.as_bytes());
            let record = KernelSymbol {
                header: header(kind::KERNEL_SYMBOL, 0),
                kernel_id: id as u64,
                code_object_id: code_object as u64,
                kernel_object: address as u64,
                entry_offset: offset.and_then(Value::as_i64).unwrap_or(0),
                kernarg_size: word(4)?,
                kernarg_align: word(5)?,
                group_segment: word(6)?,
                private_segment: word(7)?,
                sgpr: word(8)?,
                arch_vgpr: word(9)?,
                accum_vgpr: word(10)?,
                name_len: tail.len() as u32,
            };
            self.records.push(event::encode(&record, tail));
        }
        Ok(())
    }

    fn streams(&mut self, session: &Session<'_>) -> rusqlite::Result<()> {
        let question = format!(
            "SELECT id, name FROM {} WHERE id > 0 ORDER BY id",
            session.part.table("info_stream")
        );
        let mut statement = session.connection.prepare(&question)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let name: Option<String> = row.get(1)?;
            let handle = name.filter(|_| self.is_cuda);
            let handle = handle.and_then(|name| cuda::stream_of(&name));
            let id = row.get::<_, i64>(0)? as u64;
            self.streams.insert(id, handle.unwrap_or(0));
        }
        Ok(())
    }

    fn cuda_queues(&mut self, queues: &Value) {
        for (id, of) in queues.as_object().into_iter().flatten() {
            let number = |at: usize| of.get(at).and_then(Value::as_u64);
            if let (Ok(queue_id), Some(node), Some(handle)) = (id.parse(), number(0), number(1)) {
                let record = Queue {
                    header: header(kind::QUEUE, 0),
                    handle,
                    queue_id,
                    node: node as u32,
                    ..Queue::default()
                };
                self.records.push(event::encode(&record, &[]));
            }
        }
    }

    fn queues(&mut self, session: &Session<'_>) -> rusqlite::Result<()> {
        // A queue's device is its dispatches' device.
        let question = format!(
            "SELECT q.id, (SELECT d.agent_id FROM {} AS d WHERE d.queue_id = q.id LIMIT 1) FROM {} AS q WHERE q.id > 0 ORDER BY q.id",
            session.part.table("kernel_dispatch"),
            session.part.table("info_queue")
        );
        let mut statement = session.connection.prepare(&question)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let agent = row.get::<_, Option<i64>>(1)?;
            let node = agent.and_then(|agent| self.nodes.get(&agent)).copied();
            // Nothing was dispatched on it, so nothing of the results names it.
            let Some(node) = node else { continue };
            let record = Queue {
                header: header(kind::QUEUE, 0),
                queue_id: row.get::<_, i64>(0)? as u32,
                node,
                ..Queue::default()
            };
            self.records.push(event::encode(&record, &[]));
        }
        Ok(())
    }

    /// Takes what midair says about the whole session.
    fn whole(&mut self, session: &Session<'_>, all: &Metadata) {
        let json = |tag: &str| object(all.get(tag).map(String::as_str));
        if let Some(text) = all.get("outcome") {
            self.outcome = Outcome {
                text: text.clone(),
                ordinary: ORDINARY.iter().any(|start| text.starts_with(start)),
            };
        }
        for (what, count) in json("lost").as_object().into_iter().flatten() {
            self.lost
                .push((what.clone(), count.as_u64().unwrap_or_default()));
        }
        let notes = json("notes");
        let notes = notes.as_array().into_iter().flatten();
        self.notes
            .extend(notes.filter_map(Value::as_str).map(str::to_owned));
        for runtime in json("runtimes").as_array().into_iter().flatten() {
            let number = |key: &str| runtime.get(key).and_then(Value::as_u64).unwrap_or(0);
            let name = runtime.get("name").and_then(Value::as_str);
            let wanted = format!("RUNTIME_INITIALIZATION_{}", name.unwrap_or_default());
            let of = kind::RUNTIME_INITIALIZATION;
            let is_it = |number: &u32| {
                session.names.operation(of, *number) == wanted
                    || name.is_some() && runtime_name(*number) == name
            };
            let operation = (1..128).find(is_it);
            let record = RuntimeInit {
                header: header(of, operation.unwrap_or(0)),
                time: number("timestamp"),
                correlation: number("correlation_id"),
                version: number("version"),
                instance: number("instance"),
                tid: number("thread_id") as u32,
                reserved: 0,
            };
            self.records.push(event::encode(&record, &[]));
        }
    }
}

/// Returns what midair says about the whole session, by tag.
fn metadata(session: &Session<'_>) -> rusqlite::Result<Metadata> {
    let question = format!("SELECT tag, value FROM {}", session.part.table("metadata"));
    let mut statement = session.connection.prepare(&question)?;
    let mut rows = statement.query([])?;
    let mut all = Metadata::new();
    while let Some(row) = rows.next()? {
        let tag: String = row.get(0)?;
        if let Some(tag) = tag.strip_prefix(TAGS) {
            all.insert(tag.to_owned(), row.get(1)?);
        }
    }
    Ok(all)
}
