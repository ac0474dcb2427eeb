//! One attach to one process, from the offer to the end of collecting.

mod offering;
mod prepared;
mod time_off;
mod tool;
mod window;

pub(crate) use offering::StartError;
pub(crate) use prepared::Prepared;
pub(crate) use tool::memory_copy;

use offering::offer;
use time_off::TimeOff;
use window::Parts;

use crate::clock::{Clock, boottime};
use crate::code_objects::CodeObjects;
use crate::collected::Collected;
use crate::counted::Counted;
use crate::counters::Counters;
use crate::cuda::{NO_CUPTI, OTHER_PROFILER};
use crate::gpu_metrics::GpuMetrics;
use crate::gpu_users;
use crate::identity;
use crate::instructions::Instructions;
use crate::live::Live;
use crate::meter::Meter;
use crate::profiler_lock::ProfilerLock;
use crate::profiler_start::{ProfilerStart, Said};
use crate::request::{Entry, Event, Phases, Request};
use crate::target::Target;
use midair_agents::AgentType;
use midair_code_names::CodeNames;
use midair_counters::CounterPlan;
use midair_failure::{Failure, Kind};
use midair_live::Cut;
use midair_output::{DeviceReadings, Keep, Observed, RecordWriter};
use midair_procinfo::Pid;
use midair_ptrace::{fault, sys};
use midair_record::spool::{Reader, command, outcome, state, status};
use midair_results::{End, Finished, Identity, Times, describe};
use midair_settings::{Settings, THREAD_TRACE};
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long the target's side may take to set up: it loads a tool and configures it.
const SETUP_LIMIT: Duration = Duration::from_secs(20);
/// The same on a machine that gives the process no processor. AMD's runtime holds its locks while it
/// starts, for seconds of processor time: a tenth of a processor takes a minute for that.
const SETUP_LONGEST: Duration = Duration::from_secs(180);
/// How long a detach may take beyond the drain.
const DETACH_LIMIT: Duration = Duration::from_secs(5);
/// How long a detach of a CUDA process may take beyond the drain. CUPTI is finalized once every
/// thread has left it and the GPU is idle, each of which may take seconds.
const CUDA_DETACH_LIMIT: Duration = Duration::from_secs(15);
/// The worker thread increments its tick at least every few ms. After this time without an
/// increment, we check that the thread still exists.
const SILENCE: Duration = Duration::from_millis(250);

/// The report for a process that ended before its worker thread had completed the session.
const CUT_SHORT: &str = "the process exited without its exit handlers, or before midair's worker thread was scheduled: GPU work of its last milliseconds may be missing";

/// The most rounds of reading the spool at the end. The first round takes everything that is there.
const LAST_ROUNDS: u32 = 64;

/// The number of bytes of the spool that one poll faults in.
const PREFAULT_BYTES: usize = 8 << 20;

/// An attached process.
#[derive(Debug)]
pub struct Session {
    target: Target,
    identity: Identity,
    settings: Settings,
    reader: Reader,
    records: RecordWriter,
    drain: Duration,
    entry: Entry,
    meter: Meter,
    notes: Vec<String>,
    /// See [`Finished::counters`].
    counters: CounterPlan,
    /// Releases the lock when the session is over.
    _profiler_lock: Option<ProfilerLock>,
    /// See [`Finished::only_others`].
    only_others: bool,
    /// The samples of the GPU that are taken meanwhile.
    gpu: Option<GpuMetrics>,
    /// The clock of the records.
    clock: Clock,
    ended: Option<End>,
    last_tick: (u64, Instant),
    polled: bool,
    live: Option<Live>,
    /// The file of what was counted so far, which others may read.
    counted: Option<Counted>,
    /// Which records are kept while no view asks for more.
    keep: Keep,
    /// For how long nothing was recorded, where only the latest records are kept.
    time_off: TimeOff,
    /// Names the native code on stacks.
    code_names: CodeNames,
    /// Names the instructions that are sampled.
    instructions: Instructions,
    /// Where threads are traced.
    code_objects: Option<CodeObjects>,
}

impl Session {
    /// Starts a session over the channel to the worker thread that the engine opened.
    ///
    /// # Errors
    /// What went wrong, after it was undone.
    pub(crate) fn over(
        target: Target,
        channel: &OwnedFd,
        prepared: Prepared,
        request: &Request,
        entry: Entry,
    ) -> Result<Session, StartError> {
        let Prepared {
            mut identity,
            reader,
            records,
            tools,
            counters,
            only_others,
            instructions,
        } = prepared;
        let mut profiler_lock = None;
        let (counters, plan) = match counters {
            Some(Counters {
                mut plan,
                file,
                lock,
            }) => {
                profiler_lock = lock;
                let agents = &identity.agents;
                gpu_users::add_to(&mut plan, agents, Path::new(gpu_users::SYS), target.pid());
                (plan, Some(file))
            }
            None => (CounterPlan::default(), None),
        };
        let offered = boottime();
        offer(channel, &target, &reader, &tools, plan.as_ref())?;
        let notes = identity.without_driver.take().into_iter().collect();
        let counted = Counted::of(&request.settings, target.pid());
        let mut session = Session {
            meter: Meter::begin(&target),
            target,
            identity,
            settings: request.settings.clone(),
            reader,
            records,
            drain: request.drain,
            entry,
            notes,
            counters,
            _profiler_lock: profiler_lock,
            only_others,
            ended: None,
            gpu: None,
            last_tick: (0, Instant::now()),
            polled: false,
            live: None,
            clock: Clock::default(),
            counted,
            keep: request.keep,
            time_off: TimeOff::default(),
            code_names: CodeNames::default(),
            instructions,
            code_objects: request
                .settings
                .is_on(THREAD_TRACE)
                .then(CodeObjects::default),
        };
        session.wait_for_setup()?;
        let head = session.reader.head();
        let noted = head.attached_at.load(Relaxed);
        session.clock = Clock::of(session.target.pid(), noted, (offered, boottime()));
        session.watch(request);
        Ok(session)
    }

    /// Lets a view follow the session, if there is one.
    fn watch(&mut self, request: &Request) {
        let Some(watched) = &request.live else {
            return;
        };
        let pid = self.target.pid();
        let identity = &self.identity;
        let model = watched.join(pid.get(), &identity::name(pid, identity), self.clock.now());
        self.records.observed(Arc::clone(&model) as Observed);
        let agents = identity.agents.iter();
        let gpus = agents.filter(|agent| agent.agent_type == AgentType::Gpu);
        let gpus = gpus.map(|agent| (agent.node_id, agent.logical_node_type_id.unsigned_abs()));
        {
            let mut model = model.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(readings) = DeviceReadings::of(&self.counters, &identity.agents) {
                model.read_devices(readings);
            }
            model.number_gpus(gpus);
        }
        let minors = identity.agents.iter().map(|agent| agent.drm_render_minor);
        let minors = minors.filter(|minor| *minor > 0);
        self.live = Some(Live::new(model, request.recorder.clone(), minors));
    }

    /// Samples this GPU from now on.
    pub(crate) fn sample(&mut self, gpu: Option<GpuMetrics>) {
        let clock = self.clock;
        self.gpu = gpu.map(|gpu| gpu.with_clock(clock));
    }

    fn wait_for_setup(&mut self) -> Result<(), Failure> {
        let (began, waited) = (Instant::now(), self.target.waited());
        // A runtime that is starting holds its locks until it has started, and the worker thread waits
        // for these. So the time in which the process waits for a processor does not count.
        let is_over = |target: &Target| {
            let starved = target.waited().saturating_sub(waited);
            let took = began.elapsed();
            took.saturating_sub(starved) >= SETUP_LIMIT || took >= SETUP_LONGEST
        };
        loop {
            match self.reader.head().state.load(Acquire) {
                state::FAILED => {
                    let status = self.reader.head().status.load(Acquire);
                    let pid = self.target.pid();
                    return Err(failed_setup(pid, status, &self.reader.message()));
                }
                state::STARTING => {}
                _ => {
                    fault::step("set-up seen");
                    return Ok(());
                }
            }
            self.renew_lease();
            if let Some(end) = self.detect_end() {
                return Err(Failure::new(
                    Kind::TargetKilled,
                    crate::explain::ended_during_the_set_up(end),
                ));
            }
            if let Some(how) = self.target.kept() {
                return Err(stopped(Phase::SetUp, how));
            }
            if is_over(&self.target) {
                // The lease ends what was started. No thread is stopped or traced.
                return Err(Failure::new(Kind::Setup, "midair's part in the process did not finish its set-up in time")
                    .hint("is the process starved of CPU? midair's part there gives up by itself after midair exits"));
            }
            self.wait_for_state(state::STARTING, Duration::from_millis(20));
        }
    }

    pub(crate) fn attached_after(&mut self, time: Duration, phases: Phases) {
        self.entry.attached_after = time;
        *self.entry.phases = phases;
    }

    /// Returns how the target was entered.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns a descriptor that becomes readable when the target ends.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.target.pidfd()
    }

    /// Returns the number of hooked slots of dispatch tables at the moment, or 0 while no runtime
    /// is loaded.
    pub fn slots(&self) -> u32 {
        self.reader.head().slots.load(Relaxed)
    }

    fn renew_lease(&self) {
        // Only the first tick is a step for fault injection, since the others are alike.
        if self.reader.head().lease_tick.fetch_add(1, Release) == 0 {
            fault::step("first lease tick");
        }
    }

    /// Collects the new records, renews the lease, and returns the state. Does not wait. Call it
    /// about every 100 ms. [`End::Full`] says that the records have reached their greatest size.
    /// The target is then still attached, and further records are only counted until
    /// [`Session::detach`].
    ///
    /// # Errors
    /// When records cannot be stored (the disk is full). The session still runs.
    pub fn poll(&mut self) -> Result<Event, Failure> {
        self.renew_lease();
        self.reader.fault_in(PREFAULT_BYTES);
        self.collect()?;
        if let Some(gpu) = &mut self.gpu {
            gpu.poll();
        }
        if !self.polled {
            self.polled = true;
            fault::step("first poll");
        }
        if self.ended.is_none() {
            self.ended = self.detect_end();
            if self.ended.is_some() {
                self.collect()?;
            }
        }
        if let Keep::Latest { time, .. } = self.keep {
            let off = self.reader.head().unrecorded.load(Relaxed);
            self.time_off.add(self.clock.now(), off, time);
        }
        if let Some(live) = &mut self.live {
            let metrics = match &mut self.gpu {
                Some(gpu) => gpu.recent(self.keep, self.clock.now()),
                None => Vec::new(),
            };
            let bytes = self.records.bytes();
            live.pulse(
                self.reader.head(),
                &self.target,
                self.clock.now(),
                bytes,
                metrics,
            );
            if let Some(end) = self.ended {
                live.end(&describe(end));
            }
        }
        self.fulfil(false);
        if let Some(mut counted) = self.counted.take() {
            counted.poll(|| self.so_far());
            self.counted = Some(counted);
        }
        Ok(match self.ended {
            Some(end) => Event::TargetExited(end),
            None if self.records.is_full() => Event::TargetExited(End::Full),
            None => Event::Running {
                records: self.records.records(),
                bytes: self.records.bytes(),
            },
        })
    }

    fn has_kernels(&self) -> bool {
        !self.records.index().kernels.is_empty()
    }

    /// Does what the view has asked for.
    fn fulfil(&mut self, last: bool) {
        let Some(mut live) = self.live.take() else {
            return;
        };
        let (keep, cuts) = live.wishes(last);
        if let Some(keep) = keep {
            self.records.keep(keep);
        }
        let some = !cuts.is_empty();
        for cut in cuts {
            let named = self.name_code();
            match named.and_then(|()| self.records.window()) {
                Ok(window) => {
                    let mut parts = self.parts_of(&cut);
                    parts.disk = live.disk();
                    let (from, to) = (cut.from, cut.to);
                    live.write(cut, move || parts.write(window, from, to));
                }
                Err(error) => live.fail(cut, format!("cannot store records: {error}")),
            }
        }
        if some && !live.has_cuts() {
            self.records.keep(self.keep);
        }
        self.live = Some(live);
    }

    /// Returns what the files of a window contain besides its records.
    fn parts_of(&self, cut: &Cut) -> Parts {
        let mut identity = self.identity.clone();
        let now = self.clock.now();
        let session = Times {
            begin: self.reader.head().attached_at.load(Relaxed),
            end: now,
            now,
        };
        let (since, until) = self.records.covered(session);
        let (from, to) = (cut.from.max(since).min(cut.to), cut.to.min(until));
        identity.covers((from, to), now);
        Parts {
            unrecorded_ns: self.time_off.within(from, to),
            identity,
            settings: self.settings.clone(),
            notes: vec![format!("a window of a session that continued: {}", cut.why)],
            counters: self.counters.clone(),
            code: self.code(),
            disk: None,
        }
    }

    fn collect(&mut self) -> Result<usize, Failure> {
        let records = &mut self.records;
        let first = records.records() == 0;
        let taken = self
            .reader
            .drain(|bytes| records.append(bytes).map(drop))
            .map_err(cannot_store)?;
        if first && taken > 0 {
            fault::step("first records taken");
        }
        self.code_names
            .look(self.target.pid(), self.records.index());
        self.instructions
            .look(self.target.pid(), self.records.index());
        if let Some(objects) = &mut self.code_objects {
            objects.look(self.target.pid(), self.records.index());
        }
        self.name_shown_code()?;
        Ok(taken)
    }

    /// Names code while a view shows the session.
    fn name_shown_code(&mut self) -> Result<(), Failure> {
        // Windows are named when they are written.
        let is_shown = matches!(self.keep, Keep::Latest { bytes: 0, .. });
        if self.live.is_some() && is_shown {
            let names = self.code_names.records_so_far(self.records.index());
            self.records.append(&names).map_err(cannot_store)?;
        }
        Ok(())
    }

    fn name_code(&mut self) -> std::io::Result<()> {
        let names = self.code_names.records(self.records.index());
        self.records.append(&names)?;
        let agents = &self.identity.agents;
        let texts = self.instructions.records(self.records.index(), agents);
        self.records.append(&texts).map(drop)
    }

    /// Returns the session up to now, as if it were over.
    fn so_far(&mut self) -> std::io::Result<Finished> {
        Ok(Finished {
            identity: self.identity.clone(),
            settings: self.settings.clone(),
            records: self.records.so_far()?,
            dropped: self.reader.dropped(),
            outcome: 0,
            ended: None,
            failure: None,
            notes: Vec::new(),
            counters: self.counters.clone(),
            gpu: None,
            session_ns: None,
            unrecorded_ns: 0,
            cost: self.meter.cost(&self.target, self.entry.longest_stop()),
            only_others: self.only_others,
            why_empty: None,
            code: self.code(),
        })
    }

    /// Returns the code objects that files of thread traces need.
    fn code(&self) -> BTreeMap<u64, Arc<[u8]>> {
        let objects = self.code_objects.as_ref();
        objects.map(CodeObjects::images).unwrap_or_default()
    }

    fn detect_end(&mut self) -> Option<End> {
        if let Some(end) = self.target.ended() {
            return Some(end);
        }
        let head = self.reader.head();
        let tick = head.target_tick.load(Acquire);
        if tick != self.last_tick.0 {
            self.last_tick = (tick, Instant::now());
        } else if self.last_tick.1.elapsed() > SILENCE {
            // The worker thread is silent: the process is stopped, gets no processor, or has become
            // another program.
            if !self.target.worker_alive() {
                return Some(self.target.ended_or_exec());
            }
            self.last_tick.1 = Instant::now();
        }
        // These outcomes mean that the target's side ended by itself: the process is about to exit,
        // or has shut its runtime down. Any other outcome means that it did what we asked for.
        const BY_ITSELF: u32 = outcome::PROCESS_EXIT | outcome::RUNTIME_SHUT_DOWN;
        if head.state.load(Acquire) != state::COMPLETE {
            return None;
        }
        match head.outcome.load(Acquire) {
            why if why & BY_ITSELF != 0 => Some(End::Exited(None)),
            why if why & outcome::YIELDED != 0 => Some(End::Yielded),
            why if why & outcome::LEASE_EXPIRED != 0 => Some(End::Lapsed),
            _ => None,
        }
    }

    /// Detaches, or ends the session of a target that has ended. When this returns, the target is
    /// free.
    ///
    /// # Errors
    /// [`Kind::DetachFailed`] when the target's side did not complete the detach in time.
    pub fn detach(mut self) -> Result<Collected, Failure> {
        let began = Instant::now();
        let looks = self.entry.cuda && self.ended.is_none() && !self.has_kernels();
        let look = looks
            .then(|| ProfilerStart::at_the_end(self.target.pid()))
            .flatten();
        let head = self.reader.head();
        head.command.store(command::DETACH, Release);
        fault::step("detach written");
        sys::futex_wake(&head.command);
        fault::step("detach told");
        let beyond = match self.entry.cuda {
            true => CUDA_DETACH_LIMIT,
            false => DETACH_LIMIT,
        };
        let limit = Instant::now() + self.drain + beyond;
        let mut failure = None;
        while self.reader.head().state.load(Acquire) != state::COMPLETE {
            self.renew_lease();
            // A full disk must not keep the target attached.
            failure = failure.or(self.collect().err());
            self.ended = self.ended.or_else(|| self.detect_end());
            if self.ended.is_some() {
                break;
            }
            if began.elapsed() > SILENCE
                && let Some(how) = self.target.kept()
            {
                failure = Some(stopped(Phase::Detach, how));
                break;
            }
            if Instant::now() >= limit {
                failure = Some(
                    Failure::new(Kind::DetachFailed, "midair's part in the process did not finish the detach in time")
                        .hint("the records so far are written; the process stops recording by itself when it runs again"),
                );
                break;
            }
            let now = self.reader.head().state.load(Acquire);
            if now != state::COMPLETE {
                self.wait_for_state(now, Duration::from_millis(10));
            }
        }
        fault::step("detach over");
        if let Some(live) = &self.live {
            live.end(&self.ended.map_or_else(|| "detached".to_owned(), describe));
        }
        // The process runs its own clean-up after its side is complete, so its exit code has to be
        // waited for.
        let reason = self.reader.head().outcome.load(Acquire);
        if reason & outcome::PROCESS_EXIT != 0 {
            self.ended = self
                .target
                .ended_within(Duration::from_secs(2))
                .or(self.ended);
        } else if reason & outcome::RUNTIME_SHUT_DOWN != 0 {
            self.ended = self.target.ended();
        }
        if failure.is_none() {
            // The target's side writes no more records. If it does so all the same, it must not
            // keep us here for ever.
            for _ in 0..LAST_ROUNDS {
                if self.collect()? == 0 {
                    break;
                }
            }
        }
        fault::step("last records taken");
        let said = look
            .filter(|_| !self.has_kernels())
            .map(ProfilerStart::said);
        let why_empty = match said {
            Some(Said::Yes(text)) => Some(text),
            _ => None,
        };
        self.fulfil(true);
        if let Some(mut live) = self.live.take() {
            live.finish();
            self.notes.extend(live.note());
        }
        // A target that was killed, or has become another program, is a failure in any case.
        if matches!(self.ended, Some(End::Exited(_)))
            && self.reader.head().state.load(Acquire) != state::COMPLETE
        {
            self.notes.push(CUT_SHORT.to_owned());
        }
        let (begin, end, unrecorded) = self.times();
        self.time_off.end(end, unrecorded);
        let session = Times {
            begin,
            end,
            now: self.clock.now(),
        };
        // Adds the threads that started since the attach, and the names that threads were given
        // since.
        if self.ended.is_none() {
            let pid = self.target.pid();
            let now = identity::threads(pid, pid.leader());
            self.identity.process.threads.extend(now);
        }
        let agents = &self.identity.agents;
        let pid = self.target.pid();
        gpu_users::add_to(&mut self.counters, agents, Path::new(gpu_users::SYS), pid);
        let last_words = self.reader.message();
        if !last_words.is_empty() {
            self.notes.push(last_words);
        }
        let full = self.records.is_full().then_some(End::Full);
        self.name_code().map_err(cannot_store)?;
        self.notes.extend(self.instructions.note());
        let (records, covered) = self.records.finish_session(session).map_err(cannot_store)?;
        let (from, to) = covered;
        self.identity.covers(covered, session.now);
        let gpu = self.gpu.take().map(|gpu| {
            let (samples, notes) = gpu.finish(from, to);
            self.notes.extend(notes);
            samples
        });
        self.notes
            .extend(CodeObjects::note(&self.settings, records.index()));
        // No midair thread may still be at work when the results are written.
        self.notes
            .extend(self.counted.take().and_then(Counted::end));
        Ok(Collected {
            finished: Finished {
                cost: self.meter.cost(&self.target, self.entry.longest_stop()),
                identity: self.identity,
                settings: self.settings,
                records,
                dropped: self.reader.dropped(),
                outcome: reason,
                ended: self.ended.or(full),
                failure,
                notes: self.notes,
                counters: self.counters,
                session_ns: (covered != (begin, end)).then(|| end.saturating_sub(begin)),
                unrecorded_ns: match self.keep {
                    Keep::Latest { .. } => self.time_off.within(from, to),
                    Keep::All => unrecorded,
                },
                gpu,
                only_others: self.only_others,
                why_empty,
                code: self
                    .code_objects
                    .map_or_else(Default::default, |of| of.images()),
            },
            entry: self.entry,
        })
    }

    /// Returns when the session started and ended, in the clock of the target, and for how long
    /// nothing was recorded in between.
    fn times(&self) -> (u64, u64, u64) {
        let head = self.reader.head();
        let end = match head.detached_at.load(Relaxed) {
            0 => self.clock.now(),
            time => time,
        };
        (
            head.attached_at.load(Relaxed),
            end,
            head.unrecorded.load(Relaxed),
        )
    }

    fn wait_for_state(&self, unwanted: u32, limit: Duration) {
        let word = &self.reader.head().state;
        sys::futex_wait(word, unwanted, limit);
    }
}

/// Returns why the target's side refused the session. Both values come from the target, so the
/// number may be any.
fn failed_setup(pid: Pid, status: u32, why: &str) -> Failure {
    match status {
        status::NO_CUPTI => {
            Failure::new(Kind::NoCupti, format!("cannot record process {pid}: {why}"))
                .hint(NO_CUPTI)
        }
        status::OTHER_PROFILER => Failure::new(
            Kind::OtherProfiler,
            format!("cannot record process {pid} now: {why}"),
        )
        .hint(OTHER_PROFILER),
        _ => Failure::new(
            Kind::Setup,
            format!("cannot set up midair's part in the process: {why}"),
        ),
    }
}

fn cannot_store(error: std::io::Error) -> Failure {
    Failure::new(Kind::Output, format!("cannot store records: {error}"))
}

/// What was in progress when the process was stopped.
#[derive(Debug, Clone, Copy)]
enum Phase {
    SetUp,
    Detach,
}

/// Returns the failure for a process that does not run, for this reason. Waiting for it would be
/// useless.
fn stopped(during: Phase, how: &str) -> Failure {
    let (kind, phase) = match during {
        Phase::SetUp => (Kind::Stopped, "the set-up"),
        Phase::Detach => (Kind::DetachFailed, "the detach"),
    };
    Failure::new(kind, format!("the process was {how} during {phase}")).hint(
        "continue it (kill -CONT, or thaw its cgroup): midair's part there then undoes the set-up",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_a_failed_setup_has_its_kind() {
        for (status, kind) in [
            (status::OTHER, Kind::Setup),
            (status::NO_CUPTI, Kind::NoCupti),
            (status::OTHER_PROFILER, Kind::OtherProfiler),
            // This is a number that no midair library writes.
            (u32::MAX, Kind::Setup),
        ] {
            let failure = failed_setup(Pid::own(), status, "the reason");
            assert_eq!(failure.kind, kind);
            assert!(failure.what.ends_with(": the reason"), "{failure}");
            assert_eq!(failure.hint == kind.remedy(), kind == Kind::Setup);
        }
    }
}
