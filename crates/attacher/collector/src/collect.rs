//! One session, from the order to the files.

use crate::counters;
use crate::follow::{Application, Follower};
use crate::peers::Peers;
use crate::print::{Printer, screen_style, with_summary_file};
use midair_counters::CounterPlan;
use midair_failure::{Failure, Kind};
use midair_ids::{Pid, Tid};
use midair_record::collector::{Order, message};
use midair_record::spool::{Reader, command, outcome};
use midair_results::{
    Cost, End, Finished, Identity, OnItsBehalf, RecordWriter, Times, record_limit,
};
use midair_settings::{BENCHMARK_MODE, Benchmark, Settings};
use nix::time::{ClockId, clock_gettime};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

/// The message where `--process-sync` waits no longer.
const STILL_RECORDED: &str = "warning: --process-sync: other children of the same parent were still being recorded after a minute";

/// How often a sign of life is given.
const TICK: Duration = Duration::from_secs(1);

/// A session that is being recorded.
struct Session {
    /// Whether files are written.
    writes: bool,
    settings: Settings,
    identity: Identity,
    /// The plan with which to interpret the records of counters.
    counters: CounterPlan,
    application: Application,
    follower: Follower,
    /// Whom to wait for at the end, if that is asked for.
    peers: Option<Peers>,
}

/// Collects what the order says, from the first answer to the last.
pub(crate) fn run(order: Order, socket: &UnixStream, reader: Reader) {
    let printer = Printer { order, socket };
    show_life(&reader);
    let (mut session, plan) = match begin(order, reader) {
        Ok(begun) => begun,
        Err(failure) => {
            let reason = format!("{}\0{}", failure.what, failure.hint);
            return printer.message(message::REFUSED, reason.as_bytes());
        }
    };
    printer.message(message::READY, &plan);
    let end = session.follower.follow(&session.application, socket);
    session.follower.name_code();
    let peers = session.peers.take();
    let wrote = session.write(end, printer);
    if peers.is_some_and(|peers| !peers.wait()) {
        printer.sentence(STILL_RECORDED);
    }
    printer.message(message::DONE, &[u8::from(wrote)]);
}

/// Shows the application's side that this process lives, while it writes.
fn show_life(reader: &Reader) {
    let file = reader.fd().try_clone_to_owned();
    let Some(spool) = file.ok().and_then(|file| Reader::of(file).ok()) else {
        return;
    };
    let ticks = move || loop {
        spool.head().lease_tick.fetch_add(1, Relaxed);
        std::thread::sleep(TICK);
    };
    // Without it the application waits for a minute at most.
    drop(std::thread::Builder::new().spawn(ticks));
}

/// Prepares a session. It is better to fail now than at the end. Returns the plan of counters for
/// the SDK, too.
fn begin(order: Order, reader: Reader) -> Result<(Session, Vec<u8>), Failure> {
    let setup = |error: &dyn std::fmt::Display| Failure::new(Kind::Setup, error.to_string());
    let settings = Settings::decode(&reader.settings()).map_err(|error| setup(&error))?;
    let (Some(pid), Some(tid)) = (Pid::new(order.pid), Tid::new(order.tid)) else {
        return Err(setup(&"the process has no number"));
    };
    let application = Application::hold(pid);
    let identity = Identity::read(pid, tid, &OnItsBehalf);
    midair_results::check(&settings, &identity)?;
    let (counters, plan) = match order.is_launched {
        true => counters::plan(&settings, &identity)?,
        false => Default::default(),
    };
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
    let peers = peers(order, &settings, identity.keys.ppid)?;
    let benchmark = settings.get(BENCHMARK_MODE).and_then(Benchmark::named);
    let benchmark = benchmark.filter(|_| order.is_launched);
    let drops = benchmark == Some(Benchmark::Sdk);
    let session = Session {
        writes: match benchmark {
            None => true,
            Some(Benchmark::Profile) => settings.is_on("ROCPROF_OUTPUT_CONFIG_FILE"),
            Some(_) => false,
        },
        settings,
        identity,
        counters,
        application,
        follower: Follower::new(reader, records, drops),
        peers,
    };
    Ok((session, plan))
}

/// Joins the processes that end together (`--process-sync`), where that is asked for.
fn peers(order: Order, settings: &Settings, parent: u32) -> Result<Option<Peers>, Failure> {
    if !order.is_launched || !settings.is_on("ROCPROF_PROCESS_SYNC") {
        return Ok(None);
    }
    // The same directory for all of them, whose TMPDIR may differ.
    Peers::join(Path::new("/tmp"), parent)
        .map(Some)
        .map_err(|error| {
            Failure::new(
                Kind::Setup,
                format!("--process-sync cannot use a file in /tmp: {error}"),
            )
        })
}

/// Returns the directories in which the unlinked file may be.
fn temporary_directories() -> impl Iterator<Item = PathBuf> {
    midair_secure::variable("ROCPROF_TMPDIR")
        .map(PathBuf::from)
        .into_iter()
        .chain([std::env::temp_dir(), PathBuf::from(".")])
}

impl Session {
    /// Writes the files. Returns whether there was anything to write.
    fn write(self, end: Option<End>, printer: Printer<'_>) -> bool {
        let Session {
            writes,
            settings,
            mut identity,
            counters,
            follower,
            ..
        } = self;
        let Follower {
            reader,
            records,
            events,
            failure,
            ..
        } = follower;
        let order = printer.order;
        let head = reader.head();
        let now = boottime();
        let or_now = |time: u64| if time == 0 { now } else { time };
        let session = Times {
            begin: head.attached_at.load(Relaxed),
            end: or_now(head.detached_at.load(Relaxed)),
            now,
        };
        // A launched session normally ends with its process.
        let mut outcome_bits = head.outcome.load(Acquire) & !outcome::PROCESS_EXIT;
        if order.is_launched {
            // Hooked slots do not matter then.
            outcome_bits &= !outcome::SLOT_KEPT;
        }
        let dropped = reader.dropped();
        let lost_all = failure.is_some() || dropped.iter().any(|count| *count > 0);
        let is_nothing = events == 0 && !lost_all || !writes;
        // A session that was never set up is none.
        if is_nothing && (order.is_launched || session.begin == 0) {
            complete(&reader);
            return false;
        }
        let unrecorded_ns = head.unrecorded.load(Relaxed);
        (identity.process.init_time, identity.process.fini_time) = (session.begin, session.end);
        let written = records
            .finish_session(session)
            .map_err(|error| Failure::new(Kind::Output, format!("cannot store records: {error}")))
            .and_then(|(records, covered)| {
                identity.covers(covered, session.now);
                let whole = (session.begin, session.end);
                Finished {
                    session_ns: (covered != whole)
                        .then(|| session.end.saturating_sub(session.begin)),
                    unrecorded_ns,
                    cost: Cost::default(),
                    notes: identity
                        .without_driver
                        .take()
                        .into_iter()
                        .chain(counters::note(&settings, &records))
                        .collect(),
                    identity,
                    settings: with_summary_file(order, &settings),
                    records,
                    dropped,
                    outcome: outcome_bits,
                    ended: end,
                    failure,
                    counters,
                    gpu: None,
                    only_others: false,
                    why_empty: None,
                    code: Default::default(),
                }
                .write(screen_style(&settings))
            });
        match written {
            Ok(written) => printer.written(&settings, &written),
            Err(failure) => printer.failure(&failure),
        }
        complete(&reader);
        true
    }
}

/// Tells an application that has lost its end of the socket that the files are complete.
fn complete(reader: &Reader) {
    reader.head().command.store(command::DETACH, Release);
}

/// Returns the time of the clock of records, ns.
fn boottime() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME);
    time.map_or(0, |time| {
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    })
}
