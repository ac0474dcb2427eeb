//! `cargo xtask fuzz`: the fuzzers of `fuzz/` with a stable compiler, at idle priority, and one
//! table of what they did.
//!
//! The compiler's coverage counters guide them (its own pass, behind a switch that stable compilers
//! have); assertions and overflow checks are on. What they learn stays below `target/fuzz`, so that
//! the next run goes on from there. A finding is a file there, and the task fails.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{At, Failure, Outcome, failed, root, run, target_directory};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Flags that cargo-fuzz sets, as far as stable compilers have them.
const FLAGS: &str = "--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Bytes of the longest input.
const LONGEST: usize = 65_536;

/// What is asked for.
struct Wanted {
    names: Vec<String>,
    minutes: u64,
    jobs: usize,
}

/// `cargo xtask fuzz [--minutes N] [--jobs N] [NAME ...]`.
pub fn fuzz_task(words: &[String]) -> Outcome<()> {
    let wanted = parse(words, &fuzzers()?)?;
    build(&wanted.names)?;
    let mut waiting = wanted.names.iter().rev().collect::<Vec<_>>();
    let mut running: Vec<Fuzzer> = Vec::new();
    let mut done = Vec::new();
    while !running.is_empty() || !waiting.is_empty() {
        while running.len() < wanted.jobs
            && let Some(name) = waiting.pop()
        {
            running.push(Fuzzer::start(name, wanted.minutes)?);
        }
        let mut at = 0;
        while let Some(fuzzer) = running.get_mut(at) {
            if fuzzer.has_ended()? {
                let report = running.remove(at).report()?;
                println!("{}: {}", report.name, report.verdict());
                done.push(report);
            } else {
                at += 1;
            }
        }
        // Each takes minutes: nothing is waited for that is closer.
        std::thread::sleep(Duration::from_millis(200));
    }
    done.sort_by(|one, other| one.name.cmp(&other.name));
    println!(
        "{:18} {:>8} {:>12} {:>9} {:>7} {:>7} {:>7}  result",
        "fuzzer", "seconds", "inputs", "inputs/s", "edges", "corpus", "MiB"
    );
    for report in &done {
        println!("{}", report.row());
    }
    let bad: Vec<&str> = done
        .iter()
        .filter(|report| !report.is_clean())
        .map(|report| report.name.as_str())
        .collect();
    match bad.as_slice() {
        [] => Ok(()),
        names => failed(format!(
            "findings of {}, in {}",
            names.join(", "),
            place("findings").display()
        )),
    }
}

fn parse(words: &[String], all: &[String]) -> Outcome<Wanted> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut wanted = Wanted {
        names: Vec::new(),
        minutes: 1,
        jobs: cores,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || -> Outcome<u64> {
            let number = words.next().and_then(|word| word.parse().ok());
            let number = number.filter(|number| *number > 0);
            number.ok_or_else(|| Failure(format!("{word} needs a number")))
        };
        match word.as_str() {
            "--minutes" => wanted.minutes = number()?,
            "--jobs" => wanted.jobs = usize::try_from(number()?).unwrap_or(cores),
            name if all.iter().any(|one| one == name) => wanted.names.push(name.to_owned()),
            other => return failed(format!("no fuzzer {other}; there are: {}", all.join(", "))),
        }
    }
    if wanted.names.is_empty() {
        wanted.names = all.to_vec();
    }
    Ok(wanted)
}

/// The names of all fuzzers.
fn fuzzers() -> Outcome<Vec<String>> {
    let directory = root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&directory).at("listing", &directory)?;
    let names = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        Some(path.file_stem()?.to_str()?.to_owned())
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

/// A directory of ours below the target directory.
fn place(name: &str) -> PathBuf {
    target_directory().join("fuzz").join(name)
}

fn build(names: &[String]) -> Outcome<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--release", "--target", TARGET]);
    for name in names {
        command.args(["--bin", name]);
    }
    command
        .arg("--target-dir")
        .arg(place("build"))
        .current_dir(root().join("fuzz"))
        .env("RUSTFLAGS", FLAGS);
    run(&mut command)
}

/// Files, ours or of this machine, that an input may look like; none: any bytes.
fn seeds(name: &str) -> &'static [&'static str] {
    match name {
        "maps" => &["/proc/self/maps"],
        "auxv" => &["/proc/self/auxv"],
        "proc_files" => &[
            "/proc/self/stat",
            "/proc/self/status",
            "/proc/self/syscall",
            "/proc/self/limits",
        ],
        "elf" | "unwind" => &["/bin/true"],
        "records" | "results" => &[
            "crates/output/tests/recordings/hip.bin",
            "crates/output/tests/recordings/odd.bin",
            "crates/output/tests/recordings/cuda_odd.bin",
        ],
        _ => &[],
    }
}

/// One that runs.
struct Fuzzer {
    name: String,
    child: Child,
    began: Instant,
    log: PathBuf,
    findings: PathBuf,
}

impl Fuzzer {
    fn start(name: &str, minutes: u64) -> Outcome<Fuzzer> {
        let program = place("build").join(TARGET).join("release").join(name);
        let (corpus, findings) = (place("corpus").join(name), place("findings").join(name));
        for directory in [&corpus, &findings] {
            fs::create_dir_all(directory).at("making", directory)?;
        }
        for (number, seed) in seeds(name).iter().enumerate() {
            let seed = root().join(seed);
            let mut bytes = fs::read(&seed).at("reading", &seed)?;
            bytes.truncate(LONGEST);
            let path = corpus.join(format!("seed-{number}"));
            fs::write(&path, bytes).at("writing", &path)?;
        }
        let log = place("findings").join(format!("{name}.log"));
        let out = File::create(&log).at("making", &log)?;
        let too = out.try_clone().at("making", &log)?;
        // Idle: it gets what nobody else wants.
        let mut command = Command::new("nice");
        command
            .args(["-n", "19", "chrt", "--idle", "0"])
            .arg(program)
            .arg(&corpus)
            .arg(format!("-artifact_prefix={}/", findings.display()))
            .arg(format!("-max_total_time={}", minutes * 60))
            // An input may take long on a busy machine; one without an end takes for ever.
            .args(["-timeout=60", "-rss_limit_mb=1024"])
            .arg(format!("-max_len={LONGEST}"))
            .args(["-print_final_stats=1", "-use_value_profile=1"])
            .current_dir(&findings)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(too);
        let child = command.spawn().at("starting", Path::new(name))?;
        Ok(Fuzzer {
            name: name.to_owned(),
            child,
            began: Instant::now(),
            log,
            findings,
        })
    }

    fn has_ended(&mut self) -> Outcome<bool> {
        let status = self.child.try_wait().at("waiting for", &self.log)?;
        Ok(status.is_some())
    }

    fn report(mut self) -> Outcome<Report> {
        let status = self.child.wait().at("waiting for", &self.log)?;
        let log = fs::read(&self.log).at("reading", &self.log)?;
        let files = fs::read_dir(&self.findings).at("listing", &self.findings)?;
        Ok(Report::of(
            self.name,
            self.began.elapsed(),
            status.success(),
            files.count(),
            &String::from_utf8_lossy(&log),
        ))
    }
}

/// What one did.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    name: String,
    took: Duration,
    ended_well: bool,
    /// Inputs that were kept because they broke something, of earlier runs, too.
    findings: usize,
    inputs: u64,
    edges: u64,
    corpus: u64,
    peak_mib: u64,
}

impl Report {
    fn of(name: String, took: Duration, ended_well: bool, findings: usize, log: &str) -> Report {
        // "stat::number_of_executed_units: 123"
        let figure = |key: &str| {
            let line = log.lines().rev().find_map(|line| {
                let (before, number) = line.split_once(':').map(|_| line.rsplit_once(':'))??;
                before.ends_with(key).then(|| number.trim().to_owned())
            });
            line.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        // "#64 NEW cov: 120 ft: 200 corp: 30/4Kb ..."
        let after = |key: &str| {
            let line = log.lines().rev().find(|line| line.contains(key));
            let word = line.and_then(|line| line.split(key).nth(1)?.split_whitespace().next());
            let number = word.and_then(|word| word.split('/').next()?.parse().ok());
            number.unwrap_or(0)
        };
        Report {
            name,
            took,
            ended_well,
            findings,
            inputs: figure("number_of_executed_units"),
            edges: after(" cov: "),
            corpus: after(" corp: "),
            peak_mib: figure("peak_rss_mb"),
        }
    }

    /// One that ran nothing is no proof of anything.
    fn is_clean(&self) -> bool {
        self.ended_well && self.findings == 0 && self.inputs > 0
    }

    fn verdict(&self) -> String {
        match (self.is_clean(), self.findings) {
            (true, _) => "no finding".to_owned(),
            (false, 0) => "did not end well: see its log".to_owned(),
            (false, findings) => format!("{findings} findings"),
        }
    }

    fn row(&self) -> String {
        let seconds = self.took.as_secs().max(1);
        format!(
            "{:18} {:8} {:12} {:9} {:7} {:7} {:7}  {}",
            self.name,
            seconds,
            self.inputs,
            self.inputs / seconds,
            self.edges,
            self.corpus,
            self.peak_mib,
            self.verdict()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "#2\tINITED cov: 9 ft: 10 corp: 1/1b exec/s: 0 rss: 30Mb\n\
        #4096\tpulse  cov: 120 ft: 220 corp: 33/4Kb lim: 65 exec/s: 2048 rss: 40Mb\n\
        Done 5000 runs in 61 second(s)\nstat::number_of_executed_units: 5000\n\
        stat::average_exec_per_sec:     81\nstat::peak_rss_mb:              44\n";

    #[test]
    fn a_log_becomes_a_row() {
        let report = |ended_well, findings, log| {
            let took = Duration::from_secs(61);
            Report::of("maps".to_owned(), took, ended_well, findings, log)
        };
        let good = report(true, 0, LOG);
        assert_eq!((good.inputs, good.edges), (5000, 120));
        assert_eq!((good.corpus, good.peak_mib), (33, 44));
        assert!(good.is_clean());
        assert!(!report(true, 1, LOG).is_clean());
        assert!(!report(false, 0, LOG).is_clean());
        assert!(!report(true, 0, "").is_clean(), "nothing was run");
    }

    #[test]
    fn names_and_numbers_are_checked() {
        let all = ["elf", "maps"].map(str::to_owned);
        let said = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            parse(&words, &all)
        };
        let wanted = said("--minutes 60 maps --jobs 3").unwrap();
        assert_eq!(wanted.names, ["maps"]);
        assert_eq!((wanted.minutes, wanted.jobs), (60, 3));
        assert_eq!(said("").unwrap().names, all);
        for bad in ["nothing", "--minutes", "--minutes x", "--jobs 0"] {
            assert!(said(bad).is_err(), "{bad}");
        }
    }

    /// Each fuzzer is a program of its package.
    #[test]
    fn all_fuzzers_are_built() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        let names = fuzzers().unwrap();
        assert!(names.len() > 10);
        for name in names {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        }
    }
}
