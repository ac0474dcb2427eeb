//! T0: the listener in the process, reached over its socket. No right to trace is needed, and nothing is
//! stopped or traced.
//!
//! The listener belongs to our register library (`midair-register`), which decides who may use it. Here
//! the peer is proven to be the process that was meant, since any process may bind any name: the kernel
//! tells which one listens.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use midair_procinfo::status::Status;
use midair_procinfo::{Pid, Tid, show, task};
use midair_ptrace::{
    Deadline, Pace, connect_abstract, connect_abstract_in, fault, listening_peer, poll_readable,
    receive_now, send_bytes,
};
use midair_record::connect::{
    self, ConnectReply, ConnectRequest, NAMES, REPLY_LEN, outcome, purpose, refusal,
};

use crate::entered::{Entered, EntryPath, Times, Via};
use crate::error::{During, EnterError};
use crate::handshake::DOUBT;
use crate::inspection::LISTENER_NAME;
use crate::options::{FaultPoint, Options};
use crate::payload::{Payload, send};
use crate::process_image::{ImageState, ProcessImage};
use crate::reply::{LAST_WORDS, boot_failure};

/// A listener's socket that was seen.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pid: Pid,
    /// A thread of the process that lives.
    tid: Tid,
    /// The listener.
    listener: Option<Tid>,
    /// Names that somebody listens under, and how many filters the listener had then: one of them
    /// is the process.
    names: Vec<(String, u32)>,
    /// How many system call filters the listener has now.
    filters: u32,
    /// Users of the process.
    uids: [u32; 4],
    /// Identifies the process later.
    image: ProcessImage,
}

/// What the listener said without a session being asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// A HIP or HSA runtime is in the process.
    pub gpu: bool,
}

/// Why it did not work.
#[derive(Debug)]
pub(crate) enum NotServed {
    /// There is no entry path here, for this reason; another path may be open.
    Refused(String),
    /// The listener served, and this came of it.
    Failed(EnterError),
}

impl From<EnterError> for NotServed {
    fn from(error: EnterError) -> NotServed {
        NotServed::Failed(error)
    }
}

fn closed(what: &str, error: &io::Error) -> NotServed {
    NotServed::Refused(format!("{what}: {error}"))
}

impl Endpoint {
    /// Checks whether somebody listens for this process. Nothing is changed.
    pub(crate) fn find(pid: Pid, tid: Tid, status: &Status) -> Option<Endpoint> {
        let inside = *status.ns_tgid.last().unwrap_or(&pid);
        // The process's own start, not that of the thread that stands for it.
        let start = task::stat(pid).ok()?.start_ticks;
        let prefix = connect::prefix(inside.get(), start);
        let sockets = std::fs::read(format!("/proc/{tid}/net/unix")).ok()?;
        let before = format!(" @{prefix}").into_bytes();
        let mut names: Vec<(String, u32)> = sockets
            .split(|byte| *byte == b'\n')
            .filter_map(|line| {
                let at = line
                    .windows(before.len())
                    .position(|window| window == before)?;
                let rest = std::str::from_utf8(line.get(at + before.len()..)?).ok()?;
                // A listener that has its name and is not ready yet does not count, nor do
                // connections, which have the name, too.
                listens(line).then_some(())?;
                Some((format!("{prefix}{rest}"), connect::filters_in(rest)?))
            })
            // Any process may bind as many as it likes.
            .take(4 * NAMES as usize)
            .collect();
        names.sort();
        names.dedup();
        let listener = listener_of(tid);
        (!names.is_empty()).then(|| Endpoint {
            pid,
            tid,
            listener,
            names,
            filters: filters_of(listener.unwrap_or(tid)),
            uids: status.uid,
            image: ProcessImage::of(pid, tid, status),
        })
    }

    /// The listener has got a system call filter since it listens. Serving us may be what that
    /// forbids, on pain of death.
    pub(crate) fn is_filtered_later(&self) -> bool {
        self.names.iter().all(|(_, then)| *then != self.filters)
    }

    /// The listener's thread, when it could be found.
    pub fn listener(&self) -> Option<Tid> {
        self.listener
    }

    /// Asks the listener whether it would serve us, and what is there.
    ///
    /// # Errors
    /// [`EnterError::ListenerUnusable`] with the reason, or what the listener said.
    pub fn ask(&self, options: &Options) -> Result<Accepted, EnterError> {
        let asked = || {
            if self.is_filtered_later() {
                return Err(NotServed::Refused(FILTERED_LATER.into()));
            }
            let connection = self.connect(options)?;
            let answer = self.exchange(&connection, purpose::QUERY, options)?;
            until_hung_up(&connection);
            match answer.outcome {
                outcome::AVAILABLE => Ok(Accepted {
                    gpu: answer.gpu != 0,
                }),
                _ => Err(self.refused(&answer)),
            }
        };
        asked().map_err(NotServed::into_error)
    }

    /// Enters.
    pub(crate) fn enter(
        &self,
        library: Option<&Payload>,
        options: &Options,
    ) -> Result<Entered, NotServed> {
        self.enter_as_it_was(library, options)
            .map_err(|shut| match shut {
                NotServed::Failed(error) => NotServed::Failed(self.image.explain(error)),
                closed => closed,
            })
    }

    fn enter_as_it_was(
        &self,
        library: Option<&Payload>,
        options: &Options,
    ) -> Result<Entered, NotServed> {
        let connection = self.connect(options)?;
        FaultPoint::Connected.reached();
        let answer = self.exchange(&connection, purpose::ATTACH, options)?;
        FaultPoint::Answered.reached();
        fault::step("the listener has answered");
        let fresh = match answer.outcome {
            outcome::SEND => {
                send(&connection, library, answer.library_fd)?;
                FaultPoint::Sent.reached();
                true
            }
            outcome::LOADED => true,
            outcome::WOKEN => false,
            _ => {
                until_hung_up(&connection);
                return Err(self.refused(&answer));
            }
        };
        // The listener serves peers of its own pid namespace only.
        let worker_tid = Tid::new(answer.tid).ok_or_else(|| {
            NotServed::Refused("its listener did not name the worker thread".into())
        })?;
        let doing = if fresh {
            "it has made the worker thread"
        } else {
            "it has woken the worker thread"
        };
        Ok(Entered {
            channel: connection,
            pid: self.pid,
            worker_tid,
            via: Via {
                path: EntryPath::Socket,
                tid: self.listener.unwrap_or(self.pid.leader()),
                name: LISTENER_NAME.into(),
                doing: doing.into(),
                rejected: Vec::new(),
            },
            times: Times::default(),
            mappings: None,
            image: self.image.clone(),
            block: None,
        })
    }

    /// Connects, and proves who listens.
    fn connect(&self, options: &Options) -> Result<OwnedFd, NotServed> {
        let namespace = self.other_namespace();
        let deadline = Deadline::after(options.boot);
        let mut squatter = None;
        for (name, _) in &self.names {
            let mut pace = Pace::new();
            let connection = loop {
                let tried = match &namespace {
                    Some(namespace) => connect_abstract_in(namespace, name),
                    None => connect_abstract(name),
                };
                match tried {
                    // Others are before us: each has its time.
                    Err(error)
                        if error.kind() == io::ErrorKind::WouldBlock && !deadline.passed() =>
                    {
                        pace.rest();
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Err(self.silent());
                    }
                    tried => break tried,
                }
            };
            let connection = match connection {
                Ok(connection) => connection,
                // The process that listened there is gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(closed("its listener cannot be reached", &error)),
            };
            let peer = listening_peer(connection.as_fd())
                .map_err(|error| closed("its listener cannot be proven", &error))?;
            // A daemon listens as root, and drops its rights later.
            if peer.pid == Some(self.pid) && (peer.uid == 0 || self.uids.contains(&peer.uid)) {
                return Ok(connection);
            }
            squatter = Some(peer.pid.map_or(0, Pid::get));
        }
        Err(NotServed::Refused(match squatter {
            Some(pid) => format!("process {pid} listens under its name"),
            None => "its listener has gone".into(),
        }))
    }

    /// The process's network namespace, where it is another one that we may look at.
    fn other_namespace(&self) -> Option<File> {
        let path = format!("/proc/{}/ns/net", self.tid);
        let its = std::fs::read_link(&path).ok()?;
        let ours = std::fs::read_link("/proc/self/ns/net").ok()?;
        (its != ours).then(|| File::open(path).ok()).flatten()
    }

    fn exchange(
        &self,
        connection: &OwnedFd,
        purpose: u32,
        options: &Options,
    ) -> Result<ConnectReply, NotServed> {
        let hung_up = || NotServed::Refused("its listener hung up".into());
        send_bytes(connection.as_fd(), &ConnectRequest::new(purpose).bytes()).or_else(|error| {
            // Its answer may be there already: then it says why.
            match error.raw_os_error() {
                Some(EPIPE | ECONNRESET) => Ok(()),
                _ => Err(closed("its listener cannot be spoken to", &error)),
            }
        })?;
        let deadline = Deadline::after(options.boot);
        loop {
            let slice = Deadline::after(DOUBT.min(deadline.left()));
            if poll_readable(connection.as_fd(), slice).during("waiting for the listener")? {
                break;
            }
            // A process that stands still does not answer; whether it is job control or a tracer is
            // told below.
            if deadline.passed() || self.image.standing() != ImageState::Same {
                return Err(self.silent());
            }
        }
        let mut bytes = [0; REPLY_LEN];
        let got = receive_now(connection.as_fd(), &mut bytes, false).unwrap_or(0);
        bytes
            .get(..got)
            .and_then(ConnectReply::read)
            .ok_or_else(hung_up)
    }

    /// Why nobody answers: a process that is stopped cannot.
    fn silent(&self) -> NotServed {
        let thread = self.listener.unwrap_or(self.tid);
        let Ok(status) = task::status(thread) else {
            return NotServed::Failed(EnterError::Gone {
                during: "waiting for the listener",
            });
        };
        let words = match (status.state, status.tracer) {
            (b't', Some(by)) => {
                let name = task::comm(by).map_or_else(|_| "unknown".into(), |name| show(&name));
                format!("stopped by {by} ({name}), which traces it")
            }
            (b'T' | b't', _) => "stopped".into(),
            _ => return NotServed::Refused("its listener does not answer".into()),
        };
        NotServed::Failed(EnterError::TargetStopped {
            pid: self.pid,
            words,
        })
    }

    fn refused(&self, answer: &ConnectReply) -> NotServed {
        let tid = Tid::new(answer.tid);
        match answer.outcome {
            outcome::BUSY => NotServed::Failed(EnterError::Busy {
                tid: tid.unwrap_or(self.pid.leader()),
                state: "at work",
            }),
            outcome::REFUSED => NotServed::Refused(format!(
                "its listener refuses: {}",
                refusal::text(answer.error)
            )),
            // The parked thread's; the listener's own is in the answer's head.
            outcome::OTHER_VERSION => match tid {
                Some(tid) => NotServed::Failed(EnterError::OtherVersion {
                    tid,
                    version: answer.error.cast_unsigned(),
                }),
                None => NotServed::Refused(format!(
                    "its listener is of another build of midair (layout {})",
                    answer.version
                )),
            },
            outcome::FAILED => NotServed::Failed(boot_failure(answer)),
            other => NotServed::Refused(format!("its listener gave the unknown answer {other}")),
        }
    }
}

impl NotServed {
    fn into_error(self) -> EnterError {
        match self {
            NotServed::Refused(why) => EnterError::ListenerUnusable { why },
            NotServed::Failed(error) => error,
        }
    }
}

/// Why it is left alone.
pub(crate) const FILTERED_LATER: &str =
    "it has got a system call filter since it listens, which may forbid what serving needs";

const EPIPE: i32 = 32;
const ECONNRESET: i32 = 104;

/// Whether a line of `/proc/net/unix` is that of a socket that listens: number, uses, protocol,
/// flags (`__SO_ACCEPTCON`).
fn listens(line: &[u8]) -> bool {
    let flags = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .nth(3)
        .and_then(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
    flags.is_some_and(|flags| flags & 0x1_0000 != 0)
}

/// Waits until the listener has closed its end of a connection that it has nothing more to say on:
/// the process is as it was then.
fn until_hung_up(connection: &OwnedFd) {
    let _open_for_longer = poll_readable(connection.as_fd(), Deadline::after(LAST_WORDS));
}

fn filters_of(tid: Tid) -> u32 {
    let text = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    field("Seccomp_filters:")
        .or_else(|| field("Seccomp:"))
        .unwrap_or(0)
}

fn listener_of(tid: Tid) -> Option<Tid> {
    task::list(tid)
        .ok()?
        .into_iter()
        .find(|tid| task::comm(*tid).is_ok_and(|name| name == LISTENER_NAME.as_bytes()))
}
