//! Thread traces of chosen dispatches on queues that are older than the attach: AMD's library makes the
//! packets, the model executes them and writes by its rule (`sim/gpu-model/src/pmu/trace.rs`), and its
//! log has what it wrote.

use crate::counters::{attach, files};
use crate::counters_launched::launched;
use midair_gpu_model::log::Trace;
use midair_gpu_model::pmu::trace::{BLOCK, USER, WAVE, hash_of, register};
use midair_tests::Result;
use midair_tests::lab::{GpuModel, Lab, LabCommand, LabTarget};
use midair_tests::modellog::{Event, ModelLog};
use midair_tests::stage::stage;
use midair_tests::target::{Exit, PATIENCE};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The grids of the program's kernels.
const VADD: u32 = 256;
const SCALE: u32 = 128;

/// A HIP program with the kernels vadd ("inside") and scale ("outside"), which has launched both.
fn program<'a>(lab: &'a Lab, log: &str) -> Result<LabCommand<'a>> {
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    let command = lab.run(&lab.program("regions")?);
    let command = command.arg(&library).arg(lab.kernels()?);
    Ok(command.env("MODEL_KERNEL_NS", 20_000).log_name(log))
}

fn work(target: &mut LabTarget, command: &str) -> Result<()> {
    target.send(command)?;
    target.expect(command.split(' ').next().unwrap_or_default())?;
    Ok(())
}

fn started(command: LabCommand<'_>) -> Result<LabTarget> {
    let mut target = command.spawn()?;
    target.expect("ready")?;
    work(&mut target, "inside 2")?;
    work(&mut target, "outside 2")?;
    Ok(target)
}

fn ended(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    target.expect("done")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}

/// What a session left.
struct Traced {
    /// By engine and dispatch: the data without AMD's header, and the header.
    data: BTreeMap<(u32, u64), (Vec<u8>, u64)>,
    code: Vec<PathBuf>,
    /// What happened on the device meanwhile.
    log: ModelLog,
    exit: Exit,
    notes: String,
    _out: tempfile::TempDir,
}

/// Attaches with these words, has the program work, and detaches.
fn traced(lab: &Lab, target: &mut LabTarget, words: &[&str], commands: &[&str]) -> Result<Traced> {
    let before = target.model_log()?.records.len();
    let out = tempfile::tempdir_in(lab.scratch())?;
    let words = [&["--att", "--output-format", "csv"], words].concat();
    let mut attacher = attach(lab, target, out.path(), &words)?.spawn()?;
    attacher.expect_error("attached to process")?;
    for command in commands {
        work(target, command)?;
    }
    attacher.send("")?;
    let exit = attacher.target.wait(PATIENCE)?;
    let mut log = target.model_log()?;
    log.records.drain(..before);
    let (mut data, mut code, mut notes) = (BTreeMap::new(), Vec::new(), String::new());
    for file in files(out.path()) {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if let Some(stem) = name.strip_suffix(".att") {
            let (_, rest) = stem.split_once("_shader_engine_").ok_or("a name")?;
            let (engine, dispatch) = rest.split_once('_').ok_or("a name")?;
            let bytes = std::fs::read(&file)?;
            let (header, body) = bytes.split_first_chunk().ok_or("AMD's header")?;
            let key = (engine.parse()?, dispatch.parse()?);
            data.insert(key, (body.to_vec(), u64::from_le_bytes(*header)));
        } else if name.ends_with("notes.txt") {
            notes = std::fs::read_to_string(&file)?;
        } else if name.ends_with(".out") {
            code.push(file);
        }
    }
    Ok(Traced {
        data,
        code,
        log,
        exit,
        notes,
        _out: out,
    })
}

impl Traced {
    /// The traces that the model ended, by their hash.
    fn written(&self) -> Vec<Trace> {
        let all = self.log.records.iter();
        let all = all.filter_map(|record| match &record.event {
            Event::Trace(trace) => Some(*trace),
            _ => None,
        });
        all.collect()
    }

    /// Checks that the files have the bytes that the model wrote, each once.
    fn check(&self) {
        let mut written: Vec<(u32, u64, u64)> = self
            .written()
            .iter()
            .map(|trace| (trace.engine, trace.bytes, trace.hash))
            .collect();
        let of = |((engine, _), (body, _)): (&(u32, u64), &(Vec<u8>, u64))| {
            (*engine, body.len() as u64, hash_of(body.iter().copied()))
        };
        let mut files: Vec<(u32, u64, u64)> = self.data.iter().map(of).collect();
        written.sort_unstable();
        files.sort_unstable();
        assert_eq!(files, written, "{}", self.exit);
    }

    /// How often a trace was started on the device.
    fn starts(&self) -> usize {
        let all = self.log.records.iter();
        let all = all.filter(|record| {
            matches!(&record.event, Event::Register(access)
                if access.write && access.register == register::USER_2 && access.value == 0x434f_5200)
        });
        all.count()
    }

    /// The grids of the kernels in a trace, by the log's packets.
    fn grids(&self, body: &[u8]) -> Vec<u32> {
        let packets: BTreeSet<(u64, u64)> = blocks(body)
            .filter(|block| block[0] == WAVE)
            .map(|block| {
                let object = u64::from(block[1]) | u64::from(block[2]) << 32;
                (object, u64::from(block[3]))
            })
            .collect();
        let grid = |packet: (u64, u64)| {
            let mut all = self.log.dispatches();
            all.find(|d| (d.kernel_object, d.packet.index) == packet)
                .map_or(0, |d| d.grid[0])
        };
        packets.into_iter().map(grid).collect()
    }
}

fn blocks(body: &[u8]) -> impl Iterator<Item = [u32; 8]> + '_ {
    body.chunks_exact(BLOCK as usize).map(|block| {
        let word = |n: usize| {
            block[4 * n..4 * n + 4]
                .try_into()
                .map_or(0, u32::from_le_bytes)
        };
        std::array::from_fn(word)
    })
}

fn contents(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    Ok(paths
        .iter()
        .map(std::fs::read)
        .collect::<std::io::Result<_>>()?)
}

/// One dispatch of the chosen kernel on a queue that is older than the attach: the files are what the
/// device wrote, nothing else was traced, and the code object is the program's.
#[test]
fn a_chosen_dispatch_is_traced_on_a_queue_that_is_older_than_the_attach() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = started(program(&lab, "att-one.log")?)?;
    let words = [
        "--att-target-cu",
        "0",
        "--att-shader-engine-mask",
        "0x5",
        "--kernel-include-regex",
        "scale",
    ];
    let got = traced(
        &lab,
        &mut target,
        &words,
        &["inside 3", "outside 4", "inside 3"],
    )?;
    got.exit.clone().success()?;
    got.check();
    let engines: Vec<u32> = got.data.keys().map(|(engine, _)| *engine).collect();
    assert_eq!(engines, [0, 2], "{}", got.exit);
    assert_eq!(got.starts(), 1, "only the chosen dispatch");
    for ((engine, _), (body, header)) in &got.data {
        // scale has four workgroups of one wave: one on each of the first four engines, with three steps.
        assert_eq!(got.grids(body), [SCALE], "engine {engine}: {}", got.exit);
        let waves = blocks(body).filter(|block| block[0] == WAVE).count();
        assert_eq!(waves, 4, "engine {engine}");
        // Legacy version, SIMDs, unit, engine.
        assert_eq!(header & 0x1fff, 0x11);
        let fields = (header >> 16 & 0xf, header >> 20 & 0x1f, header >> 26);
        assert_eq!(fields, (0xf, 0, u64::from(*engine)), "{header:#x}");
        // The code object's address and number came ahead of the kernel.
        let users = blocks(body).take_while(|block| block[0] == USER).count();
        assert!(users >= 10, "{users}");
    }
    let kernels = std::fs::read(lab.outside(&lab.kernels()?))?;
    let code = contents(&got.code)?;
    assert!(code.contains(&kernels), "{:?}", got.code);
    let named = |path: &PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        name.contains("gfx942_code_object_id_")
    };
    assert!(got.code.iter().all(named), "{:?}", got.code);
    ended(target)
}

/// Dispatches by number, far enough apart for the first to be read; a second session in the same process; a buffer that is too
/// small is reported, with the bytes that it has.
#[test]
fn dispatches_are_chosen_by_number_and_full_buffers_are_reported() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let command = program(&lab, "att-many.log")?.env("MODEL_TRACE_DETAIL", 40_000);
    let mut target = started(command)?;
    let words = ["--att-target-cu", "0", "--att-buffer-size", "0x400000"];
    let range = [
        "--kernel-iteration-range",
        "[2,[27-27]]",
        "--kernel-include-regex",
        "vadd",
    ];
    let got = traced(
        &lab,
        &mut target,
        &[&words[..], &range[..]].concat(),
        &["inside 30"],
    )?;
    got.exit.clone().success()?;
    got.check();
    assert_eq!((got.data.len(), got.starts()), (2, 2), "{}", got.exit);
    let said = format!("{} {}", got.notes, got.exit);
    assert!(!said.contains("filled its buffers"), "{said}");
    // The smallest buffer has no room for a wave's steps.
    let words = ["--att-target-cu", "0", "--att-buffer-size", "0x100000"];
    let got = traced(&lab, &mut target, &words, &["inside 30", "outside 2"])?;
    got.check();
    let said = format!("{} {}", got.notes, got.exit);
    assert_eq!(got.data.len(), 2, "the first of each kernel: {said}");
    assert!(got.written().iter().all(|trace| trace.full));
    assert_eq!(
        said.matches("filled its buffers, so its end is missing")
            .count(),
        2,
        "{said}"
    );
    ended(target)
}

/// A GPU with eight dies: engines of several of them, which the commands are made for one by one.
#[test]
fn engines_of_several_dies_are_traced() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = started(program(&lab, "att-dies.log")?.gpu("8,32,304,1"))?;
    let words = ["--att-target-cu", "0", "--att-shader-engine-mask", "0x11"];
    let got = traced(&lab, &mut target, &words, &["inside 2"])?;
    got.exit.clone().success()?;
    let engines: Vec<u32> = got.data.keys().map(|(engine, _)| *engine).collect();
    assert_eq!(engines, [0, 4], "{} {}", got.notes, got.exit);
    let hashes: BTreeSet<u64> = got.written().iter().map(|trace| trace.hash).collect();
    for (body, _) in got.data.values() {
        assert!(hashes.contains(&hash_of(body.iter().copied())));
        assert_eq!(got.grids(body), [VADD], "{}", got.exit);
    }
    ended(target)
}

/// A program that is started is traced in the same way.
#[test]
fn a_started_program_is_traced() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let out = tempfile::tempdir_in(lab.scratch())?;
    let words = [
        "--att",
        "--kernel-iteration-range",
        "[2]",
        "--kernel-include-regex",
        "scale",
        "--att-target-cu",
        "0",
        "--output-format",
        "csv",
    ];
    let command = launched(&lab, program(&lab, "att-started.log")?, out.path(), &words)?;
    let target = started(command)?;
    let log = target.log.clone();
    ended(target)?;
    let log = ModelLog::read(&log)?;
    let mut written: Vec<u64> = Vec::new();
    for record in &log.records {
        if let Event::Trace(trace) = &record.event {
            written.push(trace.hash);
        }
    }
    let mut found = Vec::new();
    let mut notes = String::new();
    for file in files(out.path()) {
        let name = file.to_string_lossy().into_owned();
        if name.ends_with(".att") {
            let bytes = std::fs::read(&file)?;
            found.push(hash_of(bytes.into_iter().skip(8)));
        } else if name.ends_with("notes.txt") {
            notes = std::fs::read_to_string(&file)?;
        }
    }
    written.sort_unstable();
    found.sort_unstable();
    assert_eq!((found.len(), &found), (1, &written), "{notes}");
    assert!(notes.contains("rocprof-trace-decoder"), "{notes}");
    Ok(())
}

/// What cannot be traced is refused by name before the process is touched.
#[test]
fn what_cannot_be_traced_is_refused() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = started(program(&lab, "att-refused.log")?)?;
    let tries: [(&[&str], &str); 4] = [
        (
            &["--pmc", "SQ_WAVES", "--att-target-cu", "0"],
            "--att and --pmc",
        ),
        (&["--att-target-cu", "16"], "ROCPROF_ATT_PARAM_TARGET_CU"),
        (&["--att-buffer-size", "4096"], "at least 1 MiB"),
        (&["--att-gpu-index", "3"], "sees no such GPU"),
    ];
    let out = tempfile::tempdir_in(lab.scratch())?;
    for (words, why) in tries {
        let words = [&["--att"], words].concat();
        let exit = attach(&lab, &target, out.path(), &words)?
            .spawn()?
            .target
            .wait(PATIENCE)?;
        assert!(
            !exit.status.success() && exit.to_string().contains(why),
            "{exit}"
        );
    }
    work(&mut target, "inside 1")?;
    ended(target)
}

/// A device that may take packets before their doorbell, and so skip the start of a chosen dispatch: each file
/// is what the device wrote for one dispatch, of an engine that is not the first.
#[test]
fn files_are_whole_on_a_device_that_takes_packets_early() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let command = program(&lab, "att-eager.log")?.on(GpuModel::Eager(5));
    let mut target = started(command)?;
    let words = [
        "--kernel-iteration-range",
        "[1-1000]",
        "--att-shader-engine-mask",
        "0x4",
    ];
    let got = traced(&lab, &mut target, &words, &["inside 40", "outside 40"])?;
    got.exit.clone().success()?;
    got.check();
    let said = format!("{} {}", got.notes, got.exit);
    assert!(!got.data.is_empty(), "{said}");
    for (body, _) in got.data.values() {
        assert_eq!(got.grids(body).len(), 1, "{said}");
    }
    target.model_log()?.check()?;
    ended(target)
}
