//! Hardware counters of HIP's graphs, whose kernels HIP launches several at once: compared with the
//! rules of the model that counts (`sim/gpu-model/src/pmu/rules.rs`) and with its log.

use crate::counters::{attach, begin, end, files, had_windows};
use midair_tests::Result;
use midair_tests::lab::{GpuModel, Lab, LabCommand, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, in_turn};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

type Row = BTreeMap<String, String>;

/// A dispatch as `kernel_trace.csv` has it.
#[derive(Debug, Clone, Copy)]
struct Dispatch {
    waves: u64,
    start: u64,
    end: u64,
}

/// Values of one dispatch, or of several together.
#[derive(Debug, Default)]
struct Counted {
    dispatches: Vec<u64>,
    values: BTreeMap<String, u64>,
}

/// What one session has brought.
#[derive(Debug, Default)]
struct Session {
    dispatches: BTreeMap<u64, Dispatch>,
    /// By dispatch.
    kernels: BTreeMap<u64, Counted>,
    /// By number.
    batches: BTreeMap<u64, Counted>,
    said: String,
}

const GROUPS: [&str; 6] = [
    "--max-overhead",
    "100",
    "--pmc",
    "SQ_WAVES,SPI_CSN_WAVE",
    "--pmc",
    "SQ_INSTS_VALU,GRBM_COUNT",
];

/// "3-7 9" is 3, 4, 5, 6, 7 and 9.
fn numbers(ranges: &str) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    for range in ranges.split(' ') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        all.extend(first.parse::<u64>()?..=last.parse()?);
    }
    Ok(all)
}

impl Session {
    /// Attaches `midair` in the lab for so long.
    fn of(lab: &Lab, target: &LabTarget, duration: &str, words: &[&str]) -> Result<Session> {
        let out = tempfile::tempdir_in(lab.scratch())?;
        let mut all = vec!["--duration", duration, "--output-format", "csv"];
        all.extend(["--kernel-trace"]);
        all.extend(words);
        let attacher = attach(lab, target, out.path(), &all)?.spawn()?;
        let exit = attacher.target.wait(PATIENCE)?;
        let mut session = Session {
            said: exit.to_string(),
            ..Session::default()
        };
        exit.success()?;
        for file in files(out.path()) {
            let name = file.to_string_lossy().into_owned();
            if name.ends_with("notes.txt") {
                session.said += &std::fs::read_to_string(&file)?;
            } else if name.ends_with("csv") {
                for row in Csv::read(&file)?.rows {
                    session.row(&name, &row)?;
                }
            }
        }
        Ok(session)
    }

    fn row(&mut self, file: &str, row: &Row) -> Result<()> {
        let number = |column: &str| Csv::number(row, column);
        if file.ends_with("kernel_trace.csv") {
            let size = |of: &str| {
                ["X", "Y", "Z"].iter().try_fold(1, |all, axis| {
                    Ok::<u64, midair_tests::Error>(all * number(&format!("{of}_{axis}"))?)
                })
            };
            let (grid, workgroup) = (size("Grid_Size")?, size("Workgroup_Size")?);
            let dispatch = Dispatch {
                waves: grid / workgroup * workgroup.div_ceil(64),
                start: number("Start_Timestamp")?,
                end: number("End_Timestamp")?,
            };
            self.dispatches.insert(number("Dispatch_Id")?, dispatch);
            return Ok(());
        }
        let counted = if file.ends_with("counter_collection.csv") {
            let id = number("Dispatch_Id")?;
            let counted = self.kernels.entry(id).or_default();
            counted.dispatches = vec![id];
            counted
        } else if file.ends_with("counter_batches.csv") {
            let counted = self.batches.entry(number("Batch_Id")?).or_default();
            counted.dispatches = numbers(&row["Dispatch_Ids"])?;
            assert_eq!(counted.dispatches.len() as u64, number("Dispatches")?);
            counted
        } else {
            return Ok(());
        };
        let value: f64 = row["Counter_Value"].parse()?;
        let name = row["Counter_Name"].clone();
        assert_eq!(counted.values.insert(name, value as u64), None, "twice");
        Ok(())
    }

    /// All values follow the rules, summed over the dispatches that they are said to be of.
    fn check(&self) {
        for counted in self.kernels.values().chain(self.batches.values()) {
            let of = |id: &u64| self.dispatches[id].waves;
            let waves: u64 = counted.dispatches.iter().map(of).sum();
            for (counter, value) in &counted.values {
                let expected = match counter.as_str() {
                    "SQ_WAVES" | "SPI_CSN_WAVE" => waves,
                    "SQ_INSTS_VALU" => (1 + 26 % 7) * waves,
                    _ => continue,
                };
                assert_eq!(*value, expected, "{counter} of {counted:?}\n{}", self.said);
            }
        }
        // No dispatch is in two of them.
        let mut all = BTreeSet::new();
        for counted in self.kernels.values().chain(self.batches.values()) {
            for id in &counted.dispatches {
                assert!(all.insert(*id), "dispatch {id} twice\n{}", self.said);
            }
        }
        assert!(
            !self.said.contains("packet counts of queue"),
            "{}",
            self.said
        );
        let losses = self.said.replace(", none lost", "");
        assert!(!losses.contains("lost"), "{}", self.said);
    }

    /// How many dispatches the batches have, each once.
    fn sizes(&self) -> BTreeSet<usize> {
        let batches = self.batches.values();
        batches.map(|batch| batch.dispatches.len()).collect()
    }
}

fn graphs(lab: &Lab, threads: u32, nodes: u32) -> Result<LabCommand<'_>> {
    let program = lab.run(&lab.program("graphs")?);
    // Kernels of 5 us.
    let program = program.env("MODEL_KERNEL_NS", 5_000);
    Ok(program.arg(lab.kernels()?).arg(threads).arg(nodes))
}

/// The program's own counts equal the log's: it was not harmed.
fn unharmed(target: LabTarget) -> Result<ModelLog> {
    end(target)
}

/// HIP reserves 1, 2, 4, 8 and 16 packets for the first nodes of a long graph, and then all others.
#[test]
fn a_batch_of_a_graph_counts_what_its_kernels_count_together() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for nodes in [1, 3, 100] {
        let target = begin(graphs(&lab, 1, nodes)?)?;
        let session = Session::of(&lab, &target, "1500ms", &GROUPS)?;
        session.check();
        let sizes = session.sizes();
        if nodes == 1 {
            assert!(session.kernels.len() > 3, "{}", session.said);
        }
        assert_eq!(sizes.is_empty(), nodes == 1, "{sizes:?}\n{}", session.said);
        let most = sizes.last().copied().unwrap_or(0);
        assert!(most <= nodes as usize, "{sizes:?}");
        assert!(nodes < 100 || most > 16, "{sizes:?}\n{}", session.said);
        let log = unharmed(target)?;
        let logged: BTreeSet<(u64, u64)> = log
            .dispatches()
            .map(|dispatch| (dispatch.packet.start, dispatch.packet.end))
            .collect();
        for counted in session.batches.values() {
            for id in &counted.dispatches {
                let Dispatch { start, end, .. } = session.dispatches[id];
                assert!(logged.contains(&(start, end)), "dispatch {id}");
            }
        }
    }
    Ok(())
}

/// Kernels of another stream run during a batch, or do not: only those that had the device for
/// themselves have values.
#[test]
fn a_batch_that_another_stream_overlaps_is_shared() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = begin(graphs(&lab, 3, 20)?)?;
    target.send("pause 3000")?;
    let session = Session::of(&lab, &target, "1500ms", &GROUPS)?;
    session.check();
    let log = unharmed(target)?;
    assert!(session.said.contains("were shared"), "{}", session.said);
    for counted in session.batches.values() {
        let times = counted.dispatches.iter().map(|id| session.dispatches[id]);
        let start = times.clone().map(|d| d.start).min().ok_or("no dispatch")?;
        let last = times.map(|d| d.end).max().ok_or("no dispatch")?;
        let beside = log.dispatches().filter(|other| {
            let other = &other.packet;
            other.start < last && start < other.end
        });
        assert_eq!(
            beside.count(),
            counted.dispatches.len(),
            "others ran beside {counted:?}"
        );
    }
    Ok(())
}

/// A graph with more packets than half of the ring: that batch has no window, and the program goes on.
#[test]
fn a_graph_that_is_larger_than_the_room_in_the_ring() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let program = graphs(&lab, 2, 100)?.env("ROC_AQL_QUEUE_SIZE", 128);
    let target = begin(program)?;
    let session = Session::of(&lab, &target, "1s", &GROUPS)?;
    session.check();
    let sizes = session.sizes();
    assert!(sizes.iter().all(|size| *size <= 62), "{sizes:?}");
    assert!(
        session
            .said
            .contains("since the ring was more than half full")
    );
    assert!(
        !session.said.contains(" 0 since the ring"),
        "{}",
        session.said
    );
    assert!(had_windows(&unharmed(target)?));
    Ok(())
}

#[test]
fn graphs_on_a_device_that_takes_packets_early() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for seed in 1..=2 {
        let target = begin(graphs(&lab, 6, 20)?.on(GpuModel::Eager(seed)))?;
        let session = Session::of(&lab, &target, "700ms", &GROUPS)?;
        session.check();
        assert!(had_windows(&unharmed(target)?), "{}", session.said);
    }
    Ok(())
}

/// Sessions that end in the middle of a graph, by themselves and by force.
#[test]
fn graphs_go_on_when_the_attacher_goes() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = begin(graphs(&lab, 2, 100)?)?;
    target.send(BUSY)?;
    for _ in 0..5 {
        Session::of(&lab, &target, "20ms", &GROUPS)?.check();
    }
    killed(&lab, &mut target, &GROUPS, 0..=1)?;
    assert!(had_windows(&unharmed(target)?));
    Ok(())
}

/// The queue has work all the time with this pause, too. Without any, a test mostly reads the log of
/// what is launched while leases run out.
const BUSY: &str = "pause 300";

/// Kills attachers; a session that follows counts as if there had been none. Each round takes a lease's
/// time: round 0 with a program that launches all that it can meanwhile, round 1 with one that pauses.
fn killed(
    lab: &Lab,
    target: &mut LabTarget,
    words: &[&str],
    rounds: RangeInclusive<u32>,
) -> Result<()> {
    for round in rounds {
        let out = tempfile::tempdir_in(lab.scratch())?;
        let mut attacher = attach(lab, target, out.path(), words)?.spawn()?;
        attacher.expect_error("attached to process")?;
        attacher.target.signal(libc::SIGKILL)?;
        attacher.target.wait(PATIENCE)?;
        // An attach is refused until the lease of the killed attacher has run out.
        if round > 0 {
            target.send("pause 5000")?;
        }
        in_turn(|| Session::of(lab, target, "200ms", words))?.check();
        target.send(BUSY)?;
    }
    Ok(())
}

const ONE_BY_ONE: [&str; 7] = [
    GROUPS[0],
    GROUPS[1],
    GROUPS[2],
    GROUPS[3],
    GROUPS[4],
    GROUPS[5],
    "--pmc-graph-kernels",
];

#[test]
fn kernels_of_a_graph_are_counted_one_by_one_where_that_is_asked_for() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for (nodes, threads) in [(3, 1), (20, 3), (100, 1)] {
        let target = begin(graphs(&lab, threads, nodes)?)?;
        let session = Session::of(&lab, &target, "1500ms", &ONE_BY_ONE)?;
        session.check();
        assert!(
            session.said.contains("were counted one by one"),
            "{}",
            session.said
        );
        // More of them than a graph has first kernels.
        assert!(session.kernels.len() > 10, "{nodes}: {}", session.said);
        unharmed(target)?;
    }
    Ok(())
}

/// The same with `--exclusive`: kernels of a graph have one turn together, from the ring on.
#[test]
fn kernels_of_graphs_have_the_device_for_themselves_where_that_is_asked_for() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = begin(graphs(&lab, 3, 3)?)?;
    target.send("pause 3000")?;
    let words = [&ONE_BY_ONE[..], &["--exclusive"]].concat();
    let session = Session::of(&lab, &target, "1500ms", &words)?;
    session.check();
    let log = unharmed(target)?;
    assert!(session.kernels.len() > 10, "{}", session.said);
    for counted in session.kernels.values() {
        let of = session.dispatches[&counted.dispatches[0]];
        let beside = log.dispatches().filter(|other| {
            let other = &other.packet;
            other.start < of.end && of.start < other.end
        });
        assert_eq!(beside.count(), 1, "others ran beside {counted:?}");
    }
    Ok(())
}

#[test]
fn graphs_one_by_one_go_on_when_the_attacher_goes() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for (model, round) in [(GpuModel::Doorbell, 0), (GpuModel::Eager(4), 1)] {
        let mut target = begin(graphs(&lab, 4, 20)?.on(model))?;
        target.send(BUSY)?;
        for _ in 0..3 {
            Session::of(&lab, &target, "20ms", &ONE_BY_ONE)?.check();
        }
        killed(&lab, &mut target, &ONE_BY_ONE, round..=round)?;
        assert!(had_windows(&unharmed(target)?));
    }
    Ok(())
}

/// A program that reserves packets and rings much later, and one whose second packet is written when
/// the first has run: both would stand still for ever if the device waited until all is rung.
#[test]
fn a_launch_that_is_rung_late_is_let_go_and_counted_as_such() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for command in ["batch 20 120000", "each 20"] {
        let program = lab.run(&lab.program("batches")?).arg(lab.kernels()?);
        let mut target = program.env("MODEL_KERNEL_NS", 5_000).spawn()?;
        target.expect("ready")?;
        let out = tempfile::tempdir_in(lab.scratch())?;
        let words = [
            &ONE_BY_ONE[..],
            &["--output-format", "json,csv", "--kernel-trace"],
        ]
        .concat();
        let mut attacher = attach(&lab, &target, out.path(), &words)?.spawn()?;
        attacher.expect_error("attached to process")?;
        for prepared in ["batch 1500 0", command] {
            target.send(prepared)?;
            target.expect(prepared.split(' ').next().ok_or("a word")?)?;
        }
        attacher.target.signal(libc::SIGINT)?;
        let exit = attacher.target.wait(PATIENCE)?;
        let said = exit.to_string();
        exit.success()?;
        let mut session = Session::default();
        let mut told = serde_json::Value::Null;
        for file in files(out.path()) {
            let name = file.to_string_lossy().into_owned();
            if name.ends_with("csv") {
                for row in Csv::read(&file)?.rows {
                    session.row(&name, &row)?;
                }
            } else if name.ends_with("results.json") {
                let all = midair_tests::table::json(&file)?;
                told = all["rocprofiler-sdk-tool"][0]["metadata"]["midair"]["counters"].clone();
            }
        }
        session.check();
        assert!(told["not_rung_in_time"].as_u64() > Some(0), "{told} {said}");
        assert!(told["alone"].as_u64() > Some(0), "{told} {said}");
        assert_eq!(told["contradictory"], 0, "{told}");
        target.send("quit")?;
        target.expect("launched")?;
        let log = target.log.clone();
        target.target.wait(PATIENCE)?.success()?;
        ModelLog::read(&log)?.check()?;
    }
    Ok(())
}
