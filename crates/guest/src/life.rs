//! The life of the worker thread: sessions, and parking between them.
//!
//! It is started with all signals blocked, by the engine's boot code or by the process's listener.
//! It owns no descriptor between sessions: an attacher finds it by its name and the futex word that
//! it waits on (see [`midair_record::boot`]).

use crate::connection::{hang_up, open, receive, take_handed};
use crate::session;
use crate::{VerifiedFd, Work, claim, wait_on};
use midair_record::boot::{BootBlock, mailbox, step};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::Duration;

/// How long a refusal stays in the boot block.
const REFUSAL_SHOWN: Duration = Duration::from_millis(500);

/// Entry function, called by the boot code on the worker thread. Returns only when the thread is to
/// end.
///
/// # Safety
/// `boot` must be the live boot block of the calling thread, mapped for as long as the process
/// lives.
pub unsafe fn enter(boot: *mut BootBlock, work: &mut dyn Work) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // A panic is caught here; nothing may be printed in a process that is not ours.
        std::panic::set_hook(Box::new(|_| {}));
        // SAFETY: the caller's promise.
        unsafe { live(boot, work) };
    }));
}

unsafe fn live(boot: *mut BootBlock, work: &mut dyn Work) {
    work.reset_after_fork();
    if !claim::acquire() {
        // SAFETY: as below; the attacher reads these fields once the mailbox says that it failed.
        // The boot code closes the connection and ends this thread.
        unsafe {
            (*boot).error = libc::EBUSY;
            (*boot).error_step = step::ENTRY;
            (*boot).mailbox.store(mailbox::FAILED, Release);
        }
        return;
    }
    work.entered();
    // SAFETY: the boot block stays mapped. This thread is the only one in the target that writes
    // its plain fields; the attacher reads and writes them from outside only as the mailbox allows.
    let word = unsafe { &(*boot).mailbox };
    // The boot code made it; later ones are made by `open`, or by the process's listener.
    // SAFETY: as above.
    let mut near = VerifiedFd::new(unsafe { std::mem::replace(&mut (*boot).fd_near, -1) });
    loop {
        if let Some(session) = near.take().and_then(receive) {
            session::run(work, session);
        }
        // Until the next session, another copy of this library may run one.
        claim::release();
        word.store(mailbox::PARKED, Release);
        loop {
            let handed = loop {
                match word.load(Acquire) {
                    mailbox::KICK => break false,
                    mailbox::HANDED => break true,
                    _ => wait_on(word, mailbox::PARKED, None, true),
                }
            };
            let claimed = claim::acquire();
            if handed && claimed {
                // SAFETY: as above.
                near = VerifiedFd::new(unsafe { take_handed(boot) });
                word.store(mailbox::TALKING, Release);
                break;
            }
            // SAFETY: as above.
            unsafe { hang_up(boot, handed) };
            if handed {
                word.store(mailbox::PARKED, Release);
                continue;
            }
            if claimed {
                // SAFETY: as above.
                near = unsafe { open(boot, word) };
                break;
            }
            // SAFETY: as above.
            unsafe {
                (*boot).error = libc::EBUSY;
                (*boot).error_step = step::ENTRY;
            }
            word.store(mailbox::FAILED, Release);
            show_refusal(word);
        }
    }
}

/// Whoever woke this thread polls the word every few ms. The next attacher need not wait until the
/// time is over: it may wake the thread as if it were parked.
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
