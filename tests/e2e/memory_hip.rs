//! Memory and runtimes of HIP programs: in files, and as a tool with buffers of its own receives
//! them.

use crate::profiler::{Profiler, Trace};
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::stage::command;
use midair_tests::stand_in::Kit;
use midair_tests::table::json;
use midair_tests::target::{PATIENCE, Target};
use midair_tests::{Result, client};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Sends a command and returns what the program said before its answer.
fn tell(target: &mut LabTarget, command: &str) -> Result<Vec<String>> {
    let answer = command.split(' ').next().unwrap_or_default();
    target.send(command)?;
    let mut lines = Vec::new();
    loop {
        match target.expect("")? {
            line if line == answer => return Ok(lines),
            line => lines.push(line),
        }
    }
}

fn quit(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    let exit = target.target.wait(PATIENCE)?;
    if exit.stdout.last().is_some_and(|line| line == "done") {
        Ok(())
    } else {
        Err(exit.to_string().into())
    }
}

fn records(trace: &Trace) -> Result<Vec<Value>> {
    let whole = json(&trace.dir.join("t_results.json"))?;
    let records =
        whole["rocprofiler-sdk-tool"][0]["buffer_records"]["memory_allocation"].as_array();
    Ok(records.ok_or("no allocations")?.clone())
}

/// Parses "did WHAT ADDRESS BYTES" into the HIP call, the operation, the address as the json has
/// it, and the bytes.
fn said(line: &str) -> Result<(&'static str, u64, String, u64)> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["did", what, address, bytes] = words[..] else {
        return Err(line.to_owned().into());
    };
    let (call, operation) = match what {
        "malloc" => ("hipMalloc", 1),
        "host" => ("hipHostMalloc", 1),
        "free" => ("hipFree", 3),
        "hostfree" => ("hipHostFree", 3),
        _ => return Err(line.to_owned().into()),
    };
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
    Ok((call, operation, format!("{address:#018x}"), bytes.parse()?))
}

#[test]
fn hips_memory_belongs_to_its_calls() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for register in [true, false] {
        let program = lab.program("hip_memory")?;
        let command = lab.run(&program).register(register);
        let mut target = command.log_name(&format!("log-{register}")).spawn()?;
        target.expect("ready")?;
        // The session starts before the runtime is there, so the runtime's own allocations at
        // start-up are recorded, with their agents.
        let dir = lab.scratch().join(format!("hip-{register}"));
        let options = ["--memory-allocation-trace", "--hip-trace"];
        let profiler = Profiler::attach(target.pid(), &dir, &options)?;
        tell(&mut target, "init")?;
        let did = tell(&mut target, "go 12")?;
        let trace = profiler.detach()?;
        trace.whole()?;
        let records = records(&trace)?;
        assert!(records.len() >= did.len(), "{} records", records.len());
        for record in &records {
            let released = record["operation"].as_u64() >= Some(3);
            let has_agent = record["agent_id"]["handle"].as_u64() != Some(0);
            assert_ne!(released, has_agent, "{record}");
        }
        let mut used = BTreeSet::new();
        for line in &did {
            let (call, operation, address, bytes) = said(line)?;
            // The next record in order that has this address.
            let found = records.iter().enumerate().find(|(n, record)| {
                record["operation"] == operation
                    && record["address"] == address.as_str()
                    && !used.contains(n)
            });
            let (n, record) = found.ok_or_else(|| format!("no record of {line}"))?;
            used.insert(n);
            assert!(
                record["allocation_size"].as_u64() >= Some(bytes),
                "{line}: {record}"
            );
            // HSA's calls are not traced, so the correlation id is the HIP call's.
            let id = record["correlation_id"]["internal"].as_u64().unwrap_or(0);
            let around = trace
                .hip
                .get(&id)
                .ok_or_else(|| format!("{record} in no call"))?;
            assert_eq!(around.name, call, "{record}");
            assert!(Some(around.start) <= record["start_timestamp"].as_u64());
            assert!(Some(around.end) >= record["end_timestamp"].as_u64());
        }
        quit(target)?;
    }
    Ok(())
}

/// Runs a session of the tool, in which `act` is done, and returns the tool's lines.
fn session(
    lab: &Lab,
    pid: i32,
    tool: &Path,
    log: &Path,
    act: impl FnOnce() -> Result<()>,
) -> Result<Vec<String>> {
    let _ = std::fs::remove_file(log);
    let mut rocprof_attach = command("rocprof-attach")?;
    rocprof_attach
        .args(["-p", &pid.to_string(), "-t"])
        .arg(tool)
        .current_dir(lab.scratch());
    let mut attacher = Target::spawn(rocprof_attach)?;
    attacher.expect("Press Enter to detach...")?;
    act()?;
    attacher.send("")?;
    attacher.wait(PATIENCE)?.success()?;
    let text = std::fs::read_to_string(log)?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(lines.pop().as_deref(), Some("end 0 0"), "{text}");
    Ok(lines)
}

/// Returns the lines that start with this word, without the word.
fn of<'a>(lines: &'a [String], kind: &str) -> Vec<&'a str> {
    let words = lines.iter().filter_map(|line| line.split_once(' '));
    words
        .filter(|(first, _)| *first == kind)
        .map(|(_, rest)| rest)
        .collect()
}

#[test]
fn a_tool_gets_memory_and_runtimes_in_amds_layout() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("tool.log");
    let tool = client::tool(&lab, "memory_tool", "memory_tool", &log, &[])?;
    let (program, kernels) = (lab.program("memory")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(&kernels).register(false).spawn()?;
    target.expect("ready")?;
    let pid = target.pid();
    for _ in 0..2 {
        let mut did = Vec::new();
        let lines = session(&lab, pid, &tool, &log, || {
            did = tell(&mut target, "go 4")?;
            tell(&mut target, "scratch 64 64")?;
            tell(&mut target, "queue")?;
            Ok(())
        })?;
        // The version is that in the name of the library's file, libhsa-runtime64.so.1.18.0. This
        // program has no HIP.
        assert_eq!(of(&lines, "runtime"), ["1 11800 0"]);
        assert_eq!(of(&lines, "allocation"), of(&did, "did"));
        // One record comes from a thread of the runtime, the other from one of the program. A
        // buffer keeps no order between threads.
        let mut scratch = of(&lines, "scratch");
        scratch.sort_unstable();
        let [allocated, released] = scratch[..] else {
            return Err(format!("{scratch:?}").into());
        };
        let words: Vec<&str> = allocated.split(' ').collect();
        assert!(
            words[0] == "1" && words[1].parse::<u64>()? >= 64 * 64,
            "{allocated}"
        );
        assert_eq!(words[2..], ["1", "0", "1"]);
        assert_eq!(released, "2 0 1 0 1");
    }
    quit(target)
}

#[test]
fn runtimes_opened_while_attached_are_reported() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let log = lab.scratch().join("tool.log");
    let tool = client::tool(&lab, "memory_tool", "memory_tool", &log, &[])?;
    let program = lab.program("hip_memory")?;
    let mut target = lab.run(&program).register(false).spawn()?;
    target.expect("ready")?;
    let pid = target.pid();
    let runtimes = |lines: &[String]| -> BTreeSet<String> {
        of(lines, "runtime")
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let both = BTreeSet::from(["1 11800 0", "2 70200 0"].map(str::to_owned));
    let lines = session(&lab, pid, &tool, &log, || {
        tell(&mut target, "init").map(|_| ())
    })?;
    assert_eq!(
        (runtimes(&lines), of(&lines, "runtime").len()),
        (both.clone(), 2)
    );
    // The runtimes exist already, so each is reported once at the attach.
    let lines = session(&lab, pid, &tool, &log, || Ok(()))?;
    assert_eq!((runtimes(&lines), lines.len()), (both, 2));
    quit(target)
}

/// On two GPUs, without root: each allocation belongs to its GPU. The runtime's table for tools is
/// found, although the stand-in never reports anything through it.
#[test]
fn memory_of_two_gpus() -> Result<()> {
    let kit = Kit::new()?;
    let mut target = kit.start("two_memories", "model.log", &[])?;
    target.expect("ready")?;
    for session in 0..3 {
        tell(&mut target, "go 1")?;
        let dir = kit.scratch().join(format!("session{session}"));
        let profiler = Profiler::attach(target.pid(), &dir, &["--sys-trace"])?;
        let did = tell(&mut target, "go 10")?;
        let trace = profiler.detach()?;
        trace.whole()?;
        let whole = json(&dir.join("t_results.json"))?;
        let tool = &whole["rocprofiler-sdk-tool"][0];
        let agents = tool["agents"].as_array().ok_or("no agents")?;
        let mut records = records(&trace)?;
        records.sort_by_key(|record| record["start_timestamp"].as_u64());
        let told: Vec<String> = records
            .iter()
            .map(|record| {
                let handle = &record["agent_id"]["handle"];
                let agent = agents.iter().find(|agent| agent["id"]["handle"] == *handle);
                let node = agent
                    .and_then(|agent| agent["node_id"].as_i64())
                    .unwrap_or(-1);
                let address = record["address"].as_str().unwrap_or_default();
                let address = address.trim_start_matches("0x").trim_start_matches('0');
                let (operation, bytes) = (&record["operation"], &record["allocation_size"]);
                format!("did {operation} 0x{address} {bytes} {node}")
            })
            .collect();
        assert_eq!(told, did);
    }
    quit(target)
}
