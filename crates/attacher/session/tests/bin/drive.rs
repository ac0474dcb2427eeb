//! An attacher as a process of its own, for tests that let it or its target die: attaches, collects records,
//! detaches, writes.
//!
//! `midair-drive PID DIRECTORY [--die-after N] [--lease-ms N] [--largest-file BYTES] [--late MS] [--late-offer MS]
//! [--again CONTROL]`
//! (`--late`: once, this process stands still for so long before it sends the library, and the target's part of it waits for half of that;
//! `--late-offer`: once, before it offers the session; `--again`: the process executes its program
//! once more when a thread is chosen)
//! `midair-drive serve`: once for each line of its standard input ("N WHAT PID CONTROL DIRECTORY": WHAT
//! happens to process PID after step N). After each it prints how it went, which steps it made and what it
//! has open.

#[path = "../../../inject/tests/bin/strike.rs"]
mod strike;

use midair_session::Pid;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use midair_failure::Failure;
use midair_inject::Options;
use midair_ptrace::fault::{self, Action};
use midair_results::{Style, Written, describe};
use midair_session::{Event, Install, Request, Session};
use midair_settings::Settings;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::from(1)
        }
    }
}

/// Returns the libraries of the stage.
fn install() -> Result<Install, Error> {
    let stage = std::env::var_os("MIDAIR_STAGE").ok_or("MIDAIR_STAGE is not set")?;
    let lib = PathBuf::from(stage).join("lib");
    Ok(Install::at(
        lib.join("librocprofiler-sdk.so.1"),
        lib.join("rocprofiler-sdk/librocprofiler-sdk-tool.so.1"),
    ))
}

fn request(pid: Pid, directory: &str, lease: Duration) -> Request {
    let mut settings = Settings::new();
    for (name, value) in [
        ("ROCPROF_KERNEL_TRACE", "1"),
        ("ROCPROF_MEMORY_COPY_TRACE", "1"),
        ("ROCPROF_HIP_RUNTIME_API_TRACE", "1"),
        ("ROCPROF_OUTPUT_FORMAT", "csv,json"),
        ("ROCPROF_OUTPUT_PATH", directory),
        ("ROCPROF_OUTPUT_FILE_NAME", "t"),
    ] {
        settings.set(name, value);
    }
    Request {
        lease,
        ..Request::new(pid, settings)
    }
}

fn run(args: Vec<String>) -> Result<(), Error> {
    let install = install()?;
    if args.first().is_some_and(|word| word == "serve") {
        return serve(&install);
    }
    let mut words = args.into_iter();
    let pid: Pid = words.next().ok_or("no process named")?.parse()?;
    let directory = words.next().ok_or("no directory named")?;
    let (mut lease, mut largest, mut die_after) = (Duration::from_secs(5), None, u64::MAX);
    let (mut late, mut late_offer) = (None, None);
    let mut again = None;
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} wants a value"))?;
        if word == "--again" {
            again = Some(strike::arm("ThreadFound", "again", pid, Path::new(&value))?);
            continue;
        }
        let value: u64 = value.parse()?;
        match word.as_str() {
            "--die-after" => die_after = value,
            "--lease-ms" => lease = Duration::from_millis(value),
            "--largest-file" => largest = Some(value),
            "--late" => late = Some(Duration::from_millis(value)),
            "--late-offer" => late_offer = Some(Duration::from_millis(value)),
            other => return Err(format!("unknown word {other}").into()),
        }
    }
    let mut options = Options::default();
    let sleep = |late| Action::Strike(Box::new(move |_| std::thread::sleep(late)));
    match (late, late_offer) {
        (None, None) if again.is_some() => {}
        (None, None) => fault::arm(die_after, Action::DieHere),
        (Some(late), _) => {
            options.boot = late / 2;
            fault::arm_at("Taken", sleep(late));
        }
        (None, Some(late)) => fault::arm_at("Offering", sleep(late)),
    }
    let mut request = request(pid, &directory, lease);
    if again.is_some() {
        request.wait = Some(Duration::from_secs(60));
    }
    let written = attach(&request, &install, &options, again.as_ref(), largest);
    let written = written.map_err(|failure| format!("{:?}: {failure}", failure.kind))?;
    println!("wrote {} files", written.files.len());
    println!("steps {:?}", fault::steps());
    Ok(())
}

/// Runs a whole session, until there are records or until the fault was injected.
fn attach(
    request: &Request,
    install: &Install,
    options: &Options,
    struck: Option<&strike::Struck>,
    largest: Option<u64>,
) -> Result<Written, Failure> {
    let has_struck = || struck.is_some_and(|struck| struck.told().is_some());
    let mut session = Session::attach_with(request, install, options)?;
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        match session.poll()? {
            Event::TargetExited(_) => break,
            Event::Running { records, .. } if records > 0 => break,
            Event::Running { .. } if has_struck() || Instant::now() > limit => break,
            Event::Running { .. } => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    let collected = session.detach()?;
    if let Some(end) = collected.ended() {
        println!("ended {}", describe(end));
    }
    if let Some(failure) = collected.failure() {
        println!("detach {:?}: {failure}", failure.kind);
    }
    println!("records {}", collected.records());
    if let Some(bytes) = largest {
        limit_files(bytes);
    }
    collected.write(Style {
        rows: 5,
        unicode: false,
        ..Style::default()
    })
}

/// Limits files: from now on, a write beyond this size of any file ends this process by SIGXFSZ.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: the pointer is to a live struct, and the limit concerns this process alone.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
}

/// Returns the number of bytes that are allocated in this process.
fn allocated() -> usize {
    // SAFETY: `mallinfo2` takes no arguments, and reads the allocator's state under the allocator's
    // locks.
    let all = unsafe { libc::mallinfo2() };
    all.uordblks + all.hblkhd
}

fn serve(install: &Install) -> Result<(), Error> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let [number, what, pid, control, directory] = words[..] else {
            return Err(format!("what is {line:?}?").into());
        };
        let pid: Pid = pid.parse()?;
        let struck = strike::arm(number, what, pid, Path::new(control))?;
        let mut request = request(pid, directory, Duration::from_secs(5));
        // The attach would start again with the other program, which has no runtime.
        if what == "exec" {
            request.wait = Some(Duration::ZERO);
        }
        let done = attach(&request, install, &Options::default(), Some(&struck), None);
        let (_, _) = fault::disarm();
        let (took, step) = match struck.told() {
            Some((at, step)) => (at.elapsed(), step),
            None => (Duration::ZERO, String::new()),
        };
        println!("steps {:?}", fault::steps());
        println!(
            "round took={} had={:?} heap={} at={step:?} {}",
            took.as_micros(),
            strike::possessions(),
            allocated(),
            match done {
                Ok(Written {
                    incomplete: None, ..
                }) => "ok".to_owned(),
                Ok(Written {
                    incomplete: Some(failure),
                    files,
                    ..
                }) => format!(
                    "written {} files, {}: {failure}",
                    files.len(),
                    failure.kind.exit_code()
                ),
                Err(failure) => format!("failed {}: {failure}", failure.kind.exit_code()),
            }
        );
        std::io::stdout().flush()?;
    }
    Ok(())
}
