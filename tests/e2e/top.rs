//! `midair top` on AMD's runtimes: what it shows is what the modelled GPU did.

use crate::terminal::{Terminal, plain};
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::{command, stage};
use midair_tests::target::{PATIENCE, Target, ask, until};
use midair_tests::{Result, program};
use serde_json::Value;
use std::collections::BTreeMap;

fn streams(lab: &Lab, threads: u32, kernel_ns: u64) -> Result<LabTarget> {
    let (program, kernels) = (lab.program("streams")?, lab.kernels()?);
    let target = lab.run(&program).arg(&kernels).arg(threads);
    let mut target = target.env("MODEL_KERNEL_NS", kernel_ns).spawn()?;
    target.expect("ready")?;
    Ok(target)
}

/// Returns how many launches a document has by function.
pub(crate) fn counts_by_function(document: &Value) -> BTreeMap<&str, u64> {
    let rows = document["code"].as_array().into_iter().flatten();
    rows.map(|row| {
        let count = row["all"]["count"].as_u64().unwrap_or(0);
        (row["function"].as_str().unwrap_or_default(), count)
    })
    .collect()
}

/// A running `midair top PID --json`, which prints a line at each interval.
pub(crate) struct Top {
    process: Target,
    read: usize,
}

impl Top {
    pub(crate) fn start(pid: i32, words: &[&str]) -> Result<Top> {
        let mut command = command("midair")?;
        command
            .args(["top", &pid.to_string(), "--json"])
            .args(words);
        Ok(Top {
            process: Target::spawn(command)?,
            read: 0,
        })
    }

    /// Waits for a document that is as wanted, and returns it.
    pub(crate) fn until(
        &mut self,
        what: &str,
        mut wanted: impl FnMut(&Value) -> bool,
    ) -> Result<Value> {
        let mut found = None;
        let mut last = Value::Null;
        let (process, read) = (&mut self.process, &mut self.read);
        until(what, || {
            let lines = process.lines();
            while let Some(line) = lines.get(*read) {
                *read += 1;
                let document: Value = serde_json::from_str(line)?;
                if wanted(&document) {
                    found = Some(document);
                    return Ok(true);
                }
                last = document;
            }
            if !process.is_running()? {
                return Err(format!("top has ended: {:?}", process.errors()).into());
            }
            Ok(false)
        })
        .map_err(|error| format!("{error}; the last: {last}"))?;
        found.ok_or_else(|| "nothing was found".into())
    }

    /// Runs it in the lab, which has AMD's packet library.
    fn in_the_lab(lab: &Lab, pid: i32, words: &[&str]) -> Result<Top> {
        let program = format!("{}/bin/midair", lab.stage()?);
        let mut command = lab.run(&program).log_name("none").register(false);
        for word in ["top", "--json", "--interval", "250ms"].iter().chain(words) {
            command = command.arg(word);
        }
        Ok(Top {
            process: command.arg(pid).spawn()?.target,
            read: 0,
        })
    }

    /// Has standard input end, which ends it.
    fn end_input(mut self) -> Result<()> {
        self.process.close_stdin();
        self.process.wait(PATIENCE)?.success()?;
        Ok(())
    }

    /// Ends the session.
    pub(crate) fn end(self) -> Result<()> {
        self.process.signal(libc::SIGINT)?;
        self.process.wait(PATIENCE)?.success()?;
        Ok(())
    }
}

fn number(document: &Value, path: &str) -> u64 {
    document.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

fn share(document: &Value, path: &str) -> f64 {
    document
        .pointer(path)
        .and_then(Value::as_f64)
        .unwrap_or(-1.0)
}

/// Returns how many dispatches all kernels had, and their time.
fn kernels(document: &Value) -> (u64, u64) {
    let rows = document["kernels"].as_array().into_iter().flatten();
    rows.fold((0, 0), |(count, ns), row| {
        (
            count + number(row, "/all/count"),
            ns + number(row, "/all/total_ns"),
        )
    })
}

/// Returns the time between `from` and `to` in which a kernel ran, by the log.
fn busy(log: &ModelLog, from: u64, to: u64) -> u64 {
    let mut spans: Vec<(u64, u64)> = log
        .dispatches()
        .map(|d| (d.packet.start.max(from), d.packet.end.min(to)))
        .filter(|span| span.0 < span.1)
        .collect();
    spans.sort_unstable();
    let (mut sum, mut at) = (0, from);
    for (start, end) in spans {
        sum += end.saturating_sub(start.max(at));
        at = at.max(end);
    }
    sum
}

#[test]
fn what_top_says_is_what_the_gpu_did() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = streams(&lab, 4, 200_000)?;
    let before = target.model_log()?;
    let mut top = Top::start(target.pid(), &["--interval", "250ms"])?;
    let first = top.until("the first look", |_| true)?;
    assert_eq!(first["schema"], "midair.top/1");
    assert_eq!(kernels(&first), (0, 0), "{first}");
    ask(&mut target, "start")?;
    let running = top.until("some kernels", |it| kernels(it).0 > 400)?;
    ask(&mut target, "stop")?;

    // While the program runs, the share of busy time equals the log's, except for what arrives
    // late.
    let log = target.model_log()?;
    let (now, window) = (number(&running, "/now_ns"), number(&running, "/window_ns"));
    let wanted = busy(&log, now - window, now) as f64 / window as f64;
    let said = share(&running, "/devices/0/busy");
    assert!(
        (said - wanted).abs() < 0.1,
        "{said}, not {wanted}: {running}"
    );
    // The first GPU, whose node is the second.
    let gpu = (
        &running["devices"][0]["gpu"],
        &running["devices"][0]["node"],
    );
    assert_eq!(gpu, (&0.into(), &1.into()), "{running}");
    let idle: f64 = ["copies", "launching", "waiting", "nothing_queued"]
        .map(|cause| share(&running, &format!("/devices/0/idle/{cause}")))
        .iter()
        .sum();
    assert!((said + idle - 1.0).abs() < 1e-6, "{running}");
    let ended = log
        .dispatches()
        .filter(|d| (now - window..now).contains(&d.packet.end))
        .count() as f64;
    let rows = running["kernels"].as_array().into_iter().flatten();
    let rate: f64 = rows.map(|row| share(row, "/rate")).sum();
    let rate = rate * window as f64 / 1e9;
    assert!(
        (rate - ended).abs() <= 0.2 * ended + 8.0,
        "{rate}, not {ended}: {running}"
    );

    // When the program has stopped, every dispatch and every byte is counted exactly.
    let known = before.dispatches().count();
    let new: Vec<_> = log.dispatches().skip(known).collect();
    let count = new.len() as u64;
    let ns: u64 = new.iter().map(|d| d.packet.end - d.packet.start).sum();
    let all = top.until("all kernels", |it| kernels(it).0 >= count)?;
    assert_eq!(kernels(&all), (count, ns), "{all}");
    let mut by_kernel: BTreeMap<u64, u64> = BTreeMap::new();
    for dispatch in &new {
        *by_kernel.entry(dispatch.kernel_object).or_default() += 1;
    }
    let mut counts: Vec<u64> = by_kernel.into_values().collect();
    let rows = all["kernels"].as_array().into_iter().flatten();
    let mut said: Vec<u64> = rows.map(|row| number(row, "/all/count")).collect();
    counts.sort_unstable();
    said.sort_unstable();
    assert_eq!(said, counts, "{all}");
    let names = all["kernels"].to_string();
    assert!(
        names.contains("\"vadd\"") && names.contains("\"scale\""),
        "{names}"
    );
    let bytes: u64 = log
        .copies()
        .skip(before.copies().count())
        .map(|copy| copy.bytes)
        .sum();
    let copies = all["copies"].as_array().into_iter().flatten();
    assert_eq!(
        copies.map(|copies| number(copies, "/bytes")).sum::<u64>(),
        bytes,
        "{all}"
    );
    let calls = all["calls"].as_array().into_iter().flatten();
    let mut waits = calls.filter(|call| call["waits"] == true);
    assert!(waits.any(|call| number(call, "/all/count") > 0), "{all}");
    // Two seconds later nothing is queued.
    top.until("an idle device", |it| {
        share(it, "/devices/0/idle/nothing_queued") > 0.999 && share(it, "/devices/0/busy") == 0.0
    })?;
    top.end()?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Without a terminal it also ends when standard input does.
#[test]
fn counters_of_the_whole_gpu_are_shown() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = streams(&lab, 2, 200_000)?;
    let words = ["--pmc-device", "SQ_WAVES GRBM_COUNT"];
    let mut top = Top::in_the_lab(&lab, target.pid(), &words)?;
    let mean = |it: &Value, name: &str| {
        let counters = it["counters"].as_array().into_iter().flatten();
        let mut found = counters.filter(|counter| counter["name"] == name);
        found.next().map(|counter| {
            assert_eq!(counter["unit"], "/s", "{it}");
            share(counter, "/mean")
        })
    };
    // The clock counts always, waves are there only while kernels run.
    let idle = top.until("readings of an idle GPU", |it| {
        mean(it, "SQ_WAVES") == Some(0.0) && mean(it, "GRBM_COUNT").is_some()
    })?;
    assert_eq!(idle["schema"], "midair.top/1");
    ask(&mut target, "start")?;
    top.until("waves", |it| {
        mean(it, "SQ_WAVES").is_some_and(|mean| mean > 0.0)
    })?;
    ask(&mut target, "stop")?;
    top.until("no waves", |it| mean(it, "SQ_WAVES") == Some(0.0))?;
    top.end_input()?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

#[test]
fn a_long_kernel_is_shown_while_it_runs() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = streams(&lab, 1, 1_500_000_000)?;
    let mut top = Top::start(target.pid(), &["--interval", "250ms"])?;
    top.until("the first look", |_| true)?;
    target.send("start")?;
    let is_long = |it: &Value| {
        let queues = it["queues"].as_array().into_iter().flatten();
        let mut ages = queues.map(|queue| number(queue, "/in_flight/age_ns"));
        ages.any(|age| age > 1_000_000_000)
    };
    let seen = top.until("a long kernel", is_long)?;
    let now = number(&seen, "/now_ns");
    let queues = seen["queues"].as_array().into_iter().flatten();
    let head = queues
        .map(|queue| &queue["in_flight"])
        .find(|head| number(head, "/age_ns") > 1_000_000_000)
        .ok_or("no head")?;
    // In the model the kernel started when top says it did. The log has that once the kernel has
    // ended.
    let began = now - number(head, "/age_ns");
    until("the kernel in the log", || {
        let log = target.model_log()?;
        let near = |at: u64| at.abs_diff(began) < 100_000_000;
        Ok(log.dispatches().any(|d| near(d.packet.start)))
    })
    .map_err(|error| format!("{error}: {began}: {seen}"))?;
    assert!(
        ["vadd", "scale"].iter().any(|name| head["kernel"] == *name),
        "{seen}"
    );
    assert!(share(&seen, "/devices/0/busy") > 0.4, "{seen}");
    top.end()?;
    target.target.signal(libc::SIGKILL)?;
    target.target.wait(PATIENCE)?;
    Ok(())
}

#[test]
fn on_a_terminal() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    if program("tmux", "tmux")?.is_none() {
        return Ok(());
    }
    let mut target = streams(&lab, 2, 200_000)?;
    // tmux is a session of its own, which the kernel schedules as one group alongside the target's.
    // Without a pause the target's threads and its GPU's keep every processor busy, and the
    // screen comes late or not at all.
    ask(&mut target, "pause 2000")?;
    ask(&mut target, "start")?;
    let results = tempfile::tempdir()?;
    let midair = stage()?.join("bin/midair");
    let words = format!(
        "{} top {} -f csv -d {}",
        midair.display(),
        target.pid(),
        results.path().display()
    );
    let terminal = Terminal::start(&words, 60, 20)?;
    let screen = terminal.until("kernels", |it| it.contains("vadd") && it.contains("SHARE"))?;
    println!("{screen}");
    plain(&screen);
    terminal.tmux(&["send-keys", "s"])?;
    terminal.until("another order", |it| it.contains("s:change"))?;
    terminal.tmux(&["send-keys", "/", "sca", "Enter"])?;
    terminal.until("a filter", |it| {
        it.contains("only 'sca'") && !it.contains("vadd  ")
    })?;
    terminal.tmux(&["send-keys", "Down", "Enter"])?;
    let details = terminal.until("details", |it| it.contains("median"))?;
    println!("{details}");
    terminal.tmux(&["send-keys", "Escape"])?;
    terminal.tmux(&["send-keys", "r"])?;
    terminal.until("it keeps", |it| it.contains("keeping the next"))?;
    let written = terminal.until("files", |it| it.contains("written:"))?;
    println!("{written}");
    terminal.tmux(&["send-keys", "q"])?;
    // The screen is gone, and the names of the files are not.
    let end = terminal.until("its end", |it| it.contains("ended with 0"))?;
    assert!(end.contains("written:"), "{end}");
    let windows: Vec<_> = std::fs::read_dir(results.path())?.collect::<std::io::Result<_>>()?;
    assert_eq!(windows.len(), 1, "{windows:?}");
    // As everywhere, the results are below a directory with the host's name.
    let mut names = Vec::new();
    for host in std::fs::read_dir(windows[0].path())? {
        for file in std::fs::read_dir(host?.path())? {
            names.push(file?.file_name().to_string_lossy().into_owned());
        }
    }
    assert!(
        names.iter().any(|name| name.ends_with("kernel_trace.csv")),
        "{names:?}"
    );
    ask(&mut target, "stop")?;
    target.send("quit")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
