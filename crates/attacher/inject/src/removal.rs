//! Unmaps what was mapped in the target, for a session that will not take place.

use std::os::fd::OwnedFd;
use std::time::Duration;

use midair_procinfo::{Tid, task};
use midair_ptrace::{Deadline, Pace, fault};

use crate::borrow::{Borrowed, borrow, unmap};
use crate::error::{EnterError, Refusal};
use crate::handshake::DOUBT;
use crate::inspection::inspect_to_unmap;
use crate::mappings::Mappings;
use crate::options::{FaultPoint, Options};
use crate::process_image::ProcessImage;
use crate::self_unmap;
use crate::worker::Block;

/// How long we wait for a process that is stopped or traced, in order to unmap our memory.
const MOMENT: Duration = Duration::from_millis(300);

/// Hangs up, and unmaps our memory at the end of the worker thread. The worker thread does it
/// itself. If that is not possible, a thread is borrowed for it afterwards.
pub(crate) fn unmap_after(
    image: &ProcessImage,
    worker: Tid,
    block: Block,
    mappings: Mappings,
    mut channel: Option<OwnedFd>,
    options: &Options,
) -> Result<(), EnterError> {
    const PHASE: &str = "waiting for the end of the worker thread";
    let pid = image.pid();
    // The worker thread is on its way to its end. A machine that gives it no processor time now
    // will give it some later, and giving up half way gains nothing.
    let deadline = Deadline::after(options.boot.saturating_add(options.held));
    // The thread's own id is compared as well, so that we do not wait for another thread that was
    // given the same id later.
    let inside = block.own_tid();
    let there = || {
        inside.is_some()
            && task::status(worker)
                .is_ok_and(|status| status.own_tid() == inside && status.tgid == Some(pid))
    };
    // A failure only means that the worker thread did not unmap the memory. If something has become
    // of the process, the second way finds out.
    let unmapped = there()
        && self_unmap::unmap(worker, block, &mappings, &mut channel, deadline, options)
            .unwrap_or(false);
    if channel.take().is_some() {
        fault::step("hung up");
    }
    let mut pace = Pace::new();
    let mut doubt = Deadline::after(DOUBT);
    while there() {
        if deadline.passed() {
            return Err(EnterError::Silent { at: "its end" });
        }
        if doubt.passed() {
            image.check(PHASE)?;
            doubt = Deadline::after(DOUBT);
        }
        pace.rest();
    }
    fault::step("the worker thread has ended");
    if unmapped {
        return Ok(());
    }
    let moment = Deadline::after(MOMENT);
    let look = loop {
        match inspect_to_unmap(pid) {
            // Whoever stopped or traces it may be gone shortly after. If not, the next attach
            // unmaps our memory.
            Err(Refusal::Stopped { .. } | Refusal::Traced { .. }) if !moment.passed() => {
                pace.rest();
            }
            other => break other?,
        }
    };
    if !look.image.is_program_of(image) {
        return Err(EnterError::Replaced {
            during: PHASE,
            begun: true,
        });
    }
    borrow(&look, options, |Borrowed { mut hold, .. }| {
        // While one of its threads is held, the process cannot become another program, whose memory
        // we would unmap.
        image.check(PHASE)?;
        unmap(&mut hold, &mappings)?;
        FaultPoint::Unmapped.reached();
        hold.release()
    })
}
