//! The line on the process's standard error that says that it is attached, where the user asked for it.

use std::mem::MaybeUninit;

/// One write of it is atomic on a pipe.
const LINE: &[u8] = b"rocprofv3: attached to this process (ROCPROF_ATTACH_ANNOUNCE is set)\n";

/// Writes the line if it can be written at once. Otherwise it is lost: closed, full and broken outputs are the
/// application's affair. Call it on the worker thread, where SIGPIPE is blocked from here on: on a pipe without a
/// reader it would end the process.
pub(crate) fn write() {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is initialised by the first call; the mask is the calling thread's own.
    let blocked = unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut())
    };
    if blocked != 0 {
        return;
    }
    let mut output = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one valid entry; returns at once.
    let ready = unsafe { libc::poll(&raw mut output, 1, 0) };
    if ready == 1 && output.revents & libc::POLLOUT != 0 {
        // SAFETY: valid bytes of this length.
        unsafe { libc::write(libc::STDERR_FILENO, LINE.as_ptr().cast(), LINE.len()) };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_pipe_without_a_reader_ends_nothing() {
        let mut ends = [0; 2];
        // SAFETY: descriptors of this test; standard error is as it was afterwards. Rust ignores SIGPIPE, a program
        // in C does not.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let before = libc::dup(libc::STDERR_FILENO);
            libc::close(ends[0]);
            libc::dup2(ends[1], libc::STDERR_FILENO);
            super::write();
            libc::dup2(before, libc::STDERR_FILENO);
            libc::close(ends[1]);
            libc::close(before);
        }
    }
}
