//! The helper process that loads AMD's packet library. It answers the questions on its standard
//! input (`midair_counters::wire`) until the input ends.
//!
//!     midair-aqlprofile [--enter USER GROUP GROUPS SEARCH] LIBRARY ...
//!
//! It uses the first library that can be loaded. The library is C++ with locks and global state,
//! and ends the process when it meets something unexpected. So it is never loaded into an attacher
//! or into a process that is attached to (AMD-101). With `--enter` the process enters the root of a
//! target first ([`inside`]).

mod hsa;
mod inside;

use midair_aqlprofile::making::{self, Library};
use midair_counters::wire::{Answer, Question};
use std::ffi::OsString;
use std::io::{self, BufRead, Write};

fn main() -> io::Result<()> {
    let names: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut library: Option<Result<Library, Answer>> = None;
    if let Some((first, arguments)) = names.split_first()
        && first == midair_aqlprofile::ENTER
    {
        // This does not return where it succeeds.
        library = Some(Err(Answer::Outside(inside::enter(arguments))));
    }
    if let Ok(name) = std::ffi::CString::new(midair_aqlprofile::NAME) {
        // SAFETY: a text that ends with a zero byte. In another root the kernel names the process by a
        // descriptor, and `midair ps` knows helpers by their name.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
    let mut answers = io::BufWriter::new(midair_secure::own_output()?);
    let mut question = Question::default();
    let open = || Library::open(&names).map_err(Answer::Missing);
    for line in io::stdin().lock().lines() {
        let line = line?;
        if let Some(question) = midair_aqlprofile::traces::Question::read(&line) {
            let answer = match library.get_or_insert_with(open) {
                Ok(library) => match hsa::describe(&question.gpu) {
                    true => making::trace(library, &question),
                    false => hsa::another().to_string(),
                },
                Err(answer) => answer.to_string(),
            };
            answers.write_all(answer.as_bytes())?;
            answers.flush()?;
            continue;
        }
        let whole = question
            .take(&line)
            .map_err(|line| io::Error::other(format!("not understood: {line}")))?;
        if !whole {
            continue;
        }
        let question = std::mem::take(&mut question);
        let answer = match library.get_or_insert_with(open) {
            Ok(library) => making::template(library, &question),
            Err(answer) => answer.clone(),
        };
        write!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}
