//! The time from the start of an attach to the first record, and the time of a detach, on a HIP
//! program at work.

use crate::report::Table;
use midair_inject::Options;
use midair_session::Pid;
use midair_session::{Event, Install, Phases, Request, Session};
use midair_settings::Settings;
use midair_tests::Result;
use midair_tests::lab::Lab;
use midair_tests::stage::stage;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Attaches to one process after the first one.
const WARM: usize = 30;
/// Processes that are attached to for the first time.
const COLD: usize = 5;

/// Returns settings in which these are on.
pub fn settings(names: &[&str]) -> Settings {
    let mut settings = Settings::new();
    for name in names {
        settings.set((*name).to_owned(), "1".to_owned());
    }
    settings
}

/// Attaches with the libraries of the stage.
pub fn attach(pid: i32, settings: Settings) -> Result<Session> {
    let lib = stage()?.join("lib");
    let tool = lib.join("rocprofiler-sdk/librocprofiler-sdk-tool.so.1");
    attach_with_tool(pid, settings, tool)
}

/// Attaches with the SDK of the stage, and with this tool, alongside which the helper for counters is.
pub fn attach_with_tool(pid: i32, settings: Settings, tool: PathBuf) -> Result<Session> {
    let install = Install::at(stage()?.join("lib/librocprofiler-sdk.so.1"), tool);
    let request = Request::new(Pid::try_from(pid)?, settings);
    let session = Session::attach_with(&request, &install, &Options::default());
    Ok(session.map_err(|failure| failure.to_string())?)
}

/// The times of one session.
struct Times {
    attached: Duration,
    phases: Phases,
    first_record: Duration,
    detached: Duration,
}

fn session(pid: i32) -> Result<Times> {
    let words = [
        "ROCPROF_HIP_RUNTIME_API_TRACE",
        "ROCPROF_KERNEL_TRACE",
        "ROCPROF_MEMORY_COPY_TRACE",
    ];
    let began = Instant::now();
    let mut session = attach(pid, settings(&words))?;
    let attached = began.elapsed();
    let phases = *session.entry().phases;
    let limit = began + Duration::from_secs(10);
    // The program is never idle for long, so this time is ours.
    loop {
        match session.poll().map_err(|failure| failure.to_string())? {
            Event::Running { records, .. } if records > 0 => break,
            Event::TargetExited(_) => return Err("the program ended".into()),
            _ if Instant::now() > limit => return Err("no record came".into()),
            _ => std::thread::yield_now(),
        }
    }
    let first_record = began.elapsed();
    let began = Instant::now();
    drop(session.detach().map_err(|failure| failure.to_string())?);
    Ok(Times {
        attached,
        phases,
        first_record,
        detached: began.elapsed(),
    })
}

/// Measures on `vadd`, which launches all the time with short pauses. On two cores, a program that
/// never sleeps has no parked thread.
pub fn run(table: &mut Table) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    for number in 0..COLD {
        let target = lab.run("/lab/vadd").arg(1_000_000).arg(1_000);
        let mut target = target.log_name(&format!("vadd-{number}")).spawn()?;
        target.expect("iter 2")?;
        cold.push(session(target.pid())?);
        if number == 0 {
            for _ in 0..WARM {
                warm.push(session(target.pid())?);
            }
        }
    }
    let mut row = |what: &str, of: &[Times], part: fn(&Times) -> Duration, budget: &str| {
        table.times(what, &of.iter().map(part).collect::<Vec<_>>(), budget);
    };
    row("attach, cold", &cold, |times| times.attached, "");
    row(
        "attach to first record, cold",
        &cold,
        |times| times.first_record,
        "< 50 ms",
    );
    row("attach, warm", &warm, |times| times.attached, "");
    row("  of it: inspect", &warm, |it| it.phases.inspect, "");
    row("  of it: prepare", &warm, |it| it.phases.prepare, "");
    row("  of it: enter", &warm, |it| it.phases.enter, "");
    row("  of it: set up", &warm, |it| it.phases.set_up, "");
    let processor = |it: &Times| it.phases.processor;
    row("  its processor time", &warm, processor, "< 15 ms");
    row(
        "attach to first record, warm",
        &warm,
        |times| times.first_record,
        "< 20 ms",
    );
    row(
        "detach, with drain",
        &warm,
        |times| times.detached,
        "< 5 ms + drain",
    );
    Ok(())
}
