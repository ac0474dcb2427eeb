//! Wakes the worker thread that has been parked in a target since an earlier session.

use std::mem::offset_of;
use std::time::{Duration, Instant};

use midair_procinfo::Tid;
use midair_ptrace::{Deadline, Seized, StopKind, trace};
use midair_record::VERSION;
use midair_record::boot::{BootBlock, MAILBOX_OFFSET, mailbox};

use crate::entered::{Entered, EntryPath, Times, Via};
use crate::error::{During, EnterError};
use crate::handshake::meet;
use crate::inspection::Inspection;
use crate::mappings::boot_patience;
use crate::options::{FaultPoint, Options};
use crate::worker::{Block, Worker, mailbox_words};

/// Wakes `worker`. No thread of the program is touched.
pub(crate) fn wake(
    look: &Inspection,
    worker: &Worker,
    options: &Options,
) -> Result<Entered, EnterError> {
    let tid = worker.tid;
    let Some(at) = worker.block.filter(|_| worker.version == VERSION) else {
        return Err(worker.hindrance());
    };
    let block = Block {
        memory: look.memory(),
        at,
    };
    let times = trace(tid, || kick(look, tid, &block, options)).during(PHASE)??;
    let (channel, worker_tid) = meet(look, &block, options)?;
    let via = Via {
        path: EntryPath::OwnThread,
        tid,
        name: midair_record::boot::THREAD_NAME.into(),
        doing: "parked".into(),
        rejected: Vec::new(),
    };
    Ok(Entered {
        channel,
        pid: look.pid,
        worker_tid,
        via,
        times,
        mappings: None,
        image: look.image.clone(),
        block: Some(block),
    })
}

/// Writes the mailbox while the thread is held briefly.
fn kick(
    look: &Inspection,
    tid: Tid,
    block: &Block,
    options: &Options,
) -> Result<Times, EnterError> {
    let at = block.at;
    let began = Instant::now();
    // Only one process may trace a thread. So if two attachers try this, one changes the mailbox
    // and the other then sees the change.
    let seized = match Seized::seize(tid, false) {
        Ok(seized) => seized,
        Err(error) if error.errno() == Some(EPERM) => {
            return Err(EnterError::Busy {
                tid,
                state: "being woken by another",
            });
        }
        Err(error) => return Err(error).during(PHASE),
    };
    seized.interrupt().during(PHASE)?;
    let stopped = seized
        .wait_for_event(Deadline::after(options.held))
        .during(PHASE)?;
    FaultPoint::WakeStopped.reached();
    if let Some(other) = look.image.differs(tid) {
        stopped.detach().during(PHASE)?;
        return Err(other.into_error(look.pid, PHASE));
    }
    let seize = began.elapsed();
    let now = block.mailbox().during(PHASE)?;
    // After a refusal, the mailbox shows FAILED for a while, but the thread is as good as parked.
    let ready = now == mailbox::PARKED || now == mailbox::FAILED;
    if !ready || stopped.kind() != StopKind::Event {
        stopped.detach().during(PHASE)?;
        return Err(EnterError::Busy {
            tid,
            state: mailbox_words(now),
        });
    }
    // The block still has what its maker would wait. An attach that is tried again asks for more.
    let patience = boot_patience(options).to_ne_bytes();
    let patience_at = at.plus(offset_of!(BootBlock, patience_ms) as u64);
    block.memory.write(patience_at, &patience).during(PHASE)?;
    block
        .memory
        .write(at.plus(MAILBOX_OFFSET as u64), &mailbox::KICK.to_ne_bytes())
        .during(PHASE)?;
    FaultPoint::WakeKicked.reached();
    let release_began = Instant::now();
    // The stop itself made the kernel leave the futex wait. The kernel reads the mailbox again
    // before it waits on.
    stopped.detach().during(PHASE)?;
    Ok(Times {
        find: Duration::ZERO,
        seize,
        stub: Duration::ZERO,
        release: release_began.elapsed(),
        ..Times::default()
    })
}

const PHASE: &str = "waking the worker thread";
const EPERM: i32 = 1;
