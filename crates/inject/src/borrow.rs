//! Chooses a thread of the target and holds it: parked threads first, then running ones at a safe
//! point.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use midair_procinfo::{Tid, task};
use midair_ptrace::{Awake, Boost, Deadline, Urgent, apart, avoid_processor, trace};

use crate::arch::{self, number};
use crate::error::{During, EnterError, RejectedThread};
use crate::hold::{self, Hold, NotHeld};
use crate::inspection::Inspection;
use crate::mappings::Mappings;
use crate::options::{FaultPoint, Options};
use crate::parked::{Candidate, Judge, Verdict};
use crate::process_image::Differs;
use crate::safe_point::{self, Budget};

/// Unmaps memory of ours through the held thread.
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

/// Finds a parked thread, holds it and hands it to `then`, which must release it. `then` also gets
/// the threads that were inspected and not used, with the reasons. The search goes on until the
/// deadline.
///
/// Each try is made on a thread of its own, see [`trace`].
pub(crate) fn borrow<T: Send>(
    look: &Inspection,
    judge: &mut Judge<'_>,
    options: &Options,
    mut then: impl FnMut(&Candidate, &[RejectedThread], Hold, &SeizeTime) -> Result<T, EnterError>
    + Send,
) -> Result<T, EnterError> {
    let began = Instant::now();
    let deadline = Deadline::after(options.find);
    // If this process hardly gets any processor time, one survey takes longer than `find`. It then
    // gets a few surveys all the same.
    let last = Deadline::after(options.find.saturating_mul(STARVED));
    let mut rounds = 0_u32;
    let suspend = look.status.seccomp != 0 && look.access.admin_capability;
    let mut budget = Budget::of(options);
    let mut looked_at: HashMap<Tid, RejectedThread> = HashMap::new();
    let mut turn = 0_usize;
    loop {
        let (verdicts, mut seen) =
            apart(look.tid, || judge.survey()).map_err(|_| EnterError::Gone {
                during: "looking for a thread",
            })?;
        let mut none_yet = true;
        for verdict in verdicts {
            let candidate = match verdict {
                Verdict::Parked(candidate) => candidate,
                Verdict::AskRegisters(candidate) => {
                    let frame = hold::frame_registers(&candidate, options.stop);
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
            FaultPoint::Chosen.reached();
            let tried = trace(candidate.tid, || {
                let elsewhere = leave_processor_to(candidate.tid);
                let _urgent = Urgent::begin();
                let Some(candidate) = judge.again(&candidate) else {
                    return Err(NotHeld::Unsuitable("it went on meanwhile"));
                };
                let awake = elsewhere.map(Awake::keep);
                let boost = Boost::lend(candidate.tid);
                let _awake = awake.filter(|_| boost.lends());
                let began = Instant::now();
                let deadline = Deadline::after(options.stop);
                let proven = hold::stop(&candidate, look.memory(), suspend, deadline)?;
                let time = SeizeTime {
                    began,
                    took: began.elapsed(),
                    looks: budget.spent,
                };
                use_it(look, options, &candidate, &seen, proven, &time, &mut then)
            })
            .during("making a thread to trace with")?;
            match tried {
                Ok(done) => return Ok(done),
                Err(NotHeld::Failed(error)) => return Err(error),
                Err(NotHeld::Unsuitable(why)) => {
                    seen.push(RejectedThread {
                        tid: candidate.tid,
                        name: candidate.name,
                        doing: format!("{}, but {why}", candidate.doing),
                    });
                }
            }
        }
        // We try one moving thread in each round, in turn: between two rounds, another may have
        // parked.
        let moving = std::mem::take(&mut judge.moving);
        let may_seek = arch::HAS_SAFE_POINTS && began.elapsed() >= options.parked_only;
        if may_seek && !budget.is_spent() && !moving.is_empty() {
            let tid = moving[turn % moving.len()];
            turn = turn.wrapping_add(1);
            let tried = trace(tid, || {
                leave_processor_to(tid);
                let _urgent = Urgent::begin();
                let began = Instant::now();
                let found = match safe_point::seek(tid, judge, options, suspend, &mut budget)? {
                    Ok(found) => found,
                    Err(reasons) => return Ok(Err(reasons)),
                };
                let time = SeizeTime {
                    began,
                    took: found.stood,
                    looks: budget.spent,
                };
                use_it(
                    look,
                    options,
                    &found.candidate,
                    &seen,
                    found.proven,
                    &time,
                    &mut then,
                )
                .map(Ok)
            })
            .during("making a thread to trace with")?;
            match tried {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(reasons)) => {
                    looked_at.insert(tid, reasons);
                }
                Err(NotHeld::Failed(error)) => return Err(error),
                // The thread ended or does not stop, so we try others.
                Err(NotHeld::Unsuitable(_)) => {}
            }
            none_yet = false;
        }
        rounds = rounds.saturating_add(1);
        if deadline.passed() && (rounds >= ROUNDS || last.passed()) {
            for thread in &mut seen {
                if let Some(reasons) = looked_at.remove(&thread.tid) {
                    *thread = reasons;
                }
            }
            return Err(EnterError::NoneParked { threads: seen });
        }
        look.image.check("looking for a thread")?;
        // Nothing tells us when a thread goes to sleep, and a running process may do so at any
        // time.
        std::thread::sleep(if none_yet {
            Duration::from_millis(2)
        } else {
            Duration::from_micros(200)
        });
    }
}

/// Holds a thread that is stopped, and hands it to `then`.
fn use_it<T>(
    look: &Inspection,
    options: &Options,
    candidate: &Candidate,
    seen: &[RejectedThread],
    proven: hold::Proven,
    time: &SeizeTime,
    then: &mut impl FnMut(&Candidate, &[RejectedThread], Hold, &SeizeTime) -> Result<T, EnterError>,
) -> Result<T, NotHeld> {
    FaultPoint::Proven.reached();
    // The thread is stopped, so what is checked here stays true until it is let go. Nothing was
    // written to it yet.
    match look.image.differs(candidate.tid) {
        None => {}
        Some(Differs::ThreadRights) => {
            return Err(NotHeld::Unsuitable(
                "it has other rights than its process had",
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
    Ok(then(candidate, seen, hold, time)?)
}
