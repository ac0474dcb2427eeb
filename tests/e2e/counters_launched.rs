//! Hardware counters of programs that are launched under the profiler. Every dispatch has its
//! values, which follow the model's rules (`sim/gpu-model/src/pmu/rules.rs`). The model's log
//! shows that no dispatch ran alongside another.

use midair_tests::lab::{GpuModel, Lab, LabCommand, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stage::command;
use midair_tests::table::Csv;
use midair_tests::target::{Exit, PATIENCE, run, until};
use midair_tests::{Result, leave_out};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Counters that do not depend on times.
pub const EXACT: [&str; 3] = ["SQ_WAVES", "SQ_INSTS_VALU", "SPI_CSN_WAVE"];

/// A dispatch with counters in the results.
#[derive(Debug, Default)]
pub struct Counted {
    kernel: String,
    grid: u64,
    workgroup: u64,
    start: u64,
    end: u64,
    pub values: BTreeMap<String, u64>,
}

impl Counted {
    /// Returns the value of a counter by the model's rules.
    fn expected(&self, counter: &str) -> u64 {
        let waves = self.grid / self.workgroup * self.workgroup.div_ceil(64);
        match counter {
            "SQ_INSTS_VALU" => (1 + 26 % 7) * waves,
            _ => waves,
        }
    }

    /// Checks that the dispatch has these counters and no others, with the values of the rules.
    pub fn check(&self, counters: &[&str]) {
        let names: BTreeSet<&str> = self.values.keys().map(String::as_str).collect();
        assert_eq!(names, counters.iter().copied().collect(), "{self:?}");
        for counter in counters.iter().filter(|counter| EXACT.contains(counter)) {
            assert_eq!(
                self.values[*counter],
                self.expected(counter),
                "{counter}: {self:?}"
            );
        }
    }
}

/// Reads the dispatches in a file of counter values.
pub fn counted(file: &Path) -> Result<BTreeMap<u64, Counted>> {
    let mut counted: BTreeMap<u64, Counted> = BTreeMap::new();
    for row in Csv::read(file)?.rows {
        let number = |column: &str| Csv::number(&row, column);
        let dispatch = counted.entry(number("Dispatch_Id")?).or_default();
        dispatch.kernel.clone_from(&row["Kernel_Name"]);
        dispatch.grid = number("Grid_Size")?;
        dispatch.workgroup = number("Workgroup_Size")?;
        dispatch.start = number("Start_Timestamp")?;
        dispatch.end = number("End_Timestamp")?;
        let value: f64 = row["Counter_Value"].parse()?;
        let name = row["Counter_Name"].clone();
        let before = dispatch.values.insert(name, value as u64);
        assert_eq!(before, None, "twice: {row:?}");
    }
    Ok(counted)
}

/// Prepares a program under `rocprofv3` with these words, whose results go to `out`.
pub fn launched<'a>(
    lab: &Lab,
    program: LabCommand<'a>,
    out: &Path,
    words: &[&str],
) -> Result<LabCommand<'a>> {
    let rocprofv3 = format!("{}/bin/rocprofv3", lab.stage()?);
    let place = lab.inside(out)?;
    let mut all = vec![rocprofv3.as_str()];
    all.extend(words);
    all.extend(["-o", "out", "-d", &place, "--"]);
    Ok(program.under(&all))
}

/// Checks that no dispatch ran while another did, and returns how many there were.
fn one_at_a_time(log: &ModelLog) -> usize {
    let mut ran: Vec<(u64, u64)> = log
        .dispatches()
        .map(|dispatch| (dispatch.packet.start, dispatch.packet.end))
        .collect();
    ran.sort_unstable();
    for pair in ran.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "at the same time: {pair:?}");
    }
    ran.len()
}

/// Starts `streams` with this many threads, waits until it has launched at least this many kernels,
/// and ends it.
fn streams(
    lab: &Lab,
    threads: u32,
    model: GpuModel,
    out: &Path,
    words: &[&str],
) -> Result<(ModelLog, u64)> {
    let program = lab.run(&lab.program("streams")?).on(model);
    let program = program.arg(lab.kernels()?).arg(threads);
    let log_name = format!("streams-{threads}-{model:?}.log").replace(['(', ')'], "");
    let mut target = launched(lab, program, out, words)?
        .log_name(&log_name)
        .spawn()?;
    target.expect("ready")?;
    target.send("start")?;
    target.expect("start")?;
    until("100 dispatches", || {
        Ok(target.model_log()?.dispatches().count() >= 100)
    })?;
    target.send("quit")?;
    let total = target.expect("total")?;
    let launches = total.split(' ').next_back().unwrap_or_default().parse()?;
    let log = target.log.clone();
    target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    log.check()?;
    Ok((log, launches))
}

/// Checks that every dispatch of the log has its values, and that the results have no other
/// dispatches.
fn every_dispatch(threads: u32, model: GpuModel) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let out = tempfile::tempdir_in(lab.scratch())?;
    let words = [
        "--pmc",
        "SQ_WAVES",
        "SQ_INSTS_VALU",
        "SPI_CSN_WAVE",
        "-f",
        "csv",
    ];
    let (log, launches) = streams(&lab, threads, model, out.path(), &words)?;
    let counted = counted(&out.path().join("out_counter_collection.csv"))?;
    let ran = one_at_a_time(&log);
    assert_eq!(counted.len(), ran, "dispatches with values, and in the log");
    assert!(ran as u64 >= launches, "{ran} and {launches}");
    let logged: BTreeSet<(u64, u64)> = log
        .dispatches()
        .map(|dispatch| (dispatch.packet.start, dispatch.packet.end))
        .collect();
    for dispatch in counted.values() {
        dispatch.check(&EXACT);
        assert!(
            logged.contains(&(dispatch.start, dispatch.end)),
            "{dispatch:?}"
        );
    }
    Ok(())
}

#[test]
fn every_dispatch_of_a_started_program_of_one_stream_is_counted() -> Result<()> {
    every_dispatch(1, GpuModel::Doorbell)
}

#[test]
fn every_dispatch_of_a_started_program_of_two_streams_is_counted() -> Result<()> {
    every_dispatch(2, GpuModel::Doorbell)
}

#[test]
fn every_dispatch_of_a_started_program_of_four_streams_is_counted() -> Result<()> {
    every_dispatch(4, GpuModel::Doorbell)
}

/// There are more threads than HIP makes queues, and the device takes valid packets before the
/// doorbell is rung.
#[test]
fn every_dispatch_of_a_started_program_is_counted_on_an_eager_device() -> Result<()> {
    every_dispatch(6, GpuModel::Eager(3))
}

/// The number of dispatches of [`vadd`]: in each of 10 rounds two kernels of its own and one of
/// HIP's.
const DISPATCHES: usize = 30;

/// In a program without HIP, threads share a small ring and wait for room in it. Its backlog is
/// many times what fits between two barriers.
#[test]
fn every_dispatch_is_counted_where_threads_share_a_small_ring() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let out = tempfile::tempdir_in(lab.scratch())?;
    let program = lab
        .run(&lab.program("windows")?)
        .arg(lab.kernels()?)
        .arg(64);
    let words = ["--pmc", "SQ_WAVES", "SQ_INSTS_VALU", "-f", "csv"];
    let mut target = launched(&lab, program, out.path(), &words)?.spawn()?;
    target.expect("ready")?;
    target.send("burst 400 4")?;
    target.expect("burst")?;
    target.send("quit")?;
    target.expect("launched 1600")?;
    let log = target.log.clone();
    let exit = target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&log)?;
    assert_eq!(one_at_a_time(&log), 1600);
    let counted = counted(&out.path().join("out_counter_collection.csv"))?;
    let told = || {
        let known: BTreeSet<u64> = counted.values().map(|counted| counted.start).collect();
        let lost: Vec<_> = log
            .dispatches()
            .filter(|dispatch| !known.contains(&dispatch.packet.start))
            .collect();
        let ids: Vec<u64> = (1..=1600).filter(|id| !counted.contains_key(id)).collect();
        let notes = std::fs::read_to_string(out.path().join("out_notes.txt"));
        format!("without values: {ids:?}, {lost:?}; {notes:?}; {exit}")
    };
    assert_eq!(counted.len(), 1600, "{}", told());
    for dispatch in counted.values() {
        dispatch.check(&["SQ_WAVES", "SQ_INSTS_VALU"]);
    }
    Ok(())
}

/// Runs `vadd` to its end under `rocprofv3`.
fn vadd(lab: &Lab, out: &Path, words: &[&str], log: &str) -> Result<(Exit, PathBuf)> {
    let program = lab.run("/lab/vadd").arg(10).arg(0);
    let target: LabTarget = launched(lab, program, out, words)?.log_name(log).spawn()?;
    let log = target.log.clone();
    Ok((target.target.wait(PATIENCE)?, log))
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Name, words, and each directory of results with its counters.
type Case<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a [&'a str])]);

#[test]
fn each_group_of_counters_is_a_run_of_its_own() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let text = lab.scratch().join("groups.txt");
    std::fs::write(
        &text,
        "pmc: SQ_WAVES\n# nothing\npmc: SQ_INSTS_VALU GRBM_COUNT\n",
    )?;
    let one = lab.scratch().join("one.yaml");
    std::fs::write(&one, "jobs:\n  - pmc: [SQ_WAVES]\n")?;
    let (text, one) = (lab.inside(&text)?, lab.inside(&one)?);
    let second: &[&str] = &["SQ_INSTS_VALU", "GRBM_COUNT"];
    let cases: [Case; 4] = [
        (
            "words",
            &["--pmc", "SQ_WAVES", "--pmc", "SQ_INSTS_VALU", "GRBM_COUNT"],
            &[("pass_1/", &["SQ_WAVES"]), ("pass_2/", second)],
        ),
        (
            "text",
            &["-i", &text],
            &[("pmc_1/", &["SQ_WAVES"]), ("pmc_2/", second)],
        ),
        ("job", &["-i", &one], &[("pass_1/", &["SQ_WAVES"])]),
        ("alone", &["--pmc", "SQ_WAVES"], &[("", &["SQ_WAVES"])]),
    ];
    for (name, words, passes) in cases {
        let out = lab.scratch().join(name);
        std::fs::create_dir(&out)?;
        let mut all = words.to_vec();
        all.extend(["-f", "csv"]);
        let (exit, _) = vadd(&lab, &out, &all, &format!("{name}.log"))?;
        let exit = exit.success()?;
        let runs = exit.stdout.iter().filter(|line| *line == "done").count();
        assert_eq!(runs, passes.len(), "{name}: {exit}");
        for (directory, counters) in passes {
            let file = out.join(format!("{directory}out_counter_collection.csv"));
            let counted = counted(&file)?;
            assert_eq!(counted.len(), DISPATCHES, "{name} {directory}: {exit}");
            for dispatch in counted.values() {
                dispatch.check(counters);
            }
        }
    }
    Ok(())
}

/// The groups of `pmc_groups` are multiplexed within one run.
#[test]
fn groups_that_take_turns_do_so_within_one_run() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let file = lab.scratch().join("turns.yaml");
    let jobs = "jobs:\n  - pmc_groups: [[SQ_WAVES], [SQ_INSTS_VALU]]\n    pmc_group_interval: 5\n";
    std::fs::write(&file, jobs)?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let words = ["-i", &lab.inside(&file)?, "-f", "csv"];
    let (exit, _) = vadd(&lab, out.path(), &words, "turns.log")?;
    let exit = exit.success()?;
    let counted = counted(&out.path().join("out_counter_collection.csv"))?;
    assert_eq!(counted.len(), DISPATCHES, "{exit}");
    for (number, dispatch) in counted.values().enumerate() {
        let group = ["SQ_WAVES", "SQ_INSTS_VALU"][number / 5 % 2];
        dispatch.check(&[group]);
    }
    Ok(())
}

/// Kernels are chosen by name, a counter is the user's own, and all formats are written.
#[test]
fn chosen_kernels_and_own_counters_are_in_all_formats() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let extra = lab.scratch().join("extra.yaml");
    let definition = "rocprofiler-sdk:\n  counters-schema-version: 1\n  counters:\n    - name: TWICE_THE_WAVES\n      description: none\n      definitions:\n        - architectures: [gfx942]\n          expression: 2*reduce(SQ_WAVES,sum)\n";
    std::fs::write(&extra, definition)?;
    let out = tempfile::tempdir_in(lab.scratch())?;
    let mut words = vec!["--pmc", "TWICE_THE_WAVES", "SQ_WAVES"];
    words.extend(["--kernel-include-regex", "vadd"]);
    let extra = lab.inside(&extra)?;
    words.extend(["-E", &extra]);
    words.extend(["-f", "csv", "json", "rocpd", "pftrace"]);
    let (exit, _) = vadd(&lab, out.path(), &words, "formats.log")?;
    let exit = exit.success()?;
    let files = names(out.path())?;
    for kind in [
        "counter_collection.csv",
        "results.json",
        "results.db",
        "results.pftrace",
    ] {
        assert!(files.contains(&format!("out_{kind}")), "{files:?}\n{exit}");
    }
    let counted = counted(&out.path().join("out_counter_collection.csv"))?;
    assert_eq!(counted.len(), 10, "{exit}");
    for dispatch in counted.values() {
        assert!(dispatch.kernel.contains("vadd"), "{dispatch:?}");
        dispatch.check(&["SQ_WAVES", "TWICE_THE_WAVES"]);
        assert_eq!(
            dispatch.values["TWICE_THE_WAVES"],
            2 * dispatch.values["SQ_WAVES"]
        );
    }
    let json = std::fs::read_to_string(out.path().join("out_results.json"))?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    let tool = &json["rocprofiler-sdk-tool"][0];
    let records = tool["callback_records"]["counter_collection"].as_array();
    assert_eq!(records.map(Vec::len), Some(10));
    Ok(())
}

/// Returns how many packets of the log read counters: one for each dispatch that was counted.
fn readings(log: &ModelLog) -> usize {
    let mut events = log.records.iter().map(|record| &record.event);
    let is_reading = |event: &&Event| matches!(event, Event::Pm4(commands) if commands.reads > 0);
    events.by_ref().filter(is_reading).count()
}

/// A dispatch that is not chosen gets no packets of counters, but runs alone like the others.
#[test]
fn kernels_and_dispatches_that_are_not_chosen_are_not_counted() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    // Three kernels are launched in each of 10 rounds.
    let cases: [(&[&str], usize); 5] = [
        (&["--kernel-include-regex", "vadd"], 10),
        (&["--kernel-exclude-regex", "vadd"], 20),
        (&["--kernel-iteration-range", "[2-3],[9]"], 9),
        (
            &[
                "--kernel-exclude-regex",
                "^vadd",
                "--kernel-iteration-range",
                "[1]",
            ],
            2,
        ),
        (&["--kernel-include-regex", "no such kernel"], 0),
    ];
    for (number, (choice, expected)) in cases.into_iter().enumerate() {
        let out = lab.scratch().join(format!("chosen-{number}"));
        std::fs::create_dir(&out)?;
        let mut words = choice.to_vec();
        words.extend(["--pmc", "SQ_WAVES", "SPI_CSN_WAVE", "-f", "csv"]);
        let (exit, log) = vadd(&lab, &out, &words, &format!("chosen-{number}.log"))?;
        let exit = exit.success()?;
        let log = ModelLog::read(&log)?;
        assert_eq!(one_at_a_time(&log), DISPATCHES, "{choice:?}: {exit}");
        assert_eq!(readings(&log), expected, "{choice:?}: {exit}");
        let file = out.join("out_counter_collection.csv");
        let counted = match expected {
            0 if !file.exists() => BTreeMap::new(),
            _ => counted(&file)?,
        };
        assert_eq!(counted.len(), expected, "{choice:?}: {exit}");
        let mut kernels: BTreeMap<&str, usize> = BTreeMap::new();
        for dispatch in counted.values() {
            dispatch.check(&["SQ_WAVES", "SPI_CSN_WAVE"]);
            *kernels.entry(&dispatch.kernel).or_default() += 1;
        }
        let of_vadd = kernels.iter().filter(|(name, _)| name.contains("vadd"));
        let of_vadd: usize = of_vadd.map(|(_, count)| count).sum();
        let expected = [10, 0, 3, 0, 0][number];
        assert_eq!(of_vadd, expected, "{choice:?}: {kernels:?}\n{exit}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_counted_is_refused_before_the_program_runs() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let out = tempfile::tempdir_in(lab.scratch())?;
    let too_many = [
        "--pmc",
        "TCC_HIT",
        "TCC_MISS",
        "TCC_READ",
        "TCC_WRITE",
        "TCC_REQ",
        "TCC_ATOMIC",
    ];
    let mixed = lab.scratch().join("mixed.yaml");
    std::fs::write(
        &mixed,
        "jobs:\n  - pmc: [SQ_WAVES]\n  - pmc_groups: [[GRBM_COUNT]]\n",
    )?;
    let mixed = lab.inside(&mixed)?;
    let cases: [(&[&str], &str); 4] = [
        (&["-i", &mixed], "cannot combine pmc and pmc_groups"),
        (&["--pmc", "SQ_WAVE"], "near it are SQ_WAVES"),
        (&too_many, "which has 4"),
        (
            &["--pmc", "SQ_WAVES", "--pmc", "NO_SUCH"],
            "no counter NO_SUCH",
        ),
    ];
    for (number, (words, says)) in cases.into_iter().enumerate() {
        let (exit, _) = vadd(&lab, out.path(), words, &format!("refused-{number}.log"))?;
        assert_eq!(exit.status.code(), Some(2), "{exit}");
        assert!(exit.stderr.join(" ").contains(says), "{says}: {exit}");
        assert!(exit.stdout.is_empty(), "it ran: {exit}");
    }
    assert!(names(out.path())?.is_empty());
    Ok(())
}

/// When the program fails, there is no further pass, and the exit code is the program's.
#[test]
fn a_program_that_fails_is_not_run_again() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let out = tempfile::tempdir_in(lab.scratch())?;
    let program = lab.run("/bin/sh").arg("-c").arg("echo ran; exit 7");
    let words = ["--pmc", "SQ_WAVES", "--pmc", "SQ_INSTS_VALU"];
    let target = launched(&lab, program, out.path(), &words)?.spawn()?;
    let exit = target.target.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(7), "{exit}");
    assert_eq!(exit.stdout, ["ran"], "{exit}");
    Ok(())
}

/// Runs on this machine itself, first with the lab's GPU but without AMD's packet library, then
/// without a GPU.
#[test]
fn a_machine_that_cannot_count_says_why_before_the_program_runs() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let nothing = tempfile::tempdir()?;
    let topology = lab.root().join("lab/topo");
    let mut cases = vec![(nothing.path(), "lists no GPU")];
    if has_packet_library()? {
        leave_out("this machine has AMD's packet library: that it is missed is not tried")?;
    } else {
        cases.push((&topology, "install the package hsa-amd-aqlprofile"));
    }
    for (topology, says) in cases {
        let mut command = command("rocprofv3")?;
        command.args(["--pmc", "SQ_WAVES", "--", "echo", "ran"]);
        command.env("HSA_MODEL_TOPOLOGY", topology);
        let exit = run(command, PATIENCE)?;
        assert_eq!(exit.status.code(), Some(38), "{exit}");
        assert!(exit.stderr.join(" ").contains(says), "{says}: {exit}");
        assert!(exit.stdout.is_empty(), "it ran: {exit}");
    }
    Ok(())
}

/// Returns whether this machine's loader finds AMD's packet library, or a ROCm below /opt has it.
pub fn has_packet_library() -> Result<bool> {
    const NAME: &str = "libhsa-amd-aqlprofile64.so.1";
    let mut ldconfig = std::process::Command::new("/sbin/ldconfig");
    ldconfig.arg("-p");
    let known = run(ldconfig, PATIENCE)?;
    let below = std::fs::read_dir("/opt").into_iter().flatten().flatten();
    let mut roots = below.map(|entry| entry.path());
    Ok(known.stdout.iter().any(|line| line.contains(NAME))
        || roots.any(|root| root.join("lib").join(NAME).exists()))
}
