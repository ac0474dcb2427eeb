//! The life of the worker thread: sessions, and parking between them.
//!
//! The worker thread is started with all signals blocked, by the engine's boot code or by the
//! process's listener. It owns no descriptor between sessions. An attacher finds it by its name and
//! by the futex word that it waits on (see [`midair_record::boot`]).

use crate::connection::{fail, hang_up, open, receive, take_handed};
use crate::session;
use crate::{Kept, VerifiedFd, Work, claim, wait_on};
use midair_record::boot::{BootBlock, mailbox, step};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

/// How long a refusal stays in the boot block.
const REFUSAL_SHOWN: Duration = Duration::from_millis(500);

/// Runs the life of the worker thread. The boot code calls it on that thread. It returns only when
/// the thread is to end.
///
/// # Safety
/// `boot` must be the live boot block of the calling thread, mapped for as long as the process
/// lives.
pub unsafe fn enter(boot: *mut BootBlock, work: &mut dyn Work) {
    let mut has_parked = false;
    let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // The panic is caught here. Its message is suppressed, because nothing may be printed in a
        // process that is not ours.
        std::panic::set_hook(Box::new(|_| {}));
        // SAFETY: `boot` is live, as the caller of this function promises.
        unsafe { live(boot, work, &mut has_parked) };
    }));
    if lived.is_err() && has_parked {
        // SAFETY: as above.
        unsafe { stay(boot) };
    }
}

/// Waits for ever, after a panic of a thread that has been parked before. It is no worker thread
/// any more, but must not end as a thread: the boot code would then unmap the block, while the
/// process's listener or an attacher may be about to write to it.
///
/// # Safety
/// As for [`enter`].
unsafe fn stay(boot: *mut BootBlock) -> ! {
    // SAFETY: the caller promises that `boot` is live. The name is NUL-terminated.
    let word = unsafe {
        libc::prctl(libc::PR_SET_NAME, c"midair-ended".as_ptr());
        &(*boot).mailbox
    };
    word.store(mailbox::ENDED, Release);
    loop {
        wait_on(word, word.load(Acquire), None, true);
    }
}

/// Takes the process, and then runs one session after the other.
///
/// # Safety
/// As for [`enter`].
unsafe fn live(boot: *mut BootBlock, work: &mut dyn Work, has_parked: &mut bool) {
    work.reset_after_fork();
    if let Err(errno) = take(work) {
        // The boot code closes the connection and ends this thread.
        // SAFETY: `boot` is live, as the caller of this function promises.
        unsafe {
            fail(boot, step::ENTRY, errno);
            (*boot).mailbox.store(mailbox::FAILED, Release);
        }
        return;
    }
    work.entered();
    // SAFETY: the boot block stays mapped, and only its atomic fields are used here.
    let word = unsafe { &(*boot).mailbox };
    // The boot code made the first connection. Later ones are made by `open` or by the process's
    // listener.
    // SAFETY: as above.
    let mut near = VerifiedFd::new(unsafe { (*boot).fd_near.swap(-1, Relaxed) });
    loop {
        let session = near.take().and_then(receive);
        let over = session.and_then(|session| session::run(work, session));
        // Until the next session of this copy, another copy of this library may run one.
        claim::release();
        work.go_on();
        *has_parked = true;
        word.store(mailbox::PARKED, Release);
        // An attacher that sees the report may come back at once, and finds this thread parked.
        drop(over);
        loop {
            let handed = loop {
                match word.load(Acquire) {
                    mailbox::KICK => break false,
                    mailbox::HANDED => break true,
                    _ => wait_on(word, mailbox::PARKED, None, true),
                }
            };
            let taken = take(work);
            if handed && taken.is_ok() {
                // SAFETY: as above.
                near = VerifiedFd::new(unsafe { take_handed(boot) });
                word.store(mailbox::TALKING, Release);
                break;
            }
            // SAFETY: as above.
            unsafe { hang_up(boot, taken.err().filter(|_| handed)) };
            if handed {
                word.store(mailbox::PARKED, Release);
                continue;
            }
            let Err(errno) = taken else {
                // SAFETY: as above.
                near = unsafe { open(boot, word) };
                break;
            };
            // SAFETY: as above.
            unsafe { fail(boot, step::ENTRY, errno) };
            word.store(mailbox::FAILED, Release);
            show_refusal(word);
        }
    }
}

/// Takes the process for a session. The error is EBUSY when another copy of this library has it. It
/// is EALREADY when this copy has a session without an attacher that does not make way.
fn take(work: &mut dyn Work) -> Result<(), i32> {
    work.make_way().map_err(|Kept| libc::EALREADY)?;
    if claim::acquire() {
        return Ok(());
    }
    work.go_on();
    Err(libc::EBUSY)
}

/// Waits while the refusal is shown, then parks. Whoever woke this thread polls the word every few
/// ms. The next attacher need not wait until the time is over: it may wake the thread as if it were
/// parked.
fn show_refusal(word: &AtomicU32) {
    let end = std::time::Instant::now() + REFUSAL_SHOWN;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        if word.load(Acquire) != mailbox::FAILED {
            return;
        }
        if left.is_zero() {
            let _ = word.compare_exchange(mailbox::FAILED, mailbox::PARKED, SeqCst, SeqCst);
            return;
        }
        wait_on(word, mailbox::FAILED, Some(left), true);
    }
}
