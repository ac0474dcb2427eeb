//! Other profilers: whether one records through the CUPTI that we use, and where one that comes enters
//! it.

use super::{quiesce, workers};
use crate::callbacks::{Callbacks, FirstUse};
use crate::cupti::{Cupti, Driver, Status};
use crate::watch;
use midair_abi::cupti::{activity_kind, result};
use midair_guest::Refused;
use midair_record::spool::status;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// Whether CUPTI must not be finalized in this process: see [`super::finish`].
pub(crate) static KEEP_LOADED: AtomicBool = AtomicBool::new(false);
/// Whether we have used CUPTI in this process since it was last finalized.
pub(crate) static USED: AtomicBool = AtomicBool::new(false);
/// Whether we were the first to use CUPTI since it was loaded or finalized, and no other user was seen since.
pub(crate) static ONLY_OURS: AtomicBool = AtomicBool::new(false);

/// Entry points of the functions that another profiler calls first. If we are subscribed, no other
/// profiler has a subscriber with which it could enable callbacks, and we do so ourselves.
pub(super) fn entries(cupti: &Cupti, subscribed: bool) -> Vec<usize> {
    let functions = cupti.functions();
    let mut entries = vec![
        functions.subscribe as usize,
        functions.register_callbacks as usize,
        functions.enable as usize,
        functions.set_attribute as usize,
        functions.finalize as usize,
    ];
    // PyTorch's profiler starts its second and later runs with its clock.
    entries.extend(functions.register_timestamp_callback.map(|it| it as usize));
    let others = [
        c"cuptiEnableCallback",
        c"cuptiEnableDomain",
        c"cuptiSubscribe_v2",
        c"cuptiActivityRegisterCallbacks_v2",
        c"cuptiActivityEnable_v2",
        c"cuptiActivityEnableContext",
    ];
    entries.extend(
        others
            .iter()
            .filter(|name| {
                !subscribed || ![c"cuptiEnableCallback", c"cuptiEnableDomain"].contains(name)
            })
            .filter_map(|name| cupti.symbol(name))
            .map(|it| it.addr()),
    );
    // One function under two names has one entry point.
    entries.sort_unstable();
    entries.dedup();
    entries
}

/// Uses CUPTI for the first time, and checks whether another profiler records. A profiler that is
/// subscribed but idle is no obstacle (PyTorch's stays subscribed from its first use on).
///
/// CUPTI's threads are made at its first use. If that is ours, no other profiler records. If CUPTI
/// stays after a session, [`crate::watch`] notices others until the next one. Only otherwise is CUPTI
/// asked, by the one question that there is: it refuses to record kernels one by one while a profiler
/// records them concurrently. That question is not harmless: CUPTI takes the locks of all contexts for
/// it, while threads that hold one of them may wait for CUPTI's own lock. As CUPTI's first use alongside
/// eight threads that launched kernels, it hung the process about every fiftieth time (13.0), and alongside
/// eight that made contexts in 9 of 9 processes (13.5; H200, CUDA-047). So it is asked in a
/// moment without other threads in CUPTI, where the driver's calls can be led through midair.
///
/// After a burst CUPTI is `finalized`, and whoever uses it came since. That one goes first.
///
/// Returns what keeps calls of other threads out of CUPTI, if this is its first use.
///
/// # Errors
/// Another profiler records, or CUPTI does not work.
pub(super) fn is_alone(cupti: &Cupti, finalized: bool) -> Result<Option<FirstUse>, Refused> {
    if watch::end_kept().is_some_and(|came| came > 0) {
        // It stays its business from now on.
        ONLY_OURS.store(false, SeqCst);
        KEEP_LOADED.store(true, SeqCst);
    }
    let used_before = workers::are_ours();
    let mut first_use = None;
    if !used_before {
        // Names of objects: a kind that does not affect launches, and that no known profiler
        // records.
        let harmless = activity_kind::NAME;
        first_use = FirstUse::begin(cupti).map_err(no_moment)?;
        let used = cupti
            .enable(harmless)
            .and_then(|()| cupti.disable(harmless));
        first_use.iter().for_each(FirstUse::tables_are_made);
        used.map_err(|why| does_not_work(cupti, "cuptiActivityEnable(NAME)", why))?;
    }
    let ours = workers::are_ours();
    if !USED.swap(true, SeqCst) && !ours {
        // Another profiler used it before, in whatever way: finalizing it is its business.
        KEEP_LOADED.store(true, SeqCst);
    }
    if ours && !used_before {
        ONLY_OURS.store(true, SeqCst);
        return Ok(first_use);
    }
    // Another profiler's calls go through.
    drop(first_use);
    if finalized && !ours {
        return Err(another_came());
    }
    if ONLY_OURS.load(SeqCst) {
        return Ok(None);
    }
    ask(cupti)?;
    return_foreign_buffers(cupti);
    Ok(None)
}

/// Asks CUPTI whether a profiler records kernels.
///
/// # Errors
/// One does, or there is no moment for the question.
fn ask(cupti: &Cupti) -> Result<(), Refused> {
    let question = || {
        let answer = cupti.enable(activity_kind::KERNEL);
        answer.map(|()| cupti.disable(activity_kind::KERNEL))
    };
    let function = cupti.functions().finalize as usize;
    let callbacks = Driver::open().and_then(|it| Callbacks::replace(function, it.function()));
    let answer = match callbacks {
        Some(callbacks) => {
            // Threads that came before are not counted.
            quiesce::wait(quiesce::LEAVE_LIMIT);
            callbacks.alone(question).map_err(no_moment)?
        }
        None => question(),
    };
    match answer {
        Ok(ended) => ended.map_err(|why| does_not_work(cupti, "cuptiActivityDisable(KERNEL)", why)),
        Err(Status(result::ERROR_NOT_COMPATIBLE)) => Err(refused(
            status::OTHER_PROFILER,
            "another profiler is recording this process's kernels through CUPTI, which serves one at a time",
        )),
        Err(why) => Err(does_not_work(cupti, "cuptiActivityEnable(KERNEL)", why)),
    }
}

fn no_moment(why: &'static str) -> Refused {
    refused(
        status::OTHER,
        &format!("CUPTI could hang the process now ({why}). Try again later"),
    )
}

/// Makes CUPTI return its buffers to the profiler that is registered. A kernel that a thread
/// launched while we asked is recorded in a buffer of that profiler. If the buffer stayed in use,
/// everything that we record would follow into it, and would be returned to a profiler that does
/// not read it (H200 with PyTorch's profiler: 21 of 397 sessions without a kernel; with this, none
/// of 200; docs/sources.md#cupti).
fn return_foreign_buffers(cupti: &Cupti) {
    // A thread that is still inside a call may be writing to it: then the buffer stays, and is read
    // when it is returned.
    if quiesce::wait(quiesce::LEAVE_LIMIT) {
        // If no profiler is registered, CUPTI has no buffer and says so.
        let _ = cupti.flush_all(true);
    }
}

pub(super) fn does_not_work(cupti: &Cupti, what: &str, why: Status) -> Refused {
    let (major, minor) = cupti.cuda();
    let path = cupti.path();
    refused(
        status::NO_CUPTI,
        &format!("CUPTI {major}.{minor} ({path}) does not work in this process: {what} says {why}"),
    )
}

pub(super) fn another_came() -> Refused {
    refused(
        status::OTHER_PROFILER,
        "another profiler has started to use CUPTI between two bursts",
    )
}

pub(super) fn refused(status: u32, text: &str) -> Refused {
    Refused {
        status,
        text: text.to_owned(),
    }
}
