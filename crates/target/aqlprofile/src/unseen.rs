//! The helper process for a program that counts by itself and must not see a child process
//! ([`midair_unseen`]). It ends when we close our ends of its pipes. The library itself, C++ with
//! threads and locks of its own, never enters this process.

use crate::helper::Error;
use crate::libraries;
use crate::maker::Maker;
use midair_counters::template::Template;
use midair_counters::wire::{Answer, Listener, Question};
use midair_unseen::Start;
use std::ffi::{OsString, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of the helper's file.
const HELPER: &str = "midair-aqlprofile";
/// The variable in which an attacher tells a process with other tools where the helper is: paths
/// separated by colons.
pub const PACKET_HELPER: &str = "ROCP_MIDAIR_PACKET_HELPER_PATH";
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(20);
/// The largest answer in bytes.
const MOST: usize = 1 << 28;

/// The helper. It is started with the first question, and again after a question that it did not
/// answer.
#[derive(Debug, Default)]
pub struct Unseen {
    running: Option<Process>,
    named: Vec<PathBuf>,
}

#[derive(Debug)]
struct Process {
    to: OwnedFd,
    from: OwnedFd,
    read: Vec<u8>,
}

impl Unseen {
    /// Creates one without a running helper. The program is the file next to the library that
    /// contains this code, or else the first existing one of those that [`Unseen::name`] gives.
    pub const fn new() -> Unseen {
        Unseen {
            running: None,
            named: Vec::new(),
        }
    }

    /// Sets where else the helper may be. The attacher passes this when it had our library loaded
    /// from a descriptor, so that nothing is alongside it.
    pub fn name(&mut self, programs: Vec<PathBuf>) {
        self.named = programs;
    }

    /// Ends the helper.
    pub fn end(&mut self) {
        self.running = None;
    }

    fn start(&self) -> Result<Process, String> {
        if midair_secure::has_more_rights() {
            return Err("a process with more privileges than its user starts no helper".to_owned());
        }
        let named = || {
            self.named
                .iter()
                .find(|path| midair_unseen::is_program(path))
        };
        let program = midair_unseen::beside(HELPER)
            .or_else(|| named().cloned())
            .ok_or("the helper for AMD's packet library is not installed here")?;
        spawn(&program, &libraries(midair_secure::variable))
    }
}

impl Maker for Unseen {
    fn template(&mut self, question: &Question) -> Result<Template, Error> {
        let mut helper = match self.running.take() {
            Some(helper) => helper,
            None => self.start().map_err(Error::None)?,
        };
        // A helper that failed is not used again: it might still send the answer to this question.
        let answer = helper.ask(question).map_err(Error::None)?;
        self.running = Some(helper);
        match answer {
            Answer::Made(template) => Ok(template),
            Answer::Missing(why) => Err(Error::Missing(why)),
            Answer::Outside(why) => Err(Error::Outside(why)),
            Answer::Refused { code, what } => Err(Error::Refused { what, code }),
        }
    }
}

impl Process {
    fn ask(&mut self, question: &Question) -> Result<Answer, String> {
        let until = Instant::now() + LIMIT;
        self.say(question.to_string().as_bytes(), until)?;
        let mut listener = Listener::default();
        let mut total = 0;
        loop {
            while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                let taken = listener.take(line.trim_end_matches('\n'));
                match taken {
                    Ok(Some(answer)) => return Ok(answer),
                    Ok(None) => {}
                    Err(odd) => {
                        return Err(format!(
                            "AMD's packet library's helper sent an unknown answer: {odd}"
                        ));
                    }
                }
            }
            total += self.more(until)?;
            if total > MOST {
                return Err(
                    "the helper for AMD's packet library sent too long an answer".to_owned(),
                );
            }
        }
    }

    /// Writes all bytes. The pipe does not block, so the deadline also holds for a helper that does
    /// not read.
    fn say(&self, mut rest: &[u8], until: Instant) -> Result<(), String> {
        while !rest.is_empty() {
            if !is_ready(&self.to, libc::POLLOUT, until)? {
                continue;
            }
            let written = without_sigpipe(|| {
                let bytes = rest.as_ptr().cast();
                // SAFETY: the descriptor and the bytes are ours. If the pipe's reader is gone, the
                // call returns an error, since SIGPIPE is blocked meanwhile.
                counted(unsafe { libc::write(self.to.as_raw_fd(), bytes, rest.len()) })
            });
            match written {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if may_go_on(&error) => {}
                Err(_) => return Err("the helper for AMD's packet library has ended".to_owned()),
            }
        }
        Ok(())
    }

    fn more(&mut self, until: Instant) -> Result<usize, String> {
        if !is_ready(&self.from, libc::POLLIN, until)? {
            return Ok(0);
        }
        let mut bytes = vec![0_u8; 1 << 16];
        // SAFETY: the descriptor and the memory are ours.
        let read = counted(unsafe {
            libc::read(
                self.from.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
            )
        });
        match read {
            Ok(0) => Err("AMD's packet library ended its process".to_owned()),
            Ok(count) => {
                self.read
                    .extend_from_slice(bytes.get(..count).unwrap_or_default());
                Ok(count)
            }
            Err(error) if may_go_on(&error) => Ok(0),
            Err(_) => Err("cannot read from the helper for AMD's packet library".to_owned()),
        }
    }
}

/// Waits until a pipe can be read or written. Returns false after a signal handler ran.
fn is_ready(pipe: &OwnedFd, events: libc::c_short, until: Instant) -> Result<bool, String> {
    let left = until.saturating_duration_since(Instant::now());
    let mut poll = libc::pollfd {
        fd: pipe.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: the pointer is to one valid entry.
    match unsafe { libc::poll(&mut poll, 1, left.as_millis() as c_int) } {
        0 => Err("AMD's packet library did not answer".to_owned()),
        ready => Ok(ready > 0),
    }
}

/// Turns the result of a system call into a Result, while errno still has its error.
fn counted(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether a call failed only for the moment.
fn may_go_on(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

/// Runs `act` with SIGPIPE blocked in this thread, and consumes a SIGPIPE that it caused.
fn without_sigpipe<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are on this stack, and the mask is this thread's own. `sigtimedwait` without
    // waiting consumes a pending signal, and only if it was not pending before.
    unsafe {
        let mut pipe: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::sigpending(&mut pending);
        let was_pending = libc::sigismember(&pending, libc::SIGPIPE) == 1;
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        let result = act();
        if !was_pending {
            let now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            libc::sigtimedwait(&pipe, std::ptr::null_mut(), &now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), String> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err("cannot create a pipe: no free descriptors".to_owned());
    }
    // The numbers 0 to 2 are the application's own, even where it has closed them.
    let moved = ends.map(|end| {
        // SAFETY: pipe2 has just made the descriptor, and nothing else owns it.
        let end = unsafe { OwnedFd::from_raw_fd(end) };
        // SAFETY: fcntl only duplicates an open descriptor.
        let other = unsafe { libc::fcntl(end.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
        // SAFETY: fcntl has just made the descriptor, and nothing else owns it.
        (other >= 0).then(|| unsafe { OwnedFd::from_raw_fd(other) })
    });
    match moved {
        [Some(read), Some(write)] => Ok((read, write)),
        _ => Err("cannot create a pipe: no free descriptors".to_owned()),
    }
}

fn spawn(program: &Path, libraries: &[OsString]) -> Result<Process, String> {
    let (stdin, to) = pipe()?;
    let (from, stdout) = pipe()?;
    let why = |why| format!("cannot start the helper for AMD's packet library: {why}");
    midair_unseen::start(&Start {
        program,
        name: program.as_os_str(),
        arguments: libraries,
        variables: &[],
        input: stdin.as_fd(),
        output: stdout.as_fd(),
    })
    .map_err(why)?;
    // SAFETY: the descriptor is ours.
    if unsafe { libc::fcntl(to.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
        return Err(why(io::Error::last_os_error().to_string()));
    }
    Ok(Process {
        to,
        from,
        read: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes more than a pipe holds to a helper that does not read.
    #[test]
    fn a_child_that_does_not_read_is_met_by_the_deadline() {
        let program = Path::new("/bin/sh");
        let helper = spawn(program, &["-c".into(), "exec sleep 2 <&0".into()]).unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        let said = helper.say(&vec![b'x'; 1 << 20], until).unwrap_err();
        assert!(said.contains("did not answer"), "{said}");
    }

    /// Returns the answer of a shell script that runs as the helper.
    fn told(script: &str) -> Result<Answer, String> {
        let libraries = ["-c".into(), script.into()];
        let mut helper = spawn(Path::new("/bin/sh"), &libraries)?;
        helper.ask(&Question::default())
    }

    #[test]
    fn a_child_is_asked() {
        let answer = told("read line; read line; echo missing here");
        assert_eq!(answer, Ok(Answer::Missing("here".to_owned())));
        let refused = told("read line; read line; echo refused 1000 count");
        assert!(matches!(refused, Ok(Answer::Refused { code: 0x1000, .. })));
    }

    #[test]
    fn a_child_that_ends_or_says_nonsense_is_told() {
        assert!(told("exit 3").unwrap_err().contains("ended"));
        assert!(told("read line; read line; echo nonsense").is_err());
        assert!(
            spawn(Path::new("/nowhere"), &[])
                .is_ok_and(|mut helper| { helper.ask(&Question::default()).is_err() })
        );
    }
}
