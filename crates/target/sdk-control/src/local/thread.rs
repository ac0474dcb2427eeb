//! What the worker thread of a session without a midair attacher does.

use super::phase::{Command, Kind, Phase};
use super::{DRAIN, WATCH_TICK, begin_watched, give_up, leave_at_exit, set_state, set_up_here};
use crate::state::STATE;
use crate::{collect, rendezvous, signals, tables};
use midair_guest::{BUSY_TICK, IDLE_TICK, claim, wait_on};
use midair_lockfree::WordEnum;
use midair_record::boot::SOLE_NAME;
use midair_record::spool::outcome;
use midair_sdk_api::status::Status;
use midair_sdk_api::{changes, registration, setting};
use midair_sdk_hot::clock::now;
use midair_sdk_hot::pause;
use midair_settings::Settings;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Does the worker thread's work. Another thread has set up a launched session, or the session
/// waits for its runtime.
pub(super) fn serve(kind: Kind) {
    if kind == Kind::Launched && !watch() {
        // The session ended before it started.
        if STATE.phase.load(SeqCst) != Phase::Off {
            give_up();
        }
        return;
    }
    changes::become_worker();
    changes::serve(true);
    if registration::has_started() {
        let mut name = [0_u8; 16];
        for (to, from) in name.iter_mut().zip(SOLE_NAME.bytes()) {
            *to = from;
        }
        // SAFETY: the name is NUL-terminated, and the call affects only the calling thread.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
    let set_up = match kind {
        Kind::Launched => Ok(()),
        _ => set_up(kind).inspect(|()| set_state(Phase::On)),
    };
    let command = match set_up {
        Ok(()) => run(),
        Err(status) => {
            STATE.failure.store(status.0, SeqCst);
            Command::Detach
        }
    };
    finish(command);
    claim::release();
    set_state(if command == Command::Leave {
        Phase::Stopped
    } else {
        Phase::Off
    });
}

/// Waits until a launched session is on. Returns false when it ends before that.
fn watch() -> bool {
    let mut epoch = 0;
    loop {
        let seen = changes::calls().load(SeqCst);
        match STATE.phase.load(SeqCst) {
            Phase::Watching => {}
            Phase::Starting => {
                wait_on(
                    STATE.phase.as_word(),
                    Phase::Starting.word(),
                    Some(WATCH_TICK),
                    true,
                );
                continue;
            }
            state => return state == Phase::On,
        }
        if STATE.command.load(SeqCst) != Command::Run {
            return false;
        }
        let loaded = tables::loader_epoch();
        if loaded != epoch {
            epoch = loaded;
            if tables::find().is_any() {
                wait_for_the_loader();
                if begin_watched() {
                    set_up_here();
                }
                continue;
            }
        }
        wait_on(changes::calls(), seen, Some(WATCH_TICK), true);
    }
}

/// Returns when no thread is inside a `dlopen`: a library that is being loaded may still register
/// its tables by itself, and the set-up asks the loader for functions.
fn wait_for_the_loader() {
    // SAFETY: dladdr takes any address, and an all-zero Dl_info is valid.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(wait_for_the_loader as *const libc::c_void, &mut info);
    }
}

pub(super) fn set_up(kind: Kind) -> Result<(), Status> {
    // This holds until a tool that writes to the spool sets another mode.
    pause::begin(pause::Mode::default());
    // All domains start at the same time, as in a session of the engine.
    if kind == Kind::Attached || registration::has_started() {
        registration::attach()?;
    }
    let spool = *STATE.spool.lock().unwrap_or_else(PoisonError::into_inner);
    // Tools' buffers have no stacks and no samples.
    let settings = match spool {
        Some(_) => setting::with(Settings::clone),
        None => Settings::default(),
    };
    crate::collection::Collection::begin_sampling(&settings);
    let applied = collect::with(|collection| {
        collection.begin_stacks(&settings);
        collection.begin(spool, false);
        collection.apply()
    });
    if let Some(why) = applied.err() {
        collect::with(|collection| collection.note(&why));
        return Err(Status::NOT_AVAILABLE);
    }
    if let Some(spool) = spool {
        spool.head().attached_at.store(now(), Relaxed);
    }
    leave_at_exit();
    if kind == Kind::Launched && spool.is_some() {
        let (handlers, patience) = setting::with(|settings| {
            (
                settings.boolean("ROCPROF_SIGNAL_HANDLERS"),
                settings.number("ROCPROF_FINALIZE_WAIT_TIMEOUT_SECONDS"),
            )
        });
        if handlers != Ok(Some(false)) {
            signals::install(patience.ok().flatten());
        }
    }
    Ok(())
}

/// Polls until the end is requested.
fn run() -> Command {
    loop {
        let seen = changes::calls().load(SeqCst);
        let busy = collect::with(|collection| collection.tick());
        let command = STATE.command.load(SeqCst);
        if command != Command::Run {
            return command;
        }
        if rendezvous::runtime_leaves() {
            wait_for_shut_down();
        }
        wait_on(
            changes::calls(),
            seen,
            Some(if busy { BUSY_TICK } else { IDLE_TICK }),
            true,
        );
    }
}

/// Waits while the application shuts down its HSA runtime, for good or temporarily. Nothing is
/// collected until that is done.
fn wait_for_shut_down() {
    collect::with(|collection| collection.stop_all(now() + DRAIN.as_nanos() as u64));
    while rendezvous::runtime_leaves() && STATE.command.load(SeqCst) == Command::Run {
        wait_on(
            changes::calls(),
            changes::calls().load(SeqCst),
            Some(BUSY_TICK),
            true,
        );
    }
    if STATE.command.load(SeqCst) == Command::Run {
        let _ = collect::with(|collection| collection.apply());
    }
}

pub(super) fn finish(command: Command) {
    let deadline = now() + DRAIN.as_nanos() as u64;
    let outcome_bits = collect::with(|collection| {
        collection.stop_all(deadline);
        collection.outcome
    });
    midair_stacks::end();
    let spool = *STATE.spool.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(spool) = spool {
        let leaves = if command == Command::Detach {
            0
        } else {
            outcome::PROCESS_EXIT
        };
        let head = spool.head();
        head.detached_at.store(now(), Relaxed);
        head.outcome.store(outcome_bits | leaves, SeqCst);
    }
    // Everything is in the spool and in the buffers, so no thread has to wait for what tools change
    // from here on.
    changes::serve(false);
    collect::with(|collection| collection.end());
    match command {
        Command::Detach => {
            let _ = registration::detach();
        }
        Command::Finish => registration::finalize(),
        _ => {}
    }
    *STATE.spool.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
