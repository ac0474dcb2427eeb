//! The process that follows the spool of a program without an attacher, and writes its files.
//!
//! The default tool starts it where the program was started with the tool, or where another injector
//! attached ([`midair_record::collector`] has what they say to each other). It runs with the rights
//! of the application and in no process group of it. Where the application is killed or becomes
//! another program, it writes what was recorded until then.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod collect;
mod counters;
mod follow;
mod peers;
mod print;

pub use midair_record::collector::PROGRAM;
use midair_record::collector::{Order, message, say};
use midair_record::spool::Reader;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Signals that are sent to a whole group of processes to end it. The application decides what it
/// does then; the collector ends after it.
const ENDING: [Signal; 4] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
];
/// How long an application that does not read keeps a message.
const PATIENCE: Duration = Duration::from_secs(60);

/// Collects what the arguments say, which come without the program's name. Returns the exit code. Standard input and
/// output must be what the tool has made them.
pub fn main(words: &[String]) -> u8 {
    let Some(order) = Order::read(words) else {
        eprintln!("midair's tool starts this program in the programs that it records");
        return 2;
    };
    let signals: SigSet = ENDING.into_iter().collect();
    let _ = signals.thread_block();
    midair_results::use_all_processors();
    let Ok((mut socket, spool)) = ends() else {
        return 1;
    };
    match Reader::of(spool) {
        Ok(reader) => collect::run(order, &socket, reader),
        Err(error) => drop(say(
            &mut socket,
            message::REFUSED,
            error.to_string().as_bytes(),
        )),
    }
    0
}

/// Takes the socket and the spool from standard input and output, which nothing else must use.
fn ends() -> io::Result<(UnixStream, OwnedFd)> {
    let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let spool = io::stdout().as_fd().try_clone_to_owned()?;
    let nothing = io::stderr();
    nix::unistd::dup2_stdin(&nothing)?;
    nix::unistd::dup2_stdout(&nothing)?;
    let socket = UnixStream::from(socket);
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok((socket, spool))
}
