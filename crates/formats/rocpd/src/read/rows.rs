//! Rows of what happened as records.

use super::describe::Described;
use super::facts::{Place, cut, header, object, untimed, with_flags};
use super::{Session, Stopped, cuda, driver, hip};
use crate::window::Window;
use midair_domain::sets;
use midair_output::{RecordWriter, words_of};
use midair_record::event::{self, Allocation, Api, Copy, Kernel, Marker, NO_NODE, Scratch, kind};
use rusqlite::{Row, Rows};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Categories of AMD's earlier versions, and what they are called since.
const RENAMED: [(&str, &str); 3] = [
    ("HIP_RUNTIME_API", "HIP_RUNTIME_API_EXT"),
    ("HIP_COMPILER_API", "HIP_COMPILER_API_EXT"),
    ("ROCDECODE_API", "ROCDECODE_API_EXT"),
];
/// The operation of a ROCTx range that is named by its message.
const THREAD_RANGE: u32 = 1;

/// Appends a record for each row of the session, in the order of their events.
pub(super) fn read(
    session: &mut Session<'_>,
    described: &Described,
    window: Option<Window>,
    writer: &mut RecordWriter,
) -> Result<(), Stopped> {
    let connection = session.connection;
    let questions = questions(session, window)?;
    let mut statements = Vec::new();
    for (question, make) in &questions {
        statements.push((connection.prepare(question)?, *make));
    }
    let arguments = format!(
        "SELECT event_id, name, value, extdata FROM {} ORDER BY event_id, position, id",
        session.part.table("arg")
    );
    let mut arguments = connection.prepare(&arguments)?;
    let mut reader = Reader {
        session,
        described,
        arguments: Arguments {
            rows: arguments.query([])?,
            next: None,
            is_begun: false,
        },
        categories: HashMap::new(),
        operations: HashMap::new(),
    };
    let mut sources = Vec::new();
    for (statement, make) in &mut statements {
        let mut source = Source {
            rows: statement.query([])?,
            make: *make,
            next: None,
        };
        source.advance(&mut reader)?;
        sources.push(source);
    }
    loop {
        let waiting = sources.iter_mut().filter(|source| source.next.is_some());
        let first = waiting.min_by_key(|source| source.next.as_ref().map(|(event, _)| *event));
        let Some(source) = first else { break };
        if let Some((_, record)) = source.next.take() {
            writer.append(&record)?;
        }
        source.advance(&mut reader)?;
    }
    Ok(())
}

/// Makes a record of a row, whose first column is the event's number.
type Make = fn(&mut Reader<'_, '_, '_>, &Row<'_>) -> rusqlite::Result<Option<Vec<u8>>>;

/// Returns the questions for rows, each with the function that makes records of the answer.
fn questions(
    session: &Session<'_>,
    window: Option<Window>,
) -> rusqlite::Result<Vec<(String, Make)>> {
    let of = |name: &str| session.part.table(name);
    // The tables in the window, if there is one.
    let within = |name: &str| match window {
        Some(window) => format!("(SELECT * FROM {}{})", of(name), window.of_table(name)),
        None => of(name),
    };
    let (event, string) = (of("event"), of("string"));
    let joined = format!("LEFT JOIN {event} AS e ON e.id = x.event_id");
    let calls = format!(
        "SELECT x.event_id, x.tid, x.\"start\", x.\"end\", n.string, c.string, e.stack_id, e.parent_stack_id, e.extdata, x.extdata \
         FROM (SELECT event_id, tid, \"start\", \"end\", name_id, extdata FROM {regions} UNION ALL \
               SELECT s.event_id, t.tid, s.\"timestamp\", s.\"timestamp\", t.name_id, s.extdata FROM {samples} AS s \
               JOIN {tracks} AS t ON t.id = s.track_id) AS x {joined} \
         LEFT JOIN {string} AS n ON n.id = x.name_id LEFT JOIN {string} AS c ON c.id = e.category_id ORDER BY x.event_id",
        regions = within("region"),
        samples = without_counters(session, within("sample"))?,
        tracks = of("track"),
    );
    // Files of AMD's earlier schemas do not say which graph launched it.
    let graphs = |table: &str| -> rusqlite::Result<&str> {
        let columns = session.part.columns(session.connection, table)?;
        let known = columns.iter().any(|column| column == "graph_node_id");
        Ok(if known {
            "x.graph_exec_id, x.graph_node_id"
        } else {
            "0, 0"
        })
    };
    let kernels = format!(
        "SELECT x.event_id, x.tid, x.\"start\", x.\"end\", e.stack_id, x.extdata, x.agent_id, x.kernel_id, x.dispatch_id, x.queue_id, \
         x.stream_id, x.private_segment_size, x.group_segment_size, x.workgroup_size_x, x.workgroup_size_y, x.workgroup_size_z, \
         x.grid_size_x, x.grid_size_y, x.grid_size_z, {} FROM {} AS x {joined} ORDER BY x.event_id, x.id",
        graphs("kernel_dispatch")?,
        within("kernel_dispatch")
    );
    let copies = format!(
        "SELECT x.event_id, x.tid, x.\"start\", x.\"end\", e.stack_id, x.extdata, n.string, x.dst_agent_id, x.dst_address, \
         x.src_agent_id, x.src_address, x.size, x.stream_id, c.string, {} FROM {} AS x {joined} \
         LEFT JOIN {string} AS n ON n.id = x.name_id LEFT JOIN {string} AS c ON c.id = e.category_id ORDER BY x.event_id, x.id",
        graphs("memory_copy")?,
        within("memory_copy")
    );
    let allocations = format!(
        "SELECT x.event_id, x.tid, x.\"start\", x.\"end\", e.stack_id, x.extdata, e.parent_stack_id, x.agent_id, x.type, x.level, \
         x.address, x.size, x.queue_id, x.stream_id FROM {} AS x {joined} ORDER BY x.event_id, x.id",
        within("memory_allocate")
    );
    let mut all: Vec<(String, Make)> = vec![
        (calls, |reader, row| reader.call(row)),
        (kernels, |reader, row| reader.kernel(row)),
        (copies, |reader, row| reader.copy(row)),
        (allocations, |reader, row| reader.allocation(row)),
    ];
    if session.has("graph_launch")? {
        let launches = format!(
            "SELECT x.event_id, x.tid, x.\"start\", x.\"end\", e.stack_id, x.extdata, x.graph_exec_id, x.kernel_dispatch_count \
             FROM {} AS x {joined} ORDER BY x.event_id, x.id",
            within("graph_launch")
        );
        all.push((launches, |reader, row| reader.launch(row)));
    }
    // Schema 3.0.4 has a table for what are regions in midair's files.
    if session.has("hip_event")? {
        let events = format!(
            "SELECT x.event_id, x.tid, x.\"start\", x.\"end\", e.stack_id, n.string, x.agent_id, x.queue_id, x.stream_id, \
             x.hip_event_handle FROM {} AS x {joined} LEFT JOIN {string} AS n ON n.id = x.name_id ORDER BY x.event_id, x.id",
            within("hip_event")
        );
        all.push((events, |reader, row| reader.hip_event(row)));
    }
    Ok(all)
}

/// Returns samples without the values of counters within dispatches, whose values are read apart.
fn without_counters(session: &Session<'_>, samples: String) -> rusqlite::Result<String> {
    let columns = session.part.columns(session.connection, "pmc_event")?;
    if !columns.iter().any(|column| column == "sample_id") {
        return Ok(samples);
    }
    Ok(format!(
        "(SELECT * FROM {samples} WHERE id NOT IN (SELECT v.sample_id FROM {} AS v WHERE v.sample_id IS NOT NULL \
         AND v.event_id IN (SELECT event_id FROM {})))",
        session.part.table("pmc_event"),
        session.part.table("kernel_dispatch")
    ))
}

/// A table that is read by the numbers of events.
struct Source<'r> {
    rows: Rows<'r>,
    make: Make,
    /// The next record and the number of its event.
    next: Option<(i64, Vec<u8>)>,
}

impl Source<'_> {
    /// Reads up to the next row that becomes a record.
    fn advance(&mut self, reader: &mut Reader<'_, '_, '_>) -> rusqlite::Result<()> {
        while let Some(row) = self.rows.next()? {
            let event = row.get::<_, Option<i64>>(0)?.unwrap_or_default();
            if let Some(record) = (self.make)(reader, row)? {
                self.next = Some((event, record));
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Arguments of calls, in the order of the events.
struct Arguments<'r> {
    rows: Rows<'r>,
    next: Option<Argument>,
    is_begun: bool,
}

struct Argument {
    event: i64,
    name: String,
    value: String,
    extdata: Value,
}

impl Arguments<'_> {
    fn read(&mut self) -> rusqlite::Result<Option<Argument>> {
        self.is_begun = true;
        let Some(row) = self.rows.next()? else {
            return Ok(None);
        };
        let text = |at: usize| {
            row.get::<_, Option<String>>(at)
                .map(Option::unwrap_or_default)
        };
        Ok(Some(Argument {
            event: row.get::<_, Option<i64>>(0)?.unwrap_or_default(),
            name: text(1)?,
            value: text(2)?,
            extdata: object(row.get::<_, Option<String>>(3)?.as_deref()),
        }))
    }

    /// Returns the arguments of an event. Events are asked for in order.
    fn of(&mut self, event: i64) -> rusqlite::Result<Vec<Argument>> {
        let mut all = Vec::new();
        if !self.is_begun {
            self.next = self.read()?;
        }
        while let Some(argument) = self.next.take_if(|argument| argument.event <= event) {
            if argument.event == event {
                all.push(argument);
            }
            self.next = self.read()?;
        }
        Ok(all)
    }
}

/// Makes records of rows.
struct Reader<'a, 's, 'r> {
    session: &'a mut Session<'s>,
    described: &'a Described,
    arguments: Arguments<'r>,
    /// Kinds by the names of categories.
    categories: HashMap<String, Option<u8>>,
    /// Operations by kind and name.
    operations: HashMap<(u8, String), u32>,
}

impl Reader<'_, '_, '_> {
    fn kind(&mut self, category: &str) -> Option<u8> {
        if let Some(known) = self.categories.get(category) {
            return *known;
        }
        let renamed = RENAMED.iter().find(|(before, _)| *before == category);
        let name = renamed.map_or(category, |(_, now)| now);
        let kind = self.session.names.kind_of(name);
        self.categories.insert(category.to_owned(), kind);
        kind
    }

    fn operation(&mut self, kind: u8, name: &str) -> u32 {
        let key = (kind, name.to_owned());
        if let Some(known) = self.operations.get(&key) {
            return *known;
        }
        let number = self.session.names.operation_of(kind, name).unwrap_or(0);
        self.operations.insert(key, number);
        number
    }

    fn thread(&self, row: &Row<'_>) -> rusqlite::Result<u32> {
        let id = number(row, 1)?;
        let known = self.described.threads.get(&id);
        Ok(known.copied().unwrap_or(id as u32))
    }

    fn node(&self, row: &Row<'_>, at: usize) -> rusqlite::Result<u32> {
        let Some(id) = row.get::<_, Option<i64>>(at)? else {
            return Ok(NO_NODE);
        };
        Ok(self.described.nodes.get(&id).copied().unwrap_or(id as u32))
    }

    fn call(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
        let category = text(row, 5)?;
        let extdata = object(row.get::<_, Option<String>>(9)?.as_deref());
        let of_event = object(row.get::<_, Option<String>>(8)?.as_deref());
        // A sample has its name in its facts, and the name of its track otherwise.
        let name = match extdata.get("name").and_then(Value::as_str) {
            Some(name) => name.to_owned(),
            None => text(row, 4)?,
        };
        if category == hip::BARRIERS {
            return self.barrier(row, &name, &of_event).map(Some);
        }
        let Some(kind) = self.kind(&category) else {
            self.session.leave(&category);
            return Ok(None);
        };
        if sets::MARKERS.contains(kind) || kind == kind::MARKER_CORE_API {
            return self.marker(row, kind, &name, &extdata, &of_event).map(Some);
        }
        if let Some(other) = self.other(row, kind, &name, &of_event)? {
            return Ok(Some(other));
        }
        let calls = [
            sets::HSA_CALLS,
            sets::HIP_CALLS,
            sets::LIBRARY_CALLS,
            sets::CUDA_CALLS,
            sets::TOLD,
        ];
        if !calls.iter().any(|set| set.contains(kind)) {
            self.session.leave(&category);
            return Ok(None);
        }
        let operation = self.operation(kind, &name);
        let (mut stream, mut words) = (0, Vec::new());
        let parameters = self.session.names.parameters(kind, operation);
        if !parameters.is_empty() {
            let all = self.arguments.of(number(row, 0)?)?;
            let streams = all.iter().find_map(|it| it.extdata.get("stream_id"));
            let id = streams.and_then(Value::as_i64).unwrap_or(0);
            stream = self.described.stream(id);
            let known = all.iter().zip(parameters);
            let known = known.take_while(|(it, parameter)| it.name == parameter.name);
            let texts = known.map(|(it, _)| it.value.as_str());
            let (read, unknown) = words_of(parameters, texts);
            words = read;
            if unknown > 0 {
                self.session.with_texts += 1;
            }
        }
        let returned = of_event.get("retval").or_else(|| of_event.get("result"));
        let record = Api {
            header: with_flags(header(kind, operation), &extdata),
            start: number(row, 2)? as u64,
            end: number(row, 3)? as u64,
            correlation: number(row, 6)? as u64,
            ancestor: number(row, 7)? as u64,
            stream,
            retval: returned.and_then(Value::as_u64).unwrap_or(0),
            tid: self.thread(row)?,
            nargs: 0,
        };
        let tail = cut::<Api>(&words);
        let tail = tail.get(..tail.len() / 8 * 8).unwrap_or_default();
        let record = Api {
            nargs: (tail.len() / 8) as u32,
            ..record
        };
        Ok(Some(event::encode(&record, tail)))
    }

    /// Returns where and when a row's work was. The id is in the given column.
    fn place(&self, row: &Row<'_>, correlation: usize) -> rusqlite::Result<Place> {
        Ok(Place {
            start: number(row, 2)? as u64,
            end: number(row, 3)? as u64,
            correlation: number(row, correlation)? as u64,
            tid: self.thread(row)?,
        })
    }

    /// Returns the record of a region that is no call, or none for a call.
    fn other(
        &mut self,
        row: &Row<'_>,
        kind: u8,
        name: &str,
        of_event: &Value,
    ) -> rusqlite::Result<Option<Vec<u8>>> {
        let is_driver = sets::DRIVER.contains(kind);
        if !is_driver && ![kind::SYNCHRONIZATION, kind::UNIFIED_MEMORY].contains(&kind) {
            return Ok(None);
        }
        let header = header(kind, self.operation(kind, name));
        let place = self.place(row, 6)?;
        Ok(match kind {
            _ if is_driver => Some(driver::event(header, &place, of_event)),
            kind::SYNCHRONIZATION => Some(cuda::wait(header, &place, of_event)),
            _ => {
                let node = |id| self.described.nodes.get(&id).copied();
                cuda::unified(header, &place, of_event, |id| node(id).unwrap_or(id as u32))
            }
        })
    }

    /// Returns the records of a HIP event's barrier and of its call.
    fn barrier(&mut self, row: &Row<'_>, name: &str, facts: &Value) -> rusqlite::Result<Vec<u8>> {
        let id = |key: &str| facts.get(key).and_then(Value::as_i64).unwrap_or(0);
        let node = self.described.nodes.get(&id("agent_id")).copied();
        let at = hip::Where {
            queue: id("queue_id") as u32,
            node: node.unwrap_or(id("agent_id") as u32),
            stream: self.described.stream(id("stream_id")),
        };
        let operation = self.operation(kind::HIP_EVENT, name);
        let place = self.place(row, 6)?;
        Ok(hip::event(&place, facts, operation, &at).concat())
    }

    /// Returns the same of a row of AMD's table of HIP events.
    fn hip_event(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
        let at = hip::Where {
            queue: number(row, 7)? as u32,
            node: self.node(row, 6)?,
            stream: self.described.stream(number(row, 8)?),
        };
        let operation = self.operation(kind::HIP_EVENT, &text(row, 5)?);
        let facts = json!({ "hip_event_handle": number(row, 9)? as u64 });
        let place = self.place(row, 4)?;
        Ok(Some(hip::event(&place, &facts, operation, &at).concat()))
    }

    fn launch(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
        let facts = object(row.get::<_, Option<String>>(5)?.as_deref());
        let place = self.place(row, 4)?;
        let of = (number(row, 6)? as u64, number(row, 7)? as u32);
        let stream = facts.get("stream_id").and_then(Value::as_i64);
        let stream = stream.map_or(0, |id| self.described.stream(id));
        Ok(Some(hip::launch(&place, &facts, of, stream)))
    }

    fn marker(
        &mut self,
        row: &Row<'_>,
        kind: u8,
        name: &str,
        extdata: &Value,
        of_event: &Value,
    ) -> rusqlite::Result<Vec<u8>> {
        let message = of_event.get("message").and_then(Value::as_str);
        let message = message.unwrap_or_default();
        let ranges = kind::MARKER_CORE_RANGE_API;
        let is_named_by_message = kind == ranges && !message.is_empty() && name == message;
        let function = of_event.get("function").and_then(Value::as_str);
        let operation = match (is_named_by_message, function) {
            (true, None) => THREAD_RANGE,
            (true, Some(function)) => self.operation(kind, function),
            (false, _) => self.operation(kind, name),
        };
        let tail = cut::<Marker>(message.as_bytes());
        let record = Marker {
            header: with_flags(header(kind, operation), extdata),
            start: number(row, 2)? as u64,
            end: number(row, 3)? as u64,
            correlation: number(row, 6)? as u64,
            ancestor: number(row, 7)? as u64,
            retval: 0,
            tid: self.thread(row)?,
            len: tail.len() as u32,
        };
        Ok(event::encode(&record, tail))
    }

    fn kernel(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
        let extdata = object(row.get::<_, Option<String>>(5)?.as_deref());
        let id = number(row, 7)?;
        let is_cuda = self.described.is_cuda;
        let (kernel_id, kernel_object) = match self.described.unknown.get(&id) {
            Some(address) if !is_cuda => (0, *address),
            _ => (id as u64, 0),
        };
        let word = |at: usize| number(row, at).map(|number| number as u32);
        let header = with_flags(header(kind::KERNEL_DISPATCH, 1), &extdata);
        let doorbell = extdata.get("doorbell_timestamp");
        let record = Kernel {
            header,
            start: number(row, 2)? as u64,
            end: number(row, 3)? as u64,
            correlation: number(row, 4)? as u64,
            rung: doorbell.and_then(Value::as_u64).unwrap_or(0),
            dispatch_id: number(row, 8)? as u64,
            kernel_id,
            kernel_object,
            packet_index: 0,
            stream: self.described.stream(number(row, 10)?),
            queue_id: word(9)?,
            node: self.node(row, 6)?,
            tid: self.thread(row)?,
            untimed: untimed(&extdata),
            private_segment: word(11)?,
            group_segment: word(12)?,
            workgroup: [word(13)?, word(14)?, word(15)?],
            grid: [word(16)?, word(17)?, word(18)?],
        };
        if is_cuda {
            let graph = (number(row, 19)?, number(row, 20)?);
            return Ok(Some(cuda::launch(&record, &extdata, graph)));
        }
        Ok(Some(event::encode(&record, &[])))
    }

    fn copy(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
        let extdata = object(row.get::<_, Option<String>>(5)?.as_deref());
        let is_set = self.described.is_cuda && self.kind(&text(row, 13)?) == Some(kind::MEMORY_SET);
        let of = if is_set {
            kind::MEMORY_SET
        } else {
            kind::MEMORY_COPY
        };
        // The kind of such a copy says more than a direction, and AMD has no number for it.
        let is_further = self.described.is_cuda && !is_set && cuda::is_further_copy(&extdata);
        let direction = match is_further {
            true => 0,
            false => self.operation(of, &text(row, 6)?),
        };
        let record = Copy {
            header: with_flags(header(kind::MEMORY_COPY, direction), &extdata),
            start: number(row, 2)? as u64,
            end: number(row, 3)? as u64,
            correlation: number(row, 4)? as u64,
            bytes: number(row, 11)? as u64,
            dst: number(row, 8)? as u64,
            src: number(row, 10)? as u64,
            stream: self.described.stream(number(row, 12)?),
            dst_node: self.node(row, 7)?,
            src_node: self.node(row, 9)?,
            tid: self.thread(row)?,
            untimed: untimed(&extdata),
        };
        if self.described.is_cuda {
            let graph = (number(row, 14)?, number(row, 15)?);
            return Ok(Some(match is_set {
                true => cuda::set(&record, direction, &extdata, graph),
                false => cuda::transfer(&record, &extdata, graph),
            }));
        }
        Ok(Some(event::encode(&record, &[])))
    }

    fn allocation(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
        let extdata = object(row.get::<_, Option<String>>(5)?.as_deref());
        let (of, level) = (text(row, 8)?, text(row, 9)?);
        let (start, end) = (number(row, 2)? as u64, number(row, 3)? as u64);
        let (correlation, ancestor) = (number(row, 4)? as u64, number(row, 6)? as u64);
        let bytes = number(row, 11)? as u64;
        let (node, tid) = (self.node(row, 7)?, self.thread(row)?);
        if level == "SCRATCH" {
            let operation = match of.as_str() {
                "ALLOC" => 1,
                "FREE" => 2,
                "RECLAIM" => 3,
                _ => 0,
            };
            let flags = extdata.get("flags").and_then(Value::as_u64);
            let record = Scratch {
                header: header(kind::SCRATCH_MEMORY, operation),
                start,
                end,
                correlation,
                ancestor,
                bytes,
                queue_id: number(row, 12)? as u32,
                node,
                tid,
                flags: flags.unwrap_or(0) as u32,
            };
            return Ok(Some(event::encode(&record, &[])));
        }
        let operation = match (of.as_str(), level.as_str()) {
            ("ALLOC", "REAL") => 1,
            ("ALLOC", "VIRTUAL") => 2,
            ("FREE", "REAL") => 3,
            ("FREE", "VIRTUAL") => 4,
            _ => 0,
        };
        let record = Allocation {
            header: with_flags(header(kind::MEMORY_ALLOCATION, operation), &extdata),
            start,
            end,
            correlation,
            ancestor,
            address: number(row, 10)? as u64,
            bytes,
            stream: self.described.stream(number(row, 13)?),
            node,
            tid,
        };
        Ok(Some(event::encode(&record, &[])))
    }
}

/// Returns a number of a row; NULL is 0.
fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<i64> {
    row.get::<_, Option<i64>>(at).map(Option::unwrap_or_default)
}

/// Returns a text of a row; NULL is empty.
fn text(row: &Row<'_>, at: usize) -> rusqlite::Result<String> {
    row.get::<_, Option<String>>(at)
        .map(Option::unwrap_or_default)
}
