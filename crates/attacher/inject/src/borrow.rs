//! Chooses a thread of the target and holds it: parked threads first, then running ones at a safe
//! point.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use midair_procinfo::task::Turns;
use midair_procinfo::{Tid, task};
use midair_ptrace::{
    Awake, Boost, Deadline, Lender, Urgent, avoid_processor, in_helper_process, trace,
};

use crate::arch::{self, number};
use crate::error::{During, EnterError, RejectedThread};
use crate::hold::{self, Hold, NotHeld};
use crate::inspection::Inspection;
use crate::loader_lock::LoaderLock;
use crate::mappings::Mappings;
use crate::options::{FaultPoint, Options};
use crate::parked::{Candidate, Judge, Verdict};
use crate::process_image::Differs;
use crate::safe_point::{self, Budget};

/// Unmaps midair's memory through the held thread.
pub(crate) fn unmap(hold: &mut Hold, mappings: &Mappings) -> Result<(), EnterError> {
    let args = [
        mappings.code.get(),
        mappings.code_len + mappings.data_len,
        0,
        0,
        0,
        0,
    ];
    hold.system_call("munmap", number::MUNMAP, args)
        .map(|_zero| ())
}

/// Keeps the calling thread, which ends soon, off the processor where `tid` last ran. Returns that
/// processor if the calling thread runs elsewhere then.
fn leave_processor_to(tid: Tid) -> Option<u64> {
    let processor = task::stat(tid).ok()?.processor;
    avoid_processor(processor).then_some(processor)
}

/// When a thread was stopped, and how long that took.
pub(crate) struct SeizeTime {
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    /// The earlier stops of running threads, and how long those took.
    pub(crate) looks: (u32, Duration),
}

/// The least number of surveys of all threads before none is said to be suitable.
const ROUNDS: u32 = 5;
/// How many times longer than wanted these surveys may take.
const STARVED: u32 = 4;
/// The pause between two surveys where some thread could be tried.
const SHORT_PAUSE: Duration = Duration::from_micros(200);
/// The pause between two surveys where none could.
const PAUSE: Duration = Duration::from_millis(2);
/// For so long the pauses stay as they are. After that they grow with the time that has passed, and
/// are this part of it.
const PATIENT: Duration = Duration::from_secs(2);
const PART: u32 = 64;
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The time after which the mappings are read again for the first time. A program that is starting
/// maps libraries, and stacks for its threads. The intervals grow.
const MAPPINGS_AGE: Duration = Duration::from_millis(10);
/// The longest interval, and how many times as long as one reading it is at least.
const OLDEST: Duration = Duration::from_millis(160);
const READINGS_APART: u32 = 16;
/// The longest wait for the loader's lock. What seems to be held for longer may be something else.
const LOADER_PATIENCE: Duration = Duration::from_secs(5);
/// How long the thread that lends priority may take to start, before a parked thread is stopped.
const LENDER_PATIENCE: Duration = Duration::from_millis(50);
const LOADER_HELD: &str = "another thread holds the loader's lock";

/// The search for a thread: what it has spent, and what it has seen.
struct Search<'a> {
    options: &'a Options,
    began: Instant,
    deadline: Deadline,
    /// If this process hardly gets any processor time, one survey takes longer than `find`. It then
    /// gets a few surveys all the same.
    last: Deadline,
    rounds: u32,
    budget: Budget,
    looked_at: HashMap<Tid, RejectedThread>,
    turn: usize,
    loader: LoaderLock,
    /// Lends priority to the thread that is held.
    lender: Lender,
    /// When the mappings are read again, and the interval until then.
    reading: Deadline,
    interval: Duration,
}

/// The result of the search with one list of mappings.
enum Searched<T> {
    /// A thread was held, and this came of it.
    Done(T),
    /// The process has other mappings by now.
    Outdated(Box<Inspection>),
}

/// A thread that is held, and the result of the search for it.
pub(crate) struct Borrowed<'a> {
    /// The inspection, with the mappings of this moment.
    pub(crate) look: &'a Inspection,
    pub(crate) candidate: &'a Candidate,
    /// The threads that were inspected and not used, with the reasons.
    pub(crate) rejected: &'a [RejectedThread],
    pub(crate) hold: Hold,
    pub(crate) seized: &'a SeizeTime,
}

/// Finds a parked thread, holds it and hands it to `then`, which must release it. The search goes
/// on until the deadline.
///
/// Each try is made on a thread of its own, see [`trace`].
pub(crate) fn borrow<T: Send>(
    look: &Inspection,
    options: &Options,
    mut then: impl FnMut(Borrowed<'_>) -> Result<T, EnterError> + Send,
) -> Result<T, EnterError> {
    let mut search = Search::begin(look, options);
    let mut newer: Option<Box<Inspection>> = None;
    loop {
        let look = newer.as_deref().unwrap_or(look);
        match search.among(look, &mut then)? {
            Searched::Done(done) => return Ok(done),
            Searched::Outdated(current) => newer = Some(current),
        }
    }
}

impl<'a> Search<'a> {
    fn begin(look: &Inspection, options: &'a Options) -> Search<'a> {
        Search {
            options,
            began: Instant::now(),
            deadline: Deadline::after(options.find),
            last: Deadline::after(options.find.saturating_mul(STARVED)),
            rounds: 0,
            budget: Budget::of(options),
            looked_at: HashMap::new(),
            turn: 0,
            loader: in_helper_process(look.tid, || LoaderLock::find(&look.modules)),
            lender: Lender::begin(),
            reading: Deadline::after(MAPPINGS_AGE),
            interval: MAPPINGS_AGE,
        }
    }

    /// Searches until a thread is held, or the mappings have changed.
    fn among<T: Send>(
        &mut self,
        look: &Inspection,
        then: &mut (impl FnMut(Borrowed<'_>) -> Result<T, EnterError> + Send),
    ) -> Result<Searched<T>, EnterError> {
        let mut judge = Judge::new(look, self.options);
        loop {
            let (verdicts, mut seen) =
                in_helper_process(look.tid, || judge.survey()).map_err(|_| EnterError::Gone {
                    during: "looking for a thread",
                })?;
            let mut none_yet = true;
            for verdict in verdicts {
                let candidate = match verdict {
                    Verdict::Parked(candidate) => candidate,
                    Verdict::AskRegisters(candidate) => {
                        let frame = hold::frame_registers(&candidate, self.options.stop);
                        match frame.and_then(|frame| judge.judge(candidate.tid, Some(frame))) {
                            Some(Verdict::Parked(candidate)) => candidate,
                            Some(Verdict::Rejected(thread)) => {
                                seen.push(thread);
                                continue;
                            }
                            _ => continue,
                        }
                    }
                    Verdict::Rejected(thread) => {
                        seen.push(thread);
                        continue;
                    }
                };
                none_yet = false;
                match self.try_parked(&mut judge, &candidate, &seen, then)? {
                    Ok(done) => return Ok(Searched::Done(done)),
                    Err(NotHeld::Failed(error)) => return Err(error),
                    Err(NotHeld::Unsuitable(why)) => {
                        seen.push(candidate.rejected(why));
                    }
                }
            }
            // We try one moving thread in each round, in turn: between two rounds, another may have
            // parked.
            let moving = std::mem::take(&mut judge.moving);
            let passed = self.began.elapsed();
            let may_seek = arch::HAS_SAFE_POINTS && passed >= self.options.parked_only;
            if may_seek && self.budget.allows(passed, self.options) && !moving.is_empty() {
                let tid = moving[self.turn % moving.len()];
                self.turn = self.turn.wrapping_add(1);
                match self.try_moving(&mut judge, tid, &seen, then)? {
                    Ok(done) => return Ok(Searched::Done(done)),
                    Err(NotHeld::Failed(error)) => return Err(error),
                    // It ended, does not stop, or was at no safe point, so we try others.
                    Err(NotHeld::Unsuitable(_)) => {}
                }
                none_yet = false;
            }
            self.rounds = self.rounds.saturating_add(1);
            if self.deadline.passed() && (self.rounds >= ROUNDS || self.last.passed()) {
                for thread in &mut seen {
                    if let Some(reasons) = self.looked_at.remove(&thread.tid) {
                        *thread = reasons;
                    }
                }
                return Err(EnterError::NoneParked {
                    threads: seen,
                    searched: self.began.elapsed(),
                });
            }
            look.image.check("looking for a thread")?;
            if let Some(current) = self.current(look) {
                return Ok(Searched::Outdated(current));
            }
            // Nothing tells us when a thread goes to sleep, and a running process may do so at any
            // time.
            std::thread::sleep(self.pause(none_yet));
        }
    }

    /// Stops a parked thread and hands it to `then`, if it is still parked.
    fn try_parked<T: Send>(
        &self,
        judge: &mut Judge<'_>,
        candidate: &Candidate,
        seen: &[RejectedThread],
        then: &mut (impl FnMut(Borrowed<'_>) -> Result<T, EnterError> + Send),
    ) -> Result<Result<T, NotHeld>, EnterError> {
        let (look, options, loader) = (judge.look, self.options, self.loader());
        let looks = self.budget.spent;
        FaultPoint::ThreadFound.reached();
        trace(candidate.tid, || {
            let elsewhere = leave_processor_to(candidate.tid);
            self.lender.wait(LENDER_PATIENCE);
            let _urgent = Urgent::begin();
            let Some(candidate) = judge.again(candidate) else {
                return Err(NotHeld::Unsuitable("it continued in the meantime"));
            };
            is_free(loader, look)?;
            let awake = elsewhere.map(Awake::keep);
            let boost = self.lender.lend(candidate.tid);
            let _awake = awake.filter(|_| boost.lends());
            let began = Instant::now();
            let deadline = Deadline::after(options.stop);
            let proven = hold::stop(&candidate, look.memory(), suspends(look), deadline)?;
            let time = SeizeTime {
                began,
                took: began.elapsed(),
                looks,
            };
            is_free(loader, look)?;
            use_it(look, options, (&candidate, seen), proven, &time, then)
        })
        .during("making a thread to trace with")
    }

    /// Stops a running thread until it is at a safe point, and hands it to `then`.
    fn try_moving<T: Send>(
        &mut self,
        judge: &mut Judge<'_>,
        tid: Tid,
        seen: &[RejectedThread],
        then: &mut (impl FnMut(Borrowed<'_>) -> Result<T, EnterError> + Send),
    ) -> Result<Result<T, NotHeld>, EnterError> {
        let (look, options, loader) = (judge.look, self.options, self.loader());
        let (budget, looked_at) = (&mut self.budget, &mut self.looked_at);
        let lender = &self.lender;
        trace(tid, || {
            let elsewhere = leave_processor_to(tid);
            let _urgent = Urgent::begin();
            let began = Instant::now();
            let before = task::turns(tid).unwrap_or_default();
            let found = match safe_point::seek(tid, judge, options, suspends(look), budget)? {
                Ok(found) => found,
                Err(reasons) => {
                    looked_at.insert(tid, reasons);
                    return Err(NotHeld::Unsuitable("it was at no safe point"));
                }
            };
            let held = Instant::now();
            let candidate = &found.candidate;
            if let Err(why) = is_free(loader, look) {
                looked_at.insert(tid, candidate.rejected(LOADER_HELD));
                return Err(why);
            }
            // To lend priority takes a moment, which is saved where processors are free.
            let busy = waits_for_processors(tid, before);
            let awake = elsewhere.filter(|_| busy).map(Awake::keep);
            let boost = busy.then(|| lender.lend(tid));
            let _awake = awake.filter(|_| boost.as_ref().is_some_and(Boost::lends));
            let time = SeizeTime {
                began,
                took: found.stood + held.elapsed(),
                looks: budget.spent,
            };
            use_it(look, options, (candidate, seen), found.proven, &time, then)
        })
        .during("making a thread to trace with")
    }

    /// Returns the inspection with other mappings, if it is time to read them and they have
    /// changed.
    fn current(&mut self, look: &Inspection) -> Option<Box<Inspection>> {
        if !self.reading.passed() {
            return None;
        }
        let began = Instant::now();
        let current = in_helper_process(look.tid, || look.with_new_mappings());
        let least = began.elapsed().saturating_mul(READINGS_APART);
        self.interval = self.interval.saturating_mul(2).min(OLDEST).max(least);
        self.reading = Deadline::after(self.interval);
        current.map(Box::new)
    }

    /// Returns the lock that has to be free, as long as there is time to wait for that.
    fn loader(&self) -> Option<LoaderLock> {
        let patient = self.began.elapsed() < (self.options.find / 2).min(LOADER_PATIENCE);
        patient.then_some(self.loader)
    }

    fn pause(&self, none_yet: bool) -> Duration {
        let passed = self.began.elapsed();
        match (passed > PATIENT, none_yet) {
            (true, _) => (passed / PART).min(LONGEST_PAUSE),
            (false, true) => PAUSE,
            (false, false) => SHORT_PAUSE,
        }
    }
}

/// Whether a thread that was looked at since `before` waits for processors, then or for most of its
/// life.
fn waits_for_processors(tid: Tid, before: Turns) -> bool {
    const LONG: Duration = Duration::from_millis(1);
    let now = task::turns(tid).unwrap_or_default();
    now.waited.saturating_sub(before.waited) >= LONG || now.waited > now.run
}

/// Whether system call filters of the target are to be suspended while a thread of it is traced.
fn suspends(look: &Inspection) -> bool {
    look.status.seccomp != 0 && look.access.admin_capability
}

/// Refuses a thread while another one holds the loader's lock.
fn is_free(loader: Option<LoaderLock>, look: &Inspection) -> Result<(), NotHeld> {
    match loader {
        Some(loader) if loader.is_held(&look.memory()) => Err(NotHeld::Unsuitable(LOADER_HELD)),
        _ => Ok(()),
    }
}

/// Holds a thread that is stopped, and hands it to `then`.
fn use_it<T>(
    look: &Inspection,
    options: &Options,
    (candidate, rejected): (&Candidate, &[RejectedThread]),
    proven: hold::Proven,
    seized: &SeizeTime,
    then: &mut impl FnMut(Borrowed<'_>) -> Result<T, EnterError>,
) -> Result<T, NotHeld> {
    FaultPoint::Proven.reached();
    // The thread is stopped, so what is checked here stays true until it is let go. Nothing was
    // written to it yet.
    match look.image.differs(candidate.tid) {
        None => {}
        Some(Differs::ThreadRights) => {
            return Err(NotHeld::Unsuitable(
                "its privileges differ from those its process had",
            ));
        }
        Some(Differs::ChangesUser) => {
            return Err(NotHeld::Unsuitable("its user is being changed"));
        }
        Some(other) => {
            return Err(NotHeld::Failed(
                other.into_error(look.pid, "stopping a thread"),
            ));
        }
    }
    let hold = Hold::begin(
        proven,
        (look.memory(), look.pid),
        &look.modules,
        &look.code,
        options.held,
    )?;
    Ok(then(Borrowed {
        look,
        candidate,
        rejected,
        hold,
        seized,
    })?)
}
