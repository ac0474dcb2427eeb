//! The command lines over an engine that attaches to nothing, for tests/attach.rs: real pipes, real signals, no target.
//!
//! `on_fake_engine FRONT WORDS...`, with FRONT one of rocprofv3 and midair. FAKE names what the
//! engine does; FAKE_TARGET is a FIFO whose text ends the target: `exit`, `exec`, `yield` or a
//! signal's number.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use midair_cli::engine::{
    Attached, Check, End, Engine, Entry, Event, Request, Screen, Style, Trace, Written,
};
use midair_failure::{Failure, Kind};
use midair_session::{Listing, Phases};

/// Linux's number on the machines that this is built for.
const O_NONBLOCK: i32 = 0o4000;

struct Fake {
    does: String,
}

struct FakeAttached {
    does: String,
    request: Request,
    target: Option<File>,
    polls: u64,
    entry: Entry,
}

struct FakeTrace {
    does: String,
    request: Request,
}

impl Engine for Fake {
    fn library(&self) -> PathBuf {
        PathBuf::from("libfake.so.1")
    }

    fn inspect(&self, request: &Request) -> Result<Vec<Check>, Failure> {
        let found = format!("process {}", request.pid);
        let runtime = if self.does == "refuse" {
            let failure = Failure::new(Kind::NotGpu, "no GPU runtime").hint("start one");
            Check::fail("runtime", failure)
        } else {
            Check::pass("runtime", found.clone())
        };
        Ok(vec![Check::pass("alive", found), runtime])
    }

    fn list(&self, all: bool) -> Listing {
        Listing {
            unreadable: if all { 0 } else { 2 },
            ..Listing::default()
        }
    }

    fn attach(&self, request: &Request) -> Result<Box<dyn Attached>, Failure> {
        if self.does == "refuse" {
            return Err(
                Failure::new(Kind::NotPermitted, "process may not be touched").hint("be root"),
            );
        }
        let target = std::env::var_os("FAKE_TARGET").map(|path| {
            File::options()
                .read(true)
                .custom_flags(O_NONBLOCK)
                .open(path)
        });
        let target = match target {
            Some(Ok(file)) => Some(file),
            Some(Err(error)) => return Err(Failure::new(Kind::Enter, error.to_string())),
            None => None,
        };
        Ok(Box::new(FakeAttached {
            does: self.does.clone(),
            request: request.clone(),
            target,
            polls: 0,
            entry: Entry {
                via: "a running thread at a safe point: 7 (work), in step".into(),
                is_own_thread: false,
                rejected: (0..23)
                    .map(|tid| format!("{tid} (busy) is running"))
                    .collect(),
                unusable_stops: 5,
                unusable_stop_time: Duration::from_micros(60),
                seize: Duration::from_micros(20),
                stub: Duration::from_micros(100),
                release: Duration::from_micros(3),
                attached_after: Duration::from_micros(41_250),
                phases: Box::new(Phases {
                    inspect: Duration::from_millis(12),
                    prepare: Duration::from_millis(9),
                    enter: Duration::from_micros(15_340),
                    set_up: Duration::from_millis(13),
                    processor: Duration::from_millis(30),
                }),
                cuda: self.does == "cuda",
                warnings: vec!["there is no such trace".into()],
                notes: vec!["there is another".into()],
            },
        }))
    }
}

impl Attached for FakeAttached {
    fn poll(&mut self) -> Result<Event, Failure> {
        self.polls += 1;
        if self.does == "break" {
            return Err(Failure::new(Kind::Setup, "the agent does not answer"));
        }
        let mut word = String::new();
        if let Some(target) = &mut self.target {
            let mut bytes = [0; 64];
            if let Ok(count) = target.read(&mut bytes) {
                word = String::from_utf8_lossy(&bytes[..count]).trim().to_owned();
            }
        }
        Ok(match word.as_str() {
            "" => Event::Running {
                records: self.polls,
                bytes: self.polls * 64,
            },
            "exit" => Event::TargetExited(End::Exited(None)),
            "yield" => Event::TargetExited(End::Yielded),
            "exec" => Event::TargetExited(End::Exec),
            signal => Event::TargetExited(End::Signal(signal.parse().unwrap_or(0))),
        })
    }

    fn entry(&self) -> Option<&Entry> {
        ["entry", "cuda"]
            .contains(&self.does.as_str())
            .then_some(&self.entry)
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.target.as_ref().map(AsFd::as_fd)
    }

    fn detach(self: Box<Self>) -> Result<Box<dyn Trace>, Failure> {
        // Tells the test how often the wait was woken.
        eprintln!("polls {}", self.polls);
        if self.does == "stay" {
            return Err(Failure::new(
                Kind::DetachFailed,
                "the detach did not end in time",
            ));
        }
        Ok(Box::new(FakeTrace {
            does: self.does,
            request: self.request,
        }))
    }
}

impl Trace for FakeTrace {
    fn write(self: Box<Self>, _style: Style) -> Result<Written, Failure> {
        if self.does == "full" {
            return Err(Failure::new(Kind::Output, "no space left"));
        }
        let settings = &self.request.settings;
        let directory = settings.text("ROCPROF_OUTPUT_PATH").unwrap_or("?");
        let mut traces: Vec<&str> = settings
            .iter()
            .filter(|(name, _)| name.ends_with("_TRACE"))
            .map(|(name, _)| name)
            .collect();
        traces.sort_unstable();
        let incomplete =
            (self.does == "lose").then(|| Failure::new(Kind::Incomplete, "7 records were lost"));
        Ok(Written {
            files: settings
                .list("ROCPROF_OUTPUT_FORMAT", ',')
                .iter()
                .map(|format| format!("{directory}/out.{format}").into())
                .collect(),
            table: traces.join("\n"),
            screen: Screen::default(),
            summary: None,
            warnings: vec!["a warning".into()],
            incomplete,
        })
    }
}

fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let engine = Fake {
        does: std::env::var("FAKE").unwrap_or_default(),
    };
    let code = match words.first().and_then(|front| front.to_str()) {
        Some("rocprofv3") => midair_cli::rocprofv3::main(std::mem::take(&mut words), &engine),
        Some("midair") => midair_cli::midair::main(std::mem::take(&mut words), &engine),
        _ => 99,
    };
    ExitCode::from(code)
}
