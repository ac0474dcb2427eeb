//! Windows of counters on AMD's runtimes, compared with what the model's log says of each packet:
//! the log alone tells which dispatches had windows, what ran alongside these, and what they counted.

use crate::counters::{attach, begin, files, program};
use midair_tests::Result;
use midair_tests::lab::{GpuModel, Lab, LabTarget};
use midair_tests::modellog::{Dispatch, Event, ModelLog, Packet};
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, ask, in_turn, until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Start and end of a dispatch, by which both sides know it.
type Times = (u64, u64);

/// A window, as the model's log has it.
#[derive(Debug)]
pub struct Window {
    started: Packet,
    /// None: there was another packet in it.
    dispatch: Option<Dispatch>,
    was_read: Packet,
}

impl Window {
    /// When it uses the device's counters. They start to count somewhere in the first packet, on one
    /// XCC after the other, and are read somewhere in the second.
    fn uses(&self) -> Times {
        (self.started.start, self.was_read.end)
    }
}

fn overlap(one: Times, other: Times) -> bool {
    one.0 < other.1 && other.0 < one.1
}

/// Windows of the log, in its order. Packets that read counters are midair's: HIP has none. A window
/// whose last packet has not ended yet is left out: the log of a running program tells of the read
/// before it tells of the packet.
pub fn windows(log: &ModelLog) -> Vec<Window> {
    let key = |packet: &Packet| (packet.ring, packet.index);
    let packets: BTreeMap<_, _> = log.packets().map(|packet| (key(packet), *packet)).collect();
    let dispatches: BTreeMap<_, _> = log.dispatches().map(|d| (key(&d.packet), *d)).collect();
    let mut windows = Vec::new();
    for record in &log.records {
        let Event::Pm4(commands) = &record.event else {
            continue;
        };
        if commands.reads == 0 {
            continue;
        }
        let (ring, last) = (commands.ring, commands.index);
        let Some(was_read) = packets.get(&(ring, last)) else {
            continue;
        };
        windows.push(Window {
            started: packets[&(ring, last - 2)],
            dispatch: dispatches.get(&(ring, last - 1)).copied(),
            was_read: *was_read,
        });
    }
    windows
}

/// Whether each window was shared: another dispatch ran while it counted, or another window used the
/// counters. Each is compared with each.
fn shared(windows: &[Window], log: &ModelLog) -> Vec<bool> {
    let all: Vec<Packet> = log.dispatches().map(|d| d.packet).collect();
    let is_shared = |window: &Window| {
        let own = window.dispatch.map(|d| (d.packet.ring, d.packet.index));
        let by_dispatch = all.iter().any(|other| {
            Some((other.ring, other.index)) != own
                && overlap(window.uses(), (other.start, other.end))
        });
        let by_window = windows
            .iter()
            .any(|other| !std::ptr::eq(other, window) && overlap(window.uses(), other.uses()));
        by_dispatch || by_window
    };
    windows.iter().map(is_shared).collect()
}

/// What the model's rules make of a counter of a dispatch that ran alone. None: the rules depend on
/// more than the dispatch.
fn expected(counter: &str, dispatch: &Dispatch, xccs: u64) -> Option<u64> {
    let groups = u64::from(dispatch.grid[0]) / u64::from(dispatch.workgroup[0]);
    let waves = groups * u64::from(dispatch.workgroup[0]).div_ceil(64);
    let f = |event: u64| 1 + event % 7;
    Some(match counter {
        "SQ_WAVES" => waves,
        "SQ_INSTS_VALU" => f(26) * waves,
        "SPI_CSN_WAVE" => waves,
        "SPI_CSN_NUM_THREADGROUPS" => groups,
        // 2.1 cycles a ns (the model's clock), cut to whole ones; GRBM is once in an XCC, and a kernel
        // keeps each of them busy.
        "GRBM_GUI_ACTIVE" => xccs * ((dispatch.packet.end - dispatch.packet.start) * 2100 / 1000),
        _ => return None,
    })
}

/// What a session brought.
pub struct Session {
    values: BTreeMap<Times, BTreeMap<String, u64>>,
    /// `metadata.midair.counters` of the json.
    windows: Value,
    pub said: String,
}

impl Session {
    fn read(dir: &Path, said: String) -> Result<Session> {
        let mut values: BTreeMap<Times, BTreeMap<String, u64>> = BTreeMap::new();
        let (mut windows, mut notes) = (Value::Null, String::new());
        for file in files(dir) {
            let name = file.to_string_lossy();
            if name.ends_with("counter_collection.csv") {
                for row in Csv::read(&file)?.rows {
                    let number = |column: &str| Csv::number(&row, column);
                    let times = (number("Start_Timestamp")?, number("End_Timestamp")?);
                    let value: f64 = row["Counter_Value"].parse()?;
                    let of = values.entry(times).or_default();
                    let before = of.insert(row["Counter_Name"].clone(), value as u64);
                    assert_eq!(before, None, "twice: {row:?}");
                }
            } else if name.ends_with("results.json") {
                let path = "/rocprofiler-sdk-tool/0/metadata/midair/counters";
                windows = json(&file)?.pointer(path).cloned().unwrap_or_default();
            } else if name.ends_with("notes.txt") {
                notes = std::fs::read_to_string(&file)?;
            }
        }
        Ok(Session {
            values,
            windows,
            said: format!("{said}\n{notes}"),
        })
    }

    pub fn count(&self, what: &str) -> u64 {
        self.windows[what].as_u64().unwrap_or(0)
    }

    /// The verdicts are the log's, and so is each value. Returns how many windows were alone and how
    /// many were shared.
    pub fn check(&self, log: &ModelLog, xccs: u64) -> (usize, usize) {
        let windows = windows(log);
        let shared = shared(&windows, log);
        let (mut alone, mut beside, mut empty) = (BTreeMap::new(), BTreeSet::new(), 0);
        for (window, shared) in windows.iter().zip(shared) {
            let Some(dispatch) = window.dispatch else {
                empty += 1;
                continue;
            };
            let times = (dispatch.packet.start, dispatch.packet.end);
            if shared {
                beside.insert(times);
            } else {
                alone.insert(times, dispatch);
            }
        }
        for (times, values) in &self.values {
            assert!(
                !beside.contains(times),
                "the log shows that {times:?} was shared"
            );
            assert!(
                alone.contains_key(times),
                "the log has no window of {times:?}"
            );
            let dispatch = &alone[times];
            for (counter, value) in values {
                if let Some(expected) = expected(counter, dispatch, xccs) {
                    assert_eq!(*value, expected, "{counter} of {dispatch:?}");
                }
            }
        }
        for times in alone.keys() {
            let has_values = self.values.contains_key(times);
            assert!(
                has_values,
                "{times:?} ran alone: {}\n{}",
                self.windows, self.said
            );
        }
        let told =
            ["windows", "alone", "shared", "without_a_dispatch"].map(|what| self.count(what));
        let logged = [windows.len(), alone.len(), beside.len(), empty].map(|count| count as u64);
        assert_eq!(told, logged, "{}\n{}", self.windows, self.said);
        (alone.len(), beside.len())
    }
}

/// A `midair attach` in the lab that stays until it is asked to end.
pub struct Attached {
    pub attacher: LabTarget,
    pub out: tempfile::TempDir,
}

impl Attached {
    pub fn to(lab: &Lab, target: &LabTarget, words: &[&str]) -> Result<Attached> {
        let out = tempfile::tempdir_in(lab.scratch())?;
        let mut all = vec!["--output-format", "csv,json"];
        all.extend(["--max-overhead", "100"]);
        all.extend(words);
        let mut attacher = attach(lab, target, out.path(), &all)?.spawn()?;
        attacher.expect_error("attached to process")?;
        Ok(Attached { attacher, out })
    }

    /// The process has ended, and the session with it: nothing was lost.
    pub fn ended(self) -> Result<Session> {
        let exit = self.attacher.target.wait(PATIENCE)?;
        let said = exit.to_string();
        exit.success()?;
        Session::read(self.out.path(), said)
    }

    /// Ends the session: nothing was lost, the books balance (the exit code says so).
    pub fn detach(self) -> Result<Session> {
        self.detach_as(0)
    }

    /// Ends the session, whose exit code is `code`.
    pub fn detach_as(mut self, code: i32) -> Result<Session> {
        self.attacher.send("")?;
        let exit = self.attacher.target.wait(PATIENCE)?;
        let said = exit.to_string();
        if exit.status.code() != Some(code) {
            return Err(format!("not {code}: {said}").into());
        }
        Session::read(self.out.path(), said)
    }

    /// The same where the device holds midair's work for longer than a detach waits.
    fn leave(mut self) -> Result<()> {
        self.attacher.send("")?;
        self.attacher.target.wait(PATIENCE)?;
        Ok(())
    }

    fn kill(self) -> Result<()> {
        self.attacher.target.signal(libc::SIGKILL)?;
        self.attacher.target.wait(PATIENCE)?;
        Ok(())
    }
}

pub fn quit(mut target: LabTarget) -> Result<ModelLog> {
    target.send("quit")?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?;
    let done = exit.stdout.last().is_some_and(|line| line == "done");
    if !done || !(exit.status.success() || exit.is_abort_of_amds_model()) {
        return Err(exit.to_string().into());
    }
    let log = ModelLog::read(&log)?;
    log.check()?;
    Ok(log)
}

/// More than one group holds, so that they are multiplexed.
const GROUPS: [&str; 6] = [
    "--pmc",
    "SQ_WAVES,GRBM_GUI_ACTIVE",
    "--pmc",
    "SQ_INSTS_VALU,SPI_CSN_WAVE",
    "--pmc",
    "SPI_CSN_NUM_THREADGROUPS,SQ_BUSY_CYCLES",
];

/// A thousand dispatches over four streams, with multiplexed groups.
#[test]
fn of_a_thousand_dispatches_over_four_streams() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = program(&lab, 4)?.spawn()?;
    target.expect("ready")?;
    target.send("pause 400")?;
    target.expect("pause")?;
    // Every queue has been used, so it is known from the start on.
    ask(&mut target, "rounds 2")?;
    let before = target.model_log()?.dispatches().count();
    let attached = Attached::to(&lab, &target, &GROUPS)?;
    ask(&mut target, "rounds 125")?;
    let session = attached.detach()?;
    let log = quit(target)?;
    assert_eq!(session.count("dispatches"), 1000, "{}", session.said);
    assert_eq!(log.dispatches().count() - before, 1000);
    let (alone, shared) = session.check(&log, 1);
    eprintln!("{alone} windows alone, {shared} shared");
    assert!(alone > 20 && shared > 20, "{}", session.windows);
    // Each group had its turns, and no window counted two.
    let names: BTreeSet<Vec<&String>> = session
        .values
        .values()
        .map(|v| v.keys().collect())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    Ok(())
}

/// The program without HIP whose queue holds this many packets.
pub fn raw(lab: &Lab, size: u32, model: GpuModel) -> Result<LabTarget> {
    let program = lab.run(&lab.program("windows")?).arg(lab.kernels()?);
    let mut target = program
        .arg(size)
        .register(false)
        .on(model)
        .log_name(&format!("{model:?}"))
        .env("MODEL_KERNEL_NS", 2_000)
        .spawn()?;
    target.expect("ready")?;
    Ok(target)
}

/// Launches one kernel after the other until one has a window: the worker thread has met the queue
/// then. Returns how many were launched; the last one alone had a window.
pub fn until_known(target: &mut LabTarget) -> Result<u64> {
    let (before, mut launched) = (windows(&target.model_log()?).len(), 0);
    until("a window on the queue", || {
        ask(target, "burst 1 1")?;
        launched += 1;
        Ok(windows(&target.model_log()?).len() > before)
    })?;
    Ok(launched)
}

pub const WAVES: [&str; 2] = ["--pmc", "SQ_WAVES,GRBM_GUI_ACTIVE"];

/// The ring is full most of the time, and goes round dozens of times.
#[test]
fn of_a_ring_of_64_packets_and_two_producers() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for model in [GpuModel::Doorbell, GpuModel::Eager(5)] {
        let mut target = raw(&lab, 64, model)?;
        ask(&mut target, "burst 16 1")?;
        let attached = Attached::to(&lab, &target, &WAVES)?;
        // The worker thread has met the queue before the second burst.
        ask(&mut target, "burst 100 1")?;
        ask(&mut target, "burst 1500 2")?;
        let session = attached.detach()?;
        let log = quit(target)?;
        assert_eq!(session.count("dispatches"), 3100, "{}", session.said);
        let (alone, shared) = session.check(&log, 1);
        assert!(alone > 100, "{}", session.said);
        assert_eq!(shared, 0, "one queue");
        let last = log.packets().map(|packet| packet.index).max();
        assert!(last > Some(50 * 64), "{last:?}");
        assert!(
            !session.said.contains(" 0 since the ring"),
            "{}",
            session.said
        );
    }
    Ok(())
}

/// What takes two packets at a time has one window for both.
#[test]
fn of_packets_that_are_reserved_together() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = raw(&lab, 256, GpuModel::Doorbell)?;
    ask(&mut target, "burst 16 1")?;
    let attached = Attached::to(&lab, &target, &WAVES)?;
    // By these the queue is known, and that the program looks at the room in it. What follows needs
    // no more windows than are ready at the start, whatever the worker thread does meanwhile.
    let first = until_known(&mut target)?;
    ask(&mut target, "many 40")?;
    let session = attached.detach()?;
    quit(target)?;
    assert_eq!(session.count("dispatches"), first + 40, "{}", session.said);
    assert_eq!(session.count("batches"), 20, "{}", session.said);
    Ok(())
}

/// Producers that know their index before they ask have no windows, and a note says so.
#[test]
fn of_other_ways_to_reserve() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = raw(&lab, 256, GpuModel::Doorbell)?;
    ask(&mut target, "burst 16 1")?;
    let attached = Attached::to(&lab, &target, &WAVES)?;
    let first = until_known(&mut target)?;
    ask(&mut target, "burst 100 1")?;
    for how in ["cas 40", "store 40"] {
        ask(&mut target, how)?;
    }
    let session = attached.detach()?;
    let log = quit(target)?;
    assert_eq!(session.count("dispatches"), first + 180, "{}", session.said);
    session.check(&log, 1);
    assert!(!session.values.is_empty(), "{}", session.said);
    assert!(
        session
            .said
            .contains("80 reservations had no window, since"),
        "{}",
        session.said
    );
    for window in windows(&log) {
        let grid = window.dispatch.map(|dispatch| dispatch.grid[0]);
        assert_eq!(grid, Some(64), "{window:?}");
    }
    Ok(())
}

/// How a session ends in the middle of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Detach,
    Kill,
}

/// The steps of one launch; the session ends before each of them. The barrier at the front holds the
/// device until "open", so nothing of midair's has started before that.
const STEPS: [&str; 6] = ["bar", "take", "fill", "ring", "open", "end"];

fn ends_at_each_step(how: End) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = raw(&lab, 64, GpuModel::Doorbell)?;
    ask(&mut target, "burst 16 1")?;
    let mut rounds = 0;
    for at in 0..=STEPS.len() {
        let attached = again(&lab, &target)?;
        // Until the queue is known there are no windows.
        ask(&mut target, "burst 64 1")?;
        let (before, behind) = STEPS.split_at(at);
        for step in before {
            ask(&mut target, step)?;
        }
        match how {
            End::Detach => attached.leave()?,
            End::Kill => attached.kill()?,
        }
        // The program does not notice: its kernel runs, and so do those behind it.
        for step in behind {
            ask(&mut target, step)?;
        }
        ask(&mut target, "burst 64 1")?;
        rounds += 1;
    }
    // A whole session counts as if there had been none before.
    let attached = again(&lab, &target)?;
    let first = until_known(&mut target)?;
    ask(&mut target, "burst 64 1")?;
    let session = attached.detach()?;
    let log = quit(target)?;
    for (times, values) in &session.values {
        let mut all = log.dispatches();
        let found = all.find(|d| (d.packet.start, d.packet.end) == *times);
        let dispatch = found.ok_or("a dispatch of the log")?;
        for (counter, value) in values {
            if let Some(expected) = expected(counter, dispatch, 1) {
                assert_eq!(*value, expected, "{counter}");
            }
        }
    }
    assert!(!session.values.is_empty(), "{}", session.said);
    let all = 16 + rounds * (64 + 1 + 64) + first + 64;
    assert_eq!(log.dispatches().count() as u64, all);
    Ok(())
}

/// Attaches as soon as the target lets: the lease of an attacher that was killed runs out first.
fn again(lab: &Lab, target: &LabTarget) -> Result<Attached> {
    in_turn(|| Attached::to(lab, target, &WAVES))
}

#[test]
fn a_detach_at_each_step_of_a_launch_is_not_noticed() -> Result<()> {
    ends_at_each_step(End::Detach)
}

#[test]
fn an_attacher_killed_at_each_step_of_a_launch_is_not_noticed() -> Result<()> {
    ends_at_each_step(End::Kill)
}

/// As on the first device, XCC by XCC: what the last two count is in the sums.
#[test]
fn of_eight_xccs_verdicts_and_sums_are_the_logs() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = begin(program(&lab, 2)?.gpu("8,32,304,1"))?;
    ask(&mut target, "stop")?;
    target.send("pause 400")?;
    target.expect("pause")?;
    let attached = Attached::to(&lab, &target, &WAVES)?;
    ask(&mut target, "rounds 50")?;
    let session = attached.detach()?;
    let log = quit(target)?;
    assert_eq!(session.count("dispatches"), 200, "{}", session.said);
    let (alone, _) = session.check(&log, 8);
    assert!(alone > 0, "{}", session.windows);
    let of_last = log.records.iter().any(|record| {
        matches!(&record.event, Event::Register(register) if !register.write && register.xcc == 7)
    });
    assert!(of_last, "nothing was read of the last XCC");
    Ok(())
}
