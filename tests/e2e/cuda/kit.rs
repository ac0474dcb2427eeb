//! One run of a command line on a CUDA process, what it wrote, and the log of the devices for
//! comparison.

use midair_sim_cuda::Toolkit;
use midair_tests::Result;
use midair_tests::cuda::{CudaLog, CudaTarget, Kit, Line};
use midair_tests::snapshot::{Change, What};
use midair_tests::stage::command;
use midair_tests::table::{Csv, json};
use midair_tests::target::{Exit, PATIENCE, Target, until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The newest version that is modelled.
pub const NEWEST: Toolkit = Toolkit::Major(13);
/// The options for everything that can be recorded.
pub const EVERYTHING: [&str; 5] = [
    "--kernel-trace",
    "--memory-copy-trace",
    "--cuda-trace",
    "--marker-trace",
    "--memory-allocation-trace",
];
/// The times of a record and of the log differ by less than this. Both come from one clock,
/// read at different moments. (Durations also differ by the drift of the wall clock, by which
/// CUPTI's times go.)
const NEAR: u64 = 200_000;
/// What a worker of the program does in a round: kernels, copies, fills.
pub const ROUND: (usize, usize, usize) = (4, 2, 1);

/// A row of a csv file.
pub type Row = BTreeMap<String, String>;

/// Returns whether a change is one that stays in a process after a session: the worker thread, our
/// library, the library that it needs, the CUPTI that we loaded, a page of code of the engine and
/// one of the watch over CUPTI.
pub fn stays(change: &Change) -> bool {
    let words = ["midair", "libcupti", "libgcc_s"];
    let is_page = change.what == What::Map && {
        let mut words = change.text.split(' ');
        let range = words.next().and_then(|range| range.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).unwrap_or(0);
        let size = range.map_or(0, |(start, end)| number(end) - number(start));
        change.name.is_empty() && words.next() == Some("r-xp") && size == 4096
    };
    change.new && (is_page || words.iter().any(|word| change.text.contains(word)))
}

/// Starts a program on the stand-in and waits until it is ready.
pub fn start(kit: &Kit, toolkit: Toolkit, variables: &[(&str, &str)]) -> Result<CudaTarget> {
    let mut target = kit.start("cuda_work", toolkit, variables)?;
    target.expect("ready")?;
    Ok(target)
}

/// Ends the program, and checks that it ended in good order and computed the right results.
pub fn quit(mut target: CudaTarget) -> Result<()> {
    target.send("quit")?;
    let exit = target.target.wait(PATIENCE)?.success()?;
    right(&exit)
}

/// Checks that the program found nothing wrong in what came back from its devices.
pub fn right(exit: &Exit) -> Result<()> {
    let last = exit.stdout.last().ok_or("it said nothing")?;
    match last.starts_with("done") && last.ends_with(" bad 0") {
        true => Ok(()),
        false => Err(format!("it computed wrong: {exit}").into()),
    }
}

/// A command line that has attached.
pub struct Session {
    pub process: Target,
    dir: PathBuf,
}

impl Session {
    /// Runs `midair attach PID WORDS`.
    pub fn attach(pid: i32, dir: &Path, words: &[&str]) -> Result<Session> {
        let mut command = command("midair")?;
        command.args(["attach", &pid.to_string()]);
        let mut session = Session::spawn(command, dir, words)?;
        session.process.expect_error("attached to process")?;
        Ok(session)
    }

    /// Runs `rocprofv3 --pid PID WORDS`.
    pub fn rocprofv3(pid: i32, dir: &Path, words: &[&str]) -> Result<Session> {
        let mut command = command("rocprofv3")?;
        command.args(["--pid", &pid.to_string()]);
        let mut session = Session::spawn(command, dir, words)?;
        session.process.expect("Press Enter to detach...")?;
        Ok(session)
    }

    fn spawn(mut command: std::process::Command, dir: &Path, words: &[&str]) -> Result<Session> {
        command.args(["--output-format", "csv,json"]);
        command.arg("-d").arg(dir).args(["-o", "t"]).args(words);
        Ok(Session {
            process: Target::spawn(command)?,
            dir: dir.to_path_buf(),
        })
    }

    /// Presses Enter and reads the trace.
    pub fn detach(mut self) -> Result<Trace> {
        self.process.send("")?;
        self.ended()
    }

    /// Waits for an end that something else brings about, and reads the trace.
    pub fn ended(mut self) -> Result<Trace> {
        until("the profiler's end", || Ok(!self.process.is_running()?))?;
        let exit = self.process.wait(PATIENCE)?;
        Trace::read(&self.dir, exit)
    }
}

/// The results of a session.
pub struct Trace {
    pub exit: Exit,
    pub dir: PathBuf,
    /// `rocprofiler-sdk-tool[0]` of the json file.
    pub json: Value,
}

impl Trace {
    fn read(dir: &Path, exit: Exit) -> Result<Trace> {
        let whole =
            json(&dir.join("t_results.json")).map_err(|error| format!("{error}\n{exit}"))?;
        Ok(Trace {
            exit,
            dir: dir.to_path_buf(),
            json: whole["rocprofiler-sdk-tool"][0].clone(),
        })
    }

    /// Returns the rows of `t_NAME.csv`, or none where that file was not written.
    pub fn rows(&self, name: &str) -> Result<Vec<Row>> {
        let file = self.dir.join(format!("t_{name}.csv"));
        match file.exists() {
            true => Ok(Csv::read(&file)?.rows),
            false => Ok(Vec::new()),
        }
    }

    /// Returns the names of the csv files, without prefix and ending.
    pub fn tables(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let csv = name
                .strip_prefix("t_")
                .and_then(|name| name.strip_suffix(".csv"));
            names.extend(csv.map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Returns the records of one sort in the json file.
    pub fn records(&self, name: &str) -> impl Iterator<Item = &Value> {
        let list = self.json["buffer_records"][name].as_array();
        list.into_iter().flatten()
    }

    /// Checks that the exit code is 0, that nothing is lost, and that nothing is untimed.
    pub fn whole(&self) -> Result<()> {
        let midair = &self.json["metadata"]["midair"];
        for key in ["lost", "untimed", "malformed_bytes"] {
            let value = &midair[key];
            let empty = value.as_object().is_some_and(serde_json::Map::is_empty)
                || value.as_array().is_some_and(Vec::is_empty)
                || value.as_u64() == Some(0);
            if !empty {
                return Err(format!("not whole: {key}: {value}\n{}", self.exit).into());
            }
        }
        if self.exit.status.code() != Some(0) || midair["outcome"] != "complete" {
            return Err(format!("not whole: {}\n{}", midair["outcome"], self.exit).into());
        }
        Ok(())
    }

    /// Returns the notes of the trace, one a line.
    pub fn notes(&self) -> String {
        let notes = self.json["metadata"]["midair"]["notes"].as_array();
        let lines = notes.into_iter().flatten().filter_map(Value::as_str);
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Returns a field of a row as a number.
pub fn number(row: &Row, column: &str) -> Result<u64> {
    Csv::number(row, column)
}

/// Returns the name that a kernel of the program has in the results.
pub fn shown(mangled: &str) -> Result<&'static str> {
    Ok(match mangled {
        "_Z4stepPjj" => "step(unsigned int*, unsigned int)",
        "_ZN4test6reduceIfEEvPKT_PS1_" => "void test::reduce<float>(float const*, float*)",
        "_Z9graph_onePj" => "graph_one(unsigned int*)",
        other => return Err(format!("no kernel of the program: {other}").into()),
    })
}

/// What a record and its line of the log have in common: the correlation id of the call, and the
/// node of its graph.
type Id = (u64, u64);

/// Ids of calls in different bursts are this far apart in a trace; in the log they are not.
const BURST_IDS: u64 = 1 << 33;

/// Returns the id that the call of a row's kernel has in the log.
pub fn call_of(row: &Row) -> Result<u64> {
    Ok(number(row, "Correlation_Id")? % BURST_IDS)
}

/// Returns the number of the burst in which a row's kernel was launched, from 0.
pub fn burst_of(row: &Row) -> Result<u64> {
    Ok(number(row, "Correlation_Id")? / BURST_IDS)
}

fn by_id<'a>(lines: impl Iterator<Item = &'a Line>) -> Result<BTreeMap<Id, &'a Line>> {
    let mut found = BTreeMap::new();
    for line in lines {
        let id = (line.number("correlation")?, line.number("node")?);
        if id.0 != 0 && found.insert(id, line).is_some() {
            return Err(format!("the log has {id:?} twice").into());
        }
    }
    Ok(found)
}

fn same_times(start: u64, end: u64, line: &Line) -> Result<()> {
    let (begun, ended) = (line.number("start")?, line.number("end")?);
    let near = start.abs_diff(begun) < NEAR
        && (end - start).abs_diff(ended - begun) <= 2 + (ended - begun) / 10_000;
    match near {
        true => Ok(()),
        false => Err(format!("{start}..{end} for {begun}..{ended} of {line:?}").into()),
    }
}

/// Checks that every kernel of the trace is in the log with the same values, and that none is there
/// twice. Graphs are launched once in each window. Returns how many kernels there are.
pub fn kernels_are_true(trace: &Trace, log: &CudaLog) -> Result<usize> {
    let logged = by_id(log.of("kernel"))?;
    let mut seen = BTreeMap::new();
    let agents = agents(trace)?;
    for row in trace.rows("kernel_trace")? {
        let id = (call_of(&row)?, number(&row, "Graph_Node_Id")?);
        let line = logged
            .get(&id)
            .ok_or_else(|| format!("{id:?} is not in the log: {row:?}"))?;
        if seen.insert(id, ()).is_some() {
            return Err(format!("{id:?} is in the trace twice").into());
        }
        let (start, end) = (
            number(&row, "Start_Timestamp")?,
            number(&row, "End_Timestamp")?,
        );
        // A kernel without an end was still running at the end of the session, which the trace says
        // ([`Trace::whole`]).
        if end != 0 {
            same_times(start, end, line)?;
        }
        let (grid, block) = (line.three("grid")?, line.three("block")?);
        for (axis, name) in ["X", "Y", "Z"].into_iter().enumerate() {
            let threads = grid[axis] * block[axis];
            assert_eq!(number(&row, &format!("Grid_Size_{name}"))?, threads);
            assert_eq!(
                number(&row, &format!("Workgroup_Size_{name}"))?,
                block[axis]
            );
        }
        assert_eq!(row["Kernel_Name"], shown(line.text("name"))?);
        assert_eq!(row["Agent_Id"], agents[&line.number("device")?], "{row:?}");
        for (column, word) in [
            ("VGPR_Count", "registers"),
            ("Static_Shared_Memory", "static"),
            ("Dynamic_Shared_Memory", "dynamic"),
            ("Context_Id", "context"),
            ("Device", "device"),
            ("Graph_Id", "graph"),
        ] {
            assert_eq!(
                number(&row, column)?,
                line.number(word)?,
                "{column}: {row:?}"
            );
        }
    }
    Ok(seen.len())
}

/// Returns the "Agent N" of each device ordinal.
fn agents(trace: &Trace) -> Result<BTreeMap<u64, String>> {
    let mut agents = BTreeMap::new();
    for agent in trace.json["agents"].as_array().into_iter().flatten() {
        let name = agent["product_name"].as_str().unwrap_or_default();
        if let Some(ordinal) = name.strip_prefix("Midair Stand-in GPU ") {
            let node = agent["node_id"].as_u64().ok_or("an agent has a node")?;
            agents.insert(ordinal.parse()?, format!("Agent {node}"));
        }
    }
    match agents.len() {
        2 => Ok(agents),
        _ => Err(format!("not two GPUs: {:#}", trace.json["agents"]).into()),
    }
}

/// Checks that every copy of the trace is in the log, with its bytes and direction, and that none
/// is there twice. Returns how many copies there are.
pub fn copies_are_true(trace: &Trace, log: &CudaLog) -> Result<usize> {
    let logged = by_id(
        log.lines
            .iter()
            .filter(|line| ["copy", "peer"].contains(&&*line.what)),
    )?;
    let mut directions = BTreeMap::new();
    for row in trace.rows("memory_copy_trace")? {
        directions.insert(number(&row, "Correlation_Id")?, row["Direction"].clone());
    }
    let mut seen = BTreeMap::new();
    for record in trace.records("memory_copy") {
        let field = |path: &str| {
            let value = record.pointer(path).and_then(Value::as_u64);
            value.ok_or_else(|| format!("no {path} in {record}"))
        };
        let correlation = field("/correlation_id/internal")?;
        let line = logged
            .get(&(correlation, 0))
            .ok_or_else(|| format!("copy {correlation} is not in the log: {record}"))?;
        assert!(seen.insert(correlation, ()).is_none(), "{record} twice");
        same_times(field("/start_timestamp")?, field("/end_timestamp")?, line)?;
        assert_eq!(field("/bytes")?, line.number("bytes")?, "{record}");
        // These are numbers of CUpti_ActivityMemcpyKind.
        let direction = match line.number("kind")? {
            1 => "MEMORY_COPY_HOST_TO_DEVICE",
            2 => "MEMORY_COPY_DEVICE_TO_HOST",
            8 => "MEMORY_COPY_DEVICE_TO_DEVICE",
            10 => "MEMORY_COPY_PEER_TO_PEER",
            other => return Err(format!("a copy of kind {other}").into()),
        };
        assert_eq!(
            directions.get(&correlation).map(String::as_str),
            Some(direction)
        );
    }
    assert_eq!(seen.len(), directions.len());
    Ok(seen.len())
}

/// Checks a session on a process that was at work: what is in the trace is true, and of each thread
/// no kernel between the first and the last one is missing.
pub fn contiguous(trace: &Trace, log: &CudaLog) -> Result<usize> {
    let count = kernels_are_true(trace, log)?;
    let mut there = std::collections::BTreeSet::new();
    for row in trace.rows("kernel_trace")? {
        there.insert(number(&row, "Correlation_Id")?);
    }
    let (first, last) = match (there.first(), there.last()) {
        (Some(first), Some(last)) => (*first, *last),
        _ => return Err(format!("no kernel\n{}", trace.exit).into()),
    };
    // Each thread is checked by itself, since the edges of the session may cut two threads at
    // different correlation ids.
    let mut threads: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in log.of("kernel") {
        let correlation = line.number("correlation")?;
        if (first..=last).contains(&correlation) {
            threads
                .entry(line.number("tid")?)
                .or_default()
                .push(correlation);
        }
    }
    for (tid, numbers) in threads {
        let mine: Vec<bool> = numbers
            .iter()
            .map(|number| there.contains(number))
            .collect();
        let begin = mine.iter().position(|there| *there).unwrap_or(mine.len());
        let end = mine.iter().rposition(|there| *there).map_or(0, |at| at + 1);
        let missing = mine[begin.min(end)..end]
            .iter()
            .filter(|there| !**there)
            .count();
        assert_eq!(missing, 0, "of thread {tid}\n{}", trace.exit);
    }
    Ok(count)
}
