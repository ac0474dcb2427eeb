//! A command line of the stage that has attached to a target, and the trace that it wrote.

use crate::stage::command;
use crate::table::Csv;
use crate::target::{Exit, PATIENCE, Target};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Prefix of the files that [`Attacher`] asks for.
const PREFIX: &str = "out";

/// An attached `rocprofv3`. It detaches on command and not after a time, so that a test decides
/// what falls into the session.
pub struct Attacher {
    process: Target,
    dir: tempfile::TempDir,
}

impl Attacher {
    /// Starts `rocprofv3 --pid PID WORDS` and waits until it is attached. Without a format among
    /// the words it writes csv, which [`Traced`] reads.
    ///
    /// # Errors
    /// Fails when the attach is refused, and returns what was said.
    pub fn start(pid: i32, words: &[&str]) -> Result<Attacher> {
        Self::start_with(pid, words, &[])
    }

    /// Does the same as [`Attacher::start`], with more variables in the environment.
    ///
    /// # Errors
    /// Fails as [`Attacher::start`] does.
    pub fn start_with(pid: i32, words: &[&str], env: &[(&str, &str)]) -> Result<Attacher> {
        let dir = tempfile::tempdir()?;
        let mut command = command("rocprofv3")?;
        command
            .args(["--pid", &pid.to_string()])
            .arg("-d")
            .arg(dir.path())
            .args(["-o", PREFIX])
            .args(default_format(words))
            .args(words)
            .envs(env.iter().copied());
        let mut process = Target::spawn(command)?;
        process.expect("Press Enter to detach...")?;
        Ok(Attacher { process, dir })
    }

    /// Runs `midair attach PID WORDS`, which has options that `rocprofv3` does not have.
    ///
    /// # Errors
    /// Fails as [`Attacher::start`] does.
    pub fn midair(pid: i32, words: &[&str]) -> Result<Attacher> {
        let dir = tempfile::tempdir()?;
        let mut command = command("midair")?;
        command
            .args(["attach", &pid.to_string()])
            .arg("-d")
            .arg(dir.path())
            .args(["-o", PREFIX])
            .args(default_format(words))
            .args(words);
        let mut process = Target::spawn(command)?;
        process.expect_error("attached to process")?;
        Ok(Attacher { process, dir })
    }

    /// Returns the attaching process.
    pub fn process(&mut self) -> &mut Target {
        &mut self.process
    }

    /// Presses Enter and waits for the end of the process.
    ///
    /// # Errors
    /// Fails when the process does not end.
    pub fn detach(mut self) -> Result<Traced> {
        self.process.send("")?;
        self.ended()
    }

    /// Waits for an end that something else brings about.
    ///
    /// # Errors
    /// Fails when the process does not end.
    pub fn ended(self) -> Result<Traced> {
        let exit = self.process.wait(PATIENCE)?;
        Ok(Traced {
            exit,
            dir: self.dir,
        })
    }
}

/// Returns the option for csv, unless the words name a format.
fn default_format(words: &[&str]) -> &'static [&'static str] {
    let named = ["-f", "--output-format"];
    if words.iter().any(|word| named.contains(word)) {
        &[]
    } else {
        &["--output-format", "csv"]
    }
}

/// The results that an [`Attacher`] left.
pub struct Traced {
    /// How it ended.
    pub exit: Exit,
    dir: tempfile::TempDir,
}

impl Traced {
    /// Returns itself if the exit code is this one.
    ///
    /// # Errors
    /// Returns the actual code and all output.
    pub fn code(self, code: i32) -> Result<Traced> {
        match self.exit.status.code() == Some(code) {
            true => Ok(self),
            false => Err(format!("expected code {code}: {}", self.exit).into()),
        }
    }
    /// Returns the directory of the files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
    /// Returns the path of the file `out_NAME`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{PREFIX}_{name}"))
    }
    /// Returns the HIP and HSA calls, in the order of the files. A file that was not written has
    /// none.
    ///
    /// # Errors
    /// Fails when a file is there and malformed.
    pub fn calls(&self) -> Result<Vec<Call>> {
        calls_of(&["hip_api_trace.csv", "hsa_api_trace.csv"].map(|name| self.file(name)))
    }
    /// Returns the ROCTx marks, ranges and calls. The function is the message where there is one. A
    /// file that was not written has none.
    ///
    /// # Errors
    /// Fails when the file is there and malformed.
    pub fn markers(&self) -> Result<Vec<Call>> {
        let path = self.file("marker_api_trace.csv");
        if !path.exists() {
            return Ok(Vec::new());
        }
        Csv::read(&path)?.rows.iter().map(Call::of).collect()
    }
}

/// Returns the calls in these files, in their order. A file that was not written has none.
///
/// # Errors
/// Fails when a file is there and malformed.
pub fn calls_of(files: &[PathBuf]) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    for path in files.iter().filter(|path| path.exists()) {
        for row in Csv::read(path)?.rows {
            calls.push(Call::of(&row)?);
        }
    }
    Ok(calls)
}

/// A row of `hip_api_trace.csv` or `hsa_api_trace.csv`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Domain, such as `HIP_RUNTIME_API_EXT`.
    pub domain: String,
    /// Function.
    pub function: String,
    /// Process.
    pub pid: i32,
    /// Thread.
    pub tid: i32,
    /// Correlation id.
    pub correlation: u64,
    /// Start, in ns of the boot clock.
    pub start: u64,
    /// End, in ns of the boot clock.
    pub end: u64,
}

impl Call {
    fn of(row: &BTreeMap<String, String>) -> Result<Call> {
        let text = |column: &str| -> Result<String> {
            let error = || Error::from(format!("no column {column}"));
            Ok(row.get(column).ok_or_else(error)?.clone())
        };
        Ok(Call {
            domain: text("Domain")?,
            function: text("Function")?,
            pid: text("Process_Id")?.parse()?,
            tid: text("Thread_Id")?.parse()?,
            correlation: Csv::number(row, "Correlation_Id")?,
            start: Csv::number(row, "Start_Timestamp")?,
            end: Csv::number(row, "End_Timestamp")?,
        })
    }
}

/// Returns how many calls of each function there are.
pub fn by_function<'a>(calls: impl IntoIterator<Item = &'a Call>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for call in calls {
        *counts.entry(call.function.clone()).or_default() += 1;
    }
    counts
}

/// Checks what must hold for any trace of calls: times lie inside `window`, correlation ids are
/// unique, and the calls of each thread lie inside each other or do not overlap.
///
/// # Errors
/// Returns the first call that is wrong.
pub fn check_calls(calls: &[Call], pid: i32, window: (u64, u64)) -> Result<()> {
    let mut ids = std::collections::HashMap::new();
    let mut threads: BTreeMap<i32, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        if call.pid != pid {
            return Err(format!("another process: {call:?}").into());
        }
        if call.start < window.0 || call.end < call.start || call.end > window.1 {
            return Err(format!("not inside {window:?}: {call:?}").into());
        }
        if let Some(other) = ids.insert(call.correlation, call) {
            return Err(format!("one correlation id twice: {call:?} and {other:?}").into());
        }
        threads.entry(call.tid).or_default().push(call);
    }
    for mut calls in threads.into_values() {
        // Where two calls start at the same tick, the outer one comes first, since it has the
        // smaller id.
        calls.sort_by_key(|call| (call.start, call.correlation));
        let mut open: Vec<&Call> = Vec::new();
        for call in calls {
            while open.last().is_some_and(|outer| outer.end <= call.start) {
                open.pop();
            }
            if let Some(outer) = open.last()
                && call.end > outer.end
            {
                return Err(format!("{call:?} overlaps {outer:?}").into());
            }
            open.push(call);
        }
    }
    Ok(())
}

/// Returns the time in ns of the clock that records use.
pub fn boottime() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result, and lives until the call has returned.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(correlation: u64, start: u64, end: u64) -> Call {
        Call {
            domain: String::new(),
            function: "f".to_owned(),
            pid: 7,
            tid: 8,
            correlation,
            start,
            end,
        }
    }

    #[test]
    fn wrong_traces_are_recognised() {
        let window = (10, 100);
        let good = [
            call(1, 10, 50),
            call(2, 10, 20),
            call(3, 20, 20),
            call(4, 50, 100),
        ];
        check_calls(&good, 7, window).unwrap();
        assert_eq!(by_function(&good)["f"], 4);
        for bad in [
            vec![call(1, 9, 20)],
            vec![call(1, 20, 19)],
            vec![call(1, 20, 101)],
            vec![call(1, 20, 30), call(1, 40, 50)],
            vec![call(1, 20, 30), call(2, 25, 35)],
        ] {
            assert!(check_calls(&bad, 7, window).is_err(), "{bad:?}");
        }
        assert!(check_calls(&good, 6, window).is_err());
    }
}
