//! ROCTx: the marks and ranges of a program that is attached to, compared with what the program
//! did.

use midair_tests::Result;
use midair_tests::attacher::{Attacher, Call, Traced, by_function, check_calls};
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::stage::{command, stage};
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target, ask};
use midair_tests::workspace;
use std::collections::BTreeMap;

const RANGES: &str = "MARKER_CORE_RANGE_API";

/// Starts `markers` with this ROCTx library.
fn start(lab: &Lab, library: &str) -> Result<LabTarget> {
    let (program, kernels) = (lab.program("markers")?, lab.kernels()?);
    let mut target = lab.run(&program).arg(library).arg(kernels).spawn()?;
    target.expect("ready")?;
    Ok(target)
}

fn ours(lab: &Lab) -> Result<LabTarget> {
    let library = lab.install(&stage()?.join("lib/librocprofiler-sdk-roctx.so.1"))?;
    start(lab, &library)
}

fn tid(target: &mut LabTarget) -> Result<i32> {
    target.send("tid")?;
    let line = target.expect("tid ")?;
    target.expect("tid")?;
    Ok(line.trim_start_matches("tid ").parse()?)
}

fn end(mut target: LabTarget) -> Result<()> {
    target.send("quit")?;
    target.expect("done")?;
    Ok(())
}

fn one<'a>(calls: &'a [Call], function: &str) -> Result<&'a Call> {
    let mut found = calls.iter().filter(|call| call.function == function);
    match (found.next(), found.next()) {
        (Some(call), None) => Ok(call),
        _ => Err(format!("not one {function:?}").into()),
    }
}

fn inside(inner: &Call, outer: &Call) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Checks that the rounds of the command `nest` are all there, each with the right nesting.
fn check_nest(markers: &[Call], rounds: u64, main: i32, hip: &[Call]) -> Result<()> {
    for round in 0..rounds {
        let (outer, inner) = (
            one(markers, &format!("outer {round}"))?,
            one(markers, &format!("inner, \"quoted\" {round}"))?,
        );
        let (mark, apart) = (
            one(markers, &format!("mark {round}"))?,
            one(markers, &format!("apart {round}"))?,
        );
        assert!(inside(inner, outer) && inside(mark, inner));
        assert_eq!(mark.start, mark.end, "a mark is a moment");
        assert!(inner.start <= apart.start && apart.start <= mark.start);
        assert!(
            outer.end <= apart.end,
            "another thread ended it after the others"
        );
        for call in [outer, inner, mark, apart] {
            assert_eq!((call.tid, call.domain.as_str()), (main, RANGES));
        }
        if !hip.is_empty() {
            let within = hip
                .iter()
                .filter(|call| call.tid == main && inside(call, inner));
            assert_eq!(within.count(), 1, "one HIP call in each inner range");
        }
    }
    Ok(())
}

fn said(traced: &Traced) -> String {
    std::fs::read_to_string(traced.file("notes.txt")).unwrap_or_default()
}

#[test]
fn ranges_are_nested_as_in_the_program() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = ours(&lab)?;
    let (pid, main) = (target.pid(), tid(&mut target)?);
    let attacher = Attacher::start(
        pid,
        &[
            "--marker-trace",
            "--hip-runtime-trace",
            "--output-format",
            "csv",
        ],
    )?;
    ask(&mut target, "nest 50")?;
    ask(&mut target, "threads 8 100")?;
    let traced = attacher.detach()?.code(0)?;
    let (markers, hip) = (traced.markers()?, traced.calls()?);
    assert_eq!(markers.len(), 50 * 4 + 8 * 100 * 2);
    check_nest(&markers, 50, main, &hip)?;
    let counts = by_function(&markers);
    assert_eq!(counts["in a thread"], 800);
    for thread in 0..8 {
        let name = format!("thread {thread}");
        assert_eq!(counts[&name], 100);
        let mut of: Vec<i32> = markers
            .iter()
            .filter(|call| call.function == name)
            .map(|call| call.tid)
            .collect();
        of.dedup();
        assert_eq!(of.len(), 1, "{name} on one thread");
    }
    // The ranges and marks of one thread lie inside each other, or do not overlap.
    let nested: Vec<Call> = markers
        .iter()
        .chain(&hip)
        .filter(|call| !call.function.starts_with("apart"))
        .cloned()
        .collect();
    check_calls(&nested, pid, (0, u64::MAX))?;

    // Nothing is recorded after the detach, nor without the option. The next attach records as the
    // first one did.
    ask(&mut target, "nest 5")?;
    let attacher = Attacher::start(pid, &["--hip-runtime-trace", "--output-format", "csv"])?;
    ask(&mut target, "nest 5")?;
    assert!(attacher.detach()?.code(0)?.markers()?.is_empty());
    let attacher = Attacher::start(pid, &["--runtime-trace", "--output-format", "csv"])?;
    ask(&mut target, "nest 7")?;
    let traced = attacher.detach()?.code(0)?;
    check_nest(&traced.markers()?, 7, main, &traced.calls()?)?;
    assert_eq!(traced.markers()?.len(), 28);
    end(target)
}

#[test]
fn ranges_that_cross_the_edge_of_a_recording_are_marked() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = ours(&lab)?;
    let pid = target.pid();
    let words = ["--marker-trace", "--output-format", "csv"];
    let attacher = Attacher::start(pid, &words)?;
    ask(&mut target, "open")?;
    ask(&mut target, "long 3")?;
    let traced = attacher.detach()?.code(0)?;
    let markers = traced.markers()?;
    assert_eq!(markers.len(), 3);
    let [pushed, started] = ["pushed and left", "started and left"];
    let (pushed, started) = (one(&markers, pushed)?, one(&markers, started)?);
    let last = markers.iter().map(|call| call.end).max().unwrap_or(0);
    assert!(
        pushed.end == last && started.end == last,
        "they end with the recording"
    );

    // The ranges end in the next recording, which has not seen them start.
    let attacher = Attacher::start(pid, &words)?;
    ask(&mut target, "shut")?;
    ask(&mut target, "nest 1")?;
    let traced = attacher.detach()?.code(0)?;
    assert_eq!(traced.markers()?.len(), 4);
    assert!(
        said(&traced).contains("2 ROCTx ranges ended that had started before"),
        "{}",
        said(&traced)
    );
    end(target)
}

#[test]
fn lost_ranges_and_truncated_messages_are_reported() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = ours(&lab)?;
    let pid = target.pid();
    let words = ["--marker-trace", "--output-format", "csv"];
    let attacher = Attacher::start(pid, &words)?;
    ask(&mut target, "deep 200")?;
    ask(&mut target, "nest 1")?;
    let traced = attacher.detach()?.code(32)?;
    // The outermost ones are left out, 16 at a time.
    assert_eq!(by_function(&traced.markers()?)["level"], 120);
    assert_eq!(traced.markers()?.len(), 120 + 4);
    assert!(
        said(&traced).contains("80 ROCTx ranges exceeded the limit"),
        "{}",
        said(&traced)
    );

    let hint = "hint: does the program forget to end ranges?";
    assert!(
        traced.exit.stderr.join("\n").contains(hint),
        "{}",
        traced.exit
    );

    // A program that forgets to pop has its other ranges all the same.
    let attacher = Attacher::start(pid, &words)?;
    ask(&mut target, "forget 300")?;
    let traced = attacher.detach()?.code(0)?;
    assert_eq!(by_function(&traced.markers()?)["good"], 300);
    assert!(
        said(&traced).contains("ROCTx ranges were pushed beyond the limit"),
        "{}",
        said(&traced)
    );

    let attacher = Attacher::start(pid, &words)?;
    ask(&mut target, "long 1024")?;
    ask(&mut target, "long 5000")?;
    ask(&mut target, "small")?;
    let traced = attacher.detach()?.code(0)?;
    let markers = traced.markers()?;
    let counts: BTreeMap<String, u64> = by_function(&markers);
    assert_eq!(counts[&"x".repeat(1024)], 2);
    assert!(
        said(&traced).contains("1 ROCTx messages were truncated"),
        "{}",
        said(&traced)
    );
    for name in [
        "roctxGetThreadId",
        "roctxProfilerPause",
        "roctxProfilerResume",
        "roctxNameOsThread",
        "roctxNameHsaAgent",
        "roctxNameHipDevice",
        "roctxNameHipStream",
    ] {
        assert_eq!(counts.get(name), Some(&1), "{name}: {counts:?}");
    }
    assert_eq!(markers.len(), 9);
    let domain = |name: &str| one(&markers, name).map(|call| call.domain.clone());
    assert_eq!(domain("roctxProfilerPause")?, "MARKER_CONTROL_API");
    assert_eq!(domain("roctxNameHipStream")?, "MARKER_NAME_API");
    end(target)
}

/// A program of this machine is launched under the profiler. Its first range is recorded, though
/// the ROCTx library registers only then.
#[test]
fn a_program_that_is_started_is_recorded_from_its_first_range() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let lib = stage()?.join("lib");
    let program = dir.path().join("first_range");
    let status = std::process::Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(workspace().join("tests/c/first_range.c"))
        .arg("-L")
        .arg(&lib)
        .arg("-l:librocprofiler-sdk-roctx.so.1")
        .status()?;
    assert!(status.success(), "the program does not compile");
    let mut rocprofv3 = command("rocprofv3")?;
    rocprofv3
        .args(["--marker-trace", "-f", "csv", "-o", "out", "-d"])
        .arg(dir.path())
        .arg("--")
        .arg(&program)
        .env("LD_LIBRARY_PATH", &lib);
    let mut process = Target::spawn(rocprofv3)?;
    process.expect("the program is done")?;
    process.wait(PATIENCE)?.success()?;
    let rows = Csv::read(&dir.path().join("out_marker_api_trace.csv"))?.rows;
    let mut names: Vec<&str> = rows.iter().map(|row| row["Function"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a mark", "another range", "the first range"]);
    Ok(())
}

/// The library of the old roctracer has no tables, only a callback that another tool may have
/// taken.
#[test]
fn the_old_library_is_recorded_through_its_callback() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let library = format!(
        "{}/libroctx64.so.4",
        lab.library("old_roctx", "libroctx64.so.4")?
    );
    let mut target = start(&lab, &library)?;
    let (pid, main) = (target.pid(), tid(&mut target)?);
    for _ in 0..2 {
        let words = [
            "--marker-trace",
            "--hip-runtime-trace",
            "--output-format",
            "csv",
        ];
        let attacher = Attacher::start(pid, &words)?;
        ask(&mut target, "nest 20")?;
        ask(&mut target, "open")?;
        let traced = attacher.detach()?.code(0)?;
        let markers = traced.markers()?;
        check_nest(&markers, 20, main, &traced.calls()?)?;
        assert_eq!(markers.len(), 20 * 4 + 2);
        ask(&mut target, "shut")?;
    }
    end(target)
}
