//! Writes the files where no midair attacher reads the spool: the process was started with the
//! tool, or another injector attached.
//!
//! The tool is then on both sides of the spool. It makes the spool, and a thread of its own follows
//! the spool into an unlinked file during the session. The thread that ends the session waits until
//! the files are written. The code that writes them is the same as on the attaching side
//! (`midair-results`).

use crate::counters;
use crate::peers::Peers;
use crate::sdk::{Sdk, SdkError, SessionKind};
use midair_capi_build::quiet_thread;
use midair_counters::CounterPlan;
use midair_failure::{Failure, Kind};
use midair_ids::{Pid, Tid};
use midair_record::event;
use midair_record::spool::{DEFAULT_SIZE, DROP_SLOTS, Reader, ReaderOptions, outcome};
use midair_results::{
    Console, Cost, Finished, Identity, Itself, RecordWriter, Style, Times, Written, record_limit,
};
use midair_settings::{ALIASES, KEEP_RESULTS, SCREEN, Settings, Verbosity, options};
use std::ffi::CString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The name of the thread that follows the spool.
const NAME: &str = "midair-records";
const STACK: usize = 512 << 10;
/// How often that thread reads the spool.
const TICK: Duration = Duration::from_millis(20);
/// How long it may take to read the rest at the end.
const FINISH_LIMIT: Duration = Duration::from_secs(60);
/// How much of the spool's memory is faulted in ahead of its use, so that the application's threads
/// need not do it.
const PREFAULT_AHEAD: usize = 4 << 20;
/// The command line sets this variable to its own pid, which the program then has. Only that
/// process reports that there was nothing to record; its children, such as a shell script's, do
/// not.
const LAUNCHED: &str = "ROCPROF_LAUNCH_PID";

/// A session whose files we write.
struct Recording {
    kind: SessionKind,
    settings: Settings,
    identity: Identity,
    /// The plan with which to interpret the records of counters.
    counters: CounterPlan,
    /// Dropping it wakes the thread that follows the spool, which then ends.
    stop: Sender<()>,
    done: Receiver<Followed>,
    /// Whom to wait for at the end, if that is asked for.
    peers: Option<Peers>,
}

/// What the thread that follows the spool returns.
struct Followed {
    reader: Reader,
    records: RecordWriter,
    /// How many records tell of calls, dispatches and the like; descriptions do not count.
    events: u64,
    failure: Option<Failure>,
}

/// Whether files of this process were written, or it was reported why not.
static WROTE: AtomicBool = AtomicBool::new(false);
const NOTHING: &str =
    "nothing was recorded, no file is written: midair saw no call or kernel of the requested kinds";

/// The same message for a program without anything that could have been recorded.
const NO_RUNTIME: &str =
    "nothing was recorded, no file is written: the program used no GPU runtime (HIP, HSA or CUDA)";

/// The message where `--process-sync` waits no longer.
const STILL_RECORDED: &str = "warning: --process-sync: other children of the same parent were still being recorded after a minute";

/// The beginnings of the file names of GPU runtimes.
const RUNTIMES: [&str; 3] = ["/libamdhip64.so", "/libhsa-runtime64.so", "/libcuda.so"];

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

/// Prepares a session in which we write the files. Call it before the contexts are started.
///
/// # Errors
/// When there is no memory, no directory for records, or no way to write the requested files: it is
/// better to fail now than at the end.
pub fn begin(sdk: Sdk) -> Result<(), SdkError> {
    let kind = sdk.session_kind();
    if kind == SessionKind::Engine || recording().is_some() {
        return Ok(());
    }
    let settings = settings(sdk);
    start(sdk, kind, settings.clone()).map_err(|failure| {
        sdk.note(&failure.what);
        WROTE.store(true, Relaxed);
        print_failure(kind, &settings, &failure);
        SdkError(-1)
    })
}

fn start(sdk: Sdk, kind: SessionKind, settings: Settings) -> Result<(), Failure> {
    let setup = |error: &dyn std::fmt::Display| Failure::new(Kind::Setup, error.to_string());
    // SAFETY: gettid takes no arguments and cannot fail.
    let own = unsafe { libc::gettid() };
    let identity = Identity::read(
        Pid::own(),
        Tid::try_from(own).unwrap_or(Pid::own().leader()),
        &Itself,
    );
    midair_results::check(&settings, &identity)?;
    let counters = match kind {
        SessionKind::Launched => counters::begin(sdk, &settings, &identity)?,
        _ => CounterPlan::default(),
    };
    let reader = Reader::create(&ReaderOptions {
        size: DEFAULT_SIZE,
        settings: Vec::new(),
        drain_ms: 0,
        lease_ms: 0,
        session: identity.keys.launched as u64,
    })
    .map_err(|error| setup(&error))?;
    let records = temporary_directories()
        .find_map(|place| RecordWriter::create_in(&place).ok())
        .ok_or_else(|| {
            Failure::new(
                Kind::Output,
                "cannot write to any directory for temporary files",
            )
            .hint("set ROCPROF_TMPDIR to one")
        })?;
    let records = records.limited(record_limit(&settings)?);
    let peers = peers(kind, &settings)?;
    let (base, len) = reader.mapping();
    let (stop, stopped) = channel();
    let (give, done) = channel();
    let follow = move || {
        let _ = give.send(follow(reader, records, &stopped));
    };
    quiet_thread(NAME, STACK, follow).map_err(|error| setup(&error))?;
    // SAFETY: this is the reader's own mapping. The reader is kept by the thread, which ends when
    // the session is over, and then by `finish`.
    unsafe { sdk.give_spool(base, len) }
        .map_err(|error| setup(&format!("the SDK refused the spool (status {})", error.0)))?;
    *recording() = Some(Recording {
        kind,
        settings,
        identity,
        counters,
        stop,
        done,
        peers,
    });
    Ok(())
}

/// Joins the processes that end together (`--process-sync`), where that is asked for.
fn peers(kind: SessionKind, settings: &Settings) -> Result<Option<Peers>, Failure> {
    if kind != SessionKind::Launched || !settings.is_on("ROCPROF_PROCESS_SYNC") {
        return Ok(None);
    }
    // The same directory for all of them, whose TMPDIR may differ.
    Peers::join(Path::new("/tmp")).map(Some).map_err(|error| {
        Failure::new(
            Kind::Setup,
            format!("--process-sync cannot use a file in /tmp: {error}"),
        )
    })
}

/// Returns the directories in which the unlinked file may be. The C library removes `TMPDIR` from
/// the environment of a program that runs with more rights than its caller.
fn temporary_directories() -> impl Iterator<Item = PathBuf> {
    midair_secure::variable("ROCPROF_TMPDIR")
        .map(PathBuf::from)
        .into_iter()
        .chain([std::env::temp_dir(), PathBuf::from(".")])
}

/// Follows the spool until it is asked to stop, then reads the rest.
fn follow(mut reader: Reader, mut records: RecordWriter, stop: &Receiver<()>) -> Followed {
    let mut events = 0;
    let mut failure = None;
    let mut ahead = 0;
    loop {
        let ended = !matches!(stop.recv_timeout(TICK), Err(RecvTimeoutError::Timeout));
        let used = reader.head().claim.load(Relaxed) as usize * midair_record::spool::CHUNK;
        if !ended && used + PREFAULT_AHEAD > ahead && ahead < reader.size() {
            ahead += PREFAULT_AHEAD;
            reader.fault_in(PREFAULT_AHEAD);
        }
        let mut drain = || {
            reader.drain(|bytes| {
                if events == 0 {
                    events += count_events(bytes);
                }
                records.append(bytes).map(drop)
            })
        };
        // Records that cannot be stored are dropped, so that the spool has room for new ones. At
        // the end, read everything that is left.
        while match drain() {
            Ok(taken) => ended && taken > 0,
            Err(error) => {
                failure.get_or_insert_with(|| {
                    Failure::new(Kind::Output, format!("cannot store records: {error}"))
                });
                ended
            }
        } {}
        if ended {
            break;
        }
    }
    Followed {
        reader,
        records,
        events,
        failure,
    }
}

/// Returns how many of these records tell what happened: records of traced kinds, except records
/// of loaded runtimes.
fn count_events(bytes: &[u8]) -> u64 {
    let (mut rest, mut count) = (bytes, 0);
    while let Ok((_, size)) = event::decode(rest) {
        count += u64::from(rest.get(2).is_some_and(|kind| {
            usize::from(*kind) < DROP_SLOTS && *kind != event::kind::RUNTIME_INITIALIZATION
        }));
        rest = rest.get(size..).unwrap_or_default();
    }
    count
}

/// Writes the files of a session that is over. They exist when it returns, and its peers' files
/// do where that is asked for.
pub fn finish() {
    let Some(mut recording) = recording().take() else {
        return;
    };
    let peers = recording.peers.take();
    let settings = recording.settings.clone();
    write(recording);
    if peers.is_some_and(|peers| !peers.wait()) {
        say(&settings, STILL_RECORDED);
    }
}

/// Writes the files of this session.
fn write(recording: Recording) {
    let Recording {
        kind,
        settings,
        mut identity,
        counters,
        stop,
        done,
        peers: _,
    } = recording;
    drop(stop);
    let Ok(followed) = done.recv_timeout(FINISH_LIMIT) else {
        let failure = Failure::new(
            Kind::Output,
            "cannot write results: the records could not be collected in time",
        );
        return print_failure(kind, &settings, &failure);
    };
    let Followed {
        reader,
        records,
        events,
        failure,
    } = followed;
    let head = reader.head();
    identity.process.init_time = head.attached_at.load(Relaxed);
    identity.process.fini_time = head.detached_at.load(Relaxed);
    // A launched session normally ends with its process.
    let mut outcome_bits = head.outcome.load(Acquire) & !outcome::PROCESS_EXIT;
    if kind == SessionKind::Launched {
        // Hooked slots do not matter then.
        outcome_bits &= !outcome::SLOT_KEPT;
    }
    let dropped = reader.dropped();
    let unrecorded_ns = head.unrecorded.load(Relaxed);
    if outcome_bits & outcome::MEMORY_KEPT != 0 {
        // A thread may still be storing a record.
        std::mem::forget(reader);
    } else {
        drop(reader);
    }
    let lost_all = failure.is_some() || dropped.iter().any(|count| *count > 0);
    if kind == SessionKind::Launched && events == 0 && !lost_all {
        return;
    }
    WROTE.store(true, Relaxed);
    let (begin, end) = (identity.process.init_time, identity.process.fini_time);
    let session = Times {
        begin,
        end,
        now: boottime(),
    };
    let written = records
        .finish_session(session)
        .map_err(|error| Failure::new(Kind::Output, format!("cannot store records: {error}")))
        .and_then(|(records, covered)| {
            identity.covers(covered, session.now);
            Finished {
                session_ns: (covered != (begin, end)).then(|| end.saturating_sub(begin)),
                unrecorded_ns,
                cost: Cost::default(),
                notes: identity.without_driver.take().into_iter().collect(),
                identity,
                settings: with_summary_file(kind, &settings),
                records,
                dropped,
                outcome: outcome_bits,
                ended: None,
                failure,
                counters,
                gpu: None,
                only_others: false,
                why_empty: None,
            }
            .write(screen_style(&settings))
        });
    match written {
        Ok(written) => announce(kind, &settings, &written),
        Err(failure) => print_failure(kind, &settings, &failure),
    }
}

/// Returns the time of the clock of records, ns.
fn boottime() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the out pointer is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// Reports, at the end of the process, that there was nothing to write. Only the process that the
/// user started does so.
pub fn report_if_empty(sdk: Sdk) {
    if is_launched_process() && !WROTE.load(Relaxed) && sdk.session_kind() != SessionKind::Becoming
    {
        let why = match has_runtime() {
            true => NOTHING,
            false => NO_RUNTIME,
        };
        say(&settings(sdk), why);
    }
}

/// Returns how the screen looks on standard error of a program that midair started.
fn screen_style(settings: &Settings) -> Style {
    let screen = settings.text(SCREEN).unwrap_or_default();
    let (columns, unicode) = match screen.strip_suffix('u') {
        Some(columns) => (columns, true),
        None => (screen, false),
    };
    match columns.parse() {
        Ok(columns @ 1..) => Style {
            columns,
            unicode,
            ..Style::default()
        },
        _ => Style {
            whole_names: true,
            unicode,
            ..Style::default()
        },
    }
}

/// Whether a GPU runtime is loaded in this process; true where that cannot be determined.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's file of this process"
)]
fn has_runtime() -> bool {
    let Ok(maps) = std::fs::read("/proc/self/maps") else {
        return true;
    };
    let maps = String::from_utf8_lossy(&maps);
    RUNTIMES.iter().any(|runtime| maps.contains(runtime))
}

/// Whether this is the process that the command line became by executing the program.
fn is_launched_process() -> bool {
    std::env::var(LAUNCHED).is_ok_and(|pid| pid.parse() == Ok(std::process::id()))
}

fn is_verbose(settings: &Settings) -> bool {
    let level = settings
        .text("ROCPROF_LOG_LEVEL")
        .and_then(Verbosity::from_word);
    level.is_some_and(|level| level >= Verbosity::Info)
}

/// Whether we may print. We may if the user started the program under the profiler. After an
/// attach, standard error belongs to the application, and is used only on request.
fn may_print(kind: SessionKind, settings: &Settings) -> bool {
    kind == SessionKind::Launched || is_verbose(settings)
}

/// Sends summaries for a console to a file, `PREFIX_summary.txt`, where the console belongs to the
/// application.
fn with_summary_file(kind: SessionKind, settings: &Settings) -> Settings {
    const OUTPUT: &str = "ROCPROF_STATS_SUMMARY_OUTPUT";
    let mut settings = settings.clone();
    let on_console = matches!(settings.text(OUTPUT), None | Some("stdout" | "stderr"));
    if on_console && !may_print(kind, &settings) {
        settings.set(OUTPUT, "summary");
    }
    settings
}

fn announce(kind: SessionKind, settings: &Settings, written: &Written) {
    if !may_print(kind, settings) {
        return;
    }
    for warning in &written.warnings {
        say(settings, &format!("warning: {warning}"));
    }
    let printed = match &written.summary {
        // As AMD's tool does, print on standard output of the program that it started.
        Some((Console::Stdout, tables)) if kind == SessionKind::Launched => {
            std::io::stdout().write_all(tables.as_bytes())
        }
        Some((_, tables)) => std::io::stderr().write_all(tables.as_bytes()),
        None => Ok(()),
    };
    // A summary that cannot be printed is not an error.
    drop(printed);
    if kind == SessionKind::Launched && settings.get(SCREEN).is_some() {
        let screen = midair_failure::plain::lines(&written.table);
        // As for the summary, an error does not matter.
        drop(std::io::stderr().write_all(screen.as_bytes()));
    }
    for file in &written.files {
        // AMD's words, which scripts look for (`docs/sources.md#rocprofv3`).
        print_line(&format!("Opened result file: {}", file.display()));
    }
    if let Some(failure) = &written.incomplete {
        print_failure(kind, settings, failure);
    }
}

fn print_failure(kind: SessionKind, settings: &Settings, failure: &Failure) {
    if may_print(kind, settings) {
        say(settings, &format!("error: {}", failure.what));
        if !failure.hint.is_empty() {
            say(settings, &format!("hint: {}", failure.hint));
        }
    }
}

/// Prints a line of the program that the user called: `midair run`, which asks for its screen, or
/// rocprofv3.
fn say(settings: &Settings, text: &str) {
    let program = match settings.get(SCREEN) {
        Some(_) => "midair",
        None => "rocprofv3",
    };
    print_line(&format!("{program}: {text}"));
}

/// Prints a line on standard error in one write, without any control sequences. A line that cannot
/// be written is dropped.
fn print_line(text: &str) {
    let line = format!("{}\n", midair_failure::plain::line(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
