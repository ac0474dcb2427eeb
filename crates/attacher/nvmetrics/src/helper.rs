//! The helper as its parent sees it: it is started, asked, read, and ended in time.

use crate::access::{Access, access, other_profiler};
use crate::sets::MetricRequest;
use crate::wire::{Event, Metric, Question};
use midair_failure::{Failure, Kind};
use std::fmt;
use std::io::{self, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The limit from the start to the first sample, for the driver, CUPTI's metrics and the GPU.
const SET_UP: Duration = Duration::from_secs(30);
/// The limit from the request to end until the helper has ended.
const END: Duration = Duration::from_secs(8);
/// The longest silence while samples are expected.
const SILENCE: Duration = Duration::from_secs(5);
/// The most frames that may wait to be taken: some seconds of samples.
const WAITING: usize = 4096;

/// What a helper is asked to do.
#[derive(Debug, Clone)]
pub struct Request {
    /// The helper.
    pub program: PathBuf,
    /// Files that CUPTI may be, in the order in which they are tried.
    pub libraries: Vec<String>,
    /// The GPU's number, in the order of places on the bus.
    pub gpu: u32,
    /// Samples a second.
    pub rate: u32,
    /// What to sample.
    pub metrics: Vec<MetricRequest>,
    /// Only list the names of the metrics.
    pub list: bool,
}

/// Milliseconds of a group's turn: so long that the time for its start and stop hardly counts.
const TURN: u64 = 400;

/// Why there are no samples.
#[derive(Debug)]
pub enum Error {
    /// The helper cannot be started.
    Start(io::Error),
    /// There is no CUPTI to try.
    NoLibrary,
    /// No CUPTI that was found could be used: the answer of the last one, and which one it was.
    Refused {
        /// The library.
        library: String,
        /// CUPTI's function, or what was tried.
        what: String,
        /// Its status.
        status: i32,
        /// More.
        words: String,
    },
    /// The helper ended; the text says how.
    Died(String),
    /// It did not answer within this time, and was ended.
    Silent(Duration),
    /// The answer could not be understood.
    Odd,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&failure(self).what)
    }
}

impl std::error::Error for Error {}

/// A helper that samples. It ends when this value is dropped.
#[derive(Debug)]
pub struct Sampler {
    child: Child,
    events: Receiver<io::Result<Event>>,
    /// Facts about the GPU and CUPTI.
    pub facts: Vec<(String, String)>,
    /// What is sampled.
    pub metrics: Vec<Metric>,
    /// What is not sampled, and why.
    pub without: Vec<(String, String)>,
    /// Names of metrics, where a list was asked for.
    pub names: Vec<String>,
    last: Instant,
}

impl Sampler {
    /// Starts a helper with the first CUPTI that works. When this returns, samples are being taken,
    /// or the list of names is there.
    ///
    /// # Errors
    /// The answer of the last CUPTI. A failure that is not the library's fault is returned at once.
    pub fn start(request: &Request) -> Result<Sampler, Error> {
        let mut last = Error::NoLibrary;
        for library in &request.libraries {
            match Sampler::with(request, library) {
                Ok(sampler) => return Ok(sampler),
                Err(error) if error.is_of_library() => {
                    // An answer from a library that could be loaded says more than the loader's "no
                    // such file".
                    if !matches!((&last, &error), (Error::Refused { .. }, Error::Refused { what, .. }) if what == "dlopen")
                    {
                        last = error;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn with(request: &Request, library: &str) -> Result<Sampler, Error> {
        let mut command = Command::new(&request.program);
        command
            .arg(library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if midair_secure::has_more_rights() {
            // The environment chooses libraries, and a process with more rights than its user must
            // not obey it. The helper cannot tell that its parent has such rights.
            command.env_clear();
        }
        // Ctrl-C must end this program alone, which then ends the helper in its own way.
        command.process_group(0);
        // GPUs are numbered as on the machine, in the order of nvidia-smi.
        command
            .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
            .env_remove("CUDA_VISIBLE_DEVICES");
        for name in [
            "CUDA_INJECTION64_PATH",
            "NVTX_INJECTION64_PATH",
            "LD_PRELOAD",
        ] {
            command.env_remove(name);
        }
        let mut child = command.spawn().map_err(Error::Start)?;
        let (send, events) = mpsc::sync_channel(WAITING);
        let out = child.stdout.take();
        let mut sampler = Sampler {
            child,
            events,
            facts: Vec::new(),
            metrics: Vec::new(),
            without: Vec::new(),
            names: Vec::new(),
            last: Instant::now(),
        };
        let out = out.ok_or_else(|| Error::Start(io::ErrorKind::BrokenPipe.into()))?;
        let reader = move || {
            let mut out = BufReader::with_capacity(1 << 18, out);
            while let Some(event) = Event::read(&mut out).transpose() {
                let failed = event.is_err();
                if send.send(event).is_err() || failed {
                    return;
                }
            }
        };
        // This thread ends when the helper closes its output.
        std::thread::Builder::new()
            .name("midair-samples".into())
            .spawn(reader)
            .map_err(Error::Start)?;
        sampler.ask(request)?;
        sampler.set_up(library)?;
        Ok(sampler)
    }

    fn ask(&mut self, request: &Request) -> Result<(), Error> {
        let question = Question {
            gpu: request.gpu,
            interval: 1_000_000_000 / u64::from(request.rate.max(1)),
            turn: TURN,
            list: request.list,
            metrics: request.metrics.clone(),
        };
        let text = question.text();
        let asked = match &mut self.child.stdin {
            Some(stdin) => stdin
                .write_all(text.as_bytes())
                .and_then(|()| stdin.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        asked.map_err(|_| self.died())
    }

    /// Waits until samples are taken.
    fn set_up(&mut self, library: &str) -> Result<(), Error> {
        let until = Instant::now() + SET_UP;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.receive(left)? {
                None => return Err(self.silent(SET_UP)),
                Some(Event::Hello(facts)) => self.facts = facts,
                Some(Event::Metrics(metrics, without)) => {
                    (self.metrics, self.without) = (metrics, without)
                }
                Some(Event::Names(names)) => {
                    self.names = names;
                    return Ok(());
                }
                Some(Event::Started | Event::End(_)) => {
                    self.last = Instant::now();
                    return Ok(());
                }
                Some(Event::Refused {
                    what,
                    status,
                    words,
                }) => {
                    return Err(Error::Refused {
                        library: library.to_owned(),
                        what,
                        status,
                        words,
                    });
                }
                Some(Event::Samples(_) | Event::Overflow) => return Err(Error::Odd),
            }
        }
    }

    /// Returns the next event, or none when the time is over.
    fn receive(&mut self, wait: Duration) -> Result<Option<Event>, Error> {
        match self.events.recv_timeout(wait) {
            Ok(Ok(event)) => {
                self.last = Instant::now();
                Ok(Some(event))
            }
            Ok(Err(_)) => {
                self.end();
                Err(Error::Odd)
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.died()),
        }
    }

    /// Waits at most this long for an event and returns it, or none.
    ///
    /// # Errors
    /// The helper died, or was silent for 5 s, or CUPTI refused to go on.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Event>, Error> {
        match self.receive(wait)? {
            Some(Event::Refused {
                what,
                status,
                words,
            }) => Err(Error::Refused {
                library: self.fact("library").to_owned(),
                what,
                status,
                words,
            }),
            Some(event) => Ok(Some(event)),
            None if self.last.elapsed() > SILENCE => Err(self.silent(SILENCE)),
            None => Ok(None),
        }
    }

    /// Ends the sampling. Gives the events that still come to `take`, and returns the facts that
    /// the helper reports at its end.
    ///
    /// # Errors
    /// As [`Sampler::next`], or the helper did not end in time and was killed.
    pub fn finish(mut self, mut take: impl FnMut(Event)) -> Result<Vec<(String, String)>, Error> {
        drop(self.child.stdin.take());
        let until = Instant::now() + END;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.receive(left)? {
                None => return Err(self.silent(END)),
                Some(Event::End(facts)) => return Ok(facts),
                Some(Event::Refused {
                    what,
                    status,
                    words,
                }) => {
                    return Err(Error::Refused {
                        library: self.fact("library").to_owned(),
                        what,
                        status,
                        words,
                    });
                }
                Some(event) => take(event),
            }
        }
    }

    /// Returns the fact with this key, or an empty text.
    pub fn fact(&self, key: &str) -> &str {
        let found = self.facts.iter().find(|(it, _)| it == key);
        found.map_or("", |(_, value)| value.as_str())
    }

    fn silent(&mut self, limit: Duration) -> Error {
        self.end();
        Error::Silent(limit)
    }

    /// Returns how the helper ended, after its output has ended.
    fn died(&mut self) -> Error {
        drop(self.child.stdin.take());
        let until = Instant::now() + Duration::from_secs(2);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                _ => return Error::Died("it does not say how".into()),
            }
        };
        Error::Died(match (status.signal(), status.code()) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => status.to_string(),
        })
    }

    fn end(&mut self) {
        drop(self.child.stdin.take());
        // Either it has ended already or it is killed now, and both will do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// CUPTI's status codes (source: `cupti_result.h`).
mod status {
    pub(super) const INVALID_PARAMETER: i32 = 1;
    pub(super) const INVALID_DEVICE: i32 = 2;
    pub(super) const INVALID_OPERATION: i32 = 7;
    pub(super) const NOT_COMPATIBLE: i32 = 14;
    pub(super) const NOT_INITIALIZED: i32 = 15;
    pub(super) const HARDWARE_BUSY: i32 = 26;
    pub(super) const NOT_SUPPORTED: i32 = 27;
    pub(super) const VIRTUALIZED: i32 = 33;
    pub(super) const INSUFFICIENT_PRIVILEGES: i32 = 35;
    pub(super) const VIRTUALIZED_PRIVILEGES: i32 = 40;
    pub(super) const CONFIDENTIAL: i32 = 41;
    pub(super) const MINING: i32 = 42;
    pub(super) const MIG: i32 = 43;
    pub(super) const CHIP_NAME: i32 = 46;
    pub(super) const UNKNOWN: i32 = 999;
    /// A status of our own: the function is missing.
    pub(super) const MISSING: i32 = -2;
}

impl Error {
    /// Whether another CUPTI may work instead.
    fn is_of_library(&self) -> bool {
        let Error::Refused { what, status, .. } = self else {
            return false;
        };
        let loading = what == "dlopen"
            || what == "cuptiProfilerInitialize"
            || what == "cuptiPmSamplingEnable" && *status == status::MISSING;
        loading
            || *status == status::NOT_COMPATIBLE
            || (what.starts_with("cuptiProfilerHost") && *status != 0)
    }
}

/// Returns the error as a failure: a sentence for the user, the exit code and the remedy.
pub fn failure(error: &Error) -> Failure {
    let none = |what: String| Failure::new(Kind::NoCounters, what);
    match error {
        Error::Start(error) => Failure::new(
            Kind::Installation,
            format!("cannot start the helper that samples GPUs: {error}"),
        )
        .hint("run the program from a complete installation"),
        Error::NoLibrary => no_cupti("no CUPTI found"),
        Error::Died(how) => none(format!(
            "CUPTI ended the helper that samples the GPU: {how}"
        ))
        .hint("try another CUPTI: --cupti PATH"),
        Error::Silent(limit) => none(format!(
            "CUPTI did not answer within {} s, and midair killed its helper",
            limit.as_secs()
        ))
        .hint("does another profiler use the GPU? nvidia-smi shows its processes"),
        Error::Odd => none("the helper that samples the GPU sent an invalid answer".to_owned()),
        Error::Refused {
            library,
            what,
            status,
            words,
        } => refused(library, what, *status, words),
    }
}

fn no_cupti(what: &str) -> Failure {
    Failure::new(Kind::NoCupti, what)
        .hint("install one: pip install nvidia-cuda-cupti (CUDA 13) or nvidia-cuda-cupti-cu12, or the toolkit; or name one by --cupti PATH")
}

/// The GPU's counters are in use, or seem to be.
fn busy(what: &str, status: i32) -> Failure {
    let mut what = match status {
        status::HARDWARE_BUSY => "the GPU's counters are in use by another profiler".to_owned(),
        _ => format!(
            "the GPU's counters cannot be had ({what}: {status}), as when another profiler uses them"
        ),
    };
    if let Some((name, whose)) = other_profiler() {
        what.push_str(&format!(": {whose} runs here ({name})"));
    }
    Failure::new(Kind::NoCounters, what)
        .hint("pause DCGM (dcgmi profiling --pause, and --resume afterwards), or wait for ncu or nsys to finish")
}

fn refused(library: &str, what: &str, status: i32, words: &str) -> Failure {
    let none = |what: String| Failure::new(Kind::NoCounters, what);
    let file = Path::new(library)
        .file_name()
        .map_or(library.into(), |name| name.to_string_lossy());
    match (what, status) {
        ("dlopen libcuda.so.1", _) => none(format!("no NVIDIA driver found: {words}")),
        // Source: cuda.h: CUDA_ERROR_NO_DEVICE.
        ("cuInit", 100) => none("the NVIDIA driver finds no GPU".to_owned()),
        ("cuInit", _) => none(format!(
            "cannot use the NVIDIA driver (cuInit: {status})"
        )),
        ("gpu", _) => Failure::new(
            Kind::Usage,
            format!("no such GPU: there are {words}, numbered from 0"),
        )
        .hint("nvidia-smi -L lists them"),
        ("dlopen", _) => no_cupti(&format!("cannot load a CUPTI: {words}")),
        ("cuptiPmSamplingEnable", status::MISSING) => no_cupti(&format!(
            "{library} is too old to sample GPUs (version {words}): CUDA 12.6 or later required"
        )),
        (_, status::INSUFFICIENT_PRIVILEGES) => not_allowed(),
        (_, status::VIRTUALIZED_PRIVILEGES) => Failure::new(
            Kind::NotPermitted,
            "the host of this virtual GPU does not allow its counters",
        )
        .hint("its administrator enables profiling for the virtual machine"),
        (_, status::MIG) => {
            none("the GPU is partitioned (MIG), and CUPTI cannot sample a partition".to_owned())
                .hint("nvidia-smi -L shows the partitions; sampling requires the whole GPU")
        }
        (_, status::VIRTUALIZED) => none("CUPTI cannot sample this virtual GPU".to_owned()),
        (_, status::CONFIDENTIAL) => {
            none("CUPTI cannot sample a GPU in confidential computing".to_owned())
        }
        (_, status::MINING | status::NOT_SUPPORTED | status::INVALID_DEVICE) => {
            none(format!("cannot sample this GPU ({what}: {status})"))
                .hint("CUPTI samples GPUs from Turing (2018) on")
        }
        (_, status::CHIP_NAME) => unknown_chip(&file),
        ("cuptiProfilerHostInitialize", status::NOT_INITIALIZED) => no_cupti(&format!(
            "{library} lacks libnvperf_host.so, which NVIDIA ships in the same directory"
        )),
        ("cuptiProfilerHostInitialize", status::INVALID_PARAMETER | status::UNKNOWN) => {
            unknown_chip(&file)
        }
        ("cuptiProfilerInitialize", _) => no_cupti(&format!(
            "{library} does not work with this driver (cuptiProfilerInitialize: {status})"
        )),
        // Seen on an H100: 13 metrics at 20 kHz; 10 kHz, or 3 metrics, are accepted.
        ("cuptiPmSamplingStart", status::UNKNOWN) => none(
            "the GPU does not start sampling: the rate is too high for these metrics, or another profiler uses it"
                .to_owned(),
        )
        .hint("use a lower rate (--rate 10000), or fewer metrics (--set compute)"),
        (_, status::HARDWARE_BUSY) => busy(what, status),
        ("cuptiPmSamplingEnable", status::INVALID_OPERATION | status::UNKNOWN) => {
            busy(what, status)
        }
        // Source: CUPTI's header: this may fail while another profiler has a session on the device.
        ("cuptiPmSamplingGetCounterAvailability", status::UNKNOWN | status::INVALID_OPERATION) => {
            busy(what, status)
        }
        _ => none(
            format!("{file} refused to sample the GPU ({what}: {status}) {words}")
                .trim_end()
                .to_owned(),
        ),
    }
}

fn unknown_chip(file: &str) -> Failure {
    Failure::new(Kind::NoCounters, format!("{file} does not know this GPU"))
        .hint("try a newer CUPTI: pip install nvidia-cuda-cupti; --cupti PATH")
}

/// The kernel driver gives counters to administrators only.
pub(crate) fn not_allowed() -> Failure {
    let why = match access() {
        Access::Refused => {
            "the driver allows only administrators to read GPU counters (RmProfilingAdminOnly is 1)"
        }
        _ => "the driver does not allow this user to read GPU counters",
    };
    Failure::new(Kind::NotPermitted, why).hint(
        "run as root or with CAP_SYS_ADMIN; or allow all users: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(what: &str, status: i32, words: &str) -> (u8, String) {
        let error = Error::Refused {
            library: "/x/libcupti.so.13".into(),
            what: what.into(),
            status,
            words: words.into(),
        };
        let failure = failure(&error);
        assert!(!failure.hint.is_empty(), "{failure:?}");
        (failure.kind.exit_code(), failure.what)
    }

    #[test]
    fn each_refusal_has_its_own_sentence() {
        let all = [
            of("dlopen libcuda.so.1", -1, "no such file"),
            of("cuInit", 100, ""),
            of("gpu", -1, "2"),
            of("dlopen", -1, "no such file"),
            of("cuptiPmSamplingEnable", status::MISSING, "24"),
            of(
                "cuptiPmSamplingGetCounterAvailability",
                status::INSUFFICIENT_PRIVILEGES,
                "",
            ),
            of("cuptiPmSamplingEnable", status::HARDWARE_BUSY, ""),
            of("cuptiPmSamplingEnable", status::NOT_SUPPORTED, ""),
            of("cuptiPmSamplingEnable", status::MIG, ""),
            of("cuptiProfilerHostInitialize", status::NOT_INITIALIZED, ""),
            of("cuptiProfilerHostInitialize", status::CHIP_NAME, ""),
            of("cuptiProfilerInitialize", 999, ""),
            of("cuptiPmSamplingDecodeData", 999, ""),
        ];
        let codes: Vec<u8> = all.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, [38, 38, 2, 27, 27, 11, 38, 38, 38, 27, 38, 27, 38]);
        for (number, (_, one)) in all.iter().enumerate() {
            assert!(
                all[number + 1..].iter().all(|(_, other)| other != one),
                "{one}"
            );
        }
    }

    #[test]
    fn a_program_that_is_no_helper_is_not_waited_for_long() {
        let mut request = Request {
            program: "/bin/false".into(),
            libraries: vec!["x".into()],
            gpu: 0,
            rate: 1000,
            metrics: Vec::new(),
            list: false,
        };
        assert!(matches!(Sampler::start(&request), Err(Error::Died(_))));
        request.program = "/nowhere".into();
        assert!(matches!(Sampler::start(&request), Err(Error::Start(_))));
        request.libraries.clear();
        assert!(matches!(Sampler::start(&request), Err(Error::NoLibrary)));
    }
}
