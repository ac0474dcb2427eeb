//! HIP's events (`--hip-event-trace`), on AMD's runtimes and the modelled GPU.
//!
//! The program `hip_events` records an event behind each kernel of one stream, and has another stream
//! wait for it before a kernel of its own. So the model's log tells between which kernels the barrier of
//! an event ran, and its line when.

use crate::counters::{attach, files};
use crate::rocpd::reader;
use crate::samples::Client;
use midair_tests::Result;
use midair_tests::lab::{GpuModel, Lab, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::table::json;
use midair_tests::target::{PATIENCE, ask};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Start and end of a packet.
type Times = (u64, u64);

const RECORD: u64 = 1;
const WAIT: u64 = 2;

/// An event in the results.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct EventRecord {
    times: Times,
    operation: u64,
    event: u64,
    queue: u64,
    source: u64,
    correlation: u64,
    tid: u64,
    agent: u64,
    stream: u64,
}

fn file(out: &Path, name: &str) -> Result<std::path::PathBuf> {
    let mut all = files(out).into_iter();
    let found = all.find(|file| file.to_string_lossy().ends_with(name));
    found.ok_or_else(|| format!("no {name}").into())
}

fn number(row: &Value, name: &str) -> u64 {
    row.pointer(name).and_then(Value::as_u64).unwrap_or(0)
}

const EVENTS: &str = "SELECT name, start, \"end\", tid, stack_id,
    json_extract(extdata, '$.hip_event_handle') AS hip_event_handle, json_extract(extdata, '$.queue_id') AS queue_id,
    json_extract(extdata, '$.source_queue_id') AS source_queue_id, json_extract(extdata, '$.agent_id') AS agent_id,
    json_extract(extdata, '$.stream_id') AS stream_id
    FROM regions WHERE category = 'BARRIER'";
const REMARKS: &str =
    "SELECT start FROM regions WHERE category = 'BARRIER' AND extdata LIKE '%remark%'";
const KERNELS: &str = "SELECT COUNT(*) AS n FROM rocpd_kernel_dispatch";

/// The output of a session.
struct Session {
    events: Vec<EventRecord>,
    /// How many have times that are not the device's.
    remarks: usize,
    kernels: u64,
    notes: Vec<String>,
}

impl Session {
    /// Reads rocpd and json, which have the same.
    fn read(out: &Path) -> Result<Session> {
        let read = reader(&file(out, "results.db")?, &[EVENTS, REMARKS, KERNELS])?;
        assert_eq!(read["foreign_keys"], Value::Array(Vec::new()));
        let rows = |answer: usize| read["answers"][answer].as_array().into_iter().flatten();
        let told = |row: &Value| EventRecord {
            times: (number(row, "/start"), number(row, "/end")),
            operation: match row["name"].as_str() {
                Some("HIP_EVENT_RECORD") => RECORD,
                Some("HIP_EVENT_WAIT") => WAIT,
                _ => 0,
            },
            event: number(row, "/hip_event_handle"),
            queue: number(row, "/queue_id"),
            source: number(row, "/source_queue_id"),
            correlation: number(row, "/stack_id"),
            tid: number(row, "/tid"),
            agent: number(row, "/agent_id"),
            stream: number(row, "/stream_id"),
        };
        let mut events: Vec<EventRecord> = rows(0).map(told).collect();
        events.sort();

        let document = json(&file(out, "results.json")?)?;
        let tool = &document["rocprofiler-sdk-tool"][0];
        let records = tool["buffer_records"]["hip_event"].as_array();
        let mut others: Vec<EventRecord> = Vec::new();
        for record in records.into_iter().flatten() {
            let agent = number(record, "/agent_id/handle");
            let agents = tool["agents"].as_array().into_iter().flatten();
            let mut agents = agents.filter(|it| number(it, "/id/handle") == agent);
            others.push(EventRecord {
                times: (
                    number(record, "/start_timestamp"),
                    number(record, "/end_timestamp"),
                ),
                operation: number(record, "/operation"),
                event: number(record, "/hip_event_handle"),
                queue: number(record, "/queue_id/handle"),
                source: number(record, "/source_queue_id/handle"),
                correlation: number(record, "/correlation_id/internal"),
                tid: number(record, "/thread_id"),
                agent: agents.next().map_or(0, |it| number(it, "/node_id")),
                stream: number(record, "/stream_id/handle"),
            });
        }
        others.sort();
        assert_eq!(events, others, "rocpd and json");
        let notes = tool["metadata"]["midair"]["notes"].as_array();
        let notes = notes.into_iter().flatten();
        Ok(Session {
            events,
            remarks: rows(1).count(),
            kernels: rows(2).map(|row| number(row, "/n")).sum(),
            notes: notes
                .filter_map(|note| note.as_str().map(str::to_owned))
                .collect(),
        })
    }

    fn of(&self, operation: u64, event: u64) -> Vec<&EventRecord> {
        let all = self.events.iter();
        all.filter(|told| told.operation == operation && told.event == event)
            .collect()
    }

    /// Returns the number before this text in the notes; 0 where no note has it.
    fn noted(&self, text: &str) -> usize {
        let mut notes = self.notes.iter();
        let number = notes.find_map(|note| note.split_once(text)?.0.trim().parse().ok());
        number.unwrap_or(0)
    }

    fn count(&self, operation: u64) -> usize {
        let all = self.events.iter();
        all.filter(|told| told.operation == operation).count()
    }
}

/// What the program did.
struct Done {
    log: ModelLog,
    first: u64,
    second: u64,
    records: usize,
    waits: usize,
}

/// Ends the program.
fn quit(mut target: LabTarget) -> Result<Done> {
    target.send("quit")?;
    let line = target.expect("events")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let handle = |at: usize| u64::from_str_radix(words[at].trim_start_matches("0x"), 16);
    let (first, second) = (handle(1)?, handle(2)?);
    let (records, waits) = (words[4].parse()?, words[6].parse()?);
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    log.check()?;
    Ok(Done {
        log,
        first,
        second,
        records,
        waits,
    })
}

impl Done {
    /// The times of the barriers in the log that have a signal.
    fn barriers(&self) -> BTreeSet<Times> {
        let records = self.log.records.iter();
        let barriers = records.filter_map(|record| match &record.event {
            Event::Barrier { packet, .. } | Event::Vendor { packet, format: 2 } => Some(packet),
            _ => None,
        });
        barriers
            .filter(|packet| packet.signal != 0)
            .map(|packet| (packet.start, packet.end))
            .collect()
    }

    /// The times of the kernels with this grid, in their order.
    fn kernels(&self, grid: u32) -> Vec<Times> {
        let own = self.log.dispatches().filter(|it| it.grid[0] == grid);
        let mut own: Vec<Times> = own.map(|it| (it.packet.start, it.packet.end)).collect();
        own.sort_unstable();
        own
    }
}

const FORMATS: [&str; 4] = ["--output-format", "rocpd", "json", "pftrace"];
const ROUNDS: usize = 20;
/// Long enough that a thread is back before its kernel ends: HIP writes no barrier for a wait whose
/// event has completed.
const KERNEL_NS: u64 = 5_000_000;
/// The most waits that may have none all the same, on a busy machine.
const MOST_LATE: usize = 3;

/// Runs rounds, and what has no barrier, in a session with these words.
fn session(lab: &Lab, model: GpuModel, words: &[&str], kind: &[&str]) -> Result<(Session, Done)> {
    let mut program = lab.run(&lab.program("hip_events")?).on(model);
    program = program
        .env("MODEL_KERNEL_NS", KERNEL_NS)
        .arg(lab.kernels()?);
    for word in kind {
        program = program.arg(word);
    }
    let mut target = program.spawn()?;
    target.expect("ready")?;
    // The queues are in use before the session.
    ask(&mut target, "round 2")?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let words = [&FORMATS[..], words].concat();
    let mut attacher = attach(lab, &target, out.path(), &words)?.spawn()?;
    attacher.expect_error("attached to process")?;
    ask(&mut target, &format!("round {ROUNDS}"))?;
    ask(&mut target, "done")?;
    ask(&mut target, "again")?;
    ask(&mut target, "refused")?;
    ask(&mut target, "capture")?;
    ask(&mut target, "null")?;
    attacher.send("")?;
    attacher.target.wait(PATIENCE)?.success()?;
    let session = Session::read(out.path())?;
    // Nothing of midair's is left: the program works as before.
    ask(&mut target, "round 2")?;
    Ok((session, quit(target)?))
}

/// Every call is either reported, with the times of its barrier in the log, or counted as one without.
fn check(session: &Session, done: &Done) {
    let barriers = done.barriers();
    for told in &session.events {
        assert!(barriers.contains(&told.times), "not in the log: {told:?}");
        assert!(told.queue > 0 && told.agent > 0 && told.tid > 0, "{told:?}");
        assert!(told.correlation > 0, "{told:?}");
        if told.operation == RECORD {
            assert_eq!(told.source, told.queue, "{told:?}");
        }
    }
    // One was recorded in the null stream.
    let of_null = session.events.iter().filter(|told| told.stream == 0);
    assert!(of_null.count() <= 1);
    let ids: BTreeSet<u64> = session.events.iter().map(|told| told.correlation).collect();
    assert_eq!(ids.len(), session.events.len(), "an id twice");
    // Two rounds before the session and two behind it.
    let records = session.count(RECORD) + session.noted("records of HIP events are not");
    assert_eq!(records, done.records - 8, "{:?}", session.notes);
    let waits = session.count(WAIT) + session.noted("waits for HIP events are not");
    assert_eq!(waits, done.waits - 4, "{:?}", session.notes);
    let failed = session.noted("calls that record HIP events or wait for them failed");
    assert_eq!(failed, 1, "{:?}", session.notes);
}

#[test]
fn each_record_is_told_with_its_barrier() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (session, done) = session(&lab, GpuModel::Doorbell, &["--hip-event-trace"], &[])?;
    check(&session, &done);
    assert_eq!((session.remarks, session.kernels), (0, 0));
    // The barriers of each event lie between the kernels of its stream.
    for (event, grid, records) in [(done.first, 64, ROUNDS + 5), (done.second, 96, ROUNDS + 1)] {
        let kernels = done.kernels(grid);
        let told = session.of(RECORD, event);
        assert_eq!(told.len(), records, "{:?}", session.notes);
        for (round, told) in told.iter().take(ROUNDS).enumerate() {
            // The kernels of the two rounds before the session come first.
            let (this, next) = (kernels[round + 2], kernels[round + 3]);
            let is_between = this.1 <= told.times.0 && told.times.1 <= next.0;
            assert!(is_between, "{this:?} {told:?} {next:?}");
        }
    }
    // Streams wait for the null stream, and it for them: the barriers by which they do come before the
    // event's.
    let last = |event| *session.of(RECORD, event).last().unwrap();
    let (in_a, in_null) = (last(done.first), last(done.second));
    assert!(done.kernels(256)[0].1 <= in_a.times.0, "{in_a:?}");
    for grid in [128, 160] {
        assert!(done.kernels(grid)[0].1 <= in_null.times.0, "{in_null:?}");
    }
    let records = session.of(RECORD, done.first);
    let queues: BTreeSet<u64> = records.iter().map(|told| told.queue).collect();
    assert_eq!(queues.len(), 1);
    // Stream B waits before each of its kernels until the event was recorded in stream A.
    let waits = session.of(WAIT, done.first);
    assert!(waits.len() + MOST_LATE >= ROUNDS, "{:?}", session.notes);
    let followers = done.kernels(96);
    for told in &waits {
        assert_ne!(told.queue, told.source, "{told:?}");
        assert!(queues.contains(&told.source), "{told:?}");
        let before = |record: &&EventRecord| record.correlation < told.correlation;
        let round = records.iter().rposition(before).unwrap();
        let (record, next) = (records[round], followers[round + 2]);
        let is_between = record.times.1 <= told.times.1 && told.times.1 <= next.0;
        assert!(is_between, "{record:?} {told:?} {next:?}");
    }
    Ok(())
}

/// The records that the client `events` has counted, and how many it was without.
fn told_to(counts: &BTreeMap<String, u64>) -> Result<(Vec<EventRecord>, u64)> {
    let mut all = Vec::new();
    let others = ["dropped", "retired"];
    // A callback for each record, with the same facts.
    let of = |prefix: &str| -> Vec<&str> {
        let found = counts.keys().filter_map(|name| name.strip_prefix(prefix));
        found.collect()
    };
    assert_eq!(of("told "), of("event "));
    for name in counts
        .keys()
        .filter(|name| !others.contains(&name.as_str()) && !name.starts_with("told "))
    {
        let words = name.strip_prefix("event ").ok_or_else(|| name.clone())?;
        let numbers: Vec<u64> = words
            .split(' ')
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()?;
        let [
            operation,
            start,
            end,
            event,
            queue,
            source,
            correlation,
            tid,
            agent,
        ] = numbers[..]
        else {
            return Err(name.clone().into());
        };
        all.push(EventRecord {
            times: (start, end),
            operation,
            event,
            queue,
            source,
            correlation,
            tid,
            agent,
            stream: 0,
        });
    }
    all.sort();
    Ok((all, counts.get("dropped").copied().unwrap_or(0)))
}

/// A tool of another maker gets a record of each event, attached and launched.
#[test]
fn a_tool_gets_a_record_of_each_event() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "events")?;
    let program = || -> Result<_> {
        let program = lab.run(&lab.program("hip_events")?);
        Ok(program
            .env("MODEL_KERNEL_NS", KERNEL_NS)
            .arg(lab.kernels()?))
    };
    let work = |target: &mut LabTarget| -> Result<()> {
        for command in [
            &format!("round {ROUNDS}"),
            "again",
            "refused",
            "capture",
            "null",
        ] {
            ask(target, command)?;
        }
        Ok(())
    };
    // The graph's two records have no barrier.
    let check = |counts: &BTreeMap<String, u64>, done: &Done, first_round: usize| -> Result<()> {
        let (told, dropped) = told_to(counts)?;
        assert_eq!(dropped, 2, "{counts:?}");
        let retired = counts.get("retired").copied().unwrap_or(0);
        assert!(
            retired * 2 > told.len() as u64,
            "{retired} ids were retired"
        );
        let barriers = done.barriers();
        for told in &told {
            assert!(barriers.contains(&told.times), "not in the log: {told:?}");
            let is_whole = told.queue > 0 && told.agent > 0 && told.tid > 0;
            assert!(is_whole && told.correlation > 0, "{told:?}");
        }
        let of = |operation: u64, event: u64| -> Vec<&EventRecord> {
            let all = told.iter();
            all.filter(|told| told.operation == operation && told.event == event)
                .collect()
        };
        let (first, second) = (of(RECORD, done.first), of(RECORD, done.second));
        assert_eq!((first.len(), second.len()), (ROUNDS + 4, ROUNDS + 1));
        assert!(
            first
                .iter()
                .chain(&second)
                .all(|told| told.source == told.queue)
        );
        // Each lies between the kernels of its stream.
        for (records, grid) in [(&first, 64), (&second, 96)] {
            let kernels = done.kernels(grid);
            for (round, told) in records.iter().take(ROUNDS).enumerate() {
                let this = kernels[first_round + round];
                let next = kernels.get(first_round + round + 1);
                assert!(this.1 <= told.times.0, "{this:?} {told:?}");
                assert!(
                    next.is_none_or(|next| told.times.1 <= next.0),
                    "{told:?} {next:?}"
                );
            }
        }
        let waits = of(WAIT, done.first);
        assert!(waits.len() + MOST_LATE >= ROUNDS, "{}", waits.len());
        for told in waits {
            assert!(
                told.queue != told.source && told.source == first[0].queue,
                "{told:?}"
            );
            let before = |record: &&&EventRecord| record.correlation < told.correlation;
            let record = first
                .iter()
                .rev()
                .find(before)
                .ok_or("no record before it")?;
            assert!(record.times.1 <= told.times.1, "{record:?} {told:?}");
        }
        Ok(())
    };
    let mut target = program()?.spawn()?;
    target.expect("ready")?;
    ask(&mut target, "round 2")?;
    let counts = client.attached(target.target.pid(), || work(&mut target))?;
    check(&counts, &quit(target)?, 2)?;

    let mut target = client.launched(program()?.log_name("launched"))?.spawn()?;
    target.expect("ready")?;
    work(&mut target)?;
    let done = quit(target)?;
    check(&client.counted()?, &done, 0)
}

/// The same for events without times, and on a device that takes packets before their doorbell. What has
/// no barrier of its own is counted.
#[test]
fn events_without_times_and_on_an_eager_device() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for (model, kind) in [
        (GpuModel::Doorbell, &["untimed"][..]),
        (GpuModel::Eager(7), &[]),
    ] {
        let words = ["--hip-event-trace", "--kernel-trace"];
        let (session, done) = session(&lab, model, &words, kind)?;
        check(&session, &done);
        // Only the graph's have none, and the one whose event had been waited for. An eager device
        // may have passed a barrier before anybody could look at it.
        let told = (session.count(RECORD), session.count(WAIT));
        let all = (2 * ROUNDS + 6, ROUNDS);
        if matches!(model, GpuModel::Doorbell) {
            let are_all = told.0 == all.0 && told.1 + MOST_LATE >= all.1;
            assert!(are_all, "{told:?} {:?}", session.notes);
        } else {
            let are_most = told.0 > all.0 / 2 && told.1 > all.1 / 2;
            assert!(are_most, "{told:?} {:?}", session.notes);
        }
        assert_eq!(
            session.kernels,
            2 * ROUNDS as u64 + 3,
            "{:?}",
            session.notes
        );
    }
    Ok(())
}
