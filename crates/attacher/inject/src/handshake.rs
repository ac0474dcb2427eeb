//! The first contact with a worker thread. It opens a socket pair, and the attacher takes the far
//! end.

use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use midair_procinfo::{Tid, files, task};
use midair_ptrace::{
    Deadline, Pace, copy_of_socket, fault, has_pidfds_of_threads, is_channel, pidfd_open_thread,
};
use midair_record::boot::{BootBlock, mailbox};

use crate::error::{During, EnterError, Refusal};
use crate::inspection::Inspection;
use crate::options::{FaultPoint, Options};
use crate::worker::{Block, mailbox_words};

/// How often a wait for the worker thread checks that the process still exists and runs.
pub(crate) const DOUBT: Duration = Duration::from_millis(20);

/// Waits until waiting for the worker thread's socket, and takes a copy of the far end.
pub(crate) fn meet(
    look: &Inspection,
    block: &Block,
    options: &Options,
) -> Result<(OwnedFd, Tid), EnterError> {
    const PHASE: &str = "connecting to the worker thread";
    let deadline = Deadline::after(options.boot);
    let mut pace = Pace::new();
    let mut doubt = Deadline::after(DOUBT);
    loop {
        match block.mailbox().during(PHASE)? {
            mailbox::OPEN => break,
            mailbox::FAILED | mailbox::ENDED => {
                return Err(block
                    .failure()
                    .unwrap_or(EnterError::Silent { at: "its socket" }));
            }
            other if deadline.passed() => {
                return Err(EnterError::Silent {
                    at: mailbox_words(other),
                });
            }
            _ if doubt.passed() => {
                look.image.check(PHASE)?;
                doubt = Deadline::after(DOUBT);
            }
            _ => pace.rest(),
        }
    }
    FaultPoint::Opened.reached();
    fault::step("waiting for the worker thread's socket");
    let worker = find_worker(look, block).ok_or(EnterError::Gone { during: PHASE })?;
    let far = block.signed(offset_of!(BootBlock, fd_far)).during(PHASE)?;
    if is_other_file(worker, far) {
        return Err(EnterError::NoChannel { tid: worker });
    }
    let channel = pidfd_open_thread(worker, look.pid).and_then(|pidfd| {
        copy_of_socket(pidfd.as_fd(), worker, far, |copy| {
            if is_channel(copy.as_fd()) {
                Ok(copy)
            } else {
                Err(copy)
            }
        })
    });
    let channel = match channel {
        // The first thread may have ended since the inspection.
        Err(_) if !task::is_alive(look.pid.leader()) && !has_pidfds_of_threads() => {
            return Err(EnterError::Refused(Refusal::LeaderEnded { pid: look.pid }));
        }
        other => other
            .during(PHASE)?
            .ok_or(EnterError::NoChannel { tid: worker })?,
    };
    FaultPoint::Taken.reached();
    Ok((channel, worker))
}

/// Whether descriptor `fd` of a thread is seen to be no socket. Neither the file nor its file system is
/// asked.
pub(crate) fn is_other_file(tid: Tid, fd: i32) -> bool {
    files::kernel_link(format!("{tid}/fd/{fd}"))
        .is_ok_and(|link| !link.to_string_lossy().starts_with("socket:["))
}

/// Returns the thread that the block names, by the id under which this process knows it. The block
/// has the thread's id in the target's own pid namespace.
pub(crate) fn find_worker(look: &Inspection, block: &Block) -> Option<Tid> {
    let inside = block.own_tid()?;
    let is_it = |&tid: &Tid| task::status(tid).is_ok_and(|status| status.own_tid() == Some(inside));
    // In the same pid namespace both ids are the same, so no search is needed.
    if look.access.same_pid_namespace {
        return Some(inside).filter(is_it);
    }
    task::list(look.tid).ok()?.into_iter().find(is_it)
}
