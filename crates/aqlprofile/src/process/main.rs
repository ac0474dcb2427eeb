//! The process that has AMD's packet library loaded: answers questions on its standard input
//! (`midair_counters::wire`) until that ends.
//!
//!     midair-aqlprofile LIBRARY ...
//!
//! The first of the libraries that can be loaded is used. It is C++ with locks and global state,
//! and it ends the process when it is asked for what it does not expect; so it is never loaded into
//! an attacher or a process that is attached to (AMD-101).

use midair_aqlprofile::making::{self, Library};
use midair_counters::wire::{Answer, Question};
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsRawFd, FromRawFd};

fn main() -> io::Result<()> {
    let mut answers = own_output()?;
    let names: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    let mut library: Option<Result<Library, String>> = None;
    let mut question = Question::default();
    for line in io::stdin().lock().lines() {
        let whole = question
            .take(&line?)
            .map_err(|line| io::Error::other(format!("not understood: {line}")))?;
        if !whole {
            continue;
        }
        let question = std::mem::take(&mut question);
        let answer = match library.get_or_insert_with(|| Library::open(&names)) {
            Ok(library) => making::template(library, &question),
            Err(why) => Answer::Missing(why.clone()),
        };
        write!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}

/// Standard output for answers alone: what the library prints goes where errors go.
fn own_output() -> io::Result<io::BufWriter<File>> {
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
    Ok(io::BufWriter::new(unsafe { File::from_raw_fd(own) }))
}
