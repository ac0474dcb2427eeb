//! The whole suite, in the order in which a mistake is cheapest to find.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Outcome, cargo, failed, is_root, root, run, target_directory};
use crate::{aarch64, amd_headers, docs, lab, python, stage};

/// How long the tests may take together, for timeout(1).
const PATIENCE: &str = "30m";

/// One step.
struct Step {
    name: &'static str,
    run: fn() -> Outcome<Done>,
    /// Whether later steps make no sense without it.
    needed: bool,
}

/// How a step ended.
enum Done {
    Passed,
    /// Passed, but for so many tests that were left out and are listed.
    PassedBut(usize),
    /// Left out, and why: never counted as passed.
    LeftOut(&'static str),
}

const STEPS: &[Step] = &[
    Step {
        name: "format",
        run: || passed(cargo(&["fmt", "--all", "--check"])),
        needed: false,
    },
    Step {
        name: "lints",
        run: || {
            passed(cargo(&[
                "clippy",
                "--quiet",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ]))
        },
        needed: false,
    },
    Step {
        name: "loom",
        run: loom,
        needed: false,
    },
    Step {
        name: "API documentation",
        run: || {
            let mut doc = cargo(&["doc", "--quiet", "--workspace", "--no-deps"]);
            doc.arg("--document-private-items");
            run(doc.env("RUSTDOCFLAGS", "-D warnings")).map(|()| Done::Passed)
        },
        needed: false,
    },
    Step {
        name: "documents",
        run: || docs::docs_task(&["--check".to_owned()]).map(|()| Done::Passed),
        needed: false,
    },
    Step {
        name: "dependencies",
        run: dependencies,
        needed: false,
    },
    Step {
        name: "aarch64 build",
        run: || unless_left_out(aarch64::build()),
        needed: false,
    },
    Step {
        name: "aarch64 tests",
        run: || unless_left_out(aarch64::tests()),
        needed: false,
    },
    Step {
        name: "release",
        run: release,
        needed: false,
    },
    Step {
        name: "stage",
        run: || stage::stage(false).map(|_| Done::Passed),
        needed: true,
    },
    Step {
        name: "python",
        run: || python::ready().map(|_| Done::Passed),
        // Tests that use it fail by name; the others can still show something.
        needed: false,
    },
    Step {
        name: "gpu-check's statistics",
        run: || {
            let mut python = Command::new("python3");
            let python = python.args(["-B", "-m", "unittest", "test_statistics"]);
            run(python.current_dir(root().join("gpu"))).map(|()| Done::Passed)
        },
        needed: false,
    },
    Step {
        name: "AMD's headers",
        run: amd_headers,
        needed: false,
    },
    Step {
        name: "lab",
        run: prepare_lab,
        needed: true,
    },
    Step {
        name: "tests",
        run: tests,
        needed: false,
    },
];

/// What users get is built without assertions, those of the libraries that we stand on, too: clap answers otherwise there, so that `midair run`
/// panicked in release builds, which no test of an ordinary build could see.
fn release() -> Outcome<Done> {
    let prefix = stage::stage(true)?;
    let midair = stage::staged_program(&prefix, "midair")?;
    for words in [&["run", "true"][..], &["ps"]] {
        run(Command::new(&midair).args(words))?;
    }
    Ok(Done::Passed)
}

fn passed(mut command: Command) -> Outcome<Done> {
    run(&mut command).map(|()| Done::Passed)
}

fn unless_left_out(outcome: Outcome<aarch64::LeftOut>) -> Outcome<Done> {
    outcome.map(|left_out| left_out.map_or(Done::Passed, Done::LeftOut))
}

/// `cargo xtask test`.
pub fn test_task(words: &[String]) -> Outcome<()> {
    if !words.is_empty() {
        return failed("takes no words; to run a part, use cargo test -p PACKAGE");
    }
    let mut rows: Vec<(&str, String, Duration)> = Vec::new();
    let mut bad = 0;
    let mut stopped = false;
    for step in STEPS {
        if stopped {
            rows.push((step.name, "not run".to_owned(), Duration::ZERO));
            bad += 1;
            continue;
        }
        println!("== {}", step.name);
        let began = Instant::now();
        let outcome = (step.run)();
        let text = match &outcome {
            Ok(Done::Passed) => "passed".to_owned(),
            Ok(Done::PassedBut(count)) => format!("passed; {count} tests left out, see above"),
            Ok(Done::LeftOut(why)) => format!("left out: {why}"),
            Err(failure) => {
                eprintln!("{}: {failure}", step.name);
                "FAILED".to_owned()
            }
        };
        if outcome.is_err() {
            bad += 1;
            stopped = step.needed;
        }
        rows.push((step.name, text, began.elapsed()));
    }
    println!("== summary");
    for (name, text, took) in &rows {
        println!("{name:14} {:7.1} s  {text}", took.as_secs_f64());
    }
    if bad == 0 {
        Ok(())
    } else {
        failed(format!(
            "{bad} of {} steps failed or could not run",
            STEPS.len()
        ))
    }
}

/// The lock-free types of crates/lockfree under every interleaving. In a target directory of its own, since the flag makes other
/// builds of every dependency.
fn loom() -> Outcome<Done> {
    let mut command = cargo(&[
        "test",
        "--quiet",
        "--package",
        "midair-lockfree",
        "--test",
        "*",
    ]);
    command
        .arg("--target-dir")
        .arg(target_directory().join("loom"))
        .env("RUSTFLAGS", "--cfg loom");
    passed(command)
}

fn dependencies() -> Outcome<Done> {
    if !has_subcommand("deny") {
        return Ok(Done::LeftOut("cargo-deny is not installed"));
    }
    passed(cargo(&[
        "deny",
        "--offline",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}

/// A big download that one test needs: where it is not asked for and cannot be had, that is said and the rest goes on.
fn amd_headers() -> Outcome<Done> {
    match amd_headers::ready() {
        Ok(_) => Ok(Done::Passed),
        Err(failure) if amd_headers::is_demanded() => Err(failure),
        Err(failure) => {
            eprintln!("{failure}");
            Ok(Done::LeftOut(
                "they could not be had; MIDAIR_AMD_HEADERS=1 makes that a failure",
            ))
        }
    }
}

fn prepare_lab() -> Outcome<Done> {
    if lab::is_skipped() {
        return Ok(Done::LeftOut(
            "MIDAIR_SKIP_LAB is set; tests on AMD's runtimes do not run",
        ));
    }
    if !is_root() {
        return Ok(Done::LeftOut(
            "it needs root; tests on AMD's runtimes do not run",
        ));
    }
    lab::ready().map(|_| Done::Passed)
}

/// The test runner. nextest ends what hangs, test by test (.config/nextest.toml); cargo test cannot, so it is bounded as a whole.
fn tests() -> Outcome<Done> {
    let mut command = if has_subcommand("nextest") {
        cargo(&["nextest", "run", "--workspace", "--no-fail-fast"])
    } else {
        let cargo = cargo(&["test", "--workspace", "--no-fail-fast"]);
        let mut bounded = Command::new("timeout");
        bounded
            .args(["--kill-after=10", PATIENCE])
            .arg(cargo.get_program())
            .args(cargo.get_args())
            .current_dir(root());
        bounded
    };
    let left_out = target_directory().join("left-out");
    // From an earlier run, if it is there at all.
    let _ = std::fs::remove_file(&left_out);
    command
        .env("MIDAIR_STAGE", target_directory().join("stage"))
        .env("MIDAIR_PYTHON", python::directory())
        .env("MIDAIR_LEFT_OUT", &left_out)
        .env("MIDAIR_AMD_HEADERS_DIR", amd_headers::directory())
        .env("MIDAIR_LAB", lab::lab_root());
    let outcome = run(&mut command);
    let text = std::fs::read_to_string(&left_out).unwrap_or_default();
    let tests: BTreeSet<&str> = text.lines().collect();
    if !tests.is_empty() {
        println!("== left out, not tested");
        tests.iter().for_each(|test| println!("{test}"));
    }
    outcome.map(|()| match tests.len() {
        0 => Done::Passed,
        count => Done::PassedBut(count),
    })
}

fn has_subcommand(name: &str) -> bool {
    let found = cargo(&[name, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}
