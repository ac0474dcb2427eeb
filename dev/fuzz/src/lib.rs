//! `cargo xtask fuzz`: runs the fuzzers of `fuzz/` with a stable compiler at idle priority, and
//! keeps a ledger of the processor time that each was given.
//!
//! The compiler's coverage counters guide them, which come from its own pass behind a switch that
//! stable compilers have. Assertions and overflow checks are on. What they learn is kept below
//! `target/fuzz`, or where `MIDAIR_FUZZ` says, so that the next run goes on from there. They run in
//! slices, and the one with the least time comes first. A finding is a file there. It ends that
//! fuzzer's runs, and the task fails. The next run tries the findings again. When all are repaired,
//! the fuzzer's count restarts. With `--built COMMIT` nothing is compiled: that is for a machine with
//! more processors, to which this program (`MIDAIR_ROOT` is the checkout there) and the fuzzers were
//! carried.
#![forbid(unsafe_code)]

mod fuzzer;
mod ledger;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use fuzzer::Fuzzer;
use ledger::Ledger;
use midair_dev_kit::run::{At, Failure, Outcome, failed, output, root, run, target_directory};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Flags that cargo-fuzz sets, as far as stable compilers have them. Assertions and overflow checks
/// are in the profile of `fuzz/Cargo.toml`, since one package goes without.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The contents of the command line.
struct Wanted {
    names: Vec<String>,
    /// The total processor time that each fuzzer should get.
    until: Duration,
    /// How long one fuzzer runs before it is the next one's turn.
    slice: Duration,
    /// How long the whole task may take.
    longest: Option<Duration>,
    jobs: usize,
    /// Whether to forget what was done so far.
    anew: bool,
    /// The commit of which the programs are, where they were carried to a machine without a compiler.
    built: Option<String>,
}

/// Runs `cargo xtask fuzz`.
pub fn fuzz_task(words: &[String]) -> Outcome<()> {
    let wanted = parse(words, &fuzzers()?)?;
    let commit = match &wanted.built {
        Some(commit) => commit.clone(),
        None => {
            let commit = commit()?;
            build(&wanted.names)?;
            commit
        }
    };
    let mut ledger = Ledger::read(&root().join("bench-results"))?;
    for name in &wanted.names {
        let (repaired, open) = fuzzer::try_again(name)?;
        if wanted.anew || repaired + open > 0 {
            println!("{name}: {repaired} findings repaired, {open} not");
            ledger.begin_anew(name, repaired, open)?;
        }
    }
    let mut bad = fuzz(&wanted, &mut ledger, &commit)?;
    let open = wanted.names.iter();
    bad.extend(open.filter(|name| ledger.entry(name).findings > 0).cloned());
    bad.sort();
    bad.dedup();
    if !bad.is_empty() {
        return failed(format!(
            "not clean: {}; see {} and {}",
            bad.join(", "),
            place("findings").display(),
            place("logs").display()
        ));
    }
    let minutes = wanted.until.as_secs() / 60;
    match ledger.is_done(&wanted.names, wanted.until.as_secs_f64()) {
        true => println!("each had {minutes} minutes of a processor, without a finding"),
        false => println!("no finding; not each has had {minutes} minutes of a processor yet"),
    }
    Ok(())
}

/// Runs slices until each fuzzer has had its time, or the task's time is over. Returns the names of
/// those that ended badly.
fn fuzz(wanted: &Wanted, ledger: &mut Ledger, commit: &str) -> Outcome<Vec<String>> {
    let began = Instant::now();
    let until = wanted.until.as_secs_f64();
    let mut running: Vec<Fuzzer> = Vec::new();
    let mut bad: Vec<String> = Vec::new();
    loop {
        let left = wanted
            .longest
            .map_or(wanted.slice, |it| it.saturating_sub(began.elapsed()));
        let time = left.min(wanted.slice);
        while running.len() < wanted.jobs && time >= Duration::from_secs(1) {
            let is_free = |name: &&String| {
                !bad.contains(*name) && running.iter().all(|one| one.name != **name)
            };
            let names = wanted.names.iter().filter(is_free);
            let Some(name) = ledger.next(names, until) else {
                break;
            };
            running.push(Fuzzer::start(name, time)?);
        }
        if running.is_empty() {
            return Ok(bad);
        }
        let mut at = 0;
        while let Some(fuzzer) = running.get_mut(at) {
            if !fuzzer.has_ended()? {
                if left.is_zero() {
                    fuzzer.interrupt()?;
                }
                at += 1;
                continue;
            }
            let slice = running.remove(at).report()?;
            // The time of a fuzzer that was killed shows nothing.
            if slice.is_clean() || slice.findings > 0 {
                ledger.add(&slice, commit)?;
            }
            println!(
                "{:16} {:6.1} s of {:4.0} s, {:5.1} min in all, {:9} inputs, {:5} edges: {}",
                slice.name,
                slice.processor.as_secs_f64(),
                slice.passed.as_secs_f64(),
                ledger.entry(&slice.name).processor_seconds / 60.0,
                slice.inputs,
                slice.edges,
                slice.verdict()
            );
            if !slice.is_clean() {
                bad.push(slice.name);
            }
        }
        // Each slice takes minutes, so a finer pause is not needed.
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn parse(words: &[String], all: &[String]) -> Outcome<Wanted> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let minutes = |number: u64| Duration::from_secs(60 * number);
    let mut wanted = Wanted {
        names: Vec::new(),
        until: minutes(60),
        slice: minutes(3),
        longest: None,
        jobs: cores,
        anew: false,
        built: None,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || -> Outcome<u64> {
            let number = words.next().and_then(|word| word.parse().ok());
            let number = number.filter(|number| (1..1_000_000).contains(number));
            number.ok_or_else(|| Failure(format!("{word} needs a number")))
        };
        match word.as_str() {
            "--until" => wanted.until = minutes(number()?),
            "--slice" => wanted.slice = minutes(number()?),
            "--for" => wanted.longest = Some(minutes(number()?)),
            "--jobs" => wanted.jobs = usize::try_from(number()?).unwrap_or(cores),
            "--anew" => wanted.anew = true,
            "--built" => {
                let commit = words.next().filter(|it| !it.starts_with('-')).cloned();
                let what = || Failure(format!("{word} needs the commit of the programs"));
                wanted.built = Some(commit.ok_or_else(what)?);
            }
            name if all.iter().any(|one| one == name) => wanted.names.push(name.to_owned()),
            other => return failed(format!("no fuzzer {other}; there are: {}", all.join(", "))),
        }
    }
    if wanted.names.is_empty() {
        wanted.names = all.to_vec();
    }
    Ok(wanted)
}

/// Returns the names of all fuzzers.
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

/// Returns the commit that is built. The ledger itself may differ from it.
fn commit() -> Outcome<String> {
    let git = |words: &[&str]| {
        let said = output(Command::new("git").args(words).current_dir(root()))?;
        Ok::<_, Failure>(String::from_utf8_lossy(&said).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--", ".", ":!bench-results"])?;
    Ok(match changed.is_empty() {
        true => commit,
        false => commit + "-dirty",
    })
}

/// Returns a midair directory. What is built is always below the target directory.
fn place(name: &str) -> PathBuf {
    let kept = std::env::var_os("MIDAIR_FUZZ").filter(|path| !path.is_empty());
    match kept {
        Some(path) if name != "build" => root().join(path).join(name),
        _ => target_directory().join("fuzz").join(name),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_checked() {
        let all = ["elf", "maps"].map(str::to_owned);
        let said = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            parse(&words, &all)
        };
        let wanted = said("--until 90 maps --jobs 3 --for 5 --slice 2").unwrap();
        assert_eq!(wanted.names, ["maps"]);
        assert_eq!((wanted.until.as_secs(), wanted.jobs), (90 * 60, 3));
        assert_eq!(wanted.longest, Some(Duration::from_secs(300)));
        assert_eq!(wanted.slice.as_secs(), 120);
        assert_eq!(said("").unwrap().names, all);
        assert_eq!(said("--built 1a2b").unwrap().built.as_deref(), Some("1a2b"));
        for bad in [
            "nothing",
            "--until",
            "--until x",
            "--jobs 0",
            "--for 0",
            "--built",
        ] {
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
