//! The process that has CUPTI loaded: reads a question on its standard input, and writes samples to
//! its standard output until that input ends.
//!
//!     midair-nvmetrics LIBRARY
//!
//! It is never loaded into an attacher or a process that is attached to (CUDA-030).

use midair_nvmetrics::sampling;
use midair_nvmetrics::wire::{Event, Question};
use std::io::{self, BufRead, Write};
use std::sync::mpsc;
use std::time::Duration;

/// How long this process goes on after its parent has gone, if CUPTI does not return.
const LINGER: Duration = Duration::from_secs(10);

fn main() -> io::Result<()> {
    let mut answers = midair_secure::own_output()?;
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
            // The next line, or the end of the input, ends the sampling.
            let _ = io::stdin().lock().lines().next();
            let _ = send.send(());
            std::thread::sleep(LINGER);
            // SAFETY: `_exit` takes no pointers. It ends the process whatever the other thread
            // does.
            unsafe { libc::_exit(3) };
        })?;
    let mut say = |event: &Event| answers.write_all(&event.bytes());
    sampling::run(&library, &question, &stop, &mut say);
    // The clean-up of CUPTI and of the driver is not waited for: the kernel frees what they hold.
    // SAFETY: `_exit` takes no pointers, and every answer has been written.
    unsafe { libc::_exit(0) }
}
