//! Runs the whole suite, in the order in which a mistake is found most cheaply.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::dependencies::{Checked, NO_CARGO_DENY};
use crate::{
    aarch64, amd_headers, asan, circles, debian, dependencies, disk, dist, docs, flaky, lab, miri,
    python, setup, stage, times, walk,
};
use midair_dev_kit::run::{Outcome, cargo, failed, is_root, output, root, run, target_directory};
use midair_dev_stage::Build;

/// How long all tests may take together, for timeout(1).
const PATIENCE: &str = "30m";

/// One step.
struct Step {
    name: &'static str,
    /// Whether only `--all` runs it.
    all: bool,
    run: fn(&mut Downloads) -> Outcome<Done>,
    /// Whether later steps make no sense if this one fails.
    needed: bool,
}

/// How a step ended.
enum Done {
    Passed,
    /// It passed, except for this many tests that were left out and are listed.
    PassedBut(usize),
    /// It was left out for this reason, which never counts as passed.
    LeftOut(String),
}

/// Steps that leave processors idle for half of their time. The suite has a process of its own run
/// them alongside the others.
const BESIDE: &[Step] = &[
    Step {
        name: "loom",
        all: true,
        run: |_| loom(),
        needed: false,
    },
    Step {
        name: "Miri",
        all: true,
        run: |downloads| match downloads.nightly {
            true => unless_left_out(miri::suite()),
            false => Ok(Done::LeftOut("--no-nightly".to_owned())),
        },
        needed: false,
    },
    Step {
        name: "AddressSanitizer",
        all: true,
        run: |_| unless_left_out(asan::suite()),
        needed: false,
    },
];

const STEPS: &[Step] = &[
    Step {
        name: "format",
        all: false,
        run: |_| passed(cargo(&["fmt", "--all", "--check"])),
        needed: false,
    },
    Step {
        name: "lints",
        all: false,
        run: |_| {
            let mut command = cargo(&["clippy", "--workspace", "--all-targets", "--"]);
            command.args(LINT_OPTIONS);
            passed(command)
        },
        needed: false,
    },
    Step {
        name: "import circles",
        all: false,
        run: |_| circles::circles_task(&[]).map(|()| Done::Passed),
        needed: false,
    },
    Step {
        name: "API documentation",
        all: false,
        run: |_| {
            let mut doc = cargo(&["doc", "--workspace", "--no-deps"]);
            doc.arg("--document-private-items");
            checked_by_the_lints(&mut doc);
            run(doc.env("RUSTDOCFLAGS", "-D warnings")).map(|()| Done::Passed)
        },
        needed: false,
    },
    Step {
        name: "documents",
        all: false,
        run: |_| docs::docs_task(&["--check".to_owned()]).map(|()| Done::Passed),
        needed: false,
    },
    Step {
        name: "dependencies",
        all: false,
        run: |_| dependencies::weaknesses().map(|()| Done::Passed),
        needed: false,
    },
    Step {
        name: "aarch64 build",
        all: true,
        run: |_| unless_left_out(aarch64::build()),
        needed: false,
    },
    Step {
        name: "aarch64 tests",
        all: true,
        run: |_| unless_left_out(aarch64::tests()),
        needed: false,
    },
    Step {
        name: "without assertions",
        all: true,
        run: |_| without_assertions(),
        needed: false,
    },
    Step {
        name: "loom, Miri, ASan",
        all: true,
        // AddressSanitizer builds test programs in the directory that is staged from.
        run: |downloads| downloads.wait_for_checks(),
        needed: false,
    },
    Step {
        name: "build",
        all: false,
        // This builds all that the next steps run. So what is staged is not built a second time
        // with other features of its dependencies. What takes how long is in target/cargo-timings.
        run: |_| {
            passed(cargo(&[
                "build",
                "--workspace",
                "--all-targets",
                "--timings",
            ]))
        },
        needed: true,
    },
    Step {
        name: "stage",
        all: false,
        run: |_| stage::stage_built(Build::Debug).map(|_| Done::Passed),
        needed: true,
    },
    Step {
        name: "what others install",
        all: false,
        run: |_| dist::of_stage(&dist_directory()).map(|()| Done::Passed),
        // The tests that need this fail by name, and the others can still show something.
        needed: false,
    },
    Step {
        name: "python",
        all: false,
        run: |downloads| {
            let _ = downloads.wait_for(HEADERS);
            python::ready().map(|_| Done::Passed)
        },
        // The tests that need this fail by name, and the others can still show something.
        needed: false,
    },
    Step {
        name: "licences and sources",
        all: false,
        // With the cargo-deny that the step before installs.
        run: |_| {
            dependencies::rules().map(|checked| match checked {
                Checked::Yes => Done::Passed,
                Checked::NoCargoDeny => Done::LeftOut(NO_CARGO_DENY.to_owned()),
            })
        },
        needed: false,
    },
    Step {
        name: "gpu-check's statistics",
        all: false,
        run: |_| {
            let mut python = Command::new("python3");
            let python = python.args(["-B", "-m", "unittest", "test_statistics"]);
            run(python.current_dir(root().join("gpu"))).map(|()| Done::Passed)
        },
        needed: false,
    },
    Step {
        name: "AMD's headers, Triton",
        all: false,
        run: |downloads| {
            let _ = downloads.wait_for(HEADERS);
            amd_headers(downloads.all)
        },
        needed: false,
    },
    Step {
        name: "lab",
        all: false,
        run: |downloads| {
            let _ = downloads.wait_for(LAB);
            prepare_lab()
        },
        needed: true,
    },
    Step {
        name: "Debian 12",
        all: false,
        run: |downloads| {
            let _ = downloads.wait_for(DEBIAN);
            unless_left_out(debian::ready())
        },
        needed: false,
    },
    Step {
        name: "tests",
        all: false,
        run: |downloads| tests(downloads.all),
        needed: false,
    },
    Step {
        name: "bare machine",
        all: true,
        run: |_| unless_left_out(walk::suite()),
        needed: false,
    },
];

/// Tasks that mostly wait for the network. The one for the headers needs the Python, too, and makes
/// it.
const HEADERS: &[&str] = &["amd-headers"];
const LAB: &[&str] = &["lab", "setup"];
const DEBIAN: &[&str] = &["debian-12"];
/// The task that runs [`BESIDE`].
const CHECKS: &[&str] = &["test", "--beside"];
/// The same without Miri.
const CHECKS_STABLE: &[&str] = &["test", "--beside", "--no-nightly"];

/// Tasks that run during the first steps, which compile. Their output goes to files. A step that
/// needs a download waits for it, and then does itself what is still missing. So nothing depends
/// on how that task ended.
struct Downloads {
    running: Vec<(&'static [&'static str], Child, PathBuf)>,
    /// Whether Miri is wanted.
    nightly: bool,
    /// Whether all steps run, and nothing may be left out for want of a package or of a download.
    all: bool,
}

impl Downloads {
    /// Starts none.
    fn none(nightly: bool) -> Downloads {
        Downloads {
            running: Vec::new(),
            nightly,
            all: true,
        }
    }

    fn start(all: bool, nightly: bool) -> Downloads {
        let mut tasks = vec![HEADERS];
        if all {
            tasks.insert(0, if nightly { CHECKS } else { CHECKS_STABLE });
        }
        if is_root() {
            tasks.push(DEBIAN);
        }
        if !lab::is_skipped() && is_root() {
            tasks.push(LAB);
        }
        let running = tasks.into_iter().filter_map(|words| {
            let log = target_directory().join(format!("{}.log", words.join("-")));
            let file = File::create(&log).ok()?;
            let mut command = Command::new(std::env::current_exe().ok()?);
            command.args(words).stdin(Stdio::null());
            command.stdout(file.try_clone().ok()?).stderr(file);
            let child = command.spawn().ok()?;
            println!(
                "beside the next steps: {} ({})",
                words.join(" "),
                log.display()
            );
            Some((words, child, log))
        });
        Downloads {
            running: running.collect(),
            nightly,
            all,
        }
    }

    /// Waits for the end of a task, if it still runs, and shows its output. Returns that, and
    /// whether the task ended well; `None` if it was not started.
    fn wait_for(&mut self, words: &[&str]) -> Option<(String, bool)> {
        let found = self.running.iter().position(|(task, ..)| *task == words);
        let (_, mut child, log) = found.map(|at| self.running.remove(at))?;
        let is_well = child.wait().is_ok_and(|status| status.success());
        let bytes = std::fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        print!("{text}");
        Some((text, is_well))
    }

    /// Waits for the steps of [`BESIDE`].
    fn wait_for_checks(&mut self) -> Outcome<Done> {
        let task = if self.nightly { CHECKS } else { CHECKS_STABLE };
        match self.wait_for(task) {
            Some((text, true)) => {
                let ended = |step: &&Step| text.lines().any(|line| is_row_of(line, step.name));
                if BESIDE.iter().filter(ended).count() < BESIDE.len() {
                    return failed("they do not say how they ended");
                }
                let left_out: Vec<&str> = text.lines().filter(|line| is_left_out(line)).collect();
                match left_out.as_slice() {
                    [] => Ok(Done::Passed),
                    lines => Ok(Done::LeftOut(lines.join("; "))),
                }
            }
            Some((_, false)) => failed("a step failed"),
            None => failed("they were not begun"),
        }
    }
}

impl Drop for Downloads {
    /// Waits for all tasks, so that after a step that failed none goes on alone.
    fn drop(&mut self) {
        for (words, child, log) in &mut self.running {
            let _ = child.wait();
            if words.starts_with(CHECKS) {
                let bytes = std::fs::read(log).unwrap_or_default();
                print!("{}", String::from_utf8_lossy(&bytes));
            }
        }
    }
}

/// Checks the product without assertions, as users get it, also in the libraries that we use. clap,
/// for example, answers differently then. Because of that, `midair run` once panicked in release
/// builds, and no test of an ordinary build could see it.
fn without_assertions() -> Outcome<Done> {
    let prefix = stage::stage_demo(Build::Unchecked)?;
    let midair = stage::staged_program(&prefix, "midair")?;
    let results = target_directory().join("demo-without-assertions");
    let results = results.to_string_lossy();
    for words in [&["run", "true"][..], &["ps"], &["demo", "-d", &results]] {
        run(Command::new(&midair).args(words))?;
    }
    Ok(Done::Passed)
}

/// What the lints are run with.
const LINT_OPTIONS: [&str; 2] = ["-D", "warnings"];

/// Makes a command of cargo use what the lints have compiled for checking. Otherwise it compiles
/// each library of the workspace once more, which takes longer than the documentation. With another
/// Clippy that is what happens.
fn checked_by_the_lints(command: &mut Command) {
    let Ok(sysroot) = output(Command::new("rustc").args(["--print", "sysroot"])) else {
        return;
    };
    let sysroot = String::from_utf8_lossy(&sysroot).trim().to_owned();
    let driver = PathBuf::from(sysroot).join("bin/clippy-driver");
    if driver.is_file() {
        // As cargo-clippy calls it.
        let options = LINT_OPTIONS.map(|word| format!("{word}__CLIPPY_HACKERY__"));
        command
            .env("RUSTC_WORKSPACE_WRAPPER", driver)
            .env("CLIPPY_ARGS", options.concat());
    }
}

fn passed(mut command: Command) -> Outcome<Done> {
    run(&mut command).map(|()| Done::Passed)
}

fn unless_left_out(outcome: Outcome<aarch64::LeftOut>) -> Outcome<Done> {
    outcome.map(|left_out| left_out.map_or(Done::Passed, |why| Done::LeftOut(why.to_owned())))
}

/// Runs `cargo xtask test`.
pub fn test_task(words: &[String]) -> Outcome<()> {
    let has = |word: &str| words.iter().any(|given| given == word);
    let known = ["--all", "--no-nightly", "--set-up-only", "--beside"];
    if let Some(word) = words.iter().find(|word| !known.contains(&word.as_str())) {
        return failed(format!(
            "takes --all, --no-nightly and --set-up-only, not {word}; to run a part: cargo xtask \
             check, cargo xtask e2e NAME, cargo test -p PACKAGE"
        ));
    }
    let (all, nightly) = (has("--all"), !has("--no-nightly"));
    if has("--beside") {
        return steps(BESIDE, &mut Downloads::none(nightly));
    }
    let began = Instant::now();
    println!("== set-up");
    setup::ready(all, all && nightly)?;
    println!("== the set-up took {:.1} s", began.elapsed().as_secs_f64());
    if has("--set-up-only") {
        return Ok(());
    }
    let outcome = steps(STEPS, &mut Downloads::start(all, nightly));
    if !all {
        println!(
            "not run: Miri, loom, AddressSanitizer, aarch64 and more, by cargo xtask test --all"
        );
    }
    outcome
}

/// The text in the summary for a step that was left out.
const LEFT_OUT: &str = "left out:";

/// Returns whether a line of a summary is about this step.
fn is_row_of(line: &str, name: &str) -> bool {
    let rest = line.strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with(' ') && rest.contains(" s  "))
}

/// Returns whether a line of a summary is about a step that was left out.
fn is_left_out(line: &str) -> bool {
    let mut words = line.split(" s  ").skip(1);
    words.next().is_some_and(|text| text.starts_with(LEFT_OUT))
}

/// Runs steps, and sums them up.
fn steps(steps: &[Step], downloads: &mut Downloads) -> Outcome<()> {
    let mut rows: Vec<(&str, String, Duration)> = Vec::new();
    let mut bad = 0;
    let mut stopped = false;
    let of_all = downloads.all;
    let steps: Vec<&Step> = steps.iter().filter(|step| of_all || !step.all).collect();
    for step in &steps {
        if stopped {
            rows.push((step.name, "not run".to_owned(), Duration::ZERO));
            bad += 1;
            continue;
        }
        println!("== {}", step.name);
        let began = Instant::now();
        let outcome = (step.run)(downloads);
        let text = match &outcome {
            Ok(Done::Passed) => "passed".to_owned(),
            Ok(Done::PassedBut(count)) => format!("passed; {count} tests left out, see above"),
            Ok(Done::LeftOut(why)) => format!("{LEFT_OUT} {why}"),
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
        println!("{name:22} {:7.1} s  {text}", took.as_secs_f64());
    }
    let took: Vec<(&str, Duration)> = rows.iter().map(|(name, _, took)| (*name, *took)).collect();
    times::keep(&took);
    if bad == 0 {
        Ok(())
    } else {
        failed(format!(
            "{bad} of {} steps failed or could not run",
            steps.len()
        ))
    }
}

/// Tests the lock-free types of crates/target/lockfree under every interleaving. It has a target directory
/// of its own, since the flag makes different builds of every dependency.
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

/// Fetches a big download that few tests need. If it is not demanded and cannot be had, that is
/// said and the suite goes on.
fn amd_headers(all: bool) -> Outcome<Done> {
    match amd_headers::ready() {
        Ok(_) => Ok(Done::Passed),
        Err(failure) if all || amd_headers::is_demanded() => Err(failure),
        Err(failure) => {
            eprintln!("{failure}");
            Ok(Done::LeftOut(
                "they could not be had; MIDAIR_AMD_HEADERS=1 makes that a failure".to_owned(),
            ))
        }
    }
}

fn prepare_lab() -> Outcome<Done> {
    if lab::is_skipped() {
        return Ok(Done::LeftOut(
            "MIDAIR_SKIP_LAB is set; tests on AMD's runtimes do not run".to_owned(),
        ));
    }
    if !is_root() {
        return Ok(Done::LeftOut(
            "it needs root; tests on AMD's runtimes do not run".to_owned(),
        ));
    }
    lab::ready().map(|_| Done::Passed)
}

/// Runs the tests. nextest ends each test that hangs (.config/nextest.toml). `cargo test` cannot do
/// that, so it has one time limit for all tests.
fn tests(all: bool) -> Outcome<Done> {
    disk::before_the_tests()?;
    let mut command = if setup::has_subcommand("nextest") {
        let mut nextest = cargo(&["nextest", "run", "--workspace", "--no-fail-fast"]);
        // Tests spend half of their time waiting: for the end of leases, for devices, for the time
        // in which something must not happen.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        nextest.args(["--test-threads", &(2 * cores).to_string()]);
        nextest
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
    // An earlier run may have left this file.
    let _ = std::fs::remove_file(&left_out);
    command.env("MIDAIR_LEFT_OUT", &left_out);
    what_tests_need(&mut command);
    if all {
        command
            .env("MIDAIR_AMD_HEADERS", "1")
            .env("MIDAIR_CHROMIUM", "1");
    }
    flaky::begin();
    let outcome = run(&mut command);
    let second_tries = flaky::end(&mut |binary, test| {
        let mut again = cargo(&["nextest", "run", "--workspace", "--profile", "again"]);
        again.args(["--retries", "0", "--filterset"]);
        again.arg(format!("binary_id(={binary}) & test(={test})"));
        what_tests_need(&mut again);
        run(&mut again)
    });
    let text = std::fs::read_to_string(&left_out).unwrap_or_default();
    let tests: BTreeSet<&str> = text.lines().collect();
    if !tests.is_empty() {
        println!("== left out, not tested");
        tests.iter().for_each(|test| println!("{test}"));
    }
    outcome.and(second_tries).map(|()| match tests.len() {
        0 => Done::Passed,
        count => Done::PassedBut(count),
    })
}

/// Tells a command where tests find what the earlier steps made.
pub fn what_tests_need(command: &mut Command) {
    command
        .env("MIDAIR_STAGE", target_directory().join("stage"))
        .env("MIDAIR_DIST", dist_directory())
        .env("MIDAIR_PYTHON", python::directory())
        .env("MIDAIR_AMD_HEADERS_DIR", amd_headers::directory())
        .env("MIDAIR_TRITON", amd_headers::package_directory())
        .env("MIDAIR_LAB", lab::lab_root())
        .env("MIDAIR_DEBIAN_12", debian::root_of_12());
}

/// Returns the directory with what users install, for the suite.
fn dist_directory() -> PathBuf {
    target_directory().join("dist/suite")
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_dev_kit::run::crate_directories;
    use std::fs;
    use std::path::Path;

    /// Returns the test files below a directory that no `mod` line makes a part of a program.
    /// `parent` is the text of the file above them.
    fn forgotten(directory: &Path, parent: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let declared = parent.contains(&format!("mod {name};"));
            if path.is_dir() {
                let own = [path.join("mod.rs"), path.with_extension("rs")];
                let text: String = own.iter().flat_map(fs::read_to_string).collect();
                found.extend(forgotten(&path, &text));
            } else if path.extension().is_some_and(|it| it == "rs") {
                let is_top = ["main", "mod"].contains(&name.as_str());
                found.extend((!declared && !is_top).then_some(path));
            }
        }
        found
    }

    #[test]
    fn every_test_file_is_a_module_of_its_program() {
        let mut programs = vec![root().join("tests/e2e"), root().join("tests/security")];
        for package in crate_directories().unwrap() {
            programs.push(package.join("tests/it"));
        }
        programs.retain(|program| program.join("main.rs").exists());
        assert!(programs.len() > 5, "{programs:?}");
        for program in programs {
            let main = fs::read_to_string(program.join("main.rs")).unwrap();
            assert_eq!(forgotten(&program, &main), Vec::<PathBuf>::new());
        }
    }

    #[test]
    fn a_check_that_was_left_out_is_found_in_its_summary() {
        assert!(is_left_out(
            "Miri                      0.3 s  left out: no nightly"
        ));
        assert!(!is_left_out("Miri                     72.2 s  passed"));
        assert!(!is_left_out("left out: Miri"));
        assert!(is_row_of(
            "loom                     105.4 s  passed",
            "loom"
        ));
        assert!(!is_row_of(
            "loomed                   105.4 s  passed",
            "loom"
        ));
        assert!(!is_row_of("== loom", "loom"));
    }
}
