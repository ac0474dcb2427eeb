//! `midair serve`: what midair shows of a machine's GPU processes, over HTTP.
//!
//! The program `midair-serve` is the only one of midair's with network code; `midair serve` becomes it. It
//! attaches through the same library as every other front end, in threads of their own, so that a process
//! that does not answer blocks its own request alone.
//!
//! * [`options`] reads the words, [`policy`] says which processes a request may name.
//! * [`clients`] says who may ask: users of this machine by their number, others by a token; and which
//!   requests a browser may have been tricked into.
//!   [`tls`] and [`private`] read what connections are encrypted with, and [`current`] reads it again when it changes.
//! * [`listen`] accepts connections within limits; [`strangers`] limits clients that are not known yet, and [`stall`] ends
//!   connections that do not move.
//! * [`ask`] turns a request line into an [`ask::Ask`], and nothing else of a request is obeyed.
//! * [`otlp`] sends metrics and profiles to a collector, [`push`] writes metrics as Parquet files, to a directory or to [`s3`]. Both
//!   reach a [`remote`] server.
//! * [`work`] attaches, looks and lists; [`answer`] is what goes back.
//! * [`pages`] makes pages off the threads that serve; [`metrics`] has the server's own, [`processes`] has the ones
//!   about processes that [`always`] keeps recorded, within a [`budget`]. A [`page`] is written in a [`form`]: [`text`], or [`exposition`] with native
//!   histograms.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod always;
mod answer;
mod ask;
mod budget;
mod clients;
mod current;
mod exposition;
#[cfg(test)]
mod fleet;
mod form;
mod listen;
mod metrics;
mod options;
mod otlp;
mod page;
mod pages;
mod policy;
mod private;
mod processes;
mod push;
mod remote;
mod route;
mod s3;
mod stall;
mod strangers;
mod text;
mod tls;
mod usage;
mod work;

use midair_failure::{Failure, Kind, plain};
use midair_secure::Command;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use options::Options;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// How long the end waits for attaches that are under way.
const END: Duration = Duration::from_secs(10);
/// The threads that serve connections. What takes long has threads of its own.
const SERVING: usize = 2;

/// Serves until a signal. `words` are those after the program's name. Returns the exit code.
pub fn main(words: &[String]) -> u8 {
    match run(words) {
        Ok(()) => 0,
        Err(failure) => {
            say(&format!("error: {failure} ({})", failure.hint));
            failure.kind.exit_code()
        }
    }
}

fn run(words: &[String]) -> Result<(), Failure> {
    // Rights that the file adds are for no one who asks over a network.
    midair_secure::begin(Command::Other).map_err(|refused| {
        Failure::new(Kind::Installation, refused.to_string()).hint(refused.remedy())
    })?;
    let options = Options::parse(words)?;
    raise_limit();
    let threads = options.sessions
        + work::LISTS
        + listen::MOST_LOOKS
        + pages::MAKING
        + otlp::THREADS
        + push::THREADS
        + current::THREADS;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(SERVING)
        .max_blocking_threads(threads)
        .thread_name("midair-serve")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Kind::Enter, format!("cannot start: {error}")))?;
    let served = runtime.block_on(listen::serve(Arc::new(options)));
    // Each attach sees that its client has gone, and detaches.
    runtime.shutdown_timeout(END);
    served
}

/// Raises the number of descriptors as far as is allowed: each process that is recorded takes some.
fn raise_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Writes a line on standard error.
fn say(text: &str) {
    let line = format!("midair-serve: {}\n", plain::line(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
