//! Taking back what was mapped in the target, for a session that will not be.

use std::os::fd::OwnedFd;
use std::time::Duration;

use midair_procinfo::{Tid, task};
use midair_ptrace::{Deadline, Pace, fault};

use crate::borrow::{borrow, unmap};
use crate::error::{EnterError, Refusal};
use crate::handshake::DOUBT;
use crate::inspection::inspect;
use crate::mappings::Mappings;
use crate::options::{FaultPoint, Options};
use crate::parked::Judge;
use crate::process_image::ProcessImage;
use crate::self_unmap;
use crate::worker::Block;

/// How long a process that stands still is waited for, to take back what was mapped.
const MOMENT: Duration = Duration::from_millis(300);

/// Hangs up, and unmaps at the end of the worker thread: by it, or where that cannot be, by a
/// thread that is borrowed afterwards.
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
    // It is on its way to its end, and a machine that gives it no processor time gives it one
    // later: to give up half way helps nobody.
    let deadline = Deadline::after(options.boot.saturating_add(options.held));
    // Its own word for itself, so that another thread that got the same number is not waited for.
    let inside = block.own_tid();
    let there = || {
        inside.is_some()
            && task::status(worker)
                .is_ok_and(|status| status.own_tid() == inside && status.tgid == Some(pid))
    };
    // A failure is that of this way: whatever has become of the process, the other one finds out.
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
        match inspect(pid) {
            // What stops or traces it may be gone shortly after. If not, the next attach takes
            // our memory away.
            Err(Refusal::Stopped { .. } | Refusal::Traced { .. }) if !moment.passed() => {
                pace.rest();
            }
            other => break other?,
        }
    };
    if !look.image.is_program_of(image) {
        return Err(EnterError::Replaced { during: PHASE });
    }
    let mut judge = Judge::new(&look, options);
    borrow(&look, &mut judge, options, |_, _, mut hold, _| {
        // While a thread of it is held it cannot become another program, whose memory this would
        // be.
        image.check(PHASE)?;
        unmap(&mut hold, &mappings)?;
        FaultPoint::Unmapped.reached();
        hold.release()
    })
}
