//! One fuzzer: its process, its files, and the results of a slice of time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use midair_dev_kit::run::{At, Outcome, root, run};

use super::{TARGET, place};

/// The size of the longest input in bytes.
const LONGEST: usize = 65_536;
/// The number of seconds after which an input counts as endless. It is large, since the machine may
/// be busy with everything else.
const ENDLESS: &str = "300";
/// The exit code of libFuzzer after SIGINT (its `-interrupted_exitcode`).
const INTERRUPTED: i32 = 72;
/// The kernel's unit of time in `/proc/PID/stat`, which is the same on each x86-64 (`USER_HZ`).
const TICKS: u64 = 100;

/// Returns files of midair's or of this machine that an input may look like. Without any, inputs start
/// as arbitrary bytes.
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
            "crates/formats/output/tests/recordings/hip.bin",
            "crates/formats/output/tests/recordings/odd.bin",
            "crates/formats/output/tests/recordings/cuda_odd.bin",
        ],
        _ => &[],
    }
}

/// The places of a fuzzer's files.
struct Files {
    program: PathBuf,
    corpus: PathBuf,
    findings: PathBuf,
    log: PathBuf,
}

impl Files {
    fn of(name: &str) -> Outcome<Files> {
        let files = Files {
            program: place("build").join(TARGET).join("release").join(name),
            corpus: place("corpus").join(name),
            findings: place("findings").join(name),
            log: place("logs").join(format!("{name}.log")),
        };
        for directory in [&files.corpus, &files.findings, &place("logs")] {
            fs::create_dir_all(directory).at("making", directory)?;
        }
        Ok(files)
    }

    fn findings(&self) -> Outcome<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.findings).at("listing", &self.findings)?;
        Ok(entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect())
    }

    /// Prepares the fuzzer's program at idle priority, so that it gets only the time that no other
    /// process wants. It ends when we do.
    fn command(&self) -> Outcome<Command> {
        let out = File::create(&self.log).at("making", &self.log)?;
        let too = out.try_clone().at("making", &self.log)?;
        let mut command = Command::new("nice");
        command
            .args(["-n", "19", "chrt", "--idle", "0"])
            .args(["setpriv", "--pdeathsig", "KILL"])
            .arg(&self.program)
            .args([format!("-timeout={ENDLESS}"), "-rss_limit_mb=1024".into()])
            // An input that only waited for a processor is not a finding.
            .arg(format!("-report_slow_units={ENDLESS}"))
            .arg(format!("-max_len={LONGEST}"))
            .arg(format!("-artifact_prefix={}/", self.findings.display()))
            .current_dir(&self.findings)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(too);
        Ok(command)
    }
}

/// Tries earlier findings again. Returns how many break nothing any more and how many still do.
/// Those that were repaired are moved to the corpus.
pub fn try_again(name: &str) -> Outcome<(u64, u64)> {
    let files = Files::of(name)?;
    let (mut repaired, mut open) = (0, 0);
    for path in files.findings()? {
        // This run must not write a further finding.
        let mut command = files.command()?;
        command.args(["-exact_artifact_path=/dev/null"]).arg(&path);
        if command.status().at("starting", &files.program)?.success() {
            let kept = files.corpus.join(path.file_name().unwrap_or_default());
            fs::rename(&path, &kept).at("moving", &path)?;
            repaired += 1;
        } else {
            open += 1;
        }
    }
    Ok((repaired, open))
}

/// A running fuzzer. It is ended when this value is dropped.
pub struct Fuzzer {
    pub name: String,
    files: Files,
    child: Child,
    began: Instant,
    processor: Duration,
    interrupted: bool,
}

impl Fuzzer {
    /// Starts a fuzzer for some time.
    pub fn start(name: &str, time: Duration) -> Outcome<Fuzzer> {
        let files = Files::of(name)?;
        for (number, seed) in seeds(name).iter().enumerate() {
            let seed = root().join(seed);
            let mut bytes = fs::read(&seed).at("reading", &seed)?;
            bytes.truncate(LONGEST);
            let path = files.corpus.join(format!("seed-{number}"));
            fs::write(&path, bytes).at("writing", &path)?;
        }
        let mut command = files.command()?;
        command
            .arg(format!("-max_total_time={}", time.as_secs().max(1)))
            .args(["-print_final_stats=1", "-use_value_profile=1"])
            .arg(&files.corpus);
        let child = command.spawn().at("starting", Path::new(name))?;
        Ok(Fuzzer {
            name: name.to_owned(),
            files,
            child,
            began: Instant::now(),
            processor: Duration::ZERO,
            interrupted: false,
        })
    }

    /// Makes the fuzzer end now. One that got no processor does not end by itself in time.
    pub fn interrupt(&mut self) -> Outcome<()> {
        if self.interrupted {
            return Ok(());
        }
        self.interrupted = true;
        run(Command::new("kill").args(["-INT", &self.child.id().to_string()]))
    }

    /// Returns whether the fuzzer has ended. It is not reaped here, so its times stay readable.
    pub fn has_ended(&mut self) -> Outcome<bool> {
        let path = PathBuf::from(format!("/proc/{}/stat", self.child.id()));
        let text = fs::read_to_string(&path).at("reading", &path)?;
        let Some((state, processor)) = times(&text) else {
            return Ok(false);
        };
        self.processor = processor;
        Ok(state == "Z")
    }

    /// Returns what the fuzzer did.
    pub fn report(mut self) -> Outcome<Slice> {
        let status = self.child.wait().at("waiting for", &self.files.log)?;
        let log = fs::read(&self.files.log).at("reading", &self.files.log)?;
        let findings = self.files.findings()?.len().try_into().unwrap_or(u64::MAX);
        let mut slice = Slice::of(&self.name, &String::from_utf8_lossy(&log));
        slice.processor = self.processor;
        slice.passed = self.began.elapsed();
        slice.ended_well =
            status.success() || (self.interrupted && status.code() == Some(INTERRUPTED));
        slice.findings = findings;
        Ok(slice)
    }
}

impl Drop for Fuzzer {
    fn drop(&mut self) {
        // The fuzzer may have ended by itself.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns the state and the processor time of a process from its `/proc/PID/stat`.
fn times(stat: &str) -> Option<(&str, Duration)> {
    // A name may have spaces and parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |at: usize| words.get(at)?.parse::<u64>().ok();
    // These are utime and stime, fields 14 and 15 (proc_pid_stat(5)).
    let ticks = ticks(11)? + ticks(12)?;
    Some((words.first()?, Duration::from_millis(ticks * 1000 / TICKS)))
}

/// The results of a fuzzer in a slice of time.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Slice {
    pub name: String,
    /// The time on a processor, and below it the time that passed.
    pub processor: Duration,
    pub passed: Duration,
    pub ended_well: bool,
    /// How many inputs were kept because they broke something.
    pub findings: u64,
    pub inputs: u64,
    pub edges: u64,
    pub corpus: u64,
}

impl Slice {
    /// Reads the counts at the end of a log.
    fn of(name: &str, log: &str) -> Slice {
        // A line such as "stat::number_of_executed_units: 123".
        let units = log.lines().rev().find_map(|line| {
            let (key, number) = line.rsplit_once(':')?;
            let is_it = key.ends_with("number_of_executed_units");
            is_it.then(|| number.trim().parse().ok())?
        });
        // A line such as "#64 NEW cov: 120 ft: 200 corp: 30/4Kb ...".
        let after = |key: &str| {
            let line = log.lines().rev().find(|line| line.contains(key));
            let word = line.and_then(|line| line.split(key).nth(1)?.split_whitespace().next());
            let number = word.and_then(|word| word.split('/').next()?.parse().ok());
            number.unwrap_or(0)
        };
        Slice {
            name: name.to_owned(),
            inputs: units.unwrap_or(0),
            edges: after(" cov: "),
            corpus: after(" corp: "),
            ..Slice::default()
        }
    }

    /// Returns whether it ran and ended well. A fuzzer that ran nothing proves nothing.
    pub fn is_clean(&self) -> bool {
        self.ended_well && self.findings == 0 && self.inputs > 0
    }

    /// Returns the result in a few words.
    pub fn verdict(&self) -> String {
        match (self.is_clean(), self.findings) {
            (true, _) => "no finding".to_owned(),
            (false, 0) => "did not end well: see its log".to_owned(),
            (false, findings) => format!("{findings} findings"),
        }
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
    fn a_log_becomes_a_slice() {
        let slice = |ended_well, findings, log| Slice {
            ended_well,
            findings,
            ..Slice::of("maps", log)
        };
        let good = slice(true, 0, LOG);
        assert_eq!((good.inputs, good.edges, good.corpus), (5000, 120, 33));
        assert!(good.is_clean());
        assert!(!slice(true, 1, LOG).is_clean());
        assert!(!slice(false, 0, LOG).is_clean());
        assert!(!slice(true, 0, "").is_clean(), "nothing was run");
    }

    #[test]
    fn times_are_those_of_the_process_whatever_its_name() {
        let stat = "7 (a) b) Z 1 7 7 0 -1 4 9 0 0 0 150 25 1 1 20 0 1 0 5 0 0";
        let (state, processor) = times(stat).unwrap();
        assert_eq!((state, processor), ("Z", Duration::from_millis(1750)));
        assert_eq!(times("7 (a"), None);
    }

    /// The times of a process that has ended can be read until it is reaped.
    #[test]
    fn a_process_that_ended_still_has_its_times() {
        let mut child = Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"])
            .spawn()
            .unwrap();
        let path = format!("/proc/{}/stat", child.id());
        let deadline = Instant::now() + Duration::from_secs(60);
        let processor = loop {
            let text = fs::read_to_string(&path).unwrap();
            match times(&text).unwrap() {
                ("Z", processor) => break processor,
                _ => assert!(Instant::now() < deadline),
            }
            std::thread::yield_now();
        };
        assert!(processor >= Duration::from_millis(20), "{processor:?}");
        child.wait().unwrap();
    }
}
