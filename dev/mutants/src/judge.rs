//! Runs the tests that reach a mutant while it is switched on.
//!
//! Each test first runs alone without a mutant. This shows how long it takes and which mutants it
//! reaches. A mutant's tests then run in groups, the tests of its own module and the short ones
//! first, until one fails. A session of its own holds each run, because programs that the tests
//! start find the mutant by their session (`dev/mutants/switches/src/runtime.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::build::{Built, Program};
use super::ledger::Outcome as Came;
use super::{NICE, Part};
use midair_dev_kit::run::{At, Outcome, failed, output, target_directory};

/// How long a test may take without a mutant.
const ALONE: Duration = Duration::from_secs(300);
/// Tests of a mutant run up to this sum of their times without it. Most mutants that are caught at
/// all are caught by the first tests, and damage must show near where it is.
const ENOUGH: Duration = Duration::from_secs(20);
/// A test with a mutant hangs when it takes this much longer than without one.
const SLOWER: u32 = 4;
const AT_LEAST: Duration = Duration::from_secs(10);
/// The kilobytes of memory that tests may fill. A mutant may make them ask for more without end.
const MEMORY: &str = "8388608";
/// Where the programs find which mutant is on.
const SESSIONS: &str = "/tmp/midair-mutants";
/// The pause between two looks at whether a run has ended.
const PAUSE: Duration = Duration::from_millis(4);

/// A test.
#[derive(Debug)]
struct Test {
    program: usize,
    name: String,
    /// How long it takes alone.
    takes: Duration,
}

/// A part's tests, and which of them reach each place.
#[derive(Debug)]
pub struct Tests {
    programs: Vec<Program>,
    tests: Vec<Test>,
    /// The tests by the first mutant of the place that they reach.
    reach: BTreeMap<u32, Vec<usize>>,
    /// How many tests fail without a mutant.
    left_out: usize,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    Hung,
}

impl Tests {
    /// Runs each test alone.
    pub fn look(part: &Part, built: &Built, jobs: usize) -> Outcome<Tests> {
        make_sessions()?;
        let home = target_directory().join("mutants").join(part.name);
        let mut tests = Vec::new();
        for (program, it) in built.programs.iter().enumerate() {
            let names = names(it, &[])?;
            let ignored = names_ignored(it)?;
            let names = names.into_iter().filter(|name| {
                !ignored.contains(name) && !part.skip.iter().any(|it| name.contains(it))
            });
            tests.extend(names.map(|name| (program, name)));
        }
        let seen = Mutex::new(Vec::new());
        let worker = |number: usize| -> Outcome<()> {
            let (program, name) = &tests[number];
            let log = home.join(format!("reached-{number}"));
            let file = File::create(&log).at("making", &log)?;
            file.set_len(built.names.len() as u64 + 1)
                .at("making", &log)?;
            let began = Instant::now();
            let word = log.to_string_lossy();
            let ended = start(&built.programs[*program], &[name], &word, ALONE)?;
            let takes = began.elapsed();
            let reached = fs::read(&log).at("reading", &log)?;
            let _ = fs::remove_file(&log);
            let mut seen = seen.lock().unwrap_or_else(|it| it.into_inner());
            seen.push((number, ended, takes, reached));
            Ok(())
        };
        side_by_side(tests.len(), jobs, None, worker)?;
        let mut seen = seen.into_inner().unwrap_or_else(|it| it.into_inner());
        seen.sort_by_key(|one| one.0);
        let failing: Vec<&str> = seen
            .iter()
            .filter(|one| one.1 != Ended::Passed)
            .map(|one| tests[one.0].1.as_str())
            .collect();
        if !failing.is_empty() {
            println!(
                "{}: {} tests fail without a mutant and are left out: {}",
                part.name,
                failing.len(),
                failing.join(", ")
            );
        }
        let left_out = failing.len();
        let mut reach: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut all = Vec::new();
        for ((number, ended, takes, reached), (program, name)) in seen.into_iter().zip(tests) {
            let reached = match ended {
                Ended::Passed => reached,
                _ => Vec::new(),
            };
            for (mutant, byte) in reached.into_iter().enumerate() {
                if byte != 0 {
                    reach.entry(mutant as u32).or_default().push(number);
                }
            }
            all.push(Test {
                program,
                name,
                takes,
            });
        }
        Ok(Tests {
            programs: built.programs.clone(),
            tests: all,
            reach,
            left_out,
        })
    }

    /// Returns how many tests count.
    pub fn count(&self) -> usize {
        self.tests.len() - self.left_out
    }

    /// Returns the names of all tests.
    pub fn names(&self) -> Vec<&str> {
        self.tests.iter().map(|test| test.name.as_str()).collect()
    }

    /// Makes tests with these names run for no mutant.
    pub fn leave_out(&mut self, names: &BTreeSet<String>) {
        for tests in self.reach.values_mut() {
            tests.retain(|test| !names.contains(&self.tests[*test].name));
        }
    }

    /// Returns how many fail without a mutant.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Runs a mutant's tests. `first` is the first mutant of its place.
    pub fn judge(&self, mutant: u32, first: u32, file: &str) -> Outcome<Came> {
        let mut left = self.of(first, file);
        let mut size = 4;
        while !left.is_empty() {
            let group: Vec<usize> = left.drain(..size.min(left.len())).collect();
            size = (2 * size).min(64);
            for (program, it) in self.programs.iter().enumerate() {
                let tests: Vec<&Test> = group
                    .iter()
                    .map(|test| &self.tests[*test])
                    .filter(|test| test.program == program)
                    .collect();
                if tests.is_empty() {
                    continue;
                }
                let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
                let takes: Duration = tests.iter().map(|test| test.takes).sum();
                let limit = AT_LEAST + SLOWER * takes;
                match start(it, &names, &mutant.to_string(), limit)? {
                    Ended::Passed => {}
                    Ended::Failed => return Ok(Came::Caught),
                    Ended::Hung => return Ok(Came::Timeout),
                }
            }
        }
        Ok(Came::Missed)
    }

    /// The tests of a place in the order in which they run.
    fn of(&self, first: u32, file: &str) -> Vec<usize> {
        let module = module(file);
        let is_near = |test: &Test| {
            let below = test.name.strip_prefix(&module);
            below.is_some_and(|below| below.starts_with("::"))
        };
        let mut all = self.reach.get(&first).cloned().unwrap_or_default();
        all.sort_by_key(|test| {
            let test = &self.tests[*test];
            (!is_near(test), test.takes)
        });
        let mut sum = Duration::ZERO;
        all.into_iter()
            .take_while(|test| {
                sum += self.tests[*test].takes;
                sum <= ENOUGH
            })
            .collect()
    }
}

/// Makes the directory of sessions. Everybody may make files next to it, so it has to be ours, and
/// no other user may write there.
fn make_sessions() -> Outcome<()> {
    let path = Path::new(SESSIONS);
    fs::create_dir_all(path).at("making", path)?;
    let there = fs::symlink_metadata(path).at("looking at", path)?;
    let ours = fs::metadata("/proc/self").at("looking at", Path::new("/proc/self"))?;
    if !there.is_dir() || there.uid() != ours.uid() || there.mode() & 0o022 != 0 {
        return failed(format!("{SESSIONS} is somebody else's"));
    }
    Ok(())
}

/// The module of a file: `crates/formats/output/src/html/rows.rs` is `html::rows`.
fn module(file: &str) -> String {
    let below = file.split_once("/src/").map_or(file, |(_, below)| below);
    let below = below.strip_suffix(".rs").unwrap_or(below);
    let below = below.strip_suffix("/mod").unwrap_or(below);
    below.replace('/', "::")
}

/// The names of a program's tests.
fn names(program: &Program, words: &[&str]) -> Outcome<Vec<String>> {
    let said = output(
        Command::new(&program.file)
            .args(["--list", "--format", "terse"])
            .args(words)
            .current_dir(&program.directory),
    )?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let names = said.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

fn names_ignored(program: &Program) -> Outcome<Vec<String>> {
    names(program, &["--ignored"])
}

/// Runs tests in a session of their own. `word` says which mutant is on, or where to write down
/// which are reached.
fn start(program: &Program, tests: &[&str], word: &str, limit: Duration) -> Outcome<Ended> {
    let python = std::env::var_os("MIDAIR_PYTHON")
        .filter(|path| !path.is_empty())
        .map_or_else(|| target_directory().join("python"), PathBuf::from);
    let script = format!(
        "printf %s \"$0\" > {SESSIONS}/$$; ulimit -c 0; ulimit -d {MEMORY}; exec nice -n {NICE} \"$@\""
    );
    let mut child = Command::new("setsid")
        .args(["sh", "-c", &script, word])
        .arg(&program.file)
        .args(["--exact", "--quiet", "--test-threads=1"])
        .args(tests)
        .current_dir(&program.directory)
        .env("CARGO_MANIFEST_DIR", &program.directory)
        .env("MIDAIR_PYTHON", python)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .at("starting", Path::new("setsid"))?;
    let ended = wait(&mut child, limit);
    // Programs that the tests started and left, too.
    let session = child.id().to_string();
    let _ = Command::new("pkill").args(["-9", "-s", &session]).status();
    let _ = child.wait();
    let _ = fs::remove_file(Path::new(SESSIONS).join(session));
    ended
}

fn wait(child: &mut Child, limit: Duration) -> Outcome<Ended> {
    let began = Instant::now();
    loop {
        match child.try_wait().at("waiting for", Path::new("a test"))? {
            Some(status) if status.success() => return Ok(Ended::Passed),
            Some(_) => return Ok(Ended::Failed),
            None if began.elapsed() > limit => return Ok(Ended::Hung),
            None => thread::sleep(PAUSE),
        }
    }
}

/// Calls `work` with each number below `count`, on several threads, until one fails or it is too
/// late.
pub fn side_by_side(
    count: usize,
    jobs: usize,
    until: Option<Instant>,
    work: impl Fn(usize) -> Outcome<()> + Sync,
) -> Outcome<()> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let began = Instant::now();
    let take = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
            if let Err(failure) = work(number) {
                next.store(count, Ordering::Relaxed);
                return Err(failure);
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(100) {
                let _ = writeln!(
                    std::io::stdout(),
                    "{done} of {count} in {} s",
                    began.elapsed().as_secs()
                );
            }
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(take)).collect();
        for thread in threads {
            match thread.join() {
                Ok(ended) => ended?,
                Err(_) => return failed("a thread of the task panicked"),
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules() {
        for (file, wanted) in [
            ("crates/formats/output/src/html/rows.rs", "html::rows"),
            ("crates/attacher/session/src/tree/mod.rs", "tree"),
            ("crates/formats/output/src/csv.rs", "csv"),
        ] {
            assert_eq!(module(file), wanted);
        }
    }

    #[test]
    fn tests_of_the_module_and_short_ones_run_first() {
        let test = |name: &str, seconds: u64| Test {
            program: 0,
            name: name.to_owned(),
            takes: Duration::from_secs(seconds),
        };
        let mut tests = Tests {
            programs: Vec::new(),
            tests: vec![
                test("whole", 3),
                test("csv::tests::rows", 5),
                test("csv_more::a", 1),
                test("long", 12),
            ],
            reach: BTreeMap::from([(7, vec![0, 1, 2, 3])]),
            left_out: 0,
        };
        // The last one would be too much.
        assert_eq!(tests.of(7, "crates/formats/output/src/csv.rs"), [1, 2, 0]);
        assert!(tests.of(8, "crates/formats/output/src/csv.rs").is_empty());
        tests.leave_out(&BTreeSet::from(["csv_more::a".to_owned()]));
        assert_eq!(tests.of(7, "crates/formats/output/src/csv.rs"), [1, 0, 3]);
    }

    #[test]
    fn a_run_passes_fails_or_hangs() {
        make_sessions().unwrap();
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("program");
        let script = "#!/bin/sh\nread word < /tmp/midair-mutants/$(ps -o sid= -p $$ | tr -d ' ')\n\
            case $word in 1) exit 0 ;; 2) exit 101 ;; *) exec sleep 100 ;; esac\n";
        fs::write(&file, script).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&file, executable).unwrap();
        let program = Program {
            file,
            directory: place.path().to_path_buf(),
        };
        for (word, wanted) in [
            ("1", Ended::Passed),
            ("2", Ended::Failed),
            ("3", Ended::Hung),
        ] {
            let limit = match wanted {
                Ended::Hung => Duration::from_millis(200),
                _ => Duration::from_secs(60),
            };
            assert_eq!(start(&program, &[], word, limit).unwrap(), wanted, "{word}");
        }
    }

    #[test]
    fn all_are_done_unless_one_fails() {
        let done = AtomicUsize::new(0);
        let count = |_: usize| {
            done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        side_by_side(10, 3, None, count).unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 10);
        assert!(side_by_side(10, 2, None, |_| failed("no")).is_err());
    }
}
