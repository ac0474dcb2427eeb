//! The session's records where no midair attacher reads them: the process was started with the
//! tool, or another injector attached.
//!
//! The tool makes the spool and starts the collector ([`midair_record::collector`]), a process that
//! the application does not see. The collector follows the spool and writes the files. The thread
//! that ends the session waits until they are complete. If the application is killed, the collector
//! writes them all the same.

use crate::channel::{Channel, Lost};
use crate::console;
use crate::sdk::{Sdk, SdkError, SessionKind};
use midair_failure::{Failure, Kind};
use midair_record::collector::{Order, PROGRAM, message};
use midair_record::spool::{DEFAULT_SIZE, Head, ReaderOptions, Unread, command, outcome, state};
use midair_settings::{
    ALIASES, BENCHMARK_MODE, Benchmark, KEEP_RESULTS, SCREEN, Settings, options,
};
use midair_unseen::Start;
use std::ffi::{CStr, CString, OsString};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the collector may take to get ready. Most of it is for packets of counters.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long it may take to write the files.
const WRITE_LIMIT: Duration = Duration::from_secs(3600);
/// How long it may show no sign of life meanwhile.
const SILENCE: Duration = Duration::from_secs(60);
/// How often a collector is looked at that cannot be heard.
const TICK: Duration = Duration::from_millis(5);
/// How many successive dispatches have the same group, where there are several groups.
const INTERVAL: &CStr = c"ROCPROF_COUNTER_GROUPS_INTERVAL";
/// Where the unlinked file with the records may be.
const TEMPORARY: &str = "ROCPROF_TMPDIR";

/// A session that is being collected.
struct Recording {
    kind: SessionKind,
    settings: Settings,
    spool: Unread,
    channel: Channel,
    /// A forked child has a copy of this, and nothing to do with the session.
    process: u32,
}

/// Whether files of this process were written, or it was reported why not.
static WROTE: AtomicBool = AtomicBool::new(false);
static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

fn recording() -> std::sync::MutexGuard<'static, Option<Recording>> {
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the session's settings, as far as we know their names.
pub(crate) fn settings(sdk: Sdk) -> Settings {
    let names = options().flat_map(|option| option.variables()).chain(
        ALIASES
            .iter()
            .flat_map(|(_, current)| current.iter().copied()),
    );
    let ours = [SCREEN, KEEP_RESULTS];
    names
        .chain(ours)
        .filter_map(|name| {
            let value = sdk.setting(&CString::new(name).ok()?)?;
            Some((name, value))
        })
        .collect()
}

/// Returns what a program that was started with the tool is measured with, if it is.
pub(crate) fn benchmark(sdk: Sdk) -> Option<Benchmark> {
    let is_started = matches!(
        sdk.session_kind(),
        SessionKind::Launched | SessionKind::Becoming
    );
    let name = CString::new(BENCHMARK_MODE).ok()?;
    Benchmark::named(&sdk.setting(&name).filter(|_| is_started)?)
}

/// Prepares a session that a collector follows. Call it before the contexts are started.
///
/// # Errors
/// When there is no memory, no collector, no directory for records, or no way to write the requested
/// files: it is better to fail now than at the end.
pub fn begin(sdk: Sdk) -> Result<(), SdkError> {
    let kind = sdk.session_kind();
    if kind == SessionKind::Engine || recording().is_some() {
        return Ok(());
    }
    let settings = settings(sdk);
    start(sdk, kind, settings.clone()).map_err(|failure| {
        sdk.note(&failure.what);
        WROTE.store(true, Relaxed);
        console::failure(kind, &settings, &failure);
        SdkError(-1)
    })
}

fn start(sdk: Sdk, kind: SessionKind, settings: Settings) -> Result<(), Failure> {
    let setup = |error: &dyn std::fmt::Display| Failure::new(Kind::Setup, error.to_string());
    let own = midair_unseen::beside(PROGRAM);
    let name = own
        .as_ref()
        .map_or(PROGRAM.as_ref(), |path| path.as_os_str());
    let program = own.clone().or_else(midair_unseen::whole).ok_or_else(|| {
        Failure::new(
            Kind::Installation,
            format!("cannot find {PROGRAM} next to midair's tool library"),
        )
    })?;
    let (spool, file) = Unread::create(&ReaderOptions {
        size: DEFAULT_SIZE,
        settings: settings.encode().map_err(|error| setup(&error))?,
        drain_ms: 0,
        lease_ms: 0,
        session: 0,
    })
    .map_err(|error| setup(&error))?;
    let (channel, far) = Channel::pair().map_err(|error| setup(&error))?;
    // SAFETY: gettid takes no arguments and cannot fail.
    let thread = unsafe { libc::gettid() };
    let process = std::process::id();
    let order = Order {
        is_launched: kind == SessionKind::Launched,
        prints: console::may_print(kind, &settings),
        pid: process,
        tid: u32::try_from(thread).unwrap_or(process),
    };
    let place = midair_secure::variable(TEMPORARY).map(|place| {
        let mut entry = OsString::from(format!("{TEMPORARY}="));
        entry.push(place);
        entry
    });
    midair_unseen::start(&Start {
        program: &program,
        name,
        arguments: &order.words().map(OsString::from),
        variables: place.as_slice(),
        input: far.as_fd(),
        output: file.as_fd(),
    })
    .map_err(|why| setup(&format!("cannot start {PROGRAM}: {why}")))?;
    drop((far, file));
    count(sdk, &ready(&channel)?)?;
    let (base, len) = spool.mapping();
    // SAFETY: the spool stays mapped until `finish`, and longer if a thread may still write there.
    unsafe { sdk.give_spool(base, len) }
        .map_err(|error| setup(&format!("the SDK refused the spool (status {})", error.0)))?;
    *recording() = Some(Recording {
        kind,
        settings,
        spool,
        channel,
        process,
    });
    Ok(())
}

/// Waits until the collector is ready. Returns the plan of counters, or nothing.
fn ready(channel: &Channel) -> Result<Vec<u8>, Failure> {
    let deadline = Instant::now() + READY_LIMIT;
    let setup = |what: String| Failure::new(Kind::Setup, what);
    match channel.hear(|| Instant::now() < deadline) {
        Ok((message::READY, plan)) => Ok(plan),
        Ok((message::REFUSED, reason)) => {
            let reason = String::from_utf8_lossy(&reason).into_owned();
            let (what, hint) = reason.split_once('\0').unwrap_or((&reason, ""));
            Err(setup(what.to_owned()).hint(hint))
        }
        Ok(_) => Err(setup(format!("{PROGRAM} is of another build"))),
        Err(Lost::Ended) => Err(setup(format!("{PROGRAM} ended at once"))),
        Err(Lost::Late) => Err(setup(format!("{PROGRAM} did not get ready in time"))),
    }
}

/// Has every dispatch counted by this plan, if there is one.
fn count(sdk: Sdk, plan: &[u8]) -> Result<(), Failure> {
    if plan.is_empty() {
        return Ok(());
    }
    let interval = match sdk.setting(INTERVAL) {
        None => 1,
        Some(text) => text.trim().parse().map_err(|_| {
            let name = INTERVAL.to_string_lossy();
            Failure::new(Kind::Usage, format!("{name} is not a number: {text}"))
        })?,
    };
    sdk.count_every(plan, interval).map_err(|error| {
        let what = format!("the SDK does not count (status {})", error.0);
        Failure::new(Kind::Setup, what)
    })
}

/// Ends a session that is over. The files are complete when it returns, and its peers' files are
/// where that is asked for.
pub fn finish() {
    let Some(recording) = recording().take() else {
        return;
    };
    if recording.process != std::process::id() {
        // It has neither the spool nor a word with the collector.
        std::mem::forget(recording);
        return;
    }
    let head = recording.spool.head();
    head.state.store(state::COMPLETE, Release);
    let lost = match recording.channel.end() {
        true => listen(&recording),
        false => unheard(&recording.spool),
    };
    if let Some(what) = lost {
        WROTE.store(true, Relaxed);
        let failure = Failure::new(Kind::Output, format!("cannot write results: {what}"));
        console::failure(recording.kind, &recording.settings, &failure);
    }
    if head.outcome.load(Acquire) & outcome::MEMORY_KEPT != 0 {
        // A thread may still be storing a record.
        std::mem::forget(recording.spool);
    }
}

/// How long a collector that writes is waited for.
struct Patience {
    begun: Instant,
    /// The last sign of life, and when it was seen.
    sign: (u64, Instant),
}

impl Patience {
    fn new() -> Patience {
        let now = Instant::now();
        Patience {
            begun: now,
            sign: (0, now),
        }
    }

    /// Whether to wait on.
    fn lasts(&mut self, head: &Head) -> bool {
        self.lasts_at(head.lease_tick.load(Relaxed), Instant::now())
    }

    fn lasts_at(&mut self, sign: u64, now: Instant) -> bool {
        if sign != self.sign.0 {
            self.sign = (sign, now);
        }
        now < self.begun + WRITE_LIMIT && now < self.sign.1 + SILENCE
    }
}

/// Prints what the collector says until the files are complete. Returns why they are not, if so.
fn listen(recording: &Recording) -> Option<&'static str> {
    let mut patience = Patience::new();
    loop {
        let head = recording.spool.head();
        match recording.channel.hear(|| patience.lasts(head)) {
            Ok((message::DONE, wrote)) => {
                if wrote.first() == Some(&1) {
                    WROTE.store(true, Relaxed);
                }
                return None;
            }
            Ok((kind, text)) => console::print(&recording.settings, kind, &text),
            Err(Lost::Ended) => return Some("midair's collector has ended"),
            Err(Lost::Late) => return Some("midair's collector did not finish in time"),
        }
    }
}

/// Waits until the files are complete, where the application has closed our end of the socket.
fn unheard(spool: &Unread) -> Option<&'static str> {
    let mut patience = Patience::new();
    while spool.head().command.load(Acquire) != command::DETACH {
        if !patience.lasts(spool.head()) {
            return Some("midair's collector did not finish in time");
        }
        std::thread::sleep(TICK);
    }
    WROTE.store(true, Relaxed);
    None
}

/// Reports, at the end of the process, that there was nothing to write. Only the process that the
/// user started does so.
pub fn report_if_empty(sdk: Sdk) {
    if !WROTE.load(Relaxed)
        && benchmark(sdk).is_none()
        && sdk.session_kind() != SessionKind::Becoming
    {
        console::report_empty(&settings(sdk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_waited_for_while_it_lives_but_not_forever() {
        let mut patience = Patience::new();
        let after = |seconds| patience.begun + Duration::from_secs(seconds);
        let times = [0, 59, 100, 159, 160].map(after);
        let signs = [0, 1, 1, 1, 1];
        let lasts: Vec<bool> = signs
            .into_iter()
            .zip(times)
            .map(|(sign, at)| patience.lasts_at(sign, at))
            .collect();
        // A minute after the last sign, which was seen at 59 s.
        assert_eq!(lasts, [true, true, true, false, false]);
        let mut patience = Patience::new();
        let begun = patience.begun;
        let mut each_second = (1..).map(|sign| begun + Duration::from_secs(sign));
        let mut signs = 1..;
        let waited = each_second
            .by_ref()
            .take_while(|at| patience.lasts_at(signs.next().unwrap_or_default(), *at));
        assert_eq!(waited.count(), 3599);
    }
}
