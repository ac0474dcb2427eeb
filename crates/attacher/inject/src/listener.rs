//! T0: the listener in the process is reached over its socket. Nothing is stopped or traced. The
//! right to trace is needed all the same; it is shown by reading a token in the process's memory.
//!
//! The listener belongs to our register library (`midair-register`), which decides who may use it.
//! Here we prove that the peer is the process that was meant, since any process may bind any name.
//! Its socket is the one that is among the process's descriptors, and the kernel tells which
//! process listens.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use midair_procinfo::files::{kernel_file, kernel_link, kernel_text, kernel_words};
use midair_procinfo::status::Status;
use midair_procinfo::{Pid, Tid, freezer, maps, show, task};
use midair_ptrace::{
    Deadline, Pace, connect_abstract, connect_abstract_in, fault, in_helper_process_always,
    listening_peer, poll_readable, receive_now, send_bytes,
};
use midair_record::connect::{
    self, ConnectProof, ConnectReply, ConnectRequest, REPLY_LEN, TOKEN_LEN, Token, outcome,
    purpose, refusal,
};

use crate::entered::{Entered, EntryPath, Times, Via};
use crate::error::{During, EnterError};
use crate::handshake::DOUBT;
use crate::inspection::LISTENER_NAME;
use crate::options::{FaultPoint, Options};
use crate::payload::{Payload, send};
use crate::process_image::{ImageState, ProcessImage};
use crate::reply::{LAST_WORDS, boot_failure};

/// The socket of a process's listener.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pid: Pid,
    /// A live thread of the process.
    tid: Tid,
    /// The listener.
    listener: Option<Tid>,
    /// The name of its socket.
    name: String,
    /// How many system call filters the listener had when it started to listen.
    filters_then: u32,
    /// How many filters it has now.
    filters: u32,
    /// Users of the process.
    uids: [u32; 4],
    /// Identifies the process later.
    image: ProcessImage,
}

/// What the listener answered to a question, without being asked for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// A HIP or HSA runtime is in the process.
    pub gpu: bool,
}

/// Why the listener was not used, or why entering through it failed.
#[derive(Debug)]
pub(crate) enum NotServed {
    /// This entry path is closed, for this reason. Another path may be open.
    Refused(String),
    /// The listener served, and entering failed with this error.
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
    /// Looks for the process's listener. Also returns the number of sockets of other processes that
    /// have such a name. Nothing is changed.
    pub(crate) fn find(pid: Pid, tid: Tid, status: &Status) -> (Option<Endpoint>, usize) {
        let inside = *status.ns_tgid.last().unwrap_or(&pid);
        // This is the start time of the process itself, not of the thread `tid`.
        let Ok(stat) = task::stat(pid) else {
            return (None, 0);
        };
        let prefix = connect::prefix(inside.get(), stat.start_ticks);
        let sockets = kernel_text(format!("{tid}/net/unix")).unwrap_or_default();
        let named: Vec<Listening> = sockets
            .split(|byte| *byte == b'\n')
            .filter_map(|line| listening(line, &prefix))
            .collect();
        // Any process may bind as many such names as it likes. The listener's socket is the one
        // among this process's descriptors.
        let Some(own) = own_of(tid, &named) else {
            return (None, named.len());
        };
        let listener = listener_of(tid);
        let endpoint = Endpoint {
            pid,
            tid,
            listener,
            name: own.name.clone(),
            filters_then: own.filters,
            filters: filters_of(listener.unwrap_or(tid)),
            uids: status.uid,
            image: ProcessImage::of(pid, tid, status),
        };
        (Some(endpoint), named.len().saturating_sub(1))
    }

    /// Returns true if the listener has got a system call filter since it started to listen. That
    /// filter may forbid what serving us needs, and may kill the process for it.
    pub(crate) fn is_filtered_later(&self) -> bool {
        self.filters_then != self.filters
    }

    /// Returns the listener's thread, if it could be found.
    pub fn listener(&self) -> Option<Tid> {
        self.listener
    }

    /// Asks the listener whether it would serve us, and what is in its process.
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

    /// Enters the process through its listener.
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

    /// Connects, and checks that the process that was meant is the one that listens.
    fn connect(&self, options: &Options) -> Result<OwnedFd, NotServed> {
        let namespace = self.other_namespace();
        let deadline = Deadline::after(options.boot);
        let mut pace = Pace::new();
        let connection = loop {
            let patience = QUEUEING.min(deadline.left());
            let tried = match &namespace {
                Some(namespace) => connect_abstract_in(namespace, &self.name, patience),
                None => connect_abstract(&self.name, patience),
            };
            match tried {
                // Other connections are before us, and each takes its time.
                Err(error) if is_passing(&error) && !deadline.passed() => pace.rest(),
                Err(error) if is_passing(&error) => return Err(self.silent()),
                tried => break tried,
            }
        };
        let connection = connection.map_err(|error| match error.kind() {
            // The process that listened there is gone.
            io::ErrorKind::ConnectionRefused => NotServed::Refused("its listener is gone".into()),
            _ => closed("cannot connect to its listener", &error),
        })?;
        let peer = listening_peer(connection.as_fd())
            .map_err(|error| closed("cannot verify its listener", &error))?;
        // A daemon may start to listen as root, and drop its rights later.
        if peer.pid == Some(self.pid) && (peer.uid == 0 || self.uids.contains(&peer.uid)) {
            return Ok(connection);
        }
        let squatter = peer.pid.map_or(0, Pid::get);
        Err(NotServed::Refused(format!(
            "process {squatter} listens under its name"
        )))
    }

    /// Returns the process's network namespace, if it is not ours and we may open it.
    fn other_namespace(&self) -> Option<File> {
        let path = format!("{}/ns/net", self.tid);
        let its = kernel_link(&path).ok()?;
        let ours = kernel_link("self/ns/net").ok()?;
        (its != ours).then(|| kernel_file(path).ok()).flatten()
    }

    /// Asks for what `purpose` says, shows that we may trace the process, and returns the reply.
    fn exchange(
        &self,
        connection: &OwnedFd,
        purpose: u32,
        options: &Options,
    ) -> Result<ConnectReply, NotServed> {
        self.say(connection, &ConnectRequest::new(purpose).bytes())?;
        let first = self.reply(connection, options)?;
        if first.outcome != outcome::CHALLENGE {
            return Ok(first);
        }
        FaultPoint::Challenged.reached();
        let token = self.token(first.token_at)?;
        self.say(connection, &ConnectProof { token }.bytes())?;
        fault::step("the token was sent back");
        self.reply(connection, options)
    }

    fn say(&self, connection: &OwnedFd, words: &[u8]) -> Result<(), NotServed> {
        send_bytes(connection.as_fd(), words).or_else(|error| {
            // The listener's answer may be there already and say why it hung up.
            match error.raw_os_error() {
                Some(EPIPE | ECONNRESET) => Ok(()),
                _ => Err(closed("cannot communicate with its listener", &error)),
            }
        })
    }

    /// Reads the token at an address that the process has sent. Nothing else of its memory is ever
    /// sent back, because by then the process might be another program, while the program that it
    /// was before might still have the connection.
    fn token(&self, at: u64) -> Result<Token, NotServed> {
        let unread = |error: &io::Error| {
            let why =
                "its listener requires proof that midair may read its memory, and midair may not";
            closed(why, error)
        };
        // Reading memory that is mapped from a file may block. So only plain memory is read.
        let own = kernel_text(format!("{}/maps", self.tid)).map_err(|error| unread(&error))?;
        let end = at.saturating_add(TOKEN_LEN as u64);
        let plain = maps::parse(&own).iter().any(|mapping| {
            mapping.holds(at)
                && end <= mapping.end
                && mapping.inode == 0
                && mapping.path.is_empty()
                && !mapping.shared
        });
        let mut bytes = [0; TOKEN_LEN];
        if plain {
            let memory = kernel_file(format!("{}/mem", self.tid));
            memory
                .and_then(|memory| {
                    in_helper_process_always(|| memory.read_exact_at(&mut bytes, at))
                })
                .map_err(|error| unread(&error))?;
        }
        Token::read(&bytes)
            .filter(|_| self.image.standing() == ImageState::Same)
            .ok_or_else(|| {
                NotServed::Refused("its listener's token is not at the announced address".into())
            })
    }

    fn reply(&self, connection: &OwnedFd, options: &Options) -> Result<ConnectReply, NotServed> {
        let deadline = Deadline::after(options.boot);
        loop {
            let slice = Deadline::after(DOUBT.min(deadline.left()));
            if poll_readable(connection.as_fd(), slice).during("waiting for the listener")? {
                break;
            }
            // A process that is stopped does not answer. Whether job control or a tracer stopped it
            // is found out below.
            if deadline.passed() || self.image.standing() != ImageState::Same {
                return Err(self.silent());
            }
        }
        let mut bytes = [0; REPLY_LEN];
        let got = receive_now(connection.as_fd(), &mut bytes, false).unwrap_or(0);
        bytes
            .get(..got)
            .and_then(ConnectReply::read)
            .ok_or_else(|| NotServed::Refused("its listener hung up".into()))
    }

    /// Returns why the listener does not answer: perhaps it cannot, because its process is stopped.
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
            _ if freezer::frozen(thread).is_some() => "frozen by its cgroup".into(),
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
            // This is the parked thread's version. The listener's own is in the head of the answer.
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

/// Why such a listener is left alone.
pub(crate) const FILTERED_LATER: &str = "it has installed a system call filter since its listener started, which may forbid calls that the listener needs";

const EPIPE: i32 = 32;
const ECONNRESET: i32 = 104;

/// Returns true if trying again may help.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// How long one attempt to connect may wait behind other connections.
const QUEUEING: Duration = Duration::from_millis(200);

/// A listening socket whose name is one that a listener of this process would have.
#[derive(Debug, PartialEq, Eq)]
struct Listening {
    name: String,
    filters: u32,
    inode: u64,
}

/// Reads a line of `/proc/net/unix`: number, uses, protocol, flags (`__SO_ACCEPTCON`), type, state,
/// inode, path. A socket that has the name but does not listen yet does not count. Neither do
/// connections, which have the name, too.
fn listening(line: &[u8], prefix: &str) -> Option<Listening> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let flags = u32::from_str_radix(words.nth(3)?, 16).ok()?;
    let inode = words.nth(2)?.parse().ok()?;
    let name = words.next()?.strip_prefix('@')?;
    let filters = connect::filters_in(name.strip_prefix(prefix)?)?;
    // The kernel shows a newline or a space in a name as it is. So a line with further words has a
    // name that is not ours.
    (flags & 0x1_0000 != 0 && words.next().is_none()).then(|| Listening {
        name: name.into(),
        filters,
        inode,
    })
}

/// Returns the one of `named` that is among the descriptors of a process.
fn own_of(tid: Tid, named: &[Listening]) -> Option<&Listening> {
    if named.is_empty() {
        return None;
    }
    task::descriptors(tid).ok()?.into_iter().find_map(|fd| {
        let link = kernel_link(format!("{tid}/fd/{fd}")).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        let inode: u64 = inode.parse().ok()?;
        named.iter().find(|socket| socket.inode == inode)
    })
}

/// Waits until the listener has closed its end of a connection on which it has nothing more to say.
/// The process is then as it was before the connection.
fn until_hung_up(connection: &OwnedFd) {
    let _open_for_longer = poll_readable(connection.as_fd(), Deadline::after(LAST_WORDS));
}

fn filters_of(tid: Tid) -> u32 {
    let text = kernel_words(format!("{tid}/status")).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_listen_under_the_name_are_found() {
        let prefix = connect::prefix(7, 900);
        let name = connect::name(7, 900, 1, 2);
        let line = |flags: &str, path: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} 0005 01 4711 {path}")
        };
        let found = |line: &str| listening(line.as_bytes(), &prefix);
        let good = found(&line("00010000", &format!("@{name}"))).unwrap();
        assert_eq!(
            (good.name, good.filters, good.inode),
            (name.clone(), 2, 4711)
        );
        for bad in [
            line("00000000", &format!("@{name}")),
            line("00010000", &name),
            line("00010000", &format!("@x{name}")),
            line("00010000", &format!("@{name} more")),
            line("00010000", &format!("@{prefix}0/2")),
            line("00010000", ""),
            "Num       RefCount Protocol Flags    Type St Inode Path".into(),
            String::new(),
        ] {
            assert_eq!(found(&bad), None, "{bad}");
        }
    }
}
