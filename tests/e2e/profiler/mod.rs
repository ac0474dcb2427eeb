//! One run of `rocprofv3 --pid`, and the trace that it wrote.

pub mod compare;

use midair_tests::lab::LabTarget;
use midair_tests::modellog::ModelLog;
use midair_tests::stage::command;
use midair_tests::table::{Csv, json};
use midair_tests::target::{Exit, PATIENCE, Target, until};
use midair_tests::{Result, snapshot};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Options for kernels, copies and HIP calls, which most sessions here ask for.
pub const USUAL: [&str; 3] = ["--kernel-trace", "--memory-copy-trace", "--hip-trace"];

/// An attached profiler.
pub struct Profiler {
    pub process: Target,
    dir: PathBuf,
}

impl Profiler {
    /// Attaches to `pid`; csv and json go to `dir`, which must be new. Returns once calls and
    /// kernels are being recorded.
    pub fn attach(pid: i32, dir: &Path, options: &[&str]) -> Result<Profiler> {
        let mut command = command("rocprofv3")?;
        command.args(["--pid", &pid.to_string(), "--output-format", "csv", "json"]);
        command.arg("-d").arg(dir).args(["-o", "t"]).args(options);
        let mut process = Target::spawn(command)?;
        process.expect("Press Enter to detach")?;
        Ok(Profiler {
            process,
            dir: dir.to_path_buf(),
        })
    }

    /// Detaches by Enter and reads the trace.
    pub fn detach(mut self) -> Result<Trace> {
        self.process.send("")?;
        self.collect()
    }

    /// Waits for the profiler's end, which something else has brought about, and reads the trace.
    /// Its standard input stays open meanwhile, because closing it would end the profiler, too.
    pub fn collect(mut self) -> Result<Trace> {
        until("the profiler's end", || Ok(!self.process.is_running()?))?;
        let exit = self.process.wait(PATIENCE)?;
        Trace::read(&self.dir, exit)
    }
}

/// A kernel dispatch of a trace, with its fields in json and csv.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub name: String,
    pub id: u64,
    pub correlation: u64,
    pub tid: u64,
    pub queue: u64,
    pub stream: u64,
    pub vgpr: u64,
    pub accum_vgpr: u64,
    pub sgpr: u64,
    pub work: Work,
}

/// What both the model's log and the trace say of a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work {
    pub start: u64,
    pub end: u64,
    pub grid: [u64; 3],
    pub workgroup: [u64; 3],
    pub private: u64,
    pub group: u64,
    pub kernel_object: u64,
}

impl Work {
    /// Returns the fields of a dispatch in the model's log.
    pub fn logged(dispatch: &midair_tests::modellog::Dispatch) -> Work {
        Work {
            start: dispatch.packet.start,
            end: dispatch.packet.end,
            grid: dispatch.grid.map(u64::from),
            workgroup: dispatch.workgroup.map(u64::from),
            private: dispatch.private_size.into(),
            group: dispatch.group_size.into(),
            kernel_object: dispatch.kernel_object,
        }
    }
}

/// A copy of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    pub direction: String,
    pub bytes: u64,
    pub start: u64,
    pub end: u64,
    pub correlation: u64,
    pub stream: u64,
}

/// An API call of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    pub tid: u64,
    pub start: u64,
    pub end: u64,
    pub stream: u64,
}

/// The results of a session.
pub struct Trace {
    pub exit: Exit,
    pub kernels: Vec<Kernel>,
    pub copies: Vec<Copy>,
    /// HIP calls by correlation id.
    pub hip: BTreeMap<u64, Call>,
    pub hsa: BTreeMap<u64, Call>,
    /// `metadata.midair` of the json.
    pub midair: Value,
    pub dir: PathBuf,
}

fn number(value: &Value, path: &str) -> Result<u64> {
    value
        .pointer(path)
        .and_then(Value::as_u64)
        .ok_or_else(|| format!("no number {path} in {value}").into())
}

fn extents(value: &Value, path: &str) -> Result<[u64; 3]> {
    let part = |axis: &str| number(value, &format!("{path}/{axis}"));
    Ok([part("x")?, part("y")?, part("z")?])
}

fn list<'a>(value: &'a Value, path: &str) -> Result<&'a Vec<Value>> {
    value
        .pointer(path)
        .and_then(Value::as_array)
        .ok_or_else(|| format!("no list {path}").into())
}

impl Trace {
    pub fn read(dir: &Path, exit: Exit) -> Result<Trace> {
        let file = dir.join("t_results.json");
        let whole = json(&file).map_err(|error| format!("{error}\n{exit}"))?;
        let tool = whole
            .pointer("/rocprofiler-sdk-tool/0")
            .ok_or("no rocprofiler-sdk-tool")?;
        let name = |kind: &str, record: &Value| -> Result<String> {
            let (number, operation) = (number(record, "/kind")?, number(record, "/operation")?);
            let path = format!("/strings/buffer_records/{number}/operations/{operation}");
            let text = tool.pointer(&path).and_then(Value::as_str);
            Ok(text.ok_or_else(|| format!("{kind}: no {path}"))?.to_owned())
        };
        let calls = |path: &str| -> Result<BTreeMap<u64, Call>> {
            let mut calls = BTreeMap::new();
            for record in list(tool, path)? {
                let call = Call {
                    name: name(path, record)?,
                    tid: number(record, "/thread_id")?,
                    start: number(record, "/start_timestamp")?,
                    end: number(record, "/end_timestamp")?,
                    stream: number(record, "/stream_id/handle").unwrap_or(0),
                };
                let id = number(record, "/correlation_id/internal")?;
                if calls.insert(id, call).is_some() {
                    return Err(format!("two calls have the correlation id {id}").into());
                }
            }
            Ok(calls)
        };
        let mut copies = Vec::new();
        for record in list(tool, "/buffer_records/memory_copy")? {
            copies.push(Copy {
                direction: name("copies", record)?,
                bytes: number(record, "/bytes")?,
                start: number(record, "/start_timestamp")?,
                end: number(record, "/end_timestamp")?,
                correlation: number(record, "/correlation_id/internal")?,
                stream: number(record, "/stream_id/handle")?,
            });
        }
        Ok(Trace {
            kernels: kernels(tool, &dir.join("t_kernel_trace.csv"))?,
            copies,
            hip: calls("/buffer_records/hip_api")?,
            hsa: calls("/buffer_records/hsa_api")?,
            midair: tool
                .pointer("/metadata/midair")
                .ok_or("no metadata.midair")?
                .clone(),
            dir: dir.to_path_buf(),
            exit,
        })
    }

    /// Checks that the trace is whole: exit code 0, nothing lost, nothing untimed and no note. A
    /// note also tells of a queue whose accounts do not balance.
    pub fn whole(&self) -> Result<()> {
        self.whole_but(0)
    }

    /// Checks as [`Trace::whole`] does, for a program that launched while the profiler attached. On
    /// each of HIP's four queues, the packet processor may already have a packet when our signal is
    /// put into it.
    pub fn whole_of_running(&self) -> Result<()> {
        self.whole_but(4)
    }

    fn whole_but(&self, taken_first: u64) -> Result<()> {
        let fail = |what: String| -> Result<()> {
            Err(format!("not whole: {what}\n{}", self.exit).into())
        };
        for key in ["lost", "notes", "malformed_bytes"] {
            let value = &self.midair[key];
            let empty = value.as_object().is_some_and(serde_json::Map::is_empty)
                || value.as_array().is_some_and(Vec::is_empty)
                || value.as_u64() == Some(0);
            if !empty {
                return fail(format!("{key}: {value}"));
            }
        }
        for (reason, count) in self.midair["untimed"].as_object().into_iter().flatten() {
            let allowed = reason == "the packet processor took it before midair set its signal"
                && count.as_u64().is_some_and(|count| count <= taken_first);
            if !allowed {
                return fail(format!("{count} without times: {reason}"));
            }
        }
        if self.exit.status.code() != Some(0) || self.midair["outcome"] != "complete" {
            return fail(self.midair["outcome"].to_string());
        }
        Ok(())
    }

    /// Returns the notes of the trace, one a line.
    pub fn notes(&self) -> String {
        let notes = self.midair["notes"].as_array();
        let lines = notes.into_iter().flatten().filter_map(Value::as_str);
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn kernels(tool: &Value, csv: &Path) -> Result<Vec<Kernel>> {
    let records = list(tool, "/buffer_records/kernel_dispatch")?;
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = BTreeMap::new();
    for row in Csv::read(csv)?.rows {
        let id = Csv::number(&row, "Dispatch_Id")?;
        if rows.insert(id, row).is_some() {
            return Err(format!("two rows have the dispatch id {id}").into());
        }
    }
    if rows.len() != records.len() {
        return Err(format!("{} kernels in csv, {} in json", rows.len(), records.len()).into());
    }
    let mut objects = BTreeMap::new();
    for symbol in list(tool, "/kernel_symbols")? {
        let object = symbol.pointer("/kernel_object").and_then(Value::as_u64);
        objects.insert(number(symbol, "/kernel_id")?, object.unwrap_or(0));
    }
    let mut kernels = Vec::new();
    for record in records {
        let id = number(record, "/dispatch_info/dispatch_id")?;
        let row = rows
            .get(&id)
            .ok_or_else(|| format!("dispatch {id} is not in the csv"))?;
        let column = |name: &str| Csv::number(row, name);
        let axes = |name: &str| -> Result<[u64; 3]> {
            let axis = |axis: &str| column(&format!("{name}_{axis}"));
            Ok([axis("X")?, axis("Y")?, axis("Z")?])
        };
        let kernel_id = number(record, "/dispatch_info/kernel_id")?;
        let work = Work {
            start: number(record, "/start_timestamp")?,
            end: number(record, "/end_timestamp")?,
            grid: extents(record, "/dispatch_info/grid_size")?,
            workgroup: extents(record, "/dispatch_info/workgroup_size")?,
            private: number(record, "/dispatch_info/private_segment_size")?,
            group: number(record, "/dispatch_info/group_segment_size")?,
            kernel_object: objects.get(&kernel_id).copied().unwrap_or(0),
        };
        let same = [
            column("Start_Timestamp")? == work.start,
            column("End_Timestamp")? == work.end,
            axes("Grid_Size")? == work.grid,
            axes("Workgroup_Size")? == work.workgroup,
            column("Kernel_Id")? == kernel_id,
        ];
        if same.contains(&false) {
            return Err(format!("csv and json differ: {row:?}, {record}").into());
        }
        kernels.push(Kernel {
            name: row["Kernel_Name"].clone(),
            id,
            correlation: column("Correlation_Id")?,
            tid: column("Thread_Id")?,
            queue: column("Queue_Id")?,
            stream: column("Stream_Id")?,
            vgpr: column("VGPR_Count")?,
            accum_vgpr: column("Accum_VGPR_Count")?,
            sgpr: column("SGPR_Count")?,
            work,
        });
    }
    Ok(kernels)
}

/// Counts the dispatches in a growing log and reads each byte only once. Parsing the whole log
/// again and again would slow everything down.
pub struct Counter {
    log: PathBuf,
    read: u64,
    count: usize,
}

impl Counter {
    /// Makes a counter for the log of a target.
    pub fn of(target: &LabTarget) -> Counter {
        Counter {
            log: target.log.clone(),
            read: 0,
            count: 0,
        }
    }

    /// Returns how many dispatches the log has now.
    pub fn now(&mut self) -> Result<usize> {
        let mut file = std::fs::File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut fresh = Vec::new();
        file.read_to_end(&mut fresh)?;
        let whole = fresh
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        self.read += whole as u64;
        let text = std::str::from_utf8(&fresh[..whole])?;
        self.count += text
            .lines()
            .filter(|line| line.contains(" ev=dispatch "))
            .count();
        Ok(self.count)
    }

    /// Waits until there are `count` more dispatches than now.
    pub fn wait_for(&mut self, count: usize) -> Result<()> {
        let total = self.now()? + count;
        self.wait_until(total)
    }

    /// Waits until there are `total` dispatches.
    pub fn wait_until(&mut self, total: usize) -> Result<()> {
        until("more dispatches", || Ok(self.now()? >= total))
    }
}

/// Returns what the log has gained since an earlier look at it.
pub fn since(log: &ModelLog, before: &ModelLog) -> ModelLog {
    ModelLog {
        records: log.records[before.records.len()..].to_vec(),
    }
}

/// The places of the target's API tables, which the target itself tells ("tables").
pub struct Tables(Vec<(String, u64, usize)>);

impl Tables {
    /// Asks a program with the command "tables".
    pub fn of(target: &mut Target) -> Result<Tables> {
        target.send("tables")?;
        let mut tables = Vec::new();
        loop {
            let line = target.expect("table")?;
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["table", name, address, bytes] => {
                    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
                    tables.push((name.to_owned(), address, bytes.parse()?));
                }
                _ => break,
            }
        }
        if tables.len() != 4 {
            return Err(format!("{} tables, not 4", tables.len()).into());
        }
        Ok(Tables(tables))
    }

    /// Reads the tables as they are now. Returns their words by the name of the table.
    pub fn read(&self, pid: i32) -> Result<BTreeMap<String, Vec<u64>>> {
        let mut read = BTreeMap::new();
        for (name, address, bytes) in &self.0 {
            let memory = snapshot::memory(pid, *address, *bytes)?;
            let words = memory.as_chunks::<8>().0;
            let words = words.iter().map(|word| u64::from_le_bytes(*word));
            read.insert(name.clone(), words.collect());
        }
        Ok(read)
    }
}

/// Returns how many words differ, by table.
pub fn changed(
    before: &BTreeMap<String, Vec<u64>>,
    now: &BTreeMap<String, Vec<u64>>,
) -> BTreeMap<String, usize> {
    let differ = |name: &String, words: &Vec<u64>| {
        let old = &before[name];
        assert_eq!(old.len(), words.len(), "{name} has another size");
        old.iter().zip(words).filter(|(a, b)| a != b).count()
    };
    let counts = now
        .iter()
        .map(|(name, words)| (name.clone(), differ(name, words)));
    counts.filter(|(_, count)| *count > 0).collect()
}
