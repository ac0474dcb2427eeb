//! What to record, and the attach itself.

use crate::error::{Error, Kind};
use crate::recording::Recording;
use crate::session::{EACH, Session};
use midair_session::{Install, Keep, Pid, Request, Requested, Watched};
use midair_settings::literal::literal;
use midair_settings::options::option;
use midair_settings::{Given, OUTPUT_PATH, Refusal, Settings, resolve};
use std::path::PathBuf;
use std::time::Duration;

/// An attach to a process: what is recorded, and for how long. If nothing is named, calls of HIP,
/// kernels and copies are recorded, or the calls and kernels of CUDA.
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `run` or `start`"]
pub struct Attach {
    pid: u32,
    /// Options of `midair attach`, by their long names, with their words.
    options: Vec<(String, Vec<String>)>,
    duration: Option<Duration>,
    wait: Option<Duration>,
    program: Option<PathBuf>,
    live: Option<Live>,
}

/// How a view follows a session ([`Attach::live`]).
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Live {
    /// The view.
    pub watched: Watched,
    /// How often records are collected; less than five seconds.
    pub every: Duration,
    /// The memory in the process for those that were not collected yet, in bytes.
    pub spool_bytes: u64,
}

impl Attach {
    /// Attaches to this process, as numbered in the caller's pid namespace.
    pub fn new(pid: u32) -> Attach {
        Attach {
            pid,
            options: Vec::new(),
            duration: None,
            wait: None,
            program: None,
            live: None,
        }
    }

    /// Records kernels.
    pub fn kernels(self) -> Attach {
        self.option("kernel-trace", [])
    }

    /// Records copies of memory.
    pub fn copies(self) -> Attach {
        self.option("memory-copy-trace", [])
    }

    /// Records calls of HIP.
    pub fn hip(self) -> Attach {
        self.option("hip-trace", [])
    }

    /// Records calls of HSA.
    pub fn hsa(self) -> Attach {
        self.option("hsa-trace", [])
    }

    /// Records calls of CUDA.
    pub fn cuda(self) -> Attach {
        self.option("cuda-trace", [])
    }

    /// Records marks and ranges (ROCTx, NVTX).
    pub fn markers(self) -> Attach {
        self.option("marker-trace", [])
    }

    /// Adds an option of `midair attach` that says what is recorded, by its long name without the
    /// dashes, with its words.
    pub fn option<'a>(mut self, long: &str, words: impl IntoIterator<Item = &'a str>) -> Attach {
        let words = words.into_iter().map(str::to_owned).collect();
        self.options.push((long.to_owned(), words));
        self
    }

    /// Ends the recording after this time. Without it, the recording ends with the process, or by
    /// [`Session::detach`].
    pub fn duration(mut self, time: Duration) -> Attach {
        self.duration = Some(time);
        self
    }

    /// Waits this long for a process that has no runtime yet.
    pub fn wait(mut self, time: Duration) -> Attach {
        self.wait = Some(time);
        self
    }

    /// Uses the installation of this `midair`.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Attach {
        self.program = Some(path.into());
        self
    }

    /// Shows what the process does now in a view, and keeps no records.
    #[doc(hidden)]
    pub fn live(mut self, live: Live) -> Attach {
        self.live = Some(live);
        self
    }

    /// Attaches, records until the duration is over or the process ends, and detaches.
    ///
    /// # Errors
    /// Why the process cannot be attached to, which leaves it as it was, or why nothing could be
    /// collected.
    pub fn run(self) -> Result<Recording, Error> {
        self.start()?.wait()
    }

    /// Attaches. When this returns, the process is being recorded.
    ///
    /// # Errors
    /// Why the process cannot be attached to, which leaves it as it was.
    pub fn start(self) -> Result<Session, Error> {
        let pid = Pid::new(self.pid).ok_or_else(|| {
            Error::new(Kind::NoProcess, format!("there is no process {}", self.pid))
        })?;
        let (settings, asked) = self.settings()?;
        let install = match &self.program {
            Some(program) => Install::of_program(program)?,
            None => installed()?,
        };
        let mut request = Request::new(pid, settings);
        request.asked = asked;
        request.wait = self.wait;
        let mut each = EACH;
        if let Some(live) = self.live {
            request.live = Some(live.watched);
            request.spool_bytes = live.spool_bytes;
            each = live.every;
            request.keep = Keep::Latest {
                time: Duration::ZERO,
                bytes: 0,
            };
        }
        let session = midair_session::Session::attach_from(&install, &request)?;
        Session::follow(session, self.duration, each)
    }

    fn settings(&self) -> Result<(Settings, Requested), Error> {
        let mut given = Given::new();
        for (long, words) in &self.options {
            give(&mut given, long, words)?;
        }
        let by_name = given.traces_by_name();
        let nothing = !given.asks_for_traces();
        if nothing {
            for long in ["runtime-trace", "hip-trace"] {
                give(&mut given, long, &[])?;
            }
        }
        let mut settings = resolve(&given, &Settings::new(), None)
            .map_err(refused)?
            .settings;
        // Files are written by `Recording::to_file` alone.
        settings.set(OUTPUT_PATH, literal(&std::env::temp_dir()));
        Ok((settings, Requested { nothing, by_name }))
    }
}

fn give(given: &mut Given, long: &str, words: &[String]) -> Result<(), Error> {
    let known = option(long);
    let option =
        known.ok_or_else(|| Error::new(Kind::Usage, format!("there is no option --{long}")))?;
    given.give(option, words).map_err(refused)
}

fn refused(refusal: Refusal) -> Error {
    let kind = match refusal {
        Refusal::Usage(_) => Kind::Usage,
        Refusal::NotBuilt(_) => Kind::NotBuilt,
    };
    Error::new(kind, refusal.to_string())
}

/// Returns the installation that the environment names, or else the one of the running code.
fn installed() -> Result<Install, Error> {
    if let Some(program) = midair_secure::variable("MIDAIR") {
        return Ok(Install::of_program(&PathBuf::from(program))?);
    }
    let search = midair_secure::variable("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&search).map(|directory| directory.join("midair"));
    match programs.find_map(|program| Install::of_program(&program).ok()) {
        Some(install) => Ok(install),
        None => Ok(Install::find()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_the_table() {
        let settings = |attach: Attach| {
            attach.settings().map(|(settings, asked)| {
                (
                    settings.is_on("ROCPROF_KERNEL_TRACE"),
                    settings.is_on("ROCPROF_HIP_RUNTIME_API_TRACE"),
                    asked.nothing,
                )
            })
        };
        let attach = Attach::new(1);
        assert_eq!(settings(attach.clone()).unwrap(), (true, true, true));
        assert_eq!(
            settings(attach.clone().kernels()).unwrap(),
            (true, false, false)
        );
        let unknown = settings(attach.clone().option("kernel-traces", [])).unwrap_err();
        assert_eq!(unknown.kind(), Kind::Usage);
        assert!(!unknown.remedy().is_empty());
        let words = settings(attach.option("kernel-trace", ["perhaps"])).unwrap_err();
        assert!(words.to_string().contains("'perhaps'"), "{words}");
    }
}
