//! The process that has CUPTI loaded: reads a question on its standard input, and writes samples to
//! its standard output until that input ends.
//!
//!     midair-nvmetrics LIBRARY
//!
//! It is never loaded into an attacher or a process that is attached to (CUDA-030).

use midair_nvmetrics::sampling;
use midair_nvmetrics::wire::{Event, Question};
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::mpsc;
use std::time::Duration;

/// Whoever asks has gone, and CUPTI does not come back: it ends after so long all the same.
const LINGER: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    let mut answers = own_output()?;
    let library = std::env::args_os().nth(1).unwrap_or_default();
    let mut lines = io::stdin().lock().lines().map_while(Result::ok);
    let Some(question) = Question::read(&mut lines) else {
        return Err(io::Error::other("the question is not understood"));
    };
    drop(lines);
    let (send, stop) = mpsc::channel();
    std::thread::Builder::new()
        .name("midair-nv-end".into())
        .spawn(move || {
            // One more line, or the end of the input, is the end of the sampling.
            let _ = io::stdin().lock().lines().next();
            let _ = send.send(());
            std::thread::sleep(LINGER);
            // SAFETY: ends the process, whatever its other thread does.
            unsafe { libc::_exit(3) };
        })?;
    let mut say = |event: &Event| answers.write_all(&event.bytes());
    sampling::run(&library, &question, &stop, &mut say);
    // CUPTI's and the driver's own ends are not waited for: the kernel gives back what they have.
    // SAFETY: ends the process; all that was said is written.
    unsafe { libc::_exit(0) }
}

/// Standard output for answers alone: what libraries print goes where errors go.
fn own_output() -> io::Result<File> {
    let (out, error) = (io::stdout().as_raw_fd(), io::stderr().as_raw_fd());
    // SAFETY: duplicates open descriptors of this process, which has no other thread yet.
    let own = unsafe {
        let own = libc::fcntl(out, libc::F_DUPFD_CLOEXEC, 3);
        if own < 0 || libc::dup2(error, out) < 0 {
            return Err(io::Error::last_os_error());
        }
        own
    };
    // SAFETY: the duplicate is open and nobody else's.
    Ok(unsafe { File::from_raw_fd(own) })
}
