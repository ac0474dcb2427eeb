//! Samples of program counters. The ground truth is the model's log: the model writes the samples into
//! the buffers that AMD's runtime allocates, as the trap handler of a GPU does.

use crate::counters::{attach, files};
use crate::samples::{Client, quit};
use midair_tests::Result;
use midair_tests::caller::{Caller, Counts};
use midair_tests::lab::{Lab, LabCommand, LabTarget};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::stage;
use midair_tests::table::{Csv, json};
use midair_tests::target::PATIENCE;
use serde_json::Value;
use std::collections::BTreeMap;

/// Where the model takes samples of the kernels with a grid of 64, and how often of ten times.
const WEIGHTS: &str = "64:0*1+8*3+16*6";

/// Returns the number behind the words of one line.
fn number(lines: &[String], words: &str) -> Result<u64> {
    let line = lines.iter().find_map(|line| line.strip_prefix(words));
    Ok(line.ok_or_else(|| format!("no {words}"))?.trim().parse()?)
}

/// AMD's own functions give a program what the model logged, in each of several sessions.
fn amd_reads(method: u32, interval: u32) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let target = lab
        .run(&lab.program("pc_samples")?)
        .arg(lab.kernels()?)
        .arg(method)
        .arg(interval)
        .arg(20)
        .arg(5)
        .env("MODEL_SAMPLING", 1)
        .env("MODEL_SAMPLES", WEIGHTS)
        .env("MODEL_INVALID_SAMPLES", 20)
        .spawn()?;
    let path = target.log.clone();
    let exit = target.target.wait(PATIENCE)?.success()?;
    let log = ModelLog::read(&path)?;
    let (mut written, mut invalid, mut lost) = (BTreeMap::new(), 0, 0);
    for (_, taken) in log.samples() {
        for (offset, count) in &taken.offsets {
            *written.entry(*offset).or_insert(0) += count;
        }
        invalid += taken.invalid;
        lost += taken.lost;
    }
    let read = written
        .keys()
        .map(|offset| {
            Ok((
                *offset,
                number(&exit.stdout, &format!("offset {offset} samples "))?,
            ))
        })
        .collect::<Result<BTreeMap<u64, u64>>>()?;
    assert_eq!(read, written);
    assert_eq!(number(&exit.stdout, "invalid ")?, invalid);
    assert_eq!(number(&exit.stdout, "foreign ")?, 0);
    assert_eq!(number(&exit.stdout, "times ")?, 0);
    // AMD's runtime reports no more than were lost: each of its flushes forgets the number before.
    assert!(number(&exit.stdout, "lost ")? <= lost);
    assert_eq!(invalid > 0, method == 1);
    // The weights, within five standard deviations.
    let total = written.values().sum::<u64>() as f64;
    for (offset, share) in [(0, 0.1), (8, 0.3), (16, 0.6)] {
        let seen = written[&offset] as f64 / total;
        let deviation = (share * (1.0 - share) / total).sqrt();
        assert!((seen - share).abs() < 5.0 * deviation, "{offset}: {seen}");
    }
    Ok(())
}

#[test]
fn amds_runtime_reads_the_models_host_trap_samples() -> Result<()> {
    amd_reads(0, 1)
}

#[test]
fn amds_runtime_reads_the_models_stochastic_samples() -> Result<()> {
    amd_reads(1, 4096)
}

/// Words that ask for samples by host traps.
const HOST_TRAP: [&str; 7] = [
    "--pc-sampling-beta-enabled",
    "--pc-sampling-method",
    "host_trap",
    "--pc-sampling-unit",
    "time",
    "--pc-sampling-interval",
    "5",
];
/// Words that ask for stochastic samples.
const STOCHASTIC: [&str; 7] = [
    "--pc-sampling-beta-enabled",
    "--pc-sampling-method",
    "stochastic",
    "--pc-sampling-unit",
    "cycles",
    "--pc-sampling-interval",
    "8192",
];

/// A HIP program whose kernels have grids of 256 (vadd) and 128 (scale), and take this many ns.
fn hip_program(lab: &Lab, kernel_ns: u32) -> Result<LabTarget> {
    hip_program_with(lab, kernel_ns, "256:0*1+8*3+16*6,128:4*1+12*1", "sampled")
}

/// The same with other samples, and a log of this name.
fn hip_program_with(lab: &Lab, kernel_ns: u32, samples: &str, log: &str) -> Result<LabTarget> {
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let command = lab.run(&lab.program("regions")?);
    let command = command.arg(&library).arg(lab.kernels_with_lines()?);
    let mut target = command
        .env("MODEL_SAMPLING", 1)
        .env("MODEL_KERNEL_NS", kernel_ns)
        .env("MODEL_SAMPLES", samples)
        .env("MODEL_INVALID_SAMPLES", 20)
        .log_name(&format!("{log}-{kernel_ns}.log"))
        .spawn()?;
    target.expect("ready")?;
    Ok(target)
}

fn work(target: &mut LabTarget, command: &str) -> Result<()> {
    target.send(command)?;
    target.expect(command.split(' ').next().unwrap_or_default())?;
    Ok(())
}

/// Attaches, lets the program work, and detaches. Returns the rows of the table of samples, and the folded
/// stacks.
fn sampled(
    lab: &Lab,
    target: &mut LabTarget,
    words: &[&str],
    table: &str,
) -> Result<(Csv, String)> {
    let out = tempfile::tempdir_in(lab.scratch())?;
    let words = [&["--output-format", "csv", "json", "folded"], words].concat();
    let mut attacher = attach(lab, target, out.path(), &words)?.spawn()?;
    attacher.expect_error("attached to process")?;
    work(target, "inside 40")?;
    work(target, "outside 20")?;
    attacher.send("")?;
    let exit = attacher.target.wait(PATIENCE)?.success()?;
    // 60 of 100, give or take a few where there are not so many.
    let hottest = "hottest instruction: vadd+0x10 has ";
    let shows = exit.stdout.iter().any(|line| line.starts_with(hottest));
    assert!(shows, "{exit}");
    let all = files(out.path());
    let file = |end: &str| {
        let found = all
            .iter()
            .find(|file| file.to_string_lossy().ends_with(end));
        found.ok_or_else(|| format!("no {end} in {all:?}: {exit}"))
    };
    let csv = Csv::read(file(table)?)?;
    check_as_amd(&csv, &json(file("results.json")?)?, table)?;
    Ok((csv, std::fs::read_to_string(file(".folded")?)?))
}

/// Checks what AMD's validators of samples of an attach ask (tests/rocprofv3/attachment/attach-pc-sampling of
/// rocm-systems): csv and json have the same samples, each with an instruction that is in the list or none; a
/// sample has a call if it has a dispatch, and lanes that were active.
fn check_as_amd(csv: &Csv, whole: &Value, table: &str) -> Result<()> {
    let tool = &whole["rocprofiler-sdk-tool"][0];
    let list = match table {
        "pc_sampling_stochastic.csv" => "pc_sample_stochastic",
        _ => "pc_sample_host_trap",
    };
    let samples = tool["buffer_records"][list].as_array().ok_or(list)?;
    let texts = tool["strings"]["pc_sample_instructions"].as_array();
    let texts = texts.ok_or("no instructions")?.len() as i64;
    assert_eq!(samples.len(), csv.rows.len());
    for sample in samples {
        let (index, record) = (sample["inst_index"].as_i64(), &sample["record"]);
        assert!(
            index.is_some_and(|index| (-1..texts).contains(&index)),
            "{sample}"
        );
        let number = |key: &Value| key.as_u64().unwrap_or(u64::MAX);
        let (dispatch, call) = (
            number(&record["dispatch_id"]),
            number(&record["corr_id"]["internal"]),
        );
        assert_eq!(dispatch == 0, call == 0, "{sample}");
        assert!(
            dispatch == 0 || number(&record["exec_mask"]) > 0,
            "{sample}"
        );
    }
    for row in &csv.rows {
        assert!(Csv::number(row, "Sample_Timestamp")? > 0, "{row:?}");
        let (dispatch, call) = (
            Csv::number(row, "Dispatch_Id")?,
            Csv::number(row, "Correlation_Id")?,
        );
        assert!(
            dispatch > 0 && call > 0 && Csv::number(row, "Exec_Mask")? > 0,
            "{row:?}"
        );
    }
    Ok(())
}

/// Checks that the time of `vadd` is split by these samples, by their offsets: each instruction has its share
/// of the whole, below its line in the sources.
fn check_flame(folded: &str, samples: &BTreeMap<u64, u64>) -> Result<()> {
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    for line in folded.lines().filter(|line| line.starts_with("vadd(")) {
        let (path, time) = line.rsplit_once(' ').ok_or("a line has a time")?;
        let mut frames = path.split(';').skip(1);
        let (place, instruction) = (frames.next(), frames.next().unwrap_or_default());
        let found = INSTRUCTIONS.iter().find(|(offset, text, line)| {
            let offset: u64 = offset.parse().unwrap_or_default();
            let line = line.trim_start_matches("/src/");
            place == Some(&format!("{line} (sampled)"))
                && instruction == format!("+{offset:#x} {text} (sampled)")
        });
        let (offset, ..) = found.ok_or_else(|| format!("not known: {line}"))?;
        *times.entry(offset.parse()?).or_default() += time.parse::<u64>()?;
    }
    let (time, count) = (times.values().sum::<u64>(), samples.values().sum::<u64>());
    for (offset, part) in &times {
        let exact = time as f64 * samples[offset] as f64 / count as f64;
        // A nanosecond for each row.
        assert!((*part as f64 - exact).abs() < 10.0, "{times:?} {samples:?}");
    }
    assert_eq!(times.len(), samples.len(), "{folded}");
    Ok(())
}

/// The samples that the model wrote since `from`, by kernel descriptor and offset; the invalid and the
/// lost ones.
fn written(log: &ModelLog, from: usize) -> (BTreeMap<(u64, u64), u64>, u64, u64) {
    let (mut all, mut invalid, mut lost) = (BTreeMap::new(), 0, 0);
    let mut rest = log.clone();
    rest.records.drain(..from);
    for (kernel, taken) in rest.samples() {
        for (offset, count) in &taken.offsets {
            *all.entry((kernel, *offset)).or_insert(0) += count;
        }
        invalid += taken.invalid;
        lost += taken.lost;
    }
    (all, invalid, lost)
}

/// The instructions of `vadd` that are sampled, by their offsets, as AMD's assembler writes them, and their
/// lines in the sources.
const INSTRUCTIONS: [(&str, &str, &str); 3] = [
    (
        "0",
        "s_load_dword s3, s[0:1], 0x2c",
        "/src/job/kernels.hip:10",
    ),
    (
        "8",
        "s_load_dword s4, s[0:1], 0x18",
        "/src/job/kernels.hip:12",
    ),
    ("16", "s_waitcnt lgkmcnt(0)", "/src/job/kernels.hip:14"),
];

/// An attach to a program that has launched before has the samples that the model logged, each with its
/// kernel, the offset in it, its instruction and line, and its dispatch; three times, with both methods, first 100,000.
/// What the device had no room for is in the log's other count.
#[test]
fn an_attach_has_the_samples_that_the_device_wrote() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = hip_program(&lab, 2_500_000)?;
    work(&mut target, "inside 5")?;
    let (mut rare, mut rarer) = (STOCHASTIC, HOST_TRAP);
    (rare[6], rarer[6]) = ("131072", "60");
    for (words, table, least) in [
        (HOST_TRAP, "pc_sampling_host_trap.csv", 100_000),
        (rare, "pc_sampling_stochastic.csv", 1000),
        (rarer, "pc_sampling_host_trap.csv", 1000),
    ] {
        let before = target.model_log()?.records.len();
        let (csv, folded) = sampled(&lab, &mut target, &words, table)?;
        let log = target.model_log()?;
        let (wanted, invalid, lost) = written(&log, before);
        assert_eq!(invalid > 0, words == rare);
        // Of each kernel by its grid: the descriptor, and when each of its dispatches ran.
        let of: BTreeMap<u64, u64> = log
            .dispatches()
            .map(|dispatch| (dispatch.kernel_object, u64::from(dispatch.grid[0])))
            .collect();
        let mut seen = BTreeMap::new();
        for row in &csv.rows {
            let name = row["Kernel_Name"]
                .split('(')
                .next()
                .unwrap_or_default()
                .to_owned();
            *seen
                .entry((name, Csv::number(row, "Kernel_Offset")?))
                .or_insert(0) += 1;
            assert_ne!(Csv::number(row, "Dispatch_Id")?, 0, "{row:?}");
            assert_ne!(Csv::number(row, "Code_Object_Id")?, 0, "{row:?}");
            if row["Kernel_Name"].starts_with("vadd") {
                let (offset, said) = (&row["Kernel_Offset"], &row["Instruction"]);
                let place = (
                    offset.as_str(),
                    said.as_str(),
                    row["Instruction_Comment"].as_str(),
                );
                assert!(INSTRUCTIONS.contains(&place), "{row:?}");
            }
        }
        let mut by_name = BTreeMap::new();
        for ((kernel, offset), count) in wanted {
            let name = match of.get(&kernel) {
                Some(256) => "vadd",
                Some(128) => "scale",
                _ => continue,
            };
            *by_name.entry((name.to_owned(), offset)).or_insert(0) += count;
        }
        seen.retain(|(name, _), _| name == "vadd" || name == "scale");
        assert_eq!(seen, by_name, "{table}");
        let of_vadd = by_name.iter().filter(|((name, _), _)| name == "vadd");
        let of_vadd = of_vadd.map(|((_, offset), count)| (*offset, *count));
        check_flame(&folded, &of_vadd.collect())?;
        let all = seen.values().sum::<u64>() + lost + invalid;
        assert!(all > least, "{seen:?} {lost} {invalid}");
    }
    work(&mut target, "inside 5")?;
    target.send("quit")?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// `midair doctor` says whether the GPU samples and why not, and `rocprofv3-avail` lists how. The driver is a
/// stand-in: it answers as AMD's driver does (`docs/sources.md#samples`).
#[test]
fn what_the_driver_offers_is_listed() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let kfd = format!("{}/libkfd.so", lab.library("kfd_samples", "libkfd.so")?);
    let said = |program: &str, words: &[&str], driver: &str| -> Result<String> {
        let program = format!("{}/bin/{program}", lab.stage()?);
        let command = lab.run(&program).log_name("none").register(false);
        let command = words
            .iter()
            .fold(command.preload(&kfd), |it, word| it.arg(word));
        let exit = command
            .env("KFD_SAMPLES", driver)
            .spawn()?
            .target
            .wait(PATIENCE)?;
        Ok(exit.to_string())
    };
    let offered = "host_trap (1 us and more), stochastic (256 to 2147483648 cycles, powers of two)";
    for (driver, mark, why) in [
        ("new", "ok", offered),
        (
            "used",
            "--",
            "another process samples by host_trap with an interval of 50 time",
        ),
        ("busy", "--", "no program counters: a debugger is attached"),
        (
            "old",
            "--",
            "the driver's interface is 1.14, and 1.16 or newer required",
        ),
    ] {
        let text = said("midair", &["doctor"], driver)?;
        let line = text.lines().find(|line| line.contains("samples: GPU 0"));
        let line = line.ok_or_else(|| format!("{driver}: {text}"))?;
        assert!(
            line.trim_start().starts_with(mark) && line.contains(why),
            "{driver}: {line}"
        );
    }
    let text = said("rocprofv3-avail", &["info", "--pc-sampling"], "new")?;
    for (key, values) in [
        ("Method", ["host_trap", "stochastic"]),
        ("Unit", ["time", "cycle"]),
        ("Min_Interval", ["1", "256"]),
        ("Max_Interval", ["4294967295", "2147483648"]),
        ("Flags", ["none", "interval pow2"]),
    ] {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let found: Vec<&str> = lines
            .filter(|(it, _)| it.trim() == key)
            .map(|(_, it)| it.trim())
            .collect();
        assert_eq!(found, values, "{text}");
    }
    let text = said(
        "rocprofv3-avail",
        &["info", "--pmc", "SQ_WAVES", "--pc-sampling"],
        "new",
    )?;
    assert!(
        text.contains("Counter_Name") && text.contains("Min_Interval"),
        "{text}"
    );
    let text = said("rocprofv3-avail", &["list", "--pc-sampling"], "new")?;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let head = [
        "Agents supporting PC Sampling",
        "",
        "GPU     :\t0",
        "Name    :\tgfx942",
    ];
    assert!(lines.windows(4).any(|it| it == head), "{text}");
    let refused = said("rocprofv3-avail", &["list", "--pc-sampling"], "old")?;
    assert!(
        refused.contains("no GPU samples program counters: GPU 0: the driver's interface"),
        "{refused}"
    );
    Ok(())
}

/// `rocprof-compute profile --pc-sampling` attaches, and panel 21 of `analyze` has the device's samples, by
/// instruction with its line, and the reason that the device gives.
#[test]
fn panel_21_has_the_samples_that_the_device_wrote() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = hip_program(&lab, 1_000_000)?;
    work(&mut target, "inside 5")?;
    let before = target.model_log()?.records.len();
    let out = tempfile::tempdir_in(lab.scratch())?;
    let (inside, pid) = (lab.inside(out.path())?, target.target.pid().to_string());
    let program = format!("{}/bin/rocprof-compute", lab.stage()?);
    let profile = lab.run(&program).log_name("none").register(false);
    let words = [
        "profile",
        "-n",
        "x",
        "--output-directory",
        &inside,
        "--attach-pid",
        &pid,
    ];
    let sampling = [
        "--experimental",
        "--pc-sampling",
        "--pc-sampling-interval",
        "131072",
    ];
    let words = words
        .iter()
        .chain(&sampling)
        .chain(&["--attach-duration-msec", "800"]);
    let profile = words.fold(profile, |profile, word| profile.arg(word));
    let mut profile = profile.spawn()?;
    profile.expect("Attach to process with ID")?;
    work(&mut target, "inside 40")?;
    let exit = profile.target.wait(PATIENCE)?.success()?;
    let (wanted, ..) = written(&target.model_log()?, before);
    let text = crate::compute::compute(
        &lab,
        &[
            "analyze",
            "-p",
            &inside,
            "-b",
            "21",
            "--pc-sampling-rows",
            "0",
        ],
    )?;
    for (offset, instruction, line) in INSTRUCTIONS {
        let row = text.lines().find(|row| row.contains(instruction));
        let row = row.ok_or_else(|| format!("no {instruction}: {text} {exit}"))?;
        assert!(row.contains(&line["/src/job/".len()..]), "{row}");
        let offset: u64 = offset.parse()?;
        let count: u64 = wanted
            .iter()
            .filter(|((_, at), _)| *at == offset)
            .map(|(_, count)| count)
            .sum();
        let fields: Vec<&str> = row.split('│').map(str::trim).collect();
        assert!(
            count > 0 && fields.contains(&count.to_string().as_str()),
            "{count}: {row}"
        );
    }
    target.send("quit")?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// Two processes sample at once, by different methods, and each session has the samples of its own process.
#[test]
fn two_processes_that_sample_at_once_have_their_own_samples() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut targets = [
        hip_program_with(&lab, 1_000_000, "256:0*1+16*1", "one")?,
        hip_program_with(&lab, 1_000_000, "256:8*1+24*2", "other")?,
    ];
    let (mut few, mut fewer) = (HOST_TRAP, STOCHASTIC);
    (few[6], fewer[6]) = ("60", "131072");
    let mut sessions = Vec::new();
    for (target, words) in targets.iter().zip([few, fewer]) {
        let out = tempfile::tempdir_in(lab.scratch())?;
        let words = [&["--output-format", "csv"], &words[..]].concat();
        let mut attacher = attach(&lab, target, out.path(), &words)?.spawn()?;
        attacher.expect_error("attached to process")?;
        sessions.push((out, attacher));
    }
    // Both are attached, and both work.
    for target in &mut targets {
        target.send("inside 30")?;
    }
    for target in &mut targets {
        target.expect("inside")?;
    }
    for (target, (out, mut attacher)) in targets.into_iter().zip(sessions) {
        attacher.send("")?;
        attacher.target.wait(PATIENCE)?.success()?;
        let log = target.model_log()?;
        let (wanted, ..) = written(&log, 0);
        let all = files(out.path());
        let table = all
            .iter()
            .find(|file| file.to_string_lossy().contains("pc_sampling"));
        let csv = Csv::read(table.ok_or_else(|| format!("no samples: {all:?}"))?)?;
        let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
        for row in csv
            .rows
            .iter()
            .filter(|row| row["Kernel_Name"].starts_with("vadd"))
        {
            *seen.entry(Csv::number(row, "Kernel_Offset")?).or_default() += 1;
        }
        let mut of_vadd: BTreeMap<u64, u64> = BTreeMap::new();
        // By the grid: HIP's own kernels are sampled, too.
        let is_vadd = |kernel: u64| {
            log.dispatches()
                .any(|it| it.kernel_object == kernel && it.grid[0] == 256)
        };
        for ((_, offset), count) in wanted
            .into_iter()
            .filter(|((kernel, _), _)| is_vadd(*kernel))
        {
            *of_vadd.entry(offset).or_default() += count;
        }
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!(seen, of_vadd);
        let mut target = target;
        target.send("quit")?;
        target.expect("done")?;
        target.target.wait(PATIENCE)?.success()?;
    }
    Ok(())
}

/// A session without the options leaves the device alone: no sample, no thread and no descriptor of
/// the runtime's sampling, on a device that could sample.
#[test]
fn a_session_without_samples_costs_nothing_of_them() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = hip_program_with(&lab, 50_000, WEIGHTS, "off")?;
    let names = |target: &LabTarget| -> Result<Vec<String>> {
        let mut names = Vec::new();
        for thread in std::fs::read_dir(format!("/proc/{}/task", target.target.pid()))? {
            let name = std::fs::read_to_string(thread?.path().join("comm"))?;
            names.push(name.trim().to_owned());
        }
        names.sort();
        Ok(names)
    };
    let descriptors = |target: &LabTarget| -> Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", target.target.pid()))?.count())
    };
    let session = |target: &mut LabTarget, words: &[&str]| -> Result<(Vec<String>, usize)> {
        let out = tempfile::tempdir_in(lab.scratch())?;
        let words = [&["--output-format", "csv"], words].concat();
        let mut attacher = attach(&lab, target, out.path(), &words)?.spawn()?;
        attacher.expect_error("attached to process")?;
        work(target, "inside 20")?;
        let during = (names(target)?, descriptors(target)?);
        attacher.send("")?;
        attacher.target.wait(PATIENCE)?.success()?;
        Ok(during)
    };
    let (off, open) = session(&mut target, &["--kernel-trace"])?;
    let (taken, invalid, lost) = written(&target.model_log()?, 0);
    assert!(taken.is_empty() && invalid + lost == 0, "{taken:?}");
    assert!(!off.iter().any(|name| name == "midair-samples"), "{off:?}");
    // The same session with samples has what the other one lacks.
    let (on, more) = session(&mut target, &HOST_TRAP)?;
    assert!(on.iter().any(|name| name == "midair-samples"), "{on:?}");
    assert!(
        on.len() > off.len() && more >= open,
        "{on:?} {off:?} {more} {open}"
    );
    let (taken, ..) = written(&target.model_log()?, 0);
    assert!(!taken.is_empty());
    target.send("quit")?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// On and off again under load: nothing of it remains in the process, and the program is right. The suite
/// does a few cycles; `MIDAIR_CYCLES=300` does as many.
#[test]
fn many_cycles_of_samples_leave_nothing() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let cycles: u32 = match std::env::var("MIDAIR_CYCLES") {
        Ok(text) => text.parse()?,
        Err(_) => 4,
    };
    let mut target = hip_program(&lab, 50_000)?;
    let state = |target: &LabTarget| -> Result<(usize, usize)> {
        let proc = format!("/proc/{}", target.target.pid());
        let count = |dir: &str| Ok::<_, std::io::Error>(std::fs::read_dir(dir)?.count());
        Ok((
            count(&format!("{proc}/task"))?,
            count(&format!("{proc}/fd"))?,
        ))
    };
    let mut first = None;
    for cycle in 0..cycles {
        let before = target.model_log()?.records.len();
        let words = if cycle % 2 == 0 {
            HOST_TRAP
        } else {
            STOCHASTIC
        };
        let out = tempfile::tempdir_in(lab.scratch())?;
        let all = [&["--output-format", "csv"], &words[..]].concat();
        let mut attacher = attach(&lab, &target, out.path(), &all)?.spawn()?;
        // The program works at the attach, while attached, and at the detach.
        target.send("inside 60")?;
        attacher.expect_error("attached to process")?;
        target.expect("inside")?;
        target.send("outside 60")?;
        attacher.send("")?;
        attacher.target.wait(PATIENCE)?.success()?;
        target.expect("outside")?;
        // Nothing samples any more.
        let (_, _, lost) = written(&target.model_log()?, before);
        assert_eq!(lost, 0);
        let after = target.model_log()?.records.len();
        work(&mut target, "inside 5")?;
        let (samples, ..) = written(&target.model_log()?, after);
        assert!(samples.is_empty(), "cycle {cycle}: {samples:?}");
        let now = state(&target)?;
        // The first attach leaves the worker thread, and the runtime's queue for samples.
        let first = first.get_or_insert(now);
        assert_eq!(now, *first, "cycle {cycle}: threads and descriptors");
    }
    target.send("quit")?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// A tool that samples through the SDK gets what the device wrote, in AMD's records: attached to a running
/// program, and launched with it.
#[test]
fn a_tool_gets_the_samples_in_its_buffer() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let client = Client::build(&lab, "samples")?;
    let kfd = format!("{}/libkfd.so", lab.library("kfd_samples", "libkfd.so")?);
    let program = |method: &str, log: &str| -> Result<LabCommand<'_>> {
        Ok(Caller::command(&lab)?
            .preload(&kfd)
            .env("MODEL_SAMPLING", 1)
            .env("MODEL_SAMPLES", "320:0*1+8*3,192:4*1")
            .env("MODEL_INVALID_SAMPLES", 20)
            .env("ROCPROFILER_PC_SAMPLING_BETA_ENABLED", 1)
            .env("SAMPLES_METHOD", method)
            .log_name(log))
    };
    /// Compares the numbers of samples, since the client knows code objects and not kernels.
    fn compare(told: &Counts, log: &ModelLog, from: usize, method: &str) {
        let (wanted, invalid, lost) = written(log, from);
        assert_eq!(lost, 0);
        let counts = |all: &mut dyn Iterator<Item = u64>| {
            let mut all: Vec<u64> = all.collect();
            all.sort_unstable();
            all
        };
        let seen = told.iter().filter(|(name, _)| name.starts_with("at "));
        assert_eq!(
            counts(&mut seen.map(|(_, count)| *count)),
            counts(&mut wanted.values().copied()),
            "{method}: {told:?}"
        );
        assert_eq!(
            told.get("invalid").copied().unwrap_or(0),
            invalid,
            "{method}"
        );
        assert!(
            wanted.len() >= 3 && wanted.values().sum::<u64>() > 100,
            "{wanted:?}"
        );
    }
    for method in ["host_trap", "stochastic"] {
        let mut caller = Caller::start(program(method, &format!("attached-{method}"))?)?;
        caller.tell("calls 2")?;
        for rounds in [10, 15] {
            let before = caller.model_log()?.records.len();
            let told = client.attached(caller.pid(), || caller.tell(&format!("calls {rounds}")))?;
            compare(&told, &caller.model_log()?, before, method);
        }
        caller.quit()?;
        let command = client.launched(program(method, &format!("launched-{method}"))?)?;
        let mut target = command.spawn()?;
        target.expect("ready")?;
        target.send("calls 10")?;
        target.expect("calls")?;
        let log = quit(target)?;
        compare(&client.counted()?, &log, 0, method);
    }
    Ok(())
}

/// Where the driver or the device does not offer what is asked for, as with a debugger on the process, the session records the rest and says
/// why there are no samples.
#[test]
fn what_is_not_offered_is_said() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let mut odd = STOCHASTIC;
    odd[6] = "5000";
    for (has_samples, debugged, words, why) in [
        (
            0,
            0,
            HOST_TRAP,
            "the driver or the device does not offer it",
        ),
        (1, 0, odd, "the interval 5000 is not a power of two"),
        (
            1,
            1,
            STOCHASTIC,
            "the driver or the device does not offer it",
        ),
    ] {
        let command = lab.run(&lab.program("regions")?);
        let command = command.arg(&library).arg(lab.kernels()?);
        let log = format!("none-{has_samples}-{debugged}.log");
        let mut target = command
            .env("MODEL_SAMPLING", has_samples)
            .env("MODEL_DEBUGGED", debugged)
            .log_name(&log)
            .spawn()?;
        target.expect("ready")?;
        let out = tempfile::tempdir_in(lab.scratch())?;
        let words = [&["--output-format", "csv"], &words[..]].concat();
        let mut attacher = attach(&lab, &target, out.path(), &words)?.spawn()?;
        attacher.expect_error("attached to process")?;
        work(&mut target, "inside 5")?;
        attacher.send("")?;
        attacher.target.wait(PATIENCE)?.success()?;
        let all = files(out.path());
        let end = |file: &&std::path::PathBuf, name: &str| file.to_string_lossy().ends_with(name);
        let notes = all.iter().find(|file| end(file, "notes.txt"));
        let said = std::fs::read_to_string(notes.ok_or_else(|| format!("no notes: {all:?}"))?)?;
        let text = format!("cannot sample program counters of the GPU on node 1: {why}");
        assert!(said.contains(&text), "{said}");
        let has = |name: &str| {
            all.iter()
                .any(|file| file.to_string_lossy().ends_with(name))
        };
        assert!(
            has("kernel_trace.csv") && !has("pc_sampling_host_trap.csv"),
            "{all:?}"
        );
        target.send("quit")?;
        target.expect("done")?;
        target.target.wait(PATIENCE)?.success()?;
    }
    Ok(())
}
