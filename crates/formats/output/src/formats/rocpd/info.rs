//! The rows to which records refer: node, process, threads, agents, queues, streams, code objects,
//! kernels.
//!
//! A row must exist before another one refers to it. Whatever is known beforehand is inserted at
//! the start. Threads, streams, and things without a description are inserted when a record first
//! names them.

use super::database::{Database, Seen, Step, json, text, whole};
use crate::formats::json::pieces;
use crate::job::Job;
use midair_agents::{Agent, AgentType};
use midair_record::event::Kernel;
use midair_trace::cuda::devices::ordinal;
use midair_trace::cuda::stream_parts;
use midair_trace::index::{Object, Symbol};
use midair_trace::limits;
use rusqlite::{Statement, params};

/// The statements for descriptions, and what is in the file already.
pub(super) struct Info<'c, 'j> {
    job: &'j Job<'j>,
    /// Id of the node, which every row has.
    pub(super) nid: i64,
    /// Id of the process, which every row has: its pid.
    pub(super) pid: i64,
    thread: Statement<'c>,
    agent: Statement<'c>,
    queue: Statement<'c>,
    stream: Statement<'c>,
    object: Statement<'c>,
    symbol: Statement<'c>,
    threads: Seen<u32>,
    agents: Seen<u32>,
    queues: Seen<u32>,
    streams: Seen<u64>,
    unknown_kernels: Seen<u64>,
}

impl<'c, 'j> Info<'c, 'j> {
    /// Inserts what is known before the first record.
    pub(super) fn new(database: &Database<'c>, job: &'j Job<'j>) -> Step<Info<'c, 'j>> {
        let process = &job.trace.process;
        let mut info = Info {
            job,
            nid: whole(process.node.id()),
            pid: i64::from(process.pid),
            thread: database.ensure("info_thread", "id, nid, ppid, pid, tid, name")?,
            agent: database.ensure(
                "info_agent",
                "id, nid, pid, type, absolute_index, logical_index, type_index, uuid, name, model_name, vendor_name, product_name, user_name, extdata",
            )?,
            queue: database.ensure("info_queue", "id, nid, pid, name")?,
            stream: database.ensure("info_stream", "id, nid, pid, name")?,
            object: database.ensure(
                "info_code_object",
                "id, nid, pid, agent_id, uri, load_base, load_size, load_delta, storage_type, extdata",
            )?,
            symbol: database.ensure(
                "info_kernel_symbol",
                "id, nid, pid, code_object_id, kernel_name, display_name, kernel_object, kernarg_segment_size, kernarg_segment_alignment, group_segment_size, private_segment_size, sgpr_count, arch_vgpr_count, accum_vgpr_count, extdata",
            )?,
            threads: Seen::default(),
            agents: Seen::default(),
            queues: Seen::default(),
            streams: Seen::default(),
            unknown_kernels: Seen::default(),
        };
        info.machine(database)?;
        // AMD's files start with these two, and readers expect number 0 to exist.
        info.stream(0)?;
        info.queue(0)?;
        for agent in job.agents() {
            info.agents.first(agent.node_id);
            info.known_agent(agent)?;
        }
        for id in job.index.queues.keys() {
            info.queue(*id)?;
        }
        for (id, object) in &job.index.code_objects {
            info.known_object(*id, object)?;
        }
        for (id, symbol) in &job.index.symbols {
            info.known_symbol(*id, symbol)?;
        }
        Ok(info)
    }

    fn machine(&self, database: &Database<'c>) -> Step<()> {
        let process = &self.job.trace.process;
        let node = &process.node;
        database
            .insert(
                "info_node",
                "id, hash, machine_id, system_name, hostname, release, version, hardware_name, domain_name",
            )?
            .execute(params![
                self.nid,
                whole(node.hash()),
                text(&node.machine_id),
                text(&node.system_name),
                text(&node.hostname),
                text(&node.release),
                text(&node.version),
                text(&node.hardware_name),
                text(&node.domain_name),
            ])?;
        let (init, fini) = (whole(process.init_time), whole(process.fini_time));
        // The environment is left out. AMD's tool writes all of it, including whatever secrets are
        // in it.
        database
            .insert(
                "info_process",
                "id, nid, ppid, pid, init, fini, start, end, command, extdata",
            )?
            .execute(params![
                self.pid,
                self.nid,
                process.ppid,
                process.pid,
                init,
                fini,
                init,
                fini,
                text(&process.command.join(" ")),
                json(pieces::config(self.job)?),
            ])?;
        Ok(())
    }

    fn known_agent(&mut self, agent: &Agent) -> Step<()> {
        let kind = match agent.agent_type {
            AgentType::Cpu => Some("CPU"),
            AgentType::Gpu => Some("GPU"),
            AgentType::None => None,
        };
        self.agent.execute(params![
            agent.node_id,
            self.nid,
            self.pid,
            kind,
            agent.node_id,
            agent.logical_node_id,
            agent.logical_node_type_id,
            // AMD's column has the device's PCI id.
            agent.device_id,
            text(&agent.name),
            text(&agent.model_name),
            text(&agent.vendor_name),
            text(&agent.product_name),
            text(&agent.product_name),
            json(pieces::agent(agent)?),
        ])?;
        Ok(())
    }

    fn known_object(&mut self, id: u64, object: &Object) -> Step<()> {
        let record = &object.record;
        let agent = self.agent(record.node)?;
        let storage = if record.memory_base == 0 {
            "FILE"
        } else {
            "MEMORY"
        };
        self.object.execute(params![
            whole(id),
            self.nid,
            self.pid,
            agent,
            text(&limits::text(&object.uri)),
            whole(record.load_base),
            whole(record.load_size),
            record.load_delta,
            storage,
            json(pieces::code_object(self.job, id, object)?),
        ])?;
        Ok(())
    }

    /// Inserts a code object without a description, of which only the number is known.
    fn unknown_object(&mut self, id: u64) -> Step<()> {
        let nothing = None::<i64>;
        self.object.execute(params![
            whole(id),
            self.nid,
            self.pid,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing,
            "{}",
        ])?;
        Ok(())
    }

    fn known_symbol(&mut self, id: u64, symbol: &Symbol) -> Step<()> {
        let record = &symbol.record;
        if !self
            .job
            .index
            .code_objects
            .contains_key(&record.code_object_id)
        {
            self.unknown_object(record.code_object_id)?;
        }
        let name = limits::text(&symbol.name);
        let display = self.job.kernel_name_by_id(id);
        self.symbol.execute(params![
            whole(id),
            self.nid,
            self.pid,
            whole(record.code_object_id),
            text(&name),
            text(&display),
            whole(record.kernel_object),
            record.kernarg_size,
            record.kernarg_align,
            record.group_segment,
            record.private_segment,
            record.sgpr,
            record.arch_vgpr,
            record.accum_vgpr,
            json(pieces::kernel_symbol(self.job, id, symbol)?),
        ])?;
        Ok(())
    }

    /// Returns the id of a thread, which is its tid.
    pub(super) fn thread(&mut self, tid: u32) -> Step<i64> {
        if self.threads.first(tid) {
            let process = &self.job.trace.process;
            let name = process.threads.get(&tid).map(|name| text(name));
            let row = params![tid, self.nid, process.ppid, self.pid, tid, name];
            self.thread.execute(row)?;
        }
        Ok(i64::from(tid))
    }

    /// Returns the id of an agent, which is the number of its node. An agent that is not among the
    /// machine's gets a row with nothing else. For a CUDA device without a description the number
    /// is the device's.
    pub(super) fn agent(&mut self, named: u32) -> Step<i64> {
        let node = self.job.node(named);
        if self.agents.first(node) {
            let nothing = None::<i64>;
            let (kind, name) = match ordinal(node) {
                Some(_) => (Some("GPU"), Some(self.job.agent_name(named))),
                None => (None, None),
            };
            self.agent.execute(params![
                node, self.nid, self.pid, kind, node, nothing, nothing, nothing, name, nothing,
                nothing, nothing, nothing, "{}",
            ])?;
        }
        Ok(i64::from(node))
    }

    /// Returns the id of a queue, which is its number.
    pub(super) fn queue(&mut self, id: u32) -> Step<i64> {
        if self.queues.first(id) {
            let name = numbered("Queue", u64::from(id));
            self.queue.execute(params![id, self.nid, self.pid, name])?;
        }
        Ok(i64::from(id))
    }

    /// Returns the id of a stream, which is the number that it has in the other formats, too.
    pub(super) fn stream(&mut self, handle: u64) -> Step<i64> {
        let id = self.job.index.stream(handle);
        if self.streams.first(id) {
            let name = match self.job.index.stream_handle(id) {
                Some(handle) if self.job.index.is_cuda() => {
                    let (context, stream) = stream_parts(handle);
                    format!("Context {context} Stream {stream}")
                }
                _ => numbered("Stream", id),
            };
            self.stream
                .execute(params![whole(id), self.nid, self.pid, name])?;
        }
        Ok(whole(id))
    }

    /// Returns the id of a dispatch's kernel. A kernel without a description gets a row of its own,
    /// whose id is the address of its descriptor. So different kernels stay different, and none is
    /// missing in the views.
    pub(super) fn kernel(&mut self, kernel: &Kernel) -> Step<i64> {
        if self.job.index.symbols.contains_key(&kernel.kernel_id) {
            return Ok(whole(kernel.kernel_id));
        }
        // CUDA's kernels have no such address.
        let address = match kernel.kernel_object {
            0 => kernel.kernel_id,
            address => address,
        };
        let id = whole(address);
        if self.unknown_kernels.first(address) {
            self.unknown_object(0)?;
            let name = self.job.kernel_name(kernel);
            let nothing = None::<i64>;
            self.symbol.execute(params![
                id, self.nid, self.pid, 0, name, name, id, nothing, nothing, nothing, nothing,
                nothing, nothing, nothing, "{}",
            ])?;
        }
        Ok(id)
    }
}

/// Returns a name with a number. AMD numbers names from 0 and ids from 1, and id 0 is the default
/// one.
fn numbered(what: &str, id: u64) -> String {
    match id.checked_sub(1) {
        Some(number) => format!("{what} {number}"),
        None => format!("Default {what}"),
    }
}
