//! Two GPUs on the stand-in runtimes. Counts and times match the models' log, every output
//! names the right agent, and copies between the GPUs have the right direction. Needs no root.

use crate::profiler::compare::{contiguous, logged_copies, mostly, same};
use crate::profiler::{Counter, Profiler, Tables, Trace, USUAL, changed, since};
use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::lab::LabTarget;
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::python::python;
use midair_tests::stand_in::{Kit, QUEUES_PER_NODE};
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, ask, run};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The variable that sets how long a kernel takes, in ns.
const KERNEL: (&str, &str) = ("MODEL_KERNEL_NS", "20000");
/// The two kernels of the program.
const STEP: &str = "step(float*, int)";
const REDUCE: &str = "void test::reduce<float>(float const*, float*)";
/// Bytes of the copies between GPUs, one size for each function that can make such a copy.
const PEERS: [u64; 6] = [4096, 8192, 12288, 1024, 2048, 3072];

fn start(kit: &Kit, log: &str, variables: &[(&str, &str)]) -> Result<LabTarget> {
    let mut target = kit.start("two_gpus", log, &[&[KERNEL], variables].concat())?;
    target.expect("ready")?;
    Ok(target)
}

fn quit(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?.success()?;
    assert_eq!(exit.stdout.last().map(String::as_str), Some("done"));
    ModelLog::read(&log)?.check()
}

/// Returns the node of each dispatch of the log, by its times.
fn nodes_of_dispatches(log: &ModelLog) -> BTreeMap<(u64, u64), u32> {
    let dispatches = log.records.iter().filter_map(|record| match &record.event {
        Event::Dispatch(dispatch) => {
            let times = (dispatch.packet.start, dispatch.packet.end);
            Some((times, record.queue / QUEUES_PER_NODE))
        }
        _ => None,
    });
    dispatches.collect()
}

/// Checks the agents in csv and json: each dispatch ran where the log says. `Agent N` is the N-th
/// node of the topology. The json has a list of agents, which tells what its handles are.
fn agents_of_kernels(trace: &Trace, log: &ModelLog) -> Result<()> {
    let nodes = nodes_of_dispatches(log);
    let mut seen = BTreeMap::new();
    for row in Csv::read(&trace.dir.join("t_kernel_trace.csv"))?.rows {
        let times = (
            Csv::number(&row, "Start_Timestamp")?,
            Csv::number(&row, "End_Timestamp")?,
        );
        if times.0 == 0 {
            continue;
        }
        let node = nodes[&times];
        assert_eq!(row["Agent_Id"], format!("Agent {node}"), "{row:?}");
        let by_grid = match (row["Kernel_Name"].as_str(), node) {
            (STEP, 1) => "640",
            (STEP, 2) => "1280",
            (REDUCE, 1) => "320",
            (REDUCE, 2) => "480",
            other => return Err(format!("{other:?}").into()),
        };
        assert_eq!(row["Grid_Size_X"], by_grid, "{row:?}");
        *seen.entry(node).or_insert(0) += 1;
    }
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [1, 2], "{seen:?}");

    let whole = json(&trace.dir.join("t_results.json"))?;
    let tool = &whole["rocprofiler-sdk-tool"][0];
    let mut node_of = BTreeMap::new();
    for agent in tool["agents"].as_array().into_iter().flatten() {
        node_of.insert(agent["id"]["handle"].as_u64(), agent["node_id"].as_u64());
    }
    assert_eq!(node_of.len(), 3, "{node_of:?}");
    let mut in_json = BTreeMap::new();
    let records = &tool["buffer_records"]["kernel_dispatch"];
    for record in records.as_array().into_iter().flatten() {
        let time = |name: &str| record[name].as_u64().unwrap_or(0);
        let times = (time("start_timestamp"), time("end_timestamp"));
        if times.0 == 0 {
            continue;
        }
        let agent = record["dispatch_info"]["agent_id"]["handle"].as_u64();
        assert_eq!(node_of[&agent], Some(nodes[&times].into()), "{record}");
        *in_json.entry(nodes[&times]).or_insert(0) += 1;
    }
    assert_eq!(in_json, seen);
    Ok(())
}

/// Returns how many copies there are with each source, destination and size.
fn ways(dir: &Path) -> Result<BTreeMap<(String, String, u64), usize>> {
    let whole = json(&dir.join("t_results.json"))?;
    let mut bytes = BTreeMap::new();
    let records = &whole["rocprofiler-sdk-tool"][0]["buffer_records"]["memory_copy"];
    for record in records.as_array().into_iter().flatten() {
        bytes.insert(
            record["start_timestamp"].as_u64(),
            record["bytes"].as_u64().unwrap_or(0),
        );
    }
    let mut ways = BTreeMap::new();
    for row in Csv::read(&dir.join("t_memory_copy_trace.csv"))?.rows {
        let start = Csv::number(&row, "Start_Timestamp")?;
        let (from, to) = (&row["Source_Agent_Id"], &row["Destination_Agent_Id"]);
        let way = (from.clone(), to.clone(), bytes[&Some(start)]);
        *ways.entry(way).or_insert(0) += 1;
    }
    Ok(ways)
}

fn same_copies(trace: &Trace, log: &ModelLog) {
    let traced: BTreeSet<_> = trace
        .copies
        .iter()
        .map(|copy| (copy.bytes, copy.start, copy.end))
        .collect();
    let logged = logged_copies(log);
    assert_eq!(logged.len(), log.copies().count());
    assert_eq!(traced, logged.into_iter().collect());
    assert_eq!(traced.len(), trace.copies.len());
}

/// Records one exact window with work on both GPUs and copies between them.
fn window(variables: &[(&str, &str)], eager: bool) -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, "model.log", variables)?;
    // This work comes before the attach and must not be in the trace. It loads the kernels.
    ask(&mut target, "work 2")?;
    ask(&mut target, "peers 1")?;

    let before = target.model_log()?;
    let dir = kit.scratch().join("window");
    let profiler = Profiler::attach(target.pid(), &dir, &USUAL)?;
    ask(&mut target, "work 40")?;
    ask(&mut target, "peers 5")?;
    let log = since(&target.model_log()?, &before);
    let trace = profiler.detach()?;
    assert_eq!(log.dispatches().count(), 40 * 2 * 2);
    if eager {
        mostly(&trace, &log)?;
    } else {
        trace.whole()?;
        same(&trace, &log)?;
    }
    same_copies(&trace, &log);
    agents_of_kernels(&trace, &log)?;

    let agent = |node: u32| format!("Agent {node}");
    let mut expected = BTreeMap::new();
    for gpu in [1, 2] {
        expected.insert((agent(0), agent(gpu), 65536), 40);
        expected.insert((agent(gpu), agent(0), 65536), 40);
    }
    for bytes in PEERS {
        expected.insert((agent(1), agent(2), bytes), 5);
    }
    assert_eq!(ways(&dir)?, expected);
    let mut directions: BTreeMap<&str, usize> = BTreeMap::new();
    for copy in &trace.copies {
        *directions.entry(&copy.direction).or_default() += 1;
    }
    let expected = [
        ("MEMORY_COPY_DEVICE_TO_DEVICE", 30),
        ("MEMORY_COPY_DEVICE_TO_HOST", 80),
        ("MEMORY_COPY_HOST_TO_DEVICE", 80),
    ];
    assert_eq!(directions, BTreeMap::from(expected));
    quit(target)
}

#[test]
fn two_gpus_by_doorbell() -> Result<()> {
    window(&[], false)
}

#[test]
fn two_gpus_that_take_packets_early() -> Result<()> {
    window(&[("MODEL_EAGER", "1"), ("MODEL_SEED", "7")], true)
}

#[test]
fn two_gpus_at_work_through_five_sessions() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, "model.log", &[])?;
    let pid = target.pid();
    let tables = Tables::of(&mut target)?;
    let before = tables.read(pid)?;
    ask(&mut target, "start")?;
    let mut counter = Counter::of(&target);
    let mut traces = Vec::new();
    for session in 0..5 {
        let dir = kit.scratch().join(format!("session{session}"));
        let profiler = Profiler::attach(pid, &dir, &USUAL)?;
        let during = changed(&before, &tables.read(pid)?);
        assert!(during["core"] > 20 && during["hip"] > 400, "{during:?}");
        counter.wait_for(100)?;
        let trace = profiler.detach()?;
        trace.whole_of_running()?;
        assert!(trace.kernels.len() >= 100, "{}", trace.kernels.len());
        traces.push(trace);
        let after = tables.read(pid)?;
        assert!(before == after, "{:?}", changed(&before, &after));
    }
    target.send("stop")?;
    let mut rounds = 0;
    for device in ["device 0 rounds ", "device 1 rounds "] {
        let line = target.expect(device)?;
        rounds += line[device.len()..].parse::<usize>()?;
    }
    target.expect("stop")?;
    let log = target.model_log()?;
    assert_eq!(log.dispatches().count(), 2 * rounds);
    for trace in &traces {
        assert_eq!(contiguous(trace, &log)?, 2, "one queue for each GPU");
        agents_of_kernels(trace, &log)?;
    }
    quit(target)
}

/// A function that the stand-in does not have refuses with its own kind of result. The sizes of the
/// tables are AMD's.
#[test]
fn functions_that_are_not_modelled_are_refused() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, "model.log", &[])?;
    target.send("refused")?;
    assert_eq!(target.expect("refused")?, "refused 801 4096");
    target.send("tables")?;
    let mut sizes = Vec::new();
    for name in ["core", "amd_ext", "hip", "compiler"] {
        let line = target.expect(&format!("table {name} "))?;
        let size = line.rsplit(' ').next().unwrap_or_default();
        sizes.push(size.parse::<usize>()?);
    }
    // Source: `docs/sources.md#hip`, for ROCm 7.2.4.
    assert_eq!(sizes, [1016, 624, 4056, 80]);
    target.expect("tables")?;
    quit(target)
}

/// Returns the name of an agent in csv.
fn named(node: u64) -> String {
    format!("Agent {node}")
}

/// rocpd and pftrace are each read by a program that is not ours. Kernels ran where the log says,
/// and peer copies go from the first GPU to the second.
#[test]
fn databases_and_perfetto_traces_name_both_gpus() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = start(&kit, "model.log", &[])?;
    let before = target.model_log()?;
    let mut words = USUAL.to_vec();
    words.extend(["--output-format", "rocpd", "pftrace"]);
    let attacher = Attacher::start(target.pid(), &words)?;
    ask(&mut target, "work 10")?;
    ask(&mut target, "peers 2")?;
    let traced = attacher.detach()?.code(0)?;
    let log = since(&target.model_log()?, &before);
    quit(target)?;
    let nodes: BTreeMap<(u64, u64), String> = nodes_of_dispatches(&log)
        .into_iter()
        .map(|(times, node)| (times, named(node.into())))
        .collect();
    assert_eq!(nodes.len(), 40);
    let mut ways = BTreeMap::new();
    for gpu in [1, 2] {
        ways.insert((named(0), named(gpu), 65536), 10);
        ways.insert((named(gpu), named(0), 65536), 10);
    }
    for bytes in PEERS {
        ways.insert((named(1), named(2), bytes), 2);
    }

    let reader = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/formats/output/tests/files/rocpd_reader.py");
    let mut python3 = Command::new("python3");
    python3.arg("-B").arg(reader).arg(traced.file("results.db"));
    python3.args([
        "SELECT start, \"end\", agent_abs_index AS agent FROM kernels",
        "SELECT src_agent_abs_index AS src, dst_agent_abs_index AS dst, size, COUNT(*) AS n FROM memory_copies GROUP BY 1, 2, 3",
    ]);
    let said = run(python3, PATIENCE)?.success()?.stdout.join("\n");
    let database: Value = serde_json::from_str(&said)?;
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap_or(u64::MAX);
    let rows = |index: usize| database["answers"][index].as_array().into_iter().flatten();
    let kernels: BTreeMap<_, _> = rows(0)
        .map(|row| {
            let times = (number(row, "start"), number(row, "end"));
            (times, named(number(row, "agent")))
        })
        .collect();
    assert_eq!(kernels, nodes);
    let copies: BTreeMap<_, _> = rows(1)
        .map(|row| {
            let (from, to) = (named(number(row, "src")), named(number(row, "dst")));
            ((from, to, number(row, "size")), number(row, "n"))
        })
        .collect();
    assert_eq!(copies, ways);

    let mut perfetto = Command::new(python()?);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/pftrace.py");
    perfetto.arg("-B").arg(script);
    perfetto.arg(traced.file("results.pftrace"));
    let said = run(perfetto, PATIENCE)?.success()?.stdout.join("\n");
    let trace: Value = serde_json::from_str(&said)?;
    // In that trace the agent's name is "Agent-1".
    let agent = |notes: &Value, name: &str| notes[name].as_str().unwrap_or("").replace('-', " ");
    let (mut kernels, mut copies) = (BTreeMap::new(), BTreeMap::new());
    for slice in trace["slices"].as_array().into_iter().flatten() {
        let notes = &slice["notes"];
        let times = (number(notes, "begin_ns"), number(notes, "end_ns"));
        match slice["category"].as_str() {
            Some("kernel_dispatch") => {
                kernels.insert(times, agent(notes, "agent"));
            }
            Some("memory_copy") => {
                let way = (agent(notes, "src_agent"), agent(notes, "dst_agent"));
                *copies.entry(way).or_insert(0) += 1;
            }
            _ => {}
        }
    }
    assert_eq!(kernels, nodes);
    let mut without_bytes = BTreeMap::new();
    for ((from, to, _), count) in ways {
        *without_bytes.entry((from, to)).or_insert(0) += count;
    }
    assert_eq!(copies, without_bytes);
    Ok(())
}
