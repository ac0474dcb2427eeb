//! Many processes at once: a tree, those of a name, or all of the node.
//!
//! Each process has a session and a thread of its own ([`member`]); what belongs to the group is looked at between ([`watch`]). One
//! that fails does not hold the others up. One that comes later, or loads a runtime later, is attached then; one that becomes another
//! program ends its session and is looked at anew.

mod ended;
mod member;
mod watch;

pub use ended::{GroupCollected, Part};
pub use watch::{Selection, tree};

use crate::request::{Entry, Event, Request};
use member::{Common, Member, Said};
use midair_failure::{Failure, Kind};
use midair_results::End;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use watch::{Ripe, Watch};

/// Sessions at one time: each has a thread, some descriptors and a spool.
const MOST: usize = 512;
/// Times that a process which came later is tried, and the wait before the second time; it doubles.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);

/// Which processes, and what to do with each.
#[derive(Debug, Clone)]
pub struct GroupRequest {
    /// Which.
    pub selection: Selection,
    /// For each of them; its pid is that of the process that names results of all, 0 for the first that is attached.
    pub each: Request,
    /// Where no process has a runtime yet, one is waited for; and one that becomes another program, for what it will be. Else the first
    /// is a refusal, and the second the end when nothing else is attached.
    pub patient: bool,
    /// One result of all instead of one for each.
    pub merge: bool,
}

/// What happened in a group, for people.
#[derive(Debug, Clone)]
pub struct News {
    /// Which process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// What.
    pub what: Happened,
}

/// See [`News`].
#[derive(Debug, Clone)]
pub enum Happened {
    /// It records; so long after its attach began.
    Attached(Entry, Duration),
    /// It was not attached.
    Refused(Failure),
    /// It ended by itself.
    Ended(End),
    /// It has no runtime so far and is watched.
    Watched,
}

#[derive(Debug, Default)]
struct Attempts {
    made: u32,
    /// It was there at the start: who asked for it wants to know at once.
    from_the_start: bool,
}

/// Attached processes.
#[derive(Debug)]
pub struct Group {
    request: GroupRequest,
    watch: Watch,
    common: Arc<Common>,
    tell: Sender<(usize, Said)>,
    hear: Receiver<(usize, Said)>,
    members: BTreeMap<usize, Member>,
    attempts: BTreeMap<u32, Attempts>,
    parts: Vec<Part>,
    news: Vec<News>,
    /// Attaches that are under way.
    underway: usize,
    started: usize,
    attached: usize,
    /// Records and bytes of members that are over.
    past: (u64, u64),
    last_end: Option<End>,
}

impl Group {
    /// Attaches to all that can be attached now, in parallel. When it returns, each of them records or is told of in
    /// [`Group::news`].
    ///
    /// # Errors
    /// When none could be attached: why the first could not.
    pub fn attach(mut request: GroupRequest) -> Result<Group, Failure> {
        // Any thread's number will do for its process.
        if let Selection::Tree(root) = &mut request.selection
            && let Some(status) = i32::try_from(*root)
                .ok()
                .and_then(|root| midair_procinfo::task::status(root).ok())
        {
            *root = u32::try_from(status.tgid).unwrap_or(*root);
        }
        let (tell, hear) = channel();
        let mut group = Group {
            watch: Watch::new(request.selection.clone()),
            request,
            common: Arc::new(Common::new()?),
            tell,
            hear,
            members: BTreeMap::new(),
            attempts: BTreeMap::new(),
            parts: Vec::new(),
            news: Vec::new(),
            underway: 0,
            started: 0,
            attached: 0,
            past: (0, 0),
            last_end: None,
        };
        let ripe = group.watch.look();
        let none = ripe.is_empty();
        for process in ripe {
            group.start(process, true);
        }
        // A runtime under another name is told by its functions, which takes long: only the one process that was named is asked.
        if none
            && let Selection::Tree(root) = group.request.selection
            && let Some(found) = crate::find::process(root)
            && crate::attach::refusal(root).is_none()
        {
            group.watch.take_up(root);
            let name = found.name;
            group.start(Ripe { pid: root, name }, true);
        }
        while group.underway > 0 {
            let Ok(said) = group.hear.recv() else { break };
            group.take(said);
        }
        if group.attached > 0 {
            return Ok(group);
        }
        if none && group.request.patient && group.watch.alive() > 0 {
            let watched = group.watch.watched();
            group
                .news
                .extend(watched.into_iter().map(|(pid, name)| News {
                    pid,
                    name,
                    what: Happened::Watched,
                }));
            return Ok(group);
        }
        let refused = group.parts.iter().position(|part| part.collected.is_err());
        let refused = refused.map(|at| group.parts.swap_remove(at));
        Err(match refused.map(|part| part.collected) {
            Some(Err(failure)) => failure,
            _ => group.nobody(),
        })
    }

    /// Why there is nobody to attach to.
    fn nobody(&self) -> Failure {
        match &self.request.selection {
            // Asked again as for one process: it says what is the matter with it.
            Selection::Tree(root) => match crate::attach::refusal(*root) {
                Some(failure) => failure,
                None => Failure::new(
                    Kind::NotGpu,
                    format!(
                        "neither process {root} nor any that descends from it has a HIP, HSA or CUDA runtime loaded"
                    ),
                ),
            },
            Selection::All => Failure::new(
                Kind::NotGpu,
                "no process that we can look into has a HIP, HSA or CUDA runtime loaded",
            )
            .hint("processes of other users are seen by root only"),
            Selection::Named(wanted) => Failure::new(
                Kind::NoProcess,
                format!("no process has a name or command line that matches '{wanted}'"),
            ),
        }
    }

    fn start(&mut self, process: Ripe, from_the_start: bool) {
        let attempts = self.attempts.entry(process.pid).or_default();
        attempts.made += 1;
        attempts.from_the_start |= from_the_start;
        let mut request = self.request.each.clone();
        request.pid = process.pid;
        let number = self.started;
        self.started += 1;
        let name = process.name.clone();
        let member = if self.members.len() >= MOST {
            Err(Failure::new(
                Kind::Setup,
                format!("{MOST} processes are attached, and no more can be at one time"),
            ))
        } else {
            Member::start(number, name, request, &self.common, self.tell.clone())
        };
        match member {
            Ok(member) => {
                self.underway += 1;
                self.members.insert(number, member);
            }
            Err(failure) => self.refuse(process.pid, process.name, failure),
        }
    }

    /// Takes what a member said.
    fn take(&mut self, (number, said): (usize, Said)) {
        let Some(member) = self.members.get(&number) else {
            return;
        };
        let (pid, name) = (member.pid, member.name.clone());
        match said {
            Said::Attached(entry, took) => {
                self.underway -= 1;
                self.attached += 1;
                self.news.push(News {
                    pid,
                    name,
                    what: Happened::Attached(entry, took),
                });
            }
            Said::Refused(failure) => {
                self.underway -= 1;
                self.members.remove(&number);
                self.consider(pid, name, failure);
            }
            Said::Ending(end) => {
                if let Some(member) = self.members.get_mut(&number) {
                    member.ending = true;
                }
                self.last_end = Some(end);
                self.news.push(News {
                    pid,
                    name,
                    what: Happened::Ended(end),
                });
            }
            Said::Over(end, collected) => {
                if let Some(mut member) = self.members.remove(&number) {
                    member.join();
                    self.past.0 += member.counters.records.load(Relaxed);
                    self.past.1 += member.counters.bytes.load(Relaxed);
                }
                if let Some(end) = end {
                    match end {
                        // It goes on, as another program or without us.
                        End::Exec | End::Lapsed => {
                            self.attempts.remove(&pid);
                            self.watch.look_anew(pid);
                        }
                        _ => self.watch.leave(pid),
                    }
                }
                self.parts.push(Part {
                    pid,
                    name,
                    collected: *collected,
                });
            }
        }
    }

    /// A process was not attached: whether that is a failure, or to be tried again.
    fn consider(&mut self, pid: u32, name: String, failure: Failure) {
        let attempts = self.attempts.get(&pid);
        let (made, from_the_start) =
            attempts.map_or((1, false), |tried| (tried.made, tried.from_the_start));
        let is_root = matches!(self.request.selection, Selection::Tree(root) if root == pid);
        match failure.kind {
            // It ended meanwhile, or has become something else: what it is now is seen at the next look.
            Kind::NoProcess | Kind::Zombie if !is_root => self.watch.leave(pid),
            Kind::NotGpu if !is_root => self.watch.look_anew(pid),
            Kind::NoParkedThread | Kind::Enter | Kind::Setup if !from_the_start && made < TRIES => {
                self.watch.try_again(pid, PAUSE * (1 << made));
            }
            _ => self.refuse(pid, name, failure),
        }
    }

    fn refuse(&mut self, pid: u32, name: String, failure: Failure) {
        self.watch.leave(pid);
        self.news.push(News {
            pid,
            name: name.clone(),
            what: Happened::Refused(failure.clone()),
        });
        self.parts.push(Part {
            pid,
            name,
            collected: Err(failure),
        });
    }

    /// What has happened since this was asked last.
    pub fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// How many have been attached so far.
    pub fn attached(&self) -> usize {
        self.attached
    }

    /// Becomes readable when there is something to [`Group::poll`] for.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.common.bell.as_fd()
    }

    /// Takes what the members say, looks for processes that came, and tells how all stand together. Does not wait. Call it every
    /// 100 ms or so.
    ///
    /// # Errors
    /// None so far; each member's are its own.
    pub fn poll(&mut self) -> Result<Event, Failure> {
        let _ = self.common.bell.read();
        while let Ok(said) = self.hear.try_recv() {
            self.take(said);
        }
        let over = self.attached > 0 && self.members.values().all(|member| member.ending);
        if over && !self.request.patient && !self.has_successors() {
            return Ok(Event::TargetExited(
                self.last_end.unwrap_or(End::Exited(None)),
            ));
        }
        for ripe in self.watch.look() {
            self.start(ripe, false);
        }
        let forever = !matches!(self.request.selection, Selection::Tree(_));
        if self.members.is_empty() && !forever && self.watch.alive() == 0 {
            return Ok(Event::TargetExited(
                self.last_end.unwrap_or(End::Exited(None)),
            ));
        }
        let (mut records, mut bytes) = self.past;
        for member in self.members.values() {
            records += member.counters.records.load(Relaxed);
            bytes += member.counters.bytes.load(Relaxed);
        }
        Ok(Event::Running { records, bytes })
    }

    /// Whether there is more in the tree than the one process that was attached.
    fn has_successors(&self) -> bool {
        self.started > 1 || self.watch.alive() > 1
    }

    /// Detaches from all, in parallel, and gathers what they brought.
    pub fn detach(mut self) -> GroupCollected {
        self.members.values().for_each(Member::stop);
        while !self.members.is_empty() {
            let Ok(said) = self.hear.recv_timeout(Duration::from_millis(200)) else {
                self.bury();
                continue;
            };
            let refused_late = matches!(said.1, Said::Refused(_));
            let number = said.0;
            if refused_late {
                // Its turn had not come.
                self.members.remove(&number);
            } else {
                self.take(said);
            }
        }
        let watched = self.watch.watched();
        GroupCollected::new(self.request, std::mem::take(&mut self.parts), watched)
    }

    /// Members whose threads came to an unforeseen end without a last word.
    fn bury(&mut self) {
        let dead: Vec<usize> = self
            .members
            .iter()
            .filter(|(_, member)| member.is_dead())
            .map(|(number, _)| *number)
            .collect();
        for number in dead {
            // Its last word may have come since.
            while let Ok(said) = self.hear.try_recv() {
                self.take(said);
            }
            if let Some(member) = self.members.remove(&number) {
                self.parts.push(Part {
                    pid: member.pid,
                    name: member.name.clone(),
                    collected: Err(Failure::new(
                        Kind::Enter,
                        "the thread of its session came to an unforeseen end",
                    )),
                });
            }
        }
    }
}
