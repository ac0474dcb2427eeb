//! `midair why`: what it says of processes that were made to hang. The tests use AMD's runtimes.
//! Host threads are also tested on the CUDA stand-in, and Python without any GPU.

use midair_sim_cuda::Toolkit;
use midair_tests::cuda::Kit;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::python::python;
use midair_tests::stage::{command, plain_environment, workload};
use midair_tests::target::{PATIENCE, Target, run, until};
use midair_tests::{Result, is_root_for};
use serde_json::Value;
use std::process::Command;

/// The grid.x of the kernel that the model never ends, and the setting that tells the model.
const ENDLESS: u64 = 64 * 7777;
const LONG_KERNEL: &str = "497728:3600000000000";

fn hangs(lab: &Lab) -> Result<LabTarget> {
    let (program, kernels) = (lab.program("hangs")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels);
    let mut target = target.env("MODEL_LONG_KERNEL", LONG_KERNEL).spawn()?;
    target.expect("ready")?;
    Ok(target)
}

/// Starts a program without HIP. The kernel has this name in its code object.
fn barriers(lab: &Lab, kernels: &str, name: &str, rank: u32) -> Result<LabTarget> {
    let program = lab.program("barriers")?;
    let target = lab.run(&program).arg(kernels).arg(format!("{name}.kd"));
    let log = format!("model-{rank}.log");
    let target = target.env("RANK", rank).log_name(&log);
    let mut target = target.env("MODEL_LONG_KERNEL", LONG_KERNEL).spawn()?;
    target.expect("ready")?;
    Ok(target)
}

fn why(words: &[&str]) -> Result<String> {
    let mut command = command("midair")?;
    command.arg("why").args(words);
    let exit = run(command, PATIENCE)?.success()?;
    Ok(exit.stdout.join("\n"))
}

/// Looks until the result is as wanted. A thread that has said what it is about to do may not have
/// done it yet.
fn seen(what: &str, words: &[&str], wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let words: Vec<&str> = words
        .iter()
        .copied()
        .chain(["--json", "--time", "200ms"])
        .collect();
    let mut last = Value::Null;
    until(what, || {
        last = serde_json::from_str(&why(&words)?)?;
        Ok(wanted(&last))
    })
    .map_err(|error| format!("{error}; the last: {last}"))?;
    Ok(last)
}

fn rows<'a>(document: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    let rows = document.pointer(path).and_then(Value::as_array);
    rows.into_iter().flatten()
}

/// Returns the first reason of a kind.
fn reason<'a>(document: &'a Value, kind: &str) -> Option<&'a Value> {
    rows(document, "/reasons").find(|reason| reason["kind"] == kind)
}

fn thread<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    rows(document, "/threads").find(|thread| thread["name"] == name)
}

/// Ends a program that hangs.
fn end(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn a_kernel_that_never_ends_is_named_with_who_waits_for_it() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = hangs(&lab)?;
    let pid = target.pid().to_string();
    // The kernel is launched before anybody looks, while nothing of midair's is in the process.
    target.send("kernel")?;
    target.expect("kernel")?;
    let waits = |it: &Value| {
        reason(it, "kernel").is_some()
            && thread(it, "launches")
                .is_some_and(|it| it["call"]["function"] == "hipStreamSynchronize")
    };
    let told = seen("the kernel and who waits", &[&pid], waits)?;
    assert_eq!(told["schema"], "midair.why/1");
    assert_eq!(told["reasons"][0]["kind"], "kernel", "{told}");
    let queue = rows(&told, "/queues")
        .find(|queue| queue["queue"] == told["reasons"][0]["queue"])
        .ok_or("no queue")?;
    let run = &queue["running"][0];
    assert_eq!(run["kernel"], "vadd", "{queue}");
    assert_eq!(run["symbol"], "_Z4vaddPKfS0_Pfi", "{queue}");
    assert_eq!(run["grid"][0], ENDLESS, "{queue}");
    assert!(run["at_least_ns"].as_u64() >= Some(200_000_000), "{queue}");
    // The model's log has no dispatch with this grid, since it has finished ones only and this one
    // never ends.
    let log = target.model_log()?;
    assert!(log.dispatches().all(|it| u64::from(it.grid[0]) != ENDLESS));
    assert_eq!(queue["front"]["state"], "after_all_before_it", "{queue}");
    assert_eq!(queue["front"]["what"], "scale", "{queue}");
    let launches = thread(&told, "launches").ok_or("no thread")?;
    assert_eq!(launches["call"]["runtime"], "HIP", "{launches}");
    assert_eq!(launches["whole"], true, "{launches}");
    let frames: Vec<&Value> = rows(launches, "/frames").collect();
    assert!(
        frames.iter().any(|frame| frame["function"] == "launches"),
        "{launches}"
    );
    let text = why(&[&pid, "--time", "200ms"])?;
    for wanted in [
        "kernel vadd has been running for",
        "s or longer; 3 packets wait behind it",
        "in HIP: hipStreamSynchronize",
        "in front  scale, packet 1: waits for all packets before it",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // The process was not entered, no process traces it any more, and it still follows commands.
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    assert!(!maps.contains("midair-"), "{maps}");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    assert!(status.contains("TracerPid:\t0"), "{status}");
    target.send("idle")?;
    target.expect("idle")?;
    end(target)
}

#[test]
fn barriers_are_told_by_who_would_let_them_pass() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let kernels = lab.kernels()?;
    let mut target = barriers(&lab, &kernels, "_Z4vaddPKfS0_Pfi", 0)?;
    let pid = target.pid().to_string();
    let mut ask = |word: &str| -> Result<u64> {
        target.send(word)?;
        let line = target.expect(word)?;
        Ok(line
            .rsplit(' ')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or(0))
    };
    // Nothing completes the signal that it waits for.
    let lost = ask("lost")?;
    let told = seen("a lost barrier", &[&pid], |it| {
        reason(it, "lost_barrier").is_some()
    })?;
    assert_eq!(told["reasons"][0]["kind"], "lost_barrier", "{told}");
    let front = |told: &Value, kind: &str| {
        let number = reason(told, kind).map(|reason| reason["queue"].clone());
        let queue = rows(told, "/queues").find(|queue| Some(&queue["queue"]) == number.as_ref());
        queue.map_or(Value::Null, |queue| queue["front"].clone())
    };
    let wait = &front(&told, "lost_barrier")["waits"][0];
    assert_eq!((&wait["signal"], &wait["value"]), (&lost.into(), &1.into()));
    assert_eq!(wait["completed_by"], Value::Array(Vec::new()), "{told}");
    // A kernel on another queue completes the signal.
    let signal = ask("chain")?;
    let told = seen("a chain of queues", &[&pid], |it| {
        reason(it, "barrier").is_some() && reason(it, "kernel").is_some()
    })?;
    let wait = front(&told, "barrier")["waits"][0].clone();
    assert_eq!(wait["signal"], signal, "{told}");
    let by = &wait["completed_by"][0];
    assert_eq!((&by["what"], &by["runs"]), (&"vadd".into(), &true.into()));
    assert_eq!(
        Some(&by["queue"]),
        reason(&told, "kernel").map(|reason| &reason["queue"]),
        "{told}"
    );
    // The queue waits for a packet that no thread writes.
    ask("unwritten")?;
    let told = seen("an unwritten packet", &[&pid], |it| {
        reason(it, "unwritten_packet").is_some()
    })?;
    assert_eq!(front(&told, "unwritten_packet")["packet"], 0, "{told}");
    end(target)
}

#[test]
fn a_host_in_a_lock_is_told_with_who_holds_it() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = hangs(&lab)?;
    let pid = target.pid().to_string();
    target.send("lock")?;
    target.expect("lock")?;
    let told = seen("the lock", &[&pid], |it| reason(it, "lock").is_some())?;
    let waits = thread(&told, "locks").ok_or("no thread")?;
    assert_eq!(waits["lock"]["holder"], target.pid(), "{waits}");
    let functions = rows(waits, "/frames").take(3);
    assert!(
        functions
            .into_iter()
            .any(|frame| frame["function"] == "pthread_mutex_lock"),
        "{waits}"
    );
    let what = reason(&told, "lock").map(|reason| reason["what"].to_string());
    assert!(what.is_some_and(|what| what.contains("(locks) waits for the lock at")));
    end(target)
}

/// The program of `midair demo`: its runtime keeps queues in a form of its own.
#[test]
fn a_program_without_a_known_queue_is_told_to_get_on() -> Result<()> {
    let mut target = Target::spawn(workload(&[])?)?;
    target.expect("iter 3")?;
    let pid = target.pid().to_string();
    let told = seen("a call that is made again and again", &[&pid], |it| {
        let reason = reason(it, "host_call").and_then(|it| it["what"].as_str());
        reason.is_some_and(|what| what.contains("so it makes progress or polls"))
    })?;
    let mut notes = rows(&told, "/notes").filter_map(Value::as_str);
    let note = "no queue found, although the HSA runtime is loaded";
    assert!(notes.any(|it| it.starts_with(note)), "{told}");
    Ok(())
}

#[test]
fn an_idle_program_is_idle() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = hangs(&lab)?;
    let pid = target.pid().to_string();
    let told = seen("an idle program", &[&pid], |it| {
        reason(it, "idle").is_some()
    })?;
    assert_eq!(rows(&told, "/reasons").count(), 1, "{told}");
    assert!(rows(&told, "/queues").count() > 0, "{told}");
    assert!(
        rows(&told, "/queues").all(|queue| queue["front"]["state"] == "empty"),
        "{told}"
    );
    end(target)
}

#[test]
fn the_rank_that_does_not_come_to_a_collective_is_named() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let kernels = lab.collective_kernels()?;
    let mut ranks = (0..3)
        .map(|rank| barriers(&lab, &kernels, "ncclDevKernel_AB", rank))
        .collect::<Result<Vec<_>>>()?;
    for rank in [0, 2] {
        ranks[rank].send("collective")?;
        ranks[rank].expect("collective")?;
    }
    let root = std::process::id().to_string();
    let late = ranks[1].pid();
    let told = seen("who is late", &["--tree", &root], |it| {
        let late = it["late"].as_array();
        late.is_some_and(|late| !late.is_empty())
            && rows(it, "/processes")
                .filter(|it| reason(it, "collective").is_some())
                .count()
                == 2
    })?;
    assert_eq!(told["schema"], "midair.why.tree/1");
    assert_eq!(told["late"], serde_json::json!([late]), "{told}");
    let sentence = told["sentences"][0].as_str().unwrap_or_default();
    let wanted = format!("in a collective for rank 1 (process {late}), which has not reached it");
    assert!(sentence.contains(&wanted), "{sentence}");
    ranks[1].send("collective")?;
    ranks[1].expect("collective")?;
    let all = seen("nobody late", &["--tree", &root], |it| {
        it["late"].as_array().is_some_and(Vec::is_empty) && it["sentences"][0].is_string()
    })?;
    assert!(
        all["sentences"][0]
            .to_string()
            .contains("all 3 participating processes")
    );
    ranks.into_iter().try_for_each(end)
}

#[test]
fn a_thread_in_a_cuda_call_is_told() -> Result<()> {
    let kit = Kit::new()?;
    let endless = [("CUDA_MODEL_KERNEL_NS", "3600000000000")];
    let mut target = kit.start("cuda_work", Toolkit::Major(13), &endless)?;
    target.target.expect("ready")?;
    let pid = target.target.pid().to_string();
    // There are two workers, each of which waits for what it launched.
    target.target.send("work 1")?;
    let in_calls = |it: &Value| -> Vec<Value> {
        let calls = rows(it, "/threads").map(|thread| thread["call"].clone());
        calls.filter(|call| call["runtime"] == "CUDA").collect()
    };
    let told = seen("the calls", &[&pid], |it| {
        let calls = in_calls(it);
        calls.len() == 2
            && calls
                .iter()
                .all(|it| it["function"] == "cudaStreamSynchronize")
    })?;
    assert!(reason(&told, "host_call").is_some(), "{told}");
    let notes = told["notes"].to_string();
    assert!(notes.contains("cannot be read from outside"), "{notes}");
    target.target.signal(libc::SIGKILL)?;
    Ok(())
}

#[test]
fn stacks_of_python_are_told_by_function_and_line() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let script = dir.path().join("waits.py");
    std::fs::write(
        &script,
        "import threading\n\
         class Trainer:\n    def step(self):\n        print('ready', flush=True)\n        threading.Event().wait()\n\
         threading.Thread(target=Trainer().step, daemon=True).start()\n\
         input()\n",
    )?;
    let mut command = Command::new(python()?);
    command.arg(&script).env_clear().envs(plain_environment());
    let mut target = Target::spawn(command)?;
    target.expect("ready")?;
    let pid = target.pid().to_string();
    let step = |it: &Value| -> Option<Value> {
        rows(it, "/threads")
            .flat_map(|thread| rows(thread, "/python"))
            .find(|frame| frame["function"] == "Trainer.step")
            .cloned()
    };
    let told = seen("the script's frames", &[&pid], |it| {
        step(it).is_some_and(|frame| frame["line"] == 5)
    })?;
    let frame = step(&told).ok_or("no frame")?;
    assert_eq!(frame["file"], script.to_str().ok_or("a path is text")?);
    let module = rows(&told, "/threads/0/python").last().ok_or("no frame")?;
    assert_eq!(
        (&module["function"], &module["line"]),
        (&"<module>".into(), &7.into())
    );
    let text = why(&[&pid, "--time", "50ms"])?;
    assert!(text.contains("Trainer.step"), "{text}");
    target.send("")?;
    target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Python threads inside calls of both libraries for collectives, which are stand-ins that never
/// return: the call is shown, and where in the script it was made.
#[test]
fn python_inside_a_collective_is_told_with_the_call() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let source = dir.path().join("collective.c");
    std::fs::write(
        &source,
        "#include <unistd.h>\n\
         int ncclAllReduce(void) { for (;;) pause(); }\n\
         int ncclGroupEnd(void) { for (;;) pause(); }\n",
    )?;
    let libraries = [
        ("librccl.so.1", "ncclAllReduce"),
        ("libnccl.so.2", "ncclGroupEnd"),
    ];
    for (name, _) in libraries {
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-fPIC", "-O1", "-o"]);
        gcc.arg(dir.path().join(name)).arg(&source);
        run(gcc, PATIENCE)?.success()?;
    }
    let script = dir.path().join("reduces.py");
    let threads = libraries.map(|(name, function)| {
        let path = dir.path().join(name);
        format!(
            "class {function}:\n    def step(self):\n        ctypes.CDLL({:?}).{function}()\n\
             threading.Thread(target={function}().step, daemon=True).start()\n",
            path.display().to_string()
        )
    });
    let text = format!(
        "import ctypes, threading\n{}print('ready', flush=True)\ninput()\n",
        threads.concat()
    );
    std::fs::write(&script, text)?;
    let mut command = Command::new(python()?);
    command.arg(&script).env_clear().envs(plain_environment());
    let mut target = Target::spawn(command)?;
    target.expect("ready")?;
    let pid = target.pid().to_string();
    // The runtime, the function, and the innermost Python function of each thread in a call.
    let in_calls = |it: &Value| -> Vec<[String; 3]> {
        let threads = rows(it, "/threads").filter(|thread| thread["call"].is_object());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut all: Vec<[String; 3]> = threads
            .map(|thread| {
                let (call, frame) = (&thread["call"], &thread["python"][0]);
                [&call["runtime"], &call["function"], &frame["function"]].map(text)
            })
            .collect();
        all.sort();
        all
    };
    let wanted = [
        ["NCCL", "ncclGroupEnd", "ncclGroupEnd.step"],
        ["RCCL", "ncclAllReduce", "ncclAllReduce.step"],
    ];
    let told = seen("the collectives", &[&pid], |it| in_calls(it) == wanted)?;
    let collectives = rows(&told, "/reasons").filter(|reason| reason["kind"] == "collective");
    assert_eq!(collectives.count(), 2, "{told}");
    target.send("")?;
    target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn what_may_not_be_looked_at_is_refused() -> Result<()> {
    let refused = |words: &[&str]| -> Result<(Option<i32>, String)> {
        let mut command = command("midair")?;
        command.arg("why").args(words);
        let exit = run(command, PATIENCE)?;
        Ok((exit.status.code(), exit.stderr.join("\n")))
    };
    let (code, errors) = refused(&["4194303999"])?;
    assert_eq!(code, Some(10), "{errors}");
    let (code, errors) = refused(&["1", "--time", "11m"])?;
    assert_eq!(code, Some(2), "{errors}");
    let (code, errors) = refused(&[])?;
    assert_eq!(code, Some(2), "{errors}");
    if is_root_for("another user's process")? {
        let mut command = Command::new("setpriv");
        let staged = midair_tests::stage::stage()?.join("bin/midair");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(staged).args(["why", "1"]);
        let exit = run(command, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(11), "{:?}", exit.stderr);
    }
    Ok(())
}
