//! Follows the spool until the application's side ends the session, or is gone.

use midair_code_names::CodeNames;
use midair_failure::{Failure, Kind};
use midair_ids::Pid;
use midair_procinfo::files::kernel_words;
use midair_procinfo::task;
use midair_ptrace::pidfd_open;
use midair_record::collector::END;
use midair_record::event;
use midair_record::spool::{CHUNK, DROP_SLOTS, Reader, state};
use midair_results::{End, RecordWriter};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

/// How often the spool is read, ms.
const TICK: u8 = 20;
/// How often the application is looked at where only its end of the socket is gone.
const LOOK: Duration = Duration::from_secs(1);
/// How much of the spool's memory is there ahead of its use.
const AHEAD: usize = 4 << 20;

/// The spool, and what was read of it.
pub(crate) struct Follower {
    pub(crate) reader: Reader,
    pub(crate) records: RecordWriter,
    /// How many records tell of calls, dispatches and the like; descriptions do not count.
    pub(crate) events: u64,
    pub(crate) failure: Option<Failure>,
    code_names: CodeNames,
    ahead: usize,
    /// Whether records are dropped.
    drops: bool,
}

impl Follower {
    pub(crate) fn new(reader: Reader, records: RecordWriter, drops: bool) -> Follower {
        Follower {
            reader,
            records,
            events: 0,
            failure: None,
            code_names: CodeNames::default(),
            ahead: 0,
            drops,
        }
    }

    /// Reads what there is. Records that cannot be stored are dropped, so that the spool has room
    /// for new ones. Returns whether there may be more.
    fn read(&mut self) -> bool {
        let (records, events) = (&mut self.records, &mut self.events);
        let taken = self.reader.drain(|bytes| {
            if self.drops {
                return Ok(());
            }
            if *events == 0 {
                *events += count_events(bytes);
            }
            records.append(bytes).map(drop)
        });
        taken.map_or_else(
            |error| {
                let what = format!("cannot store records: {error}");
                self.failure
                    .get_or_insert_with(|| Failure::new(Kind::Output, what));
                true
            },
            |taken| taken > 0,
        )
    }

    /// Names the code on stacks, at the end.
    pub(crate) fn name_code(&mut self) {
        let names = self.code_names.records(self.records.index());
        // Without names, code has the places that the records say.
        let _ = self.records.append(&names);
    }

    /// Reads what there is, while more may come.
    fn round(&mut self, application: &Application) {
        let used = self.reader.head().claim.load(Relaxed) as usize * CHUNK;
        if used + AHEAD > self.ahead && self.ahead < self.reader.size() {
            self.ahead += AHEAD;
            self.reader.fault_in(AHEAD);
        }
        self.read();
        self.code_names.look(application.pid, self.records.index());
    }

    /// Follows the spool until the end, and reads the rest. Returns how the application ended, where
    /// it did not end the session itself.
    pub(crate) fn follow(&mut self, application: &Application, socket: &UnixStream) -> Option<End> {
        let mut its = Some(socket);
        let mut next_look = Instant::now();
        let end = loop {
            self.round(application);
            if let Some(end) = application.wait(its) {
                match end {
                    Seen::Told => break None,
                    Seen::Ended(end) => break Some(end),
                    Seen::Silent => its = None,
                }
            }
            if its.is_some() {
                continue;
            }
            // The application has closed all descriptors that it does not know, or has become
            // another program, or is ending.
            if self.reader.head().state.load(Acquire) == state::COMPLETE {
                break None;
            }
            if Instant::now() >= next_look {
                next_look = Instant::now() + LOOK;
                if application.has_left(&self.reader) {
                    break Some(End::Exec);
                }
            }
        };
        while self.read() {}
        self.code_names.look(application.pid, self.records.index());
        end
    }
}

/// Returns how many of these records tell what happened: records of traced kinds, except records
/// of loaded runtimes.
fn count_events(bytes: &[u8]) -> u64 {
    let (mut rest, mut count) = (bytes, 0);
    while let Ok((_, size)) = event::decode(rest) {
        count += u64::from(rest.get(2).is_some_and(|kind| {
            usize::from(*kind) < DROP_SLOTS && *kind != event::kind::RUNTIME_INITIALIZATION
        }));
        rest = rest.get(size..).unwrap_or_default();
    }
    count
}

/// What a look at the application shows.
enum Seen {
    /// Its side says that no more records come.
    Told,
    /// It has ended.
    Ended(End),
    /// Nothing comes from its side any more.
    Silent,
}

/// The application.
pub(crate) struct Application {
    pid: Pid,
    /// None where the kernel or a sandbox refuses it.
    pidfd: Option<OwnedFd>,
}

impl Application {
    /// Holds the application, which waits for an answer at this time.
    pub(crate) fn hold(pid: Pid) -> Application {
        Application {
            pid,
            pidfd: pidfd_open(pid).ok(),
        }
    }

    /// Waits for a word of its side, or its end, or one tick.
    fn wait(&self, socket: Option<&UnixStream>) -> Option<Seen> {
        let mut polled: Vec<PollFd<'_>> = Vec::new();
        for fd in [
            socket.map(AsFd::as_fd),
            self.pidfd.as_ref().map(AsFd::as_fd),
        ]
        .into_iter()
        .flatten()
        {
            polled.push(PollFd::new(fd, PollFlags::POLLIN));
        }
        let _ = poll(&mut polled, PollTimeout::from(TICK));
        let is_ready = |at: usize| polled.get(at).is_some_and(|it| it.any() == Some(true));
        let mut word = [0];
        if let Some(mut socket) = socket
            && is_ready(0)
        {
            return Some(match socket.read(&mut word) {
                Ok(1) if word == [END] => Seen::Told,
                _ => Seen::Silent,
            });
        }
        let Some(pidfd) = &self.pidfd else {
            return socket.is_none().then_some(Seen::Ended(End::Exited(None)));
        };
        is_ready(usize::from(socket.is_some()))
            .then(|| Seen::Ended(End::of(task::exit_status(pidfd.as_fd(), self.pid))))
    }

    /// Whether it runs on without the spool: it has become another program.
    fn has_left(&self, reader: &Reader) -> bool {
        let Ok(maps) = kernel_words(format!("{}/maps", self.pid)) else {
            return true;
        };
        let file = nix::sys::stat::fstat(reader.fd()).map_or(0, |found| found.st_ino);
        let is_ours = |line: &str| {
            line.split_ascii_whitespace().nth(4) == Some(file.to_string().as_str())
                && line.contains("/memfd:midair-spool")
        };
        // A process that is ending has no memory any more.
        !maps.is_empty() && !maps.lines().any(is_ours)
    }
}
