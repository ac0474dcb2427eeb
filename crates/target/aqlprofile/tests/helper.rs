//! The helper with test libraries that misbehave in ways in which AMD's library could. (For AMD's
//! own library see tests/e2e/counter_templates.rs.)

#![allow(clippy::unwrap_used)]

use midair_aqlprofile::{Error, Helper, failure, libraries, prepare, prepare_groups};
use midair_counters::wire::Gpu;
use midair_counters::{Architecture, Definitions};
use midair_failure::Kind;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_midair-aqlprofile");

const LIBRARY: &str = include_str!("library.c");

/// Compiles the library.
fn library(dir: &Path, flag: &str) -> Vec<OsString> {
    let (source, file) = (dir.join("library.c"), dir.join(format!("lib{flag}.so")));
    std::fs::write(&source, LIBRARY).unwrap();
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&file)
        .arg(format!("-D{flag}"))
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success());
    vec!["/nowhere/lib.so".into(), file.into()]
}

fn gpu(name: &str) -> Gpu {
    Gpu {
        name: name.into(),
        xccs: 1,
        engines: 8,
        units: 104,
        arrays: 1,
        ..Gpu::default()
    }
}

fn helper(libraries: &[OsString]) -> Helper {
    Helper::start(Path::new(PROGRAM), libraries).unwrap()
}

#[test]
fn a_template_has_the_words_and_the_places_of_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let mut helper = helper(&library(dir.path(), "GOOD"));
    for _ in 0..3 {
        let prepared = prepare(
            &mut helper,
            &gpu("gfx942"),
            &Definitions::default(),
            &["SQ_WAVES"],
        )
        .unwrap();
        let template = prepared.template;
        assert_eq!(
            (&template.start[..], template.output_bytes),
            (&[0x11, 0x22][..], 64)
        );
        // Read and stop follow each other, for the address 0.
        assert_eq!(template.read_stop, [0x33, 16, 0, 0x44]);
        let mut words = template.read_stop.clone();
        template.patch(&mut words, 0x7f12_3456_7800);
        assert_eq!(words, [0x33, 0x3456_7810, 0x7f12, 0x44]);
        let values: Vec<_> = template.values(&[1, 2, 42]).collect();
        let position = midair_counters::Position::default();
        let engine = midair_counters::Dimension::ShaderEngine;
        assert_eq!(values, [(0, position.with(engine, 3), 42)]);
    }
}

#[test]
fn a_library_that_is_missing_is_said_with_what_to_install() {
    let mut helper = helper(&["/nowhere/libhsa-amd-aqlprofile64.so.1".into()]);
    let failure = prepare(
        &mut helper,
        &gpu("gfx942"),
        &Definitions::default(),
        &["SQ_WAVES"],
    )
    .unwrap_err();
    assert_eq!(failure.kind, Kind::NoCounters);
    assert!(failure.what.contains("/nowhere/"), "{failure}");
    assert!(
        failure.hint.contains("libhsa-amd-aqlprofile64-1"),
        "{}",
        failure.hint
    );
    // Whatever is installed on this machine, the search ends with the loader.
    assert_eq!(
        libraries(|_| None).last().unwrap(),
        midair_aqlprofile::SONAME
    );
}

#[test]
fn a_library_that_crashes_or_hangs_ends_the_helper_alone() {
    let dir = tempfile::tempdir().unwrap();
    let ask = |helper: &mut Helper| {
        prepare(
            helper,
            &gpu("gfx942"),
            &Definitions::default(),
            &["SQ_WAVES"],
        )
        .unwrap_err()
    };
    let mut crashing = helper(&library(dir.path(), "CRASH"));
    let crash = ask(&mut crashing);
    assert_eq!(crash.kind, Kind::NoCounters);
    assert!(
        crash.what.ends_with("ended its process: signal 6"),
        "{crash}"
    );
    // It answers no more questions, and each error says so.
    assert!(ask(&mut crashing).what.contains("signal 6"));
    let hanging = helper(&library(dir.path(), "HANG"));
    let hang = ask(&mut hanging.limit(Duration::from_millis(300)));
    assert!(hang.what.contains("did not answer"), "{hang}");
}

#[test]
fn what_is_wrong_with_a_question_is_said_before_the_library_is_asked() {
    // This library would crash if it were asked.
    let dir = tempfile::tempdir().unwrap();
    let mut helper = helper(&library(dir.path(), "CRASH"));
    let mut ask = |name: &str, counters: &[&str]| {
        prepare(&mut helper, &gpu(name), &Definitions::default(), counters).unwrap_err()
    };
    let unknown = ask("gfx942", &["SQ_WAVE"]);
    assert_eq!(unknown.kind, Kind::Usage);
    assert!(unknown.what.contains("near it are SQ_WAVES"), "{unknown}");
    let many = ask(
        "gfx942",
        &["GRBM_COUNT", "GRBM_GUI_ACTIVE", "GRBM_SPI_BUSY"],
    );
    assert_eq!(many.kind, Kind::Usage);
    assert!(
        many.what.contains("3 counters of GRBM, which has 2"),
        "{many}"
    );
    let gpu = ask("gfx803", &["SQ_WAVES"]);
    assert_eq!(gpu.kind, Kind::NoCounters);
    assert!(gpu.hint.contains("gfx90a"), "{}", gpu.hint);
}

#[test]
fn what_the_library_refuses_is_said_with_its_status() {
    let dir = tempfile::tempdir().unwrap();
    let mut good = helper(&library(dir.path(), "GOOD"));
    let refused = prepare(
        &mut good,
        &gpu("gfx942"),
        &Definitions::default(),
        &["TCC_HIT"],
    )
    .unwrap_err();
    assert_eq!(
        refused.what,
        "AMD's packet library would not find the block TCC (0x1001)"
    );
    // After a refusal it goes on answering.
    assert!(
        prepare(
            &mut good,
            &gpu("gfx942"),
            &Definitions::default(),
            &["SQ_WAVES"]
        )
        .is_ok()
    );
    // If commands depend on an address where none was expected, nothing is guessed.
    let mut odd = helper(&library(dir.path(), "ODD"));
    let refused = prepare(
        &mut odd,
        &gpu("gfx942"),
        &Definitions::default(),
        &["SQ_WAVES"],
    )
    .unwrap_err();
    assert!(refused.what.contains("depend on no address"), "{refused}");
}

#[test]
fn groups_are_counted_without_references_where_the_library_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut good = helper(&library(dir.path(), "GOOD"));
    let none = Definitions::default();
    let mut ask = |groups: &[Vec<&str>]| prepare_groups(&mut good, &gpu("gfx942"), &none, groups);
    // The clock and the reference counters are asked for, and this library has no GRBM.
    let one = ask(&[vec!["SQ_WAVES"]]).unwrap();
    assert_eq!((one.len(), one[0].group.events.len()), (1, 1));
    // Nine counters of SQ need two groups.
    let many: Vec<&str> = Architecture::find("gfx942")
        .unwrap()
        .counters
        .iter()
        .map(|counter| counter.name)
        .filter(|name| name.starts_with("SQ_INSTS_"))
        .take(9)
        .collect();
    assert_eq!(many.len(), 9);
    let several = ask(&[many]).unwrap();
    let counted: Vec<usize> = several.iter().map(|of| of.group.events.len()).collect();
    assert_eq!(counted, [8, 1]);
    let refused = ask(&[vec!["GRBM_COUNT"]]).unwrap_err();
    assert!(refused.what.contains("the block GRBM"), "{refused}");
    let unknown = ask(&[vec!["SQ_WAVE"]]).unwrap_err();
    assert!(unknown.what.contains("near it are SQ_WAVES"), "{unknown}");
}

#[test]
fn a_program_that_is_not_there_or_is_another_is_said() {
    let none = Helper::start(Path::new("/nowhere/midair-aqlprofile"), &[]);
    let error = none.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Start(_)));
    assert_eq!(failure(&error).kind, Kind::Installation);
    let mut other = Helper::start(Path::new("/bin/cat"), &[]).unwrap();
    let said = prepare(
        &mut other,
        &gpu("gfx942"),
        &Definitions::default(),
        &["SQ_WAVES"],
    )
    .unwrap_err();
    assert!(said.what.contains("said: gpu gfx942"), "{said}");
    let mut gone = Helper::start(Path::new("/bin/true"), &[]).unwrap();
    let said = prepare(
        &mut gone,
        &gpu("gfx942"),
        &Definitions::default(),
        &["SQ_WAVES"],
    )
    .unwrap_err();
    assert!(said.what.ends_with("exit code 0"), "{said}");
}
