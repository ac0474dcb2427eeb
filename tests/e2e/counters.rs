//! Hardware counters of processes that already run, compared with the rules of the model that counts
//! (`sim/gpu-model/src/pmu/rules.rs`) and with its log.

use midair_tests::Result;
use midair_tests::lab::{GpuModel, Lab, LabCommand, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, in_turn};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A dispatch with counters in the results.
#[derive(Debug, Default)]
pub struct Counted {
    grid: u64,
    workgroup: u64,
    pub start: u64,
    pub end: u64,
    pub values: BTreeMap<String, u64>,
}

impl Counted {
    fn waves(&self) -> u64 {
        self.grid / self.workgroup * self.workgroup.div_ceil(64)
    }

    /// Returns the value of a counter by the model's rules, or none where it depends on times.
    fn expected(&self, counter: &str) -> Option<u64> {
        Some(match counter {
            "SQ_WAVES" => self.waves(),
            "SQ_INSTS_VALU" => (1 + 26 % 7) * self.waves(),
            "SPI_CSN_WAVE" => self.waves(),
            _ => return None,
        })
    }
}

/// What one session has recorded and printed.
pub struct Session {
    pub counted: BTreeMap<u64, Counted>,
    pub said: String,
}

impl Session {
    /// Attaches `midair` for this long in the lab, where AMD's packet library is.
    fn of(lab: &Lab, target: &LabTarget, duration: &str, words: &[&str]) -> Result<Session> {
        let out = tempfile::tempdir_in(lab.scratch())?;
        let mut all = vec!["--duration", duration, "--output-format", "csv"];
        all.extend(words);
        let attacher = attach(lab, target, out.path(), &all)?.spawn()?;
        let exit = attacher.target.wait(PATIENCE)?;
        let said = exit.to_string();
        exit.success()?;
        Session::read(out.path(), said)
    }

    /// Reads what is below the directory of a session that has printed this.
    pub fn read(out: &Path, said: String) -> Result<Session> {
        let mut counted: BTreeMap<u64, Counted> = BTreeMap::new();
        for file in files(out) {
            if !file.to_string_lossy().ends_with("counter_collection.csv") {
                continue;
            }
            for row in Csv::read(&file)?.rows {
                let number = |column: &str| Csv::number(&row, column);
                let dispatch = counted.entry(number("Dispatch_Id")?).or_default();
                dispatch.grid = number("Grid_Size")?;
                dispatch.workgroup = number("Workgroup_Size")?;
                dispatch.start = number("Start_Timestamp")?;
                dispatch.end = number("End_Timestamp")?;
                let value: f64 = row["Counter_Value"].parse()?;
                let before = dispatch
                    .values
                    .insert(row["Counter_Name"].clone(), value as u64);
                assert_eq!(before, None, "twice: {row:?}");
            }
        }
        Ok(Session { counted, said })
    }

    /// Checks that all values follow the rules.
    pub fn check(&self) {
        for (id, dispatch) in &self.counted {
            for (counter, value) in &dispatch.values {
                if let Some(expected) = dispatch.expected(counter) {
                    assert_eq!(*value, expected, "{counter} of dispatch {id}: {dispatch:?}");
                }
            }
        }
    }
}

/// Returns whether there were windows, whatever became of their values. HIP itself reads no
/// counters, so each reading is ours.
pub fn had_windows(log: &ModelLog) -> bool {
    let mut events = log.records.iter().map(|record| &record.event);
    events.any(|event| matches!(event, Event::Register(register) if !register.write))
}

/// Prepares `midair attach` in the lab.
pub fn attach<'a>(
    lab: &'a Lab,
    target: &LabTarget,
    out: &Path,
    words: &[&str],
) -> Result<LabCommand<'a>> {
    let program = format!("{}/bin/midair", lab.stage()?);
    let mut command = lab.run(&program).log_name("none").register(false);
    for word in ["attach", "-d", &lab.inside(out)?].iter().chain(words) {
        command = command.arg(word);
    }
    Ok(command.arg(target.target.pid()))
}

/// Returns all files below a directory.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all
}

fn streams(lab: &Lab, threads: u32) -> Result<LabTarget> {
    begin(program(lab, threads)?)
}

/// Prepares a program with this many streams.
pub fn program(lab: &Lab, threads: u32) -> Result<LabCommand<'_>> {
    let program = lab.run(&lab.program("streams")?);
    Ok(program.arg(lab.kernels()?).arg(threads))
}

/// Starts a program and makes it launch.
pub fn begin(program: LabCommand<'_>) -> Result<LabTarget> {
    let mut target = program.spawn()?;
    target.expect("ready")?;
    target.send("start")?;
    target.expect("start")?;
    Ok(target)
}

/// Ends a program that was launching, and checks its log.
pub fn end(mut target: LabTarget) -> Result<ModelLog> {
    target.send("quit")?;
    target.expect("total")?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    log.check()?;
    Ok(log)
}

#[test]
fn of_one_stream_every_window_is_exact() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = streams(&lab, 1)?;
    let words = [
        "--max-overhead",
        "100",
        "--pmc",
        "SQ_WAVES,GRBM_COUNT",
        "--pmc",
        "SQ_INSTS_VALU,SPI_CSN_WAVE",
    ];
    let session = Session::of(&lab, &target, "1s", &words)?;
    session.check();
    let log = end(target)?;
    let with = |counter: &str| {
        let counted = session.counted.values();
        counted.filter(|d| d.values.contains_key(counter)).count()
    };
    let (first, second) = (with("SQ_WAVES"), with("SQ_INSTS_VALU"));
    assert!(
        first > 20 && second > 20,
        "{first} and {second}\n{}",
        session.said
    );
    assert_eq!(first + second, session.counted.len(), "one group each");
    // The log has these dispatches, as their times show.
    let logged: BTreeSet<(u64, u64)> = log
        .dispatches()
        .map(|dispatch| (dispatch.packet.start, dispatch.packet.end))
        .collect();
    for dispatch in session.counted.values() {
        assert!(
            logged.contains(&(dispatch.start, dispatch.end)),
            "{dispatch:?}"
        );
    }
    Ok(())
}

#[test]
fn of_several_streams_what_ran_alone_is_exact() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = streams(&lab, 4)?;
    target.send("pause 2000")?;
    let words = ["--max-overhead", "100", "--pmc", "SQ_WAVES,GRBM_COUNT"];
    let session = Session::of(&lab, &target, "1500ms", &words)?;
    session.check();
    let log = end(target)?;
    assert!(!session.counted.is_empty(), "{}", session.said);
    for (id, dispatch) in &session.counted {
        let others = log.dispatches().filter(|other| {
            let other = &other.packet;
            other.start < dispatch.end && dispatch.start < other.end
        });
        assert_eq!(
            others.count(),
            1,
            "dispatch {id} did not run alone: {dispatch:?}"
        );
    }
    Ok(())
}

/// The sums of a device with eight XCCs equal the sums of a device with one: each XCC counts its
/// part.
#[test]
fn of_eight_xccs_the_parts_are_added() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = begin(program(&lab, 1)?.gpu("8,32,304,1"))?;
    let words = [
        "--max-overhead",
        "100",
        "--pmc",
        "SQ_WAVES,SQ_INSTS_VALU,SPI_CSN_WAVE",
    ];
    let session = Session::of(&lab, &target, "1s", &words)?;
    session.check();
    assert!(session.counted.len() > 20, "{}", session.said);
    end(target)?;
    Ok(())
}

/// The device takes valid packets before the doorbell is rung, and there are more threads than
/// queues, so that several threads write into one ring.
#[test]
fn of_an_eager_device_and_of_shared_queues() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for seed in 1..=3 {
        let mut target = begin(program(&lab, 9)?.on(GpuModel::Eager(seed)))?;
        target.send("pause 1000")?;
        let words = ["--max-overhead", "100", "--pmc", "SQ_WAVES,GRBM_COUNT"];
        let session = Session::of(&lab, &target, "700ms", &words)?;
        session.check();
        let losses = session.said.replace(", none lost", "");
        assert!(!losses.contains("lost"), "{}", session.said);
        assert!(had_windows(&end(target)?), "{}", session.said);
    }
    Ok(())
}

/// The process goes on, and another session counts as if there had been none before.
#[test]
fn an_attacher_that_is_killed_leaves_nothing_open() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = streams(&lab, 2)?;
    let words = ["--max-overhead", "100", "--pmc", "SQ_WAVES"];
    for round in 0..3 {
        let out = tempfile::tempdir_in(lab.scratch())?;
        let mut attacher = attach(&lab, &target, out.path(), &words)?.spawn()?;
        attacher.expect_error("attached to process")?;
        attacher.target.signal(libc::SIGKILL)?;
        attacher.target.wait(PATIENCE)?;
        // An attach is refused until the lease of the killed attacher has run out. In the first
        // round the program launches all that it can meanwhile.
        if round > 0 {
            target.send("pause 5000")?;
        }
        in_turn(|| Session::of(&lab, &target, "300ms", &words))?.check();
        target.send("pause 0")?;
    }
    assert!(had_windows(&end(target)?));
    Ok(())
}

/// Sessions with counters and without them follow each other.
#[test]
fn thirty_sessions_by_turns() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = streams(&lab, 2)?;
    target.send("pause 300")?;
    for round in 0..30 {
        let counts = round % 2 == 0;
        let words: &[&str] = match counts {
            true => &["--max-overhead", "100", "--pmc", "SQ_WAVES"],
            false => &["--kernel-trace"],
        };
        let session = Session::of(&lab, &target, "50ms", words)?;
        session.check();
        assert!(counts || session.counted.is_empty());
    }
    assert!(had_windows(&end(target)?));
    Ok(())
}
