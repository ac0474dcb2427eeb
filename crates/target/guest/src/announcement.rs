//! The line on the process's standard error that says that it is attached, where the user asked for it.

/// One write of it is atomic on a pipe.
const LINE: &[u8] = b"rocprofv3: attached to this process (ROCPROF_ATTACH_ANNOUNCE is set)\n";

/// Writes the line if it can be written at once. Otherwise it is lost: closed, full and broken outputs are the
/// application's affair. All signals are blocked on the worker thread, so SIGPIPE reaches nothing.
pub(crate) fn write() {
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
