//! Launches of HIP's graphs (`--hip-graph-trace`), on AMD's runtimes and the modelled GPU.
//!
//! The threads of the program `graphs` launch kernels with grids of their own, each on a stream of
//! its own. So the model's log tells which of its dispatches are of one launch, when the first of
//! them started, and when the last ended.

use crate::counters::{attach, begin, files};
use crate::counters_launched::launched;
use crate::rocpd::reader;
use crate::samples::Client;
use midair_tests::Result;
use midair_tests::lab::{GpuModel, Lab, LabCommand, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::table::json;
use midair_tests::target::{PATIENCE, ask, until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Start and end of a launch.
type Times = (u64, u64);

fn graphs(lab: &Lab, threads: u32, nodes: usize) -> Result<LabCommand<'_>> {
    let program = lab.run(&lab.program("graphs")?);
    let program = program.env("MODEL_KERNEL_NS", 5_000);
    Ok(program.arg(lab.kernels()?).arg(threads).arg(nodes))
}

/// Returns the launches of each thread in the log, in their order.
fn logged(log: &ModelLog, threads: u32, nodes: usize) -> Vec<Vec<Times>> {
    let of_thread = |thread: u32| {
        let grids = [64 * (thread + 1), 32 * (thread + 1) + 65536];
        let own = log.dispatches().filter(|it| grids.contains(&it.grid[0]));
        let mut own: Vec<Times> = own.map(|it| (it.packet.start, it.packet.end)).collect();
        own.sort_unstable();
        assert_eq!(own.len() % nodes, 0, "part of a launch in the log");
        let last = |of: &[Times]| of.iter().map(|it| it.1).max().unwrap_or(0);
        own.chunks(nodes).map(|of| (of[0].0, last(of))).collect()
    };
    (0..threads).map(of_thread).collect()
}

/// A launch in the results.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Launch {
    times: Times,
    tid: u64,
    graph: u64,
    kernels: u64,
    correlation: u64,
    queue: u64,
    agent: u64,
}

fn file(out: &Path, name: &str) -> Result<std::path::PathBuf> {
    let all = files(out).into_iter();
    let mut all = all.filter(|file| file.to_string_lossy().ends_with(name));
    all.next().ok_or_else(|| format!("no {name}").into())
}

fn number(row: &Value, name: &str) -> u64 {
    row.pointer(name).and_then(Value::as_u64).unwrap_or(0)
}

const LAUNCHES: &str = "SELECT start, \"end\", tid, graph_exec_id, kernel_dispatch_count, stack_id, queue_id, agent_id FROM graph_launches";
const KERNELS: &str = "SELECT graph_exec_id, COUNT(*) AS n FROM rocpd_kernel_dispatch GROUP BY 1";
const REMARKS: &str = "SELECT start, \"end\" FROM rocpd_graph_launch WHERE extdata LIKE '%remark%'";

/// The output of a session.
struct Session {
    launches: Vec<Launch>,
    /// How many kernels in the results are of each graph; 0 is none.
    kernels: BTreeMap<u64, u64>,
    /// The launches whose times do not cover all their kernels, and are said to be so.
    remarks: BTreeSet<Times>,
    notes: Vec<String>,
}

impl Session {
    /// Reads rocpd and json, which have the same.
    fn read(out: &Path) -> Result<Session> {
        let read = reader(&file(out, "results.db")?, &[LAUNCHES, KERNELS, REMARKS])?;
        assert_eq!(read["foreign_keys"], Value::Array(Vec::new()));
        let rows = |answer: usize| read["answers"][answer].as_array().into_iter().flatten();
        let launch = |row: &Value| Launch {
            times: (number(row, "/start"), number(row, "/end")),
            tid: number(row, "/tid"),
            graph: number(row, "/graph_exec_id"),
            kernels: number(row, "/kernel_dispatch_count"),
            correlation: number(row, "/stack_id"),
            queue: number(row, "/queue_id"),
            agent: number(row, "/agent_id"),
        };
        let mut launches: Vec<Launch> = rows(0).map(launch).collect();
        launches.sort();
        let kernels = rows(1).map(|row| (number(row, "/graph_exec_id"), number(row, "/n")));

        let document = json(&file(out, "results.json")?)?;
        let tool = &document["rocprofiler-sdk-tool"][0];
        let records = tool["buffer_records"]["hip_graph"].as_array();
        let mut others: Vec<Launch> = Vec::new();
        for record in records.into_iter().flatten() {
            let name = format!("/strings/buffer_records/{}", number(record, "/kind"));
            let kind = tool.pointer(&name).ok_or("the kind has no name")?;
            let operation = &kind["operations"][number(record, "/operation") as usize];
            assert_eq!(kind["kind"], "HIP_GRAPH");
            assert_eq!(operation, "HIP_GRAPH_OPERATION_EXEC_LAUNCH");
            let agent = number(record, "/agent_id/handle");
            let agents = tool["agents"].as_array().into_iter().flatten();
            let mut agents = agents.filter(|it| number(it, "/id/handle") == agent);
            others.push(Launch {
                times: (
                    number(record, "/start_timestamp"),
                    number(record, "/end_timestamp"),
                ),
                tid: number(record, "/thread_id"),
                graph: number(record, "/graph_exec_id/handle"),
                kernels: number(record, "/kernel_dispatch_count"),
                correlation: number(record, "/correlation_id/internal"),
                queue: number(record, "/queue_id/handle"),
                agent: agents.next().map_or(0, |it| number(it, "/node_id")),
            });
        }
        others.sort();
        assert_eq!(launches, others, "rocpd and json");
        let notes = tool["metadata"]["midair"]["notes"].as_array();
        let notes = notes.into_iter().flatten();
        Ok(Session {
            launches,
            kernels: kernels.collect(),
            remarks: rows(2)
                .map(|row| (number(row, "/start"), number(row, "/end")))
                .collect(),
            notes: notes.map(|note| note.to_string()).collect(),
        })
    }

    /// The launches of each thread; the thread that started first comes first. All have the number
    /// of kernels that their graphs have, and each has an id of its own.
    fn by_thread(&self, nodes: usize) -> Vec<Vec<Times>> {
        let mut threads: BTreeMap<u64, Vec<Times>> = BTreeMap::new();
        let mut ids = BTreeSet::new();
        for launch in &self.launches {
            assert_eq!(launch.kernels, nodes as u64, "{launch:?} {:?}", self.notes);
            assert!(launch.agent > 0, "{launch:?}");
            assert!(ids.insert(launch.correlation), "twice: {launch:?}");
            threads.entry(launch.tid).or_default().push(launch.times);
        }
        threads.into_values().collect()
    }

    fn graphs(&self) -> BTreeSet<u64> {
        self.launches.iter().map(|launch| launch.graph).collect()
    }
}

/// Waits until this many more kernels have run.
fn launches_more(target: &LabTarget, kernels: usize) -> Result<()> {
    let before = target.model_log()?.dispatches().count();
    until("further launches", || {
        Ok(target.model_log()?.dispatches().count() >= before + kernels)
    })
}

/// Ends the program, and returns its log.
fn quit(mut target: LabTarget) -> Result<ModelLog> {
    target.send("quit")?;
    target.expect("total")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    log.check()?;
    Ok(log)
}

const FORMATS: [&str; 4] = ["--output-format", "rocpd", "json", "pftrace"];

/// All launches of a session are there, whoever made the graph and when, and no others.
#[test]
fn each_launch_is_told_with_its_kernels() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // Three threads and one queue for two of them.
    let (threads, nodes) = (3, 20);
    let program = graphs(&lab, threads, nodes)?.env("GPU_MAX_HW_QUEUES", 2);
    let mut target = program.spawn()?;
    target.expect("ready")?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let words = [&FORMATS[..], &["--hip-graph-trace"]].concat();
    let mut attacher = attach(&lab, &target, out.path(), &words)?.spawn()?;
    attacher.expect_error("attached to process")?;
    ask(&mut target, "start")?;
    launches_more(&target, 600)?;
    ask(&mut target, "stop")?;
    ask(&mut target, "refused")?;
    ask(&mut target, "renew")?;
    ask(&mut target, "start")?;
    launches_more(&target, 600)?;
    ask(&mut target, "stop")?;
    attacher.send("")?;
    attacher.target.wait(PATIENCE)?.success()?;
    let session = Session::read(out.path())?;
    let expected = logged(&quit(target)?, threads, nodes);
    assert_eq!(session.by_thread(nodes), expected);
    assert!(expected.iter().all(|of| of.len() > 3), "{expected:?}");
    // Each thread had a second graph later, also where HIP put it in the place of the first.
    assert_eq!(session.graphs(), (1..=2 * u64::from(threads)).collect());
    assert_eq!(
        session.kernels,
        BTreeMap::new(),
        "kernels without their option"
    );
    assert_eq!(session.remarks, BTreeSet::new());
    assert!(session.launches.iter().all(|launch| launch.queue > 0));
    assert!(
        session
            .notes
            .iter()
            .any(|note| note.contains("1 launches of graphs failed")),
        "{:?}",
        session.notes
    );
    Ok(())
}

/// A tool of another maker gets a record of each launch, attached and launched.
#[test]
fn a_tool_gets_a_record_of_each_launch() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (threads, nodes) = (3, 20);
    let client = Client::build(&lab, "graphs")?;
    let work = |target: &mut LabTarget| -> Result<()> {
        for command in ["renew", "refused"] {
            ask(target, "start")?;
            launches_more(target, 600)?;
            ask(target, "stop")?;
            ask(target, command)?;
        }
        Ok(())
    };
    let counted = |log: &ModelLog| -> BTreeMap<String, u64> {
        let launches: usize = logged(log, threads, nodes).iter().map(Vec::len).sum();
        let numbers = [
            ("launches", launches as u64),
            ("kernels", (launches * nodes) as u64),
            ("graphs", u64::from(2 * threads)),
            ("threads", threads.into()),
        ];
        let names = numbers.into_iter();
        names
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    };
    let mut target = graphs(&lab, threads, nodes)?.spawn()?;
    target.expect("ready")?;
    let told = client.attached(target.target.pid(), || work(&mut target))?;
    assert_eq!(told, counted(&quit(target)?));

    let program = graphs(&lab, threads, nodes)?.log_name("launched");
    let mut target = client.launched(program)?.spawn()?;
    target.expect("ready")?;
    work(&mut target)?;
    let log = quit(target)?;
    assert_eq!(client.counted()?, counted(&log));
    Ok(())
}

/// HIP runs the branches of a graph on queues of its own choice, and the kernels of all of them
/// belong to the launch.
#[test]
fn branches_on_several_queues_are_one_launch() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (threads, nodes) = (1, 12);
    let mut target = graphs(&lab, threads, nodes)?.arg("fork").spawn()?;
    target.expect("ready")?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let words = [&FORMATS[..], &["--hip-graph-trace"]].concat();
    let mut attacher = attach(&lab, &target, out.path(), &words)?.spawn()?;
    attacher.expect_error("attached to process")?;
    ask(&mut target, "start")?;
    launches_more(&target, 300)?;
    ask(&mut target, "stop")?;
    attacher.send("")?;
    attacher.target.wait(PATIENCE)?.success()?;
    let session = Session::read(out.path())?;
    let log = quit(target)?;
    // Each branch keeps its order, and HIP lets branches of successive launches overlap.
    let branch = |grid: u32| {
        let own = log.dispatches().filter(|it| it.grid[0] == grid);
        let mut own: Vec<Times> = own.map(|it| (it.packet.start, it.packet.end)).collect();
        own.sort_unstable();
        own
    };
    let (one, other) = (branch(64), branch(32 + 65536));
    let both = one.chunks(nodes / 2).zip(other.chunks(nodes / 2));
    let mut expected: Vec<Times> = both
        .map(|(a, b)| {
            (
                a[0].0.min(b[0].0),
                a[nodes / 2 - 1].1.max(b[nodes / 2 - 1].1),
            )
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(session.by_thread(nodes), [expected]);
    let rings: BTreeSet<u64> = log.dispatches().map(|it| it.packet.ring).collect();
    let one = session.launches.iter().filter(|launch| launch.queue > 0);
    assert_eq!(
        one.count() == 0,
        rings.len() > 1,
        "{rings:?} {:?}",
        session.launches
    );
    Ok(())
}

/// What is cut by the start or the end of a session is left out, and said to be.
#[test]
fn launches_in_the_middle_of_which_a_session_begins_and_ends() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (threads, nodes) = (2, 100);
    for model in [GpuModel::Doorbell, GpuModel::Eager(5)] {
        let mut target = begin(graphs(&lab, threads, nodes)?.on(model))?;
        target.send("pause 2000")?;
        let mut sessions = Vec::new();
        for _ in 0..3 {
            let out = tempfile::tempdir_in(lab.scratch())?;
            let words = ["--duration", "300ms", "--hip-graph-trace", "--kernel-trace"];
            let words = [&FORMATS[..], &words].concat();
            let attacher = attach(&lab, &target, out.path(), &words)?.spawn()?;
            attacher.target.wait(PATIENCE)?.success()?;
            sessions.push(Session::read(out.path())?);
        }
        let expected = logged(&quit(target)?, threads, nodes);
        let expected: BTreeSet<Times> = expected.into_iter().flatten().collect();
        for session in sessions {
            let told = session.by_thread(nodes);
            assert_eq!(told.len(), threads as usize, "{:?}", session.notes);
            // A device that takes packets before they are rung has taken some before they could
            // get a signal.
            let mut whole = 0;
            for times in told.iter().flatten() {
                let is_whole = expected.contains(times);
                let is_within = |of: &Times| of.0 <= times.0 && times.1 <= of.1;
                let is_said = session.remarks.contains(times) && expected.iter().any(is_within);
                assert!(is_whole || is_said, "{times:?} {:?}", session.notes);
                whole += usize::from(is_whole);
            }
            assert!(whole > 3, "{:?} {:?}", session.launches, session.notes);
            let kernels: u64 = session.launches.iter().map(|launch| launch.kernels).sum();
            let graphs = session.kernels.iter().filter(|(graph, _)| **graph > 0);
            assert_eq!(graphs.map(|(_, count)| *count).sum::<u64>(), kernels);
        }
    }
    Ok(())
}

/// A program that is started with the trace: all of it.
#[test]
fn launches_of_a_program_that_is_started() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (threads, nodes) = (2, 3);
    let out = tempfile::tempdir_in(lab.scratch())?;
    let program = graphs(&lab, threads, nodes)?;
    let words = ["--hip-trace", "--hip-graph-trace", "-f", "rocpd", "json"];
    let mut target = launched(&lab, program, out.path(), &words)?.spawn()?;
    target.expect("ready")?;
    ask(&mut target, "start")?;
    launches_more(&target, 100)?;
    let expected = logged(&quit(target)?, threads, nodes);
    let session = Session::read(out.path())?;
    assert_eq!(session.by_thread(nodes), expected);
    // The calls are in the results as well, under the ids of the launches.
    let query = "SELECT stack_id FROM regions WHERE name = 'hipGraphLaunch'";
    let read = reader(&file(out.path(), "results.db")?, &[query])?;
    let calls = read["answers"][0].as_array().into_iter().flatten();
    let calls: BTreeSet<u64> = calls.map(|row| number(row, "/stack_id")).collect();
    let launches = session.launches.iter().map(|launch| launch.correlation);
    assert_eq!(calls, launches.collect());
    Ok(())
}
