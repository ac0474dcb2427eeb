//! Allocations and scratch memory, compared with what the program itself says it did and with what
//! the GPU asked for by its log.

use crate::profiler::{Profiler, Trace, since};
use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::snapshot::memory;
use midair_tests::table::{Csv, json};
use midair_tests::target::PATIENCE;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The program `memory`, at work.
struct Memory {
    target: LabTarget,
    /// Address and size in bytes of the runtime's tables: the root table and all that it names.
    tables: (u64, usize),
}

impl Memory {
    fn start(lab: &Lab) -> Result<Memory> {
        let (program, kernels) = (lab.program("memory")?, lab.kernels()?);
        let mut target = lab.run(&program).arg(&kernels).register(false).spawn()?;
        target.expect("ready")?;
        target.send("tables")?;
        let line = target.expect("table")?;
        target.expect("tables")?;
        let words: Vec<&str> = line.split(' ').collect();
        let [_, "hsa", address, bytes] = words[..] else {
            return Err(line.into());
        };
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
        Ok(Memory {
            target,
            tables: (address, bytes.parse()?),
        })
    }

    fn pid(&self) -> i32 {
        self.target.pid()
    }

    /// Sends a command and returns what the program said before its answer.
    fn tell(&mut self, command: &str) -> Result<Vec<String>> {
        let answer = command.split(' ').next().unwrap_or_default();
        self.target.send(command)?;
        let mut lines = Vec::new();
        loop {
            match self.target.expect("")? {
                line if line == answer => return Ok(lines),
                line => lines.push(line),
            }
        }
    }

    /// Returns the current bytes of all tables.
    fn tables(&self) -> Result<Vec<u8>> {
        memory(self.pid(), self.tables.0, self.tables.1)
    }

    fn quit(mut self) -> Result<()> {
        self.target.send("quit")?;
        self.target.target.wait(PATIENCE)?.success()?;
        Ok(())
    }
}

/// An allocation or a release, as the program or a trace tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Did {
    operation: u64,
    address: u64,
    bytes: u64,
    /// The node, or -1 for a release.
    node: i64,
}

fn hexadecimal(text: &str) -> Result<u64> {
    Ok(u64::from_str_radix(text.trim_start_matches("0x"), 16)?)
}

/// Parses lines of the form "did OPERATION ADDRESS BYTES NODE".
fn said(lines: &[String]) -> Result<Vec<Did>> {
    let did = |line: &String| -> Result<Did> {
        let words: Vec<&str> = line.split(' ').collect();
        let ["did", operation, address, bytes, node] = words[..] else {
            return Err(line.clone().into());
        };
        Ok(Did {
            operation: operation.parse()?,
            address: hexadecimal(address)?,
            bytes: bytes.parse()?,
            node: node.parse()?,
        })
    };
    lines.iter().map(did).collect()
}

/// A record in the json of a trace.
struct AllocationRecord {
    record: Value,
    /// The node of its agent, or -1 without one.
    node: i64,
}

impl AllocationRecord {
    fn number(&self, path: &str) -> u64 {
        self.record
            .pointer(path)
            .and_then(Value::as_u64)
            .unwrap_or(u64::MAX)
    }
    fn did(&self) -> Result<Did> {
        let address = self.record["address"].as_str().ok_or("no address")?;
        Ok(Did {
            operation: self.number("/operation"),
            address: hexadecimal(address)?,
            bytes: self.number("/allocation_size"),
            node: self.node,
        })
    }
    fn times(&self) -> (u64, u64) {
        (
            self.number("/start_timestamp"),
            self.number("/end_timestamp"),
        )
    }
}

/// Returns the records of a kind, ordered by their start.
fn told(trace: &Trace, kind: &str) -> Result<Vec<AllocationRecord>> {
    let whole = json(&trace.dir.join("t_results.json"))?;
    let tool = &whole["rocprofiler-sdk-tool"][0];
    let agents = tool["agents"].as_array().ok_or("no agents")?;
    let node = |id: &Value| {
        let agent = agents.iter().find(|agent| agent["id"]["handle"] == *id);
        agent
            .and_then(|agent| agent["node_id"].as_i64())
            .unwrap_or(-1)
    };
    let records = tool["buffer_records"][kind]
        .as_array()
        .ok_or("no such kind")?;
    let told = |record: &Value| AllocationRecord {
        record: record.clone(),
        node: node(&record["agent_id"]["handle"]),
    };
    let mut told: Vec<AllocationRecord> = records.iter().map(told).collect();
    told.sort_by_key(|told| told.times());
    Ok(told)
}

fn allocations(trace: &Trace) -> Result<Vec<Did>> {
    told(trace, "memory_allocation")?
        .iter()
        .map(AllocationRecord::did)
        .collect()
}

/// Checks that the csv says the same as the json.
fn csv_agrees(dir: &Path, json: &[AllocationRecord]) -> Result<()> {
    const NAMES: [&str; 4] = ["ALLOCATE", "VMEM_ALLOCATE", "FREE", "VMEM_FREE"];
    let mut rows = Csv::read(&dir.join("t_memory_allocation_trace.csv"))?.rows;
    rows.sort_by_key(|row| Csv::number(row, "Start_Timestamp").unwrap_or(0));
    assert_eq!(rows.len(), json.len());
    for (row, told) in rows.iter().zip(json) {
        let did = told.did()?;
        let name = NAMES[usize::try_from(did.operation)? - 1];
        assert_eq!(row["Operation"], format!("MEMORY_ALLOCATION_{name}"));
        assert_eq!(hexadecimal(&row["Address"])?, did.address);
        assert_eq!(Csv::number(row, "Allocation_Size")?, did.bytes);
        let agent = if did.node < 0 {
            String::new()
        } else {
            format!("Agent {}", did.node)
        };
        assert_eq!(row["Agent_Id"], agent);
        assert_eq!(
            Csv::number(row, "Correlation_Id")?,
            told.number("/correlation_id/internal")
        );
    }
    Ok(())
}

#[test]
fn allocations_are_those_that_the_program_made() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = Memory::start(&lab)?;
    let native = program.tables()?;
    let sets: [&[&str]; 3] = [
        &["--memory-allocation-trace"],
        &["--memory-allocation-trace", "--hsa-trace"],
        &["--sys-trace"],
    ];
    for (n, options) in sets.into_iter().enumerate() {
        program.tell("go 2")?;
        let dir = lab.scratch().join(format!("allocations{n}"));
        let profiler = Profiler::attach(program.pid(), &dir, options)?;
        assert_ne!(program.tables()?, native);
        let mut did = said(&program.tell("go 5")?)?;
        did.extend(said(&program.tell("thread 9")?)?);
        let trace = profiler.detach()?;
        assert!(program.tables()? == native, "an entry is not what it was");
        program.tell("go 1")?;
        trace.whole()?;
        assert_eq!(allocations(&trace)?, did, "{options:?}");

        let told = told(&trace, "memory_allocation")?;
        csv_agrees(&dir, &told)?;
        let threads: BTreeSet<u64> = told.iter().map(|told| told.number("/thread_id")).collect();
        assert!(threads.len() == 2 && threads.contains(&u64::try_from(program.pid())?));
        let id = |told: &AllocationRecord| told.number("/correlation_id/internal");
        let ids: BTreeSet<u64> = told.iter().map(id).collect();
        assert_eq!(ids.len(), told.len(), "a correlation id is there twice");
        for told in &told {
            let (start, end) = told.times();
            assert!(start < end);
            // A record has the same correlation id as the call, where that is traced.
            match (n, trace.hsa.get(&id(told))) {
                (0, None) => {}
                (1 | 2, Some(call)) => {
                    let name = [
                        "pool_allocate",
                        "vmem_handle_create",
                        "_free",
                        "vmem_handle_release",
                    ];
                    let operation = usize::try_from(told.number("/operation"))?;
                    assert!(
                        call.name.contains(name[operation - 1])
                            || call.name == "hsa_memory_allocate",
                        "{} of operation {operation}",
                        call.name
                    );
                    assert!(
                        start <= call.start
                            && call.end <= end
                            && call.tid == told.number("/thread_id")
                    );
                }
                (_, call) => panic!("{} is {call:?}", told.record),
            }
        }
    }
    // What is not asked for has no record.
    let dir = lab.scratch().join("nothing");
    let profiler = Profiler::attach(program.pid(), &dir, &["--kernel-trace", "--hsa-trace"])?;
    program.tell("go 3")?;
    program.tell("scratch 4096 64")?;
    let trace = profiler.detach()?;
    assert!(
        trace
            .hsa
            .values()
            .any(|call| call.name == "hsa_amd_memory_pool_allocate")
    );
    assert_eq!(allocations(&trace)?, []);
    assert!(told(&trace, "scratch_memory")?.is_empty());
    assert!(!dir.join("t_memory_allocation_trace.csv").exists());
    assert!(!dir.join("t_scratch_memory_trace.csv").exists());
    assert!(program.tables()? == native);
    program.quit()
}

/// A change of scratch memory, as the GPU asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ScratchRequest {
    time: u64,
    queue: u32,
    code: u64,
    need: u32,
}

fn asked(log: &ModelLog) -> Vec<ScratchRequest> {
    let stop = |record: &midair_tests::modellog::Record| match record.event {
        Event::Stop { code, need, .. } => Some(ScratchRequest {
            time: record.time,
            queue: record.queue,
            code,
            need,
        }),
        _ => None,
    };
    log.records.iter().filter_map(stop).collect()
}

const ALLOC: u64 = 1;
const FREE: u64 = 2;
const USE_ONCE: u64 = 1;

/// Launches the dispatches of `scratch_of`, which differ in what the queue must ask for and in what
/// the runtime then does.
fn scratch_of(program: &mut Memory) -> Result<()> {
    program.tell("scratch 64 64")?;
    program.tell("scratch 32 4096")?; // the queue has enough
    program.tell("scratch 256 64")?; // it needs more, so the old memory is released
    program.tell("scratch 100000 1024")?; // so much that the memory is for this dispatch only
    program.tell("scratch 64 128")?; // the queue has none again, since that was taken back
    program.tell("queue")?;
    program.tell("scratch 16 64")?;
    program.tell("queue")?; // its memory goes with the queue
    Ok(())
}

#[test]
fn scratch_memory_is_what_the_gpu_asked_for() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = Memory::start(&lab)?;
    let native = program.tables()?;
    // A queue already has scratch memory from before the attach.
    program.tell("scratch 128 64")?;
    program.tell("queue")?;
    let sets: [&[&str]; 3] = [
        &["--scratch-memory-trace"],
        &["--scratch-memory-trace", "--memory-allocation-trace"],
        &["--sys-trace"],
    ];
    for (n, options) in sets.into_iter().enumerate() {
        let before = program.target.model_log()?;
        let dir = lab.scratch().join(format!("scratch{n}"));
        let profiler = Profiler::attach(program.pid(), &dir, options)?;
        assert_ne!(program.tables()?, native);
        scratch_of(&mut program)?;
        let log = since(&program.target.model_log()?, &before);
        let trace = profiler.detach()?;
        assert!(program.tables()? == native, "an entry is not what it was");
        trace.whole()?;
        log.check().or_else(|error| {
            // The log of a queue from before the attach starts in the middle.
            if error.to_string().starts_with("expected index 0") {
                Ok(())
            } else {
                Err(error)
            }
        })?;

        let asked = asked(&log);
        let needs: Vec<(u64, u32)> = asked.iter().map(|asked| (asked.code, asked.need)).collect();
        assert_eq!(
            needs,
            [
                (1, 64),
                (1, 256),
                (1, 100_000),
                (512, 100_000),
                (1, 64),
                (1, 16)
            ]
        );
        let told = told(&trace, "scratch_memory")?;
        let of = |operation: u64| {
            told.iter()
                .filter(move |told| told.number("/operation") == operation)
        };
        // There is one allocation for each dispatch that was blocked.
        let held: Vec<&ScratchRequest> = asked.iter().filter(|asked| asked.code == 1).collect();
        let allocated: Vec<&AllocationRecord> = of(ALLOC).collect();
        assert_eq!(allocated.len(), held.len(), "{options:?}");
        for (told, asked) in allocated.iter().zip(&held) {
            let ran = log
                .dispatches()
                .find(|ran| ran.private_size == asked.need && ran.packet.start > asked.time);
            let ran = ran.ok_or("no dispatch after that")?;
            let (start, end) = told.times();
            // The runtime lets the queue go on first, and then reports the end of the allocation.
            assert!(
                asked.time < start && start < end && start < ran.packet.start,
                "{asked:?}: allocated from {start} to {end}, ran from {}",
                ran.packet.start
            );
            assert!(told.number("/allocation_size") >= u64::from(asked.need) * 64);
            let once = u64::from(asked.need == 100_000) * USE_ONCE;
            assert_eq!((told.number("/flags"), told.node), (once, 1));
        }
        // A queue's scratch memory is released when the queue needs more, when the memory was for
        // one dispatch only, and when the queue is destroyed.
        let freed: Vec<u64> = of(FREE).map(|told| told.number("/flags")).collect();
        assert_eq!(freed, [0, 0, USE_ONCE, 0, 0], "{options:?}");
        assert!(of(FREE).all(|told| told.number("/allocation_size") == 0 && told.node == 1));
        assert_eq!(told.len(), allocated.len() + freed.len());
        // There are two queues of the GPU, by our numbers and by its own.
        let pairs: BTreeMap<u64, u32> = allocated
            .iter()
            .zip(&held)
            .map(|(told, asked)| (told.number("/queue_id/handle"), asked.queue))
            .collect();
        assert_eq!(pairs.len(), 2);
        assert_eq!(pairs.values().collect::<BTreeSet<_>>().len(), 2);
        let queues: BTreeSet<u64> = trace.kernels.iter().map(|kernel| kernel.queue).collect();
        if n == 2 {
            assert_eq!(
                queues,
                pairs.keys().copied().collect(),
                "the kernels' queues have other numbers"
            );
        }
        let rows = Csv::read(&dir.join("t_scratch_memory_trace.csv"))?.rows;
        assert_eq!(rows.len(), told.len());
        assert!(rows.iter().all(|row| row["Agent_Id"] == "Agent 1"));
        program.tell("scratch 128 64")?;
        program.tell("queue")?;
    }
    program.quit()
}

#[test]
fn twenty_sessions_on_memory() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut program = Memory::start(&lab)?;
    let native = program.tables()?;
    for n in 0..20 {
        let before = program.target.model_log()?;
        let dir = lab.scratch().join(format!("cycle{n}"));
        let options = ["--memory-allocation-trace", "--scratch-memory-trace"];
        let profiler = Profiler::attach(program.pid(), &dir, &options)?;
        let did = said(&program.tell("go 1")?)?;
        program.tell("scratch 512 64")?;
        program.tell("queue")?;
        let stops = asked(&since(&program.target.model_log()?, &before)).len();
        let trace = profiler.detach()?;
        assert!(
            program.tables()? == native,
            "cycle {n}: an entry is not what it was"
        );
        trace.whole()?;
        assert_eq!(allocations(&trace)?, did, "cycle {n}");
        // There is one allocation for each stop, and one release with the queue.
        assert_eq!(
            (stops, told(&trace, "scratch_memory")?.len()),
            (1, 2),
            "cycle {n}"
        );
        program.tell("go 1")?;
    }
    program.quit()
}

/// A launched program has its allocations recorded from the first on, though the runtime makes some
/// before its agents are known.
#[test]
fn a_started_program_has_all_of_its_allocations_recorded() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (program, kernels) = (lab.program("memory")?, lab.kernels()?);
    let dir = lab.scratch().join("started");
    std::fs::create_dir(&dir)?;
    let (stage, inside) = (lab.stage()?, lab.inside(&dir)?);
    let rocprofv3 = format!("{stage}/bin/rocprofv3");
    let options = ["--memory-allocation-trace", "--scratch-memory-trace"];
    let place = ["-f", "csv", "-d", &inside, "-o", "t", "--"];
    let words = [&[rocprofv3.as_str()], options.as_slice(), &place].concat();
    let command = lab.run(&program).arg(&kernels).register(false);
    let mut target = command.under(&words).spawn()?;
    target.expect("ready")?;
    let mut program = Memory {
        target,
        tables: (0, 0),
    };
    // The program has put its own functions for virtual memory over ours.
    let did: Vec<Did> = said(&program.tell("go 3")?)?
        .into_iter()
        .filter(|did| did.operation % 2 == 1)
        .collect();
    program.tell("scratch 64 64")?;
    program.quit()?;
    let rows = Csv::read(&dir.join("t_memory_allocation_trace.csv"))?.rows;
    let mut told = Vec::new();
    for row in &rows {
        let operation = match row["Operation"].as_str() {
            "MEMORY_ALLOCATION_ALLOCATE" => 1,
            "MEMORY_ALLOCATION_FREE" => 3,
            other => return Err(other.into()),
        };
        let node = row["Agent_Id"].strip_prefix("Agent ");
        let did = Did {
            operation,
            address: hexadecimal(&row["Address"])?,
            bytes: Csv::number(row, "Allocation_Size")?,
            node: node.map_or(Ok(-1), str::parse)?,
        };
        assert_eq!(operation == 1, did.node >= 0, "{row:?}");
        told.push((Csv::number(row, "Start_Timestamp")?, did));
    }
    told.sort_unstable();
    let told: Vec<Did> = told.into_iter().map(|(_, did)| did).collect();
    // The first record, before those, is the memory for kernel arguments.
    let [first, rest @ ..] = &told[..] else {
        return Err("nothing was told".into());
    };
    assert_eq!((first.operation, first.bytes, first.node), (1, 4096, 0));
    assert_eq!(rest, did);
    // One is for the dispatch, the other for the end of its queue.
    let mut rows = Csv::read(&dir.join("t_scratch_memory_trace.csv"))?.rows;
    rows.sort_by_key(|row| Csv::number(row, "Start_Timestamp").unwrap_or(0));
    let operations: Vec<&str> = rows.iter().map(|row| row["Operation"].as_str()).collect();
    assert_eq!(operations, ["SCRATCH_MEMORY_ALLOC", "SCRATCH_MEMORY_FREE"]);
    Ok(())
}
