//! Libraries above HIP (RCCL, rocDecode, rocJPEG), on stand-ins that are made from the recorded
//! facts (`tests/src/libraries.rs`). The view of a sample client and the command line's files are
//! compared with what the libraries themselves wrote of their calls.

use crate::driver_events::{quit, report, sample_client};
use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::caller::{Counts, between};
use midair_tests::lab::LabTarget;
use midair_tests::libraries::{self, LOG};
use midair_tests::python::python;
use midair_tests::stage::{command, stage};
use midair_tests::stand_in::Kit;
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, Target, run};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The options that ask for them.
const OPTIONS: [&str; 3] = ["--rccl-trace", "--rocdecode-trace", "--rocjpeg-trace"];
/// For each library: the name of its csv file, its list in json, the name of its kind, and the
/// prefixes of its functions.
const FILES: [(&str, &str, &str, &[&str]); 3] = [
    ("rccl_api", "rccl_api", "RCCL_API", &["nccl", "mscl"]),
    (
        "rocdecode_api",
        "rocdecode_api",
        "ROCDECODE_API_EXT",
        &["rocDec"],
    ),
    ("rocjpeg_api", "rocjpeg_api", "ROCJPEG_API", &["rocJpeg"]),
];

/// The program and the file to which the libraries write their calls.
struct Libraries {
    kit: Kit,
    program: PathBuf,
    log: PathBuf,
}

impl Libraries {
    fn new() -> Result<Libraries> {
        let kit = Kit::new()?;
        let dir = kit.scratch().to_path_buf();
        libraries::lay_out(&dir)?;
        let runtimes = kit.dir().display();
        let more = [
            format!("-L{runtimes}"),
            format!("-Wl,-rpath,{runtimes}"),
            "-Wl,--no-as-needed".to_owned(),
            "-l:libamdhip64.so.7".to_owned(),
            "-l:libhsa-runtime64.so.1".to_owned(),
        ];
        let program = libraries::program(&dir, &more)?;
        let log = dir.join("libraries.log");
        Ok(Libraries { kit, program, log })
    }

    fn start(&self, variables: &[(&str, &str)]) -> Result<LabTarget> {
        let log = self.log.to_str().ok_or("a path is text")?;
        let all = [&[(LOG, log)], variables].concat();
        let mut target = self
            .kit
            .start_command(Command::new(&self.program), "model.log", &all)?;
        target.expect("ready")?;
        Ok(target)
    }

    fn calls(&self) -> Result<Counts> {
        libraries::calls(&self.log)
    }

    fn client(&self) -> Result<(PathBuf, PathBuf)> {
        sample_client(&self.kit, "libraries")
    }
}

fn work(target: &mut LabTarget, rounds: u64) -> Result<()> {
    target.send(&format!("calls {rounds}"))?;
    target.expect("calls")?;
    Ok(())
}

/// Returns what the client must have counted of these calls.
fn told_of(calls: &Counts) -> Counts {
    let mut told = Counts::new();
    for (name, count) in calls {
        told.insert(format!("callback {name}"), *count);
        told.insert(format!("record {name}"), *count);
    }
    for which in ["RCCL", "ROCDECODE", "ROCJPEG"] {
        told.insert(format!("ROCPROFILER_RUNTIME_INITIALIZATION_{which}"), 1);
    }
    told
}

#[test]
fn a_client_is_told_of_calls_of_libraries_above_hip() -> Result<()> {
    let libraries = Libraries::new()?;
    let (tool, log) = libraries.client()?;
    let mut target = libraries.start(&[])?;
    for rounds in [3, 5] {
        let before = libraries.calls()?;
        let mut attach = command("rocprof-attach")?;
        attach
            .args(["-p", &target.pid().to_string(), "-t"])
            .arg(&tool)
            .current_dir(libraries.kit.scratch());
        let mut attacher = Target::spawn(attach)?;
        attacher.expect("Press Enter to detach...")?;
        work(&mut target, rounds)?;
        attacher.send("")?;
        attacher.wait(PATIENCE)?.success()?;
        let made = between(&before, &libraries.calls()?, "");
        assert_eq!(made.len(), 13, "{made:?}");
        assert_eq!(report(&log)?, told_of(&made));
        // The client must not see this work, which comes after the detach.
        work(&mut target, 1)?;
    }
    quit(target)?;

    std::fs::remove_file(&libraries.log)?;
    let lib = stage()?.join("lib");
    let target = libraries.start(&[
        (
            "ROCP_TOOL_LIBRARIES",
            tool.to_str().ok_or("a path is text")?,
        ),
        ("LD_LIBRARY_PATH", lib.to_str().ok_or("a path is text")?),
    ])?;
    quit(target)?;
    assert_eq!(report(&log)?, told_of(&libraries.calls()?));
    Ok(())
}

/// The worker thread asks the HSA runtime again and again whether it is open. A library that
/// registers its table meanwhile is hooked before its first call.
#[test]
fn libraries_are_hooked_however_long_a_closed_runtime_takes_to_answer() -> Result<()> {
    let libraries = Libraries::new()?;
    let (tool, log) = libraries.client()?;
    let lib = stage()?.join("lib");
    let target = libraries.start(&[
        (
            "ROCP_TOOL_LIBRARIES",
            tool.to_str().ok_or("a path is text")?,
        ),
        ("LD_LIBRARY_PATH", lib.to_str().ok_or("a path is text")?),
        ("SIM_HSA_CLOSED_ANSWER", "100"),
    ])?;
    quit(target)?;
    assert_eq!(report(&log)?, told_of(&libraries.calls()?));
    Ok(())
}

/// Checks that each file has these calls and nothing else, in every format.
fn check_files(dir: &Path, made: &Counts) -> Result<()> {
    let whole = json(&dir.join("t_results.json"))?;
    let records = &whole["rocprofiler-sdk-tool"][0]["buffer_records"];
    let mut in_rocpd = BTreeSet::new();
    for (file, list, kind, beginnings) in FILES {
        let mut of_this = made.clone();
        of_this.retain(|name, _| beginnings.iter().any(|begin| name.starts_with(begin)));
        let mut rows = Counts::new();
        for row in Csv::read(&dir.join(format!("t_{file}_trace.csv")))?.rows {
            assert_eq!(row["Domain"], kind, "{row:?}");
            *rows.entry(row["Function"].clone()).or_default() += 1;
        }
        assert_eq!(rows, of_this, "{file}");
        let all: u64 = of_this.values().sum();
        let elements = records[list].as_array().ok_or("a list")?;
        assert_eq!(elements.len() as u64, all, "{list}");
        let with_arguments = list == "rocdecode_api";
        for element in elements {
            assert_eq!(element.get("args").is_some(), with_arguments, "{element}");
        }
        if with_arguments {
            let frame = elements
                .iter()
                .find(|element| element["args"].as_array().is_some_and(|all| all.len() == 5))
                .ok_or("a frame")?;
            assert_eq!(frame["args"][1]["name"], "pic_idx", "{frame}");
            assert_eq!(frame["args"][1]["value"], "5", "{frame}");
        }
        in_rocpd.insert(format!("{kind} {all}"));
    }
    let mut reader = Command::new(python()?);
    reader.arg("-c").arg(
        "import sqlite3, sys\n\
         for row in sqlite3.connect(sys.argv[1]).execute('select category, count(*) from regions group by category'):\n  \
         print(row[0], row[1])",
    );
    reader.arg(dir.join("t_results.db"));
    let out = run(reader, PATIENCE)?.success()?.stdout;
    assert_eq!(out.into_iter().collect::<BTreeSet<_>>(), in_rocpd);
    let trace = std::fs::read(dir.join("t_results.pftrace"))?;
    for (_, category, ..) in FILES {
        let is_there = trace
            .windows(category.len())
            .any(|part| part == category.as_bytes());
        assert!(is_there, "{category} is a category of the pftrace");
    }
    Ok(())
}

#[test]
fn options_of_libraries_above_hip_write_their_files() -> Result<()> {
    let libraries = Libraries::new()?;
    let mut target = libraries.start(&[])?;
    let formats = ["--output-format", "csv", "json", "rocpd", "pftrace"];
    let before = libraries.calls()?;
    let dir = libraries.kit.scratch().join("attached");
    let mut profiler = command("rocprofv3")?;
    profiler
        .args(["--pid", &target.pid().to_string()])
        .args(formats)
        .args(OPTIONS)
        .arg("-d")
        .arg(&dir)
        .args(["-o", "t"]);
    let mut profiler = Target::spawn(profiler)?;
    profiler.expect("Press Enter to detach")?;
    work(&mut target, 4)?;
    profiler.send("")?;
    profiler.wait(PATIENCE)?.success()?;
    check_files(&dir, &between(&before, &libraries.calls()?, ""))?;

    let before = libraries.calls()?;
    let attacher = Attacher::midair(target.pid(), &["--sys-trace", "--output-format", "csv"])?;
    work(&mut target, 2)?;
    let traced = attacher.detach()?.code(0)?;
    let made = between(&before, &libraries.calls()?, "");
    for (file, _, _, beginnings) in FILES {
        let name = std::fs::read_dir(traced.dir())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| {
                path.to_string_lossy()
                    .ends_with(&format!("{file}_trace.csv"))
            })
            .ok_or_else(|| format!("{file} is part of --sys-trace"))?;
        let wanted: u64 = made
            .iter()
            .filter(|(name, _)| beginnings.iter().any(|begin| name.starts_with(begin)))
            .map(|(_, count)| count)
            .sum();
        assert_eq!(Csv::read(&name)?.rows.len() as u64, wanted, "{file}");
    }
    quit(target)?;

    std::fs::remove_file(&libraries.log)?;
    let dir = libraries.kit.scratch().join("launched");
    let (topology, at) = ("HSA_MODEL_TOPOLOGY", libraries.kit.dir().join("topology"));
    let mut profiler = command("rocprofv3")?;
    profiler
        .args(formats)
        .args(OPTIONS)
        .arg("-d")
        .arg(&dir)
        .args(["-o", "t", "--"])
        .arg(&libraries.program)
        .env(topology, at)
        .env(LOG, &libraries.log);
    let mut profiler = Target::spawn(profiler)?;
    profiler.expect("ready")?;
    profiler.send("calls 2")?;
    profiler.expect("calls")?;
    profiler.send("quit")?;
    profiler.wait(PATIENCE)?.success()?;
    check_files(&dir, &libraries.calls()?)
}
