//! Times of the kernels of a process that is not entered, from the kernel driver's dispatch log.
//!
//! Nothing is loaded into the process, no thread of it is stopped, and no memory of it is read. The
//! log does not tell the names and sizes of kernels, nor threads and HIP streams, so these stay
//! unknown. Queues are distinguished by the offsets of their doorbells.

mod clock;
mod pairs;
mod ring;

use crate::clock::of_kernel;
use crate::collected::Collected;
use crate::meter::Meter;
use crate::request::{Entry, Event, Request};
use crate::rights;
use crate::target::Target;
use clock::Clock;
use midair_failure::{Failure, Kind};
use midair_output::RecordWriter;
use midair_procinfo::{Pid, Tid};
use midair_ptrace::kfd::{Clocks, Kfd, Mapping, PROFILER_VERSION, Stream, StreamInfo};
use midair_record::event::{Header, Kernel, Plain, Queue, Untimed, flag, kind};
use midair_record::spool::{DROP_SLOTS, drop_slot};
use midair_results::{Cost, End, Finished, Identity, Times, record_limit};
use midair_settings::Settings;
use pairs::{Dispatch, Pairs, Ran};
use ring::{Cursors, Layout};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Bytes of the records of a GPU. This is the largest number that every GPU can divide into its
/// rings and that the driver's limit of 16 MiB allows.
const LOG_BYTES: u32 = 80 << 17;
/// How often the log is read. The rings hold what a GPU dispatches in some hundreds of
/// milliseconds.
const HEARTBEAT: Duration = Duration::from_millis(20);
/// What the log does not tell.
const UNKNOWN: &str = "the process was not entered (--no-entry): the driver's log has times, queues and packet numbers of kernels, but no names, sizes, threads or streams; a queue's handle is the offset of its doorbell";

/// A process whose kernels are recorded from outside.
#[derive(Debug)]
pub struct NoEntry {
    target: Target,
    identity: Identity,
    settings: Settings,
    records: RecordWriter,
    device: Kfd,
    logs: Vec<Log>,
    book: Book,
    entry: Entry,
    notes: Vec<String>,
    ended: Option<End>,
    meter: Meter,
}

/// Reads a log for a fuzzer: the log as a driver describes it, its memory at several looks, and
/// readings of its clock (ticks and nanoseconds), taken as a session takes them. Returns how many
/// kernels are complete and how many records were lost, or `None` where the description is refused.
#[doc(hidden)]
pub fn read_dispatch_log(
    info: &StreamInfo,
    looks: &[&[u8]],
    readings: &[(u64, u64)],
) -> Option<(usize, u64)> {
    let layout = Layout::of(info, info.gpu_id, info.process).ok()?;
    let mut looks = looks.iter().map(|look| ring::Look(look));
    let mut cursors = Cursors::at_the_end(&layout, &looks.next()?);
    let (mut pairs, mut clock) = (Pairs::default(), Clock::default());
    for (gpu, system) in readings {
        clock.add(Clocks {
            gpu: *gpu,
            system: *system,
        });
    }
    let (mut records, mut complete, mut lost) = (Vec::new(), 0, 0);
    for look in looks {
        lost += cursors.take(&layout, &look, &mut records);
        for ran in records.drain(..).filter_map(|record| pairs.take(&record)) {
            std::hint::black_box((clock.time(ran.begin), clock.time(ran.end)));
            complete += 1;
        }
    }
    std::hint::black_box(pairs.under_way());
    Some((complete, lost))
}

/// The log of one GPU.
#[derive(Debug)]
struct Log {
    gpu_id: u32,
    node: u32,
    stream: Stream,
    memory: Mapping,
    layout: Layout,
    cursors: Cursors,
    pairs: Pairs,
    clock: Clock,
    /// Kernels that are complete and wait for a later reading of the clock.
    ran: Vec<Ran>,
    lost: u64,
}

/// The numbers that this side gives to queues and kernels.
#[derive(Debug, Default)]
struct Book {
    /// The numbers of queues, by node and doorbell.
    queues: HashMap<(u32, u32), u32>,
    dispatches: u64,
}

impl NoEntry {
    /// Opens the logs. When this returns, whatever the process dispatches is recorded.
    ///
    /// # Errors
    /// [`Kind::NoDispatchLog`] where the kernel or the GPU has none, and why the process's may not be read.
    pub fn attach(request: &Request) -> Result<NoEntry, Failure> {
        let began = Instant::now();
        check(request)?;
        let pid = request.pid;
        let target = Target::hold(pid)?;
        let leader = Tid::new(pid.get()).unwrap_or(Tid::MAX);
        if let Some(failure) = rights::protected(leader) {
            return Err(failure);
        }
        let look = move || crate::identity::read(pid, leader);
        let mut identity = crate::answer::within(pid, crate::answer::LIMIT, look)?;
        identity.process.init_time = of_kernel();
        let mut notes: Vec<String> = identity.without_driver.take().into_iter().collect();
        notes.push(UNKNOWN.to_owned());
        crate::attach::results_fit(request, &identity)?;
        let gpus: Vec<Gpu> = gpus(&identity);
        // The logs are opened as the real user, because the driver checks that person's rights.
        let opened = rights::as_real_user(|| {
            let device = Kfd::open().map_err(|error| no_device(&error))?;
            let logs = open_all(&device, pid, &gpus, &mut notes)?;
            Ok((device, logs))
        });
        let (device, logs) = opened.unwrap_or_else(|error| Err(rights::cannot_drop(&error)))?;
        let records = crate::attach::record_file()?;
        let records = records.limited(record_limit(&request.settings)?);
        let entry = Entry {
            via: "no thread: midair reads the kernel driver's dispatch log from outside".to_owned(),
            attached_after: began.elapsed(),
            notes: vec![UNKNOWN.to_owned()],
            ..Entry::default()
        };
        Ok(NoEntry {
            meter: Meter::begin(&target),
            target,
            identity,
            settings: request.settings.clone(),
            records,
            device,
            logs,
            book: Book::default(),
            entry,
            notes,
            ended: None,
        })
    }

    /// Returns how the target is recorded.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns a descriptor that becomes readable when the target ends.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.target.pidfd()
    }

    /// Returns the longest time that may pass between two polls.
    pub fn heartbeat(&self) -> Duration {
        HEARTBEAT
    }

    /// Reads the logs and returns the state. Does not wait.
    ///
    /// # Errors
    /// When records cannot be stored (the disk is full).
    pub fn poll(&mut self) -> Result<Event, Failure> {
        self.ended = self.ended.or_else(|| self.target.ended());
        self.collect()?;
        Ok(match self.ended {
            Some(end) => Event::TargetExited(end),
            None if self.records.is_full() => Event::TargetExited(End::Full),
            None => Event::Running {
                records: self.records.records(),
                bytes: self.records.bytes(),
            },
        })
    }

    fn collect(&mut self) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        let mut found = Vec::new();
        for log in &mut self.logs {
            found.clear();
            log.stream.clear_notifications();
            log.lost += log.cursors.take(&log.layout, &log.memory, &mut found);
            // A ring has the records of several queues, and the rings of one GPU are read one after
            // the other. So the records are put into the order of the clock, in which they
            // happened.
            found.sort_by_key(|record| record.ticks);
            log.ran
                .extend(found.iter().filter_map(|record| log.pairs.take(record)));
            // The clock is read after the records, so that each of their ticks lies between two
            // readings.
            if let Ok(reading) = self.device.clocks(log.gpu_id) {
                log.clock.add(reading);
            }
            if log.clock.runs() {
                for ran in log.ran.drain(..) {
                    let times = log.clock.time(ran.begin).zip(log.clock.time(ran.end));
                    self.book.write(
                        &mut bytes,
                        log.node,
                        ran.dispatch,
                        times.ok_or(Untimed::BadTimes),
                    );
                }
            }
        }
        self.append(&bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let kept = self.records.append(bytes);
        kept.map(drop)
            .map_err(|error| Failure::new(Kind::Output, format!("cannot store records: {error}")))
    }

    /// Ends the recording. The target does not notice.
    ///
    /// # Errors
    /// When records cannot be stored.
    pub fn detach(mut self) -> Result<Collected, Failure> {
        let mut failure = self.collect().err();
        let mut bytes = Vec::new();
        let (mut lost, mut without_begin) = (0, 0);
        for log in &self.logs {
            // If the clock does not run, there are no times.
            for ran in &log.ran {
                self.book
                    .write(&mut bytes, log.node, ran.dispatch, Err(Untimed::BadTimes));
            }
            let why = match self.ended {
                Some(_) => Untimed::QueueDestroyed,
                None => Untimed::RunningAtDetach,
            };
            for (dispatch, _) in log.pairs.under_way() {
                self.book.write(&mut bytes, log.node, dispatch, Err(why));
            }
            lost += log.lost + log.pairs.without_end;
            without_begin += log.pairs.without_begin;
        }
        failure = failure.or(self.append(&bytes).err());
        if without_begin > 0 {
            self.notes.push(format!(
                "{without_begin} kernels are missing from the trace, since the log had no start for them: they started before the recording, or their start was overwritten"
            ));
        }
        let mut dropped = [0; DROP_SLOTS];
        if let Some(slot) = dropped.get_mut(drop_slot(kind::KERNEL_DISPATCH)) {
            *slot = lost;
        }
        let now = of_kernel();
        let begin = self.identity.process.init_time;
        let session = Times {
            begin,
            end: now,
            now,
        };
        let (records, covered) = self.records.finish_session(session).map_err(|error| {
            Failure::new(Kind::Output, format!("cannot store records: {error}"))
        })?;
        self.identity.covers(covered, now);
        Ok(Collected {
            finished: Finished {
                cost: Cost {
                    // Nothing of midair's runs there.
                    in_process: Some(Duration::ZERO),
                    ..self.meter.cost(&self.target, Duration::ZERO)
                },
                session_ns: (covered != (begin, now)).then(|| now.saturating_sub(begin)),
                unrecorded_ns: 0,
                identity: self.identity,
                settings: self.settings,
                records,
                dropped,
                outcome: 0,
                ended: self.ended,
                failure,
                notes: self.notes,
                counters: midair_counters::CounterPlan::default(),
                gpu: None,
                only_others: false,
                why_empty: None,
                code: Default::default(),
            },
            entry: self.entry,
        })
    }
}

impl Book {
    /// Appends the record of a kernel. The record of its queue is appended before the queue's first
    /// kernel.
    fn write(
        &mut self,
        bytes: &mut Vec<u8>,
        node: u32,
        dispatch: Dispatch,
        times: Result<(u64, u64), Untimed>,
    ) {
        let header = |size: usize, kind: u8, flags: u8| Header {
            size: size as u16,
            kind,
            flags,
            ..Header::default()
        };
        let next = self.queues.len() as u32 + 1;
        let queue_id = *self.queues.entry((node, dispatch.doorbell)).or_insert(next);
        if queue_id == next {
            let queue = Queue {
                header: header(size_of::<Queue>(), kind::QUEUE, 0),
                handle: dispatch.doorbell.into(),
                queue_id,
                node,
                ..Queue::default()
            };
            bytes.extend_from_slice(queue.bytes());
        }
        self.dispatches += 1;
        let (start, end, untimed, flags) = match times {
            Ok((start, end)) => (start, end, Untimed::Timed, flag::NO_CALLER),
            Err(why) => {
                let open = match why {
                    Untimed::RunningAtDetach => flag::OPEN_AT_DETACH,
                    _ => 0,
                };
                (0, 0, why, flag::NO_CALLER | flag::UNTIMED | open)
            }
        };
        let kernel = Kernel {
            header: header(size_of::<Kernel>(), kind::KERNEL_DISPATCH, flags),
            start,
            end,
            correlation: self.dispatches,
            dispatch_id: self.dispatches,
            packet_index: dispatch.packet.into(),
            queue_id,
            node,
            untimed: untimed as u32,
            ..Kernel::default()
        };
        bytes.extend_from_slice(kernel.bytes());
    }
}

/// A GPU that the driver knows.
#[derive(Debug)]
struct Gpu {
    id: u32,
    node: u32,
    name: String,
}

fn gpus(identity: &Identity) -> Vec<Gpu> {
    let known = identity.agents.iter().filter_map(|agent| {
        let id = u32::try_from(agent.gpu_id).ok().filter(|id| *id != 0)?;
        let (node, name) = (agent.node_id, agent.name.clone());
        Some(Gpu { id, node, name })
    });
    known.collect()
}

/// Refuses a request for anything but kernels, since the log has nothing else.
fn check(request: &Request) -> Result<(), Failure> {
    let kernels = request.settings.is_on("ROCPROF_KERNEL_TRACE");
    if request.asked.nothing || kernels {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Usage,
        "--no-entry records only kernels, and none were requested",
    )
    .hint("add --kernel-trace, or omit --no-entry"))
}

fn open_all(
    device: &Kfd,
    pid: Pid,
    gpus: &[Gpu],
    notes: &mut Vec<String>,
) -> Result<Vec<Log>, Failure> {
    match device.profiler_version() {
        Ok(PROFILER_VERSION) => {}
        Ok(other) => {
            return Err(no_log(format!(
                "the kernel's AMD driver has version {other} of its profiler interface; midair supports {PROFILER_VERSION}"
            )));
        }
        Err(error) => {
            return Err(no_log(format!(
                "the kernel's AMD driver has no dispatch log: {error}"
            )));
        }
    }
    let (mut logs, mut without) = (Vec::new(), Vec::new());
    for gpu in gpus {
        match device.open_stream(gpu.id, pid.get(), LOG_BYTES) {
            Ok(stream) => logs.push(Log::over(device, stream, gpu, pid)?),
            Err(error) => match error.raw_os_error() {
                Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV) => {
                    without.push(format!("{} ({error})", gpu.name));
                }
                _ => return Err(not_opened(&error, pid)),
            },
        }
    }
    if logs.is_empty() {
        return Err(match without.as_slice() {
            [] => no_log("the AMD driver lists no GPU on this machine".to_owned()),
            some => no_log(format!(
                "no GPU here has a dispatch log: {}",
                some.join(", ")
            )),
        });
    }
    if !without.is_empty() {
        notes.push(format!(
            "kernels on these GPUs are not recorded, since they have no dispatch log: {}",
            without.join(", ")
        ));
    }
    Ok(logs)
}

impl Log {
    fn over(device: &Kfd, stream: Stream, gpu: &Gpu, pid: Pid) -> Result<Log, Failure> {
        let unknown = |why: String| {
            no_log(format!(
                "the dispatch log of {} has an unknown layout: {why}",
                gpu.name
            ))
        };
        let info = stream.info().map_err(|error| {
            unknown(format!(
                "the kernel reports its layout in an unknown form ({error})"
            ))
        })?;
        let layout = Layout::of(&info, gpu.id, pid.get()).map_err(unknown)?;
        let writable = info.reads_at.is_some();
        let memory = stream.map(layout.bytes, writable).map_err(|error| {
            Failure::new(Kind::Setup, format!("cannot map the dispatch log: {error}"))
        })?;
        let mut clock = Clock::default();
        match device.clocks(gpu.id) {
            Ok(reading) => clock.add(reading),
            Err(error) => {
                return Err(no_log(format!(
                    "cannot read the clock of {}: {error}",
                    gpu.name
                )));
            }
        };
        Ok(Log {
            gpu_id: gpu.id,
            node: gpu.node,
            cursors: Cursors::at_the_end(&layout, &memory),
            stream,
            memory,
            layout,
            pairs: Pairs::default(),
            clock,
            ran: Vec::new(),
            lost: 0,
        })
    }
}

fn no_log(what: String) -> Failure {
    Failure::new(Kind::NoDispatchLog, what).hint(
        "omit --no-entry, so that midair enters the process. Newer versions of AMD's driver have the log, for gfx950 and gfx12",
    )
}

fn no_device(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Failure::new(Kind::NotPermitted, format!("cannot open /dev/kfd: {error}"))
                .hint("join the group that owns it: render or video")
        }
        _ => Failure::new(
            Kind::NoDispatchLog,
            format!("this machine has no AMD GPU driver: /dev/kfd: {error}"),
        )
        .hint("--no-entry works with AMD GPUs only"),
    }
}

fn not_opened(error: &io::Error, pid: Pid) -> Failure {
    let what = format!("cannot open the dispatch log of process {pid}: {error}");
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Failure::new(Kind::NotPermitted, what).hint(
            "run midair as the process's user (if the process is dumpable), or with CAP_PERFMON",
        ),
        Some(libc::ESRCH) => Failure::new(
            Kind::NotGpu,
            format!("process {pid} does not use the AMD driver"),
        )
        .hint("attach once it uses a GPU"),
        Some(libc::EBUSY) => Failure::new(Kind::Busy, what)
            .hint("wait until the other profiler that reads it has finished"),
        Some(libc::ENOMEM) => Failure::new(Kind::NoHeadroom, what)
            .hint("end other readers: all logs together may pin 256 MiB"),
        _ => Failure::new(Kind::Setup, what),
    }
}
